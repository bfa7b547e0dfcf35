"""ELEMENT's numbers by hand, and the two propositions of the paper checked numerically."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.by_hand import init, observe, padded_episode, reward_of, transitions, update

from element_rl.entropy import kde_entropy, knn_entropy, renyi_entropy
from element_rl.memory.graph import GraphConfig
from element_rl.replay.ring import Episode, Transitions
from element_rl.rewards import RewardSpec, make_reward
from element_rl.rewards.element import ElementReward, in_update_window
from element_rl.rewards.element_config import (
    PRESETS,
    ElementConfig,
    resolved_memory,
    states_remembered,
    update_window,
)
from element_rl.rewards.element_novelty import proposition_2_holds

SPEC = RewardSpec(
    observation_dim=3, action_dim=2, state_dim=2, max_episode_steps=8, total_steps=100
)


def episode_of(states: np.ndarray, step: int = 0, rows: int = 8) -> Episode:
    length = len(states)
    padded = np.zeros((rows, 2))
    padded[:length] = states
    episode = padded_episode(rows, length, state=padded)
    return episode._replace(step=jnp.asarray(step + np.arange(rows, dtype=np.int32)))


def batch_of(entropy: list[float], distances: Any) -> Transitions:
    return transitions(len(entropy), {"episode_entropy": entropy, "neighbour_distances": distances})


def element(**options) -> ElementReward:
    settings = {"memory": "exact", "update_interval": 10, "update_steps": 5} | options
    return ElementReward(ElementConfig(**settings))


def test_reward_by_hand() -> None:
    """Entropies 2, 4, 3 → 0, 1, ½. Norms of the distances 0, 5, 5 → novelty log 1, log 6, log 6 →
    0, 1, 1."""
    reward = element(lifelong_weight=0.5)
    state = init(reward, jax.random.key(0), SPEC)
    batch = batch_of([2.0, 4.0, 3.0], [[0.0, 0.0, 0.0], [0.0, 3.0, 4.0], [3.0, 4.0, jnp.inf]])
    np.testing.assert_allclose(
        reward.novelty(batch.notes["neighbour_distances"]), np.log([1, 6, 6]), rtol=1e-6
    )
    np.testing.assert_allclose(reward_of(reward, state, batch), [0.0, 1.5, 1.0], rtol=1e-6)


def test_weights() -> None:
    batch = batch_of([0.0, 1.0], [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
    for options, expected in (
        ({"lifelong_weight": 0.0}, [0.0, 1.0]),
        ({"episodic_weight": 0.0, "lifelong_weight": 2.0}, [2.0, 0.0]),
        ({"lifelong_weight": 2.0}, [2.0, 1.0]),
    ):
        reward = element(**options)
        np.testing.assert_allclose(
            reward_of(reward, init(reward, jax.random.key(0), SPEC), batch), expected
        )


def test_constant_and_empty_batches_give_zero_not_nan() -> None:
    unknown = [[jnp.inf] * 3] * 2
    for normalisation in ("batch", "running", "standard", "robust"):
        reward = element(normalisation=normalisation)
        state = init(reward, jax.random.key(0), SPEC)
        batch = batch_of([3.0, 3.0], unknown)
        state, _ = update(reward, state, batch, jax.random.key(0))
        assert reward_of(reward, state, batch).tolist() == [0.0, 0.0]
        # ... and the guard leaves no scar: later batches are scaled as ever
        state, _ = observe(reward, state, episode_of(np.zeros((3, 2))))
        state, _ = observe(reward, state, episode_of(np.array([[0.0, 0], [50, 0], [0, 50]])))
        assert np.isfinite(reward_of(reward, state, batch_of([0.0, 1.0], unknown))).all()


def test_standard_normalisation() -> None:
    """Entropies 1, 2, 3, 6 have mean 3 and deviation √(14/4); novelties log 1 and three times log 4
    have mean ¾ log 4."""
    reward = element(normalisation="standard", lifelong_weight=0.5)
    state = init(reward, jax.random.key(0), SPEC)
    batch = batch_of(
        [1.0, 2.0, 3.0, 6.0], [[0.0] * 3, [3.0, 0.0, 0.0], [3.0, 0.0, 0.0], [3.0, 0.0, 0.0]]
    )
    episodic = np.array([-2.0, -1.0, 0.0, 3.0]) / math.sqrt(3.5)
    lifelong = np.array([-3.0, 1.0, 1.0, 1.0]) / math.sqrt(3.0)
    np.testing.assert_allclose(
        reward_of(reward, state, batch), episodic + 0.5 * lifelong, rtol=1e-5, atol=1e-6
    )


def test_robust_normalisation() -> None:
    """21 entropies 0 … 20 have quantiles 1 and 19; novelties log(1 + d) with d = e^i − 1 are i, so
    the same. A state that knows no neighbour earns nothing for novelty, and counts for no scale."""
    reward = element(normalisation="robust", lifelong_weight=0.5, num_neighbours=1)
    state = init(reward, jax.random.key(0), SPEC)
    numbers = np.arange(21.0)
    batch = batch_of(numbers.tolist(), np.expm1(numbers)[:, None])
    assert not reward_of(reward, state, batch).any(), "nothing was learned yet"
    state, _ = update(reward, state, batch, jax.random.key(0))
    term = np.clip((numbers - 1.0) / 18.0, 0.0, 2.0)
    np.testing.assert_allclose(reward_of(reward, state, batch), 1.5 * term, rtol=1e-4, atol=1e-5)
    unknown = batch_of(numbers.tolist(), np.full((21, 1), np.inf))
    np.testing.assert_allclose(reward_of(reward, state, unknown), term, rtol=1e-4, atol=1e-5)
    learned, _ = update(reward, state, unknown, jax.random.key(0))
    np.testing.assert_array_equal(learned.scales[1], state.scales[1])
    assert float(learned.scales[0].batches) == 2


def test_radii_of_nearest_neighbours_have_a_floor() -> None:
    """1, 1 and 3 apart with k = 1 and a floor of 2: radii 2, 2 and 3, in two dimensions."""
    states = np.array([[0.0, 0.0], [1.0, 0.0], [4.0, 0.0]], np.float32)
    radii = np.array([2.0, 2.0, 3.0])
    shares = np.log(3 * math.pi * radii**2) + 0.5772156649
    for credit in ("state", "variation", "episode"):
        options = {"estimator": "knn", "credit": credit, "estimator_neighbours": 1}
        reward = element(**options, knn_floor=2.0)
        _, notes = observe(reward, init(reward, jax.random.key(0), SPEC), episode_of(states))
        expected = np.full(3, shares.mean()) if credit == "episode" else shares
        np.testing.assert_allclose(notes["episode_entropy"][:3], expected, rtol=1e-5)


def test_all_states_enter_where_everything_is_remembered() -> None:
    config = ElementConfig(update_interval=10, update_steps=4, remember="always")
    assert np.asarray(in_update_window(np.arange(35), config)).all()
    assert [states_remembered(total, config) for total in (0, 1, 7)] == [0, 1, 7]
    reward = element(remember="always")
    state = init(reward, jax.random.key(0), SPEC)
    state, _ = observe(reward, state, episode_of(np.arange(8, dtype=np.float32).reshape(4, 2)))
    assert int(state.memory_size) == 4
    assert reward.why_empty(1) == ""


def test_a_spaced_memory_by_hand() -> None:
    """δ = 1 in a memory of two. The first episode goes 0, 0.5, 3 and keeps 0 and 3. The second is
    at 0.5 and at 9: 9 finds no room, and δ grows to 4 before 3 is dropped."""
    reward = element(
        memory="spaced", remember="always", memory_capacity=2, memory_spacing=1.0, num_neighbours=2
    )
    state = init(reward, jax.random.key(0), SPEC)
    first = np.array([[0.0, 0.0], [0.5, 0.0], [3.0, 0.0]], np.float32)
    state, notes = observe(reward, state, episode_of(first))
    assert np.isinf(notes["neighbour_distances"]).all()
    assert notes["visitor"][:3].tolist() == [0.0, 1.0, 2.0]
    np.testing.assert_array_equal(state.memory.states, first[[0, 2]])
    assert state.memory.visitors.tolist() == [-1, 2], "0.5 came to the place of 0"
    second = np.array([[0.5, 0.0], [9.0, 0.0]], np.float32)
    state, notes = observe(reward, state, episode_of(second, step=3))
    np.testing.assert_allclose(notes["neighbour_distances"][:2], [[0.5, 2.5], [6.0, 9.0]])
    np.testing.assert_array_equal(state.memory.states, [[0.0, 0.0], [9.0, 0.0]])
    assert (int(state.memory_size), float(state.memory.spacing)) == (2, pytest.approx(4.0))
    batch = batch_of([1.0, 2.0], notes["neighbour_distances"][:2])
    _, metrics = update(reward, state, batch, jax.random.key(0))
    assert float(metrics["memory_spacing"]) == pytest.approx(4.0)


def test_settings_beyond_the_paper_are_checked() -> None:
    for options, sentence in (
        ({"memory_capacity": 1}, "room for at least 2 states, got 1"),
        ({"memory_spacing": 0.0}, "must be positive and finite, got 0.0"),
        ({"knn_floor": 0.0}, "knn_floor must be positive, got 0.0"),
    ):
        with pytest.raises(ValueError, match=sentence):
            ElementConfig(**options)


def test_running_normalisation_uses_everything_seen() -> None:
    reward = element(
        normalisation="running", lifelong_weight=1.0, estimator="renyi", renyi_order=2.0
    )
    state = init(reward, jax.random.key(0), SPEC)
    state, _ = observe(reward, state, episode_of(np.zeros((4, 2))))  # entropy 0
    # entropy log2 4 = 2
    state, _ = observe(reward, state, episode_of(100.0 * np.arange(8).reshape(4, 2)))
    e = math.e
    first = batch_of([0.0, 2.0], [[0.0] * 3, [e - 1, 0.0, 0.0]])  # novelty 0 and 1
    state, _ = update(reward, state, first, jax.random.key(0))
    second = batch_of([1.0, 1.0], [[math.sqrt(e) - 1, 0.0, 0.0]] * 2)  # entropy half way, novelty ½
    np.testing.assert_allclose(reward_of(reward, state, second), [1.0, 1.0], rtol=1e-5)


def test_observe_notes_the_entropy_and_the_distances_to_the_memory_before_it() -> None:
    reward = element(renyi_order=2.0, num_neighbours=2)
    state = init(reward, jax.random.key(0), SPEC)
    first = np.array([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]], np.float32)
    # steps 11, 12, 13 are in the window (10, 15)
    state, notes = observe(reward, state, episode_of(first, step=11))
    expected = float(renyi_entropy(jnp.asarray(first), 2.0))
    np.testing.assert_allclose(notes["episode_entropy"], expected, rtol=1e-5)
    assert np.isinf(notes["neighbour_distances"][:3]).all(), "the memory was empty"
    assert int(state.memory_size) == int(state.memory.size) == 3
    state, notes = observe(reward, state, episode_of(np.array([[0.0, 0.0]], np.float32), step=20))
    np.testing.assert_allclose(notes["neighbour_distances"][0], [0.0, 5.0])
    assert int(state.memory_size) == 3, "step 20 is in no window: t mod 10 = 0"


STATES = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)


def noted_while_running(
    reward: ElementReward, states: np.ndarray, whole: int, growth: float
) -> Any:
    """What the states of an episode are paid that is to have so many, after such episodes."""
    state = init(reward, jax.random.key(0), SPEC)._replace(growth=jnp.asarray(growth))
    seen = episode_of(states)._replace(whole=jnp.asarray(whole))
    return observe(reward, state, seen)[1]["episode_entropy"][: len(states)]


@pytest.mark.parametrize("credit", ["state", "variation", "episode"])
@pytest.mark.parametrize("estimator", ["renyi", "kde", "knn"])
def test_a_running_episode_is_paid_as_if_it_went_on_as_others_have(
    estimator: str, credit: str
) -> None:
    """Where episodes always went to new places, six states of 18 are paid what they are in an
    episode of which the other twelve are two copies of them, far away; where they always came back,
    they are paid as if it were over."""
    reward = element(estimator=estimator, credit=credit, estimator_neighbours=2, running=True)
    state = init(reward, jax.random.key(0), SPEC)
    copies = np.concatenate([STATES + 100.0 * part for part in range(3)])
    whole = observe(reward, state, episode_of(copies, rows=18))[1]["episode_entropy"]
    running = noted_while_running(reward, STATES, whole=18, growth=1.0)
    np.testing.assert_allclose(running, whole[:6], rtol=1e-3, atol=1e-3)
    over = observe(reward, state, episode_of(STATES))[1]["episode_entropy"][:6]
    np.testing.assert_allclose(noted_while_running(reward, STATES, 18, growth=0.0), over, rtol=1e-4)
    half = noted_while_running(reward, STATES, 18, growth=0.5)
    unit = math.log(2.0) if estimator == "renyi" else 1.0
    np.testing.assert_allclose(half - over, 0.5 * math.log(3.0) / unit, rtol=1e-4)


@pytest.mark.parametrize("credit", ["state", "variation"])
@pytest.mark.parametrize("estimator", ["renyi", "kde", "knn"])
def test_growth_tells_going_on_from_coming_back(estimator: str, credit: str) -> None:
    settings = {"estimator": estimator, "credit": credit, "estimator_neighbours": 1}
    reward = element(**settings, running=True)
    on, back = (
        episode_of(np.concatenate([STATES[:4], STATES[:4] + apart])) for apart in (100.0, 1e-3)
    )
    state = init(reward, jax.random.key(0), SPEC)
    assert float(state.growth) == 0.0
    state, _ = observe(reward, state, on)
    np.testing.assert_allclose(state.growth, 1.0, atol=1e-3)
    state, _ = observe(reward, state, back)
    np.testing.assert_allclose(state.growth, 0.5, atol=5e-3)  # the mean of 1 and 0
    plain = init(element(**settings), jax.random.key(0), SPEC)
    assert plain.growth == ()  # kept only where it is needed


def test_an_episode_that_is_whole_has_nothing_to_come() -> None:
    reward = element(length_weighted=True, running=True)
    notes = [
        observe(reward, init(reward, jax.random.key(0), SPEC), each)[1]["episode_entropy"]
        for each in (episode_of(STATES), episode_of(STATES)._replace(whole=jnp.asarray(6)))
    ]
    np.testing.assert_array_equal(*notes)


def test_a_state_can_be_paid_what_itself_adds_to_the_entropy() -> None:
    """Two states at one place and one far away: densities 2/3, 2/3, 1/3, so shares −log of these;
    their mean is H."""
    reward = element(estimator="kde", credit="state")
    state = init(reward, jax.random.key(0), SPEC)
    states = np.array([[0.0, 0.0], [0.0, 0.0], [100.0, 0.0]], np.float32)
    _, notes = observe(reward, state, episode_of(states))
    np.testing.assert_allclose(
        notes["episode_entropy"][:3], -np.log([2 / 3, 2 / 3, 1 / 3]), rtol=1e-5
    )
    entropy = float(kde_entropy(jnp.asarray(states)))
    assert float(np.mean(notes["episode_entropy"][:3])) == pytest.approx(entropy, rel=1e-5)


def test_a_state_can_be_paid_the_first_variation_of_the_entropy() -> None:
    """The same states: A³ has 4/27, 4/27, 1/27 on its diagonal, so N (A³)_ii / tr A³ − 1 is 1/3,
    1/3, −2/3, times −3/2 / ln 2, around H = ½ log2 3. With KDE −log of the densities 2/3, 2/3, 1/3:
    nothing is near that is not equal. kNN pays the shares."""
    states = np.array([[0.0, 0.0], [0.0, 0.0], [100.0, 0.0]], np.float32)
    third = 0.5 * math.log2(3) - 1.5 / math.log(2) * np.array([1 / 3, 1 / 3, -2 / 3])
    radii = np.array([1e-12, 1e-12, 100.0])
    expected = {
        "renyi": third,
        "kde": -np.log([2 / 3, 2 / 3, 1 / 3]),
        "knn": np.log(3 * math.pi * radii**2) + 0.5772156649,
    }
    for estimator, values in expected.items():
        reward = element(estimator=estimator, credit="variation", estimator_neighbours=1)
        _, notes = observe(reward, init(reward, jax.random.key(0), SPEC), episode_of(states))
        np.testing.assert_allclose(notes["episode_entropy"][:3], values, rtol=1e-5)


def test_running_scale_of_states_paid_by_themselves_knows_the_smallest_and_the_largest() -> None:
    reward = element(estimator="kde", credit="state", normalisation="running")
    states = np.array([[0.0, 0.0], [0.0, 0.0], [100.0, 0.0]], np.float32)
    state, _ = observe(reward, init(reward, jax.random.key(0), SPEC), episode_of(states))
    np.testing.assert_allclose(state.entropy_range, -np.log([2 / 3, 1 / 3]), rtol=1e-5)


def test_window_is_algorithm_3s() -> None:
    config = ElementConfig(update_interval=10, update_steps=4)
    steps = np.arange(35)
    inside = [t for t in steps.tolist() if in_update_window(t, config)]
    assert inside == [11, 12, 13, 21, 22, 23, 31, 32, 33]
    for total in range(60):
        assert states_remembered(total, config) == sum(
            bool(in_update_window(t, config)) for t in range(total)
        )


def test_windows_grow_with_a_run_whose_length_is_not_known() -> None:
    """U doubles whenever 16 of it have passed, so it is an eighth to a sixteenth of the steps so
    far; T_u is a tenth of U."""
    config = ElementConfig(update_interval=100, update_steps=10, first_interval=20)
    assert config.windows == [(20, 2), (40, 4), (80, 8)]
    steps = np.arange(2_000)
    inside = steps[np.asarray(in_update_window(steps, config))]
    first = [t for begin in range(20, 320, 20) for t in (begin + 1,)]
    second = [t for begin in range(320, 640, 40) for t in range(begin + 1, begin + 4)]
    third = [t for begin in range(640, 2_000, 80) for t in range(begin + 1, begin + 8)]
    assert inside.tolist() == first + second + third
    assert np.array_equal(
        jax.jit(lambda t: in_update_window(t, config))(steps.astype(np.int32)),
        np.isin(steps, inside),
    )
    for total in (0, 19, 22, 321, 330, 639, 700, 2_000):
        assert states_remembered(total, config) == (inside < total).sum()
    with pytest.raises(ValueError, match="first_interval must be within 1 and U 500000, got 0"):
        ElementConfig(first_interval=0)


def test_windows_are_the_run_s_tenths_where_its_length_is_known() -> None:
    assert update_window(20_000) == {"update_interval": 2_000, "update_steps": 200}
    assert update_window(10_000_000) == {"update_interval": 500_000, "update_steps": 50_000}
    assert update_window(None, interval=50) == {"update_interval": 50, "update_steps": 5}
    unknown = ElementConfig(**update_window(None))
    assert unknown.windows[0] == (1_000, 100)
    assert unknown.windows[-1] == (256_000, 25_600)
    for steps in (
        20_000,
        300_000,
        3_000_000,
    ):  # a tenth is remembered, as of runs whose length is known
        known = states_remembered(steps, ElementConfig(**update_window(steps)))
        assert 0.9 * known < states_remembered(steps, unknown) < 1.2 * known


def test_only_states_within_the_window_enter() -> None:
    reward = element()
    state = init(reward, jax.random.key(0), SPEC)
    states = np.arange(16, dtype=np.float32).reshape(8, 2)
    # steps 8 … 15: 11, 12, 13, 14 enter
    state, _ = observe(reward, state, episode_of(states, step=8))
    assert int(state.memory_size) == 4
    np.testing.assert_array_equal(state.memory.states[:4], states[3:7])
    entering = reward.entering(episode_of(states, step=8))
    assert entering.rank.tolist() == [-1, -1, -1, 0, 1, 2, 3, -1]


def test_length_weighted_entropy() -> None:
    """T·H over the mean of T²: lengths 2 then 4 → 2H/4, then 4H/10."""
    reward = element(length_weighted=True, renyi_order=2.0)
    state = init(reward, jax.random.key(0), SPEC)
    apart = 100.0 * np.arange(8, dtype=np.float32).reshape(4, 2)
    state, notes = observe(reward, state, episode_of(apart[:2]))  # H = 1 bit
    np.testing.assert_allclose(notes["episode_entropy"], 2 * 1 / 4, rtol=1e-5)
    state, notes = observe(reward, state, episode_of(apart))  # H = 2 bits, mean T² = (4 + 16) / 2
    np.testing.assert_allclose(notes["episode_entropy"], 4 * 2 / 10, rtol=1e-5)


@pytest.mark.parametrize(
    ("estimator", "function"),
    [
        ("renyi", lambda s: renyi_entropy(s, 3.0, 0.5)),
        ("kde", lambda s: kde_entropy(s, 0.5)),
        ("knn", lambda s: knn_entropy(s, 2)),
    ],
)
def test_each_estimator(estimator: str, function) -> None:
    states = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
    reward = element(estimator=estimator, bandwidth=0.5, estimator_neighbours=2)
    value = jax.jit(reward.episode_entropy)(episode_of(states))
    assert float(value) == pytest.approx(float(jax.jit(function)(jnp.asarray(states))), rel=1e-5)


def test_lifelong_estimators_by_hand() -> None:
    distances = jnp.array([[0.0, 1.0, 2.0], [jnp.inf] * 3])
    kernel = 1 + math.exp(-0.5) + math.exp(-2)
    np.testing.assert_allclose(
        element(lifelong_estimator="kde").novelty(distances), [-math.log(kernel), 0], rtol=1e-6
    )
    np.testing.assert_allclose(
        element(lifelong_estimator="renyi2").novelty(distances), [-kernel, 0], rtol=1e-6
    )


def test_proposition_1_the_episodic_reward_minimises_the_upper_bound() -> None:
    """L̃(r) = E_τ[(H − Σ r)²] + E_τ[T² Var_τ(r)] on episodes over a few discrete states, minimised
    in closed form by the normal equations; equal lengths give the mean of H/T over the episodes a
    state is in, unequal ones Σ TH / Σ T²."""
    rng = np.random.default_rng(0)
    for lengths in ([5, 5, 5, 5, 5, 5], [2, 3, 5, 8, 4, 6]):
        # distinct states within an episode
        episodes = [rng.permutation(10)[:length] for length in lengths]
        entropies = rng.uniform(1, 3, len(episodes))

        @jax.jit
        def upper_bound(r: jax.Array, episodes=episodes, entropies=entropies) -> jax.Array:
            total = 0.0
            for states, entropy in zip(episodes, entropies, strict=True):
                values = r[states]
                total += (entropy - values.sum()) ** 2 + len(states) ** 2 * values.var()
            return total

        # The bound is per episode E_t[(H − T r(s_t))²]; Proposition 1's closed form weighs each
        # state's episodes by the Monte-Carlo mean over t, 1/T: minimise the printed MSE  Σ_τ (H − T
        # r(s))² I(s ∈ τ)  per state.
        def printed(r: jax.Array, episodes=episodes, entropies=entropies) -> jax.Array:
            return sum(
                ((h - len(s) * r[s]) ** 2).sum() for s, h in zip(episodes, entropies, strict=True)
            )

        closed = np.zeros(10)
        for state in range(10):
            inside = [(len(s), h) for s, h in zip(episodes, entropies, strict=True) if state in s]
            if inside:
                closed[state] = sum(t * h for t, h in inside) / sum(t * t for t, _ in inside)
        gradient = jax.jit(jax.grad(lambda r: printed(r)))(jnp.asarray(closed, jnp.float32))
        np.testing.assert_allclose(gradient, 0, atol=2e-4)
        if len(set(lengths)) == 1:
            gradient = jax.jit(jax.grad(lambda r: upper_bound(r)))(jnp.asarray(closed, jnp.float32))
            np.testing.assert_allclose(gradient, 0, atol=2e-4)
            worse = closed + 0.01 * rng.normal(size=10)
            assert upper_bound(jnp.asarray(worse)) > upper_bound(jnp.asarray(closed, jnp.float32))
        # it bounds the loss from above
        loss = sum((h - closed[s].sum()) ** 2 for s, h in zip(episodes, entropies, strict=True))
        assert upper_bound(jnp.asarray(closed, jnp.float32)) >= loss - 1e-4


def test_notes_sample_to_proposition_1s_average() -> None:
    """The mean of H over the stored transitions of a state is Eq. 11: what sampling notes
    estimates."""
    episodes = [([0, 1, 2], 2.0), ([0, 3, 4], 1.0), ([2, 3, 0], 4.0)]
    noted = {}
    for states, entropy in episodes:
        for state in states:
            noted.setdefault(state, []).append(entropy)
    assert np.mean(noted[0]) == pytest.approx(7 / 3)
    assert np.mean(noted[3]) == pytest.approx(2.5)


@pytest.mark.parametrize("estimator", ["kde", "renyi2"])
def test_proposition_2_knn_sums_rank_states_as_full_sums_do(estimator: str) -> None:
    """Where the condition holds, the neglected part of Σ κ is below ε, and states rank alike."""
    rng = np.random.default_rng(1)
    sigma, tolerance, k = 0.01, 1e-3, 8
    clusters = rng.uniform(-20, 20, size=(40, 2))
    memory = np.concatenate([c + 0.1 * rng.normal(size=(rng.integers(1, 8), 2)) for c in clusters])
    queries = (clusters + 0.1 * rng.normal(size=clusters.shape)).astype(np.float32)
    distances = np.sort(np.linalg.norm(queries[:, None] - memory[None], axis=-1), axis=1)
    holds = proposition_2_holds(
        jnp.asarray(distances[:, :k], jnp.float32), jnp.asarray(len(memory)), sigma, tolerance
    )
    holds = np.asarray(holds)
    assert holds.sum() > 20
    kernel = np.exp(-(distances**2) / (2 * sigma))
    assert (kernel[:, k:].sum(axis=1)[holds] <= tolerance).all()
    reward = element(lifelong_estimator=estimator, lifelong_bandwidth=sigma, num_neighbours=k)
    ours = np.asarray(reward.novelty(jnp.asarray(distances[:, :k], jnp.float32)))[holds]
    sums = kernel.sum(axis=1)[holds]
    full = -np.log(np.maximum(sums, 1e-30)) if estimator == "kde" else -sums
    clear = sums > 10 * tolerance  # below the tolerance the order is not promised
    assert (np.argsort(ours[clear]) == np.argsort(full[clear])).all()


def test_the_condition_is_reported() -> None:
    reward = element(lifelong_estimator="kde", num_neighbours=3)
    assert reward.metric_names == ("lifelong_condition",)
    state = init(reward, jax.random.key(0), SPEC)._replace(memory_size=jnp.asarray(1000))
    radius = math.sqrt(2 * math.log(997 / 1e-2))
    batch = batch_of([0.0, 0.0], [[0.0, 0.0, radius + 0.01], [0.0, 0.0, radius - 0.01]])
    _, metrics = update(reward, state, batch, jax.random.key(0))
    assert float(metrics["lifelong_condition"]) == 0.5


def test_graph_memory_follows_the_same_interface() -> None:
    reward = element(memory="graph", graph=GraphConfig(search_steps=4, restarts=4))
    state = init(reward, jax.random.key(0), SPEC)
    state, _ = observe(
        reward, state, episode_of(np.random.default_rng(0).normal(size=(4, 2)), step=11)
    )
    assert int(state.memory.size) == 4
    state, notes = observe(reward, state, episode_of(np.zeros((2, 2)), step=30))
    assert np.isfinite(notes["neighbour_distances"][:2]).all()


def test_the_papers_presets() -> None:
    assert PRESETS["Hopper"].estimator == "kde"
    assert (PRESETS["Hopper"].graph.search_steps, PRESETS["Hopper"].graph.restarts) == (20, 20)
    assert (PRESETS["Walker2d"].estimator, PRESETS["Walker2d"].estimator_neighbours) == ("knn", 5)
    assert (PRESETS["Walker2d"].graph.search_steps, PRESETS["Walker2d"].graph.restarts) == (10, 5)
    for robot in ("Ant", "Humanoid"):
        preset = PRESETS[robot]
        assert (preset.estimator, preset.renyi_order, preset.bandwidth) == ("renyi", 3.0, 1.0)
        assert (preset.graph.search_steps, preset.graph.restarts, preset.graph.update_depth) == (
            20,
            10,
            2,
        )
    for preset in PRESETS.values():
        assert (preset.lifelong_weight, preset.num_neighbours) == (0.5, 3)
        assert (preset.update_interval, preset.update_steps) == (500_000, 50_000)


def test_auto_memory_depends_on_size_and_device() -> None:
    config = ElementConfig()
    assert resolved_memory(config, 400_000, on_cpu=True) == "exact"  # 19,998 states
    assert resolved_memory(config, 1_000_000, on_cpu=True) == "hnsw"  # 49,999
    assert resolved_memory(config, 10_000_000, on_cpu=False) == "exact"
    assert resolved_memory(dataclasses.replace(config, memory="graph"), 10, on_cpu=True) == "graph"


def test_make_reward() -> None:
    reward = make_reward("element", env="Walker2d-v5", lifelong_weight=0.1)
    assert isinstance(reward, ElementReward)
    assert (reward.config.estimator, reward.config.lifelong_weight) == ("knn", 0.1)
    with pytest.raises(ValueError, match="no reward called 'curiosity'; choose one of"):
        make_reward("curiosity")
    with pytest.raises(ValueError, match="does not take these options: colour"):
        make_reward("element", colour=1)
    with pytest.raises(ValueError, match="must not be negative nor both 0"):
        make_reward("element", lifelong_weight=-1.0)
    with pytest.raises(ValueError, match="update window must be shorter"):
        make_reward("element", update_interval=10, update_steps=11)


def test_population_equals_agents_alone() -> None:
    """observe and reward vmapped over agents with different β."""
    reward = element()
    states = np.random.default_rng(3).normal(size=(3, 8, 2)).astype(np.float32)
    episodes = [episode_of(s, step=11) for s in states]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *episodes)
    single = init(reward, jax.random.key(0), SPEC)
    population = jax.tree.map(lambda leaf: np.stack([leaf] * 3), single)
    population = population._replace(lifelong_weight=jnp.array([0.0, 0.5, 5.0]))
    population, notes = jax.device_get(jax.jit(jax.vmap(reward.observe))(population, stacked))
    for agent, beta in enumerate([0.0, 0.5, 5.0]):
        alone, alone_notes = observe(
            reward, single._replace(lifelong_weight=jnp.float32(beta)), episodes[agent]
        )
        for ours, theirs in zip(jax.tree.leaves(population), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(ours[agent], theirs, rtol=1e-5)
        for name in notes:
            np.testing.assert_allclose(notes[name][agent], alone_notes[name], rtol=1e-5)
