"""Super Mario Bros, world 1-1, for Gymnasium: the paper's fifth environment. It needs the extra
`mario` (docs/mario.md).

A step holds the buttons of one action for `frame_skip` frames. The observation is the last of them,
84 × 84 grey pixels. It is not the brighter of the last two, as is usual for Atari: what moves is
darker than the sky, and would be wiped out.

    reward = reward_scale · ( x after − x before − clock ticks − 15 · [Mario died] )

x counts pixels. Where a place changes at once (a pipe, a new life), that is no progress and counts
0. An episode terminates when Mario dies or grips the flagpole; `info["flag"]` tells which. It is
truncated after 1,000 steps: 67 s of play, and as long as an episode of the paper's other
environments. (The clock of the game kills after some 2,000.) Pipes and black screens, when buttons
do nothing, are played within the step that led to them.

Episodes differ by what is played and by 0 to `noop_max` idle frames at their beginning, drawn from
the seed of `reset`.

    info        x, y      pixels from the left edge of the level, and above the lower edge of the
                          screen (79 on the ground)
                area      1 the level, 2 the bonus room below it
                clock     the game's, from 400 down        life     lives left besides this one
                flag      the flagpole has been reached    died     Mario died in this step
                position  (x, y), and (x, y + 300) in the bonus room, which counts from 0 again

The coverage map has 100 × 200 cells of 32 × 3 pixels: the upper half is the bonus room's.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from jaxtyping import UInt8

from element_rl.envs import mario_emulator as console
from element_rl.envs.make import make_env
from element_rl.envs.names import MARIO
from element_rl.envs.screens import FRAME_SHAPE, grey_frame


@dataclass(frozen=True)
class MarioOptions:
    """What may be chosen."""

    frame_skip: int = 4  # frames, of 60 per second, for which the buttons of an action are held
    actions: int = 12  # 12: the set known as "complex"; 16: the width of the paper's actor
    noop_max: int = 30  # most idle frames at the beginning of an episode
    end_on_life_loss: bool = True  # False: an episode has all three lives
    reward_scale: float = 1.0  # what the reward is multiplied by
    rom: str | Path | None = None  # path of the ROM; None: the one of the extra


DIRECTIONS = ("none", "right", "left", "down")
ACTION_SETS = {
    12: (
        *("none", "right", "right+A", "right+B", "right+A+B", "A"),
        *("left", "left+A", "left+B", "left+A+B", "down", "up"),
    ),
    16: tuple(
        f"{way}{jump}".removeprefix("none+")
        for way in DIRECTIONS
        for jump in ("", "+A", "+B", "+A+B")
    ),
}
BONUS_ROOM = 2  # of AREA
BONUS_ROOM_SHIFT = 300  # added to y there, in positions
DEATH_PENALTY = 15.0
FASTEST = 5  # pixels per frame; Mario runs at 3: what is faster is a change of place
LONGEST_WAIT = 1_000  # frames in which nobody is in control

# Addresses of the console's memory, one byte each.
X_PAGE, X = 0x6D, 0x86
Y_PAGE, Y = 0xB5, 0xCE
AREA, LIFE = 0x74E, 0x75A
CLOCK = (0x7F8, 0x7F9, 0x7FA)  # digits
BETWEEN_PLACES = (
    0,
    2,
    3,
    7,
)  # of PLAYER: a place is set up, or Mario goes into a pipe or comes out of one
FLAGPOLE, FINISHED = 4, 5  # of PLAYER
LOST, DYING = 6, 11


def make(**options: Any) -> gymnasium.Env:
    """Super Mario Bros 1-1 with a time limit. Options: those of MarioOptions, `max_episode_steps`
    and `render_mode`."""
    return make_env(MARIO, **options)


class SuperMarioBros(gymnasium.Env[np.ndarray, int | np.integer]):
    """World 1-1. `render` gives the screen in colours, 224 × 240."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012 (as Gymnasium declares it)
    coverage_axes = ("x", "y")
    coverage_bounds = ((0.0, 3200.0), (0.0, 600.0))
    coverage_cells = (100, 200)
    coverage_unit = "pixels"
    coverage_start = (40.0, 79.0)

    def __init__(self, render_mode: str | None = None, **options: Any) -> None:
        self.options = _checked(MarioOptions(**options))
        self.action_names = ACTION_SETS[self.options.actions]
        self.render_mode = render_mode
        self.observation_space = gymnasium.spaces.Box(0, 255, FRAME_SHAPE, np.uint8)
        self.action_space = gymnasium.spaces.Discrete(self.options.actions)
        self._masks = [button_mask(name) for name in self.action_names]
        self._rom = console.find_rom(self.options.rom)
        self._game: console.Game | None = None  # the emulator starts with the first episode
        self._image = np.zeros((224, 240, 3), np.uint8)
        self._before = _Place(0, 0, 0, 0)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[UInt8[np.ndarray, "H W"], dict[str, Any]]:
        super().reset(seed=seed)
        if self._game is None:
            self._game = console.Game(self._rom)
        self._game.restart()
        for _ in range(int(self.np_random.integers(0, self.options.noop_max + 1))):
            self._game.play_frame(console.NO_BUTTONS)
        self._before = _place(self._game)
        return self._frame(self._game), self._info(self._game, self._before, died=False, flag=False)

    def step(
        self, action: int | np.integer
    ) -> tuple[UInt8[np.ndarray, "H W"], float, bool, bool, dict[str, Any]]:
        game = self._game
        if game is None:
            raise gymnasium.error.ResetNeeded("Super Mario Bros: call reset before step.")
        game.take_turn()
        died, flag = False, False
        for _ in range(self.options.frame_skip):
            game.play_frame(self._masks[action])
            died, flag = _has_died(game), game.read(console.PLAYER) in (FLAGPOLE, FINISHED)
            if died or flag:
                break
        over = flag or (died and (self.options.end_on_life_loss or not _next_life(game)))
        if not over:
            _wait_between_places(game)
        after = _place(game)
        reward = self._reward(self._before, after, died)
        self._before = after
        return self._frame(game), reward, over, False, self._info(game, after, died=died, flag=flag)

    def render(self) -> UInt8[np.ndarray, "H W 3"] | None:
        return self._image if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        self._game = None

    def _frame(self, game: console.Game) -> np.ndarray:
        self._image = game.screen()
        return grey_frame(self._image)

    def _reward(self, before: "_Place", after: "_Place", died: bool) -> float:
        progress, ticks = after.x - before.x, before.clock - after.clock
        if before.area != after.area or abs(progress) > FASTEST * self.options.frame_skip:
            progress = 0
        return self.options.reward_scale * (progress - max(ticks, 0) - DEATH_PENALTY * died)

    def _info(
        self, game: console.Game, place: "_Place", *, died: bool, flag: bool
    ) -> dict[str, Any]:
        shift = BONUS_ROOM_SHIFT if place.area == BONUS_ROOM else 0
        return {
            "x": place.x,
            "y": place.y,
            "area": place.area,
            "clock": place.clock,
            "life": game.read(LIFE),
            "flag": flag,
            "died": died,
            "position": np.array((place.x, place.y + shift), np.float32),
        }


@dataclass(frozen=True)
class _Place:
    x: int
    y: int
    area: int
    clock: int


def button_mask(action_name: str) -> UInt8[np.ndarray, " buttons"]:
    """The buttons of an action such as "right+A", as the emulator wants them."""
    pressed = set(action_name.upper().split("+"))
    return np.array([button in pressed for button in console.BUTTONS], np.uint8)


def _checked(options: MarioOptions) -> MarioOptions:
    if options.actions not in ACTION_SETS:
        sets = " or ".join(
            f"{number} ({', '.join(names)})" for number, names in ACTION_SETS.items()
        )
        raise ValueError(
            f"There is no set of {options.actions!r} actions for Super Mario Bros; use "
            f"actions={sets}."
        )
    for name, least in (("frame_skip", 1), ("noop_max", 0)):
        value = getattr(options, name)
        if not isinstance(value, int) or value < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}.")
    return options


def _place(game: console.Game) -> _Place:
    hundreds, tens, ones = (game.read(digit) for digit in CLOCK)
    height = 511 - (256 * game.read(Y_PAGE) + game.read(Y))
    return _Place(
        x=256 * game.read(X_PAGE) + game.read(X),
        y=max(height, 0),  # who falls into a pit is below
        area=game.read(AREA),
        clock=100 * hundreds + 10 * tens + ones,
    )


def _has_died(game: console.Game) -> bool:
    return game.read(console.PLAYER) in (LOST, DYING) or game.read(Y_PAGE) > 1


def _next_life(game: console.Game) -> bool:
    """Play until Mario is in control again, with the next life; False if that was the last."""
    for _ in range(LONGEST_WAIT):
        game.play_frame(console.NO_BUTTONS)
        if game.read(console.MODE) == console.GAME_OVER:
            return False
        if (
            _is_running(game)
            and game.read(console.PLAYER) == console.IN_CONTROL
            and not _has_died(game)
        ):
            return True
    raise RuntimeError(f"Mario had no new life {LONGEST_WAIT} frames after he died.")


def _wait_between_places(game: console.Game) -> None:
    """Play while buttons do nothing because Mario is on his way from one place to another."""
    for _ in range(LONGEST_WAIT):
        if _is_running(game) and game.read(console.PLAYER) not in BETWEEN_PLACES:
            return
        game.play_frame(console.NO_BUTTONS)
    raise RuntimeError(f"Mario was between two places for {LONGEST_WAIT} frames.")


def _is_running(game: console.Game) -> bool:
    return (game.read(console.MODE), game.read(console.TASK)) == (console.PLAYING, console.RUNNING)
