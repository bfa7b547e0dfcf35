"""DQN: targets and losses by hand, exploration, dueling heads, and its stored policy on the host.
`test_contract.py` and `test_acting_agents.py` have what holds for every agent."""

import dataclasses
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from element_rl.acting.host_policy import mean_action, policy_action
from element_rl.acting.policies import policy_of
from element_rl.agents import dqn
from element_rl.agents.contract import Anchor, Batch
from element_rl.agents.dqn import DQNConfig, DQNState
from element_rl.mlp import MLP

KEY = jax.random.key(0)


def linear(weights: list[list[float]]) -> MLP:
    """Values that are linear in the observation."""
    matrix = jnp.asarray(weights, jnp.float32)
    return MLP((matrix,), (jnp.zeros(matrix.shape[1]),))


def state_of(values: MLP, target_values: MLP) -> DQNState:
    made = dqn.create(KEY, 2, 3, DQNConfig((4,)))
    return dataclasses.replace(made, values=values, target_values=target_values)


# Q(s) and the target's for s = (1, 0) and (0, 1): three choices each
VALUES = linear([[1.0, 3.0, 2.0], [0.0, -1.0, 5.0]])
TARGETS = linear([[10.0, 20.0, 30.0], [7.0, 8.0, 9.0]])
BATCH = Batch(
    observation=jnp.asarray([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]),
    action=jnp.eye(3)[jnp.asarray([2, 1, 0])],
    reward=jnp.asarray([0.5, 1.0, -2.0]),
    next_observation=jnp.asarray([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]),
    terminated=jnp.asarray([False, True, False]),
)


@pytest.mark.parametrize(
    ("double", "expected"),
    [
        # Q chooses 1 at (1, 0) and 2 at (0, 1), which the target values 20 and 9
        (True, [0.5 + 0.9 * 20, 1.0, -2.0 + 0.9 * 9]),
        (False, [0.5 + 0.9 * 30, 1.0, -2.0 + 0.9 * 9]),
    ],
)
def test_target_by_hand(double: bool, expected: list[float]) -> None:
    config = DQNConfig((4,), discount=0.9, double=double)
    target = dqn.value_target(state_of(VALUES, TARGETS), BATCH, config)
    np.testing.assert_allclose(target, expected, rtol=1e-6)


def test_loss_by_hand() -> None:
    """Q(s, a) is 2, -1 and 1; the errors are 0.5, -3 and 1."""
    loss, metrics = dqn.value_loss(VALUES, BATCH, jnp.asarray([1.5, 2.0, 0.0]), DQNConfig())
    assert float(loss) == pytest.approx((0.5**2 / 2 + (3 - 0.5) + 0.5) / 3)
    assert float(metrics["q_mean"]) == pytest.approx(2 / 3)
    assert float(metrics["target_mean"]) == pytest.approx(3.5 / 3)


def test_the_target_network_follows_by_its_rate() -> None:
    config = DQNConfig((4,), target_rate=0.25)
    state = dqn.create(KEY, 2, 3, config)
    after, _ = dqn.update(state, BATCH, KEY, config)
    for new, old, target in zip(
        *(jax.tree.leaves(tree) for tree in (after.values, state.values, after.target_values)),
        strict=True,
    ):
        np.testing.assert_allclose(target, 0.75 * old + 0.25 * new, rtol=1e-5)
        assert np.any(np.asarray(new) != np.asarray(old))


def test_exploration_falls_by_the_same_amount_to_its_end() -> None:
    config = DQNConfig((4,), final_exploration=0.2, exploration_updates=4)
    state, rates = dqn.create(KEY, 2, 3, config), []
    for _ in range(6):
        rates.append(float(dqn.policy(state, config)["exploration_rate"]))
        state, metrics = dqn.update(state, BATCH, KEY, config)
    np.testing.assert_allclose(rates, [1.0, 0.8, 0.6, 0.4, 0.2, 0.2], rtol=1e-6)
    assert float(metrics["exploration_rate"]) == pytest.approx(0.2)


def test_an_agent_with_a_policy_goes_on_with_its_exploration() -> None:
    config = DQNConfig((4,), final_exploration=0.1, exploration_updates=10)
    first, second = (dqn.create(jax.random.key(seed), 2, 3, config) for seed in (0, 1))
    first = dataclasses.replace(first, updates=jnp.asarray(5))
    given = dqn.with_policy(second, dqn.policy(first, config), config)
    rate = dqn.exploration_rate(given, config)
    assert float(rate) == pytest.approx(1 - 0.9 / 2)
    for ours, theirs in zip(
        jax.tree.leaves(given.target_values), jax.tree.leaves(first.values), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


def test_dueling_heads_by_hand() -> None:
    """V = 1 and A = (2, 4, 9), whose mean is 5."""
    np.testing.assert_allclose(dqn.duelled(jnp.asarray([1.0, 2.0, 4.0, 9.0])), [-2.0, 0.0, 5.0])
    values = jnp.asarray([[3.0, 5.0, 1.0]])
    np.testing.assert_allclose(dqn.parted(values), [[3.0, 0.0, 2.0, -2.0]])
    np.testing.assert_allclose(dqn.duelled(dqn.parted(values)), values)


def test_dueling_heads_are_stored_as_one_layer() -> None:
    config = DQNConfig((8,), dueling=True)
    state = dqn.create(KEY, 3, 4, config)
    stored = dqn.policy(state, config)
    assert stored["weight_1"].shape == (8, 4)
    observation = jax.random.normal(KEY, (5, 3))
    layers = MLP((stored["weight_0"], stored["weight_1"]), (stored["bias_0"], stored["bias_1"]))
    expected = dqn.action_values(state.values, observation, config)
    np.testing.assert_allclose(layers(observation), expected, atol=1e-6)
    given = dqn.with_policy(dqn.create(jax.random.key(1), 3, 4, config), stored, config)
    again = dqn.action_values(given.values, observation, config)
    np.testing.assert_allclose(again, expected, atol=1e-6)


def stored_policy(rate: float) -> dict[str, np.ndarray]:
    """Values 0, 2 and 1 of three choices, wherever the agent is."""
    return {
        "weight_0": np.zeros((2, 3), np.float32),
        "bias_0": np.array([0.0, 2.0, 1.0], np.float32),
        "exploration_rate": np.float32(rate),
    }


@pytest.mark.parametrize(
    ("noise", "choice"), [((0.3, 0.0), 1), ((0.1, 0.0), 0), ((0.1, 0.5), 1), ((0.1, 0.999), 2)]
)
def test_two_uniforms_choose(noise: tuple[float, float], choice: int) -> None:
    """At a rate of 0.2 the first says whether the second chooses."""
    action = policy_action(stored_policy(0.2), np.zeros(2), np.array(noise))
    np.testing.assert_array_equal(action, np.eye(3)[choice])


def test_the_likeliest_action_is_never_drawn() -> None:
    np.testing.assert_array_equal(
        mean_action(stored_policy(1.0), np.zeros(2), np.zeros(2)), [0, 1, 0]
    )
    policy = policy_of(stored_policy(1.0), gymnasium.spaces.Discrete(3, start=5))
    generator = np.random.default_rng(0)
    assert {policy.act(np.zeros(2), generator, True) for _ in range(20)} == {6}
    drawn = [policy.act(np.zeros(2), generator, False) for _ in range(3_000)]
    np.testing.assert_allclose(np.bincount(drawn)[5:] / 3_000, 1 / 3, atol=0.03)


def test_values_that_diverged_are_named() -> None:
    for value in (np.nan, np.inf):
        parameters = stored_policy(0.0) | {"bias_0": np.array([0.0, value, 1.0], np.float32)}
        with pytest.raises(ValueError, match=r"are no finite numbers: what it learned .* diverged"):
            policy_action(parameters, np.zeros(2), np.ones(2))


def test_what_it_has_none_of_is_refused() -> None:
    config = DQNConfig((4,))
    state = dqn.create(KEY, 2, 3, config)
    with pytest.raises(ValueError, match=r"DQN has no actor that could be held .* leave --anchor"):
        dqn.update(state, BATCH, KEY, config, anchor=Anchor(state.values, jnp.ones(())))
    with pytest.raises(ValueError, match="take --tell-position both or none"):
        dqn.agent(config, 4, 3, actor_dim=2)


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({"final_exploration": 1.5}, "final_exploration is 1.5; choose between 0 and 1"),
        ({"exploration_updates": 0}, "exploration_updates is 0; choose at least 1"),
        ({"hidden_sizes": ()}, "choose one or more positive widths"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], advice: str) -> None:
    with pytest.raises(ValueError, match=advice):
        DQNConfig(**settings)
