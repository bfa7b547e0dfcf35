"""A run of invented policies, datasets collected from it, and what is done with them in several
tests."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from element_rl.datasets.collecting import CollectConfig, collect
from element_rl.datasets.minari_files import Dataset, read_dataset
from element_rl.envs.make import describe, make_env
from element_rl.envs.spec import position_of
from element_rl.runs.folder import RunFolder
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.off_policy.launch import create_run

CHECKPOINTS = (100, 250, 700)
SEEDS = (4, 5)
CODE = "import sys; from element_rl.commands.collect import main; sys.exit(main(sys.argv[1:]))"


def invented_run(path: Path) -> RunFolder:
    """A run of two agents with three checkpoints of invented policies."""
    options = ("max_episode_steps=60",)
    every = {"checkpoint_every": 50, "chunk_steps": 10}
    config = ExploreConfig(
        "Hopper-v5", seed=SEEDS[0], seeds=2, env_options=options, steps=1000, **every
    )
    run = create_run(config, path)
    for checkpoint in CHECKPOINTS:
        run.save_checkpoint(
            checkpoint, invented_policy(checkpoint, 11, 3), None, {"nothing": np.zeros(1)}, {}
        )
    return run


def invented_policy(seed: int, observation_dim: int, action_dim: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    sizes = (observation_dim, 8, 2 * action_dim)
    shapes = {f"weight_{i}": (2, *sizes[i : i + 2]) for i in range(2)} | {
        f"bias_{i}": (2, sizes[i + 1]) for i in range(2)
    }
    return {
        name: generator.normal(size=shape).astype(np.float32) / 3 for name, shape in shapes.items()
    }


def collected(run: RunFolder, out: Path, **changes: Any) -> Dataset:
    settings: dict[str, Any] = {
        "steps": 250,
        "dataset": "hopper/test-v0",
        "workers": 0,
        "out": out,
    } | changes
    return read_dataset(collect(CollectConfig(run.path, **settings)))


def command_line(run: RunFolder, root: Path, workers: int) -> list[str]:
    """The arguments that make the dataset `undisturbed`."""
    settings = {
        "--steps": "250",
        "--dataset": "hopper/test-v0",
        "--out": str(root),
        "--workers": str(workers),
    }
    return [str(run.path), *(text for pair in settings.items() for text in pair)]


def assert_same(ours: Dataset, theirs: Dataset) -> None:
    for name in (
        "observation",
        "action",
        "reward",
        "terminated",
        "truncated",
        "position",
        "lengths",
    ):
        np.testing.assert_array_equal(
            getattr(ours.episodes, name), getattr(theirs.episodes, name), err_msg=name
        )
    assert ours.episodes.metadata == theirs.episodes.metadata


def each_episode(dataset: Dataset) -> Iterator[tuple[Any, Any]]:
    for number in range(len(dataset.episodes.lengths)):
        one = dataset.episodes.chosen([number])
        yield one, one.metadata[0]


def relived(dataset: Dataset, one: Any, seed: int) -> None:
    """Resets an environment with the episode's seed and takes its actions: everything must come out
    again."""
    assert dataset.env is not None
    env = make_env(dataset.env, **dataset.env_options)
    spec = spec_of(dataset)
    observation, info = env.reset(seed=seed)
    for step in range(int(one.lengths[0])):
        np.testing.assert_array_equal(observation.astype(np.float32), one.observation[step])
        np.testing.assert_array_equal(position_of(spec, observation, info, env), one.position[step])
        observation, reward, terminated, truncated, info = env.step(one.action[step])
        assert (np.float32(reward), terminated) == (one.reward[step], one.terminated[step])
        assert one.truncated[step] == truncated or step == one.lengths[0] - 1
    np.testing.assert_array_equal(observation.astype(np.float32), one.observation[-1])
    np.testing.assert_array_equal(position_of(spec, observation, info, env), one.position[-1])


def spec_of(dataset: Dataset) -> Any:
    return describe(str(dataset.env), **dataset.env_options)


def start(arguments: list[str]) -> subprocess.Popen:
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(
        [sys.executable, "-c", CODE, *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_a_part(process: subprocess.Popen, parts: Path) -> None:
    """Until the process has written its first part. It may have been so quick that it has ended
    since."""
    deadline = time.monotonic() + 120
    while process.poll() is None and not (
        parts.exists() and any(name.startswith("part_") for name in os.listdir(parts))
    ):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert process.poll() in (None, 0), process.communicate()
