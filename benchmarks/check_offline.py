"""Does offline learning learn? CQL and behaviour cloning on data of a half-trained SAC agent, from
nothing to a table.

    1. SAC learns the task (`explore` with the extrinsic reward). The behaviour is its first
       checkpoint that has come `--share` of the way from a random policy's return to the best
       checkpoint's: a medium agent, and no explorer of ours.
    2. Two datasets of as many steps are recorded. medium: the behaviour, sampled. mixed: half
       behaviour, half random actions.
    3. CQL and behaviour cloning learn from both, `--seeds` agents each.

The table has returns, and scores: 0 is the random policy, 1 the behaviour. Asked for are a score of
CQL of at least 0.8 on medium and more than behaviour cloning's on mixed. (Where all returns are
positive, as in Hopper, a score of 0.8 is more than 80 % of the behaviour's return.)

    # on a GPU
    python -m benchmarks.check_offline --env Hopper-v5 --sac-steps 300000 --samples 200000 \\
        --updates 200000
    # on two cores
    python -m benchmarks.check_offline --env Pendulum-v1 --small
"""

import dataclasses
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from benchmarks.tables import markdown_table, provenance, source_line
from element_rl.acting.host_policy import policy_action
from element_rl.agents.behaviour_cloning import CloningConfig
from element_rl.agents.cql import CQLConfig
from element_rl.agents.sac import SACConfig
from element_rl.datasets.minari_files import EpisodeRecord, write_dataset
from element_rl.envs.make import make_env
from element_rl.evaluate.checkpoints import evaluate
from element_rl.storage.files import write_json
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.off_policy.explore import explore
from element_rl.training.off_policy.launch import create_run
from element_rl.training.offline import create_offline_run, train_offline
from element_rl.training.offline.config import OfflineConfig

PACKAGES = ("jax", "gymnasium", "mujoco")
DATASETS = ("check/medium-v0", "check/mixed-v0")


@dataclass(frozen=True)
class Settings:
    """What to check."""

    env: str = "Hopper-v5"
    sac_steps: int = 300_000  # of the agent that becomes the behaviour
    samples: int = 200_000  # steps per dataset
    updates: int = 200_000  # of each offline agent
    seeds: int = 3  # offline agents per dataset and algorithm
    seed: int = 0
    # of the way from random to the best checkpoint: where the behaviour is taken
    share: float = 0.5
    small: bool = False  # networks of 2 × 64, small batches and fast rates, for a CPU
    cql: CQLConfig = dataclasses.field(default_factory=CQLConfig)  # unless --small
    bc: CloningConfig = dataclasses.field(default_factory=CloningConfig)
    standardise: bool = True
    reward_scale: float = 1.0
    out: Path = Path(".cache/benchmarks/check_offline")  # overwritten


SMALL_CQL = CQLConfig(
    hidden_sizes=(64, 64),
    batch_size=128,
    sampled_actions=4,
    conservative_weight=2.0,
    actor_learning_rate=1e-3,
    critic_learning_rate=1e-3,
    temperature_learning_rate=1e-3,
    initial_temperature=0.1,
    discount=0.98,
    target_rate=0.02,
)
SMALL_BC = CloningConfig(hidden_sizes=(64, 64), learning_rate=1e-3, batch_size=128)


def main(settings: Settings) -> list[dict[str, Any]]:
    """Everything; the rows of the table."""
    if settings.small:
        settings = dataclasses.replace(settings, cql=SMALL_CQL, bc=SMALL_BC)
    shutil.rmtree(settings.out, ignore_errors=True)
    policy, step = medium_policy(settings)
    random, behaviour = record_datasets(settings, policy)
    print(
        f"behaviour: SAC at step {step:,}, return {behaviour:,.1f}; random {random:,.1f}",
        flush=True,
    )
    rows = []
    for algorithm in ("cql", "bc"):
        config = OfflineConfig(
            DATASETS,
            algorithm=algorithm,
            steps=settings.updates,
            seeds=settings.seeds,
            seed=settings.seed,
            root=str(settings.out / "datasets"),
            score_range=(random, behaviour),
            standardise=settings.standardise,
            reward_scale=settings.reward_scale,
            cql=settings.cql,
            bc=settings.bc,
        )
        summary = train_offline(config, create_offline_run(config, settings.out / algorithm))
        for index, dataset in enumerate(DATASETS):
            own = slice(index * settings.seeds, (index + 1) * settings.seeds)
            numbers = {
                "dataset": dataset,
                "algorithm": algorithm,
                "data": summary["behaviour_return"][own][0],
            }
            rows.append(
                numbers
                | {
                    "returns": summary["extrinsic_return"][own],
                    "scores": summary["normalised_score"][own],
                }
            )
            print(rows[-1], flush=True)
    text = f"{render(rows)}\n\n{verdict(rows)} {source_line(provenance(PACKAGES))}"
    write_json(
        settings.out / "check.json",
        {"settings": settings, "random": random, "behaviour": behaviour, "rows": rows},
    )
    print(text)
    return rows


def medium_policy(settings: Settings) -> tuple[dict[str, np.ndarray], int]:
    """Parameters of the behaviour, and the step of its checkpoint."""
    sac = SACConfig(hidden_sizes=(64, 64)) if settings.small else SACConfig()
    config = ExploreConfig(
        settings.env,
        reward="extrinsic",
        steps=settings.sac_steps,
        seed=settings.seed,
        checkpoint_every=max(settings.sac_steps // 20, 1),
        replay_size=max(settings.sac_steps, 10_000),
        sac=sac,
    )
    run = create_run(config, settings.out / "sac")
    summary = explore(config, run)
    rows = evaluate(run, episodes=5)
    random = summary["random_policy"]["extrinsic_return"][0]
    wanted = random + settings.share * (max(row["extrinsic_return"] for row in rows) - random)
    step = next(row["step"] for row in rows if row["extrinsic_return"] >= wanted)
    return {name: array[0] for name, array in run.load_policy(step).items()}, step


def record_datasets(settings: Settings, policy: dict[str, np.ndarray]) -> tuple[float, float]:
    """Writes both datasets; the mean returns of random actions and of the behaviour."""
    behaviour = list(recorded(settings, policy, settings.samples, 1))
    at_random = list(recorded(settings, None, settings.samples // 2, 2))
    half = list(recorded(settings, policy, settings.samples // 2, 3))
    env = make_env(settings.env)
    for name, records in zip(DATASETS, (behaviour, half + at_random), strict=True):
        spaces = (env.observation_space, env.action_space)
        write_dataset(name, records, *spaces, env.spec, root=settings.out / "datasets")
    env.close()
    mean_random, mean_behaviour = (
        float(np.mean([record.rewards.sum() for record in each])) for each in (at_random, behaviour)
    )
    return mean_random, mean_behaviour


def recorded(
    settings: Settings, policy: dict[str, np.ndarray] | None, steps: int, stream: int
) -> Iterator[EpisodeRecord]:
    """Whole episodes of a policy that is sampled from, or of uniform actions, until there are so
    many steps."""
    env = make_env(settings.env)
    rng = np.random.default_rng([settings.seed, stream])
    low, high = env.action_space.low, env.action_space.high
    done_steps = 0
    while done_steps < steps:
        observations, actions, rewards, done = (
            [env.reset(seed=int(rng.integers(2**31)))[0]],
            [],
            [],
            False,
        )
        while not done:
            observation = np.asarray(observations[-1], np.float32)
            noise = rng.standard_normal(low.shape).astype(np.float32)
            action = (
                policy_action(policy, observation, noise)
                if policy
                else rng.uniform(-1, 1, low.shape)
            )
            actions.append((low + (action + 1) / 2 * (high - low)).astype(np.float32))
            following, reward, terminated, truncated, _ = env.step(actions[-1])
            observations.append(following)
            rewards.append(float(reward))
            done = terminated or truncated
        done_steps += len(rewards)
        last = np.arange(len(rewards)) == len(rewards) - 1
        yield EpisodeRecord(
            np.array(observations),
            np.array(actions),
            np.array(rewards),
            last & terminated,
            last & truncated,
        )
    env.close()


def render(rows: list[dict[str, Any]]) -> str:
    """The table."""
    header = [
        "dataset",
        "algorithm",
        "return of the data",
        "return (lowest to highest)",
        "score (lowest to highest)",
    ]
    return markdown_table(
        header,
        [
            [
                row["dataset"],
                row["algorithm"],
                f"{row['data']:,.1f}",
                _spread(row["returns"], 1),
                _spread(row["scores"], 2),
            ]
            for row in rows
        ],
    )


def verdict(rows: list[dict[str, Any]]) -> str:
    """Whether both demands are met."""
    score = {(row["dataset"], row["algorithm"]): float(np.mean(row["scores"])) for row in rows}
    medium, mixed = DATASETS
    first = score[medium, "cql"] >= 0.8
    second = score[mixed, "cql"] > score[mixed, "bc"]
    answers = ["yes" if holds else "no" for holds in (first, second)]
    return f"CQL at 0.8 or above on medium: {answers[0]}. CQL above BC on mixed: {answers[1]}."


def _spread(values: list[float], digits: int) -> str:
    return f"{np.mean(values):,.{digits}f} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"


if __name__ == "__main__":
    main(tyro.cli(Settings))
