"""The tables and maps of the reward benchmarks, from made-up numbers."""

from pathlib import Path

import numpy as np

from benchmarks import bench_catalogue, bench_coverage, bench_rewards
from element_rl.envs.point_maze import START


def visits_at(*positions: tuple[float, float]) -> np.ndarray:
    visits = np.zeros((100, 100), np.int32)
    for x, y in positions:
        visits[int(x * 10), int(y * 10)] += 1
    return visits


def test_rooms_of_the_maze() -> None:
    first, second, last = START, (5.0, 2.0), (8.5, 8.5)
    assert bench_coverage.rooms_entered(visits_at(first)) == 1
    assert bench_coverage.rooms_entered(visits_at(first, first, second, last)) == 3
    assert not bench_coverage.in_last_room(visits_at(first, second))
    assert bench_coverage.in_last_room(visits_at(last))


def test_table_and_map_of_coverage(tmp_path: Path) -> None:
    rows = [
        {
            "reward": "random",
            "cells": [100, 110, 90],
            "rooms": [1, 2, 1],
            "last": [False] * 3,
            "seconds": 5.0,
        },
        {
            "reward": "rnd",
            "cells": [250, 150, 300],
            "rooms": [3, 2, 9],
            "last": [False, False, True],
            "seconds": 9.0,
        },
    ]
    first, second = bench_coverage.render(rows).splitlines()[2:4]
    assert first == "| rnd | 250 | 150–300 | 2.50 | 9, 3, 2 | 1 of 3 | 9 |"
    assert second.startswith("| random | 100 | 90–110 | 1.00 |")
    for row in rows:
        row["visits"] = np.stack([visits_at(START)] * 3)
    bench_coverage.draw(rows, tmp_path / "maze.png")
    assert (tmp_path / "maze.png").stat().st_size > 5_000


def test_table_of_costs() -> None:
    row = {
        "reward": "rnd",
        "seeds": 10,
        "us": 150.0,
        "plain_us": 100.0,
        "per_update": [0.4, 0.5, 0.9],
        "per_episode": [0.1, 0.2, 0.3],
    }
    assert (
        bench_rewards.render([row]).splitlines()[2]
        == "| rnd | 10 | 150 | 100 | +50% (+40% to +90%) | +20.0% | +70% |"
    )


def test_costs_are_measured_on_real_steps() -> None:
    settings = bench_rewards.Settings(
        "Pendulum-v1", ("re3",), steps=220, updates=8, rounds=1, page=False
    )
    (row,) = bench_rewards.measure(settings, 1)
    assert (row["reward"], row["seeds"], len(row["per_update"])) == ("re3", 1, 1)
    assert row["us"] > 0


def test_catalogue_makes_networks_small_and_shows_every_seed(tmp_path: Path) -> None:
    assert bench_catalogue.reward_options("rnd") == [
        *("--reward-options", "feature_dim=64"),
        *("target_sizes=[128,128]", "predictor_sizes=[128,128]"),
    ]
    assert bench_catalogue.reward_options("random") == []
    scores = {"random": [10, 30, 20], "rnd": [90, 50, 40]}
    lines = bench_catalogue.render(scores).splitlines()
    assert lines[2:] == ["| rnd | 90 50 40 | 50 | 2.50 |", "| random | 30 20 10 | 20 | 1.00 |"]
    bench_catalogue.draw({"PointMaze-v0": scores, "Hopper-v5": scores}, tmp_path / "all.png")
    assert (tmp_path / "all.png").stat().st_size > 5_000
