"""Training of an encoder: epochs of ST-DIM's updates, until the validation loss has not fallen for
some epochs.

Batches depend on the seed and the epoch alone: on a CPU a run that was stopped or killed gives the
encoder of an undisturbed one, bit for bit.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int64, UInt8

from element_rl.encoders.stdim import STDIM, make_stdim, stdim_loss
from element_rl.runs.folder import RunFolder
from element_rl.runs.watching import COMPILING, Interrupted, Progress, Watcher
from element_rl.storage.files import read_arrays, write_arrays
from element_rl.storage.trees import arrays_to_tree, tree_to_arrays
from element_rl.training.encoder.config import PretrainConfig
from element_rl.training.encoder.frames import FrameStore, Splits, batches, pair_indices

LOSSES = (
    "loss",
    "global_local_loss",
    "local_local_loss",
    "global_local_accuracy",
    "local_local_accuracy",
)
COLUMNS = (
    *("step", "seed", "updates", "training_loss"),  # a step is an epoch
    *(f"validation_{name}" for name in LOSSES),
    "wall_seconds",
)
COUNTERS = ("epoch", "updates", "best_epoch", "best_loss", "seconds")
STATE = "training.safetensors"


class Outcome(NamedTuple):
    """What training came to."""

    best: STDIM  # of the epoch with the lowest validation loss
    initial: STDIM  # before the first update
    best_epoch: int
    epochs: int
    updates: int
    seconds: float


class EncoderTraining:
    """An encoder in training."""

    def __init__(
        self,
        config: PretrainConfig,
        frame_shape: tuple[int, int],
        store: FrameStore,
        splits: Splits,
        run: RunFolder,
    ) -> None:
        self.config, self.run = config, run
        self.frames = store.frames()
        self.pairs = pair_indices(splits.training)
        self.validation_pairs = pair_indices(splits.validation)
        self.initial = make_stdim(jax.random.key(config.seed), frame_shape, config.network)
        self.optimiser = optax.adam(config.learning_rate)
        self.model = self.best = self.initial
        self.optimiser_state = self.optimiser.init(eqx.filter(self.model, eqx.is_array))
        self.epoch = self.updates = self.best_epoch = 0
        self.best_loss, self.seconds = np.inf, 0.0
        self.restore()

    def train(self, watch: Watcher, stop: Callable[[], bool]) -> None:
        """Epochs until the validation loss has not fallen for long enough. `Interrupted`, after an
        epoch, when told to stop."""
        config = self.config
        watch(Progress(self.epoch, config.epochs, 0.0, {}, doing=COMPILING))
        while self.epoch < config.epochs and self.epoch - self.best_epoch < config.patience:
            began = time.perf_counter()
            training_loss = self.run_epoch()
            # in the same batches every time
            validation = evaluate(self.model, self.frames, self.validation_pairs, config)
            self.epoch += 1
            if validation["loss"] < self.best_loss:
                self.best, self.best_loss = self.model, validation["loss"]
                self.best_epoch = self.epoch
            self.seconds += time.perf_counter() - began
            row = {
                "step": self.epoch,
                "seed": config.seed,
                "updates": self.updates,
                "training_loss": training_loss,
                **{f"validation_{name}": value for name, value in validation.items()},
                "wall_seconds": self.seconds,
            }
            self.run.append_metrics([row])
            self.save()
            latest = {name: float(value) for name, value in row.items()}
            latest["best_epoch"] = float(self.best_epoch)
            watch(Progress(self.epoch, config.epochs, self.updates / self.seconds, latest))
            if stop() and self.epoch < config.epochs:
                raise Interrupted(self.epoch)

    def run_epoch(self) -> float:
        """Updates of one epoch; the mean loss."""
        config, losses = self.config, []
        seed = (config.seed, self.epoch + 1)
        for first, second in batches(
            self.frames, self.pairs, config.batch_size, config.epoch_updates, seed
        ):
            pair = (jnp.asarray(first), jnp.asarray(second))
            self.model, self.optimiser_state, loss = _update(
                self.model, self.optimiser_state, self.optimiser, *pair
            )
            losses.append(loss)
            self.updates += 1
        return float(np.mean([float(loss) for loss in losses]))

    def outcome(self) -> Outcome:
        return Outcome(
            self.best, self.initial, self.best_epoch, self.epoch, self.updates, self.seconds
        )

    def save(self) -> None:
        """Everything a resumed run needs, in one file."""
        counters = {name: np.array(getattr(self, name)) for name in COUNTERS}
        write_arrays(self.run.path / STATE, tree_to_arrays(self._state(), "state") | counters)

    def restore(self) -> None:
        """Go back to the last whole epoch, if there is one."""
        path = self.run.path / STATE
        if path.exists():
            arrays, _ = read_arrays(path)
            stored = {name: array for name, array in arrays.items() if name not in COUNTERS}
            state = arrays_to_tree(self._state(), stored, "state")
            self.model, self.best = state["model"], state["best"]
            self.optimiser_state = state["optimiser"]
            for name in COUNTERS:
                setattr(self, name, arrays[name].item())
        self.run.truncate_metrics(self.epoch)

    def _state(self) -> dict[str, Any]:
        return {"model": self.model, "best": self.best, "optimiser": self.optimiser_state}


def evaluate(
    model: STDIM,
    frames: UInt8[np.ndarray, "N H W"],
    pairs: Int64[np.ndarray, " P"],
    config: PretrainConfig,
) -> dict[str, float]:
    """Mean losses and accuracies of pairs, over the batches of a fixed order; an epoch's worth of
    them at most."""
    found = []
    for first, second in batches(
        frames, pairs, config.batch_size, config.epoch_updates, (config.seed, 0)
    ):
        loss, metrics = _losses(model, jnp.asarray(first), jnp.asarray(second))
        found.append(
            {"loss": float(loss)} | {name: float(value) for name, value in metrics.items()}
        )
    return {name: float(np.mean([each[name] for each in found])) for name in LOSSES}


@eqx.filter_jit
def _update(
    model: STDIM,
    optimiser_state: Any,
    optimiser: Any,
    first: UInt8[Array, "B H W"],
    second: UInt8[Array, "B H W"],
) -> tuple[STDIM, Any, Float[Array, ""]]:
    (loss, _), gradients = eqx.filter_value_and_grad(stdim_loss, has_aux=True)(model, first, second)
    changes, optimiser_state = optimiser.update(gradients, optimiser_state)
    return eqx.apply_updates(model, changes), optimiser_state, loss


@eqx.filter_jit
def _losses(
    model: STDIM, first: UInt8[Array, "B H W"], second: UInt8[Array, "B H W"]
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    return stdim_loss(model, first, second)
