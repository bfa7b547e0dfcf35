"""Worlds on the device, collected: episodes end and begin where they should, and everything hangs
on seeds and counters alone."""

from collections.abc import Sequence

import jax
import numpy as np
import pytest
from support.acting_probes import Records, assert_same_records, records_of
from support.counting_worlds import LIMIT, CountingWorlds

from element_rl.acting.actors import CollectorError
from element_rl.acting.collector import Collector
from element_rl.acting.host_policy import policy_action
from element_rl.agents import sac, td3
from element_rl.envs.make import describe
from element_rl.worlds.collector import DeviceCollector
from element_rl.worlds.contract import Worlds
from element_rl.worlds.making import make_worlds

SEEDS = (3, 4)


def chunks_of(
    worlds: Worlds,
    chunks: int,
    num_envs: int = 4,
    steps: int = 5,
    seeds: Sequence[int] = SEEDS,
    parameters: dict[str, np.ndarray] | None = None,
) -> list[list[Records]]:
    """Records of every world, chunk by chunk."""
    collector = DeviceCollector(worlds, seeds, steps * num_envs, num_envs)
    found = []
    for index in range(chunks):
        collector.start(index, parameters)
        chunk = collector.wait()
        found.append([records_of(chunk, row) for row in range(len(seeds) * num_envs)])
    return found


def joined(chunks: list[list[Records]], row: int) -> Records:
    return {
        name: np.concatenate([np.asarray(chunk[row][name]) for chunk in chunks])
        for name in chunks[0][row]
    }


def episodes_of(records: Records) -> list[np.ndarray]:
    """The observations of each episode that has ended."""
    ends = np.flatnonzero(records["final"]) + 1
    return np.split(records["observation"], ends)[: len(ends)]


def test_the_first_episodes_are_staggered_and_all_others_are_whole() -> None:
    """12 steps at most, shared by 4 worlds: the first episodes end after 3, 6, 9 and 12."""
    found = chunks_of(CountingWorlds(), chunks=10)
    for row in range(8):
        records = joined(found, row)
        lengths = [len(episode) - 1 for episode in episodes_of(records)]
        assert lengths[0] == 3 * (row % 4 + 1)
        assert set(lengths[1:]) == {LIMIT}
        assert not records["terminated"].any()
        assert records["truncated"].sum() == len(lengths)


def test_an_observation_is_stored_once_and_the_last_one_too() -> None:
    records = joined(chunks_of(CountingWorlds(), chunks=10), row=1)
    for episode in episodes_of(records):
        np.testing.assert_array_equal(episode[:, 1], np.arange(len(episode)))  # the counter
        assert np.ptp(episode[:, 0]) == 0  # where it began
    starts = [episode[0, 0] for episode in episodes_of(records)]
    assert len(set(starts)) == len(starts)
    np.testing.assert_array_equal(records["position"][:, 0], records["observation"][:, 1])


def test_rewards_actions_and_flags_stand_with_their_step() -> None:
    records = joined(chunks_of(CountingWorlds(ends=4), chunks=6), row=0)
    final, taken = records["final"], ~records["final"]
    # the environment's own bounds are -2 and 4: the action of the policy times 3, and 1 more
    np.testing.assert_allclose(
        records["extrinsic_reward"][taken], 3 * records["action"][taken, 0] + 1, rtol=1e-5
    )
    assert not records["action"][final].any()
    assert not records["extrinsic_reward"][final].any()
    counter = records["observation"][:, 1]
    # the first episode is cut off after 3 steps, the others end themselves after 4
    np.testing.assert_array_equal(np.flatnonzero(records["truncated"]), [2])
    np.testing.assert_array_equal(counter[records["terminated"]], 3)
    np.testing.assert_array_equal(counter[final][1:], 4)
    assert (np.abs(records["action"]) <= 1).all()


def test_two_episodes_of_one_chunk_begin_apart() -> None:
    """A chunk of 12 steps holds several episodes of 2; fresh worlds are made again for them."""
    records = joined(chunks_of(CountingWorlds(ends=2), chunks=2, num_envs=1, steps=12), row=0)
    starts = [episode[0, 0] for episode in episodes_of(records)]
    assert len(starts) == 12
    assert len(set(starts)) == 12


def test_faulty_worlds_are_cut_off_where_they_were_sound_and_counted() -> None:
    worlds = CountingWorlds(fails=3, share=0.5)
    collector = DeviceCollector(worlds, SEEDS, 20, 4)
    found, episodes = [], 0
    for index in range(12):
        collector.start(index, None)
        chunk = collector.wait()
        found.append([records_of(chunk, row) for row in range(8)])
    faults = 0
    for row in range(8):
        records = joined(found, row)
        for name in ("observation", "position", "extrinsic_reward"):
            assert np.isfinite(records[name]).all()
        assert not records["terminated"].any()
        for episode in episodes_of(records):
            episodes += 1
            if episode[0, 0] < 0.5 and len(episode) == 4 and episode[-1, 1] == 2:
                faults += 1  # the third step led nowhere
                np.testing.assert_array_equal(episode[:, 1], [0, 1, 2, 2])
    assert 0 < faults < episodes
    np.testing.assert_array_equal(collector.faults().sum(), faults)


def test_an_agent_of_a_population_does_what_it_does_alone() -> None:
    together = chunks_of(CountingWorlds(ends=5), chunks=3)
    alone = chunks_of(CountingWorlds(ends=5), chunks=3, seeds=SEEDS[1:])
    for chunk, expected in zip(together, alone, strict=True):
        for ours, theirs in zip(chunk[4:], expected, strict=True):
            assert_same_records(ours, theirs)


def test_restored_worlds_go_on_as_if_undisturbed() -> None:
    spec = describe("PointMaze-v0")
    worlds = make_worlds("jax", spec, {})
    state = jax.vmap(lambda key: sac.create(key, 2, 2, SMALL))(jax.random.split(jax.random.key(0)))
    parameters = jax.device_get(sac.agent(SMALL, 2, 2).policy(state))
    undisturbed = chunks_of(worlds, chunks=4, steps=200, parameters=parameters)
    first = DeviceCollector(worlds, SEEDS, 800, 4)
    for index in range(2):
        first.start(index, parameters)
        first.wait()
    snapshot = jax.tree.map(np.asarray, first.snapshot())
    second = DeviceCollector(worlds, SEEDS, 800, 4)
    second.restore(snapshot)
    second.set_parameters(parameters)
    for index in range(2, 4):
        second.start(index, "as set")
        chunk = second.wait()
        for row, expected in enumerate(undisturbed[index]):
            assert_same_records(records_of(chunk, row), expected)


SMALL = sac.SACConfig(hidden_sizes=(8, 8))


@pytest.mark.parametrize("algorithm", [sac, td3])
def test_stored_policies_act_as_on_the_host(algorithm: object) -> None:
    """On the device the noise is not told, so its deviation is made 0."""
    config = (
        SMALL if algorithm is sac else td3.TD3Config(hidden_sizes=(8, 8), exploration_noise=0.0)
    )
    made = algorithm.agent(config, 2, 1)
    state = jax.vmap(made.create)(jax.random.split(jax.random.key(1)))
    parameters = {name: np.array(array) for name, array in made.policy(state).items()}
    if algorithm is sac:
        parameters["bias_2"][:, 1] = -30.0  # log σ, clipped at -20
        parameters["weight_2"][:, :, 1] = 0.0
    found = chunks_of(CountingWorlds(), chunks=2, parameters=parameters)
    for row in range(8):
        own = {name: array[row // 4] for name, array in parameters.items()}
        records = joined(found, row)
        for observation, action, final in zip(
            records["observation"], records["action"], records["final"], strict=True
        ):
            if not final:
                expected = policy_action(own, observation, np.zeros(1, np.float32))
                np.testing.assert_allclose(action, expected, rtol=1e-5, atol=1e-6)


def test_wrong_use_is_refused() -> None:
    collector = DeviceCollector(CountingWorlds(), SEEDS, 8, 4)
    assert isinstance(collector, Collector)
    assert isinstance(CountingWorlds(), Worlds)
    with pytest.raises(RuntimeError, match="No chunk is under way"):
        collector.wait()
    with pytest.raises(RuntimeError, match="No parameters were set"):
        collector.start(0, "as set")
    collector.start(0, None)
    with pytest.raises(RuntimeError, match="A chunk is under way"):
        collector.start(1, None)
    collector.wait()
    with pytest.raises(ValueError, match="4 environments and 6 steps"):
        DeviceCollector(CountingWorlds(), SEEDS, 6, 4)


def test_a_policy_that_has_diverged_is_named() -> None:
    made = sac.agent(SMALL, 2, 1)
    state = jax.vmap(made.create)(jax.random.split(jax.random.key(1)))
    parameters = {name: np.array(array) for name, array in made.policy(state).items()}
    parameters["bias_0"][1] = np.nan
    with pytest.raises(CollectorError, match="Agent 1 failed in chunk 0: an action is not finite"):
        chunks_of(CountingWorlds(), chunks=1, parameters=parameters)
