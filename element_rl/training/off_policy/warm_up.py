"""The warm-up of a run: a few episodes of random actions, which tell the units of its states.

They depend on the environment alone, not on the seeds of the agents, so that all agents and all
rewards measure in the same units. The rows are stored with the run (`warm_up.safetensors`): whoever
looks at its states later, perhaps with another version of the simulator, takes these.
"""

import numpy as np

from element_rl.acting.episode import record_episode
from element_rl.acting.policies import RandomPolicy
from element_rl.encoders.state import WarmUp
from element_rl.envs.make import make_env
from element_rl.envs.spec import EnvSpec
from element_rl.runs.folder import RunFolder
from element_rl.storage.files import read_arrays, write_arrays
from element_rl.training.off_policy.config import ExploreConfig, parsed_options

WARM_UP = "warm_up.safetensors"
WARM_UP_STEPS = 2_000  # of random actions
EVERY = 2  # one of so many rows is kept
SEED = 0


def warm_up_for(
    config: ExploreConfig, spec: EnvSpec, run: RunFolder | None = None
) -> WarmUp | None:
    """The warm-up of a run, made and stored where it has none yet; None where its states are
    raw."""
    if config.state_units != "calibrated":
        return None
    stored = None if run is None else stored_warm_up(run)
    if stored is not None:
        return stored
    warm_up = act_at_random(config, spec)
    if run is not None:
        write_arrays(run.path / WARM_UP, warm_up._asdict())
    return warm_up


def stored_warm_up(run: RunFolder) -> WarmUp | None:
    """The warm-up that is stored with a run; None where its states are raw."""
    file = run.path / WARM_UP
    return WarmUp(**read_arrays(file)[0]) if file.exists() else None


def act_at_random(config: ExploreConfig, spec: EnvSpec) -> WarmUp:
    """Episodes of random actions until there are `WARM_UP_STEPS`; every other row of them."""
    env = make_env(spec.name, **parsed_options(config))
    policy = RandomPolicy(env.action_space)
    observations: list[np.ndarray] = []
    positions: list[np.ndarray] = []
    lengths: list[int] = []
    while sum(lengths) * EVERY < WARM_UP_STEPS:
        seed = [SEED, len(lengths)]
        episode = record_episode(spec, env, policy, seed, deterministic=False)
        observations.append(episode.observations[::EVERY])
        positions.append(episode.positions[::EVERY].astype(np.float32))
        lengths.append(len(observations[-1]))
    env.close()
    numbers = np.repeat(np.arange(len(lengths)), lengths)
    return WarmUp(np.concatenate(observations), np.concatenate(positions), numbers)
