"""A film of two policies side by side, each in an environment of its own that begins alike: an
explorer, and a policy that acts at random.

Above each picture stand its name, the step of the episode and the cells of the coverage map that
the episode has covered so far. A camera that follows a robot does not show how far the robot went:
a small map in the corner does, on the same scale for both. Of two episodes the shorter one waits
at its last picture for the other to end.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image, ImageDraw, ImageFont

from element_rl.acting.episode import Step, episode_steps, record_episode
from element_rl.acting.policies import Parameters, policy_of
from element_rl.envs.make import make_env
from element_rl.envs.spec import EnvSpec, coverage_cell, position_of
from element_rl.evaluate.video import (
    FRAMES_PER_SECOND,
    AddFrame,
    Watch,
    check_can_be_seen,
    drawn,
    prepare,
    remedy_of,
    renderer_of,
    without_a_screen,
    write_film,
)

SMALLEST = 400  # pixels of a picture's width; smaller ones are enlarged
HEADING = 60  # pixels above a picture
GAP = 8  # pixels between the two
MAP_SIDE, MAP_MARGIN = 150, 8  # pixels of the map in the corner, and around its trail
SMALLEST_RANGE = 1.0  # of a map, in its own unit: who stands still is not magnified
INK, QUIET, TRAIL, POINT = "#222222", "#666666", "#26828E", "#D55E00"


class MapView(NamedTuple):
    """The part of the plane that the maps show."""

    low: Float[np.ndarray, " 2"]
    span: Float[np.ndarray, " 2"]

    @property
    def scale(self) -> float:
        """Pixels per unit, the same on both axes."""
        return (MAP_SIDE - 2 * MAP_MARGIN) / float(self.span.max())


@without_a_screen()
def film_side_by_side(
    path: Path,
    spec: EnvSpec,
    env_options: Mapping[str, Any],
    sides: Mapping[str, Parameters],
    seed: Sequence[int],
    deterministic: bool,
    watch: Watch = lambda frames, per_second: None,
    every: int = 1,
) -> Path:
    """Acts with the policies of both `sides`, by their titles, until both episodes have ended, and
    films every so many steps. No parameters act at random."""
    check_can_be_seen(spec.name, env_options)
    envs = [make_env(spec.name, render_mode="rgb_array", **env_options) for _ in sides]
    view = None
    if renderer_of(envs[0]) is not None and spec.has_map:
        view = _view_of_both(spec, env_options, sides, seed, deterministic)

    def act(add_frame: AddFrame) -> None:
        shown = []
        for env, (title, parameters) in zip(envs, sides.items(), strict=True):
            prepare(env, env_options)
            policy = policy_of(parameters, env.action_space)
            steps = episode_steps(env, policy, seed, deterministic, spec)
            shown.append(Side(title, env, spec, steps, view))
        for number in count(1):
            if not any([side.step() for side in shown]):  # a list: both take their step
                return
            if number % every == 0:
                add_frame(_beside([side.picture() for side in shown]))

    return write_film(path, envs, act, FRAMES_PER_SECOND, watch, remedy_of(envs[0]))


class Side:
    """One of the two: its episode so far."""

    def __init__(
        self,
        title: str,
        env: gymnasium.Env,
        spec: EnvSpec,
        steps: Iterator[Step],
        view: MapView | None,
    ) -> None:
        self._title, self._env, self._spec, self._view = title, env, spec, view
        self._steps, self._taken, self._ended = steps, 0, False
        self._positions: list[Float[np.ndarray, " C"]] = []
        self._cells: set[int] = set()
        self._keep(next(steps))  # the reset

    def step(self) -> bool:
        """Takes a step; False where the episode has ended."""
        step = next(self._steps, None)
        if step is None:
            self._ended = True
            return False
        self._taken += 1
        self._keep(step)
        return True

    def picture(self) -> UInt8[np.ndarray, "H W 3"]:
        """What the renderer draws, under a heading, with the map."""
        scene = Image.fromarray(np.asarray(drawn(self._env), np.uint8))
        if scene.width < SMALLEST:
            times = -(-SMALLEST // scene.width)
            scene = scene.resize((times * scene.width, times * scene.height), Image.Resampling.BOX)
        if self._view is not None:
            small = map_picture(
                np.array(self._positions)[:, :2], self._view, self._spec.coverage_unit
            )
            scene.paste(small, (MAP_MARGIN, scene.height - small.height - MAP_MARGIN))
        image = Image.new("RGB", (scene.width, scene.height + HEADING), "white")
        image.paste(scene, (0, HEADING))
        draw = ImageDraw.Draw(image)
        draw.text((10, 6), self._title, INK, _font_for(self._title, 24, scene.width - 20))
        draw.text((10, 36), self.state, QUIET, _font(18))
        return np.asarray(image)

    @property
    def state(self) -> str:
        """What is said below its title."""
        ended = f"ended at step {self._taken:,}" if self._ended else f"step {self._taken:,}"
        cells = len(self._cells)
        return f"{ended}, {cells:,} cell{'s' if cells > 1 else ''}" if cells else ended

    def _keep(self, step: Step) -> None:
        if self._spec.coverage_of is None:
            return
        position = position_of(self._spec, step.observation, step.info, self._env)
        self._positions.append(position)
        seen = np.asarray(step.observation)
        self._cells.add(int(coverage_cell(self._spec, position, seen)))


def _view_of_both(
    spec: EnvSpec,
    env_options: Mapping[str, Any],
    sides: Mapping[str, Parameters],
    seed: Sequence[int],
    deterministic: bool,
) -> MapView:
    """What holds both episodes, which are acted once before they are filmed: physics is quick,
    pictures are not."""
    env = make_env(spec.name, **env_options)
    try:
        paths = [
            record_episode(
                spec, env, policy_of(parameters, env.action_space), seed, deterministic
            ).positions[:, :2]
            for parameters in sides.values()
        ]
    finally:
        env.close()
    together = np.concatenate(paths).astype(np.float64)
    low, high = together.min(axis=0), together.max(axis=0)
    missing = max(SMALLEST_RANGE - float((high - low).max()), 0.0)
    return MapView(low - missing / 2, high - low + missing)


def map_picture(positions: Float[np.ndarray, "L 2"], view: MapView, unit: str) -> Image.Image:
    """Where the episode has been, seen from above (or from the side, of a robot in a plane), and
    how wide the map is."""
    width, height = (int(view.scale * side) + 2 * MAP_MARGIN for side in view.span)
    caption = f"{view.span[0]:,.3g} {unit}".rstrip()
    below = 18
    image = Image.new("RGB", (width, height + below), "white")
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 0, width - 1, height + below - 1), outline="#BBBBBB")
    places = [
        (MAP_MARGIN + view.scale * (x - view.low[0]), height - MAP_MARGIN - view.scale * above)
        for x, above in zip(positions[:, 0], positions[:, 1] - view.low[1], strict=True)
    ]
    draw.line(places, TRAIL, width=2, joint="curve")
    x, y = places[-1]
    draw.ellipse((x - 4, y - 4, x + 4, y + 4), POINT, "white")
    line = height + below // 2 - 1
    draw.line((MAP_MARGIN, line, width - MAP_MARGIN, line), QUIET)
    draw.text((width / 2, line), caption, QUIET, _font(12), anchor="mm", stroke_width=4,
              stroke_fill="white")  # fmt: skip
    return image


def _beside(pictures: Sequence[UInt8[np.ndarray, "H W 3"]]) -> UInt8[np.ndarray, "H V 3"]:
    left, right = pictures
    return np.concatenate([left, np.full((len(left), GAP, 3), 255, np.uint8), right], axis=1)


@lru_cache
def _font(size: int) -> Any:
    return ImageFont.load_default(size)  # comes with Pillow


def _font_for(text: str, size: int, width: int) -> Any:
    """The largest font, up to a size, in which a text is no wider than that."""
    fitting: Callable[[int], bool] = lambda size: _font(size).getlength(text) <= width  # noqa: E731
    return _font(next(filter(fitting, range(size, 8, -1)), 8))
