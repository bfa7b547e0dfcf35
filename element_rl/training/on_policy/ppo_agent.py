"""One agent of PPO: its parameters, its reward, and the episodes its environments are in.

It learns when all its workers have delivered, in this order: the reward first, the advantages from
it after that.

    1. states of all observations                    the encoder, which never changes
    2. rewards of all new transitions                by what the bonus knew before them
    3. advantages, and the epochs of PPO             `agents.ppo.learn`
    4. the bonus learns from the transitions         methods that learn
    5. the bonus observes the episodes that ended    in the order in which they did

All workers act with the same parameters, so nothing depends on which of them is first: a run can be
repeated bit for bit, and one that is resumed equals the undisturbed one.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from element_rl.acting.group_rollout import GroupRollout, Piece, joined, pieces
from element_rl.acting.host_ppo import in_bounds
from element_rl.agents import ppo
from element_rl.agents.ppo_network import network_of, policy_parameters
from element_rl.envs.spec import EnvSpec
from element_rl.rewards.on_rollouts import Bonus, EpisodeSoFar, Part
from element_rl.rewards.return_scale import ReturnScale
from element_rl.storage.trees import tree_to_arrays
from element_rl.training.loop import part, tree_of
from element_rl.training.on_policy.agent import Episode, Learned, Lived
from element_rl.training.on_policy.config import OnPolicyConfig, new_agent, streams_of
from element_rl.training.on_policy.states import Encoders, VectorEncoders, states_of

_POLICY, _BONUS, _LEARNING, _SHUFFLING = range(4)  # streams of an agent's key
_learn = partial(jax.jit, static_argnames=("config", "streams"))(ppo.learn)


class PPOAgent:
    """An agent in training. Nothing of it is shared with other agents but the encoder of frames."""

    def __init__(
        self,
        seed: int,
        spec: EnvSpec,
        config: OnPolicyConfig,
        encoders: Encoders,
        bonus: Bonus | None,
        workers: Sequence[Sequence[int]],
    ) -> None:
        """`workers`: the environments that each of them has; settings are resolved."""
        self.spec, self.config, self.bonus, self.workers = spec, config, bonus, workers
        self.num_envs = sum(map(len, workers))
        self.encoder = encoders.of(seed) if isinstance(encoders, VectorEncoders) else encoders
        self.state_dim = encoders.state_dim
        self.streams = streams_of(config)
        self._key = jax.random.key(seed)
        self.state: ppo.PPOState = new_agent(self._stream(_POLICY), config, spec)
        self.bonus_state: Any = bonus.init(self._stream(_BONUS)) if bonus is not None else None
        discount = self.streams[0].discount
        self.scale = ReturnScale(self.num_envs, discount) if config.scale_reward else None
        self.steps = 0  # of all environments together
        self.updates = 0  # rollouts learned from
        # an episode whose states are known has ended since the last line of metrics
        self.measured = False
        self.episodes = [self._fresh_episode() for _ in range(self.num_envs)]
        self._delivered: dict[int, GroupRollout] = {}

    def parameters_for(self, worker: int) -> Mapping[str, np.ndarray]:
        """The parameters that the worker will act with; none where nobody learns."""
        del worker
        return {} if self.bonus is None else self.parameters()

    def parameters(self) -> dict[str, np.ndarray]:
        return jax.device_get(policy_parameters(self.state.network))

    def next_steps(self, worker: int, left: int) -> tuple[int, int]:
        """For how many steps each environment of a worker acts next, and how many these are for the
        agent: always a whole rollout."""
        steps = self.config.ppo.rollout_steps or 0
        steps = steps if left > 0 else 0
        return steps, steps * len(self.workers[worker])

    def learn_from(self, worker: int, delivered: GroupRollout) -> Learned:
        """See the head of this file. Nothing happens until all workers have delivered."""
        self._delivered[worker] = delivered
        if len(self._delivered) < len(self.workers):
            return Learned({}, [], [])
        rollout = joined([self._delivered[worker] for worker in range(len(self.workers))])
        self._delivered = {}
        parted = pieces(rollout)
        lived = [Lived(piece, episode) for piece, episode in self._lived(parted, rollout)]
        metrics: dict[str, float] = {}
        if self.bonus is not None:
            parts = [Part(_so_far(one), len(one.rollout)) for one in lived]
            rewards = self._rewards(parted, parts, rollout, metrics)
            metrics |= self._update(rollout, rewards) | self._bonus_learns(parted, parts)
        self.steps += len(rollout)
        return Learned(metrics, lived, range(len(self.workers)))

    def begin_with(self, parameters: Mapping[str, np.ndarray]) -> None:
        """Act as another agent learned to; Adam begins anew."""
        expected = {name: array.shape for name, array in self.parameters().items()}
        given = {name: array.shape for name, array in parameters.items()}
        if expected != given:
            raise ValueError(
                "The policies to begin with have another network, or other observations or actions."
            )
        self.state = self.state._replace(network=network_of(parameters))

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Everything but the workers' places, for a checkpoint. What some of the workers have
        delivered since the last update is acted again."""
        arrays = tree_to_arrays(self.state, "ppo") | tree_to_arrays(self.bonus_state, "bonus")
        arrays["counters"] = np.array([self.steps, self.updates, self.measured])
        if self.scale is not None:
            arrays |= {f"scale/{name}": array for name, array in self.scale.to_arrays().items()}
        for env, episode in enumerate(self.episodes):
            arrays |= {f"episode/{env}/{name}": array for name, array in episode.arrays()}
        return arrays

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """The opposite of `to_arrays`."""
        self.state = tree_of(self.state, arrays, "ppo")
        self.bonus_state = tree_of(self.bonus_state, arrays, "bonus")
        self.steps, self.updates, measured = (int(count) for count in arrays["counters"])
        self.measured = bool(measured)
        if self.scale is not None:
            self.scale.restore(part(arrays, "scale/"))
        self.episodes = [Episode(**part(arrays, f"episode/{env}/")) for env in range(self.num_envs)]

    def _lived(self, parted: Sequence[Piece], rollout: GroupRollout) -> list[tuple[Piece, Episode]]:
        """Each piece with its episode up to there."""
        states = self._states(parted, rollout)
        found = []
        for piece, own in zip(parted, states, strict=True):
            before = self._fresh_episode() if piece.begins else self.episodes[piece.env]
            first = 0 if piece.begins else 1  # the first observation is new where it begins
            episode = Episode(
                np.concatenate([before.states, own[first:]]),
                np.concatenate([before.actions, in_bounds(piece.actions)]),
                np.concatenate([before.rewards, piece.rewards]),
                np.concatenate([before.positions, piece.positions[first:]]),
                None
                if before.observations is None
                else np.concatenate([before.observations, piece.observations[first:]]),
            )
            self.episodes[piece.env] = self._fresh_episode() if piece.ended else episode
            self.measured |= piece.ended and len(episode.states) > 0
            found.append((piece, episode))
        return found

    def _states(
        self, parted: Sequence[Piece], rollout: GroupRollout
    ) -> list[Float[np.ndarray, "M D"]]:
        """Of each piece's observations. An observation is encoded once: that after the last step of
        a piece is another's first, unless an episode ended with it."""
        (steps, envs), ended = rollout.ended.shape, np.argwhere(rollout.ended)
        seen, places = (
            np.concatenate(
                [all_steps.reshape(steps * envs, *last.shape[1:]), last, at_ends[tuple(ended.T)]]
            )
            for all_steps, last, at_ends in (
                (rollout.observations, rollout.following, rollout.final),
                (rollout.positions, rollout.following_position, rollout.final_position),
            )
        )
        states = states_of(self.encoder, seen, places)
        acted = states[: (steps + 1) * envs].reshape(steps + 1, envs, -1)
        final = {
            (int(step), int(column)): states[(steps + 1) * envs + row]
            for row, (step, column) in enumerate(ended)
        }
        return [
            np.concatenate(
                [
                    acted[piece.first : piece.last, piece.column],
                    final.get((piece.last - 1, piece.column), acted[piece.last, piece.column])[
                        None
                    ],
                ]
            )
            for piece in parted
        ]

    def _rewards(
        self,
        parted: Sequence[Piece],
        parts: Sequence[Part],
        rollout: GroupRollout,
        metrics: dict[str, float],
    ) -> Float[np.ndarray, "T E S"]:
        """Of each stream; their terms go into the metrics."""
        assert self.bonus is not None
        paid, terms = self.bonus.rewards(self.bonus_state, parts)
        metrics |= {name: float(np.mean(values)) for name, values in terms.items()}
        metrics["reward_mean"] = float(np.mean(paid))
        rewards: Any = np.zeros(rollout.ended.shape, np.float32)
        first = 0
        for piece in parted:
            own = np.asarray(paid[first : first + len(piece)], np.float32)
            if self.scale is not None:
                own = self.scale.scaled(piece.env, own)
            rewards[piece.first : piece.last, piece.column] = own
            first += len(piece)
        if len(self.streams) > 1:
            return np.stack([rewards, rollout.rewards], axis=-1)
        if self.config.extrinsic_weight:
            rewards = rewards + np.float32(self.config.extrinsic_weight) * rollout.rewards
        return rewards[..., None]

    def _update(
        self, rollout: GroupRollout, rewards: Float[np.ndarray, "T E S"]
    ) -> dict[str, float]:
        learner = self.config.ppo
        assert learner.learning_rate is not None
        left = 1.0 - self.steps / self.config.steps if learner.anneal else 1.0
        rate = learner.learning_rate * left
        key = jax.random.fold_in(self._stream(_SHUFFLING), self.updates)
        self.state, metrics = _learn(
            self.state,
            _for_learner(rollout, rewards),
            key,
            jnp.float32(rate),
            config=learner,
            streams=self.streams,
        )
        self.updates += 1
        values = {name: float(value) for name, value in jax.device_get(metrics).items()}
        return values | {"learning_rate": rate}

    def _bonus_learns(self, parted: Sequence[Piece], parts: Sequence[Part]) -> dict[str, float]:
        """Once rewards are given: from the transitions, and from the episodes that ended."""
        assert self.bonus is not None
        key = jax.random.fold_in(self._stream(_LEARNING), self.updates)
        self.bonus_state, metrics = self.bonus.learn(self.bonus_state, parts, key)
        ended = [(piece, part) for piece, part in zip(parted, parts, strict=True) if piece.ended]
        reported: list[dict[str, float]] = []
        for piece, lived in sorted(ended, key=lambda one: (one[0].last, one[0].env)):
            step = self.steps + piece.last * self.num_envs
            self.bonus_state, observed = self.bonus.observe(self.bonus_state, lived.episode, step)
            reported.append(observed)
        names = reported[0] if reported else ()
        return metrics | {name: float(np.mean([one[name] for one in reported])) for name in names}

    def _fresh_episode(self) -> Episode:
        spec = self.spec
        actions = (0,) if spec.chooses else (0, spec.action_dim)
        seen = None if spec.sees_frames else np.zeros((0, spec.observation_dim), np.float32)
        return Episode(
            np.zeros((0, self.state_dim), np.float32),
            np.zeros(actions, np.int32 if spec.chooses else np.float32),
            np.zeros(0, np.float32),
            np.zeros((0, spec.position_dim), np.float32),
            seen,
        )

    def _stream(self, stream: int) -> Array:
        return jax.random.fold_in(self._key, stream)


def _so_far(lived: Lived) -> EpisodeSoFar:
    episode = lived.episode
    parts = (episode.states, episode.actions, episode.rewards)
    return EpisodeSoFar(*parts, lived.rollout.terminated, episode.observations)


def _for_learner(rollout: GroupRollout, rewards: Float[np.ndarray, "T E S"]) -> ppo.Rollout:
    """The rollout as PPO takes it. Ends are padded, so that few programs are compiled: on vectors,
    which cost little, as if every step were one."""
    steps, envs = rollout.ended.shape
    ended, frames = np.argwhere(rollout.ended), rollout.following.ndim > 2
    rows = envs if frames else steps * envs
    while rows < len(ended):
        rows *= 4
    final = np.zeros((rows, *rollout.following.shape[1:]), rollout.following.dtype)
    final[: len(ended)] = rollout.final[tuple(ended.T)]
    where = np.tile(np.array([[steps, 0]], np.int32), (rows, 1))  # beyond the last step: nothing
    where[: len(ended)] = ended
    arrays: tuple[Any, ...] = (
        rollout.observations,
        rollout.actions,
        rewards,
        rollout.terminated,
        rollout.ended,
        rollout.begins,
        rollout.memory,
        rollout.following,
        final,
        where[:, 0],
        where[:, 1],
    )
    # copies: the memory belongs to the worker, which will write there again
    return ppo.Rollout(*map(jnp.array, arrays))
