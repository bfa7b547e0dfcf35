"""What the pages say of inputs and differences is what the code does and what the numbers give.

Defaults are in test_defaults.py."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from support.by_hand import KEY, init, observe, padded_episode, reward_of, transitions, update
from support.documents import DOCUMENTS, ROOT, name_of, rows_of, table
from support.small_rewards import SMALL_REWARDS

from element_rl.rewards import NAMES, make_reward
from element_rl.rewards.interface import RewardSpec
from element_rl.studies.engine.statistics import probability_of_improvement

METHODS = ROOT / "docs" / "methods" / "README.md"
COVERAGE = ROOT / "docs" / "results" / "coverage.md"
ENTROPY = ROOT / "docs" / "results" / "episodic-entropy.md"
COMPARING = [
    ROOT / name for name in ("README.md", "docs/index.md", "docs/faq.md", "docs/results/README.md")
]
STEPS = 12
SPEC = RewardSpec(
    observation_dim=3, action_dim=2, state_dim=2, max_episode_steps=STEPS, total_steps=100
)
REWARDS = [name for name in NAMES if name != "extrinsic"]
SMALL: dict[str, dict[str, Any]] = {name: {} for name in REWARDS} | {
    "element": {"credit": "state", "memory": "exact"},
    "element-paper": {"update_interval": 2, "update_steps": 2},
    "rnd": {"feature_dim": 4, "target_sizes": (8,), "predictor_sizes": (8,)},
    "apt": {"feature_dim": 4, "hidden_sizes": (8,), "num_neighbours": 2},
    "icm": {"feature_dim": 4, "encoder_sizes": (8,), "inverse_sizes": (8,), "forward_sizes": (8,)},
    "ngu": {
        "embedding_dim": 4,
        "encoder_sizes": (8,),
        "head_sizes": (8,),
        "rnd_sizes": (8,),
        "num_neighbours": 2,
    },
    "e3b": {"feature_dim": 4, "encoder_sizes": (8,)},
    **{name: SMALL_REWARDS[name] for name in ("disagreement", "ride", "noveld", "pseudo-counts")},
    "etd": {"embedding_dim": 4, "encoder_sizes": (8,), "potential_sizes": (8,)},
    "rle": {"latent_dim": 2, "feature_sizes": (8,)},
    "metra": {"encoder_sizes": (8,)},
}


@pytest.mark.parametrize("name", REWARDS)
def test_each_reward_sees_what_its_row_says(name: str) -> None:
    """Where the states alone differ, as they do by the position, the reward differs if and only if
    it is paid on them."""
    kind, knows = table(METHODS, "What each reward sees")[f"`{name}`"]
    here, elsewhere = (rewards_of_an_episode(name, seed) for seed in (0, 1))
    differs = not np.allclose(here, elsewhere, rtol=1e-4)
    assert (kind.split()[0], knows) == (("state", "yes") if differs else ("observation", "no"))


def test_every_reward_has_a_row() -> None:
    assert set(table(METHODS, "What each reward sees")) == {f"`{name}`" for name in REWARDS}


@pytest.mark.parametrize(
    ("page", "first_cell"),
    [(COVERAGE, "P(element covers more)"), (ENTROPY, "P(element's is higher)")],
    ids=["coverage", "entropy"],
)
def test_intervals_of_improvement_do_not_collapse(page: Path, first_cell: str) -> None:
    """They are those of the P that stands before them, with five seeds a side."""
    for cells in rows_of(page, first_cell).values():
        shown = [[float(number) for number in re.findall(r"[\d.]+", cell)] for cell in cells]
        runs = [_runs_with(value) for value, *_ in shown[:3]]
        alone = [probability_of_improvement([x], [y]) for x, y in runs]
        together = probability_of_improvement(*zip(*runs, strict=True))
        assert shown == [pytest.approx(found, abs=0.0051) for found in (*alone, together)]


def _runs_with(improvement: float) -> tuple[np.ndarray, np.ndarray]:
    """Five scores of X and five of Y, of which so many pairs are improvements; ties count half."""
    halves = round(50 * improvement)
    y = np.arange(5.0)
    x = np.full(5, -1.0)  # below all of Y, until all improvements are given out
    for run in range(5):
        given = min(halves, 10)
        x[run] = y[given // 2] if given % 2 else given // 2 - 0.5
        halves -= given
    return x, y


def test_tests_of_differences_are_those_of_the_means() -> None:
    """The p values of the page, from its own means and deviations of five seeds, with Holm's
    correction."""
    scores = {
        name: [mean_and_std(cell) for cell in cells]
        for name, cells in rows_of(COVERAGE, "mean ± std").items()
    }
    said = rows_of(COVERAGE, "p (corrected)")
    others = [name.removeprefix("element and ") for name in said]
    plain = np.array(
        [
            [welch(*scores["element"][robot], *scores[other][robot]) for robot in range(3)]
            for other in others
        ]
    )
    corrected = holm(plain.ravel()).reshape(plain.shape)
    for other, p_values, corrections in zip(others, plain, corrected, strict=True):
        for cell, p, corrected_p in zip(
            said[f"element and {other}"], p_values, corrections, strict=True
        ):
            for shown, value in zip(
                re.findall(r"(?:< )?[\d.]+", cell), (p, corrected_p), strict=True
            ):
                limit = shown.removeprefix("< ")
                near = (
                    value < float(limit)
                    if "<" in shown
                    else round(value, len(limit) - 2) == float(limit)
                )
                assert near, f"{other}: {cell} should be {p:.4f} ({corrected_p:.4f})"


def test_means_of_humanoid_are_those_of_its_seeds() -> None:
    for name, (seeds, mean) in rows_of(COVERAGE, "cells at 200,000 steps").items():
        assert round(np.mean([int(seed) for seed in seeds.split()])) == int(mean.strip("*")), name


@pytest.mark.parametrize("document", COMPARING, ids=name_of)
def test_pages_that_compare_say_what_each_method_sees(document: Path) -> None:
    text = " ".join(document.read_text().split())
    assert all(
        words in text
        for words in ("methods/README.md#what-each-reward-sees", "not significant", "Humanoid")
    )


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_nothing_is_claimed_that_was_not_shown(document: Path) -> None:
    text = " ".join(document.read_text().split())
    for claim in (
        "covers more than all",
        "covers more than the others",
        "the objective is the same",
    ):
        assert claim not in text


def rewards_of_an_episode(name: str, seed_of_states: int) -> np.ndarray:
    """What a reward pays for the transitions of one episode, which is always the same but for its
    states."""
    reward, random = make_reward(name, **SMALL[name]), np.random.default_rng(0)
    visited = random.normal(size=(STEPS + 1, SPEC.observation_dim))
    same = {
        "observation": visited[:-1],
        "next_observation": visited[1:],
        "action": random.uniform(-1, 1, (STEPS, 2)),
    }
    states = np.random.default_rng(10 + seed_of_states).normal(size=(STEPS, SPEC.state_dim))
    known, notes = observe(
        reward, init(reward, KEY, SPEC), padded_episode(STEPS, STEPS, **same, state=states)
    )
    batch = transitions(STEPS, notes, **same, state=states)
    known, _ = update(reward, known, batch, KEY)
    return np.asarray(reward_of(reward, known, batch))


def mean_and_std(cell: str) -> tuple[float, float]:
    mean, std = cell.replace(",", "").split(" ± ")
    return float(mean), float(std)


def welch(mean: float, std: float, other_mean: float, other_std: float) -> float:
    return float(
        stats.ttest_ind_from_stats(mean, std, 5, other_mean, other_std, 5, equal_var=False).pvalue
    )


def holm(p_values: np.ndarray) -> np.ndarray:
    order = np.argsort(p_values)
    stepped = np.maximum.accumulate(p_values[order] * np.arange(len(p_values), 0, -1))
    corrected = np.empty_like(p_values)
    corrected[order] = np.minimum(stepped, 1.0)
    return corrected
