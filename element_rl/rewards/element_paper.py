"""ELEMENT as the paper prints it, whole: `--reward element-paper`.

    r = r_ep + β r_l,                                                               (Eq. 8)
    r_ep(s) = H(τ), the same for all states of the episode                          (Algorithm 3)
    r_l(s)  = log(1 + ‖s − GNNS(G, s)‖)                                             (Eq. 15)

with both terms scaled to [0, 1] over the batch, σ = 1, β = 0.5, k = 3, U = 500,000, T_u = 50,000,
and the estimator and the graph's settings of the paper's table for the robot. The graph is searched
by Algorithm 1 for every sampled batch, where Algorithm 3 computes r_l (line 20): the answer is the
graph's at that moment. `element` notes distances instead and keeps them current exactly, so it has
another r_l even with the graph for a memory.

Readings where the paper is silent:
1. ‖s − GNNS(G, s)‖ with k nodes is the norm of the k distances; of as many as were found where
   there are fewer; 0 for an empty graph.
2. The search starts from random nodes that are drawn anew for every query: by a seed per agent, the
   number of updates so far and the row in the batch. So `reward` is pure.
3. A sampled state may be a node itself. Algorithm 1 has no exception for it, so if the walk gets
   there the nearest neighbour is the state itself, at distance 0.
4. States enter the graph when their episode ends, in their order, and not step by step: the agent
   learns from an episode only after its end.
5. U and T_u are those of the tables however short the run is: r_l is 0 in runs below 500,000 steps.
6. Algorithm 1 keeps end nodes only, and may find fewer than k: see `memory.graph`, departure 1.

Not of the reward, hence not here: whether falling ends an episode (in the paper it does), SAC's
settings, and the length of runs.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt

from element_rl.memory import Memory, graph
from element_rl.memory.graph import GraphMemoryState
from element_rl.memory.in_place import grown
from element_rl.replay.ring import Episode, Transitions
from element_rl.rewards.element import ElementReward
from element_rl.rewards.element_config import ElementConfig, preset, states_remembered
from element_rl.rewards.interface import Entering, EntropyKernel, RewardSpec
from element_rl.rewards.unit_range import empty_range, unit_scaled, widened

# settings that the paper's tables have; all others are as printed
OF_THE_TABLES = (
    *("lifelong_weight", "estimator", "renyi_order", "bandwidth", "estimator_neighbours"),
    *("num_neighbours", "update_interval", "update_steps", "graph"),
)


def printed(env: str | None = None) -> ElementConfig:
    """The paper's settings for a robot, its memory included."""
    return dataclasses.replace(preset(env), memory="graph")


class PrintedState(NamedTuple):
    """What the reward of one agent knows."""

    memory: GraphMemoryState
    seed: UInt[Array, ""]  # of the nodes that searches start from
    updates: UInt[Array, ""]


@dataclass(frozen=True)
class PrintedElementReward:
    """The reward of the paper as printed, for one agent; populations `vmap` it."""

    name: ClassVar[str] = "element-paper"
    keeps_scale: ClassVar[bool] = True  # its terms are scaled to [0, 1]
    config: ElementConfig = field(default_factory=printed)

    def __post_init__(self) -> None:
        as_printed = printed()
        for one in dataclasses.fields(self.config):
            value, wanted = getattr(self.config, one.name), getattr(as_printed, one.name)
            if one.name not in OF_THE_TABLES and value != wanted:
                raise ValueError(
                    f"element-paper has {one.name}={wanted!r}, as printed, got {value!r}: the "
                    "reward element takes others."
                )

    @property
    def metric_names(self) -> tuple[str, ...]:
        return ()

    @property
    def num_neighbours(self) -> int:
        return self.config.num_neighbours

    @property
    def memory_on_host(self) -> bool:
        return False

    @property
    def entropy_kernel(self) -> EntropyKernel | None:
        return self._element.entropy_kernel

    def entropy_note(self, episodes: Sequence[Float[np.ndarray, "_ D"]]) -> str:
        return self._element.entropy_note(episodes)

    def note_shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {"episode_entropy": ()}

    def enters(self, step: Int[np.ndarray, " T"]) -> Bool[np.ndarray, " T"]:
        return self._element.enters(step)

    def memory_size(self, state: PrintedState) -> Int[Array, "*P"]:
        return state.memory.size

    def why_empty(self, steps: int) -> str:
        return self._element.why_empty(steps)

    def empty_memory(self, kind: str, dim: int) -> Memory:
        """A graph, or what its answers are compared with."""
        return self._element.empty_memory("exact" if kind == "exact" else "graph", dim)

    def with_room(self, state: PrintedState, number: int) -> PrintedState:
        return state._replace(memory=grown(state.memory, number))

    def init(self, key: PRNGKeyArray, spec: RewardSpec) -> PrintedState:
        capacity = states_remembered(spec.total_steps, self.config)
        memory = graph.create(capacity, spec.state_dim, self.config.graph)
        return PrintedState(memory, jax.random.bits(key), jnp.zeros((), jnp.uint32))

    def observe(
        self,
        state: PrintedState,
        episode: Episode,
        neighbour_distances: Float[Array, "T K"] | None = None,
        measured: Float[Array, ""] | None = None,
    ) -> tuple[PrintedState, dict[str, Array]]:
        """Lines 10 to 17 of Algorithm 3: H(τ) for every state, and the graph with those of the
        episode that a window takes in."""
        del neighbour_distances  # of a memory on the host, which this is not
        entering = self.entering(episode)
        memory = graph.insert(
            state.memory, entering.states, entering.values, entering.number, self.config.graph
        )
        entropy = self.measure(episode) if measured is None else measured
        noted = jnp.full(episode.mask.shape, entropy)
        return state._replace(memory=memory), {"episode_entropy": noted}

    def measure(self, episode: Episode) -> Float[Array, ""]:
        """H(τ)."""
        return self._element.episode_entropy(episode)

    def entering(self, episode: Episode) -> Entering:
        return self._element.entering(episode)

    def notes_change(self, before: PrintedState, after: PrintedState) -> Any:
        """Notes are of the episode; the graph is asked when r_l is paid."""
        del before, after
        return jnp.asarray(False)

    def refresh(
        self,
        before: PrintedState,
        after: PrintedState,
        episode: Episode,
        slots: Int[Array, " T"],
        notes: Mapping[str, Array],
        states: Float[Array, "N D"],
        num_rows: Int[Array, ""],
    ) -> dict[str, Array]:
        del before, after, episode, slots, states, num_rows
        return dict(notes)

    def update(
        self, state: PrintedState, batch: Transitions, key: PRNGKeyArray
    ) -> tuple[PrintedState, dict[str, Array]]:
        """The next batch is searched from other nodes."""
        del batch, key
        return state._replace(updates=state.updates + jnp.ones((), jnp.uint32)), {}

    def reward(self, state: PrintedState, batch: Transitions) -> Float[Array, " B"]:
        terms = self.reward_terms(state, batch)
        return terms["reward_episodic"] + self.config.lifelong_weight * terms["reward_lifelong"]

    def reward_terms(
        self, state: PrintedState, batch: Transitions
    ) -> dict[str, Float[Array, " B"]]:
        """Lines 20 and 21 of Algorithm 3: both terms, scaled to [0, 1] over the batch."""
        terms = {
            "reward_episodic": batch.notes["episode_entropy"],
            "reward_lifelong": self._element.novelty(self.searched(state, batch.state)),
        }
        return {
            name: unit_scaled(term, widened(empty_range(), term)) for name, term in terms.items()
        }

    def searched(self, state: PrintedState, states: Float[Array, "B D"]) -> Float[Array, "B K"]:
        """GNNS(G, s): distances to the k nodes that Algorithm 1 finds, from random nodes."""
        config = self.config.graph
        key = jax.random.fold_in(jax.random.key(state.seed), state.updates)

        def search(query: Array, key: PRNGKeyArray) -> Array:
            starts = graph.random_starts(key, state.memory.size, config.restarts)
            return graph.search(
                state.memory, query, self.num_neighbours, starts, config.search_steps
            )[0]

        return jax.vmap(search)(states, jax.random.split(key, states.shape[0]))

    @property
    def _element(self) -> ElementReward:
        """Entropies, windows and formulas are those of `element`."""
        return ElementReward(self.config)
