"""Functional environments as worlds: what they compute is what their Gymnasium twins do."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from element_rl.envs.make import describe, make_env
from element_rl.envs.point_maze import START, START_SPREAD
from element_rl.worlds.functional import FunctionalWorlds, TwoFunctions
from element_rl.worlds.making import make_worlds


def test_the_point_maze_steps_as_its_twin() -> None:
    spec = describe("PointMaze-v0")
    worlds, env = make_worlds("jax", spec, {}), make_env("PointMaze-v0")
    step = jax.jit(worlds.step)
    rng = np.random.default_rng(0)
    observation, info = env.reset(seed=0)
    state = jnp.asarray(env.unwrapped.position, jnp.float32)[None]
    for _ in range(200):
        action = rng.uniform(-1, 1, 2)
        observation, reward, terminated, _, info = env.step(action)
        state, outcome = step(state, jnp.asarray(action, jnp.float32)[None])
        np.testing.assert_allclose(outcome.seen.observation[0], observation, atol=1e-4)
        position = (info["x_position"], info["y_position"])
        np.testing.assert_allclose(outcome.seen.position[0], position, atol=1e-3)
        assert float(outcome.reward[0]) == reward
        assert bool(outcome.terminated[0]) == terminated
        assert not outcome.faulty.any()


def test_the_point_maze_begins_where_its_twin_does() -> None:
    worlds = make_worlds("jax", describe("PointMaze-v0"), {})
    placed, seen = worlds.reset(jax.random.split(jax.random.key(0), 2_000))
    position = np.asarray(placed)
    assert (np.abs(position - np.array(START)) <= START_SPREAD).all()
    np.testing.assert_allclose(position.mean(axis=0), START, atol=0.02)
    np.testing.assert_allclose(position.std(axis=0), START_SPREAD / np.sqrt(3), rtol=0.05)
    np.testing.assert_array_equal(seen.position, position)


def test_a_functional_environment_of_gymnasium() -> None:
    """Pendulum: θ'' = 3/2 g/l sin θ + 3/(m l²) u, in steps of 0.05."""
    spec = describe("phys2d/Pendulum-v0")
    worlds = make_worlds("jax", spec, {})
    assert isinstance(worlds, FunctionalWorlds)
    state, seen = worlds.reset(jax.random.split(jax.random.key(0), 3))
    assert seen.observation.shape == (3, 3)
    assert seen.position.shape == (3, 0)
    angle, speed = state.state[:, 0], state.state[:, 1]
    action = jnp.array([[2.0], [-1.0], [0.0]])
    _, outcome = jax.jit(worlds.step)(state, action)
    faster = speed + (15.0 * jnp.sin(angle) + 3.0 * action[:, 0]) * 0.05
    turned = angle + faster * 0.05
    expected = jnp.stack([jnp.cos(turned), jnp.sin(turned), faster], axis=1)
    np.testing.assert_allclose(outcome.seen.observation, expected, rtol=1e-4, atol=1e-5)
    assert not outcome.terminated.any()


def test_a_position_is_read_from_columns_of_the_observation() -> None:
    spec = describe("phys2d/Pendulum-v0", ("0", "1"), ((-1, 1), (-1, 1)))
    _, seen = make_worlds("jax", spec, {}).reset(jax.random.split(jax.random.key(0), 3))
    np.testing.assert_array_equal(seen.position, seen.observation[:, :2])


class Drift(gymnasium.Env):
    """An environment of a user, with its two functions beside it."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    func_env = TwoFunctions(
        reset=lambda key: (jnp.zeros(()), jnp.zeros(1)),
        step=lambda x, action: (x + action[0], (x + action[0])[None], 2.0 * x, x + action[0] > 3.0),
        info=lambda x: {"x": x, "y": -x},
    )
    metadata: dict = {"render_modes": []}  # noqa: RUF012 (as Gymnasium declares it)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
        self.x = 0.0
        return np.zeros(1, np.float32), {"x": 0.0, "y": 0.0}

    def step(self, action: np.ndarray) -> tuple:
        self.x += float(action[0])
        seen = np.array([self.x], np.float32)
        return seen, 0.0, self.x > 3.0, False, {"x": self.x, "y": -self.x}


@pytest.fixture(autouse=True)
def _drift() -> None:
    if "element-tests/Drift-v0" not in gymnasium.registry:
        gymnasium.register("element-tests/Drift-v0", entry_point=Drift, max_episode_steps=20)


def test_two_functions_of_a_user() -> None:
    spec = describe("element-tests/Drift-v0", ("x", "y"), ((-5, 5), (-5, 5)))
    worlds = make_worlds("jax", spec, {})
    state, _ = worlds.reset(jax.random.split(jax.random.key(0), 2))
    state, _ = worlds.step(state, jnp.array([[1.0], [-1.0]]))
    state, outcome = worlds.step(state, jnp.array([[2.5], [-1.0]]))
    np.testing.assert_allclose(outcome.seen.observation, [[3.5], [-2.0]])
    np.testing.assert_allclose(outcome.seen.position, [[3.5, -3.5], [-2.0, 2.0]])
    np.testing.assert_allclose(outcome.reward, [2.0, -2.0])
    np.testing.assert_array_equal(outcome.terminated, [True, False])


def test_what_has_no_functions_is_refused_in_one_sentence() -> None:
    with pytest.raises(ValueError, match="Pendulum-v1 has none"):
        make_worlds("jax", describe("Pendulum-v1"), {})
