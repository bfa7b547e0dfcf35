"""A run that is shared out over four devices of a CPU, beside the same on one; started by
`tests/training/off_policy/test_several_devices.py` in a process that has four.

    python -m support.several_devices FOLDER

Leaves what came of it in `outcome.json`: the largest difference of every number, what XLA sends
between devices, and which agents are where.
"""

import dataclasses
import json
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from element_rl.agents.sac import SACConfig
from element_rl.population import Devices
from element_rl.runs.folder import RunFolder
from element_rl.runs.watching import Interrupted
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.off_policy.explore import explore
from element_rl.training.off_policy.explorer import Explorer
from element_rl.training.off_policy.launch import create_run, reopen_run
from element_rl.training.off_policy.resolving import resolved
from support.run_outcomes import outcome

MAZE = ExploreConfig(
    "PointMaze-v0",
    physics="jax",
    envs_per_agent=4,
    steps=960,
    seeds=4,
    replay_size=1_000,
    log_every=320,
    checkpoint_every=10_000,
    update_interval=200,
    update_steps=100,
    updates_per_step=0.125,
    random_seeds=0,
    env_options=("max_episode_steps=60",),
    sac=SACConfig(hidden_sizes=(8, 8), batch_size=8, learn_start=100),
)
HOST = dataclasses.replace(MAZE, physics="host", envs_per_agent=1, workers=0, steps=448)
SENT = re.compile(r"all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter")


def main(folder: Path) -> None:
    whole = _run(MAZE, folder / "whole")
    moved = _moved(MAZE, folder / "moved", (4, 1, 4), (5, 6))
    apart = _compiled()
    with Explorer(*resolved(dataclasses.replace(HOST, devices=4)), None) as shared:
        shared.train(lambda progress: None, lambda: False)
        where = _where(shared)
        on_four = _numbers(shared)
    with Explorer(*resolved(dataclasses.replace(HOST, devices=1)), None) as alone:
        alone.train(lambda progress: None, lambda: False)
        on_one = _numbers(alone)
    found = {
        "resumed": _differences(outcome(whole), outcome(moved)),
        "host": _differences((on_one,), (on_four,)),
        "visits": int(np.abs(whole.load_visits() - moved.load_visits()).sum()),
        "sent": sorted({word for text in apart for word in SENT.findall(text)}),
        "programs": len(apart),
        "where": where,
    }
    (folder / "outcome.json").write_text(json.dumps(found))


def _run(config: ExploreConfig, folder: Path) -> RunFolder:
    run = create_run(config, folder)
    explore(config, run)
    return run


def _moved(
    config: ExploreConfig, folder: Path, devices: tuple[int, ...], chunks: tuple[int, ...]
) -> RunFolder:
    """The run in pieces of so many chunks, each on another number of devices."""
    run = create_run(dataclasses.replace(config, devices=devices[0]), folder)
    for number, (count, length) in enumerate(zip(devices, (*chunks, 10_000), strict=True)):
        here = dataclasses.replace(config, devices=count)
        asked = iter([False] * (length - 1) + [True])
        try:
            run = reopen_run(here, folder) if number else run  # whose lock the first still has
            explore(here, run, stop=partial(next, asked), resume=number > 0)
        except Interrupted:
            continue
    return run


def _compiled() -> list[str]:
    """The programs of a learner on four devices, as XLA has compiled them."""
    texts: list[str] = []
    usual = Devices.program

    def recorded(self: Devices, *described: Any, **more: Any) -> Any:
        program, seen = usual(self, *described, **more), set()

        def call(*arguments: Any, **named: Any) -> Any:
            if str(named) not in seen:
                seen.add(str(named))
                texts.append(program.lower(*arguments, **named).compile().as_text())
            return program(*arguments, **named)

        return call

    Devices.program = recorded  # type: ignore[method-assign]
    try:
        config = dataclasses.replace(MAZE, devices=4, steps=512)
        with Explorer(*resolved(config), None) as explorer:
            explorer.train(lambda progress: None, lambda: False)
    finally:
        Devices.program = usual  # type: ignore[method-assign]
    return texts


def _where(explorer: Explorer) -> list[list[int]]:
    """Rows of the replay that each device has."""
    shards = explorer.learner.state.replay.observation.addressable_shards
    return sorted(list(shard.index[0].indices(4)[:2]) for shard in shards)


def _numbers(explorer: Explorer) -> dict[str, np.ndarray]:
    state = explorer.learner.state
    leaves = jax.tree.leaves((state.agents, state.replay.notes))
    return {str(number): np.asarray(leaf) for number, leaf in enumerate(leaves)}


def _differences(one: Any, other: Any) -> dict[str, float]:
    found = {}
    for ours, theirs in zip(one, other, strict=True):
        assert ours.keys() == theirs.keys()
        for name in ours:
            a, b = (np.asarray(part[name], np.float64) for part in (ours, theirs))
            np.testing.assert_array_equal(np.isfinite(a), np.isfinite(b), err_msg=name)
            scale = np.maximum(np.abs(np.where(np.isfinite(a), a, 0.0)), 1.0)
            apart = np.abs(np.where(np.isfinite(a), a - b, 0.0)) / scale
            found[name] = float(apart.max(initial=0.0))
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]))
