"""From settings to a run folder: a new one, or the one that an earlier run left behind."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from element_rl.runs.folder import RunFolder
from element_rl.runs.kinds import stored_settings
from element_rl.runs.provenance import config_difference

# what config.json says of the map, and besides of one without bounds and of other cells
COVERAGE = ("bounds", "axes", "cells", "unit", "start")
GROWN = ("coverage_of", "coverage_cell_size")
# settings with which every run may be continued
MAY_DIFFER = ("steps", "out", "resume", "env_timeout", "devices")


def create_run(
    kind: str, settings: Any, folder: Path, metric_columns: Sequence[str], facts: Mapping[str, Any]
) -> RunFolder:
    """A new run folder; config.json has the kind, the `facts` and the settings, a dataclass."""
    config = {"kind": kind, **facts, "settings": dataclasses.asdict(settings)}
    return RunFolder.create(folder, config, metric_columns)


def reopen_run(
    kind: str,
    settings: Any,
    folder: Path,
    metric_columns: Sequence[str],
    may_differ: Collection[str] = MAY_DIFFER,
    begun: Any = None,
) -> RunFolder:
    """The run in a folder, to be continued. Refused where it is of another kind, or was started
    with other settings than these but for those that `may_differ`. `begun` are the settings that it
    was started with, where they are not found as they are stored."""
    run = RunFolder.open(folder, metric_columns)
    before = dataclasses.asdict(begun or stored_settings(run, kind, type(settings)))
    now = dataclasses.asdict(settings)
    env = now.get("env")
    if env and before["env"] == env.rpartition(":")[2]:  # older runs kept no package in the name
        before["env"] = env
    if difference := config_difference(before, now, may_differ):
        raise ValueError(difference)
    return run


def coverage_facts(spec: Any) -> dict[str, Any]:
    """What config.json keeps of an environment's map, by which visits are counted and drawn, and
    where there is none, of the cells that coverage counts."""
    names = [f"coverage_{name}" for name in COVERAGE if hasattr(spec, f"coverage_{name}")]
    facts = {name: getattr(spec, name) for name in names}
    if getattr(spec, "grown_axes", 0):
        facts |= {name: getattr(spec, name) for name in GROWN}
        if spec.other_cells is not None:
            facts["coverage_cells_of"] = spec.other_cells.described
    return facts
