"""Actions of any kind as a flat Box, or as one choice among a few that are counted from 0.

    space                                  agents give
    Box of any shape                       its coordinates, row by row
    Discrete                               one choice, counted from 0
    MultiDiscrete, MultiBinary             one choice among all combinations, up to 1,024
    Dict or Tuple, of Boxes or of choices  the same over all of them

Of a combination the last number changes fastest: MultiDiscrete([2, 3]) has the choices 0,0  0,1
0,2  1,0  1,1  1,2.
"""

from collections.abc import Iterator
from math import prod
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

MOST_CHOICES = 1_024  # a value for each; with more, few would be tried


def with_plain_actions(env: gymnasium.Env) -> gymnasium.Env:
    """The environment, whose actions are a flat Box or Discrete from 0; a ValueError says what to
    do where that cannot be. One that has them so is given back as it is."""
    space = env.action_space
    if isinstance(space, spaces.Discrete):
        return env if space.start == 0 else Choices(env)
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return env
    if _is_continuous(space):
        return FlatActions(env)
    sizes = _sizes(space)
    if sizes is None:
        raise ValueError(
            f"it acts in {space}, and agents give numbers within bounds (Box) or one of a few "
            "choices (Discrete), not both: wrap it with gymnasium.wrappers.TransformAction and "
            "register the result"
        )
    if prod(sizes) > MOST_CHOICES:
        raise ValueError(
            f"it acts in {space}, which has {prod(sizes):,} combinations, and one choice is among "
            f"{MOST_CHOICES:,} at most: wrap it with gymnasium.wrappers.TransformAction so that it "
            "offers fewer and register the result, or use IntrinsicCallback with "
            "Stable-Baselines3's PPO, which takes it as it is (docs/sb3.md)"
        )
    return Choices(env)


class Choices(gymnasium.ActionWrapper, RecordConstructorArgs):
    """An environment that takes one choice, counted from 0, for each of its finitely many
    actions."""

    def __init__(self, env: gymnasium.Env) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)
        sizes = _sizes(env.action_space)
        if not sizes:
            raise ValueError(f"There are no choices in {env.action_space}")
        self._sizes = sizes
        self.action_space = spaces.Discrete(prod(sizes))

    @property
    def choice_names(self) -> tuple[str, ...]:
        """The numbers that each choice stands for."""
        return tuple(
            ",".join(map(str, _digits(choice, self._sizes))) for choice in range(prod(self._sizes))
        )

    def action(self, action: Any) -> Any:
        return _built(self.env.action_space, iter(_digits(int(action), self._sizes)))


class FlatActions(gymnasium.ActionWrapper, RecordConstructorArgs):
    """An environment that takes all coordinates of its actions in one flat Box."""

    def __init__(self, env: gymnasium.Env) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)
        self.action_space = spaces.flatten_space(env.action_space)

    def action(self, action: Any) -> Any:
        return spaces.unflatten(self.env.action_space, action)


def _is_continuous(space: gymnasium.Space) -> bool:
    """Whether actions are coordinates and nothing else."""
    return isinstance(space, spaces.Box) or (
        bool(_children(space)) and all(map(_is_continuous, _children(space)))
    )


def _sizes(space: gymnasium.Space) -> tuple[int, ...] | None:
    """Values of each number in an action; None where they are not finitely many."""
    if isinstance(space, spaces.Discrete):
        return (int(space.n),)
    if isinstance(space, spaces.MultiDiscrete):
        return tuple(space.nvec.reshape(-1).tolist())
    if isinstance(space, spaces.MultiBinary):
        return (2,) * int(np.prod(space.shape))
    parts = [_sizes(child) for child in _children(space)]
    known = [part for part in parts if part is not None]
    return sum(known, ()) if parts and len(known) == len(parts) else None


def _children(space: gymnasium.Space) -> tuple[gymnasium.Space, ...]:
    if isinstance(space, spaces.Dict):
        return tuple(space.spaces.values())
    return tuple(space.spaces) if isinstance(space, spaces.Tuple) else ()


def _digits(choice: int, sizes: tuple[int, ...]) -> list[int]:
    """The numbers of a choice, each from 0."""
    digits = []
    for size in reversed(sizes):
        choice, digit = divmod(choice, size)
        digits.append(digit)
    return digits[::-1]


def _built(space: gymnasium.Space, digits: Iterator[int]) -> Any:
    """The action of a space that takes its numbers, each from 0, from these."""
    if isinstance(space, spaces.Discrete):
        return int(space.start) + next(digits)
    if isinstance(space, spaces.MultiDiscrete):
        numbers = np.array([next(digits) for _ in range(space.nvec.size)])
        return (numbers.reshape(space.nvec.shape) + space.start).astype(space.dtype)
    if isinstance(space, spaces.MultiBinary):
        numbers = np.array([next(digits) for _ in range(int(np.prod(space.shape)))])
        return numbers.reshape(space.shape).astype(space.dtype)
    if isinstance(space, spaces.Dict):
        return {key: _built(child, digits) for key, child in space.spaces.items()}
    assert isinstance(space, spaces.Tuple)  # `_sizes` knows no others
    return tuple(_built(child, digits) for child in space.spaces)
