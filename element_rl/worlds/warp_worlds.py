"""Gymnasium's MuJoCo robots as worlds on the device: MuJoCo Warp's physics, Gymnasium's tasks.

    worlds = warp_worlds("Hopper-v5", {})
    state, seen = worlds.reset(jax.random.split(key, 1024))
    state, outcome = worlds.step(state, actions)

Every option of the environment works as in Gymnasium, because constants are read from one that
Gymnasium has made (`robot_task`). What differs is the physics' arithmetic (`warp_physics`) and the
random numbers of resets, which come from JAX's keys.

A world is faulty when a coordinate or velocity is not finite or beyond 1e10, where C MuJoCo gives
up, too, or when there was no room for its contacts. Room is shared by the worlds: if it does not
suffice, nobody knows whose contacts are missing, and all worlds are faulty. Gymnasium's own robots
cannot run out of it (`warp_contacts.room_for`). The outcome of a faulty world is all zeros and
false, so that no number of it can spoil a sum; its state is as the physics left it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from element_rl.envs.make import describe, make_env
from element_rl.envs.names import gymnasium_id, registered_name
from element_rl.envs.spec import EnvSpec
from element_rl.worlds.contract import Outcome, Seen
from element_rl.worlds.reaching_tasks import (
    inverted_double_pendulum,
    inverted_pendulum,
    pusher,
    reacher,
)
from element_rl.worlds.robot_task import Moment, RobotTask
from element_rl.worlds.walking_tasks import (
    ant,
    half_cheetah,
    hopper,
    humanoid,
    humanoid_standup,
    swimmer,
    walker2d,
)
from element_rl.worlds.warp_loading import import_warp
from element_rl.worlds.warp_physics import AFTER_CONSTRAINTS, WarpPhysics

TASKS: dict[str, Callable[[Any], RobotTask]] = {
    "Ant-v5": ant,
    "HalfCheetah-v5": half_cheetah,
    "Hopper-v5": hopper,
    "Humanoid-v5": humanoid,
    "HumanoidStandup-v5": humanoid_standup,
    "InvertedDoublePendulum-v5": inverted_double_pendulum,
    "InvertedPendulum-v5": inverted_pendulum,
    "Pusher-v5": pusher,
    "Reacher-v5": reacher,
    "Swimmer-v5": swimmer,
    "Walker2d-v5": walker2d,
}
DRAWING_OPTIONS = (
    "render_mode",
    "width",
    "height",
    "camera_id",
    "camera_name",
    "default_camera_config",
    "max_geom",
    "visual_options",
)


class RobotState(NamedTuple):
    """All that the worlds are."""

    qpos: Float[Array, "L Q"]
    qvel: Float[Array, "L V"]
    warmstart: Float[Array, "L V"]  # accelerations that the solver begins with
    place: Float[Array, " L"]  # where the next step's velocity is counted from


@dataclass(frozen=True)
class WarpWorlds:
    """Copies of one robot."""

    spec: EnvSpec
    task: RobotTask
    physics: WarpPhysics
    step_seconds: float

    def reset(self, keys: Key[Array, " L"]) -> tuple[RobotState, Seen]:
        """Every world begins an episode."""
        qpos, qvel = jax.vmap(self.task.start)(keys)
        moment = self._first_moment(qpos, qvel)
        state = RobotState(qpos, qvel, jnp.zeros_like(qvel), self.task.place(moment))
        return state, self._seen(moment)

    def step(self, state: RobotState, action: Float[Array, "L A"]) -> tuple[RobotState, Outcome]:
        """One step of the environment in every world."""
        after = self.physics.step(state.qpos, state.qvel, state.warmstart, action)
        place = self.task.place(after.moment)
        velocity = (place - state.place) / self.step_seconds
        reward, terminated = self.task.judge(after.moment, velocity, action)
        seen, sound = self._seen(after.moment), ~after.faulty
        outcome = Outcome(
            Seen(*(jnp.where(sound[:, None], array, 0.0) for array in seen)),
            jnp.where(sound, reward, 0.0),
            terminated & sound,
            after.faulty,
        )
        moment = after.moment
        return RobotState(moment["qpos"], moment["qvel"], after.warmstart, place), outcome

    def _first_moment(self, qpos: Float[Array, "L Q"], qvel: Float[Array, "L V"]) -> Moment:
        """What a task sees before the first step."""
        if self.task.starts_with_physics:
            return self.physics.forward(qpos, qvel)
        bodies = self.physics.model.nbody
        zeros = {
            name: jnp.zeros((len(qpos), bodies, 6))
            for name in self.task.reads
            if name in AFTER_CONSTRAINTS
        }
        return {"qpos": qpos, "qvel": qvel, **zeros}

    def _seen(self, moment: Moment) -> Seen:
        observation = self.task.observe(moment)
        return Seen(observation, _position(self.spec, self.task, moment, observation))


def warp_worlds(
    name: str, env_options: Mapping[str, Any], spec: EnvSpec | None = None
) -> WarpWorlds:
    """Worlds of environment ``name`` with these options of Gymnasium; a ValueError that says why
    where there are none. ``spec`` may say where the agent is, in columns of the observation or
    entries of info."""
    import_warp()
    name = registered_name(name)
    task_of = TASKS.get(gymnasium_id(name))
    if task_of is None:
        raise ValueError(f"{_not_taken(name)}: it steps {', '.join(TASKS)}.")
    drawing = [option for option in env_options if option in DRAWING_OPTIONS]
    if drawing:
        raise ValueError(
            f"Worlds on the device draw nothing: leave out the option {', '.join(drawing)}."
        )
    env = make_env(name, **env_options)
    try:
        robot = env.unwrapped
        if not type(robot).__module__.startswith("gymnasium.envs.mujoco."):
            raise ValueError(f"{_not_taken(name)}: it is registered as {type(robot).__name__}.")
        task = task_of(robot)
        physics = WarpPhysics(robot.model, robot.frame_skip, task.reads)
        step_seconds = float(robot.dt)
    finally:
        env.close()
    known = spec if spec is not None else describe(name, **env_options)
    _refuse_position(known, task, physics)
    return WarpWorlds(known, task, physics, step_seconds)


def _not_taken(name: str) -> str:
    return f"MuJoCo Warp does not step {name!r}"


def _position(
    spec: EnvSpec, task: RobotTask, moment: Moment, observation: Float[Array, "L O"]
) -> Float[Array, "L C"]:
    """As `envs.spec.position_of` tells it."""
    if spec.position:
        infos = task.infos(moment)
        told = [
            observation[:, entry] if isinstance(entry, int) else infos[entry]
            for entry in spec.position
        ]
        return jnp.stack(told, axis=1)
    if spec.coverage_axes is None:
        return jnp.zeros((len(observation), 0))
    if spec.coverage_axes[1] == "y":
        return moment["qpos"][:, :2]
    height = observation[:, spec.orientation_slice[0] - 1]
    return jnp.stack([moment["qpos"][:, 0], height], axis=1)


def _refuse_position(spec: EnvSpec, task: RobotTask, physics: WarpPhysics) -> None:
    """A ValueError where the position is an entry of info that worlds on the device do not have."""
    told = task.infos({"qpos": jnp.zeros((1, physics.model.nq))})
    unknown = [entry for entry in spec.position if isinstance(entry, str) and entry not in told]
    if unknown:
        there = f"{', '.join(told)}, or " if told else ""
        raise ValueError(
            f"Worlds on the device have no {', '.join(unknown)} of {spec.name}: name {there}"
            "columns of the observation with --position."
        )
