"""Figures of a study: every part is drawn, in the same colours, into the same files."""

import dataclasses

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.colors import LogNorm, to_hex
from support.seen import (
    are_whole,
    legend_looks,
    legends_of,
    looks,
    pixels_covered,
    sticks_out,
    ticks_of,
)

from element_rl.plots.style import COLOURS, QUIET
from element_rl.studies.engine.results import (
    Curves,
    Frame,
    Map,
    PathGroup,
    Paths,
    PointGroup,
    Results,
    Scatter,
    Series,
)
from element_rl.studies.report.figures import (
    MOST_FRAMES,
    draw_curves,
    draw_maps,
    draw_paths,
    draw_results,
    draw_scatter,
    series_styles,
)

METHODS = ("rnd", "element", "ngu", "re3", "rise", "random")
SEEDS = 5
NOTE = "Line: interquartile mean of 5 seeds. Band: 95 % bootstrap interval."


def make_curves(
    env: str, seed: int, y_label: str = "unique cells", name: str = "coverage"
) -> Curves:
    random = np.random.default_rng(seed)
    steps = np.linspace(10_000, 1e6, 60)
    series = []
    for rank, method in enumerate(METHODS):
        middle = (400 + 300 * rank) * (1 - np.exp(-steps / 4e5)) + random.normal(scale=8, size=60)
        values = [
            None if step < 40_000 else float(value)
            for step, value in zip(steps, middle, strict=True)
        ]
        low = [None if value is None else value * 0.92 for value in values]
        high = [None if value is None else value * 1.07 for value in values]
        ends = tuple((middle[-1] * np.linspace(0.92, 1.07, SEEDS)).tolist())
        band = (tuple(low), tuple(high))
        series.append(Series(method, tuple(steps), tuple(values), *band, ends))
    return Curves(
        f"{name}_{env}",
        f"{env} · 5 seeds",
        "environment steps per seed",
        y_label,
        tuple(series),
        NOTE,
    )


def make_map(name: str, group: str = "", frames: int = 3, walls: bool = False) -> Map:
    random = np.random.default_rng(len(name))
    pictures = []
    for moment in range(1, frames + 1):
        points = random.normal(scale=2.5 * moment, size=(4000 * moment, 2))
        if walls:
            points = random.uniform(0, 20, size=(100 * moment, 2)) * 0.5 * min(moment, 2)
        bounds = ((0.0, 20.0), (0.0, 20.0)) if walls else ((-25.0, 25.0), (-25.0, 25.0))
        bins = 20 if walls else 100
        pictures.append(
            Frame.of(
                f"{moment * 100}k steps", np.histogram2d(*points.T, bins=bins, range=bounds)[0]
            )
        )
    return Map(
        name,
        f"Ant-v5 · {name}",
        "x (m)",
        "y (m)",
        bounds,
        (bins, bins),
        "visits per cell",
        tuple(pictures),
        logarithmic=not walls,
        start=(1.5, 1.5) if walls else (0.0, 0.0),
        walls=tuple(range(40, 55)) if walls else (),
        group=group,
    )


def make_paths() -> Paths:
    random = np.random.default_rng(0)
    groups = []
    for moment in range(1, 13):
        turns = random.normal(scale=0.05, size=(6, 300)).cumsum(axis=1) + random.uniform(
            0, 6.3, size=(6, 1)
        )
        walks = (np.stack([np.cos(turns), np.sin(turns)], axis=-1) * 0.005 * moment).cumsum(axis=1)
        groups.append(
            PathGroup(
                f"{moment}00k steps", tuple(tuple(map(tuple, walk.tolist())) for walk in walks)
            )
        )
    return Paths("paths", "Ant-v5 · element", "x (m)", "y (m)", tuple(groups), start=(0.0, 0.0))


def make_scatter() -> Scatter:
    random = np.random.default_rng(1)
    true = random.uniform(1, 7, size=600)
    predicted = true + random.normal(scale=0.3, size=600)
    groups = (
        PointGroup("training", tuple(true[:450]), tuple(predicted[:450])),
        PointGroup("held out", tuple(true[450:]), tuple(predicted[450:])),
    )
    return Scatter(
        "scatter",
        "Additivity",
        "entropy (bits)",
        "predicted (bits)",
        groups,
        True,
        "R² 0.97 on held-out.",
    )


@pytest.fixture(scope="module")
def results() -> Results:
    return Results(
        study="coverage",
        title="Coverage",
        question="?",
        scale="small",
        command="element study coverage",
        cells=(),
        curves=(
            make_curves("Ant-v5", 0),
            make_curves("Hopper-v5", 1),
            make_curves("Ant-v5", 9, "entropy (bits)", "entropy"),
        ),
        maps=(
            make_map("element", "density/Ant", frames=8),
            make_map("rnd", "density/Ant", frames=3),
            make_map("maze", walls=True),
        ),
        paths=(make_paths(),),
        scatters=(make_scatter(),),
    )


def test_everything_is_drawn_and_the_same_results_give_the_same_files(
    results: Results, tmp_path
) -> None:
    written = draw_results(results, tmp_path / "a")
    stems = [path.stem for path in written[::2]]
    assert stems[:4] == ["coverage_Ant-v5", "coverage_Hopper-v5", "entropy_Ant-v5", "coverage_all"]
    assert stems[4:] == ["density_Ant", "maze", "paths", "scatter"]
    assert {path.suffix for path in written} == {".png", ".svg"}
    again = dataclasses.replace(results, curves=results.curves[:1], maps=results.maps[2:])
    for path in draw_results(again, tmp_path / "b"):
        assert path.read_bytes() == (tmp_path / "a" / path.name).read_bytes(), path.name


def test_a_method_keeps_its_colour(results: Results) -> None:
    styles = series_styles(results)
    assert styles["element"]["color"] == COLOURS[0]
    assert styles["random"]["color"] == QUIET
    assert len({style["color"] for style in styles.values()}) == len(styles)
    many = tuple(Series(f"m{rank}", (0.0, 1.0), (0.0, 1.0)) for rank in range(10))
    crowded = Results("s", "S", "?", "smoke", "c", (), curves=(Curves("c", "C", "x", "y", many),))
    drawn = [tuple(map(str, style.values())) for style in series_styles(crowded).values()]
    assert len(set(drawn)) == len(drawn)


def test_curves_show_line_and_band_and_gaps(results: Results) -> None:
    curves = results.curves[0]
    figure = draw_curves([curves], series_styles(results))
    (axes,) = figure.axes
    lines = {str(line.get_label()): line for line in axes.get_lines()}
    assert set(lines) == set(METHODS)
    assert lines["element"].get_color() == COLOURS[0]
    values = np.array([np.nan if value is None else value for value in curves.series[1].middle])
    np.testing.assert_array_equal(np.asarray(lines["element"].get_ydata(), float), values)
    assert len(axes.collections) == len(METHODS)


def test_every_seed_is_a_point_beside_the_lines(results: Results) -> None:
    """A column for each method, in its colour, at the height of its seeds."""
    curves = results.curves[0]
    (axes,) = draw_curves([curves], series_styles(results)).axes
    (strip,) = axes.child_axes
    ends = {series.label: series.ends for series in curves.series}
    names = sorted(METHODS, key=lambda name: (name == "random", name != "element"))
    for column, (name, points) in enumerate(zip(names, strip.get_lines(), strict=True)):
        assert points.get_color() == series_styles(results)[name]["color"]
        np.testing.assert_array_equal(points.get_xdata(), [column] * SEEDS)
        np.testing.assert_array_equal(points.get_ydata(), ends[name])
    assert strip.get_ylim() == axes.get_ylim()
    alone = dataclasses.replace(curves, series=curves.series[:1])
    (axes,) = draw_curves([alone], series_styles(results)).axes
    assert not axes.child_axes  # nothing is compared


def test_panels_have_one_legend(results: Results) -> None:
    figure = draw_curves((*results.curves, *results.curves[:2]), series_styles(results))
    titles = [axes.get_title(loc="left") for axes in figure.axes if axes.get_visible()]
    assert titles == ["Ant-v5 · 5 seeds", "Hopper-v5 · 5 seeds", "Ant-v5 · 5 seeds", *titles[:2]]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "element",
        "rnd",
        "ngu",
        "re3",
        "rise",
        "random",
    ]
    assert all(axes.get_legend() is None for axes in figure.axes)


@pytest.mark.parametrize("lines", [5, 21])
def test_a_legend_covers_nothing(lines: int) -> None:
    """Lines that cross the whole panel, as the depth reached in the maze does."""
    x = tuple(float(n) for n in range(1, 61))
    waves = [np.sin(np.array(x) * (0.3 + 0.05 * n)) for n in range(lines)]
    series = [
        Series(f"m{n}", x, tuple(w), tuple(w - 0.1), tuple(w + 0.1)) for n, w in enumerate(waves)
    ]
    curves = Curves("depth", "Depth reached", "episode", "steps", tuple(series), NOTE)
    figure = draw_curves(
        [curves], series_styles(Results("s", "S", "?", "smoke", "c", (), curves=(curves,)))
    )
    assert len(legends_of(figure)) == 1
    assert legend_looks(figure) == looks(figure)
    assert len(set(looks(figure).values())) == lines
    assert pixels_covered(figure) == 0
    assert not sticks_out(figure)


@pytest.mark.parametrize("values", [(0.0, 0.5, 0.9), (1.0, 2.0, 2.5), (600.2, 600.4, 600.7)])
def test_counts_have_whole_ticks(values: tuple[float, ...]) -> None:
    series = Series("element", (1.0, 2.0, 3.0), values)
    curves = Curves("c", "C", "epochs", "unique cells", (series,), counts=True)
    (axes,) = draw_curves([curves], {"element": {"color": COLOURS[0]}}).axes
    assert are_whole(ticks_of(axes.xaxis))
    assert are_whole(ticks_of(axes.yaxis))
    assert axes.get_ylim()[0] <= min(values) < max(values) <= axes.get_ylim()[1]
    (free,) = draw_curves(
        [dataclasses.replace(curves, counts=False)], {"element": {"color": COLOURS[0]}}
    ).axes
    assert not are_whole(ticks_of(free.yaxis))


def test_maps_share_their_scale(results: Results) -> None:
    figure = draw_maps(results.maps[:2])
    images = [image for axes in figure.axes for image in axes.get_images()]
    assert len(images) == MOST_FRAMES + 3  # of the eight frames of the first map some are shown
    assert len({id(image.norm) for image in images}) == 1
    assert isinstance(images[0].norm, LogNorm)
    assert images[0].norm.vmax == max(
        max(frame.value) for entry in results.maps[:2] for frame in entry.frames
    )
    titles = [axes.get_title(loc="left") for axes in figure.axes if axes.get_images()]
    assert titles[0] == "100k steps"
    assert titles[MOST_FRAMES - 1] == "800k steps"


def test_a_map_is_the_right_way_up(results: Results) -> None:
    grid = np.zeros((4, 3))
    grid[3, 0] = 5.0  # the right-most column, the lowest row
    entry = Map(
        "m",
        "M",
        "x",
        "y",
        ((0.0, 4.0), (0.0, 3.0)),
        (4, 3),
        "v",
        (Frame.of("now", grid),),
        walls=(0,),
    )
    axes = draw_maps([entry]).axes[0]
    picture, walls = axes.get_images()
    assert picture.origin == "lower"
    np.testing.assert_array_equal(np.asarray(picture.get_array().filled(0.0)), grid.T)
    assert walls.get_array().filled(0.0)[0, 0] == 1.0
    assert axes.get_xlim() == (0.0, 4.0)


def test_paths_go_from_dark_to_light(results: Results) -> None:
    figure = draw_paths(results.paths[0])
    groups = [entry for entry in figure.axes[0].collections if isinstance(entry, LineCollection)]
    assert [len(group.get_segments()) for group in groups] == [6] * 12
    colours = [to_hex(group.get_color()[0]) for group in groups]
    assert colours[0] == "#440154"
    brightness = [sum(group.get_color()[0][:3]) for group in groups]
    assert brightness[-1] > brightness[0]
    written = [text.get_text() for text in figure.axes[1].get_yticklabels()]
    assert written == [
        "200k steps",
        "400k steps",
        "600k steps",
        "800k steps",
        "1000k steps",
        "1200k steps",
    ]


def test_paths_of_equal_labels_are_all_drawn() -> None:
    """Checkpoints at 100,000 and 100,400 steps are both written as 100k."""
    ways = (((0.0, 0.0), (1.0, 1.0)),)
    twice = (PathGroup("100k steps", ways), PathGroup("100k steps", ways))
    figure = draw_paths(Paths("p", "P", "x", "y", twice))
    lines = [entry for entry in figure.axes[0].collections if isinstance(entry, LineCollection)]
    assert len(lines) == 2


def test_scatter_has_a_diagonal(results: Results) -> None:
    scatter = results.scatters[0]
    axes = draw_scatter(scatter, series_styles(results)).axes[0]
    training, held_out, diagonal = axes.get_lines()
    assert (len(training.get_xdata()), len(held_out.get_xdata())) == (450, 150)
    assert diagonal.get_slope() == 1


def test_results_with_little_in_them_are_drawn(tmp_path) -> None:
    """No value, one value, an empty frame, no paths: nothing to see, and no error."""
    empty = Results(
        "s",
        "S",
        "?",
        "smoke",
        "c",
        (),
        curves=(
            Curves("none", "None", "x", "y", ()),
            Curves(
                "one",
                "One",
                "x",
                "y",
                (Series("m", (0.0, 5.0), (None, 2.0), (None, 1.0), (None, 3.0)),),
            ),
            Curves("missing", "Missing", "x", "y", (Series("m", (0.0, 5.0), (None, None)),)),
        ),
        maps=(
            Map(
                "blank",
                "Blank",
                "x",
                "y",
                ((0.0, 1.0), (0.0, 1.0)),
                (2, 2),
                "v",
                (Frame("now", (), ()),),
            ),
            Map("blank", "No frames", "x", "y", ((0.0, 1.0), (0.0, 1.0)), (2, 2), "v", ()),
        ),
        paths=(Paths("p", "P", "x", "y", ()), Paths("q", "Q", "x", "y", (PathGroup("g", ()),))),
        scatters=(Scatter("none", "N", "x", "y", (PointGroup("g", (), ()),), diagonal=True),),
    )
    stems = [path.stem for path in draw_results(empty, tmp_path)[::2]]
    assert stems == ["none", "one", "missing", "s_all", "blank", "q", "none_2"]
