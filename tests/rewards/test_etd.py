"""ETD against numbers by hand and against loops of NumPy in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from support.by_hand import episode_of, init, observe, transitions, update
from support.small_rewards import SMALL_REWARDS

from element_rl.rewards import RewardSpec
from element_rl.rewards.etd import (
    EtdConfig,
    EtdReward,
    EtdState,
    all_distances,
    contrastive_loss,
    drawn_pairs,
    steps_ahead,
    temporal_distance,
)

SPEC = RewardSpec(
    observation_dim=3, action_dim=2, state_dim=4, max_episode_steps=40, total_steps=1_000
)


def etd(**options) -> EtdReward:
    return EtdReward(EtdConfig(**(SMALL_REWARDS["etd"] | options)))


@functools.cache
def fresh() -> EtdState:
    return init(etd(), jax.random.key(0), SPEC)


def mlp(network, inputs: np.ndarray) -> np.ndarray:
    """A network with ReLU, in NumPy and float64."""
    hidden = np.asarray(inputs, np.float64)
    weights = [np.asarray(weight, np.float64) for weight in network.weights]
    biases = [np.asarray(bias, np.float64) for bias in network.biases]
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        hidden = np.maximum(hidden @ weight + bias, 0)
    return hidden @ weights[-1] + biases[-1]


def distance_loop(x: np.ndarray, y: np.ndarray) -> float:
    """d(x, y) of two embeddings, one coordinate after the other."""
    half = len(x) // 2
    forward = max(max(x[i] - y[i], 0.0) for i in range(half))
    return forward + np.sqrt(sum((x[i] - y[i]) ** 2 for i in range(half, len(x))) + 1e-8)


def test_the_distance_by_hand() -> None:
    """First halves (3, 0) and (1, 4): forward max(2, 0) = 2, backward max(0, 4) = 4. Last halves
    (0, 0) and (3, 4): 5 both ways."""
    x, y = jnp.array([3.0, 0.0, 0.0, 0.0]), jnp.array([1.0, 4.0, 3.0, 4.0])
    assert float(temporal_distance(x, y)) == pytest.approx(7.0, abs=1e-6)
    assert float(temporal_distance(y, x)) == pytest.approx(9.0, abs=1e-6)
    assert float(temporal_distance(x, x)) == pytest.approx(1e-4, abs=1e-7)


def test_notes_are_the_least_distance_from_an_earlier_state() -> None:
    """s_0 … s_t for the bonus of s_{t+1}, of the same episode alone; padding is paid nothing."""
    state, rng = fresh(), np.random.default_rng(1)
    for length in (40, 1, 13):
        visited = rng.normal(size=(length + 1, 3)).astype(np.float32)
        embedded = mlp(state.distance.encoder, visited)
        expected = [
            min(distance_loop(embedded[k], embedded[t + 1]) for k in range(t + 1))
            for t in range(length)
        ]
        state, notes = observe(etd(), state, episode_of(visited))
        np.testing.assert_allclose(notes["temporal_distance"][:length], expected, rtol=1e-4)
        assert not np.any(notes["temporal_distance"][length:])


def test_the_note_is_the_reward() -> None:
    batch = transitions(3, notes={"temporal_distance": [0.5, 2.0, 0.0]})
    np.testing.assert_array_equal(etd().reward(fresh(), batch), [0.5, 2.0, 0.0])
    terms = etd().reward_terms(fresh(), batch)
    np.testing.assert_array_equal(terms["reward_episodic"], [0.5, 2.0, 0.0])


def test_the_pool_holds_the_latest_episodes_and_what_follows_each_observation() -> None:
    """A pool of 41 places: an episode of 40 steps fills it, one of 2 takes its three oldest."""
    reward = etd(pool_size=41)
    state = init(reward, jax.random.key(0), SPEC)
    first, second = (np.arange(3.0 * rows).reshape(rows, 3) for rows in (41, 3))
    state, _ = observe(reward, state, episode_of(first))
    state, _ = observe(reward, state, episode_of(-second))
    latest = state.latest
    assert (int(latest.head), int(latest.number)) == (3, 41)
    np.testing.assert_array_equal(latest.following[:5], [2, 1, 0, 37, 36])
    np.testing.assert_array_equal(latest.observation[:3], -second)
    np.testing.assert_array_equal(latest.observation[3:], first[3:])


def test_pairs_are_of_one_episode_and_in_order() -> None:
    """The observation says its episode and its step, so a pair can be told."""
    state = fresh()
    for number, length in enumerate((12, 5)):
        steps = np.arange(length + 1.0)
        visited = np.stack([np.full(length + 1, number), steps, 0 * steps], axis=1)
        state, _ = observe(etd(), state, episode_of(visited))
    before, after, present = drawn_pairs(state.latest, jax.random.key(3), 4_000, 0.5)
    before, after, present = (np.asarray(part) for part in (before, after, present))
    np.testing.assert_array_equal(before[:, 0], after[:, 0])
    ahead = after[:, 1] - before[:, 1]
    last = np.where(before[:, 0] == 0, 12, 5)
    np.testing.assert_array_equal(present, before[:, 1] < last)
    np.testing.assert_array_equal(ahead > 0, present)
    # 17 of 19 observations have a future, and all 19 are drawn alike
    assert present.mean() == pytest.approx(17 / 19, abs=0.02)
    assert set(before[:, 1][before[:, 0] == 0]) == set(range(13))
    from_first = ahead[(before[:, 0] == 0) & (before[:, 1] == 0)]
    assert (from_first == 1).mean() == pytest.approx(0.5, abs=0.1)


def test_steps_ahead_by_hand() -> None:
    """γ = 1/2, three to follow: P = 4/7, 2/7, 1/7; a draw at the end of each share and just after
    it."""
    draws = jnp.array([0.0, 0.57, 0.572, 0.857, 0.858, 0.9999])
    found = steps_ahead(draws, jnp.full(6, 3), 0.5)
    np.testing.assert_array_equal(found, [1, 1, 2, 2, 3, 3])
    np.testing.assert_array_equal(steps_ahead(draws, jnp.zeros(6, int), 0.5), np.zeros(6))
    np.testing.assert_array_equal(steps_ahead(draws, jnp.full(6, 3), 0.0), np.ones(6))


def test_the_contrastive_loss_by_hand() -> None:
    """Four pairs, the third of which is not there: its x and its y are as if not drawn."""
    model, rng = fresh().distance, np.random.default_rng(2)
    before, after = (rng.normal(size=(4, 3)).astype(np.float32) for _ in range(2))
    present = np.array([True, True, False, True])
    there = np.flatnonzero(present)
    x, y = (mlp(model.encoder, part[there]) for part in (before, after))
    potential = mlp(model.potential, after[there])[:, 0]
    logits = np.array(
        [[potential[j] - distance_loop(x[i], y[j]) for j in range(3)] for i in range(3)]
    )
    chosen, share = np.diag(logits), np.exp(logits)
    terms = chosen - 0.5 * (np.log(share.sum(axis=1)) + np.log(share.sum(axis=0)))
    arrays = (jnp.asarray(part) for part in (before, after, present))
    loss, metrics = jax.jit(contrastive_loss)(model, *arrays)
    assert float(loss) == pytest.approx(-terms.mean(), rel=1e-5)
    assert float(metrics["etd_loss"]) == float(loss)
    right = (logits.argmax(axis=1) == np.arange(3)).mean()
    assert float(metrics["etd_accuracy"]) == pytest.approx(right)


def test_nothing_is_learned_before_an_episode_has_ended() -> None:
    state, metrics = update(etd(), fresh(), transitions(4), jax.random.key(1))
    for ours, theirs in zip(jax.tree.leaves(state), jax.tree.leaves(fresh()), strict=True):
        if jnp.issubdtype(ours.dtype, jnp.floating):
            np.testing.assert_array_equal(ours, theirs)
    assert float(metrics["etd_loss"]) == 0.0


def test_on_a_line_the_distance_grows_with_the_steps_between() -> None:
    """An agent that only ever walks forward: what lies farther ahead is farther away, and what lies
    behind, where it never goes, is farther than what lies as far ahead."""
    reward = etd(num_pairs=64, learning_rate=3e-3, discount=0.8)
    line = np.stack([np.linspace(-2, 2, 41), np.zeros(41), np.zeros(41)], axis=1)
    state, _ = observe(reward, fresh(), episode_of(line))
    keys = jax.random.split(jax.random.key(2), 500)
    learn = jax.jit(
        lambda state: jax.lax.scan(lambda s, k: reward.update(s, transitions(1), k), state, keys)
    )
    state, metrics = learn(state)
    assert metrics["etd_loss"][-20:].mean() < 0.9 * metrics["etd_loss"][:20].mean()
    embedded = mlp(state.distance.encoder, line)
    ahead = [distance_loop(embedded[5], embedded[5 + steps]) for steps in (1, 8, 30)]
    assert ahead == sorted(ahead)
    assert distance_loop(embedded[25], embedded[15]) > distance_loop(embedded[15], embedded[25])


@pytest.mark.parametrize(
    ("name", "value"),
    [("embedding_dim", 7), ("discount", 1.0), ("num_pairs", 0), ("encoder_sizes", (0,))],
)
def test_bad_settings_are_refused(name: str, value) -> None:
    with pytest.raises(ValueError, match=rf"EtdConfig.{name} is .*; choose .*\."):
        EtdConfig(**{name: value})


def test_episodes_that_do_not_fit_the_pool_are_refused() -> None:
    with pytest.raises(ValueError, match="up to 40 steps do not fit ETD's pool of 40 observations"):
        etd(pool_size=40).init(jax.random.key(0), SPEC)


def test_the_written_derivative_of_all_distances_is_that_of_one() -> None:
    """As `jax.grad` has it of `temporal_distance`; also where two embeddings are equal."""
    keys = jax.random.split(jax.random.key(0), 3)
    before = jax.random.normal(keys[0], (5, 6))
    after = jnp.concatenate([before[:1], jax.random.normal(keys[1], (3, 6))])
    weight = jax.random.normal(keys[2], (5, 4))

    def of_pairs(x: Array, y: Array) -> Array:
        pairs = jnp.broadcast_arrays(x[:, None], y[None, :])
        return jnp.sum(weight * temporal_distance(*pairs))

    def of_all(x: Array, y: Array) -> Array:
        return jnp.sum(weight * all_distances(x, y))

    for argument in (0, 1):
        expected = jax.grad(of_pairs, argument)(before, after)
        found = jax.grad(of_all, argument)(before, after)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(of_all(before, after), of_pairs(before, after), rtol=1e-6)
