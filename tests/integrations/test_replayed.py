"""The framework-free form for replay buffers: rewards are the library's own, and everything can be
stored."""

import pickle
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from support.walks import ACTIONS, OBSERVATIONS, SMALL, Walk, walk

import element_rl
from element_rl import IntrinsicReward
from element_rl.encoders.state import make_state_encoder
from element_rl.envs.make import make_env
from element_rl.rewards.element import ElementReward, in_update_window
from element_rl.rewards.element_config import ElementConfig
from element_rl.storage.files import FileError
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.off_policy.resolving import resolved

ROBOTS = ("Hopper-v5", "Ant-v5")


def bonus_of(name: str = "element", num_envs: int = 3, **settings: Any) -> IntrinsicReward:
    given = {
        "capacity": 600,
        "max_episode_steps": 20,
        "total_steps": 400,
        "options": SMALL.get(name),
    } | settings
    return IntrinsicReward(name, OBSERVATIONS, ACTIONS, num_envs=num_envs, **given)


def fed(bonus: IntrinsicReward, world: Walk) -> IntrinsicReward:
    for step in zip(*world, strict=True):
        bonus.observe(*step)
    return bonus


def asked(bonus: IntrinsicReward, world: Walk, ids: np.ndarray) -> tuple[np.ndarray, ...]:
    return (ids, *(part[ids] for part in world.rows()))


def episodes_of(world: Walk) -> list[np.ndarray]:
    """The numbers of the transitions of each episode that has ended, in the order they ended."""
    steps, num_envs = world.terminated.shape
    running: list[list[int]] = [[] for _ in range(num_envs)]
    ended = []
    for step in range(steps):
        for env in range(num_envs):
            running[env].append(step * num_envs + env)
            if world.terminated[step, env] or world.truncated[step, env]:
                ended.append(np.array(running[env]))
                running[env] = []
    return ended


def third_order_entropy(states: np.ndarray, credit: str) -> np.ndarray:
    """−½ log2 tr(A³), A the Gram matrix over its trace, to all states alike, or to each by its
    place on the diagonal of A³."""
    squared = ((states[:, None] - states[None]) ** 2).sum(axis=2)
    gram = np.exp(-squared / 2) / len(states)
    diagonal = np.diag(gram @ gram @ gram)
    own = {
        "episode": np.zeros(len(states)),
        "state": -0.5 * np.log2(diagonal),
        "variation": -1.5 / np.log(2) * diagonal / diagonal.mean(),
    }[credit]
    return -0.5 * np.log2(diagonal.sum()) + own - own.mean()


@pytest.mark.parametrize(
    ("memory", "credit"),
    [("exact", "episode"), ("hnsw", "episode"), ("exact", "state"), ("exact", "variation")],
)
def test_element_is_the_paper_s_on_several_environments(memory: str, credit: str) -> None:
    """By brute force over everything: entropies of episodes, distances to all that entered the
    memory, min–max of the batch."""
    world = walk(60, 3)
    bonus = fed(bonus_of(options={**SMALL["element"], "memory": memory, "credit": credit}), world)
    states = np.asarray(
        jax.vmap(make_state_encoder(0, 4))(world.rows()[2].astype(np.float32), np.zeros((180, 0)))
    )
    config = ElementConfig(**SMALL["element"])
    entropy, remembered = np.full(180, np.nan), []
    for episode in episodes_of(world):
        entropy[episode] = third_order_entropy(states[episode], credit)
        remembered += episode[in_update_window(episode, config)].tolist()
    ids = np.flatnonzero(np.isfinite(entropy))
    distances = np.sqrt(((states[ids, None] - states[None, remembered]) ** 2).sum(axis=2))
    distances[ids[:, None] == np.array(remembered)[None]] = np.inf  # no state is its own neighbour
    novelty = np.log1p(np.linalg.norm(np.sort(distances, axis=1)[:, :3], axis=1))
    scaled = [(term - term.min()) / (term.max() - term.min()) for term in (entropy[ids], novelty)]
    assert bonus.memory_size == len(remembered) > 50
    assert bonus.ready(np.arange(180)).tolist() == np.isfinite(entropy).tolist()
    assert bonus.reward(*asked(bonus, world, ids)) == pytest.approx(
        scaled[0] + 0.5 * scaled[1], abs=2e-5
    )
    terms = bonus.reward_terms(*asked(bonus, world, ids))
    assert terms["reward_episodic"] == pytest.approx(scaled[0], abs=2e-5)


@pytest.mark.parametrize("memory", ["exact", "hnsw", "spaced"])
def test_distances_to_other_episodes_only_on_several_environments(memory: str) -> None:
    """By brute force: all states are remembered from the first on, a spaced memory keeps all that
    differ, and those of the own episode do not count."""
    world = walk(60, 3)
    options = {"own_episode": "out", "remember": "always", "memory_spacing": 1e-6}
    bonus = fed(bonus_of(options={**SMALL["element"], **options, "memory": memory}), world)
    states = np.asarray(
        jax.vmap(make_state_encoder(0, 4))(world.rows()[2].astype(np.float32), np.zeros((180, 0)))
    )
    episodes = episodes_of(world)
    ended = np.concatenate(episodes)
    assert bonus.memory_size == len(ended)
    for own in episodes:
        others = states[np.setdiff1d(ended, own)]
        distances = np.sqrt(((states[own, None] - others[None]) ** 2).sum(axis=2))
        noted = np.asarray(bonus.noted.notes["neighbour_distances"][own % bonus.capacity])
        np.testing.assert_allclose(noted, np.sort(distances, axis=1)[:, :3], rtol=1e-4, atol=1e-5)


OF_SUM = {"element": SMALL["element"], "rnd": SMALL["rnd"], "re3": {"pool": "whole"}}
BEYOND = {
    "memory": "spaced",
    "memory_capacity": 20,
    "remember": "always",
    "own_episode": "out",
    "normalisation": "robust",
}


SUM = "element + 0.5*rnd + re3"


@pytest.mark.parametrize("name", ["element", "beyond", "rnd", "ngu", "re3", SUM])
def test_stored_and_pickled_it_goes_on_as_if_nothing_had_been(name: str, tmp_path: Path) -> None:
    world, later = walk(40, 3), walk(25, 3, seed=1)
    bonus = fed(
        bonus_of("element", options={**SMALL["element"], **BEYOND})
        if name == "beyond"
        else bonus_of(name, options=OF_SUM, total_steps=60)  # the memory of RE3 outgrows this
        if name == SUM
        else bonus_of(name, recent_scale=name != "element"),
        world,
    )
    ids = bonus.sample(32, np.random.default_rng(0))
    bonus.update(*asked(bonus, world, ids))
    bonus.save(tmp_path / "bonus")
    bonus.save(tmp_path / "bonus")  # again, over itself
    others = [IntrinsicReward.load(tmp_path / "bonus"), pickle.loads(pickle.dumps(bonus))]
    together = Walk(*(np.concatenate(parts) for parts in zip(world, later, strict=True)))
    given = []
    for one in (bonus, *others):
        fed(one, later)
        ids = one.sample(32, np.random.default_rng(1))
        reported = one.update(*asked(one, together, ids))
        given.append((ids, one.reward(*asked(one, together, ids)), reported, one.memory_size))
    for ids, values, reported, size in given[1:]:
        assert np.array_equal(ids, given[0][0])
        assert np.array_equal(values, given[0][1])
        assert (reported, size) == given[0][2:]


def test_the_hnsw_memory_is_stored_too(tmp_path: Path) -> None:
    world = walk(40, 3)
    bonus = fed(bonus_of(options={**SMALL["element"], "memory": "hnsw"}), world)
    bonus.save(tmp_path)
    loaded = IntrinsicReward.load(tmp_path)
    assert loaded.memory_size == bonus.memory_size > 0
    assert [path.name for path in tmp_path.glob("memory-*")] == [f"memory-{bonus.memory_size}"]
    fed(bonus, world)
    fed(loaded, world)
    ids = bonus.sample(64, np.random.default_rng(0))
    batch = (ids, *(np.concatenate([part, part])[ids] for part in world.rows()))
    assert np.array_equal(bonus.reward(*batch), loaded.reward(*batch))


def test_a_full_ring_forgets_the_oldest() -> None:
    world = walk(60, 3)
    bonus = fed(bonus_of(capacity=90), world)
    assert not bonus.ready(np.arange(90)).any()
    drawn = bonus.sample(500, np.random.default_rng(0))
    assert drawn.min() >= 90
    assert bonus.ready(drawn).all()
    whole = fed(bonus_of(), world)
    ids = np.unique(drawn)
    assert bonus.reward(*asked(bonus, world, ids)) == pytest.approx(
        whole.reward(*asked(whole, world, ids)), abs=1e-6
    )


def test_draws_are_uniform_over_what_is_ready() -> None:
    bonus = fed(bonus_of(), walk(30, 3))
    ready = np.flatnonzero(bonus.ready(np.arange(90)))
    drawn, counts = np.unique(
        bonus.sample(len(ready) * 400, np.random.default_rng(0)), return_counts=True
    )
    assert np.array_equal(drawn, ready)
    assert np.abs(counts - 400).max() < 5 * np.sqrt(400)


def test_a_reward_changes_nothing_and_an_update_only_what_learns() -> None:
    world = walk(30, 3)
    bonus = fed(bonus_of("rnd"), world)
    batch = asked(bonus, world, np.arange(40))
    first = bonus.reward(*batch)
    assert np.array_equal(bonus.reward(*batch), first)
    reported = bonus.update(*batch)
    assert set(reported) == set(bonus.rewarder.metric_names)
    assert not np.allclose(bonus.reward(*batch), first)


def test_both_at_once_read_a_batch_once_and_come_to_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = walk(30, 3)
    ours, theirs = (fed(bonus_of("rnd"), world) for _ in range(2))
    batch = asked(ours, world, np.arange(40))
    expected = theirs.update(*batch), theirs.reward(*batch)
    read = count_calls(monkeypatch, ours.source, "raw")
    metrics, rewards = ours.update_and_reward(*batch)
    assert len(read) == 2  # observations, and next observations
    assert metrics == expected[0]
    assert np.array_equal(rewards, expected[1])
    for name, array in ours.to_arrays().items():
        assert np.array_equal(array, theirs.to_arrays()[name]), name


def count_calls(monkeypatch: pytest.MonkeyPatch, of: Any, name: str) -> list[Any]:
    calls, original = [], getattr(of, name)

    def counted(*arguments: Any) -> Any:
        calls.append(arguments)
        return original(*arguments)

    monkeypatch.setattr(of, name, counted)
    return calls


def test_a_run_whose_length_nobody_said_is_remembered_from_early_on(tmp_path: Path) -> None:
    world = walk(400, 3)
    bonus = fed(bonus_of(total_steps=None, options=None), world)
    assert 80 < bonus.memory_size < 120  # of the window from step 1,000 on
    bonus.save(tmp_path)
    again = IntrinsicReward.load(tmp_path)
    ids = bonus.sample(20, np.random.default_rng(0))
    assert bonus.reward_terms(*asked(bonus, world, ids))["reward_lifelong"].max() > 0
    assert np.array_equal(
        again.reward(*asked(again, world, ids)), bonus.reward(*asked(bonus, world, ids))
    )


def test_an_empty_memory_is_said_once(tmp_path: Path) -> None:
    with pytest.warns(
        UserWarning,
        match=r"stays empty in a run of 400 steps: its first window opens at step 500\.",
    ):
        bonus_of(options={"update_interval": 500})
    bonus = fed(bonus_of(total_steps=1_000, options={"update_interval": 500}), walk(30, 3))
    with pytest.warns(
        UserWarning,
        match=r"memory is empty after 90 steps, .*: its first window opens at step 500\.",
    ):
        bonus.save(tmp_path)
    bonus.save(tmp_path)
    # none is wanted
    bonus_of(options={"update_interval": 500, "lifelong_weight": 0.0}).save(tmp_path)
    with pytest.warns(UserWarning, match="windows of 1 step take in nothing"):
        bonus_of(total_steps=100, options=None)


def test_a_run_may_be_longer_than_was_said() -> None:
    """The memory grows beyond what `total_steps` sized it for; rewards are those of one sized
    rightly."""
    world = walk(100, 3)
    options = {"update_interval": 20, "update_steps": 18, "memory": "exact"}
    short, right = (fed(bonus_of(total_steps=steps, options=options), world) for steps in (25, 300))
    ids = right.sample(50, np.random.default_rng(0))
    assert short.memory_size == right.memory_size > 200
    assert np.array_equal(
        short.reward(*asked(short, world, ids)), right.reward(*asked(right, world, ids))
    )


def test_long_episodes_are_taken_for_several() -> None:
    world = walk(50, 1, dying=0.0, limit=1000)
    bonus = fed(bonus_of("element", 1, max_episode_steps=20), world)
    assert bonus.ready(np.arange(50)).tolist() == [True] * 40 + [False] * 10
    bonus.end_episodes()
    assert bonus.ready(np.arange(50)).all()


def test_the_state_of_a_robot_is_the_library_s() -> None:
    env = make_env("Ant-v5")
    bonus = IntrinsicReward(
        "element",
        env.observation_space,
        env.action_space,
        env_id="Ant-v5",
        capacity=2000,
        max_episode_steps=5,
        seed=7,
    )
    observation, _ = env.reset(seed=0)
    for _ in range(5):
        action = env.action_space.sample()
        following, _, _, _, info = env.step(action)
        bonus.observe(observation[None], action[None], following[None], [False], [False], [info])
        observation = following
    position = jnp.asarray([info["x_position"], info["y_position"]], jnp.float32)
    wanted = make_state_encoder(7, 27, (1, 5))(jnp.asarray(following, jnp.float32), position)
    assert np.asarray(bonus.noted.state[4]) == pytest.approx(np.asarray(wanted), abs=1e-6)
    env.close()


@pytest.mark.parametrize(
    ("space", "observations"),
    [
        (spaces.Discrete(5), np.array([3, 1])),
        (spaces.Dict({"a": spaces.Box(0, 1, (2,)), "b": spaces.MultiDiscrete([2, 3])}), None),
        (
            spaces.Box(0, 255, (7, 7, 3), np.uint8),
            np.arange(2 * 7 * 7 * 3, dtype=np.uint8).reshape(2, 7, 7, 3),
        ),
        (
            spaces.Box(0, 255, (40, 44, 3), np.uint8),
            np.arange(2 * 40 * 44 * 3, dtype=np.uint8).reshape(2, 40, 44, 3),
        ),
        (
            spaces.Box(0, 255, (4, 40, 44), np.uint8),
            np.arange(2 * 40 * 44 * 4, dtype=np.uint8).reshape(2, 4, 40, 44),
        ),
    ],
    ids=["discrete", "dict", "small image", "colours", "stack"],
)
def test_other_spaces(space: spaces.Space, observations: Any, tmp_path: Path) -> None:
    if observations is None:
        observations = {"a": np.array([[0.1, 0.2], [0.3, 0.4]]), "b": np.array([[0, 2], [1, 1]])}
    bonus = IntrinsicReward(
        "re3", space, spaces.Discrete(3), num_envs=2, capacity=100, max_episode_steps=10
    )
    ids = bonus.observe(
        observations, np.array([0, 2]), observations, [False, False], [False, False]
    )
    assert ids.tolist() == [0, 1]
    bonus.update(ids, observations, np.array([0, 2]), observations)
    values = bonus.reward(ids, observations, np.array([0, 2]), observations)
    assert values.shape == (2,)
    assert np.isfinite(values).all()
    assert values[0] > 0  # the two states differ
    bonus.save(tmp_path)
    loaded = IntrinsicReward.load(tmp_path)
    assert np.array_equal(loaded.reward(ids, observations, np.array([0, 2]), observations), values)


def test_an_own_function_for_the_states_and_positions_from_infos() -> None:
    def place(observations: Any, infos: Any) -> np.ndarray:
        return np.array([[info["x"], 2.0 * info["x"]] for info in infos])

    step = (np.zeros((1, 4)), np.zeros((1, 2)), np.ones((1, 4)), [False], [False], [{"x": 3.0}])
    own = bonus_of(num_envs=1, states=place)
    own.observe(*step)
    own.end_episodes()
    assert np.asarray(own.noted.state[0]).tolist() == [3.0, 6.0]
    for position, wanted in ((("x",), 3.0), ((2,), 1.0)):
        told = bonus_of(num_envs=1, position=position)
        told.observe(*step)
        told.end_episodes()
        assert np.asarray(told.noted.state[0]).shape == (6,)
        assert float(told.noted.state[0, 5]) == wanted
    assert (
        pickle.loads(pickle.dumps(bonus_of(num_envs=1, states=np.asarray))).source.own is np.asarray
    )


def test_mistakes_are_answered_by_one_sentence(tmp_path: Path) -> None:
    world = walk(3, 3, dying=0.0)
    bonus = bonus_of()
    step = [part[0] for part in world]
    with pytest.raises(
        ValueError, match=r"One step of 3 environments was expected, got 2 observations"
    ):
        bonus.observe(step[0][:2], *step[1:])
    with pytest.raises(ValueError, match=r"Step 0 has next_observations that are not finite"):
        bonus.observe(*step[:2], np.full((3, 4), np.nan), *step[3:])
    assert bonus.observed == 0
    with pytest.raises(ValueError, match=r"No episode has ended yet"):
        bonus.sample(4)
    fed(bonus, world)
    with pytest.raises(
        ValueError, match=r"Transition 0 has no reward: .* its episode has not ended"
    ):
        bonus.reward(*asked(bonus, world, np.array([0])))
    with pytest.raises(ValueError, match=r"The infos of 3 environments are needed .*, got none"):
        fed(bonus_of(position=("x",)), world)
    for settings, said in (
        ({"capacity": 20}, "does not do for 3 environments"),
        ({"num_envs": 0}, "num_envs must be at least 1"),
        ({"states": np.asarray, "position": (0,)}, "leave out position"),
        ({"position": (7,)}, "position names columns of the observation, which are 0 to 3; got 7"),
        ({"position": (0, -1)}, "which are 0 to 3; got 0, -1"),
        ({"options": {"betta": 1}}, "does not take these options"),
        ({"env_id": "Humanoid-v4"}, "use its -v5"),
        ({"env_id": "Ant-v5"}, "observes 27 numbers"),
        ({"recent_scale": True}, "recent_scale is for other rewards"),
    ):
        with pytest.raises(ValueError, match=said):
            bonus_of(**settings)
    with pytest.raises(ValueError, match="no intrinsic reward"):
        bonus_of("extrinsic")
    with pytest.raises(
        ValueError, match=r"called 'foo'; choose one of element, .*, e3b, .*or FILE.py:FUNCTION"
    ):
        bonus_of("foo")
    with pytest.raises(FileError, match="There is no bonus in"):
        IntrinsicReward.load(tmp_path / "nothing")


def test_the_package_offers_both_forms() -> None:
    assert element_rl.RolloutReward.__name__ == "RolloutReward"
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        element_rl.Nothing  # noqa: B018


def test_element_is_by_default_as_in_explore() -> None:
    """For learners from a replay: states paid their own share, and the narrower kernel with KDE."""
    asked_for = bonus_of(
        options={"estimator": "kde", "credit": "episode", "bandwidth": 2.0}
    ).rewarder
    by_robot = [
        IntrinsicReward("element", make_env(env).observation_space, ACTIONS, env_id=env).rewarder
        for env in ROBOTS
    ]
    configs = [
        reward.config for reward in (*by_robot, asked_for) if isinstance(reward, ElementReward)
    ]
    assert [(config.credit, config.bandwidth) for config in configs] == [
        ("state", 0.1),
        ("state", 1),
        ("episode", 2),
    ]
    explored = [resolved(ExploreConfig(env))[0] for env in ROBOTS]
    assert [(config.credit, config.bandwidth) for config in explored] == [
        ("state", 0.1),
        ("state", 1),
    ]


def test_a_bonus_from_before_a_setting_was_there_goes_on_as_it_began(tmp_path: Path) -> None:
    """A stored NGU that says nothing of its statistics has those of all training."""
    options = {"embedding_dim": 4, "encoder_sizes": (8,), "head_sizes": (8,), "rnd_sizes": (8,)}
    before = {"error_statistics": "all", "observation_clip": None}
    space = spaces.Box(-1, 1, (2,), np.float32)
    bonus = IntrinsicReward("ngu", space, space, position=[0, 1], options=options | before)
    bonus.settings["options"] = options  # as it was stored then
    bonus.save(tmp_path)
    read = IntrinsicReward.load(tmp_path)
    assert read.rewarder == bonus.rewarder
    assert read.rewarder.config.error_statistics == "all"


def test_inputs_are_refused_with_one_sentence() -> None:
    space = spaces.Box(-1, 1, (2,), np.float32)
    with pytest.raises(ValueError, match=r"inputs is a setting of element explore: here nobody"):
        IntrinsicReward("rnd", space, space, options={"inputs": "state"})
