"""What offline agents learn from: datasets of one environment side by side, on the device once.

All rows of all datasets lie one after the other, as do the lists of the rows that are steps. An
agent's share of them, a part, is two numbers: where its steps begin in the list and how many they
are. So datasets of any sizes serve one population, nothing is padded, and no row is stored twice,
however many agents learn from it.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float32, Int, Int32, Int64, PRNGKeyArray, Shaped

from element_rl.acting.evaluator import environment_maker
from element_rl.agents.discrete_cql import DiscreteBatch
from element_rl.agents.sac import Batch
from element_rl.datasets.episodes import Episodes
from element_rl.datasets.minari_files import Dataset, DatasetError, read_dataset
from element_rl.envs.names import ALIASES
from element_rl.envs.screens import FRAME_SHAPE
from element_rl.training.off_policy.config import ExploreConfig, parsed_options
from element_rl.training.offline.config import OfflineConfig

SMALLEST_DEVIATION = 1e-3  # below this a number is as good as constant, and is not blown up
_ROWS_AT_A_TIME = 100_000


@dataclass(frozen=True)
class Part:
    """What one agent (or one per seed) learns from: a dataset, or the episodes in it that one agent
    made."""

    dataset: int  # its place in `OfflineConfig.datasets`
    agent: int | None
    first: int  # of its steps, in the list of all steps
    count: int
    behaviour_return: float  # mean return of its episodes
    mean: Float32[np.ndarray, " O"]  # of its observations
    deviation: Float32[np.ndarray, " O"]


@dataclass(frozen=True)
class Source:
    """All that a population learns from, and where it is evaluated."""

    episodes: Episodes
    parts: tuple[Part, ...]
    env: str  # empty where the datasets name none
    env_options: Mapping[str, Any]
    observation_shape: tuple[int, ...]
    num_actions: int  # of a choice, or the dimension of a Box
    discrete: bool
    screen: bool  # frames as `envs.screens` makes them
    frame_stack: int

    @property
    def make_environment(self) -> Callable[..., gymnasium.Env]:
        """What makes the environment to evaluate in."""
        return environment_maker(self.screen, self.frame_stack)


def load_source(config: OfflineConfig) -> Source:
    """Reads and checks the datasets; every mistake is one sentence, before anything is trained or
    written."""
    root = None if config.root is None else Path(config.root)
    datasets = [read_dataset(name, root) for name in config.datasets]
    _refuse_different_spaces(datasets)
    first = datasets[0]
    discrete = isinstance(first.action_space, gymnasium.spaces.Discrete)
    shape = first.episodes.observation.shape[1:]
    _refuse_unlearnable(config, first, discrete, shape)
    if len(shape) == 2:
        shape = (config.frame_stack, *shape)
    env, env_options = _environment(config, datasets)
    shares = [
        share for index, dataset in enumerate(datasets) for share in _shares(config, index, dataset)
    ]
    episodes = Episodes.joined([dataclasses.replace(share[2], position=None) for share in shares])
    parts, start = [], 0
    batch_size = (
        config.bc if config.algorithm == "bc" else config.discrete_cql if discrete else config.cql
    ).batch_size
    for dataset, agent, share in shares:
        count = int(share.lengths.sum())
        if count < batch_size:
            whose = "" if agent is None else f" of agent {agent}"
            raise DatasetError(
                f"The dataset {datasets[dataset].name} has {count} transitions{whose}, fewer than "
                f"a batch of {batch_size}: "
                "collect more, or choose a smaller batch size."
            )
        mean, deviation = (
            _statistics(share.observation) if config.standardise else _no_statistics(shape)
        )
        parts.append(
            Part(dataset, agent, start, count, float(np.mean(share.returns)), mean, deviation)
        )
        start += count
    num_actions = int(first.action_space.n) if discrete else first.episodes.action.shape[1]
    screen = _is_screen(first)
    return Source(
        episodes,
        tuple(parts),
        env,
        env_options,
        shape,
        num_actions,
        discrete,
        screen,
        config.frame_stack,
    )


class Rows(NamedTuple):
    """The rows on the device."""

    observation: Shaped[Array, "R ..."]
    action: Float[Array, "R A"] | Int[Array, " R"]
    reward: Float[Array, " R"]
    terminated: Bool[Array, " R"]
    steps: Int[Array, " N"]  # the rows that are one
    begin: Int[Array, " R"]  # the first row of the episode of each


def rows_of(source: Source, reward_scale: float) -> Rows:
    """Everything to the device."""
    episodes = source.episodes
    if len(episodes.reward) >= 2**31:
        raise DatasetError(
            f"{len(episodes.reward):,} rows are too many for one population: train on fewer "
            "datasets at once."
        )
    return Rows(
        jnp.asarray(episodes.observation),
        jnp.asarray(episodes.action),
        jnp.asarray(episodes.reward * np.float32(reward_scale)),
        jnp.asarray(episodes.terminated),
        jnp.asarray(episodes.transitions.astype(np.int32)),
        jnp.asarray(_first_rows(episodes.lengths)),
    )


class Share(NamedTuple):
    """A part on the device, of one agent."""

    first: Int[Array, ""]  # of its steps
    number: Int[Array, ""]
    mean: Float[Array, " O"]
    deviation: Float[Array, " O"]


def shares_of(parts: Sequence[Part]) -> Share:
    """One part per agent, [P, ...]."""
    arrays = (
        np.array([part.first for part in parts], np.int32),
        np.array([part.count for part in parts], np.int32),
        np.stack([part.mean for part in parts]),
        np.stack([part.deviation for part in parts]),
    )
    return Share(*(jnp.asarray(array) for array in arrays))


def sample(
    rows: Rows, share: Share, key: PRNGKeyArray, batch_size: int, frame_stack: int = 1
) -> Batch | DiscreteBatch:
    """Steps drawn uniformly, with replacement, from the share of one agent; vectors standardised,
    frames stacked."""
    row = rows.steps[share.first + jax.random.randint(key, (batch_size,), 0, share.number)]
    observation, next_observation = (_observed(rows, each, frame_stack) for each in (row, row + 1))
    if observation.ndim == 2:
        observation, next_observation = (
            (each - share.mean[None]) / share.deviation[None]
            for each in (observation, next_observation)
        )
    kind = Batch if rows.action.ndim == 2 else DiscreteBatch
    return kind(
        observation, rows.action[row], rows.reward[row], next_observation, rows.terminated[row]
    )


def _observed(rows: Rows, row: Int[Array, " B"], frame_stack: int) -> Shaped[Array, "B ..."]:
    """Observations; of grey frames the newest `frame_stack`, [B, K, H, W], the first of an episode
    standing for those before."""
    if rows.observation.ndim != 3:
        return rows.observation[row]
    back = jnp.arange(frame_stack - 1, -1, -1)
    return rows.observation[jnp.maximum(row[:, None] - back[None], rows.begin[row][:, None])]


def _first_rows(lengths: Int64[np.ndarray, " E"]) -> Int32[np.ndarray, " R"]:
    return np.repeat(np.cumsum(lengths + 1) - (lengths + 1), lengths + 1).astype(np.int32)


def _refuse_different_spaces(datasets: Sequence[Dataset]) -> None:
    first = datasets[0]
    for other in datasets[1:]:
        for kind, ours, theirs in (
            ("observes", first.observation_space, other.observation_space),
            ("acts in", first.action_space, other.action_space),
        ):
            if (
                ours.shape != theirs.shape
                or ours.dtype != theirs.dtype
                or getattr(ours, "n", 0) != getattr(theirs, "n", 0)
            ):
                raise DatasetError(
                    f"The dataset {first.name} {kind} {ours}, but {other.name} {theirs}: train on "
                    "them one after the other."
                )


def _refuse_unlearnable(
    config: OfflineConfig, dataset: Dataset, discrete: bool, shape: tuple[int, ...]
) -> None:
    image = dataset.episodes.observation.dtype == np.uint8 and len(shape) in (2, 3)
    if len(shape) != 1 and not (discrete and image):
        needed = "a vector or an image of uint8, [H, W] or [C, H, W]," if discrete else "a vector"
        raise DatasetError(
            f"The dataset {dataset.name} observes {dataset.observation_space}, but {needed} is "
            "needed with its actions: "
            "choose another dataset."
        )
    if config.frame_stack > 1 and len(shape) != 2:
        raise DatasetError(
            f"The dataset {dataset.name} observes {dataset.observation_space}, and only grey "
            "frames [H, W] are stacked: "
            "leave out --frame-stack."
        )


def _is_screen(dataset: Dataset) -> bool:
    """Whether its observations are such frames as `envs.screens` makes of any environment with
    images."""
    episodes = dataset.episodes
    return episodes.observation.shape[1:] == FRAME_SHAPE and episodes.observation.dtype == np.uint8


def _environment(config: OfflineConfig, datasets: Sequence[Dataset]) -> tuple[str, dict[str, Any]]:
    """Where to evaluate: what the datasets name, unless told otherwise; checked against their
    spaces."""
    named = {
        (dataset.env, json.dumps(dict(dataset.env_options), sort_keys=True, default=str))
        for dataset in datasets
    }
    given = parsed_options(ExploreConfig(config.env or "", env_options=config.env_options))
    if config.env is None and len({env for env, _ in named}) > 1:
        texts = ", ".join(
            f"{dataset.name} from {dataset.env or 'an unnamed one'}" for dataset in datasets
        )
        raise DatasetError(
            f"The datasets are of different environments ({texts}): train on them one after the "
            "other."
        )
    if config.env is None and len(named) > 1 and not given:
        texts = ", ".join(f"{dataset.name} {dict(dataset.env_options)}" for dataset in datasets)
        raise DatasetError(
            f"The datasets name different options of their environment ({texts}): say "
            "--env-options."
        )
    env = (datasets[0].env or "") if config.env is None else config.env
    env = ALIASES.get(env, env) if _is_screen(datasets[0]) else env
    options = (
        given
        if config.env is not None and env != datasets[0].env
        else {**datasets[0].env_options, **given}
    )
    if config.evaluate and not env:
        raise DatasetError(
            f"The dataset {datasets[0].name} does not name its environment: give it with --env, or "
            "use --no-evaluate."
        )
    if config.evaluate:
        _refuse_other_environment(env, options, datasets[0])
    return env, options


def _refuse_other_environment(env: str, options: Mapping[str, Any], dataset: Dataset) -> None:
    made = environment_maker(_is_screen(dataset))(env, **options)
    made.close()
    for kind, ours, theirs in (
        ("observes", dataset.observation_space, made.observation_space),
        ("acts in", dataset.action_space, made.action_space),
    ):
        if ours.shape != theirs.shape or getattr(ours, "n", 0) != getattr(theirs, "n", 0):
            raise DatasetError(
                f"The dataset {dataset.name} {kind} {ours}, but {env} {theirs}: give the options "
                "it was made with as "
                "--env-options, another --env, or --no-evaluate."
            )


def _shares(
    config: OfflineConfig, index: int, dataset: Dataset
) -> list[tuple[int, int | None, Episodes]]:
    """The dataset, or its episodes agent by agent."""
    if not config.by_agent:
        return [(index, None, dataset.episodes)]
    agents = [entry.get("agent") for entry in dataset.episodes.metadata]
    if any(agent is None for agent in agents):
        raise DatasetError(
            f"The episodes of {dataset.name} do not say which agent made them (metadata `agent`), "
            "so that --by-agent is "
            "impossible: leave it out."
        )
    numbers = np.array([int(agent) for agent in agents])  # type: ignore[arg-type]
    return [
        (index, int(n), dataset.episodes.chosen(np.flatnonzero(numbers == n).tolist()))
        for n in np.unique(numbers)
    ]


def _statistics(observation: Shaped[np.ndarray, "R ..."]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each number of the observations, in float64 and a few rows at
    a time."""
    if observation.ndim != 2:
        return _no_statistics(observation.shape[1:])
    starts = range(0, len(observation), _ROWS_AT_A_TIME)
    mean = sum(
        observation[i : i + _ROWS_AT_A_TIME].sum(axis=0, dtype=np.float64) for i in starts
    ) / len(observation)
    squares = sum(
        ((observation[i : i + _ROWS_AT_A_TIME] - mean) ** 2).sum(axis=0) for i in starts
    ) / len(observation)
    return mean.astype(np.float32), np.maximum(np.sqrt(squares), SMALLEST_DEVIATION).astype(
        np.float32
    )


def _no_statistics(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    size = shape[0] if len(shape) == 1 else 0
    return np.zeros(size, np.float32), np.ones(size, np.float32)
