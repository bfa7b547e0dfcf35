"""States of real MuJoCo trajectories for the benchmarks: Ant-v5, whole episodes, recorded once and
cached.

    remembered_states(1_000_000)   [N, 11]: embedding (5) ⊕ x, y ⊕ torso quaternion, in the order
                                   they were visited
    held_out_episodes()            20 × [T, 11]: whole episodes that are never among the remembered
                                   ones

Actions are smooth noise: every episode draws its own correlation ρ from U(0, 0.95), and its actions
follow a_t = ρ a_(t−1) + √(1 − ρ²) · 0.6 ε_t, clipped to [−1, 1]. Reset, physics, falling (which
ends an episode) and the limit of 1,000 steps are Gymnasium's; only what its `step` computes beside
the physics (rewards) is left out.

Recordings are cut into shards of at least 20,000 states, each with its own seed, so that the first
N states are the same however many processes recorded them and however many were asked for.

`python -m benchmarks.trajectories --states 1000000 --processes 2` records ahead (about 7,000 states
a second on two cores).
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

CACHE = Path(__file__).resolve().parent.parent / ".cache"
SHARD_STATES = 20_000
HELD_OUT_EPISODES = 20
HELD_OUT_SEED = 1_000_000  # far from every shard's seed, which is its number
EPISODE_STEPS = 1_000
OBSERVATION_SIZE = 27
ORIENTATION = (1, 5)  # the torso's quaternion in the observation
STATE_SIZE = 11
ENCODER_SEED = 0


def remembered_states(count: int, processes: int = 2) -> Float[np.ndarray, "N D"]:
    """The first `count` states of the recording; records what is not cached yet."""
    states = np.empty((count, STATE_SIZE), np.float32)
    filled = 0
    for path in record(count, processes):
        encoded = encode(np.load(path))
        take = min(len(encoded), count - filled)
        states[filled : filled + take] = encoded[:take]
        filled += take
    return states


def held_out_episodes() -> list[Float[np.ndarray, "T D"]]:
    """The states of the 20 held-out episodes, one array per episode."""
    path, lengths_path = CACHE / "ant" / "held_out.npy", CACHE / "ant" / "held_out_lengths.npy"
    if not path.exists():
        episodes = list(itertools.islice(_episodes(HELD_OUT_SEED), HELD_OUT_EPISODES))
        _save(lengths_path, np.array([len(episode) for episode in episodes]))
        _save(path, np.concatenate(episodes))
    return np.split(encode(np.load(path)), np.cumsum(np.load(lengths_path))[:-1])


def encode(rows: Float[np.ndarray, "N 29"]) -> Float[np.ndarray, "N D"]:
    """States of recorded rows (x, y, observation), in pieces that keep the hidden layers small."""
    import jax  # here, not above: the recording processes need none of it

    from element_rl.encoders.state import make_state_encoder

    encoder = make_state_encoder(ENCODER_SEED, OBSERVATION_SIZE, ORIENTATION)
    encode_piece = jax.jit(jax.vmap(encoder))
    pieces = [rows[start : start + SHARD_STATES] for start in range(0, len(rows), SHARD_STATES)]
    return np.concatenate(
        [np.asarray(encode_piece(piece[:, 2:], piece[:, :2])) for piece in pieces]
    )


def record(count: int, processes: int = 2) -> list[Path]:
    """Record as many shards as `count` states need; return their files. What is cached is not
    recorded again."""
    numbers = range(-(-count // SHARD_STATES))
    missing = [number for number in numbers if not _shard_path(number).exists()]
    if missing:
        with multiprocessing.get_context("spawn").Pool(min(processes, len(missing))) as pool:
            for number in pool.imap_unordered(_record_shard, missing):
                print(f"recorded shard {number} of {len(numbers)}", flush=True)
    return [_shard_path(number) for number in numbers]


def _record_shard(number: int) -> int:
    recorded: list[np.ndarray] = []
    for episode in _episodes(number):
        recorded.append(episode)
        if sum(map(len, recorded)) >= SHARD_STATES:
            break
    _save(_shard_path(number), np.concatenate(recorded))
    return number


def _episodes(seed: int) -> Iterator[Float[np.ndarray, "T 29"]]:
    """Endless episodes of rows (x, y, 27-D observation), the state after reset first."""
    import gymnasium
    import mujoco

    environment: Any = gymnasium.make("Ant-v5", include_cfrc_ext_in_observation=False).unwrapped
    model, data = environment.model, environment.data
    generator = np.random.default_rng(seed)
    environment.reset(seed=seed)
    while True:
        actions = _smooth_actions(generator, generator.uniform(0.0, 0.95), model.nu)
        # Ant's observation is qpos without x, y, and qvel
        rows = [np.concatenate([data.qpos, data.qvel])]
        for action in actions:
            data.ctrl[:] = action
            mujoco.mj_step(model, data, environment.frame_skip)
            rows.append(np.concatenate([data.qpos, data.qvel]))
            if not environment.is_healthy:
                break
        yield np.array(rows, np.float32)
        environment.reset()


def _smooth_actions(
    generator: np.random.Generator, correlation: float, size: int
) -> Float[np.ndarray, "T A"]:
    noise = 0.6 * generator.standard_normal((EPISODE_STEPS + 1, size))
    actions = noise.copy()
    for step in range(1, len(actions)):
        actions[step] = (
            correlation * actions[step - 1] + np.sqrt(1.0 - correlation**2) * noise[step]
        )
    return np.clip(actions[1:], -1.0, 1.0)


def _shard_path(number: int) -> Path:
    return CACHE / "ant" / f"shard_{number:03d}.npy"


def _save(path: Path, array: np.ndarray) -> None:
    """Under a temporary name first: a recording that is stopped leaves no half shard."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        np.save(file, array)
    temporary.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description="Record Ant-v5 trajectories for the benchmarks.")
    parser.add_argument("--states", type=int, default=1_000_000, help="how many states to record")
    parser.add_argument(
        "--processes", type=int, default=2, help="how many environments to step at once"
    )
    arguments = parser.parse_args()
    record(arguments.states, arguments.processes)


if __name__ == "__main__":
    main()
