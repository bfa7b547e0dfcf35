"""The kinds of runs. `config.json` says under "kind" which one a run is.

explore      a population with a replay, trained by `element explore`, or by `element finetune`
on-policy    A3C on frames, trained by `element on-policy`, `mario` or `finetune`; or PPO
offline      agents that learn from datasets, of vectors or of frames
encoder      an encoder of frames
collect      a dataset, made as a cell of a study
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from element_rl.runs.folder import RunError, RunFolder
from element_rl.storage.files import Entries
from element_rl.storage.settings import settings_from_json

Settings = TypeVar("Settings")


@dataclass(frozen=True)
class Kind:
    """What is common to all runs of a kind."""

    continued_with: str  # how a run is continued; {} stands for its folder
    # whether its agents see frames, not vectors; None: config.json says it under "sees_frames"
    sees_frames: bool | None


KINDS = {
    "explore": Kind("element explore --resume {}", sees_frames=False),
    "on-policy": Kind("element on-policy --resume {}", sees_frames=True),
    "offline": Kind("element offline --resume {}", sees_frames=None),
    "encoder": Kind("element pretrain-encoder --resume {}", sees_frames=True),
    "collect": Kind("the study that it is a cell of", sees_frames=None),
}


def kind_of(config: Mapping[str, Any]) -> str:
    """The kind of the run with this config.json. Older runs do not name it; what only their kind
    has tells it."""
    if "kind" in config:
        if config["kind"] not in KINDS:
            of_file = f" in {config.path}" if isinstance(config, Entries) else ""
            raise RunError(
                f'There is no kind of runs {config["kind"]!r}, as "kind"{of_file} has it: restore '
                "the file from a copy, or use the version that wrote it."
            )
        return str(config["kind"])
    settings = config.get("settings") or {}
    if config.get("on_policy"):
        return "on-policy"
    if "frame_shape" in config:
        return "encoder"
    return (
        "offline" if "datasets" in settings else "collect" if "dataset" in settings else "explore"
    )


def sees_frames(config: Mapping[str, Any]) -> bool:
    """Whether the agents of the run with this config.json see frames; others see vectors."""
    by_kind = KINDS[kind_of(config)].sees_frames
    if by_kind is not None and "sees_frames" not in config:  # PPO's runs say it
        return by_kind
    # Older offline runs kept the cells of the map only where their environment shows frames.
    return bool(config.get("sees_frames", "coverage_cells" in config))


def require_kind(run: RunFolder, kinds: Sequence[str], use: str) -> None:
    """Refuses a run of a kind that some use is not for."""
    found = kind_of(run.config)
    if found not in kinds:
        raise RunError(
            f"{run.path} is a run of the kind {found}, and {use} takes {' or '.join(kinds)} only: "
            "name the folder of such a run."
        )


def stored_settings(run: RunFolder, kind: str, settings: type[Settings]) -> Settings:
    """The settings of a run of this kind, those that are newer than the run with their defaults;
    a run of another kind is refused."""
    found = kind_of(run.config)
    if found != kind:
        how = KINDS[found].continued_with.format(run.path)
        raise RunError(f"{run.path} is no {kind} run: continue it with {how}.")
    read = settings_from_json(settings, run.config["settings"])
    complete = getattr(read, "as_begun", None)  # of kinds whose older runs say less
    return read if complete is None else complete()
