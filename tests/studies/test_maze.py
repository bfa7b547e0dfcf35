"""The maze study: its two rewards by hand and against the library's, the same seeds twice, and a
small run to its files."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from element_rl.entropy import kde_entropy
from element_rl.envs.maze import MAZE, shallow_dead_ends
from element_rl.memory import exact
from element_rl.studies.engine.results import read_results
from element_rl.studies.maze import (
    AgentKind,
    Knowledge,
    MazeConfig,
    MazeOutcome,
    lifelong_novelty,
    run_maze,
    state_rewards,
    visits_entropy,
)
from element_rl.studies.maze import results as maze_results

TINY = MazeConfig(episodes=3, steps=40, seeds=2, snapshots=(1, 300), num_neighbours=3, updates=5)
NUM_CELLS = len(MAZE.depth)
WAYS: tuple[Any, ...] = ("memory", "episode", "step")
RNG_VISITS = np.random.default_rng(0).poisson(0.7, NUM_CELLS)


def visited(**counts: int) -> jnp.ndarray:
    """Visits of cells named like c0, c1."""
    visits = np.zeros(NUM_CELLS, np.float32)
    for name, count in counts.items():
        visits[int(name[1:])] = count
    return jnp.asarray(visits)


def test_lifelong_novelty_of_three_cells_by_hand() -> None:
    """Cells 0, 1 and 2 are at x = 0, 1, 2 in the first row, visited 3, 1 and 1 times; k = 2."""
    novelty = np.asarray(lifelong_novelty(visited(c0=3, c1=1, c2=1), 2))
    assert novelty[0] == 0.0  # its two other visits
    assert novelty[1] == pytest.approx(math.log(1 + math.sqrt(2)))  # one step to either side
    assert novelty[2] == pytest.approx(math.log(1 + math.sqrt(1 + 4)))  # cell 1, then cell 0
    few = np.asarray(lifelong_novelty(visited(c0=1, c1=1), 5))
    assert few[0] == pytest.approx(math.log(2))  # the norm is over those there are


def test_lifelong_novelty_is_that_of_the_exact_memory() -> None:
    states = jnp.asarray(np.repeat(MAZE.position, RNG_VISITS, axis=0), jnp.float32)
    memory = exact.insert(
        exact.create(len(states), 2), states, jnp.zeros(len(states)), jnp.asarray(len(states))
    )
    distances = np.asarray(exact.query(memory, states, 6)[0])[:, 1:]  # without its own node
    expected = np.log1p(np.linalg.norm(distances, axis=1))
    novelty = np.asarray(lifelong_novelty(jnp.asarray(RNG_VISITS, jnp.float32), 5))
    assert np.repeat(novelty, RNG_VISITS) == pytest.approx(expected, abs=1e-5)


def test_entropy_from_visits_is_that_of_the_states() -> None:
    states = jnp.asarray(np.repeat(MAZE.position, RNG_VISITS, axis=0), jnp.float32)
    entropy = visits_entropy(jnp.asarray(RNG_VISITS, jnp.float32), 1.5)
    assert float(entropy) == pytest.approx(float(kde_entropy(states, 1.5)), abs=1e-4)
    assert float(visits_entropy(visited(c3=7), 1.0)) == pytest.approx(0.0)


def test_rewards_of_three_cells_by_hand() -> None:
    """Cell 0 was in episodes with H = 1 and 3, cell 1 in that with 3, cell 2 in that with 1: means
    2, 3 and 1."""
    visits = visited(c0=3, c1=1, c2=1)
    tried = jnp.zeros((NUM_CELLS, 4), bool)
    known = Knowledge(
        jnp.zeros(tried.shape), tried, visits, visited(c0=4, c1=3, c2=1), visited(c0=2, c1=1, c2=1)
    )
    kind = AgentKind(jnp.asarray(1.0), jnp.asarray(0.5), jnp.asarray(0.1))
    largest = math.log(1 + math.sqrt(5))
    novelty = [0.0, math.log(1 + math.sqrt(2)) / largest, 1.0]
    expected = [0.5, 1.0 + 0.5 * novelty[1], 0.5]
    rewards = np.asarray(state_rewards(known, kind, 2))
    assert rewards[:3] == pytest.approx(expected, abs=1e-6)
    assert not rewards[3:].any()


@pytest.fixture(scope="module")
def outcome() -> MazeOutcome:
    return run_maze(TINY)


def test_same_seeds_twice(outcome: MazeOutcome) -> None:
    again = run_maze(TINY)
    for name in TINY.rewards:
        assert np.array_equal(outcome.visits[name], again.visits[name])
        assert np.array_equal(outcome.rewards[name], again.rewards[name], equal_nan=True)
    # two seeds are two agents
    assert not np.array_equal(outcome.visits["episodic"][0], outcome.visits["episodic"][1])


def test_measurements(outcome: MazeOutcome) -> None:
    for name in TINY.rewards:
        assert (outcome.visits[name].sum(axis=2) == TINY.steps).all()
        assert np.array_equal(
            np.isfinite(outcome.rewards[name]), np.cumsum(outcome.visits[name], axis=1) > 0
        )
    visits = np.zeros((1, 1, NUM_CELLS), np.int64)
    dead = int(np.flatnonzero(shallow_dead_ends(MAZE))[0])
    deep = int(np.argmax(MAZE.depth))
    visits[0, 0, [dead, deep]] = 30, 10
    made = MazeOutcome(
        TINY, {"both": visits}, {"both": np.where(visits > 0, 0.75, np.nan)}, {}, 0.0
    )
    assert maze_results.depth_reached(made, "both").tolist() == [[73.0]]
    assert maze_results.dead_end_share(made, "both").tolist() == [[0.75]]
    # of 1 + β = 1.5
    assert maze_results.mean_reward(made, "both", MAZE.depth > 20, 1).tolist() == [0.5]
    assert np.isnan(maze_results.mean_reward(made, "both", MAZE.depth == 0, 1)).all()


def test_ways_of_learning(outcome: MazeOutcome) -> None:
    """The first episode is the same whenever one learns after it, and so is an agent whatever
    others are run beside it."""
    config = dataclasses.replace(TINY, rewards=("lifelong",))
    after = {
        way: run_maze(dataclasses.replace(config, learn_from=way)).visits["lifelong"]
        for way in WAYS
    }
    assert np.array_equal(after["memory"][:, 0], after["episode"][:, 0])
    assert np.array_equal(after["memory"], outcome.visits["lifelong"])
    assert not np.array_equal(after["memory"], after["episode"])
    assert not np.array_equal(after["episode"], after["step"])


def test_learning_from_memory_goes_deep() -> None:
    """A few dozen episodes suffice to get past what a random walk reaches."""
    config = MazeConfig(episodes=40, steps=300, seeds=3, rewards=("episodic", "random"))
    outcome = run_maze(config)
    depth = {
        name: maze_results.depth_reached(outcome, name)[:, -10:].mean() for name in config.rewards
    }
    assert depth["episodic"] > depth["random"] + 10


def test_the_command_writes_everything(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    results = maze_results.maze_command_outcome(
        TINY, tmp_path, lambda done, total: seen.append((done, total))
    )
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert read_results(tmp_path) == results
    assert {path.name for path in (tmp_path / "figures").iterdir()} >= {
        "maze.png",
        "maze.svg",
        "depth.png",
        "depth.svg",
    }
    assert (tmp_path / "report.html").exists()
    agents, compared, rewards = results.tables
    assert {row[2] for row in compared.rows} == {*TINY.rewards} - {"episodic"}
    assert [row[0] for row in agents.rows] == list(TINY.rewards)
    cells = [row[agents.columns.index("cells ever seen")] for row in agents.rows]
    assert all(isinstance(count, int) or count % 1 for count in cells)  # 76, and not 76.00
    assert rewards.columns == (
        "reward",
        "cells",
        "episode 1",
        "episode 3",
    )  # 300 is beyond the last episode
    assert len(results.maps) == 7  # three rewards, four kinds of visits
    assert [frame.label for frame in results.maps[0].frames] == ["episode 1", "episode 3"]


def test_mistakes_are_said() -> None:
    with pytest.raises(ValueError, match="episodes must be at least 1, got 0"):
        MazeConfig(episodes=0)
    with pytest.raises(ValueError, match="one or more different rewards"):
        MazeConfig(rewards=("both", "both"))
    with pytest.raises(ValueError, match="bandwidth 0"):
        MazeConfig(bandwidth=0.0)
