"""The device side of offline learning: a population, its data, and the one program that trains it.

One call makes many updates of all agents: each draws a batch from its own portion of the rows and
learns from it. Metrics are summed on the device until they are asked for. The number of updates is
an argument, so one compilation serves every call.
"""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt

from element_rl.agents.contract import Agent
from element_rl.agents.iql import IQLConfig
from element_rl.agents.networks import over_population
from element_rl.training.offline.algorithms import form_of, settings_of
from element_rl.training.offline.batches import (
    DevicePortion,
    DeviceRows,
    device_portions,
    rows_of,
    sample,
)
from element_rl.training.offline.config import OfflineConfig
from element_rl.training.offline.data import OfflineData, Portion


def make_agent(config: OfflineConfig, source: OfflineData) -> Agent:
    """What `config.algorithm` means for this data."""
    form, shape = form_of(config.algorithm, source.discrete), source.observation_shape
    settings = settings_of(config, source.discrete)
    if source.discrete:
        return form.agent(settings, shape, source.num_actions, source.frame_stack)
    if isinstance(settings, IQLConfig) and settings.actor_decay_steps is None:
        settings = dataclasses.replace(settings, actor_decay_steps=config.steps)
    return form.agent(settings, shape[0], source.num_actions)


class OfflineLearner:
    """Agents that learn each from its own portion of the data; `seeds` and `portions` [P]."""

    def __init__(
        self, agent: Agent, rows: DeviceRows, portions: Sequence[Portion], seeds: Sequence[int]
    ) -> None:
        self.agent, self._rows, self.portions, self.seeds = agent, rows, portions, seeds
        self._device_portions = device_portions(portions)
        self._seeds = jnp.asarray(seeds, jnp.uint32)
        self.agents = jax.vmap(lambda seed: agent.create(jax.random.key(seed)))(self._seeds)
        self.sums = {name: jnp.zeros(len(portions)) for name in agent.metric_names}
        self.updates = 0
        self._updates = jax.jit(partial(_updates, agent), donate_argnums=(0, 1))
        self._policy = jax.jit(agent.policy)
        self._under_way: Array | None = None

    def update(self, count: int) -> None:
        """So many updates of every agent, on their way; at most two calls are."""
        before = self._under_way
        self.agents, self.sums, self._under_way = self._updates(
            self.agents,
            self.sums,
            self._rows,
            self._device_portions,
            self._seeds,
            np.uint32(self.updates),
            np.int32(count),
        )
        self.updates += count
        if before is not None:
            # or Python would run ahead of the device, deaf to signals
            jax.block_until_ready(before)

    def take_sums(self) -> dict[str, Float[np.ndarray, " P"]]:
        """Metrics summed over the updates since they were last taken."""
        sums = {name: np.asarray(value) for name, value in self.sums.items()}
        self.sums = {name: jnp.zeros(len(self.portions)) for name in self.agent.metric_names}
        return sums

    def parameters(self) -> dict[str, np.ndarray]:
        """The policies [P, ...], for raw observations: standardising them is folded into the first
        layer."""
        parameters = {
            name: np.asarray(array)
            for name, array in jax.device_get(self._policy(self.agents)).items()
        }
        mean, deviation = (
            np.stack([getattr(portion, name) for portion in self.portions])
            for name in ("mean", "deviation")
        )
        if mean.shape[1]:
            weight, bias = folded(parameters["weight_0"], parameters["bias_0"], mean, deviation)
            parameters |= {"weight_0": weight, "bias_0": bias}
        return parameters


def make_learner(config: OfflineConfig, source: OfflineData) -> OfflineLearner:
    """A fresh population: `config.seeds` agents for each portion, portion by portion."""
    portions = [portion for portion in source.portions for _ in range(config.seeds)]
    seeds = [config.seed + agent for agent in range(len(portions))]
    return OfflineLearner(
        make_agent(config, source), rows_of(source, config.reward_scale), portions, seeds
    )


def folded(
    weight: Float[np.ndarray, "P O H"],
    bias: Float[np.ndarray, "P H"],
    mean: Float[np.ndarray, "P O"],
    deviation: Float[np.ndarray, "P O"],
) -> tuple[Float[np.ndarray, "P O H"], Float[np.ndarray, "P H"]]:
    """The first layer W, b with ((o - m) / d) W + b = o W' + b'."""
    scaled = weight.astype(np.float64) / deviation[:, :, None]
    shifted = bias - np.einsum("po,poh->ph", mean.astype(np.float64), scaled)
    return scaled.astype(np.float32), shifted.astype(np.float32)


def _updates(
    functions: Agent,
    agents: Any,
    sums: dict[str, Float[Array, " P"]],
    rows: DeviceRows,
    portions: DevicePortion,
    seeds: UInt[Array, " P"],
    first: UInt[Array, ""],
    count: Int[Array, ""],
) -> tuple[Any, dict[str, Float[Array, " P"]], Array]:
    """`count` updates of all agents from update `first` on; the last value is there to be waited
    for."""

    def one(agent: Any, portion: DevicePortion, seed: Array, index: Array) -> Any:
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), 2), index)
        sample_key, update_key = jax.random.split(key)
        batch = sample(rows, portion, sample_key, functions.batch_size, functions.frame_stack)
        return functions.update(agent, batch, update_key)

    def step(turn: Array, carry: tuple[Any, dict[str, Array]]) -> tuple[Any, dict[str, Array]]:
        agents, sums = carry
        index = jnp.broadcast_to(first + turn.astype(jnp.uint32), seeds.shape)
        agents, metrics = over_population(one)(agents, portions, seeds, index)
        return agents, {name: total + metrics[name] for name, total in sums.items()}

    agents, sums = jax.lax.fori_loop(0, count, step, (agents, sums))
    return agents, sums, first + count.astype(jnp.uint32)
