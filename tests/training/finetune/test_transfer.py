"""What is transferred: actor, critics, temperature and experience; and when the actor begins to
learn."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.car_run import (
    AGENT,
    LENGTHS,
    SMALL,
    assert_equal_leaves,
    experience,
    fresh_agents,
    learned_agents,
    settings,
    start,
)
from support.run_outcomes import assert_same, outcome

from element_rl.agents import sac
from element_rl.agents.networks import divergence, policy_parameters, squashed_gaussian
from element_rl.agents.sac import Batch
from element_rl.replay import ring
from element_rl.runs.folder import RunError, RunFolder
from element_rl.runs.watching import Interrupted
from element_rl.training.finetune import finetune
from element_rl.training.finetune.experience import kept_chunks
from element_rl.training.finetune.settings import off_policy_settings
from element_rl.training.finetune.transplants import transplanted
from element_rl.training.off_policy.explore import Explorer
from element_rl.training.off_policy.resolving import resolved


def test_critics_and_temperature_are_kept_on_request(source: RunFolder) -> None:
    scratch, learned = fresh_agents((3, 4)), learned_agents()
    transfer = start(source, checkpoint="last")
    kept = transplanted(AGENT, scratch, source, transfer, critics="kept", temperature="kept")
    for name in ("critics", "target_critics", "log_temperature"):
        assert_equal_leaves(getattr(kept, name), getattr(learned, name))
    only_critics = transplanted(AGENT, scratch, source, transfer, critics="kept")
    np.testing.assert_allclose(jnp.exp(only_critics.log_temperature), 0.2, rtol=1e-6)
    # fewer agents than the run has
    first = jax.jit(lambda agents: jax.tree.map(lambda leaf: leaf[:1], agents))(scratch)
    fewer = transplanted(
        AGENT, first, source, start(source, checkpoint="last", seeds=1), critics="kept"
    )
    np.testing.assert_array_equal(
        fewer.critics.networks.biases[0], learned.critics.networks.biases[0][:1]
    )


@pytest.mark.parametrize("what", ["critics", "temperature"])
def test_only_the_newest_checkpoint_has_something_to_keep(
    source: RunFolder, tmp_path: Path, what: str
) -> None:
    with pytest.raises(RunError, match=f"--{what} kept needs the newest checkpoint .* step 400"):
        finetune(settings(source, **{what: "kept"}), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_it_acts_from_the_first_step_and_the_actor_waits_for_the_critics(source: RunFolder) -> None:
    task, spec, _ = off_policy_settings(settings(source), source)
    reward = resolved(task)[2]
    acting_at_once = dataclasses.replace(task, sac=dataclasses.replace(task.sac, learn_start=0))
    with Explorer(acting_at_once, spec, reward, None) as explorer:
        agents = transplanted(AGENT, explorer.learner.state.agents, source, start(source))
        explorer.begin_with(agents, critic_warmup=30)
        before = policy_parameters(jax.tree.map(jnp.copy, explorer.learner.state.agents.actor))
        critics = jax.device_get(explorer.learner.state.agents.critics.networks.biases[0])
        explorer.train_chunk()
        chunk = explorer._unsettled
        assert chunk is not None
        np.testing.assert_allclose(chunk.action[:, :20, 0], [[0.1] * 20, [0.05] * 20], rtol=1e-4)
        explorer.train_chunk()
        assert explorer.learner.updates == 20
        agents = explorer.learner.state.agents
        for name, array in policy_parameters(agents.actor).items():
            np.testing.assert_array_equal(array, before[name])
        np.testing.assert_allclose(jnp.exp(agents.log_temperature), 0.2, rtol=1e-6)
        assert not np.array_equal(agents.critics.networks.biases[0], critics)
        explorer.train_chunk()
        agents = explorer.learner.state.agents
        assert agents.actor_optimiser[0].count.tolist() == [10, 10]  # updates 31 to 40
        assert agents.critic_optimiser[0].count.tolist() == [40, 40]
        assert not np.array_equal(agents.actor.network.biases[1], before["bias_1"])


@pytest.mark.parametrize(
    ("size", "episodes"), [({}, 4), ({"replay_size": 75, "chunk_steps": 10}, 3)]
)
def test_the_replay_begins_with_the_newest_experience_and_nothing_else_does(
    source: RunFolder, size: dict[str, int], episodes: int
) -> None:
    @jax.jit
    def sample(
        replay: ring.Replay, agent: jax.Array, tail: jax.Array, count: jax.Array
    ) -> ring.Transitions:
        own = jax.tree.map(lambda leaf: leaf[agent], replay)
        return ring.sample(own, jax.random.key(0), 500, tail[None], count[None])

    task, spec, _ = off_policy_settings(settings(source, **size), source)
    with Explorer(task, spec, resolved(task)[2], None) as explorer:
        explorer.begin_with(explorer.learner.state.agents, experience=kept_chunks(source, task))
        replay, ledger = jax.device_get(explorer.learner.state.replay), explorer.learner.ledger
        for agent, (records, kept) in enumerate(zip(experience(), (episodes, 3), strict=True)):
            newest = -sum(LENGTHS[agent][-kept:]) - kept  # records
            records = {
                name: array[newest:][~records["final"][newest:]] for name, array in records.items()
            }
            count = int(ledger.sample_count[agent])
            order = (ledger.sample_tail[agent] + np.arange(count)) % task.replay_size
            slots = replay.sampleable[agent, order]
            np.testing.assert_array_equal(replay.observation[agent, slots, 0], records["number"])
            np.testing.assert_allclose(
                replay.extrinsic_reward[agent, slots], records["reward"], rtol=1e-6
            )
            np.testing.assert_array_equal(replay.terminated[agent, slots], records["terminated"])
            # What is learned from in the first update.
            batch = jax.device_get(
                sample(
                    explorer.learner.state.replay, agent, ledger.sample_tail[agent], np.int64(count)
                )
            )
            drawn = batch.observation[:, 0]
            assert set(drawn.tolist()) <= set(records["number"].tolist())
            np.testing.assert_allclose(batch.extrinsic_reward, -drawn / 7, rtol=1e-6)
            np.testing.assert_allclose(batch.action[:, 0], drawn / 2_000, rtol=1e-6)
            np.testing.assert_array_equal(batch.next_observation[:, 1], -drawn - 1)
        assert explorer.step == explorer.learner.updates == 0
        for name, array in explorer.measures.to_arrays().items():
            # the best return so far is minus infinity
            assert not np.any(array[np.isfinite(array)]), name


def test_a_held_actor_leaves_the_critics_learning() -> None:
    state = sac.create(jax.random.key(0), 2, 1, SMALL)
    draws = np.random.default_rng(0).standard_normal((8, 7)).astype(np.float32)
    batch = Batch(draws[:, :2], np.tanh(draws[:, 2:3]), draws[:, 3], draws[:, 4:6], draws[:, 6] > 1)
    update = jax.jit(sac.update, static_argnames="config")
    learning, held = (
        update(state, batch, jax.random.key(1), SMALL, jnp.array(learns))[0]
        for learns in (True, False)
    )
    for name in ("critics", "target_critics", "critic_optimiser"):
        assert_equal_leaves(getattr(learning, name), getattr(held, name))
    for name in ("actor", "actor_optimiser", "log_temperature", "temperature_optimiser"):
        assert_equal_leaves(getattr(state, name), getattr(held, name))
        assert any(
            not np.array_equal(new, old)
            for new, old in zip(
                jax.tree.leaves(getattr(learning, name)),
                jax.tree.leaves(getattr(state, name)),
                strict=True,
            )
        )


def test_an_anchor_costs_its_weight_in_values_for_every_nat() -> None:
    state, other = (sac.create(jax.random.key(seed), 2, 1, SMALL) for seed in (0, 1))
    draws = jax.random.normal(jax.random.key(2), (8, 3))
    given = (state.actor, state.critics, jnp.array(0.2), draws[:, :2], draws[:, 2:])
    action, _ = squashed_gaussian(*state.actor(draws[:, :2]), draws[:, 2:])
    values = jnp.min(state.critics(draws[:, :2], action), axis=0)
    nats = float(jnp.mean(divergence(state.actor, other.actor, draws[:, :2])))
    plain, metrics = sac.actor_loss(*given)
    held, _ = sac.actor_loss(*given, sac.Anchor(other.actor, jnp.array(0.5)))
    assert float(held) == pytest.approx(
        float(plain) + 0.5 * float(jnp.mean(jnp.abs(values))) * nats, rel=1e-5
    )
    assert set(metrics) == {"actor_loss", "policy_entropy"}
    # It pulls by its divergence alone: no gradient comes through the unit, and none where nothing
    # has been left.
    gradient = jax.grad(lambda actor, anchor: sac.actor_loss(actor, *given[1:], anchor)[0])
    at_anchor = gradient(state.actor, sac.Anchor(state.actor, jnp.array(0.5)))
    for own, without in zip(
        jax.tree.leaves(at_anchor), jax.tree.leaves(gradient(state.actor, None)), strict=True
    ):
        np.testing.assert_allclose(own, without, atol=1e-6)


def test_an_anchor_holds_the_actor_fades_and_is_there_again_after_a_stop(
    source: RunFolder, tmp_path: Path
) -> None:
    def moved(name: str) -> float:
        run = RunFolder.open(tmp_path / name)
        before, after = run.load_policy(0), run.load_policy(300)
        return max(float(np.abs(after[part] - before[part]).max()) for part in before)

    config = settings(source, compare=False, critic_warmup=0, anchor=1e4, anchor_halflife=1e6)
    finetune(config, tmp_path / "held")
    # gone after the first update
    finetune(dataclasses.replace(config, anchor_halflife=1e-3), tmp_path / "faded")
    finetune(dataclasses.replace(config, anchor=0.0), tmp_path / "free")
    assert moved("held") < 0.2 * moved("free")
    assert moved("faded") == pytest.approx(moved("free"), rel=0.05)
    held, free = (RunFolder.open(tmp_path / name) for name in ("held", "free"))
    np.testing.assert_array_equal(
        held.load_resume()[0]["learner/anchor/network/biases/1"], held.load_policy(0)["bias_1"]
    )
    assert not any(name.startswith("learner/anchor") for name in free.load_resume()[0])
    calls = iter([False] * 12)
    with pytest.raises(Interrupted):
        finetune(config, tmp_path / "stopped", stop=lambda: next(calls, True))
    stopped = RunFolder.open(tmp_path / "stopped")
    assert 0 < (stopped.latest_checkpoint() or 0) < 300
    finetune(config, tmp_path / "stopped", resume=True)
    assert_same(outcome(held), outcome(stopped))
