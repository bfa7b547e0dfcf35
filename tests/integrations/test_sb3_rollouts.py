"""The callback in real models: the bonus is in the advantages, once, and nothing else changes."""

from typing import Any, NamedTuple

import numpy as np
import pytest
import stable_baselines3
import torch
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import VecNormalize
from support.sb3_worlds import SMALL, algorithm, foreign_code, parameters_of, walks

from element_rl import RolloutReward
from element_rl.integrations.sb3 import IntrinsicCallback

STEPS, LONGEST = 12, 9
ELEMENT: dict[str, Any] = {
    "reward": "element",
    "max_episode_steps": LONGEST,
    "options": {"update_interval": 20, "update_steps": 10, "merge_distance": 0.0},
}
RND = {
    "reward": "rnd",
    "options": {
        "feature_dim": 4,
        "target_sizes": (8,),
        "predictor_sizes": (8,),
        "minibatch_size": 8,
    },
}


def make_model(name: str = "PPO", env: Any = None, **options: Any) -> Any:
    settings: dict[str, Any] = {
        "n_steps": STEPS,
        "policy_kwargs": dict(SMALL),
        "seed": 0,
        "device": "cpu",
    }
    if name != "A2C":
        settings |= {"batch_size": 8, "n_epochs": 2}
    policy = "MlpPolicy"
    if name == "RecurrentPPO":
        policy = "MlpLstmPolicy"
        settings["policy_kwargs"] |= {"lstm_hidden_size": 4}
    return algorithm(name)(policy, walks(2) if env is None else env, **{**settings, **options})


class Rollout(NamedTuple):
    """What happened, and what the buffer held when it was over."""

    first: np.ndarray  # observations
    steps: list[dict[str, Any]]
    stored: dict[str, np.ndarray]
    last_values: np.ndarray


class Seen(BaseCallback):
    """Keeps all rollouts; before or after the callback that is tested."""

    def __init__(self) -> None:
        super().__init__()
        self.rollouts: list[Rollout] = []

    def _on_rollout_start(self) -> None:
        self.steps: list[dict[str, Any]] = []
        self.first = self.model._last_obs.copy()

    def _on_step(self) -> bool:
        names = ("new_obs", "clipped_actions", "rewards", "dones", "infos")
        self.steps.append({name: np.array(self.locals[name]) for name in names})
        return True

    def _on_rollout_end(self) -> None:
        buffer = self.model.rollout_buffer
        stored = {
            name: getattr(buffer, name).copy()
            for name in ("rewards", "advantages", "returns", "values")
        }
        self.rollouts.append(
            Rollout(self.first, self.steps, stored, self.locals["values"].numpy().ravel())
        )
        for step in self.steps:  # now, with the policy that collected the rollout
            step["ends"] = np.zeros(len(step["dones"]))
            for env, info in enumerate(step["infos"]):
                if info["TimeLimit.truncated"]:
                    last = torch.as_tensor(info["terminal_observation"])[None]
                    step["ends"][env] = self.model.policy.predict_values(last).item()


@pytest.mark.parametrize("intrinsic_only", [True, False])
def test_advantages_are_those_computed_by_hand_from_rewards_with_the_bonus(
    intrinsic_only: bool,
) -> None:
    """δ_t = r_t + γ V_{t+1} − V_t, A_t = Σ (γλ)^i δ_{t+i}; where time ran out, r_t has γ V of the
    last observation."""
    model = make_model(env=walks(2, reward_scale=100.0), gamma=0.9, gae_lambda=0.8)
    before, after = Seen(), Seen()
    callback = IntrinsicCallback(**ELEMENT, weight=2.0, intrinsic_only=intrinsic_only)
    ours = RolloutReward(
        "element", *spaces_of(model), num_envs=2, total_steps=72, **without(ELEMENT, "reward")
    )
    model.learn(72, [before, callback, after])
    for rollout, changed in zip(before.rollouts, after.rollouts, strict=True):
        bonus = ours.rollout(*arguments_of(rollout))
        rewards = 2.0 * bonus
        for t, step in enumerate(rollout.steps):
            rewards[t] += 0.9 * step["ends"] + (0 if intrinsic_only else step["rewards"])
        dones, values = (
            np.stack([step["dones"] for step in rollout.steps]),
            rollout.stored["values"],
        )
        advantages, running = np.zeros((STEPS, 2)), np.zeros(2)
        for t in reversed(range(STEPS)):
            following = values[t + 1] if t + 1 < STEPS else rollout.last_values
            goes_on = 1.0 - dones[t]
            running = (
                rewards[t] + 0.9 * goes_on * following - values[t] + 0.9 * 0.8 * goes_on * running
            )
            advantages[t] = running
        np.testing.assert_allclose(changed.stored["rewards"], rewards, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(changed.stored["advantages"], advantages, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(
            changed.stored["returns"], advantages + values, rtol=1e-5, atol=1e-5
        )
        assert np.any([step["ends"] for step in rollout.steps])  # time ran out within the rollout
    assert len(before.rollouts) == 3
    assert bonus.std() > 0


@pytest.mark.parametrize("name", ["PPO", "A2C", "RecurrentPPO", "MaskablePPO", "sbx-PPO"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of SBX's dependencies
def test_a_bonus_of_weight_zero_leaves_training_bit_for_bit_as_it_was(name: str) -> None:
    """And one of another weight does not."""
    learn = {"use_masking": False} if name == "MaskablePPO" else {}
    options = {"discrete": True} if name == "MaskablePPO" else {}

    def trained(callback: IntrinsicCallback | None = None) -> np.ndarray:
        return parameters_of(
            make_model(name, walks(2, **options)).learn(2 * STEPS, callback, **learn)
        )

    with foreign_code():
        plain = trained()
        unweighted, weighted = (
            trained(IntrinsicCallback(**RND, weight=weight, intrinsic_only=False))
            for weight in (0.0, 0.5)
        )
    assert np.array_equal(plain, unweighted)
    assert not np.array_equal(plain, weighted)


def test_the_reward_of_the_environment_does_not_matter_where_only_the_bonus_counts() -> None:
    ours, others, rewarded = (
        make_model(env=walks(2, reward_scale=scale)).learn(
            4 * STEPS, IntrinsicCallback(**RND, intrinsic_only=only)
        )
        for scale, only in ((1.0, True), (100.0, True), (100.0, False))
    )
    assert np.array_equal(parameters_of(ours), parameters_of(others))
    assert not np.array_equal(parameters_of(ours), parameters_of(rewarded))


def test_the_bonus_sees_raw_observations_also_at_the_end_of_an_episode() -> None:
    model = make_model(env=VecNormalize(walks(2, stride=2.0)))
    callback, told = IntrinsicCallback(**ELEMENT), []
    callback.init_callback(model)

    class Told(RolloutReward):
        def rollout(self, *arguments: Any) -> Any:
            told.append(arguments)
            return super().rollout(*arguments)

    callback.bonus = Told(
        "element", *spaces_of(model), num_envs=2, total_steps=96, **without(ELEMENT, "reward")
    )
    model.learn(4 * STEPS, callback)
    ends = 0
    for observations, actions, following, terminated, truncated, infos, _ in told:
        places = np.array([[info["x"] for info in step] for step in infos])
        np.testing.assert_allclose(following[..., 0], places, atol=1e-4)
        goes_on = ~(terminated | truncated)[:-1]
        np.testing.assert_array_equal(observations[1:][goes_on], following[:-1][goes_on])
        assert np.abs(actions).max() <= 1.0  # on the scale of the policy, not of the environment
        ends += int((~goes_on).sum())
    assert ends > 5
    # normalised ones are smaller
    assert np.abs(np.array([info["x"] for step in infos for info in step])).max() > 3


def test_the_same_seed_gives_the_same_policy() -> None:
    first, second, other = (
        parameters_of(make_model().learn(4 * STEPS, IntrinsicCallback(**ELEMENT, seed=seed)))
        for seed in (0, 0, 1)
    )
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


def test_a_saved_callback_goes_on_as_it_was(tmp_path) -> None:
    model, seen, callback = (
        make_model(),
        Seen(),
        IntrinsicCallback(**ELEMENT, weight=0.25, intrinsic_only=False),
    )
    with pytest.raises(ValueError, match="before learn has begun"):
        callback.save(tmp_path / "bonus")
    model.learn(4 * STEPS, [callback, seen])
    callback.save(tmp_path / "bonus")
    loaded = IntrinsicCallback.load(tmp_path / "bonus")
    assert (loaded.weight, loaded.intrinsic_only) == (0.25, False)
    assert callback.bonus is not None
    assert loaded.bonus is not None
    again = arguments_of(seen.rollouts[-1])
    np.testing.assert_array_equal(loaded.bonus.rollout(*again), callback.bonus.rollout(*again))
    make_model().learn(2 * STEPS, loaded)
    assert loaded.bonus.observed == 8 * STEPS


def test_an_episode_that_a_second_learn_leaves_unfinished_is_not_continued() -> None:
    model, callback = make_model(env=walks(2, stride=0.0)), IntrinsicCallback(**ELEMENT)
    for reset, steps in (
        (True, 3),
        (False, 6),
        (True, 3),
    ):  # twelve steps are an episode of nine and three more
        model.learn(2 * STEPS, callback, reset_num_timesteps=reset)
        assert [len(episode.rewards) for episode in callback.bonus._running] == [steps, steps]


def test_what_is_logged(tmp_path) -> None:
    model = make_model()
    model.set_logger(Logger(str(tmp_path), []))
    written: dict[str, float] = {}
    model.logger.dump = lambda step=0: written.update(model.logger.name_to_value)
    model.learn(4 * STEPS, IntrinsicCallback(**ELEMENT))
    assert {"intrinsic/reward", "intrinsic/reward_episodic", "intrinsic/reward_lifelong"} <= set(
        written
    )


def test_what_cannot_be_is_refused_in_a_sentence() -> None:
    class Own(RolloutBuffer):
        def compute_returns_and_advantage(self, last_values: Any, dones: Any) -> None:
            self.returns = self.advantages + self.values

    with pytest.raises(ValueError, match="Own computes advantages of its own"):
        make_model(rollout_buffer_class=Own).learn(STEPS, IntrinsicCallback())
    with pytest.raises(ValueError, match="give IntrinsicReplayBuffer as its replay_buffer_class"):
        stable_baselines3.SAC("MlpPolicy", walks(1), buffer_size=100).learn(2, IntrinsicCallback())


def arguments_of(rollout: Rollout) -> tuple[np.ndarray, ...]:
    """Of `RolloutReward.rollout`."""
    following, actions, dones = (
        np.stack([step[name] for step in rollout.steps])
        for name in ("new_obs", "clipped_actions", "dones")
    )
    observations = np.concatenate([rollout.first[None], following[:-1]])
    reached = following.copy()
    out_of_time = np.zeros_like(dones)
    for t, step in enumerate(rollout.steps):
        for env, info in enumerate(step["infos"]):
            reached[t, env] = info.get("terminal_observation", following[t, env])
            out_of_time[t, env] = info["TimeLimit.truncated"]
    return observations, actions / 2.0, reached, dones & ~out_of_time, dones & out_of_time


def spaces_of(model: Any) -> tuple[Any, Any]:
    return model.observation_space, model.action_space


def without(settings: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key != name}
