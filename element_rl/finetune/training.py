"""Fine-tuning: the policy that an explorer found trains on with the task's reward (the paper's section on downstream tasks).

"We establish 10 checkpoints for each method during their learning process. The policy that demonstrates the highest
task-driven rewards at these checkpoints is selected for transfer." So each agent of a run acts in the task's environment with
its checkpoints; SAC with the extrinsic reward starts from the best, and for comparison from nothing, on as many steps.

    FOLDER/transferred/     a run as `element explore` makes them, from the transferred policies; transfer.json says which
    FOLDER/scratch/         the same from fresh agents
    FOLDER/summary.json, table.md, figures/transfer.png, .svg       the two beside each other

Without the comparison FOLDER itself is the transferred run. What is transferred and how: `finetune.start`.
"""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from element_rl.config import ExploreConfig
from element_rl.explore import TRANSFER, Explorer, explore
from element_rl.explore import Progress as RunProgress
from element_rl.explore import Watcher as RunWatcher
from element_rl.files import read_json_object, to_json, write_json
from element_rl.finetune.comparison import write_comparison
from element_rl.finetune.config import FinetuneConfig, task_settings
from element_rl.finetune.experience import kept_chunks, refuse_other_experience
from element_rl.finetune.start import chosen_start, transplanted
from element_rl.launch import create_run, reopen_run
from element_rl.provenance import config_difference
from element_rl.runs import RunError, RunFolder

Stage = Literal["choosing", "transferred", "scratch"]
Watcher = Callable[[Stage, RunProgress], None]  # of "choosing" the steps are episodes


def finetune(
    config: FinetuneConfig,
    folder: Path,
    watch: Watcher = lambda stage, progress: None,
    stop: Callable[[], bool] = lambda: False,
    resume: bool = False,
    wait_seconds: float = 0.0,
) -> dict[str, Any]:
    """Choose, transfer and train, leaving what the head of this module lists; the summary that is in the folder then.

    `resume`: go on with what is in the folder, if anything is. Raises `Interrupted` at a checkpoint when told to stop.
    """
    source = RunFolder.open(config.run)
    task, _ = task_settings(config, source)
    stored = stored_transfer(folder)
    _refuse_other(config, folder, stored, resume)
    if config.replay == "kept" and stored is None:
        refuse_other_experience(source, task)
    transfer = stored or to_json(chosen_start(config, source, task, lambda progress: watch("choosing", progress), stop))
    home = folder / "transferred" if config.compare else folder
    write_json(home / TRANSFER, transfer | {"config": dataclasses.asdict(config)})

    def begin(explorer: Explorer) -> None:
        fresh = explorer.learner.state.agents
        agents = transplanted(fresh, source, transfer, config.critics, config.temperature)
        experience = kept_chunks(source, task) if config.replay == "kept" else ()
        explorer.begin_with(agents, config.critic_warmup, experience)

    def trained(stage: Stage, settings: ExploreConfig, path: Path, **start: Any) -> dict[str, Any]:
        return _trained(settings, path, lambda progress: watch(stage, progress), stop, wait_seconds, **start)

    # The transferred policy acts from the first step; agents from scratch act at random until they learn.
    acting = dataclasses.replace(task, sac=dataclasses.replace(task.sac, learn_start=0))
    facts = {name: transfer[name] for name in ("zero_shot_return", "transferred_step", "transferred_from")}
    summary = trained("transferred", acting, home, begin=begin, facts=facts)
    if not config.compare:
        return summary
    trained("scratch", task, folder / "scratch")
    return write_comparison(folder, transfer)


def _trained(
    settings: ExploreConfig,
    path: Path,
    watch: RunWatcher,
    stop: Callable[[], bool],
    wait_seconds: float,
    begin: Callable[[Explorer], None] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The summary of the run in a folder, which is begun, continued or left as it is."""
    begun = (path / "config.json").exists()
    run = reopen_run(settings, path) if begun else create_run(settings, path)
    summary = run.read_summary()
    if summary.get("steps", 0) >= settings.steps and summary.keys() >= (facts or {}).keys():
        return summary
    return explore(settings, run, watch, stop, begun, wait_seconds, begin, facts)


def stored_transfer(folder: Path) -> dict[str, Any] | None:
    """transfer.json of a fine-tuning in a folder, with its settings under `config`; None where there is none."""
    for path in (folder / TRANSFER, folder / "transferred" / TRANSFER):
        if path.exists():
            return read_json_object(path)
    return None


def _refuse_other(config: FinetuneConfig, folder: Path, stored: dict[str, Any] | None, resume: bool) -> None:
    """Nothing is begun over something else, and nothing continued with other settings."""
    if stored is None:
        if (folder / "config.json").exists():
            raise RunError(f"{folder} holds a run that is no fine-tuning: choose another --out.")
        return
    if not resume:
        raise RunError(
            f"{folder} already holds a fine-tuning: continue it with --resume {folder}, or choose another --out."
        )
    before, now = (dict(to_json(c)) for c in (stored["config"], dataclasses.asdict(config)))
    for settings in (before, now):
        settings["run"] = Path(settings["run"]).name  # the rest of the path is only where things are now
    if difference := config_difference(before, now, may_differ=()):
        raise ValueError(difference)
