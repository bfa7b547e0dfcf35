"""What a sum of rewards can do because one of its rewards can.

Whoever uses rewards asks for capabilities (`interface`), never for types. So a sum must have the
functions of a capability exactly if a reward of it has. Each capability is a class here that
answers from the rewards that have it; `with_capabilities` puts those together that a sum needs. A
further capability is one more class, and one more line in `FORWARDED`.

`members` are the rewards of the sum, on transitions or on rollouts, and `state.members` their
states.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from element_rl.memory import Memory
from element_rl.replay.ring import Episode, Transitions
from element_rl.rewards.interface import (
    Compares,
    EntropyKernel,
    HasMemory,
    Latent,
    Measures,
    NeedsLatent,
    Remembers,
    SeesEntropy,
    Windowed,
)

TOLD_APART = "told_apart"  # a note: numbers by which a pool tells transitions apart


class HasMemories:
    """Several memories count as one."""

    members: tuple[Any, ...]

    def memory_size(self, state: Any) -> Any:
        sizes = [
            member.memory_size(state.members[index])
            for index, member in having(self.members, HasMemory)
        ]
        return sum(sizes[1:], start=sizes[0])

    def why_empty(self, steps: int) -> str:
        """The first reason of a reward that is paid for its memory."""
        reasons = (member.why_empty(steps) for _, member in having(self.members, HasMemory))
        return next(filter(None, reasons), "")


class RemembersSeveral:
    """Each memory is refreshed for itself. At most one is on the host, and what is asked of the
    caller's memory is asked about that."""

    members: tuple[Any, ...]
    labels: tuple[str, ...]

    @property
    def num_neighbours(self) -> int:
        return self._asked.num_neighbours

    @property
    def memory_on_host(self) -> bool:
        return self._asked.memory_on_host

    def enters(self, step: Int[np.ndarray, " T"]) -> Bool[np.ndarray, " T"]:
        """Into any of the memories."""
        entering = [member.enters(step) for _, member in having(self.members, Remembers)]
        return np.asarray(np.any(entering, axis=0))

    def enters_on_host(self, step: Int[np.ndarray, " T"]) -> Bool[np.ndarray, " T"]:
        return self._asked.enters(step)

    def empty_memory(self, kind: str, dim: int) -> Memory:
        return self._asked.empty_memory(kind, dim)

    def with_room(self, state: Any, number: int) -> Any:
        """Each gets room for all states that are new, since any of them may take them in."""
        remembering = having(self.members, Remembers)
        sizes = {i: int(member.memory_size(state.members[i])) for i, member in remembering}
        more = number - sum(sizes.values())
        members = list(state.members)
        for index, member in remembering:
            members[index] = member.with_room(members[index], sizes[index] + more)
        return state._replace(members=tuple(members))

    def notes_change(self, before: Any, after: Any) -> Any:
        changes = [
            member.notes_change(before.members[index], after.members[index])
            for index, member in having(self.members, Remembers)
        ]
        return jnp.any(jnp.stack(changes))

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
        """The notes of each memory, where they change."""
        refreshed = dict(notes)
        for index, member in having(self.members, Remembers):
            memories = before.members[index], after.members[index]
            prefix = f"{self.labels[index]}."
            own = under_prefix(notes, prefix)

            def anew(old: dict[str, Array], member: Any = member, memories: Any = memories) -> Any:
                return member.refresh(*memories, episode, slots, old, states, num_rows)

            now = jax.lax.cond(member.notes_change(*memories), anew, lambda old: old, own)
            refreshed |= {f"{prefix}{name}": note for name, note in now.items()}
        return refreshed

    @property
    def _asked(self) -> Remembers:
        """The reward whose memory is on the host, else the first that remembers."""
        remembering: list[Remembers] = [each for _, each in having(self.members, Remembers)]
        return next((each for each in remembering if each.memory_on_host), remembering[0])


class MeasuresSeveral:
    """What each reward measures of an episode, by its label."""

    members: tuple[Any, ...]
    labels: tuple[str, ...]

    def measure(self, episode: Episode) -> dict[str, Any]:
        return {
            self.labels[index]: member.measure(episode)
            for index, member in having(self.members, Measures)
        }


class ComparesSeveral:
    """Each pool takes the transitions in. Where a reward does not look another may, so the numbers
    that tell transitions apart travel as a note, and each reward is given them for itself."""

    members: tuple[Any, ...]
    seen_by: Any

    def with_transitions(self, state: Any, batch: Transitions) -> Any:
        members = list(state.members)
        for index, member in having(self.members, Compares):
            members[index] = member.with_transitions(members[index], self.seen_by(index, batch))
        return state._replace(members=tuple(members))

    def told_apart(self, batch: Transitions, number: Float[Array, "B 2"]) -> Transitions:
        return batch._replace(notes={**batch.notes, TOLD_APART: number})


class SeesSeveral:
    """The first reward whose entropy has a kernel, or something to say."""

    members: tuple[Any, ...]

    @property
    def entropy_kernel(self) -> EntropyKernel | None:
        kernels = (member.entropy_kernel for _, member in having(self.members, SeesEntropy))
        return next((kernel for kernel in kernels if kernel is not None), None)

    def entropy_note(self, episodes: Sequence[Float[np.ndarray, "_ D"]]) -> str:
        notes = (member.entropy_note(episodes) for _, member in having(self.members, SeesEntropy))
        return next(filter(None, notes), "")


class WindowedSeveral:
    """The windows of the first reward that has some."""

    members: tuple[Any, ...]

    @property
    def update_window(self) -> dict[str, int]:
        windows = (member.update_window for _, member in having(self.members, Windowed))
        return next(filter(None, windows), {})


class NeedsOneLatent:
    """The latent that its rewards need: a policy is told one. The other rewards meet it too, in the
    last columns of what they observe."""

    members: tuple[Any, ...]

    @property
    def latent(self) -> Latent | None:
        needed = {member.latent for _, member in having(self.members, NeedsLatent)} - {None}
        if len(needed) > 1:
            kinds = " and ".join(sorted(latent.option for latent in needed))
            raise ValueError(
                f"Rewards of one sum need different latents ({kinds}), and a policy is told one: "
                "give them the same with --reward-options, or leave one out."
            )
        return next(iter(needed), None)


FORWARDED: tuple[tuple[type[Any], type[Any]], ...] = (
    (HasMemory, HasMemories),
    (Remembers, RemembersSeveral),
    (Measures, MeasuresSeveral),
    (Compares, ComparesSeveral),
    (SeesEntropy, SeesSeveral),
    (Windowed, WindowedSeveral),
    (NeedsLatent, NeedsOneLatent),
)


def under_prefix(notes: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    """The notes of one reward, under its own names."""
    return {
        name.removeprefix(prefix): note for name, note in notes.items() if name.startswith(prefix)
    }


def having(members: Sequence[Any], capability: type[Any]) -> list[tuple[int, Any]]:
    """The rewards with a capability, and their places."""
    return [(index, each) for index, each in enumerate(members) if isinstance(each, capability)]


def with_capabilities(kind: type[Any], members: Sequence[Any]) -> Any:
    """A class that is `kind`, and has what these rewards have."""
    composed: Any = kind
    return _class(composed, tuple(several for one, several in FORWARDED if having(members, one)))


@lru_cache
def _class(kind: Any, several: tuple[Any, ...]) -> Any:
    """One class for equal needs: rewards are equal, and share compiled programs, within a class."""
    return type(kind.__name__, (*several, kind), {"__module__": kind.__module__})
