"""Fine-tuning: what is transferred, from which checkpoint, and that being stopped or killed changes nothing.

The runs it starts from are written by hand: on MountainCarContinuous-v0 an action a costs 0.1 a² per step, so a policy that
always does the same has a known return. Their replays are written by hand too: what an observation holds says which
transition it is.
"""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from run_outcomes import assert_same, outcome

from element_rl import replay as ring
from element_rl.agents import sac
from element_rl.agents.networks import policy_parameters
from element_rl.agents.sac import Batch, SACConfig
from element_rl.config import ExploreConfig, config_from_json, parsed_options, resolved
from element_rl.explore import Explorer, Interrupted, explore
from element_rl.finetune import FinetuneConfig, finetune
from element_rl.finetune.command import main
from element_rl.finetune.comparison import area_under_curve, steps_to_reach, table
from element_rl.finetune.config import task_settings
from element_rl.finetune.experience import kept_chunks
from element_rl.finetune.start import chosen_start, transplanted
from element_rl.launch import create_run
from element_rl.replay import Ledger
from element_rl.runs import METRIC_COLUMNS, RunError, RunFolder
from element_rl.trees import tree_to_arrays

CAR = "MountainCarContinuous-v0"
EPISODE = 20
SMALL = SACConfig(hidden_sizes=(8,), batch_size=8, learn_start=100)
SOURCE = ExploreConfig(
    CAR,
    reward="rnd",
    recent_scale=True,
    steps=400,
    seeds=2,
    seed=3,
    replay_size=100,
    chunk_steps=20,
    checkpoint_every=100,
    workers=0,
    env_options=(f"max_episode_steps={EPISODE}",),
    sac=SMALL,
)
ACTIONS = {100: (0.9, 0.3), 200: (0.1, 0.8), 300: (0.5, 0.05), 340: (0.0, 0.0), 400: (0.6, 0.4)}  # per step and agent
LENGTHS = ((20, 7, 20, 20, 13, 20), (20, 20, 5))  # of the episodes in each agent's replay; those below 20 terminated
CAPACITY = 85  # of the run's replay: that of agent 0 has come round and lost its first two episodes
WARMUP = 70  # updates; not a multiple of a chunk


def acting(action: float, hidden: int = 8) -> dict[str, np.ndarray]:
    """A policy of one agent that always does the same, up to a deviation of 2e-9."""
    zeros = {"weight_0": np.zeros((2, hidden)), "weight_1": np.zeros((hidden, 2)), "bias_0": np.zeros(hidden)}
    policy = zeros | {"bias_1": np.array([np.arctanh(action), -20.0])}
    return {name: array.astype(np.float32) for name, array in policy.items()}


def population(*actions: float) -> dict[str, np.ndarray]:
    policies = [acting(action) for action in actions]
    return {name: np.stack([policy[name] for policy in policies]) for name in policies[0]}


def fresh_agents(seeds: Sequence[int]) -> sac.SACState:
    return jax.vmap(lambda key: sac.create(key, 2, 1, SMALL))(jax.vmap(jax.random.key)(jnp.array(seeds, jnp.uint32)))


def learned_agents() -> sac.SACState:
    """Those of the run's newest checkpoint."""
    return eqx.tree_at(lambda agents: agents.log_temperature, fresh_agents((100, 101)), jnp.log(jnp.full(2, 0.7)))


def experience() -> list[dict[str, np.ndarray]]:
    """The records of each agent, oldest first; every number tells agent and record, and the reward differs for each."""
    agents = []
    for agent, lengths in enumerate(LENGTHS):
        final = np.concatenate([np.arange(length + 1) == length for length in lengths])
        falls = np.concatenate([(np.arange(length + 1) == length - 1) & (length < EPISODE) for length in lengths])
        number = np.arange(len(final)) + 1_000 * agent
        agents.append(
            {"number": number, "reward": np.where(final, 0.0, -number / 7), "terminated": falls, "final": final}
        )
    return agents


def replay_arrays() -> dict[str, np.ndarray]:
    """A checkpoint's replay that holds what is still there of it, with a running episode of three steps at its end."""
    ledger = Ledger(2, CAPACITY, EPISODE, 40)
    shapes = {"observation": (2,), "action": (1,), "extrinsic_reward": (), "state": (5,)}
    stored = {name: np.zeros((2, CAPACITY, *shape), np.float32) for name, shape in shapes.items()}
    stored["terminated"] = np.zeros((2, CAPACITY), bool)
    for agent, records in enumerate(experience()):
        for first in range(0, len(records["number"]) + 3, 8):
            cut = {name: array[first : first + 8] for name, array in records.items()}
            count = np.zeros(2, np.int64)
            count[agent] = min(8, len(records["number"]) + 3 - first)
            final = np.zeros((2, 8), bool)
            final[agent, : len(cut["final"])] = cut["final"]
            slots = ledger.place(final, count)[0][agent, : len(cut["number"])]
            stored["observation"][agent, slots] = np.stack([cut["number"], -cut["number"]], axis=1)
            stored["action"][agent, slots] = cut["number"][:, None] / 2_000
            stored["extrinsic_reward"][agent, slots] = cut["reward"]
            stored["terminated"][agent, slots] = cut["terminated"]
    replay = {f"learner/replay/{name}": array for name, array in stored.items()}
    return replay | {f"ledger/{name}": array for name, array in ledger.to_arrays().items()}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    run = create_run(SOURCE, tmp_path_factory.mktemp("source") / "car")
    learned = tree_to_arrays(learned_agents(), "learner/agents")
    for step, actions in ACTIONS.items():
        run.save_checkpoint(step, population(*actions), None, learned | replay_arrays(), {})
    return run


def settings(source: RunFolder, **changes: Any) -> FinetuneConfig:
    usual: dict[str, Any] = {"steps": 300, "episodes": 2, "log_every": 50, "checkpoint_every": 100, "replay": "kept"}
    return FinetuneConfig(source.path, **(usual | {"critic_warmup": WARMUP} | changes))


def start(source: RunFolder, **changes: Any) -> dict[str, Any]:
    config = settings(source, **changes)
    return chosen_start(config, source, task_settings(config, source)[0])


@pytest.fixture(scope="module")
def compared(source: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compared") / "out"
    finetune(settings(source), folder)
    return folder


def assert_equal_leaves(a: Any, b: Any) -> None:
    for ours, theirs in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(ours, theirs)


# Which checkpoint


def test_each_agent_takes_its_own_best_checkpoint(source: RunFolder) -> None:
    """340 was not planned: the run was stopped there."""
    transfer = start(source)
    assert [entry["step"] for entry in transfer["candidates"]] == [100, 200, 300, 400]
    for entry in transfer["candidates"]:
        costs = [-0.1 * action**2 * EPISODE for action in ACTIONS[entry["step"]]]
        np.testing.assert_allclose(entry["return"], costs, rtol=1e-4)
        assert entry["returns"].shape == (2, 2)
    assert transfer["transferred_step"] == [200, 300]
    np.testing.assert_allclose(transfer["zero_shot_return"], [-0.1 * 0.1**2 * 20, -0.1 * 0.05**2 * 20], rtol=1e-3)


def test_more_checkpoints_than_candidates(source: RunFolder) -> None:
    assert [entry["step"] for entry in start(source, candidates=2)["candidates"]] == [100, 400]
    assert [entry["step"] for entry in start(source, candidates=1)["candidates"]] == [400]


def test_last_and_numbered(source: RunFolder) -> None:
    assert start(source, checkpoint="last")["transferred_step"] == [400, 400]
    assert start(source, checkpoint="340")["transferred_step"] == [340, 340]
    assert start(source, checkpoint="last")["candidates"] == []


def test_a_policy_is_judged_by_the_task_as_it_is(tmp_path: Path) -> None:
    """Exploring had the robot's falls not end its episodes; the task does, unless told otherwise."""
    run = create_run(
        ExploreConfig("Hopper-v5", steps=100, env_options=("max_episode_steps=50",), sac=SMALL), tmp_path / "run"
    )
    assert parsed_options(config_from_json(run.config["settings"]))["terminate_when_unhealthy"] is False
    shapes = {"weight_0": (1, 11, 8), "bias_0": (1, 8), "weight_1": (1, 8, 6), "bias_1": (1, 6)}
    policy = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    run.save_checkpoint(100, policy, None, {}, {})

    def options(*given: str) -> dict[str, Any]:
        return parsed_options(task_settings(FinetuneConfig(run.path, env_options=given), run)[0])

    assert options() == {"max_episode_steps": 50, "terminate_when_unhealthy": True}
    assert options("terminate_when_unhealthy=false")["terminate_when_unhealthy"] is False
    assert options("max_episode_steps=70")["max_episode_steps"] == 70
    with pytest.raises(ValueError, match=r"take 11 observations and give 3 actions, but Hopper-v5 .* has 12 and 3"):
        options("exclude_current_positions_from_observation=false")

    def complaint(*given: str) -> str:
        with pytest.raises(ValueError) as caught:  # noqa: PT011 (its text is what the caller looks at)
            finetune(FinetuneConfig(run.path, replay="kept", env_options=given), tmp_path / "out")
        assert not (tmp_path / "out").exists()
        return str(caught.value)

    assert complaint().endswith(
        "explored with terminate_when_unhealthy=false and the task has terminate_when_unhealthy=true: take --replay fresh, "
        "explore with --env-options terminate_when_unhealthy=true, or add --env-options terminate_when_unhealthy=false here."
    )
    same = "terminate_when_unhealthy=false"
    assert "explored without ctrl_cost_weight and the task has ctrl_cost_weight=0.5" in complaint(
        same, "ctrl_cost_weight=0.5"
    )
    assert "found no experience in" in complaint(same)


# What is transferred


def test_the_actor_is_the_checkpoints_and_the_rest_is_fresh(source: RunFolder, compared: Path) -> None:
    transferred = RunFolder.open(compared / "transferred")
    for name, array in transferred.load_policy(0).items():
        for agent, step in enumerate((200, 300)):
            np.testing.assert_array_equal(array[agent], source.load_policy(step)[name][agent])
    scratch = fresh_agents((3, 4))  # the seeds of both runs
    agents = transplanted(scratch, source, start(source))
    for name in ("critics", "target_critics", "critic_optimiser", "actor_optimiser", "log_temperature"):
        assert_equal_leaves(getattr(agents, name), getattr(scratch, name))


def test_critics_and_temperature_are_kept_on_request(source: RunFolder) -> None:
    scratch, learned = fresh_agents((3, 4)), learned_agents()
    transfer = start(source, checkpoint="last")
    kept = transplanted(scratch, source, transfer, critics="kept", temperature="kept")
    for name in ("critics", "target_critics", "log_temperature"):
        assert_equal_leaves(getattr(kept, name), getattr(learned, name))
    only_critics = transplanted(scratch, source, transfer, critics="kept")
    np.testing.assert_allclose(jnp.exp(only_critics.log_temperature), 0.2, rtol=1e-6)
    # fewer agents than the run has
    first = jax.jit(lambda agents: jax.tree.map(lambda leaf: leaf[:1], agents))(scratch)
    fewer = transplanted(first, source, start(source, checkpoint="last", seeds=1), critics="kept")
    np.testing.assert_array_equal(fewer.critics.networks.biases[0], learned.critics.networks.biases[0][:1])


@pytest.mark.parametrize("what", ["critics", "temperature"])
def test_only_the_newest_checkpoint_has_something_to_keep(source: RunFolder, tmp_path: Path, what: str) -> None:
    with pytest.raises(RunError, match=f"--{what} kept needs the newest checkpoint .* step 400"):
        finetune(settings(source, **{what: "kept"}), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_it_acts_from_the_first_step_and_the_actor_waits_for_the_critics(source: RunFolder) -> None:
    task, spec = task_settings(settings(source), source)
    reward = resolved(task)[2]
    acting_at_once = dataclasses.replace(task, sac=dataclasses.replace(task.sac, learn_start=0))
    with Explorer(acting_at_once, spec, reward, None) as explorer:
        explorer.begin_with(transplanted(explorer.learner.state.agents, source, start(source)), critic_warmup=30)
        before = policy_parameters(jax.tree.map(jnp.copy, explorer.learner.state.agents.actor))
        critics = jax.device_get(explorer.learner.state.agents.critics.networks.biases[0])
        explorer.train_chunk()
        chunk = explorer._unsettled
        assert chunk is not None
        np.testing.assert_allclose(chunk.action[:, :20, 0], [[0.1] * 20, [0.05] * 20], rtol=1e-4)
        explorer.train_chunk()
        assert explorer.learner.updates == 20
        agents = explorer.learner.state.agents
        for name, array in policy_parameters(agents.actor).items():
            np.testing.assert_array_equal(array, before[name])
        np.testing.assert_allclose(jnp.exp(agents.log_temperature), 0.2, rtol=1e-6)
        assert not np.array_equal(agents.critics.networks.biases[0], critics)
        explorer.train_chunk()
        agents = explorer.learner.state.agents
        assert agents.actor_optimiser[0].count.tolist() == [10, 10]  # updates 31 to 40
        assert agents.critic_optimiser[0].count.tolist() == [40, 40]
        assert not np.array_equal(agents.actor.network.biases[1], before["bias_1"])


@pytest.mark.parametrize(("size", "episodes"), [({}, 4), ({"replay_size": 75, "chunk_steps": 10}, 3)])
def test_the_replay_begins_with_the_newest_experience_and_nothing_else_does(
    source: RunFolder, size: dict[str, int], episodes: int
) -> None:
    @jax.jit
    def sample(replay: ring.Replay, agent: jax.Array, tail: jax.Array, count: jax.Array) -> ring.Transitions:
        return ring.sample(jax.tree.map(lambda leaf: leaf[agent], replay), jax.random.key(0), 500, tail, count)

    task, spec = task_settings(settings(source, **size), source)
    with Explorer(task, spec, resolved(task)[2], None) as explorer:
        explorer.begin_with(explorer.learner.state.agents, experience=kept_chunks(source, task))
        replay, ledger = jax.device_get(explorer.learner.state.replay), explorer.learner.ledger
        for agent, (records, kept) in enumerate(zip(experience(), (episodes, 3), strict=True)):
            newest = -sum(LENGTHS[agent][-kept:]) - kept  # records
            records = {name: array[newest:][~records["final"][newest:]] for name, array in records.items()}
            count = int(ledger.sample_count[agent])
            order = (ledger.sample_tail[agent] + np.arange(count)) % task.replay_size
            slots = replay.sampleable[agent, order]
            np.testing.assert_array_equal(replay.observation[agent, slots, 0], records["number"])
            np.testing.assert_allclose(replay.extrinsic_reward[agent, slots], records["reward"], rtol=1e-6)
            np.testing.assert_array_equal(replay.terminated[agent, slots], records["terminated"])
            # What is learned from in the first update.
            batch = jax.device_get(sample(explorer.learner.state.replay, agent, ledger.sample_tail[agent], count))
            drawn = batch.observation[:, 0]
            assert set(drawn.tolist()) <= set(records["number"].tolist())
            np.testing.assert_allclose(batch.extrinsic_reward, -drawn / 7, rtol=1e-6)
            np.testing.assert_allclose(batch.action[:, 0], drawn / 2_000, rtol=1e-6)
            np.testing.assert_array_equal(batch.next_observation[:, 1], -drawn - 1)
        assert explorer.step == explorer.learner.updates == 0
        for name, array in explorer.tracker.to_arrays().items():
            assert not np.any(array), name


def test_a_held_actor_leaves_the_critics_learning() -> None:
    state = sac.create(jax.random.key(0), 2, 1, SMALL)
    draws = np.random.default_rng(0).standard_normal((8, 7)).astype(np.float32)
    batch = Batch(draws[:, :2], np.tanh(draws[:, 2:3]), draws[:, 3], draws[:, 4:6], draws[:, 6] > 1)
    update = jax.jit(sac.update, static_argnames="config")
    learning, held = (update(state, batch, jax.random.key(1), SMALL, jnp.array(learns))[0] for learns in (True, False))
    for name in ("critics", "target_critics", "critic_optimiser"):
        assert_equal_leaves(getattr(learning, name), getattr(held, name))
    for name in ("actor", "actor_optimiser", "log_temperature", "temperature_optimiser"):
        assert_equal_leaves(getattr(state, name), getattr(held, name))
        assert any(
            not np.array_equal(new, old)
            for new, old in zip(
                jax.tree.leaves(getattr(learning, name)), jax.tree.leaves(getattr(state, name)), strict=True
            )
        )


# The comparison


def test_two_runs_a_figure_and_a_summary(compared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    summary = json.loads((compared / "summary.json").read_text())
    assert summary["seeds"] == [3, 4]
    assert summary["transferred_step"] == [200, 300]
    for run in ("transferred", "scratch"):
        assert len(summary[run]["final_return"]) == len(summary[run]["area_under_curve"]) == 2
        metrics = RunFolder.open(compared / run).read_metrics()
        assert set(METRIC_COLUMNS) <= metrics.keys()
        assert metrics["step"].max() == 300
        assert metrics["episodes"][:2].tolist() == [3, 3]  # of 20 steps in the first 60: the explorer's do not count
    assert summary["mean"]["zero_shot_return"] == pytest.approx(np.mean(summary["zero_shot_return"]))
    for name in ("versions", "commit", "hardware", "transferred_from"):
        assert name in summary
    for kind in ("png", "svg"):
        assert (compared / "figures" / f"transfer.{kind}").stat().st_size > 5_000
    assert len((compared / "table.md").read_text().splitlines()) == 5
    transferred = RunFolder.open(compared / "transferred")
    assert transferred.read_summary()["zero_shot_return"] == summary["zero_shot_return"]
    assert transferred.config["settings"]["sac"]["learn_start"] == 0
    assert RunFolder.open(compared / "scratch").config["settings"]["sac"]["learn_start"] == 100
    # Given again, there is nothing left to do.
    stamps = {path: path.stat().st_mtime_ns for path in compared.rglob("*.safetensors")}
    assert main(["--resume", str(compared)]) == 0
    assert "transfer.png" in capsys.readouterr().out
    assert stamps == {path: path.stat().st_mtime_ns for path in compared.rglob("*.safetensors")}


def test_measures_by_hand() -> None:
    steps = np.array([100, 200, 300, 350])
    returns = np.array([np.nan, 2.0, np.nan, 8.0])
    assert area_under_curve(steps, returns) == pytest.approx((100 * 2 + 100 * 2 + 100 * 6 + 50 * 8) / 350)
    assert area_under_curve(steps, np.full(4, np.nan)) is None
    assert steps_to_reach(steps, returns, 5.0) == 350  # the mean of 2 and 8
    assert steps_to_reach(steps, returns, 2.0) == 200
    assert steps_to_reach(steps, returns, 5.1) is None
    assert steps_to_reach(steps, returns, 5.1, zero_shot=6.0) == 0
    numbers = {"final_return": [1.0, None], "area_under_curve": [1.0, 3.0], "steps_to_reach": [100, None]}
    text = table(
        {"seeds": [0, 1], "transferred_step": [5, 5], "zero_shot_return": [1.5, 2.5], "return_to_reach": 4.0}
        | {"transferred": numbers, "scratch": numbers}
    )
    assert (
        text.splitlines()[-1] == "| mean |  | 2 | 1 of 2 seeds | 1 of 2 seeds | 2 | 2 | 1 of 2 seeds | 1 of 2 seeds |"
    )


# Stopped and killed


def after(calls: int) -> Callable[[], bool]:
    count = [0]

    def stop() -> bool:
        count[0] += 1
        return count[0] >= calls

    return stop


def test_stopped_anywhere_and_continued(source: RunFolder, compared: Path, tmp_path: Path) -> None:
    """While choosing and in the warm-up; then continued by `explore`, to which it is a run like any other."""
    config = settings(source, compare=False)
    folder = tmp_path / "alone"
    with pytest.raises(Interrupted):
        finetune(config, folder, stop=after(3))
    assert not folder.exists()
    policies = 4 + 1  # to choose from, and the best
    with pytest.raises(Interrupted):
        finetune(config, folder, stop=after(policies + 4), resume=True)
    run = RunFolder.open(folder)
    assert not run.summary_path.exists()
    assert run.latest_checkpoint() == 80
    explore(config_from_json(run.config["settings"]), run, resume=True)
    assert_same(outcome(RunFolder.open(compared / "transferred")), outcome(run))
    summary = finetune(config, folder, resume=True)
    assert summary["zero_shot_return"] == run.read_summary()["zero_shot_return"]
    assert summary["transferred_step"] == [200, 300]


def test_killed_at_a_random_moment(source: RunFolder, compared: Path, tmp_path: Path) -> None:
    code = "import sys; from element_rl.finetune.command import main; sys.exit(main(sys.argv[1:]))"
    arguments = [
        *(str(source.path), "--steps", "300", "--episodes", "2", "--log-every", "50", "--checkpoint-every", "100"),
        *("--critic-warmup", str(WARMUP), "--replay", "kept", "--no-compare", "--out", str(tmp_path / "killed")),
    ]
    with open(tmp_path / "log.txt", "w") as log:
        process = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=log, stderr=log)
    while process.poll() is None and not (tmp_path / "killed" / "checkpoints" / "step_000000000").exists():
        time.sleep(0.01)
    time.sleep(np.random.default_rng(os.getpid()).uniform(0.0, 1.0))
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert main(arguments) == 0
    assert_same(outcome(RunFolder.open(compared / "transferred")), outcome(RunFolder.open(tmp_path / "killed")))


def test_a_run_that_has_not_begun_is_not_begun_from_scratch(source: RunFolder, tmp_path: Path) -> None:
    task, _ = task_settings(settings(source), source)
    run = create_run(task, tmp_path / "run")
    (run.path / "transfer.json").write_text("{}")
    with pytest.raises(RunError, match="continue it with element finetune"):
        explore(task, run, resume=True)


# Mistakes


def test_mistakes(source: RunFolder, compared: Path, tmp_path: Path) -> None:
    def complaint(*arguments: str) -> str:
        with pytest.raises(ValueError) as caught:  # noqa: PT011 (its text is what the caller looks at)
            main([*arguments, "--out", str(tmp_path / "out")])
        assert "\n" not in str(caught.value)
        return str(caught.value)

    run = str(source.path)
    assert "Name the run" in complaint()
    assert "no run folder" in complaint(str(tmp_path / "nowhere"))
    assert "has no checkpoint of step 7: it has steps 100, 200" in complaint(run, "--checkpoint", "7")
    assert "best, last or a number" in complaint(run, "--checkpoint", "first")
    assert "hidden layers of 8 units, not 16" in complaint(run, "--sac.hidden-sizes", "16")
    assert "has 2 agents" in complaint(run, "--seeds", "3")
    assert "NAME=VALUE" in complaint(run, "--env-options", "x")
    assert "--steps must be at least 1" in complaint(run, "--steps", "0")
    assert "no fine-tuning in" in complaint("--resume", run)
    for reward, sentence in (("random", "acted at random"), ("rnd", "no complete checkpoint")):
        create_run(dataclasses.replace(SOURCE, reward=reward, recent_scale=False), tmp_path / reward)
        assert sentence in complaint(str(tmp_path / reward))
    RunFolder.create(tmp_path / "foreign", {"env": CAR, "algorithm": "cql"})
    assert "not a run of element explore" in complaint(str(tmp_path / "foreign"))
    assert not (tmp_path / "out").exists()


def test_nothing_is_overwritten(source: RunFolder, compared: Path) -> None:
    before = {path: path.read_bytes() for path in [*compared.rglob("*.csv"), *source.path.rglob("*.json")]}
    with pytest.raises(ValueError, match="holds a run that is no fine-tuning"):
        main([str(source.path), "--out", str(source.path)])
    with pytest.raises(ValueError, match='critics was "fresh" and is "kept"'):
        main(["--resume", str(compared), "--critics", "kept"])
    with pytest.raises(RunError, match="already holds a fine-tuning"):
        finetune(settings(source), compared)
    assert before == {path: path.read_bytes() for path in before}
