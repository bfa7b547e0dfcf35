"""Worlds by MuJoCo Warp against Gymnasium's environments: the same states and actions lead to the
same observations, rewards and ends; a broken world breaks no other."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from element_rl.envs.make import describe, make_env
from element_rl.envs.spec import position_of
from element_rl.worlds import warp_contacts
from element_rl.worlds.contract import Outcome, Worlds
from element_rl.worlds.robot_task import Moment
from element_rl.worlds.warp_loading import import_warp
from element_rl.worlds.warp_worlds import TASKS, RobotState, WarpWorlds, warp_worlds

WALK = 60  # steps of random actions
LOOKED_AT = (0, 1, 25, 45, 59)
NEWTON = mujoco.mjtSolver.mjSOL_NEWTON


def moment_of(worlds: WarpWorlds, env: gymnasium.Env) -> Moment:
    """The moment that Gymnasium's environment is in, as one world."""
    data = env.unwrapped.data
    names = ("qpos", "qvel", *worlds.task.reads)
    return {name: jnp.asarray(getattr(data, name), jnp.float32)[None] for name in names}


def state_of(worlds: WarpWorlds, env: gymnasium.Env) -> RobotState:
    moment = moment_of(worlds, env)
    warmstart = jnp.asarray(env.unwrapped.data.qacc_warmstart, jnp.float32)[None]
    return RobotState(moment["qpos"], moment["qvel"], warmstart, worlds.task.place(moment))


def stacked(states: list[RobotState]) -> RobotState:
    return RobotState(*(jnp.concatenate(arrays) for arrays in zip(*states, strict=True)))


def newton_env(name: str, options: Mapping[str, Any]) -> gymnasium.Env:
    """Gymnasium's environment without its time limit, with the solver that Warp has. It goes on
    after an end."""
    env = make_env(name, **options).unwrapped
    env.model.opt.solver = NEWTON
    return env


def assert_a_step_is_gymnasiums(name: str, options: Mapping[str, Any]) -> list[bool]:
    """Some steps of a random walk of Gymnasium's, each done again in a world; their ends."""
    worlds, env = warp_worlds(name, options), newton_env(name, options)
    states, actions, expected = [], [], []
    env.reset(seed=3)
    env.action_space.seed(4)
    for step in range(WALK):
        before, action = state_of(worlds, env), env.action_space.sample()
        observation, reward, terminated, _, info = env.step(action)
        if step in LOOKED_AT:
            place = position_of(worlds.spec, observation.astype(np.float32), info)
            states.append(before)
            actions.append(action)
            expected.append((observation, place, reward, terminated))
    _, outcome = jax.jit(worlds.step)(stacked(states), jnp.array(actions))
    observations, places, rewards, ends = (
        np.array(column) for column in zip(*expected, strict=True)
    )
    assert outcome.seen.observation.dtype == jnp.float32
    # float32: the forces on a Humanoid are of the order of 1,000
    np.testing.assert_allclose(outcome.seen.observation, observations, rtol=5e-4, atol=5e-4)
    np.testing.assert_allclose(outcome.seen.position, places, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(outcome.reward, rewards, rtol=1e-5, atol=1e-4)
    assert outcome.terminated.tolist() == ends.tolist()
    assert not outcome.faulty.any()
    return ends.tolist()


@pytest.mark.parametrize("name", TASKS)
def test_a_step_is_gymnasiums(name: str) -> None:
    ends = assert_a_step_is_gymnasiums(name, {})
    can_end = ("Hopper", "Walker2d", "Humanoid-", "InvertedPendulum", "InvertedDoublePendulum")
    assert any(ends) == name.startswith(can_end)  # both answers have been compared


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Hopper-v5", {"terminate_when_unhealthy": False, "frame_skip": 2, "healthy_reward": 3.0}),
        ("Walker2d-v5", {"exclude_current_positions_from_observation": False}),
        ("HalfCheetah-v5", {"forward_reward_weight": 2.0, "ctrl_cost_weight": 0.3}),
        (
            "Ant-v5",
            {
                "include_cfrc_ext_in_observation": True,
                "exclude_current_positions_from_observation": False,
                "healthy_z_range": (0.6, 0.8),
                "main_body": 3,
            },
        ),
        (
            "Humanoid-v5",
            {"include_cinert_in_observation": False, "include_cfrc_ext_in_observation": False},
        ),
    ],
)
def test_options_mean_what_they_mean_in_gymnasium(name: str, options: dict[str, Any]) -> None:
    ends = assert_a_step_is_gymnasiums(name, options)
    assert any(ends) == (name in ("Walker2d-v5", "Ant-v5", "Humanoid-v5"))


@pytest.mark.parametrize("name", TASKS)
def test_a_reset_sees_what_gymnasium_sees_there(name: str) -> None:
    worlds, env = warp_worlds(name, {}), newton_env(name, {})
    assert isinstance(worlds, Worlds)
    state, seen = jax.jit(worlds.reset)(jax.random.split(jax.random.key(5), 3))
    for world in range(3):
        mujoco.mj_resetData(env.model, env.data)
        env.set_state(*(np.array(array[world], np.float64) for array in (state.qpos, state.qvel)))
        observation = env._get_obs()
        place = position_of(worlds.spec, observation.astype(np.float32), env._get_reset_info())
        np.testing.assert_allclose(seen.observation[world], observation, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(seen.position[world], place, rtol=1e-6, atol=1e-6)
        expected = worlds.task.place(moment_of(worlds, env))[0]
        np.testing.assert_allclose(state.place[world], expected, atol=1e-6)
    assert seen.observation.shape == (3, worlds.spec.observation_dim)
    assert not state.warmstart.any()


@pytest.mark.parametrize("name", TASKS)
def test_resets_are_distributed_as_gymnasiums(name: str) -> None:
    worlds, env, worlds_seen = warp_worlds(name, {}), newton_env(name, {}), 4000
    drawn = jax.vmap(worlds.task.start)(jax.random.split(jax.random.key(6), worlds_seen))
    env.reset(seed=7)
    expected = []
    for _ in range(1000):
        env.reset()
        expected.append((env.data.qpos.copy(), env.data.qvel.copy()))
    for ours, theirs in zip(drawn, zip(*expected, strict=True), strict=True):
        values, reference = np.array(ours), np.array(theirs)
        spread = reference.std(axis=0)
        # five standard errors of both means, and of both deviations
        assert (np.abs(values.mean(0) - reference.mean(0)) <= 5 * spread / 28 + 1e-6).all()
        assert (np.abs(values.std(0) - spread) <= 5 * spread / 40 + 1e-6).all()
        if ours is drawn[0]:  # positions are bounded
            room = 0.02 * np.ptp(reference, axis=0) + 1e-6
            assert (values.min(0) >= reference.min(0) - room).all()
            assert (values.max(0) <= reference.max(0) + room).all()


def test_noise_of_resets_is_the_options() -> None:
    still = warp_worlds("Hopper-v5", {"reset_noise_scale": 0.0})
    (qpos, qvel) = still.task.start(jax.random.key(0))
    np.testing.assert_array_equal(qpos, np.float32([0, 1.25, 0, 0, 0, 0]))
    assert not qvel.any()
    wide = warp_worlds("Hopper-v5", {"reset_noise_scale": 0.5})
    qpos, _ = jax.vmap(wide.task.start)(jax.random.split(jax.random.key(1), 1000))
    assert 0.45 < float(jnp.abs(qpos[:, 0]).max()) <= 0.5


@pytest.fixture(scope="module")
def ants() -> WarpWorlds:
    return warp_worlds("Ant-v5", {})


def on_the_floor(worlds: WarpWorlds, seed: int, count: int) -> RobotState:
    state, _ = jax.jit(worlds.reset)(jax.random.split(jax.random.key(seed), count))
    return state._replace(qpos=state.qpos.at[:, 2].set(0.3))


def random_actions(worlds: WarpWorlds, steps: int, count: int) -> jax.Array:
    shape = (steps, count, worlds.spec.action_dim)
    return jax.random.uniform(jax.random.key(8), shape, minval=-1.0)


def scanned(worlds: WarpWorlds, state: RobotState, actions: jax.Array) -> tuple[Any, Outcome]:
    return jax.jit(lambda s, a: jax.lax.scan(worlds.step, s, a))(state, actions)


def test_a_scan_is_a_loop_and_the_state_is_all_that_a_world_is(ants: WarpWorlds) -> None:
    state, step = on_the_floor(ants, 9, 4), jax.jit(ants.step)
    actions = random_actions(ants, 4, 4)
    last, outcomes = scanned(ants, state, actions)
    looped = state
    for action in actions:
        step(state, -action)  # another walk in the same arrays of Warp
        looped, outcome = step(looped, action)
    jax.tree.map(np.testing.assert_array_equal, last, looped)
    np.testing.assert_array_equal(outcomes.reward[-1], outcome.reward)


def test_how_many_worlds_there_are_makes_no_difference(ants: WarpWorlds) -> None:
    state = on_the_floor(ants, 10, 4)
    actions = random_actions(ants, 4, 4)
    all_of_them, _ = scanned(ants, state, actions)
    half, _ = scanned(ants, jax.tree.map(lambda leaf: leaf[:2], state), actions[:, :2])
    np.testing.assert_allclose(all_of_them.qpos[:2], half.qpos, atol=1e-5)


@pytest.mark.parametrize("broken", [np.nan, np.inf, 1e12])
def test_a_broken_world_leaves_the_others_alone(ants: WarpWorlds, broken: float) -> None:
    state = on_the_floor(ants, 11, 4)
    actions = random_actions(ants, 4, 4)
    sound, expected = scanned(ants, state, actions)
    bad = state._replace(qvel=state.qvel.at[1, 7].set(broken))
    after, outcomes = scanned(ants, bad, actions)
    assert outcomes.faulty.all(axis=0).tolist() == [False, True, False, False]
    assert outcomes.faulty.any(axis=0).tolist() == [False, True, False, False]
    others = np.array([0, 2, 3])
    for ours, theirs in zip(after, sound, strict=True):
        np.testing.assert_array_equal(ours[others], theirs[others])
    np.testing.assert_array_equal(outcomes.reward[:, 2], expected.reward[:, 2])
    of_broken = jax.tree.map(lambda leaf: leaf[:, 1], outcomes._replace(faulty=outcomes.terminated))
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(of_broken))  # zeros, no NaN
    # a broken world is well again after a reset
    fresh, _ = ants.reset(jax.random.split(jax.random.key(12), 4))
    mended = jax.tree.map(lambda old, new: old.at[1].set(new[1]), after, fresh)
    _, outcome = ants.step(mended, actions[0])
    assert not outcome.faulty.any()


def two_ants_one_flying(worlds: WarpWorlds) -> RobotState:
    state = on_the_floor(worlds, 13, 2)
    return state._replace(qpos=state.qpos.at[:, 2].set(jnp.array([0.1, 5.0])))


def test_too_many_rows_of_constraints_are_the_fault_of_one_world(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(warp_contacts, "MOST_ROWS", 8)
    worlds = warp_worlds("Ant-v5", {"healthy_reward": 0.5})
    _, outcome = worlds.step(two_ants_one_flying(worlds), jnp.zeros((2, 8)))
    assert outcome.faulty.tolist() == [True, False]


def test_if_the_shared_room_for_contacts_is_full_all_worlds_are_faulty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(warp_contacts, "MOST_CONTACTS", 1)
    worlds = warp_worlds("Ant-v5", {"healthy_reward": 0.5})
    _, outcome = worlds.step(two_ants_one_flying(worlds), jnp.zeros((2, 8)))
    assert outcome.faulty.all()


def test_the_tangent_of_a_steep_capsule_on_a_plane_is_cs() -> None:
    _, mjw = import_warp()
    env, rng, steep = newton_env("Ant-v5", {}), np.random.default_rng(0), 0
    model, data = env.model, env.data
    on_device, arrays = mjw.put_model(model), mjw.make_data(model, nconmax=25, njmax=108)
    on_device.callback.contactfilter = warp_contacts.align_capsules
    for _ in range(20):  # thrown into the floor
        data.qpos[2:] = rng.normal(size=13) * 0.5 + 0.5
        mujoco.mj_forward(model, data)
        arrays.qpos.assign(data.qpos[None])
        mjw.kinematics(on_device, arrays)
        mjw.collision(on_device, arrays)
        assert arrays.nacon.numpy()[0] == data.ncon
        found = arrays.contact.frame.numpy()[: data.ncon].reshape(-1, 9)
        for contact in data.contact:
            geoms = arrays.contact.geom.numpy()[: data.ncon] == contact.geom
            frames = found[geoms.all(axis=1)]
            np.testing.assert_allclose(frames, np.tile(contact.frame, (len(frames), 1)), atol=1e-4)
            axis = data.geom_xmat[contact.geom[1]].reshape(3, 3)[:, 2]
            steep += int(abs(axis[2]) > 0.87)  # where Warp would take the world's y
    assert steep > 5


def test_room_for_contacts_and_rows_by_hand() -> None:
    _, mjw = import_warp()
    model = make_env("Ant-v5").unwrapped.model
    pairs = mjw.put_model(model).nxn_geom_pair_filtered.numpy()
    # the floor meets one sphere once and twelve capsules twice; four rows each, eight limits
    assert warp_contacts.room_for(model, pairs) == (25, 25 * 4 + 8)


def test_positions_by_column_and_by_info() -> None:
    spec = describe("Ant-v5", ["x_position", "distance_from_origin"])
    worlds = warp_worlds("Ant-v5", {}, spec)
    state, seen = worlds.reset(jax.random.split(jax.random.key(14), 2))
    expected = np.stack([state.qpos[:, 0], np.linalg.norm(state.qpos[:, :2], axis=1)], axis=1)
    np.testing.assert_allclose(seen.position, expected, rtol=1e-6)
    worlds = warp_worlds("Reacher-v5", {}, describe("Reacher-v5", ["4", "5"]))
    state, seen = worlds.reset(jax.random.split(jax.random.key(15), 2))
    np.testing.assert_array_equal(seen.position, state.qpos[:, 2:])


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("PointMaze-v0", {}, "does not step 'PointMaze-v0': it steps Ant-v5, HalfCheetah-v5"),
        ("Humanoid-v4", {}, "does not step 'Humanoid-v4'"),
        (
            "Hopper-v5",
            {"render_mode": "rgb_array"},
            "draw nothing: leave out the option render_mode",
        ),
        ("Hopper-v5", {"no_such": 1}, "cannot be made"),
        ("Hoper", {}, "did you mean"),
    ],
)
def test_what_is_not_taken_gets_a_sentence(
    name: str, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        warp_worlds(name, options)


def test_a_position_that_worlds_do_not_have_gets_a_sentence() -> None:
    spec = describe("Hopper-v5", ["x_position", "z_distance_from_origin"])
    assert warp_worlds("Hopper-v5", {}, spec).spec is spec
    env = describe("Humanoid-v5", ["x_position"])
    unknown = jax.tree.map(lambda leaf: leaf, env)
    object.__setattr__(unknown, "position", ("x_velocity",))
    with pytest.raises(ValueError, match="have no x_velocity of Humanoid-v5: name x_position"):
        warp_worlds("Humanoid-v5", {}, unknown)


def test_a_model_with_more_state_than_positions_gets_a_sentence(tmp_path: Path) -> None:
    muscle = tmp_path / "hopper.xml"
    env = make_env("Hopper-v5").unwrapped
    text = Path(env.fullpath).read_text()
    first = text.index("<motor", text.index("<actuator>"))
    filtered = text[:first] + text[first:].replace(
        "<motor", '<general dyntype="filter" dynprm="0.1"', 1
    )
    muscle.write_text(filtered)
    with pytest.raises(ValueError, match="whose state is positions and velocities"):
        warp_worlds("Hopper-v5", {"xml_file": str(muscle)})


def test_a_program_may_run_while_the_next_one_is_traced() -> None:
    """On the CPU JAX runs programs on threads of its own; Warp is not safe for threads."""
    worlds = warp_worlds("InvertedPendulum-v5", {})

    @jax.jit
    def walk(state: RobotState) -> tuple[RobotState, Outcome]:
        action = jnp.zeros((len(state.qpos), 1))
        return jax.lax.scan(lambda at, _: worlds.step(at, action), state, None, length=30)

    walked = []
    for number in (2, 3, 4):  # each is compiled by Warp while the one before it runs
        state, _ = worlds.reset(jax.random.split(jax.random.key(0), number))
        walked.append(walk(state))
    for number, (state, outcome) in zip((2, 3, 4), walked, strict=True):
        assert outcome.reward.shape == (30, number)
        assert jnp.isfinite(state.qpos).all()
