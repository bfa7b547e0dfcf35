"""What agents learn from beside what rewards see: returns that go on after a fall, and places."""

import dataclasses
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import falling
from support.run_outcomes import assert_same, outcome

from element_rl.acting.collector import ProcessCollector
from element_rl.agents.sac import SACConfig
from element_rl.agents.td3 import TD3Config
from element_rl.envs.make import describe
from element_rl.envs.spec import MapScale, map_scale
from element_rl.evaluate import evaluate
from element_rl.replay import ring
from element_rl.rewards import make_reward
from element_rl.runs.folder import RunFolder
from element_rl.runs.watching import Interrupted
from element_rl.storage.files import read_json, write_json
from element_rl.training.finetune import FinetuneConfig, finetune
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.off_policy.explore import Explorer, explore
from element_rl.training.off_policy.launch import create_run, reopen_run
from element_rl.training.off_policy.learner import Learner
from element_rl.training.off_policy.resolving import resolved
from element_rl.training.off_policy.view import View, agent_of, learned_from, view_of

DISCOUNT = 0.8
# actions mean nothing there, so actors that stay as they are take all that there are
RATES = {"actor_learning_rate": 0.0, "critic_learning_rate": 2e-3, "target_rate": 0.05}
LEARNERS: dict[str, Any] = {
    "sac": SACConfig(
        (32, 32),
        discount=DISCOUNT,
        temperature_learning_rate=0.0,
        initial_temperature=1e-6,
        batch_size=64,
        learn_start=0,
        **RATES,
    ),
    "td3": TD3Config(
        (32, 32),
        discount=DISCOUNT,
        exploration_noise=0.5,
        policy_delay=1,
        batch_size=64,
        learn_start=0,
        **RATES,
    ),
}
SMALL = ExploreConfig(
    "Hopper-v5",
    steps=1_200,
    seeds=2,
    replay_size=3_000,
    chunk_steps=40,
    log_every=200,
    checkpoint_every=400,
    random_seeds=0,
    workers=0,
    env_options=("max_episode_steps=100",),
    sac=SACConfig(hidden_sizes=(16, 16), batch_size=16, learn_start=200),
)


@pytest.fixture(scope="module", autouse=True)
def registered():
    falling.register()
    yield
    gymnasium.registry.pop(falling.NAME)


# Falls.


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("agent", LEARNERS)
@pytest.mark.parametrize(
    ("falls", "values"),
    [("reset", falling.values_of_the_stream), ("end", falling.values_to_the_fall)],
)
def test_values_are_those_of_the_stream_or_of_the_episode(
    falls: Any, values: Any, agent: Any, num_envs: int
) -> None:
    """Falls pay, and the second beginning pays nothing: its value is that of what comes after."""
    config = ExploreConfig(
        falling.NAME,
        "extrinsic",
        steps=3_000,
        replay_size=1_200,
        chunk_steps=60,
        workers=0,
        envs_per_agent=num_envs,
        falls=falls,
        agent=agent,
        **{agent: LEARNERS[agent]},
    )
    settings = resolved(config)
    with Explorer(*settings, None) as explorer:
        while explorer.step < config.steps:
            explorer.train_chunk()
        agents, replay = (
            jax.tree.map(lambda leaf: leaf[0], part)
            for part in (explorer.learner.state.agents, explorer.learner.state.replay)
        )
    q = np.mean(agents.critics(replay.observation, replay.action), axis=0)
    for observation, value in zip(falling.OBSERVATIONS, values(DISCOUNT), strict=True):
        here = np.all(np.asarray(replay.observation) == observation, axis=1)
        assert q[here].mean() == pytest.approx(value, abs=0.06)


def test_the_value_of_the_stream_by_hand() -> None:
    """γ = 0.8: m = 0.4 / 0.28 = 1.4286."""
    expected = [1.7142857, 2.1428571, 1.1428571]
    np.testing.assert_allclose(falling.values_of_the_stream(0.8), expected, rtol=1e-6)
    rng = np.random.default_rng(0)  # and by adding up rewards
    returns, total = {0: [], 1: []}, 0.0
    for second in rng.integers(2, size=200_000)[::-1].tolist():
        total = DISCOUNT * total if second else DISCOUNT * (1 + DISCOUNT * total)
        returns[second].append(total)
    assert np.mean(returns[0][100:]) == pytest.approx(expected[0], abs=0.01)
    assert np.mean(returns[1][100:]) == pytest.approx(expected[2], abs=0.01)


@pytest.mark.parametrize("num_envs", [1, 2])
def test_a_fall_is_bootstrapped_from_the_next_beginning_and_rewards_do_not_see_it(
    num_envs: int,
) -> None:
    """Of every transition stored, at every moment, also where the next episode is not stored yet
    and where the ring has come round."""
    chunk_steps, capacity = 8, 80
    with ProcessCollector(
        falling.NAME, [5], chunk_steps, None, {}, num_workers=0, num_envs=num_envs
    ) as collector:
        learner = Learner(
            collector.spec,
            make_reward("extrinsic"),
            agent_of(ExploreConfig(falling.NAME), collector.spec),
            [5],
            capacity,
            chunk_steps,
            1_000,
            num_envs,
            view=View(resets=True),
        )
        streams: list[list[np.ndarray]] = [[] for _ in range(num_envs)]
        early = 0
        for index in range(30):
            collector.start(index, None)
            chunk = collector.wait()
            for env in range(num_envs):
                streams[env] += list(chunk.observation[env, : chunk.count[env]].copy())
            learner.ingest(chunk)
            early += _check_bootstraps(learner, streams)
    assert early > 0  # some episode ended with the last record of a chunk


def _check_bootstraps(learner: Learner, streams: list[list[np.ndarray]]) -> int:
    """Every sampleable transition once; how many had no next episode yet."""
    num_envs, capacity = len(streams), learner.ledger.capacity
    replay = jax.tree.map(lambda leaf: leaf[0], learner.state.replay)
    tails, counts, *beginnings = learner._sampleable()[0]
    rings = [
        (tails[env] + num_envs * np.arange(counts[env])) % (capacity * num_envs)
        for env in range(num_envs)
    ]
    slot = np.asarray(replay.sampleable)[np.concatenate(rings)]
    env = slot % num_envs
    next_slot = (slot + num_envs) % (capacity * num_envs)
    drawn = ring.Drawn(*(jnp.asarray(part) for part in (slot, next_slot, env)))
    seen = ring.transitions(replay, drawn)
    rewards = jnp.zeros(len(slot))
    batch = learned_from(learner.view, replay, drawn, seen, rewards, jnp.asarray(beginnings))
    np.testing.assert_array_equal(batch.terminated, False)
    early = 0
    for row in range(len(slot)):
        stream, oldest = streams[env[row]], max(len(streams[env[row]]) - capacity, 0)
        # the latest record of the stream that stands in its slot
        where = oldest + (slot[row] // num_envs - oldest) % capacity
        np.testing.assert_array_equal(seen.observation[row], stream[where])
        np.testing.assert_array_equal(seen.next_observation[row], stream[where + 1])
        second, step = stream[where]
        fell = step == 1 - second
        assert bool(seen.terminated[row]) == fell
        expected = stream[where + 1]
        if fell and where + 2 < len(stream):
            expected = stream[where + 2]
            assert expected[1] == 0
        elif fell:
            expected, early = np.array([second, 0]), early + 1
        np.testing.assert_array_equal(batch.next_observation[row], expected)
    return early


def test_an_episode_that_ran_out_of_time_is_bootstrapped_as_always() -> None:
    """A Hopper that does not fall within five steps."""
    options = {"max_episode_steps": 5}
    with ProcessCollector("Hopper-v5", [0], 20, None, {}, options, num_workers=0) as collector:
        spec = collector.spec
        learner = Learner(
            spec,
            make_reward("extrinsic"),
            agent_of(ExploreConfig("Hopper-v5"), spec),
            [0],
            100,
            20,
            100,
            view=View(resets=True),
        )
        collector.start(0, None)
        learner.ingest(collector.wait())
    replay = jax.tree.map(lambda leaf: leaf[0], learner.state.replay)
    slot = jnp.arange(5)
    drawn = ring.Drawn(slot, slot + 1, jnp.zeros(5, int))
    seen = ring.transitions(replay, drawn)
    beginnings = jnp.asarray(learner.ledger.beginnings()[0])
    batch = learned_from(learner.view, replay, drawn, seen, jnp.zeros(5), beginnings)
    np.testing.assert_array_equal(batch.next_observation, seen.next_observation)
    assert not bool(batch.terminated.any())


def test_what_a_fall_does_is_settled_and_told_to_the_environment() -> None:
    def settled(env: str = "Hopper", **given: Any) -> tuple[Any, tuple[str, ...]]:
        config = resolved(ExploreConfig(env, steps=2_000, **given)).config
        return config.falls, config.env_options

    on, off = ("terminate_when_unhealthy=true",), ("terminate_when_unhealthy=false",)
    assert settled() == settled(falls="ignore") == settled(env_options=off) == ("ignore", off)
    assert settled(reward="extrinsic") == settled(falls="end") == ("end", on)
    assert settled(env_options=on) == settled(falls="end", env_options=on) == ("end", on)
    assert settled(falls="reset") == settled(falls="reset", env_options=on) == ("reset", on)
    assert settled(reward="extrinsic", falls="ignore") == ("ignore", off)
    assert settled("PointMaze") == ("end", ())
    assert settled("PointMaze", falls="reset") == ("reset", ())


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (
            ExploreConfig("Hopper", falls="end", env_options=("terminate_when_unhealthy=false",)),
            "--falls end and --env-options terminate_when_unhealthy=false contradict each other",
        ),
        (
            ExploreConfig("Hopper", falls="ignore", env_options=("terminate_when_unhealthy=true",)),
            "--falls ignore and --env-options terminate_when_unhealthy=true contradict each other",
        ),
        (
            ExploreConfig("HalfCheetah", falls="ignore"),
            "--falls ignore is for robots that can fall, and HalfCheetah-v5 has no option",
        ),
        (
            ExploreConfig("Pendulum-v1", tell_position="critic"),
            "--tell-position tells where on its coverage map the agent is, and Pendulum-v1 has "
            "none: say with --position",
        ),
    ],
)
def test_contradictions_are_one_sentence(config: ExploreConfig, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        resolved(config)


# Both, in runs.


def stopped_and_resumed(config: ExploreConfig, folder: Path) -> RunFolder:
    run = create_run(config, folder)
    calls: list[int] = []

    def stop() -> bool:
        calls.append(1)
        return len(calls) >= 11

    with pytest.raises(Interrupted):
        explore(config, run, stop=stop)
    explore(config, reopen_run(config, run.path), resume=True)
    return run


@pytest.mark.parametrize(
    "given",
    [{"falls": "reset", "envs_per_agent": 2, "tell_position": "both"}],
    ids=str,
)
def test_resumed_runs_end_as_undisturbed_ones(given: dict[str, Any], tmp_path: Path) -> None:
    config = dataclasses.replace(SMALL, **given)
    undisturbed = create_run(config, tmp_path / "undisturbed")
    explore(config, undisturbed)
    assert_same(outcome(undisturbed), outcome(stopped_and_resumed(config, tmp_path / "stopped")))


def test_an_older_run_goes_on(tmp_path: Path) -> None:
    """Its settings say nothing of falls and places: what fell then, the environment's options
    say."""
    config = dataclasses.replace(SMALL, steps=400)
    run = create_run(config, tmp_path / "run")
    explore(config, run)
    stored = read_json(run.path / "config.json")
    for name in ("falls", "tell_position"):
        del stored["settings"][name]
    write_json(run.path / "config.json", stored)
    longer = dataclasses.replace(config, steps=440)
    explore(longer, reopen_run(longer, run.path), resume=True)
    assert run.read_summary()["steps"] == 440
    other = dataclasses.replace(longer, falls="end")
    with pytest.raises(ValueError, match='falls was "ignore" and is "end"'):
        reopen_run(other, run.path)


# Places.


def test_the_map_is_a_square_from_minus_one_to_one() -> None:
    assert map_scale(describe("Hopper-v5")) == MapScale((0.0, 1.25), (25.0, 1.25))
    scale = MapScale((1.0, 2.0), (4.0, 0.5))
    with ProcessCollector("PointMaze-v0", [0, 1], 20, None, {}, num_workers=0) as collector:
        learner = Learner(
            collector.spec,
            make_reward("extrinsic"),
            agent_of(ExploreConfig("PointMaze-v0", tell_position="critic"), collector.spec),
            [0, 1],
            2_000,
            20,
            100,
            view=View(told=scale),
        )
        collector.start(0, None)
        chunk = collector.wait()
        learner.ingest(chunk)
        positions = chunk.position[:, :20].copy()
    place = learner.state.replay.place
    assert place is not None
    np.testing.assert_allclose(place[:, :20, 0], (positions[..., 0] - 1) / 4, rtol=1e-6)
    np.testing.assert_allclose(place[:, :20, 1], (positions[..., 1] - 2) / 0.5, rtol=1e-6)


@pytest.mark.parametrize("agent", ["sac", "td3"])
@pytest.mark.parametrize(("tell", "actor", "critic"), [("critic", 11, 13), ("both", 13, 13)])
def test_networks_are_as_wide_as_what_they_see(
    agent: Any, tell: Any, actor: int, critic: int
) -> None:
    spec = describe("Hopper-v5")
    made = agent_of(ExploreConfig("Hopper-v5", agent=agent, tell_position=tell), spec)
    state = made.create(jax.random.key(0))
    assert made.policy(state)["weight_0"].shape[0] == actor
    assert state.critics.networks.weights[0].shape[1] == critic + spec.action_dim


@pytest.mark.parametrize("agent", ["sac", "td3"])
def test_critics_hear_of_the_place_and_rewards_do_not(agent: Any) -> None:
    """The same transitions, elsewhere: other values, the same rewards."""
    config = dataclasses.replace(
        SMALL, reward="rnd", agent=agent, tell_position="critic", td3=TD3Config((16, 16))
    )
    with Explorer(*resolved(config), None) as explorer:
        for _ in range(6):
            explorer.train_chunk()
        explorer.settle()
        learner = explorer.learner
    agents, rewards, replay = (
        jax.tree.map(lambda leaf: leaf[0], part)
        for part in (learner.state.agents, learner.state.rewards, learner.state.replay)
    )
    tail, count = jnp.asarray(learner.ledger.sampleable()[0])
    drawn = ring.draw(replay, jax.random.key(0), 32, tail, count)
    seen = ring.transitions(replay, drawn)
    paid = learner.reward.reward(rewards, seen)
    elsewhere = replay._replace(place=replay.place + 0.5)
    np.testing.assert_array_equal(
        paid, learner.reward.reward(rewards, ring.transitions(elsewhere, drawn))
    )
    here, there = (
        learned_from(learner.view, own, drawn, seen, paid, jnp.zeros((0, 1), int))
        for own in (replay, elsewhere)
    )
    assert here.observation.shape == (32, 13)
    np.testing.assert_array_equal(here.observation[:, :11], seen.observation)
    values = [agents.critics(batch.observation, batch.action) for batch in (here, there)]
    assert float(jnp.abs(values[0] - values[1]).min()) > 0


@pytest.mark.parametrize("agent", ["sac", "td3"])
def test_policies_that_are_told_act_everywhere(agent: Any, tmp_path: Path) -> None:
    """Evaluated, and fine-tuned with the place; stored policies say it themselves."""
    small: Any = {"sac": SMALL.sac, "td3": TD3Config((16, 16), batch_size=16, learn_start=200)}
    config = dataclasses.replace(
        SMALL, steps=400, agent=agent, tell_position="both", falls="reset", **{agent: small[agent]}
    )
    run = create_run(config, tmp_path / "run")
    explore(config, run)
    policy = run.load_policy()
    assert policy["weight_0"].shape == (2, 13, 16)
    np.testing.assert_array_equal(policy["place_unit"], [[25.0, 1.25]] * 2)
    rows = evaluate(run, episodes=1, workers=0)
    assert [row["step"] for row in rows] == [400]
    task = FinetuneConfig(run.path, steps=200, episodes=1, workers=0, compare=False)
    finetune(task, tmp_path / "task")
    tuned = RunFolder.open(tmp_path / "task")
    assert tuned.load_policy()["weight_0"].shape == (2, 13, 16)
    settings = tuned.config["settings"]
    assert (settings["tell_position"], settings["falls"]) == ("both", "end")


def test_the_host_acts_with_what_the_device_learned_from() -> None:
    config = dataclasses.replace(SMALL, steps=400, tell_position="both")
    settings = resolved(config)
    with Explorer(*settings, None) as explorer:
        view = view_of(settings.config, settings.spec)
        explorer.collector.start(0, "as set")
        chunk = explorer.collector.wait()
        learner = explorer.learner
        actions = chunk.action[:, :10].copy()
        noise = np.stack(
            [
                np.random.default_rng([seed, 0]).standard_normal((40, 3), np.float32)
                for seed in (0, 1)
            ]
        )[:, :10]
        learner.ingest(chunk)
    assert view.told is not None
    replay = learner.state.replay
    assert replay.place is not None
    wide = jnp.concatenate([replay.observation[:, :10], replay.place[:, :10]], axis=-1)
    mean, log_std = jax.vmap(lambda actor, seen: actor(seen))(learner.state.agents.actor, wide)
    np.testing.assert_allclose(actions, np.tanh(mean + np.exp(log_std) * noise), atol=1e-5)
