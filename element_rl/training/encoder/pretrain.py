"""From an environment to a frozen encoder: collect, train with early stopping, probe; resumable at
every moment.

    config = PretrainConfig("Rooms-v0", steps=20_000)
    run = create_encoder_run(config, Path("runs/rooms-encoder"))
    summary = pretrain_encoder(config, run)
    encoder = load_encoder("runs/rooms-encoder")

The run folder holds config.json, metrics.csv (a line per epoch), summary.json, encoder.safetensors
and probe.safetensors, and, until all is done, the frames and training.safetensors.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from element_rl.envs.make import describe
from element_rl.runs.folder import RunFolder
from element_rl.runs.launch import create_run, reopen_run
from element_rl.runs.watching import Interrupted, Progress
from element_rl.storage.capacity import refuse_beyond_disk
from element_rl.training.encoder.collecting import random_episodes
from element_rl.training.encoder.config import PretrainConfig, processes
from element_rl.training.encoder.frames import FrameStore, split_episodes
from element_rl.training.encoder.results import finish
from element_rl.training.encoder.training import COLUMNS, EncoderTraining
from element_rl.training.off_policy.config import read_env_options

FREE = (
    "workers",
    "epochs",
    "patience",
    "keep_frames",
    "probe_frames",
)  # may change when a run is resumed

Stage = Literal["frames", "epochs"]
Watcher = Callable[[Stage, Progress], None]


def pretrain_encoder(
    config: PretrainConfig,
    run: RunFolder,
    watch: Watcher = lambda stage, progress: None,
    stop: Callable[[], bool] = lambda: False,
    wait_seconds: float = 0.0,
) -> dict[str, Any]:
    """Collect, train and probe, going on with what is in the run folder; the summary. `Interrupted`
    when told to stop.

    `wait_seconds`: for another process that is still at work in the folder.
    """
    with run.exclusively(wait_seconds):
        if summary := run.read_summary():
            return summary
        options = env_options(config)
        spec = describe(config.env, (), (), "frames", **options)
        store = FrameStore(run.path / "frames", spec.frame_shape)
        collect_frames(config, options, store, watch, stop)
        splits = split_episodes(
            store.episodes, config.seed, config.batch_size, config.entropy_threshold
        )
        training = EncoderTraining(config, spec.frame_shape, store, splits, run)
        training.train(lambda progress: watch("epochs", progress), stop)
        return finish(config, spec, store, splits, run, training.outcome())


def create_encoder_run(config: PretrainConfig, folder: Path) -> RunFolder:
    """A new run folder; nothing is written where the environment cannot be used."""
    spec = describe(config.env, (), (), "frames", **env_options(config))
    refuse_beyond_disk(
        f"The frames of {config.steps:,} steps", folder, config.steps * spec.observation_dim
    )
    facts = {
        "env": spec.name,
        "coverage_axes": spec.coverage_axes,
        "frame_shape": spec.frame_shape,
    }
    return create_run("encoder", config, folder, COLUMNS, facts)


def reopen_encoder_run(config: PretrainConfig, folder: Path) -> RunFolder:
    """The run in a folder, to be continued; refused where it was started with other settings."""
    return reopen_run("encoder", config, folder, COLUMNS, FREE)


def env_options(config: PretrainConfig) -> dict[str, Any]:
    """The environment's options, their values read as JSON."""
    return read_env_options(config.env_options)


def collect_frames(
    config: PretrainConfig,
    options: dict[str, Any],
    store: FrameStore,
    watch: Watcher,
    stop: Callable[[], bool],
) -> None:
    """Episodes of the random policy into the store, until it has enough steps."""
    if store.steps >= config.steps:
        return
    began, before = time.perf_counter(), store.steps
    first, workers = len(store.episodes), processes(config)
    with random_episodes(
        config.env, options, config.seed, first, config.hold_steps, workers
    ) as episodes:
        for episode in episodes:
            keep = episode.entropy >= config.entropy_threshold
            store.add(episode.frames, episode.positions, episode.entropy, episode.task_return, keep)
            rate = (store.steps - before) / (time.perf_counter() - began)
            latest = {
                "episodes": float(len(store.episodes)),
                "kept": float(sum(e.kept for e in store.episodes)),
            }
            watch("frames", Progress(min(store.steps, config.steps), config.steps, rate, latest))
            if store.steps >= config.steps:
                return
            if stop():
                raise Interrupted(store.steps)
