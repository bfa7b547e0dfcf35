"""The warm-up of a run: random actions before it begins, which tell the units of its states.

One environment acts, on the host, wherever the run's own are stepped: a single world on the device
would take as long for a step as thousands. So a run in worlds has the units of one on the host.

They depend on the environment alone, not on the seeds of the agents, so that all agents and all
rewards measure in the same units. The rows are stored with the run (`warm_up.safetensors`): whoever
looks at its states later, perhaps with another version of the simulator, takes these.
"""

import contextlib
import dataclasses

import numpy as np

from element_rl.encoders.state import WarmUp
from element_rl.envs.spec import EnvSpec
from element_rl.runs.folder import RunFolder
from element_rl.storage.files import read_arrays, write_arrays
from element_rl.training.off_policy.collecting import (
    MakeCollector,
    process_collector,
    usual_collector,
)
from element_rl.training.off_policy.config import ExploreConfig

WARM_UP = "warm_up.safetensors"
WARM_UP_STEPS = 2_000  # of random actions
EVERY = 2  # one of so many rows is kept
SEED = 0


def warm_up_for(
    config: ExploreConfig,
    spec: EnvSpec,
    run: RunFolder | None = None,
    make_collector: MakeCollector = usual_collector,
) -> WarmUp | None:
    """The warm-up of a run, made and stored where it has none yet; None where its states are
    raw."""
    if config.state_units != "calibrated":
        return None
    stored = None if run is None else stored_warm_up(run)
    if stored is not None:
        return stored
    warm_up = act_at_random(config, spec, make_collector)
    if run is not None:
        write_arrays(run.path / WARM_UP, warm_up._asdict())
    return warm_up


def stored_warm_up(run: RunFolder) -> WarmUp | None:
    """The warm-up that is stored with a run; None where its states are raw."""
    file = run.path / WARM_UP
    return WarmUp(**read_arrays(file)[0]) if file.exists() else None


def act_at_random(config: ExploreConfig, spec: EnvSpec, make_collector: MakeCollector) -> WarmUp:
    """`WARM_UP_STEPS` random actions of one agent; every other row of them."""
    if config.physics != "host":
        make_collector = process_collector
    alone = dataclasses.replace(
        config,
        seed=SEED,
        seeds=1,
        envs_per_agent=1,
        chunk_steps=WARM_UP_STEPS,
        physics="host",
        workers=config.workers if config.workers == 0 else 1,
    )
    with contextlib.closing(make_collector(alone, spec, None)) as collector:
        collector.start(0, None)
        chunk = collector.wait()
        ends = np.cumsum(chunk.final[0]) - chunk.final[0]
        rows = slice(0, int(chunk.count[0]), EVERY)
        parts = (chunk.observation[0], chunk.position[0], ends)
        return WarmUp(*(np.array(part)[rows] for part in parts))
