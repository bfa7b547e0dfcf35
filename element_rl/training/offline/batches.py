"""The data of all agents on the device, once, and the batches that each draws from its portion."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int32, Int64, PRNGKeyArray, Shaped

from element_rl.agents.discrete_cql import DiscreteBatch
from element_rl.agents.sac import Batch
from element_rl.datasets.minari_files import DatasetError
from element_rl.training.offline.data import OfflineData, Portion


class DeviceRows(NamedTuple):
    """The rows on the device."""

    observation: Shaped[Array, "R ..."]
    action: Float[Array, "R A"] | Int[Array, " R"]
    reward: Float[Array, " R"]
    terminated: Bool[Array, " R"]
    steps: Int[Array, " N"]  # the rows that are one
    begin: Int[Array, " R"]  # the first row of the episode of each


def rows_of(source: OfflineData, reward_scale: float) -> DeviceRows:
    """Everything to the device."""
    episodes = source.episodes
    if len(episodes.reward) >= 2**31:
        raise DatasetError(
            f"{len(episodes.reward):,} rows are too many for one population: train on fewer "
            "datasets at once."
        )
    return DeviceRows(
        jnp.asarray(episodes.observation),
        jnp.asarray(episodes.action),
        jnp.asarray(episodes.reward * np.float32(reward_scale)),
        jnp.asarray(episodes.terminated),
        jnp.asarray(episodes.transitions.astype(np.int32)),
        jnp.asarray(_first_rows(episodes.lengths)),
    )


class DevicePortion(NamedTuple):
    """A portion on the device, of one agent."""

    first: Int[Array, ""]  # of its steps
    number: Int[Array, ""]
    mean: Float[Array, " O"]
    deviation: Float[Array, " O"]
    reward_factor: Float[Array, ""]


def device_portions(portions: Sequence[Portion]) -> DevicePortion:
    """One portion per agent, [P, ...]."""
    return DevicePortion(
        jnp.asarray(np.array([portion.first for portion in portions], np.int32)),
        jnp.asarray(np.array([portion.count for portion in portions], np.int32)),
        jnp.asarray(np.stack([portion.mean for portion in portions])),
        jnp.asarray(np.stack([portion.deviation for portion in portions])),
        jnp.asarray(np.array([portion.reward_factor for portion in portions], np.float32)),
    )


def sample(
    rows: DeviceRows,
    portion: DevicePortion,
    key: PRNGKeyArray,
    batch_size: int,
    frame_stack: int = 1,
) -> Batch | DiscreteBatch:
    """Steps drawn uniformly, with replacement, from the portion of one agent; vectors standardised,
    frames stacked."""
    row = rows.steps[portion.first + jax.random.randint(key, (batch_size,), 0, portion.number)]
    observation, next_observation = (_observed(rows, each, frame_stack) for each in (row, row + 1))
    if observation.ndim == 2:
        observation, next_observation = (
            (each - portion.mean[None]) / portion.deviation[None]
            for each in (observation, next_observation)
        )
    kind = Batch if rows.action.ndim == 2 else DiscreteBatch
    reward = portion.reward_factor * rows.reward[row]
    return kind(observation, rows.action[row], reward, next_observation, rows.terminated[row])


def _observed(rows: DeviceRows, row: Int[Array, " B"], frame_stack: int) -> Shaped[Array, "B ..."]:
    """Observations; of grey frames the newest `frame_stack`, [B, K, H, W], the first of an episode
    standing for those before."""
    if rows.observation.ndim != 3:
        return rows.observation[row]
    back = jnp.arange(frame_stack - 1, -1, -1)
    return rows.observation[jnp.maximum(row[:, None] - back[None], rows.begin[row][:, None])]


def _first_rows(lengths: Int64[np.ndarray, " E"]) -> Int32[np.ndarray, " R"]:
    return np.repeat(np.cumsum(lengths + 1) - (lengths + 1), lengths + 1).astype(np.int32)
