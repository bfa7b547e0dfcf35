"""What a run of `element pretrain-encoder` comes to: the frozen encoder, the probe of positions and
summary.json."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from element_rl.encoders.frozen import FrozenEncoder, encode_all, freeze, save_encoder
from element_rl.entropy import renyi_entropy
from element_rl.envs.spec import EnvSpec
from element_rl.runs.folder import RunFolder
from element_rl.runs.provenance import commit, hardware, versions
from element_rl.storage.files import write_arrays
from element_rl.training.encoder.config import PretrainConfig
from element_rl.training.encoder.frames import (
    FrameStore,
    Splits,
    StoredEpisode,
    frame_indices,
    pair_indices,
)
from element_rl.training.encoder.probe import Labelled, Probe, linear_probe, pixel_components
from element_rl.training.encoder.training import STATE, Outcome, evaluate

PROBE_FILE = "probe.safetensors"  # positions of held-out frames and what was predicted for them
SATURATION_EPISODES, SATURATION_FRAMES = 20, 1_000  # that the entropy of an episode is measured on


def finish(
    config: PretrainConfig,
    spec: EnvSpec,
    store: FrameStore,
    splits: Splits,
    run: RunFolder,
    outcome: Outcome,
) -> dict[str, Any]:
    """Freeze, probe and store; the summary. What only a resumed run would need is removed."""
    frames = store.frames()
    chosen = [frame_indices(part, config.probe_frames, config.seed) for part in splits]
    seen = frames[chosen[0]]  # of training episodes
    encoders = {
        name: freeze(model.encoder, spec.frame_shape, config.network, seen, config.spread)
        for name, model in (("trained", outcome.best), ("untrained", outcome.initial))
    }
    probes = _probes(config, store, chosen, encoders)
    summary = {
        "env": spec.name,
        "steps": store.steps,
        "seed": config.seed,
        "frames": _counts(store, splits),
        "epochs": outcome.epochs,
        "best_epoch": outcome.best_epoch,
        "updates": outcome.updates,
        "chance_loss": float(np.log(config.batch_size)),
        "validation": evaluate(outcome.best, frames, pair_indices(splits.validation), config),
        "held_out": evaluate(outcome.best, frames, pair_indices(splits.held_out), config),
        "probe": {name: _scores(spec, probe) for name, probe in probes.items()},
        "entropy_saturation": {
            name: _saturation(encoder, frames, splits.held_out)
            for name, encoder in encoders.items()
        },
        "wall_seconds": outcome.seconds,
        "versions": versions(),
        "commit": commit(),
        "hardware": hardware(),
    }
    origin = {
        "env": spec.name,
        "env_options": config.env_options,
        "steps": store.steps,
        "seed": config.seed,
    }
    save_encoder(run.path, encoders["trained"], origin)
    positions = store.positions()[chosen[-1]]
    predictions = {name: probe.predictions.astype(np.float32) for name, probe in probes.items()}
    write_arrays(run.path / PROBE_FILE, {"positions": positions, **predictions})
    run.write_summary(summary)
    (run.path / STATE).unlink(missing_ok=True)
    if not config.keep_frames:
        store.discard()
    return run.read_summary()


def _probes(
    config: PretrainConfig,
    store: FrameStore,
    chosen: Sequence[np.ndarray],
    encoders: Mapping[str, FrozenEncoder],
) -> dict[str, Probe]:
    """What three kinds of states of the same width know of positions; nothing where the environment
    tells none. `chosen`: the frames of each split."""
    frames, positions = store.frames(), store.positions()
    if not positions.std(axis=0).any():
        return {}
    states: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        name: partial(encode_all, encoder) for name, encoder in encoders.items()
    }
    states["pca"] = pixel_components(frames[chosen[0]], config.network.state_dim)
    return {
        name: linear_probe(*(Labelled(states_of(frames[i]), positions[i]) for i in chosen))
        for name, states_of in states.items()
    }


def _scores(spec: EnvSpec, probe: Probe) -> dict[str, float]:
    return {
        axis: float(score)
        for axis, score in zip(spec.coverage_axes or ("x", "y"), probe.scores, strict=True)
    }


def _saturation(
    encoder: FrozenEncoder, frames: np.ndarray, episodes: tuple[StoredEpisode, ...]
) -> float:
    """Entropy of a held-out episode's states over its ceiling log2 T (matrix Rényi of order 2,
    bandwidth 1): the mean."""
    shares = []
    for episode in episodes[:SATURATION_EPISODES]:
        count = min(episode.steps + 1, SATURATION_FRAMES)
        # one shape: compiled once
        states = np.zeros((SATURATION_FRAMES, encoder.state_dim), np.float32)
        states[:count] = encode_all(encoder, frames[episode.start : episode.start + count])
        mask = jnp.asarray(np.arange(SATURATION_FRAMES) < count)
        entropy = renyi_entropy(jnp.asarray(states), order=2.0, bandwidth=1.0, mask=mask)
        shares.append(float(entropy) / np.log2(count))
    return float(np.mean(shares))


def _counts(store: FrameStore, splits: Splits) -> dict[str, Any]:
    kept = [episode for episode in store.episodes if episode.kept]
    return {
        "episodes": len(store.episodes),
        "episodes_left_out": len(store.episodes) - len(kept),
        "entropy_mean_and_lowest": [
            float(np.mean([e.entropy for e in store.episodes])),
            min(e.entropy for e in store.episodes),
        ],
        **{name: sum(e.steps + 1 for e in part) for name, part in splits._asdict().items()},
        **{f"{name}_episodes": len(part) for name, part in splits._asdict().items()},
    }
