"""`element explore ENV` takes every Gymnasium environment: tiny runs of many kinds, what it says of
the agent, what is handed over to `element on-policy`, and what is refused."""

import json
from pathlib import Path

import gymnasium
import numpy as np
import own_world  # noqa: F401 (registers its environments)
import pytest
from gymnasium.envs.registration import EnvSpec
from own_world import SCREEN

from element_rl.cli import main
from element_rl.commands import explore, on_policy
from element_rl.datasets.minari_files import read_dataset
from element_rl.evaluate.checkpoints import evaluate
from element_rl.runs.folder import RunFolder

DQN = ("--dqn.hidden-sizes", "8", "--dqn.batch-size", "8", "--dqn.learn-start", "40")
TINY = (
    *("--replay-size", "300", "--chunk-steps", "20", "--random-seeds", "0", "--workers", "0"),
    *("--env-options", "max_episode_steps=20", "--no-figures"),
)
HALL = "own_world:OwnHall-v0"  # a Dict of a Discrete and a Box; MultiDiscrete actions


def explored(out: Path, *arguments: str, steps: int = 80) -> RunFolder:
    words = ["explore", *arguments, "--steps", str(steps), *TINY, *DQN, "--out", str(out)]
    assert main(words) == 0
    return RunFolder.open(out)


@pytest.mark.parametrize(
    ("env", "sees", "actions"),
    [
        ("CartPole-v1", 4, 2),
        ("MountainCar-v0", 2, 3),
        ("Acrobot-v1", 6, 3),
        ("FrozenLake-v1", 16, 4),
        ("Taxi-v4", 500, 6),
        ("Blackjack-v1", 45, 2),
        (HALL, 8, 6),
        ("minigrid:MiniGrid-Empty-5x5-v0", 151, 7),
    ],
)
def test_every_kind_of_choice_is_explored(
    env: str, sees: int, actions: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = explored(tmp_path / "run", env, "--reward", "extrinsic")
    said = capsys.readouterr().out
    assert f"DQN learns: an action is one of {actions} choices" in said
    assert ("mission is left out: agents see numbers." in said) == ("MiniGrid" in env)
    assert run.config["settings"]["agent"] == "dqn"
    policy = run.load_policy()
    assert (policy["weight_0"].shape[1], policy["weight_1"].shape[2]) == (sees, actions)
    assert policy["exploration_rate"] == pytest.approx(0.05)
    assert evaluate(run, episodes=1, checkpoint=80, workers=0)[0]["episodes"] == 1


class HandedOverError(Exception):
    """The command line that `element on-policy` was given."""


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> None:
    def took(arguments: list[str]) -> int:
        raise HandedOverError(arguments)

    monkeypatch.setattr(on_policy, "main", took)


@pytest.mark.usefixtures("handed")
@pytest.mark.parametrize(
    ("given", "more", "said"),
    [
        (["Rooms-v0", "--steps", "9"], ["--agent", "ppo"], "Images: PPO learns from them"),
        ([SCREEN, "--a3c.discount=0.9"], ["--agent", "ppo"], "--agent a3c: A3C"),
        (["--steps", "9", "Rooms-v0"], ["--agent", "ppo"], "this is element on-policy"),
        (["Rooms-v0", "--agent", "a3c"], [], "--agent a3c learns on policy"),
        (["CartPole-v1", "--agent=ppo"], [], "--agent ppo learns on policy"),
        (
            ["own_world:OwnWalk-v0", "--agent", "ppo", "--steps", "9"],
            [],
            "learns on policy: this is element on-policy",
        ),
    ],
)
def test_images_and_on_policy_agents_are_handed_over(
    given: list[str], more: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(HandedOverError) as handed_over:
        explore.main(given)
    assert handed_over.value.args[0] == [*given, *more]
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["Rooms-v0", "--agent", "dqn"], "dqn learns from vectors, and this environment shows im"),
        (["CartPole-v1", "--agent", "sac"], "takes one of 2 choices: take --agent dqn, ppo or a3c"),
        (["PointMaze", "--agent", "dqn"], "takes 2 numbers within bounds: take --agent sac, td3"),
        (["CartPole-v1", "--physics", "jax"], "--physics jax steps environments that take numbers"),
    ],
)
def test_what_an_agent_cannot_take_is_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explore", *arguments, "--steps", "60"]) == 2
    said = capsys.readouterr().err.strip()
    assert sentence in said
    assert "\n" not in said


def test_a_run_that_is_continued_says_which_command_does_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    RunFolder.create(tmp_path / "run", {"kind": "on-policy", "settings": {"env": "Rooms-v0"}})
    assert main(["explore", "--resume", str(tmp_path / "run")]) == 2
    assert "continue it with element on-policy --resume" in capsys.readouterr().err


def test_a_dataset_of_choices(tmp_path: Path) -> None:
    """One-hot actions become the choices, and the environment is made again as it was acted in."""
    pytest.importorskip("minari")
    run = explored(tmp_path / "run", "FrozenLake-v1", "--reward", "extrinsic")
    collected = ("--dataset", "lake/rnd-v0", "--steps", "40", "--workers", "0", "--no-entropy")
    assert main(["collect", str(run.path), *collected, "--out", str(tmp_path)]) == 0
    dataset = read_dataset("lake/rnd-v0", tmp_path)
    assert dataset.action_space == gymnasium.spaces.Discrete(4)
    assert dataset.observation_space.shape == (16,)
    assert set(np.unique(dataset.episodes.action)) <= {0, 1, 2, 3}
    about = json.loads(next(tmp_path.rglob("metadata.json")).read_text())
    assert "element-rl" in about["requirements"]
    again = gymnasium.make(EnvSpec.from_json(about["env_spec"]))
    seen, _ = again.reset(seed=0)
    np.testing.assert_array_equal(seen, np.eye(16)[0])


def test_policies_of_choices_are_fine_tuned(tmp_path: Path) -> None:
    """With the share of random actions that the policy has, and values that are the policy's."""
    run = explored(tmp_path / "run", "FrozenLake-v1", "--reward", "rnd")
    task = ("--steps", "60", "--episodes", "1", "--candidates", "1", "--no-compare")
    out = tmp_path / "task"
    words = ["finetune", str(run.path), *task, "--workers", "0", "--out", str(out)]
    assert main(words) == 0
    tuned = RunFolder.open(out)
    assert tuned.config["settings"]["agent"] == "dqn"
    assert tuned.load_policy()["exploration_rate"] == pytest.approx(0.05)
    assert main([*words[:-1], str(tmp_path / "other"), "--anchor", "1"]) == 2
