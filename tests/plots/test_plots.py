"""Figures: they show what the run folder holds, and cope with what it does not hold."""

import re
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from support.invented_runs import BOUNDS, STEPS, add_evaluation, make_run

from element_rl import plots
from element_rl.plots.planes import coverage_start
from element_rl.runs.folder import RunError, RunFolder
from element_rl.storage.files import write_arrays
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.off_policy.launch import create_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    run = make_run(tmp_path_factory.mktemp("plots") / "element")
    reference = {"coverage": [310, None, 350], "episodic_entropy": [3.1, 3.3], "steps": 500_000}
    run.write_summary({"random_policy": reference})
    add_evaluation(run)
    return run


def drawn(figure: Figure, panel: int = 0) -> dict[str, np.ndarray]:
    """Lines of a panel by their label, as [points, 2]."""
    return {
        str(line.get_label()): np.asarray(line.get_xydata())
        for line in figure.axes[panel].get_lines()
    }


def test_coverage_curve_shows_the_mean_the_range_and_the_random_policy(run: RunFolder) -> None:
    figure = plots.coverage_curve([run])
    (axes,) = figure.axes
    metrics = run.read_metrics()
    by_seed = metrics["coverage"].reshape(len(STEPS), 3)
    np.testing.assert_array_equal(
        drawn(figure)["element"], np.stack([STEPS, by_seed.mean(axis=1)], axis=1)
    )
    band = axes.collections[0].get_paths()[0].vertices
    at_the_end = band[band[:, 0] == STEPS[-1], 1]
    assert (at_the_end.min(), at_the_end.max()) == (by_seed[-1].min(), by_seed[-1].max())
    assert drawn(figure)["random policy, 500k steps"][0, 1] == 330
    assert axes.get_xlabel() == "environment steps per seed"
    assert axes.get_ylabel() == "unique cells visited"
    assert axes.get_title(loc="left") == "Ant-v5 · 3 seeds"
    assert axes.get_ylim()[0] == 0


def test_several_runs_are_told_apart(run: RunFolder, tmp_path: Path) -> None:
    rnd, again = make_run(tmp_path / "rnd", "rnd", seeds=1), make_run(tmp_path / "again", seeds=1)
    silent = make_run(tmp_path / "silent", "ngu", seeds=1, rows=False)
    figure = plots.coverage_curve([run, rnd.path, str(again.path), silent])
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels[:4] == ["element (element)", "rnd", "element (again)", "ngu (not logged)"]
    assert len({line.get_color() for line in figure.axes[0].get_lines()}) == 5
    assert figure.axes[0].get_title(loc="left") == "Ant-v5 · 1–3 seeds"


def test_entropy_curve_leaves_out_what_is_not_a_number(run: RunFolder) -> None:
    figure = plots.entropy_curve([run])
    above, below = figure.axes
    assert (above.get_ylabel(), below.get_ylabel()) == (
        "episodic entropy (bits)",
        "episode length (steps)",
    )
    metrics = run.read_metrics()
    for panel, column in enumerate(("episodic_entropy", "episode_length")):
        line = drawn(figure, panel)["element"]
        np.testing.assert_array_equal(line[:, 0], STEPS[2:])
        np.testing.assert_allclose(line[:, 1], metrics[column].reshape(-1, 3)[2:].mean(axis=1))
    assert drawn(figure)["random policy, 500k steps"][0, 1] == pytest.approx(3.2)


def test_a_seed_without_a_value_does_not_count(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", {"env": "Ant-v5", "reward": "element"})
    run.append_metrics(
        [{"step": 10, "seed": 0, "coverage": 4}, {"step": 10, "seed": 1, "coverage": 6}]
    )
    run.append_metrics(
        [{"step": 20, "seed": 0, "coverage": None}, {"step": 20, "seed": 1, "coverage": 8}]
    )
    run.append_metrics([{"step": 30, "seed": 0, "coverage": np.inf}, {"step": 30, "seed": 1}])
    np.testing.assert_array_equal(drawn(plots.coverage_curve([run]))["element"], [[10, 5], [20, 8]])


def test_figures_follow_a_run_that_goes_on(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", {"env": "Ant-v5", "reward": "element"})
    run.append_metrics([{"step": 10, "seed": 0, "coverage": 4}])
    assert len(drawn(plots.coverage_curve([run]))["element"]) == 1
    run.append_metrics([{"step": 20, "seed": 0, "coverage": 5}])
    assert len(drawn(plots.coverage_curve([run]))["element"]) == 2


def test_reward_terms(run: RunFolder) -> None:
    figure = plots.reward_terms(run)
    assert list(drawn(figure)) == ["episodic", "lifelong"]
    assert [axes.get_ylabel() for axes in figure.axes] == ["mean reward", "remembered states"]
    assert drawn(figure, 1)["lifelong memory"][-1].tolist() == [500_000, 50_000]
    assert drawn(figure)["lifelong"][0, 0] == 100_000


def test_reward_terms_of_other_rewards(tmp_path: Path) -> None:
    columns = ("step", "seed", "reward_episodic", "predictor_loss")
    run = RunFolder.create(
        tmp_path / "run", {"env": "Ant-v5", "reward": "rnd"}, metric_columns=columns
    )
    run.append_metrics([{"step": 1, "seed": 0, "predictor_loss": 3}])
    with pytest.raises(RunError, match=r"no reward_episodic and no reward_lifelong"):
        plots.reward_terms(run)
    run.append_metrics(
        [
            {"step": 2, "seed": 0, "reward_episodic": -1.0},
            {"step": 3, "seed": 0, "reward_episodic": 1},
        ]
    )
    figure = plots.reward_terms(run)
    assert list(drawn(figure)) == ["episodic"]
    assert len(figure.axes) == 1
    assert figure.axes[0].get_ylim()[0] < -1


def test_density_map_puts_cells_where_they_belong(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", {"env": "Ant-v5", "reward": "element", **BOUNDS})
    visits = np.zeros((2, 100, 100), np.int32)
    visits[0, 70, 45] = 3  # x from 10.0 to 10.5 m, y from -2.5 to -2.0 m
    visits[1, 50, 50] = 1
    run.save_checkpoint(1_250_000, {}, visits, {}, {})
    figure = plots.density_map(run)
    axes = next(axes for axes in figure.axes if axes.get_xlabel() == "x (m)")
    image = axes.get_images()[0]
    shares = np.asarray(image.get_array().filled(np.nan))
    assert (shares[45, 70], shares[50, 50]) == (0.75, 0.25)
    assert np.isfinite(shares).sum() == 2
    assert image.get_extent() == [-25, 25, -25, 25]
    assert axes.get_ylabel() == "y (m)"
    assert axes.get_aspect() == 1
    low, high = axes.get_xlim()
    assert -2 < low < 0 < 10.5 < high < 12
    assert np.diff(axes.get_ylim()) == pytest.approx(high - low)
    assert axes.get_lines()[0].get_xydata().tolist() == [[0, 0]]
    assert axes.get_title(loc="left").strip() == "Ant-v5 · element · 1.25M steps per seed"
    assert (
        axes.texts[0].get_text()
        == "the visited part of 100×100 cells, x from −25 to 25 m, y from −25 to 25 m"
    )
    assert [
        panel.get_xlabel()
        for panel in figure.axes
        if panel.get_title(loc="left").startswith("seed")
    ] == ["1 cell"] * 2


def test_density_map_of_a_plane_with_height(tmp_path: Path) -> None:
    grid = {
        "coverage_bounds": [[-5, 45], [0, 2]],
        "coverage_axes": ["x", "z"],
        "coverage_start": [0, 1.25],
    }
    run = RunFolder.create(tmp_path / "run", {"env": "Hopper-v5", "reward": "element", **grid})
    run.save_checkpoint(5, {}, np.ones((1, 100, 100), np.int32), {}, {})
    figure = plots.density_map(run)
    axes = figure.axes[0]
    assert axes.get_aspect() == "auto"
    assert axes.get_xlim() == (-5, 45)
    assert axes.texts[0].get_text().startswith("all of 100×100 cells")
    assert axes.get_lines()[0].get_xydata().tolist() == [[0, 1.25]]


def test_the_start_is_where_the_run_says_it_is(tmp_path: Path) -> None:
    maze = create_run(ExploreConfig("PointMaze", reward="random"), tmp_path / "maze")
    assert coverage_start(maze.config) == [0.75, 0.75]
    older = {name: value for name, value in maze.config.items() if name != "coverage_start"}
    assert coverage_start(older) is None  # not (0, 0), which lies in a wall
    assert coverage_start({"env": "Ant-v5", **BOUNDS}) == [0, 0]


def test_density_map_at_a_step_and_of_many_seeds(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", seeds=7)
    early, late = plots.density_map(run, 250_000), plots.density_map(run)
    seeds = [
        axes.get_title(loc="left")
        for axes in late.axes
        if axes.get_title(loc="left").startswith("seed")
    ]
    assert seeds == [f"seed {seed}" for seed in range(5)]
    assert [text.get_text() for text in late.texts] == ["and 2\nmore seeds"]
    cells = [
        np.isfinite(figure.axes[0].get_images()[0].get_array().filled(np.nan)).sum()
        for figure in (early, late)
    ]
    assert cells[0] < cells[1] == (run.load_visits().sum(axis=0) > 0).sum()
    with pytest.raises(RunError, match=r"no checkpoint of step 3"):
        plots.density_map(run, 3)


def test_maps_of_seeds_have_their_numbers_and_sharp_cells(tmp_path: Path) -> None:
    figure = plots.density_map(make_run(tmp_path / "run", seeds=2, settings={"seed": 40}))
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert [title for title in titles if title.startswith("seed")] == ["seed 40", "seed 41"]
    images = [image for axes in figure.axes for image in axes.get_images()]
    assert {image.get_interpolation() for image in images} == {"nearest"}


def test_trajectories(run: RunFolder) -> None:
    figure = plots.trajectories(run)
    axes, bar = figure.axes
    episodes = [
        collection for collection in axes.collections if isinstance(collection, LineCollection)
    ]
    assert [len(collection.get_segments()) for collection in episodes] == [6] * 5
    assert [len(segment) for segment in episodes[0].get_segments()] == [
        200,
        300,
        300,
        300,
        300,
        300,
    ]
    assert len({tuple(collection.get_colors()[0]) for collection in episodes}) == 5
    assert [text.get_text() for text in bar.get_yticklabels()] == [
        "100k",
        "200k",
        "300k",
        "400k",
        "500k",
    ]
    furthest = max(
        np.abs(segment).max() for collection in episodes for segment in collection.get_segments()
    )
    assert max(*axes.get_xlim(), *axes.get_ylim()) >= furthest
    assert (axes.get_xlabel(), axes.get_ylabel(), bar.get_ylabel()) == (
        "x (m)",
        "y (m)",
        "policy after this many steps",
    )


@pytest.mark.parametrize(
    ("checkpoints", "labels"), [(1, 1), (9, 9), (11, 6), (13, 7), (24, 8), (25, 9)]
)
def test_the_colour_scale_of_checkpoints_is_even(
    tmp_path: Path, checkpoints: int, labels: int
) -> None:
    """A field for each, all of the same height; labels in the middle of fields, as far from each
    other, the last one there."""
    run = RunFolder.create(tmp_path / "run", {"env": "Ant-v5", "reward": "element", **BOUNDS})
    add_evaluation(run, checkpoints)
    bar = plots.trajectories(run).axes[1]
    written, places = [text.get_text() for text in bar.get_yticklabels()], bar.get_yticks()
    assert len(written) == labels
    assert len(set(np.diff(places))) <= 1
    assert set(places) <= set(range(checkpoints))  # field n is from n - 1/2 to n + 1/2
    assert places[-1] == checkpoints - 1
    assert bar.get_ylim() == (-0.5, checkpoints - 0.5)
    assert written[-1] == ("500k" if checkpoints > 1 else "100k")


def test_trajectories_without_positions(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", {"env": "Ant-v5", "reward": "element", **BOUNDS})
    arrays = {
        "step_000000001/positions": np.full((2, 9, 2), np.nan),
        "step_000000001/returns": np.zeros(2),
    }
    write_arrays(run.evaluation_path / "trajectories.safetensors", arrays)
    with pytest.raises(RunError, match=r"holds no positions"):
        plots.trajectories(run)


def test_plot_run_writes_all_figures_and_leaves_no_trace(run: RunFolder, tmp_path: Path) -> None:
    settings = dict(matplotlib.rcParams)
    said: list[str] = []
    paths = plots.plot_run([run.path], say=said.append)
    assert said == []
    names = ["coverage", "entropy", "reward_terms", "density_map", "trajectories"]
    assert [path.name for path in paths] == [
        f"{name}.{kind}" for name in names for kind in ("png", "svg")
    ]
    assert {path.parent for path in paths} == {run.path / "figures"}
    assert sorted((run.path / "figures").iterdir()) == sorted(paths)
    for path in paths:
        content = path.read_bytes()
        assert len(content) > 10_000
        assert content.startswith(b"\x89PNG" if path.suffix == ".png" else b"<?xml")
    first = {path.name: path.read_bytes() for path in paths}
    again = plots.plot_run([run], tmp_path / "elsewhere", say=said.append)
    assert {path.name: path.read_bytes() for path in again} == first
    assert dict(matplotlib.rcParams) == settings


def test_plot_run_says_what_it_skipped(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", {"env": "Pendulum-v1", "reward": "element"})
    said: list[str] = []
    assert plots.plot_run([run], say=said.append) == []
    assert [re.split(r"[ :]", line)[1] for line in said] == [
        "coverage",
        "entropy",
        "reward_terms",
        "density_map",
        "trajectories",
    ]
    assert "element evaluate" in said[-1]
    run.append_metrics([{"step": 1, "seed": 0, "episodic_entropy": 1.0}])  # no episode length yet
    run.append_metrics([{"step": 2, "seed": 0, "episodic_entropy": 2.0, "episode_length": 9}])
    assert [path.name for path in plots.plot_run([run], say=said.append)] == [
        "entropy.png",
        "entropy.svg",
    ]
    with pytest.raises(RunError, match=r"nothing to plot"):
        plots.plot_run([])


def test_plot_run_of_several_runs_names_their_figures(run: RunFolder, tmp_path: Path) -> None:
    other = make_run(tmp_path / "other run", seeds=1)
    said: list[str] = []
    paths = plots.plot_run([run, other], tmp_path / "figures", say=said.append)
    pictures = [path.stem for path in paths if path.suffix == ".png"]
    assert pictures == [
        "coverage",
        "entropy",
        "reward_terms_element_element",
        "density_map_element_element",
        "trajectories_element_element",
        "reward_terms_element_other_run",
        "density_map_element_other_run",
    ]
    assert len(said) == 1
    assert said[0].startswith("Skipped trajectories_element_other_run: ")
