"""Tables: what is in them, and that nothing in a cell can break a file."""

import csv
import io
import re

import numpy as np
import pytest
from rich.console import Console

from element_rl.studies.engine.results import Results, Table
from element_rl.studies.engine.table_text import (
    cell_text,
    csv_text,
    file_stem,
    markdown,
    show_tables,
    write_tables,
)
from element_rl.studies.engine.tables import (
    aggregate_table,
    comparisons,
    improvement_table,
    score_table,
    sentences,
)

SCORES = {
    "Ant-v5": {
        "element": np.array([2100.0, 2000.0, 2200.0, 2150.0, 2300.0]),
        "rnd": np.array([1200.0, 1100.0, 1300.0, 1250.0, 1150.0]),
        "random": np.array([1000.0, 1000.0]),
    },
    "Hopper-v5": {
        "element": np.array([100.0, 110.0, 120.0, 130.0]),
        "rnd": np.array([105.0, 115.0, 118.0, 128.0]),
        "random": np.array([50.0]),
    },
}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_tables_have_lines_and_nothing_is_cut() -> None:
    columns = (
        "environment",
        "method",
        "seeds",
        "mean ± std (cells)",
        "IQM",
        "95 % from",
        "to",
        "a note",
    )
    rows = (
        (
            "PointMaze-v0",
            "element [paper]",
            5,
            "2,150.0 ± 111.8",
            2133.3,
            2033.3,
            2266.7,
            "seen " * 6,
        ),
    )
    results = Results("s", "S", "?", "smoke", "c", (), tables=(Table("t", "Cells", columns, rows),))
    screen, pipe = Terminal(), io.StringIO()
    show_tables(results, Console(file=screen, width=80))
    show_tables(results, Console(file=pipe, width=80))
    text = screen.getvalue()
    assert "| ---" not in text
    assert "│" in text
    assert "…" not in text
    assert "[paper]" in text
    assert max(map(len, re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines())) <= 80
    assert pipe.getvalue() == f"\nCells\n\n{markdown(results.tables[0])}\n"


def test_markdown() -> None:
    table = Table(
        "t",
        "T",
        ("a|b", "cells", "note"),
        (("x\ny", 1234567.8, "p|q"), ("z", None, None), ("w", 3, "")),
    )
    assert markdown(table) == (
        "| a\\|b | cells | note |\n| --- | ---: | --- |\n| x y | 1,234,568 | p\\|q |\n| z | – | – "
        "|\n| w | 3 |  |\n"
    )


def test_csv_keeps_all_digits() -> None:
    third = 1 / 3
    table = Table(
        "t", "T", ("a", "b"), (('say "hi", twice\n', third), ("NaN", float("nan")), (None, 7))
    )
    rows = list(csv.reader(io.StringIO(csv_text(table))))
    assert rows == [["a", "b"], ['say "hi", twice\n', str(third)], ["NaN", ""], ["", "7"]]
    assert float(rows[1][1]) == third


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (2140.4, "2,140"),
        (-2140.4, "-2,140"),
        (999.96, "1,000"),
        (214.04, "214.0"),
        (3.42171, "3.422"),
        (0.5, "0.500"),
        (0.0, "0.000"),
        (0.000123, "1.23e-04"),
        (2.5e8, "2.50e+08"),
        (10_000, "10,000"),
        (None, "–"),
        (float("inf"), "–"),
        ("rnd", "rnd"),
    ],
)
def test_numbers_read_well(cell: str | float | int | None, text: str) -> None:
    assert cell_text(cell) == text


def test_scores() -> None:
    scores = {**SCORES, "Walker2d-v5": {"re3": np.array([1.0, 2.0])}}
    table = score_table("cells", "Cells", "cells", scores)
    rows = {(row[0], row[1]): row for row in table.rows}
    assert [method for _, method in list(rows)[:4]] == ["element", "rnd", "random", "re3"]
    _, _, seeds, average, middle, low, high = rows["Ant-v5", "element"]
    assert seeds == 5
    assert average == "2,150 ± 111.8"
    assert middle == pytest.approx(0.3 * 2100 + 0.4 * 2150 + 0.3 * 2200)
    assert 2000 <= low < middle < high <= 2300
    assert rows["Ant-v5", "re3"][2:] == (0, None, None, None, None)  # not measured
    assert rows["Hopper-v5", "random"][2:] == (
        1,
        "50 ± –",
        50,
        None,
        None,
    )  # one run has no interval


def test_the_same_scores_make_the_same_tables() -> None:
    assert score_table("n", "t", "u", SCORES) == score_table("n", "t", "u", SCORES)
    assert improvement_table("n", "t", SCORES) == improvement_table("n", "t", SCORES)


def test_scores_that_are_not_finite_are_left_out() -> None:
    (row,) = score_table("n", "t", "u", {"e": {"m": np.array([1.0, np.nan, 3.0])}}).rows
    assert row[2:5] == (2, "2 ± 1.414", 2.0)


def test_whole_scores_have_whole_means() -> None:
    """76 cells and not 76.00; a share of 1 keeps its digits beside others."""
    scores = {"e": {"few": np.array([76.0]), "many": np.array([76.0, 77.0])}}
    text = markdown(score_table("n", "t", "cells", scores))
    assert "| e | few | 1 | 76 ± – | 76 | – | – |" in text
    assert "| e | many | 2 | 76.50 ± 0.707 | 76.50 | 76 | 77 |" in text
    shares = {"e": {"m": np.array([0.5, 1.5])}}
    assert "| e | m | 2 | 1.000 ± 0.707 | 1.000 |" in markdown(score_table("n", "t", "u", shares))


def test_improvement_per_environment_and_over_all() -> None:
    scores = {**SCORES, "Walker2d-v5": {"re3": np.array([1.0, 2.0])}}
    table = improvement_table("p", "P", scores)
    assert table.columns[3:] == ("P(better)", "95 % from", "to", "p", "p, corrected")
    rows = {(row[0], row[2]): row[3:] for row in table.rows}
    better, low, high, p_value, corrected = rows["Ant-v5", "rnd"]
    assert (better, high) == (1.0, 1.0)
    assert low == pytest.approx(0.6427, abs=1e-4)  # all runs are separated, and still it has width
    assert p_value == pytest.approx(2 / 252)
    # Two others in two environments and over both are six comparisons; this p-value is smallest.
    assert corrected == pytest.approx(6 * 2 / 252)
    assert "for the 6 comparisons of this table" in table.note
    # 130 wins over 4, 120 over 3, 110 over 1, 100 over none
    assert rows["Hopper-v5", "rnd"][0] == pytest.approx(8 / 16)
    assert rows["all", "rnd"][0] == pytest.approx((1 + 8 / 16) / 2)
    assert rows["all", "re3"] == (None,) * 5
    assert "all" not in {
        row[0] for row in improvement_table("p", "P", {"Ant-v5": SCORES["Ant-v5"]}).rows
    }


def test_aggregate_over_environments() -> None:
    scores = {**SCORES, "Walker2d-v5": {"re3": np.array([1.0, 2.0])}}
    element, rnd, _, re3 = aggregate_table("a", "A", scores, "random").rows
    divided = np.sort([2.1, 2.0, 2.2, 2.15, 2.3, 2.0, 2.2, 2.4, 2.6])
    weights = np.array([0, 0, 0.75, 1, 1, 1, 0.75, 0, 0]) / 4.5
    assert element[:3] == ("element", 2, 9)
    assert element[4] == pytest.approx(divided @ weights)
    assert isinstance(rnd[5], float)
    assert re3 == ("re3", 0, 0, None, None, None, None)
    with pytest.raises(ValueError, match=r"divided by those of random in Ant-v5, whose mean is 0"):
        aggregate_table(
            "a", "A", {"Ant-v5": {"element": np.ones(2), "random": np.zeros(2)}}, "random"
        )


def without_random(scores: dict[str, dict[str, np.ndarray]]) -> dict[str, dict[str, np.ndarray]]:
    return {
        env: {name: methods[name] for name in ("element", "rnd")} for env, methods in scores.items()
    }


def test_sentences_say_who_is_ahead() -> None:
    scores = without_random(SCORES)
    ahead, even = sentences(scores, "covers more than", "covers less than")
    assert ahead.startswith("On Ant-v5 element covers more than rnd: IQM 2,150 (2,0")
    assert " against 1,200 (1,1" in ahead
    assert ahead.endswith(", P(better) 1.00 (0.64 to 1.00), p 0.008, corrected 0.024.")
    assert even.startswith(
        "On Hopper-v5 there is no clear difference between element and rnd: IQM 115 ("
    )
    (behind,) = sentences({"Ant-v5": scores["Ant-v5"]}, "beats", "loses to", ours="rnd")
    assert behind.startswith("On Ant-v5 rnd loses to element: IQM 1,200 (")


def test_one_of_many_comparisons_claims_less() -> None:
    """Seven pairs of five runs, one completely separated: 7 · 2/252 is above 0.05."""
    runs = {f"m{n}": np.arange(5.0) + 10 for n in range(6)}
    scores = {"Ant-v5": {"element": np.arange(5.0) + 10, "rnd": np.arange(5.0), **runs}}
    first, *others = comparisons(scores, "element")
    assert first.p_value == pytest.approx(2 / 252)
    assert first.corrected == pytest.approx(7 * 2 / 252)
    assert [entry.corrected for entry in others] == [1.0] * 6
    said = sentences(scores, "covers more than")[0]
    assert said.startswith(
        "On Ant-v5 element covers more than rnd, though not clearly, as one of 7 comparisons: IQM "
    )


def test_sentences_of_few_runs_claim_nothing() -> None:
    """Three runs against three are separated by chance in a tenth of all cases."""
    few = {
        "Ant-v5": {
            "element": np.array([5.0, 6.0, 7.0]),
            "rnd": np.array([1.0, 2.0, 3.0]),
            "re3": np.ones(0),
        }
    }
    (said,) = sentences(few)
    assert said.startswith("On Ant-v5 3 and 3 runs are too few to tell element from rnd: IQM 6 (")
    (single,) = sentences({"e": {"element": np.array([2.0]), "rnd": np.array([1.0])}})
    assert single == (
        "On e 1 and 1 runs are too few to tell element from rnd: IQM 2 against 1, "
        "P(better) 1.00 (0.21 to 1.00), p 1.000, corrected 1.000."
    )


def test_files(tmp_path) -> None:
    tables = (
        Table("cells", "Cells", ("method", "cells"), (("element", 3.5),), note="How\nto read"),
        Table("../Ant v5", "Empty", ("a", "b"), ()),
    )
    results = Results("s", "S", "?", "smoke", "c", (), tables=tables)
    written = write_tables(results, tmp_path / "tables")
    names = [path.relative_to(tmp_path).as_posix() for path in written]
    assert names == ["tables/cells.md", "tables/cells.csv", "tables/Ant_v5.md", "tables/Ant_v5.csv"]
    assert written[0].read_text() == (
        "# Cells\n\n| method | cells |\n| --- | ---: |\n| element | 3.500 |\n\nHow to read\n"
    )
    assert written[3].read_text() == "a,b\n"
    assert file_stem("...") == "unnamed"
