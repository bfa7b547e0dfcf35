"""Fine-tuning of an on-policy run: A3C goes on from a transferred policy, with the reward of the
screen's own task.

The policy is transferred: convolutions, LSTM and the actor's head. The critic's head is fresh, one
as agents from scratch have, because it has learned the value of another reward; it can be kept
(`--critics kept`). Adam begins anew. Nothing has to be warmed up: with a GAE decay of 1 an
advantage is the discounted sum of a rollout's rewards less the value, so a wrong value makes the
gradient noisier but, except in the last steps before a rollout is cut, does not bend it. Replay and
temperature are SAC's.

Returns are the environment's own. What the learner gets is multiplied by `--reward-scale`. Super
Mario Bros pays up to 12 a step, which even at a discount of 0.9 makes values of a hundred: their
squared errors would fill the gradient, whose length is limited, and leave nothing of it to the
actor. So its factor is 0.1, as in uvipen/Super-mario-bros-A3C-pytorch; it is 1 elsewhere.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from element_rl.encoders.frozen import load_encoder, save_encoder
from element_rl.envs.names import MARIO
from element_rl.envs.spec import EnvSpec
from element_rl.runs.folder import RunError, RunFolder
from element_rl.runs.watching import Watcher
from element_rl.storage.settings import settings_from_json
from element_rl.training.finetune.config import (
    FinetuneConfig,
    fitting_policy,
    merged_options,
    refuse_given,
)
from element_rl.training.finetune.start import chosen_policies, chosen_start
from element_rl.training.on_policy.config import OnPolicyConfig, env_options, resolved
from element_rl.training.on_policy.launch import ENCODER, create_run, reopen_run
from element_rl.training.on_policy.training import OnPolicy, train

SACS_OWN = (
    "temperature",
    "replay",
    "critic_warmup",
    "anchor",
    "anchor_halflife",
    "replay_size",
    "chunk_steps",
    "sac",
)
REWARD_SCALES = {MARIO: 0.1}


class OnScreens:
    """See `training.finetune.training.Form`."""

    def __init__(self, config: FinetuneConfig, source: RunFolder) -> None:
        self.config, self.source = config, source
        self.task, _ = screen_settings(config, source)
        # Its encoder stays in use, to measure by; the settings of the new runs cannot tell whether
        # it was trained.
        self._facts = {"encoder": "trained" if _explored(source).encoder is not None else "random"}

    def chosen(self, watch: Watcher, stop: Callable[[], bool]) -> dict[str, Any]:
        return chosen_start(self.config, self.source, self.task, watch, stop)

    def trained(
        self,
        path: Path,
        transfer: dict[str, Any] | None,
        facts: Mapping[str, Any],
        watch: Watcher,
        stop: Callable[[], bool],
        wait_seconds: float,
    ) -> dict[str, Any]:
        begin = None
        if transfer is not None:

            def begin(training: OnPolicy) -> None:
                policies = transplanted_policies(
                    training.policies(), self.source, transfer, self.config.critics
                )
                training.begin_with(policies)
                training.save(0)

        begun = (path / "config.json").exists()
        settings = self._settings_in(path) if begun else self.task
        run = reopen_run(settings, path) if begun else create_run(settings, path)
        return train(
            settings, run, watch, stop, begun, wait_seconds, begin, {**facts, **self._facts}
        )

    def _settings_in(self, path: Path) -> OnPolicyConfig:
        """The task's settings for a run that was begun; where the explorer's encoder lies now does
        not matter to it."""
        if not (path / ENCODER).exists():  # killed in the moment before it was written
            save_encoder(path / ENCODER, load_encoder(self.source.path / ENCODER))
        return replace(self.task, encoder=_explored(RunFolder.open(path)).encoder)


def screen_settings(config: FinetuneConfig, source: RunFolder) -> tuple[OnPolicyConfig, EnvSpec]:
    """Settings of A3C on the task of a run, from scratch; refused where the run's policies do not
    fit."""
    explored = _explored(source)
    refuse_given(config, SACS_OWN, f"{source.path} is a run of A3C, and this is a setting of SAC")
    policy, seeds = fitting_policy(config, source, explored.reward, explored.seeds)
    scale = (
        REWARD_SCALES.get(explored.env, 1.0) if config.reward_scale is None else config.reward_scale
    )
    task = OnPolicyConfig(
        env=explored.env,
        reward="extrinsic",
        reward_options=() if scale == 1.0 else (f"scale={scale}",),
        steps=config.steps,
        seeds=seeds,
        seed=explored.seed if config.seed is None else config.seed,
        workers=explored.workers if config.workers is None else config.workers,
        encoder=source.path / ENCODER,
        log_every=config.log_every,
        checkpoint_every=config.checkpoint_every,
        random_seeds=0,
        restarts=explored.restarts,
        env_options=explored.env_options,
        a3c=config.a3c or explored.a3c,
    )
    env_options(replace(task, env_options=config.env_options))  # complains of what is no NAME=VALUE
    task, spec = resolved(
        replace(task, env_options=merged_options(explored.env_options, config.env_options))
    )
    _refuse_other_network(source, policy, task, spec)
    return task, spec


def transplanted_policies(
    fresh: Mapping[str, np.ndarray],
    source: RunFolder,
    transfer: dict[str, Any],
    critics: Literal["fresh", "kept"] = "fresh",
) -> dict[str, np.ndarray]:
    """Parameters [P, ...] of the chosen checkpoints, with the critic's heads of the fresh agents
    unless they are kept."""
    policies = chosen_policies(source, transfer)
    if critics == "kept":
        return policies
    heads = {name: policies[name].copy() for name in ("head_weight", "head_bias")}
    for name, head in heads.items():
        head[..., -1] = fresh[name][..., -1]  # the last output is the value
    return policies | heads


def _explored(source: RunFolder) -> OnPolicyConfig:
    try:
        return settings_from_json(OnPolicyConfig, source.config["settings"])
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(
            f"{source.path} is not an on-policy run of this version (its config.json has other "
            "settings): give the folder of one."
        ) from error


def _refuse_other_network(
    source: RunFolder, policy: Mapping[str, np.ndarray], task: OnPolicyConfig, spec: EnvSpec
) -> None:
    layers = sum(name.startswith("conv_bias") for name in policy)
    channels = tuple(policy[f"conv_bias_{layer}"].shape[1] for layer in range(layers))
    hidden, actions = policy["lstm_hidden"].shape[1], policy["head_bias"].shape[1] - 1
    if (channels, hidden) != (tuple(task.a3c.channels), task.a3c.hidden_size):
        raise ValueError(
            f"The policies of {source.path} have convolutions of {' '.join(map(str, channels))} "
            f"channels and an LSTM of {hidden} "
            "units: leave --a3c.channels and --a3c.hidden-size away."
        )
    if actions != spec.actions:
        raise ValueError(
            f"The policies of {source.path} choose among {actions} actions, but {spec.name} with "
            "these options has "
            f"{spec.actions}: use the environment options of the run."
        )
