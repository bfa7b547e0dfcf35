"""Datasets out of runs: what the policies {π_1, π_2, …} of a run's checkpoints do, or what its replay holds.

The paper's section "Can the Samples Collected by ELEMENT Agents be Used for Offline learning?" trains offline agents on such
data. Every agent (seed) of the run acts for the same number of steps with each of the checkpoints; (s, a, s', extrinsic r,
terminated, truncated) and the position go into a Minari dataset, in the environment's own units.

A dataset is for a task, so falling ends its episodes as the task has it, although explorers train without that
(`config.resolved`). `--from-replay` takes the transitions the run was trained on instead, in the environment it trained in.

The dataset is made in a folder with a leading dot beside its final one, part by part (`collect.parts`); the same call again
goes on where one was stopped or killed. It gets its name when all of it is on the disk.
"""

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro

from element_rl.agents.host_policy import squashed_gaussian_action
from element_rl.collect.parts import Finished, Parts, Rows, Share, divide, mean_action
from element_rl.collect.source import (
    EpisodeEntropies,
    Source,
    actions_of,
    fingerprint,
    observations_of,
    replayed_episodes,
    shares_of,
    source_of,
)
from element_rl.datasets.exports import export
from element_rl.datasets.minari_files import DatasetError, EpisodeRecord
from element_rl.datasets.minari_folders import dataset_folder, require_minari
from element_rl.datasets.minari_writing import build_dataset, publish, refuse_existing
from element_rl.envs.actors import episode_seed
from element_rl.envs.collector import Collector
from element_rl.explore import Interrupted, Progress, Watcher
from element_rl.files import locked, read_json_object, removing_on_failure, to_json, write_json
from element_rl.provenance import commit, versions
from element_rl.runs import RunFolder

SETTINGS = "settings.json"
LOCK = "lock"


@dataclass(frozen=True)
class CollectConfig:
    """What to collect, and from which run."""

    run: tyro.conf.Positional[Path]  # a folder that `element explore` wrote
    dataset: str  # Minari id of the dataset to make, e.g. hopper/element-v0
    steps: int | None = None  # per seed, shared evenly by the checkpoints; with --from-replay: the newest so many (all)
    checkpoints: tuple[int, ...] = ()  # steps of the checkpoints to act with (all that the run planned, and its last)
    from_replay: bool = False  # take the replay of the run's newest checkpoint instead of acting
    deterministic: bool = False  # act with the means of the policies instead of sampling from them
    seed: int = 0  # of the noise and of the episodes
    # NAME=VALUE pairs for the environment, beside those of the run. Falling ends an episode as the task has it, also where the
    # run trained without that; terminate_when_unhealthy=false has it not do so
    env_options: tuple[str, ...] = ()
    entropy: bool = True  # measure the entropy of every episode (0.1 s for one of 1000 steps)
    export: Literal["npz", "safetensors"] | None = None  # also write flat arrays, for tools that do not read Minari
    out: Path | None = None  # the folder of all datasets (Minari's own)
    workers: int | None = None  # environment processes (one per seed); 0 steps them in this process

    def __post_init__(self) -> None:
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"--steps must be at least 1, got {self.steps}.")
        if self.seed < 0:
            raise ValueError(f"--seed must not be negative, got {self.seed}.")


def collect(
    config: CollectConfig, watch: Watcher = lambda progress: None, stop: Callable[[], bool] = lambda: False
) -> Path:
    """Makes the dataset, or goes on with one that was stopped; its folder. Raises `Interrupted` when told to stop."""
    require_minari()
    final = dataset_folder(config.dataset, config.out)
    workplace = final.with_name(f".{final.name}.parts")
    if final.exists():
        shutil.rmtree(workplace, ignore_errors=True)  # of a process that was killed when the dataset was done
    refuse_existing(config.dataset, final)
    source = source_of(RunFolder.open(config.run), config.env_options, of_the_task=not config.from_replay)
    if config.from_replay:
        _refuse_with_replay(config)
        shares: list[Share] = []
    elif config.steps is None:
        raise ValueError(
            "Say with --steps how many steps every seed is to act, or take what is there with --from-replay."
        )
    else:
        shares = shares_of(source, config.steps, config.checkpoints)
    width = source.spec.observation_dim + source.spec.action_dim + source.spec.position_dim + 3
    division = divide(max((share.steps for share in shares), default=1), len(source.seeds), width)
    settings = _settings(config, source, shares) | {"division": division._asdict()}
    with _claimed(workplace, config.dataset, settings):
        parts = Parts(workplace, shares, len(source.seeds), division)
        if not config.from_replay:
            _act(config, source, parts, watch, stop)
        about = _about(config, source, shares, settings)
        episodes = _replayed(config, source, watch, stop) if config.from_replay else _acted(source, parts, config)
        made = workplace / "dataset"
        with removing_on_failure(made, final):
            spaces = (source.observation_space, source.action_space)
            build_dataset(made, config.dataset, episodes, *spaces, source.env_spec, about)
            if config.export is not None:  # before the dataset has its name: there is none without its export
                export(made, final.with_name(f"{final.name}.{config.export}"))
            publish(made, final, config.out)
    shutil.rmtree(workplace, ignore_errors=True)
    return final


def _act(config: CollectConfig, source: Source, parts: Parts, watch: Watcher, stop: Callable[[], bool]) -> None:
    """Makes the parts that are missing."""
    assert config.steps is not None
    if not parts.missing():
        return
    entropies = EpisodeEntropies(source) if config.entropy else None
    returns: list[float] = []
    done, began, total = parts.steps_done(), time.perf_counter(), config.steps
    at_start = done

    def measure(agent: int, rows: Rows) -> float:
        return entropies(agent, rows) if entropies is not None else float("nan")

    def after_chunk(steps: int, finished: list[Finished]) -> None:
        nonlocal done
        done += steps
        returns.extend(float(episode.rows["extrinsic_reward"].sum()) for episode in finished)
        rate = (done - at_start) * len(source.seeds) / max(time.perf_counter() - began, 1e-9)
        latest = {"extrinsic_return": float(np.mean(returns[-100:]))} if returns else {}
        watch(Progress(done, total, rate, latest))
        if stop() and done < total:
            raise Interrupted(parts.steps_done())

    parameters = parts.shares[0].parameters or {}
    with Collector(
        source.spec.name,
        _collector_seeds(config, source),
        parts.division.chunk_steps,
        (mean_action if config.deterministic else squashed_gaussian_action) if parameters else None,
        {name: array.shape[1:] for name, array in parameters.items()},
        env_options=source.env_options,
        num_workers=config.workers,
    ) as collector:
        parts.record(collector, measure, after_chunk)


def _acted(source: Source, parts: Parts, config: CollectConfig) -> Iterator[EpisodeRecord]:
    seeds = _collector_seeds(config, source)
    for share, episode, entropy in parts.episodes():
        metadata = {
            "policy": share.checkpoint,
            "agent": episode.agent,
            "agent_seed": source.seeds[episode.agent],
            "seed": episode_seed(seeds[episode.agent], episode.number),
            "entropy": entropy if np.isfinite(entropy) else None,
        }
        yield _record(source, episode.rows, metadata)


def _replayed(
    config: CollectConfig, source: Source, watch: Watcher, stop: Callable[[], bool]
) -> Iterator[EpisodeRecord]:
    entropies = EpisodeEntropies(source) if config.entropy else None
    done, began = 0, time.perf_counter()
    for agent, rows in replayed_episodes(source, config.steps):
        if stop():
            raise Interrupted(0)
        entropy = entropies(agent, rows) if entropies is not None else None
        yield _record(source, rows, {"agent": agent, "agent_seed": source.seeds[agent], "entropy": entropy})
        done += len(rows["action"]) - 1
        watch(Progress(done, 0, done / max(time.perf_counter() - began, 1e-9), {}))


def _record(source: Source, rows: Rows, metadata: dict[str, Any]) -> EpisodeRecord:
    return EpisodeRecord(
        observations=observations_of(source, rows),
        actions=actions_of(source, rows["action"][:-1]),
        rewards=rows["extrinsic_reward"][:-1],
        terminations=rows["terminated"][:-1],
        truncations=rows["truncated"][:-1],
        infos={"position": rows["position"]} if source.spec.position_dim else {},
        metadata=metadata | {"return": float(rows["extrinsic_reward"].sum())},
    )


def _collector_seeds(config: CollectConfig, source: Source) -> list[int]:
    """Of the agents while they act: others than in training, so that they meet episodes of their own."""
    return [int(np.random.SeedSequence([config.seed, seed]).generate_state(1, np.uint64)[0]) for seed in source.seeds]


@contextlib.contextmanager
def _claimed(workplace: Path, name: str, settings: dict[str, Any]) -> Iterator[None]:
    """The folder of the parts, for this process alone, with what an earlier one left there if it had the same settings."""
    path = workplace / SETTINGS
    with removing_on_failure(workplace / "nothing", workplace):
        workplace.mkdir(parents=True, exist_ok=True)
        (workplace / LOCK).touch()
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(locked(workplace / LOCK))
        except BlockingIOError:
            sentence = f"Another process is collecting the dataset {name}: wait for it, or choose another name."
            raise DatasetError(sentence) from None
        if _has_parts(workplace):
            _refuse_other_settings(workplace, name, read_json_object(path, f"remove {workplace}"), to_json(settings))
        else:
            write_json(path, settings)
        shutil.rmtree(workplace / "dataset", ignore_errors=True)  # a killed process was building it
        try:
            yield
        finally:
            if not _has_parts(workplace):  # nothing to go on with
                shutil.rmtree(workplace, ignore_errors=True)


def _has_parts(workplace: Path) -> bool:
    return any(workplace.glob("part_*"))


def _refuse_other_settings(workplace: Path, name: str, before: dict[str, Any], now: dict[str, Any]) -> None:
    fields = [field for field in now if before.get(field) != now[field]]
    if fields:
        changes = ", ".join(f"{field} was {before.get(field)} and is {now[field]}" for field in fields)
        raise DatasetError(
            f"An unfinished collection of the dataset {name} has other settings ({changes}): repeat its command to finish "
            f"it, choose another name, or remove {workplace} to begin anew."
        )


def _settings(config: CollectConfig, source: Source, shares: list[Share]) -> dict[str, Any]:
    """All that decides what the dataset holds."""
    named = ("from_replay", "steps", "seed", "deterministic", "entropy")
    newest = source.run.latest_checkpoint()
    checkpoints = [share.checkpoint for share in shares] or ([] if newest is None else [newest])
    return {name: value for name, value in asdict(config).items() if name in named} | {
        "run": source.run.path.resolve().name,
        "env": source.spec.name,
        "env_options": dict(source.env_options),
        "reward": source.reward,
        "agent_seeds": list(source.seeds),
        "checkpoints": checkpoints,
        "policies": [fingerprint(source.run, checkpoint) for checkpoint in checkpoints],
    }


def _about(config: CollectConfig, source: Source, shares: list[Share], settings: dict[str, Any]) -> dict[str, Any]:
    agents = f"{len(source.seeds)} agent{'s' if len(source.seeds) > 1 else ''}"
    trained = "acted at random" if source.reward == "random" else f"trained with the reward {source.reward}"
    origin = "the transitions they were trained on"
    if not config.from_replay:
        kind = "mean" if config.deterministic else "sampled"
        listed = ", ".join(f"{share.checkpoint:,}" for share in shares)
        origin = f"{config.steps:,} steps of each, with {kind} actions of the policies after {listed} steps"
    requirements = ["gymnasium>=1.0"]
    entry = str(source.env_spec.entry_point)
    requirements += ["mujoco>=3.2"] if "mujoco" in entry else []
    requirements += ["element-rl"] if entry.startswith("element_rl") else []
    return {
        "algorithm_name": source.reward,
        "author": ["element-rl"],
        "description": f"{source.spec.name}: {agents} {trained}; {origin}.",
        "requirements": requirements,
        "element_rl": {
            "run": source.run.config,
            "collect": settings,
            "versions": versions(),
            "commit": commit(),
        },
    }


def _refuse_with_replay(config: CollectConfig) -> None:
    for name, given in (
        ("checkpoints", config.checkpoints),
        ("deterministic", config.deterministic),
        ("env-options", config.env_options),
    ):
        if given:
            raise ValueError(f"--{name} cannot be used with --from-replay, which takes what the run did: leave it out.")
