"""Is episodic entropy a sum over states? A network is fitted so that its sum over an episode
predicts the episode's entropy.

ELEMENT assumes a reward r_ep with H(τ) ≈ Σ_t r_ep(s_t) (section "Can ELEMENT maximize episodic
state entropy?", first half). As there, r_θ is fitted to recorded episodes of a task-driven agent by
minimising over episodes τ

    mean ( H(τ) − Σ_t r_θ(s_t) )²,    r_θ(s) = c · (1 + f_θ((s − μ) / σ)),    c = Σ T H / Σ T²

where f_θ is a perceptron, μ and σ the mean and deviation of each coordinate of the states, and c
the constant reward that predicts best; all are taken from the training episodes. So the network
begins near the best constant. Entropies are scaled within the loss (by their deviation) and never
shifted: the mean entropy taken off every episode is no sum over its steps.

Departures from the paper, which shows how well the training episodes are predicted: a share of the
episodes is held out, a small share chooses the epoch whose network is kept (a long fit learns its
episodes by heart), and three predictions that look at no state are there to compare with,

    c · T               the length of the episode, as a sum (r constant)
    a + b · log2 T      the length of the episode, as it bounds its entropy (no sum)
    the mean            R² = 0 up to the difference between the two sets

Long episodes have high entropies, so R² over episodes of all lengths is also earned by telling
their length. Among those of full length that is worth nothing; R² is given for them alone too.
Held-out episodes are drawn at random from the same run: that r_θ holds for other agents is not
shown.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from element_rl.entropy import renyi_entropy
from element_rl.mlp import MLP

FEWEST_EPISODES = 10  # to fit anything to
ADAM = optax.scale_by_adam()
SUM, BY_STEP, BY_LENGTH, MEAN = "Σ r_θ(s_t)", "c · T", "a + b · log2 T", "mean"


@dataclass(frozen=True)
class AdditivityConfig:
    """How r_θ is fitted; the entropy is that of the Ant preset."""

    hidden_sizes: tuple[int, ...] = (64, 64)  # of f_θ
    learning_rate: float = 1e-3  # Adam; falls to 0 along a cosine
    epochs: int = 200  # passes over the training episodes
    batch_episodes: int = 32  # per update
    held_out: float = 0.2  # share of the episodes that are only predicted
    # share of the episodes that only choose the epoch whose network is kept
    validation: float = 0.1
    most_episodes: int = 2_000  # as the paper; spread evenly over those there are
    renyi_order: float = 3.0  # α of H(τ)
    bandwidth: float = 1.0  # σ of H(τ)
    seed: int = 0  # of the split, the network and the order of the episodes

    def __post_init__(self) -> None:
        if not (
            self.held_out > 0 and self.validation > 0 and self.held_out + self.validation <= 0.9
        ):
            shares = f"{self.held_out} and {self.validation}"
            raise ValueError(
                "The held-out and validation shares must be above 0 and at most 0.9 in all, got "
                f"{shares}."
            )
        for name in ("epochs", "batch_episodes", "most_episodes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}.")


@dataclass(frozen=True)
class Predictions:
    """Entropies of a set of episodes in bits, and what each way of predicting says of them."""

    entropy: Float[np.ndarray, " E"]
    length: Int[np.ndarray, " E"]
    predicted: dict[str, Float[np.ndarray, " E"]]  # by SUM, BY_STEP, BY_LENGTH, MEAN

    def r_squared(self, by: str = SUM, length: int | None = None) -> float | None:
        """1 − Σ (H − Ĥ)² / Σ (H − H̄)², of the episodes of one length if given; None for fewer than
        two different H."""
        chosen = np.ones(len(self.length), bool) if length is None else self.length == length
        entropy, predicted = self.entropy[chosen], self.predicted[by][chosen]
        spread = float(np.sum((entropy - np.mean(entropy)) ** 2)) if len(entropy) > 1 else 0.0
        return 1 - float(np.sum((entropy - predicted) ** 2)) / spread if spread > 0 else None

    def error(self, by: str = SUM) -> float:
        """Root mean square, in bits."""
        return float(np.sqrt(np.mean((self.entropy - self.predicted[by]) ** 2)))


@dataclass(frozen=True)
class Fit:
    """What came of fitting r_θ."""

    training_error: Float[np.ndarray, " epochs"]  # root mean square in bits, as the epoch went on
    validation_error: Float[np.ndarray, " epochs"]  # after the epoch
    held_out_error: Float[np.ndarray, " epochs"]  # after the epoch; nothing was chosen by it
    epoch: int  # whose network is kept: that of the lowest validation error; the first is 1
    training: Predictions
    held_out: Predictions
    full_length: int  # steps of the longest episode


def fit_additive_reward(
    states: Float[np.ndarray, "E T D"],
    lengths: Int[np.ndarray, " E"],
    config: AdditivityConfig = AdditivityConfig(),  # noqa: B008 (frozen)
    watch: Callable[[int, int], None] = lambda epoch, epochs: None,
) -> Fit:
    """Fit r_θ to padded episodes, of which `lengths` say how many states are real; `watch` is told
    of every epoch."""
    states, lengths = _spread_evenly(states, lengths, config)
    split_key, network_key, order_key = jax.random.split(jax.random.key(config.seed), 3)
    training, validation, held_out = _split(len(lengths), config, split_key)
    entropy = episode_entropies(states, lengths, config)
    simple = _predictions_without_states(entropy, lengths, training)
    episodes = _Episodes(
        jnp.asarray(_standardised(states, lengths, training)),
        jnp.asarray(np.arange(states.shape[1]) < lengths[:, None]),
        jnp.asarray(entropy, jnp.float32),
        constant=jnp.float32(simple[BY_STEP][0] / lengths[0]),
        deviation=jnp.float32(max(np.std(entropy[training]), 1e-6)),
    )
    network = MLP.create(network_key, (states.shape[2], *config.hidden_sizes, 1))
    evaluated = {"validation": validation, "held out": held_out}
    network, errors = _train(network, episodes, training, evaluated, config, order_key, watch)
    predicted = {SUM: np.asarray(_predict_all(network, episodes), np.float64), **simple}

    def of(chosen: Int[np.ndarray, " S"]) -> Predictions:
        return Predictions(
            entropy[chosen],
            lengths[chosen],
            {by: values[chosen] for by, values in predicted.items()},
        )

    kept = 1 + int(np.argmin(errors["validation"]))
    curves = (errors["training"], errors["validation"], errors["held out"])
    return Fit(*curves, kept, of(training), of(held_out), int(lengths.max()))


def episode_entropies(
    states: Float[np.ndarray, "E T D"], lengths: Int[np.ndarray, " E"], config: AdditivityConfig
) -> Float[np.ndarray, " E"]:
    """H(τ) of every episode in bits."""
    return np.asarray(_entropies(states, lengths, config.renyi_order, config.bandwidth), np.float64)


@partial(jax.jit, static_argnames=("order", "bandwidth"))
def _entropies(
    states: Float[Array, "E T D"], lengths: Int[Array, " E"], order: float, bandwidth: float
) -> Float[Array, " E"]:
    """One episode after the other: a Gram matrix is as large as many episodes."""

    def entropy(episode: tuple[Array, Array]) -> Array:
        return renyi_entropy(episode[0], order, bandwidth, jnp.arange(states.shape[1]) < episode[1])

    return jax.lax.map(entropy, (states, lengths))


class _Episodes(eqx.Module):
    """Episodes on the device."""

    states: Float[Array, "E T D"]  # standardised
    mask: Bool[Array, "E T"]
    entropy: Float[Array, " E"]
    constant: Float[Array, ""]  # c, the best constant reward
    deviation: Float[Array, ""]  # of the training entropies


def _spread_evenly(
    states: Float[np.ndarray, "E T D"], lengths: Int[np.ndarray, " E"], config: AdditivityConfig
) -> tuple[Float[np.ndarray, "F T D"], Int[np.ndarray, " F"]]:
    """No more episodes than asked for, early and late ones alike."""
    if len(lengths) < FEWEST_EPISODES:
        raise ValueError(
            f"{len(lengths)} episodes are too few to fit a reward to: at least {FEWEST_EPISODES} "
            "are needed."
        )
    if not (lengths > 0).all() or lengths.max() > states.shape[1]:
        shortest, longest = int(lengths.min()), int(lengths.max())
        raise ValueError(
            f"Lengths must lie between 1 and {states.shape[1]}, got {shortest} to {longest}."
        )
    chosen = np.unique(
        np.linspace(0, len(lengths) - 1, min(len(lengths), config.most_episodes))
        .round()
        .astype(int)
    )
    return states[chosen], lengths[chosen]


def _split(
    episodes: int, config: AdditivityConfig, key: PRNGKeyArray
) -> tuple[Int[np.ndarray, " S"], Int[np.ndarray, " V"], Int[np.ndarray, " H"]]:
    """Episodes for training, validation and those held out, drawn at random."""
    held_out, validation = (
        max(round(share * episodes), 1) for share in (config.held_out, config.validation)
    )
    order = np.asarray(jax.random.permutation(key, episodes))
    parts = np.split(order, [held_out, held_out + validation])
    return np.sort(parts[2]), np.sort(parts[1]), np.sort(parts[0])


def _predictions_without_states(
    entropy: Float[np.ndarray, " E"],
    lengths: Int[np.ndarray, " E"],
    training: Int[np.ndarray, " S"],
) -> dict[str, Float[np.ndarray, " E"]]:
    """Least squares on the training episodes of what their lengths alone can say."""
    designs = {
        BY_STEP: lengths[:, None].astype(float),
        BY_LENGTH: np.stack([np.ones(len(lengths)), np.log2(lengths)], axis=1),
        MEAN: np.ones((len(lengths), 1)),
    }
    return {
        by: design @ np.linalg.lstsq(design[training], entropy[training])[0]
        for by, design in designs.items()
    }


def _standardised(
    states: Float[np.ndarray, "E T D"],
    lengths: Int[np.ndarray, " E"],
    training: Int[np.ndarray, " S"],
) -> Float[np.ndarray, "E T D"]:
    """Coordinates with mean 0 and deviation 1 over the training states; constant ones become 0."""
    seen = states[training][np.arange(states.shape[1]) < lengths[training, None]]
    deviation = seen.std(axis=0, dtype=np.float64)
    scaled = (states - seen.mean(axis=0, dtype=np.float64)) / np.where(
        deviation > 0, deviation, 1.0
    )
    return scaled.astype(np.float32)


def _train(
    network: MLP,
    episodes: _Episodes,
    training: Int[np.ndarray, " S"],
    evaluated: dict[str, Int[np.ndarray, " _"]],
    config: AdditivityConfig,
    order_key: PRNGKeyArray,
    watch: Callable[[int, int], None],
) -> tuple[MLP, dict[str, Float[np.ndarray, " epochs"]]]:
    """The network of the epoch with the lowest validation error, and the errors of every epoch."""
    batch = min(config.batch_episodes, len(training))
    # what is left over comes in another epoch, whose order is another
    updates = len(training) // batch
    progress = np.arange(config.epochs * updates).reshape(config.epochs, updates) / (
        config.epochs * updates
    )
    learning_rates = (config.learning_rate * (1 + np.cos(np.pi * progress)) / 2).astype(np.float32)
    optimiser_state, kept = ADAM.init(network), network
    errors: dict[str, list[float]] = {name: [] for name in ("training", *evaluated)}
    for epoch in range(config.epochs):
        order = jax.random.permutation(jax.random.fold_in(order_key, epoch), jnp.asarray(training))
        batches = order[: batch * updates].reshape(updates, batch)
        network, optimiser_state, squared = _epoch(
            network, optimiser_state, episodes, batches, learning_rates[epoch], evaluated
        )
        for name in errors:
            errors[name].append(float(squared[name]) ** 0.5)
        if errors["validation"][-1] == min(errors["validation"]):
            kept = network
        watch(epoch + 1, config.epochs)
    return kept, {name: np.array(values) for name, values in errors.items()}


@jax.jit
def _epoch(
    network: MLP,
    optimiser_state: Any,
    episodes: _Episodes,
    batches: Int[Array, "U B"],
    learning_rates: Float[Array, " U"],
    evaluated: dict[str, Int[Array, " _"]],
) -> tuple[MLP, Any, dict[str, Float[Array, ""]]]:
    """All minibatches once; the mean squared error in bits² on the way, and that of other episodes
    at the end."""

    def loss(network: MLP, chosen: Array) -> Array:
        predicted = _predict(network, episodes, chosen)
        return jnp.mean(((episodes.entropy[chosen] - predicted) / episodes.deviation) ** 2)

    def update(carry: tuple[MLP, Any], now: tuple[Array, Array]) -> tuple[tuple[MLP, Any], Array]:
        network, optimiser_state = carry
        chosen, learning_rate = now
        value, gradient = jax.value_and_grad(loss)(network, chosen)
        direction, optimiser_state = ADAM.update(gradient, optimiser_state)
        network = jax.tree.map(
            lambda weight, step: weight - learning_rate * step, network, direction
        )
        return (network, optimiser_state), value

    (network, optimiser_state), losses = jax.lax.scan(
        update, (network, optimiser_state), (batches, learning_rates)
    )
    values = {
        name: jax.lax.map(lambda episode: loss(network, episode[None]), few)
        for name, few in evaluated.items()
    }
    squared = {
        name: episodes.deviation**2 * jnp.mean(each)
        for name, each in (values | {"training": losses}).items()
    }
    return network, optimiser_state, squared


@jax.jit
def _predict_all(network: MLP, episodes: _Episodes) -> Float[Array, " E"]:
    """One episode after the other."""
    return jax.lax.map(
        lambda episode: _predict(network, episodes, episode[None])[0],
        jnp.arange(len(episodes.entropy)),
    )


def _predict(network: MLP, episodes: _Episodes, chosen: Int[Array, " B"]) -> Float[Array, " B"]:
    """Σ_t r_θ(s_t) of the chosen episodes."""
    rewards = episodes.constant * (1.0 + jax.vmap(network)(episodes.states[chosen])[:, :, 0])
    return jnp.sum(jnp.where(episodes.mask[chosen], rewards, 0.0), axis=1)
