"""Probe environments: problems so small that the right answer is known, acted in and learned from
one episode after the other."""

import dataclasses
from collections.abc import Callable

import jax
import numpy as np
import pytest

from element_rl.acting import host_a3c
from element_rl.agents import a3c

CONFIG = a3c.A3CConfig(
    channels=(4,),
    hidden_size=16,
    local_steps=4,
    learning_rate=1e-2,
    entropy_weight=1e-3,
    max_gradient_norm=5.0,
)
FRAME = (4, 4)
BRIGHT, DARK, GREY = 250, 0, 120
# of the cue, the step, the action and the length of the episode
Reward = Callable[[int, int, int, int], float]


def learn(
    reward: Reward,
    length: int,
    updates: int,
    terminated: bool = True,
    cued: int = 1,
    config: a3c.A3CConfig = CONFIG,
) -> a3c.ActorCritic:
    """The first `cued` frames are bright or dark, a coin's choice; the others grey. Two actions."""
    state = a3c.create(jax.random.key(0), FRAME, 2, config)
    rng = np.random.default_rng(0)
    for _ in range(updates):
        parameters = {
            name: np.asarray(array) for name, array in a3c.policy_parameters(state.network).items()
        }
        cue = int(rng.integers(2))
        frames = shown(cue, cued, config.local_steps)
        lstm, actions, rewards = (
            np.zeros((2, config.hidden_size), np.float32),
            *np.zeros((2, config.local_steps)),
        )
        begins_with = lstm
        for t in range(length):
            actions[t], lstm = host_a3c.act(parameters, frames[t], lstm, rng.uniform())
            rewards[t] = reward(cue, t, int(actions[t]), length)
        given = a3c.PaddedRollout(
            *map(jax.numpy.asarray, (frames, actions.astype(np.int32), rewards.astype(np.float32))),
            *map(jax.numpy.asarray, (np.int32(length), np.bool_(terminated), begins_with)),
        )
        state, _ = a3c.update(state, state.network, given, config)
    return state.network


def shown(cue: int, cued: int, steps: int) -> np.ndarray:
    frames = np.full((steps + 1, *FRAME), GREY, np.uint8)
    frames[:cued] = BRIGHT if cue else DARK
    return frames


def answers(network: a3c.ActorCritic, cued: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Probability of the second action and value, of the dark and of the bright episode [2, T]."""
    frames = [shown(cue, cued, CONFIG.local_steps - 1) for cue in (0, 1)]
    both = [network(jax.numpy.asarray(f), jax.numpy.zeros((2, CONFIG.hidden_size))) for f in frames]
    return np.stack([np.exp(log_policy[:, 1]) for log_policy, _ in both]), np.stack(
        [values for _, values in both]
    )


def test_value_of_a_constant_reward_is_the_reward() -> None:
    _, values = answers(learn(lambda cue, t, action, length: 1.0, length=1, updates=300))
    np.testing.assert_allclose(values[:, 0], 1.0, atol=0.05)


@pytest.mark.parametrize(("terminated", "value"), [(True, 1.0), (False, 2.0)])
def test_only_termination_ends_the_value(terminated: bool, value: float) -> None:
    """The last of four steps: worth its reward if the episode ends, 1 / (1 − γ) = 2 if time only
    ran out; all frames alike."""
    config = dataclasses.replace(CONFIG, discount=0.5)
    network = learn(lambda cue, t, action, length: 1.0, 4, 500, terminated, cued=5, config=config)
    _, values = answers(network, cued=5)
    np.testing.assert_allclose(values[:, 3], value, atol=0.15)


def test_value_of_a_reward_that_is_the_observation() -> None:
    _, values = answers(learn(lambda cue, t, action, length: float(cue), length=1, updates=400))
    np.testing.assert_allclose(values[:, 0], [0.0, 1.0], atol=0.1)


def test_the_policy_finds_the_rewarded_action() -> None:
    probability, _ = answers(
        learn(lambda cue, t, action, length: float(action), length=1, updates=400)
    )
    assert (probability[:, 0] > 0.9).all()


def test_the_policy_finds_the_action_that_the_observation_asks_for() -> None:
    probability, _ = answers(
        learn(lambda cue, t, action, length: float(action == cue), length=1, updates=800)
    )
    assert probability[0, 0] < 0.1
    assert probability[1, 0] > 0.9


def test_the_policy_remembers_what_it_saw_before() -> None:
    """All frames but the first are grey: only the LSTM knows which action the last step rewards."""
    network = learn(
        lambda cue, t, action, length: float(action == cue and t == 2), length=3, updates=1_500
    )
    probability, values = answers(network)
    assert probability[0, 2] < 0.1
    assert probability[1, 2] > 0.9
    assert values[:, 2].min() > 0.8
