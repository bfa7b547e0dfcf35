"""What a terminal of 80 columns shows of a run, and what a log file gets."""

import io
import re
import time
from collections.abc import Callable

import pytest
from rich.console import Console

from element_rl.commands import collect, explore, finetune, offline, on_policy, pretrain_encoder
from element_rl.commands.bars import Bar, bar_or_lines, bars_or_lines
from element_rl.commands.summaries import covered_more
from element_rl.runs.watching import COMPILING, Progress, random_policy_watcher

METRICS = {
    **{
        "coverage": 1234.0,
        "episodic_entropy": 9.87,
        "episode_length": 1000.0,
        "memory_size": 50000.0,
    },
    **{
        "furthest": 3161.0,
        "extrinsic_return": 1234.5,
        "normalised_score": 0.5,
        "q_mean": 12.0,
        "conservative_gap": 1.0,
    },
    **{
        "kept": 9999.0,
        "episodes": 10000.0,
        "training_loss": 1.0,
        "validation_loss": 1.0,
        "best_epoch": 3.0,
    },
}


class Terminal(io.StringIO):
    """A file that says it is a terminal, and keeps what is drawn on it."""

    def isatty(self) -> bool:
        return True

    def rows(self) -> list[str]:
        """Every row that was drawn, without colours."""
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.getvalue())
        return [row.rstrip() for row in re.split(r"[\r\n]+", plain) if row.strip()]


def drawn(watch_all: Callable[[Console], None], width: int = 80) -> list[str]:
    terminal = Terminal()
    watch_all(Console(file=terminal, width=width))
    return terminal.rows()


def half_done(bar: Bar) -> Callable[[Console], None]:
    def watch_all(console: Console) -> None:
        with bar_or_lines(console, bar, 1_000_000) as watch:
            for step in (499_000, 499_500, 500_000):
                watch(Progress(step, 1_000_000, 5_000.0, METRICS, agents=5))
                time.sleep(0.01)

    return watch_all


@pytest.mark.parametrize(
    "bar", [explore.BAR, on_policy.BAR, offline.BAR, collect.BAR, finetune.STEPS]
)
def test_count_and_time_left_are_whole_in_80_columns(bar: Bar) -> None:
    row = drawn(half_done(bar))[-1]
    assert len(row) <= 80
    assert "500,000/1,000,000" in row
    assert re.search(r"\d:\d\d:\d\d left", row)
    assert re.search(rf"[\d,.]+ {bar.unit}/s per {bar.one}", row)
    assert "…" not in row


def test_the_last_measures_give_way_first() -> None:
    wide, narrow = (drawn(half_done(explore.BAR), width)[-1] for width in (160, 80))
    for part in ("cells 1,234", "entropy 9.87", "length 1000", "memory 50,000"):
        assert part in wide
    assert "memory" not in narrow


def test_stages_fit_too() -> None:
    def watch_all(console: Console) -> None:
        with bars_or_lines(console, finetune.BARS) as watch:
            for stage in finetune.BARS:
                for step in (499_000, 500_000):
                    watch(stage, Progress(step, 1_000_000, 5_000.0, METRICS, 5))
                    time.sleep(0.01)

    rows = drawn(watch_all)[-3:]
    assert [row.split()[0] for row in rows] == ["choosing", "transferred", "from"]
    for row in rows:
        assert len(row) <= 80
        assert re.search(r"500,000/1,000,000 \d+:\d\d:\d\d left", row)


def test_an_encoder_in_training_fits_too() -> None:
    def watch_all(console: Console) -> None:
        with bars_or_lines(console, pretrain_encoder.BARS) as watch:
            watch("frames", Progress(50_000, 100_000, 900.0, METRICS))
            watch("epochs", Progress(0, 100, 0.0, {}, doing=COMPILING))
            if trained:
                watch("epochs", Progress(3, 100, 12.5, METRICS))

    trained = False
    assert COMPILING in drawn(watch_all)[-1]
    trained = True
    frames, epochs = drawn(watch_all)[-2:]
    assert "50,000/100,000" in frames
    assert re.search(r"3/100 +-:--:-- left loss 1.000", epochs)
    assert max(map(len, (frames, epochs))) <= 80


def test_bar_speed_and_time_left_count_the_same() -> None:
    """Five agents: the bar has the steps of one of them, and so has the speed."""
    began = time.monotonic()

    def watch_all(console: Console) -> None:
        with bar_or_lines(console, Bar("steps"), 100_000) as watch:
            for step in range(0, 1_100, 100):
                watch(Progress(step, 100_000, 1e9, {}, 5))
                time.sleep(0.02)

    row = drawn(watch_all)[-1]
    seconds = time.monotonic() - began
    speed = float(re.search(r"([\d,]+) steps/s per seed", row)[1].replace(",", ""))
    assert 1_000 / seconds / 2 < speed < 1_000 / seconds * 2
    hours, minutes, second = map(int, re.search(r"(\d+):(\d\d):(\d\d) left", row).groups())
    left = 3600 * hours + 60 * minutes + second
    assert left == pytest.approx((100_000 - 1_000) / speed, rel=0.5)


def test_while_programs_compile_the_bar_says_so() -> None:
    def watch_all(console: Console) -> None:
        with bar_or_lines(console, explore.BAR, 12_000) as watch:
            watch(Progress(1_000, 12_000, 900.0, METRICS, doing=COMPILING))

    rows = drawn(watch_all)
    assert "starting" in rows[0]
    assert COMPILING in rows[-1]
    assert "cells" not in rows[-1]


def test_the_random_policy_of_a_run_that_is_done() -> None:
    def watch_all(console: Console) -> None:
        with bar_or_lines(console, explore.BAR, 12_000) as watch:
            watch(Progress(12_000, 12_000, 900.0, METRICS))
            random_policy_watcher(watch)(Progress(6_000, 12_000, 900.0, {}))

    row = drawn(watch_all)[-1]
    assert "12,000/12,000" in row
    assert "random policy, to compare with: 50%" in row


def test_elsewhere_lines_with_the_speed_of_one_seed(capsys: pytest.CaptureFixture[str]) -> None:
    with bar_or_lines(Console(), explore.BAR, 100) as watch:
        watch(Progress(0, 100, 0.0, {}, 5, COMPILING))
        watch(Progress(50, 100, 1_000.0, {"coverage": 7.0}, 5))
        watch(Progress(51, 100, 1_000.0, {"coverage": 8.0}, 5))
    assert capsys.readouterr().out == "        50 / 100  200 steps/s per seed  cells 7\n"


def test_how_many_there_will_be_is_not_always_known(capsys: pytest.CaptureFixture[str]) -> None:
    with bar_or_lines(Console(), collect.BAR) as watch:
        watch(Progress(150_000, 0, 10.0, {}))
    assert capsys.readouterr().out == "   150,000  10 steps/s\n"

    def watch_all(console: Console) -> None:
        with bar_or_lines(console, collect.BAR) as watch:
            watch(Progress(150_000, 0, 10.0, {}))

    assert "150,000 -:--:-- left" in drawn(watch_all)[-1]


def test_how_many_times_a_random_policy_was_covered() -> None:
    said = covered_more([300, 352], [36, 46])
    assert said == "8.0 times as many cells as a random policy on as many steps (326 against 41)."
    assert covered_more([None], [None]) == ""
    assert covered_more([150], [158]).startswith("0.95 times as many cells as")


def test_a_measure_needs_all_its_metrics(capsys: pytest.CaptureFixture[str]) -> None:
    bar = Bar("", ("a {a:.1f} of {b:.0f}", "c {c:.0f}", "{steps_per_second:.0f} updates/s"))
    with bar_or_lines(Console(), bar, 1) as watch:
        watch(Progress(1, 1, 7.0, {"a": 0.5, "c": float("nan")}))
    with bar_or_lines(Console(), bar, 1) as watch:
        watch(Progress(1, 1, 7.0, {"a": 0.5, "b": 2.0, "c": 3.0}))
    lines = ["         1 / 1  7 updates/s", "         1 / 1  a 0.5 of 2  c 3  7 updates/s"]
    assert capsys.readouterr().out.splitlines() == lines


def test_a_note_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    with bars_or_lines(Console(), {"one": Bar("steps"), "two": Bar("steps")}) as watch:
        for stage in ("one", "two"):
            watch(stage, Progress(0, 10, 0.0, {}, note="Read [this]."))
    assert capsys.readouterr().out == "Read [this].\n"
