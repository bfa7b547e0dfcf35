"""Collected records against a plain Gymnasium loop, and which parameters are acted on."""

from typing import Any

import numpy as np
import pytest
from support import acting_probes
from support.acting_probes import Records, assert_same_records, records_of

from element_rl.acting.actors import RECORD_FIELDS
from element_rl.acting.collector import ProcessCollector
from element_rl.acting.host_policy import policy_action
from element_rl.envs.make import make_env

pytestmark = pytest.mark.usefixtures("probe_environments")


@pytest.mark.parametrize(
    ("name", "options", "chunk_steps"),
    [
        ("Hopper-v5", {}, 60),  # falls: terminated
        # is stopped: truncated, also on the last step of a chunk
        ("Ant-v5", {"max_episode_steps": 25}, 60),
        ("Humanoid-v4", {}, 40),
        ("Pendulum-v1", {}, 150),  # actions in [-2, 2]
        ("element-tests/Counter-v0", {}, 4),  # actions in [0.5, 2]
        # terminated and truncated at once
        ("element-tests/Counter-v0", {"wrong": "termination", "at": 5}, 12),
    ],
)
def test_records_are_those_of_a_plain_loop(
    name: str, options: dict[str, Any], chunk_steps: int
) -> None:
    seed, num_chunks = 11, 3
    with ProcessCollector(name, [seed], chunk_steps, None, {}, options, num_workers=0) as collector:
        for chunk_index in range(num_chunks):
            collector.start(chunk_index, None)
            assert_same_records(
                records_of(collector.wait(), 0),
                _plain_loop(name, options, seed, chunk_steps, num_chunks)[chunk_index],
            )


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
            {
                field: np.array([row[column] for row in rows])
                for column, field in enumerate(RECORD_FIELDS)
            }
        )
    return chunks


def test_terminated_and_truncated_are_kept_apart() -> None:
    with ProcessCollector(
        "element-tests/Counter-v0", [0], 12, None, {}, num_workers=0
    ) as collector:
        collector.start(0, None)
        truncations = records_of(collector.wait(), 0)
    options = {"wrong": "termination", "at": 3}
    with ProcessCollector(
        "element-tests/Counter-v0", [0], 12, None, {}, options, num_workers=0
    ) as collector:
        collector.start(0, None)
        terminations = records_of(collector.wait(), 0)
    assert np.flatnonzero(truncations["truncated"]).tolist() == [4, 10]
    assert not truncations["terminated"].any()
    assert truncations["observation"][:, 0].tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 0, 1]
    assert np.flatnonzero(terminations["terminated"]).tolist() == [2, 6, 10, 14]
    assert not terminations["truncated"].any()
    assert np.flatnonzero(terminations["final"]).tolist() == [3, 7, 11, 15]


def test_each_agent_acts_on_its_own_parameters() -> None:
    parameters = _parameters(2, 1)
    shapes = {name: value.shape[1:] for name, value in parameters.items()}
    with ProcessCollector(
        "Hopper", [8, 9], 20, acting_probes.linear_policy, shapes, num_workers=0
    ) as collector:
        collector.start(6, parameters)
        chunk = collector.wait()
        for agent, seed in enumerate((8, 9)):
            records = records_of(chunk, agent)
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
            records.append(records_of(collector.wait(), 0))
            collector.start(1, "as set" if early else second)
            chunk = collector.wait()
            records.append(records_of(chunk, 0))
            collector.start(2, "as set" if early else second)
            # readable while the next chunk is under way
            assert_same_records(records_of(chunk, 0), records[-1])
            records.append(records_of(collector.wait(), 0))
        return records

    for early, late in zip(collect(True), collect(False), strict=True):
        assert_same_records(early, late)


def _parameters(num_agents: int, seed: int) -> Records:
    generator = np.random.default_rng(seed)
    shapes = {"weight": (num_agents, 11, 3), "bias": (num_agents, 3)}
    return {
        name: generator.normal(0.0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()
    }


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_parameter_that_is_one_number_is_the_newest_in_every_chunk(num_workers: int) -> None:
    """As the noise that TD3's policy acts with, and the share of random actions of DQN's."""
    still = {"weight_0": np.zeros((1, 2, 2), np.float32), "bias_0": np.zeros((1, 2), np.float32)}
    shapes: dict[str, tuple[int, ...]] = {"weight_0": (2, 2), "bias_0": (2,)}
    shapes |= {"exploration_noise": ()}
    with ProcessCollector(
        "PointMaze", [0], 8, policy_action, shapes, num_workers=num_workers
    ) as collector:
        for chunk_index, deviation in enumerate((0.1, 0.0, 0.2, 0.3)):
            collector.start(
                chunk_index, still | {"exploration_noise": np.full(1, deviation, np.float32)}
            )
            taken = records_of(collector.wait(), 0)["action"][:8]
            noise = np.random.default_rng([0, chunk_index]).standard_normal((8, 2), np.float32)
            np.testing.assert_allclose(taken, np.clip(deviation * noise, -1.0, 1.0), rtol=1e-6)
