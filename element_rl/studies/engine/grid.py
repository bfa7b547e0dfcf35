"""What a study is: a grid of cells, and what is made of them when they are done.

    OUT/cells/Ant-v5-rnd-3f2a91c0/    a run folder per cell, shared by all studies in OUT that
                                      contain the cell
    OUT/coverage/                     results of one study: results.json, tables, figures,
                                      report.html

A cell is a population run, or something made of the runs of other cells (`jobs.py` says what there
is): those it `needs`, which are done before it. A cell's folder is named after its environment,
what is done in it and a digest of all its settings, so that two studies with a cell in common run
it once, and a cell whose settings have changed is another cell. Settings name the cells they need
by their folders, as `../NAME`: a digest therefore tells of all that went before, and of no place.
"""

import contextlib
import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from element_rl.agents.sac import SACConfig
from element_rl.envs.robots import robot_of
from element_rl.rewards.element_config import preset, usual_estimator
from element_rl.rewards.expression import names_in
from element_rl.rewards.making import is_own_reward
from element_rl.runs.folder import RunFolder
from element_rl.storage.files import read_json_object, to_json
from element_rl.studies.engine.environments import shows_frames
from element_rl.studies.engine.jobs import (
    Job,
    agents_of,
    environments_of,
    first_seed_of,
    label_of,
    sees_frames,
)
from element_rl.studies.engine.results import CellRecord, Curves, Map, Paths, Scatter, Table
from element_rl.training.finetune import FinetuneConfig
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.off_policy.resolving import usual_units
from element_rl.training.offline.config import OfflineConfig
from element_rl.training.on_policy.config import OnPolicyConfig

# Settings that older cells do not have, those of learners too: while they have their defaults they
# change no cell's name.
NEWER: dict[type, tuple[str, ...]] = {
    ExploreConfig: (
        *("extrinsic_weight", "position", "bounds", "cell_size", "envs_per_agent", "agent", "td3"),
        *("dqn", "devices"),
        *("state_units", "physics", "updates_per_step", "batch_size", "remember", "own_episode"),
        *("falls", "tell_position", "inputs", "pool", "env_timeout", "learn_from"),
    ),
    OnPolicyConfig: ("agent", "ppo", "envs_per_agent", "position", "bounds", "state_units"),
    OfflineConfig: ("td3_bc", "iql"),
    FinetuneConfig: ("dqn",),
    SACConfig: ("layer_norm", "policy_delay"),
}
# Seeds from here on are for reporting only: nothing is chosen by what they show.
REPORT_SEEDS = 1_000
FOUND = "found"  # a position that is looked for, in the name of a cell
FAILURE = "failure.json"  # in a cell's folder: why its last attempt ended


@dataclass(frozen=True)
class Scale:
    """How large a study is."""

    envs: tuple[str, ...]
    seeds: int
    steps: Mapping[str, int]  # per seed, by environment
    # taken with each checkpoint's policy, where a study acts with them; of a dataset, per seed
    samples: int = 30_000
    task_steps: int = 0  # per seed, of learning a task online, where a study has one
    updates: int = 0  # of agents that learn offline
    # settings of every explorer, beside its own
    options: Mapping[str, Any] = field(default_factory=dict)
    # settings of agents that learn offline
    offline_options: Mapping[str, Any] = field(default_factory=dict)
    # settings of agents that learn a task on
    finetune_options: Mapping[str, Any] = field(default_factory=dict)
    # settings of encoders, on screens
    encoder_options: Mapping[str, Any] = field(default_factory=dict)
    # how large it is on environments that show images; None: there it cannot be done
    screens: "Scale | None" = None
    first_seed: int = 0  # of the agents; REPORT_SEEDS for reporting

    def on(self, env: str) -> "Scale":
        """The scale for an environment: another one where it shows images."""
        return self.screens if self.screens is not None and shows_frames(env) else self


@dataclass(frozen=True)
class Cell:
    """One population at work."""

    env: str
    method: str  # as tables and figures call it
    config: Job
    needs: tuple["Cell", ...] = ()  # what must be done before

    @property
    def name(self) -> str:
        settings = json.dumps(to_json(_digested(self.config)), sort_keys=True)
        env, label = (
            re.sub(r"[^\w.-]+", "_", text).strip("_") for text in (self.env, label_of(self.config))
        )
        return f"{env}-{label}-{hashlib.sha256(settings.encode()).hexdigest()[:8]}"

    @property
    def reference(self) -> Path:
        """How the settings of a cell that needs this one name its folder."""
        return Path("..") / self.name

    @property
    def seeds(self) -> int:
        """Agents side by side."""
        return agents_of(self.config, sum(cell.seeds for cell in self.needs))

    @property
    def first_seed(self) -> int:
        """The seed of the first of them; made of others' runs, they have theirs."""
        own = first_seed_of(self.config)
        return own if own is not None else min(cell.first_seed for cell in self.needs)

    @property
    def is_for_report(self) -> bool:
        """Whether its seeds are for reporting, or for development."""
        return self.first_seed >= REPORT_SEEDS

    @property
    def environments(self) -> int:
        """Environments that step at the same time."""
        return environments_of(self.config, self.seeds)

    @property
    def sees_frames(self) -> bool:
        """Whether its agents see images."""
        return sees_frames(self.config) or any(cell.sees_frames for cell in self.needs)

    @property
    def steps(self) -> int:
        """Per agent: of an environment, or of learning offline."""
        return self.config.steps or 0


@dataclass(frozen=True)
class FinishedCell:
    """A cell that is done, and the run it left."""

    cell: Cell
    run: RunFolder
    summary: Mapping[str, Any]

    def curves(self, column: str) -> tuple[np.ndarray, np.ndarray]:
        """Steps [T] and one line per seed [R, T] of a column of the metrics."""
        metrics = self.run.read_metrics()
        steps, when = np.unique(metrics["step"], return_inverse=True)
        values = np.full((len(self.summary["seeds"]), len(steps)), np.nan)
        values[np.searchsorted(self.summary["seeds"], metrics["seed"]), when] = metrics[column]
        return steps, values

    def checkpoints(self) -> list[int]:
        """Steps of the checkpoints that the settings ask for."""
        return self.run.planned_checkpoints()


@dataclass(frozen=True)
class Findings:
    """What the analysis of a study found; the runner adds where it comes from."""

    sentences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    curves: tuple[Curves, ...] = ()
    maps: tuple[Map, ...] = ()
    paths: tuple[Paths, ...] = ()
    scatters: tuple[Scatter, ...] = ()


class Score(NamedTuple):
    """What the leaderboard of a study compares."""

    measure: str  # in words
    column: str  # of the metrics: the curve
    of: Callable[[FinishedCell], Sequence[float]]  # of a cell, a number per seed


@dataclass(frozen=True)
class Study:
    """An experiment. `cells_of` makes the grid of an environment at a scale; `analyse` gets the
    cells that are done."""

    name: str
    title: str
    question: str
    scales: Mapping[str, Scale]
    cells_of: Callable[[str, Scale], Sequence[Cell]]
    analyse: Callable[[Sequence[FinishedCell], Scale], Findings]
    # whether it asks where the agents have been, which not every environment tells
    needs_map: bool = False
    # methods by which all others are measured: in the grid whatever else is chosen
    references: tuple[str, ...] = ()
    # the cell of any reward, also one of the user's own, where the study can have it as a method
    reward_cell: Callable[[str, str, Scale], Cell] | None = None
    # by what its methods are compared on a leaderboard, where it has one
    score: Score | None = None

    def cells(self, scale: Scale) -> list[Cell]:
        """The grid of all environments of a scale."""
        return [cell for env in scale.envs for cell in self.cells_of(env, scale)]


def with_needs(cells: Sequence[Cell]) -> list[Cell]:
    """The cells, and before each what it needs; nothing twice."""
    ordered: dict[tuple[str, str], Cell] = {}
    for cell in cells:
        for entry in (*with_needs(cell.needs), cell):
            ordered.setdefault((entry.name, entry.method), entry)
    return list(ordered.values())


def _digested(job: Job) -> dict[str, Any]:
    """The settings that a cell's name tells of."""
    if isinstance(job, ExploreConfig | OnPolicyConfig):
        # What older cells do not say, they have otherwise: another name again.
        job = job.as_written()
    if isinstance(job, ExploreConfig) and usual_units(job.env) == "calibrated":
        # Older cells there are raw: another name, or they would be taken for these.
        job = dataclasses.replace(job, state_units=job.state_units or "calibrated")
    if isinstance(job, ExploreConfig) and "element" in names_in(job.reward):
        usual = usual_estimator(job.env, job.credit)
        if usual != preset(job.env).estimator:  # older cells there have the paper's
            job = dataclasses.replace(job, estimator=job.estimator or usual)
    if isinstance(job, ExploreConfig) and not job.position and robot_of(job.env) is None:
        job = dataclasses.replace(job, position=(FOUND,))  # older cells had none there
    if isinstance(job, OnPolicyConfig):
        job = dataclasses.replace(job, workers=job.num_workers)  # which older cells say
    settings = _without_newer(job)
    if source := reward_source(getattr(job, "reward", "")):
        settings["reward_source"] = source  # the same file with other code is another cell
    return settings


def _without_newer(settings: Any) -> dict[str, Any]:
    """Settings by name, those of learners too, without newer ones that have their defaults."""
    newer = NEWER.get(type(settings), ())
    kept = [
        entry.name
        for entry in dataclasses.fields(settings)
        if entry.name not in newer or not has_default(settings, entry.name)
    ]
    values = {name: getattr(settings, name) for name in kept}
    return {
        name: _without_newer(value) if dataclasses.is_dataclass(value) else value
        for name, value in values.items()
    }


def reward_source(reward: str) -> str:
    """The code of the rewards that are functions of the user's own; empty where none is, and where
    it cannot be read, as whoever makes the reward will say."""
    named = [name for name in names_in(reward) if is_own_reward(name)] if reward else []
    files = dict.fromkeys(Path(name.rpartition(":")[0]) for name in named)
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return "\n\n".join(f"# {file.name}\n{file.read_text(encoding='utf-8')}" for file in files)
    return ""


def results_folder(out: Path, study: Study, cells: Sequence[Cell]) -> Path:
    """Where the results of these cells go: those for reporting stand beside those of development.
    Both in one table are refused."""
    kinds = {cell.is_for_report for cell in cells}
    if len(kinds) > 1:
        raise ValueError(
            f"Cells of the study {study.name} have seeds for development (below {REPORT_SEEDS:,}) "
            f"and for reporting (from {REPORT_SEEDS:,} on): one table shows one of them."
        )
    return out / (f"{study.name}-report" if True in kinds else study.name)


def cell_folder(out: Path, cell: Cell) -> Path:
    return out / "cells" / cell.name


def is_done(folder: Path) -> bool:
    """A run writes its summary last."""
    return (folder / "summary.json").is_file()


def finished(out: Path, cell: Cell) -> FinishedCell | None:
    """The cell, if it is done."""
    folder = cell_folder(out, cell)
    if not is_done(folder):
        return None
    run = RunFolder.open(folder)
    return FinishedCell(cell, run, run.read_summary())


def record(out: Path, cell: Cell) -> CellRecord:
    """What became of a cell so far."""
    folder = cell_folder(out, cell)
    reason, state, seconds = "", "missing", None
    if is_done(folder):
        state, seconds = "done", RunFolder.open(folder).read_summary().get("wall_seconds")
    elif (folder / FAILURE).is_file():
        state, reason = "failed", str(read_json_object(folder / FAILURE).get("reason", ""))
    return CellRecord(
        cell.name,
        cell.env,
        cell.method,
        cell.seeds,
        cell.steps,
        state,
        seconds,
        reason,
        cell.first_seed,
    )


def steps_done(folder: Path, steps: int) -> int:
    """How far a cell has come, from the last complete line of its metrics."""
    if is_done(folder):
        return steps
    try:
        with (folder / "metrics.csv").open("rb") as file:
            file.seek(max(file.seek(0, 2) - 4096, 0))
            complete = file.read().decode(errors="replace").rpartition("\n")[0]
        return min(int(float(complete.splitlines()[-1].split(",")[0])), steps)
    except (OSError, ValueError, IndexError):
        return 0


def has_default(config: Any, name: str) -> bool:
    """Whether a setting has its default."""
    field = next(field for field in dataclasses.fields(config) if field.name == name)
    made = field.default_factory
    default = field.default if made is dataclasses.MISSING else made()
    return bool(getattr(config, name) == default)
