"""RE3: how far a state is from its k-th nearest neighbour in the replay, seen through a fixed
random encoder.

    y = f(s'),      r(s') = log(‖y − y_kNN‖ + 1)                  (form "paper")
                    r(s') = ‖y − y_kNN‖ / running std of it       (form "code")

State Entropy Maximization with Random Encoders for Efficient Exploration,
https://arxiv.org/abs/2102.09430; the official code is github.com/younggyoseo/RE3 (rad_re3). The
reward is, up to constants, the state's share of the k-nearest-neighbour estimate of the entropy of
all states in the replay. Official settings: k = 3 without the state itself, 50-dimensional
encodings that end in a LayerNorm and a tanh, the whole replay of 100,000 as neighbours.

The paper prints the logarithm; the official SAC code has none and divides by the standard deviation
of all distances so far. The paper mixes r with the extrinsic reward by β_t = β_0 (1 − ρ)^t. There
is none here, so there is no β: its constant would be a scale of the only reward, its decay would
end exploration.

Departures:
1. With pool="whole", as `element explore` has it, neighbours are looked for among all states that
   the agent has visited in ended episodes (`whole_replay`): the official replay, until a ring would
   have come round. pool="sample" takes the last 4,096 draws from the replay (`sample_pool`). That
   is another reward, which does not put states in the same order (docs/methods/re3.md).
2. By default y is the state vector of ELEMENT (its shared random encoder beside position and
   orientation), as the ELEMENT paper compares. `space="observation"` encodes the observation alone
   with RE3's own 50 dimensions; an MLP, since the official encoder is convolutional.
3. The bonus is about the next observation. The official code encodes the current one.
4. The bonus is recomputed for every sampled batch, as in the official SAC code; with few neighbours
   in the pool the farthest stands for the k-th, and with none the bonus is 0.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from element_rl.mlp import MLP
from element_rl.replay.ring import Transitions
from element_rl.rewards.interface import RewardSpec
from element_rl.rewards.sample_pool import (
    KthNeighbourReward,
    Pool,
    check_pool,
    empty_pool,
)
from element_rl.rewards.scaling import Moments, empty_moments, standard_deviation, with_values
from element_rl.rewards.settings import check_settings


@dataclass(frozen=True)
class Re3Config:
    """The paper's parameters."""

    num_neighbours: int = 3  # k, the state itself not counted
    form: Literal["paper", "code"] = "paper"  # log(d + 1), or d over its running standard deviation
    # compare ELEMENT's state vectors, or encode observations anew
    space: Literal["state", "observation"] = "state"
    # neighbours among the last draws from the replay, or among all states visited
    pool: Literal["sample", "whole"] = "sample"
    pool_size: int = 4_096  # how many draws with pool="sample"
    feature_dim: int = 50  # of the encoder for space="observation"
    hidden_sizes: tuple[int, ...] = (64, 64)  # of that encoder; those of ELEMENT's

    def __post_init__(self) -> None:
        check_settings(self, positive=("feature_dim",), num_neighbours=check_pool(self))


class Re3State(NamedTuple):
    """What the reward of one agent knows."""

    encoder: MLP | tuple[()]  # () when the state vectors are taken as they are
    pool: Pool
    distance_moments: Moments  # of the distances to the k-th neighbour; moved by form "code" only


@dataclass(frozen=True)
class Re3Reward(KthNeighbourReward):
    """The reward of the paper, for one agent; populations `vmap` it."""

    name: ClassVar[str] = "re3"
    config: Re3Config = field(default_factory=Re3Config)

    def init(self, key: PRNGKeyArray, spec: RewardSpec) -> Re3State:
        encoder: MLP | tuple[()] = ()
        width = spec.state_dim
        if self.config.space == "observation":
            width = self.config.feature_dim
            encoder = MLP.create(key, (spec.observation_dim, *self.config.hidden_sizes, width))
        return Re3State(encoder, empty_pool(self.config.pool_size, width), empty_moments())

    def with_transitions(self, state: Re3State, batch: Transitions) -> Re3State:
        """The batch enters the pool; its distances enter the running standard deviation that form
        "code" divides by."""
        state = KthNeighbourReward.with_transitions(self, state, batch)
        if self.config.form == "code":
            state = self.counted(state, self.distance(state, batch))
        return state

    def counted(self, state: Re3State, distance: Float[Array, " B"]) -> Re3State:
        if self.config.form == "paper":
            return state
        return state._replace(distance_moments=with_values(state.distance_moments, distance))

    @property
    def noted_width(self) -> int | None:
        return self.config.feature_dim if self.config.space == "observation" else None

    def vectors(self, state: Re3State, batch: Transitions) -> Float[Array, "B F"]:
        """y = f(s'); full precision, so that a state is the same whenever it is encoded."""
        if not isinstance(state.encoder, MLP):
            return batch.state
        with jax.default_matmul_precision("highest"):
            encoded = state.encoder(batch.next_observation)
        return jnp.tanh(jax.nn.standardize(encoded, axis=-1))

    def worth(self, state: Re3State, distance: Float[Array, " B"]) -> Float[Array, " B"]:
        if self.config.form == "code":
            return distance / standard_deviation(state.distance_moments)
        return jnp.log1p(distance)
