"""Environments that show a screen and take one of a few actions: frames of 84 × 84 grey pixels, and
where the agent is.

    name                 actions     steps of an episode    coverage map
    Rooms-v0             5           500                    49 × 37 tiles: `rooms`, needs nothing else
    SuperMarioBros-1-1   12 or 16    1,000                  100 × 200 cells, half for the bonus room: `mario`, needs that extra

Any other Gymnasium environment with images (uint8, grey or RGB) and Discrete actions works too: its
frames are made grey (the luma of ITU-R 601) and scaled to 84 × 84, each new pixel the mean of the
old ones under it. It has no coverage map, and its position is zero, unless it says more of itself:
`info["position"]` (two numbers) at reset and every step, and the attributes `action_names`,
`coverage_axes`, `coverage_bounds`, `coverage_cells`, `coverage_unit` and `coverage_start`, which
mean what they mean in ScreenSpec.
"""

import functools
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Float, Integer, UInt8
from PIL import Image  # comes with imageio

from element_rl.envs import rooms  # noqa: F401 (registers Rooms-v0)
from element_rl.envs.names import registered_name
from element_rl.envs.positions import Bounds
from element_rl.envs.robots import CELLS_PER_AXIS, make_env

FRAME_SHAPE = (84, 84)
MARIO = "SuperMarioBros-1-1"
ALIASES = {"mario": MARIO, "rooms": "Rooms-v0"}


@dataclass(frozen=True)
class ScreenSpec:
    """All that the rest of the library needs to know of such an environment; hashable."""

    name: str  # as registered with Gymnasium, and with its package where that must be imported
    frame_shape: tuple[int, int]  # of the observations of `make_screen`: height and width in pixels
    actions: int
    max_episode_steps: int
    action_names: tuple[str, ...]
    coverage_axes: tuple[str, str] | None = None
    coverage_bounds: Bounds | None = None  # of the two axes
    coverage_cells: tuple[int, int] = (CELLS_PER_AXIS, CELLS_PER_AXIS)  # along the two axes
    coverage_unit: str = ""  # of positions: tiles, pixels
    coverage_start: tuple[float, float] | None = None  # about where episodes begin


def describe_screen(name: str, **options: Any) -> ScreenSpec:
    """The ScreenSpec of environment ``name``, or a ValueError that says why it cannot be used."""
    name = registered_name(ALIASES.get(name, name))
    env = make_screen(name, **options)
    try:
        registration = env.spec
        assert registration is not None  # make_env goes through the registry
        known = env.unwrapped
        actions = int(env.action_space.n)
        return ScreenSpec(
            name=name,
            frame_shape=FRAME_SHAPE,
            actions=actions,
            max_episode_steps=int(registration.max_episode_steps),
            action_names=_action_names(known, actions),
            coverage_axes=getattr(known, "coverage_axes", None),
            coverage_bounds=getattr(known, "coverage_bounds", None),
            coverage_cells=getattr(known, "coverage_cells", (CELLS_PER_AXIS, CELLS_PER_AXIS)),
            coverage_unit=getattr(known, "coverage_unit", ""),
            coverage_start=getattr(known, "coverage_start", None),
        )
    finally:
        env.close()


@functools.cache
def is_screen(name: str) -> bool:
    """Whether environment ``name`` shows images and takes one of a few actions. Of Mario it is
    known where he cannot be made."""
    name = ALIASES.get(name, name)
    if name == MARIO:
        return True
    env = make_env(name)
    try:
        _checked_spaces(name, env)
        return True
    except ValueError:
        return False
    finally:
        env.close()


def make_screen(name: str, **options: Any) -> gymnasium.Env:
    """Environment ``name`` with its time limit, its frames uint8 [84, 84] and `info["position"]`
    float32 [2].

    ``options`` go to the environment; `max_episode_steps` sets another time limit.
    """
    env = make_env(ALIASES.get(name, name), **options)
    try:
        return Screen(env)
    except ValueError:
        env.close()
        raise


class Screen(gymnasium.Wrapper):
    """Frames of 84 × 84 grey pixels, actions counted from 0, and a position in every info."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
        self._first_action = _checked_spaces(name, env)
        self.observation_space = gymnasium.spaces.Box(0, 255, FRAME_SHAPE, np.uint8)
        self.action_space = gymnasium.spaces.Discrete(env.action_space.n)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[UInt8[np.ndarray, "H W"], dict[str, Any]]:
        image, info = self.env.reset(seed=seed, options=options)
        return grey_frame(image), _with_position(info)

    def step(
        self, action: Any
    ) -> tuple[UInt8[np.ndarray, "H W"], float, bool, bool, dict[str, Any]]:
        image, reward, terminated, truncated, info = self.env.step(self._first_action + int(action))
        return grey_frame(image), float(reward), terminated, truncated, _with_position(info)


def grey_frame(image: UInt8[np.ndarray, "..."]) -> UInt8[np.ndarray, "H W"]:
    """An image of any size, grey or RGB, as 84 × 84 grey pixels. One that is so already is given
    back as it is."""
    if image.ndim == 3 and image.shape[-1] == 1:
        image = image[..., 0]
    if image.shape == FRAME_SHAPE:
        return image
    picture = Image.fromarray(image)
    if image.ndim == 3:
        picture = picture.convert("L")
    height, width = FRAME_SHAPE
    return np.array(picture.resize((width, height), Image.Resampling.BOX))


def screen_cell(
    spec: ScreenSpec, positions: Float[np.ndarray, "*batch 2"]
) -> Integer[np.ndarray, "*batch"]:
    """Index of the map cell of each position: column · cells[1] + row, outside clipped to the
    border."""
    if spec.coverage_bounds is None:
        raise ValueError(
            f"Environment {spec.name!r} has no coverage map; {MARIO} and Rooms-v0 have one."
        )
    low, high = np.asarray(spec.coverage_bounds, np.float64).T
    cells = np.asarray(spec.coverage_cells)
    # Clipped as floats: a position beyond the range of integers would wrap around.
    column_row = np.clip(np.floor((positions - low) / (high - low) * cells), 0, cells - 1).astype(
        np.int64
    )
    return np.asarray(column_row[..., 0] * cells[1] + column_row[..., 1])


def _with_position(info: dict[str, Any]) -> dict[str, Any]:
    position = info.get("position")
    return {
        **info,
        "position": np.zeros(2, np.float32)
        if position is None
        else np.asarray(position, np.float32),
    }


def _action_names(env: gymnasium.Env, actions: int) -> tuple[str, ...]:
    """What the environment calls its actions (the Atari games do), or their numbers."""
    if hasattr(env, "action_names"):
        return tuple(env.action_names)
    if hasattr(env, "get_action_meanings"):
        return tuple(env.get_action_meanings())
    return tuple(str(action) for action in range(actions))


def _checked_spaces(name: str, env: gymnasium.Env) -> int:
    """The number of the first action, if the spaces are such as are understood here."""
    images, actions = env.observation_space, env.action_space
    if (
        not isinstance(images, gymnasium.spaces.Box)
        or images.dtype != np.uint8
        or not _is_image(images.shape)
    ):
        raise ValueError(
            f"Environment {name!r} observes {images}, but an image is needed (uint8, [H, W], [H, "
            "W, 1] or [H, W, 3]): `element explore` takes vectors, where actions are continuous; or "
            "wrap it with gymnasium.wrappers.AddRenderObservation and register the result."
        )
    if not isinstance(actions, gymnasium.spaces.Discrete):
        raise ValueError(
            f"Environment {name!r} acts in {actions}, but Discrete actions are needed: use "
            "IntrinsicReplayBuffer with Stable-Baselines3's SAC (docs/sb3.md)."
        )
    return int(actions.start)


def _is_image(shape: tuple[int, ...]) -> bool:
    return (len(shape) == 2 or (len(shape) == 3 and shape[-1] in (1, 3))) and min(shape[:2]) >= 2


gymnasium.register(
    id=MARIO, entry_point="element_rl.envs.mario:SuperMarioBros", max_episode_steps=1_000
)
