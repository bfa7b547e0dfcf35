"""Sums and products of rewards: their numbers from those of the parts alone, by loops in NumPy; and
what they can do because a part can."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.by_hand import init, observe, padded_episode, reward_of, transitions, update
from support.small_rewards import SMALL_REWARDS
from support.walks import ACTIONS, OBSERVATIONS, Walk, walk

from element_rl import IntrinsicReward
from element_rl.replay.ring import Transitions
from element_rl.rewards import Reward, make_replay_reward, make_reward
from element_rl.rewards.composite import composite
from element_rl.rewards.expression import parsed
from element_rl.rewards.interface import (
    Compares,
    HasMemory,
    Remembers,
    RewardSpec,
    SeesEntropy,
)

SPEC = RewardSpec(
    observation_dim=3, action_dim=2, state_dim=2, max_episode_steps=8, total_steps=200
)
EARLY = {"update_interval": 4, "update_steps": 4, "memory": "exact"}
OPTIONS: dict[str, Any] = SMALL_REWARDS | {"element": EARLY}
ROWS = 8


def options_for(*names: str) -> dict[str, Any]:
    return {name: OPTIONS[name] for name in names}


def batches(number: int) -> list[Transitions]:
    rng = np.random.default_rng(0)
    widths = {"observation": 3, "action": 2, "next_observation": 3, "state": 2}
    return [
        transitions(
            ROWS,
            **{name: rng.normal(size=(ROWS, width)) for name, width in widths.items()},
            extrinsic_reward=rng.normal(size=ROWS),
        )
        for _ in range(number)
    ]


def lives(reward: Reward, key: Any, keys: list[Any]) -> list[tuple[np.ndarray, dict[str, Any]]]:
    """Rewards and metrics of a few batches, after an episode was observed and one after the other
    was learned."""
    first, *rest = batches(5)
    state, notes = observe(
        reward, init(reward, key, SPEC), padded_episode(ROWS, 6, **fields(first))
    )
    lived = []
    for batch, each in zip(rest, keys, strict=True):
        batch = batch._replace(notes=notes)
        state, metrics = update(reward, state, batch, each)
        lived.append((np.asarray(reward_of(reward, state, batch)), jax.device_get(metrics)))
    return lived


def fields(batch: Transitions) -> dict[str, Any]:
    return {name: getattr(batch, name) for name in batch._fields if name not in NOT_OF_EPISODES}


NOT_OF_EPISODES = ("terminated", "notes", "state_before")


def parts_alone(names: list[str], key: Any, keys: list[Any]) -> list[list[np.ndarray]]:
    """The rewards of each part, with the keys that a sum gives it."""
    number = len(names)
    own, each = jax.random.split(key, number), [jax.random.split(one, number) for one in keys]
    return [
        [
            values
            for values, _ in lives(
                make_reward(name, **OPTIONS[name]), own[index], [one[index] for one in each]
            )
        ]
        for index, name in enumerate(names)
    ]


def recent_deviations(series: list[np.ndarray], rate: float = 1e-3) -> list[float]:
    mean = square = weight = 0.0
    deviations = []
    for values in np.asarray(series, np.float64):
        mean += rate * (values.mean() - mean)
        square += rate * ((values**2).mean() - square)
        weight += rate * (1 - weight)
        deviations.append(np.sqrt(square / weight - (mean / weight) ** 2))
    return deviations


KEY, KEYS = jax.random.key(0), [jax.random.key(seed) for seed in (1, 2, 3, 4)]


def test_a_sum_and_a_product_from_their_parts() -> None:
    """element − 0.5 (rnd · e3b)/σ, σ of the product's recent values; ELEMENT is left as it is."""
    element, rnd, e3b = parts_alone(["element", "rnd", "e3b"], KEY, KEYS)
    options = options_for("element", "rnd", "e3b")
    reward = make_reward("element - 0.5*rnd*e3b", **options)
    product = [one * other for one, other in zip(rnd, e3b, strict=True)]
    deviations = recent_deviations(product)
    for turn, (values, metrics) in enumerate(lives(reward, KEY, KEYS)):
        expected = element[turn] - 0.5 * product[turn] / deviations[turn]
        np.testing.assert_allclose(values, expected, rtol=2e-4, atol=2e-5)
        deviation = metrics["reward_rnd_times_e3b_deviation"]
        assert float(deviation) == pytest.approx(deviations[turn], rel=2e-4)
    assert reward.metric_names == (
        *("rnd_loss", "rnd_return_std", "e3b_inverse_loss"),
        *("reward_element", "reward_rnd_times_e3b", "reward_rnd_times_e3b_deviation"),
    )
    raw = make_reward("element - 0.5*rnd*e3b", recent_scale=False, **options)
    for turn, (values, _) in enumerate(lives(raw, KEY, KEYS)):
        expected = element[turn] - 0.5 * product[turn]
        np.testing.assert_allclose(values, expected, rtol=2e-4, atol=2e-5)


def of_task(*values: float) -> Transitions:
    return transitions(len(values), extrinsic_reward=np.array(values))


def test_scales_by_hand() -> None:
    """r = 1 and 3: their deviation is 1, that of their squares, 1 and 9, is 4."""
    text, batch = "2*extrinsic - extrinsic*extrinsic", of_task(1.0, 3.0)
    plain = make_reward(text)
    state, metrics = plain.update(plain.init(KEY, SPEC), batch, KEY)
    assert np.asarray(plain.reward(state, batch)).tolist() == [1.0, -3.0]  # nothing is scaled
    assert metrics == {}
    scaled = make_reward(text, recent_scale=True)
    assert np.asarray(scaled.reward(scaled.init(KEY, SPEC), batch)).tolist() == [1.0, -3.0]
    state, metrics = scaled.update(scaled.init(KEY, SPEC), batch, KEY)
    assert np.asarray(scaled.reward(state, batch)) == pytest.approx([1.75, 3.75], rel=1e-5)
    terms = scaled.reward_terms(state, batch)
    assert np.asarray(terms["reward_extrinsic"]) == pytest.approx([1, 3], rel=1e-5)
    squares = "extrinsic_2_times_extrinsic_3"
    assert np.asarray(terms[f"reward_{squares}"]) == pytest.approx([0.25, 2.25], rel=1e-5)
    assert float(metrics[f"reward_{squares}_deviation"]) == pytest.approx(4.0, rel=1e-5)
    # the whole sum over its own deviation: 1 and −3 deviate by 2
    whole = make_replay_reward(text, recent_scale=True)
    state, metrics = whole.update(whole.init(KEY, SPEC), batch, KEY)
    assert np.asarray(whole.reward(state, batch)) == pytest.approx([0.5, -1.5], rel=1e-5)
    assert float(metrics["reward_deviation"]) == pytest.approx(2.0, rel=1e-5)
    assert whole.metric_names[-1] == "reward_deviation"


def test_one_reward_is_what_it_was_times_its_weight() -> None:
    """With the key that it has alone, and never scaled: there is nothing to weigh it against."""
    alone = lives(make_reward("rnd", **OPTIONS["rnd"]), KEY, KEYS)
    twice = lives(make_reward("-2*rnd", **OPTIONS["rnd"]), KEY, KEYS)
    once = composite(parsed("1*rnd"), [make_reward("rnd", **OPTIONS["rnd"])], [None])
    for (mine, losses), (other, _), (same, _) in zip(
        alone, twice, lives(once, KEY, KEYS), strict=True
    ):
        np.testing.assert_array_equal(other, -2.0 * mine)
        np.testing.assert_array_equal(same, mine)
        assert set(losses) == {"rnd_loss", "rnd_return_std"}
    assert make_reward("1*rnd") == make_reward("rnd")
    assert make_replay_reward(" 1*element", total_steps=100) == make_replay_reward(
        "element", total_steps=100
    )


def test_a_weight_of_0_measures_and_pays_nothing() -> None:
    alone = lives(make_reward("element", **EARLY), KEY, KEYS)
    measured = make_reward("element + 0*rnd", **options_for("element", "rnd"))
    for (mine, _), (same, metrics) in zip(alone, lives(measured, KEY, KEYS), strict=True):
        np.testing.assert_array_equal(same, mine)
        assert float(metrics["rnd_loss"]) > 0
    infinite = make_reward("extrinsic + 0*extrinsic")
    batch = of_task(np.inf, 1.0)
    assert np.asarray(infinite.reward(infinite.init(KEY, SPEC), batch)).tolist() == [np.inf, 1.0]


def test_columns_of_two_of_a_kind_differ() -> None:
    reward = make_reward("rnd + rnd + element", rnd_2={"learning_rate": 1.0}, element=EARLY)
    assert reward.metric_names == (
        *("rnd_loss", "rnd_return_std", "rnd_2_loss", "rnd_2_return_std"),
        *("reward_rnd", "reward_rnd_2", "reward_element"),
        *("reward_rnd_deviation", "reward_rnd_2_deviation"),
    )
    assert [member.config.learning_rate for member in reward.members[:2]] == [1e-4, 1.0]


# text → what it can do
CAN = {
    "rnd + icm": (),
    "element + rnd": (HasMemory, Remembers, SeesEntropy),
    "rnd*apt": (Compares,),
    "re3 + element": (HasMemory, Remembers, Compares, SeesEntropy),
    "2*extrinsic + e3b": (),
}


@pytest.mark.parametrize("text", CAN)
def test_a_sum_can_do_what_its_rewards_can(text: str) -> None:
    reward = make_reward(text)
    assert isinstance(reward, Reward)
    for capability in (HasMemory, Remembers, Compares, SeesEntropy):
        assert isinstance(reward, capability) == (capability in CAN[text])
    assert make_reward(text) == reward  # and so programs are compiled once
    assert hash(make_reward(text)) == hash(reward)


def test_what_is_said_of_a_sum_s_memory_and_entropy() -> None:
    alone = make_replay_reward("element", total_steps=100_000, options={"memory": "exact"})
    both = make_replay_reward(
        "rnd + element", total_steps=100_000, options={"element.memory": "exact"}
    )
    assert both.entropy_kernel == alone.entropy_kernel
    assert both.why_empty(100) == alone.why_empty(100) == "its first window opens at step 10,000"
    steps = np.arange(9_990, 12_000)
    np.testing.assert_array_equal(both.enters(steps), alone.enters(steps))
    wider = make_replay_reward(
        "element + re3",
        total_steps=100_000,
        options={"element.memory": "hnsw", "re3.pool": "whole"},
    )
    assert wider.memory_on_host
    assert wider.enters(steps).all()
    np.testing.assert_array_equal(wider.enters_on_host(steps), alone.enters(steps))
    with pytest.raises(ValueError, match=r"element and element_2 both keep .* element_2.memory=ex"):
        make_reward("element + element", element={"memory": "hnsw"}, element_2={"memory": "hnsw"})


def test_numbers_that_tell_transitions_apart_reach_pools_only() -> None:
    """Each where its own reward does not look; RND sees the transitions as they are."""
    reward = make_reward("re3 + apt + rnd", **options_for("re3", "apt", "rnd"))
    (batch,) = batches(1)
    number = jnp.asarray(np.arange(2.0 * ROWS).reshape(ROWS, 2), jnp.float32)
    re3, apt, rnd = (reward.seen_by(index, reward.told_apart(batch, number)) for index in range(3))
    np.testing.assert_array_equal(re3.observation, number)
    np.testing.assert_array_equal(apt.state, number)
    np.testing.assert_array_equal(apt.observation, batch.observation)
    assert rnd.notes == re3.notes == {}
    for one, other in zip(rnd[:6], batch[:6], strict=True):
        np.testing.assert_array_equal(one, other)
    state = init(reward, KEY, SPEC)
    grown = jax.jit(reward.with_transitions)(state, reward.told_apart(batch, number))
    assert [int(grown.members[index].pool.present.sum()) for index in (0, 1)] == [ROWS, ROWS]


def fed(name: str, world: Walk, options: dict[str, Any]) -> IntrinsicReward:
    settings: dict[str, Any] = {"capacity": 600, "max_episode_steps": 20, "total_steps": 60}
    bonus = IntrinsicReward(name, OBSERVATIONS, ACTIONS, num_envs=3, **settings, options=options)
    for step in zip(*world, strict=True):
        bonus.observe(*step)
    return bonus


def test_two_memories_are_kept_as_each_alone() -> None:
    """Notes of both, refreshed as states enter, one of them on the host and in windows; and more
    states than the run was planned for."""
    element = {"update_interval": 40, "update_steps": 30, "memory": "hnsw"}
    re3 = {"pool": "whole"}
    world = walk(50, 3)
    both = fed("element + 0.5*re3", world, {"element": element, "re3": re3})
    size = 0
    for name, options in (("element", element), ("re3", re3)):
        alone = fed(name, world, options)
        size += alone.memory_size
        for note, values in alone.noted.notes.items():
            np.testing.assert_array_equal(both.noted.notes[f"{name}.{note}"], values)
    assert both.memory_size == size > 150


SMALL_SUM = {"rnd": SMALL_REWARDS["rnd"]}


def test_the_task_s_reward_must_be_given_where_it_is_paid() -> None:
    world = walk(14, 3)
    bonus = IntrinsicReward(
        "rnd - 0.5*extrinsic", OBSERVATIONS, ACTIONS, num_envs=3, capacity=6_000, options=SMALL_SUM
    )
    with pytest.raises(ValueError, match="pays the environment's rewards, and none were given"):
        bonus.observe(*next(zip(*world, strict=True)))
