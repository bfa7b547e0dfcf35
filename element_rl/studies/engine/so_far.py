"""A study that is not done, as far as it is: every cell of an environment at the last step that all
of them have logged.

What other cells need (the explorers of `transfer`) is not compared, and counts where it is done.
Nor is anything cut in a study of learners from datasets: what was learned in fewer updates says
little, and its scores hang on runs that must have ended.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from element_rl.runs.folder import RunFolder
from element_rl.runs.metrics_log import final_averages
from element_rl.runs.watching import TRANSFER
from element_rl.storage.files import read_json_object
from element_rl.studies.engine.grid import Cell, FinishedCell, cell_folder, finished, is_done
from element_rl.studies.engine.jobs import is_preparation
from element_rl.training.offline import OfflineConfig


@dataclass(frozen=True)
class CellSoFar(FinishedCell):
    """A cell as it was at a step; `summary` says what a run of that many steps would have said."""

    @property
    def until(self) -> int:
        return int(self.summary["steps"])

    def curves(self, column: str) -> tuple[np.ndarray, np.ndarray]:
        steps, values = super().curves(column)
        return steps[steps <= self.until], values[:, steps <= self.until]

    def checkpoints(self) -> list[int]:
        return [step for step in super().checkpoints() if step <= self.until]


def so_far(cells: Sequence[Cell], out: Path) -> tuple[list[FinishedCell], tuple[str, ...]]:
    """The cells that have begun, cut at the same step within an environment, and a note on each
    cut."""
    cells = [cell for cell in cells if not is_preparation(cell.config)]
    needed = {need.name for cell in cells for need in cell.needs}
    offline = any(isinstance(cell.config, OfflineConfig) for cell in cells)
    whole = [cell for cell in cells if offline or cell.name in needed]
    done = [entry for cell in whole if (entry := finished(out, cell)) is not None]
    entries, notes = _cut([cell for cell in cells if cell not in whole], out)
    return [*done, *entries], (*notes, *(_not_done(cells, done) if offline else ()))


def _cut(cells: Sequence[Cell], out: Path) -> tuple[list[FinishedCell], list[str]]:
    """Those that have begun, at the step that all of their environment have reached."""
    opened = ((cell, _opened(cell_folder(out, cell))) for cell in cells)
    begun = [(cell, run, run.read_metrics()) for cell, run in opened if run is not None]
    begun = [entry for entry in begun if len(entry[2].get("step", ()))]
    entries: list[FinishedCell] = []
    notes = []
    for env in dict.fromkeys(cell.env for cell, _, _ in begun):
        here = [entry for entry in begun if entry[0].env == env]
        common = set.intersection(*(set(metrics["step"].tolist()) for _, _, metrics in here))
        if not common:
            raise ValueError(
                f"The cells on {env} in {out} have no logged step in common yet: wait, or leave "
                "--so-far out."
            )
        until = max(common)
        entries += [
            CellSoFar(cell, run, _summary(run, metrics, until)) for cell, run, metrics in here
        ]
        missing = [cell.method for cell, run, _ in here if not is_done(run.path)]
        if missing:
            notes.append(
                f"{env}: all methods at {until:,} steps per seed, because {', '.join(missing)} "
                "went no further."
            )
    return entries, notes


def _not_done(cells: Sequence[Cell], done: Sequence[FinishedCell]) -> list[str]:
    """Which learners are not there yet, an environment a line."""
    there = {entry.cell.name for entry in done}
    missing = [
        cell for cell in cells if isinstance(cell.config, OfflineConfig) and cell.name not in there
    ]
    return [
        f"{env}: not done yet: {', '.join(cell.method for cell in missing if cell.env == env)}."
        for env in dict.fromkeys(cell.env for cell in missing)
    ]


def _opened(folder: Path) -> RunFolder | None:
    return RunFolder.open(folder) if (folder / "config.json").is_file() else None


def _summary(run: RunFolder, metrics: Mapping[str, np.ndarray], until: int) -> dict[str, Any]:
    """What `explore` says at the end of a run, read from what it logged; a finished one says the
    rest itself."""
    settings = run.config["settings"]
    seeds = [settings["seed"] + index for index in range(settings["seeds"])]
    before = metrics["step"] <= until
    latest = [metrics["coverage"][before & (metrics["seed"] == seed)][-1] for seed in seeds]
    windows = {
        name: settings[name]
        for name in ("update_interval", "update_steps")
        if settings[name] is not None and settings.get("remember") != "always"
    }
    return run.read_summary() | {
        "env": run.config["env"],
        "reward": run.config["reward"],
        "steps": until,
        "seeds": seeds,
        "coverage": [None if np.isnan(cells) else int(cells) for cells in latest],
        **final_averages(metrics, until, seeds),
        **windows,
        **_transferred(run.path / TRANSFER),
    }


def _transferred(path: Path) -> dict[str, Any]:
    """What the summary of a fine-tuning says of the policies that it began with."""
    names = ("zero_shot_return", "transferred_step", "transferred_from")
    return {name: read_json_object(path)[name] for name in names} if path.is_file() else {}
