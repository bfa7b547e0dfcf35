"""Fine-tuning: the policy that an explorer found trains on with the task's reward (the paper's
section on downstream tasks).

"We establish 10 checkpoints for each method during their learning process. The policy that
demonstrates the highest task-driven rewards at these checkpoints is selected for transfer." So each
agent of a run acts in the task's environment with its checkpoints; SAC with the extrinsic reward
(on screens: A3C) starts from the best, and for comparison from nothing, on as many steps.

    FOLDER/transferred/     a run as the explorer's command makes them, from the transferred
                            policies; transfer.json says which
    FOLDER/scratch/         the same from fresh agents
    FOLDER/summary.json, table.md, figures/transfer.png, .svg       the two beside each other

Without the comparison FOLDER itself is the transferred run. `training.finetune.start` chooses,
`training.finetune.tasks` says what is transferred and how.
"""

import dataclasses
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from element_rl.runs.folder import RunError, RunFolder
from element_rl.runs.provenance import config_difference
from element_rl.runs.watching import TRANSFER, Progress
from element_rl.storage.files import json_text, read_json_object, to_json, write_json
from element_rl.storage.locks import create_locked
from element_rl.storage.settings import settings_from_json
from element_rl.training.finetune.comparison import write_comparison
from element_rl.training.finetune.config import FinetuneConfig
from element_rl.training.finetune.start import chosen_start
from element_rl.training.finetune.tasks import task_of, trained

Stage = Literal["choosing", "transferred", "scratch"]
Watcher = Callable[[Stage, Progress], None]  # of "choosing" the steps are episodes


def finetune(
    config: FinetuneConfig,
    folder: Path,
    watch: Watcher = lambda stage, progress: None,
    stop: Callable[[], bool] = lambda: False,
    resume: bool = False,
    wait_seconds: float = 0.0,
) -> dict[str, Any]:
    """Choose, transfer and train, leaving what the head of this module lists; the summary that is
    in the folder then.

    `resume`: go on with what is in the folder, if anything is. Raises `Interrupted` at a checkpoint
    when told to stop.
    """
    task = task_of(config)
    stored = stored_transfer(folder)
    _refuse_other_finetuning(config, folder, stored, resume)
    transfer = stored or to_json(
        chosen_start(task, lambda progress: watch("choosing", progress), stop)
    )
    home = folder / "transferred" if config.compare else folder
    transfer = _write_transfer(config, folder, home, transfer, stored is None, resume)

    def done(
        stage: Stage, path: Path, start: dict[str, Any] | None, facts: Mapping[str, Any]
    ) -> dict[str, Any]:
        written = RunFolder.open(path).read_summary() if (path / "config.json").exists() else {}
        if written.get("steps", 0) >= task.settings.steps and written.keys() >= facts.keys():
            return written

        def watch_stage(progress: Progress) -> None:
            watch(stage, progress)

        return trained(task, path, start, facts, watch_stage, stop, wait_seconds)

    facts = {
        name: transfer[name]
        for name in ("zero_shot_return", "transferred_step", "transferred_from")
    }
    summary = done("transferred", home, transfer, facts)
    if not config.compare:
        return summary
    done("scratch", folder / "scratch", None, {})
    return write_comparison(folder, transfer)


def stored_transfer(folder: Path) -> dict[str, Any] | None:
    """transfer.json of a fine-tuning in a folder, with its settings under `config`; None where
    there is none."""
    for path in (folder / TRANSFER, folder / "transferred" / TRANSFER):
        if path.exists():
            return read_json_object(path)
    return None


def _write_transfer(
    config: FinetuneConfig,
    folder: Path,
    home: Path,
    transfer: dict[str, Any],
    is_new: bool,
    resume: bool,
) -> dict[str, Any]:
    """Writes transfer.json, with the settings; what it says then.

    It is what a new fine-tuning takes its folder with: another process that chose at the same time
    may have been first.
    """
    written = transfer | {"config": dataclasses.asdict(config)}
    if not is_new:
        write_json(home / TRANSFER, written)
        return transfer
    try:
        os.close(create_locked(home / TRANSFER, json_text(written)))
    except FileExistsError:
        first = stored_transfer(folder)
        _refuse_other_finetuning(config, folder, first, resume)
        return first or transfer
    return transfer


def steps_finished(config: FinetuneConfig, folder: Path) -> int:
    """Steps of a fine-tuning in a folder with which all of it is done; 0 where it is not, or was
    begun otherwise."""
    stored = stored_transfer(folder)
    _refuse_other_finetuning(config, folder, stored, resume=True)
    if stored is None or not (folder / "summary.json").exists():
        return 0
    summary = read_json_object(folder / "summary.json")
    transferred = RunFolder.open(
        folder / "transferred" if config.compare else folder
    ).read_summary()
    # not so where that run went on by itself
    compared = summary.get("steps") == transferred.get("steps")
    return int(summary["steps"]) if compared and "zero_shot_return" in summary else 0


def _refuse_other_finetuning(
    config: FinetuneConfig, folder: Path, stored: dict[str, Any] | None, resume: bool
) -> None:
    """Nothing is begun over something else, and nothing continued with other settings."""
    if stored is None:
        if (folder / "config.json").exists():
            raise RunError(f"{folder} holds a run that is no fine-tuning: choose another --out.")
        return
    if not resume:
        raise RunError(
            f"{folder} already holds a fine-tuning: continue it with --resume {folder}, or choose "
            "another --out."
        )
    # with the settings that are newer than it
    written = settings_from_json(FinetuneConfig, stored["config"])
    before, now = (dict(to_json(dataclasses.asdict(c))) for c in (written, config))
    for settings in (before, now):
        # the rest of the path is only where things are now
        settings["run"] = Path(settings["run"]).name
    if difference := config_difference(before, now, may_differ=()):
        raise ValueError(difference)
