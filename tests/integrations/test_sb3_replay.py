"""The replay buffer in real models: the bonus, and nothing else, reaches the learner; nothing is
lost or mixed up."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import stable_baselines3
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.utils import set_random_seed
from stable_baselines3.common.vec_env import VecNormalize
from support.documents import ROOT, blocks
from support.sb3_worlds import SMALL, Walk, algorithm, foreign_code, parameters_of, walks

from element_rl.encoders.state import make_state_encoder
from element_rl.integrations.sb3 import (
    IntrinsicDictReplayBuffer,
    IntrinsicReplayBuffer,
    LogIntrinsic,
)

RND = {
    "reward": "rnd",
    "options": {"feature_dim": 4, "target_sizes": (8,), "predictor_sizes": (8,)},
}
ELEMENT = {
    "reward": "element",
    "total_steps": 200,
    "options": {"update_interval": 20, "update_steps": 10},
}
SIZES = {"max_episode_steps": 9}


def make_model(
    kind: Any = stable_baselines3.SAC, env: Any = None, bonus: dict | None = None, **options: Any
) -> Any:
    """A tiny model; without a bonus a plain one."""
    env = walks(1) if env is None else env
    settings = {
        "buffer_size": 200,
        "batch_size": 16,
        "learning_starts": 20,
        "policy_kwargs": dict(SMALL),
        "seed": 0,
        "device": "cpu",
    }
    if bonus is not None:
        dictionary = hasattr(env.observation_space, "spaces")
        settings["replay_buffer_class"] = (
            IntrinsicDictReplayBuffer if dictionary else IntrinsicReplayBuffer
        )
        settings["replay_buffer_kwargs"] = {**SIZES, **bonus}
    policy = "MultiInputPolicy" if hasattr(env.observation_space, "spaces") else "MlpPolicy"
    return kind(policy, env, **{**settings, **options})


@pytest.mark.parametrize("num_envs", [1, 4])
def test_a_bonus_of_weight_zero_leaves_training_bit_for_bit_as_it_was(num_envs: int) -> None:
    """And one of another weight does not."""
    plain = make_model(env=VecNormalize(walks(num_envs))).learn(80)
    changed = {}
    for weight in (0.0, 0.5):
        bonus = {**RND, "weight": weight, "intrinsic_only": False}
        model = make_model(env=VecNormalize(walks(num_envs)), bonus=bonus).learn(80)
        changed[weight] = not np.array_equal(parameters_of(model), parameters_of(plain))
    assert changed == {0.0: False, 0.5: True}


def test_the_reward_of_the_environment_does_not_matter_where_only_the_bonus_counts() -> None:
    ours, others, rewarded = (
        make_model(
            env=walks(1, reward_scale=scale), bonus={**ELEMENT, "intrinsic_only": only}
        ).learn(60)
        for scale, only in ((1.0, True), (100.0, True), (100.0, False))
    )
    assert np.array_equal(parameters_of(ours), parameters_of(others))
    assert not np.array_equal(parameters_of(ours), parameters_of(rewarded))


def test_what_the_critic_is_told_changes_by_the_weighted_bonus_and_nothing_else() -> None:
    model = make_model(env=VecNormalize(walks(1)), bonus=ELEMENT).learn(60)
    buffer, normalised = model.replay_buffer, model.get_vec_normalize_env()
    batches = {}
    for weight, only in ((1.0, True), (3.0, True), (0.0, False), (2.0, False)):
        buffer.weight, buffer.intrinsic_only = weight, only
        set_random_seed(5)
        batches[weight] = buffer.sample(32, normalised)
    bonus = batches[1.0].rewards.numpy()
    assert bonus.std() > 0
    np.testing.assert_allclose(batches[3.0].rewards, 3 * bonus, rtol=1e-6)
    np.testing.assert_allclose(
        batches[2.0].rewards - batches[0.0].rewards, 2 * bonus, rtol=1e-5, atol=1e-6
    )
    for name in ("observations", "actions", "next_observations", "dones"):
        parts = [getattr(batch, name).numpy() for batch in batches.values()]
        assert all(np.array_equal(part, parts[0]) for part in parts)


@pytest.mark.parametrize("name", ["TD3", "DQN", "TQC", "sbx-SAC", "sbx-TQC", "sbx-DQN"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of SBX's dependencies
def test_every_off_policy_algorithm_learns_from_the_bonus(name: str) -> None:
    discrete = name.endswith("DQN")
    with foreign_code():
        model = make_model(
            algorithm(name), walks(2, discrete=discrete), ELEMENT, train_freq=8, gradient_steps=2
        )
        before = parameters_of(model)
        model.learn(64)
    assert np.isfinite(parameters_of(model)).all()
    assert not np.array_equal(parameters_of(model), before)
    metrics = model.replay_buffer.bonus_metrics
    assert metrics["reward"] > 0
    assert metrics["reward_episodic"] > 0
    assert metrics["reward_lifelong"] > 0
    assert metrics["memory_size"] == model.replay_buffer.bonus.memory_size > 5


def test_dict_observations_are_seen_part_by_part() -> None:
    model = make_model(env=walks(2, dictionary=True), bonus=ELEMENT).learn(60)
    buffer = model.replay_buffer
    batch = buffer.sample(8)
    assert set(batch.observations) == {"place", "phase"}
    phases = np.eye(3, dtype=np.float32)[buffer.next_observations["phase"][:10, 1, 0]]
    # Gymnasium sorts the names
    vectors = np.concatenate([phases, buffer.next_observations["place"][:10, 1]], axis=1)
    assert list(buffer.observation_space) == ["phase", "place"]
    np.testing.assert_allclose(states_in(buffer)[1:20:2], encoded(vectors), rtol=1e-5, atol=1e-6)


def test_the_bonus_sees_raw_observations_and_the_agent_normalised_ones() -> None:
    env = VecNormalize(walks(2, stride=2.0), norm_reward=True)
    model = make_model(env=env, bonus={**ELEMENT, "intrinsic_only": False}).learn(60)
    buffer = model.replay_buffer
    raw = buffer.next_observations[: buffer.pos].reshape(-1, 3)
    np.testing.assert_allclose(states_in(buffer)[: len(raw)], encoded(raw), rtol=1e-5, atol=1e-6)
    # so that the check above could fail
    assert np.abs(encoded(env.normalize_obs(raw)) - encoded(raw)).max() > 0.1
    set_random_seed(5)
    mixed = buffer.sample(32, env)
    buffer.weight = 0.0
    set_random_seed(5)
    plain = buffer.sample(32, env)
    where = [
        int(np.flatnonzero((env.normalize_obs(raw) == row).all(axis=1))[0])
        for row in plain.next_observations.numpy()
    ]
    extrinsic = buffer.rewards[: buffer.pos].reshape(-1)[where]
    np.testing.assert_allclose(plain.rewards[:, 0], env.normalize_reward(extrinsic), rtol=1e-6)
    # ELEMENT's range: not divided by the deviation of returns
    assert 0 < float((mixed.rewards - plain.rewards).max()) <= 1.5


def test_the_same_seed_gives_the_same_policy() -> None:
    first, second, other = (
        make_model(bonus={**ELEMENT, "seed": seed}).learn(60) for seed in (0, 0, 1)
    )
    assert np.array_equal(parameters_of(first), parameters_of(second))
    assert not np.array_equal(parameters_of(first), parameters_of(other))


def test_a_saved_buffer_gives_the_same_batches_and_rewards(tmp_path) -> None:
    model = make_model(env=walks(2), bonus=ELEMENT).learn(70)
    model.save_replay_buffer(tmp_path / "replay")
    other = make_model(env=walks(2), bonus=ELEMENT)
    other.load_replay_buffer(tmp_path / "replay")
    assert other.replay_buffer.bonus is not model.replay_buffer.bonus
    for _ in range(2):
        batches = []
        for buffer in (model.replay_buffer, other.replay_buffer):
            set_random_seed(7)
            batches.append(buffer.sample(32))
        for ours, theirs in zip(batches[0][:5], batches[1][:5], strict=True):
            assert np.array_equal(ours, theirs)


def test_episodes_that_a_second_learn_or_a_loaded_buffer_leaves_unfinished_are_not_continued(
    tmp_path,
) -> None:
    # eleven steps: nine, then two
    model = make_model(env=walks(2, stride=0.0), bonus=ELEMENT, learning_starts=1000).learn(22)
    buffer = model.replay_buffer
    assert running(buffer) == [2, 2]
    model.learn(2, reset_num_timesteps=False)  # this goes on
    assert running(buffer) == [3, 3]
    model.learn(4)  # this begins anew
    assert running(buffer) == [2, 2]
    assert buffer.bonus.ready(np.arange(24)).all()
    model.save_replay_buffer(tmp_path / "replay")
    other = make_model(env=walks(2, seed=1, stride=0.0), bonus=ELEMENT, learning_starts=1000)
    other.load_replay_buffer(tmp_path / "replay")
    other.learn(2)
    assert running(other.replay_buffer) == [1, 1]
    other.replay_buffer.truncate_last_trajectory()
    assert running(other.replay_buffer) == [0, 0]


def test_before_an_episode_has_ended_rewards_are_zero_and_it_is_said_once() -> None:
    model = make_model(env=walks(1, stride=0.0), bonus=ELEMENT, learning_starts=2)
    with pytest.warns(UserWarning, match="learning_starts") as warned:
        model.learn(7)
    assert len(warned) == 1
    assert not model.replay_buffer.sample(8).rewards.any()
    # of one episode alone there would be nothing to compare
    model.learn(20, reset_num_timesteps=False)
    assert model.replay_buffer.sample(32).rewards.any()


def test_what_is_logged(tmp_path) -> None:
    model = make_model(bonus=ELEMENT)
    written: list[dict[str, Any]] = []

    class Kept(Logger):
        def dump(self, step: int = 0) -> None:
            written.append(dict(self.name_to_value))
            super().dump(step)

    model.set_logger(Kept(str(tmp_path), []))
    model.learn(60, callback=LogIntrinsic(), log_interval=1)
    names = {name for name in written[-1] if name.startswith("intrinsic/")}
    assert names == {
        f"intrinsic/{name}"
        for name in ("reward", "reward_episodic", "reward_lifelong", "memory_size")
    }
    with pytest.raises(ValueError, match="LogIntrinsic is for models"):
        make_model().learn(3, callback=LogIntrinsic())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimize_memory_usage": True}, "optimize_memory_usage"),
        ({"replay_buffer_kwargs": {"n_steps": 3, "gamma": 0.9}}, "n_steps=3"),
        ({"replay_buffer_kwargs": {"wieght": 3}}, "no option 'wieght'"),
        ({"replay_buffer_class": IntrinsicDictReplayBuffer}, "use IntrinsicReplayBuffer"),
        ({"env": Walk(dictionary=True)}, "use IntrinsicDictReplayBuffer"),
        ({"replay_buffer_kwargs": {"reward": "elements"}}, "no reward called 'elements'"),
        ({"buffer_size": 20}, "max_episode_steps"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(options: dict[str, Any], message: str) -> None:
    env = options.pop("env", walks(1))
    policy = "MultiInputPolicy" if hasattr(env.observation_space, "spaces") else "MlpPolicy"
    settings = {"buffer_size": 2_000, "replay_buffer_class": IntrinsicReplayBuffer, **options}
    with pytest.raises(ValueError, match=message):
        stable_baselines3.SAC(policy, env, **settings)


def test_an_emptied_buffer_begins_anew() -> None:
    model = make_model(bonus=ELEMENT).learn(50)
    model.replay_buffer.reset()
    assert model.replay_buffer.bonus.observed == 0
    model.learn(40)
    assert model.replay_buffer.bonus.observed == 40 == model.replay_buffer.pos


def running(buffer: IntrinsicReplayBuffer) -> list[int]:
    """Steps of the episode under way in each environment."""
    return [len(rows) for rows in buffer.bonus.running]


def states_in(buffer: IntrinsicReplayBuffer) -> np.ndarray:
    buffer.bonus._write_states()
    return np.asarray(buffer.bonus.noted.state)


def encoded(vectors: np.ndarray) -> np.ndarray:
    encoder = make_state_encoder(0, vectors.shape[1])
    return np.asarray(
        jax.vmap(encoder)(jnp.asarray(vectors, jnp.float32), jnp.zeros((len(vectors), 0)))
    )


def test_without_a_word_of_its_length_a_run_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the README: only the reward is named. Nothing is learned here, which would take
    long."""
    model = make_model(
        bonus={"reward": "element"}, learning_starts=10_000, buffer_size=2_000
    ).learn(1_200)
    assert 50 < model.replay_buffer.bonus.memory_size < 110


def test_that_nothing_was_remembered_is_said_at_the_end() -> None:
    model = make_model(bonus={**ELEMENT, "total_steps": 1_000_000, "options": None})
    with pytest.warns(UserWarning, match="The lifelong memory is empty after 40 steps"):
        model.learn(40, LogIntrinsic())


def test_the_readme_s_buffer_says_so_too() -> None:
    """A buffer is not told that `learn` has ended: the callback in the README's block is."""
    (block,) = [text for _, text in blocks(ROOT / "README.md", "python") if "SAC(" in text]
    (learning,) = re.findall(r"agent\.learn\(.*?, callback=(\w+)\(\)\)", block)
    assert learning == LogIntrinsic.__name__


def test_a_batch_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model(bonus=RND).learn(40)
    source, read = model.replay_buffer.bonus.source, []
    raw = source.raw
    monkeypatch.setattr(
        source, "raw", lambda observations: (read.append(len(observations)), raw(observations))[1]
    )
    model.replay_buffer.sample(16)
    assert read == [16, 16]  # observations, and next observations
