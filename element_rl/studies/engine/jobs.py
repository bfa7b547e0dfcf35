"""What a cell can be: a training run, or something made of the runs of other cells.

    explore     a population that explores, learns the task, or acts at random
    on-policy   the same on environments that show images, where A3C learns instead of SAC
    encoder     states for them: an encoder of frames, which all of an environment's cells share
    finetune    a population that goes on with the policies of another cell, on the task
    collect     a dataset, made with the policies of another cell
    offline     agents that learn from the dataset of another cell

Settings are told apart in a cell's file by their kind. Paths in them are relative to the cell's
folder, except those that a user gave to an explorer. `perform` begins a job, or continues it where
it was stopped.
"""

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from element_rl.datasets.collecting import CollectConfig, collect
from element_rl.datasets.minari_folders import dataset_folder
from element_rl.runs.folder import RunFolder
from element_rl.runs.provenance import commit, hardware, versions
from element_rl.storage.settings import settings_from_json
from element_rl.tracking.processes import TrackedRun, finetuned_runs
from element_rl.training.encoder.config import PretrainConfig, processes
from element_rl.training.encoder.pretrain import (
    create_encoder_run,
    pretrain_encoder,
    reopen_encoder_run,
)
from element_rl.training.finetune import FinetuneConfig, finetune
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.off_policy.explore import explore
from element_rl.training.off_policy.launch import create_run, reopen_run
from element_rl.training.offline import (
    OfflineConfig,
    create_offline_run,
    reopen_offline_run,
    train_offline,
)
from element_rl.training.on_policy.config import OnPolicyConfig
from element_rl.training.on_policy.launch import create_run as create_on_policy_run
from element_rl.training.on_policy.launch import reopen_run as reopen_on_policy_run
from element_rl.training.on_policy.training import train

Job = (
    ExploreConfig | OnPolicyConfig | PretrainConfig | FinetuneConfig | CollectConfig | OfflineConfig
)

KINDS: dict[str, type[Job]] = {
    "explore": ExploreConfig,
    "on-policy": OnPolicyConfig,
    "encoder": PretrainConfig,
    "finetune": FinetuneConfig,
    "collect": CollectConfig,
    "offline": OfflineConfig,
}


def label_of(job: Job) -> str:
    """A word for what is done, in the names of folders."""
    if isinstance(job, PretrainConfig):
        return _kind(job)
    return (
        job.reward
        if isinstance(job, ExploreConfig | OnPolicyConfig)
        else f"{_kind(job)}-{_origin(job)}"
    )


def agents_of(job: Job, before: int) -> int:
    """How many agents work side by side; `before`: how many the cells had that it needs."""
    if isinstance(job, PretrainConfig):
        return 1
    if isinstance(job, ExploreConfig | OnPolicyConfig):
        return job.seeds
    return before * (job.seeds if isinstance(job, OfflineConfig) else 1)


def first_seed_of(job: Job) -> int | None:
    """The seed of its first agent; None: that of the runs it is made of."""
    return None if isinstance(job, CollectConfig) else job.seed


def environments_of(job: Job, agents: int) -> int:
    """Environments that step at the same time, each in a process of its own."""
    if isinstance(job, PretrainConfig):
        return max(processes(job), 1)
    return agents * max(job.num_workers, 1) if isinstance(job, OnPolicyConfig) else agents


def is_preparation(job: Job) -> bool:
    """Whether there is nothing in it that a study measures: others need it, and that is all."""
    return isinstance(job, PretrainConfig)


def sees_frames(job: Job) -> bool:
    """Whether it is of images; of a job made of others' runs, those tell."""
    return isinstance(job, OnPolicyConfig | PretrainConfig)


def job_to_json(job: Job) -> dict[str, Any]:
    return {"kind": _kind(job), "config": asdict(job)}


def job_from_json(values: Mapping[str, Any]) -> Job:
    return settings_from_json(KINDS[values["kind"]], values["config"])


def runs_of(job: Job, folder: Path) -> list[TrackedRun]:
    """The runs that a job trains in its folder; a dataset is none."""
    if isinstance(job, CollectConfig):
        return []
    if isinstance(job, FinetuneConfig) and job.compare:
        return finetuned_runs(folder)
    return [TrackedRun(folder)]


def perform(job: Job, folder: Path, stop: Callable[[], bool], patience: float) -> None:
    """Do the job in a folder until it is done; raises `Interrupted`, at a checkpoint, when told to
    stop.

    `patience`: seconds to wait for another process that is still at work in the folder.
    """
    if isinstance(job, ExploreConfig):
        begun = (folder / "config.json").exists()
        run = reopen_run(job, folder) if begun else create_run(job, folder)
        explore(job, run, stop=stop, resume=begun, wait_seconds=patience)
        return
    with contextlib.chdir(folder):
        if isinstance(job, OnPolicyConfig):
            begun = Path("config.json").exists()
            run = reopen_on_policy_run(job, Path()) if begun else create_on_policy_run(job, Path())
            train(job, run, stop=stop, resume=begun, wait_seconds=patience)
        elif isinstance(job, PretrainConfig):
            begun = Path("config.json").exists()
            run = reopen_encoder_run(job, Path()) if begun else create_encoder_run(job, Path())
            pretrain_encoder(job, run, stop=stop, wait_seconds=patience)
        elif isinstance(job, FinetuneConfig):
            finetune(job, Path(), stop=stop, resume=True, wait_seconds=patience)
        elif isinstance(job, CollectConfig):
            _collect(job, stop)
        else:
            begun = Path("config.json").exists()
            run = reopen_offline_run(job, Path()) if begun else create_offline_run(job, Path())
            train_offline(job, run, stop=stop, resume=begun, wait_seconds=patience)


def _collect(job: CollectConfig, stop: Callable[[], bool]) -> None:
    """A dataset in this folder, and beside it the settings and the summary that every cell has."""
    began = time.perf_counter()
    if not Path("config.json").exists():
        RunFolder.create(Path(), {"kind": _kind(job), "settings": asdict(job)})
    run = RunFolder.open(Path())
    # it does where a process was killed before it wrote the summary
    if not dataset_folder(job.dataset, job.out).exists():
        collect(job, stop=stop)
    run.write_summary(
        {
            "dataset": job.dataset,
            "steps": job.steps,
            "wall_seconds": time.perf_counter() - began,
            "versions": versions(),
            "commit": commit(),
            "hardware": hardware(),
        }
    )


def _kind(job: Job) -> str:
    (kind,) = [name for name, settings in KINDS.items() if isinstance(job, settings)]
    return kind


def _origin(job: FinetuneConfig | CollectConfig | OfflineConfig) -> str:
    """What the cell is made of, in a word: ../Ant-v5-rnd-3f2a91c0 → rnd."""
    folder = Path(job.root or "").parent if isinstance(job, OfflineConfig) else job.run
    return folder.name.rpartition("-")[0].rpartition("-")[2]
