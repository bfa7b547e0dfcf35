"""The settings of a run of `explore`, and how the ones left open are decided."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import tyro

from element_rl.agents.sac import SACConfig
from element_rl.envs.robots import HEALTH_OPTION, EnvSpec, can_fall, describe
from element_rl.rewards import Reward, make_reward
from element_rl.rewards.element import ElementConfig, ElementReward, replay_defaults, resolved_memory, update_window
from element_rl.rewards.recent_scale import RecentlyScaled
from element_rl.settings import named_values, settings_from_json

SMALLEST_CHUNK = 8


@dataclass(frozen=True)
class ExploreConfig:
    """What to train, on what, for how long. `None` means: as this robot has it, or as fits the run."""

    env: tyro.conf.Positional[
        str
    ]  # a Gymnasium environment: Ant-v5, Hopper-v5, Walker2d-v5, Humanoid-v4, or any other with Box spaces
    # what the agents learn from: element, rnd, ngu, re3, rise, apt, icm, e3b, extrinsic, random (they act at random and do not
    # learn), or FILE.py:FUNCTION, a function of your own that returns a reward
    reward: str = "element"
    reward_options: tuple[str, ...] = ()  # NAME=VALUE pairs for the reward, e.g. learning_rate=1e-3, or renyi_order=2
    steps: int = 1_000_000  # environment steps per seed
    seeds: int = 1  # how many agents are trained at once
    seed: int = 0  # of the first agent; the others count up from it
    beta: float | None = None  # weight of the lifelong reward (0.5); 0 for the episodic reward alone
    episodic_weight: float = 1.0  # weight of the episodic reward; 0 for the lifelong reward alone
    memory: Literal["auto", "exact", "graph", "hnsw"] = "auto"  # of remembered states
    estimator: Literal["renyi", "kde", "knn"] | None = None  # of the episodic entropy
    bandwidth: float | None = None  # σ of the kernel of renyi and kde (1; with kde 0.1, where the paper has 1)
    lifelong_estimator: Literal["knn", "kde", "renyi2"] = "knn"  # which lifelong reward of Proposition 2
    # of ELEMENT's terms: minimum and maximum over the batch, or over all so far; or mean and deviation over the batch
    normalisation: Literal["batch", "running", "standard"] = "batch"
    # who earns an episode's entropy: each state what itself adds to it, or all alike (episode, the paper's form)
    credit: Literal["episode", "state"] = "state"
    length_weighted: bool = False  # weigh episodes of unequal length as the paper's appendix does
    update_interval: int | None = None  # U (500,000; a tenth of the steps where the run is shorter than 5 million)
    update_steps: int | None = None  # T_u (a tenth of U)
    replay_size: int = 1_000_000  # transitions kept per agent
    chunk_steps: int = 64  # steps between two refreshes of the acting policy; lowered to divide the steps
    log_every: int | None = None  # steps between two lines of metrics (a hundredth of the steps, 500 to 10,000)
    checkpoint_every: int | None = None  # steps between two checkpoints (U)
    workers: int | None = None  # environment processes (one per agent); 0 steps them in this process
    random_seeds: int = 1  # seeds of a random policy run for comparison at the end; 0 for none
    reward_scale: float = 1.0  # multiplies the extrinsic reward
    recent_scale: bool = False  # divide a reward (not element's) by its recent standard deviation: SAC minds its size
    # How many times the environment's own reward is added to the intrinsic one; with 0 the agents learn from that alone.
    extrinsic_weight: float = 0.0
    # NAME=VALUE pairs for the environment. Robots that explore do not end their episodes by falling (docs/results/ant-series.md
    # says why); terminate_when_unhealthy=true has them do so, as in the paper
    env_options: tuple[str, ...] = ()
    sac: SACConfig = field(default_factory=SACConfig)  # the learner

    def __post_init__(self) -> None:
        for name in ("steps", "seeds", "replay_size", "chunk_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name.replace('_', '-')} must be at least 1, got {getattr(self, name)}.")
        for name in ("seed", "random_seeds"):
            if getattr(self, name) < 0:
                raise ValueError(f"--{name.replace('_', '-')} must not be negative, got {getattr(self, name)}.")
        for name in ("log_every", "checkpoint_every", "update_interval", "update_steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"--{name.replace('_', '-')} must be at least 1, got {value}.")
        if not math.isfinite(self.extrinsic_weight):
            raise ValueError(f"--extrinsic-weight must be a finite number, got {self.extrinsic_weight}.")


def resolved(config: ExploreConfig) -> tuple[ExploreConfig, EnvSpec, Reward | None]:
    """The configuration with nothing left open, the environment's description and the reward (None: random actions)."""
    spec = describe(config.env, **parsed_options(config))
    if can_fall(spec.name) and HEALTH_OPTION not in parsed_options(config):
        ends = (
            "true" if config.reward == "extrinsic" else "false"
        )  # said, so that a random policy beside it has the same
        config = dataclasses.replace(config, env_options=(*config.env_options, f"{HEALTH_OPTION}={ends}"))
    window = update_window(config.steps, config.update_interval, config.update_steps)
    config = dataclasses.replace(
        config,
        env=spec.name,
        update_interval=window["update_interval"],
        update_steps=window["update_steps"],
        chunk_steps=_chunk_steps(config.steps, config.chunk_steps),
        log_every=config.log_every or min(10_000, max(config.steps // 100, 500)),
        checkpoint_every=config.checkpoint_every or window["update_interval"],
        beta=_element_options(spec.name, config)["lifelong_weight"],
        estimator=_element_options(spec.name, config)["estimator"],
        bandwidth=_element_options(spec.name, config)["bandwidth"],
    )
    return config, spec, _make_reward(spec.name, config)


def config_from_json(values: Mapping[str, Any]) -> ExploreConfig:
    """The configuration that `dataclasses.asdict` and JSON made this of."""
    return settings_from_json(ExploreConfig, values)


def parsed_options(config: ExploreConfig) -> dict[str, Any]:
    """The environment's options, their values read as JSON (a word that is no JSON stays a string)."""
    return named_values("--env-options", config.env_options, "terminate_when_unhealthy=false")


def agent_seeds(config: ExploreConfig) -> list[int]:
    """One seed per agent."""
    return [config.seed + index for index in range(config.seeds)]


def _make_reward(env: str, config: ExploreConfig) -> Reward | None:
    options = named_values("--reward-options", config.reward_options, "learning_rate=1e-3")
    if options and config.reward in ("random", "extrinsic"):
        raise ValueError(f"--reward-options are for other rewards than {config.reward}: see --help.")
    if config.recent_scale and config.reward in ("element", "random"):
        raise ValueError(
            f"--recent-scale is for other rewards than {config.reward}: ELEMENT's terms are within [0, 1]."
        )
    if config.extrinsic_weight and config.reward in ("random", "extrinsic"):
        raise ValueError(
            f"--extrinsic-weight adds the environment's reward to an intrinsic one, and {config.reward} is none: leave it out."
        )
    if config.reward == "random":
        return None
    if config.reward == "extrinsic":
        options = {"scale": config.reward_scale}
    if config.reward != "element":
        made = make_reward(config.reward, **options)
        return RecentlyScaled(made) if config.recent_scale else made
    own = _element_options(env, config)
    if clash := sorted(set(own) & set(options)):
        flags = {"lifelong_weight": "--beta"}
        raise ValueError(
            f"{clash[0]} has an option of its own: {flags.get(clash[0], '--' + clash[0].replace('_', '-'))}."
        )
    reward = make_reward("element", env=env, **own, **options)
    assert isinstance(reward, ElementReward)
    memory = resolved_memory(reward.config, config.steps, jax.default_backend() == "cpu")
    return ElementReward(dataclasses.replace(reward.config, memory=memory))


def _element_options(env: str, config: ExploreConfig) -> dict[str, Any]:
    preset = make_reward("element", env=env)
    assert isinstance(preset, ElementReward)
    paper: ElementConfig = preset.config
    estimator = config.estimator or paper.estimator
    usual_bandwidth = replay_defaults(estimator).get("bandwidth", paper.bandwidth)
    options: dict[str, Any] = {
        "lifelong_weight": paper.lifelong_weight if config.beta is None else config.beta,
        "estimator": estimator,
        "bandwidth": usual_bandwidth if config.bandwidth is None else config.bandwidth,
        "episodic_weight": config.episodic_weight,
        "memory": config.memory,
        "lifelong_estimator": config.lifelong_estimator,
        "normalisation": config.normalisation,
        "credit": config.credit,
        "length_weighted": config.length_weighted,
    }
    return options | update_window(config.steps, config.update_interval, config.update_steps)


def _chunk_steps(steps: int, wanted: int) -> int:
    """The largest divisor of the steps up to `wanted`, so that a run ends where it was told to, if there is a fair one."""
    divisors = [d for d in range(min(wanted, steps), 0, -1) if steps % d == 0]
    return divisors[0] if divisors[0] >= min(SMALLEST_CHUNK, wanted, steps) else min(wanted, steps)
