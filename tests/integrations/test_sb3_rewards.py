"""The rewards in the buffer's batches are those of the library's own functions, called on episodes
built by hand."""

import pickle
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from stable_baselines3.common.utils import set_random_seed
from support.sb3_worlds import walks
from support.small_rewards import SMALL_REWARDS

from element_rl.acting.collector import Chunk
from element_rl.agents import sac
from element_rl.agents.sac import SACConfig
from element_rl.encoders.state import make_state_encoder
from element_rl.envs.spec import EnvSpec
from element_rl.integrations.sb3 import IntrinsicReplayBuffer
from element_rl.replay.ring import Episode, Transitions
from element_rl.rewards import RewardSpec, make_reward
from element_rl.training.off_policy.learner import Learner

SEED, CAPACITY, BATCH, TOTAL, LONGEST, ROWS = 3, 100, 24, 240, 9, 12  # the ring comes round twice
WINDOW = {
    "update_interval": 60,
    "update_steps": 25,
}  # both windows and the steps between them lie within the data
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "element-exact": ("element", {"memory": "exact", "credit": "state", **WINDOW}),
    "element-hnsw": (
        "element",
        {"memory": "hnsw", "normalisation": "running", "credit": "episode", **WINDOW},
    ),
    "rnd": ("rnd", {"feature_dim": 8, "target_sizes": (16,), "predictor_sizes": (16,)}),
    "ngu": (
        "ngu",
        {"encoder_sizes": (16,), "head_sizes": (16,), "rnd_sizes": (16,), "embedding_dim": 8},
    ),
    "re3": ("re3", {"pool_size": 64}),
    "rise": ("rise", {"pool_size": 64}),
    "apt": ("apt", {"pool_size": 64, "feature_dim": 8, "hidden_sizes": (16,)}),
    "icm": (
        "icm",
        {"feature_dim": 8, "encoder_sizes": (16,), "inverse_sizes": (16,), "forward_sizes": (16,)},
    ),
    "e3b": ("e3b", {"feature_dim": 8, "encoder_sizes": (16,), "head_sizes": (16,)}),
    **{name: (name, SMALL_REWARDS[name]) for name in ("disagreement", "ride", "noveld")},
    "pseudo-counts": ("pseudo-counts", SMALL_REWARDS["pseudo-counts"]),
    "etd": ("etd", SMALL_REWARDS["etd"]),
}


class ByHand:
    """One reward of the library on transitions kept in a list; ELEMENT's distances by brute force
    over all that entered."""

    def __init__(self, method: str) -> None:
        self.name, self.options = METHODS[method]
        self.reward, self._observe, self._update, self._reward = compiled(method)
        self.key = jax.random.key(SEED)
        self.state = self.reward.init(
            jax.random.fold_in(self.key, 1), RewardSpec(3, 2, 5, LONGEST, TOTAL)
        )
        self.transitions: list[tuple[np.ndarray, ...]] = []
        self.notes: dict[int, dict[str, np.ndarray]] = {}
        self.running: dict[int, list[int]] = {}
        self.memory: dict[int, np.ndarray] = {}  # number of the transition to its state
        self.updates = 0

    def step(self, observation, action, following, reward, terminated, ended) -> None:
        for env in range(len(observation)):
            number = len(self.transitions)
            row = (observation[env], action[env], following[env], reward[env], terminated[env])
            self.transitions.append((*row, encode(following[env])))
            self.running.setdefault(env, []).append(number)
        for env in np.flatnonzero(ended):
            self.finish(self.running.pop(int(env)))

    def finish(self, numbers: list[int]) -> None:
        mask = np.arange(ROWS) < len(numbers)
        padded = numbers + [numbers[-1]] * (ROWS - len(numbers))
        step = np.array(
            [number if present else 0 for number, present in zip(padded, mask, strict=True)],
            np.int32,
        )
        episode = Episode(*self.columns(padded), jnp.asarray(mask), jnp.asarray(step))
        if self.options.get("memory") == "hnsw":
            self.state, notes = self._observe(self.state, episode, jnp.full((ROWS, 3), jnp.inf))
        else:
            self.state, notes = self._observe(self.state, episode)
        for row, number in enumerate(numbers):
            self.notes[number] = {name: np.asarray(note[row]) for name, note in notes.items()}
            phase = number % WINDOW["update_interval"]
            if self.name == "element" and number >= 60 and 0 < phase < 25:
                self.memory[number] = self.transitions[number][5].astype(np.float64)

    def rewards(self, numbers: list[int]) -> np.ndarray:
        notes = {
            name: jnp.asarray(np.stack([self.note(n, name) for n in numbers]))
            for name in self.reward.note_shapes()
        }
        batch = Transitions(*self.columns(numbers), notes)
        key = jax.random.split(
            jax.random.fold_in(jax.random.fold_in(self.key, 2), self.updates), 3
        )[1]
        self.state, _ = self._update(self.state, batch, key)
        self.updates += 1
        return np.asarray(self._reward(self.state, batch))

    def note(self, number: int, name: str) -> np.ndarray:
        if name != "neighbour_distances":
            return self.notes[number][name]
        others = [state for other, state in self.memory.items() if other != number]
        distances = np.full(3, np.inf)
        if others:
            nearest = np.sort(
                np.linalg.norm(np.array(others) - self.transitions[number][5], axis=1)
            )[:3]
            distances[: len(nearest)] = nearest
        return distances.astype(np.float32)

    def columns(self, numbers: list[int]) -> tuple[Any, ...]:
        parts = zip(*(self.transitions[number] for number in numbers), strict=True)
        return tuple(jnp.asarray(np.array(part)) for part in parts)


@cache
def compiled(method: str) -> tuple[Any, ...]:
    name, options = METHODS[method]
    reward = make_reward(name, **options)
    return reward, jax.jit(reward.observe), jax.jit(reward.update), jax.jit(reward.reward)


def encode(observation: np.ndarray) -> np.ndarray:
    """The random encoder of the seed, in NumPy."""
    network = encoder().embed
    hidden = observation
    for layer, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        hidden = np.asarray(weight) @ hidden + np.asarray(bias)
        hidden = np.maximum(hidden, 0) if layer < 2 else hidden
    return hidden


@cache
def encoder() -> Any:
    return make_state_encoder(SEED, 3)


def make_buffer(method: str, num_envs: int) -> IntrinsicReplayBuffer:
    name, options = METHODS[method]
    envs = walks(num_envs)
    return IntrinsicReplayBuffer(
        CAPACITY,
        envs.observation_space,
        envs.action_space,
        device="cpu",
        n_envs=num_envs,
        reward=name,
        total_steps=TOTAL,
        max_episode_steps=LONGEST,
        seed=SEED,
        options=options,
    )


def steps_of(num_envs: int, number: int):
    """What Stable-Baselines3 hands to `add`, from environments that act at random; beside it what
    only the test knows."""
    envs = walks(num_envs)
    rng = np.random.default_rng(0)
    observation = envs.reset()
    for _ in range(number // num_envs):
        action = rng.uniform(-1, 1, (num_envs, 2)).astype(np.float32)
        new, reward, done, infos = envs.step(2 * action)
        following = np.array(
            [info.get("terminal_observation", new[env]) for env, info in enumerate(infos)]
        )
        out_of_time = np.array([info["TimeLimit.truncated"] for info in infos])
        yield (observation, following, action, reward, done, infos), done & ~out_of_time
        observation = new


@pytest.mark.parametrize("num_envs", [1, 4])
@pytest.mark.parametrize("method", METHODS)
def test_batches_carry_the_rewards_of_the_library(method: str, num_envs: int) -> None:
    """With several environments also after the buffer was saved and loaded in the middle of
    episodes."""
    buffer, by_hand = make_buffer(method, num_envs), ByHand(method)
    set_random_seed(0)
    ends, batches = np.zeros(2, int), 0
    for index, (step, terminated) in enumerate(steps_of(num_envs, TOTAL)):
        observation, following, action, reward, done, _ = step
        buffer.add(*step)
        by_hand.step(observation, action, following, reward, terminated, done)
        ends += [terminated.sum(), (done & ~terminated).sum()]
        if num_envs > 1 and index == TOTAL // num_envs // 2 + 1:
            buffer = pickle.loads(pickle.dumps(buffer))
        if index > 12 and index % (20 // num_envs) == 0:
            batch = buffer.sample(BATCH)
            where = {
                row[0].tobytes() + row[2].tobytes(): number
                for number, row in enumerate(by_hand.transitions)
            }
            pairs = zip(batch.observations.numpy(), batch.next_observations.numpy(), strict=True)
            numbers = [where[before.tobytes() + after.tobytes()] for before, after in pairs]
            expected = by_hand.rewards(numbers)
            np.testing.assert_allclose(batch.rewards.numpy()[:, 0], expected, rtol=1e-5, atol=1e-5)
            assert np.std(expected) > 0
            batches += 1
    assert ends.min() >= 3
    assert batches > 8
    if "element" in method:
        assert buffer.bonus.memory_size == len(by_hand.memory) > 40


def test_rewards_are_those_of_the_learner_of_the_library() -> None:
    """The learner of `element explore` is fed the same stream; its replay has the same notes."""
    buffer = make_buffer("element-exact", 1)
    reward = compiled("element-exact")[0]
    spec = EnvSpec("Walk", (3,), LONGEST, (-2.0,) * 2, (2.0,) * 2)
    agent = sac.agent(SACConfig(hidden_sizes=(4,)), spec.observation_dim, spec.action_dim)
    learner = Learner(
        spec,
        reward,
        agent,
        [SEED],
        400,
        1,
        TOTAL,
    )
    slots = []
    for step, terminated in steps_of(1, TOTAL):
        buffer.add(*step)
        slots.append(int(learner.ledger.head[0]))
        learner.ingest(chunk_of(*step[:5], terminated))
    numbers = np.random.default_rng(0).integers(
        TOTAL - CAPACITY, int(learner.ledger.steps[0]), size=BATCH
    )
    rows = numbers % CAPACITY
    following = buffer.next_observations[rows, 0]
    ours = buffer.bonus.reward(
        numbers, buffer.observations[rows, 0], buffer.actions[rows, 0], following
    )
    replay = jax.tree.map(lambda leaf: leaf[0], learner.state.replay)
    slot = np.array(slots)[numbers]
    kept = (
        replay.observation,
        replay.action,
        replay.observation,
        replay.extrinsic_reward,
        replay.terminated,
        replay.state,
    )
    after = (slot, slot, slot + 1, slot, slot, slot + 1)
    notes = {name: note[slot] for name, note in replay.notes.items()}
    batch = Transitions(*(part[place] for part, place in zip(kept, after, strict=True)), notes)
    theirs = reward.reward(jax.tree.map(lambda leaf: leaf[0], learner.state.rewards), batch)
    np.testing.assert_array_equal(batch.next_observation, following)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    assert int(learner.memory_sizes()[0]) == buffer.bonus.memory_size > 40


def chunk_of(observation, following, action, reward, done, terminated) -> Chunk:
    """One step of one agent as records; a second one with the last observation where the episode
    ended."""

    def rows(first: Any, second: Any, kind: type) -> np.ndarray:
        return np.array([[first, second]], kind)

    return Chunk(
        observation=rows(observation[0], following[0], np.float32),
        action=rows(action[0], np.zeros(2), np.float32),
        extrinsic_reward=rows(reward[0], 0.0, np.float32),
        terminated=rows(terminated[0], False, bool),
        truncated=rows(done[0] and not terminated[0], False, bool),
        final=rows(False, True, bool),
        position=np.zeros((1, 2, 0), np.float32),
        count=np.array([1 + int(done[0])], np.int32),
        episode_index=np.zeros(1, np.int64),
    )
