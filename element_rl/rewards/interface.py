"""What every intrinsic reward offers: four functions for one agent, which populations `vmap`.

    init(key, spec) -> state
    observe(state, episode) -> (state, notes)       an episode ended; what to write down about each
                                                    of its transitions
    update(state, batch, key) -> (state, metrics)   one learning step, for methods that learn
    reward(state, batch) -> [B]                     pure; what the learner gets

These are names, not code to inherit. A reward that keeps nothing says so with an empty
`note_shapes`. `reward_terms` splits the reward into its named parts for the log.

A reward may offer more, and whoever uses rewards asks for that, never for their type:

    HasMemory     it keeps states in a lifelong memory
    Remembers     so it does, and notes change when states enter it
    Measures      part of what it notes of an episode depends on nothing but the episode
    Compares      it keeps a pool of transitions, and takes a transition with the same bits for the
                  same one
    SeesEntropy   it is paid for the entropy of episodes, and can say where that is blind
    Windowed      states enter its memory in certain windows of the run only
    KeepsScale    the size of its values means something, and sums leave it as it is
    NeedsLatent   it pays a policy for following a random vector z, which the policy must be told

Sums and products of rewards (`composite`) can do what their rewards can; a further capability needs
a line in `composite_capabilities`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from element_rl.memory import Memory
from element_rl.replay.ring import Episode, Transitions

# What a reward is given where its paper has observations: these, or ELEMENT's states (embedding ⊕
# position ⊕ orientation). Whoever hands out transitions does it (`ring.seen_as_states`); the reward
# itself knows nothing of it.
Inputs = Literal["own", "state"]


@dataclass(frozen=True)
class RewardSpec:
    """What a reward must know of the environment and the run."""

    observation_dim: int
    action_dim: int
    state_dim: int
    max_episode_steps: int
    total_steps: int  # environment steps per agent of the whole run, to size memories
    chooses: bool = False  # actions are one-hot vectors of a choice, and told with a softmax


@runtime_checkable
class Reward(Protocol):
    """One intrinsic reward. Its state is a pytree of arrays."""

    name: ClassVar[str]

    @property
    def metric_names(self) -> tuple[str, ...]:
        """What `update` reports beside the agent's own metrics: columns of metrics.csv."""
        ...

    def note_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Name and shape of each note kept per transition."""
        ...

    def init(self, key: PRNGKeyArray, spec: RewardSpec) -> Any: ...

    def observe(self, state: Any, episode: Episode) -> tuple[Any, dict[str, Array]]: ...

    def update(
        self, state: Any, batch: Transitions, key: PRNGKeyArray
    ) -> tuple[Any, dict[str, Array]]: ...

    def reward(self, state: Any, batch: Transitions) -> Float[Array, " B"]: ...

    def reward_terms(self, state: Any, batch: Transitions) -> dict[str, Float[Array, " B"]]: ...


class Entering(NamedTuple):
    """The states of an episode that enter a memory, moved to the front, and each row's origin."""

    states: Float[Array, "T D"]
    values: Float[Array, " T"]
    number: Int[Array, ""]  # how many rows are true
    # of each row of the episode among those entering; NO_NODE for the others
    rank: Int[Array, " T"]
    visitors: Int[Array, " T"]  # of each entering row, the number of whose it is


@runtime_checkable
class HasMemory(Protocol):
    """A reward, on transitions or on rollouts, with a lifelong memory of states."""

    def memory_size(self, state: Any) -> Any:
        """Remembered states."""
        ...

    def why_empty(self, steps: int) -> str:
        """Why nothing is remembered in so many steps; empty where something is, or nothing is paid
        for it."""
        ...


@runtime_checkable
class Remembers(HasMemory, Protocol):
    """A reward with a lifelong memory of states, and notes about it.

    Whoever keeps its notes must refresh all of them when states enter the memory. A memory that
    lives on the host is the caller's: it is asked before `observe`, which is given its answer.
    """

    @property
    def num_neighbours(self) -> int:
        """k: distances noted per transition."""
        ...

    @property
    def memory_on_host(self) -> bool:
        """Whether the caller keeps the memory, an `HnswMemory`."""
        ...

    def enters(self, step: Int[np.ndarray, " T"]) -> Bool[np.ndarray, " T"]:
        """Whether the states of these environment steps enter the memory, on the host."""
        ...

    def empty_memory(self, kind: str, dim: int) -> Memory:
        """A memory of this kind, with the reward's settings for it."""
        ...

    def with_room(self, state: Any, number: int) -> Any:
        """The state with a memory that has room for so many states in all."""
        ...

    def observe(
        self, state: Any, episode: Episode, neighbour_distances: Float[Array, "T K"] | None = None
    ) -> tuple[Any, dict[str, Array]]: ...

    def notes_change(self, before: Any, after: Any) -> Any:
        """Whether stored notes change with an episode that states of may have entered the memory:
        the states of the reward before and after `observe`. Where not, `refresh` may be left out.
        """
        ...

    def refresh(
        self,
        before: Any,
        after: Any,
        episode: Episode,
        slots: Int[Array, " T"],
        notes: Mapping[str, Array],
        states: Float[Array, "N D"],
        num_rows: Int[Array, ""],
    ) -> dict[str, Array]:
        """The notes of everything stored, now that the episode has been observed.

        slots: the rows of its own transitions among the stored ones; N for padding. Rows from
        `num_rows` on hold nothing yet.
        """
        ...


@runtime_checkable
class Measures(Protocol):
    """A reward that can say beforehand what it makes of an episode alone, such as its entropy.

    Whoever has several episodes to observe may then measure them together; their states enter
    memories one after the other.
    """

    def measure(self, episode: Episode) -> Any:
        """What `observe` takes as `measured`, and computes itself where it is not given."""
        ...


@runtime_checkable
class Compares(Protocol):
    """A reward that compares transitions with a pool of others."""

    def with_transitions(self, state: Any, batch: Transitions) -> Any:
        """The state with these transitions in the pool, and nothing learned from them."""
        ...

    def told_apart(self, batch: Transitions, number: Float[Array, "B 2"]) -> Transitions:
        """The batch with a number of its own in every transition, where the reward does not look.

        Transitions with the same bits are then different ones.
        """
        ...


class EntropyKernel(NamedTuple):
    """κ(x, y) = exp(−‖x−y‖² / (2σ)), by which an entropy tells the states of an episode apart."""

    bandwidth: float  # σ
    renyi_order: float | None  # None: a kernel density


@runtime_checkable
class SeesEntropy(Protocol):
    """A reward, on transitions or on rollouts, that is paid for the entropy of episodes."""

    @property
    def entropy_kernel(self) -> EntropyKernel | None:
        """None where no kernel decides: for other estimators, and where entropy is not paid."""
        ...

    def entropy_note(self, episodes: Sequence[Float[np.ndarray, "_ D"]]) -> str:
        """One line for the user on why the entropy cannot tell these episodes of states apart;
        empty where it can."""
        ...


@runtime_checkable
class Windowed(Protocol):
    """A reward, on transitions or on rollouts, that remembers states in update windows only."""

    @property
    def update_window(self) -> dict[str, int]:
        """Steps between two windows and of one, by the names that a run's summary has for them."""
        ...


@runtime_checkable
class KeepsScale(Protocol):
    """A reward, on transitions or on rollouts, of a known size: within [0, 1] or near it, or in the
    task's own unit. In a sum it is not divided by its recent deviation, unless that is asked for.
    """

    keeps_scale: bool


def keeps_scale(reward: Any) -> bool:
    """Whether the size of a reward means something."""
    return isinstance(reward, KeepsScale) and reward.keeps_scale


class Latent(NamedTuple):
    """z, a random vector that a policy is told in the last columns of its observations.

    `envs.latents` says what the kinds are, and appends them.
    """

    dim: int
    kind: Literal["sphere", "choice"] = "sphere"
    every: int | None = None  # steps until it is drawn anew; None: with every episode

    @property
    def option(self) -> str:
        """What an environment is told to have it: `latent=…`."""
        return ":".join(map(str, (self.kind, self.dim, *((self.every,) if self.every else ()))))


@runtime_checkable
class NeedsLatent(Protocol):
    """A reward, on transitions or on rollouts, that may read z from the observations it is given.

    A reward made of others forwards it: `latent_of` of whichever needs one.
    """

    @property
    def latent(self) -> Latent | None:
        """What z must be; None where it needs none."""
        ...


def latent_of(reward: Any) -> Latent | None:
    """The latent that a reward needs; None for all others."""
    return reward.latent if isinstance(reward, NeedsLatent) else None


def remembering(reward: Reward) -> Remembers | None:
    """The reward as one that remembers; None for all others."""
    return reward if isinstance(reward, Remembers) else None


def measuring(reward: Reward) -> Callable[[Episode], Any] | None:
    """How a reward measures an episode; None for those that do not."""
    return reward.measure if isinstance(reward, Measures) else None


def enters_on_host(memory: Remembers, step: Int[np.ndarray, " T"]) -> Bool[np.ndarray, " T"]:
    """Whether the states of these environment steps enter the memory that the caller keeps.

    A reward with several memories, of which that is one, says so by a function of this name; for
    all others it is their memory.
    """
    asked = getattr(memory, "enters_on_host", memory.enters)
    return np.asarray(asked(step))


def comparing(reward: Reward) -> Compares | None:
    """The reward as one that compares; None for all others."""
    return reward if isinstance(reward, Compares) else None


def entropy_kernel(reward: Any) -> EntropyKernel | None:
    """The kernel with which a reward measures the entropy of episodes; None for all others."""
    return reward.entropy_kernel if isinstance(reward, SeesEntropy) else None
