"""Blind, informative or saturated: the judgement, the bandwidth that is advised, and a run that
says so."""

import math
import re
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from element_rl.cli import main
from element_rl.rewards.element import ElementReward
from element_rl.rewards.element_config import ElementConfig
from element_rl.rewards.entropy_range import (
    advice,
    entropy_range,
    evaluation_sentence,
    fitting_bandwidth,
    line,
    seen_episodes,
    sentence,
    successive_kernel,
)
from element_rl.rewards.interface import EntropyKernel


def kernel_of(**settings: Any) -> EntropyKernel | None:
    return ElementReward(ElementConfig(**settings)).entropy_kernel


def two_places(distance: float) -> np.ndarray:
    """Eight states in one place, then eight in another."""
    states = np.zeros((16, 2), np.float32)
    states[8:, 0] = distance
    return states


def test_what_a_share_of_the_ceiling_says() -> None:
    shares = (0.0, 0.0099, 0.0101, 0.5, 0.9499, 0.9501, 1.0)
    wanted = ["blind"] * 2 + ["informative"] * 3 + ["saturated"] * 2
    assert [entropy_range(share) for share in shares] == wanted
    # Whatever the share: where two states one step apart look like two places, every state looks
    # new.
    assert [entropy_range(0.5, successive) for successive in (0.19, 0.21)] == [
        "saturated",
        "informative",
    ]
    # The two limits say the same: the kernel with two neighbours takes 1,000 states to 0.95 of
    # their ceiling.
    assert math.log(1000 / (1 + 2 * 0.2), 1000) == pytest.approx(0.95, abs=0.002)


@pytest.mark.parametrize("estimator", ["kde", "renyi"])
def test_the_entropy_is_that_of_the_rewards_own_estimator_and_bandwidth(estimator: str) -> None:
    """Two places have the kernel κ = exp(−2² / (2σ)), and the Gram matrix the eigenvalues (1 ± κ) /
    2."""
    for bandwidth in (0.1, 2.0, 50.0):
        seen = seen_episodes([two_places(2.0)], kernel_of(estimator=estimator, bandwidth=bandwidth))
        kernel = math.exp(-4 / (2 * bandwidth))
        values = {
            "kde": -math.log2((1 + kernel) / 2),
            "renyi": -0.5 * math.log2(((1 + kernel) ** 3 + (1 - kernel) ** 3) / 8),
        }
        assert seen.bits == pytest.approx(values[estimator], rel=1e-4)
        assert seen.ceiling == 4.0
        assert seen.successive == pytest.approx((14 + kernel) / 15)
        assert seen.advised == 4.0


def test_the_bandwidth_that_fits() -> None:
    assert fitting_bandwidth(two_places(3.0)) == 9.0  # most pairs are of two places
    mostly_still = np.zeros((16, 1), np.float32)
    mostly_still[3] = 0.5
    assert fitting_bandwidth(mostly_still) == 0.25  # the median is 0: the mean of those that differ
    assert fitting_bandwidth(np.full((16, 3), 7.3, np.float32)) is None
    far_away = two_places(3.0) + np.float32(4096)
    assert fitting_bandwidth(far_away) == pytest.approx(9.0)
    # A typical pair then has the kernel exp(−1/2), in any units.
    walk = np.random.default_rng(0).normal(size=(400, 3)).cumsum(axis=0)
    for unit in (1e-3, 1.0, 1e3):
        bandwidth = fitting_bandwidth(unit * walk)
        seen = seen_episodes([unit * walk], kernel_of(bandwidth=bandwidth))
        assert seen.verdict == "informative"
        assert seen.bits == pytest.approx(1.0, abs=0.25)
    assert successive_kernel(np.arange(5.0)[:, None], 0.5) == pytest.approx(math.exp(-1))


def test_what_is_said_and_advised() -> None:
    walk = np.random.default_rng(0).normal(size=(200, 3)).cumsum(axis=0)
    blind = seen_episodes([1e-3 * walk, 1e-3 * walk[:150]], kernel_of())
    assert blind.verdict == "blind"
    assert "blind: at bandwidth 1 the 175 states of an episode count as 1.00" in sentence(blind)
    assert line(blind).endswith(f"Use --bandwidth {blind.advised:g}, or --estimator knn.")
    assert line(blind, as_options=True).endswith(
        f"--reward-options bandwidth={blind.advised:g}, or estimator=knn."
    )
    saturated = seen_episodes([1e3 * walk], kernel_of())
    assert "saturated: at bandwidth 1 even successive states look different" in sentence(saturated)
    assert line(seen_episodes([walk], kernel_of(bandwidth=100.0))) == ""
    assert "equal" in advice(seen_episodes([np.zeros((20, 2), np.float32)], kernel_of()))


def test_nothing_is_judged_where_there_is_no_kernel() -> None:
    states = np.zeros((20, 2), np.float32)
    assert seen_episodes([states], kernel_of(estimator="knn")) is None
    assert seen_episodes([states], kernel_of(episodic_weight=0.0)) is None
    assert seen_episodes([states[:15]], kernel_of()) is None
    assert line(None) == ""


def test_of_the_logged_entropy_it_says_that_it_is_not_the_rewards() -> None:
    assert evaluation_sentence(0.5) == ""
    assert "all states look the same" in evaluation_sentence(0.004)
    assert "every state looks new" in evaluation_sentence(0.97)
    assert "whatever the reward's" in evaluation_sentence(0.97)
    assert evaluation_sentence(0.97, "informative").endswith("The reward's own entropy can.")
    assert evaluation_sentence(0.97, "saturated") == evaluation_sentence(0.97)


TINY = [
    *(
        "--steps",
        "200",
        "--replay-size",
        "2500",
        "--sac.hidden-sizes",
        "8",
        "--sac.batch-size",
        "8",
    ),
    *("--workers", "0", "--chunk-steps", "50", "--random-seeds", "0", "--no-figures"),
]


class Noise(gymnasium.Env):
    """Observes numbers of the size 1,000, new ones at every step."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (6,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        return self._observation(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        return self._observation(), 0.0, False, False, {}

    def _observation(self) -> np.ndarray:
        return (1000 * self.np_random.normal(size=6)).astype(np.float32)


def lines_of_a_run(
    capsys: pytest.CaptureFixture[str], env: str, out: Path, *more: str
) -> list[str]:
    """What a tiny run of four episodes prints where there is no terminal."""
    arguments = [
        "explore",
        env,
        "--env-options",
        "max_episode_steps=50",
        *TINY,
        "--state-units",
        "raw",
        *more,
        "--out",
        str(out),
    ]
    assert main(arguments) == 0
    return capsys.readouterr().out.splitlines()


def test_a_blind_run_says_so_early_and_what_it_advises_helps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = lines_of_a_run(capsys, "MountainCarContinuous-v0", tmp_path / "first")
    said = [text for text in lines if text.startswith("Episodic entropy is ")]
    assert len(said) == 1  # one line, once
    assert "blind" in said[0]
    before = lines[: lines.index(said[0])]
    assert not any(text.strip().startswith(("150 /", "200 /")) for text in before)
    bandwidth = re.search(r"Use (--bandwidth) (\S+), or --estimator knn\.", said[0])
    lines = lines_of_a_run(
        capsys, "MountainCarContinuous-v0", tmp_path / "second", *bandwidth.groups()
    )
    assert not any(text.startswith("Episodic entropy is ") for text in lines)
    # Of the logged entropy, with σ = 1 as before, it is said that the reward's is another.
    assert "cannot tell episodes apart. The reward's own entropy can." in " ".join(
        " ".join(lines).split()
    )


def test_a_saturated_run_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gymnasium.register("Noise-v1", entry_point=Noise, max_episode_steps=50)
    lines = lines_of_a_run(capsys, "Noise-v1", tmp_path / "run")
    assert sum(text.startswith("Episodic entropy is saturated") for text in lines) == 1
