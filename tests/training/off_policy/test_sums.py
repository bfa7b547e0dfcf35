"""Runs of `element explore` with sums of rewards: resumed bit for bit, and what their options
mean."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.run_outcomes import assert_same, outcome

from element_rl.agents.sac import SACConfig
from element_rl.cli import main
from element_rl.commands.training import default_folder
from element_rl.plots.curves import reward_terms
from element_rl.rewards.interface import Remembers, remembering
from element_rl.runs.folder import RunFolder
from element_rl.runs.watching import Interrupted
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.off_policy.explore import explore
from element_rl.training.off_policy.launch import create_run, reopen_run
from element_rl.training.off_policy.resolving import resolved

RND = ("rnd.feature_dim=8", "rnd.target_sizes=[16]", "rnd.predictor_sizes=[16]")
SUM = ExploreConfig(
    "PointMaze",
    reward="element+0.5*rnd",
    reward_options=RND,
    steps=600,
    replay_size=1_000,
    chunk_steps=40,
    log_every=200,
    checkpoint_every=200,
    update_interval=100,
    update_steps=50,
    random_seeds=0,
    workers=0,
    env_options=("max_episode_steps=50",),
    sac=SACConfig(hidden_sizes=(16,), batch_size=16, learn_start=200),
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    run = create_run(SUM, tmp_path_factory.mktemp("sums") / "whole")
    explore(SUM, run)
    return run


def test_a_sum_is_resumed_bit_for_bit(whole: RunFolder, tmp_path: Path) -> None:
    run, calls = create_run(SUM, tmp_path / "parts"), []
    with pytest.raises(Interrupted):
        explore(SUM, run, stop=lambda: len(calls) >= 9 or bool(calls.append(1)))
    spelt = dataclasses.replace(SUM, reward=" element + 5e-1 * rnd")
    explore(spelt, reopen_run(spelt, run.path), resume=True)
    assert_same(outcome(whole), outcome(run))
    assert run.config["reward"] == "element + 0.5*rnd"
    other = dataclasses.replace(SUM, reward="element + 0.6*rnd")
    with pytest.raises(ValueError, match=r"reward.*0\.5.*0\.6"):
        reopen_run(other, run.path)


def test_columns(whole: RunFolder) -> None:
    """The terms, what they were divided by, and ELEMENT's two parts, which make up its term."""
    metrics = whole.read_metrics()
    assert (metrics["memory_size"] > 0).all()
    last = {name: float(values[-1]) for name, values in metrics.items()}
    assert last["reward_rnd_deviation"] > 0
    assert last["reward_rnd"] > 0
    assert last["reward_element"] == pytest.approx(
        last["reward_episodic"] + 0.5 * last["reward_lifelong"], rel=1e-5
    )


def test_the_figure_of_terms_shows_those_of_the_sum(whole: RunFolder) -> None:
    above, _ = reward_terms(whole.path).axes
    assert [text.get_text() for text in above.get_legend().get_texts()] == ["element", "rnd"]


def test_a_weight_of_0_leaves_the_agents_as_they_were(tmp_path: Path) -> None:
    """What is measured beside a reward changes nothing of what is learned."""
    policies = []
    for reward, options in (("element", ()), ("element + 0*rnd", RND)):
        config = dataclasses.replace(SUM, reward=reward, reward_options=options, steps=400)
        run = create_run(config, tmp_path / reward.replace(" ", ""))
        explore(config, run)
        policies.append(run.load_policy())
    for name, array in policies[0].items():
        np.testing.assert_array_equal(array, policies[1][name])


def settings(reward: str, *options: str, **others: Any) -> Any:
    return resolved(ExploreConfig("PointMaze", reward=reward, reward_options=options, **others))


def test_elements_options_reach_it_in_a_sum() -> None:
    made = settings("0.5*rnd + element", "element.renyi_order=2.5", beta=0.7, steps=10_000)
    element = made.reward.members[1].config
    assert (element.lifelong_weight, element.renyi_order, element.update_interval) == (
        *(0.7, 2.5, 1_000),
    )
    assert (made.config.memory, element.memory) == ("exact", "exact")
    two = settings("element + element", "element_2.estimator=knn", bandwidth=0.5, steps=99).reward
    assert [member.config.estimator for member in two.members] == ["renyi", "knn"]
    assert [member.config.bandwidth for member in two.members] == [0.5, 0.5]


def test_pools_in_a_sum_are_whole_unless_told() -> None:
    made = settings("element + re3")
    assert made.config.pool == "whole"
    assert all(isinstance(member, Remembers) for member in made.reward.members)
    sampled = settings("rnd + re3", "re3.pool_size=64")
    assert sampled.config.pool == "sample"
    assert remembering(sampled.reward) is None


def test_what_must_be_said_is_said_of_a_part() -> None:
    options = settings("element + ngu", "ngu.learning_rate=0.1").config.reward_options
    assert set(options) == {
        *("ngu.error_statistics=recent", "ngu.observation_clip=5.0", "ngu.learning_rate=0.1"),
    }


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--reward", "rnd +"), "at character 6 a reward or a weight was expected"),
        (("--reward", "rnd + foo"), "no reward called 'foo' in 'rnd + foo'"),
        (("--reward", "rnd + icm", "--beta", "1"), "--beta is a setting of ELEMENT"),
        (("--reward", "rnd + icm", "--pool", "whole"), "--pool is of re3 and rise"),
        (
            ("--reward", "rnd + extrinsic", "--extrinsic-weight", "1"),
            "which rnd + extrinsic has already",
        ),
        (
            ("--reward", "element + rnd", "--reward-options", "learning_rate=1"),
            "does not say whose it is: name the reward, such as element.learning_rate",
        ),
        (
            ("--reward", "element + rnd", "--reward-options", "element.bandwidth=1"),
            "bandwidth has an option of its own: --bandwidth",
        ),
        (
            ("--reward", "rnd + extrinsic", "--reward-options", "extrinsic.scale=2"),
            "scale has an option of its own: --reward-scale",
        ),
        (("--reward", "rnd + icm", "--reward-options", "rnd.a.b=1"), "takes NAME=VALUE pairs"),
    ],
)
def test_mistakes_get_one_sentence(
    arguments: tuple[str, ...], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main(["explore", "PointMaze", *arguments, "--out", str(out)]) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())
    assert not out.exists()


def test_default_folders() -> None:
    assert default_folder("Ant-v5", "element + 0.5*rnd", 0) == Path("runs/Ant-v5-element+0.5rnd-0")
    own = "ngu * code/own.py:make"
    assert default_folder("a:Ant-v5", own, 1) == Path("runs/Ant-v5-ngu_x_own-1")
    assert default_folder("Ant-v5", "element-paper", 2) == Path("runs/Ant-v5-element-paper-2")
    assert default_folder("Ant-v5", "code/own.v2.py:make", 3) == Path("runs/Ant-v5-own.v2-3")
