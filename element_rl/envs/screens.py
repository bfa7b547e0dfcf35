"""Frames of environments that show images: 84 × 84 grey pixels.

Images (uint8, grey or RGB) are made grey (the luma of ITU-R 601) and scaled, each new pixel the
mean of the old ones under it. Datasets name `Screen`, so that whoever reads them can make the same
environment. Importing this module registers Rooms-v0 and Mario.
"""

from typing import Any

import gymnasium
import numpy as np
from jaxtyping import UInt8
from PIL import Image  # comes with imageio

from element_rl.envs import rooms  # noqa: F401 (registers Rooms-v0)
from element_rl.envs.names import MARIO
from element_rl.envs.vectors import SMALLEST_PICTURE, is_image

FRAME_SHAPE = (84, 84)


class Screen(gymnasium.Wrapper):
    """Frames of 84 × 84 grey pixels, choices counted from 0, and a position in every info."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
        if not is_image(env.observation_space):
            raise ValueError(no_image(name, env.observation_space))
        self.observation_space = gymnasium.spaces.Box(0, 255, FRAME_SHAPE, np.uint8)
        self._first_action: int | None = None  # None: actions go on as they come
        if isinstance(env.action_space, gymnasium.spaces.Discrete):
            self._first_action = int(env.action_space.start)
            self.action_space = gymnasium.spaces.Discrete(env.action_space.n)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[UInt8[np.ndarray, "H W"], dict[str, Any]]:
        image, info = self.env.reset(seed=seed, options=options)
        return grey_frame(self._checked(image)), _with_position(info)

    def step(
        self, action: Any
    ) -> tuple[UInt8[np.ndarray, "H W"], float, bool, bool, dict[str, Any]]:
        if self._first_action is not None:
            action = self._first_action + int(action)
        image, reward, terminated, truncated, info = self.env.step(action)
        frame = grey_frame(self._checked(image))
        if not isinstance(reward, int | float | np.number | np.bool_):
            raise ValueError(f"The environment gave {reward!r} as a reward, no number")
        return frame, float(reward), terminated, truncated, _with_position(info)

    def _checked(self, image: Any) -> UInt8[np.ndarray, "..."]:
        """The image, where the environment keeps to its own space."""
        space = self.env.observation_space
        if not isinstance(image, np.ndarray) or (image.dtype, image.shape) != (
            space.dtype,
            space.shape,
        ):
            name = self.env.spec.id if self.env.spec is not None else type(self.env.unwrapped)
            shown = type(image).__name__
            if isinstance(image, np.ndarray):
                shown = f"an array of {image.dtype}, {list(image.shape)}"
            raise ValueError(f"Environment {str(name)!r} showed {shown}, and observes {space}")
        return image


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


def no_image(name: str, space: gymnasium.Space) -> str:
    """What to say where frames cannot be made of observations in this space."""
    return (
        f"Environment {name!r} observes {space}, but an image is needed (uint8, [H, W], [H, W, 1] "
        f"or [H, W, 3], of {SMALLEST_PICTURE} pixels or more each way): `element explore` takes "
        "all else as vectors; or wrap it with gymnasium.wrappers.AddRenderObservation and register "
        "the result."
    )


def _with_position(info: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(info, dict):
        raise ValueError(f"The environment gave {info!r} as its info, no dictionary")
    position = info.get("position")
    place = np.zeros(2, np.float32) if position is None else np.asarray(position, np.float32)
    return {**info, "position": place}


gymnasium.register(
    id=MARIO, entry_point="element_rl.envs.mario:SuperMarioBros", max_episode_steps=1_000
)
