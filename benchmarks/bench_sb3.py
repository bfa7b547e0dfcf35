"""What does the plug-in cost a user of Stable-Baselines3 or SBX? Time of a step of SAC with each
bonus, and without.

    SB3 SAC, SBX SAC    with `IntrinsicReplayBuffer`: ELEMENT, RND, RE3
    RLeXplore           its RND and RE3 on SB3 SAC in their documented way, in an environment of its
                        own: `rlexplore_rewards`

A step is one step of all environments (Ant in 27-D, 8 actions, episodes of 128 steps) and one
update from a batch of 256; all else of SAC is as it comes. Several environments, because
RLeXplore's defaults give NaN with one. Memories have the same size: the states ELEMENT remembers,
the pool RE3 compares with, the storage of RLeXplore's RE3. ELEMENT's memory and as many notes in
the replay are filled beforehand; then states enter it as in the paper, a tenth of the time.

*Extra* is processor time inside the calls a bonus changes or adds (the buffer's `add` and `sample`,
the callback), less that of the same calls of SAC without bonus in the same round; *overhead* is
that as a share of a step without bonus. Whole steps are timed too, but on a shared machine they
differ by a tenth from one slice to the next, more than most bonuses cost.

The plug-in judges all 256 transitions of every batch by what is known now. RLeXplore judges one per
environment, when it happens, and keeps that value. RE3 and RND have their own defaults on either
side; rows "as RLeXplore" have its networks, feature sizes and neighbours.

Each contender lives in a process of its own on one core and trains in turns with the others.

    # about five minutes; without it, ours alone
    python -m benchmarks.bench_sb3 --rlexplore-python ENVIRONMENT/bin/python

Needs `pip install -e '.[sb3]'`; for RLeXplore `pip install rllte-core stable-baselines3 mujoco` in
another environment (PyTorch as its CPU build in both).
"""

import dataclasses
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from benchmarks import rlexplore_rewards
from benchmarks.rlexplore_rewards import EPISODE_STEPS
from benchmarks.tables import (
    ROOT,
    markdown_table,
    provenance,
    replace_table,
    significant,
    source_line,
)
from element_rl.storage.files import write_json

PAGE = ROOT / "docs" / "results" / "sb3.md"
PACKAGES = ("stable-baselines3", "sbx-rl", "torch", "jax", "gymnasium", "mujoco", "numpy")
# one of it is the benchmark's own; above this at the beginning of a round, figures are marked as
# provisional
QUIET_LOAD = 2.5
RECOMPILED_AT_MOST = 3  # slices in a row that are run again because JAX compiled something in them
AS_RLEXPLORE = {
    "rnd": {
        "target_sizes": (256,),
        "predictor_sizes": (256,),
        "feature_dim": 128,
        "learning_rate": 1e-3,
    },
    "re3": {
        "space": "observation",
        "hidden_sizes": (256,),
        "feature_dim": 128,
        "num_neighbours": 5,
    },
}


@dataclass(frozen=True)
class Settings:
    """What to measure."""

    rlexplore_python: Path | None = None  # the Python of the environment that has RLeXplore
    remembered: tuple[int, int] = (4_096, 50_000)  # sizes of the memories
    stored: int = 100_000  # transitions a replay has room for
    num_envs: int = 4
    batch_size: int = 256
    rounds: int = 5
    # contenders whose name contains one of these, and those without bonus; all when empty
    only: tuple[str, ...] = ()
    page: bool = False  # write the table into docs/results/sb3.md
    out: Path = Path(".cache/benchmarks/sb3.json")


@dataclass(frozen=True)
class Entry:
    """A contender."""

    learner: str  # SB3 SAC, SBX SAC or RLeXplore
    reward: str  # none, element, rnd, re3
    remembered: int = 0  # size of the memory, where it has one
    options: dict[str, Any] = field(default_factory=dict)  # of the reward's configuration
    remark: str = ""
    steps: int = EPISODE_STEPS  # of a slice

    @property
    def name(self) -> str:
        words = [
            self.reward,
            f"{self.remembered:,} remembered" if self.remembered else "",
            self.remark,
        ]
        return f"{self.learner}: {', '.join(word for word in words if word)}"


def main(settings: Settings) -> dict[str, Any]:
    """Measure all contenders in turns; the table."""
    entries = contenders(settings)
    source = provenance(PACKAGES)
    slices, load, versions = take_turns(settings, entries)
    rows = summarise(entries, slices)
    result = {"source": source, "peer": versions, "load": load, "rows": rows, "slices": slices}
    settings.out.parent.mkdir(parents=True, exist_ok=True)
    write_json(settings.out, {**result, "settings": dataclasses.asdict(settings)})
    text = render(settings, result)
    print(text)
    if settings.page:
        replace_table(PAGE, "sb3-overhead", text)
    return result


def contenders(settings: Settings) -> list[Entry]:
    """In the order of the table; the first of each learner has no bonus."""
    small, large = settings.remembered
    # for what does little at an episode's end
    half, quarter, eighth = (EPISODE_STEPS // part for part in (2, 4, 8))
    ours = [
        Entry("SB3 SAC", "none", steps=half),
        Entry("SB3 SAC", "element", small),
        Entry("SB3 SAC", "element", large),
        Entry("SB3 SAC", "rnd", steps=quarter),
        Entry("SB3 SAC", "rnd", options=AS_RLEXPLORE["rnd"], remark="as RLeXplore", steps=half),
        Entry("SB3 SAC", "re3", small, steps=half),
        Entry("SB3 SAC", "re3", small, AS_RLEXPLORE["re3"], "as RLeXplore", half),
        Entry("SB3 SAC", "re3", large, AS_RLEXPLORE["re3"], "as RLeXplore", eighth),
        Entry("SBX SAC", "none", steps=half),
        Entry("SBX SAC", "element", large),
        Entry("SBX SAC", "rnd", steps=quarter),
        Entry("SBX SAC", "re3", small, steps=half),
    ]
    theirs = [Entry("RLeXplore", "none", steps=half), Entry("RLeXplore", "rnd", steps=half)]
    theirs += [Entry("RLeXplore", "re3", size, steps=half) for size in (small, large)]
    entries = ours + (theirs if settings.rlexplore_python else [])
    chosen = [
        one
        for one in entries
        if one.reward == "none" or any(part in one.name for part in settings.only)
    ]
    return chosen if settings.only else entries


def take_turns(
    settings: Settings, entries: list[Entry]
) -> tuple[dict[str, list[list[float]]], list[float], str]:
    """Per contender and round: wall, processor and inside ms of a step. Per round: the load. And
    the versions the peer has."""
    load = []
    slices: dict[str, list[list[float]]] = {entry.name: [] for entry in entries}
    processes: list[Contender] = []
    try:
        # two prepare themselves at a time
        for pair in (entries[at : at + 2] for at in range(0, len(entries), 2)):
            print(f"preparing {' and '.join(entry.name for entry in pair)} …", flush=True)
            started = [Contender(settings, entry, core) for core, entry in enumerate(pair)]
            processes += started
            for process in started:
                process.wait_until_ready()
        for number in range(settings.rounds):
            load.append(os.getloadavg()[0])
            for process in processes:
                slices[process.entry.name].append(process.milliseconds())
            latest = ", ".join(
                f"{name} {values[-1][1]:.1f}/{values[-1][2]:.2f}" for name, values in slices.items()
            )
            print(
                f"round {number + 1}/{settings.rounds}, processor ms in all/inside: {latest}",
                flush=True,
            )
    finally:
        for process in processes:
            process.close()
    return (
        slices,
        load,
        next((one.versions for one in processes if one.entry.learner == "RLeXplore"), ""),
    )


def summarise(entries: list[Entry], slices: dict[str, list[list[float]]]) -> list[dict[str, Any]]:
    """Medians over the rounds; what is compared is compared within a round."""
    taken = {
        name: np.array(values) for name, values in slices.items()
    }  # [rounds, (wall, processor, inside)]
    without = {entry.learner: taken[entry.name] for entry in entries if entry.reward == "none"}
    extra = {entry.name: (taken[entry.name] - without[entry.learner])[:, 2] for entry in entries}
    rows = []
    for entry in entries:
        wall, processor, _ = taken[entry.name].swapaxes(0, 1)
        overhead = extra[entry.name] / without[entry.learner][:, 1]
        row = {
            "name": entry.name,
            "wall": statistics.median(wall),
            "processor": statistics.median(processor),
            "spread": [float(processor.min()), float(processor.max())],
            "extra": statistics.median(extra[entry.name]),
            "extra_spread": [float(extra[entry.name].min()), float(extra[entry.name].max())],
            "overhead": statistics.median(overhead),
        }
        twin = Entry(
            "RLeXplore", "re3" if entry.reward == "element" else entry.reward, entry.remembered
        ).name
        if twin in extra and entry.learner != "RLeXplore" and entry.reward != "none":
            row["of_rlexplore"] = row["extra"] / statistics.median(extra[twin])
        rows.append(row)
    return rows


def render(settings: Settings, result: dict[str, Any]) -> str:
    """The table of docs/results/sb3.md."""
    header = [
        "learner: bonus",
        "judged per step",
        "processor ms per step (lowest–highest)",
        "wall ms",
        "extra ms (lowest–highest)",
        "overhead",
        "extra ÷ RLeXplore's",
    ]
    lines = []
    for row in result["rows"]:
        has_bonus = ": none" not in row["name"]
        judged = settings.num_envs if row["name"].startswith("RLeXplore") else settings.batch_size
        lines.append(
            [
                row["name"],
                f"{judged}" if has_bonus else "–",
                f"{significant(row['processor'])} ({'–'.join(map(significant, row['spread']))})",
                significant(row["wall"]),
                f"{row['extra']:.2f} ({'–'.join(f'{v:.2f}' for v in row['extra_spread'])})"
                if has_bonus
                else "–",
                f"{100 * row['overhead']:.1f} %" if has_bonus else "–",
                f"×{row['of_rlexplore']:.2f}" if "of_rlexplore" in row else "–",
            ]
        )
    load = result["load"]
    noise = "" if max(load) < QUIET_LOAD else "**Provisional: the machine was busy.** "
    absent = "" if result["peer"] else " RLeXplore was not at hand."
    peer = f" RLeXplore: {result['peer']}." if result["peer"] else ""
    about = (
        f"{noise}{settings.num_envs} environments, one update of batch {settings.batch_size} per "
        f"step; {settings.rounds} rounds in turns, one core each, load at their beginnings "
        f"{min(load):.1f}–{max(load):.1f}.{absent}"
    )
    return f"{markdown_table(header, lines)}\n\n{about} {source_line(result['source'])}{peer}"


class Contender:
    """A process that trains when told to, and is idle otherwise."""

    def __init__(self, settings: Settings, entry: Entry, turn: int) -> None:
        self.entry, self.versions = entry, ""
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        request = {
            **dataclasses.asdict(entry),
            "num_envs": settings.num_envs,
            "batch_size": settings.batch_size,
            "stored": settings.stored,
            "core": cores[turn % len(cores)] if cores else None,
        }
        if entry.learner == "RLeXplore":
            command = [str(settings.rlexplore_python), str(Path(rlexplore_rewards.__file__))]
        else:
            command = [sys.executable, "-m", "benchmarks.sb3_contender"]
        environment = os.environ | {"JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [*command, json.dumps(request)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
            cwd=ROOT,
        )

    def wait_until_ready(self) -> None:
        self.versions = self._answer()["versions"]
        self.milliseconds()  # to warm up

    def milliseconds(self) -> list[float]:
        """Wall time of a step, its processor time, and that inside the calls a bonus changes; over
        one slice."""
        assert self._process.stdin is not None
        for _ in range(1 + RECOMPILED_AT_MOST):
            self._process.stdin.write(f"{self.entry.steps}\n")
            self._process.stdin.flush()
            taken = self._answer()
            if not taken["compiled"]:
                break
        return [
            1e3 * taken[name] / self.entry.steps
            for name in ("seconds", "processor_seconds", "inside")
        ]

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "its process ended"}
        if "error" in answer:
            raise RuntimeError(f"{self.entry.name}: {answer['error']}")
        return answer


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
