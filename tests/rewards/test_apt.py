"""APT's numbers by a plain NumPy copy of its networks and a loop over the transitions drawn; its
features learn."""

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from support.by_hand import (
    KEY,
    init,
    padded_episode,
    reward_of,
    transitions,
    update,
)

from element_rl.mlp import MLP
from element_rl.replay.ring import Transitions
from element_rl.rewards.apt import AptConfig, AptReward, AptState, feature_loss, features
from element_rl.rewards.interface import Reward, RewardSpec
from element_rl.rewards.inverse_model import InverseModel

SPEC = RewardSpec(
    observation_dim=3, action_dim=2, state_dim=2, max_episode_steps=8, total_steps=100
)
loss_of = jax.jit(feature_loss)


def batch_of(
    observation: np.ndarray, action: np.ndarray, next_observation: np.ndarray
) -> Transitions:
    return transitions(
        len(observation), observation=observation, action=action, next_observation=next_observation
    )


def random_batches(number: int, size: int = 8, seed: int = 0) -> list[Transitions]:
    """The action moves the first two coordinates of the observation; the third does as it likes."""
    rng = np.random.default_rng(seed)
    batches = []
    for _ in range(number):
        observation, action = rng.normal(size=(size, 3)), rng.uniform(-1, 1, (size, 2))
        moved = np.concatenate([observation[:, :2] + action, rng.normal(size=(size, 1))], axis=1)
        batches.append(batch_of(observation, action, moved))
    return batches


def apt(**options) -> AptReward:
    settings = {
        "pool_size": 20,
        "num_neighbours": 4,
        "feature_dim": 40,
        "hidden_sizes": (16,),
        "learning_rate": 1e-3,
    }
    return AptReward(AptConfig(**(settings | options)))


def numpy_mlp(mlp, inputs: np.ndarray) -> np.ndarray:
    hidden = np.asarray(inputs, float)
    for layer, (weight, bias) in enumerate(zip(mlp.weights, mlp.biases, strict=True)):
        hidden = hidden @ np.asarray(weight, float) + np.asarray(bias)
        hidden = np.maximum(hidden, 0) if layer < len(mlp.weights) - 1 else hidden
    return hidden


def numpy_features(state: AptState, observations: np.ndarray) -> np.ndarray:
    assert len(state.model.inverse.encoder.weights) == 1, "one linear layer"
    linear = numpy_mlp(state.model.inverse.encoder, observations)
    return np.tanh(
        (linear - linear.mean(1, keepdims=True)) / np.sqrt(linear.var(1, keepdims=True) + 1e-5)
    )


def numpy_novelty(
    state: AptState, queries: np.ndarray, drawn: list[np.ndarray], k: int
) -> np.ndarray:
    """log(1 + mean distance to the k nearest), the query itself being in `drawn` once."""
    pool = numpy_features(state, np.array(drawn))
    values = []
    for query in numpy_features(state, queries):
        nearest = sorted(np.linalg.norm(query - other) for other in pool)[1 : k + 1]
        values.append(np.log(1 + np.mean(nearest)))
    return np.array(values)


def test_reward_against_a_plain_loop_over_updates() -> None:
    """Every reward is taken with the encoder as it is after the update, for the whole pool; form
    "paper" divides by the mean of all logarithms so far, each as it was when counted."""
    urlb, paper = apt(), apt(form="paper")
    state, paper_state = init(urlb, KEY, SPEC), init(paper, KEY, SPEC)
    drawn: list[np.ndarray] = []
    novelties: list[float] = []
    for batch in random_batches(5):
        drawn = [*drawn, *np.asarray(batch.next_observation)][-20:]
        state, _ = update(urlb, state, batch, KEY)
        paper_state, _ = update(paper, paper_state, batch, KEY)
        expected = numpy_novelty(state, np.asarray(batch.next_observation), drawn, 4)
        novelties += expected.tolist()
        np.testing.assert_allclose(reward_of(urlb, state, batch), expected, rtol=1e-4)
        np.testing.assert_allclose(
            reward_of(paper, paper_state, batch), expected / np.mean(novelties), rtol=1e-4
        )
    terms = jax.jit(urlb.reward_terms)(state, batch)
    assert list(terms) == ["reward_lifelong"]
    np.testing.assert_allclose(terms["reward_lifelong"], expected, rtol=1e-4)


def test_a_hand_made_encoder() -> None:
    """Weights that put ±x on two features: standardised to ±1 whatever x > 0, so that all states
    look alike but for the sign. Two of five states are on the other side, at distance √8 · tanh 1.
    """
    reward = apt(feature_dim=2, num_neighbours=4)
    state = init(reward, KEY, SPEC)
    encoder = MLP((jnp.array([[100.0, -100.0], [0.0, 0.0], [0.0, 0.0]]),), (jnp.zeros(2),))
    inverse = InverseModel(encoder, state.model.inverse.head)
    x = np.array([[1.0, 0, 0], [2, 1, 0], [3, 0, 1], [-1, 0, 0], [-2, 0, 0]])
    batch = batch_of(np.zeros((5, 3)), np.zeros((5, 2)), x)
    state = state._replace(model=state.model._replace(inverse=inverse))
    state = state._replace(pool=update(reward, state, batch, KEY)[0].pool)
    across = np.sqrt(8) * np.tanh(1)
    np.testing.assert_allclose(
        features(inverse, batch.next_observation)[:, 0], np.tanh([1, 1, 1, -1, -1]), rtol=1e-5
    )
    expected = np.log1p([2 / 4 * across] * 3 + [3 / 4 * across] * 2)
    np.testing.assert_allclose(reward_of(reward, state, batch), expected, rtol=1e-5)


@pytest.mark.parametrize("forward_model", [True, False])
def test_losses_against_numpy(forward_model: bool) -> None:
    reward = apt(forward_model=forward_model)
    state = init(reward, KEY, SPEC)
    (batch,) = random_batches(1)
    now = numpy_features(state, np.asarray(batch.observation))
    after = numpy_features(state, np.asarray(batch.next_observation))
    action = np.asarray(batch.action, float)
    told = np.tanh(numpy_mlp(state.model.inverse.head, np.concatenate([now, after], axis=1)))
    inverse_loss = np.mean([np.linalg.norm(a - t) for a, t in zip(action, told, strict=True)])
    new_state, metrics = update(reward, state, batch, KEY)
    assert tuple(metrics) == reward.metric_names
    np.testing.assert_allclose(metrics["apt_inverse_loss"], inverse_loss, rtol=1e-5)
    loss, _ = loss_of(state.model, batch)
    if not forward_model:
        np.testing.assert_allclose(loss, inverse_loss, rtol=1e-5)
        return
    predicted = numpy_mlp(state.model.forward, np.concatenate([now, action], axis=1))
    forward_loss = np.mean([np.linalg.norm(a - p) for a, p in zip(after, predicted, strict=True)])
    np.testing.assert_allclose(metrics["apt_forward_loss"], forward_loss, rtol=1e-5)
    np.testing.assert_allclose(loss, inverse_loss + forward_loss, rtol=1e-5)
    # Adam's first step is the learning rate, against the sign of the gradient
    gradient = jax.jit(jax.grad(lambda model: feature_loss(model, batch)[0]))(state.model)
    step = new_state.model.inverse.encoder.biases[0] - state.model.inverse.encoder.biases[0]
    slope = np.asarray(gradient.inverse.encoder.biases[0])
    clear = np.abs(slope) > 1e-4
    assert clear.sum() > 5
    np.testing.assert_allclose(step[clear], -1e-3 * np.sign(slope[clear]), rtol=1e-2)


def test_the_model_learns() -> None:
    reward = apt()
    (fixed,) = random_batches(1, size=128, seed=9)

    def learn(state: AptState, batch: Transitions) -> tuple[AptState, dict]:
        return reward.update(state, batch, KEY)

    state = init(reward, KEY, SPEC)
    before = loss_of(state.model, fixed)[1]
    batches = jax.tree.map(lambda *leaves: np.stack(leaves), *random_batches(300, size=64))
    state, metrics = jax.jit(lambda state: jax.lax.scan(learn, state, batches))(state)
    after = loss_of(state.model, fixed)[1]
    assert float(after["apt_inverse_loss"]) < 0.6 * float(before["apt_inverse_loss"])
    assert float(after["apt_forward_loss"]) < float(before["apt_forward_loss"])
    assert float(metrics["apt_inverse_loss"][-1]) < float(metrics["apt_inverse_loss"][0])


def test_only_the_next_observation_is_judged() -> None:
    reward = apt()
    (batch,) = random_batches(1)
    state, _ = update(reward, init(reward, KEY, SPEC), batch, KEY)
    moved = batch._replace(observation=batch.observation + 5, terminated=~batch.terminated)
    moved_pool = update(reward, init(reward, KEY, SPEC), moved, KEY)[0].pool
    moved_state = state._replace(pool=moved_pool)
    np.testing.assert_allclose(
        reward_of(reward, moved_state, moved), reward_of(reward, state, batch), rtol=1e-6
    )
    elsewhere = batch._replace(next_observation=-2 * batch.next_observation)
    assert not np.allclose(
        reward_of(reward, state, elsewhere), reward_of(reward, state, batch), rtol=1e-2
    )


def test_a_second_draw_is_no_neighbour() -> None:
    reward = apt()
    (batch,) = random_batches(1)
    state, _ = update(reward, init(reward, KEY, SPEC), batch, KEY)
    again = state._replace(pool=update(reward, state, batch, KEY)[0].pool)
    np.testing.assert_allclose(
        reward_of(reward, again, batch), reward_of(reward, state, batch), rtol=1e-5
    )


def test_observe_changes_nothing() -> None:
    reward = apt()
    episode = padded_episode(8, 8, observation=np.ones((8, 3)), next_observation=np.ones((8, 3)))
    state = init(reward, KEY, SPEC)
    after, notes = reward.observe(state, episode)
    assert after is state
    assert notes == {}
    assert reward.note_shapes() == {}
    assert isinstance(reward, Reward)


@pytest.mark.parametrize("form", ["urlb", "paper"])
def test_empty_single_and_constant_inputs_are_finite(form: str) -> None:
    reward = apt(form=form)
    state = init(reward, KEY, SPEC)
    constant = batch_of(np.ones((4, 3)), np.zeros((4, 2)), np.ones((4, 3)))
    assert reward_of(reward, state, constant).tolist() == [0, 0, 0, 0], "the pool is empty"
    for _ in range(3):
        state, metrics = update(reward, state, constant, KEY)
        assert all(np.isfinite(value) for value in metrics.values())
    assert reward_of(reward, state, constant).tolist() == [0, 0, 0, 0], (
        "one state, drawn many times"
    )
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))
    other = batch_of(np.ones((1, 3)), np.zeros((1, 2)), np.zeros((1, 3)))
    assert float(reward_of(reward, state, other)[0]) > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_neighbours": 0}, "AptConfig.num_neighbours is 0; choose at least 1"),
        ({"num_neighbours": 20}, "choose at least 1 and fewer than the pool's 20"),
        ({"form": "rms"}, "AptConfig.form is 'rms'; choose urlb or paper"),
        ({"feature_dim": 0}, "feature_dim is 0; choose at least 1"),
        ({"hidden_sizes": (0,)}, "choose positive widths"),
        ({"learning_rate": 0.0}, "AptConfig.learning_rate is 0.0; choose above 0"),
    ],
)
def test_bad_settings_are_refused(
    options: dict, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # users run without type checks
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(ValueError, match=message):
        apt(**options)


def test_official_settings() -> None:
    config = AptConfig()
    assert (config.num_neighbours, config.pool_size, config.feature_dim) == (12, 1024, 512)
    assert (config.hidden_sizes, config.learning_rate, config.form) == ((1024,), 1e-4, "urlb")
