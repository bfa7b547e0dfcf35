"""ELEMENT for on-policy agents: r(s) = r_ep(s) + β · r_l(s), where the state just visited is judged
by remembered ones.

An off-policy agent learns from an episode after its end, when the entropy of the episode is known.
An on-policy agent learns from a rollout, a part of an episode still running. The paper (end of its
method section): "record the episodic state entropy values for each state and assign the average
entropy values of s^kNN to r_ep". So every remembered state, a *node*, keeps the entropy of the
episode it was in (or, with `credit="state"`, what itself added to it), and

    r_ep(s) = mean over the k nodes nearest to s of their episodes' entropies
    r_l(s)  = log(1 + ‖distances to the k nearest nodes‖)                            (Eq. 15)

r_ep is an estimate of Eq. 11: nearby states were in these episodes. Both are scaled to [0, 1]
before they are added; before anything is remembered both are 0. A state is judged before its own
episode has ended, so it is never its own neighbour. The paper has no table for Mario; Ant's
settings are taken.

Readings where the paper is silent:
1. Which nodes answer for r_ep. With one memory that grows in the update windows only, r_ep would be
   0 until t = U and later tell of the episodes of the last window alone. So by default
   (`episodic_nodes="all"`) the nodes of r_ep are the states of every ended episode, and those of
   r_l enter in the windows. `episodic_nodes="window"` is the one memory, taken literally.
2. Over what minimum and maximum are taken: `normalisation`, see docs/methods/element.md. Over one
   rollout alone ("batch") the level would be lost: the best and the worst rollout would both go
   from 0 to 1.
3. Steps of a window. Several workers act at once and only the agent's step at the end of an episode
   is known: an episode of N transitions that ended at step t is taken to have steps t − N … t − 1,
   exact for one worker.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from element_rl.replay.ring import Episode
from element_rl.rewards.element import ElementReward
from element_rl.rewards.element_config import ElementConfig, in_update_window, states_remembered
from element_rl.rewards.element_novelty import proposition_2_holds
from element_rl.rewards.entropy_range import line, seen_episodes
from element_rl.rewards.episode_nodes import Nodes, NodeStore
from element_rl.rewards.interface import EntropyKernel, RewardSpec
from element_rl.rewards.on_rollouts import (
    EpisodeSoFar,
    Part,
    Values,
    padded_length,
    states_reached,
)
from element_rl.rewards.settings import check_settings
from element_rl.rewards.unit_range import Range, empty_range, unit_scaled, widened

TERMS = ("reward_episodic", "reward_lifelong")


@dataclass(frozen=True)
class OnPolicyElementConfig:
    """What the on-policy form adds to ELEMENT's own settings."""

    # its `normalisation` is not used here
    element: ElementConfig = field(default_factory=ElementConfig)
    # r_ep asks the states of all ended episodes, or the lifelong memory
    episodic_nodes: Literal["all", "window"] = "all"
    # over one rollout, the last few, or all so far
    normalisation: Literal["batch", "recent", "running"] = "recent"
    recent_rollouts: int = 100  # how many "recent" means; 100 of 300 steps are 30,000 steps
    # nodes that agree to this in every dimension are searched as one that counts for all
    merge_distance: float = 0.01

    def __post_init__(self) -> None:
        merge = (self.merge_distance >= 0, "0 or more")
        check_settings(self, positive=("recent_rollouts",), merge_distance=merge)
        if self.element.memory == "spaced":
            raise ValueError(
                "memory spaced is for learners from a replay; on rollouts choose auto, exact, "
                "graph or hnsw: there merge_distance joins states that are close."
            )
        if self.element.running:
            raise ValueError(
                "running is for learners from a replay; on rollouts every state is paid while its "
                "episode runs."
            )


class OnPolicyElementState(NamedTuple):
    """What the reward of one agent knows, all of it."""

    episodic: Nodes  # of every ended episode; without room where r_ep asks the lifelong nodes
    lifelong: Nodes  # those that entered in the windows
    ranges: Float[np.ndarray, "2 2 R"]  # of each term, low and high, in each of the last rollouts
    rollouts: Int[np.ndarray, ""]  # counted so far
    episodes: Int[np.ndarray, ""]
    mean_squared_length: Float[np.ndarray, ""]


class RolloutTerms(NamedTuple):
    """What a rollout is worth."""

    terms: Float[np.ndarray, "2 T"]  # r_ep and r_l in [0, 1]
    # of each term before scaling; (inf, −inf) where nothing is remembered
    low_high: Float[np.ndarray, "2 2"]
    distances: Float[np.ndarray, "T K"]  # to the lifelong nodes


class OnPolicyElement:
    """The `Bonus` of one agent or of several: each has its own state, and none is shared."""

    keeps_scale = True  # its terms are scaled to [0, 1]

    def __init__(
        self, config: OnPolicyElementConfig, spec: RewardSpec, name: str = "element"
    ) -> None:
        self.config, self.name = config, name
        element = config.element
        self._checks_condition = element.lifelong_estimator != "knn"
        condition = ("lifelong_condition",) if self._checks_condition else ()
        sizes = ("element_nodes", "element_remembered")
        self.metric_names: tuple[str, ...] = (*condition, "element_entropy", *sizes)
        self._element = ElementReward(element)
        # room for four more episodes: they end where they end, not at the last step of the run
        steps = spec.total_steps + 4 * spec.max_episode_steps
        visited = steps if config.episodic_nodes == "all" else 0
        self._lifelong, self._episodic = (
            NodeStore(element, spec.state_dim, capacity, config.merge_distance)
            for capacity in (states_remembered(steps, element), visited)
        )
        self._shares = jax.jit(self._padded_shares)
        self._scale = jax.jit(self._scaled)
        self._latest: tuple[OnPolicyElementState, np.ndarray, RolloutTerms] | None = None

    @property
    def entropy_kernel(self) -> EntropyKernel | None:
        return self._element.entropy_kernel

    def entropy_note(self, episodes: Sequence[Float[np.ndarray, "_ D"]]) -> str:
        """What is wrong with the entropy of these episodes, in one line; empty where nothing is."""
        return line(seen_episodes(episodes, self.entropy_kernel), as_options=True)

    @property
    def update_window(self) -> dict[str, int]:
        """U and T_u; nothing where states are remembered all the time."""
        config = self.config.element
        if config.remember == "always":
            return {}
        return {"update_interval": config.update_interval, "update_steps": config.update_steps}

    def memory_size(self, state: OnPolicyElementState) -> int:
        """Remembered states."""
        return int(state.lifelong.size)

    def why_empty(self, steps: int) -> str:
        """Why nothing is remembered in so many steps; empty where something is, or where β is 0."""
        return self._element.why_empty(steps)

    def init(self, key: PRNGKeyArray | None = None) -> OnPolicyElementState:
        """Nothing remembered."""
        del key  # nothing here is random
        rollouts = self.config.recent_rollouts if self.config.normalisation == "recent" else 1
        return OnPolicyElementState(
            episodic=self._episodic.create(),
            lifelong=self._lifelong.create(),
            ranges=np.stack(
                [np.full((2, rollouts), limit, np.float32) for limit in (np.inf, -np.inf)], axis=1
            ),
            rollouts=np.zeros((), np.int64),
            episodes=np.zeros((), np.int64),
            mean_squared_length=np.zeros((), np.float64),
        )

    def rewards(self, state: OnPolicyElementState, parts: Sequence[Part]) -> Values:
        """Of the states that the transitions of a rollout led to, and their terms."""
        states = states_reached(parts)
        return self.reward(state, states), self.reward_terms(state, states)

    def learn(
        self, state: OnPolicyElementState, parts: Sequence[Part], key: PRNGKeyArray
    ) -> tuple[OnPolicyElementState, dict[str, float]]:
        """The rollout's minimum and maximum are counted."""
        del key
        states = states_reached(parts)
        metrics = (
            {"lifelong_condition": self.condition(state, states)} if self._checks_condition else {}
        )
        return self.count(state, states), metrics

    def reward(
        self, state: OnPolicyElementState, states: Float[np.ndarray, "T D"]
    ) -> Float[np.ndarray, " T"]:
        """r of consecutive states of a running episode (those that its transitions led to)."""
        episodic, lifelong = self._evaluate(state, states).terms
        weights = self.config.element
        return weights.episodic_weight * episodic + weights.lifelong_weight * lifelong

    def reward_terms(
        self, state: OnPolicyElementState, states: Float[np.ndarray, "T D"]
    ) -> dict[str, Float[np.ndarray, " T"]]:
        """Both terms in [0, 1], before their weights."""
        return dict(zip(TERMS, self._evaluate(state, states).terms, strict=True))

    def count(
        self, state: OnPolicyElementState, states: Float[np.ndarray, "T D"]
    ) -> OnPolicyElementState:
        """The minimum and maximum of a rollout are counted for the scaling of later ones."""
        if self.config.normalisation == "batch":
            return state  # its ranges stay empty
        low_high = self._evaluate(state, states).low_high
        ranges = state.ranges.copy()
        if self.config.normalisation == "running":
            low_high = np.stack(
                [
                    np.minimum(ranges[:, 0, 0], low_high[:, 0]),
                    np.maximum(ranges[:, 1, 0], low_high[:, 1]),
                ],
                axis=1,
            )
        ranges[:, :, int(state.rollouts) % ranges.shape[2]] = low_high
        return state._replace(ranges=ranges, rollouts=state.rollouts + np.ones_like(state.rollouts))

    def observe(
        self, state: OnPolicyElementState, episode: EpisodeSoFar, step: int
    ) -> tuple[OnPolicyElementState, dict[str, float]]:
        """An episode has ended at the agent's `step`: its states become nodes.

        Also its entropy in the estimator's unit, and the nodes that answer for r_ep and for r_l.
        """
        states = episode.states[1:]
        length = len(states)
        shares = self._entropy_shares(states)
        episodes = int(state.episodes) + 1
        mean_squared_length = float(state.mean_squared_length)
        mean_squared_length += (length**2 - mean_squared_length) / episodes
        noted = (
            shares * length / max(mean_squared_length, 1.0)
            if self.config.element.length_weighted
            else shares
        )
        entropies = noted.astype(np.float32)
        enters = np.asarray(
            in_update_window(step - length + np.arange(length), self.config.element)
        )
        state = state._replace(
            episodic=self._episodic.append(state.episodic, states, entropies),
            lifelong=self._lifelong.append(state.lifelong, states[enters], entropies[enters]),
            episodes=np.asarray(episodes, np.int64),
            mean_squared_length=np.asarray(mean_squared_length, np.float64),
        )
        nodes = state.episodic if self.config.episodic_nodes == "all" else state.lifelong
        return state, {
            "element_entropy": float(np.mean(shares)),
            "element_nodes": float(nodes.size),
            "element_remembered": float(state.lifelong.size),
        }

    def condition(self, state: OnPolicyElementState, states: Float[np.ndarray, "T D"]) -> float:
        """The share of the states for which Proposition 2's condition holds."""
        distances, config = self._evaluate(state, states).distances, self.config.element
        size = jnp.asarray(int(state.lifelong.size), jnp.int32)
        rows = jnp.asarray(_padded(distances, np.inf))
        holds = proposition_2_holds(rows, size, config.lifelong_bandwidth, config.tolerance)
        return float(np.mean(np.asarray(holds)[: len(distances)]))

    def _evaluate(
        self, state: OnPolicyElementState, states: Float[np.ndarray, "T D"]
    ) -> RolloutTerms:
        """The memory is searched once for a rollout, though reward, terms and count all ask."""
        latest = self._latest
        if latest is not None and latest[0] is state and np.array_equal(latest[1], states):
            return latest[2]
        k = self.config.element.num_neighbours
        distances, entropies = self._lifelong.query(state.lifelong, states, k)
        if self.config.episodic_nodes == "all":
            entropies = self._episodic.query(state.episodic, states, k).entropies
        terms, low_high = self._scale(
            _padded(entropies, np.nan), _padded(distances, np.inf), state.ranges
        )
        evaluated = RolloutTerms(
            np.asarray(terms)[:, : len(states)], np.asarray(low_high), distances
        )
        self._latest = (state, states.copy(), evaluated)
        return evaluated

    def _scaled(
        self,
        entropies: Float[Array, " T"],
        distances: Float[Array, "T K"],
        ranges: Float[Array, "2 2 R"],
    ) -> tuple[Float[Array, "2 T"], Float[Array, "2 2"]]:
        """Terms in [0, 1] by the ranges and the rollout's own; rows that know no node, and padding,
        give 0."""
        terms, low_high = [], []
        values = (jnp.nan_to_num(entropies), self._element.novelty(distances))
        knowns = (~jnp.isnan(entropies), distances[:, 0] < jnp.inf)
        for value, known, (low, high) in zip(values, knowns, ranges, strict=True):
            own = widened(empty_range(), value, known)
            seen = Range(jnp.minimum(own.low, jnp.min(low)), jnp.maximum(own.high, jnp.max(high)))
            terms.append(jnp.where(known, unit_scaled(value, seen), 0.0))
            low_high.append(jnp.stack(own))
        return jnp.stack(terms), jnp.stack(low_high)

    def _entropy_shares(self, states: Float[np.ndarray, "T D"]) -> Float[np.ndarray, " T"]:
        shares = self._shares(_padded(states, 0.0), np.int32(len(states)))
        return np.asarray(shares, np.float64)[: len(states)]

    def _padded_shares(
        self, states: Float[Array, "T D"], length: Int[Array, ""]
    ) -> Float[Array, " T"]:
        rows = jnp.arange(states.shape[0])
        nothing = jnp.zeros((states.shape[0], 0))
        zeros = jnp.zeros(states.shape[0])
        episode = Episode(nothing, nothing, nothing, zeros, zeros > 0, states, rows < length, rows)
        return self._element.entropy_shares(episode)


def _padded(values: Float[np.ndarray, "T ..."], fill: float) -> Float[np.ndarray, "U ..."]:
    extra = padded_length(len(values)) - len(values)
    return np.concatenate([values, np.full((extra, *values.shape[1:]), fill, values.dtype)])
