"""What a tracker is: four verbs, called in this order, in a process of its own.

    begin     a run, or go on with the one of an earlier process
    log       the metrics of a step; steps ascend
    send      figures, films and files, at the end of a run that is done
    finish    the last of it is on its way

Any of them may raise; `follower` says so in a sentence and tries again later.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

Outcome = Literal["finished", "stopped", "failed"]
LEFT_OUT = "checkpoints/*/resume, with the replay"  # what is not among a run's files


@dataclass(frozen=True)
class Facts:
    """What a tracker is told of a run."""

    folder: Path  # of the run
    own: Path  # in it, for the tracker's files
    beside: Path  # the folder that holds the run's
    project: str | None  # None: as the tracker's own variables have it, or ours
    name: str
    group: str  # environment and reward, which runs of other seeds share
    kind: str
    config: Mapping[str, Any]  # config.json
    process: int  # of the training

    def tags(self) -> dict[str, str]:
        """Words to find the run by."""
        found = {"kind": self.kind, "env": self.config.get("env"), "group": self.group}
        return {name: value for name, value in found.items() if isinstance(value, str) and value}


@dataclass(frozen=True)
class Files:
    """What is sent when a run is done."""

    step: int  # the last
    images: Mapping[str, Path]  # by the name that they are shown under
    videos: Mapping[str, Path]
    files: Mapping[str, Path]  # by their paths from the run's folder
    results: Mapping[str, float]  # of the summary

    @property
    def note(self) -> dict[str, Any]:
        """How much it is."""
        size = sum(path.stat().st_size for path in self.files.values())
        return {"files": len(self.files), "bytes": size, "left_out": LEFT_OUT}


@runtime_checkable
class Tracker(Protocol):
    """One run in one tracker."""

    def begin(self, facts: Facts, stored: Mapping[str, Any], remember: Callable[..., None]) -> None:
        """Begin a run, or go on with the one that `stored` names; `remember` stores names and
        values for the process that goes on."""
        ...

    def log(self, step: int, values: Mapping[str, float]) -> None: ...

    def send(self, files: Files) -> None: ...

    def finish(self, outcome: Outcome) -> str:
        """Where the run can be seen, in words."""
        ...


def artifact_name(name: str, identity: str) -> str:
    """A name for the run's files that trackers take and no other run has."""
    plain = "".join(sign if sign.isascii() and sign.isalnum() else "-" for sign in name)
    return f"{plain[:100]}-{identity[:8]}"


def flattened(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings under dotted names."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        inner = isinstance(value, Mapping)
        flat |= flattened(value, f"{prefix}{name}.") if inner else {prefix + name: value}
    return flat


def counted_bytes(paths: Sequence[Path]) -> int:
    """What files take on the disk; those that are gone take nothing."""
    return sum(path.stat().st_size for path in paths if path.exists())
