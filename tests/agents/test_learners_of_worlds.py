"""What SAC and TD3 offer to learners with few updates for each step: layer normalisation, and an
actor that learns at every n-th update."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from element_rl.acting.host_policy import is_normalised, policy_action, policy_widths
from element_rl.agents import sac, td3
from element_rl.agents.contract import Agent, Batch
from element_rl.agents.making import make_agent
from element_rl.agents.stored_policy import policy_actions
from element_rl.cli import main
from element_rl.mlp import MLP, layer_norm
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.off_policy.explorer import Explorer
from element_rl.training.off_policy.resolving import resolved

SETTINGS: dict[str, Any] = {
    "sac": sac.SACConfig(hidden_sizes=(8, 4), layer_norm="both"),
    "td3": td3.TD3Config(hidden_sizes=(8, 4), layer_norm="both"),
}
both = pytest.mark.parametrize("name", list(SETTINGS))


def batch_of(size: int = 8) -> Batch:
    rng = np.random.default_rng(0)
    values = (rng.normal(size=shape) for shape in ((size, 3), (size, 2), (size,), (size, 3)))
    return Batch(*(jnp.asarray(array, jnp.float32) for array in values), jnp.zeros(size))


def agent_of(name: str, **changed: Any) -> Agent:
    return make_agent(name, dataclasses.replace(SETTINGS[name], **changed), 3, 2)


def test_layer_norm_by_hand() -> None:
    """Mean 3 and variance (4 + 1 + 0 + 9) / 4 = 3.5."""
    hidden = jnp.array([[1.0, 2.0, 3.0, 6.0], [0.0, 0.0, 0.0, 0.0]])
    scale, offset = jnp.array([1.0, 2.0, 3.0, 4.0]), jnp.array([0.5, 0.0, 0.25, -1.0])
    root = 3.50001**0.5
    expected = [[0.5 - 2 / root, -2 / root, 0.25, 12 / root - 1.0], [0.5, 0.0, 0.25, -1.0]]
    np.testing.assert_allclose(layer_norm(hidden, scale, offset), expected, rtol=1e-6)


def test_a_normalised_network_by_hand() -> None:
    """One hidden layer of two units, y = (x, 3x): normalised to ∓1, of which ReLU keeps one."""
    network = MLP(
        (jnp.array([[1.0, 3.0]]), jnp.array([[5.0], [7.0]])),
        (jnp.zeros(2), jnp.array([0.5])),
        (jnp.array([1.0, 2.0]),),
        (jnp.zeros(2),),
    )
    # for x = 2: mean 4, deviation 2; for x = -2 the first unit is the larger
    found = network(jnp.array([[2.0], [-2.0]]))
    np.testing.assert_allclose(found, [[7.0 * 2.0 + 0.5], [5.0 * 1.0 + 0.5]], rtol=1e-5)


def test_without_it_networks_are_what_they_were() -> None:
    plain, asked = (MLP.create(jax.random.key(0), (3, 8, 2), normalised=n) for n in (False, True))
    assert len(jax.tree.leaves(plain)) == 4  # so that older checkpoints fit
    assert len(jax.tree.leaves(asked)) == 6
    for ours, theirs in zip(plain.weights, asked.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for norms, leaves in (("none", 0), ("critics", 2 * 2), ("both", 2 * 2 + 2 * 2)):
        state = agent_of("sac", layer_norm=norms).create(jax.random.key(0))
        named = (state.actor.network, state.critics.networks)
        assert sum(len(network.scales) + len(network.offsets) for network in named) == leaves


@both
def test_stored_policies_say_it_and_act_on_the_host_as_on_the_device(name: str) -> None:
    agent = agent_of(name)
    state = jax.vmap(agent.create)(jax.random.split(jax.random.key(0)))
    spread = jax.tree.map(
        lambda leaf: (
            leaf + 0.3 * jnp.cos(jnp.arange(leaf.size, dtype=jnp.float32)).reshape(leaf.shape)
        ),
        agent.policy(state),
    )
    assert agent.with_policy is not None
    stored = jax.device_get(agent.policy(agent.with_policy(state, spread)))
    assert is_normalised(stored)
    assert policy_widths(stored) == (3, 8, 4, 2)
    observation, noise = np.array([0.3, -1.0, 2.0], np.float32), np.array([0.5, -0.25], np.float32)
    for index in range(2):
        own = {key: array[index] for key, array in stored.items()}
        on_device = policy_actions(
            jax.tree.map(jnp.asarray, own),
            jnp.asarray(observation)[None],
            jnp.zeros((1, 0)),
            jnp.asarray(noise)[None],
        )[0]
        np.testing.assert_allclose(policy_action(own, observation, noise), on_device, rtol=2e-5)


@both
def test_normalised_networks_learn(name: str) -> None:
    agent = agent_of(name)
    state = agent.create(jax.random.key(0))
    for key in jax.random.split(jax.random.key(1), 2):  # TD3's actor learns at every second
        after, metrics = agent.update(state, batch_of(), key)
        moved = jax.tree.map(
            lambda new, old: bool(jnp.any(new != old)), after.critics, state.critics
        )
        assert all(jax.tree.leaves(moved))
        assert np.isfinite(list(metrics.values())).all()
        state = after


def test_between_its_updates_the_actor_stays_and_costs_nothing() -> None:
    delayed, plain = (agent_of("sac", policy_delay=delay) for delay in (4, 1))
    assert (delayed.policy_delay, plain.policy_delay) == (4, 1)
    state, batch, key = plain.create(jax.random.key(0)), batch_of(), jax.random.key(1)
    usual, reported = plain.update(state, batch, key)
    due, same = delayed.update(state, batch, key, actor_learns=jnp.asarray(True))
    for ours, theirs in zip(jax.tree.leaves(due), jax.tree.leaves(usual), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)
    assert same.keys() == reported.keys()
    waits, metrics = delayed.update(state, batch, key, actor_learns=jnp.asarray(False))
    assert eqx.tree_equal(waits.actor, state.actor)
    assert eqx.tree_equal(waits.temperature_optimiser, state.temperature_optimiser)
    assert float(waits.log_temperature) == float(state.log_temperature)
    for part in ("critics", "target_critics"):
        assert eqx.tree_equal(getattr(waits, part), getattr(due, part), rtol=1e-5, atol=1e-7)
    # also over a population: a number that all agents share chooses, and one side is computed
    agents = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), state)
    many = jax.vmap(
        lambda one, learns: delayed.update(one, batch, key, actor_learns=learns), (0, None)
    )
    assert " cond[" in str(jax.make_jaxpr(many)(agents, jnp.asarray(False)))
    missing = {name for name, value in metrics.items() if np.isnan(value)}
    assert missing == {"actor_loss", "policy_entropy", "temperature_loss", "temperature"}


MAZE = ExploreConfig(
    "PointMaze-v0",
    physics="jax",
    envs_per_agent=4,
    steps=512,
    seeds=2,
    replay_size=1_000,
    updates_per_step=0.25,
    random_seeds=0,
    env_options=("max_episode_steps=40",),
    sac=sac.SACConfig(
        hidden_sizes=(8, 8), batch_size=8, learn_start=64, layer_norm="both", policy_delay=3
    ),
)


def test_a_run_counts_the_updates_of_its_actors() -> None:
    with Explorer(*resolved(MAZE), None) as explorer:
        explorer.train(lambda progress: None, lambda: False)
        learner = explorer.learner
        assert learner.updates == 16 * 7
        counts = learner.state.agents.temperature_optimiser[0].count
        np.testing.assert_array_equal(counts, [16 * 7 // 3] * 2)
        np.testing.assert_array_equal(learner.state.agents.critic_optimiser[0].count, [16 * 7] * 2)
        for name in ("actor_loss", "critic_loss", "temperature"):
            assert np.isfinite(explorer.metrics.latest[name])


def test_the_temperature_falls_as_fast_with_fewer_updates_of_its_own() -> None:
    rate = resolved(MAZE).config.sac.temperature_learning_rate
    assert rate == pytest.approx(3 * 4 * 3e-4)


def test_what_cannot_be_is_refused_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="policy_delay is 0; choose at least 1"):
        sac.SACConfig(policy_delay=0)
    assert main(["explore", "PointMaze-v0", "--steps", "640", "--sac.policy-delay", "65"]) == 2
    printed = capsys.readouterr().err.strip()
    assert "more than the 64 updates of a chunk of 64 steps" in printed
    assert len(printed.splitlines()) == 1
