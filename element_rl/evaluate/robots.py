"""Acting on robots with the policies of a run's checkpoints."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from element_rl.acting.episodes import Episode, padded_paths, run_episode
from element_rl.acting.evaluators import Evaluator, Parameters
from element_rl.encoders.state import StateEncoder, make_state_encoder
from element_rl.entropy import evaluation_entropy
from element_rl.envs.robots import EnvSpec, coverage_cell
from element_rl.evaluate.video import write_video
from element_rl.runs.folder import RunFolder
from element_rl.training.off_policy.config import ExploreConfig, described, parsed_options


class OnRobots:
    """How a run of explore, or of offline on robots' data, is evaluated."""

    def __init__(self, run: RunFolder, spec: EnvSpec | None = None) -> None:
        settings = run.config["settings"]
        self.run = run
        self.config = ExploreConfig(
            settings["env"], seed=settings["seed"], env_options=tuple(settings["env_options"])
        )
        self.spec = spec or described(settings, parsed_options(self.config))
        self.seed = self.config.seed
        self.episode_steps = self.spec.max_episode_steps

    def evaluator(self, workers: int) -> Evaluator:
        options = parsed_options(self.config)
        return Evaluator(self.config.env, options, workers, run=partial(run_episode, self.spec))

    def acting(self, policy: Parameters) -> Parameters:
        return policy

    def measured(
        self, acted: Sequence[Sequence[Episode]]
    ) -> tuple[dict[str, Any], Float[np.ndarray, "E M C"]]:
        spec = self.spec
        encoders = [
            make_state_encoder(self.seed + agent, spec.observation_dim, spec.orientation_slice)
            for agent in range(len(acted))
        ]
        entropies = [
            entropy_of(encoder, episode, spec.max_episode_steps)
            for encoder, own in zip(encoders, acted, strict=True)
            for episode in own
        ]
        episodes = [episode for own in acted for episode in own]
        paths = [episode.positions for episode in episodes]
        cells = (
            {int(c) for path in paths for c in coverage_cell(spec, path)}
            if spec.coverage_bounds
            else None
        )
        row = {
            "extrinsic_return": float(np.mean([episode.total for episode in episodes])),
            "episode_length": float(np.mean([len(path) - 1 for path in paths])),
            "episodic_entropy": float(np.mean(entropies)),
            "coverage": None if cells is None else len(cells),
        }
        # what a map has
        return row, padded_paths([path[:, :2] for path in paths], spec.max_episode_steps)

    def write_video(
        self,
        step: int,
        deterministic: bool,
        folder: Path,
        watch: Callable[[int, float], None],
        every: int,
    ) -> Path:
        """Rendered without a screen, by a camera that follows the robot."""
        config, policy = self.config, self.run.load_policy(step)
        return write_video(
            folder / f"step_{step:09d}.mp4",
            config.env,
            parsed_options(config),
            self.spec,
            {name: array[0] for name, array in policy.items()},
            [config.seed, step, 0],
            deterministic,
            watch,
            every,
        )


def entropy_of(encoder: StateEncoder, episode: Episode, steps: int) -> float:
    """The paper's evaluation entropy of an episode; all are padded to the longest, so that one
    program measures them."""
    observations, positions = episode.observations[1:], episode.positions[1:]
    missing = steps - len(observations)
    padded = [np.pad(array, ((0, missing), (0, 0))) for array in (observations, positions)]
    return float(_entropy(encoder, *padded, np.arange(steps) < len(observations)))


@eqx.filter_jit
def _entropy(encoder: StateEncoder, observations: Array, positions: Array, mask: Array) -> Array:
    return evaluation_entropy(jax.vmap(encoder)(observations, positions), mask)
