"""Rewards, ends and starts of the robots' tasks, from moments made by hand."""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from element_rl.envs.make import make_env
from element_rl.worlds.reaching_tasks import FREE_OF_OBJECTS, REACH
from element_rl.worlds.robot_task import RobotTask
from element_rl.worlds.warp_loading import import_warp, warp_device
from element_rl.worlds.warp_worlds import TASKS


def task(name: str, **options: Any) -> RobotTask:
    return TASKS[name](make_env(name, **options).unwrapped)


def judged(
    of: RobotTask, velocity: float, action: list[float], **moment: Any
) -> tuple[float, bool]:
    one_world = {name: jnp.asarray(array, jnp.float32)[None] for name, array in moment.items()}
    reward, ended = of.judge(one_world, jnp.array([velocity]), jnp.array([action], jnp.float32))
    return round(float(reward[0]), 4), bool(ended[0])


def test_hopper() -> None:
    """2·3 + 1 − 0.001·(1 + 4): healthy between 0.7 m and ∞, within 0.2 rad, below 100."""
    hopper, still = task("Hopper-v5", forward_reward_weight=2.0), np.zeros(6)
    standing = np.array([0, 1.2, 0.1, 0, 0, 0])
    assert judged(hopper, 3.0, [1, -2, 0], qpos=standing, qvel=still) == (6.995, False)
    for fallen in ([0, 0.7, 0, 0, 0, 0], [0, 1.2, -0.2, 0, 0, 0]):
        assert judged(hopper, 3.0, [1, -2, 0], qpos=fallen, qvel=still) == (5.995, True)
    assert judged(hopper, 0.0, [0, 0, 0], qpos=standing, qvel=still + 100) == (0.0, True)
    immortal = task("Hopper-v5", terminate_when_unhealthy=False)
    assert judged(immortal, 0.0, [0, 0, 0], qpos=np.zeros(6), qvel=still) == (0.0, False)
    seen = hopper.observe({"qpos": jnp.ones((1, 6)), "qvel": jnp.full((1, 6), -20.0)})
    assert seen.tolist() == [[1.0] * 5 + [-10.0] * 6]


def test_ant() -> None:
    """2 + 1 − 0.5·4 − 0.0005·(1 + 1 + 0.25): forces are clipped at ±1; 0.2 m is still healthy."""
    ant, forces = task("Ant-v5"), np.zeros((14, 6))
    forces[3, :3] = 7.0, -9.0, 0.5
    qpos, qvel = np.zeros(15), np.zeros(14)
    qpos[2] = np.float32(0.2)
    action = [2.0] + [0.0] * 7
    assert judged(ant, 2.0, action, qpos=qpos, qvel=qvel, cfrc_ext=forces) == (0.9989, False)
    qpos[2] = 0.19
    assert judged(ant, 2.0, action, qpos=qpos, qvel=qvel, cfrc_ext=forces) == (-0.0011, True)


def test_humanoid() -> None:
    """1.25·2 + 5 − 0.1·9 − min(5e-7·10⁸, 10)."""
    humanoid, forces = task("Humanoid-v5"), np.zeros((14, 6))
    forces[0, 0] = 1e4
    qpos, action = np.zeros(24), [3.0] + [0.0] * 16
    qpos[2] = 1.5
    assert judged(humanoid, 2.0, action, qpos=qpos, cfrc_ext=forces) == (-3.4, False)
    assert judged(humanoid, 2.0, action, qpos=qpos * 2, cfrc_ext=forces) == (-8.4, True)


def test_pendulums() -> None:
    pendulum = task("InvertedPendulum-v5")
    assert judged(pendulum, 0.0, [0], qpos=[5, 0.2], qvel=[0, 0]) == (1.0, False)
    assert judged(pendulum, 0.0, [0], qpos=[0, -0.21], qvel=[0, 0]) == (0.0, True)
    assert judged(pendulum, 0.0, [0], qpos=[np.nan, 0], qvel=[0, 0]) == (0.0, True)
    double = task("InvertedDoublePendulum-v5")
    # 10 − 0.01·4 − 0.25 − 0.001·4 − 0.005·9
    moment = {"site_xpos": [[2, 0, 1.5]], "qvel": [9, 2, 3], "qpos": [0, 0, 0]}
    assert judged(double, 0.0, [0], **moment) == (9.661, False)
    assert judged(double, 0.0, [0], **(moment | {"site_xpos": [[0, 0, 1]]}))[1]


def test_arms() -> None:
    env = make_env("Pusher-v5").unwrapped
    places = np.zeros((env.model.nbody, 3))
    places[env.model.body("tips_arm").id] = 3, 4, 0  # 5 from the object
    places[env.model.body("goal").id] = 0, 0, 2
    arm = [2.0] + [0.0] * 6
    assert judged(task("Pusher-v5"), 0.0, arm, xpos=places, qpos=[0]) == (-2.5 - 2 - 0.4, False)
    env = make_env("Reacher-v5").unwrapped
    places = np.zeros((env.model.nbody, 3))
    places[env.model.body("target").id] = 0, 3, 4
    assert judged(task("Reacher-v5"), 0.0, [1, 1], xpos=places, qpos=[0]) == (-7.0, False)


def test_targets_fill_the_disc_and_objects_keep_away_from_the_goal() -> None:
    keys = jax.random.split(jax.random.key(0), 20_000)
    qpos, qvel = jax.vmap(task("Reacher-v5").start)(keys)
    radii = np.linalg.norm(qpos[:, -2:], axis=1)
    assert radii.max() <= REACH
    # a uniform disc: half of it lies within 1/√2 of the radius
    np.testing.assert_allclose((radii < REACH / np.sqrt(2)).mean(), 0.5, atol=0.02)
    assert not qvel[:, -2:].any()
    qpos, qvel = jax.vmap(task("Pusher-v5").start)(keys)
    things = np.asarray(qpos[:, -4:-2])
    assert np.linalg.norm(things, axis=1).min() > FREE_OF_OBJECTS
    np.testing.assert_allclose(things.min(0), [-0.3, -0.2], atol=1e-3)
    # beyond x = −0.17 lies a rectangle of 0.13 × 0.4; all of it is 0.3 × 0.4 less half a disc
    share = 0.13 * 0.4 / (0.3 * 0.4 - np.pi * FREE_OF_OBJECTS**2 / 2)
    np.testing.assert_allclose((things[:, 0] < -FREE_OF_OBJECTS).mean(), share, atol=0.02)
    assert not qvel[:, -4:].any()


def test_without_the_extra_a_sentence_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "mujoco_warp", None)
    with pytest.raises(ValueError, match=r"pip install 'element-rl\[warp\]'"):
        import_warp.__wrapped__()


def test_warp_computes_where_jax_does() -> None:
    assert warp_device().is_cpu
    assert jax.jit(lambda x: x + len(warp_device().alias))(0) == 3
