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
(`datasets.collecting.parts`); the same call again goes on where one was stopped or killed. It gets
its name when all of it is on the disk.
"""

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from element_rl.datasets.collecting.agents import (
    TrainedAgents,
    agents_of,
    contributions_of,
    fingerprint,
)
from element_rl.datasets.collecting.config import CollectConfig
from element_rl.datasets.collecting.holdings import Holdings, healthy_ranges
from element_rl.datasets.collecting.parts import FORMAT, Collection, Contribution
from element_rl.datasets.collecting.records import acted, collection_of, replayed
from element_rl.datasets.exports import export, require_format
from element_rl.datasets.minari_folders import DatasetError, dataset_folder, require_minari
from element_rl.datasets.minari_writing import DatasetWriter, publish, refuse_existing
from element_rl.envs.make import make_env
from element_rl.envs.names import MARIO
from element_rl.envs.robots import can_fall
from element_rl.runs.folder import RunError, RunFolder
from element_rl.runs.kinds import kind_of, require_kind
from element_rl.runs.provenance import commit, versions
from element_rl.runs.watching import Watcher
from element_rl.storage.capacity import refuse_beyond_disk
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
    agents = _agents_of(config)
    contributions = _contributions(config, agents)
    collection = collection_of(config, agents, contributions, workplace)
    _refuse_beyond_disk(agents, contributions, workplace)
    settings = _settings(config, agents, contributions, collection)
    with _claimed(workplace, config.dataset, settings | {"parts": FORMAT}):
        # another process may have finished it until this one had the folder
        refuse_existing(config.dataset, final)
        episodes = (
            replayed(config, agents, watch, stop)
            if config.from_replay
            else acted(config, agents, collection, watch, stop)
        )
        made = workplace / "dataset"
        with removing_on_failure(made, final):
            spaces = (agents.observation_space, agents.action_space)
            about = _about(config, agents, contributions, settings)
            writer = DatasetWriter(made, config.dataset, *spaces, agents.env_spec, about)
            holdings = Holdings(agents.spec, _upright_ranges(agents))
            writer.write(holdings.counted(episodes, into=about["element_rl"]))
            # before the dataset has its name: there is none without its export
            if exported is not None:
                export(made, exported)
            publish(made, final, config.out)
    return final


def _agents_of(config: CollectConfig) -> TrainedAgents:
    run = RunFolder.open(config.run)
    require_kind(run, ("explore", "on-policy"), "collecting")
    if config.from_replay:
        _refuse_with_replay(config, run)
    return agents_of(run, config.env_options, of_the_task=not config.from_replay)


def _contributions(config: CollectConfig, agents: TrainedAgents) -> list[Contribution]:
    if config.from_replay:
        return []
    if config.steps is None:
        raise ValueError(
            "Say with --steps how many steps every seed is to act, or take what is there with "
            "--from-replay."
        )
    return contributions_of(agents, config.steps, config.checkpoints)


def _refuse_beyond_disk(
    agents: TrainedAgents, contributions: list[Contribution], workplace: Path
) -> None:
    steps = sum(contribution.steps for contribution in contributions)
    refuse_beyond_disk(
        f"{steps:,} steps of each of {len(agents.seeds)} agents",
        workplace,
        # frames are compressed, by no more than this
        steps * len(agents.seeds) * (16 if agents.on_policy else 4 * agents.spec.observation_dim),
    )


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
            raise DatasetError(
                f"Another process is collecting the dataset {name}: wait for it, or choose another "
                "name."
            ) from None


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
            f"repeat its command to finish it, choose another name, or remove {workplace} to begin "
            "anew."
        )


def _settings(
    config: CollectConfig,
    agents: TrainedAgents,
    contributions: list[Contribution],
    collection: Collection,
) -> dict[str, Any]:
    """All that decides what the dataset holds."""
    names = ("from_replay", "steps", "seed", "deterministic", "entropy")
    newest = agents.run.latest_checkpoint()
    checkpoints = [contribution.checkpoint for contribution in contributions]
    if not contributions and newest is not None:
        checkpoints = [newest]
    return {
        **{name: getattr(config, name) for name in names},
        "run": agents.run.path.resolve().name,
        "env": agents.spec.name,
        "env_options": dict(agents.env_options),
        "reward": agents.reward,
        "agent_seeds": list(agents.seeds),
        "checkpoints": checkpoints,
        "policies": [fingerprint(agents.run, checkpoint) for checkpoint in checkpoints],
        **collection.settings,
    }


def _about(
    config: CollectConfig,
    agents: TrainedAgents,
    contributions: list[Contribution],
    settings: dict[str, Any],
) -> dict[str, Any]:
    number = f"{len(agents.seeds)} agent{'s' if len(agents.seeds) > 1 else ''}"
    trained = f"trained with the reward {agents.reward}"
    if agents.act_at_random:
        trained = "acted at random"
    origin = "the transitions they were trained on"
    if not config.from_replay:
        actions = "sampled"
        if config.deterministic:
            actions = "the likeliest" if agents.spec.chooses else "mean"
        listed = ", ".join(f"{contribution.checkpoint:,}" for contribution in contributions)
        origin = (
            f"{config.steps:,} steps of each, with {actions} actions of the policies after "
            f"{listed} steps"
        )
    requirements = ["gymnasium>=1.0"]
    entry = str(agents.env_spec.entry_point)
    requirements += ["mujoco>=3.5"] if "mujoco" in entry else []
    entries = (entry, *(wrapper.entry_point for wrapper in agents.env_spec.additional_wrappers))
    if any(name.startswith("element_rl") for name in entries):
        requirements.append("element-rl[mario]" if agents.spec.name == MARIO else "element-rl")
    return {
        "algorithm_name": agents.reward,
        "author": ["element-rl"],
        "description": f"{agents.spec.name}: {number} {trained}; {origin}.",
        "requirements": requirements,
        "element_rl": {
            "run": _portable(agents.run.config),
            "collect": settings,
            "versions": versions(),
            "commit": commit(),
        },
    }


def _upright_ranges(agents: TrainedAgents) -> dict[int, tuple[float, float]]:
    if not can_fall(agents.spec.name):
        return {}
    with contextlib.closing(make_env(agents.spec.name, **agents.env_options)) as env:
        return healthy_ranges(env, agents.env_options)


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
