"""What the two studies of what exploration is for (`offline`, `transfer`) share: explorers, and the
task learned online.

Explorers of the robots that walk upright end their episodes by falling, as in the paper: what they
learn is then to move without falling, and that is what their tasks ask. Ant's do not, as everywhere
else in this library (docs/results/history/ant-series.md). The tasks themselves are Gymnasium's,
where a fall ends an episode of every robot. On frames the tasks are the environment's: to reach
Rooms-v0's goal, Mario's progress.
"""

import dataclasses
from pathlib import Path

from element_rl.agents.cql import CQLConfig
from element_rl.agents.discrete_cql import DiscreteCQLConfig
from element_rl.envs.robots import HEALTH_OPTION, can_fall
from element_rl.studies.engine import methods
from element_rl.studies.engine.environments import FRAMES, VECTORS, kind_of_environment
from element_rl.studies.engine.grid import Cell, Scale
from element_rl.studies.engine.methods import BASELINES, ROBOTS, baseline_cell, cell_of
from element_rl.training.finetune import FinetuneConfig
from element_rl.training.finetune.settings import REWARD_SCALES
from element_rl.training.offline import OfflineConfig
from element_rl.training.offline.algorithms import AlgorithmName, form_of

EXPLORERS = ("element", *BASELINES)
RANDOM = "random"
UPRIGHT = ("Hopper-v5", "Walker2d-v5", "Humanoid-v4")
RANDOM_STEPS = 50_000  # per seed, to know what a random policy gets


def on_frames(scale: Scale, **sizes: object) -> Scale:
    """The sizes on frames of a scale of explorers, with those of learning tasks."""
    assert scale.screens is not None
    return dataclasses.replace(scale.screens, **sizes)  # type: ignore[arg-type]


SMOKE = Scale(
    ("Pendulum-v1",),
    2,
    {"Pendulum-v1": 800},
    samples=800,
    task_steps=800,
    updates=200,
    options={
        "sac": {"hidden_sizes": (16,), "batch_size": 16, "learn_start": 200},
        "log_every": 200,
        "checkpoint_every": 400,
        "replay_size": 1_000,
    },
    offline_options={
        "evaluate_every": 100,
        "episodes": 1,
        "cql": CQLConfig(hidden_sizes=(16,), batch_size=16),
    },
    screens=on_frames(
        methods.SMOKE,
        task_steps=300,
        updates=4,
        offline_options={
            "evaluate_every": 2,
            "episodes": 1,
            "chunk_updates": 2,
            "workers": 0,
            "discrete_cql": DiscreteCQLConfig(hidden_sizes=(16,), batch_size=4),
        },
    ),
)
SMALL = Scale(
    ("Hopper-v5", "Walker2d-v5", "Ant-v5"),
    5,
    {"Hopper-v5": 400_000, "Walker2d-v5": 400_000, "Ant-v5": 1_000_000},
    samples=200_000,
    task_steps=400_000,
    updates=100_000,
    # A frame takes 7 kB, and an update of three agents on 32 images 0.8 s of two cores. One frame
    # shows no speed: four do.
    screens=on_frames(
        methods.SMALL,
        samples=50_000,
        task_steps=500_000,
        updates=10_000,
        offline_options={"frame_stack": 4, "discrete_cql": DiscreteCQLConfig(batch_size=32)},
    ),
)
PAPER = Scale(
    (*ROBOTS, "Humanoid-v4"),
    5,
    dict.fromkeys((*ROBOTS, "Humanoid-v4"), 5_000_000),
    samples=1_000_000,
    task_steps=1_000_000,
    updates=500_000,
    screens=on_frames(
        methods.PAPER,
        seeds=5,
        samples=1_000_000,
        task_steps=1_000_000,
        updates=500_000,
        offline_options={"frame_stack": 4},
    ),
)
SCALES = {"smoke": SMOKE, "small": SMALL, "paper": PAPER}


def explorer(env: str, method: str, scale: Scale) -> Cell:
    """A population that explores, for its policies."""
    falling = (f"{HEALTH_OPTION}=true",) if env in UPRIGHT else ()
    if method == "element":
        return cell_of(env, method, scale, env_options=falling)
    return baseline_cell(env, method, scale, env_options=falling)


def online(env: str, scale: Scale) -> Cell:
    """The task learned from its reward, from nothing, with the factor of the reward that
    fine-tuning has there."""
    kind, factor = kind_of_environment(env), REWARD_SCALES.get(env, 1.0)
    settings = {} if factor == 1.0 else {"reward_options": (f"scale={factor}",)}
    scale = _with_steps(env, scale.on(env).task_steps, scale)
    return cell_of(env, kind.learner, scale, reward="extrinsic", **settings)


def random(env: str, scale: Scale) -> Cell:
    """A random policy on the task."""
    task = (f"{HEALTH_OPTION}=true",) if can_fall(env) else ()
    steps = min(RANDOM_STEPS, scale.on(env).task_steps)
    return cell_of(env, RANDOM, _with_steps(env, steps, scale), reward="random", env_options=task)


def _with_steps(env: str, steps: int, scale: Scale) -> Scale:
    return dataclasses.replace(scale.on(env), steps={env: steps})


def with_learning(
    scale: Scale,
    conservative_weight: float | None = None,
    algorithm: AlgorithmName | None = None,
    anchor: float | None = None,
    anchor_halflife: float | None = None,
) -> Scale:
    """The scale with other settings of those who learn the tasks: from data (CQL, or another
    algorithm), or on from a policy (SAC)."""
    given = {"anchor": anchor, "anchor_halflife": anchor_halflife}
    finetune = {name: value for name, value in given.items() if value is not None}
    if finetune and any(kind_of_environment(env) is FRAMES for env in scale.envs):
        raise ValueError(
            "--anchor is of SAC, and on screens it is A3C that learns: choose robots, or leave it "
            "out."
        )
    if anchor_halflife is not None and not anchor:
        raise ValueError("--anchor-halflife says how an anchor fades: give --anchor too.")
    # says what is wrong with them
    FinetuneConfig(Path(), anchor=anchor or 0.0, anchor_halflife=anchor_halflife)
    scale = dataclasses.replace(scale, finetune_options=finetune)
    if algorithm is not None:
        scale = _with_algorithm(scale, algorithm, conservative_weight)
    if conservative_weight is None:
        return scale
    if not conservative_weight >= 0:
        raise ValueError(f"--conservative-weight must not be negative, got {conservative_weight}.")
    screens = scale.screens and _weighted(
        scale.screens, FRAMES.offline_learner, conservative_weight
    )
    scale = _weighted(scale, VECTORS.offline_learner, conservative_weight)
    return dataclasses.replace(scale, screens=screens)


def _with_algorithm(
    scale: Scale, algorithm: AlgorithmName, conservative_weight: float | None
) -> Scale:
    """The scale with another algorithm that learns offline, where it can."""
    if conservative_weight is not None and algorithm != "cql":
        raise ValueError(
            f"--conservative-weight is of CQL, not of {algorithm}: leave one of the two out."
        )
    for env in scale.envs:
        # says where it cannot
        form_of(algorithm, discrete=kind_of_environment(env) is FRAMES)
    chosen = {"algorithm": algorithm}
    screens = scale.screens and dataclasses.replace(
        scale.screens, offline_options={**scale.screens.offline_options, **chosen}
    )
    return dataclasses.replace(
        scale, screens=screens, offline_options={**scale.offline_options, **chosen}
    )


def _weighted(scale: Scale, learner: str, weight: float) -> Scale:
    """The scale with another conservative weight of those who learn offline."""
    config = getattr(OfflineConfig(("any",), **scale.offline_options), learner)
    weighted = {learner: dataclasses.replace(config, conservative_weight=weight)}
    return dataclasses.replace(scale, offline_options={**scale.offline_options, **weighted})
