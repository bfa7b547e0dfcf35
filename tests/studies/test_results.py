"""Results survive being written and read."""

import numpy as np
import pytest

from element_rl.storage.files import FileError
from element_rl.studies.engine.results import (
    CellRecord,
    Curves,
    Frame,
    Map,
    PathGroup,
    Paths,
    PointGroup,
    Results,
    Scatter,
    Series,
    Table,
    read_results,
    write_results,
)

GRID = np.array([[0.0, 3.0], [np.nan, 7.0], [1.0, 0.0]])


def full_results() -> Results:
    """One of everything."""
    return Results(
        study="coverage",
        title="Coverage",
        question="Who covers most?",
        scale="smoke",
        command="element study coverage --scale smoke",
        cells=(CellRecord("a", "Ant-v5", "element", 2, 100, "done", 1.5),),
        findings=("It does.",),
        tables=(Table("cells", "Cells", ("method", "cells"), (("element", 3.5), ("rnd", None))),),
        curves=(
            Curves(
                "c",
                "C",
                "steps",
                "cells",
                (Series("element", (0.0, 1.0), (1.0, None), (0.5, None), (2.0, None)),),
            ),
        ),
        maps=(
            Map(
                "m",
                "M",
                "x",
                "y",
                ((-1.0, 1.0), (0.0, 1.0)),
                (3, 2),
                "visits",
                (Frame.of("now", GRID),),
            ),
        ),
        paths=(Paths("p", "P", "x", "y", (PathGroup("early", (((0.0, 0.0), (1.0, 2.0)),)),)),),
        scatters=(
            Scatter(
                "s",
                "S",
                "true",
                "predicted",
                (PointGroup("held out", (1.0,), (2.0,)),),
                diagonal=True,
            ),
        ),
        settings={"steps": 100},
    )


def test_round_trip(tmp_path) -> None:
    write_results(tmp_path, full_results())
    assert read_results(tmp_path) == full_results()


def test_a_frame_keeps_what_is_there() -> None:
    grid = Frame.of("now", GRID).grid((3, 2))
    assert np.array_equal(
        grid, np.array([[np.nan, 3.0], [np.nan, 7.0], [1.0, np.nan]]), equal_nan=True
    )


def test_something_else_is_refused_in_a_sentence(tmp_path) -> None:
    with pytest.raises(FileError, match="run `element study` first"):
        read_results(tmp_path)
    (tmp_path / "results.json").write_text('{"colour": "blue"}')
    with pytest.raises(FileError, match="Results has no setting 'colour'"):
        read_results(tmp_path)
