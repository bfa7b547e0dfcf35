"""Our PPO and Stable-Baselines3's, with the same settings, on the same tasks, for as many steps.

    python benchmarks/bench_ppo_peers.py ours sb3 --task cartpole --seeds 5 --out peers/
    python benchmarks/bench_ppo_peers.py table --out peers/

The settings are those of RL Baselines3 Zoo where they fit both (without state-dependent exploration
and without normalised observations). Stable-Baselines3 acts in the same environments, made by
`make_env`, with actions of a Box on the scale of their bounds, as ours are. Every file is one seed:
the returns of its training episodes with the step at which each ended. The table has means over the
episodes that ended within a tenth of the run, and the interval of Student's t over the seeds.
"""

import argparse
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from element_rl.agents.ppo import PPOConfig
from element_rl.envs.make import make_env
from element_rl.training.on_policy.config import OnPolicyConfig
from element_rl.training.on_policy.launch import create_run
from element_rl.training.on_policy.ppo_agent import PPOAgent
from element_rl.training.on_policy.training import train

TENTHS = 10
T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 10: 2.262}  # two-sided, by the number of seeds


class Task(NamedTuple):
    """A task, and the settings that both learners have on it."""

    env: str
    steps: int
    envs: int
    learner: PPOConfig


def settings(**given: Any) -> PPOConfig:
    usual = {"discount": 0.99, "gae_decay": 0.95, "clip": 0.2, "learning_rate": 3e-4}
    return PPOConfig(**{**usual, "entropy_weight": 0.0, **given})


# batch_size of Stable-Baselines3 is rollout_steps · envs / minibatches
TASKS = {
    # the zoo's: 8 × 32 steps, batches of 256, 20 epochs, both rates falling
    "cartpole": Task(
        "CartPole-v1",
        50_000,
        8,
        settings(
            rollout_steps=32,
            minibatches=1,
            epochs=20,
            discount=0.98,
            gae_decay=0.8,
            learning_rate=1e-3,
            anneal=True,
        ),
    ),
    # Stable-Baselines3's own defaults, 2,048 steps of 8 environments together
    "pendulum": Task(
        "InvertedPendulum-v5",
        100_000,
        8,
        settings(rollout_steps=256, minibatches=32, epochs=10),
    ),
}


def ours(task: Task, seed: int) -> list[tuple[int, float]]:
    """Step and return of every training episode."""
    found: list[tuple[int, float]] = []
    config = OnPolicyConfig(
        task.env,
        agent="ppo",
        reward="extrinsic",
        steps=task.steps,
        seed=seed,
        workers=0,
        envs_per_agent=task.envs,
        state_units=None if task.env != "CartPole-v1" else "raw",
        random_seeds=0,
        log_every=task.steps,
        checkpoint_every=task.steps,
        ppo=task.learner,
    )

    running = np.zeros(task.envs)

    learn_from = PPOAgent.learn_from

    def watched(self: PPOAgent, worker: int, rollout: Any) -> Any:
        for step, rewards in enumerate(rollout.rewards):
            running[:] += rewards
            for env in np.flatnonzero(rollout.ended[step]):
                found.append((self.steps + (step + 1) * task.envs, float(running[env])))
                running[env] = 0.0
        return learn_from(self, worker, rollout)

    folder = Path(tempfile.mkdtemp())
    try:
        PPOAgent.learn_from = watched  # type: ignore
        train(config, create_run(config, folder / "run"))
    finally:
        PPOAgent.learn_from = learn_from  # type: ignore[method-assign]
        shutil.rmtree(folder)
    return found


def sb3(task: Task, seed: int) -> list[tuple[int, float]]:
    """The same of Stable-Baselines3's PPO."""
    import gymnasium
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv

    torch.set_num_threads(1)
    learner = task.learner
    assert learner.rollout_steps is not None
    assert learner.minibatches is not None
    assert learner.epochs is not None
    assert learner.learning_rate is not None
    assert learner.clip is not None

    def made() -> gymnasium.Env:
        env = make_env(task.env)
        if isinstance(env.action_space, gymnasium.spaces.Box):
            env = gymnasium.wrappers.RescaleAction(env, -1.0, 1.0)
        return Monitor(env)

    found: list[tuple[int, float]] = []

    class Episodes(BaseCallback):
        def _on_step(self) -> bool:
            for info in self.locals["infos"]:
                if "episode" in info:
                    found.append((self.num_timesteps, float(info["episode"]["r"])))
            return True

    rate = learner.learning_rate
    model = PPO(
        "MlpPolicy",
        DummyVecEnv([made] * task.envs),
        n_steps=learner.rollout_steps,
        batch_size=learner.rollout_steps * task.envs // learner.minibatches,
        n_epochs=learner.epochs,
        gamma=learner.discount,
        gae_lambda=learner.gae_decay,
        clip_range=learner.clip,
        learning_rate=(lambda left: left * rate) if learner.anneal else rate,
        ent_coef=learner.entropy_weight or 0.0,
        seed=seed,
        device="cpu",
    )
    model.learn(task.steps, callback=Episodes())
    return found


def curve(episodes: list[tuple[int, float]], steps: int) -> list[float]:
    """Mean return of the episodes that ended within each tenth of the run."""
    array = np.array(episodes)
    which = np.minimum((array[:, 0] - 1) * TENTHS // steps, TENTHS - 1)
    return [
        float(array[which == tenth, 1].mean()) if (which == tenth).any() else float("nan")
        for tenth in range(TENTHS)
    ]


def table(folder: Path) -> None:
    for name, task in TASKS.items():
        for learner in ("ours", "sb3"):
            files = sorted(folder.glob(f"{name}_{learner}_*.json"))
            if not files:
                continue
            curves = np.array([curve(json.loads(file.read_text()), task.steps) for file in files])
            print(f"\n{task.env}, {learner}, {len(files)} seeds; tenths of {task.steps:,} steps")
            for file, row in zip(files, curves, strict=True):
                print(f"  {file.stem:24s}", " ".join(f"{value:9.1f}" for value in row))
            mean = curves.mean(axis=0)
            half = T_95.get(len(files), 1.96) * curves.std(axis=0, ddof=1) / len(files) ** 0.5
            print("  mean                    ", " ".join(f"{value:9.1f}" for value in mean))
            print("  ± (95 %)                ", " ".join(f"{value:9.1f}" for value in half))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="+", choices=("ours", "sb3", "table"))
    parser.add_argument("--task", choices=tuple(TASKS), default="cartpole")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for what in given.what:
        if what == "table":
            table(given.out)
            continue
        for seed in range(given.seeds):
            file = given.out / f"{given.task}_{what}_{seed}.json"
            if not file.exists():
                learned = {"ours": ours, "sb3": sb3}[what](TASKS[given.task], seed)
                file.write_text(json.dumps(learned))
                print(
                    file.stem,
                    [round(value, 1) for value in curve(learned, TASKS[given.task].steps)],
                )


if __name__ == "__main__":
    main()
