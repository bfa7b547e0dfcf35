"""Over how many batches should NGU average its errors? How the error of its predictor falls, and
which share of a batch is modulated, by half-life.

A predictor of NGU's size learns from batches of random steps, whose replay grows by one step per
update. The mean and deviation of the errors are averaged with several half-lives, and over all
batches alike.

    python -m benchmarks.bench_ngu_half_life
"""

from dataclasses import dataclass
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jaxtyping import Array, Float

from benchmarks.tables import markdown_table
from element_rl.mlp import MLP
from element_rl.rewards.inverse_model import clipped_adam, gradient_step
from element_rl.rewards.ngu import NguConfig, mean_prediction_error
from element_rl.rewards.recent_moments import empty_recent_moments, recent_deviation, with_batch

PERIODS = ((100, 500), (500, 2_000), (2_000, 5_000))  # updates
SHOWN = (0, 10, 50, 100, 200, 500, 1_000, 2_000)
HELD = 8  # steps for which a random action is kept


@dataclass(frozen=True)
class Settings:
    """What to measure."""

    envs: tuple[str, ...] = ("Hopper-v5", "Ant-v5")
    half_lives: tuple[float, ...] = (10.0, 100.0, 1_000.0, 1e9)  # the last is "all alike"
    steps: int = 6_000
    first_steps: int = 1_000  # stored before the first update
    updates: int = 5_000
    batch_size: int = 128


def main(settings: Settings) -> None:
    """Two tables per environment."""
    for env in settings.envs:
        errors = learned(settings, random_steps(env, settings.steps))
        shown = [update for update in SHOWN if update < settings.updates]
        means = [f"{float(jnp.mean(errors[update])):.3g}" for update in shown]
        print(markdown_table([env, *map(str, shown)], [["mean error", *means]]))
        periods = [period for period in PERIODS if period[1] <= settings.updates]
        rows = [
            [f"{half_life:g}", *(f"{share:.0%}" for share in shares(errors, half_life, periods))]
            for half_life in settings.half_lives
        ]
        print(markdown_table(["half-life", *(f"{a}–{b}" for a, b in periods)], rows), flush=True)


def random_steps(env: str, number: int) -> Float[np.ndarray, "N O"]:
    """Whitened observations of random actions, cut to ±5."""
    made = gymnasium.make(env, terminate_when_unhealthy=False)
    made.action_space.seed(0)
    made.reset(seed=0)
    seen, action = [], None
    for step in range(number):
        action = made.action_space.sample() if step % HELD == 0 else action
        observation, _, terminated, truncated, _ = made.step(action)
        seen.append(observation)
        if terminated or truncated:
            made.reset()
    rows = np.array(seen, np.float32)
    return np.clip((rows - rows.mean(axis=0)) / (rows.std(axis=0) + 1e-8), -5, 5)


def learned(settings: Settings, rows: Float[np.ndarray, "N O"]) -> Float[Array, "U B"]:
    """The errors of every batch, before the predictor learned from it."""
    config = NguConfig()
    sizes = (rows.shape[1], *config.rnd_sizes, config.rnd_output_dim)
    target_key, predictor_key, key = jax.random.split(jax.random.key(0), 3)
    target, predictor = MLP.create(target_key, sizes), MLP.create(predictor_key, sizes)
    adam = clipped_adam(config.learning_rate, config.max_gradient_norm, config.adam_epsilon)
    stored = jnp.asarray(rows)

    def step(carry: tuple[MLP, Any], update: Array) -> tuple[tuple[MLP, Any], Array]:
        predictor, optimiser = carry
        filled = jnp.minimum(settings.first_steps + update, len(rows))
        drawn = jax.random.randint(
            jax.random.fold_in(key, update), (settings.batch_size,), 0, filled
        )
        gradient, errors = jax.grad(mean_prediction_error, has_aux=True)(
            predictor, target, stored[drawn]
        )
        predictor, optimiser = gradient_step(adam, gradient, optimiser, predictor)
        return (predictor, optimiser), errors

    first = (predictor, adam.init(predictor))
    return jax.jit(lambda: jax.lax.scan(step, first, jnp.arange(settings.updates))[1])()


def shares(
    errors: Float[Array, "U B"], half_life: float, periods: list[tuple[int, int]]
) -> list[float]:
    """Of batches with a modulator above 1, in each period."""

    def count(seen: Any, batch: Array) -> tuple[Any, Array]:
        seen = with_batch(seen, batch, half_life)
        return seen, jnp.mean((batch - seen.mean) / recent_deviation(seen) > 0)

    modulated = np.asarray(jax.lax.scan(count, empty_recent_moments(), errors)[1])
    return [float(modulated[begin:end].mean()) for begin, end in periods]


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
