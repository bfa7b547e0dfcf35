"""PPO in the on-policy loop: repeated, interrupted, with workers that die."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from support import screen_probes, vector_probes
from support.run_outcomes import assert_same, outcome

from element_rl.acting.policies import policy_of
from element_rl.agents.ppo import PPOConfig
from element_rl.datasets.collecting.rollouts import with_certainty
from element_rl.evaluate.checkpoints import evaluate
from element_rl.runs.folder import RunFolder
from element_rl.runs.watching import Interrupted
from element_rl.training.on_policy.config import OnPolicyConfig, bonus_of, resolved, streams_of
from element_rl.training.on_policy.launch import create_run, reopen_run
from element_rl.training.on_policy.ppo_agent import PPOAgent
from element_rl.training.on_policy.states import encoders_of
from element_rl.training.on_policy.training import OnPolicy, train

TINY = PPOConfig(
    rollout_steps=16,
    epochs=2,
    minibatches=2,
    hidden_sizes=(8,),
    channels=(2, 2),
    frame_units=8,
    memory_size=4,
)
SMALL = OnPolicyConfig(
    vector_probes.CHOICE,
    agent="ppo",
    steps=240,
    seeds=2,
    workers=0,
    envs_per_agent=3,
    update_interval=60,
    update_steps=30,
    state_units="raw",
    position=("0", "1"),
    bounds=((-1.0, 1.0), (0.0, 1.0)),
    log_every=48,
    checkpoint_every=96,
    random_seeds=0,
    ppo=TINY,
)
NO_WINDOWS = {"update_interval": None, "update_steps": None}


@pytest.fixture(scope="module", autouse=True)
def _probe_environments() -> Iterator[None]:
    vector_probes.register_probes()
    screen_probes.register_probes()
    yield
    vector_probes.forget_probes()
    gymnasium.registry.pop(screen_probes.NAME)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    run = create_run(SMALL, tmp_path_factory.mktemp("undisturbed") / "run")
    train(SMALL, run)
    return run


def stopping_after(deliveries: int) -> Callable[[], bool]:
    calls: list[int] = []
    return lambda: len(calls) >= deliveries or bool(calls.append(1))


def test_metrics_checkpoints_and_summary(undisturbed: RunFolder) -> None:
    metrics, summary = undisturbed.read_metrics(), undisturbed.read_summary()
    assert metrics["step"].tolist() == [s for s in (48, 96, 144, 192, 240) for _ in range(2)]
    for name in ("policy_entropy", "actor_loss", "policy_kl", "value_explained", "reward_mean"):
        assert np.isfinite(metrics[name]).all(), name
    assert "policy_lag" not in metrics
    assert undisturbed.checkpoint_steps() == undisturbed.planned_checkpoints() == [96, 192, 240]
    visits = undisturbed.load_visits()
    assert (visits.sum(axis=(1, 2)) >= 240 + metrics["episodes"][-2:]).all()  # and every reset
    assert summary["agent"] == "ppo"
    assert max(summary["coverage"]) > 5
    assert undisturbed.config["sees_frames"] is False


@pytest.mark.parametrize("workers", [1, 2])
def test_processes_that_share_the_environments_do_the_same_every_time(
    workers: int, undisturbed: RunFolder, tmp_path: Path
) -> None:
    config = dataclasses.replace(SMALL, workers=workers, seeds=1)
    runs = [create_run(config, tmp_path / str(time)) for time in range(2)]
    for run in runs:
        train(config, run)
    assert_same(*map(outcome, runs))
    if workers == 1:  # the same products of the same matrices
        ours = runs[0].load_policy()
        for name, array in undisturbed.load_policy().items():
            np.testing.assert_array_equal(ours[name][0], array[0])


@pytest.mark.parametrize("recurrent", [False, True])
def test_interrupted_anywhere_and_resumed(recurrent: bool, tmp_path: Path) -> None:
    """With one worker ahead of the other."""
    learner = dataclasses.replace(TINY, recurrent=recurrent)
    config = dataclasses.replace(SMALL, workers=2, seeds=1, ppo=learner, scale_reward=True)
    runs = [create_run(config, tmp_path / name) for name in ("whole", "parts")]
    train(config, runs[0])
    for deliveries in (1, 2, 4):
        with pytest.raises(Interrupted):
            train(
                config,
                runs[1],
                stop=stopping_after(deliveries),
                resume=runs[1].latest_checkpoint() is not None,
            )
    train(config, reopen_run(config, runs[1].path), resume=True)
    assert_same(*map(outcome, runs))
    np.testing.assert_array_equal(runs[0].load_visits(), runs[1].load_visits())


def test_interrupted_when_one_of_two_workers_has_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it delivered is acted again, also before anything was learned."""
    config = dataclasses.replace(SMALL, workers=2, seeds=1)
    whole, parts = (create_run(config, tmp_path / name) for name in ("whole", "parts"))
    train(config, whole)
    delivered: list[int] = []
    learn_from = PPOAgent.learn_from

    def counted(agent: PPOAgent, worker: int, rollout: Any) -> Any:
        delivered.append(worker)
        return learn_from(agent, worker, rollout)

    monkeypatch.setattr(PPOAgent, "learn_from", counted)
    for resume, deliveries in ((False, 1), (True, 3)):  # the second time after one update
        delivered.clear()
        with pytest.raises(Interrupted):
            train(config, parts, stop=lambda most=deliveries: len(delivered) >= most, resume=resume)
        assert len(delivered) == deliveries
    train(config, reopen_run(config, parts.path), resume=True)
    assert_same(outcome(whole), outcome(parts))


def test_a_run_that_goes_on_to_more_steps_is_what_it_would_have_been(
    undisturbed: RunFolder, tmp_path: Path
) -> None:
    shorter = dataclasses.replace(SMALL, steps=144, reward="icm", **NO_WINDOWS)
    longer = dataclasses.replace(shorter, steps=240)
    runs = [create_run(config, tmp_path / name) for name, config in (("a", shorter), ("b", longer))]
    for run, config in zip(runs, (shorter, longer), strict=True):
        train(config, run)
    train(longer, reopen_run(longer, runs[0].path), resume=True)
    assert_same(({}, runs[0].load_policy()), ({}, runs[1].load_policy()))


def test_a_worker_that_is_killed_comes_back_where_it_was(tmp_path: Path) -> None:
    config = dataclasses.replace(SMALL, workers=1, seeds=1)
    runs = [create_run(config, tmp_path / name) for name in ("whole", "killed")]
    train(config, runs[0])
    flag = tmp_path / "flag"
    train(dataclasses.replace(config, env_options=("kills_at=40", f"flag={flag}")), runs[1])
    assert flag.exists()
    assert_same(*map(outcome, runs))


class Paying:
    """A bonus that pays the same for every step."""

    name, metric_names = "paying", ()

    def __init__(self, pays: float) -> None:
        self.pays = pays

    def init(self, key: Any) -> Any:
        return np.zeros(())

    def rewards(self, state: Any, parts: Any) -> Any:
        return np.full(sum(part.new for part in parts), self.pays, np.float32), {}

    def learn(self, state: Any, parts: Any, key: Any) -> Any:
        return state, {}

    def observe(self, state: Any, episode: Any, step: int) -> Any:
        return state, {}


def learned_with(pays: float, weight: float = 0.0, **learner: Any) -> dict[str, np.ndarray]:
    """The policies after two rollouts."""
    changed = dataclasses.replace(TINY, normalise_advantages=False, **learner)
    config, spec = resolved(
        dataclasses.replace(SMALL, steps=96, seeds=1, extrinsic_weight=weight, ppo=changed)
    )
    bonus: Any = Paying(pays)
    with OnPolicy(config, spec, encoders_of(config, spec), bonus, None) as training:
        training.train(lambda progress: None, lambda: False)
        return training.policies()


def test_the_bonus_reaches_the_learner_by_either_road() -> None:
    one, again, other = (learned_with(pays) for pays in (0.0, 0.0, 1.0))
    for name in one:
        np.testing.assert_array_equal(one[name], again[name])
    assert any((one[name] != other[name]).any() for name in one)
    apart = {"bonus_discount": 0.5, "bonus_episodic": False}
    nothing, something = (learned_with(pays, 1.0, **apart) for pays in (0.0, 1.0))
    assert nothing["value_weight_1"].shape[-1] == 2
    assert one["value_weight_1"].shape[-1] == 1
    assert (nothing["policy_weight_1"] != something["policy_weight_1"]).any()


def test_streams() -> None:
    def streams(reward: str = "rnd", weight: float = 0.0, **learner: Any) -> Any:
        changed = dataclasses.replace(TINY, **learner)
        given = dataclasses.replace(SMALL, reward=reward, extrinsic_weight=weight, ppo=changed)
        return [tuple(stream) for stream in streams_of(given)]

    assert streams() == [(0.99, 1.0, True)]
    assert streams(weight=2.0) == [(0.99, 1.0, True)]
    apart = streams(weight=2.0, discount=0.999, bonus_discount=0.99, bonus_episodic=False)
    assert apart == [(0.99, 1.0, False), (0.999, 2.0, True)]
    assert streams(bonus_episodic=False) == [(0.99, 1.0, False)]
    assert streams("extrinsic", bonus_discount=0.5) == [(0.99, 1.0, True)]


def test_policies_are_evaluated_and_begun_with(undisturbed: RunFolder, tmp_path: Path) -> None:
    rows = evaluate(undisturbed, episodes=2, workers=0, deterministic=True)
    assert [row["step"] for row in rows] == [96, 192, 240]
    assert all(np.isfinite(row["episodic_entropy"]) for row in rows)
    config = dataclasses.replace(SMALL, begin=undisturbed.path, steps=48)
    train(config, create_run(config, tmp_path / "run"))
    wider = dataclasses.replace(TINY, hidden_sizes=(9,))
    other = dataclasses.replace(config, ppo=wider)
    with pytest.raises(ValueError, match="another network"):
        train(other, create_run(other, tmp_path / "wider"))


@pytest.mark.parametrize("env", [vector_probes.CHOICE, vector_probes.BOX])
def test_a_stored_policy_acts_within_its_space_and_knows_its_best_action(env: str) -> None:
    config, spec = resolved(
        dataclasses.replace(SMALL, env=env, steps=48, seeds=1, reward="extrinsic", **NO_WINDOWS)
    )
    encoders = encoders_of(config, spec)
    bonus = bonus_of(config, spec, encoders.state_dim)
    with OnPolicy(config, spec, encoders, bonus, None) as training:
        training.train(lambda progress: None, lambda: False)
        stored = training.policies()
    space = gymnasium.make(env).action_space
    policy = policy_of({name: array[0] for name, array in stored.items()}, space)
    sure = policy_of({name: array[0] for name, array in with_certainty(stored).items()}, space)
    generator = np.random.default_rng(0)
    for seen in np.random.default_rng(1).normal(size=(20, 2)).astype(np.float32):
        action = policy.act(seen, generator, True)
        assert space.contains(action)
        assert space.contains(policy.act(seen, generator, False))
        np.testing.assert_array_equal(action, sure.act(seen, generator, False))


def test_random_actions_of_a_box(tmp_path: Path) -> None:
    config = dataclasses.replace(
        SMALL, env=vector_probes.BOX, steps=48, random_seeds=1, workers=1, seeds=1
    )
    summary = train(config, create_run(config, tmp_path / "run"))
    assert summary["random_policy"]["steps"] == 48


def test_sentences(tmp_path: Path) -> None:
    frames = {"env": screen_probes.NAME}
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"encoder": tmp_path}, "--encoder is of frames"),
        (frames, "names columns of vectors"),
        ({"position": (), "bounds": (), **frames}, "--state-units is of vectors"),
        ({"agent": "a3c", **frames}, "is a setting of --agent ppo"),
        ({"ppo": dataclasses.replace(TINY, recurrent=True, minibatches=4)}, "whole environments"),
    )
    for settings, said in cases:
        with pytest.raises(ValueError, match=said):
            resolved(dataclasses.replace(SMALL, **settings))
    config, _ = resolved(dataclasses.replace(SMALL, steps=250, workers=9))
    assert (config.steps, config.workers, config.envs_per_agent) == (288, 3, 3)


def test_every_step_is_in_one_episode() -> None:
    config, spec = resolved(dataclasses.replace(SMALL, seeds=1))
    encoders = encoders_of(config, spec)
    bonus = bonus_of(config, spec, encoders.state_dim)
    with OnPolicy(config, spec, encoders, bonus, None) as training:
        training.train(lambda progress: None, lambda: False)
        (agent,) = training.agents
        assert isinstance(agent, PPOAgent)
        running = sum(len(episode.actions) for episode in agent.episodes)
        for episode in agent.episodes:
            if len(episode.actions):
                assert len(episode.states) == len(episode.actions) + 1
                assert episode.observations is not None
                # raw states end with the position, which is the observation here
                np.testing.assert_allclose(episode.states[:, 5:7], episode.observations)
        logged = training.metrics.logged()
    finished = np.nan_to_num(logged["episode_length"]) * np.diff(logged["episodes"], prepend=0)
    assert finished.sum() + running == pytest.approx(240)
