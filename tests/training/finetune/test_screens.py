"""Fine-tuning on screens: which policies are transferred, what of them, and that being stopped
changes nothing.

The run it starts from is written by hand: in Rooms-v0 a policy that always goes right is at the
goal soon, and one that goes another way is not. (`test_start.py` and `test_comparison.py` have what
is the same for robots.)
"""

import dataclasses
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from support.run_outcomes import assert_same, outcome

from element_rl.acting.evaluator import Evaluator
from element_rl.agents import a3c
from element_rl.agents.a3c import A3CConfig
from element_rl.commands.finetune import main
from element_rl.encoders.frozen import load_encoder
from element_rl.envs import mario_emulator
from element_rl.envs.make import make_env
from element_rl.envs.names import MARIO
from element_rl.runs.folder import RunError, RunFolder
from element_rl.runs.watching import Interrupted
from element_rl.training.finetune import FinetuneConfig, finetune
from element_rl.training.finetune.settings import on_policy_settings
from element_rl.training.finetune.start import chosen_start
from element_rl.training.finetune.tasks import task_of
from element_rl.training.finetune.transplants import transplanted_policies
from element_rl.training.on_policy.agent import Agent
from element_rl.training.on_policy.config import OnPolicyConfig
from element_rl.training.on_policy.launch import ENCODER, create_run
from element_rl.training.on_policy.training import train

STAY, UP, DOWN, LEFT, RIGHT = range(5)
SMALL = A3CConfig(channels=(4,), hidden_size=8, local_steps=20, learning_rate=3e-3)
ROOMS = ("goal_distance=6", "progress_reward=0.1", "max_episode_steps=25")
SOURCE = OnPolicyConfig(
    "Rooms-v0",
    reward="rnd",
    steps=400,
    seeds=2,
    seed=3,
    workers=0,
    state_dim=4,
    checkpoint_every=100,
    env_options=ROOMS,
    a3c=SMALL,
)
ACTIONS = {
    100: (STAY, UP),
    200: (RIGHT, LEFT),
    300: (UP, RIGHT),
    340: (RIGHT, RIGHT),
    400: (LEFT, STAY),
}
VALUES = {100: (1.0, 2.0), 200: (3.0, 4.0), 300: (5.0, 6.0), 340: (7.0, 8.0), 400: (9.0, 10.0)}


def acting(action: int, value: float, actions: int = 5) -> dict[str, np.ndarray]:
    """A policy of one agent that as good as always does the same, and a value that is always the
    same."""
    network = a3c.ActorCritic.create(jax.random.key(action), (84, 84), actions, SMALL)
    policy = {name: np.array(array) for name, array in a3c.policy_parameters(network).items()}
    policy["head_weight"][:] = 0.0
    policy["head_bias"] = np.append(20.0 * (np.arange(actions) == action), value).astype(np.float32)
    return policy


def population(step: int, actions: int = 5) -> dict[str, np.ndarray]:
    agents = [acting(*agent, actions) for agent in zip(ACTIONS[step], VALUES[step], strict=True)]
    return {name: np.stack([policy[name] for policy in agents]) for name in agents[0]}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    run = create_run(SOURCE, tmp_path_factory.mktemp("source") / "rooms")
    for step in ACTIONS:
        run.save_checkpoint(step, population(step), None, {}, {})
    return run


def settings(source: RunFolder, **changes: Any) -> FinetuneConfig:
    usual: dict[str, Any] = {"steps": 200, "episodes": 3, "log_every": 50, "checkpoint_every": 100}
    return FinetuneConfig(source.path, **(usual | changes))


@pytest.fixture(scope="module")
def compared(source: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compared") / "out"
    finetune(settings(source), folder)
    return folder


def start(source: RunFolder, **changes: Any) -> dict[str, Any]:
    config = settings(source, **changes)
    return chosen_start(task_of(config))


def test_each_agent_takes_its_own_best_checkpoint(source: RunFolder) -> None:
    """340 was not planned: the run was stopped there."""
    transfer = start(source)
    assert [entry["step"] for entry in transfer["candidates"]] == [100, 200, 300, 400]
    assert transfer["transferred_step"] == [200, 300]
    assert transfer["candidates"][0]["return"][0] == 0.0  # who stays makes no progress
    assert (np.array(transfer["zero_shot_return"]) > 0.3).all()
    assert start(source, checkpoint="last")["transferred_step"] == [400, 400]
    assert start(source, checkpoint="340")["transferred_step"] == [340, 340]


def test_returns_of_a_certain_policy_depend_neither_on_processes_nor_on_draws() -> None:
    options = {"goal_distance": 6, "progress_reward": 0.1, "max_episode_steps": 25}
    seeds = [[(agent, 0, episode) for episode in range(3)] for agent in range(2)]
    found = []
    for workers, deterministic in ((0, False), (0, True), (1, False)):
        with Evaluator("Rooms-v0", options, workers) as evaluator:
            evaluator.start(population(200), seeds, deterministic)
            found.append(evaluator.wait()[0])
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    env, expected = make_env("Rooms-v0", **options), 0.0
    env.reset(seed=int(np.random.default_rng([0, 0, 1]).integers(2**31)))
    ended = False
    while not ended:
        _, reward, terminated, truncated, _ = env.step(RIGHT)
        expected, ended = expected + float(reward), terminated or truncated
    assert found[0][0, 1] == pytest.approx(expected)


def test_the_policy_is_transferred_and_the_value_is_fresh(
    source: RunFolder, compared: Path
) -> None:
    task, spec = on_policy_settings(settings(source), source)
    encoder = load_encoder(source.path / ENCODER)
    begun = RunFolder.open(compared / "transferred").load_policy(0)
    for agent, step in enumerate((200, 300)):
        fresh = Agent(3 + agent, spec, task.a3c, encoder, None, 1).parameters()
        for name, array in source.load_policy(step).items():
            expected = array[agent].copy()
            if name.startswith("head"):
                expected[..., -1] = fresh[name][..., -1]
            np.testing.assert_array_equal(begun[name][agent], expected, err_msg=name)
    kept = transplanted_policies(begun, source, {"transferred_step": [200, 300]}, "kept")
    assert kept["head_bias"][:, -1].tolist() == [VALUES[200][0], VALUES[300][1]]
    one = {name: array[1:] for name, array in begun.items()}
    fewer = transplanted_policies(one, source, {"transferred_step": [300]})
    assert np.argmax(fewer["head_bias"][:, :-1], axis=1).tolist() == [UP]
    np.testing.assert_array_equal(fewer["head_weight"][..., -1], one["head_weight"][..., -1])


def test_two_runs_a_figure_and_a_summary(
    source: RunFolder, compared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = json.loads((compared / "summary.json").read_text())
    assert summary["seeds"] == [3, 4]
    assert summary["transferred_step"] == [200, 300]
    ours, theirs = (RunFolder.open(compared / run) for run in ("transferred", "scratch"))
    for run in (ours, theirs):
        assert len(summary[run.path.name]["final_return"]) == 2
        assert run.read_metrics()["step"].max() == 200
        assert (run.config["reward"], run.config["kind"]) == ("extrinsic", "on-policy")
        assert run.read_summary()["encoder"] == "random"
        assert (run.path / ENCODER / "encoder.safetensors").stat().st_size > 1_000
    first = ours.read_metrics()["extrinsic_return"][:2]
    # it acts as it came, from the first step
    np.testing.assert_allclose(first, summary["zero_shot_return"], atol=0.8)
    assert (first > theirs.read_metrics()["extrinsic_return"][:2]).all()
    assert ours.checkpoint_steps() == [0, 100, 200]
    assert theirs.checkpoint_steps() == [100, 200]
    for kind in ("png", "svg"):
        assert (compared / "figures" / f"transfer.{kind}").stat().st_size > 5_000
    assert "A3C from scratch" in (compared / "figures" / "transfer.svg").read_text()
    assert len((compared / "table.md").read_text().splitlines()) == 5
    # Given again, there is nothing left to do.
    stamps = {path: path.stat().st_mtime_ns for path in compared.rglob("*") if path.is_file()}
    assert main(["--resume", str(compared)]) == 0
    printed = capsys.readouterr().out
    assert f"{compared} is finished at step " in printed
    assert "transfer.png" in printed
    assert stamps == {
        path: path.stat().st_mtime_ns for path in compared.rglob("*") if path.is_file()
    }


def stopping_after(calls: int) -> Callable[[], bool]:
    asked: list[int] = []
    return lambda: len(asked) >= calls or bool(asked.append(1))


def test_stopped_anywhere_and_continued(
    source: RunFolder, compared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While choosing and while learning, from another directory; then continued as an on-policy run
    like any other."""
    config, folder = settings(source, compare=False), tmp_path / "alone"
    with pytest.raises(Interrupted):
        finetune(config, folder, stop=stopping_after(3))
    assert not folder.exists()
    with pytest.raises(Interrupted):
        finetune(config, folder, stop=stopping_after(2 * 5 + 7), resume=True)
    assert RunFolder.open(folder).latest_checkpoint() in range(1, 100)
    monkeypatch.chdir(source.path.parent)
    moved = dataclasses.replace(config, run=Path(source.path.name))
    with pytest.raises(Interrupted):
        finetune(moved, folder, stop=stopping_after(3), resume=True)
    run = RunFolder.open(folder)
    train(on_policy_settings(config, source)[0], run, resume=True)
    assert_same(outcome(RunFolder.open(compared / "transferred")), outcome(run))
    summary = finetune(moved, folder, resume=True)
    assert summary["transferred_step"] == [200, 300]


def test_a_run_that_has_not_begun_is_not_begun_from_scratch(
    source: RunFolder, tmp_path: Path
) -> None:
    task, _ = on_policy_settings(settings(source), source)
    run = create_run(task, tmp_path / "run")
    (run.path / "transfer.json").write_text("{}")
    with pytest.raises(RunError, match="continue it with element finetune"):
        train(task, run, resume=True)


def test_the_task_is_the_run_s_environment_and_options_given_come_first(source: RunFolder) -> None:
    def task(**changes: Any) -> OnPolicyConfig:
        return on_policy_settings(settings(source, **changes), source)[0]

    assert task().env_options == ROOMS
    assert task(env_options=("goal_distance=8",)).env_options == ("goal_distance=8", *ROOMS[1:])
    assert (task().seeds, task(seeds=1).seeds, task(seed=7).seed) == (2, 1, 7)
    assert task().reward_options == ()
    assert task(reward_scale=0.5).reward_options == ("scale=0.5",)
    faster = dataclasses.replace(SMALL, learning_rate=1e-2)
    assert task(a3c=faster).a3c == faster


@pytest.mark.skipif(
    not all(
        importlib.util.find_spec(name) for name in ("stable_retro", mario_emulator.ROM_PACKAGE)
    ),
    reason="NOT TESTED: Super Mario Bros is not installed; pip install -e '.[mario]' "
    "(docs/mario.md)",
)
def test_mario_learns_from_a_tenth_of_his_reward_and_returns_are_whole(tmp_path: Path) -> None:
    explored = dataclasses.replace(
        SOURCE, env=MARIO, seeds=1, steps=100, env_options=("max_episode_steps=12",)
    )
    run = create_run(explored, tmp_path / "mario")
    run.save_checkpoint(
        100, {name: array[:1] for name, array in population(200, actions=12).items()}, None, {}, {}
    )
    config = FinetuneConfig(run.path, steps=24, episodes=1, log_every=12, compare=False)
    assert on_policy_settings(config, run)[0].reward_options == ("scale=0.1",)
    summary = finetune(config, tmp_path / "out")
    metrics = RunFolder.open(tmp_path / "out").read_metrics()
    assert summary["extrinsic_return"][0] > 10.0  # right with A and B (action 4), in pixels
    np.testing.assert_allclose(
        metrics["reward_mean"] * 12 * 10, metrics["extrinsic_return"], rtol=1e-4
    )


def test_mistakes(source: RunFolder, tmp_path: Path, complaint: Callable[..., str]) -> None:
    run = str(source.path)
    for option, value in (
        *(("--replay", "kept"), ("--critic-warmup", "5"), ("--temperature", "kept")),
        *(("--replay-size", "9"), ("--chunk-steps", "9"), ("--sac.batch-size", "9")),
        *(("--anchor", "0.1"), ("--anchor-halflife", "9")),
    ):
        sentence = complaint(run, option, value)
        assert f"{option.partition('.')[0]} means nothing here" in sentence
        assert "a run of A3C" in sentence
    assert "has no checkpoint of step 7" in complaint(run, "--checkpoint", "7")
    assert "LSTM of 8 units" in complaint(run, "--a3c.hidden-size", "16")
    assert "has 2 agents" in complaint(run, "--seeds", "3")
    assert "NAME=VALUE" in complaint(run, "--env-options", "x")
    assert "--reward-scale must be above 0" in complaint(run, "--reward-scale", "0")
    create_run(dataclasses.replace(SOURCE, reward="random"), tmp_path / "random")
    assert "acted at random" in complaint(str(tmp_path / "random"))
    others = create_run(SOURCE, tmp_path / "others")
    others.save_checkpoint(100, population(100, actions=4), None, {}, {})
    assert "choose among 4 actions, but Rooms-v0 with these options has 5" in complaint(
        str(others.path)
    )
    RunFolder.create(tmp_path / "foreign", {"on_policy": True, "settings": {"colour": "red"}})
    assert "not an on-policy run of this version" in complaint(str(tmp_path / "foreign"))
    assert not (tmp_path / "out").exists()
