"""How far is MuJoCo Warp's physics from C MuJoCo's? Errors after one step and after many, for every
robot that `element_rl.worlds.warp_worlds` steps.

    one step      C MuJoCo walks with random actions; from states of that walk both make the same
                  step
    many steps    both start in the same state and take the same random actions, without looking at
                  each other; a robot that falls goes on

An error is the largest difference of a coordinate (metres, or radians and parts of quaternions).
Contacts make walks chaotic, so an error after many steps says little without a yardstick: *C
rounded*, whose coordinates and velocities are rounded to float32 before every step of the
environment.

Three things are measured beside: an Ant whose contact frames are Warp's own
(`element_rl.worlds.warp_contacts` mends them); C with the solver PGS, which the XML of the
Humanoids asks for and Warp lacks, against C with Newton; and how long random episodes last and what
they are paid, in Gymnasium as it is and in worlds on the device.

    python -m benchmarks.parity_warp
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import tyro
from jaxtyping import Float

from benchmarks.tables import markdown_table, provenance, replace_table, source_line
from element_rl.envs.make import make_env
from element_rl.worlds.warp_physics import WarpPhysics
from element_rl.worlds.warp_worlds import TASKS, RobotState, WarpWorlds, warp_worlds

PAGE = Path("docs/results/warp-parity.md")
FALLING = ("Hopper-v5", "Walker2d-v5", "Ant-v5", "Humanoid-v5")
ASKS_FOR_PGS = ("Humanoid-v5", "HumanoidStandup-v5")
NEWTON, PGS = mujoco.mjtSolver.mjSOL_NEWTON, mujoco.mjtSolver.mjSOL_PGS
Errors = Float[np.ndarray, " N"]
ONE_STEP = ("one step: median", "99.9 %", "max")


@dataclass(frozen=True)
class Settings:
    """What to measure."""

    robots: tuple[str, ...] = tuple(TASKS)
    seeds: int = 32  # walks
    steps: int = 100  # of a walk
    episodes: int = 256  # with random actions, to compare their lengths and rewards
    page: bool = True  # write the tables into docs/results/warp-parity.md


@dataclass(frozen=True)
class Walks:
    """Random walks of C MuJoCo: at each step the state before, the action, and the state after."""

    qpos: Float[np.ndarray, "seeds steps Q"]  # before each step
    qvel: Float[np.ndarray, "seeds steps V"]
    warmstart: Float[np.ndarray, "seeds steps V"]
    actions: Float[np.ndarray, "seeds steps A"]
    after: Float[np.ndarray, "seeds steps Q"]  # coordinates

    def states(self, step: int) -> RobotState:
        """Those before a step, as worlds."""
        arrays = (self.qpos, self.qvel, self.warmstart)
        qpos, qvel, warmstart = (jnp.asarray(array[:, step], jnp.float32) for array in arrays)
        return RobotState(qpos, qvel, warmstart, jnp.zeros(len(qpos)))


def main(settings: Settings) -> str:
    """Measure, print, and write the page."""
    tables = "\n\n".join(
        [_errors_table(settings), _causes_table(settings), _episodes_table(settings)]
    )
    made_with = provenance(["mujoco", "mujoco-warp", "warp-lang", "gymnasium", "jax"])
    text = f"{tables}\n\n{source_line(made_with)}"
    print(text)
    if settings.page:
        replace_table(PAGE, "parity", text)
    return text


def _errors_table(settings: Settings) -> str:
    rows = []
    for name in settings.robots:
        worlds, walks = warp_worlds(name, {}), c_walks(name, settings.seeds, settings.steps)
        rounded = c_walks(name, settings.seeds, settings.steps, rounded=True)
        rows.append(
            [
                name,
                *_shown_of_many(one_step_errors(worlds, walks)),
                *_shown(walk_errors(worlds, walks)),
                *_shown(_difference(rounded.after[:, -1], walks.after[:, -1])),
            ]
        )
    steps = f"{settings.steps} steps"
    header = ["robot", *ONE_STEP, f"{steps}: median", "max"]
    return markdown_table([*header, f"C rounded, {steps}: median", "max"], rows)


def _causes_table(settings: Settings) -> str:
    """What was mended, and what was not."""
    rows, size = [], (settings.seeds, settings.steps)
    if "Ant-v5" in settings.robots:
        worlds, walks = warp_worlds("Ant-v5", {}), c_walks("Ant-v5", *size)
        own = WarpPhysics(
            worlds.physics.model, worlds.physics.frame_skip, worlds.task.reads, aligned=False
        )
        for label, physics in (("Warp's own", own), ("as in C", worlds.physics)):
            other = replace(worlds, physics=physics)
            one_step = _shown_of_many(one_step_errors(other, walks))
            errors = one_step + _shown(walk_errors(other, walks))
            rows.append([f"Ant-v5, contact frames {label}", *errors])
    for name in set(ASKS_FOR_PGS) & set(settings.robots):
        walks = c_walks(name, *size)
        again = c_steps(name, walks, PGS)
        apart = c_walks(name, *size, solver=PGS)
        errors = _shown_of_many(again) + _shown(_difference(apart.after[:, -1], walks.after[:, -1]))
        rows.append([f"{name}, C with PGS against C with Newton", *errors])
    header = ["cause", *ONE_STEP, f"{settings.steps} steps: median", "max"]
    return markdown_table(header, sorted(rows))


def _episodes_table(settings: Settings) -> str:
    rows = []
    for name in (name for name in FALLING if name in settings.robots):
        for label, (lengths, returns) in (
            ("Gymnasium", c_episodes(name, settings.episodes)),
            ("on the device", warp_episodes(name, settings.episodes)),
        ):
            rows.append([f"{name}, {label}", _mean(lengths), _mean(returns / lengths)])
    return markdown_table(["random actions", "steps of an episode", "reward of a step"], rows)


def c_walks(
    name: str,
    seeds: int,
    steps: int,
    solver: mujoco.mjtSolver = NEWTON,
    rounded: bool = False,
) -> Walks:
    """Walks of Gymnasium's environment; its state ``rounded`` to float32 before every step, if so
    said."""
    env = c_env(name, solver)
    records: list[tuple[np.ndarray, ...]] = []
    for seed in range(seeds):
        env.reset(seed=seed)
        draws = np.random.default_rng(seed).uniform(size=(steps, env.model.nu))
        low, high = env.action_space.low, env.action_space.high
        for action in (low + draws * (high - low)).astype(np.float32):
            data = env.data
            if rounded:
                data.qpos[:], data.qvel[:] = np.float32(data.qpos), np.float32(data.qvel)
            before = data.qpos.copy(), data.qvel.copy(), data.qacc_warmstart.copy()
            env.do_simulation(action, env.frame_skip)
            records.append((*before, action, data.qpos.copy()))
    columns = zip(*records, strict=True)
    return Walks(*(np.array(column).reshape(seeds, steps, -1) for column in columns))


def c_env(name: str, solver: mujoco.mjtSolver) -> Any:
    """Gymnasium's environment, without its time limit."""
    env = make_env(name).unwrapped
    if name in ASKS_FOR_PGS:
        env.model.opt.solver = solver
    return env


def c_steps(name: str, walks: Walks, solver: mujoco.mjtSolver) -> Errors:
    """Every step of walks done again by C with another solver."""
    env, errors = c_env(name, solver), []
    for index in np.ndindex(walks.actions.shape[:2]):
        env.data.qpos[:], env.data.qvel[:] = walks.qpos[index], walks.qvel[index]
        env.data.qacc_warmstart[:] = walks.warmstart[index]
        env.do_simulation(walks.actions[index], env.frame_skip)
        errors.append(np.abs(env.data.qpos - walks.after[index]).max())
    return np.array(errors)


def one_step_errors(worlds: WarpWorlds, walks: Walks) -> Errors:
    """Every step of walks done again by Warp, a step of all walks at a time."""
    step, errors = jax.jit(worlds.step), []
    for index in range(walks.actions.shape[1]):
        after, outcome = step(walks.states(index), jnp.asarray(walks.actions[:, index]))
        assert not outcome.faulty.any()
        errors.append(_difference(after.qpos, walks.after[:, index]))
    return np.concatenate(errors)


def walk_errors(worlds: WarpWorlds, walks: Walks) -> Errors:
    """Warp walks by itself from the same starts."""
    actions = jnp.asarray(walks.actions).swapaxes(0, 1)
    walk = jax.jit(lambda state, acts: jax.lax.scan(worlds.step, state, acts))
    last, outcomes = walk(walks.states(0), actions)
    assert not outcomes.faulty.any()
    return _difference(last.qpos, walks.after[:, -1])


def c_episodes(name: str, episodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Lengths and returns of Gymnasium's episodes, as it comes."""
    env = make_env(name)
    env.action_space.seed(0)
    outcomes = [_episode(env, seed) for seed in range(episodes)]
    lengths, returns = (np.array(column) for column in zip(*outcomes, strict=True))
    return lengths, returns


def _episode(env: gymnasium.Env, seed: int) -> tuple[int, float]:
    env.reset(seed=seed)
    length, total, ended = 0, 0.0, False
    while not ended:
        _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        length, total, ended = length + 1, total + float(reward), terminated or truncated
    return length, total


def warp_episodes(name: str, episodes: int) -> tuple[np.ndarray, np.ndarray]:
    """The same of worlds on the device: each world's first episode."""
    worlds = warp_worlds(name, {})
    low, high = worlds.spec.action_low[0], worlds.spec.action_high[0]
    step: Callable[..., Any] = jax.jit(worlds.step)
    state, _ = worlds.reset(jax.random.split(jax.random.key(0), episodes))
    lengths, returns = np.zeros(episodes), np.zeros(episodes)
    going = np.ones(episodes, bool)
    for key in _keys(worlds.spec.max_episode_steps):
        shape = (episodes, worlds.spec.action_dim)
        state, outcome = step(state, jax.random.uniform(key, shape, minval=low, maxval=high))
        assert not np.asarray(outcome.faulty)[going].any()
        lengths += going
        returns += np.where(going, outcome.reward, 0.0)
        going &= ~np.asarray(outcome.terminated)
        if not going.any():
            break
    return lengths, returns


def _keys(count: int) -> Iterator[jax.Array]:
    return iter(jax.random.split(jax.random.key(1), count))


def _difference(first: Any, second: Any) -> Errors:
    return np.abs(np.asarray(first, np.float64) - np.asarray(second, np.float64)).max(axis=1)


def _shown(errors: Errors) -> list[str]:
    return [f"{value:.0e}" for value in (np.median(errors), errors.max())]


def _shown_of_many(errors: Errors) -> list[str]:
    """Of one step, of which there are so many that the largest is of a rare kind."""
    middle, largest = _shown(errors)
    return [middle, f"{np.quantile(errors, 0.999):.0e}", largest]


def _mean(values: Sequence[float] | np.ndarray) -> str:
    """With the standard error."""
    return f"{np.mean(values):.4g} ± {np.std(values) / np.sqrt(len(values)):.2g}"


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
