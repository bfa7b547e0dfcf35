"""Off-policy learning where actions are a choice: the same seed, stopped and resumed, several
environments, workers; and every reward with DQN."""

import dataclasses
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import own_world  # noqa: F401 (registers its environments)
import pytest
from support.run_outcomes import assert_same, outcome
from support.small_rewards import SMALL_REWARDS

from element_rl.acting.actors import Actor, Population, episode_seed
from element_rl.acting.collector import ProcessCollector
from element_rl.agents.dqn import DQNConfig
from element_rl.agents.making import make_agent
from element_rl.envs.make import describe, env_maker
from element_rl.rewards import NAMES, RewardSpec, make_reward
from element_rl.rewards.interface import latent_of
from element_rl.rewards.inverse_model import InverseModel, inverse_loss
from element_rl.runs.folder import RunFolder
from element_rl.runs.watching import Interrupted
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.off_policy.explore import explore
from element_rl.training.off_policy.launch import create_run
from element_rl.training.off_policy.learner import Learner
from element_rl.training.off_policy.resolving import resolved

HALL = "own_world:OwnHall-v0"
OPTIONS = SMALL_REWARDS | {"element": {"memory": "exact", "update_interval": 10, "update_steps": 5}}
SMALL = ExploreConfig(
    HALL,
    steps=480,
    seeds=2,
    replay_size=1_000,
    chunk_steps=24,
    envs_per_agent=2,
    log_every=120,
    checkpoint_every=240,
    update_interval=120,
    update_steps=60,
    random_seeds=0,
    workers=0,
    dqn=DQNConfig(hidden_sizes=(8,), batch_size=8, learn_start=60, exploration_updates=200),
)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    run = create_run(SMALL, tmp_path_factory.mktemp("undisturbed") / "run")
    explore(SMALL, run)
    return run


def test_interrupted_and_resumed_is_undisturbed(undisturbed: RunFolder, tmp_path: Path) -> None:
    """Stopped in the middle of episodes, while the share of random actions falls; workers make no
    difference."""
    shared = dataclasses.replace(SMALL, workers=1)
    run, calls = create_run(shared, tmp_path / "run"), []
    with pytest.raises(Interrupted):
        explore(shared, run, stop=lambda: len(calls) >= 7 or bool(calls.append(1)))
    explore(shared, RunFolder.open(run.path), resume=True)
    assert_same(outcome(undisturbed), outcome(run))


def test_it_logs_its_share_of_random_actions(undisturbed: RunFolder) -> None:
    metrics = undisturbed.read_metrics()
    rates = metrics["exploration_rate"]
    assert (np.diff(rates[::2]) < 0).all()
    assert rates[-1] == pytest.approx(0.05, abs=0.01)
    assert np.isfinite(metrics["critic_loss"]).all()
    stored = undisturbed.load_policy()
    np.testing.assert_allclose(stored["exploration_rate"], 0.05)


def test_random_actions_are_uniform_one_hot_choices() -> None:
    with ProcessCollector(HALL, [3], 1_200, None, {}, num_workers=0) as collector:
        collector.start(0, None)
        chunk = collector.wait()
    taken = chunk.action[0, : chunk.count[0]][~chunk.final[0, : chunk.count[0]]]
    assert taken.shape == (1_200, 6)
    np.testing.assert_array_equal(np.sort(taken, axis=1), np.eye(6)[[5] * 1_200])
    np.testing.assert_allclose(taken.mean(axis=0), 1 / 6, atol=0.04)


def test_a_choice_is_drawn_by_two_uniforms_of_the_step() -> None:
    spec = describe("FrozenLake-v1")
    population = Population(spec, env_maker("FrozenLake-v1", {}), (7,), 6, None, {})
    noise = Actor(population, 0)._noise(2, uniform=False)
    expected = np.random.default_rng([7, 2]).random((6, 2), dtype=np.float32)
    np.testing.assert_array_equal(noise, expected)


def test_one_hot_actions_step_the_environment_as_their_choices_do(tmp_path: Path) -> None:
    """What the replay holds leads to the observations that it holds."""
    with ProcessCollector(HALL, [3], 15, None, {}, num_workers=0) as collector:
        collector.start(0, None)
        chunk = collector.wait()
    env = env_maker(HALL, {})()
    seen, _ = env.reset(seed=episode_seed(3, 0))
    for row in range(int(chunk.count[0])):
        np.testing.assert_array_equal(chunk.observation[0, row], seen)
        if chunk.final[0, row]:
            break
        seen, reward, *_ = env.step(int(np.argmax(chunk.action[0, row])))
        assert reward == chunk.extrinsic_reward[0, row]


@pytest.mark.parametrize("name", NAMES)
def test_every_reward_pays_an_agent_that_chooses(name: str) -> None:
    """It is computed from one-hot actions, is finite, and its learner's step is finite too."""
    reward = make_reward(name, **OPTIONS.get(name, {}))
    needed = latent_of(reward)
    options: dict[str, Any] = {"max_episode_steps": 10}
    options |= {} if needed is None else {"latent": needed.option}
    spec = describe(HALL, **options)
    agent = make_agent("dqn", SMALL.dqn, spec.observation_dim, spec.action_dim)
    learner = Learner(spec, reward, agent, [3], 200, 20, 200, num_updates=2)
    with ProcessCollector(spec, [3], 20, None, {}, env_options=options, num_workers=0) as collector:
        for index in range(3):
            collector.start(index, None)
            learner.ingest(collector.wait())
    metrics, parameters = learner.update()
    for values in (*metrics.values(), *jax.tree.leaves(parameters)):
        assert np.isfinite(values).all()
    assert {"critic_loss", "exploration_rate"} <= metrics.keys()


def test_inverse_models_tell_a_choice_with_a_softmax() -> None:
    """A cross-entropy, by hand: the head's outputs are log 1, log 2 and log 5."""
    model = InverseModel.create(jax.random.key(0), 2, 3, 2, (4,), (), chooses=True)
    head = jax.tree.map(jnp.zeros_like, model.head)
    biases = (jnp.log(jnp.asarray([1.0, 2.0, 5.0])),)
    model = dataclasses.replace(model, head=dataclasses.replace(head, biases=biases))
    seen = jnp.ones((2, 2))
    np.testing.assert_allclose(model(seen, seen), [[1 / 8, 2 / 8, 5 / 8]] * 2, rtol=1e-6)
    loss = inverse_loss(model, seen, seen, jnp.eye(3)[jnp.asarray([1, 2])])
    assert float(loss) == pytest.approx(-(np.log(2 / 8) + np.log(5 / 8)) / 2)


def test_rewards_are_told_that_actions_are_a_choice() -> None:
    given: list[RewardSpec] = []

    class Noting(type(make_reward("extrinsic"))):  # type: ignore[misc]
        def init(self, key: jax.Array, spec: RewardSpec) -> Any:
            given.append(spec)
            return super().init(key, spec)

    for env, chooses in (("CartPole-v1", True), ("Pendulum-v1", False)):
        spec = describe(env)
        agent = make_agent(
            *("dqn", SMALL.dqn) if chooses else ("sac", ExploreConfig(env).sac),
            spec.observation_dim,
            spec.action_dim,
        )
        Learner(spec, Noting(), agent, [0], 1_200, 10, 100)
        assert given[-1].chooses == chooses
        assert given[-1].action_dim == spec.action_dim


@pytest.mark.parametrize(
    ("env", "asked", "message"),
    [
        ("CartPole-v1", "sac", "sac gives numbers within bounds, and CartPole-v1 takes one of 2"),
        ("CartPole-v1", "td3", "take --agent dqn, ppo or a3c, or leave it out"),
        ("Pendulum-v1", "dqn", "Pendulum-v1 takes 1 number within bounds: take --agent sac, td3"),
        ("Pendulum-v1", "ppo", "ppo learns on policy.*element on-policy Pendulum-v1 --agent ppo"),
    ],
)
def test_an_agent_that_cannot_take_the_actions_is_refused(
    env: str, asked: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        resolved(ExploreConfig(env, agent=asked))


def test_worlds_and_what_dqn_has_not_are_refused() -> None:
    with pytest.raises(ValueError, match=r"--physics jax steps .* CartPole-v1 takes one of 2"):
        resolved(ExploreConfig("CartPole-v1", physics="jax"))
    told = {"position": ("0", "2"), "bounds": ((-5.0, 5.0), (-1.0, 1.0))}
    with pytest.raises(ValueError, match="take --tell-position both or none"):
        resolved(ExploreConfig("CartPole-v1", tell_position="critic", **told))  # type: ignore[arg-type]
    both = resolved(ExploreConfig("CartPole-v1", tell_position="both", **told))  # type: ignore[arg-type]
    assert both.config.agent == "dqn"


def test_the_agent_follows_from_the_actions() -> None:
    assert resolved(ExploreConfig("CartPole-v1")).config.agent == "dqn"
    assert resolved(ExploreConfig("Pendulum-v1")).config.agent == "sac"
    config = resolved(ExploreConfig("CartPole-v1", steps=50_000, updates_per_step=0.5)).config
    assert config.dqn.exploration_updates == 2_500
    assert ExploreConfig("Hopper-v5").as_begun().agent == "sac"


def test_a_dict_of_coordinates_is_a_vector_for_sac() -> None:
    box = gymnasium.spaces.Box(-1.0, 1.0, (2, 1))
    spaces = {"observation_space": gymnasium.spaces.Dict(a=box), "action_space": box}
    spec = describe("own_world:OwnSpaces-v0", (), (), "vectors", **spaces)
    assert (spec.observation_dim, spec.action_dim, spec.chooses) == (2, 2, False)
