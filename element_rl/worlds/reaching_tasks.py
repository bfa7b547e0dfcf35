"""Pendulums and arms: Gymnasium's formulas (`robot_task`).

    task                    reward                                               ends when
    InvertedPendulum        1 until it ends                                      |angle| > 0.2
    InvertedDoublePendulum  r_h − 0.01 x² − (y − 2)² − 0.001 ω₁² − 0.005 ω₂²     tip's height y ≤ 1
    Reacher                 −w_d |fingertip − target| − w_c |a|²                 never
    Pusher                  −w_n |object − tip| − w_d |object − goal| − w_c |a|² never

Departures from Gymnasium: it draws the Reacher's target until one lies in the disc; here it is
drawn from the disc at once, which is the same distribution.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from element_rl.worlds.robot_task import (
    Judged,
    Moment,
    RobotTask,
    noise_around,
    noisy_start,
    squares,
)

TILTED = 0.2  # radians
FALLEN = 1.0  # height of the tip
FASTEST_SEEN = 10.0
REACH = 0.2  # of the Reacher: its targets lie in a disc of this radius
FREE_OF_OBJECTS = 0.17  # distance from the Pusher's goal


def inverted_pendulum(env: Any) -> RobotTask:
    """InvertedPendulum-v5."""

    def observe(moment: Moment) -> Float[Array, "L O"]:
        return jnp.concatenate([moment["qpos"], moment["qvel"]], axis=1)

    def judge(moment: Moment, velocity: Float[Array, " L"], action: Float[Array, "L A"]) -> Judged:
        seen = observe(moment)
        fell = ~jnp.all(jnp.isfinite(seen), axis=1) | (jnp.abs(seen[:, 1]) > TILTED)
        return (~fell).astype(jnp.float32), fell

    return RobotTask(observe, judge, noisy_start(env))


def inverted_double_pendulum(env: Any) -> RobotTask:
    """InvertedDoublePendulum-v5."""
    healthy_reward = env._healthy_reward

    def observe(moment: Moment) -> Float[Array, "L O"]:
        qpos, clipped = moment["qpos"], (-FASTEST_SEEN, FASTEST_SEEN)
        parts = [
            qpos[:, :1],
            jnp.sin(qpos[:, 1:]),
            jnp.cos(qpos[:, 1:]),
            jnp.clip(moment["qvel"], *clipped),
            jnp.clip(moment["qfrc_constraint"], *clipped)[:, :1],
        ]
        return jnp.concatenate(parts, axis=1)

    def judge(moment: Moment, velocity: Float[Array, " L"], action: Float[Array, "L A"]) -> Judged:
        tip, speeds = moment["site_xpos"][:, 0], moment["qvel"]
        fell = tip[:, 2] <= FALLEN
        away = 0.01 * tip[:, 0] ** 2 + (tip[:, 2] - 2) ** 2
        fast = 1e-3 * speeds[:, 1] ** 2 + 5e-3 * speeds[:, 2] ** 2
        return healthy_reward * ~fell - away - fast, fell

    start = noisy_start(env, normal_velocity=True)
    return RobotTask(
        observe, judge, start, reads=("site_xpos", "qfrc_constraint"), starts_with_physics=True
    )


def reacher(env: Any) -> RobotTask:
    """Reacher-v5."""
    distance_weight, cost_weight = env._reward_dist_weight, env._reward_control_weight
    fingertip, target = (env.model.body(name).id for name in ("fingertip", "target"))

    def to_target(moment: Moment) -> Float[Array, "L 3"]:
        return moment["xpos"][:, fingertip] - moment["xpos"][:, target]

    def observe(moment: Moment) -> Float[Array, "L O"]:
        qpos, qvel = moment["qpos"], moment["qvel"]
        angles = [jnp.cos(qpos[:, :2]), jnp.sin(qpos[:, :2])]
        return jnp.concatenate(
            [*angles, qpos[:, 2:], qvel[:, :2], to_target(moment)[:, :2]], axis=1
        )

    def judge(moment: Moment, velocity: Float[Array, " L"], action: Float[Array, "L A"]) -> Judged:
        distance = jnp.sqrt(squares(to_target(moment)))
        reward = -distance_weight * distance - cost_weight * squares(action)
        return reward, jnp.zeros(len(reward), bool)

    around = noise_around(env.init_qpos, env.init_qvel, 0.1, 0.005)

    def start(key: PRNGKeyArray) -> tuple[Float[Array, " Q"], Float[Array, " V"]]:
        arm_key, target_key = jax.random.split(key)
        qpos, qvel = around(arm_key)
        share, turn = jax.random.uniform(target_key, (2,))
        angle = 2 * np.pi * turn
        drawn = REACH * jnp.sqrt(share) * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
        return qpos.at[-2:].set(drawn), qvel.at[-2:].set(0.0)

    return RobotTask(observe, judge, start, reads=("xpos",), starts_with_physics=True)


def pusher(env: Any) -> RobotTask:
    """Pusher-v5."""
    near_weight, distance_weight = env._reward_near_weight, env._reward_dist_weight
    cost_weight = env._reward_control_weight
    tip, thing, goal = (env.model.body(name).id for name in ("tips_arm", "object", "goal"))

    def observe(moment: Moment) -> Float[Array, "L O"]:
        places = [moment["xpos"][:, body] for body in (tip, thing, goal)]
        return jnp.concatenate([moment["qpos"][:, :7], moment["qvel"][:, :7], *places], axis=1)

    def judge(moment: Moment, velocity: Float[Array, " L"], action: Float[Array, "L A"]) -> Judged:
        places = moment["xpos"]
        near = jnp.sqrt(squares(places[:, thing] - places[:, tip]))
        distance = jnp.sqrt(squares(places[:, thing] - places[:, goal]))
        reward = -near_weight * near - distance_weight * distance - cost_weight * squares(action)
        return reward, jnp.zeros(len(reward), bool)

    around = noise_around(env.init_qpos, env.init_qvel, 0.0, 0.005)

    def start(key: PRNGKeyArray) -> tuple[Float[Array, " Q"], Float[Array, " V"]]:
        arm_key, thing_key = jax.random.split(key)
        qpos, qvel = around(arm_key)
        placed = qpos.at[-4:-2].set(_away_from_goal(thing_key)).at[-2:].set(0.0)
        return placed, qvel.at[-4:].set(0.0)

    return RobotTask(observe, judge, start, reads=("xpos",), starts_with_physics=True)


def _away_from_goal(key: PRNGKeyArray) -> Float[Array, "2"]:
    """Uniform in −0.3 ≤ x ≤ 0, |y| ≤ 0.2, and no nearer to the goal than `FREE_OF_OBJECTS`: drawn
    until it is."""
    low, high = np.array([-0.3, -0.2], np.float32), np.array([0.0, 0.2], np.float32)

    def draw(tries: Array) -> Float[Array, "2"]:
        return jax.random.uniform(jax.random.fold_in(key, tries), (2,), minval=low, maxval=high)

    def is_near(tries: Array) -> Bool[Array, ""]:
        return jnp.sqrt(jnp.sum(draw(tries) ** 2)) <= FREE_OF_OBJECTS

    return draw(jax.lax.while_loop(is_near, lambda tries: tries + 1, jnp.int32(0)))
