"""The states of what agents see: what entropy and novelty are measured on.

Of frames a frozen encoder makes them, trained or not, the same for all agents of a run. Of vectors
they are what they are off-policy: embedding ⊕ position ⊕ orientation (`encoders.state`), with an
encoder of its own for each agent, calibrated by random actions or raw.
"""

import contextlib
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped, UInt8

from element_rl.acting.episode import RunningEpisode
from element_rl.encoders.frozen import (
    FrozenEncoder,
    encode_all,
    load_encoder,
    random_encoder,
    save_encoder,
)
from element_rl.encoders.state import StateEncoder, WarmUp, make_state_encoder
from element_rl.envs.make import make_env
from element_rl.envs.spec import EnvSpec
from element_rl.rewards.on_rollouts import padded_length
from element_rl.runs.folder import RunFolder
from element_rl.storage.files import read_arrays, write_arrays
from element_rl.training.on_policy.config import OnPolicyConfig, env_options

ENCODER = "encoder"  # folder in a run: the encoder of frames that it uses, trained or not
WARM_UP = "warm_up.safetensors"  # the same of vectors, where states are calibrated
FRAMES_TO_STANDARDISE = 512
ENCODER_STREAM = 7  # of the seed: an untrained encoder is the same for all agents of a run
WARM_UP_STEPS, WARM_UP_EVERY = 2_000, 2  # of random actions; one of so many rows is kept
EMBEDDING_DIM = 5


@dataclass(frozen=True)
class VectorEncoders:
    """The encoders of vectors, one of each agent's seed."""

    spec: EnvSpec
    warm_up: WarmUp | None  # None: states are raw

    @property
    def state_dim(self) -> int:
        return EMBEDDING_DIM + self.spec.position_dim + self.spec.orientation_dim

    def of(self, seed: int) -> StateEncoder:
        """The encoder of an agent."""
        spec = self.spec
        return make_state_encoder(
            seed, spec.task_dim, spec.orientation_slice, EMBEDDING_DIM, self.warm_up
        )


Encoders = FrozenEncoder | VectorEncoders


def states_of(
    encoder: FrozenEncoder | StateEncoder,
    observations: Shaped[np.ndarray, "N ..."],
    positions: Float[np.ndarray, "N C"],
) -> Float[np.ndarray, "N D"]:
    """The states of any number of observations."""
    if isinstance(encoder, FrozenEncoder):
        return encode_all(encoder, observations)
    missing = padded_length(len(observations)) - len(observations)
    rows = (np.pad(array, ((0, missing), (0, 0))) for array in (observations, positions))
    return np.asarray(_encoded(encoder, *rows))[: len(observations)]


def encoders_of(config: OnPolicyConfig, spec: EnvSpec) -> Encoders:
    """What a new run has: the encoder of frames that was asked for, or what calibrates vectors."""
    if spec.sees_frames:
        return encoder_of(config, spec)
    calibrated = config.state_units == "calibrated"
    return VectorEncoders(spec, _warm_up(config, spec) if calibrated else None)


def keep_encoders(run: RunFolder, encoders: Encoders, config: OnPolicyConfig) -> None:
    """Write what a run measures with into its folder."""
    if isinstance(encoders, FrozenEncoder):
        origin = {"trained": config.encoder is not None, "from": config.encoder}
        save_encoder(run.path / ENCODER, encoders, origin)
    elif encoders.warm_up is not None:
        write_arrays(run.path / WARM_UP, encoders.warm_up._asdict())


def kept_encoders(run: RunFolder, config: OnPolicyConfig, spec: EnvSpec) -> Encoders:
    """What a run measures with; made again where it was killed before that was written."""
    file = run.path / (ENCODER if spec.sees_frames else WARM_UP)
    if spec.sees_frames and file.exists():
        return load_encoder(file)
    if not spec.sees_frames and file.exists():
        return VectorEncoders(spec, WarmUp(**read_arrays(file)[0]))
    encoders = encoders_of(config, spec)
    keep_encoders(run, encoders, config)
    return encoders


def encoder_of(config: OnPolicyConfig, spec: EnvSpec) -> FrozenEncoder:
    """The trained encoder that was asked for, or a random one."""
    if config.encoder is None:
        key = jax.random.fold_in(jax.random.key(config.seed), ENCODER_STREAM)
        return random_encoder(key, spec.frame_shape, config.state_dim, _random_frames(config, spec))
    encoder = load_encoder(config.encoder)
    if encoder.frame_shape != spec.frame_shape:
        raise ValueError(
            f"The encoder {config.encoder} takes frames of {encoder.frame_shape} pixels, "
            f"{spec.name} has {spec.frame_shape}: "
            "train one for it with element pretrain-encoder."
        )
    return encoder


def _random_frames(config: OnPolicyConfig, spec: EnvSpec) -> UInt8[np.ndarray, "N H W"]:
    """What a random policy sees: the states of an untrained encoder get the same spread as those of
    a trained one."""
    generator = np.random.default_rng([config.seed, ENCODER_STREAM])
    running = RunningEpisode(spec, make_env(spec.name, **env_options(config)))
    frames: list[np.ndarray] = []
    ended = True
    with contextlib.closing(running.env):
        while len(frames) < FRAMES_TO_STANDARDISE:
            if ended:
                running.begin(int(generator.integers(2**31)))
                ended = False
            else:
                _, terminated, truncated = running.step(_random_action(spec, generator))
                ended = bool(terminated or truncated)
            frames.append(running.observation.copy())
    return np.stack(frames)


def _warm_up(config: OnPolicyConfig, spec: EnvSpec) -> WarmUp:
    """Random actions before the run, which tell the units of its states. They depend on the
    environment alone, so that all agents and all rewards measure in the same units."""
    generator = np.random.default_rng([0, ENCODER_STREAM])
    running = RunningEpisode(spec, make_env(spec.name, **env_options(config)))
    rows: list[tuple[Any, Any, int]] = []
    episode, ended = -1, True
    with contextlib.closing(running.env):
        for _ in range(WARM_UP_STEPS):
            if ended:
                episode += 1
                running.begin(int(generator.integers(2**31)))
            rows.append((running.observation.copy(), running.position.copy(), episode))
            _, terminated, truncated = running.step(_random_action(spec, generator))
            ended = bool(terminated or truncated)
    observations, positions, episodes = zip(*rows[::WARM_UP_EVERY], strict=True)
    seen, places = (np.asarray(parts, np.float32) for parts in (observations, positions))
    return WarmUp(seen, places, np.asarray(episodes))


def _random_action(spec: EnvSpec, generator: np.random.Generator) -> Any:
    if spec.chooses:
        return int(generator.integers(spec.actions))
    return generator.uniform(-1.0, 1.0, spec.action_dim).astype(np.float32)


@eqx.filter_jit
def _encoded(
    encoder: StateEncoder, observations: Float[Array, "N O"], positions: Float[Array, "N C"]
) -> Float[Array, "N D"]:
    return jax.vmap(encoder)(jnp.asarray(observations, jnp.float32), positions)
