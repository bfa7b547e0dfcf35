"""Datasets side by side: who may draw which rows, standardising, and a sentence for each thing that
cannot be learned from."""

import dataclasses
from pathlib import Path

import gymnasium
import jax
import numpy as np
import pytest
from support.pendulum_data import at_random, episodes, write

from element_rl.agents.behaviour_cloning import CloningConfig
from element_rl.agents.cql import CQLConfig
from element_rl.agents.iql import IQLConfig
from element_rl.datasets.minari_files import EpisodeRecord, write_dataset
from element_rl.training.offline.batches import device_portions, rows_of, sample
from element_rl.training.offline.config import OfflineConfig
from element_rl.training.offline.data import load_data
from element_rl.training.offline.learner import folded

STEPS = 20
SMALL = CQLConfig(hidden_sizes=(8,), batch_size=16)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`few` has three episodes of two agents, `many` seven of one; `unnamed` does not say where it
    comes from."""
    root = tmp_path_factory.mktemp("datasets")
    mixed = [
        next(episodes(at_random, 1, seed, STEPS, agent)) for seed, agent in ((0, 3), (1, 0), (2, 3))
    ]
    write(root, "test/few-v0", mixed, STEPS)
    write(root, "test/many-v0", episodes(at_random, 7, 5, STEPS, agent=1), STEPS)
    write(root, "test/unnamed-v0", episodes(at_random, 2, 6, STEPS), STEPS, named=False)
    write(root, "test/longer-v0", episodes(at_random, 2, 6, 2 * STEPS), 2 * STEPS)
    boxes = gymnasium.spaces.Box(-1, 1, (4,)), gymnasium.spaces.Box(-1, 1, (2,))
    wide = EpisodeRecord(
        np.zeros((9, 4)), np.zeros((8, 2)), np.zeros(8), np.zeros(8, bool), np.arange(8) == 7
    )
    write_dataset("test/wide-v0", [wide], *boxes, root=root)
    ant = gymnasium.spaces.Box(-1, 1, (3,)), gymnasium.spaces.Discrete(3)
    choice = EpisodeRecord(
        np.zeros((9, 3)), np.zeros(8, int), np.zeros(8), np.zeros(8, bool), np.arange(8) == 7
    )
    write_dataset("test/choice-v0", [choice], *ant, root=root)
    return root


def config(root: Path, *names: str, **changes: object) -> OfflineConfig:
    return OfflineConfig(
        tuple(f"test/{name}-v0" for name in names), root=str(root), cql=SMALL, **changes
    )


def test_parts_are_datasets_or_agents(root: Path) -> None:
    source = load_data(config(root, "few", "many"))
    assert [(part.dataset, part.agent, part.first, part.count) for part in source.portions] == [
        (0, None, 0, 3 * STEPS),
        (1, None, 3 * STEPS, 7 * STEPS),
    ]
    assert source.env == "Pendulum-v1"
    assert source.env_options == {"max_episode_steps": STEPS}
    by_agent = load_data(config(root, "few", "many", by_agent=True))
    assert [(part.dataset, part.agent, part.count) for part in by_agent.portions] == [
        (0, 0, STEPS),
        (0, 3, 2 * STEPS),
        (1, 1, 7 * STEPS),
    ]
    returns = source.episodes.returns
    assert source.portions[0].behaviour_return == pytest.approx(returns[:3].mean(), rel=1e-6)
    assert by_agent.portions[1].behaviour_return == pytest.approx(returns[[0, 2]].mean(), rel=1e-6)


def test_an_agent_draws_from_its_own_part_only_and_every_step_of_it(root: Path) -> None:
    source = load_data(config(root, "few", "many", standardise=False))
    rows, portions = rows_of(source, reward_scale=0.5), device_portions(source.portions)
    batches = jax.jit(
        lambda each: jax.vmap(lambda portion, key: sample(rows, portion, key, 3000))(
            each, jax.random.split(jax.random.key(0))
        )
    )(portions)
    data = source.episodes
    for index, part in enumerate(source.portions):
        own = data.transitions[part.first : part.first + part.count]
        where = {data.observation[row].tobytes(): int(row) for row in own}
        drawn = [
            where[observation.tobytes()] for observation in np.asarray(batches.observation[index])
        ]
        assert set(drawn) == set(own.tolist())
        counts = np.bincount(drawn)[own]
        assert counts.max() < 3 * 3000 / part.count
        np.testing.assert_array_equal(
            batches.next_observation[index], data.observation[np.array(drawn) + 1]
        )
        np.testing.assert_array_equal(batches.action[index], data.action[drawn])
        np.testing.assert_allclose(batches.reward[index], 0.5 * data.reward[drawn], rtol=1e-6)


def test_observations_are_standardised_by_the_part_they_come_from(root: Path) -> None:
    source = load_data(config(root, "few", "many"))
    rows = source.episodes.observation[: 3 * (STEPS + 1)].astype(np.float64)
    np.testing.assert_allclose(source.portions[0].mean, rows.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(source.portions[0].deviation, rows.std(axis=0), rtol=1e-5)
    portion = jax.tree.map(lambda leaf: leaf[0], device_portions(source.portions))
    batch = sample(rows_of(source, 1.0), portion, jax.random.key(0), 4000)
    np.testing.assert_allclose(np.mean(batch.observation, axis=0), 0.0, atol=0.15)
    np.testing.assert_allclose(np.std(batch.next_observation, axis=0), 1.0, atol=0.15)
    unscaled = load_data(config(root, "few", standardise=False)).portions[0]
    assert (unscaled.mean == 0).all()
    assert (unscaled.deviation == 1).all()


def test_folding_makes_the_first_layer_take_raw_observations() -> None:
    rng = np.random.default_rng(0)
    weight, bias = (
        rng.normal(size=(2, 3, 5)).astype(np.float32),
        rng.normal(size=(2, 5)).astype(np.float32),
    )
    mean, deviation = (
        rng.normal(size=(2, 3)).astype(np.float32),
        rng.uniform(0.1, 9, (2, 3)).astype(np.float32),
    )
    raw = rng.normal(size=3).astype(np.float32)
    new_weight, new_bias = folded(weight, bias, mean, deviation)
    for agent in range(2):
        expected = ((raw - mean[agent]) / deviation[agent]) @ weight[agent] + bias[agent]
        np.testing.assert_allclose(
            raw @ new_weight[agent] + new_bias[agent], expected, rtol=1e-4, atol=1e-5
        )


def test_iql_learns_from_rewards_that_span_its_range_part_by_part(root: Path) -> None:
    """1,000 over the best less the worst return of each agent's own episodes, on top of
    --reward-scale, which it makes up for; others learn from rewards as they are."""
    plain = load_data(config(root, "few", "many"))
    assert [part.reward_factor for part in plain.portions] == [1.0, 1.0]
    scaled = {"algorithm": "iql", "iql": IQLConfig(batch_size=16), "reward_scale": 0.5}
    source = load_data(config(root, "few", "many", **scaled))
    returns = source.episodes.returns
    for part, own in zip(source.portions, (returns[:3], returns[3:]), strict=True):
        assert part.reward_factor == pytest.approx(1_000 / (0.5 * np.ptp(own)), rel=1e-5)
        assert part.best_return == pytest.approx(own.max(), rel=1e-6)
    portion = jax.tree.map(lambda leaf: leaf[0], device_portions(source.portions))
    batch = sample(rows_of(source, 0.5), portion, jax.random.key(0), 200)
    unscaled = sample(
        rows_of(plain, 1.0),
        jax.tree.map(lambda leaf: leaf[0], device_portions(plain.portions)),
        jax.random.key(0),
        200,
    )
    factor = 1_000 / np.ptp(returns[:3])
    np.testing.assert_allclose(batch.reward, factor * unscaled.reward, rtol=1e-4)
    as_they_are = dataclasses.replace(scaled["iql"], return_range=0.0)
    source = load_data(config(root, "few", **(scaled | {"iql": as_they_are})))
    assert source.portions[0].reward_factor == 1.0
    one = load_data(config(root, "few", by_agent=True, **scaled)).portions[0]  # of one episode
    assert one.reward_factor == 1.0


def test_the_range_of_discounted_returns_by_a_loop(root: Path) -> None:
    source = load_data(config(root, "few", reward_scale=0.5))
    rewards = source.episodes.reward[: 3 * (STEPS + 1)].reshape(3, STEPS + 1)[:, :STEPS]
    found = []
    for episode in rewards:
        total = 0.0
        for reward in episode[::-1]:
            total = 0.5 * float(reward) + 0.99 * total
            found.append(total)
    assert source.portions[0].value_range == pytest.approx((min(found), max(found)), rel=1e-5)
    cloned = load_data(config(root, "few", algorithm="bc", bc=CloningConfig(batch_size=16)))
    assert cloned.portions[0].value_range is None


def test_what_the_datasets_name_is_told_from_what_was_given(root: Path) -> None:
    assert load_data(config(root, "few")).env_of_datasets
    assert not load_data(config(root, "few", env_options=("max_episode_steps=7",))).env_of_datasets
    assert not load_data(config(root, "unnamed", env="Pendulum-v1")).env_of_datasets
    assert load_data(config(root, "unnamed", evaluate=False)).env_of_datasets


@pytest.mark.parametrize("algorithm", ["td3-bc", "iql"])
def test_what_needs_vectors_refuses_choices(root: Path, algorithm: str) -> None:
    sentence = f"--algorithm {algorithm} learns actions that are vectors.*: take cql or bc"
    with pytest.raises(ValueError, match=sentence):
        load_data(config(root, "choice", algorithm=algorithm, evaluate=False))


@pytest.mark.parametrize(
    ("names", "changes", "sentence"),
    [
        (
            ("few", "wide"),
            {},
            r"few-v0 observes Box.*but test/wide-v0 Box.*: train on them one after the other",
        ),
        (("few", "choice"), {}, r"few-v0 acts in Box.*but test/choice-v0 Discrete\(3\)"),
        (("few", "unnamed"), {}, "different environments .*unnamed-v0 from an unnamed one"),
        (("few", "longer"), {}, "different options of their environment .*say --env-options"),
        (
            ("unnamed",),
            {},
            "does not name its environment: give it with --env, or use --no-evaluate",
        ),
        (
            ("wide",),
            {"env": "Pendulum-v1"},
            r"wide-v0 observes Box.*but Pendulum-v1 Box.*--env-options",
        ),
        (("unnamed",), {"by_agent": True, "evaluate": False}, "do not say which agent made them"),
        (("absent",), {}, "test/absent-v0"),
        (
            ("few",),
            {"cql": dataclasses.replace(SMALL, batch_size=61)},
            "has 60 transitions, fewer than a batch of 61",
        ),
        (
            ("few",),
            {"by_agent": True, "cql": dataclasses.replace(SMALL, batch_size=21)},
            "20 transitions of agent 0, fewer than a batch of 21",
        ),
    ],
)
def test_what_cannot_be_learned_from(
    root: Path, names: tuple[str, ...], changes: dict, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence) as refused:
        load_data(dataclasses.replace(config(root, *names), **changes))
    assert "\n" not in str(refused.value)


def test_options_win_over_those_of_the_dataset(root: Path) -> None:
    source = load_data(config(root, "few", "longer", env_options=("max_episode_steps=7",)))
    assert source.env_options == {"max_episode_steps": 7}
    unnamed = load_data(config(root, "unnamed", env="Pendulum-v1"))
    assert (unnamed.env, unnamed.env_options) == ("Pendulum-v1", {})
    assert load_data(config(root, "unnamed", evaluate=False)).env == ""


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"datasets": ()}, "at least one dataset"),
        ({"datasets": ("a-v0", "a-v0")}, "named twice"),
        ({"steps": 0}, "--steps must be at least 1, got 0"),
        ({"evaluate_every": 0}, "--evaluate-every must be at least 1, got 0"),
        ({"seed": -1}, "must not be negative"),
        ({"score_range": (3.0, 3.0)}, "two different returns"),
    ],
)
def test_settings_that_make_no_sense(wrong: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        OfflineConfig(**({"datasets": ("a-v0",)} | wrong))
