"""Offline learning: a population of agents on fixed datasets, evaluated while it learns, resumable.

    config = OfflineConfig(("hopper/element-v0",), seeds=3)
    run = create_offline_run(config, Path("runs/hopper-cql"))
    summary = train_offline(config, run)

Each line of metrics is about one number of updates: the losses since the line before, and the
returns of the policies as they were then. The episodes for it run in processes of their own while
the device goes on learning. A checkpoint waits for them, so that it knows every line before it; a
resumed run equals the undisturbed one bit for bit on a CPU.
"""

import contextlib
import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from element_rl.acting.evaluator import Evaluator, default_workers
from element_rl.envs.make import describe
from element_rl.runs.folder import RunFolder
from element_rl.runs.launch import MAY_DIFFER, coverage_facts, create_run, reopen_run
from element_rl.runs.metrics_log import FINAL_SHARE
from element_rl.runs.provenance import commit, hardware, versions
from element_rl.runs.watching import COMPILING, Interrupted, Progress, Watcher
from element_rl.storage.trees import arrays_to_tree, tree_to_arrays
from element_rl.training.offline.config import OfflineConfig
from element_rl.training.offline.data import OfflineData, load_data
from element_rl.training.offline.learner import make_agent, make_learner
from element_rl.training.settings import refuse_large_agents

# `seed` tells agents apart; `dataset` counts from 0, in the order of the settings; `agent` is the
# one that made the episodes.
FIRST_COLUMNS = (
    "step",
    "seed",
    "dataset",
    "agent",
    "extrinsic_return",
    "normalised_score",
    "episode_length",
)
LAST_COLUMNS = ("updates_per_second", "wall_seconds")
EVALUATIONS, CHECKPOINTS = 20, 5  # of a run, unless told otherwise


def train_offline(
    config: OfflineConfig,
    run: RunFolder,
    watch: Watcher = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
    resume: bool = False,
    wait_seconds: float = 0.0,
) -> dict[str, Any]:
    """Train, leaving metrics, checkpoints and a summary in the run folder; the summary.

    `wait_seconds`: how long to wait for another process that is still training in the folder.
    """
    config, source = resolved_offline(config)
    with (
        run.exclusively(wait_seconds),
        contextlib.closing(OfflineTraining(config, source, run)) as training,
    ):
        if resume and run.latest_checkpoint() is not None:
            training.restore()
        elif resume:
            run.truncate_metrics(-1)  # killed before its first checkpoint: from the beginning
        training.train(watch, stop)
        summary = training.summary()
        run.write_summary(summary)
    return summary


def create_offline_run(config: OfflineConfig, folder: Path) -> RunFolder:
    """A new run folder; nothing is written where the settings or the datasets are wrong."""
    config, source = resolved_offline(config)
    refuse_large_agents(make_agent(config, source).create, config.seeds * len(source.portions))
    coverage: dict[str, Any] = {"coverage_bounds": None, "coverage_axes": None}
    if config.evaluate and (source.screen or not source.discrete):
        spec = describe(source.env, **source.env_options)
        coverage = coverage_facts(spec)
    facts = {
        "env": source.env,
        "reward": config.algorithm,  # what figures call the run
        "sees_frames": source.screen,
        **coverage,
    }
    return create_run("offline", config, folder, offline_columns(config, source), facts)


def reopen_offline_run(config: OfflineConfig, folder: Path) -> RunFolder:
    """The run in a folder, to be continued; refused where it was started with other settings."""
    config, source = resolved_offline(config)
    columns, may_differ = offline_columns(config, source), (*MAY_DIFFER, "workers", "chunk_updates")
    return reopen_run("offline", config, folder, columns, may_differ)


def resolved_offline(config: OfflineConfig) -> tuple[OfflineConfig, OfflineData]:
    """The settings with nothing left open, and the data."""
    source = load_data(config)
    options = tuple(f"{name}={json.dumps(value)}" for name, value in source.env_options.items())
    config = dataclasses.replace(
        config,
        env=source.env,
        env_options=options,
        evaluate_every=config.evaluate_every or max(config.steps // EVALUATIONS, 1),
        checkpoint_every=config.checkpoint_every or max(config.steps // CHECKPOINTS, 1),
    )
    return config, source


def offline_columns(config: OfflineConfig, source: OfflineData) -> tuple[str, ...]:
    """The header of metrics.csv."""
    return (*FIRST_COLUMNS, *make_agent(config, source).metric_names, *LAST_COLUMNS)


class OfflineTraining:
    """A population in training."""

    def __init__(self, config: OfflineConfig, source: OfflineData, run: RunFolder) -> None:
        self.config, self.run = config, run
        self.discrete, self.env_of_datasets = source.discrete, source.env_of_datasets
        self.learner = make_learner(config, source)
        self.portions, self.seeds = self.learner.portions, self.learner.seeds
        self.evaluator: Evaluator | None = None
        if config.evaluate:
            episodes = config.episodes * len(self.portions)
            given = config.workers
            workers = default_workers(episodes) if given is None else min(given, episodes)
            self.evaluator = Evaluator(
                source.env, source.env_options, workers, source.make_environment
            )
        self.logged = 0  # updates at the last line of metrics
        self.seconds = 0.0  # of training, over all resumptions
        self.latest: dict[str, float] = {}
        self._unwritten: list[dict[str, Any]] = []  # lines that wait for their returns

    @property
    def step(self) -> int:
        """Updates done, per agent."""
        return self.learner.updates

    def train(self, watch: Watcher, stop: Callable[[], bool]) -> None:
        """Learn until the updates are done. Raises `Interrupted`, at a checkpoint, when told to
        stop."""
        config = self.config
        assert config.evaluate_every is not None
        assert config.checkpoint_every is not None
        watch(self._progress(doing=COMPILING if self.step < config.steps else ""))
        while self.step < config.steps:
            began = time.perf_counter()
            intervals = (config.evaluate_every, config.checkpoint_every)
            end = min(config.steps, *((self.step // every + 1) * every for every in intervals))
            self.learner.update(min(config.chunk_updates, end - self.step))
            done = self.step >= config.steps
            if done or self.step % config.evaluate_every == 0:
                self._begin_line(began)
            elif self.evaluator is not None and self.evaluator.done():
                self._finish_line()
            stopping = stop() and not done
            if done or stopping or self.step % config.checkpoint_every == 0:
                self._finish_line()
                self.seconds += time.perf_counter() - began
                self.save()
            else:
                self.seconds += time.perf_counter() - began
            watch(self._progress())
            if stopping:
                raise Interrupted(self.step)

    def _progress(self, doing: str = "") -> Progress:
        agents = len(self.seeds)
        rate = self.step * agents / max(self.seconds, 1e-9)
        return Progress(self.step, self.config.steps, rate, self.latest, agents, doing)

    def save(self) -> None:
        """Write a checkpoint."""
        counters = {"updates": self.step, "logged": self.logged, "seconds": self.seconds}
        arrays = {f"counters/{name}": np.array(value) for name, value in counters.items()}
        state = {"agents": self.learner.agents, "sums": self.learner.sums}
        self.run.save_checkpoint(
            self.step,
            self.learner.parameters(),
            None,
            arrays | tree_to_arrays(state, "learner"),
            {"step": self.step, "seconds": self.seconds},
        )

    def restore(self) -> None:
        """Go back to the newest checkpoint."""
        arrays, _, _ = self.run.load_resume()
        state = {"agents": self.learner.agents, "sums": self.learner.sums}
        stored = {name: array for name, array in arrays.items() if name.startswith("learner/")}
        state = arrays_to_tree(state, stored, "learner")
        self.learner.agents, self.learner.sums = state["agents"], state["sums"]
        self.learner.updates, self.logged = (
            int(arrays[f"counters/{name}"]) for name in ("updates", "logged")
        )
        self.seconds = float(arrays["counters/seconds"])
        self.run.truncate_metrics(self.step)

    def summary(self) -> dict[str, Any]:
        """What the run came to; a list has an entry per agent of the population."""
        config = self.config
        logged = self.run.read_metrics()
        recent = logged["step"] > (1 - FINAL_SHARE) * self.step
        final = {}
        for name in ("extrinsic_return", "normalised_score", "episode_length"):
            values = [logged[name][recent & (logged["seed"] == seed)] for seed in self.seeds]
            final[name] = [float(np.nanmean(v)) if np.isfinite(v).any() else None for v in values]
        return {
            "env": config.env,
            "env_of_datasets": self.env_of_datasets,
            "algorithm": config.algorithm,
            "discrete": self.discrete,
            "steps": self.step,
            "seeds": self.seeds,
            "datasets": [config.datasets[portion.dataset] for portion in self.portions],
            "agents": [portion.agent for portion in self.portions],
            "transitions": [portion.count for portion in self.portions],
            "behaviour_return": [portion.behaviour_return for portion in self.portions],
            "best_behaviour_return": [portion.best_return for portion in self.portions],
            "value_range": [portion.value_range for portion in self.portions],
            **final,
            "score_range": config.score_range,
            "wall_seconds": self.seconds,
            "updates_per_second": self.step * len(self.seeds) / max(self.seconds, 1e-9),
            "versions": versions(),
            "commit": commit(),
            "hardware": hardware(),
        }

    def close(self) -> None:
        if self.evaluator is not None:
            self.evaluator.close()

    def _begin_line(self, began: float) -> None:
        """A line of metrics for this step, and the episodes that it needs."""
        self._finish_line()
        sums = self.learner.take_sums()  # waits for the device
        seconds = self.seconds + time.perf_counter() - began
        losses = {name: values / (self.step - self.logged) for name, values in sums.items()}
        timing = {
            "updates_per_second": self.step * len(self.seeds) / max(seconds, 1e-9),
            "wall_seconds": seconds,
        }
        self._unwritten = [
            {"step": self.step, "seed": seed, "dataset": portion.dataset, "agent": portion.agent}
            | {name: values[index] for name, values in losses.items()}
            | timing
            for index, (seed, portion) in enumerate(zip(self.seeds, self.portions, strict=True))
        ]
        self.logged = self.step
        if self.evaluator is not None:
            seeds = [
                [(seed, self.step, episode) for episode in range(self.config.episodes)]
                for seed in self.seeds
            ]
            self.evaluator.start(self.learner.parameters(), seeds)

    def _finish_line(self) -> None:
        """Write the line that waits for its returns, if there is one."""
        if not self._unwritten:
            return
        if self.evaluator is not None:
            returns, lengths = self.evaluator.wait()
            for agent, row in enumerate(self._unwritten):
                mean = float(np.mean(returns[agent]))
                row |= {"extrinsic_return": mean, "episode_length": float(np.mean(lengths[agent]))}
                if self.config.score_range is not None:
                    random, expert = self.config.score_range
                    row["normalised_score"] = (mean - random) / (expert - random)
        self.run.append_metrics(self._unwritten)
        numbers = set(self._unwritten[0]) - {"step", "seed", "dataset", "agent"}
        self.latest = {
            name: float(np.mean([row[name] for row in self._unwritten])) for name in numbers
        }
        self._unwritten = []
