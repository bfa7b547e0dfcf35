"""Counts over training against a dictionary; tables, calibration and what is counted."""

import dataclasses
from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.by_hand import episode_of, init, observe, reward_of, transitions, update

from element_rl.replay.ring import Transitions
from element_rl.rewards import Reward, RewardSpec
from element_rl.rewards.pseudo_counts import (
    PseudoCountsConfig,
    PseudoCountsReward,
    PseudoCountsState,
    table_slots,
    visits_of,
    with_visits,
)
from element_rl.rewards.visit_cells import Cells

SPEC = RewardSpec(
    observation_dim=3, action_dim=2, state_dim=4, max_episode_steps=40, total_steps=1_000
)
KEY = jax.random.key(0)
SMALL = {"table_size": 4096, "calibration_steps": 1}


def counts(**options: Any) -> PseudoCountsReward:
    return PseudoCountsReward(PseudoCountsConfig(**(SMALL | options)))


def batch_to(observations: np.ndarray) -> Transitions:
    return transitions(len(observations), next_observation=observations)


def codes_by_hand(state: PseudoCountsState, observations: np.ndarray, whitened: Any) -> list[Any]:
    mean, std = whitened
    inputs = (np.asarray(observations, np.float64) - mean) / std
    projected = inputs @ np.asarray(state.cells.directions, np.float64)
    return [tuple(code) for code in np.floor(projected / 0.5 + np.asarray(state.cells.offsets))]


def test_by_hand() -> None:
    """One entry, cells of one: visits to 0, 0, 7 and 0 again, then an episode that stays at 0. The
    first state of an episode is a visit, too."""
    reward = counts(cell_width=1.0, reward_scale=2.0, calibration_steps=10**6)
    state = init(reward, KEY, SPEC)
    places = np.zeros((4, 3))
    places[:, 0] = [0.25, 0.5, 7.5, 0.75]
    batch = batch_to(np.array([[0.5, 0, 0], [7.25, 0, 0], [99.0, 0, 0]]))
    known, _ = observe(reward, state, episode_of(places))
    np.testing.assert_array_equal(reward_of(reward, known, batch), [2, 2, 2])  # not calibrated yet
    assert not np.asarray(known.counts).any()

    reward = counts(cell_width=1.0, reward_scale=2.0)
    # as if the first steps had had mean 0 and deviation 1
    seen = state.observations._replace(number=jnp.asarray(100.0), squares=jnp.full(3, 100.0))
    state = state._replace(observations=seen, cells=Cells(jnp.eye(3), jnp.full(3, 0.125)))
    for expected in ([2 / 3**0.5, 2, 2], [2 / 6**0.5, 2 / 2**0.5, 2]):
        state, notes = observe(reward, state, episode_of(places))
        assert notes == {}
        np.testing.assert_allclose(reward_of(reward, state, batch), expected, rtol=1e-6)
        np.testing.assert_array_equal(state.observations.mean, seen.mean)  # it stays


def test_counts_are_those_of_a_dictionary_over_episodes() -> None:
    """The first episode whitens and is counted; the others are counted by its moments."""
    reward = counts()
    state, rng, visits = init(reward, KEY, SPEC), np.random.default_rng(0), Counter[Any]()
    whitened = None
    for length in (40, 1, 25):
        walk = np.cumsum(rng.normal(size=(length + 1, 3)), axis=0).astype(np.float32)
        whitened = whitened or (walk[1:].mean(0), walk[1:].std(0))
        state, _ = observe(reward, state, episode_of(walk))
        codes = codes_by_hand(state, walk, whitened)
        visits.update(codes)
        expected = [visits[code] ** -0.5 for code in codes[1:]]
        np.testing.assert_allclose(
            reward_of(reward, state, batch_to(walk[1:])), expected, rtol=1e-5
        )
    assert max(visits.values()) > 2
    np.testing.assert_allclose(state.load, len(visits) / 4096, rtol=0.02)
    _, metrics = update(reward, state, batch_to(walk[1:]), KEY)
    assert {name: float(value) for name, value in metrics.items()} == {
        "pseudo_counts_load": float(state.load)
    }
    assert set(metrics) == set(reward.metric_names)


def test_calibration_ends_once_and_then_stays() -> None:
    """Of 10 and 10 steps 15 are needed: both episodes whiten, the second is the first counted."""
    reward = counts(calibration_steps=15)
    state, rng = init(reward, KEY, SPEC), np.random.default_rng(1)
    walks = [rng.normal(size=(11, 3)).astype(np.float32) for _ in range(3)]
    for walk, counted in zip(walks, (0, 11, 22), strict=True):
        state, _ = observe(reward, state, episode_of(walk))
        np.testing.assert_array_equal(np.sum(state.counts, axis=1), [counted] * 4)
    both = np.concatenate([walk[1:] for walk in walks[:2]])
    np.testing.assert_allclose(state.observations.mean, both.mean(0), rtol=1e-4)
    assert float(state.observations.number) == 20
    calibrations = [
        float(init(reward, KEY, dataclasses.replace(SPEC, total_steps=steps)).calibration)
        for steps in (5, 100, 1_000)
    ]
    assert calibrations == [1, 10, 15]  # no more than a tenth of the run


@pytest.mark.parametrize("hashed", ["cells", "simhash"])
def test_what_a_hash_tells_apart(hashed: str) -> None:
    """In a plane SimHash takes all of a ray for one place, the cells do not; opposite places differ
    for both. A vector of two entries is projected by SimHash to all its bits."""
    reward = counts(hash=hashed, projections=32)
    spec = RewardSpec(2, 1, 2, 8, 100)
    state = init(reward, KEY, spec)
    assert state.cells.directions.shape == ((2, 32) if hashed == "simhash" else (2, 2))
    places = jnp.array([[1.0, 2.0], [3.0, 6.0], [-1.0, -2.0]])
    slots = np.asarray(reward.slots(state, places))
    assert (slots[0] == slots[1]).all() == (hashed == "simhash")
    assert (slots[0] != slots[2]).any()
    if hashed == "simhash":
        bits = np.asarray(places) @ np.asarray(state.cells.directions) > 0
        same = table_slots(jnp.asarray(bits, jnp.int32), state.multipliers, 4096)
        np.testing.assert_array_equal(slots, same)


def test_slots_against_integers_of_python() -> None:
    codes = np.array([[0, 0], [1, -1], [-7, 123_456], [2_000_000, -2_000_000]], np.int32)
    multipliers = np.array([[3, 5], [2**32 - 1, 2_654_435_761], [17, 2**31]], np.uint32)
    found = table_slots(jnp.asarray(codes), jnp.asarray(multipliers), 1000)
    for row, code in enumerate(codes.tolist()):
        for table, factors in enumerate(multipliers.tolist()):
            word = sum(part * factor for part, factor in zip(code, factors, strict=True)) % 2**32
            for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
                word = (word ^ word >> shift) * factor % 2**32
            assert int(found[row, table]) == (word ^ word >> 16) % 1000


def test_a_shared_slot_counts_only_where_all_tables_share_it() -> None:
    """Two codes meet in the first table, and in the second they do not: the least count is the true
    one. In one table both would have the sum."""
    slots = jnp.array([[3, 1], [3, 2], [3, 2]], jnp.int32)
    present = jnp.array([True, True, True])
    tables = with_visits(jnp.zeros((2, 4), jnp.int32), slots, present)
    np.testing.assert_array_equal(tables, [[0, 0, 0, 3], [0, 1, 2, 0]])
    np.testing.assert_array_equal(visits_of(tables, slots), [1, 2, 2])
    np.testing.assert_array_equal(visits_of(tables[:1], slots[:, :1]), [3, 3, 3])
    absent = with_visits(tables, slots, jnp.array([False, False, True]))
    np.testing.assert_array_equal(absent, [[0, 0, 0, 4], [0, 1, 3, 0]])


def test_codes_spread_over_the_slots() -> None:
    """4,000 neighbouring cells in four tables of 8,192: as many slots in use as by chance, and
    hardly any cell that shares its slot in all of them."""
    grid = np.stack(np.meshgrid(np.arange(-50, 50), np.arange(40)), axis=-1).reshape(-1, 2)
    state = init(counts(table_size=8192), KEY, RewardSpec(2, 1, 2, 8, 100))
    slots = table_slots(jnp.asarray(grid, jnp.int32), state.multipliers, 8192)
    tables = with_visits(jnp.zeros((4, 8192), jnp.int32), slots, jnp.ones(4000, bool))
    by_chance = 8192 * (1 - np.exp(-4000 / 8192))
    np.testing.assert_allclose(np.sum(np.asarray(tables) > 0, axis=1), by_chance, rtol=0.05)
    # 0.39 of the slots are in use: 0.39⁴ = 2 % of the cells meet others everywhere
    assert np.mean(np.asarray(visits_of(tables, slots)) > 1) < 0.04


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ({"projections": 0}, "projections is 0; choose at least 1."),
        ({"cell_width": 0.0}, "cell_width is 0.0; choose above 0."),
        ({"table_size": 0}, "table_size is 0; choose at least 1."),
        ({"calibration_steps": 0}, "calibration_steps is 0; choose at least 1."),
        ({"reward_scale": -1.0}, "reward_scale is -1.0; choose above 0."),
    ],
)
def test_bad_settings_are_refused(setting: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^PseudoCountsConfig.{sentence}$"):
        PseudoCountsConfig(**setting)


def test_settings_and_interface() -> None:
    config = PseudoCountsConfig()
    assert (config.hash, config.projections, config.cell_width) == ("cells", 4, 0.5)
    assert (config.num_tables, config.table_size) == (4, 2**18)
    assert isinstance(PseudoCountsReward(), Reward)
