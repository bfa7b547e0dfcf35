"""Does the plug-in make Stable-Baselines3 explore? Coverage of the point maze by SAC and PPO, with
it and without.

    sac, ppo                  the environment's own reward, which is 0 outside the last room, where
                              nobody gets
    sac+element, ppo+element  the intrinsic reward alone; any other reward of the library in its
                              place
    random-40000              actions drawn uniformly, for as many steps

Coverage is what `element explore` logs: cells of 0.1 visited since the beginning (of 10,000, a
third of them wall), here counted by a wrapper around the environment, so that all arms are counted
alike. All settings of the learners are the same with and without the plug-in. Each run is a process
with one thread; runs are kept and not run again.

    python -m benchmarks.sb3_point_maze --seeds 5 --together 2

Needs `pip install -e '.[sb3]'` (PyTorch as its CPU build).
"""

import dataclasses
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import tyro

from benchmarks.bench_coverage import rooms_entered
from benchmarks.tables import ROOT, markdown_table, provenance, replace_table, source_line
from element_rl.envs.make import describe
from element_rl.envs.point_maze import EPISODE_STEPS, PointMaze
from element_rl.envs.spec import CELLS_PER_AXIS, coverage_cell
from element_rl.storage.files import write_json
from element_rl.studies.engine.statistics import interquartile_mean

PAGE = ROOT / "docs" / "results" / "sb3.md"
PACKAGES = ("stable-baselines3", "torch", "jax", "gymnasium", "numpy")
CURVE_STEPS = 1_000  # between two points of the curve of coverage
POSITION = ("x_position", "y_position")  # entries of info that enter ELEMENT's state

# The same for all arms of a learner. Small networks: the maze has two dimensions, and the test is
# to run on a laptop.
SAC_SETTINGS: dict[str, Any] = {
    "policy_kwargs": {"net_arch": [64, 64]},
    "batch_size": 128,
    "learning_starts": 1_000,
    "buffer_size": 100_000,
    "target_entropy": 0.0,  # as in docs/results/point-maze.md
}
PPO_SETTINGS: dict[str, Any] = {"n_steps": 250, "batch_size": 125}
PPO_ENVS = 4
# 1 − γ: returns are then about 1, which PPO's value function and its clipped gradients need
PPO_WEIGHT = 0.01
# Of ELEMENT with PPO: states are remembered all the time, not a tenth of it, and terms are scaled
# by the last 5 rollouts. Chosen on seed 0 among seven; seeds begin at 10, so that none that chose
# is counted.
PPO_ELEMENT: dict[str, Any] = {
    "update_interval": 2_000,
    "update_steps": 2_000,
    "recent_rollouts": 5,
}


@dataclass(frozen=True)
class Settings:
    """What to run."""

    arms: tuple[str, ...] = ("sac", "sac+element", "ppo", "ppo+element", "random")
    seeds: int = 5
    sac_steps: int = 15_000  # environment steps of every run with SAC
    ppo_steps: int = 60_000  # the same for PPO, all its environments together
    together: int = 2  # runs at the same time
    first_seed: int = 10
    out: Path = Path("runs/sb3-point-maze")
    page: bool = False  # write the table into docs/results/sb3.md
    run: str = ""  # an arm to run here and now, with the first seed


def main(settings: Settings) -> list[dict[str, Any]]:
    """Run what has not been run, then the table."""
    if settings.run:
        return [run_arm(settings, settings.run, settings.first_seed)]
    seeds = range(settings.first_seed, settings.first_seed + settings.seeds)
    waiting = [(arm, seed) for seed in seeds for arm in _expanded(settings)]
    _run_all(settings, [one for one in waiting if not _result_path(settings, *one).exists()])
    missing = [
        f"{arm} {seed}" for arm, seed in waiting if not _result_path(settings, arm, seed).exists()
    ]
    if missing:
        raise SystemExit(f"Not finished: {', '.join(missing)}; see the logs in {settings.out}.")
    results = [json.loads(_result_path(settings, *one).read_text()) for one in waiting]
    text = f"{render(results)}\n\n{source_line(_made_with(results))}"
    print(text)
    if settings.page:
        replace_table(PAGE, "sb3-point-maze", text)
    return results


def run_arm(settings: Settings, arm: str, seed: int) -> dict[str, Any]:
    """Train one arm with one seed, and write what it visited."""
    learner, _, reward = arm.partition("+")
    began = time.perf_counter()
    visits = Visits()
    steps = _steps(settings, arm)
    if learner.startswith("random"):
        _wander(steps, seed, visits)
    else:
        import torch

        torch.set_num_threads(1)
        {"sac": _learn_sac, "ppo": _learn_ppo}[learner](steps, seed, reward, visits)
    result = {
        "arm": arm,
        "seed": seed,
        "steps": steps,
        "cells": visits.cells,
        "curve": visits.curve,
        "rooms": rooms_entered(visits.map),
        "seconds": time.perf_counter() - began,
        "made_with": provenance(PACKAGES),
    }
    settings.out.mkdir(parents=True, exist_ok=True)
    np.save(_result_path(settings, arm, seed).with_suffix(".npy"), visits.map)
    write_json(_result_path(settings, arm, seed), result)
    return result


class Visits:
    """How often each cell was visited, by all environments of an agent; and how many had been after
    every 1,000 steps."""

    def __init__(self) -> None:
        self.counts = np.zeros(CELLS_PER_AXIS**2, np.int32)
        self.steps = 0
        self.curve: list[int] = []
        self._map = describe("PointMaze-v0")

    def see(self, info: dict[str, Any]) -> None:
        """One step led there."""
        self.counts[coverage_cell(self._map, np.array([info[name] for name in POSITION]))] += 1
        self.steps += 1
        if self.steps % CURVE_STEPS == 0:
            self.curve.append(self.cells)

    @property
    def cells(self) -> int:
        return int(np.count_nonzero(self.counts))

    @property
    def map(self) -> np.ndarray:
        return self.counts.reshape(CELLS_PER_AXIS, CELLS_PER_AXIS)


class CountVisits(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Counts the cells a point has been in after each step."""

    def __init__(self, env: gymnasium.Env[Any, Any], visits: Visits) -> None:
        super().__init__(env)
        self.visits = visits

    def step(self, action: Any) -> Any:
        outcome = self.env.step(action)
        self.visits.see(outcome[4])
        return outcome


def make_maze(visits: Visits) -> gymnasium.Env[Any, Any]:
    """The library's point maze, with its visits counted in `visits`."""
    return CountVisits(gymnasium.wrappers.TimeLimit(PointMaze(), EPISODE_STEPS), visits)


def _learn_sac(steps: int, seed: int, reward: str, visits: Visits) -> None:
    from stable_baselines3 import SAC

    from element_rl.integrations.sb3 import IntrinsicReplayBuffer

    settings = dict(SAC_SETTINGS)
    if reward:
        settings["replay_buffer_class"] = IntrinsicReplayBuffer
        settings["replay_buffer_kwargs"] = {
            "reward": reward,
            "total_steps": steps,
            **_bonus_settings(seed),
        }
        # SAC minds the size of a reward
        settings["replay_buffer_kwargs"]["recent_scale"] = reward != "element"
    SAC("MlpPolicy", make_maze(visits), seed=seed, device="cpu", **settings).learn(
        steps, log_interval=None
    )


def _learn_ppo(steps: int, seed: int, reward: str, visits: Visits) -> None:
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import DummyVecEnv

    from element_rl.integrations.sb3 import IntrinsicCallback

    mazes = DummyVecEnv([lambda: make_maze(visits)] * PPO_ENVS)
    options = PPO_ELEMENT if reward == "element" else {}
    bonus = {"weight": PPO_WEIGHT, "options": options, **_bonus_settings(seed)}
    callback = IntrinsicCallback(reward, **bonus) if reward else None
    PPO("MlpPolicy", mazes, seed=seed, device="cpu", **PPO_SETTINGS).learn(
        steps, callback=callback, log_interval=None
    )


def _wander(steps: int, seed: int, visits: Visits) -> None:
    maze = make_maze(visits)
    maze.action_space.seed(seed)
    maze.reset(seed=seed)
    for _ in range(steps):
        if maze.step(maze.action_space.sample())[3]:
            maze.reset()


def _bonus_settings(seed: int) -> dict[str, Any]:
    return {"max_episode_steps": EPISODE_STEPS, "position": POSITION, "seed": seed}


def render(results: list[dict[str, Any]]) -> str:
    """One line per arm, those with as many steps together."""
    header = [
        "agent",
        "steps",
        "cells: mean",
        "IQM",
        "lowest–highest",
        "× random",
        "rooms entered, per seed",
        "seconds",
    ]
    cells = {
        arm: np.array([r["cells"] for r in results if r["arm"] == arm]) for arm in _arms_of(results)
    }
    lines = []
    for arm, values in cells.items():
        mine = [result for result in results if result["arm"] == arm]
        steps = mine[0]["steps"]
        random = cells.get(f"random-{steps}")
        lines.append(
            [
                arm.split("-")[0]
                .replace("sac", "SB3 SAC")
                .replace("ppo", "SB3 PPO")
                .replace("+", " + "),
                f"{steps:,}",
                f"{values.mean():,.0f}",
                f"{float(interquartile_mean(values)):,.0f}",
                f"{values.min():,}–{values.max():,}",
                "–" if random is None else f"{values.mean() / random.mean():.2f}",
                ", ".join(
                    str(number)
                    for number in sorted((result["rooms"] for result in mine), reverse=True)
                ),
                f"{np.median([result['seconds'] for result in mine]):.0f}",
            ]
        )
    return markdown_table(header, lines)


def _arms_of(results: list[dict[str, Any]]) -> list[str]:
    """Arms in the order of their steps, most cells first among those with as many."""
    arms = {result["arm"]: result["steps"] for result in results}
    mean = {
        arm: np.mean([result["cells"] for result in results if result["arm"] == arm])
        for arm in arms
    }
    return sorted(arms, key=lambda arm: (arms[arm], -mean[arm]))


def _run_all(settings: Settings, waiting: list[tuple[str, int]]) -> None:
    """So many at a time; a free place is filled at once."""
    settings.out.mkdir(parents=True, exist_ok=True)
    running: dict[tuple[str, int], subprocess.Popen[bytes]] = {}
    while waiting or running:
        while waiting and len(running) < settings.together:
            one = waiting.pop(0)
            running[one] = _start(settings, *one)
        time.sleep(0.2)
        for one in [one for one, process in running.items() if process.poll() is not None]:
            code = running.pop(one).returncode
            print(
                f"{one[0]}, seed {one[1]}: {'done' if code == 0 else f'exit code {code}'}",
                flush=True,
            )


def _start(settings: Settings, arm: str, seed: int) -> subprocess.Popen[bytes]:
    alone = dataclasses.replace(settings, run=arm, first_seed=seed)
    sizes = [
        "--sac-steps",
        str(alone.sac_steps),
        "--ppo-steps",
        str(alone.ppo_steps),
        "--out",
        str(alone.out),
    ]
    command = [
        sys.executable,
        "-m",
        "benchmarks.sb3_point_maze",
        "--run",
        arm,
        "--first-seed",
        str(seed),
        *sizes,
    ]
    with _result_path(settings, arm, seed).with_suffix(".log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)


def _expanded(settings: Settings) -> list[str]:
    """The arms, random actions once for each number of steps there is."""
    learners = [arm for arm in settings.arms if arm != "random"]
    lengths = (
        sorted({_steps(settings, arm) for arm in learners}) if "random" in settings.arms else []
    )
    return [*learners, *(f"random-{steps}" for steps in lengths)]


def _steps(settings: Settings, arm: str) -> int:
    if arm.startswith("random-"):
        return int(arm.partition("-")[2])
    return settings.sac_steps if arm.startswith("sac") else settings.ppo_steps


def _result_path(settings: Settings, arm: str, seed: int) -> Path:
    return settings.out / f"{arm}-seed{seed}.json"


def _made_with(results: list[dict[str, Any]]) -> dict[str, str]:
    """Of the newest run; the commits of all."""
    commits = sorted({result["made_with"]["commit"] for result in results})
    return {**results[-1]["made_with"], "commit": ", ".join(commits)}


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
