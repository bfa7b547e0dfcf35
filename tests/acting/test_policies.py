"""What a stored policy is, decided by its arrays; and one scale of actions for all who act."""

import gymnasium
import numpy as np
import pytest

from element_rl.acting.policies import (
    ActionScale,
    RandomPolicy,
    RecurrentPolicy,
    ValuePolicy,
    VectorPolicy,
    policy_of,
)

BOX = gymnasium.spaces.Box(np.array([-0.4, 1.0], np.float32), np.array([0.4, 4.0], np.float32))
CHOICE = gymnasium.spaces.Discrete(3, start=5)
LAYER = {"weight_0": np.zeros((4, 4), np.float32), "bias_0": np.zeros(4, np.float32)}


def test_bounds_are_reached_exactly() -> None:
    scale = ActionScale(BOX.low, BOX.high, BOX.dtype)
    np.testing.assert_array_equal(scale(np.full((5, 2), 1, np.float32)), [BOX.high] * 5)
    np.testing.assert_array_equal(scale(np.full(2, -1, np.float32)), BOX.low)
    np.testing.assert_array_equal(scale(np.zeros(2, np.float32)), np.array([0, 2.5], np.float32))
    action = np.random.default_rng(0).uniform(-1, 1, 1000).astype(np.float32)
    np.testing.assert_array_equal(ActionScale([-1.0], [1.0], np.float32)(action), action)


@pytest.mark.parametrize(
    ("parameters", "space", "kind"),
    [
        ({}, BOX, RandomPolicy),
        ({}, CHOICE, RandomPolicy),
        (LAYER, BOX, VectorPolicy),
        (LAYER, CHOICE, ValuePolicy),
        ({"lstm_hidden": np.zeros((8, 32), np.float32)}, CHOICE, RecurrentPolicy),
    ],
)
def test_kinds(parameters: dict[str, np.ndarray], space: gymnasium.Space, kind: type) -> None:
    assert type(policy_of(parameters, space)) is kind


def test_a_policy_on_vectors_by_hand() -> None:
    """Outputs 0: the middle of the bounds, and with noise n tanh(n) of the way to one of them."""
    policy = policy_of(LAYER, BOX)
    middle = policy.act(np.zeros(4), np.random.default_rng(1), True)
    np.testing.assert_array_equal(middle, np.array([0, 2.5], np.float32))
    noise = np.random.default_rng(1).standard_normal(2, dtype=np.float32)
    drawn = policy.act(np.zeros(4), np.random.default_rng(1), False)
    np.testing.assert_allclose(drawn, middle + np.tanh(noise) * [0.4, 1.5], rtol=1e-5)


def test_choices_count_from_the_first_action() -> None:
    values = {"weight_0": np.zeros((1, 3), np.float32), "bias_0": np.array([1, 3, 2], np.float32)}
    generator = np.random.default_rng(0)
    assert policy_of(values, CHOICE).act(np.zeros(1), generator, False) == 6
    drawn = {policy_of({}, CHOICE).act(None, generator, False) for _ in range(50)}
    assert drawn == {5, 6, 7}


def test_random_actions_are_held() -> None:
    policy, generator = RandomPolicy(BOX, hold_steps=3), np.random.default_rng(0)
    policy.begin()
    actions = [policy.act(None, generator, False) for _ in range(5)]
    policy.begin()  # another episode draws at once
    actions.append(policy.act(None, generator, False))
    assert [actions[0] is action for action in actions[1:3]] == [True, True]
    assert len({tuple(action) for action in actions}) == 3
    assert all(BOX.contains(action) for action in actions)


def test_an_action_that_is_no_number_is_refused() -> None:
    scale = ActionScale(BOX.low, BOX.high, BOX.dtype)
    with pytest.raises(ValueError, match="no finite number: what it learned from has diverged"):
        scale(np.array([0.0, np.nan], np.float32))
