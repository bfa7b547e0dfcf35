"""Benchmarks of worlds that are made in pieces, tiny, in the point maze."""

import csv
from pathlib import Path

import numpy as np
import pytest

from benchmarks import worlds_long, worlds_tasks
from benchmarks.tables import PAGE as BENCHMARKS
from element_rl.training.off_policy.resolving import resolved

MAZE = ("max_episode_steps=40",)


def test_a_long_run_goes_on_where_it_was(tmp_path: Path) -> None:
    settings = worlds_long.Settings(
        env="PointMaze-v0",
        physics="jax",
        seeds=2,
        steps=1_280,
        envs_per_agent=4,
        updates_per_step=1 / 8,
        batch_size=8,
        replay_size=1_000,
        hidden_sizes=(8,),
        env_options=MAZE,
        seconds=1e-9,
        every=0.0,
        out=tmp_path / "run",
    )
    assert not worlds_long.main(settings)
    first = worlds_long.read_lines(settings.out / "long.csv")
    assert [row["steps"] for row in first] == [2 * 64]  # a chunk
    assert worlds_long.main(worlds_long.dataclasses.replace(settings, seconds=300.0))
    rows = worlds_long.read_lines(settings.out / "long.csv")
    assert [row["steps"] for row in rows] == [2 * 64 * (1 + chunk) for chunk in range(20)]
    assert (np.diff([row["seconds"] for row in rows]) >= 0).all()
    assert rows[-1]["most_bytes"] > 1e7
    assert rows[-1]["memory_size"] > 0
    assert worlds_long.main(settings)  # nothing is left to do


def test_the_table_of_a_long_run_by_hand(tmp_path: Path) -> None:
    """Steps that a later piece made again count once."""
    with (tmp_path / "long.csv").open("w") as file:
        writer = csv.writer(file)
        writer.writerow(worlds_long.COLUMNS)
        for steps, seconds in ((1e6, 60), (3e6, 180), (2e6, 200), (10e6, 600)):
            writer.writerow([steps, seconds, 2e9, 3e9, 8_192, 500])
    rows = worlds_long.read_lines(tmp_path / "long.csv")
    assert [row["steps"] for row in rows] == [1e6, 2e6, 10e6]
    table = worlds_long.render(rows, 10_000_000).splitlines()
    assert len(table) == 2 + 3
    assert table[-1] == "| 10 million | 10.0 | 20,000 | 2.00 | 3.00 | 8,192 | 500 |"


def test_tasks_are_trained_cell_by_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipes = {"host": {"workers": 0}, "worlds": {"envs_per_agent": 4}}
    monkeypatch.setattr(worlds_tasks, "RECIPES", recipes)
    settings = worlds_tasks.Settings(
        run=True,
        seconds=300.0,
        robots=("PointMaze-v0",),
        recipes=tuple(recipes),
        steps=256,
        seeds=2,
        physics="jax",
        env_options=MAZE,
        hidden_sizes=(8,),
        replay_size=1_000,
        out=tmp_path / "runs",
        data=tmp_path / "data.csv",
    )
    table = worlds_tasks.main(settings)
    cells = worlds_tasks.read_data(settings.data)
    assert set(cells) == {("PointMaze-v0", "host"), ("PointMaze-v0", "worlds")}
    for seeds in cells.values():
        assert sorted(seeds) == [0, 1]
        for rows in seeds.values():
            assert rows[-1, 0] == 256
            assert (np.diff(rows[:, 1]) >= 0).all()
    assert "| PointMaze-v0, 64 worlds |" in table
    worlds_tasks.draw(cells, tmp_path / "figure.png")


def test_returns_after_minutes_by_hand(tmp_path: Path) -> None:
    rows = np.array([[100, 1.0, -5.0], [200, 2.0, 10.0], [300, 3.5, 30.0]])
    assert worlds_tasks.at_minute(rows, 2.5) == 10.0
    assert np.isnan(worlds_tasks.at_minute(rows, 0.5))
    assert np.isnan(worlds_tasks.at_minute(rows, 60.0))  # the run was over
    cells = {("Ant-v5", "worlds"): {0: rows, 1: rows + np.array([0, 0, 2.0])}}
    table = worlds_tasks.render(cells, (2.0, 60.0)).splitlines()
    assert table[-1] == "| Ant-v5, 64 worlds | 11 ± 1 | – | 300 | 3.5 | 31 ± 1 |"


def test_every_recipe_is_one_that_the_command_takes() -> None:
    pytest.importorskip("mujoco_warp")
    for recipe in worlds_tasks.RECIPES:
        config = worlds_tasks.config_of(worlds_tasks.Settings(), "HalfCheetah-v5", recipe)
        config = resolved(config).config
        assert config.num_envs == {"host": 1, "worlds-large": 480}.get(recipe, 64)
    assert resolved(worlds_long.config_of(worlds_long.Settings())).config.memory == "spaced"


def test_tables_have_their_places_on_the_pages() -> None:
    for page, names in ((worlds_tasks.PAGE, ("tasks", "long")), (BENCHMARKS, ("million",))):
        for name in names:
            assert f"<!-- begin {name} -->" in page.read_text()
