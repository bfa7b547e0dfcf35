"""Datasets out of runs: what the policies {π_1, π_2, …} of a run's checkpoints do, or what its
replay holds.

The paper's section "Can the Samples Collected by ELEMENT Agents be Used for Offline learning?"
trains offline agents on such data. Every agent (seed) of the run acts for the same number of steps
with each of the checkpoints; (s, a, s', extrinsic r, terminated, truncated) and the position go
into a Minari dataset, in the environment's own units.

A dataset is for a task, so falling ends its episodes as the task has it, although explorers train
without that (`config.resolved`). `--from-replay` takes the transitions the run was trained on
instead, in the environment it trained in.

The dataset is made in a folder with a leading dot beside its final one, part by part
(`datasets.collecting.parts`, on screens `datasets.collecting.screens`); the same call again goes on
where one was stopped or killed. It gets its name when all of it is on the disk.
"""

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from element_rl.datasets.collecting import robots, screens
from element_rl.datasets.collecting.config import CollectConfig
from element_rl.datasets.collecting.parts import Share
from element_rl.datasets.collecting.screen_source import ScreenSource, screen_source_of
from element_rl.datasets.collecting.source import Source, fingerprint, shares_of, source_of
from element_rl.datasets.exports import export, require_format
from element_rl.datasets.minari_files import DatasetError, EpisodeRecord
from element_rl.datasets.minari_folders import dataset_folder, require_minari
from element_rl.datasets.minari_writing import build_dataset, publish, refuse_existing
from element_rl.envs.names import MARIO
from element_rl.runs.folder import RunError, RunFolder
from element_rl.runs.kinds import kind_of
from element_rl.runs.provenance import commit, versions
from element_rl.runs.watching import Watcher
from element_rl.storage.files import read_json_object, removing_on_failure, to_json, write_json
from element_rl.storage.locks import locked

SETTINGS = "settings.json"
LOCK = "lock"


def collect(
    config: CollectConfig,
    watch: Watcher = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
) -> Path:
    """Makes the dataset, or goes on with one that was stopped; its folder. Raises `Interrupted`
    when told to stop."""
    require_minari()
    final = dataset_folder(config.dataset, config.out)
    exported = None if config.export is None else final.with_name(f"{final.name}.{config.export}")
    if exported is not None:
        require_format(exported)  # before anything acts
    workplace = final.with_name(f".{final.name}.parts")
    if final.exists():
        # of a process that was killed when the dataset was done
        shutil.rmtree(workplace, ignore_errors=True)
    refuse_existing(config.dataset, final)
    source = _source_of(config)
    shares = _shares(config, source)
    settings = _settings(config, source, shares)
    with _claimed(workplace, config.dataset, settings):
        # another process may have finished it until this one had the folder
        refuse_existing(config.dataset, final)
        episodes = _episodes(config, source, shares, workplace, watch, stop)
        made = workplace / "dataset"
        with removing_on_failure(made, final):
            spaces = (source.observation_space, source.action_space)
            about = _about(config, source, shares, settings)
            build_dataset(made, config.dataset, episodes, *spaces, source.env_spec, about)
            # before the dataset has its name: there is none without its export
            if exported is not None:
                export(made, exported)
            publish(made, final, config.out)
    return final


def _source_of(config: CollectConfig) -> Source | ScreenSource:
    """The run, of either kind, with the environment that the dataset is of."""
    run = RunFolder.open(config.run)
    if config.from_replay:
        _refuse_with_replay(config, run)
    if kind_of(run.config) == "on-policy":
        return screen_source_of(run, config.env_options)
    return source_of(run, config.env_options, of_the_task=not config.from_replay)


def _shares(config: CollectConfig, source: Source | ScreenSource) -> list[Share]:
    if config.from_replay:
        return []
    if config.steps is None:
        raise ValueError(
            "Say with --steps how many steps every seed is to act, or take what is there with "
            "--from-replay."
        )
    return shares_of(source, config.steps, config.checkpoints)


def _episodes(
    config: CollectConfig,
    source: Source | ScreenSource,
    shares: list[Share],
    workplace: Path,
    watch: Watcher,
    stop: Callable[[], bool],
) -> Iterator[EpisodeRecord]:
    """Acts until all parts are there; then the episodes in them, or those of the replay."""
    seeds = _collector_seeds(config, source)
    if isinstance(source, ScreenSource):
        return screens.acted(config, source, shares, seeds, workplace, watch, stop)
    if config.from_replay:
        return robots.replayed(config, source, watch, stop)
    return robots.acted(config, source, shares, seeds, workplace, watch, stop)


def _collector_seeds(config: CollectConfig, source: Source | ScreenSource) -> list[int]:
    """Of the agents while they act: others than in training, so that they meet episodes of their
    own."""
    return [
        int(np.random.SeedSequence([config.seed, seed]).generate_state(1, np.uint64)[0])
        for seed in source.seeds
    ]


@contextlib.contextmanager
def _claimed(workplace: Path, name: str, settings: dict[str, Any]) -> Iterator[None]:
    """The folder of the parts, for this process alone, with what an earlier one left there if it
    had the same settings."""
    path = workplace / SETTINGS
    with contextlib.ExitStack() as held:
        _take(workplace, name, held)
        if _has_parts(workplace):
            _refuse_other_settings(
                workplace, name, read_json_object(path, f"remove {workplace}"), to_json(settings)
            )
        else:
            write_json(path, settings)
        shutil.rmtree(workplace / "dataset", ignore_errors=True)  # a killed process was building it
        try:
            yield
        except BaseException:
            if not _has_parts(workplace):  # nothing to go on with
                shutil.rmtree(workplace, ignore_errors=True)
            raise
        # it is done; while the folder is still this process's own
        shutil.rmtree(workplace, ignore_errors=True)


def _take(workplace: Path, name: str, held: contextlib.ExitStack) -> None:
    """Makes the folder of the parts where there is none, and locks it."""
    while True:
        with removing_on_failure(workplace / "nothing", workplace):
            workplace.mkdir(parents=True, exist_ok=True)
        try:
            (workplace / LOCK).touch()
            held.enter_context(locked(workplace / LOCK))
            return
        # in this moment another process was done with the folder and removed it
        except FileNotFoundError:
            continue
        except BlockingIOError:
            sentence = f"Another process is collecting the dataset {name}: wait for it, or choose another name."
            raise DatasetError(sentence) from None


def _has_parts(workplace: Path) -> bool:
    return any(workplace.glob("part_*"))


def _refuse_other_settings(
    workplace: Path, name: str, before: dict[str, Any], now: dict[str, Any]
) -> None:
    fields = [field for field in now if before.get(field) != now[field]]
    if fields:
        changes = ", ".join(
            f"{field} was {before.get(field)} and is {now[field]}" for field in fields
        )
        raise DatasetError(
            f"An unfinished collection of the dataset {name} has other settings ({changes}): "
            "repeat its command to finish "
            f"it, choose another name, or remove {workplace} to begin anew."
        )


def _settings(
    config: CollectConfig, source: Source | ScreenSource, shares: list[Share]
) -> dict[str, Any]:
    """All that decides what the dataset holds."""
    named = ("from_replay", "steps", "seed", "deterministic", "entropy")
    newest = source.run.latest_checkpoint()
    checkpoints = [share.checkpoint for share in shares] or ([] if newest is None else [newest])
    return (
        {name: value for name, value in asdict(config).items() if name in named}
        | {
            "run": source.run.path.resolve().name,
            "env": source.spec.name,
            "env_options": dict(source.env_options),
            "reward": source.reward,
            "agent_seeds": list(source.seeds),
            "checkpoints": checkpoints,
            "policies": [fingerprint(source.run, checkpoint) for checkpoint in checkpoints],
        }
        | (
            {"division": robots.division_of(source, shares)._asdict()}
            if isinstance(source, Source)
            else {}
        )
    )


def _about(
    config: CollectConfig,
    source: Source | ScreenSource,
    shares: list[Share],
    settings: dict[str, Any],
) -> dict[str, Any]:
    agents = f"{len(source.seeds)} agent{'s' if len(source.seeds) > 1 else ''}"
    trained = (
        "acted at random"
        if source.reward == "random"
        else f"trained with the reward {source.reward}"
    )
    origin = "the transitions they were trained on"
    if not config.from_replay:
        kind = (
            ("mean" if isinstance(source, Source) else "the likeliest")
            if config.deterministic
            else "sampled"
        )
        listed = ", ".join(f"{share.checkpoint:,}" for share in shares)
        origin = f"{config.steps:,} steps of each, with {kind} actions of the policies after {listed} steps"
    requirements = ["gymnasium>=1.0"]
    entry = str(source.env_spec.entry_point)
    requirements += ["mujoco>=3.5"] if "mujoco" in entry else []
    if isinstance(source, ScreenSource) or entry.startswith("element_rl"):
        requirements.append("element-rl[mario]" if source.spec.name == MARIO else "element-rl")
    return {
        "algorithm_name": source.reward,
        "author": ["element-rl"],
        "description": f"{source.spec.name}: {agents} {trained}; {origin}.",
        "requirements": requirements,
        "element_rl": {
            "run": _portable(source.run.config),
            "collect": settings,
            "versions": versions(),
            "commit": commit(),
        },
    }


def _portable(config: Mapping[str, Any]) -> dict[str, Any]:
    """A run's settings without the places of other files: of an encoder, or of a run to begin with,
    the name will do."""
    settings = dict(config["settings"])
    paths = {name: Path(settings[name]).name for name in ("encoder", "begin") if settings.get(name)}
    return {**config, "settings": settings | paths}


def _refuse_with_replay(config: CollectConfig, run: RunFolder) -> None:
    if kind_of(run.config) == "on-policy":
        raise RunError(
            f"The run {run.path} is on-policy and keeps no replay: collect without --from-replay."
        )
    for name, given in (
        ("checkpoints", config.checkpoints),
        ("deterministic", config.deterministic),
        ("env-options", config.env_options),
    ):
        if given:
            raise ValueError(
                f"--{name} cannot be used with --from-replay, which takes what the run did: leave "
                "it out."
            )
