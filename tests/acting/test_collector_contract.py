"""What holds for every collector, whoever steps the environments: this process, one other or
several; one environment for each agent or more."""

import dataclasses
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pytest
from support import acting_probes
from support.acting_probes import Records, assert_same_records, records_of

from element_rl.acting.collector import Collector, CollectorError, ProcessCollector
from element_rl.envs.make import describe

pytestmark = pytest.mark.usefixtures("probe_environments")

SEEDS, ENV_STEPS, CHUNKS = (3, 4, 5), 40, 4
STOPPED_AFTER = 2  # chunks; then a collector is resumed
any_workers = pytest.mark.parametrize("num_workers", [0, 1, 2])


@dataclasses.dataclass(frozen=True)
class Collected:
    """What every environment did, chunk by chunk, and what is known where collecting is stopped."""

    chunks: list[list[Records]]
    episode_indices: np.ndarray
    running: list[np.ndarray]  # actions of the episode under way


def made_collector(
    name: str, num_workers: int | None, num_envs: int, seeds: Sequence[int] = SEEDS
) -> ProcessCollector:
    in_processes = num_workers != 0
    return ProcessCollector(
        name,
        seeds,
        ENV_STEPS * num_envs,
        acting_probes.policy_without_jax if in_processes else acting_probes.linear_policy,
        {key: value.shape[1:] for key, value in parameters_of(name, 0).items()},
        num_workers=num_workers,
        num_envs=num_envs,
    )


def parameters_of(
    name: str, chunk_index: int, seeds: Sequence[int] = SEEDS
) -> dict[str, np.ndarray]:
    """Of each agent's policy; they change with every chunk."""
    spec = describe(name)
    shapes = {"weight": (spec.observation_dim, spec.action_dim), "bias": (spec.action_dim,)}
    return {
        key: np.stack(
            [
                np.random.default_rng([seed, chunk_index, place]).normal(0.0, 0.3, shape)
                for seed in seeds
            ]
        ).astype(np.float32)
        for place, (key, shape) in enumerate(shapes.items())
    }


@lru_cache
def collected(
    name: str, num_workers: int | None, num_envs: int, seeds: tuple[int, ...] = SEEDS
) -> Collected:
    """The first chunk at random, then on parameters that change."""
    chunks, rows = [], len(seeds) * num_envs
    taken: list[list[np.ndarray]] = [[] for _ in range(rows)]
    with made_collector(name, num_workers, num_envs, seeds) as collector:
        for chunk_index in range(CHUNKS):
            parameters = parameters_of(name, chunk_index, seeds)
            collector.start(chunk_index, parameters if chunk_index > 0 else None)
            chunk = collector.wait()
            chunks.append([records_of(chunk, row) for row in range(rows)])
            if chunk_index < STOPPED_AFTER:
                episode_indices = chunk.episode_index.copy()
                for row, records in enumerate(chunks[-1]):
                    for action, final in zip(records["action"], records["final"], strict=True):
                        taken[row] = [] if final else [*taken[row], action]
    running = [np.array(each, np.float32).reshape(-1, action.size) for each in taken]
    return Collected(chunks, episode_indices, running)


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("num_workers", [None, 1, 2])
def test_the_same_is_collected_by_any_number_of_processes(
    num_workers: int | None, num_envs: int
) -> None:
    here, there = (collected("Hopper-v5", number, num_envs) for number in (0, num_workers))
    for ours, theirs in zip(here.chunks, there.chunks, strict=True):
        for row, expected in zip(theirs, ours, strict=True):
            assert_same_records(row, expected)
    np.testing.assert_array_equal(here.episode_indices, there.episode_indices)


def test_an_agent_of_a_population_does_what_it_does_alone() -> None:
    alone = collected("Hopper-v5", 0, 1, SEEDS[1:2])
    for chunk, (expected,) in zip(collected("Hopper-v5", 0, 1).chunks, alone.chunks, strict=True):
        assert_same_records(chunk[1], expected)


def test_environments_of_an_agent_act_on_its_policy_with_noise_of_their_own() -> None:
    """The first environment does what an agent with one does; the others differ."""
    of_one, of_three = (collected("Hopper-v5", 0, num_envs).chunks for num_envs in (1, 3))
    for alone, together in zip(of_one, of_three, strict=True):
        for agent, expected in enumerate(alone):
            first, second, third = together[3 * agent : 3 * agent + 3]
            assert_same_records(first, expected)
            assert not np.array_equal(first["action"][:5], second["action"][:5])
            assert not np.array_equal(second["action"][:5], third["action"][:5])


@pytest.mark.parametrize(
    ("name", "num_workers", "num_envs"),
    [
        *(("Hopper-v5", num_workers, num_envs) for num_workers in (0, 1, 2) for num_envs in (1, 3)),
        ("Ant-v5", 0, 1),  # hardly falls: its first episode is under way
    ],
)
def test_resumed_agents_go_on_as_if_undisturbed(name: str, num_workers: int, num_envs: int) -> None:
    undisturbed = collected(name, num_workers, num_envs)
    assert any(len(actions) > 0 for actions in undisturbed.running)
    with made_collector(name, num_workers, num_envs) as resumed:
        observations = resumed.resume(undisturbed.episode_indices, undisturbed.running)
        for chunk_index in range(STOPPED_AFTER, CHUNKS):
            resumed.start(chunk_index, parameters_of(name, chunk_index))
            chunk = resumed.wait()
            for row, expected in enumerate(undisturbed.chunks[chunk_index]):
                assert_same_records(records_of(chunk, row), expected)
    for observation, expected in zip(observations, undisturbed.chunks[STOPPED_AFTER], strict=True):
        np.testing.assert_array_equal(observation, expected["observation"][0])


@any_workers
def test_resuming_with_actions_of_another_episode_is_refused(num_workers: int) -> None:
    actions = [np.ones((6, 1), np.float32)]
    message = "Agent 0 could not be resumed: episode 2 ended after 5 of its 6 recorded actions"
    with (
        ProcessCollector(
            "element-tests/Counter-v0", [1], 5, None, {}, num_workers=num_workers
        ) as collector,
        pytest.raises(CollectorError, match=message),
    ):
        collector.resume([2], actions)


@any_workers
def test_wrong_use_is_refused_and_harms_nothing(num_workers: int) -> None:
    zeros = {"weight": np.zeros((2, 3, 1), np.float32), "bias": np.zeros((2, 1), np.float32)}
    shapes = {key: value.shape[1:] for key, value in zeros.items()}
    collector = ProcessCollector(
        "Pendulum", [0, 1], 5, acting_probes.linear_policy, shapes, num_workers=num_workers
    )
    assert isinstance(collector, Collector)
    with pytest.raises(RuntimeError, match="No chunk is under way"):
        collector.wait()
    with pytest.raises(ValueError, match=r"takes parameters \['bias', 'weight'\], but got"):
        collector.start(0, {"weight": zeros["weight"]})
    with pytest.raises(
        ValueError, match=r"'weight' must have the shape \(2, 3, 1\), agents first, not \(3, 1\)"
    ):
        collector.start(0, zeros | {"weight": zeros["weight"][0]})
    with pytest.raises(ValueError, match="2 environments to resume, but 1 episode indices and 0"):
        collector.resume([0], [])
    collector.start(0, zeros)
    for under_way in (lambda: collector.start(1, None), lambda: collector.resume([0], [])):
        with pytest.raises(RuntimeError, match="A chunk is under way"):
            under_way()
    chunk = collector.wait()
    collector.close()
    collector.close()
    assert chunk.count.tolist() == [5, 5]
    assert np.isfinite(chunk.observation).all()  # what was collected stays readable
    with pytest.raises(RuntimeError, match="closed"):
        collector.start(1, None)
