"""NGU against numbers by hand and against a plain NumPy loop over time, in float64."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.by_hand import episode_of

from element_rl.replay.ring import Transitions
from element_rl.rewards import Reward, RewardSpec
from element_rl.rewards.ngu import NguConfig, NguReward, NguState, RunningMean, episodic_novelty
from element_rl.rewards.recent_moments import RecentMoments
from element_rl.rewards.scaling import standard_deviation

SPEC = RewardSpec(
    observation_dim=3, action_dim=2, state_dim=4, max_episode_steps=40, total_steps=1_000
)
SMALL = {
    "encoder_sizes": (16,),
    "head_sizes": (16,),
    "rnd_sizes": (16,),
    "rnd_output_dim": 8,
    "embedding_dim": 5,
}
NOTHING = RunningMean(jnp.zeros(()), jnp.zeros(()))

# Compiled once for every setting: op by op the tests would take minutes.
init = jax.jit(NguReward.init, static_argnums=(0, 2))
observe = jax.jit(NguReward.observe, static_argnums=0)
update = jax.jit(NguReward.update, static_argnums=0)


def ngu(**options) -> NguReward:
    return NguReward(NguConfig(**(SMALL | options)))


@functools.cache
def fresh(seed: int = 0) -> NguState:
    """A new state; only widths of layers shape it, so it serves every setting tested here."""
    return init(ngu(), jax.random.key(seed), SPEC)


def batch_of(size: int, seed: int = 0) -> Transitions:
    """Transitions whose action is the change of the observation, so that an inverse model can
    learn."""
    rng = np.random.default_rng(seed)
    observation = rng.normal(size=(size, 3)).astype(np.float32)
    action = rng.uniform(-1, 1, size=(size, 2)).astype(np.float32)
    change = np.concatenate([action, np.zeros((size, 1), np.float32)], axis=1)
    return Transitions(
        observation=jnp.asarray(observation),
        action=jnp.asarray(action),
        next_observation=jnp.asarray(observation + change),
        extrinsic_reward=jnp.zeros(size),
        terminated=jnp.zeros(size, bool),
        state=jnp.zeros((size, 4)),
        notes={"episodic_novelty": jnp.asarray(rng.uniform(0, 2, size).astype(np.float32))},
    )


def mlp(network, inputs: np.ndarray) -> np.ndarray:
    """A network with ReLU, in NumPy and float64."""
    hidden = np.asarray(inputs, np.float64)
    pairs = zip(network.weights, network.biases, strict=True)
    layers = [
        (np.asarray(weight, np.float64), np.asarray(bias, np.float64)) for weight, bias in pairs
    ]
    for weight, bias in layers[:-1]:
        hidden = np.maximum(hidden @ weight + bias, 0)
    return hidden @ layers[-1][0] + layers[-1][1]


def novelty_loop(embeddings: np.ndarray, config: NguConfig, distances: list[float]) -> list[float]:
    """Algorithm 1 step by step; `distances` holds every neighbour distance so far and is
    extended."""
    memory, rewards = [embeddings[0]], []
    for x in embeddings[1:]:
        nearest = sorted(float(((x - y) ** 2).sum()) for y in memory)[: config.num_neighbours]
        distances += nearest
        d_m = sum(distances) / len(distances)
        similarity = 0.0
        for d in nearest:
            similarity += config.kernel_epsilon / (
                max(d / d_m - config.cluster_distance, 0) + config.kernel_epsilon
            )
        s = math.sqrt(similarity) + config.pseudo_count
        rewards.append(0.0 if s > config.max_similarity else 1 / s)
        memory.append(x)
    return rewards


def errors_of(state: NguState, observations: np.ndarray) -> np.ndarray:
    inputs = np.asarray(observations, np.float64)
    if state.observations:
        mean, std = (
            np.asarray(part, np.float64)
            for part in (state.observations.mean, standard_deviation(state.observations))
        )
        inputs = np.clip((inputs - mean) / std, -5, 5)
    return ((mlp(state.predictor, inputs) - mlp(state.target, inputs)) ** 2).sum(axis=1)


def test_defaults_are_table_6() -> None:
    config = NguReward().config
    assert (config.num_neighbours, config.kernel_epsilon, config.cluster_distance) == (
        10,
        1e-4,
        0.008,
    )
    assert (config.pseudo_count, config.max_similarity, config.max_modulator) == (0.001, 8.0, 5.0)
    assert (config.memory_capacity, config.embedding_dim, config.learning_rate) == (
        30_000,
        32,
        5e-4,
    )
    assert (config.l2_weight, config.adam_epsilon, config.max_gradient_norm) == (1e-5, 1e-4, 40.0)
    assert (config.error_statistics, config.observation_clip) == ("recent", 5.0)
    assert isinstance(NguReward(), Reward)


def by_hand(max_similarity: float) -> np.ndarray:
    """A walk 0 → 2 → 2 → 0 on a line, k = 2, ε = ½, ξ = 0.1, c = 0.1."""
    config = NguConfig(
        num_neighbours=2,
        kernel_epsilon=0.5,
        cluster_distance=0.1,
        pseudo_count=0.1,
        max_similarity=max_similarity,
    )
    walk = jnp.array([[0.0], [2.0], [2.0], [0.0]])
    novelty, seen = episodic_novelty(walk[:-1], walk[1:], jnp.ones(3, bool), NOTHING, config)
    assert (float(seen.number), float(seen.mean)) == (5.0, pytest.approx(12 / 5))
    return np.asarray(novelty)


def test_episodic_novelty_by_hand() -> None:
    expected = [
        1 / (math.sqrt(0.5 / 1.4) + 0.1),  # one neighbour, 4 away; d_m² = 4: 4/4 − 0.1 = 0.9
        1 / (math.sqrt(1 + 0.5 / 1.9) + 0.1),  # 0 and 4 away; d_m² = 8/3: 0 and 4·3/8 − 0.1 = 1.4
        1
        # 0 and 4 away; d_m² = 12/5: 0 and 5/3 − 0.1
        / (math.sqrt(1 + 0.5 / (5 / 3 - 0.1 + 0.5)) + 0.1),
    ]
    np.testing.assert_allclose(by_hand(max_similarity=8.0), expected, rtol=1e-6)


def test_states_too_similar_earn_nothing() -> None:
    """Similarities of the walk are 0.698, 1.224 and 1.214: s_m = 1.22 cuts the second, 1.2 the
    third too."""
    kept = by_hand(max_similarity=8.0)
    np.testing.assert_allclose(by_hand(max_similarity=1.22), [kept[0], 0, kept[2]])
    np.testing.assert_allclose(by_hand(max_similarity=1.2), [kept[0], 0, 0])


def test_cluster_rule() -> None:
    """d_m² is held at 1: squared distances up to ξ count as none, beyond it ξ is taken off."""
    config = NguConfig(num_neighbours=1, cluster_distance=0.04, kernel_epsilon=0.01)
    held = RunningMean(jnp.asarray(1e12), jnp.asarray(1.0))
    walk = jnp.array([[0.0], [0.19], [1.0]])
    novelty, _ = episodic_novelty(walk[:-1], walk[1:], jnp.ones(2, bool), held, config)
    far = 0.81**2 - 0.04
    np.testing.assert_allclose(
        novelty, [1 / 1.001, 1 / (math.sqrt(0.01 / (far + 0.01)) + 0.001)], rtol=1e-5
    )


def test_fewer_than_k_neighbours_and_self_never_one() -> None:
    """A single transition has one neighbour, the first state, whatever k is; were it its own, K
    would be 1."""
    reward = ngu()
    state = fresh()
    _, notes = observe(reward, state, episode_of(np.array([[0.0, 0, 0], [1.0, 2, 3]])))
    expected = 1 / (math.sqrt(1e-4 / (1 - 0.008 + 1e-4)) + 0.001)
    np.testing.assert_allclose(notes["episodic_novelty"], [expected] + 39 * [0], rtol=1e-5)


@pytest.mark.parametrize(
    "options", [{}, {"num_neighbours": 3, "max_similarity": 0.05}, {"kernel_epsilon": 0.1}]
)
def test_notes_equal_a_loop_over_time(options) -> None:
    """Three episodes of different lengths: the memory is emptied between them, d_m² runs on."""
    reward = ngu(**options)
    state = fresh()
    rng = np.random.default_rng(1)
    distances: list[float] = []
    for length in (30, 4, 17):
        # some states are met twice
        steps = rng.normal(size=(length + 1, 3)) * (rng.uniform(size=(length + 1, 1)) > 0.3)
        visited = np.cumsum(steps, axis=0).astype(np.float32)
        expected = novelty_loop(mlp(state.inverse_model.encoder, visited), reward.config, distances)
        state, notes = observe(reward, state, episode_of(visited))
        np.testing.assert_allclose(notes["episodic_novelty"][:length], expected, rtol=2e-4)
        assert not np.any(notes["episodic_novelty"][length:])
        np.testing.assert_allclose(
            float(state.squared_distances.mean), np.mean(distances), rtol=1e-4
        )
    assert float(state.squared_distances.number) == len(distances)
    if "max_similarity" in options:
        assert 0 in expected, "the cut was met"


def test_memory_is_emptied_after_the_terminal_state() -> None:
    """An episode earns the same after another one as before it; within it, the last state counts
    what came before."""
    reward = ngu()
    walk = np.random.default_rng(0).normal(size=(12, 3))
    _, alone = observe(reward, fresh(), episode_of(walk))
    state, _ = observe(reward, fresh(), episode_of(walk))
    _, again = observe(reward, state._replace(squared_distances=NOTHING), episode_of(walk))
    np.testing.assert_array_equal(alone["episodic_novelty"], again["episodic_novelty"])
    back = np.concatenate([walk, walk[:1]])  # the terminal state is where the episode began
    _, notes = observe(reward, fresh(), episode_of(back))
    assert notes["episodic_novelty"][11] < 1, "one visit before: K = 1 for one neighbour"


def test_modulator_by_hand() -> None:
    """1 + (err − mean)/std, clipped to [1, L]; the reward is its product with the note."""
    reward = ngu(max_modulator=2.0)
    batch = batch_of(64)
    state = fresh()
    errors = errors_of(state, np.asarray(batch.next_observation))
    mean, std = np.median(errors), errors.std() / 2
    state = state._replace(
        errors=RecentMoments(jnp.asarray(0.5), jnp.float32(mean), jnp.float32(std**2))
    )
    raw = 1 + (errors - mean) / std
    assert (raw < 1).any()
    assert (raw > 2).any()
    assert ((raw > 1) & (raw < 2)).any()
    expected = np.minimum(np.maximum(raw, 1), 2)
    terms = reward.reward_terms(state, batch)
    np.testing.assert_allclose(terms["reward_lifelong"], expected, rtol=1e-4)
    np.testing.assert_array_equal(terms["reward_episodic"], batch.notes["episodic_novelty"])
    note = np.asarray(batch.notes["episodic_novelty"])
    np.testing.assert_allclose(reward.reward(state, batch), note * expected, rtol=1e-4)


def test_errors_of_recent_batches_by_hand() -> None:
    """A half-life of one batch: weights ½, ¼, ⅛ of three batches, over their sum."""
    reward = ngu(error_half_life=1.0)
    state, errors = fresh(), []
    for seed in range(3):
        batch = batch_of(16, seed)
        errors.append(errors_of(state, np.asarray(batch.next_observation)))
        state, _ = update(reward, state, batch, jax.random.key(seed))
    weights = np.repeat([1 / 7, 2 / 7, 4 / 7], 16) / 16
    mean = np.sum(weights * np.concatenate(errors))
    variance = np.sum(weights * (np.concatenate(errors) - mean) ** 2)
    np.testing.assert_allclose(float(state.errors.mean), mean, rtol=1e-4)
    np.testing.assert_allclose(float(state.errors.variance), variance, rtol=1e-3)
    np.testing.assert_allclose(float(state.errors.weight), 7 / 8, rtol=1e-6)


def test_errors_are_of_whitened_observations() -> None:
    """Mean and deviation of all next observations so far, cut to ±5; padding is left out."""
    reward, state = ngu(), fresh()
    rng = np.random.default_rng(0)
    walks = [rng.normal(3, (1, 20, 300), size=(length + 1, 3)) for length in (5, 1, 12)]
    for visited in walks:
        state, _ = observe(reward, state, episode_of(visited.astype(np.float32)))
    seen = np.concatenate([visited[1:] for visited in walks])
    far = np.concatenate([seen, [[3, 3, 1e6]]])
    inputs = np.clip((far - seen.mean(axis=0)) / seen.std(axis=0), -5, 5)
    assert inputs[-1, 2] == 5
    expected = ((mlp(state.predictor, inputs) - mlp(state.target, inputs)) ** 2).sum(axis=1)
    np.testing.assert_allclose(
        reward.errors(state, jnp.asarray(far, jnp.float32)), expected, rtol=1e-3
    )


def test_errors_of_everything_visited() -> None:
    """The statistics that this library had: every next observation so far counts alike, as it is,
    the padding left out."""
    reward = ngu(error_statistics="all", observation_clip=None)
    state = init(reward, jax.random.key(0), SPEC)
    assert state.observations == ()
    rng = np.random.default_rng(0)
    errors = []
    for length in (5, 1, 12):
        visited = rng.normal(size=(length + 1, 3)).astype(np.float32)
        errors += errors_of(state, visited[1:]).tolist()
        state, _ = observe(reward, state, episode_of(visited))
    np.testing.assert_allclose(float(state.errors.mean), np.mean(errors), rtol=1e-5)
    np.testing.assert_allclose(
        float(state.errors.squares / state.errors.number), np.var(errors), rtol=1e-4
    )


def life_with_a_new_region(reward: NguReward) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A thousand updates in a known region, episodes observed beside them; then a twentieth of what
    is drawn is new. The share above 1 before that, and the modulators of new and known states at
    the first batch that has both."""
    rng = np.random.default_rng(0)
    state = init(reward, jax.random.key(0), SPEC)

    def region(size: int, centre: float) -> np.ndarray:
        return rng.normal(centre, 0.5, size=(size, 3)).astype(np.float32)

    def batch(new: int) -> Transitions:
        places = np.concatenate([region(new, 1.2), region(128 - new, 0.0)])
        return batch_of(128)._replace(next_observation=jnp.asarray(places))

    shares = []
    for number in range(1000):
        if number % 20 == 0:
            state, _ = observe(reward, state, episode_of(region(40, 0.0)))
        drawn = batch(0)
        state, metrics = update(reward, state, drawn, jax.random.key(number))
        if number >= 900:
            modulator = np.asarray(reward.reward_terms(state, drawn)["reward_lifelong"])
            shares.append((modulator > 1).mean())
            assert float(metrics.get("ngu_modulated", shares[-1])) == pytest.approx(
                shares[-1], abs=0.01
            )
    state, _ = observe(reward, state, episode_of(np.concatenate([region(20, 0), region(20, 1.2)])))
    mixed = batch(6)
    state, _ = update(reward, state, mixed, jax.random.key(1))
    modulators = np.asarray(reward.reward_terms(state, mixed)["reward_lifelong"])
    return np.array(shares), modulators[:6], modulators[6:]


def test_what_is_new_is_modulated_when_the_error_has_fallen() -> None:
    shares, new, known = life_with_a_new_region(ngu(learning_rate=3e-3))
    assert 0.1 < shares.mean() < 0.6, "some of every batch is less known than the rest"
    assert (new > 1).all()
    assert np.median(new) > 1.5
    assert known.mean() < 1.1


def test_statistics_of_all_training_modulate_next_to_nothing() -> None:
    """What the recent ones are for: the errors of an untrained network are remembered for ever."""
    old = ngu(learning_rate=3e-3, error_statistics="all", observation_clip=None)
    shares, new, known = life_with_a_new_region(old)
    assert shares.mean() < 0.02
    assert np.median(new) == 1
    assert known.mean() < 1.001


def test_the_next_observation_matters_and_the_current_one_does_not() -> None:
    reward = ngu()
    state = fresh()
    state, _ = observe(reward, state, episode_of(np.random.default_rng(0).normal(size=(20, 3))))
    batch = batch_of(16)
    value = reward.reward(state, batch)
    np.testing.assert_array_equal(
        value, reward.reward(state, batch._replace(observation=batch.observation + 1))
    )
    np.testing.assert_array_equal(
        value, reward.reward(state, batch._replace(terminated=~batch.terminated))
    )
    other = reward.reward(state, batch._replace(next_observation=3 * batch.next_observation))
    assert np.abs(value - other).max() > 0.1


def test_padding_and_its_garbage_change_nothing() -> None:
    reward = ngu()
    walk = np.random.default_rng(0).normal(size=(15, 3))
    outcomes = [
        observe(reward, fresh(), episode_of(walk, rows, garbage))
        for rows, garbage in ((14, 0.0), (40, 1e3), (40, -5.0))
    ]
    for state, notes in outcomes[1:]:
        np.testing.assert_allclose(
            notes["episodic_novelty"][:14], outcomes[0][1]["episodic_novelty"], rtol=1e-5
        )
        for ours, theirs in zip(
            jax.tree.leaves(state), jax.tree.leaves(outcomes[0][0]), strict=True
        ):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_one_update_by_hand() -> None:
    """Both losses as reported, and the L2 part of the gradient."""
    reward, batch = ngu(), batch_of(32)
    state = fresh()
    model = state.inverse_model
    both = [mlp(model.encoder, x) for x in (batch.observation, batch.next_observation)]
    told = np.tanh(mlp(model.head, np.concatenate(both, axis=1)))
    _, metrics = update(reward, state, batch, jax.random.key(1))
    assert set(metrics) == set(reward.metric_names)
    np.testing.assert_allclose(
        metrics["ngu_inverse_loss"], ((told - np.asarray(batch.action)) ** 2).mean(), rtol=1e-5
    )
    np.testing.assert_allclose(
        metrics["ngu_rnd_loss"],
        errors_of(state, np.asarray(batch.next_observation)).mean(),
        rtol=1e-5,
    )
    decayed = ngu(l2_weight=1e3)
    shrunk, _ = update(decayed, state, batch, jax.random.key(1))
    weight, smaller = model.head.weights[0], shrunk.inverse_model.head.weights[0]
    assert (np.sign(weight - smaller) == np.sign(weight)).mean() > 0.99, (
        "a large L2 weight draws weights to 0"
    )
    np.testing.assert_array_equal(
        jax.tree.leaves(shrunk.target)[0], jax.tree.leaves(state.target)[0]
    )


def test_both_networks_learn() -> None:
    reward, batch = ngu(), batch_of(256)
    state = fresh()

    def step(state: NguState, key: jax.Array):
        return reward.update(state, batch, key)

    _, metrics = jax.jit(
        lambda state: jax.lax.scan(step, state, jax.random.split(jax.random.key(1), 600))
    )(state)
    for name in ("ngu_inverse_loss", "ngu_rnd_loss"):
        assert metrics[name][-1] < 0.2 * metrics[name][0], name


def test_standing_still_is_finite() -> None:
    """d_m² = 0: every neighbour counts in full."""
    reward = ngu()
    state = fresh()
    still = jnp.ones((20, 5))
    novelty, seen = episodic_novelty(still, still, jnp.ones(20, bool), NOTHING, reward.config)
    expected = [1 / (math.sqrt(min(t + 1, 10)) + 0.001) for t in range(20)]
    np.testing.assert_allclose(novelty, expected, rtol=1e-6)
    assert float(seen.mean) == 0
    state, notes = observe(reward, state, episode_of(np.zeros((2, 3))))
    batch = batch_of(40)._replace(next_observation=jnp.zeros((40, 3)), notes=notes)
    assert np.isfinite(reward.reward(state, batch)).all()
    empty = episode_of(np.zeros((2, 3)))._replace(mask=jnp.zeros(40, bool))
    after, notes = observe(reward, state, empty)
    assert not np.any(notes["episodic_novelty"])
    for ours, theirs in zip(jax.tree.leaves(after), jax.tree.leaves(state), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_neighbours", 0),
        ("kernel_epsilon", 0.0),
        ("cluster_distance", -0.1),
        ("max_modulator", 0.5),
        ("learning_rate", -1.0),
        ("encoder_sizes", (16, 0)),
        ("memory_capacity", 0),
        ("error_half_life", 0.0),
        ("observation_clip", -1.0),
    ],
)
def test_bad_settings_are_refused(name: str, value) -> None:
    with pytest.raises(ValueError, match=rf"NguConfig.{name} is .*; choose .*\."):
        NguConfig(**{name: value})


def test_episodes_that_do_not_fit_the_memory_are_refused() -> None:
    reward = ngu(memory_capacity=39)
    with pytest.raises(ValueError, match="up to 40 steps do not fit NGU's episodic memory of 39"):
        reward.init(jax.random.key(0), SPEC)
    init(reward, jax.random.key(0), dataclasses.replace(SPEC, max_episode_steps=39))
