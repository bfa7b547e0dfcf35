"""Where the agent is, where its user says it, and the map that follows."""

from pathlib import Path

import gymnasium
import numpy as np
import pytest
from own_world import START, WALK

from element_rl.acting.collector import ProcessCollector
from element_rl.agents.making import make_agent
from element_rl.envs.make import describe, make_env
from element_rl.envs.positions import column_bounds
from element_rl.envs.spec import EnvSpec, coverage_cell, position_of
from element_rl.training.off_policy.config import ExploreConfig, map_note, resolved
from element_rl.training.off_policy.launch import create_run
from element_rl.training.off_policy.learner import Learner

PLANE = ("x_position", "y_position")


def test_entries_of_info_and_a_map_that_was_measured() -> None:
    spec = describe(WALK, PLANE)
    assert (spec.position, spec.position_dim, spec.coverage_axes, spec.coverage_unit) == (
        PLANE,
        2,
        ("x", "y"),
        "",
    )
    assert spec.coverage_bounds is not None
    assert spec.coverage_start is not None
    env = make_env(WALK)
    env.action_space.seed(5)
    observation, info = env.reset(seed=5)
    far = 0.0
    for _ in range(50):
        position = position_of(spec, observation, info)
        np.testing.assert_array_equal(
            position, np.array([info[name] for name in PLANE], np.float32)
        )
        far = max(far, float(np.abs(position - START).max()))
        observation, _, _, _, info = env.step(env.action_space.sample())
    assert spec.coverage_start == pytest.approx(START, abs=0.05)
    for (low, high), centre in zip(spec.coverage_bounds, START, strict=True):
        assert (low + high) / 2 == pytest.approx(centre, abs=0.5)
        assert 3 * far < (high - low) / 2 < 30 * far  # about ten times as far as a random walk gets
    assert describe(WALK, PLANE) == spec  # to the bit: runs share the map


def test_columns_have_the_bounds_of_the_observation() -> None:
    spec = describe("MountainCarContinuous-v0", ("0", "1"))
    assert spec.position == (0, 1)
    assert spec.coverage_axes == ("observation[0]", "observation[1]")
    np.testing.assert_allclose(spec.coverage_bounds, [(-1.2, 0.6), (-0.07, 0.07)], rtol=1e-6)
    assert spec.coverage_start == pytest.approx((-0.5, 0.0), abs=0.1)
    observation = np.array([0.3, -0.02])
    np.testing.assert_array_equal(
        position_of(spec, observation, {}), observation.astype(np.float32)
    )
    mixed = describe("Pendulum-v1", ("2", "0"), ((-1, 1), (-3, 3)))
    assert mixed.coverage_bounds == ((-1.0, 1.0), (-3.0, 3.0))
    assert mixed.coverage_start is None  # it begins anywhere


def test_bounds_that_stand_for_infinity_are_measured() -> None:
    """CartPole's velocities have the largest float32."""
    space = gymnasium.make("CartPole-v1").observation_space
    position, velocity = column_bounds(space, (0, 1))
    assert position == pytest.approx((-4.8, 4.8))
    assert velocity is None
    assert column_bounds(space, ("x_position",)) == [None]


def test_one_coordinate_and_three() -> None:
    one = describe(WALK, ("height",))
    assert (one.position_dim, one.coverage_bounds, one.coverage_axes) == (1, None, None)
    assert "a map has two axes" in map_note(ExploreConfig(WALK, position=("height",)), one)
    three = describe(WALK, (*PLANE, "height"), ((0, 10), (0, 10)))
    assert (three.position_dim, three.coverage_axes) == (3, ("x", "y"))
    assert coverage_cell(three, np.array([[3.05, 4.05, 2.0]])).tolist() == [30 * 100 + 40]


@pytest.mark.parametrize(
    ("position", "bounds", "message"),
    [
        (("7", "0"), (), "observes 3 numbers, so that there is no column 7"),
        (
            ("x", "y"),
            (),
            "no entry 'x', which --position names; it has x_position, y_position, height",
        ),
        ((), ((0.0, 1.0), (0.0, 1.0)), "say with --position where it is"),
        (("height",), ((0.0, 1.0), (0.0, 1.0)), "a map, which has two axes"),
        (PLANE, ((0.0, 1.0),), "bounds must be 2 pairs"),
        (PLANE, ((1.0, 0.0), (0.0, 1.0)), "the first of each pair below the second"),
    ],
)
def test_refusals(
    position: tuple[str, ...], bounds: tuple[tuple[float, float], ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        describe(WALK, position, bounds)


def test_an_environment_that_fails_at_its_first_step_is_one_sentence() -> None:
    with pytest.raises(ValueError, match="fails at its first step: RuntimeError: no simulator"):
        describe("own_world:OwnFailing-v0", PLANE, when="reset")


def test_a_robot_gets_another_map() -> None:
    spec = describe("Ant", (), ((-5, 5), (-5, 5)))
    assert (spec.coverage_bounds, spec.coverage_axes) == (((-5.0, 5.0), (-5.0, 5.0)), ("x", "y"))
    assert (spec.orientation_dim, spec.coverage_start) == (4, (0.0, 0.0))


@pytest.mark.parametrize("workers", [0, 1])
def test_workers_know_the_position(workers: int) -> None:
    with ProcessCollector(
        describe(WALK, PLANE), [3], 60, None, {}, num_workers=workers
    ) as collector:
        collector.start(0, None)
        chunk = collector.wait()
    count = int(chunk.count[0])
    assert count == 61
    assert np.linalg.norm(chunk.position[0, [0, 51]] - START, axis=1) == pytest.approx(0.0, abs=0.1)
    assert np.ptp(chunk.position[0, :50], axis=0).min() > 0.1


def test_settings_keep_the_map_and_the_state_has_the_position(tmp_path: Path) -> None:
    config, spec, reward = resolved(ExploreConfig(WALK, position=PLANE, steps=100, replay_size=400))
    assert (config.env, config.position, config.bounds) == (WALK, PLANE, spec.coverage_bounds)
    assert "Coverage is counted on x from" in map_note(ExploreConfig(WALK, position=PLANE), spec)
    assert map_note(config, spec) == ""
    assert reward is not None
    agent = make_agent(config.agent, config.learner, spec.observation_dim, spec.action_dim)
    learner = Learner(
        spec, reward, agent, [0], config.replay_size, config.chunk_steps, config.steps
    )
    assert learner.state.replay.state.shape[-1] == 5 + 2
    run = create_run(config, tmp_path / "run")
    assert run.config["coverage_start"] == list(spec.coverage_start or ())
    assert run.config["settings"]["bounds"] == [list(pair) for pair in spec.coverage_bounds or ()]


def test_without_a_position_nothing_changes_but_a_hint() -> None:
    config, spec, _ = resolved(ExploreConfig("Pendulum-v1"))
    assert spec == EnvSpec("Pendulum-v1", (3,), 200, (-2.0,), (2.0,))
    assert (config.position, config.bounds) == ((), ())
    assert "--position says where the agent is" in map_note(config, spec)
    assert map_note(ExploreConfig("PointMaze"), describe("PointMaze")) == ""
