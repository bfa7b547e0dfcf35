"""Offline learning from frames: what is drawn from them, what is learned, episodes on a screen."""

import dataclasses
from pathlib import Path

import gymnasium
import jax
import numpy as np
import pytest

from element_rl.acting.evaluator import Evaluator, environment_maker
from element_rl.acting.host_values import action_values
from element_rl.agents import discrete_cloning
from element_rl.agents.behaviour_cloning import CloningConfig
from element_rl.agents.discrete_cql import DiscreteBatch, DiscreteCQLConfig, value_parameters
from element_rl.datasets.minari_files import EpisodeRecord, write_dataset
from element_rl.envs.make import make_env
from element_rl.training.offline import OfflineConfig, create_offline_run, train_offline
from element_rl.training.offline.batches import device_portions, rows_of, sample
from element_rl.training.offline.data import load_data

GOAL = 5  # steps to the right of the middle of the first room
OPTIONS = {"goal_distance": GOAL, "max_episode_steps": 12}
RIGHT = 4


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random steps, but most of them towards the goal."""
    root = tmp_path_factory.mktemp("datasets")
    env = make_env("Rooms-v0", **OPTIONS)
    generator = np.random.default_rng(0)
    records = [episode(env, generator) for _ in range(12)]
    write_dataset(
        "rooms/test-v0", records, env.observation_space, env.action_space, env.env.spec, root=root
    )
    env.close()
    return root


def episode(env: gymnasium.Env, generator: np.random.Generator) -> EpisodeRecord:
    frames, actions, rewards, done = (
        [env.reset(seed=int(generator.integers(2**31)))[0]],
        [],
        [],
        False,
    )
    while not done:
        actions.append(RIGHT if generator.random() < 0.7 else int(generator.integers(5)))
        frame, reward, terminated, truncated, _ = env.step(actions[-1])
        frames.append(frame)
        rewards.append(reward)
        done = terminated or truncated
    last = np.arange(len(actions)) == len(actions) - 1
    ends = (last & terminated, last & (not terminated))
    return EpisodeRecord(np.stack(frames), np.array(actions), np.array(rewards, np.float32), *ends)


@pytest.fixture(scope="module")
def config(root: Path) -> OfflineConfig:
    return OfflineConfig(
        ("rooms/test-v0",),
        root=str(root),
        steps=12,
        evaluate_every=12,
        episodes=2,
        workers=0,
        score_range=(0.0, 1.0),
        discrete_cql=DiscreteCQLConfig(hidden_sizes=(8,), batch_size=16, learning_rate=1e-3),
        bc=CloningConfig(hidden_sizes=(8,), batch_size=16, learning_rate=3e-3),
    )


def test_frames_are_drawn_as_they_are_and_stacked_within_an_episode(config: OfflineConfig) -> None:
    source = load_data(dataclasses.replace(config, frame_stack=3))
    assert source.observation_shape == (3, 84, 84)
    rows, portion = (
        rows_of(source, 1.0),
        jax.tree.map(lambda leaf: leaf[0], device_portions(source.portions)),
    )
    assert rows.observation.dtype == np.uint8
    batch = sample(rows, portion, jax.random.key(0), 200, frame_stack=3)
    assert batch.observation.shape == (200, 3, 84, 84)
    data = source.episodes
    begin = np.repeat(np.cumsum(data.lengths + 1) - data.lengths - 1, data.lengths + 1)
    drawn = np.asarray(
        data.transitions[jax.random.randint(jax.random.key(0), (200,), 0, len(data.transitions))]
    )
    assert (drawn - begin[drawn] < 2).any()
    for ahead, observed in ((0, batch.observation), (1, batch.next_observation)):
        for place, back in enumerate((2, 1, 0)):
            expected = data.observation[np.maximum(drawn + ahead - back, begin[drawn])]
            np.testing.assert_array_equal(observed[:, place], expected)


def test_a_stack_in_the_environment_is_that_of_the_data() -> None:
    env, plain = (
        environment_maker(True, 3)("Rooms-v0", **OPTIONS),
        make_env("Rooms-v0", **OPTIONS),
    )
    frames = [plain.reset(seed=3)[0]] * 3
    np.testing.assert_array_equal(env.reset(seed=3)[0], np.stack(frames))
    for action in (4, 4, 1):
        frames.append(plain.step(action)[0])
        np.testing.assert_array_equal(env.step(action)[0], np.stack(frames[-3:]))


@pytest.mark.parametrize(("algorithm", "frame_stack"), [("cql", 1), ("bc", 2)])
def test_it_learns_and_acts_on_the_screen(
    config: OfflineConfig, tmp_path: Path, algorithm: str, frame_stack: int
) -> None:
    config = dataclasses.replace(config, algorithm=algorithm, frame_stack=frame_stack)
    run = create_offline_run(config, tmp_path / "run")
    assert run.config["coverage_cells"] == [49, 37]
    summary = train_offline(config, run)
    assert summary["env"] == "Rooms-v0"
    metrics, policy = run.read_metrics(), run.load_policy()
    assert np.isfinite(metrics["critic_loss" if algorithm == "cql" else "actor_loss"]).all()
    assert policy["kernel_0"].shape == (1, 32, frame_stack, 3, 3)
    # a process, without JAX
    with Evaluator("Rooms-v0", OPTIONS, 1, environment_maker(True, frame_stack)) as evaluator:
        evaluator.start(policy, [[(0, 12, 0), (0, 12, 1)]])
        returns, _ = evaluator.wait()
    assert summary["extrinsic_return"][0] == returns.mean() == summary["normalised_score"][0]


def test_cloning_finds_the_commonest_choice() -> None:
    """Two observations: at one the data chose 2 in three of four cases, at the other always 0."""
    config = CloningConfig(hidden_sizes=(16,), learning_rate=1e-2)
    observation = np.eye(2, dtype=np.float32)[[0, 0, 0, 0, 1, 1, 1, 1]]
    nothing = np.zeros(8, np.float32)
    batch = DiscreteBatch(
        observation, np.array([2, 2, 2, 1, 0, 0, 0, 0]), nothing, observation, nothing
    )
    batch = jax.tree.map(jax.numpy.asarray, batch)
    state = discrete_cloning.create(jax.random.key(0), (2,), 3, config)
    update = jax.jit(lambda state: discrete_cloning.update(state, batch, jax.random.key(0), config))
    for _ in range(300):
        state, metrics = update(state)
    least = -(0.75 * np.log(0.75) + 0.25 * np.log(0.25)) / 2  # the entropy of the choices
    assert least <= metrics["actor_loss"] < least + 0.01
    parameters = {name: np.asarray(array) for name, array in value_parameters(state.policy).items()}
    assert [
        int(np.argmax(action_values(parameters, row))) for row in np.eye(2, dtype=np.float32)
    ] == [2, 0]


def test_sentences(config: OfflineConfig, root: Path) -> None:
    with pytest.raises(ValueError, match="--frame-stack must be at least 1, got 0"):
        dataclasses.replace(config, frame_stack=0)
    with pytest.raises(ValueError, match=r"observes .*but Pendulum-v1|needed"):
        load_data(dataclasses.replace(config, env="Pendulum-v1"))
    spaces = gymnasium.spaces.Box(-1, 1, (4,)), gymnasium.spaces.Discrete(2)
    record = EpisodeRecord(
        np.zeros((21, 4)), np.zeros(20, int), np.zeros(20), np.zeros(20, bool), np.arange(20) == 19
    )
    write_dataset("rooms/vector-v0", [record], *spaces, root=root)
    vectors = dataclasses.replace(
        config, datasets=("rooms/vector-v0",), evaluate=False, frame_stack=2
    )
    with pytest.raises(
        ValueError, match=r"only grey frames .* are stacked: leave out --frame-stack"
    ):
        load_data(vectors)
    assert load_data(dataclasses.replace(config, env="rooms")).env == "Rooms-v0"
