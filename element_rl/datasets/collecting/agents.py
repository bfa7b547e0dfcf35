"""What a dataset is collected from: the agents of a run, their environment, their checkpoints."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.envs.registration import WrapperSpec
from jaxtyping import Array, Bool, Float, Shaped

from element_rl.acting.host_policy import policy_widths
from element_rl.acting.host_ppo import is_ppo, policy_shapes
from element_rl.acting.policies import ActionScale
from element_rl.datasets.collecting.parts import Contribution, Measure
from element_rl.encoders.frozen import encode_all, load_encoder
from element_rl.encoders.state import StateEncoder, WarmUp, make_state_encoder
from element_rl.entropy import evaluation_entropy
from element_rl.envs.latents import parted_options
from element_rl.envs.make import describe, make_env
from element_rl.envs.names import with_package
from element_rl.envs.robots import HEALTH_OPTION, can_fall
from element_rl.envs.screens import Screen
from element_rl.envs.spec import EnvSpec
from element_rl.runs.folder import POLICY, RunError, RunFolder
from element_rl.runs.kinds import kind_of
from element_rl.storage.files import read_manifest
from element_rl.storage.settings import named_values
from element_rl.training.off_policy.config import is_task_reward
from element_rl.training.off_policy.resolving import described
from element_rl.training.off_policy.warm_up import stored_warm_up
from element_rl.training.on_policy.launch import ENCODER
from element_rl.training.on_policy.measures import episode_entropy

# states; episodes are padded to powers of two, so that few shapes are compiled
SHORTEST_PADDING = 32
ADVICE = "restore it from a copy, or collect from another run"
# `make_env` puts this around environments that show images; named in a dataset,
# `recover_environment` does so too.
SCREEN = WrapperSpec("Screen", "element_rl.envs.screens:Screen", {})


@dataclass(frozen=True)
class TrainedAgents:
    """The agents of a run, and the environment that their dataset is of."""

    run: RunFolder
    on_policy: bool  # of A3C or PPO, which learned from rollouts
    reward: str
    seeds: tuple[int, ...]
    env_options: Mapping[str, Any]
    spec: EnvSpec
    env_spec: gymnasium.envs.registration.EnvSpec  # as Gymnasium made it
    observation_space: gymnasium.spaces.Box
    action_space: gymnasium.spaces.Box | gymnasium.spaces.Discrete

    @property
    def act_at_random(self) -> bool:
        return self.reward == "random"

    def parameters(self, checkpoint: int) -> dict[str, np.ndarray]:
        """The policies [P, ...] of a checkpoint; none where actions are random."""
        return {} if self.act_at_random else self.run.load_policy(checkpoint)

    def environment_actions(
        self, actions: Shaped[np.ndarray, "T ..."]
    ) -> Shaped[np.ndarray, "T ..."]:
        """A policy's actions in the environment's units: to the bit what it was stepped with
        (`acting.actors`)."""
        if self.spec.chooses:
            choices = actions if actions.ndim == 1 else np.argmax(actions, axis=-1)
            return choices.astype(self.action_space.dtype)
        scale = ActionScale(self.spec.action_low, self.spec.action_high, self.action_space.dtype)
        return scale(actions)

    def refuse_policy(self, policy: Mapping[str, np.ndarray]) -> None:
        """A ValueError where the policies do not fit the environment."""
        if is_ppo(policy):
            shapes, spec = policy_shapes(policy), self.spec
            wanted = (None if spec.sees_frames else spec.observation_dim, spec.action_dim)
            fits = shapes == wanted
            has = f"have observations and actions of {shapes}"
            needed = str(wanted)
        elif not self.on_policy:
            seen, *_, acts = policy_widths(policy)
            fits = (seen, acts) == (self.spec.observation_dim, self.spec.action_dim)
            acting = "choose among" if self.spec.chooses else "act with"
            has = f"observe {seen} numbers and {acting} {acts}"
            needed = f"{self.spec.observation_dim} and {self.spec.action_dim}"
        else:
            acts = policy["head_bias"].shape[1] - 1  # the last head is the value
            fits = acts == self.spec.actions
            has, needed = f"choose among {acts} actions", str(self.spec.actions)
        if not fits:
            raise ValueError(
                f"The policies of {self.run.path} {has}, but {self.spec.name} with "
                f"{dict(self.env_options)} has {needed}: leave out the --env-options that change "
                "this."
            )


def agents_of(run: RunFolder, env_options: tuple[str, ...], of_the_task: bool) -> TrainedAgents:
    """The agents of a run in its own environment, with these options besides.

    `of_the_task`: falling ends an episode as the task has it.
    """
    settings, on_policy = run.config["settings"], kind_of(run.config) == "on-policy"
    name, pairs = settings["env"], tuple(settings["env_options"])
    falls = not on_policy and can_fall(name) and not is_task_reward(settings["reward"])
    if of_the_task and falls:
        pairs = tuple(
            pair for pair in pairs if pair.replace(" ", "").lower() != f"{HEALTH_OPTION}=false"
        )
    example = "goal_distance=20" if on_policy else f"{HEALTH_OPTION}=false"
    options = named_values("--env-options", (*pairs, *env_options), example)
    # a dataset holds what the task shows; what the policies were told is no part of it
    env = make_env(name, **parted_options(options)[0])
    try:
        screen = isinstance(env, Screen)
        env_spec = copy.deepcopy(env.env.spec if screen else env.spec)
        assert env_spec is not None  # environments are made through the registry
        if screen:
            env_spec.additional_wrappers = (*env_spec.additional_wrappers, SCREEN)
        return TrainedAgents(
            run=run,
            on_policy=on_policy,
            reward=settings["reward"],
            seeds=tuple(settings["seed"] + index for index in range(settings["seeds"])),
            env_options=options,
            spec=_on_policy_spec(settings, options) if on_policy else described(settings, options),
            env_spec=with_package(env_spec, name),
            observation_space=_recorded_space(env.observation_space),
            action_space=env.action_space,
        )
    finally:
        env.close()


def _on_policy_spec(settings: Mapping[str, Any], options: Mapping[str, Any]) -> EnvSpec:
    if settings.get("agent", "a3c") == "a3c":
        return describe(settings["env"], (), (), "frames", **options)
    position, bounds = settings.get("position") or (), settings.get("bounds") or ()
    return describe(settings["env"], position, bounds, **options)


def contributions_of(
    agents: TrainedAgents, steps: int, checkpoints: tuple[int, ...]
) -> list[Contribution]:
    """The steps divided evenly over the checkpoints, the remainder over the last ones."""
    if not agents.run.checkpoint_steps():
        raise RunError(
            f"The run {agents.run.path} has no checkpoint yet: let it train until its first one."
        )
    chosen = sorted(set(checkpoints)) or agents.run.planned_checkpoints()
    if steps < len(chosen):
        raise ValueError(
            f"--steps must be at least 1 for each of the {len(chosen)} checkpoints, got {steps}."
        )
    least, remainder = divmod(steps, len(chosen))
    for checkpoint in chosen:
        agents.refuse_policy(agents.run.load_policy(checkpoint))
    return [
        Contribution(checkpoint, least + (number >= len(chosen) - remainder))
        for number, checkpoint in enumerate(chosen)
    ]


def fingerprint(run: RunFolder, checkpoint: int) -> str:
    """What a checkpoint's policy is known by, from its manifest."""
    folder = run.checkpoints_path / f"step_{checkpoint:09d}"
    return str(read_manifest(folder, ADVICE)["files"][POLICY]["sha256"])[:16]


def entropy_measure(agents: TrainedAgents) -> Measure:
    """The paper's evaluation entropy of an episode's states s_1 … s_T: matrix-based, of order
    1.001, in bits, on the encoder that the run uses."""
    if not agents.spec.sees_frames:
        return _vector_measure(agents.spec, agents.seeds, stored_warm_up(agents.run))
    encoder = load_encoder(agents.run.path / ENCODER)
    return lambda _, frames, __: episode_entropy(encode_all(encoder, frames[1:]))


def _vector_measure(spec: EnvSpec, seeds: tuple[int, ...], warm_up: WarmUp | None) -> Measure:
    """Every agent has an encoder of its own."""
    encoders = [
        make_state_encoder(seed, spec.task_dim, spec.orientation_slice, warm_up=warm_up)
        for seed in seeds
    ]

    def measure(agent: int, observations: np.ndarray, positions: np.ndarray) -> float:
        count = len(observations) - 1
        longest = max(spec.max_episode_steps, count)
        size = min(max(1 << (count - 1).bit_length(), SHORTEST_PADDING), longest)
        padding = ((0, max(size - count, 0)), (0, 0))
        padded = [jnp.asarray(np.pad(rows[1:], padding)) for rows in (observations, positions)]
        return float(_entropy(encoders[agent], *padded, jnp.arange(len(padded[0])) < count))

    return measure


@eqx.filter_jit
def _entropy(
    encoder: StateEncoder,
    observations: Float[Array, "N O"],
    positions: Float[Array, "N C"],
    mask: Bool[Array, " N"],
) -> Float[Array, ""]:
    return evaluation_entropy(jax.vmap(encoder)(observations, positions), mask)


def _recorded_space(space: gymnasium.Space) -> gymnasium.spaces.Box:
    """The space of what is recorded: the environment's own, in float32 where it has more digits
    than the policies see."""
    assert isinstance(space, gymnasium.spaces.Box)  # `describe` refuses others
    if space.dtype == np.float32 or not np.issubdtype(space.dtype, np.floating):
        return space
    with np.errstate(over="ignore"):
        low, high = space.low.astype(np.float32), space.high.astype(np.float32)
    return gymnasium.spaces.Box(low, high, space.shape, np.float32)
