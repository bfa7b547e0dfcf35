"""Studies on environments that show images (`envs.screens`): the same methods on rollouts, learned
by A3C instead of SAC.

All cells of an environment measure entropy and novelty in the states of one encoder, which a cell
of its own trains by ST-DIM on what a random policy sees; a random policy's episodes are measured in
them too.

ELEMENT's terms are within [0, 1] by themselves. The rewards of the baselines are divided by the
running deviation of their discounted return, as RND's paper has it (`--scale-reward`): A3C does not
normalise advantages, so that an unscaled bonus would be compared by its size, which its step size
and its bonus for entropy are weighed against, and not by what it rewards.
"""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float

from element_rl.acting.actors import parameter_key
from element_rl.acting.processes import SharedArrays
from element_rl.acting.rollout_actor import RolloutActor, RolloutSettings
from element_rl.encoders.stdim import NetworkConfig
from element_rl.envs.make import env_maker
from element_rl.envs.names import MARIO
from element_rl.runs.folder import RunFolder
from element_rl.storage.settings import settings_from_json
from element_rl.studies.engine.grid import Cell, Scale
from element_rl.training.encoder.config import PretrainConfig
from element_rl.training.on_policy.config import OnPolicyConfig, env_options, resolved

SMOKE = Scale(
    (MARIO,),
    2,
    {MARIO: 300},
    samples=200,
    # As for robots, most of the time goes into compiling and starting processes.
    options={
        "a3c": {"channels": (4,), "hidden_size": 8, "local_steps": 20},
        "workers": 0,
        "env_options": ("max_episode_steps=60",),
        "log_every": 60,
        "checkpoint_every": 150,
    },
    encoder_options={
        "steps": 600,
        "workers": 0,
        "entropy_threshold": 0.0,
        "epochs": 1,
        "epoch_updates": 5,
        "batch_size": 16,
        "network": NetworkConfig(8, (4, 8), (8, 4), (4, 4), 16),
    },
)
# A random policy that keeps its actions for a while gets further, and its encoder knows more of
# positions (docs/encoder.md).
ENCODER = {"hold_steps": 8}
SMALL = Scale((MARIO,), 3, {MARIO: 500_000}, encoder_options=ENCODER)
PAPER = Scale((MARIO,), 10, {MARIO: 5_000_000}, encoder_options=ENCODER)


def screen_cell_of(env: str, method: str, scale: Scale, **settings: Any) -> Cell:
    """A cell with the settings that all studies have in common, and the encoder it needs."""
    encoder = encoder_cell(env, scale)
    config = OnPolicyConfig(
        env,
        steps=scale.steps[env],
        seeds=scale.seeds,
        random_seeds=0,
        encoder=encoder.reference,
        **settings,
    )
    options = dict(scale.options)
    a3c = dataclasses.replace(config.a3c, **options.pop("a3c", {}))
    return Cell(env, method, dataclasses.replace(config, a3c=a3c, **options), (encoder,))


def encoder_cell(env: str, scale: Scale) -> Cell:
    """The encoder of an environment: one for all methods and seeds, in the environment that they
    act in."""
    given = {name: scale.options[name] for name in ("env_options",) if name in scale.options}
    return Cell(env, "encoder", PretrainConfig(env, **given, **scale.encoder_options))


def acted_on_screen(
    run: RunFolder, step: int, agent: int, samples: int
) -> list[Float[np.ndarray, "_ 2"]]:
    """Positions of the episodes in which the policy of a checkpoint acts, as in training, until it
    has taken so many samples."""
    config, spec = resolved(settings_from_json(OnPolicyConfig, run.config["settings"]))
    parameters = {name: array[agent] for name, array in run.load_policy(step).items()}
    shapes = {name: array.shape for name, array in parameters.items()}
    make, a3c = env_maker(spec.name, env_options(config)), config.a3c
    rollout_settings = RolloutSettings(spec, make, a3c.local_steps, a3c.hidden_size, shapes)
    arrays = SharedArrays(rollout_settings.array_layout()).views()
    for name, array in parameters.items():
        arrays[parameter_key(name)][...] = array
    # A worker of this number there never was, so that its episodes are none of those that were
    # learned from.
    worker = config.workers + 1 + step
    actor = RolloutActor(rollout_settings, config.seed + agent, worker, None, arrays)
    episodes: list[list[np.ndarray]] = []
    left = samples
    try:
        while left > 0:
            facts = actor.act(min(left, config.a3c.local_steps))
            if facts.begins:
                episodes.append([arrays["positions"][:1].copy()])
            episodes[-1].append(arrays["positions"][1 : facts.steps + 1].copy())
            left -= facts.steps
    finally:
        actor.close()
    return [np.concatenate(parts) for parts in episodes]
