"""Screens: what is told of an environment, how images become frames, and what cannot be used."""

from typing import Any

import gymnasium
import numpy as np
import pytest

from element_rl.envs import screens
from element_rl.envs.make import describe, make_env
from element_rl.envs.screens import grey_frame
from element_rl.envs.spec import coverage_cell


class Colours(gymnasium.Env[np.ndarray, int]):
    """Random RGB images, actions 5 to 7, and reward equal to the action."""

    def __init__(self, shape: tuple[int, ...] = (100, 120, 3), dtype: type = np.uint8) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 255, shape, dtype)
        self.action_space = gymnasium.spaces.Discrete(3, start=5)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return self._image(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return self._image(), float(action), False, False, {}

    def get_action_meanings(self) -> list[str]:
        return ["NOOP", "FIRE", "UP"]

    def _image(self) -> np.ndarray:
        return self.np_random.integers(0, 256, self.observation_space.shape, np.uint8)


@pytest.fixture(autouse=True)
def _registered() -> Any:
    gymnasium.register(id="Colours-v0", entry_point=Colours)
    yield
    gymnasium.registry.pop("Colours-v0")


@pytest.mark.parametrize("shape", [(100, 120, 3), (100, 120, 1), (100, 120), (84, 84), (20, 30, 3)])
def test_any_image_environment(shape: tuple[int, ...]) -> None:
    spec = describe("Colours", shape=shape)
    assert spec.name == "Colours-v0"
    assert (spec.frame_shape, spec.actions, spec.max_episode_steps) == ((84, 84), 3, 1000)
    assert spec.action_names == ("NOOP", "FIRE", "UP")
    assert spec.coverage_bounds is None
    env = make_env("Colours", shape=shape, max_episode_steps=3)
    first, info = env.reset(seed=7)
    assert env.observation_space.contains(first)
    assert np.array_equal(info["position"], np.zeros(2, np.float32))
    again, _ = env.reset(seed=7)
    assert np.array_equal(first, again)
    assert [env.step(action)[1] for action in range(3)] == [
        5.0,
        6.0,
        7.0,
    ]  # counted from 0 here, from 5 there
    frame, _, terminated, truncated, info = env.step(np.int32(0))
    assert env.observation_space.contains(frame)
    assert (terminated, truncated) == (False, True)
    assert info["position"].dtype == np.float32


def test_frames_by_hand() -> None:
    image = np.zeros((168, 168, 3), np.uint8)
    image[0, 0], image[2, 0] = (255, 0, 0), (255, 255, 255)  # each a quarter of a new pixel
    frame = grey_frame(image)
    assert frame[0, 0] == pytest.approx(0.299 * 255 / 4, abs=1)
    assert frame[1, 0] == pytest.approx(255 / 4, abs=1)
    assert frame.sum() == int(frame[0, 0]) + int(frame[1, 0])
    ready = np.arange(84 * 84).reshape(84, 84).astype(np.uint8)
    assert grey_frame(ready) is ready


def test_cells_by_hand() -> None:
    spec = describe("rooms")
    assert hash(spec) == hash(describe("Rooms-v0"))
    assert spec.coverage_cells == (49, 37)
    positions = np.array([(0.5, 0.5), (0.5, 1.5), (48.5, 36.5), (-3.0, 1e30)], np.float32)
    assert coverage_cell(spec, positions).tolist() == [0, 1, 49 * 37 - 1, 36]


def test_what_cannot_be_used() -> None:
    with pytest.raises(
        ValueError,
        match=r"'CartPole-v1' observes Box.*an image is needed.*`element explore`.*AddRenderObserv",
    ):
        describe("CartPole-v1", (), (), "frames")
    with pytest.raises(ValueError, match="an image is needed"):
        describe("Colours", (), (), "frames", shape=(4, 84, 84))
    with pytest.raises(ValueError, match="an image is needed"):
        describe("Colours", (), (), "frames", dtype=np.float32)
    with pytest.raises(
        ValueError, match=r"There is no environment 'Roms'; did you mean .*Rooms-v0"
    ):
        describe("Roms")
    with pytest.raises(
        ValueError, match=r"'Rooms-v0' cannot be made: .*unexpected keyword argument 'colour'"
    ):
        describe("rooms", colour="red")
    spec = describe("Colours")
    with pytest.raises(ValueError, match="'Colours-v0' has no coverage map"):
        coverage_cell(spec, np.zeros((1, 2), np.float32))


def test_actions_of_a_box_go_on_as_they_come() -> None:
    class Continuous(Colours):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))

        def step(self, action: Any) -> Any:
            self.taken = action
            return super().step(0)

    env = screens.Screen(own := Continuous())
    env.reset(seed=0)
    env.step(action := np.array([0.5, -1.0], np.float32))
    assert own.taken is action
    assert env.action_space == own.action_space
