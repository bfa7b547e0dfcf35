"""What workers deliver: whole rollouts, an LSTM that begins anew with every episode, and places
that can be gone back to."""

from itertools import pairwise

import jax
import numpy as np

from element_rl.acting.rollout import Rollout
from element_rl.acting.rollout_actor import RolloutSettings
from element_rl.acting.rollout_workers import RolloutWorkers
from element_rl.agents import a3c
from element_rl.envs.make import describe, env_maker
from element_rl.rewards.return_scale import ReturnScale
from element_rl.training.on_policy.agent import Episode

CONFIG = a3c.A3CConfig(channels=(2, 2), hidden_size=8, local_steps=10)
OPTIONS = {"max_episode_steps": 25, "goal_distance": 4}


def rollout_workers(places: dict | None = None) -> tuple[RolloutWorkers, dict[str, np.ndarray]]:
    spec = describe("Rooms-v0", **OPTIONS)
    network = a3c.ActorCritic.create(jax.random.key(0), spec.frame_shape, spec.actions, CONFIG)
    parameters = {name: np.asarray(array) for name, array in a3c.policy_parameters(network).items()}
    shapes = {name: array.shape for name, array in parameters.items()}
    settings = RolloutSettings(spec, env_maker(spec.name, OPTIONS), 10, 8, shapes)
    return RolloutWorkers(settings, [3], 0, 0, places), parameters


def delivered(
    workers: RolloutWorkers, parameters: dict[str, np.ndarray], count: int
) -> list[Rollout]:
    rollouts = []
    for _ in range(count):
        workers.start(0, 0, parameters, 10)
        rollout = workers.next()[2]
        copies = {
            name: value.copy()
            for name, value in vars(rollout).items()
            if isinstance(value, np.ndarray)
        }
        rollouts.append(Rollout(**(vars(rollout) | copies)))
    return rollouts


def test_rollouts_follow_one_another_and_never_cross_an_episode_s_end() -> None:
    workers, parameters = rollout_workers()
    rollouts = delivered(workers, parameters, 8)
    workers.close()
    assert rollouts[0].begins
    for before, after in pairwise(rollouts):
        assert after.begins == before.ended
        assert (after.episode_seed != before.episode_seed) == before.ended
        assert before.ended or len(before) == 10
        if after.begins:
            assert not after.lstm.any()
        else:
            np.testing.assert_array_equal(after.lstm, before.lstm_after)
            np.testing.assert_array_equal(after.frames[0], before.frames[-1])
            assert after.lstm.any()
    assert sum(rollout.ended for rollout in rollouts) >= 2


def test_a_worker_goes_on_from_a_place() -> None:
    """In the middle of an episode: the same frames, actions and LSTM states follow."""
    workers, parameters = rollout_workers()
    first = delivered(workers, parameters, 2)
    place = workers.places[0, 0]
    assert len(place.actions) == 20 or first[0].ended
    expected = delivered(workers, parameters, 4)
    other, _ = rollout_workers({(0, 0): place})
    for ours, theirs in zip(delivered(other, parameters, 4), expected, strict=True):
        for name, value in vars(theirs).items():
            np.testing.assert_array_equal(getattr(ours, name), value, err_msg=name)
    workers.close()
    other.close()


def test_an_episode_grows_by_its_rollouts() -> None:
    workers, parameters = rollout_workers()
    rollouts = delivered(workers, parameters, 3)
    workers.close()
    episode = Episode(
        np.zeros((0, 1), np.float32),
        np.zeros(0, np.int32),
        np.zeros(0, np.float32),
        np.zeros((0, 2), np.float32),
    )
    for rollout in rollouts[:2]:
        episode = episode.with_rollout(rollout, rollout.frames[:, :1, 0].astype(np.float32))
    assert (
        len(episode.states)
        == len(episode.positions)
        == len(episode.actions) + 1
        == len(episode.rewards) + 1
    )
    np.testing.assert_array_equal(episode.positions[-1], rollouts[1].positions[-1])


def test_a_reward_is_divided_by_the_deviation_of_its_return() -> None:
    """γ = 0.5, rewards 1, 2, then 4 of another worker: returns 1, 2.5 and 4."""
    scale = ReturnScale(2, 0.5)
    np.testing.assert_allclose(
        scale.scaled(0, np.array([1.0, 2.0], np.float32)), np.array([1.0, 2.0]) / 0.75, rtol=1e-6
    )
    expected = 4.0 / np.std([1.0, 2.5, 4.0])
    np.testing.assert_allclose(scale.scaled(1, np.array([4.0], np.float32)), [expected], rtol=1e-6)
    other = ReturnScale(2, 0.5)
    other.restore(scale.to_arrays())
    np.testing.assert_array_equal(
        other.scaled(0, np.ones(2, np.float32)), scale.scaled(0, np.ones(2, np.float32))
    )


def test_a_constant_reward_of_nothing_stays_nothing() -> None:
    np.testing.assert_array_equal(
        ReturnScale(1, 0.9).scaled(0, np.zeros(3, np.float32)), np.zeros(3)
    )
