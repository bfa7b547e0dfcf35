"""PPO (Schulman et al., 2017), for one agent: advantages, the clipped loss, and its gradient steps.

T steps of E environments are acted with the parameters θ_old. Of each stream of rewards, with its
discount γ and its value V:

    δ_t = r_t + γ V_{t+1} − V_t          V_{t+1} = 0 where the task ended with step t; where time
                                         ran out, the value of that episode's last observation
    A_t = δ_t + γ λ A_{t+1}              0 in place of A_{t+1} where an episode ended, and at the
                                         end of the rollout (Schulman et al., 2016)
    R_t = A_t + V_t                      what V learns

and for `epochs` passes over minibatches of all steps, with A = Σ_streams weight · A of the stream:

    ρ_t  = π_θ(a_t) / π_θ_old(a_t)
    loss = E[ −min(ρ_t A_t, clip(ρ_t, 1 − ε, 1 + ε) A_t) + ½ Σ_streams (R_t − V_θ)² − c H(π_θ) ]

**Two streams.** An intrinsic reward may have a value and a discount of its own beside the task's
(RND, Burda et al., 2019: V = V_E + V_I, γ_E = 0.999, γ_I = 0.99), and its return may go on across
the ends of episodes (`episodic` false): then V_{t+1} is that of the first observation of the next
episode, and A_{t+1} counts. An explorer is not done when a task is.

**With a memory**, the state of the LSTM before the first step belongs to the rollout, it is
forgotten where an episode begins, and minibatches are whole environments: gradients flow through
all T steps.

Departures from the paper, all usual since (Huang et al., 2022, "The 37 Implementation Details of
Proximal Policy Optimization"): advantages are normalised in every minibatch, Adam has ε = 1e-5,
gradients are shortened to a norm of 0.5, weights start orthogonal. Actions of a Box are on the
scale of its bounds, [−1, 1]; the environment is stepped with those that are clipped to it, and the
probability is that of the action before it was clipped.

Everything is arrays [T, E, …] and pure: whoever collects them, on the host or on a device, may call
`learn`.
"""

from dataclasses import dataclass
from math import e, log, pi
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from element_rl.agents.contract import check_settings
from element_rl.agents.networks import chosen
from element_rl.agents.ppo_network import NetworkShape, PPONetwork, create

ADAM_EPSILON = 1e-5
VALUE_BLOCK = 256  # frames whose values are computed at once
METRICS = ("actor_loss", "critic_loss", "policy_entropy", "policy_kl", "clip_fraction")


@dataclass(frozen=True)
class PPOConfig:
    """The learner; defaults are Stable-Baselines3's for vectors and CleanRL's for frames."""

    # Steps of each environment in a rollout, after which the agent learns. (default: 256 on
    # vectors, 128 on frames)
    rollout_steps: int | None = None
    # Passes over the steps of a rollout. (default: 10 on vectors, 4 on frames)
    epochs: int | None = None
    # Minibatches of a pass, each of them one gradient step. (default: 32 on vectors, 4 on frames
    # and for recurrent policies)
    minibatches: int | None = None
    # How far the probability ratio may move before an action counts no more, ε. (default: 0.2 on
    # vectors, 0.1 on frames)
    clip: float | None = None
    # Learning rate (Adam). (default: 3e-4 on vectors, 2.5e-4 on frames)
    learning_rate: float | None = None
    # Lower the learning rate evenly to 0 at the end of the run.
    anneal: bool = False
    # Weight of the policy's entropy in the loss. (default: 0 on vectors, 0.01 on frames)
    entropy_weight: float | None = None
    # Weight of the values' squared error in the loss.
    value_weight: float = 0.5
    # Limit by how much a value may move from what it was, as the first implementations did.
    clip_values: bool = False
    # Subtract the mean of the advantages in each minibatch, and divide by their deviation.
    normalise_advantages: bool = True
    # Largest norm of a gradient; longer ones are shortened to it.
    max_gradient_norm: float = 0.5
    # Kullback-Leibler divergence from the policy that acted, in nats, beyond which no more is
    # learned from a rollout. (default: no limit)
    target_kl: float | None = None
    # Discount γ of future rewards.
    discount: float = 0.99
    # Decay λ of generalised advantage estimation.
    gae_decay: float = 0.95
    # Discount of the intrinsic reward, which then has a value of its own beside that of the task's
    # reward; RND has 0.99, and 0.999 for the task. (default: --ppo.discount, and one value for the
    # sum of both)
    bonus_discount: float | None = None
    # Whether the return of the intrinsic reward ends with the episode. RND's goes on; then it has a
    # value of its own.
    bonus_episodic: bool = True
    # Give the policy a memory, an LSTM.
    recurrent: bool = False
    # Units of the LSTM. (default: 64 on vectors, 512 on frames)
    memory_size: int | None = None
    # Hidden layers of policy and values on vectors.
    hidden_sizes: tuple[int, ...] = (64, 64)
    # Channels of each convolution on frames.
    channels: tuple[int, ...] = (32, 32, 32, 32)
    # Units of the layer that reads the convolutions, where there is no LSTM.
    frame_units: int = 512

    def __post_init__(self) -> None:
        def least(name: str, limit: int) -> bool:
            value = getattr(self, name)
            return value is None or value >= limit

        counts = ("rollout_steps", "epochs", "minibatches", "memory_size", "frame_units")
        weights = ("entropy_weight", "value_weight")
        above = ("learning_rate", "clip", "max_gradient_norm", "target_kl")
        discounts = ("discount", "bonus_discount")
        decays = [(name, getattr(self, name)) for name in discounts]
        check_settings(
            self,
            [
                *((name, least(name, 1), "1 or more") for name in counts),
                *((name, least(name, 0), "0 or more") for name in weights),
                *((name, least(name, 0) and getattr(self, name) != 0, "above 0") for name in above),
                *((n, g is None or 0 <= g < 1, "at least 0 and below 1") for n, g in decays),
                ("gae_decay", 0 <= self.gae_decay <= 1, "from 0 to 1"),
                *(
                    (name, all(size > 0 for size in getattr(self, name)), "numbers above 0")
                    for name in ("hidden_sizes", "channels")
                ),
                ("hidden_sizes", bool(self.hidden_sizes), "one or more numbers above 0"),
                ("channels", bool(self.channels), "one or more numbers above 0"),
            ],
        )

    def resolved(self, frames: bool, environments: int) -> "PPOConfig":
        """The settings with nothing left open, for frames or vectors."""
        usual = FRAMES if frames else VECTORS
        if self.recurrent:
            usual = usual | {"minibatches": min(4, environments)}
        left = {name: value for name, value in usual.items() if getattr(self, name) is None}
        settings = PPOConfig(**{**vars(self), **left})
        if settings.recurrent and (settings.minibatches or 1) > environments:
            raise ValueError(
                f"--ppo.minibatches is {settings.minibatches}, and minibatches of a recurrent "
                f"policy are whole environments, of which there are {environments}: choose no more."
            )
        return settings


VECTORS: dict[str, Any] = {
    **{"rollout_steps": 256, "epochs": 10, "minibatches": 32, "clip": 0.2},
    **{"learning_rate": 3e-4, "entropy_weight": 0.0, "memory_size": 64},
}
FRAMES: dict[str, Any] = {
    **{"rollout_steps": 128, "epochs": 4, "minibatches": 4, "clip": 0.1},
    **{"learning_rate": 2.5e-4, "entropy_weight": 0.01, "memory_size": 512},
}


class Stream(NamedTuple):
    """Rewards with a value and a discount of their own; hashable, so it can be static under jit."""

    discount: float
    weight: float = 1.0  # of their advantages
    episodic: bool = True


class Rollout(NamedTuple):
    """T steps of E environments by one policy; what is learned from."""

    observation: Shaped[Array, "T E *O"]
    action: Int[Array, "T E"] | Float[Array, "T E A"]  # as drawn, before they were clipped
    reward: Float[Array, "T E S"]  # of each stream
    terminated: Bool[Array, "T E"]  # the task ended with the step
    ended: Bool[Array, "T E"]  # the episode did, by that or by its time
    begins: Bool[Array, " E"]  # an episode begins with the first step
    memory: Float[Array, "E 2 H"]  # before the first step; H = 0 without one
    following: Shaped[Array, "E ..."]  # observed after the last step: where one ended, of the next
    # The last observations of episodes that ended, F of them, and the step and environment of each.
    # A row that holds nothing has step T.
    final: Shaped[Array, "F ..."]
    final_step: Int[Array, " F"]
    final_env: Int[Array, " F"]


class Minibatch(NamedTuple):
    """T steps of B environments, or with T = 1 any B steps."""

    observation: Shaped[Array, "T B *O"]
    action: Int[Array, "T B"] | Float[Array, "T B A"]
    log_probability: Float[Array, "T B"]  # of the policy that acted, as are the values
    value: Float[Array, "T B S"]
    advantage: Float[Array, "T B"]
    returns: Float[Array, "T B S"]
    begins: Bool[Array, "T B"]
    memory: Float[Array, "B 2 H"]


class PPOState(NamedTuple):
    """One agent's parameters and the statistics of its Adam."""

    network: PPONetwork
    optimiser: optax.OptState


def begin(key: PRNGKeyArray, shape: NetworkShape, config: PPOConfig) -> PPOState:
    """A new agent."""
    network = create(key, shape)
    return PPOState(network, _optimiser(config).init(network))


def network_shape(
    observation_shape: tuple[int, ...], actions: int, chooses: bool, streams: int, config: PPOConfig
) -> NetworkShape:
    """The network that resolved settings ask for."""
    memory = (config.memory_size or 0) if config.recurrent else 0
    sizes = (config.hidden_sizes, config.channels, config.frame_units)
    return NetworkShape(observation_shape, actions, chooses, streams, *sizes, memory)


def learn(
    state: PPOState,
    rollout: Rollout,
    key: PRNGKeyArray,
    learning_rate: Float[Array, ""],
    config: PPOConfig,
    streams: tuple[Stream, ...],
) -> tuple[PPOState, dict[str, Float[Array, ""]]]:
    """All epochs of a rollout, and the means of what they report. Under `jit`, config and streams
    are static."""
    steps, metrics = prepared(state.network, rollout, config, streams)
    assert config.epochs is not None
    assert config.minibatches is not None

    def step(
        carry: tuple[PPOState, Bool[Array, ""]], rows: Int[Array, " R"]
    ) -> tuple[tuple[PPOState, Bool[Array, ""]], tuple[dict[str, Array], Bool[Array, ""]]]:
        before, going = carry
        batch = _rows(steps, rows, config.recurrent)
        gradient, reported = jax.grad(ppo_loss, has_aux=True)(before.network, batch, config)
        reported["gradient_norm"] = optax.tree.norm(gradient)
        if config.target_kl is not None:
            going &= reported["policy_kl"] <= config.target_kl
        after = _adam_step(before, gradient, learning_rate, config)
        after = after if config.target_kl is None else chosen(going, after, before)
        return (after, going), (reported, going)

    units = rollout.ended.shape[1] if config.recurrent else rollout.ended.size
    rows = shuffled(key, units, config.epochs, config.minibatches)
    (state, _), (reported, learned) = jax.lax.scan(step, (state, jnp.array(True)), rows)
    counted = jnp.maximum(jnp.sum(learned), 1)
    means = {
        name: jnp.sum(jnp.where(learned, values, 0.0)) / counted
        for name, values in reported.items()
    }
    return state, metrics | means


def prepared(
    network: PPONetwork, rollout: Rollout, config: PPOConfig, streams: tuple[Stream, ...]
) -> tuple[Minibatch, dict[str, Float[Array, ""]]]:
    """The whole rollout with what the policy that acted said of it, and its advantages."""
    begins = jnp.concatenate([rollout.begins[None], rollout.ended[:-1]])
    out, following, final = _said(network, rollout, begins)
    each = []
    for index, stream in enumerate(streams):
        value = out.values[..., index]
        next_value = following_values(
            value, following[:, index], final[:, index], rollout, stream.episodic
        )
        ended = rollout.ended if stream.episodic else jnp.zeros_like(rollout.ended)
        reward = rollout.reward[..., index]
        each.append(advantages(reward, value, next_value, ended, stream.discount, config.gae_decay))
    weighted = sum(
        (stream.weight * one for stream, one in zip(streams, each, strict=True)),
        start=jnp.zeros_like(each[0]),
    )
    returns = jnp.stack(each, axis=-1) + out.values
    batch = Minibatch(
        rollout.observation,
        rollout.action,
        log_probabilities(network, out.policy, rollout.action),
        out.values,
        weighted,
        returns,
        begins,
        rollout.memory,
    )
    unexplained = jnp.var(returns - out.values) / jnp.maximum(jnp.var(returns), 1e-8)
    return batch, {"value_mean": jnp.mean(out.values), "value_explained": 1.0 - unexplained}


def following_values(
    value: Float[Array, "T E"],
    following: Float[Array, " E"],
    final: Float[Array, " F"],
    rollout: Rollout,
    episodic: bool,
) -> Float[Array, "T E"]:
    """V_{t+1} of a stream; `following` is the value of what is observed after the rollout, and
    `final` are those of the last observations of episodes."""
    after = jnp.concatenate([value[1:], following[None]])
    if not episodic:
        return after  # an episode that ended goes on in the next one
    after = after.at[rollout.final_step, rollout.final_env].set(final, mode="drop")
    return jnp.where(rollout.terminated, 0.0, after)


def advantages(
    reward: Float[Array, "T E"],
    value: Float[Array, "T E"],
    next_value: Float[Array, "T E"],
    ended: Bool[Array, "T E"],
    discount: float,
    decay: float,
) -> Float[Array, "T E"]:
    """A_t, from the last step to the first; nothing comes back across an end."""
    errors = reward + discount * next_value - value

    def step(
        later: Float[Array, " E"], now: tuple[Float[Array, " E"], Bool[Array, " E"]]
    ) -> tuple[Float[Array, " E"], Float[Array, " E"]]:
        error, ends = now
        advantage = error + discount * decay * jnp.where(ends, 0.0, later)
        return advantage, advantage

    return jax.lax.scan(step, jnp.zeros_like(errors[0]), (errors, ended), reverse=True)[1]


def ppo_loss(
    network: PPONetwork, batch: Minibatch, config: PPOConfig
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """The clipped loss of a minibatch with its parts. `policy_kl` is E[(ρ − 1) − log ρ], an
    estimate of KL(π_old ‖ π) that is never negative."""
    assert config.clip is not None
    assert config.entropy_weight is not None
    out = network(batch.observation, batch.begins, batch.memory)
    log_ratio = log_probabilities(network, out.policy, batch.action) - batch.log_probability
    ratio, advantage = jnp.exp(log_ratio), batch.advantage
    if config.normalise_advantages:
        advantage = (advantage - jnp.mean(advantage)) / (jnp.std(advantage) + 1e-8)
    clipped = jnp.clip(ratio, 1.0 - config.clip, 1.0 + config.clip)
    actor_loss = -jnp.mean(jnp.minimum(ratio * advantage, clipped * advantage))
    errors = (batch.returns - out.values) ** 2
    if config.clip_values:
        moved = jnp.clip(out.values - batch.value, -config.clip, config.clip)
        errors = jnp.maximum(errors, (batch.returns - batch.value - moved) ** 2)
    critic_loss = jnp.sum(jnp.mean(errors, axis=(0, 1)))
    entropy = jnp.mean(entropies(network, out.policy))
    loss = actor_loss + config.value_weight * critic_loss - config.entropy_weight * entropy
    return loss, {
        "actor_loss": actor_loss,
        "critic_loss": critic_loss,
        "policy_entropy": entropy,
        "policy_kl": jnp.mean(ratio - 1.0 - log_ratio),
        "clip_fraction": jnp.mean((jnp.abs(ratio - 1.0) > config.clip).astype(jnp.float32)),
    }


def log_probabilities(
    network: PPONetwork,
    policy: Float[Array, "T B A"],
    action: Int[Array, "T B"] | Float[Array, "T B A"],
) -> Float[Array, "T B"]:
    """log π(a), of choices, or of a Gaussian's actions: Σ_A log N(a; μ, σ)."""
    if network.log_std is None:
        logs = jax.nn.log_softmax(policy)
        return jnp.take_along_axis(logs, action[..., None], axis=-1)[..., 0]
    log_std = network.log_std[None, None]
    deviation = (action - policy) * jnp.exp(-log_std)
    return jnp.sum(-0.5 * deviation**2 - log_std - 0.5 * log(2 * pi), axis=-1)


def entropies(network: PPONetwork, policy: Float[Array, "T B A"]) -> Float[Array, "T B"]:
    """H(π) in nats: of a Gaussian Σ_A log σ + ½ log(2πe), everywhere the same."""
    if network.log_std is None:
        logs = jax.nn.log_softmax(policy)
        return -jnp.sum(jnp.exp(logs) * logs, axis=-1)
    entropy = jnp.sum(network.log_std + 0.5 * log(2 * pi * e))
    return jnp.broadcast_to(entropy, policy.shape[:-1])


def shuffled(key: PRNGKeyArray, units: int, epochs: int, minibatches: int) -> Int[Array, "M R"]:
    """Rows of all minibatches of all epochs, in new order for each; every unit once per epoch, and
    where they cannot be shared evenly some of them twice."""
    size = -(-units // minibatches)

    def epoch(epoch_key: PRNGKeyArray) -> Int[Array, "M R"]:
        order = jax.random.permutation(epoch_key, units)
        return jnp.resize(order, (minibatches, size))

    return jax.vmap(epoch)(jax.random.split(key, epochs)).reshape(-1, size)


def _said(
    network: PPONetwork, rollout: Rollout, begins: Bool[Array, "T E"]
) -> tuple[Any, Float[Array, "E S"], Float[Array, "F S"]]:
    """What the network says of the rollout, the values of what follows it, and those of the last
    observations of its episodes."""
    out = _in_blocks(network, rollout.observation, begins, rollout.memory)
    goes_on = jnp.zeros_like(begins[:1])
    following = network(rollout.following[None], rollout.ended[-1][None], out.memories[-1]).values[
        0
    ]
    step = jnp.minimum(rollout.final_step, begins.shape[0] - 1)
    memories = out.memories[step, rollout.final_env]
    alone = jnp.broadcast_to(goes_on[:, :1], (1, rollout.final.shape[0]))
    final = network(rollout.final[None], alone, memories).values[0]
    return out, following, final


def _in_blocks(
    network: PPONetwork,
    observation: Shaped[Array, "T E *O"],
    begins: Bool[Array, "T E"],
    memory: Float[Array, "E 2 H"],
) -> Any:
    """The network's outputs; of frames few at a time, whose convolutions need much memory."""
    steps, environments, *shape = observation.shape
    rows = max(VALUE_BLOCK // environments, 1)
    if len(shape) < 2 or steps <= rows or steps % rows:
        return network(observation, begins, memory)

    def block(carried: Array, now: tuple[Array, Array]) -> tuple[Array, Any]:
        out = network(*now, carried)
        return out.memories[-1], out

    parts = (
        observation.reshape(-1, rows, environments, *shape),
        begins.reshape(-1, rows, environments),
    )
    _, outputs = jax.lax.scan(block, memory, parts)
    return jax.tree.map(lambda leaf: leaf.reshape(steps, *leaf.shape[2:]), outputs)


def _rows(steps: Minibatch, rows: Int[Array, " R"], whole: bool) -> Minibatch:
    """Some steps, or all steps of some environments."""
    if whole:
        timed = jax.tree.map(lambda leaf: leaf[:, rows], steps._replace(memory=steps.begins))
        return timed._replace(memory=steps.memory[rows])
    flat = jax.tree.map(
        lambda leaf: leaf.reshape(1, -1, *leaf.shape[2:])[:, rows],
        steps._replace(memory=steps.begins),
    )
    return flat._replace(memory=jnp.zeros((rows.shape[0], *steps.memory.shape[1:])))


def _adam_step(
    state: PPOState, gradient: Any, learning_rate: Float[Array, ""], config: PPOConfig
) -> PPOState:
    changes, optimiser = _optimiser(config).update(gradient, state.optimiser)
    changes = jax.tree.map(lambda change: -learning_rate * change, changes)
    return PPOState(eqx.apply_updates(state.network, changes), optimiser)


def _optimiser(config: PPOConfig) -> optax.GradientTransformation:
    """Without the learning rate, which may fall while the agent learns."""
    return optax.chain(
        optax.clip_by_global_norm(config.max_gradient_norm),
        optax.scale_by_adam(eps=ADAM_EPSILON),
    )
