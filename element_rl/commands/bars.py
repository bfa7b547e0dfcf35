"""Bars of progress on a terminal; elsewhere, as in a log file, a line now and then.

A row says, in this order: a bar, how far it is, how long it will take, how fast it is, and what is
measured. The bar, the speed and the time left count the same thing, the steps of one seed: what is
left, divided by the speed, is the time left. Where a terminal is too narrow for all of it, the last
measures are left out, never the count or the time.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import isfinite, nan
from string import Formatter
from typing import Any, NamedTuple

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.progress import BarColumn, ProgressColumn, Task, TaskID, TextColumn
from rich.progress import Progress as Bars
from rich.table import Column
from rich.text import Text

from element_rl.runs.watching import Progress

LINES = 20  # of progress, where there is no terminal for a bar
STEPS_PER_LINE = 100_000  # where nobody knows how many there will be
WIDEST_BAR, NARROWEST_BAR, BAR_SHARE = 40, 8, 6  # of the terminal the bar has one part in six
GAP = "  "  # between two measures
ONE_LINE = Column(no_wrap=True)  # of a row


class Bar(NamedTuple):
    """What a bar, or its lines, tells."""

    # what it counts, such as steps; where this is empty the speed is among the measures
    unit: str
    # the most telling first, as formats with names of metrics in them: "cells {coverage:,.0f}"
    measures: Sequence[str] = ()
    one: str = "seed"  # whose units are counted: steps of a seed, updates of an agent


@contextlib.contextmanager
def bar_or_lines(
    console: Console, bar: Bar, total: int | None = None, name: str = ""
) -> Iterator[Callable[[Progress], None]]:
    """A watcher that draws a bar on a terminal, and elsewhere prints a line now and then."""
    with bars_or_lines(console, {name: bar}) as watch:
        watch(name, Progress(0, total or 0, 0.0, {}, doing="starting"))
        yield lambda progress: watch(name, progress)


@contextlib.contextmanager
def bars_or_lines(
    console: Console, bars: Mapping[str, Bar]
) -> Iterator[Callable[[str, Progress], None]]:
    """The same for work in several stages: a bar for each, under its name.

    A run's note is printed too, once: above the bars, or among the lines.
    """
    width, notes = max(map(len, bars)), {""}

    def noting(watch: Callable[[str, Progress], None], stage: str, progress: Progress) -> None:
        watch(stage, progress)
        if progress.note not in notes:
            notes.add(progress.note)
            console.print(
                progress.note, style="bold", markup=False, highlight=False, soft_wrap=True
            )

    if not draws_bars(console):
        printers = {
            name: _line_printer(bar, f"{name:<{width}} " if width else "")
            for name, bar in bars.items()
        }
        yield partial(noting, lambda stage, progress: printers[stage](progress))
        return
    name_column = TextColumn(f"{{task.description:<{width}}}", table_column=ONE_LINE)
    columns = row_columns(console)
    with Bars(*((name_column, *columns) if width else columns), console=console) as drawn:
        tasks: dict[str, TaskID] = {}

        def show(stage: str, progress: Progress) -> None:
            bar, total = bars[stage], progress.steps or None
            parts = (progress.doing,) if progress.doing else measured(bar.measures, progress)
            if stage not in tasks:
                tasks[stage] = drawn.add_task(
                    stage, total=total, unit=bar.unit, one=bar.one, parts=parts, agents=1
                )
            drawn.update(
                tasks[stage],
                completed=progress.step,
                total=total,
                parts=parts,
                agents=progress.agents,
                idle=bool(progress.doing),
            )

        yield partial(noting, show)


def measured(measures: Sequence[str], progress: Progress) -> tuple[str, ...]:
    """Those measures whose metrics are all known, with the latest numbers in their places."""
    values = {"steps_per_second": progress.steps_per_second, **progress.latest}
    names = {text: [part[1] for part in Formatter().parse(text) if part[1]] for text in measures}
    return tuple(
        text.format(**values)
        for text in measures
        if all(isfinite(values.get(name, nan)) for name in names[text])
    )


def draws_bars(console: Console) -> bool:
    """Whether somebody watches. (Not `is_terminal`, which a variable of the environment can force
    on a file.)"""
    return console.file.isatty()


def row_columns(
    console: Console, count: ProgressColumn | None = None
) -> tuple[ProgressColumn, ...]:
    """Bar, count, time left and text of a row; tasks need the fields `parts`, `unit`, `one` and
    `agents`."""
    width = min(WIDEST_BAR, max(NARROWEST_BAR, console.width // BAR_SHARE))
    bar = BarColumn(bar_width=width, table_column=ONE_LINE)
    return (bar, count or _Count(ONE_LINE), _TimeLeft(ONE_LINE), _Measures())


def speed_text(speed: float, unit: str, one: str, agents: int) -> str:
    """How fast each of the agents is."""
    number = f"{speed:,.0f}" if speed >= 10 else f"{speed:.1f}"
    return f"{number} {unit}/s" + (f" per {one}" if agents > 1 else "")


def _line_printer(bar: Bar, before: str) -> Callable[[Progress], None]:
    printed = [0]

    def watch(progress: Progress) -> None:
        is_known = bool(progress.steps)  # how many there will be
        part = (
            progress.step * LINES // progress.steps if is_known else progress.step // STEPS_PER_LINE
        )
        if part > printed[0] and not progress.doing:
            printed[0] = part
            of = f" / {progress.steps:,}" if is_known else ""
            rate = progress.steps_per_second / progress.agents
            speed = [speed_text(rate, bar.unit, bar.one, progress.agents)] if bar.unit else []
            parts = GAP.join([*speed, *measured(bar.measures, progress)])
            print(f"{before}{progress.step:>10,}{of}{GAP}{parts}", flush=True)

    return watch


class _Count(ProgressColumn):
    """How many of how many, as wide as it will ever be."""

    def render(self, task: Task) -> Text:
        done = f"{int(task.completed):,}"
        if task.total is None:
            return Text(done, style="progress.download")
        total = f"{int(task.total):,}"
        return Text(f"{done:>{len(total)}}/{total}", style="progress.download")


class _TimeLeft(ProgressColumn):
    """Hours, minutes and seconds."""

    max_refresh = 0.5  # seconds between two numbers, so that they can be read

    def render(self, task: Task) -> Text:
        seconds = task.time_remaining
        if task.total is None or seconds is None:
            return Text("-:--:-- left", style="progress.remaining")
        minutes, second = divmod(int(seconds), 60)
        return Text(
            f"{minutes // 60}:{minutes % 60:02}:{second:02} left", style="progress.remaining"
        )


class _Measures(ProgressColumn):
    """Speed and measures, as many as there is room for."""

    def render(self, task: Task) -> "_AsManyAsFit":
        fields: dict[str, Any] = task.fields
        speed = task.finished_speed or task.speed
        if speed is None or not fields["unit"] or fields.get("idle"):
            return _AsManyAsFit(fields["parts"])
        return _AsManyAsFit(
            (speed_text(speed, fields["unit"], fields["one"], fields["agents"]), *fields["parts"])
        )


class _AsManyAsFit:
    """Pieces of text on one line, without those at the end for which there is no room."""

    def __init__(self, parts: Sequence[str]) -> None:
        self.parts = tuple(parts)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, max(cell_len(GAP.join(self.parts)), 1)).clamp(
            max_width=options.max_width
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        count = len(self.parts)
        while count > 1 and cell_len(GAP.join(self.parts[:count])) > options.max_width:
            count -= 1
        yield Text(GAP.join(self.parts[:count]), no_wrap=True, overflow="ellipsis")
