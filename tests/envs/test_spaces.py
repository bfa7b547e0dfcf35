"""Every kind of observations as one vector or one image, and every kind of actions as coordinates
of a Box or one choice: all numbers by hand."""

from typing import Any

import gymnasium
import numpy as np
import own_world  # noqa: F401 (registers its environments)
import pytest
from gymnasium import spaces

from element_rl.envs.choices import Choices, FlatActions, with_plain_actions
from element_rl.envs.make import describe, is_screen, make_env
from element_rl.envs.screens import Screen
from element_rl.envs.vectors import OneImage, Vectors, seen_of

BOX = spaces.Box(-1.0, 1.0, (2, 2), np.float64)
PICTURE = spaces.Box(0, 255, (16, 20, 3), np.uint8)
TINY = spaces.Box(0, 255, (7, 7, 3), np.uint8)
CHOICE = spaces.Discrete(2)


class Given(gymnasium.Env[Any, Any]):
    """Observes what it is given, and remembers what it was stepped with."""

    def __init__(self, seen: Any = None, observes: Any = CHOICE, acts: Any = CHOICE) -> None:
        self.seen, self.observation_space, self.action_space = seen, observes, acts
        self.taken: Any = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return self.seen, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.taken = action
        return self.seen, 0.0, False, False, {}


@pytest.mark.parametrize(
    ("space", "observation", "vector"),
    [
        (spaces.Discrete(4), 2, [0, 0, 1, 0]),
        (spaces.Discrete(3, start=-1), -1, [1, 0, 0]),
        (spaces.Discrete(3, start=5), np.int64(7), [0, 0, 1]),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 0]), [0, 1, 1, 0, 0]),
        (spaces.MultiDiscrete([2, 2], start=[1, 0]), np.array([2, 1]), [0, 1, 0, 1]),
        (spaces.MultiDiscrete([[2], [2]]), np.array([[0], [1]]), [1, 0, 0, 1]),
        (spaces.MultiBinary(3), np.array([1, 0, 1], np.int8), [1, 0, 1]),
        (BOX, np.array([[0.5, -1.0], [0.0, 1.0]]), [0.5, -1.0, 0.0, 1.0]),
        (spaces.Box(-1.0, 1.0, ()), np.float32(0.5), [0.5]),
        (
            spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 9, (1,))]),
            (1, np.array([7.0])),
            [0, 1, 7],
        ),
        (
            spaces.Dict(a=spaces.Discrete(2), b=spaces.Dict(c=spaces.MultiBinary(1))),
            {"b": {"c": np.array([1])}, "a": 0},
            [1, 0, 1],
        ),
    ],
    ids=str,
)
def test_observations_become_one_vector(
    space: spaces.Space, observation: Any, vector: list[float]
) -> None:
    env = Vectors(Given(observation, space))
    seen, _ = env.reset()
    assert seen.dtype == np.float32
    np.testing.assert_array_equal(seen, vector)
    assert env.observation_space.contains(seen)


def test_observations_outside_of_their_space_are_refused() -> None:
    with pytest.raises(ValueError, match=r"observes Discrete\(3\), and gave 3"):
        Vectors(Given(3, spaces.Discrete(3))).reset()


def test_bounds_of_columns_are_kept() -> None:
    space = spaces.Dict(
        a=spaces.Box(-2.0, np.inf, (1,)),
        b=spaces.Discrete(2),
        c=spaces.Box(-1e300, 3.0, (1,), np.float64),
    )
    env = Vectors(Given(None, space))
    np.testing.assert_array_equal(env.observation_space.low, [-2, 0, 0, -np.inf])
    np.testing.assert_array_equal(env.observation_space.high, [np.inf, 1, 1, 3])


def test_tiny_images_are_numbers_as_they_are() -> None:
    grid = np.arange(147, dtype=np.uint8).reshape(7, 7, 3)
    env = Vectors(Given({"image": grid, "mission": "go"}, spaces.Dict(image=TINY)))
    np.testing.assert_array_equal(env.reset()[0], np.arange(147))


def test_text_is_left_out_and_named() -> None:
    text = spaces.Dict(a=CHOICE, b=spaces.Dict(said=spaces.Text(3)), c=spaces.Sequence(CHOICE))
    assert seen_of(text).left_out == ("b/said", "c")
    spec = describe("minigrid:MiniGrid-Empty-5x5-v0")
    assert spec.left_out == ("mission",)
    assert spec.observation_shape == (4 + 7 * 7 * 3,)
    env = make_env("minigrid:MiniGrid-Empty-5x5-v0")
    seen, _ = env.reset(seed=0)
    own = env.unwrapped.gen_obs()
    np.testing.assert_array_equal(seen[:4], np.eye(4)[own["direction"]])
    np.testing.assert_array_equal(seen[4:], own["image"].reshape(-1))


def test_one_image_is_what_is_seen() -> None:
    space = spaces.Dict(place=BOX, screen=PICTURE)
    assert seen_of(space).left_out == ("place",)
    picture = np.full((16, 20, 3), 9, np.uint8)
    env = OneImage(Given({"place": np.zeros((2, 2)), "screen": picture}, space))
    np.testing.assert_array_equal(env.reset()[0], picture)
    made = {"observation_space": space, "action_space": spaces.MultiBinary(2)}
    spec = describe("own_world:OwnSpaces-v0", (), (), "frames", **made)
    assert spec.sees_frames
    assert spec.left_out == ("place",)
    assert spec.action_names == ("0,0", "0,1", "1,0", "1,1")
    assert isinstance(make_env("own_world:OwnSpaces-v0", **made), Screen)


@pytest.mark.parametrize(
    ("space", "choice", "action"),
    [
        (spaces.Discrete(3, start=2), 1, 3),
        (spaces.MultiDiscrete([2, 3]), 5, [1, 2]),
        (spaces.MultiDiscrete([2, 3], start=[0, 10]), 1, [0, 11]),
        (spaces.MultiBinary(3), 3, [0, 1, 1]),
        (spaces.Tuple([spaces.Discrete(2), spaces.MultiDiscrete([2, 2])]), 6, (1, [1, 0])),
        (spaces.Dict(a=spaces.Discrete(2, start=-1), b=CHOICE), 2, {"a": 0, "b": 0}),
    ],
    ids=str,
)
def test_actions_become_one_choice(space: spaces.Space, choice: int, action: Any) -> None:
    given = Given(observes=BOX, acts=space)
    env = with_plain_actions(given)
    env.step(choice)
    assert space.contains(given.taken)
    np.testing.assert_equal(given.taken, action)
    assert isinstance(env, Choices)
    assert env.action_space == spaces.Discrete(len(env.choice_names))


def test_every_combination_is_one_choice() -> None:
    env = with_plain_actions(given := Given(acts=spaces.MultiDiscrete([2, 3])))
    taken = []
    for choice in range(6):
        env.step(choice)
        taken.append(",".join(map(str, given.taken)))
    assert tuple(taken) == env.choice_names == ("0,0", "0,1", "0,2", "1,0", "1,1", "1,2")


def test_coordinates_are_laid_in_a_row() -> None:
    space = spaces.Dict(arm=spaces.Box(-1.0, 1.0, (2, 1)), grip=spaces.Box(0.0, 5.0, (1,)))
    env = with_plain_actions(given := Given(acts=space))
    assert isinstance(env, FlatActions)
    assert env.action_space == spaces.Box(
        np.array([-1, -1, 0], np.float32), np.array([1, 1, 5], np.float32)
    )
    env.step(np.array([0.5, -0.5, 4.0], np.float32))
    np.testing.assert_array_equal(given.taken["arm"], [[0.5], [-0.5]])
    np.testing.assert_array_equal(given.taken["grip"], [4.0])


@pytest.mark.parametrize("name", ["Hopper-v5", "PointMaze-v0", "Pendulum-v1", "CartPole-v1"])
def test_what_is_plain_already_acts_in_no_wrapper(name: str) -> None:
    env = make_env(name)
    assert type(env) is gymnasium.wrappers.TimeLimit


@pytest.mark.parametrize(
    ("name", "observation", "actions", "steps"),
    [
        ("CartPole-v1", 4, 2, 500),
        ("MountainCar-v0", 2, 3, 200),
        ("Acrobot-v1", 6, 3, 500),
        ("FrozenLake-v1", 16, 4, 100),
        ("Taxi-v4", 500, 6, 200),
        ("Blackjack-v1", 32 + 11 + 2, 2, 1000),  # no limit of its own
    ],
)
def test_gymnasiums_own_choices(name: str, observation: int, actions: int, steps: int) -> None:
    for asked in (None, "vectors"):
        spec = describe(name, (), (), asked)
        assert spec.observation_shape == (observation,)
        assert spec.chooses
        assert spec.action_dim == spec.actions == actions
        assert spec.action_names == tuple(map(str, range(actions)))
        assert spec.max_episode_steps == steps
    env = make_env(name)
    seen, _ = env.reset(seed=0)
    assert seen.shape == (observation,)
    assert not is_screen(name)


def test_a_box_has_coordinates_and_no_choices() -> None:
    spec = describe("Pendulum-v1")
    assert not spec.chooses
    assert (spec.action_dim, spec.actions, spec.action_low) == (1, 0, (-2.0,))


def test_images_may_go_with_a_box_where_frames_are_not_asked_for() -> None:
    turn = spaces.Box(-1.0, 1.0, (1,))
    spec = describe("own_world:OwnSpaces-v0", observation_space=PICTURE, action_space=turn)
    assert spec.sees_frames
    assert not spec.chooses
    with pytest.raises(ValueError, match="but Discrete actions are needed: use IntrinsicReplayB"):
        describe(
            *("own_world:OwnSpaces-v0", (), (), "frames"),
            **{"observation_space": PICTURE, "action_space": turn},
        )


def test_columns_of_a_vector_may_be_the_position() -> None:
    spec = describe("CartPole-v1", ("0", "2"))
    assert spec.coverage_cell_size == (0.1, 0.01)  # of 9.6 and 0.84
