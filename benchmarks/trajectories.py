"""States of real MuJoCo trajectories for the benchmarks: Ant-v5, whole episodes, recorded once and cached.

    remembered_states(1_000_000)   [N, 11]: embedding (5) ⊕ x, y ⊕ torso quaternion, in the order they were visited
    held_out_episodes()            20 × [T, 11]: whole episodes that are never among the remembered ones

Actions are smooth noise: every episode draws its own correlation ρ from U(0, 0.95), and its actions follow
a_t = ρ a_(t−1) + √(1 − ρ²) · 0.6 ε_t, clipped to [−1, 1]. Reset, physics, falling (which ends an episode) and the limit of
1,000 steps are Gymnasium's. An environment step is five steps of the physics, and all five are recorded: "step" data is
every fifth row, what an agent sees; "physics" data is all of them, five times as many states for the same simulation.

Recordings are cut into shards of at least 20,000 environment steps, each with its own seed, so that the first N states are
the same however many processes recorded them and however many were asked for.

`python -m benchmarks.trajectories --states 1000000 --processes 2` records ahead (about 6,000 environment steps a second
on two cores).
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

Rate = Literal["step", "physics"]

CACHE = Path(__file__).resolve().parent.parent / ".cache"
SHARD_STEPS = 20_000
HELD_OUT_EPISODES = 20
HELD_OUT_SEED = 1_000_000  # far from every shard's seed, which is its number
EPISODE_STEPS = 1_000
PHYSICS_STEPS = 5  # of one environment step: Ant's frame skip
OBSERVATION_SIZE = 27
ORIENTATION = (1, 5)  # the torso's quaternion in the observation
STATE_SIZE = 11
ENCODER_SEED = 0


def remembered_states(count: int, rate: Rate = "step", processes: int = 2) -> Float[np.ndarray, "N D"]:
    """The first `count` states of the recording; records what is not cached yet."""
    states = np.empty((count, STATE_SIZE), np.float32)
    filled = 0
    for path in record(count, rate, processes):
        encoded = encode(_at_rate(path, rate))
        take = min(len(encoded), count - filled)
        states[filled : filled + take] = encoded[:take]
        filled += take
    return states


def held_out_episodes() -> list[Float[np.ndarray, "T D"]]:
    """The states of the 20 held-out episodes at every environment step, one array per episode."""
    path = _held_out_path()
    if not path.exists():
        _save(path, list(itertools.islice(_episodes(HELD_OUT_SEED), HELD_OUT_EPISODES)))
    lengths = np.load(_lengths_path(path)) // PHYSICS_STEPS + 1
    return np.split(encode(_at_rate(path, "step")), np.cumsum(lengths)[:-1])


def encode(rows: Float[np.ndarray, "N 29"]) -> Float[np.ndarray, "N D"]:
    """States of recorded rows (x, y, observation), in pieces that keep the hidden layers small."""
    import jax  # here, not above: the recording processes need none of it

    from element_rl.encoders.state import make_state_encoder

    encoder = make_state_encoder(ENCODER_SEED, OBSERVATION_SIZE, ORIENTATION)
    encode_piece = jax.jit(jax.vmap(encoder))
    pieces = [rows[start : start + SHARD_STEPS] for start in range(0, len(rows), SHARD_STEPS)]
    return np.concatenate([np.asarray(encode_piece(piece[:, 2:], piece[:, :2])) for piece in pieces])


def record(count: int, rate: Rate = "step", processes: int = 2) -> list[Path]:
    """Record as many shards as `count` states need; return their files. What is cached is not recorded again."""
    states_per_shard = SHARD_STEPS * (PHYSICS_STEPS if rate == "physics" else 1)
    numbers = range(-(-count // states_per_shard))
    missing = [number for number in numbers if not _shard_path(number).exists()]
    if missing:
        with multiprocessing.get_context("spawn").Pool(min(processes, len(missing))) as pool:
            for number in pool.imap_unordered(_record_shard, missing):
                print(f"recorded shard {number} of {len(numbers)}", flush=True)
    return [_shard_path(number) for number in numbers]


def _record_shard(number: int) -> int:
    recorded: list[np.ndarray] = []
    steps = 0
    for episode in _episodes(number):
        recorded.append(episode)
        steps += len(episode) // PHYSICS_STEPS
        if steps >= SHARD_STEPS:
            break
    _save(_shard_path(number), recorded)
    return number


def _episodes(seed: int) -> Iterator[Float[np.ndarray, "T 29"]]:
    """Endless episodes of rows (x, y, 27-D observation): the state after reset, then five for each environment step."""
    import gymnasium
    import mujoco

    environment: Any = gymnasium.make("Ant-v5", include_cfrc_ext_in_observation=False).unwrapped
    model, data = environment.model, environment.data
    generator = np.random.default_rng(seed)
    rows = np.empty((1 + EPISODE_STEPS * PHYSICS_STEPS, model.nq + model.nv), np.float32)
    environment.reset(seed=seed)
    while True:
        correlation = generator.uniform(0.0, 0.95)
        actions = _smooth_actions(generator, correlation, model.nu)
        rows[0] = np.concatenate([data.qpos, data.qvel])  # Ant's observation is qpos without x, y, and qvel
        length = 1
        for action in actions:
            data.ctrl[:] = action
            for _ in range(PHYSICS_STEPS):
                mujoco.mj_step(model, data)
                rows[length] = np.concatenate([data.qpos, data.qvel])
                length += 1
            if not environment.is_healthy:
                break
        yield rows[:length].copy()
        environment.reset()


def _smooth_actions(generator: np.random.Generator, correlation: float, size: int) -> Float[np.ndarray, "T A"]:
    noise = 0.6 * generator.standard_normal((EPISODE_STEPS + 1, size))
    actions = noise.copy()
    for step in range(1, len(actions)):
        actions[step] = correlation * actions[step - 1] + np.sqrt(1.0 - correlation**2) * noise[step]
    return np.clip(actions[1:], -1.0, 1.0)


def _at_rate(path: Path, rate: Rate) -> Float[np.ndarray, "N 29"]:
    """Rows of all episodes of a file; at the rate "step" the first of each episode and every fifth after it."""
    rows = np.load(path)
    if rate == "physics":
        return rows
    episodes = np.split(rows, np.cumsum(np.load(_lengths_path(path)))[:-1])
    return np.concatenate([episode[::PHYSICS_STEPS] for episode in episodes])


def _shard_path(number: int) -> Path:
    return CACHE / "ant" / f"shard_{number:03d}.npy"


def _held_out_path() -> Path:
    return CACHE / "ant" / "held_out.npy"


def _lengths_path(path: Path) -> Path:
    return path.with_name(f"{path.stem}_lengths.npy")


def _save(path: Path, episodes: list[Float[np.ndarray, "T 29"]]) -> None:
    """The rows last and under a temporary name first: a recording that is stopped leaves no half shard."""
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(_lengths_path(path), np.array([len(episode) for episode in episodes]))
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        np.save(file, np.concatenate(episodes))
    temporary.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description="Record Ant-v5 trajectories for the benchmarks.")
    parser.add_argument("--states", type=int, default=1_000_000, help="how many states to record")
    parser.add_argument("--rate", choices=("step", "physics"), default="step", help="what counts as a state")
    parser.add_argument("--processes", type=int, default=2, help="how many environments to step at once")
    arguments = parser.parse_args()
    record(arguments.states, arguments.rate, arguments.processes)


if __name__ == "__main__":
    main()
