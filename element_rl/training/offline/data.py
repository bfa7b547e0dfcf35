"""What offline agents learn from: datasets of one environment side by side.

All rows of all datasets lie one after the other, as do the lists of the rows that are steps. An
agent's portion of them is two numbers: where its steps begin in the list and how many they are. So
datasets of any sizes serve one population, nothing is padded, and no row is stored twice,
however many agents learn from it.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Float, Float32, Shaped
from scipy.signal import lfilter

from element_rl.acting.evaluator import environment_maker
from element_rl.agents.iql import IQLConfig
from element_rl.datasets.episodes import Episodes
from element_rl.datasets.minari_files import Dataset, DatasetError, read_dataset
from element_rl.envs.names import ALIASES
from element_rl.envs.screens import FRAME_SHAPE
from element_rl.training.off_policy.config import read_env_options
from element_rl.training.offline.algorithms import settings_of
from element_rl.training.offline.config import OfflineConfig

SMALLEST_DEVIATION = 1e-3  # below this a number is as good as constant, and is not blown up
_ROWS_AT_A_TIME = 100_000


@dataclass(frozen=True)
class Portion:
    """What one agent (or one per seed) learns from: a dataset, or the episodes in it that one agent
    made."""

    dataset: int  # its place in `OfflineConfig.datasets`
    agent: int | None
    first: int  # of its steps, in the list of all steps
    count: int
    behaviour_return: float  # mean return of its episodes
    mean: Float32[np.ndarray, " O"]  # of its observations
    deviation: Float32[np.ndarray, " O"]
    reward_factor: float = 1.0  # of the rewards that are learned from, beside --reward-scale
    # lowest and highest discounted return of its steps, in the units that values are learned in;
    # nothing where no values are
    value_range: tuple[float, float] | None = None
    best_return: float | None = None  # of its episodes


@dataclass(frozen=True)
class OfflineData:
    """All that a population learns from, and where it is evaluated."""

    episodes: Episodes
    portions: tuple[Portion, ...]
    env: str  # empty where the datasets name none
    env_options: Mapping[str, Any]
    observation_shape: tuple[int, ...]
    num_actions: int  # of a choice, or the dimension of a Box
    discrete: bool
    screen: bool  # frames as `envs.screens` makes them
    frame_stack: int
    env_of_datasets: bool = True  # whether that is what the datasets name

    @property
    def make_environment(self) -> Callable[..., gymnasium.Env]:
        """What makes the environment to evaluate in."""
        return environment_maker(self.screen, self.frame_stack)


def load_data(config: OfflineConfig) -> OfflineData:
    """Reads and checks the datasets; every mistake is one sentence, before anything is trained or
    written."""
    root = None if config.root is None else Path(config.root)
    datasets = [read_dataset(name, root) for name in config.datasets]
    first = datasets[0]
    for other in datasets[1:]:
        spaces = (other.observation_space, other.action_space)
        _refuse_other_spaces(first, other.name, *spaces, "train on them one after the other", True)
    discrete = isinstance(first.action_space, gymnasium.spaces.Discrete)
    shape = first.episodes.observation.shape[1:]
    _refuse_unlearnable(config, first, discrete, shape)
    env, env_options = _environment(config, datasets)
    parts = [part for index, each in enumerate(datasets) for part in _parts(config, index, each)]
    return OfflineData(
        episodes=Episodes.joined([dataclasses.replace(part[2], position=None) for part in parts]),
        portions=_portions(config, datasets, parts),
        env=env,
        env_options=env_options,
        observation_shape=(config.frame_stack, *shape) if len(shape) == 2 else shape,
        num_actions=int(first.action_space.n) if discrete else first.episodes.action.shape[1],
        discrete=discrete,
        screen=_is_screen(first),
        frame_stack=config.frame_stack,
        env_of_datasets=(env, env_options) == (first.env or "", dict(first.env_options)),
    )


def _portions(
    config: OfflineConfig,
    datasets: Sequence[Dataset],
    parts: Sequence[tuple[int, int | None, Episodes]],
) -> tuple[Portion, ...]:
    """What is known of each part of the data: the place of its dataset, its agent, its episodes."""
    discrete = isinstance(datasets[0].action_space, gymnasium.spaces.Discrete)
    settings = settings_of(config, discrete)
    batch_size = settings.batch_size
    portions, start = [], 0
    for dataset, agent, episodes in parts:
        count = int(episodes.lengths.sum())
        if count < batch_size:
            whose = "" if agent is None else f" of agent {agent}"
            raise DatasetError(
                f"The dataset {datasets[dataset].name} has {count} transitions{whose}, fewer than "
                f"a batch of {batch_size}: collect more, or choose a smaller batch size."
            )
        returns = episodes.returns
        statistics = _statistics(episodes.observation, config.standardise)
        factor = _reward_factor(settings, config.reward_scale * returns)
        values = _value_range(episodes, settings, config.reward_scale * factor)
        mean_return, best_return = float(np.mean(returns)), float(np.max(returns))
        portions.append(
            Portion(
                *(dataset, agent, start, count, mean_return, *statistics),
                *(factor, values, best_return),
            )
        )
        start += count
    return tuple(portions)


def _reward_factor(settings: Any, returns: Float[np.ndarray, " E"]) -> float:
    """1; of IQL what brings the best and the worst return as far apart as it asks for, where they
    are apart."""
    wanted = settings.return_range if isinstance(settings, IQLConfig) else 0.0
    spread = float(np.ptp(returns))
    return wanted / spread if wanted and spread > 0.0 else 1.0


def _value_range(episodes: Episodes, settings: Any, factor: float) -> tuple[float, float] | None:
    """The lowest and the highest Σ γ^k r of what follows a step in its episode, times a factor."""
    discount = getattr(settings, "discount", None)
    if discount is None:
        return None
    rows = np.split(episodes.reward, np.cumsum(episodes.lengths + 1)[:-1])
    # the last row of an episode is no step
    returns = [lfilter([1.0], [1.0, -discount], each[-2::-1].astype(np.float64)) for each in rows]
    lowest, highest = min(map(np.min, returns)), max(map(np.max, returns))
    return (float(factor * lowest), float(factor * highest))


def _refuse_other_spaces(
    dataset: Dataset,
    other: str,
    observation_space: gymnasium.Space,
    action_space: gymnasium.Space,
    advice: str,
    by_dtype: bool = False,
) -> None:
    """A sentence where a dataset, or an environment, has other spaces than a dataset."""
    for verb, ours, theirs in (
        ("observes", dataset.observation_space, observation_space),
        ("acts in", dataset.action_space, action_space),
    ):
        same = ours.shape == theirs.shape and getattr(ours, "n", 0) == getattr(theirs, "n", 0)
        if not same or (by_dtype and ours.dtype != theirs.dtype):
            raise DatasetError(
                f"The dataset {dataset.name} {verb} {ours}, but {other} {theirs}: {advice}."
            )


def _refuse_unlearnable(
    config: OfflineConfig, dataset: Dataset, discrete: bool, shape: tuple[int, ...]
) -> None:
    image = dataset.episodes.observation.dtype == np.uint8 and len(shape) in (2, 3)
    if len(shape) != 1 and not (discrete and image):
        needed = "a vector or an image of uint8, [H, W] or [C, H, W]," if discrete else "a vector"
        raise DatasetError(
            f"The dataset {dataset.name} observes {dataset.observation_space}, but {needed} is "
            "needed with its actions: choose another dataset."
        )
    if config.frame_stack > 1 and len(shape) != 2:
        raise DatasetError(
            f"The dataset {dataset.name} observes {dataset.observation_space}, and only grey "
            "frames [H, W] are stacked: leave out --frame-stack."
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
    given = read_env_options(config.env_options)
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
        made = environment_maker(_is_screen(datasets[0]))(env, **options)
        made.close()
        spaces = (made.observation_space, made.action_space)
        advice = (
            "give the options it was made with as --env-options, another --env, or --no-evaluate"
        )
        _refuse_other_spaces(datasets[0], env, *spaces, advice)
    return env, options


def _parts(
    config: OfflineConfig, index: int, dataset: Dataset
) -> list[tuple[int, int | None, Episodes]]:
    """The dataset, or its episodes agent by agent."""
    if not config.by_agent:
        return [(index, None, dataset.episodes)]
    agents = [entry.get("agent") for entry in dataset.episodes.metadata]
    if any(agent is None for agent in agents):
        raise DatasetError(
            f"The episodes of {dataset.name} do not say which agent made them (metadata `agent`), "
            "so that --by-agent is impossible: leave it out."
        )
    numbers = np.array([int(agent) for agent in agents])  # type: ignore[arg-type]
    return [
        (index, int(n), dataset.episodes.chosen(np.flatnonzero(numbers == n).tolist()))
        for n in np.unique(numbers)
    ]


def _statistics(
    observation: Shaped[np.ndarray, "R ..."], standardise: bool
) -> tuple[Float32[np.ndarray, " O"], Float32[np.ndarray, " O"]]:
    """Mean and standard deviation of each number of vectors, in float64 and a few rows at a time;
    0 and 1 where nothing is standardised, and nothing of images."""
    if not standardise or observation.ndim != 2:
        size = observation.shape[1] if observation.ndim == 2 else 0
        return np.zeros(size, np.float32), np.ones(size, np.float32)
    starts = range(0, len(observation), _ROWS_AT_A_TIME)
    mean = sum(
        observation[i : i + _ROWS_AT_A_TIME].sum(axis=0, dtype=np.float64) for i in starts
    ) / len(observation)
    squares = sum(
        ((observation[i : i + _ROWS_AT_A_TIME] - mean) ** 2).sum(axis=0) for i in starts
    ) / len(observation)
    deviation = np.maximum(np.sqrt(squares), SMALLEST_DEVIATION)
    return mean.astype(np.float32), deviation.astype(np.float32)
