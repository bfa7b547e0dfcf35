"""Acting on screens with the policies of a run's checkpoints: those of A3C, or the values of
discrete offline agents."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from element_rl.acting.episodes import padded_paths
from element_rl.acting.evaluators import Evaluator, Parameters, environment_maker
from element_rl.acting.screen_episodes import ScreenEpisode, run_screen_episode
from element_rl.encoders.frozen import encode_all, load_encoder
from element_rl.envs.screens import describe_screen, screen_cell
from element_rl.runs.folder import RunError, RunFolder
from element_rl.runs.kinds import sees_frames
from element_rl.training.off_policy.config import ExploreConfig, parsed_options
from element_rl.training.on_policy.launch import ENCODER
from element_rl.training.on_policy.measures import episode_entropy

FRAMES_PER_SECOND = 15
ENLARGED = 4  # pixels along the edge of one, in a video


def is_on_screen(run: RunFolder) -> bool:
    """Whether a run's agents see frames: it is on-policy, or learned offline from such a run's
    dataset."""
    return sees_frames(run.config)


class OnScreens:
    """How a run on a screen is evaluated."""

    def __init__(self, run: RunFolder) -> None:
        settings = run.config["settings"]
        self.run = run
        self.env: str = run.config["env"]
        self.options = parsed_options(
            ExploreConfig(self.env, env_options=tuple(settings["env_options"]))
        )
        self.make = environment_maker(True, settings.get("frame_stack", 1))
        self.spec = describe_screen(self.env, **self.options)
        self.seed: int = settings["seed"]
        self.episode_steps = self.spec.max_episode_steps
        path = run.path / ENCODER
        self.encoder = load_encoder(path) if path.exists() else None  # offline runs have none

    def evaluator(self, workers: int) -> Evaluator:
        return Evaluator(self.env, self.options, workers, self.make, run_screen_episode)

    def acting(self, policy: Parameters) -> Parameters:
        return {} if self.run.config["reward"] == "random" else policy

    def measured(
        self, acted: Sequence[Sequence[ScreenEpisode]]
    ) -> tuple[dict[str, Any], Float[np.ndarray, "E M 2"]]:
        spec, episodes = self.spec, [episode for own in acted for episode in own]
        encoder, mapped = self.encoder, spec.coverage_bounds is not None
        paths = [episode.positions for episode in episodes]
        entropies = [
            episode_entropy(encode_all(encoder, episode.frames[1:]))
            for episode in episodes
            if encoder
        ]
        row = {
            "extrinsic_return": float(np.mean([episode.total for episode in episodes])),
            "episode_length": float(np.mean([len(episode.actions) for episode in episodes])),
            "episodic_entropy": float(np.mean(entropies)) if entropies else float("nan"),
            "coverage": len({int(cell) for path in paths for cell in screen_cell(spec, path)})
            if mapped
            else None,
        }
        return row, padded_paths(paths, spec.max_episode_steps)

    def write_video(
        self,
        step: int,
        deterministic: bool,
        folder: Path,
        watch: Callable[[int, float], None],
        every: int,
    ) -> Path:
        """As its policy saw it."""
        env = self.make(self.env, **self.options)
        policy = {name: array[0] for name, array in self.acting(self.run.load_policy(step)).items()}
        episode = run_screen_episode(env, policy, (self.seed, step, 0), deterministic)
        env.close()
        path = folder / f"step_{step:09d}.mp4"
        # Otherwise imageio runs code of its own between fork and exec, which can hang where JAX has
        # threads.
        os.environ.setdefault("IMAGEIO_FFMPEG_NO_PREVENT_SIGINT", "1")
        try:
            import imageio.v2 as imageio

            writer: Any
            with imageio.get_writer(path, fps=FRAMES_PER_SECOND, macro_block_size=2) as writer:
                began = time.perf_counter()
                for number, frame in enumerate(episode.frames[::every], start=1):
                    writer.append_data(np.kron(frame, np.ones((ENLARGED, ENLARGED), np.uint8)))
                    watch(number, number / max(time.perf_counter() - began, 1e-9))
        except Exception as error:
            path.unlink(missing_ok=True)
            raise RunError(
                f"No video could be made ({type(error).__name__}: {error}): install imageio with "
                "its ffmpeg plug-in."
            ) from error
        return path
