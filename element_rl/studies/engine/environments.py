"""What differs between the two kinds of environments that a study can have, as data.

    VECTORS   flat Box spaces, such as robots: SAC learns from a replay, CQL from a dataset
    FRAMES    images and a few actions, such as Mario: A3C learns from rollouts, in the states of an
              encoder that all cells of the environment share; discrete CQL learns from a dataset

No other module of the studies asks which kind an environment or a run is of. On frames the paper's
form of ELEMENT is the default: there r_ep is a reward of places (docs/results/rooms.md).

The baselines have the official settings of their papers, and one thing more: their reward is scaled
as its learner needs it. SAC weighs a reward against the entropy of its policy, so that an unscaled
bonus that shrinks, as RND's does, would be compared by its size and not by what it rewards
(docs/results/point-maze.md): it is divided by its recent deviation. A3C does not normalise
advantages: there it is divided by the running deviation of its discounted return, as in RND's
paper. ELEMENT's terms are within [0, 1] by themselves.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Integer

from element_rl.envs.make import describe, is_screen
from element_rl.envs.spec import EnvSpec, coverage_cell
from element_rl.runs.folder import RunFolder
from element_rl.runs.kinds import kind_of
from element_rl.storage.settings import settings_from_json
from element_rl.training.off_policy.config import ExploreConfig, config_from_json, parsed_options
from element_rl.training.off_policy.resolving import described
from element_rl.training.on_policy.config import OnPolicyConfig, env_options


@dataclass(frozen=True)
class EnvKind:
    """How agents learn in environments of a kind."""

    command: str  # that makes a population explore
    config: type[ExploreConfig] | type[OnPolicyConfig]  # its settings
    learner: str  # the field of them for the learner; the method that learns a task online
    has_encoder: bool  # whether agents are measured in the states of an encoder that was trained
    offline_learner: str  # the field of OfflineConfig for what learns from a dataset
    draws_actions: bool  # whether a learned policy acts as it was trained to, or by its best action
    baseline_settings: Mapping[str, Any]
    # of ELEMENT as the paper prints it, where that is not the default
    printed_form: Mapping[str, Any] = field(default_factory=dict)


VECTORS = EnvKind(
    "explore",
    ExploreConfig,
    "sac",
    has_encoder=False,
    offline_learner="cql",
    draws_actions=False,
    baseline_settings={"recent_scale": True},
    printed_form={"credit": "episode", "bandwidth": 1.0},
)
FRAMES = EnvKind(
    "on-policy",
    OnPolicyConfig,
    "a3c",
    has_encoder=True,
    offline_learner="discrete_cql",
    draws_actions=True,
    baseline_settings={"scale_reward": True},
)
ONLINE = (VECTORS.learner, FRAMES.learner)  # methods that learn a task from its reward


def shows_frames(env: str) -> bool:
    """Whether an environment shows images and takes one of a few actions."""
    return is_screen(env)


def kind_of_environment(env: str) -> EnvKind:
    return FRAMES if shows_frames(env) else VECTORS


def kind_of_run(run: RunFolder) -> EnvKind:
    """The kind of the environment in which a population explored."""
    return FRAMES if kind_of(run.config) == FRAMES.command else VECTORS


def describe_environment(env: str, **options: Any) -> EnvSpec:
    return describe(env, **options)


def map_cells(run: RunFolder, positions: Float[np.ndarray, "T 2"]) -> Integer[np.ndarray, " T"]:
    """The cell of a run's coverage map in which each position is."""
    settings = run.config["settings"]
    if kind_of_run(run) is FRAMES:
        config = settings_from_json(OnPolicyConfig, settings)
        return coverage_cell(describe(config.env, **env_options(config)), positions)
    spec = described(settings, parsed_options(config_from_json(settings)))
    return np.asarray(coverage_cell(spec, positions))
