"""Acting on screens with the policies of a run's checkpoints: those of A3C, or the values of discrete offline agents."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Float, Int, UInt8

from element_rl.agents.host_a3c import act, forward
from element_rl.agents.host_values import action_values
from element_rl.config import ExploreConfig, parsed_options
from element_rl.encoders.frozen import encode_all, load_encoder
from element_rl.envs.screens import ScreenSpec, describe_screen, screen_cell
from element_rl.evaluators import environment_maker
from element_rl.on_policy.launch import ENCODER
from element_rl.on_policy.measures import episode_entropy
from element_rl.runs import RunError, RunFolder

FRAMES_PER_SECOND = 15
ENLARGED = 4  # pixels along the edge of one, in a video

Parameters = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class ScreenEpisode:
    """What one policy did in one episode."""

    frames: UInt8[np.ndarray, "M H W"]  # M = T + 1
    positions: Float[np.ndarray, "M 2"]
    actions: Int[np.ndarray, " T"]
    total: float  # sum of its rewards


def is_on_screen(run: RunFolder) -> bool:
    """Whether a run's agents see frames: it is on-policy, or learned offline from such a run's dataset."""
    return "coverage_cells" in run.config


def evaluate_on_screen(
    run: RunFolder, step: int, episodes: int, deterministic: bool
) -> tuple[dict[str, Any], Float[np.ndarray, "E M 2"]]:
    """Means over seeds and episodes of a checkpoint, and the positions of each episode, NaN after its end."""
    settings, spec = run.config["settings"], _spec_of(run)
    policy = run.load_policy(step)
    encoder = load_encoder(run.path / ENCODER) if (run.path / ENCODER).exists() else None  # offline runs have none
    acted, env = [], _env_of(run)
    for agent in range(len(next(iter(policy.values())))):
        parameters = _own(run, policy, agent)
        seeds = [(settings["seed"] + agent, step, episode) for episode in range(episodes)]
        acted += [run_screen_episode(env, parameters, seed, deterministic) for seed in seeds]
    env.close()
    positions = np.full((len(acted), spec.max_episode_steps + 1, 2), np.nan, np.float32)
    for index, episode in enumerate(acted):
        positions[index, : len(episode.positions)] = episode.positions
    entropies = [episode_entropy(encode_all(encoder, episode.frames[1:])) for episode in acted if encoder is not None]
    mapped = spec.coverage_bounds is not None
    return {
        "step": step,
        "episodes": len(acted),
        "extrinsic_return": float(np.mean([episode.total for episode in acted])),
        "episode_length": float(np.mean([len(episode.actions) for episode in acted])),
        "episodic_entropy": float(np.mean(entropies)) if entropies else float("nan"),
        "coverage": len({int(cell) for e in acted for cell in screen_cell(spec, e.positions)}) if mapped else None,
    }, positions


def run_screen_episode(
    env: gymnasium.Env, parameters: Parameters, seed: tuple[int, int, int], deterministic: bool
) -> ScreenEpisode:
    """The episode of `on_policy.episodes.screen_return`, or of `evaluators.episode_return`, with the same seed.

    Without parameters actions are uniformly random; values are never drawn from, the highest one is taken.
    """
    generator = np.random.default_rng(list(seed))
    observation, info = env.reset(seed=int(generator.integers(2**31)))
    lstm = np.zeros((2, len(parameters.get("lstm_hidden", ()))), np.float32)
    frames, positions, actions, total, done = [_newest(observation)], [info["position"]], [], 0.0, False
    while not done:
        if not parameters:
            action = int(generator.integers(env.action_space.n))
        elif "lstm_hidden" not in parameters:
            action = int(np.argmax(action_values(parameters, observation)))
        elif deterministic:
            probabilities, _, lstm = forward(parameters, observation, lstm)
            action = int(np.argmax(probabilities))
        else:
            action, lstm = act(parameters, observation, lstm, float(generator.random()))
        observation, reward, terminated, truncated, info = env.step(action)
        frames.append(_newest(observation))
        positions.append(info["position"])
        actions.append(action)
        total, done = total + float(reward), terminated or truncated
    return ScreenEpisode(np.stack(frames), np.stack(positions), np.array(actions, np.int32), total)


def write_screen_video(run: RunFolder, step: int, deterministic: bool, folder: Path) -> Path:
    """One episode of the first seed as an mp4, as its policy saw it."""
    env = _env_of(run)
    seed = (run.config["settings"]["seed"], step, 0)
    episode = run_screen_episode(env, _own(run, run.load_policy(step), 0), seed, deterministic)
    env.close()
    path = folder / f"step_{step:09d}.mp4"
    # Otherwise imageio runs code of its own between fork and exec, which can hang where JAX has threads.
    os.environ.setdefault("IMAGEIO_FFMPEG_NO_PREVENT_SIGINT", "1")
    try:
        import imageio.v2 as imageio

        writer: Any
        with imageio.get_writer(path, fps=FRAMES_PER_SECOND, macro_block_size=2) as writer:
            for frame in episode.frames:
                writer.append_data(np.kron(frame, np.ones((ENLARGED, ENLARGED), np.uint8)))
    except Exception as error:
        path.unlink(missing_ok=True)
        raise RunError(
            f"No video could be made ({type(error).__name__}: {error}): install imageio with its ffmpeg plug-in."
        ) from error
    return path


def _spec_of(run: RunFolder) -> ScreenSpec:
    return describe_screen(run.config["env"], **_options(run))


def _env_of(run: RunFolder) -> gymnasium.Env:
    return environment_maker(True, run.config["settings"].get("frame_stack", 1))(run.config["env"], **_options(run))


def _options(run: RunFolder) -> dict[str, Any]:
    settings = run.config["settings"]
    return parsed_options(ExploreConfig(run.config["env"], env_options=tuple(settings["env_options"])))


def _own(run: RunFolder, policy: Parameters, agent: int) -> dict[str, np.ndarray]:
    return {} if run.config["reward"] == "random" else {name: array[agent] for name, array in policy.items()}


def _newest(observation: UInt8[np.ndarray, "..."]) -> UInt8[np.ndarray, "H W"]:
    """The frame, or the last of a stack of them."""
    return (observation if observation.ndim == 2 else observation[-1]).copy()
