"""One agent of A3C: its shared parameters, its reward, and the episodes its workers are in.

`learn_from` is the order of things when a rollout arrives, and the reason why this file exists: the
reward is computed first, the advantages from it after that. (Adding a bonus after the advantages,
where it changes nothing, is the field's commonest mistake.)

    1. states of the new frames                      frozen encoder
    2. rewards of the new transitions                by what the bonus knew before them
    3. the bonus learns from the transitions         methods that learn
    4. A3C's gradient, at the parameters the worker acted with; Adam applies it to the shared ones
    5. if the episode has ended, the bonus observes it
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt8

from element_rl.acting.group_rollout import Piece
from element_rl.acting.rollout import Rollout
from element_rl.agents import a3c
from element_rl.encoders.frozen import FrozenEncoder
from element_rl.envs.spec import EnvSpec
from element_rl.rewards.on_rollouts import Bonus, EpisodeSoFar, Part
from element_rl.rewards.return_scale import ReturnScale
from element_rl.storage.trees import tree_to_arrays
from element_rl.training.loop import part, tree_of

_POLICY, _BONUS, _LEARNING = range(3)  # streams of an agent's key


class Lived(NamedTuple):
    """A part of an episode that a worker has delivered, and the episode up to there."""

    rollout: Rollout | Piece
    episode: "Episode"


class Learned(NamedTuple):
    """What came of a delivery."""

    metrics: dict[str, float]
    lived: Sequence[Lived]
    next: Sequence[int]  # workers that may act again


@dataclass
class Episode:
    """What is known of an episode since its reset."""

    states: Float[np.ndarray, "S D"]  # of all frames, or none where nobody asks for them
    actions: Int[np.ndarray, " N"] | Float[np.ndarray, "N A"]
    rewards: Float[np.ndarray, " N"]  # extrinsic
    positions: Float[np.ndarray, "M C"]
    # of vectors, which rewards look at beside the states
    observations: Float[np.ndarray, "M O"] | None = None

    def with_rollout(self, rollout: Rollout, states: Float[np.ndarray, "S D"]) -> "Episode":
        """Everything but the first frame is new, unless the rollout begins the episode."""
        first = 0 if rollout.begins else 1
        return Episode(
            np.concatenate([self.states, states[first:]]),
            np.concatenate([self.actions, rollout.actions]),
            np.concatenate([self.rewards, rollout.rewards]),
            np.concatenate([self.positions, rollout.positions[first:]]),
        )

    def arrays(self) -> list[tuple[str, np.ndarray]]:
        """What there is, by name."""
        return [(name, array) for name, array in vars(self).items() if array is not None]


class Agent:
    """An agent in training. Nothing of it is shared with other agents but the encoder."""

    def __init__(
        self,
        seed: int,
        spec: EnvSpec,
        config: a3c.A3CConfig,
        encoder: FrozenEncoder,
        bonus: Bonus | None,
        num_workers: int,
        scale_reward: bool = False,
        extrinsic_weight: float = 0.0,
    ) -> None:
        self.config, self.encoder, self.bonus = config, encoder, bonus
        self.extrinsic_weight = extrinsic_weight
        self._key = jax.random.key(seed)
        self.state = a3c.create(self._stream(_POLICY), spec.frame_shape, spec.actions, config)
        self.bonus_state: Any = bonus.init(self._stream(_BONUS)) if bonus is not None else None
        self.scale = ReturnScale(num_workers, config.discount) if scale_reward else None
        self.steps = 0  # of all workers together
        self.updates = 0
        # an episode whose states are known has ended since the last line of metrics
        self.measured = False
        self.episodes = [self._fresh_episode() for _ in range(num_workers)]
        # what each worker acts with, and its age in updates
        self._acted = [(self.state.network, 0)] * num_workers

    def parameters_for(self, worker: int) -> Mapping[str, np.ndarray]:
        """The newest parameters, which the worker will act with; none where nobody learns."""
        if self.bonus is None:
            return {}
        self._acted[worker] = (self.state.network, self.updates)
        return self.parameters()

    def parameters(self) -> dict[str, np.ndarray]:
        return {
            name: np.asarray(array)
            for name, array in a3c.policy_parameters(self.state.network).items()
        }

    def learn_from(self, worker: int, rollout: Rollout) -> Learned:
        """See the head of this file."""
        if rollout.begins:
            self.episodes[worker] = self._fresh_episode()
        episode = self.episodes[worker] = self.episodes[worker].with_rollout(
            rollout, self._states(worker, rollout)
        )
        self.measured |= rollout.ended and len(episode.states) > 0
        self.steps += len(rollout)
        metrics: dict[str, float] = {}
        if self.bonus is not None:
            unasked = np.zeros((len(episode.positions), self.encoder.state_dim), np.float32)
            states = episode.states if len(episode.states) else unasked
            so_far = EpisodeSoFar(states, episode.actions, episode.rewards, rollout.terminated)
            rewards = self._rewards(worker, rollout, so_far, metrics)
            key = jax.random.fold_in(self._stream(_LEARNING), self.updates)
            self.bonus_state, learned = self.bonus.learn(
                self.bonus_state, [Part(so_far, len(rollout))], key
            )
            metrics |= learned | self._update(worker, rollout, rewards)
            if rollout.ended:
                self.bonus_state, observed = self.bonus.observe(
                    self.bonus_state, so_far, self.steps
                )
                metrics |= observed
        return Learned(metrics, [Lived(rollout, episode)], [worker])

    def next_steps(self, worker: int, left: int) -> tuple[int, int]:
        """For how many steps a worker acts next, where the agent has so many left, and how many
        these are for the agent."""
        del worker
        steps = max(min(self.config.local_steps, left), 0)
        return steps, steps

    def begin_with(self, parameters: Mapping[str, np.ndarray]) -> None:
        """Act as another agent learned to; Adam begins anew."""
        network = a3c.network_of({name: jnp.asarray(array) for name, array in parameters.items()})
        expected = {name: array.shape for name, array in self.parameters().items()}
        given = {name: array.shape for name, array in parameters.items()}
        if expected != given:
            raise ValueError(
                "The policies to begin with have another network, or another number of actions."
            )
        self.state = self.state._replace(network=network)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Everything but the workers' places, for a checkpoint."""
        arrays = tree_to_arrays(self.state, "a3c") | tree_to_arrays(self.bonus_state, "bonus")
        arrays["counters"] = np.array([self.steps, self.updates, self.measured])
        if self.scale is not None:
            arrays |= {f"scale/{name}": array for name, array in self.scale.to_arrays().items()}
        for worker, episode in enumerate(self.episodes):
            arrays |= {f"episode/{worker}/{name}": array for name, array in episode.arrays()}
        return arrays

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """The opposite of `to_arrays`."""
        self.state = tree_of(self.state, arrays, "a3c")
        self.bonus_state = tree_of(self.bonus_state, arrays, "bonus")
        self.steps, self.updates, measured = (int(count) for count in arrays["counters"])
        self.measured = bool(measured)
        if self.scale is not None:
            self.scale.restore(part(arrays, "scale/"))
        self.episodes = [
            Episode(**part(arrays, f"episode/{worker}/")) for worker in range(len(self.episodes))
        ]

    def _rewards(
        self, worker: int, rollout: Rollout, so_far: EpisodeSoFar, metrics: dict[str, float]
    ) -> Float[np.ndarray, " T"]:
        """What A3C learns from; its terms go into the metrics."""
        assert self.bonus is not None
        rewards, terms = self.bonus.rewards(self.bonus_state, [Part(so_far, len(rollout))])
        metrics |= {name: float(np.mean(values)) for name, values in terms.items()}
        metrics["reward_mean"] = float(np.mean(rewards))
        if self.scale is not None:
            rewards = self.scale.scaled(worker, np.asarray(rewards))
        if self.extrinsic_weight:
            rewards = rewards + np.float32(self.extrinsic_weight) * rollout.rewards
        return np.asarray(rewards, np.float32)

    def _update(
        self, worker: int, rollout: Rollout, rewards: Float[np.ndarray, " T"]
    ) -> dict[str, float]:
        steps = self.config.local_steps
        acted, age = self._acted[worker]
        padded = a3c.PaddedRollout(
            jnp.asarray(_padded(rollout.frames, steps + 1)),
            jnp.asarray(_padded(rollout.actions, steps)),
            jnp.asarray(_padded(rewards, steps)),
            jnp.asarray(len(rollout), jnp.int32),
            jnp.asarray(rollout.terminated),
            jnp.array(rollout.lstm),
        )
        self.state, metrics = a3c.update(self.state, acted, padded, self.config)
        lag = self.updates - age  # by other workers, since this one fetched its parameters
        self.updates += 1
        return {name: float(value) for name, value in jax.device_get(metrics).items()} | {
            "policy_lag": float(lag)
        }

    def _states(self, worker: int, rollout: Rollout) -> Float[np.ndarray, "M D"]:
        """Of the rollout's frames. Where no reward asks for them, only those of episodes whose
        entropy is to be measured."""
        asked = self.bonus is not None and self.bonus.name != "extrinsic"
        wanted = not self.measured if rollout.begins else len(self.episodes[worker].states) > 0
        if not (asked or wanted):
            return self._fresh_episode().states
        padded = jnp.asarray(_padded(rollout.frames, self.config.local_steps + 1))
        return np.asarray(_encode(self.encoder, padded))[: len(rollout.frames)]

    def _fresh_episode(self) -> Episode:
        nothing = np.zeros(0, np.float32)
        return Episode(
            np.zeros((0, self.encoder.state_dim), np.float32),
            np.zeros(0, np.int32),
            nothing,
            np.zeros((0, 2), np.float32),
        )

    def _stream(self, stream: int) -> Array:
        return jax.random.fold_in(self._key, stream)


@eqx.filter_jit
def _encode(encoder: FrozenEncoder, frames: UInt8[Array, "M H W"]) -> Float[Array, "M D"]:
    return encoder(frames)


def _padded(array: np.ndarray, rows: int) -> np.ndarray:
    """A copy: the memory belongs to the worker, which will write there again."""
    padded = np.zeros((rows, *array.shape[1:]), array.dtype)
    padded[: len(array)] = array
    return padded
