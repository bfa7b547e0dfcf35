"""Where the agent is in Atari games whose memory is known: its place on the screen, and the room.

The console has 128 bytes of memory. Which of them hold the player's place was published with
AtariARI (Anand et al. 2019, https://arxiv.org/abs/1906.08226) and Go-Explore (Ecoffet et al. 2021,
https://arxiv.org/abs/2004.12919).

    game                  x   y   room
    MontezumaRevenge     42  43      3   24 rooms in a pyramid, beside and above each other as in
                                         the game; a level (byte 57) lies below the one before
    Pitfall              97 105      1   256 rooms, 16 in a row, in the order of their numbers
    Venture              85  26     90   the same
    PrivateEye           63  86     92   the same

A position is a point of one large plane in which every room has its own rectangle, 160 wide and as
high as the values of y. So a room is a part of the cell, and no two rooms share one.
"""

from dataclasses import dataclass
from math import isqrt
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from jaxtyping import Float, UInt8

RAM = "atari-ram"  # what --position calls it
WIDTH = 160  # of a room, in pixels
CELL = (8.0, 16.0)  # of the map
ROW = 16  # rooms in a row, where nobody knows how they lie


class Game(NamedTuple):
    """The bytes of a game's memory that say where the player is."""

    x: int
    y: int
    room: int
    level: int | None = None
    pyramid: bool = False
    upwards: bool = True  # y is larger above
    lowest: int = 0  # y below this does not occur

    @property
    def height(self) -> int:
        """Of a room."""
        return 256 - self.lowest


GAMES = {
    "montezuma_revenge": Game(42, 43, 3, level=57, pyramid=True, lowest=128),
    "pitfall": Game(97, 105, 1, upwards=False),
    "venture": Game(85, 26, 90, upwards=False),
    "private_eye": Game(63, 86, 92),
}


@dataclass(frozen=True)
class GameMemory:
    """The memory of a running game."""

    game: Game
    ale: Any

    def position(self) -> Float[np.ndarray, " 2"]:
        return place_in(self.game, self.ale.getRAM())


def place_in(game: Game, memory: UInt8[np.ndarray, " 128"]) -> Float[np.ndarray, " 2"]:
    """x to the right and y upwards in the plane of all rooms."""
    x, y, room = int(memory[game.x]), int(memory[game.y]), int(memory[game.room])
    column, row = pyramid_place(room) if game.pyramid else (room % ROW, -(room // ROW))
    if game.level is not None:
        row -= 4 * int(memory[game.level])
    height = max(y - game.lowest, 0) if game.upwards else 255 - y
    return np.array((x + WIDTH * column, height + game.height * row), np.float32)


def pyramid_place(room: int) -> tuple[int, int]:
    """Column and row (upwards) of a room of Montezuma's Revenge: 3, 5, 7 and 9 rooms from the top
    down, numbered from left to right; the game begins in room 1, in the middle above."""
    level = isqrt(room + 1) - 1
    return room - level * (level + 2) - (level + 1), -level


def known_game(env: gymnasium.Env) -> Game | None:
    """The game of an environment of the Arcade Learning Environment; None of all others."""
    own = env.unwrapped
    if not hasattr(getattr(own, "ale", None), "getRAM"):
        return None
    named = own.spec.kwargs.get("game", "") if own.spec is not None else ""
    return GAMES.get(str(named))


def game_of(env: gymnasium.Env) -> GameMemory:
    """The memory of the game that runs in an environment; a ValueError where nobody knows it."""
    game = known_game(env)
    if game is None:
        raise ValueError(
            f"--position {RAM}: only the memory of {', '.join(GAMES)} is known, played by ale_py: "
            "say the position otherwise."
        )
    return GameMemory(game, env.unwrapped.ale)
