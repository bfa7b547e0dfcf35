"""A film of an explorer beside a random policy: both begin alike, each is counted on its own, and
the maps of both have one scale. The point maze is drawn without OpenGL."""

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import ImageColor
from support.films import frames_of

from element_rl import cli
from element_rl.acting.episode import Step
from element_rl.envs import point_maze
from element_rl.envs.make import describe, make_env
from element_rl.evaluate.checkpoints import film
from element_rl.evaluate.side_by_side import MAP_MARGIN, POINT, TRAIL, MapView, Side, map_picture
from element_rl.runs.folder import RunFolder

EPISODE = 20
TINY = (
    f"explore PointMaze-v0 --steps 60 --replay-size 500 --chunk-steps 20 --random-seeds 1 "
    f"--workers 0 --env-options max_episode_steps={EPISODE} --sac.hidden-sizes 8 "
    "--sac.batch-size 8 --video --out"
).split()
HEIGHT, WIDTH = 540, 968  # two pictures of 480 × 480, headings of 60, a gap of 8


@pytest.fixture(scope="module")
def explored(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, str]:
    """A run of the command, and what it printed."""
    folder = tmp_path_factory.mktemp("beside") / "run"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert cli.main([*TINY, str(folder)]) == 0
    return RunFolder.open(folder), printed.getvalue()


def test_a_run_ends_with_figures_a_film_and_what_to_try_next(
    explored: tuple[RunFolder, str],
) -> None:
    run, printed = explored
    path = run.evaluation_path / "step_000000060_beside_random.mp4"
    told = r"(coverage \(cells\)|\d times as many|Figure:|Video:|Run:|What to try next:)"
    assert list(dict.fromkeys(re.findall(told, printed))) == [
        "coverage (cells)",
        *re.findall(r"\d times as many", printed),
        "Figure:",
        "Video:",
        "Run:",
        "What to try next:",
    ]
    assert printed.count("times as many cells as a random policy") == 1
    assert f"Video: {path}" in printed.splitlines()
    figure = run.figures_path / "density_map.png"
    assert f"Figure: {figure}  (where they have been: look at this first)" in printed.splitlines()
    frames = frames_of(path, HEIGHT, WIDTH)
    assert len(frames) == EPISODE
    # the point of either side is somewhere in its half, and white is between them
    orange = np.abs(frames[-1].astype(int) - point_maze.POINT_COLOUR).max(axis=-1) < 40
    assert orange[:, :480].sum() > 50
    assert orange[:, 488:].sum() > 50
    assert frames[-1][:, 481:487].min() > 200
    assert not np.array_equal(frames[-1][:, :480], frames[-1][:, 488:])


def test_both_begin_alike(explored: tuple[RunFolder, str], tmp_path: Path) -> None:
    told = []
    path = film(explored[0], out=tmp_path, watch=told.append, every=5, beside_random=True)
    frames = frames_of(path, HEIGHT, WIDTH)
    assert len(frames) == len(told) == EPISODE // 5
    # the maze has one start in a film, and after five steps nobody has left its room
    rooms = np.abs(frames[0].astype(int) - point_maze.TRAIL_COLOUR).max(axis=-1) < 40
    assert all(rooms[:, side].any() for side in (slice(0, 480), slice(488, None)))
    again = film(explored[0], out=tmp_path / "again", every=5, beside_random=True)
    assert np.array_equal(frames_of(again, HEIGHT, WIDTH), frames)


def walk(xs: list[float]) -> Iterator[Step]:
    for x in xs:
        yield Step(np.zeros(2, np.float32), {"x_position": x, "y_position": 0.75})


def test_each_side_counts_its_own_steps_and_cells() -> None:
    """Cells of the maze's map are 0.1 wide."""
    spec, env = describe("PointMaze"), make_env("PointMaze", render_mode="rgb_array")
    env.reset(seed=0)
    side = Side("somebody", env, spec, walk([0.75, 0.85, 0.86, 0.95]), None)
    assert side.state == "step 0, 1 cell"
    assert side.step()
    assert side.step()
    assert side.state == "step 2, 2 cells"
    assert side.step()
    assert not side.step()
    assert side.state == "ended at step 3, 3 cells"
    assert side.picture().shape == (540, 480, 3)
    assert Side("x" * 300, env, spec, walk([1.0]), None).picture().shape == (540, 480, 3)
    env.close()


def test_maps_have_one_scale() -> None:
    """Ten units are 134 pixels, both ways; the caption takes 18 below."""
    view = MapView(np.array([-5.0, 0.0]), np.array([10.0, 5.0]))
    image = map_picture(np.array([[-5.0, 0.0], [5.0, 0.0], [5.0, 5.0]]), view, "m")
    assert image.size == (150, 67 + 2 * MAP_MARGIN + 18)
    assert image.getpixel((141, 9)) == ImageColor.getrgb(POINT)  # (5, 5): its upper right corner
    assert image.getpixel((75, 75)) == ImageColor.getrgb(TRAIL)  # half way along the lower edge
    small = map_picture(np.array([[0.0, 2.5]]), view, "m")  # who stands still
    assert small.size == image.size
    assert small.getpixel((75, 41)) == ImageColor.getrgb(POINT)
