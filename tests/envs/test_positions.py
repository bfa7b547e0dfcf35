"""Where the agent is, where its user says it, and the map that follows."""

import dataclasses
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from own_world import START, WALK

from element_rl.acting.collector import ProcessCollector
from element_rl.agents.making import make_agent
from element_rl.envs.make import describe, make_env
from element_rl.envs.positions import column_bounds
from element_rl.envs.spec import coverage_cell, position_of
from element_rl.foreign import their_traceback
from element_rl.training.off_policy.config import ExploreConfig, stored_position
from element_rl.training.off_policy.launch import create_run
from element_rl.training.off_policy.learner import Learner
from element_rl.training.off_policy.resolving import described, map_note, resolved

PLANE = ("x_position", "y_position")


def test_entries_of_info_and_a_map_that_was_measured() -> None:
    spec = describe(WALK, PLANE)
    assert (spec.position, spec.position_dim, spec.coverage_axes, spec.coverage_unit) == (
        PLANE,
        2,
        ("x", "y"),
        "",
    )
    assert (spec.coverage_bounds, spec.has_map, spec.grown_axes) == (None, True, 2)
    assert spec.coverage_cell_size is not None
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
    width, height = spec.coverage_cell_size
    assert width == height  # x and y have one unit
    assert 0.03 * far < width < 0.6 * far  # about a fifth of what a random walk reaches
    assert describe(WALK, PLANE) == spec  # to the bit: runs share the cells
    assert describe(WALK, PLANE, (), None, (0.5,)).coverage_cell_size == (0.5, 0.5)


def test_columns_have_a_hundredth_of_the_bounds_of_the_observation() -> None:
    """1.8 / 100 and 0.14 / 100, rounded to 1, 2 or 5 times a power of ten."""
    spec = describe("MountainCarContinuous-v0", ("0", "obs[1]"))
    assert spec.position == (0, 1)
    assert spec.coverage_axes == ("observation[0]", "observation[1]")
    assert (spec.coverage_bounds, spec.coverage_cell_size) == (None, (0.02, 0.001))
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
    note = map_note(ExploreConfig(WALK, position=("height",)), one)
    assert note.startswith("A map has two axes, and the position has one number: coverage counts")
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
        (("none",), ((0.0, 1.0), (0.0, 1.0)), "a map, which has two axes"),
        (("height",), ((0.0, 1.0), (0.0, 1.0)), "a map, which has two axes"),
        (("none", "height"), (), "nothing can stand beside it"),
        (("obs[2:1]",), (), "names no number"),
        (("obs[a]", "0"), (), r"--position obs\[a\] is none that can be read"),
        (("env.here.there[0:2]",), (), "Walk has no attribute here"),
        (("nowhere.py:place",), (), "There is no file nowhere.py with a position in it"),
        (("atari-ram",), (), "only the memory of montezuma_revenge, pitfall, venture, private_eye"),
        (PLANE, ((0.0, 1.0),), "bounds must be 2 pairs"),
        (PLANE, ((1.0, 0.0), (0.0, 1.0)), "the first of each pair below the second"),
    ],
)
def test_refusals(
    position: tuple[str, ...], bounds: tuple[tuple[float, float], ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        describe(WALK, position, bounds)


class Wrong(gymnasium.Env[Any, Any]):
    """Shows something else than its space says."""

    def __init__(self, shown: Any = None) -> None:
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self._shown = shown

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._shown, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._shown, 0.0, False, False, {}


@pytest.mark.parametrize(
    ("shown", "kind"), [(None, "NoneType of shape ()"), ("x", "str of shape ()"), ([0.0], "list")]
)
@pytest.mark.filterwarnings("ignore::UserWarning")  # Gymnasium's, of the same thing
def test_an_environment_that_shows_something_else_is_one_sentence(shown: Any, kind: str) -> None:
    gymnasium.register("Wrong-v0", Wrong, max_episode_steps=5, disable_env_checker=True)
    try:
        with pytest.raises(ValueError, match="fails at its first step: it shows ") as refused:
            describe("Wrong-v0", shown=shown)
        assert kind in str(refused.value)
        assert str(refused.value).endswith("instead of (2,).")
    finally:
        gymnasium.registry.pop("Wrong-v0")


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
    assert (config.env, config.position, config.bounds) == (WALK, PLANE, ())
    assert config.cell_size == spec.coverage_cell_size
    given = ExploreConfig(WALK, position=PLANE)
    assert map_note(given, spec).startswith("Coverage counts cells of 0.2 along x and 0.2 along y")
    assert reward is not None
    agent = make_agent(config.agent, config.learner, spec.observation_dim, spec.action_dim)
    learner = Learner(
        spec, reward, agent, [0], config.replay_size, config.chunk_steps, config.steps
    )
    assert learner.state.replay.state.shape[-1] == 5 + 2
    run = create_run(config, tmp_path / "run")
    assert run.config["coverage_start"] == list(spec.coverage_start or ())
    assert run.config["settings"]["cell_size"] == list(spec.coverage_cell_size or ())
    assert (run.config["coverage_of"], run.config["coverage_bounds"]) == ("positions", None)
    bounded = ExploreConfig(WALK, position=PLANE, bounds=((0.0, 1.0), (0.0, 1.0)), steps=100)
    config, spec, _ = resolved(bounded)
    assert (config.cell_size, spec.grown_axes) == ((), 0)
    assert map_note(bounded, spec) == ""


def test_what_was_found_is_written_down(tmp_path: Path) -> None:
    """So the run has it whatever a later version finds; and one that had none keeps none."""
    config, spec, _ = resolved(ExploreConfig(WALK, steps=100))
    assert (config.position, spec.position) == (PLANE, PLANE)
    assert "x_position and y_position of info. --position says" in map_note(
        ExploreConfig(WALK), spec
    )
    again = described(dataclasses.asdict(config), {})
    assert again == dataclasses.replace(spec, found="")
    older = {"env": WALK, "position": (), "bounds": ()}
    assert described(older, {}).position_dim == 0
    assert stored_position("Ant-v5", {}) == ()
    assert resolved(ExploreConfig(WALK, position=("none",), steps=100)).spec.position == ()


def test_without_a_position_coverage_counts_states() -> None:
    config, spec, _ = resolved(ExploreConfig("Pendulum-v1"))
    assert (spec.position_dim, spec.has_map, spec.coverage_of) == (0, False, "state cells")
    assert (config.position, config.bounds, config.cell_size) == (("none",), (), ())
    assert map_note(config, spec).startswith("Coverage counts cells of half a deviation")
    note = map_note(ExploreConfig("Pendulum-v1"), spec)
    assert note.startswith("No position of the agent was found in Pendulum-v1; --position")
    assert "\nCoverage counts cells of half a deviation of the 3 numbers" in note
    assert map_note(ExploreConfig("PointMaze"), describe("PointMaze")) == ""


FUNCTION = """
import numpy as np

def middle(observation, info, env):
    return np.array([info["x_position"], env.unwrapped.place[1], 7.0])

def wrong(observation, info, env):
    return info["nothing"]
"""


def test_a_function_of_the_users_own(tmp_path: Path) -> None:
    file = tmp_path / "where.py"
    file.write_text(FUNCTION)
    spec = describe(WALK, (f"{file}:middle",))
    assert (spec.position_dim, spec.coverage_axes) == (3, ("x", "y"))
    env = make_env(WALK)
    observation, info = env.reset(seed=3)
    found = position_of(spec, observation, info, env)
    np.testing.assert_allclose(found, [info["x_position"], info["y_position"], 7.0], rtol=1e-6)
    with pytest.raises(ValueError, match="wrong could not be read: KeyError: 'nothing'") as told:
        describe(WALK, (f"{file}:wrong",))
    assert "line 8, in wrong" in their_traceback(told.value.__cause__)
    with pytest.raises(ValueError, match=r"where\.py:other could not be loaded: AttributeError"):
        describe(WALK, (f"{file}:other",))


def test_coordinates_may_be_mixed() -> None:
    spec = describe(WALK, ("env.place[1]", "x_position", "obs[2]", "info[height]"))
    env = make_env(WALK)
    observation, info = env.reset(seed=3)
    found = position_of(spec, observation, info, env)
    wanted = [info["y_position"], info["x_position"], observation[2], 2.0]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert spec.coverage_axes == ("env.place[1]", "x")
    with pytest.raises(ValueError, match="which is not at hand here"):
        position_of(spec, observation, info)
