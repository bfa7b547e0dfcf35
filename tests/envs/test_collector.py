"""Collected records against a plain Gymnasium loop; the same whatever the number of processes; failures are named."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from element_rl.envs.collector import Chunk, Collector, CollectorError
from element_rl.envs.robots import make_env

sys.path.insert(0, str(Path(__file__).parent))  # spawned workers inherit it, so that they find the probes
import acting_probes

FIELDS = ("observation", "action", "extrinsic_reward", "terminated", "truncated", "final", "position")
Records = dict[str, np.ndarray]


@pytest.fixture(scope="module", autouse=True)
def _probe_environments() -> Iterator[None]:
    acting_probes.register_probes()
    yield
    for name in ("Counter", "Endless"):
        del gymnasium.registry[f"element-tests/{name}-v0"]


@pytest.mark.parametrize(
    ("name", "options", "chunk_steps"),
    [
        ("Hopper-v5", {}, 60),  # falls: terminated
        ("Ant-v5", {"max_episode_steps": 25}, 60),  # is stopped: truncated, also on the last step of a chunk
        ("Humanoid-v4", {}, 40),
        ("Pendulum-v1", {}, 150),  # actions in [-2, 2]
        ("element-tests/Counter-v0", {}, 4),  # actions in [0.5, 2]
        ("element-tests/Counter-v0", {"wrong": "termination", "at": 5}, 12),  # terminated and truncated at once
    ],
)
def test_records_are_those_of_a_plain_loop(name: str, options: dict[str, Any], chunk_steps: int) -> None:
    seed, num_chunks = 11, 3
    with Collector(name, [seed], chunk_steps, None, {}, options, num_workers=0) as collector:
        for chunk_index in range(num_chunks):
            collector.start(chunk_index, None)
            _assert_same(
                _records_of(collector.wait(), 0),
                _plain_loop(name, options, seed, chunk_steps, num_chunks)[chunk_index],
            )


def _plain_loop(name: str, options: dict[str, Any], seed: int, chunk_steps: int, num_chunks: int) -> list[Records]:
    """What the collector should record, written as one would with Gymnasium alone."""

    def reset() -> tuple[np.ndarray, Any]:
        return env.reset(seed=int(np.random.SeedSequence([seed, 1_000_003, episode]).generate_state(1)[0]))

    def place(info: dict[str, Any]) -> Any:
        coordinates = getattr(env.unwrapped, "data", None)
        return np.zeros(0) if coordinates is None else coordinates.qpos[:2].copy()

    env = make_env(name, **options)
    low, high = (bound.astype(np.float64) for bound in (env.action_space.low, env.action_space.high))
    nothing = np.zeros(low.shape)
    episode = 0
    observation, info = reset()
    chunks = []
    for chunk_index in range(num_chunks):
        rows: list[tuple[Any, ...]] = []
        uniform = np.random.default_rng([seed, chunk_index]).uniform(-1, 1, (chunk_steps, *low.shape))
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
        chunks.append({field: np.array([row[column] for row in rows]) for column, field in enumerate(FIELDS)})
    return chunks


def test_terminated_and_truncated_are_kept_apart() -> None:
    with Collector("element-tests/Counter-v0", [0], 12, None, {}, num_workers=0) as collector:
        collector.start(0, None)
        truncations = _records_of(collector.wait(), 0)
    options = {"wrong": "termination", "at": 3}
    with Collector("element-tests/Counter-v0", [0], 12, None, {}, options, num_workers=0) as collector:
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


def _collect(seeds: list[int], num_workers: int | None, agents: list[int] | None = None) -> list[list[Records]]:
    """Four chunks, the first at random, then on parameters that change; by chunk, by agent."""
    shapes = {"weight": (11, 3), "bias": (3,)}
    chunks = []
    policy = acting_probes.policy_without_jax if num_workers != 0 else acting_probes.linear_policy
    with Collector("Hopper-v5", seeds, 50, policy, shapes, num_workers=num_workers) as collector:
        for chunk_index in range(4):
            parameters = {name: value[agents or slice(None)] for name, value in _parameters(3, chunk_index).items()}
            collector.start(chunk_index, parameters if chunk_index > 0 else None)
            chunk = collector.wait()
            chunks.append([_records_of(chunk, agent) for agent in range(len(seeds))])
    return chunks


def test_each_agent_acts_on_its_own_parameters() -> None:
    parameters = _parameters(2, 1)
    shapes = {name: value.shape[1:] for name, value in parameters.items()}
    with Collector("Hopper", [8, 9], 20, acting_probes.linear_policy, shapes, num_workers=0) as collector:
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
                np.testing.assert_array_equal(action, acting_probes.linear_policy(own, observation, its_noise))


def test_parameters_set_during_a_chunk_are_for_the_next() -> None:
    first, second = _parameters(1, 1), _parameters(1, 2)
    shapes = {name: value.shape[1:] for name, value in first.items()}

    def collect(early: bool) -> list[Records]:
        records = []
        with Collector("Hopper", [8], 20, acting_probes.linear_policy, shapes, num_workers=0) as collector:
            collector.start(0, first)
            if early:
                collector.set_parameters(second)
            records.append(_records_of(collector.wait(), 0))
            collector.start(1, "as set" if early else second)
            chunk = collector.wait()
            records.append(_records_of(chunk, 0))
            collector.start(2, "as set" if early else second)
            _assert_same(_records_of(chunk, 0), records[-1])  # readable while the next chunk is under way
            records.append(_records_of(collector.wait(), 0))
        return records

    for early, late in zip(collect(True), collect(False), strict=True):
        _assert_same(early, late)


@pytest.mark.parametrize(("name", "num_workers"), [("Ant-v5", 0), ("Hopper-v5", 1)])
def test_resumed_agents_go_on_as_if_undisturbed(name: str, num_workers: int) -> None:
    seeds, chunk_steps = [1, 2], 70
    with Collector(name, seeds, chunk_steps, None, {}, num_workers=num_workers) as collector:
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
    actions = [np.array(taken, np.float32).reshape(-1, collector.spec.action_dim) for taken in running]
    with Collector(name, seeds, chunk_steps, None, {}, num_workers=num_workers) as resumed:
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
        Collector("element-tests/Counter-v0", [1], 5, None, {}, num_workers=0) as collector,
        pytest.raises(CollectorError, match=message),
    ):
        collector.resume([2], actions)


@pytest.mark.parametrize(
    ("wrong", "num_workers", "message"),
    [
        (
            "observation",
            0,
            r"observation is \[ ?2. nan\] at step 2 of episode 0; it came from element-tests/Endless-v0\.$",
        ),
        ("observation", 1, r"observation is \[ ?2. nan\] at step 2 of episode 0"),
        ("reward", 0, r"extrinsic_reward is inf at step 2 of episode 0"),
        ("crash", 0, r"OSError: the simulator burned down\.$"),
        ("crash", 1, r"OSError: the simulator burned down\.$"),
    ],
)
def test_failures_name_agent_chunk_and_cause(wrong: str, num_workers: int, message: str) -> None:
    options = {"wrong": wrong, "at": 2 if wrong == "observation" else 3}
    collector = Collector("element-tests/Endless-v0", [4, 5], 2, None, {}, options, num_workers=num_workers)
    with pytest.raises(CollectorError, match="^Agent 0 failed in chunk 1: " + message):
        _run_chunks(collector, 2)
    assert multiprocessing.active_children() == []
    with pytest.raises(RuntimeError, match="closed"):
        collector.start(3, None)


def _run_chunks(collector: Collector, num_chunks: int) -> None:
    for chunk_index in range(num_chunks):
        collector.start(chunk_index, None)
        collector.wait()


def test_what_broke_the_environment_is_reported_rather_than_the_breakage() -> None:
    with Collector(
        "element-tests/Counter-v0", [0], 3, acting_probes.diverged_policy, {"w": (1,)}, num_workers=0
    ) as collector:
        collector.start(0, {"w": np.zeros((1, 1), np.float32)})  # this environment raises on a NaN action
        with pytest.raises(CollectorError, match=r"action is \[nan\] at step 0 of episode 0; it came from its policy"):
            collector.wait()


def test_step_of_a_failure_counts_from_the_start_of_its_episode() -> None:
    options = {"wrong": "reward", "at": 2}
    with Collector("element-tests/Counter-v0", [4], 3, None, {}, options, num_workers=0) as collector:
        collector.resume([7], [np.zeros((3, 1), np.float32)])  # step 2 lies behind; the episode ends after step 5
        collector.start(0, None)
        collector.wait()
        collector.start(1, None)
        with pytest.raises(CollectorError, match="extrinsic_reward is inf at step 1 of episode 8"):
            collector.wait()


def test_a_diverged_policy_is_named_as_the_cause() -> None:
    with Collector("Pendulum", [0], 3, acting_probes.diverged_policy, {"w": (1,)}, num_workers=0) as collector:
        collector.start(0, {"w": np.zeros((1, 1), np.float32)})
        with pytest.raises(CollectorError, match=r"action is \[nan\] at step 0 of episode 0; it came from its policy"):
            collector.wait()


def test_a_killed_worker_is_reported_at_once() -> None:
    with Collector("Pendulum", [0, 1], 2_000_000, None, {}) as collector:
        collector.start(7, None)
        victim = next(process for process in multiprocessing.active_children() if process.name == "actors-1")
        assert victim.pid is not None
        os.kill(victim.pid, signal.SIGKILL)
        begin = time.monotonic()
        with pytest.raises(CollectorError, match=r"worker process of agent 1 died in chunk 7 \(signal SIGKILL\)"):
            collector.wait()
        assert time.monotonic() - begin < 8
        assert multiprocessing.active_children() == []


def test_interrupts_are_left_to_the_main_process_and_nothing_remains() -> None:
    shared_before = _shared_memory_files()
    descriptors_before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    with Collector("Pendulum", [0, 1, 2], 50, None, {}, num_workers=2) as collector:
        workers = multiprocessing.active_children()
        assert len(workers) == 2
        for worker in workers:
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGINT)  # while they are still starting
        collector.start(0, None)
        for worker in workers:
            os.kill(worker.pid or 0, signal.SIGINT)
        chunk = collector.wait()
    collector.close()
    assert chunk.count.tolist() == [50, 50, 50]
    assert np.isfinite(chunk.observation).all()  # what was collected stays readable
    assert multiprocessing.active_children() == []
    assert not any(worker.is_alive() for worker in workers)
    del collector, chunk, workers, worker
    assert _shared_memory_files() <= shared_before
    if descriptors_before:
        assert len(os.listdir("/proc/self/fd")) <= descriptors_before + 2  # multiprocessing's own tracker and arena


def _shared_memory_files() -> set[str]:
    folder = Path("/dev/shm")
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks processes up in /proc")
def test_workers_die_with_a_killed_main_process() -> None:
    script = textwrap.dedent("""
        import multiprocessing, os, signal
        from element_rl.envs.collector import Collector

        # No `if __name__ == "__main__"`: workers do not run this script again.
        collector = Collector("Pendulum", [0, 1], 100, None, {})
        collector.start(0, None)
        collector.wait()
        print(*(process.pid for process in multiprocessing.active_children()), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert run.returncode == -signal.SIGKILL
    pids = [int(pid) for pid in run.stdout.split()]
    assert len(pids) == 2
    deadline = time.monotonic() + 10
    while any(_is_running(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_misuse_is_one_clear_sentence() -> None:
    shapes = {"weight": (3, 1), "bias": (1,)}
    with pytest.raises(ValueError, match="agent_seeds must be one or more whole numbers of at least 0, not \\[-1\\]"):
        Collector("Pendulum", [-1], 5, None, {})
    with pytest.raises(ValueError, match="chunk_steps must be at least 1, not 0"):
        Collector("Pendulum", [0], 0, None, {})
    with pytest.raises(ValueError, match="num_workers must be None, 0 or positive, not -2"):
        Collector("Pendulum", [0], 5, None, {}, num_workers=-2)
    with pytest.raises(ValueError, match="cannot be sent to worker processes"):
        Collector("Pendulum", [0], 5, lambda parameters, observation, noise: noise, {}, num_workers=1)
    with Collector("Pendulum", [0, 1], 5, acting_probes.linear_policy, shapes, num_workers=0) as collector:
        with pytest.raises(RuntimeError, match="No chunk is under way"):
            collector.wait()
        with pytest.raises(ValueError, match=r"takes parameters \['bias', 'weight'\], but got \['weight'\]"):
            collector.start(0, {"weight": np.zeros((2, 3, 1), np.float32)})
        with pytest.raises(ValueError, match=r"'weight' must have the shape \(2, 3, 1\), agents first, not \(3, 1\)"):
            collector.start(0, {"weight": np.zeros((3, 1), np.float32), "bias": np.zeros((2, 1), np.float32)})
        with pytest.raises(ValueError, match="2 agents to resume, but 1 episode indices and 0 lists"):
            collector.resume([0], [])
        collector.start(0, None)
        with pytest.raises(RuntimeError, match="A chunk is under way"):
            collector.start(1, None)
        collector.wait()
    with (
        Collector("Pendulum", [0], 5, None, {}, num_workers=0) as collector,
        pytest.raises(ValueError, match="without a policy"),
    ):
        collector.start(0, {})


def _parameters(num_agents: int, seed: int) -> Records:
    generator = np.random.default_rng(seed)
    shapes = {"weight": (num_agents, 11, 3), "bias": (num_agents, 3)}
    return {name: generator.normal(0.0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}


def _records_of(chunk: Chunk, agent: int) -> Records:
    return {field: getattr(chunk, field)[agent, : chunk.count[agent]].copy() for field in FIELDS}


def _assert_same(records: Records, expected: Records) -> None:
    for field in FIELDS:
        np.testing.assert_array_equal(records[field], expected[field].astype(records[field].dtype), err_msg=field)
