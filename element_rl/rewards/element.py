"""ELEMENT: r(s) = r_ep(s) + β · r_l(s), episodic state entropy plus lifelong novelty (Eq. 8).

    r_ep   H(τ) of the episode the transition was in, noted once when it ends (Algorithm 3; the
           expectation over episodes of Eq. 11 comes from sampling)
    r_l    log(1 + ‖distances to the k nearest remembered states‖)   (Eq. 15), noted and kept
           current by merging

Both are scaled to [0, 1] by their minimum and maximum before they are added. States enter the
memory while 0 < t mod U < T_u and t ≥ U, where t counts the environment steps of the agent; until
then r_l is 0. Beyond the paper, U and T_u can grow with t (`first_interval`), for learners of
others that do not know how long they will run.

Proposition 2 offers two more lifelong rewards from the same k distances, −log Σ κ(d_j) (KDE) and −Σ
κ(d_j) (2nd-order Rényi), which stand for the sums over all N remembered states if the farthest of
the k is at least √(2σ log((N−k)/ε)) away; `lifelong_condition` logs the share of the batch for
which that holds.

Readings where the paper is silent:
1. An episode's states enter the memory when it ends, not step by step: the search is one batch, and
   the agent learns from an episode only after its end anyway.
2. Episodes of unequal length (`length_weighted`): the appendix's minimiser Σ T·H / Σ T² of the
   upper bound. The sum over the episodes a state was in is again taken by sampling: a transition is
   noted T·H over the running mean of T².
3. Min–max over the batch (as literal as any) or over all seen so far: `normalisation`. Beyond the
   paper, "standard": mean 0 and deviation 1 over the batch, which a few old episodes of low entropy
   do not squeeze; yet Ant covers half as much with it (docs/results/history/element-series.md).
   Not where dying ends an episode: a reward below the mean would be a reason to die.
   "robust": quantiles of the recent batches (`robust_scale`).
4. Fewer than k remembered states: the norm is over those there are.

Beyond the paper, `credit`: who is paid for H(τ) (`entropy_shares`).

    episode     every state H(τ), the paper's form
    state       each its share: minus the logarithm of how crowded its place is
    variation   each the first variation of H: how fast H grows with the weight of this state

Over the episode each comes to T · H(τ), but any numbers can be shifted so that they do: that is a
convention. The argument for the last two is that ∇H = Σ_s ∇p(s) · δH/δp(s): a policy that is paid
the first variation, and paid anew when it has changed, climbs H (docs/methods/element.md).

A state of an episode that still runs (`running`) is paid its share of the episode so far, and what
shares have lately gained until the end (`still_to_come`). If an episode of N steps goes on for L
steps as it did, elsewhere, every estimator and credit gains log(L / N); if it comes back to the
same places, none does. So the gain is taken to be a part of log(L / N), which is measured: how much
the first halves of recent episodes gained by their second halves.

Also beyond the paper: a memory of spaced states, distances to other episodes only, and states that
are remembered all the time (`element_memory`, `ElementConfig.remember`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from element_rl.entropy import (
    kde_entropy,
    kde_shares,
    kde_variation,
    knn_entropy,
    knn_shares,
    knn_variation,
    renyi_entropy,
    renyi_shares,
    renyi_variation,
)
from element_rl.memory import Memory, make_memory
from element_rl.memory.exact import NO_NODE
from element_rl.memory.in_place import grown
from element_rl.memory.spaced import SpacedMemoryState
from element_rl.replay.ring import Episode, Transitions
from element_rl.rewards import element_memory
from element_rl.rewards.element_config import ElementConfig, in_update_window, states_remembered
from element_rl.rewards.element_memory import DeviceMemory
from element_rl.rewards.element_novelty import novelty, proposition_2_holds
from element_rl.rewards.entropy_range import line, seen_episodes
from element_rl.rewards.interface import Entering, EntropyKernel, RewardSpec
from element_rl.rewards.robust_scale import RobustScale, followed, robustly_scaled, unseen
from element_rl.rewards.unit_range import Range, empty_range, standardised, unit_scaled, widened

RECENT_EPISODES = 100  # whose growth is averaged


class ElementState(NamedTuple):
    """What the reward of one agent knows."""

    memory: DeviceMemory
    memory_size: Int[Array, ""]
    lifelong_weight: Float[Array, ""]  # β, a number per agent
    entropy_range: Range
    novelty_range: Range
    episodes: Float[Array, ""]
    mean_squared_length: Float[Array, ""]
    # of the entropy and the novelty, where they are scaled by quantiles
    scales: tuple[RobustScale, RobustScale] | tuple[()] = ()
    # mean of `ElementReward.growth` over recent episodes, where episodes are noted while they run
    growth: Float[Array, ""] | tuple[()] = ()


class Measured(NamedTuple):
    """What ELEMENT makes of an episode alone."""

    shares: Float[Array, " T"]  # `entropy_shares`
    growth: Float[Array, ""] | None


@dataclass(frozen=True)
class ElementReward:
    """The reward of the paper, for one agent; populations `vmap` it."""

    name: ClassVar[str] = "element"
    keeps_scale: ClassVar[bool] = True  # its terms are scaled to [0, 1]
    config: ElementConfig = field(default_factory=ElementConfig)

    @property
    def metric_names(self) -> tuple[str, ...]:
        condition = () if self.config.lifelong_estimator == "knn" else ("lifelong_condition",)
        spacing = ("memory_spacing",) if self.config.memory == "spaced" else ()
        return condition + spacing + (("entropy_growth",) if self.config.running else ())

    @property
    def _keeps_visitors(self) -> bool:
        return element_memory.keeps_visitors(self.config)

    @property
    def num_neighbours(self) -> int:
        return self.config.num_neighbours

    @property
    def memory_on_host(self) -> bool:
        return self.config.memory == "hnsw"

    @property
    def entropy_kernel(self) -> EntropyKernel | None:
        """None with nearest neighbours, which have no kernel, and without an episodic reward."""
        config = self.config
        if config.estimator == "knn" or config.episodic_weight == 0:
            return None
        order = None if config.estimator == "kde" else float(config.renyi_order)
        return EntropyKernel(config.bandwidth, order)

    def note_shapes(self) -> Mapping[str, tuple[int, ...]]:
        whose: dict[str, tuple[int, ...]] = {"visitor": ()} if self._keeps_visitors else {}
        distances = (self.config.num_neighbours,)
        return {"episode_entropy": (), "neighbour_distances": distances, **whose}

    def enters(self, step: Int[np.ndarray, " T"]) -> Bool[np.ndarray, " T"]:
        """Whether the states of these environment steps enter the memory, on the host."""
        return np.asarray(in_update_window(step, self.config))

    def memory_size(self, state: ElementState) -> Int[Array, "*P"]:
        """Remembered states."""
        return state.memory_size

    def why_empty(self, steps: int) -> str:
        """Why nothing is remembered in so many steps; empty where something is, or where β is 0."""
        if self.config.lifelong_weight == 0 or states_remembered(steps, self.config) > 0:
            return ""
        interval, window = self.config.windows[0]
        if window == 1:
            return "windows of 1 step take in nothing"
        return f"its first window opens at step {interval:,}"

    def empty_memory(self, kind: str, dim: int) -> Memory:
        """A memory of this kind, with the reward's settings for it."""
        options: dict[str, dict[str, Any]] = {
            "graph": {"config": self.config.graph},
            "spaced": {
                "capacity": self.config.memory_capacity,
                "spacing": self.config.memory_spacing,
            },
        }
        return make_memory(kind, dim, **options.get(kind, {}))

    def with_room(self, state: ElementState, number: int) -> ElementState:
        """The state with a memory that has room for so many states in all; one on the host grows by
        itself, and a spaced one never."""
        if self.memory_on_host or self.config.memory == "spaced":
            return state
        return state._replace(memory=grown(state.memory, number))

    def entropy_note(self, episodes: Sequence[Float[np.ndarray, "_ D"]]) -> str:
        """What is wrong with the entropy of these episodes, in one line; empty where nothing is."""
        return line(seen_episodes(episodes, self.entropy_kernel))

    def init(self, key: PRNGKeyArray, spec: RewardSpec) -> ElementState:
        del key  # nothing here is random
        memory = element_memory.create(self.config, spec.total_steps, spec.state_dim)
        zero = jnp.zeros(())
        weight = jnp.asarray(self.config.lifelong_weight, jnp.float32)
        return ElementState(
            memory,
            jnp.zeros((), jnp.int32),
            weight,
            empty_range(),
            empty_range(),
            zero,
            zero,
            (unseen(), unseen()) if self.config.normalisation == "robust" else (),
            zero if self.config.running else (),
        )

    def observe(
        self,
        state: ElementState,
        episode: Episode,
        neighbour_distances: Float[Array, "T K"] | None = None,
        measured: Measured | None = None,
    ) -> tuple[ElementState, dict[str, Array]]:
        """Entropy of the episode, distances to the memory as it is, then the memory with the
        episode's states.

        A memory on the host cannot be asked here: its answer is given as `neighbour_distances`.
        """
        shares, growth = self.measure(episode) if measured is None else measured
        entropy = shares + self.still_to_come(state, episode)
        episodes = state.episodes + 1
        if growth is not None:
            before = jnp.asarray(state.growth)
            recent = jnp.minimum(episodes, RECENT_EPISODES)
            state = state._replace(growth=before + (growth - before) / recent)
        distances = (
            element_memory.query(self.config, state.memory, episode.state)
            if neighbour_distances is None
            else neighbour_distances
        )
        length = jnp.sum(episode.mask).astype(jnp.float32)
        whole = length if episode.whole is None else episode.whole.astype(jnp.float32)
        mean_squared_length = (
            state.mean_squared_length + (length**2 - state.mean_squared_length) / episodes
        )
        noted = (
            entropy * whole / jnp.maximum(mean_squared_length, 1.0)
            if self.config.length_weighted
            else entropy
        )
        entering = self.entering(episode)
        memory = element_memory.insert(self.config, state.memory, entering)
        offered = state.memory_size + entering.number
        state = state._replace(
            memory=memory,
            memory_size=memory.size if isinstance(memory, SpacedMemoryState) else offered,
            entropy_range=widened(state.entropy_range, noted, episode.mask),
            episodes=episodes,
            mean_squared_length=mean_squared_length,
        )
        notes = {"episode_entropy": noted, "neighbour_distances": distances}
        if self._keeps_visitors:
            notes["visitor"] = element_memory.visitors_of(self.config, episode).astype(jnp.float32)
        return state, notes

    def notes_change(self, before: ElementState, after: ElementState) -> Bool[Array, ""]:
        return element_memory.notes_change(before.memory, after.memory)

    def refresh(
        self,
        before: ElementState,
        after: ElementState,
        episode: Episode,
        slots: Int[Array, " T"],
        notes: Mapping[str, Array],
        states: Float[Array, "N D"],
        num_rows: Int[Array, ""],
    ) -> dict[str, Array]:
        """The notes of everything stored, now that an episode has fed the memory."""
        memories, entering = (before.memory, after.memory), self.entering(episode)
        distances = element_memory.refreshed(
            self.config, *memories, entering, slots, notes, states, num_rows
        )
        return {**notes, "neighbour_distances": distances}

    def update(
        self, state: ElementState, batch: Transitions, key: PRNGKeyArray
    ) -> tuple[ElementState, dict[str, Array]]:
        del key
        distances = batch.notes["neighbour_distances"]
        known = jnp.isfinite(distances[:, 0])
        if self.config.normalisation == "running":
            state = state._replace(
                novelty_range=widened(state.novelty_range, self.novelty(distances), known)
            )
        if state.scales:
            entropy = batch.notes["episode_entropy"]
            values = ((entropy, jnp.ones_like(known)), (self.novelty(distances), known))
            episodic, lifelong = map(followed, state.scales, *zip(*values, strict=True))
            state = state._replace(scales=(episodic, lifelong))
        metrics: dict[str, Array] = {}
        if isinstance(state.memory, SpacedMemoryState):
            metrics["memory_spacing"] = state.memory.spacing
        if self.config.running:
            metrics["entropy_growth"] = jnp.asarray(state.growth)
        if self.config.lifelong_estimator != "knn":
            holds = proposition_2_holds(
                distances, state.memory_size, self.config.lifelong_bandwidth, self.config.tolerance
            )
            metrics["lifelong_condition"] = jnp.mean(holds)
        return state, metrics

    def reward(self, state: ElementState, batch: Transitions) -> Float[Array, " B"]:
        terms = self.reward_terms(state, batch)
        return (
            self.config.episodic_weight * terms["reward_episodic"]
            + state.lifelong_weight * terms["reward_lifelong"]
        )

    def reward_terms(
        self, state: ElementState, batch: Transitions
    ) -> dict[str, Float[Array, " B"]]:
        """Both terms, before their weights: in [0, 1] unless they are standardised, or scaled by
        quantiles (then in [0, 2])."""
        entropy = batch.notes["episode_entropy"]
        novelty = self.novelty(batch.notes["neighbour_distances"])
        if self.config.normalisation == "standard":
            return {
                "reward_episodic": standardised(entropy),
                "reward_lifelong": standardised(novelty),
            }
        if state.scales:
            known = jnp.isfinite(batch.notes["neighbour_distances"][:, 0])
            episodic, lifelong = map(robustly_scaled, (entropy, novelty), state.scales)
            return {
                "reward_episodic": episodic,
                "reward_lifelong": jnp.where(known, lifelong, 0.0),
            }
        entropy_range, novelty_range = state.entropy_range, state.novelty_range
        if self.config.normalisation == "batch":
            entropy_range, novelty_range = (
                widened(empty_range(), entropy),
                widened(empty_range(), novelty),
            )
        return {
            "reward_episodic": unit_scaled(entropy, entropy_range),
            "reward_lifelong": unit_scaled(novelty, novelty_range),
        }

    def episode_entropy(self, episode: Episode) -> Float[Array, ""]:
        """H(τ) by the configured estimator: bits for Rényi, nats for the others."""
        if self.config.estimator == "renyi":
            return renyi_entropy(
                episode.state, self.config.renyi_order, self.config.bandwidth, episode.mask
            )
        if self.config.estimator == "kde":
            return kde_entropy(episode.state, self.config.bandwidth, episode.mask)
        neighbours, floor = self.config.estimator_neighbours, self.config.knn_floor
        return knn_entropy(episode.state, neighbours, episode.mask, floor)

    def measure(self, episode: Episode) -> Measured:
        """All that depends on nothing but the episode."""
        shares = self.entropy_shares(episode)
        return Measured(shares, self.growth(episode, shares) if self.config.running else None)

    def growth(self, episode: Episode, shares: Float[Array, " T"]) -> Float[Array, ""]:
        """How much of log(N / n) the states of the first half, n of N, have gained in share by the
        second half: 1 if that was elsewhere, 0 if it came back to the same places."""
        known = jnp.sum(episode.mask)
        first = known // 2
        rows = (len(episode.mask) + 1) // 2
        part = jax.tree.map(lambda leaf: leaf[:rows], episode._replace(whole=None))
        part = part._replace(mask=jnp.arange(rows) < first)
        gains = jnp.where(part.mask, shares[:rows] - self.entropy_shares(part), 0.0)
        mean = jnp.sum(gains) / jnp.maximum(first, 1)
        return jnp.clip(mean / self._log_of(known / jnp.maximum(first, 1)), 0.0, 1.0)

    def still_to_come(self, state: ElementState, episode: Episode) -> Float[Array, ""] | float:
        """What states of an episode that runs, N of L transitions, are going to gain in share, if
        it goes on as episodes have lately: growth · log(L / N)."""
        if episode.whole is None or not self.config.running:
            return 0.0
        known = jnp.maximum(jnp.sum(episode.mask), 1)
        return jnp.asarray(state.growth) * self._log_of(jnp.maximum(episode.whole / known, 1.0))

    def _log_of(self, ratio: Array) -> Array:
        """In the unit of the estimator."""
        return jnp.log2(ratio) if self.config.estimator == "renyi" else jnp.log(ratio)

    def entropy_shares(self, episode: Episode) -> Float[Array, " T"]:
        """What each transition is paid of H(τ): their mean is H(τ), however it is shared."""
        config = self.config
        if config.credit == "episode":
            return jnp.full(episode.mask.shape, self.episode_entropy(episode))
        by_log = config.credit == "state"
        if config.estimator == "renyi":
            renyi = renyi_shares if by_log else renyi_variation
            return renyi(episode.state, config.renyi_order, config.bandwidth, episode.mask)
        if config.estimator == "kde":
            kde = kde_shares if by_log else kde_variation
            return kde(episode.state, config.bandwidth, episode.mask)
        knn = knn_shares if by_log else knn_variation
        return knn(episode.state, config.estimator_neighbours, episode.mask, config.knn_floor)

    def novelty(self, neighbour_distances: Float[Array, "B K"]) -> Float[Array, " B"]:
        """r_l of the noted distances, before it is scaled."""
        config = self.config
        return novelty(neighbour_distances, config.lifelong_estimator, config.lifelong_bandwidth)

    def entering(self, episode: Episode) -> Entering:
        """The states of the episode whose step is within an update window."""
        enters = episode.mask & in_update_window(episode.step, self.config)
        order = jnp.argsort(~enters, stable=True)
        rank = jnp.where(enters, jnp.cumsum(enters, dtype=jnp.int32) - 1, NO_NODE)
        entropy = (
            jnp.full(enters.shape, self.episode_entropy(episode))
            if self.config.memory == "graph"
            else None
        )
        values = jnp.zeros(enters.shape) if entropy is None else entropy
        visitors = element_memory.visitors_of(self.config, episode)[order]
        number = jnp.sum(enters, dtype=jnp.int32)
        return Entering(episode.state[order], values, number, rank, visitors)
