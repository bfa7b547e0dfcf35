"""Collected records against a plain Gymnasium loop; the same whatever the number of processes."""

from typing import Any

import numpy as np
import pytest
from support import acting_probes

from element_rl.acting.collector import Chunk, Collector, CollectorError, ProcessCollector
from element_rl.envs.make import make_env

pytestmark = pytest.mark.usefixtures("probe_environments")

FIELDS = (
    "observation",
    "action",
    "extrinsic_reward",
    "terminated",
    "truncated",
    "final",
    "position",
)
Records = dict[str, np.ndarray]


@pytest.mark.parametrize(
    ("name", "options", "chunk_steps"),
    [
        ("Hopper-v5", {}, 60),  # falls: terminated
        (
            "Ant-v5",
            {"max_episode_steps": 25},
            60,
        ),  # is stopped: truncated, also on the last step of a chunk
        ("Humanoid-v4", {}, 40),
        ("Pendulum-v1", {}, 150),  # actions in [-2, 2]
        ("element-tests/Counter-v0", {}, 4),  # actions in [0.5, 2]
        (
            "element-tests/Counter-v0",
            {"wrong": "termination", "at": 5},
            12,
        ),  # terminated and truncated at once
    ],
)
def test_records_are_those_of_a_plain_loop(
    name: str, options: dict[str, Any], chunk_steps: int
) -> None:
    seed, num_chunks = 11, 3
    with ProcessCollector(name, [seed], chunk_steps, None, {}, options, num_workers=0) as collector:
        for chunk_index in range(num_chunks):
            collector.start(chunk_index, None)
            _assert_same(
                _records_of(collector.wait(), 0),
                _plain_loop(name, options, seed, chunk_steps, num_chunks)[chunk_index],
            )


def test_environments_of_an_agent_act_on_its_policy_with_noise_of_their_own() -> None:
    """The first environment does what an agent with one does; the others differ, whoever steps
    them."""
    shapes = {"weight": (11, 3), "bias": (3,)}
    generator = np.random.default_rng(0)
    parameters = {
        name: generator.normal(size=(2, *shape)).astype(np.float32)
        for name, shape in shapes.items()
    }
    found = {}
    for workers in (0, 2):
        for num_envs in (1, 3):
            settings = ([8, 9], 20 * num_envs, acting_probes.linear_policy, shapes)
            with ProcessCollector(
                "Hopper", *settings, num_workers=workers, num_envs=num_envs
            ) as collector:
                collector.start(0, parameters)
                chunk = collector.wait()
                rows = len(chunk.count)
                found[workers, num_envs] = [
                    {name: array.copy() for name, array in _records_of(chunk, row).items()}
                    for row in range(rows)
                ]
    for agent in range(2):
        alone, (first, second, third) = found[0, 1][agent], found[0, 3][3 * agent : 3 * agent + 3]
        _assert_same(first, alone)
        assert not np.array_equal(first["action"][:5], second["action"][:5])
        assert not np.array_equal(second["action"][:5], third["action"][:5])
    for ours, theirs in zip(found[0, 3], found[2, 3], strict=True):
        for name in FIELDS:
            np.testing.assert_allclose(ours[name], theirs[name], atol=1e-5)
    with pytest.raises(ValueError, match="divide chunk_steps, not 3 environments and 20 steps"):
        ProcessCollector("Hopper", [8], 20, None, {}, num_workers=0, num_envs=3)


def _plain_loop(
    name: str, options: dict[str, Any], seed: int, chunk_steps: int, num_chunks: int
) -> list[Records]:
    """What the collector should record, written as one would with Gymnasium alone."""

    def reset() -> tuple[np.ndarray, Any]:
        return env.reset(
            seed=int(np.random.SeedSequence([seed, 1_000_003, episode]).generate_state(1)[0])
        )

    def place(info: dict[str, Any]) -> Any:
        coordinates = getattr(env.unwrapped, "data", None)
        return np.zeros(0) if coordinates is None else coordinates.qpos[:2].copy()

    env = make_env(name, **options)
    low, high = (
        bound.astype(np.float64) for bound in (env.action_space.low, env.action_space.high)
    )
    nothing = np.zeros(low.shape)
    episode = 0
    observation, info = reset()
    chunks = []
    for chunk_index in range(num_chunks):
        rows: list[tuple[Any, ...]] = []
        uniform = np.random.default_rng([seed, chunk_index]).uniform(
            -1, 1, (chunk_steps, *low.shape)
        )
        for action in uniform.astype(np.float32):
            position = place(info)
            scaled = (low + (action.astype(np.float64) + 1) / 2 * (high - low)).astype(np.float32)
            following, reward, terminated, truncated, info = env.step(scaled)
            rows.append((observation, action, reward, terminated, truncated, False, position))
            observation = following
            if terminated or truncated:
                rows.append((observation, nothing, 0.0, False, False, True, place(info)))
                episode += 1
                observation, info = reset()
        chunks.append(
            {field: np.array([row[column] for row in rows]) for column, field in enumerate(FIELDS)}
        )
    return chunks


def test_terminated_and_truncated_are_kept_apart() -> None:
    with ProcessCollector(
        "element-tests/Counter-v0", [0], 12, None, {}, num_workers=0
    ) as collector:
        collector.start(0, None)
        truncations = _records_of(collector.wait(), 0)
    options = {"wrong": "termination", "at": 3}
    with ProcessCollector(
        "element-tests/Counter-v0", [0], 12, None, {}, options, num_workers=0
    ) as collector:
        collector.start(0, None)
        terminations = _records_of(collector.wait(), 0)
    assert np.flatnonzero(truncations["truncated"]).tolist() == [4, 10]
    assert not truncations["terminated"].any()
    assert truncations["observation"][:, 0].tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 0, 1]
    assert np.flatnonzero(terminations["terminated"]).tolist() == [2, 6, 10, 14]
    assert not terminations["truncated"].any()
    assert np.flatnonzero(terminations["final"]).tolist() == [3, 7, 11, 15]


def test_the_same_for_any_number_of_processes_and_alone() -> None:
    seeds = [3, 4, 5]
    in_process = _collect(seeds, num_workers=0)
    for other in (_collect(seeds, num_workers=2), _collect(seeds, num_workers=None)):
        for chunk, other_chunk in zip(in_process, other, strict=True):
            for agent in range(3):
                _assert_same(chunk[agent], other_chunk[agent])
    for chunk, (alone,) in zip(in_process, _collect([4], num_workers=0, agents=[1]), strict=True):
        _assert_same(chunk[1], alone)


def _collect(
    seeds: list[int], num_workers: int | None, agents: list[int] | None = None
) -> list[list[Records]]:
    """Four chunks, the first at random, then on parameters that change; by chunk, by agent."""
    shapes = {"weight": (11, 3), "bias": (3,)}
    chunks = []
    policy = acting_probes.policy_without_jax if num_workers != 0 else acting_probes.linear_policy
    with ProcessCollector(
        "Hopper-v5", seeds, 50, policy, shapes, num_workers=num_workers
    ) as collector:
        for chunk_index in range(4):
            parameters = {
                name: value[agents or slice(None)]
                for name, value in _parameters(3, chunk_index).items()
            }
            collector.start(chunk_index, parameters if chunk_index > 0 else None)
            chunk = collector.wait()
            chunks.append([_records_of(chunk, agent) for agent in range(len(seeds))])
    return chunks


def test_each_agent_acts_on_its_own_parameters() -> None:
    parameters = _parameters(2, 1)
    shapes = {name: value.shape[1:] for name, value in parameters.items()}
    with ProcessCollector(
        "Hopper", [8, 9], 20, acting_probes.linear_policy, shapes, num_workers=0
    ) as collector:
        collector.start(6, parameters)
        chunk = collector.wait()
        for agent, seed in enumerate((8, 9)):
            records = _records_of(chunk, agent)
            noise = np.random.default_rng([seed, 6]).standard_normal((20, 3), dtype=np.float32)
            own = {name: value[agent] for name, value in parameters.items()}
            steps = ~records["final"]
            for observation, action, its_noise in zip(
                records["observation"][steps], records["action"][steps], noise, strict=True
            ):
                np.testing.assert_array_equal(
                    action, acting_probes.linear_policy(own, observation, its_noise)
                )


def test_parameters_set_during_a_chunk_are_for_the_next() -> None:
    first, second = _parameters(1, 1), _parameters(1, 2)
    shapes = {name: value.shape[1:] for name, value in first.items()}

    def collect(early: bool) -> list[Records]:
        records = []
        with ProcessCollector(
            "Hopper", [8], 20, acting_probes.linear_policy, shapes, num_workers=0
        ) as collector:
            collector.start(0, first)
            if early:
                collector.set_parameters(second)
            records.append(_records_of(collector.wait(), 0))
            collector.start(1, "as set" if early else second)
            chunk = collector.wait()
            records.append(_records_of(chunk, 0))
            collector.start(2, "as set" if early else second)
            # readable while the next chunk is under way
            _assert_same(_records_of(chunk, 0), records[-1])
            records.append(_records_of(collector.wait(), 0))
        return records

    for early, late in zip(collect(True), collect(False), strict=True):
        _assert_same(early, late)


@pytest.mark.parametrize(("name", "num_workers"), [("Ant-v5", 0), ("Hopper-v5", 1)])
def test_resumed_agents_go_on_as_if_undisturbed(name: str, num_workers: int) -> None:
    seeds, chunk_steps = [1, 2], 70
    with ProcessCollector(name, seeds, chunk_steps, None, {}, num_workers=num_workers) as collector:
        running: list[list[np.ndarray]] = [[], []]
        for chunk_index in range(2):
            collector.start(chunk_index, None)
            chunk = collector.wait()
            for agent in range(2):
                records = _records_of(chunk, agent)
                for action, final in zip(records["action"], records["final"], strict=True):
                    running[agent] = [] if final else [*running[agent], action]
        episode_indices = chunk.episode_index.copy()
        collector.start(2, None)
        chunk = collector.wait()
        undisturbed = [_records_of(chunk, agent) for agent in range(2)]
    actions = [
        np.array(taken, np.float32).reshape(-1, collector.spec.action_dim) for taken in running
    ]
    with ProcessCollector(name, seeds, chunk_steps, None, {}, num_workers=num_workers) as resumed:
        observations = resumed.resume(episode_indices, actions)
        resumed.start(2, None)
        chunk = resumed.wait()
        for agent in range(2):
            _assert_same(_records_of(chunk, agent), undisturbed[agent])
            np.testing.assert_array_equal(observations[agent], undisturbed[agent]["observation"][0])


def test_resuming_with_actions_of_another_episode_is_refused() -> None:
    actions = [np.ones((6, 1), np.float32)]
    message = "Agent 0 could not be resumed: episode 2 ended after 5 of its 6 recorded actions"
    with (
        ProcessCollector("element-tests/Counter-v0", [1], 5, None, {}, num_workers=0) as collector,
        pytest.raises(CollectorError, match=message),
    ):
        collector.resume([2], actions)


def _parameters(num_agents: int, seed: int) -> Records:
    generator = np.random.default_rng(seed)
    shapes = {"weight": (num_agents, 11, 3), "bias": (num_agents, 3)}
    return {
        name: generator.normal(0.0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()
    }


def _records_of(chunk: Chunk, agent: int) -> Records:
    return {field: getattr(chunk, field)[agent, : chunk.count[agent]].copy() for field in FIELDS}


def _assert_same(records: Records, expected: Records) -> None:
    for field in FIELDS:
        np.testing.assert_array_equal(
            records[field], expected[field].astype(records[field].dtype), err_msg=field
        )


def test_the_collector_of_processes_keeps_the_contract() -> None:
    with ProcessCollector("Pendulum", [0], 5, None, {}, num_workers=0) as collector:
        assert isinstance(collector, Collector)
