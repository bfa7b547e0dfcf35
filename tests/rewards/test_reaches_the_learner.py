"""For every reward: what it gives reaches the critics' targets, all of it and nothing else; agents
stay apart."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.small_rewards import SMALL_REWARDS

from element_rl.acting.collector import Chunk, ProcessCollector
from element_rl.agents import sac
from element_rl.agents.sac import SACConfig
from element_rl.envs.make import describe
from element_rl.rewards import NAMES, Reward, make_reward
from element_rl.rewards.interface import Inputs, latent_of
from element_rl.training.off_policy import programs
from element_rl.training.off_policy.learner import Learner

STEPS = 12  # of an episode
SEEDS = [4, 7]
OPTIONS = SMALL_REWARDS | {"element": {"memory": "exact", "update_interval": 10, "update_steps": 5}}
SUM = "element + 0.5*rnd*e3b"
OPTIONS[SUM] = {name: OPTIONS[name] for name in ("element", "rnd", "e3b")}
# the maze's observation and action, and those of agents that are told a latent of two columns
AGENT, TOLD = (sac.agent(SACConfig(hidden_sizes=(16,), batch_size=8), width, 2) for width in (2, 4))


@pytest.fixture(scope="module")
def chunks() -> list[Chunk]:
    return random_steps()


@functools.cache
def random_steps(latent: str | None = None) -> list[Chunk]:
    """Forty random steps of two agents, one step a chunk."""
    options = env_options(latent)
    collected = []
    with ProcessCollector(
        "PointMaze", SEEDS, 1, None, {}, env_options=options, num_workers=0
    ) as collector:
        for index in range(40):
            collector.start(index, None)
            chunk = collector.wait()
            collected.append(
                Chunk(*(np.array(getattr(chunk, f.name)) for f in dataclasses.fields(Chunk)))
            )
    return collected


# Every reward with its own inputs, and those that see observations with states in their place.
OBSERVING = (
    *("rnd", "ngu", "apt", "icm", "e3b", "disagreement", "ride", "noveld", "pseudo-counts"),
    *("etd", "rle", "metra"),
)
SEEING = [
    *((name, "own") for name in NAMES),
    *((name, "state") for name in OBSERVING),
    (SUM, "own"),
]


def env_options(latent: str | None) -> dict[str, Any]:
    return {"max_episode_steps": STEPS} | ({} if latent is None else {"latent": latent})


@pytest.fixture(scope="module", params=SEEING, ids="-".join)
def learner(request: pytest.FixtureRequest) -> Learner:
    """On an environment that tells its agents the latent that the reward needs, if any."""
    name, inputs = request.param
    needed = latent_of(make_reward(name, **OPTIONS.get(name, {})))
    latent = None if needed is None else needed.option
    return filled_learner(name, random_steps(latent), inputs, latent)


@functools.cache
def plain_agents(latent: str | None) -> Any:
    """What plain SAC makes of no reward at all."""
    learner = filled_learner("extrinsic", random_steps(latent), latent=latent)
    return updated(learner, factor=0.0)[0]


def filled_learner(
    name: str, chunks: list[Chunk], inputs: Inputs = "own", latent: str | None = None
) -> Learner:
    """Two agents with a replay and a reward that has observed their episodes."""
    reward = make_reward(name, **OPTIONS.get(name, {}))
    spec = describe("PointMaze", **env_options(latent))
    learner = Learner(
        spec,
        reward,
        AGENT if latent is None else TOLD,
        SEEDS,
        capacity=100,
        chunk_steps=1,
        total_steps=100,
        inputs=inputs,
    )
    for chunk in chunks:
        learner.ingest(chunk)
    return learner


def updated(
    learner: Learner,
    factor: float = 1.0,
    shift: float = 0.0,
    agents: slice = slice(0, 2),
    extrinsic_weight: float = 0.0,
) -> tuple[Any, Any, Any]:
    """Agents, rewards and metrics after an update of the chosen agents, the reward changed; the
    learner stays as it is."""
    sampleable = jnp.asarray(learner.ledger.sampleable())
    chosen = jax.tree.map(
        lambda leaf: leaf[agents], (*learner.state[:3], sampleable, learner.seeds)
    )
    return program(learner.reward, extrinsic_weight, learner.sees)(
        jnp.float32(factor), jnp.float32(shift), *chosen, np.uint32(0)
    )[:3]


@functools.cache
def program(reward: Reward, extrinsic_weight: float, sees: programs.Sees) -> Any:
    """One program for all changes of a reward: to compile it is what takes time."""
    agent = TOLD if sees.latent_dim else AGENT

    def update(factor: jax.Array, shift: jax.Array, *arguments: Any) -> Any:
        settings: Any = {"extrinsic_weight": extrinsic_weight, "sees": sees}
        return programs.update(changed(reward, factor, shift), agent, 1, *arguments, **settings)

    return jax.jit(update)


def changed(reward: Any, factor: jax.Array, shift: jax.Array) -> Any:
    """The same reward, times a factor, plus a shift."""
    kind = type(reward)

    class Changed(kind):  # type: ignore[misc]
        def reward(self, state: Any, batch: Any) -> Any:
            return factor * kind.reward(self, state, batch) + shift

    return Changed(
        **{field.name: getattr(reward, field.name) for field in dataclasses.fields(reward)}
    )


def assert_same(mine: Any, theirs: Any, tolerance: float) -> None:
    for one, other in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
        assert np.asarray(one) == pytest.approx(np.asarray(other), rel=tolerance, abs=tolerance)


def test_target_changes_by_the_change_of_the_reward_and_nothing_else_does(learner: Learner) -> None:
    _, rewards, before = updated(learner)
    _, rewards_shifted, after = updated(learner, shift=0.75)
    assert np.asarray(after["target_mean"]) == pytest.approx(
        np.asarray(before["target_mean"]) + 0.75, abs=1e-5
    )
    follows = {
        "target_mean",
        "critic_loss",
        "actor_loss",
    }  # from the target, and from the critics it moved
    for metric in before.keys() - follows:
        if not metric.startswith("reward_"):  # some rewards log the whole reward as their term
            assert np.asarray(after[metric]) == pytest.approx(
                np.asarray(before[metric]), abs=1e-6
            ), metric
    assert_same(rewards, rewards_shifted, 1e-6)


def test_reward_that_is_off_leaves_plain_sac(learner: Learner) -> None:
    agents, *_ = updated(learner, factor=0.0)
    latent = latent_of(learner.reward)
    assert_same(agents, plain_agents(None if latent is None else latent.option), 1e-5)


def test_agent_of_a_population_equals_the_agent_alone(learner: Learner) -> None:
    agents, rewards, metrics = updated(learner)
    one = updated(learner, agents=slice(1, 2))
    assert_same(jax.tree.map(lambda leaf: leaf[1:], (agents, rewards, metrics)), one, 1e-3)


@pytest.mark.parametrize("name", ["element", "rnd"])
def test_the_environment_s_reward_is_added_with_its_weight_and_only_then(
    name: str, chunks: list[Chunk]
) -> None:
    """The program adds it to whatever a reward gives: one that learns and one that keeps notes will
    do."""
    generator = np.random.default_rng(0)
    values = [
        generator.normal(size=chunk.extrinsic_reward.shape).astype(np.float32) for chunk in chunks
    ]
    paid, others = (
        filled_learner(
            name,
            [
                dataclasses.replace(c, extrinsic_reward=k * v)
                for c, v in zip(chunks, values, strict=True)
            ],
        )
        for k in (1.0, 5.0)
    )
    agents, rewards, before = updated(paid)
    assert before.keys().isdisjoint({"reward_extrinsic", "reward_learned"})
    for one, other in zip(
        jax.tree.leaves(updated(others)), jax.tree.leaves((agents, rewards, before)), strict=True
    ):
        assert np.array_equal(one, other)  # nobody is told of it
    weighted, rewards_beside, after = updated(paid, extrinsic_weight=2.0)
    added = 2.0 * np.asarray(after["reward_extrinsic"])
    assert (np.abs(added) > 0.01).all()
    assert np.asarray(after["target_mean"]) == pytest.approx(
        np.asarray(before["target_mean"]) + added, abs=1e-5
    )
    assert_same(rewards, rewards_beside, 1e-6)
    assert not np.allclose(
        jax.tree.leaves(weighted.critics)[0], jax.tree.leaves(agents.critics)[0], atol=1e-7
    )
