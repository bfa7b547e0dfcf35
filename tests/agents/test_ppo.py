"""PPO's advantages, loss and streams by hand; its network on the host; and probes with known
answers."""

import dataclasses
from functools import partial
from math import e, exp, log, pi
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from element_rl.acting import host_ppo
from element_rl.agents import ppo
from element_rl.agents.ppo_network import Layers, PPONetwork, network_of, policy_parameters

SMALL = ppo.PPOConfig(
    rollout_steps=4,
    epochs=2,
    minibatches=2,
    hidden_sizes=(8,),
    channels=(2, 2),
    frame_units=8,
    memory_size=4,
    learning_rate=1e-2,
)


def column(*values: Any) -> jax.Array:
    return jnp.array(values)[:, None]


def advantages(reward: Any, value: Any, next_value: Any, ended: Any, **settings: float) -> Any:
    given = {"discount": 0.5, "decay": 0.5, **settings}
    return ppo.advantages(
        column(*reward), column(*value), column(*next_value), column(*ended), **given
    )[:, 0]


def test_advantages_by_hand() -> None:
    """γ = λ = ½: δ = r + ½V' − V, A_t = δ_t + ¼A_{t+1}."""
    found = advantages([1.0, 2.0, 3.0], [0.0, 2.0, 4.0], [2.0, 4.0, 8.0], [False] * 3)
    third = 3 + 0.5 * 8 - 4
    second = 2 + 0.5 * 4 - 2 + 0.25 * third
    np.testing.assert_allclose(found, [1 + 0.5 * 2 - 0 + 0.25 * second, second, third])
    ends = advantages([1.0, 2.0, 3.0], [0.0, 2.0, 4.0], [2.0, 0.0, 8.0], [False, True, False])
    np.testing.assert_allclose(ends, [2 + 0.25 * 0, 0, 3])


def rollout(terminated: bool, **others: Any) -> ppo.Rollout:
    """Two steps of one environment, whose first step ends an episode that was at 7."""
    given = {
        "observation": jnp.array([[[1.0]], [[2.0]]]),
        "action": jnp.zeros((2, 1), jnp.int32),
        "reward": jnp.ones((2, 1, 1)),
        "terminated": column(terminated, False),
        "ended": column(True, False),
        "begins": jnp.array([True]),
        "memory": jnp.zeros((1, 2, 0)),
        "following": jnp.array([[3.0]]),
        "final": jnp.array([[7.0], [9.0]]),
        "final_step": jnp.array([0, 2]),  # the second row holds nothing
        "final_env": jnp.array([0, 0]),
    }
    return ppo.Rollout(**{**given, **others})


def observed_values(streams: int = 1) -> PPONetwork:
    """A network whose values are ten times the observation, of a policy that is uniform."""
    policy = Layers((jnp.zeros((1, 2)),), (jnp.zeros(2),))
    value = Layers((jnp.full((1, streams), 10.0),), (jnp.zeros(streams),))
    return PPONetwork(Layers(), Layers(), Layers(), policy, value, None)


@pytest.mark.parametrize(("terminated", "after"), [(True, 0.0), (False, 70.0)])
def test_an_end_has_no_value_and_a_time_limit_that_of_the_last_observation(
    terminated: bool, after: float
) -> None:
    config = dataclasses.replace(SMALL, gae_decay=0.5).resolved(False, 1)
    batch, metrics = ppo.prepared(
        observed_values(), rollout(terminated), config, (ppo.Stream(0.5),)
    )
    first, second = 1 + 0.5 * after - 10, 1 + 0.5 * 30 - 20
    np.testing.assert_allclose(batch.advantage[:, 0], [first, second])
    np.testing.assert_allclose(batch.returns[:, 0, 0], [first + 10, second + 20])
    np.testing.assert_allclose(batch.log_probability, log(0.5))
    assert batch.begins[:, 0].tolist() == [True, True]
    assert float(metrics["value_mean"]) == 15.0


def test_the_second_stream_goes_on_across_ends_with_its_own_discount_and_weight() -> None:
    config = dataclasses.replace(SMALL, gae_decay=0.5).resolved(False, 1)
    streams = (ppo.Stream(0.5), ppo.Stream(0.2, weight=3.0, episodic=False))
    both = rollout(True, reward=jnp.stack([jnp.ones((2, 1)), jnp.full((2, 1), 2.0)], axis=-1))
    batch, _ = ppo.prepared(observed_values(2), both, config, streams)
    task = [1 - 10, 1 + 0.5 * 30 - 20]
    second = 2 + 0.2 * 30 - 20
    bonus = [2 + 0.2 * 20 - 10 + 0.2 * 0.5 * second, second]
    weighted = [one + 3 * other for one, other in zip(task, bonus, strict=True)]
    np.testing.assert_allclose(batch.advantage[:, 0], weighted, rtol=1e-6)
    expected = np.stack([task, bonus], axis=-1) + np.array([[10], [20]])
    np.testing.assert_allclose(batch.returns[:, 0], expected, rtol=1e-6)


def minibatch(log_probability: Any, advantage: Any) -> ppo.Minibatch:
    count = len(advantage)
    ones = jnp.ones((1, count))
    return ppo.Minibatch(
        jnp.ones((1, count, 1)),
        jnp.zeros((1, count), jnp.int32),
        jnp.array([log_probability]),
        9.0 * ones[..., None],
        jnp.array([advantage]),
        12.0 * ones[..., None],
        ones > 0,
        jnp.zeros((count, 2, 0)),
    )


def test_the_clipped_loss_by_hand() -> None:
    """π is ½ everywhere, V is 10. Ratios are 2, 2, ½, ½ and 1; a gain beyond 1 ± 0.2 does not
    count, a loss does."""
    config = dataclasses.replace(SMALL, normalise_advantages=False, entropy_weight=0.1)
    config = config.resolved(False, 1)
    old = [log(0.25), log(0.25), log(1.0), log(1.0), log(0.5)]
    loss, metrics = ppo.ppo_loss(
        observed_values(), minibatch(old, [1.0, -1.0, 1.0, -1.0, 3.0]), config
    )
    surrogate = (1.2 * 1 + 2 * -1 + 0.5 * 1 + 0.8 * -1 + 3) / 5
    assert float(metrics["actor_loss"]) == pytest.approx(-surrogate)
    assert float(metrics["critic_loss"]) == pytest.approx((12 - 10) ** 2)
    assert float(metrics["policy_entropy"]) == pytest.approx(log(2))
    assert float(metrics["clip_fraction"]) == pytest.approx(4 / 5)
    kl = (2 * (2 - 1 - log(2)) + 2 * (0.5 - 1 - log(0.5))) / 5
    assert float(metrics["policy_kl"]) == pytest.approx(kl)
    assert float(loss) == pytest.approx(-surrogate + 0.5 * 4 - 0.1 * log(2))


def test_normalised_advantages_and_clipped_values() -> None:
    config = dataclasses.replace(SMALL, clip_values=True).resolved(False, 1)
    _, metrics = ppo.ppo_loss(
        observed_values(), minibatch([log(0.25), log(0.5)], [5.0, 7.0]), config
    )
    # advantages are −1 and 1; the value went from 9 to 10, of which 0.2 count
    assert float(metrics["actor_loss"]) == pytest.approx(-(2 * -1 + 1) / 2, abs=1e-6)
    assert float(metrics["critic_loss"]) == pytest.approx((12 - 9.2) ** 2, rel=1e-6)


def test_a_gaussian_by_hand() -> None:
    network = dataclasses.replace(observed_values(), log_std=jnp.array([0.0, log(2.0)]))
    mean, action = jnp.array([[[1.0, -1.0]]]), jnp.array([[[2.0, 3.0]]])
    density = exp(-0.5) / (2 * pi) ** 0.5 * exp(-2.0) / (2 * (2 * pi) ** 0.5)
    assert float(ppo.log_probabilities(network, mean, action)[0, 0]) == pytest.approx(log(density))
    assert float(ppo.entropies(network, mean)[0, 0]) == pytest.approx(log(2 * pi * e) + log(2))


def test_every_step_is_in_one_minibatch_of_every_epoch() -> None:
    rows = ppo.shuffled(jax.random.key(0), 12, 3, 4)
    assert rows.shape == (12, 3)
    assert (np.sort(rows.reshape(3, 12), axis=1) == np.arange(12)).all()
    uneven = np.asarray(ppo.shuffled(jax.random.key(0), 5, 1, 2))
    assert uneven.shape == (2, 3)
    assert set(uneven.ravel()) == set(range(5))


KINDS = [
    *(
        (shape, chooses, recurrent)
        for shape in ((3,), (12, 10))
        for chooses, recurrent in ((True, False), (False, True))
    ),
]


def made(
    shape: tuple[int, ...], chooses: bool, recurrent: bool, config: ppo.PPOConfig = SMALL
) -> tuple[ppo.PPOState, ppo.PPOConfig, ppo.Rollout]:
    """An agent and a rollout of four environments in which an episode has ended."""
    config = dataclasses.replace(config, recurrent=recurrent).resolved(len(shape) > 1, 4)
    network = ppo.network_shape(shape, 2, chooses, 1, config)
    rng = np.random.default_rng(0)

    def seen(*rows: int) -> np.ndarray:
        if len(shape) > 1:
            return rng.integers(0, 255, (*rows, *shape)).astype(np.uint8)
        return rng.normal(size=(*rows, *shape)).astype(np.float32)

    action: Any = rng.integers(0, 2, (6, 4)).astype(np.int32)
    if not chooses:
        action = rng.normal(size=(6, 4, 2)).astype(np.float32)
    ended = np.zeros((6, 4), bool)
    ended[2, 1] = True
    arrays: Any = (
        seen(6, 4),
        action,
        rng.normal(size=(6, 4, 1)).astype(np.float32),
        np.zeros((6, 4), bool),
        ended,
        np.array([True, False, True, True]),
        rng.normal(size=(4, 2, network.memory_size)).astype(np.float32),
        seen(4),
        seen(4),
        np.array([2, 6, 6, 6], np.int32),
        np.array([1, 0, 0, 0], np.int32),
    )
    state = ppo.begin(jax.random.key(1), network, config)
    return state, config, ppo.Rollout(*map(jnp.asarray, arrays))


@pytest.mark.parametrize(("shape", "chooses", "recurrent"), KINDS)
def test_the_host_computes_what_jax_does(
    shape: tuple[int, ...], chooses: bool, recurrent: bool
) -> None:
    state, config, given = made(shape, chooses, recurrent)
    state, _ = jax.jit(partial(ppo.learn, config=config, streams=(ppo.Stream(0.9),)))(
        state, given, jax.random.key(2), jnp.float32(0.1)
    )
    parameters = {name: np.asarray(a) for name, a in policy_parameters(state.network).items()}
    begins = np.concatenate([given.begins[None], given.ended[:-1]])
    out = network_of(parameters)(given.observation, jnp.asarray(begins), given.memory)
    assert (host_ppo.memory_units(parameters) > 0) == recurrent
    memory = np.asarray(given.memory)
    for step in range(6):
        said = host_ppo.said(parameters, np.asarray(given.observation[step]), begins[step], memory)
        memory = said.memory
        for ours, theirs in zip(said, out, strict=True):
            np.testing.assert_allclose(ours, theirs[step], atol=1e-5)
    alone = host_ppo.said(
        parameters,
        np.asarray(given.observation[0, :1]),
        begins[0, :1],
        np.asarray(given.memory[:1]),
    )
    np.testing.assert_allclose(alone.policy, out.policy[0, :1], atol=1e-5)


def test_a_memory_is_forgotten_where_an_episode_begins() -> None:
    state, _, given = made((3,), True, True)
    begins = jnp.concatenate([given.begins[None], given.ended[:-1]])
    out = state.network(given.observation, begins, given.memory)
    fresh = state.network(given.observation[3:, 1:2], jnp.zeros((3, 1), bool), jnp.zeros((1, 2, 4)))
    np.testing.assert_allclose(out.values[3:, 1:2], fresh.values, atol=1e-6)


def test_what_is_drawn() -> None:
    choices = {"policy_weight_0": np.zeros((1, 3))}
    logits = np.log(np.array([[0.2, 0.3, 0.5]], np.float32)).repeat(5, axis=0)
    uniforms = np.array([[0.0], [0.19], [0.21], [0.51], [1 - 1e-12]])
    assert host_ppo.drawn(choices, logits, uniforms).tolist() == [0, 0, 1, 2, 2]
    assert host_ppo.likeliest(choices, logits).tolist() == [2] * 5
    box = {**choices, "log_std": np.log(np.array([2.0, 1.0, 0.5], np.float32))}
    drawn = host_ppo.drawn(box, np.ones((1, 3), np.float32), np.array([[1.0, -4.0, 0.0]]))
    np.testing.assert_allclose(drawn, [[3.0, -3.0, 1.0]], rtol=1e-6)
    np.testing.assert_allclose(host_ppo.in_bounds(drawn), [[1.0, -1.0, 1.0]])
    with pytest.raises(ValueError, match="diverged"):
        host_ppo.in_bounds(np.full((1, 3), np.nan))


def test_learning_stops_at_the_divergence_that_is_allowed() -> None:
    state, config, given = made((3,), True, False)

    def learned(**settings: Any) -> ppo.PPOState:
        changed = dataclasses.replace(config, **settings)
        learn = partial(ppo.learn, config=changed, streams=(ppo.Stream(0.9),))
        return learn(state, given, jax.random.key(0), jnp.float32(0.3))[0]

    def moved(after: ppo.PPOState) -> float:
        return float(jnp.abs(after.network.policy.weights[-1]).sum())

    # the first minibatch meets the policy that acted: one step is made
    assert int(learned(target_kl=1e-9).optimiser[1].count) == 1  # type: ignore[index, union-attr]
    assert int(learned(target_kl=1e9).optimiser[1].count) == 4  # type: ignore[index, union-attr]
    assert moved(learned(target_kl=1e9)) == moved(learned())


def test_refused_settings() -> None:
    for setting in ("rollout_steps", "epochs", "minibatches", "memory_size"):
        with pytest.raises(ValueError, match=f"PPOConfig.{setting} is 0"):
            ppo.PPOConfig(**{setting: 0})
    for setting, value in (("discount", 1.0), ("bonus_discount", -0.1), ("gae_decay", 1.1)):
        with pytest.raises(ValueError, match=setting):
            ppo.PPOConfig(**{setting: value})
    with pytest.raises(ValueError, match="whole environments, of which there are 4"):
        ppo.PPOConfig(recurrent=True, minibatches=8).resolved(False, 4)


def probe(reward: Any, recurrent: bool, updates: int, chooses: bool = True) -> tuple[Any, Any]:
    """An agent that has learned in eight environments whose observation is a coin's, 1 or −1, and
    its values at both. `reward`: of observations [T + 1, E] and actions [T, E]."""
    config = ppo.PPOConfig(
        rollout_steps=16,
        epochs=4,
        minibatches=2,
        hidden_sizes=(16,),
        memory_size=8,
        learning_rate=1e-2,
        discount=0.5,
        recurrent=recurrent,
    ).resolved(False, 8)
    shape = ppo.network_shape((1,), 2 if chooses else 1, chooses, 1, config)
    state = ppo.begin(jax.random.key(0), shape, config)
    learn = jax.jit(partial(ppo.learn, config=config, streams=(ppo.Stream(0.5),)))
    rng = np.random.default_rng(0)
    memory, begins = np.zeros((8, 2, shape.memory_size), np.float32), np.ones(8, bool)
    seen = rng.choice([-1.0, 1.0], (17, 8, 1)).astype(np.float32)
    rewards = np.zeros(0)
    for update in range(updates):
        parameters = {name: np.asarray(a) for name, a in policy_parameters(state.network).items()}
        before, actions, goes_on = memory, [], begins
        for step in range(16):
            out = host_ppo.said(parameters, seen[step], goes_on, memory)
            memory, goes_on = out.memory, np.zeros(8, bool)
            noise = rng.random((8, 1)) if chooses else rng.normal(size=(8, 1))
            actions.append(host_ppo.drawn(parameters, out.policy, noise))
        taken = np.stack(actions)
        rewards = reward(seen[..., 0], taken)
        never = np.zeros((16, 8), bool)
        arrays: Any = (
            *(seen[:-1], taken, rewards[..., None].astype(np.float32), never, never),
            *(begins, before, seen[-1], seen[:8, 0], np.full(8, 16), np.zeros(8, int)),
        )
        state, _ = learn(
            state, ppo.Rollout(*map(jnp.asarray, arrays)), jax.random.key(update), 1e-2
        )
        begins = np.zeros(8, bool)
        later = rng.choice([-1.0, 1.0], (16, 8, 1)).astype(np.float32)
        seen = np.concatenate([seen[-1:], later])
    both = state.network(
        jnp.array([[[-1.0], [1.0]]]), jnp.ones((1, 2), bool), jnp.zeros((2, 2, shape.memory_size))
    )
    return rewards, both


def test_values_of_rewards_with_known_answers() -> None:
    """γ = ½: 2 of a constant 1; of a reward that is the observation, it and nothing later."""
    _, out = probe(lambda seen, actions: np.ones(actions.shape), False, 40)
    np.testing.assert_allclose(out.values[0, :, 0], [2.0, 2.0], atol=0.1)
    _, out = probe(lambda seen, actions: seen[:-1], False, 40)
    np.testing.assert_allclose(out.values[0, :, 0], [-1.0, 1.0], atol=0.25)


def test_it_learns_what_pays() -> None:
    rewards, _ = probe(lambda seen, actions: (actions == (seen[:-1] > 0)) * 1.0, False, 30)
    assert rewards.mean() > 0.9
    rewards, out = probe(
        lambda seen, actions: -((actions[..., 0] - 0.5 * seen[:-1]) ** 2), False, 60, chooses=False
    )
    assert float(jnp.abs(out.policy[0, :, 0] - jnp.array([-0.5, 0.5])).max()) < 0.15


def test_a_memory_learns_what_was_seen_before() -> None:
    """The action that pays is the observation before this one: without a memory half of them are
    right."""

    def as_before(seen: np.ndarray, actions: np.ndarray) -> np.ndarray:
        before = np.concatenate([np.ones((1, 8)), seen[:-2]])
        return (actions == (before > 0)) * 1.0

    assert probe(as_before, False, 40)[0][1:].mean() < 0.65
    assert probe(as_before, True, 120)[0][1:].mean() > 0.85
