"""The loop as a whole: the same seed twice, interrupted, killed at random moments; the result is
always the same."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.run_outcomes import assert_same, outcome

from element_rl.acting.collector import Chunk, Collector
from element_rl.agents.sac import SACConfig
from element_rl.envs.spec import EnvSpec
from element_rl.rewards import element_config
from element_rl.rewards.element import ElementReward
from element_rl.runs.folder import RunFolder
from element_rl.runs.watching import COMPILING, Interrupted, Progress
from element_rl.storage.files import read_json, write_json
from element_rl.training.off_policy.config import ExploreConfig, config_from_json
from element_rl.training.off_policy.explore import Explorer, explore, metric_columns
from element_rl.training.off_policy.launch import create_run, reopen_run
from element_rl.training.off_policy.resolving import resolved

SMALL = ExploreConfig(
    "Hopper-v5",
    steps=1_600,
    seeds=2,
    replay_size=3_000,
    chunk_steps=40,
    log_every=200,
    checkpoint_every=400,
    update_interval=200,
    update_steps=100,
    random_seeds=0,
    workers=0,
    env_options=(
        "max_episode_steps=100",
        "terminate_when_unhealthy=true",
    ),  # episodes of unequal length
    sac=SACConfig(hidden_sizes=(16, 16), batch_size=16, learn_start=200),
)


@pytest.fixture(scope="module")
def watched() -> list[Progress]:
    """What the watcher of the undisturbed run was told."""
    return []


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, watched: list[Progress]) -> RunFolder:
    run = create_run(SMALL, tmp_path_factory.mktemp("undisturbed") / "run")
    explore(SMALL, run, watched.append)
    return run


def test_a_watcher_is_told_when_programs_compile(
    undisturbed: RunFolder, watched: list[Progress]
) -> None:
    """At the beginning, before the first update and before the first line of metrics; then of every
    chunk."""
    assert [(now.step, now.doing) for now in watched if now.doing] == [
        (0, COMPILING),
        (200, COMPILING),
        (200, COMPILING),
    ]
    assert [now.step for now in watched if not now.doing] == list(range(40, 1_601, 40))
    assert {now.agents for now in watched} == {2}


def test_metrics_and_summary(undisturbed: RunFolder) -> None:
    metrics = undisturbed.read_metrics()
    assert metrics["step"].tolist() == [step for step in range(200, 1_601, 200) for _ in range(2)]
    assert metrics["seed"].tolist() == [0, 1] * 8
    last = metrics["step"] == 1_600
    assert (metrics["coverage"][last] > 5).all()
    assert (metrics["memory_size"][last] > 300).all()
    for name in (
        "critic_loss",
        "actor_loss",
        "temperature",
        "q_mean",
        "reward_episodic",
        "reward_lifelong",
    ):
        assert np.isfinite(metrics[name][last]).all(), name
    assert (metrics["episodic_entropy"][last] > 0).all()
    assert (metrics["entropy_saturation"][last] <= 1).all()
    summary = undisturbed.read_summary()
    assert summary["steps"] == 1_600
    assert summary["seeds"] == [0, 1]
    for name in ("coverage", "episodic_entropy", "extrinsic_return", "best_return", "best_length"):
        assert len(summary[name]) == 2
    for name in (
        "env",
        "reward",
        "wall_seconds",
        "env_steps_per_second",
        "versions",
        "random_policy",
    ):
        assert name in summary
    assert undisturbed.checkpoint_steps() == [400, 800, 1200, 1600]
    visits = undisturbed.load_visits()
    np.testing.assert_array_equal(np.count_nonzero(visits, axis=(1, 2)), summary["coverage"])


def test_the_same_seed_twice(undisturbed: RunFolder, tmp_path: Path) -> None:
    run = create_run(SMALL, tmp_path / "run")
    explore(SMALL, run)
    assert_same(outcome(undisturbed), outcome(run))


def test_interrupted_anywhere_and_resumed(undisturbed: RunFolder, tmp_path: Path) -> None:
    """Stopped after 7, then 16 chunks: in the middle of episodes, of a log interval, of an update
    window."""
    run = create_run(SMALL, tmp_path / "run")
    for chunks in (7, 16):
        calls = []

        def stop(calls: list = calls, chunks: int = chunks) -> bool:
            calls.append(1)
            return len(calls) >= chunks

        with pytest.raises(Interrupted):
            explore(SMALL, run, stop=stop, resume=run.latest_checkpoint() is not None)
    explore(SMALL, RunFolder.open(run.path, metric_columns(resolved(SMALL)[2])), resume=True)
    assert_same(outcome(undisturbed), outcome(run))


def test_several_environments_per_agent_are_resumed_and_shared_by_workers(tmp_path: Path) -> None:
    """Four environments of each agent; stopped in the middle of episodes, in one process and in
    three."""
    config = dataclasses.replace(SMALL, envs_per_agent=4, steps=1_200, replay_size=4_000)
    whole = create_run(config, tmp_path / "whole")
    explore(config, whole)
    metrics = whole.read_metrics()
    last = metrics["step"] == 1_200
    assert (metrics["episodes"][last] >= 12).all()
    assert (metrics["memory_size"][last] > 300).all()
    # Every step was seen, and the observation that each episode began with.
    records = 1_200 + metrics["episodes"][last] + 4
    assert (whole.load_visits().sum(axis=(1, 2)) <= records).all()
    shared = dataclasses.replace(config, workers=3)
    parts, calls = create_run(shared, tmp_path / "parts"), []
    with pytest.raises(Interrupted):
        explore(shared, parts, stop=lambda: len(calls) >= 17 or bool(calls.append(1)))
    explore(shared, parts, resume=True)
    assert_same(outcome(whole), outcome(parts))


def test_workers_make_no_difference(undisturbed: RunFolder, tmp_path: Path) -> None:
    config = dataclasses.replace(SMALL, workers=2)
    run = create_run(config, tmp_path / "run")
    explore(config, run)
    assert_same(outcome(undisturbed), outcome(run))


def test_hnsw_memory_is_resumed_too(tmp_path: Path) -> None:
    config = dataclasses.replace(SMALL, memory="hnsw", steps=1_000, seeds=1)
    whole = create_run(config, tmp_path / "whole")
    explore(config, whole)
    parts = create_run(config, tmp_path / "parts")
    calls = []
    with pytest.raises(Interrupted):
        explore(config, parts, stop=lambda: len(calls) >= 14 or bool(calls.append(1)))
    explore(config, parts, resume=True)
    assert_same(outcome(whole), outcome(parts))


@pytest.mark.parametrize(
    "options",
    [
        {"memory": "spaced", "own_episode": "out", "reward_options": ("memory_capacity=50",)},
        {"memory": "hnsw", "own_episode": "out"},
        {"memory": "spaced", "reward_options": ("memory_spacing=0.2", "knn_floor=0.05")},
    ],
)
def test_what_goes_beyond_the_paper_is_resumed_too(options: dict, tmp_path: Path) -> None:
    config = dataclasses.replace(
        SMALL, steps=1_000, seeds=1, remember="always", normalisation="robust", **options
    )
    whole = create_run(config, tmp_path / "whole")
    explore(config, whole)
    parts = create_run(config, tmp_path / "parts")
    calls = []
    with pytest.raises(Interrupted):
        explore(config, parts, stop=lambda: len(calls) >= 14 or bool(calls.append(1)))
    explore(config, parts, resume=True)
    assert_same(outcome(whole), outcome(parts))
    metrics, summary = whole.read_metrics(), whole.read_summary()
    assert (metrics["memory_size"][metrics["step"] >= 200] > 1).all()
    assert (summary["remember"], "update_interval" in summary) == ("always", False)
    if config.memory == "spaced":
        assert (metrics["memory_spacing"][metrics["step"] >= 400] > 0).all()


def test_longer_than_planned(undisturbed: RunFolder, tmp_path: Path) -> None:
    """A finished run can be continued with more steps."""
    config = dataclasses.replace(SMALL, steps=800)
    run = create_run(config, tmp_path / "run")
    explore(config, run)
    explore(SMALL, run, resume=True)
    assert_same(outcome(undisturbed), outcome(run))


@pytest.mark.parametrize("stored", ["exact", "auto"])
def test_the_memory_stays_what_it_was_when_the_run_began(
    undisturbed: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: str
) -> None:
    """Longer than planned, with more states than a memory chosen for that length would hold
    exactly. Older runs stored "auto"."""
    monkeypatch.setattr(element_config, "LARGEST_EXACT_ON_CPU", 400)
    assert resolved(SMALL)[0].memory == "hnsw"
    config = dataclasses.replace(SMALL, steps=800)
    run = create_run(config, tmp_path / "run")
    assert run.config["settings"]["memory"] == "exact"
    explore(config, run)
    settings = run.config["settings"] | {"memory": stored}
    write_json(run.path / "config.json", run.config | {"settings": settings})
    explore(SMALL, reopen_run(SMALL, run.path), resume=True)
    assert_same(outcome(undisturbed), outcome(run))
    with pytest.raises(ValueError, match='memory was "exact" and is "graph"'):
        reopen_run(dataclasses.replace(SMALL, memory="graph"), run.path)


def test_shorter_than_planned(undisturbed: RunFolder, tmp_path: Path) -> None:
    """A run that was stopped early can be ended earlier: its memory stays as large as it was."""
    longer = dataclasses.replace(SMALL, steps=40_000)
    run, calls = create_run(longer, tmp_path / "run"), []
    with pytest.raises(Interrupted):
        explore(longer, run, stop=lambda: len(calls) >= 10 or bool(calls.append(1)))
    explore(SMALL, reopen_run(SMALL, run.path), resume=True)
    assert_same(outcome(undisturbed), outcome(run))


def test_what_the_steps_decide_stays_as_it_was(tmp_path: Path) -> None:
    """A run of 600 steps goes in chunks of 40, one of 700 would in chunks of 35."""
    config = ExploreConfig("PointMaze", steps=600, chunk_steps=40)
    run = create_run(config, tmp_path / "run")
    longer = dataclasses.replace(config, steps=700)
    reopened = resolved(longer, reopen_run(longer, run.path)).config
    assert resolved(longer).config.chunk_steps == 35
    assert (reopened.steps, reopened.last_step) == (700, 720)
    assert dataclasses.replace(reopened, steps=600) == resolved(config).config
    with pytest.raises(ValueError, match="chunk_steps was 40 and is 30"):
        reopen_run(dataclasses.replace(longer, chunk_steps=32), run.path)


def test_random_and_extrinsic(tmp_path: Path) -> None:
    for reward in ("random", "extrinsic"):
        config = dataclasses.replace(SMALL, reward=reward, steps=600, random_seeds=1)
        run = create_run(config, tmp_path / reward)
        summary = explore(config, run)
        assert summary["coverage"][0] > 0
        if reward == "extrinsic":
            assert summary["random_policy"]["steps"] == 600
            assert len(summary["random_policy"]["coverage"]) == 1


def test_a_random_policy_beside_a_reward_with_options(tmp_path: Path) -> None:
    config = dataclasses.replace(
        SMALL, credit="state", reward_options=("renyi_order=2.0",), steps=600, random_seeds=1
    )
    assert explore(config, create_run(config, tmp_path / "run"))["random_policy"]["steps"] == 600


def test_the_random_policy_leaves_its_map(tmp_path: Path) -> None:
    config = dataclasses.replace(SMALL, steps=400, random_seeds=2)
    run = create_run(config, tmp_path / "run")
    explore(config, run)
    visits = run.read_random_visits()
    assert visits is not None
    cells = np.count_nonzero(visits, axis=(1, 2)).tolist()
    assert cells == run.read_summary()["random_policy"]["coverage"]
    without = create_run(dataclasses.replace(config, random_seeds=0), tmp_path / "without")
    assert without.read_random_visits() is None


def test_an_environment_without_positions(tmp_path: Path) -> None:
    config = dataclasses.replace(
        SMALL, env="Pendulum-v1", steps=600, env_options=(), random_seeds=1
    )
    run = create_run(config, tmp_path / "run")
    summary = explore(config, run)
    assert summary["coverage_of"] == "state cells"
    assert all(cells > 1 for cells in summary["coverage"])
    assert all(entropy > 0 for entropy in summary["episodic_entropy"])


def test_killed_at_random_moments_three_times(tmp_path: Path) -> None:
    """kill -9, resume, three times in a row; through the command line, with worker processes.
    `benchmarks/faults` does so by the hundred."""
    arguments = [
        *(
            "Hopper-v5",
            "--steps",
            "2400",
            "--seeds",
            "2",
            "--replay-size",
            "3000",
            "--chunk-steps",
            "40",
        ),
        *(
            "--log-every",
            "200",
            "--checkpoint-every",
            "80",
            "--update-interval",
            "200",
            "--update-steps",
            "100",
        ),
        *("--random-seeds", "0", "--no-figures", "--env-options", "max_episode_steps=100"),
        *("--sac.hidden-sizes", "16", "16", "--sac.batch-size", "16", "--sac.learn-start", "200"),
    ]

    log = tmp_path / "errors.txt"

    def checkpoints(out: Path) -> int:
        return len(list(out.glob("checkpoints/step_*")))

    def launch(out: Path) -> subprocess.Popen:
        resume = ["--resume", str(out)] if (out / "config.json").exists() else ["--out", str(out)]
        command = [sys.executable, "-m", "element_rl.cli", "explore", *arguments, *resume]
        with open(log, "a") as errors:
            return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)

    assert launch(tmp_path / "whole").wait(300) == 0, log.read_text()
    rng = np.random.default_rng(0)
    out = tmp_path / "killed"
    killed = 0
    # checkpoints, of 30 in all: 11 are written before
    for more in rng.permutation([0, 3, 8]):
        process = launch(out)
        before = checkpoints(out)
        while process.poll() is None and checkpoints(out) < before + more:
            time.sleep(0.005)
        time.sleep(rng.uniform(0.0, 0.1 if more else 3.0))
        process.send_signal(signal.SIGKILL)
        code = process.wait()
        killed += code == -signal.SIGKILL
        if code != -signal.SIGKILL:  # a quick machine is at the end before the last of them
            assert code == 0, log.read_text()
            break
    assert killed >= 2, log.read_text()
    process = launch(out)
    assert process.wait(300) == 0, log.read_text()
    assert_same(outcome(RunFolder.open(tmp_path / "whole")), outcome(RunFolder.open(out)))


def test_sigterm_writes_a_checkpoint_and_says_how_to_go_on(tmp_path: Path) -> None:
    """Sent to the whole process group, as `timeout` and job schedulers do."""
    command = [sys.executable, "-m", "element_rl.cli", "explore", "Hopper-v5", "--steps", "1000000"]
    options = [
        "--replay-size",
        "3000",
        "--sac.hidden-sizes",
        "16",
        "--out",
        str(tmp_path / "run"),
        "--log-every",
        "100",
    ]
    process = subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    metrics = tmp_path / "run" / "metrics.csv"
    while process.poll() is None and not metrics.exists():
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGTERM)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "--resume" in output
    run = RunFolder.open(tmp_path / "run")
    assert run.latest_checkpoint() is not None
    run.load_resume()


def test_the_memory_of_a_run_is_what_the_window_let_in(undisturbed: RunFolder) -> None:
    """U = 200, T_u = 100: 99 states per window, known once their episodes have ended."""
    arrays, _, _ = undisturbed.load_resume()
    sizes = next(array for name, array in arrays.items() if name.endswith("memory_size"))
    assert ((sizes > 99 * 6 - 100) & (sizes <= 99 * 7)).all()
    config = json.loads((undisturbed.path / "config.json").read_text())
    assert config["settings"]["update_interval"] == 200


def test_explorer_learns_nothing_before_there_is_something_to_learn_from() -> None:
    config, spec, reward = resolved(SMALL)
    with Explorer(config, spec, reward, None) as explorer:
        while explorer.step < 200:
            explorer.train_chunk()
        assert explorer.learner.updates == 0
        explorer.train_chunk()
        assert explorer.learner.updates == 40


class Counting:
    """A collector without environments: episodes of 20 steps, paid 1 each, in the first cell."""

    on_device = False

    def __init__(self, config: ExploreConfig, spec: EnvSpec, shapes: dict | None) -> None:
        self.spec, self.rows = spec, config.seeds * config.envs_per_agent
        self.shapes, self.calls, self.episodes = shapes, [], 0
        self.steps = config.chunk_steps // config.envs_per_agent

    def start(self, chunk_index: int, parameters: object) -> None:
        self.calls.append(("start", chunk_index, parameters))

    def set_parameters(self, parameters: dict[str, np.ndarray]) -> None:
        assert {name: array.shape[1:] for name, array in parameters.items()} == self.shapes
        self.calls.append(("set",))

    def wait(self) -> Chunk:
        records = 2 * self.steps
        final = np.zeros((self.rows, records), bool)
        final[:, 20 : 21 * (self.steps // 20) : 21] = True
        self.episodes += self.steps // 20
        return Chunk(
            observation=np.zeros((self.rows, records, self.spec.observation_dim), np.float32),
            action=np.full((self.rows, records, self.spec.action_dim), 0.5, np.float32),
            extrinsic_reward=(~final).astype(np.float32),
            terminated=np.zeros(final.shape, bool),
            truncated=np.zeros(final.shape, bool),
            final=final,
            position=np.zeros((self.rows, records, self.spec.position_dim), np.float32),
            count=np.full(self.rows, 21 * (self.steps // 20), np.int32),
            episode_index=np.full(self.rows, self.episodes, np.int64),
        )

    @property
    def first_end(self) -> int:
        return self.spec.max_episode_steps

    def snapshot(self) -> None:
        return None

    def restore(self, snapshot: Any) -> None:
        raise NotImplementedError

    def faults(self) -> None:
        return None

    def resume(self, episode_indices: np.ndarray, actions: list[np.ndarray]) -> np.ndarray:
        self.episodes = int(episode_indices[0])
        assert [len(taken) for taken in actions] == [0] * self.rows
        self.calls.append(("resume", self.episodes))
        return np.zeros((self.rows, self.spec.observation_dim), np.float32)

    def close(self) -> None:
        self.calls.append(("close",))


def test_any_collector_serves_the_loop(tmp_path: Path) -> None:
    """The loop asks its collector for nothing that the protocol does not name, and can resume."""
    config = dataclasses.replace(SMALL, steps=400)
    settings, made = resolved(config), []

    def make(*given: Any) -> Counting:
        made.append(Counting(*given))
        return made[-1]

    run = create_run(settings, tmp_path / "run")
    summary = explore(settings, run, make_collector=make)
    (collector,) = made
    assert isinstance(collector, Collector)
    started = [call[1:] for call in collector.calls if call[0] == "start"]
    assert started == [(chunk, None if chunk < 5 else "as set") for chunk in range(10)]
    # before the first chunk, and after every chunk with updates
    assert collector.calls.count(("set",)) == 1 + 5
    assert collector.calls[-1] == ("close",)
    assert summary["extrinsic_return"] == [20.0, 20.0]
    assert (summary["best_length"], summary["coverage"]) == ([20, 20], [1, 1])
    metrics = run.read_metrics()
    assert metrics["episodes"].tolist() == [10, 10, 20, 20]
    assert np.isfinite(metrics["critic_loss"][-2:]).all()

    longer = dataclasses.replace(config, steps=440)
    explore(resolved(longer), reopen_run(longer, run.path), resume=True, make_collector=make)
    assert ("resume", 20) in made[-1].calls
    assert run.read_metrics()["episodes"].tolist() == [10, 10, 20, 20, 22, 22]


def test_only_the_task_ends_an_episode_by_falling() -> None:
    def options(reward: str, *given: str) -> tuple[str, ...]:
        return resolved(ExploreConfig("Hopper", reward=reward, env_options=given))[0].env_options

    assert (
        options("element")
        == options("rnd")
        == options("random")
        == ("terminate_when_unhealthy=false",)
    )
    # and so for the random policy beside it
    assert options("extrinsic") == ("terminate_when_unhealthy=true",)
    assert options("element", "terminate_when_unhealthy=true") == ("terminate_when_unhealthy=true",)
    assert resolved(ExploreConfig("PointMaze"))[0].env_options == ()


def test_element_takes_the_options_that_have_no_flag_of_their_own() -> None:
    config = ExploreConfig(
        "PointMaze", steps=1000, reward_options=("renyi_order=2.0", "num_neighbours=5")
    )
    reward = resolved(config)[2]
    assert isinstance(reward, ElementReward)
    assert (
        reward.config.renyi_order,
        reward.config.num_neighbours,
        reward.config.update_interval,
    ) == (2, 5, 100)
    for given, said in (
        ("lifelong_weight=1", "an option of its own: --beta"),
        ("bandwidth=1", "an option of its own: --bandwidth"),
        ("sigma=1", "does not take .* sigma;"),
    ):
        with pytest.raises(ValueError, match=said):
            resolved(dataclasses.replace(config, reward_options=(given,)))


def test_the_kernel_of_kde_is_narrower_than_the_paper_s_unless_said() -> None:
    def bandwidth(env: str, **settings: object) -> float:
        config, _, reward = resolved(ExploreConfig(env, steps=1000, **settings))  # type: ignore[arg-type]
        assert isinstance(reward, ElementReward)
        assert config.bandwidth == reward.config.bandwidth
        return reward.config.bandwidth

    assert (bandwidth("Hopper"), bandwidth("Walker2d", estimator="kde")) == (0.1, 0.1)
    assert (bandwidth("Ant"), bandwidth("PointMaze"), bandwidth("Hopper", estimator="renyi")) == (
        1.0,
        1.0,
        1.0,
    )
    assert (bandwidth("Hopper", bandwidth=1.0), bandwidth("Ant", bandwidth=3.0)) == (1.0, 3.0)


def test_states_are_paid_what_they_add_unless_the_paper_s_form_is_asked_for() -> None:
    asked = (({"credit": credit}, credit) for credit in ("episode", "state", "variation"))
    for settings, credit in (({}, "state"), *asked):
        reward = resolved(ExploreConfig("Ant", steps=1000, **settings))[2]  # type: ignore[arg-type]
        assert isinstance(reward, ElementReward)
        assert reward.config.credit == credit


def test_single_states_are_paid_by_their_neighbours_on_robots_where_that_covers_more() -> None:
    def estimator(env: str, **settings: object) -> str:
        config, _, reward = resolved(ExploreConfig(env, steps=1000, **settings))  # type: ignore[arg-type]
        assert isinstance(reward, ElementReward)
        assert config.estimator == reward.config.estimator
        return reward.config.estimator

    robots = ("Ant", "HalfCheetah-v5", "Humanoid", "Walker2d", "Hopper")
    assert [*map(estimator, robots)] == ["knn", "knn", "renyi", "knn", "kde"]
    paper = ["renyi", "renyi", "renyi", "knn", "kde"]
    assert [estimator(robot, credit="episode") for robot in robots] == paper
    assert (estimator("PointMaze"), estimator("Ant", estimator="renyi")) == ("renyi", "renyi")


def test_the_environment_s_reward_beside_an_intrinsic_one(
    undisturbed: RunFolder, tmp_path: Path
) -> None:
    """It is learned from, logged and resumed with; without it a run is as it was, also in a folder
    that is older."""
    config = dataclasses.replace(SMALL, steps=800, seeds=1, extrinsic_weight=0.25)
    whole, parts = (create_run(config, tmp_path / name) for name in ("whole", "parts"))
    explore(config, whole)
    calls = []
    with pytest.raises(Interrupted):
        explore(config, parts, stop=lambda: len(calls) >= 14 or bool(calls.append(1)))
    explore(config, reopen_run(config, parts.path), resume=True)
    assert_same(outcome(whole), outcome(parts))
    metrics, policy = outcome(whole)
    expected = (
        metrics["reward_episodic"]
        + 0.5 * metrics["reward_lifelong"]
        + 0.25 * metrics["reward_extrinsic"]
    )
    np.testing.assert_allclose(metrics["reward_learned"], expected, rtol=1e-5)
    assert np.isfinite(expected[-1])
    assert not np.array_equal(policy["weight_0"][0], undisturbed.load_policy(800)["weight_0"][0])
    assert set(undisturbed.read_metrics()).isdisjoint({"reward_learned", "reward_extrinsic"})
    with pytest.raises(ValueError, match=r"extrinsic_weight was 0\.25 and is 0\.5"):
        reopen_run(dataclasses.replace(config, extrinsic_weight=0.5), whole.path)


def test_a_run_from_before_a_setting_was_there_is_continued(tmp_path: Path) -> None:
    config = dataclasses.replace(SMALL, steps=400, seeds=1)
    run = create_run(config, tmp_path / "run")
    explore(config, run)
    older = read_json(run.path / "config.json")
    del older["settings"]["extrinsic_weight"], older["settings"]["sac"]["reward_centring"]
    write_json(run.path / "config.json", older)
    longer = dataclasses.replace(config_from_json(older["settings"]), steps=480)
    explore(longer, reopen_run(longer, run.path), resume=True)
    assert RunFolder.open(run.path).read_summary()["steps"] == 480


@pytest.mark.parametrize("reward", ["extrinsic", "random"])
def test_the_environment_s_reward_has_no_weight_where_nothing_is_beside_it(reward: str) -> None:
    with pytest.raises(
        ValueError, match=f"to an intrinsic one, and {reward} is none: leave it out"
    ):
        resolved(ExploreConfig("PointMaze", reward, extrinsic_weight=1.0))
    with pytest.raises(ValueError, match="--extrinsic-weight must be a finite number, got nan"):
        ExploreConfig("PointMaze", extrinsic_weight=float("nan"))
