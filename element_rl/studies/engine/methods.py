"""Cells of a study that explore: ELEMENT, the baselines of the paper and a random policy, the same
in every study, so that studies share their runs. `environments.py` says how they learn where."""

import dataclasses

from element_rl.encoders.stdim import NetworkConfig
from element_rl.envs.names import MARIO
from element_rl.rewards import NAMES, TRAINING_NAMES, check_name
from element_rl.rewards.expression import parsed
from element_rl.studies.engine.environments import kind_of_environment
from element_rl.studies.engine.grid import Cell, Scale
from element_rl.training.encoder.config import PretrainConfig
from element_rl.training.off_policy.config import ELEMENTS

ROBOTS = ("Ant-v5", "Hopper-v5", "Walker2d-v5")
TRAINING_ONLY = tuple(set(TRAINING_NAMES) - set(NAMES))  # no rewards of the registry
BASELINES = ("rnd", "ngu", "re3", "rise")
# A random policy that keeps its actions for a while gets further, and its encoder knows more of
# positions (docs/encoder.md).
ENCODER = {"hold_steps": 8}
# Most of the time of a smoke test goes into compiling and starting processes; the rest is kept so
# small that all of it, learning too, is over in a minute.
SMOKE = Scale(
    ("PointMaze-v0",),
    2,
    {"PointMaze-v0": 600},
    samples=1_000,
    options={
        "sac": {"hidden_sizes": (16,), "batch_size": 16, "learn_start": 450},
        "env_options": ("max_episode_steps=100",),
        "log_every": 60,
        "replay_size": 1_000,
    },
    screens=Scale(
        (MARIO,),
        2,
        {MARIO: 300},
        samples=200,
        options={
            "a3c": {"channels": (4,), "hidden_size": 8, "local_steps": 20},
            "workers": 0,
            "env_options": ("max_episode_steps=60",),
            "log_every": 60,
            "checkpoint_every": 150,
        },
        encoder_options={
            "steps": 600,
            "workers": 0,
            "entropy_threshold": 0.0,
            "epochs": 1,
            "epoch_updates": 5,
            "batch_size": 16,
            "network": NetworkConfig(8, (4, 8), (8, 4), (4, 4), 16),
        },
    ),
)
SMALL = Scale(
    ROBOTS,
    5,
    {"Ant-v5": 1_000_000, "Hopper-v5": 400_000, "Walker2d-v5": 400_000},
    screens=Scale((MARIO,), 3, {MARIO: 500_000}, encoder_options=ENCODER),
)
PAPER = Scale(
    (*ROBOTS, "Humanoid-v4"),
    10,
    dict.fromkeys((*ROBOTS, "Humanoid-v4"), 5_000_000),
    screens=Scale((MARIO,), 10, {MARIO: 5_000_000}, encoder_options=ENCODER),
)
SCALES = {"smoke": SMOKE, "small": SMALL, "paper": PAPER}


def cell_of(env: str, method: str, scale: Scale, **settings: object) -> Cell:
    """A cell with the settings that all studies have in common, after the encoder that it needs."""
    scale, kind = scale.on(env), kind_of_environment(env)
    needs = (encoder_cell(env, scale),) if kind.has_encoder else ()
    if needs:
        settings["encoder"] = needs[0].reference
    sizes = {"steps": scale.steps[env], "seeds": scale.seeds, "seed": scale.first_seed}
    sizes["random_seeds"] = 0
    config = kind.config(env, **sizes, **settings)  # type: ignore[arg-type]
    options = dict(scale.options)
    learner = dataclasses.replace(getattr(config, kind.learner), **options.pop(kind.learner, {}))
    config = dataclasses.replace(config, **{kind.learner: learner}, **options)
    return Cell(env, method, config, needs)


def encoder_cell(env: str, scale: Scale) -> Cell:
    """The encoder of an environment, trained by ST-DIM on what a random policy sees: one for all
    methods and seeds, in the environment that they act in."""
    given = {name: scale.options[name] for name in ("env_options",) if name in scale.options}
    seed = scale.first_seed
    return Cell(env, "encoder", PretrainConfig(env, seed=seed, **given, **scale.encoder_options))


def element_cells(
    env: str, scale: Scale, method: str = "element", **settings: object
) -> list[Cell]:
    """ELEMENT as it is by default and, where that differs, as the paper prints it: there all states
    of an episode are paid alike, and σ = 1."""
    ours = cell_of(env, method, scale, **settings)
    if not (printed := kind_of_environment(env).printed_form):
        return [ours]
    return [ours, cell_of(env, f"{method} (paper)", scale, **printed, **settings)]


def baseline_cell(env: str, name: str, scale: Scale, **settings: object) -> Cell:
    """A cell of another method, its reward scaled as its learner needs it."""
    scaled = kind_of_environment(env).baseline_settings
    return cell_of(env, name, scale, reward=name, **scaled, **settings)


def reward_cell(env: str, name: str, scale: Scale) -> Cell:
    """A cell of any reward, named as on the command line: one of the library's, a function in a
    file, or a sum. What has no scale of its own is scaled as its learner needs it."""
    check_name(name, TRAINING_NAMES)
    if name in ELEMENTS or name in TRAINING_ONLY or parsed(name).name is None:
        return cell_of(env, name, scale, reward=name)
    return baseline_cell(env, name, scale)


def baseline_cells(env: str, scale: Scale) -> list[Cell]:
    """The paper's four, and a random policy to show where nobody learns."""
    cells = [baseline_cell(env, name, scale) for name in BASELINES]
    return [*cells, cell_of(env, "random", scale, reward="random")]
