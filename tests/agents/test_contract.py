"""What holds for every agent, whether it acts or learns from a dataset. `test_acting_agents.py` has
what holds for those that act."""

import importlib
import pkgutil
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from element_rl import agents
from element_rl.acting.policies import policy_of
from element_rl.agents import (
    behaviour_cloning,
    cql,
    discrete_cloning,
    discrete_cql,
    dqn,
    iql,
    sac,
    td3,
    td3_bc,
)
from element_rl.agents.contract import Agent, Batch
from element_rl.agents.discrete_cql import DiscreteBatch
from element_rl.storage.files import read_arrays, write_arrays
from element_rl.storage.trees import arrays_to_tree, tree_to_arrays

# For vectors of 3 numbers and actions of 2, or a choice of 4.
OBSERVATION_DIM, ACTION_DIM, CHOICES, ROWS = 3, 2, 4, 8
TD3, CLONING = td3.TD3Config((16, 16)), behaviour_cloning.CloningConfig((16,))
DQN = dqn.DQNConfig((16, 16), dueling=True)


class AgentCase(NamedTuple):
    """An agent under test, and how its state acts on the device, without noise."""

    agent: Agent
    act: Callable[[Any, jax.Array], jax.Array]
    chooses: bool = False  # among actions; else they are vectors
    draws: bool = True  # random numbers in its updates
    one_hot: bool = False  # actions in its batches, of those that choose


def greedy(network: discrete_cql.QNetwork, observation: jax.Array) -> jax.Array:
    return discrete_cql.act(network, observation[None], jax.random.key(0))[0]


STILL: Any = {"key": jax.random.key(0), "deterministic": True}
VECTORS, VALUES = (OBSERVATION_DIM, ACTION_DIM), ((OBSERVATION_DIM,), CHOICES)
EVERY = {
    "sac": AgentCase(
        sac.agent(sac.SACConfig((16, 16)), *VECTORS),
        lambda state, observation: sac.act(state, observation, **STILL),
    ),
    "td3": AgentCase(
        td3.agent(TD3, *VECTORS),
        lambda state, observation: td3.act(state, observation, config=TD3, **STILL),
    ),
    "dqn": AgentCase(
        dqn.agent(DQN, OBSERVATION_DIM, CHOICES),
        lambda state, observation: dqn.act(state, observation, DQN),
        chooses=True,
        draws=False,
        one_hot=True,
    ),
    "cql": AgentCase(
        cql.agent(cql.CQLConfig(hidden_sizes=(16, 16), sampled_actions=4), *VECTORS),
        lambda state, observation: sac.act(state.agent, observation, **STILL),
    ),
    "td3_bc": AgentCase(
        td3_bc.agent(td3_bc.TD3BCConfig(hidden_sizes=(16, 16)), *VECTORS),
        lambda state, observation: td3.act(state, observation, config=TD3, **STILL),
    ),
    "iql": AgentCase(
        iql.agent(iql.IQLConfig(hidden_sizes=(16, 16), actor_decay_steps=10), *VECTORS),
        lambda state, observation: state.actor.mean(observation[None])[0],
        draws=False,
    ),
    "behaviour_cloning": AgentCase(
        behaviour_cloning.agent(CLONING, *VECTORS),
        lambda state, observation: jnp.tanh(state.actor(observation[None])[0][0]),
        draws=False,
    ),
    "discrete_cql": AgentCase(
        discrete_cql.agent(discrete_cql.DiscreteCQLConfig(hidden_sizes=(16,)), *VALUES),
        lambda state, observation: greedy(state.values, observation),
        chooses=True,
        draws=False,
    ),
    "discrete_cloning": AgentCase(
        discrete_cloning.agent(CLONING, *VALUES),
        lambda state, observation: greedy(state.policy, observation),
        chooses=True,
        draws=False,
    ),
}
everybody = pytest.mark.parametrize("name", list(EVERY))


def test_every_agent_is_tested_here() -> None:
    modules = {
        module.name: importlib.import_module(f"{agents.__name__}.{module.name}")
        for module in pkgutil.iter_modules(agents.__path__)
    }
    assert EVERY.keys() == {name for name, module in modules.items() if hasattr(module, "agent")}


def batch_of(name: str, seed: int) -> Batch | DiscreteBatch:
    """Transitions at random, every fourth the last of its episode."""
    rng = np.random.default_rng(seed)
    shape, ended = (ROWS, OBSERVATION_DIM), jnp.asarray(np.arange(ROWS) % 4 == 0)
    reward = jnp.asarray(rng.normal(size=ROWS), jnp.float32)
    before, after = (jnp.asarray(rng.normal(size=shape), jnp.float32) for _ in range(2))
    if EVERY[name].chooses:
        choice = jnp.asarray(rng.integers(CHOICES, size=ROWS), jnp.int32)
        if EVERY[name].one_hot:
            return Batch(before, jnp.eye(CHOICES)[choice], reward, after, ended)
        return DiscreteBatch(before, choice, reward, after, ended)
    action = jnp.asarray(rng.uniform(-1, 1, size=(ROWS, ACTION_DIM)), jnp.float32)
    return Batch(before, action, reward, after, ended)


@lru_cache
def update_of(name: str) -> Callable[..., Any]:
    return jax.jit(EVERY[name].agent.update)


def updated(name: str, state: Any, updates: range, seed: int = 0) -> tuple[Any, Any]:
    """After some updates: the state, and the metrics of the last one."""
    key, metrics = jax.random.key(seed + 50), None
    for number in updates:
        batch = batch_of(name, 10 * seed + number)
        state, metrics = update_of(name)(state, batch, jax.random.fold_in(key, number))
    return state, metrics


def assert_equal(left: Any, right: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, left, right)


@everybody
def test_a_population_is_its_agents_alone(name: str) -> None:
    """As the training loops run it: created under vmap, then scans of updates that consume the
    state they are given, compiled once."""
    agent, members, length, traces = EVERY[name].agent, 2, 2, []

    def updates(state: Any, batches: Any, keys: jax.Array) -> Any:
        traces.append(None)
        step = lambda carry, x: jax.vmap(agent.update)(carry, *x)  # noqa: E731
        return jax.lax.scan(step, state, (batches, keys))

    program = jax.jit(updates, donate_argnums=0)
    keys = jax.random.split(jax.random.key(4), members)
    alone: list[tuple[Any, Any]] = [(agent.create(key), None) for key in keys]
    together = jax.vmap(agent.create)(keys)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(together))
    for first in (0, length):
        numbers = range(first, first + length)
        batches = jax.tree.map(
            lambda *leaves: jnp.stack(leaves).reshape(length, members, *leaves[0].shape),
            *(batch_of(name, 10 * member + number) for number in numbers for member in (0, 1)),
        )
        draws = jnp.stack(
            [
                jnp.stack([jax.random.fold_in(jax.random.key(m + 50), n) for m in range(members)])
                for n in numbers
            ]
        )
        before = together
        together, metrics = program(together, batches, draws)
        assert all(leaf.is_deleted() for leaf in jax.tree.leaves(before))
        for member in range(members):
            alone[member] = updated(name, alone[member][0], numbers, member)
            for ours, theirs in zip(
                jax.tree.leaves(alone[member]),
                jax.tree.leaves((together, {k: v[-1] for k, v in metrics.items()})),
                strict=True,
            ):
                np.testing.assert_allclose(ours, theirs[member], rtol=0, atol=1e-5)
    assert len(traces) == 1


@everybody
def test_metrics_are_those_that_the_agent_names(name: str) -> None:
    agent = EVERY[name].agent
    _, metrics = updated(name, agent.create(jax.random.key(0)), range(1))
    assert set(metrics) == set(agent.metric_names)
    assert all(np.isfinite(value) for value in metrics.values())


@everybody
def test_the_same_keys_give_identical_agents_and_others_do_not(name: str) -> None:
    agent, draws = EVERY[name].agent, EVERY[name].draws
    first, second, other = (agent.create(jax.random.key(seed)) for seed in (0, 0, 1))
    assert_equal(first, second)
    assert not np.array_equal(*(agent.policy(state)["weight_0"] for state in (first, other)))
    batch, keys = batch_of(name, 0), [jax.random.key(seed) for seed in (5, 5, 6)]
    one, two, three = (update_of(name)(first, batch, key) for key in keys)
    assert_equal(one, two)
    same = all(map(np.array_equal, jax.tree.leaves(one), jax.tree.leaves(three)))
    assert same != draws


@everybody
def test_a_stored_agent_goes_on_as_if_it_had_not_been_stored(name: str, tmp_path: Path) -> None:
    agent, file = EVERY[name].agent, tmp_path / "agent.safetensors"
    state, _ = updated(name, agent.create(jax.random.key(0)), range(2))
    write_arrays(file, tree_to_arrays(state))
    restored = arrays_to_tree(agent.create(jax.random.key(1)), read_arrays(file)[0])
    assert_equal(restored, state)
    assert_equal(updated(name, restored, range(2, 4)), updated(name, state, range(2, 4)))


@everybody
def test_a_stored_policy_acts_on_the_host_as_its_agent_on_the_device(name: str) -> None:
    agent, act, chooses, *_ = EVERY[name]
    keys = jax.random.split(jax.random.key(3), 3)
    population = jax.vmap(agent.create)(keys)
    stored = jax.device_get(agent.policy(population))
    bounds = np.ones(ACTION_DIM, np.float32)
    box = gymnasium.spaces.Box(-bounds, bounds)
    space = gymnasium.spaces.Discrete(CHOICES) if chooses else box
    observations = np.random.default_rng(0).normal(size=(20, OBSERVATION_DIM)).astype(np.float32)
    on_device = jax.jit(jax.vmap(jax.vmap(act, in_axes=(None, 0)), in_axes=(0, None)))
    expected = on_device(population, observations)
    for member in range(3):
        policy = policy_of({key: array[member] for key, array in stored.items()}, space)
        policy.begin()
        actions = [policy.act(seen, np.random.default_rng(), True) for seen in observations]
        np.testing.assert_allclose(actions, expected[member], atol=1e-6)
