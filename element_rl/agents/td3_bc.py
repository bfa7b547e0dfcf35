"""TD3+BC (Fujimoto & Gu, 2021, arXiv:2106.06860), for one agent that learns from a fixed dataset.

`td3` whose actor also pays for leaving the actions of the data. With μ the actor, Q_1 the first
critic just updated and a the action of the dataset (the paper's equations 3 and 5):

    J_π = -λ E[Q_1(s, μ(s))] + E[(μ(s) - a)²],      λ = α / E|Q_1(s, μ(s))|

λ is a constant of the batch. It divides values by their own size, so that α means the same for
rewards of any scale. Critics, target smoothing, the delay of the actor and all targets are TD3's,
whose functions are used.

Departures:

1. The squared error is a mean over the dimensions of the action too, as in the authors' code
   (github.com/sfujim/TD3_BC, `F.mse_loss`). The paper's equation reads like a sum.
2. The squared errors of the critics have the factor ½ (`networks.critic_loss`), theirs have none.
   Adam's steps do not depend on such a factor, but for its ε.
3. Observations are standardised over the dataset by the loop (`training.offline`), for every
   agent; deviations below 1e-3 count as 1e-3, where the authors' code adds 1e-3 to each.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from element_rl.agents import td3
from element_rl.agents.contract import Agent, Batch, check_settings
from element_rl.agents.networks import TwinCritics
from element_rl.agents.td3 import Metrics, TD3Config, TD3State, mean_action
from element_rl.mlp import MLP

METRICS = (*td3.METRICS, "cloning_error")


@dataclass(frozen=True)
class TD3BCConfig:
    """The settings of the authors' code."""

    # Weight α of the values against the squared distance from the data's actions; 0 clones them.
    alpha: float = 2.5
    # Units of each hidden layer (ReLU) of the actor and of both critics.
    hidden_sizes: tuple[int, ...] = (256, 256)
    # Learning rate of the actor (Adam).
    actor_learning_rate: float = 3e-4
    # Learning rate of the critics (Adam).
    critic_learning_rate: float = 3e-4
    # Discount γ of future rewards.
    discount: float = 0.99
    # Share τ by which the targets follow, each time the actor learns.
    target_rate: float = 0.005
    # Deviation σ̃ of the noise added to the target's action.
    smoothing_noise: float = 0.2
    # Largest noise c of the target's action.
    smoothing_clip: float = 0.5
    # Updates of the critics for each update of the actor.
    policy_delay: int = 2
    # Transitions in the batch of one update.
    batch_size: int = 256

    def __post_init__(self) -> None:
        check_settings(self, [("alpha", self.alpha >= 0.0, "0 or above")])
        _ = self.td3  # refuses what TD3 refuses

    @property
    def td3(self) -> TD3Config:
        """The settings of all that TD3+BC leaves to TD3; its stored policy acts without noise."""
        return TD3Config(
            hidden_sizes=self.hidden_sizes,
            actor_learning_rate=self.actor_learning_rate,
            critic_learning_rate=self.critic_learning_rate,
            discount=self.discount,
            target_rate=self.target_rate,
            exploration_noise=0.0,
            smoothing_noise=self.smoothing_noise,
            smoothing_clip=self.smoothing_clip,
            policy_delay=self.policy_delay,
            batch_size=self.batch_size,
        )


def agent(config: TD3BCConfig, observation_dim: int, action_dim: int) -> Agent:
    """TD3+BC behind the contract of agents."""
    return Agent(
        create=partial(
            td3.create, observation_dim=observation_dim, action_dim=action_dim, config=config.td3
        ),
        update=partial(update, config=config),
        policy=partial(td3.policy, config=config.td3),
        batch_size=config.batch_size,
        metric_names=METRICS,
    )


def update(
    state: TD3State, batch: Batch, key: PRNGKeyArray, config: TD3BCConfig
) -> tuple[TD3State, Metrics]:
    """One step of the critics; every `policy_delay` updates also one of the actor and all
    targets."""

    def loss(actor: MLP, critics: TwinCritics) -> tuple[Float[Array, ""], Metrics]:
        return actor_loss(actor, critics, batch, config.alpha)

    return td3.descend(state, batch, key, config.td3, loss)


def actor_loss(
    actor: MLP, critics: TwinCritics, batch: Batch, alpha: float
) -> tuple[Float[Array, ""], Metrics]:
    """J_π = -λ E[Q_1(s, μ(s))] + E[(μ(s) - a)²]; `cloning_error` is its second term."""
    action = mean_action(actor, batch.observation)
    q = critics(batch.observation, action)[0]
    weight = alpha / jax.lax.stop_gradient(jnp.mean(jnp.abs(q)))
    cloning_error = jnp.mean((action - batch.action) ** 2)
    loss = cloning_error - weight * jnp.mean(q)
    return loss, {"actor_loss": loss, "cloning_error": cloning_error}
