"""Robots that are paid for moving, or for standing up: Gymnasium's formulas (`robot_task`).

    task             reward                                         ends when
    Hopper           w_f v_x + r_h − w_c |a|²                       unhealthy (height, angle, state)
    Walker2d         w_f v_x + r_h − w_c |a|²                       unhealthy (height, angle)
    HalfCheetah      w_f v_x − w_c |a|²                             never
    Swimmer          w_f v_x − w_c |a|²                             never
    Ant              w_f v_x + r_h − w_c |a|² − w_f |clip(f)|²      unhealthy (height)
    Humanoid         w_f v_x + r_h − w_c |a|² − clip(w_f |f|²)      unhealthy (height)
    HumanoidStandup  z / h − w_c |a|² − clip(w_f |f|²) + 1          never

f are the external forces on bodies, h the time of one step of the physics, r_h is paid while the
robot is healthy. v_x is the torso's, of the Humanoid the centre of mass's.
"""

from typing import Any

import jax.numpy as jnp
import mujoco
import numpy as np
from jaxtyping import Array, Bool, Float

from element_rl.worlds.robot_task import (
    Judged,
    Moment,
    RobotTask,
    first_coordinate,
    flat,
    infos_of,
    infos_on_plane,
    inside,
    noisy_start,
    squares,
)

FASTEST_SEEN = 10.0  # velocities in the observation of Hopper and Walker2d are clipped there


def hopper(env: Any) -> RobotTask:
    """Hopper-v5."""
    heights, angles, states = (
        env._healthy_z_range,
        env._healthy_angle_range,
        env._healthy_state_range,
    )

    def healthy(moment: Moment) -> Bool[Array, " L"]:
        qpos = moment["qpos"]
        state = jnp.concatenate([qpos, moment["qvel"]], axis=1)[:, 2:]
        upright = inside(qpos[:, 1], heights) & inside(qpos[:, 2], angles)
        return upright & jnp.all(inside(state, states), axis=1)

    return _planar(env, healthy, FASTEST_SEEN)


def walker2d(env: Any) -> RobotTask:
    """Walker2d-v5."""
    heights, angles = env._healthy_z_range, env._healthy_angle_range

    def healthy(moment: Moment) -> Bool[Array, " L"]:
        return inside(moment["qpos"][:, 1], heights) & inside(moment["qpos"][:, 2], angles)

    return _planar(env, healthy, FASTEST_SEEN)


def _planar(env: Any, healthy: Any, fastest: float) -> RobotTask:
    """Hopper and Walker2d, which differ in when they are healthy."""
    hidden = int(env._exclude_current_positions_from_observation)
    forward_weight, cost_weight = env._forward_reward_weight, env._ctrl_cost_weight
    healthy_reward, ends = env._healthy_reward, env._terminate_when_unhealthy

    def observe(moment: Moment) -> Float[Array, "L O"]:
        velocity = jnp.clip(moment["qvel"], -fastest, fastest)
        return jnp.concatenate([moment["qpos"][:, hidden:], velocity], axis=1)

    def judge(moment: Moment, velocity: Float[Array, " L"], action: Float[Array, "L A"]) -> Judged:
        well = healthy(moment)
        reward = forward_weight * velocity + healthy_reward * well - cost_weight * squares(action)
        return reward, ~well & bool(ends)

    infos = infos_of({"x_position": 0}, {"z_distance_from_origin": (1, float(env.init_qpos[1]))})
    return RobotTask(observe, judge, noisy_start(env), place=first_coordinate, infos=infos)


def half_cheetah(env: Any) -> RobotTask:
    """HalfCheetah-v5."""
    start = noisy_start(env, normal_velocity=True)
    hidden = int(env._exclude_current_positions_from_observation)
    return _endless(env, hidden, start, infos_of({"x_position": 0}, {}))


def swimmer(env: Any) -> RobotTask:
    """Swimmer-v5."""
    hidden = 2 * int(env._exclude_current_positions_from_observation)
    return _endless(env, hidden, noisy_start(env), infos_on_plane({}))


def _endless(env: Any, hidden: int, start: Any, infos: Any) -> RobotTask:
    """Robots that cannot fall."""
    forward_weight, cost_weight = env._forward_reward_weight, env._ctrl_cost_weight

    def observe(moment: Moment) -> Float[Array, "L O"]:
        return jnp.concatenate([moment["qpos"][:, hidden:], moment["qvel"]], axis=1)

    def judge(moment: Moment, velocity: Float[Array, " L"], action: Float[Array, "L A"]) -> Judged:
        reward = forward_weight * velocity - cost_weight * squares(action)
        return reward, jnp.zeros(len(reward), bool)

    return RobotTask(observe, judge, start, place=first_coordinate, infos=infos)


def ant(env: Any) -> RobotTask:
    """Ant-v5."""
    hidden = 2 * int(env._exclude_current_positions_from_observation)
    sees_forces = bool(env._include_cfrc_ext_in_observation)
    forward_weight, cost_weight = env._forward_reward_weight, env._ctrl_cost_weight
    contact_weight, forces_range = env._contact_cost_weight, env._contact_force_range
    healthy_reward, ends = env._healthy_reward, env._terminate_when_unhealthy
    (lowest, highest), body = env._healthy_z_range, env.model.body(env._main_body).id
    is_torso = env.model.jnt_type[0] == mujoco.mjtJoint.mjJNT_FREE and body == 1

    def forces(moment: Moment) -> Float[Array, "L bodies 6"]:
        return jnp.clip(moment["cfrc_ext"], *forces_range)

    def observe(moment: Moment) -> Float[Array, "L O"]:
        parts = [moment["qpos"][:, hidden:], moment["qvel"]]
        return jnp.concatenate(parts + [flat(forces(moment)[:, 1:])] * sees_forces, axis=1)

    def place(moment: Moment) -> Float[Array, " L"]:
        return moment["xpos"][:, body, 0] if "xpos" in moment else moment["qpos"][:, 0]

    def judge(moment: Moment, velocity: Float[Array, " L"], action: Float[Array, "L A"]) -> Judged:
        height = moment["qpos"][:, 2]
        state = jnp.concatenate([moment["qpos"], moment["qvel"]], axis=1)
        well = jnp.all(jnp.isfinite(state), axis=1) & (lowest <= height) & (height <= highest)
        costs = cost_weight * squares(action) + contact_weight * squares(forces(moment))
        reward = forward_weight * velocity + healthy_reward * well - costs
        return reward, ~well & bool(ends)

    return RobotTask(
        observe,
        judge,
        noisy_start(env, normal_velocity=True),
        reads=("xpos", "cfrc_ext"),
        place=place,
        infos=infos_on_plane({}),
        starts_with_physics=not is_torso,
    )


def humanoid(env: Any) -> RobotTask:
    """Humanoid-v5."""
    forward_weight, cost_weight = env._forward_reward_weight, env._ctrl_cost_weight
    contact_weight, costs_range = env._contact_cost_weight, env._contact_cost_range
    healthy_reward, ends = env._healthy_reward, env._terminate_when_unhealthy
    heights = env._healthy_z_range
    shares = (env.model.body_mass / env.model.body_mass.sum()).astype(np.float32)

    def centre(moment: Moment) -> Float[Array, " L"]:
        return moment["xipos"][:, :, 0] @ shares

    def judge(moment: Moment, velocity: Float[Array, " L"], action: Float[Array, "L A"]) -> Judged:
        well = inside(moment["qpos"][:, 2], heights)
        contact_cost = jnp.clip(contact_weight * squares(moment["cfrc_ext"]), *costs_range)
        costs = cost_weight * squares(action) + contact_cost
        reward = forward_weight * velocity + healthy_reward * well - costs
        return reward, ~well & bool(ends)

    seen, reads = _humanoid_parts(env)
    return RobotTask(
        _humanoid_view(env, seen),
        judge,
        noisy_start(env),
        reads=("xipos", *reads),
        place=centre,
        infos=infos_on_plane({}),
        starts_with_physics=True,
    )


def humanoid_standup(env: Any) -> RobotTask:
    """HumanoidStandup-v5."""
    cost_weight, timestep = env._ctrl_cost_weight, float(env.model.opt.timestep)
    impact_weight, costs_range = env._impact_cost_weight, env._impact_cost_range

    def judge(moment: Moment, velocity: Float[Array, " L"], action: Float[Array, "L A"]) -> Judged:
        impact_cost = jnp.clip(impact_weight * squares(moment["cfrc_ext"]), *costs_range)
        rise = moment["qpos"][:, 2] / timestep
        reward = rise - cost_weight * squares(action) - impact_cost + 1.0
        return reward, jnp.zeros(len(reward), bool)

    seen, reads = _humanoid_parts(env)
    heights = {"z_distance_from_origin": (2, float(env.init_qpos[2]))}
    return RobotTask(
        _humanoid_view(env, seen),
        judge,
        noisy_start(env),
        reads=reads,
        infos=infos_on_plane(heights, distance=False),
        starts_with_physics=bool(set(seen) - {"cfrc_ext"}),
    )


def _humanoid_parts(env: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Arrays in the observation, and all that are read: the reward needs the external forces."""
    names = ("cinert", "cvel", "qfrc_actuator", "cfrc_ext")
    seen = tuple(name for name in names if getattr(env, f"_include_{name}_in_observation") is True)
    return seen, (*seen, *({"cfrc_ext"} - set(seen)))


def _humanoid_view(env: Any, seen: tuple[str, ...]) -> Any:
    hidden = 2 * int(env._exclude_current_positions_from_observation)
    skipped = {"qfrc_actuator": 6}  # of the free joint; of the others the world's row

    def observe(moment: Moment) -> Float[Array, "L O"]:
        parts = [flat(moment[name][:, skipped.get(name, 1) :]) for name in seen]
        return jnp.concatenate([moment["qpos"][:, hidden:], moment["qvel"], *parts], axis=1)

    return observe
