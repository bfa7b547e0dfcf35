"""Figures as a person sees them: nothing lies under a legend, lines can be told apart, counts have
whole ticks, and every environment has its panel."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import LogNorm
from support.invented_runs import BOUNDS
from support.seen import (
    are_whole,
    legend_looks,
    legends_of,
    looks,
    pixels_covered,
    sticks_out,
    ticks_of,
)

from element_rl import plots
from element_rl.plots.offline import offline_curve
from element_rl.plots.on_policy import learning_curves
from element_rl.plots.style import COLOURS, run_labels
from element_rl.plots.transfer import transfer_curves
from element_rl.runs.folder import RunFolder
from element_rl.storage.files import write_arrays

LONG = "PointMaze_Large_Diverse_GR-v3"


def small_run(
    path: Path, reward: str = "element", seeds: int = 2, env: str = "Ant-v5", **columns: float
) -> RunFolder:
    """Straight lines from 0 to the given values, over 12,000 steps."""
    run = RunFolder.create(
        path, {"env": env, "reward": reward, **BOUNDS}, ("step", "seed", *columns)
    )
    for part in range(1, 5):
        for seed in range(seeds):
            values = {name: value * (part + 0.1 * seed) / 4 for name, value in columns.items()}
            run.append_metrics([{"step": 3000 * part, "seed": seed, **values}])
    return run


@pytest.mark.parametrize("number", [1, 3, 8, 20])
def test_up_to_twenty_runs_can_be_told_apart(tmp_path: Path, number: int) -> None:
    runs = [
        small_run(
            tmp_path / f"run{n}",
            coverage=100.0 * (n + 1),
            episodic_entropy=1 + 0.1 * n,
            episode_length=9.0 * n,
        )
        for n in range(number)
    ]
    runs[0].write_summary({"random_policy": {"coverage": [70 * number], "episodic_entropy": [1.0]}})
    for figure in (plots.coverage_curve(runs), plots.entropy_curve(runs)):
        assert len(set(looks(figure).values())) == number + 1  # and the random policy
        assert legend_looks(figure) == looks(figure)
        assert list(legend_looks(figure))[-1] == "random policy"
        assert pixels_covered(figure) == 0
        assert not sticks_out(figure)
        assert len(figure.axes[0].collections) == number  # the bands
        points = [line for strip in figure.axes[0].child_axes for line in strip.get_lines()]
        assert [len(line.get_xdata()) for line in points] == ([2] * number if number > 1 else [])


def test_every_environment_has_its_panel(tmp_path: Path) -> None:
    given = [
        ("Ant-v5", "rnd", 3),
        ("Ant-v5", "element", 2),
        (LONG, "element", 1),
        ("Hopper-v5", "rnd", 1),
    ]
    runs = [
        small_run(
            tmp_path / str(n),
            reward,
            seeds,
            env,
            coverage=10.0 * n,
            episodic_entropy=2.0,
            episode_length=n,
        )
        for n, (env, reward, seeds) in enumerate(given)
    ]
    for run, steps in ((runs[0], 500_000), (runs[2], 12_000)):
        run.write_summary(
            {"random_policy": {"coverage": [3.0], "episodic_entropy": [1.0], "steps": steps}}
        )
    reference = "random policy, 12k to 500k steps"
    figure = plots.coverage_curve(runs)
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "Ant-v5 · 2–3 seeds",
        LONG,
        "Hopper-v5",
    ]
    assert [list(looks(figure, panel)) for panel in range(3)] == [
        ["rnd", "element", reference],
        ["element", reference],
        ["rnd"],
    ]
    (legend,) = legends_of(figure)
    assert legend in figure.legends
    assert list(legend_looks(figure)) == ["rnd", "element", reference]
    for panel in range(3):
        for label, seen in looks(figure, panel).items():
            assert legend_looks(figure)[label] == seen
    assert pixels_covered(figure) == 0
    assert not sticks_out(figure)
    entropy = plots.entropy_curve(runs)
    above, below = entropy.axes[:3], entropy.axes[3:]
    assert [axes.get_title(loc="left") for axes in above] == [
        "Ant-v5 · 2–3 seeds",
        LONG,
        "Hopper-v5",
    ]
    assert {axes.get_ylabel() for axes in below} == {"episode length (steps)"}
    assert all(
        one.get_shared_x_axes().joined(one, other) for one, other in zip(above, below, strict=True)
    )
    assert not above[0].get_shared_x_axes().joined(above[0], above[1])


@pytest.mark.parametrize(("environments", "shape"), [(2, (1, 2)), (4, (2, 2)), (7, (3, 3))])
def test_panels_of_many_environments(
    tmp_path: Path, environments: int, shape: tuple[int, int]
) -> None:
    runs = [
        small_run(tmp_path / str(n), env=f"Env{n}-v0", coverage=9.0) for n in range(environments)
    ]
    figure = plots.coverage_curve(runs)
    assert len(figure.axes) == np.prod(shape)
    assert [axes.get_visible() for axes in figure.axes] == [
        n < environments for n in range(len(figure.axes))
    ]
    assert list(legend_looks(figure)) == ["element"]


def test_what_one_environment_did_not_log_is_said_there(tmp_path: Path) -> None:
    runs = [
        small_run(tmp_path / "ant", coverage=9.0),
        small_run(tmp_path / "pendulum", env="Pendulum-v1", other=1.0),
    ]
    ant, pendulum = plots.coverage_curve(runs).axes
    assert not ant.texts
    assert [text.get_text() for text in pendulum.texts] == ["not logged: element"]


def test_runs_of_one_reward_in_folders_of_one_name(tmp_path: Path) -> None:
    first = [
        small_run(tmp_path / name / "run", coverage=9.0, reward_episodic=1.0) for name in ("a", "b")
    ]
    hopper = small_run(tmp_path / "c" / "run", env="Hopper-v5", coverage=9.0)
    assert run_labels(first) == ["element (a/run)", "element (b/run)"]
    # given twice, drawn once
    assert list(looks(plots.coverage_curve([*first, first[0].path]))) == run_labels(first)
    assert list(legend_looks(plots.coverage_curve([*first, hopper]))) == [
        "element (a/run, run)",
        "element (b/run)",
    ]
    written = plots.plot_run(first, tmp_path / "figures", say=lambda text: None)
    assert [path.stem for path in written if "terms" in path.stem][::2] == [
        "reward_terms_element_a_run",
        "reward_terms_element_b_run",
    ]


@pytest.mark.parametrize("most", [0.4, 2.0, 5.0])
def test_counts_have_whole_ticks(tmp_path: Path, most: float) -> None:
    columns = dict.fromkeys(("coverage", "episode_length", "memory_size"), most)
    run = small_run(tmp_path / "run", seeds=1, episodic_entropy=1.0, reward_episodic=1.0, **columns)
    (coverage,), (_, length) = plots.coverage_curve([run]).axes, plots.entropy_curve([run]).axes
    (_, memory) = plots.reward_terms(run).axes
    for axes in (coverage, length, memory):
        assert are_whole(ticks_of(axes.yaxis))
        assert are_whole(ticks_of(axes.xaxis))
        assert axes.get_ylim()[1] >= most
    memory.get_figure().draw_without_rendering()
    # no 800m remembered states
    assert not any("m" in text.get_text() for text in memory.get_yticklabels())


def test_a_few_steps_are_whole_too(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", {"env": "Ant-v5", "reward": "element"})
    run.append_metrics([{"step": step, "seed": 0, "coverage": 1} for step in (1, 2)])
    assert are_whole(ticks_of(plots.coverage_curve([run]).axes[0].xaxis))


def test_a_line_that_hardly_varies_does_not_lie_on_the_edge(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", {"env": "Rooms-v0", "reward": "element"})
    run.append_metrics(
        [{"step": step, "seed": 0, "policy_entropy": 1.6094 - 1e-5 * step} for step in (1, 2)]
    )
    (axes,) = learning_curves(run).axes
    assert axes.get_ylim()[0] == 0.0
    assert axes.get_ylim()[1] > 1.02 * 1.6094


@pytest.mark.parametrize("env", ["Ant-v5", LONG * 3])
def test_titles_and_notes_have_their_own_place(tmp_path: Path, env: str) -> None:
    figure = plots.coverage_curve([small_run(tmp_path / "run", env=env, coverage=9.0)])
    assert "".join(figure.axes[0].get_title(loc="left").split()) == f"{env}·2seeds"
    assert figure.axes[0].get_title(loc="right") == ""
    assert figure.get_supxlabel() == "Line: mean over seeds. Band: lowest to highest seed."
    assert (
        plots.coverage_curve([small_run(tmp_path / "one", seeds=1, coverage=9.0)]).get_supxlabel()
        == ""
    )
    assert not sticks_out(figure)


@pytest.mark.parametrize("beside", [True, False])
@pytest.mark.parametrize("env", ["Ant-v5", "MountainCarContinuous-v0", LONG * 3])
def test_titles_of_maps_have_their_own_place(tmp_path: Path, env: str, beside: bool) -> None:
    run = RunFolder.create(tmp_path / "run", {"env": env, "reward": "element", **BOUNDS})
    visits = np.ones((2, 100, 100), np.int32)
    run.save_checkpoint(15_000, {}, visits, {}, {})
    if beside:
        run.write_random_visits(visits[:1])
    paths = {"step_000015000/positions": np.zeros((6, 9, 2), np.float32)}
    write_arrays(run.evaluation_path / "trajectories.safetensors", paths)
    assert not sticks_out(plots.trajectories(run))
    figure = plots.density_map(run)
    assert not sticks_out(figure)
    ours, *theirs = (
        axes._left_title.get_window_extent()
        for axes in figure.axes
        if "seed " not in axes.get_title(loc="left") and axes.get_title(loc="left")
    )
    assert len(theirs) == beside
    assert not any(ours.overlaps(other) for other in theirs)


def test_a_map_of_equal_shares_has_a_scale(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", {"env": "Ant-v5", "reward": "element", **BOUNDS})
    visits = np.zeros((1, 100, 100), np.int32)
    visits[0, 50:52, 50] = 7
    run.save_checkpoint(5, {}, visits, {}, {})
    norm = plots.density_map(run).axes[0].get_images()[0].norm
    assert isinstance(norm, LogNorm)
    assert (norm.vmin, norm.vmax) == pytest.approx((0.05, 0.5))


@pytest.mark.parametrize("seeds", [1, 3])
def test_where_the_start_is_said_covers_nothing_of_full_maps(tmp_path: Path, seeds: int) -> None:
    run = RunFolder.create(tmp_path / "run", {"env": "Ant-v5", "reward": "element", **BOUNDS})
    run.save_checkpoint(5, {}, np.ones((seeds, 100, 100), np.int32), {}, {})
    around = [
        [np.linspace(-24, 24, 400), 24 * np.sin(np.linspace(0, 90, 400) + turn)]
        for turn in range(6)
    ]
    paths = {"step_000000005/positions": np.moveaxis(np.array(around, np.float32), 1, 2)}
    write_arrays(run.evaluation_path / "trajectories.safetensors", paths)
    for figure in (plots.density_map(run), plots.trajectories(run)):
        assert [text.get_text() for text in legends_of(figure)[0].get_texts()] == ["start"]
        assert pixels_covered(figure) == 0


@pytest.mark.parametrize("seeds", [1, 3])
def test_learning_curves_have_one_colour_and_units(tmp_path: Path, seeds: int) -> None:
    columns = {
        "extrinsic_return": 3.0,
        "furthest": 3000.0,
        "reward_mean": 0.3,
        "policy_entropy": 1.9,
    }
    run = small_run(tmp_path / "run", seeds=seeds, env="SuperMarioBros-1-1-v0", **columns)
    run.config["coverage_unit"] = "pixels"
    run.write_summary({"random_policy": {"furthest": [1434.0], "steps": 500_000}})
    figure = learning_curves(run)
    lines = [axes.get_lines()[0] for axes in figure.axes]
    assert {line.get_color() for line in lines} == {COLOURS[0]}
    assert {line.get_label() for line in lines} == {"element"}
    assert list(legend_looks(figure)) == [
        "element",
        "random policy, 500k steps",
    ]  # which the second panel has
    assert [axes.get_ylabel().replace("\n", " ") for axes in figure.axes] == [
        "return per episode",
        "furthest x (pixels)",
        "mean reward per step",
        "policy entropy (nats)",
    ]
    assert pixels_covered(figure) == 0


@pytest.mark.parametrize("seeds", [1, 5])
@pytest.mark.parametrize("zero_shot", [0.1, 0.95])
def test_transfer_curves(tmp_path: Path, seeds: int, zero_shot: float) -> None:
    """The mark of the zero-shot return is beside the axis, where a legend likes to stand."""
    runs = {
        name: small_run(tmp_path / name, "extrinsic", seeds, env=LONG, extrinsic_return=value)
        for name, value in (("transferred", 3000.0), ("scratch", 2000.0))
    }
    figure = transfer_curves(runs, [3000 * zero_shot + 10 * seed for seed in range(seeds)])
    assert pixels_covered(figure) == 0
    assert not sticks_out(figure)
    assert ("lowest to highest seed" in figure.get_supxlabel()) == (seeds > 1)


@pytest.mark.parametrize(("datasets", "seeds"), [(1, 1), (1, 2), (3, 2), (9, 1)])
def test_the_legend_of_an_offline_run_has_the_colours_of_its_lines(
    tmp_path: Path, datasets: int, seeds: int
) -> None:
    names = [f"hopper/data{n}-v0" for n in range(datasets)]
    config = {"env": "Hopper-v5", "reward": "cql", "settings": {"datasets": names}}
    run = RunFolder.create(
        tmp_path / "run", config, ("step", "seed", "dataset", "extrinsic_return")
    )
    run.append_metrics(
        [
            {
                "step": step,
                "seed": n * seeds + seed,
                "dataset": n,
                "extrinsic_return": 0.02 * step * (n + 1) + 9 * seed,
            }
            for step in (20_000, 40_000, 60_000)
            for n in range(datasets)
            for seed in range(seeds)
        ]
    )
    agents = [name for name in names for _ in range(seeds)]
    run.write_summary(
        {"datasets": agents, "behaviour_return": [600.0 + 99 * n for n in range(len(agents))]}
    )
    figure = offline_curve(run)
    assert legend_looks(figure) == looks(figure)
    assert len(looks(figure)) == 2 * datasets
    learned, in_data = (
        list(legend_looks(figure).values())[:datasets],
        list(legend_looks(figure).values())[datasets:],
    )
    assert [colour for colour, _ in learned] == [colour for colour, _ in in_data]
    assert len(set(learned)) == datasets
    assert pixels_covered(figure) == 0
    assert not sticks_out(figure)
