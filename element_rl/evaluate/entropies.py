"""The paper's evaluation entropy of an episode: matrix-based, of order 1.001, in bits."""

from collections.abc import Callable

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from element_rl.acting.episode import Episode
from element_rl.encoders.frozen import encode_all, load_encoder
from element_rl.encoders.state import StateEncoder, make_state_encoder
from element_rl.entropy import evaluation_entropy
from element_rl.envs.spec import EnvSpec
from element_rl.runs.folder import RunFolder
from element_rl.training.off_policy.warm_up import stored_warm_up
from element_rl.training.on_policy.launch import ENCODER
from element_rl.training.on_policy.measures import episode_entropy

MeasureEntropy = Callable[[int, Episode], float]
"""The entropy of an episode of the agent of this index."""


def entropy_measure(run: RunFolder, spec: EnvSpec, seed: int) -> MeasureEntropy:
    """Measures episodes as the run's agents see them: vectors by the encoder of each agent's seed,
    frames by the run's own encoder. Of frames without one, which offline runs have not, it is
    NaN."""
    if not spec.sees_frames:
        warm_up, encoders = stored_warm_up(run), dict[int, StateEncoder]()

        def of_vectors(agent: int, episode: Episode) -> float:
            if agent not in encoders:
                encoders[agent] = make_state_encoder(
                    seed + agent, spec.task_dim, spec.orientation_slice, warm_up=warm_up
                )
            return entropy_of(encoders[agent], episode, spec.max_episode_steps)

        return of_vectors
    if not (run.path / ENCODER).exists():
        return lambda agent, episode: float("nan")
    encoder = load_encoder(run.path / ENCODER)
    return lambda agent, episode: episode_entropy(encode_all(encoder, episode.observations[1:]))


def entropy_of(encoder: StateEncoder, episode: Episode, steps: int) -> float:
    """Of an episode of vectors; all are padded to the longest, so that one program measures
    them."""
    observations, positions = episode.observations[1:], episode.positions[1:]
    missing = steps - len(observations)
    padded = [np.pad(array, ((0, missing), (0, 0))) for array in (observations, positions)]
    return float(_entropy(encoder, *padded, np.arange(steps) < len(observations)))


@eqx.filter_jit
def _entropy(encoder: StateEncoder, observations: Array, positions: Array, mask: Array) -> Array:
    return evaluation_entropy(jax.vmap(encoder)(observations, positions), mask)
