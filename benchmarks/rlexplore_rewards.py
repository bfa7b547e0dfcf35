"""RLeXplore's RE3 and RND on Stable-Baselines3's SAC, in the way its documentation shows for
off-policy learning.

Runs in an environment of its own (`pip install rllte-core stable-baselines3 mujoco`, PyTorch as its
CPU build) and imports nothing of this library; `bench_sb3` starts it with that environment's Python
and tells it when to train. What both sides must have in common is here too: the robot, the
learner's settings and the conversation with `bench_sb3`.

The way that is documented (the notebook on Stable-Baselines3 in
github.com/RLE-Foundation/RLeXplore) is a callback. At every step it lets the module watch the
transition, computes the bonus of that one transition, adds it to the reward before the replay
buffer stores it, and lets the module learn from a batch of the replay. A stored bonus stays what it
was.

Two things keep the documented code from running, and are set otherwise here:
1. With one environment its running deviations, of observations and of bonuses, take the sample
   variance of a single value at every step, which is NaN, for ever; SAC then stops with an error.
   There both are switched off. With several they stay.
2. RE3 asks for the k-th neighbour before there are k, which is an error. Its storage is full from
   the beginning here.

    # then numbers of steps on stdin, one per line
    python benchmarks/rlexplore_rewards.py '{"reward": "rnd"}'
"""

import contextlib
import gc
import importlib
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

EPISODE_STEPS = 128
MEASURED_PACKAGES = ("rllte-core", "stable-baselines3", "torch", "gymnasium", "mujoco", "numpy")

Train = Callable[[int], None]  # so many steps, each with its update, and wait for the last one


def main(request: dict[str, Any]) -> None:
    """Prepare SAC with one of the rewards ("none", "rnd", "re3"), then train as told."""
    with conversation(request) as (train_when_told, say):
        import stable_baselines3
        import torch
        from stable_baselines3.common.env_util import make_vec_env

        torch.set_num_threads(1)
        envs = make_vec_env(make_robot, n_envs=request["num_envs"], seed=0)
        module = _module(envs, request)
        model = stable_baselines3.SAC("MlpPolicy", envs, device="cpu", **learner_settings(request))
        callback = None if module is None else _callback(module)
        clock = Clock()
        clock.watch(model.replay_buffer, "add", "sample")
        if callback is not None:
            clock.watch(callback, "_on_step")
        model.learn(warm_up_steps(request), callback=callback, log_interval=None)

        def train(steps: int) -> None:
            wanted = steps * request["num_envs"]
            model.learn(wanted, callback=callback, reset_num_timesteps=False, log_interval=None)

        say({"versions": _versions()})
        train_when_told(train, clock)


def make_robot() -> Any:
    """Ant in 27 float32 dimensions; it never falls, so that an episode always has as many steps and
    a slice whole episodes."""
    import gymnasium

    robot = gymnasium.make(
        "Ant-v5",
        include_cfrc_ext_in_observation=False,
        terminate_when_unhealthy=False,
        max_episode_steps=EPISODE_STEPS,
    )
    return gymnasium.wrappers.DtypeObservation(robot, np.float32)


def learner_settings(request: dict[str, Any]) -> dict[str, Any]:
    """SAC as it comes; the batch is said because all bonuses have the same, and the replay is as
    small as the test allows."""
    return {
        "batch_size": request["batch_size"],
        "buffer_size": request["stored"],
        "learning_starts": EPISODE_STEPS * request["num_envs"],
        "seed": 0,
    }


def warm_up_steps(request: dict[str, Any]) -> int:
    """An episode of every environment without updates, and a few steps with."""
    return (EPISODE_STEPS + 8) * request["num_envs"]


def _module(envs: Any, request: dict[str, Any]) -> Any:
    """RLeXplore's reward module, with its own defaults beside the sizes all have in common."""
    if request["reward"] == "none":
        return None
    import torch

    rewards = importlib.import_module("rllte.xplore.reward")
    options = {"rwd_norm_type": "none", "obs_norm_type": "none"} if request["num_envs"] == 1 else {}
    if request["reward"] == "rnd":
        return rewards.RND(envs, batch_size=request["batch_size"], **options)
    module = rewards.RE3(envs, storage_size=request["remembered"] // request["num_envs"], **options)
    module.storage = torch.randn(module.storage.shape)
    module.storage_full = True
    return module


def _callback(module: Any) -> Any:
    """Watch, compute, add, learn: once per step."""
    import torch
    from stable_baselines3.common.callbacks import BaseCallback

    class Bonus(BaseCallback):
        def _on_step(self) -> bool:
            step = [
                self.model._last_obs,
                *(self.locals[name] for name in ("actions", "rewards", "dones", "new_obs")),
            ]
            observations, actions, rewards, dones, following = (
                torch.as_tensor(part) for part in step
            )
            module.watch(observations, actions, rewards, dones, dones, following)
            sample = _samples(
                observations[None], actions[None], rewards[None], dones[None], following[None]
            )
            bonus = module.compute(samples=sample, sync=False)
            # in place: the replay buffer stores this array
            self.locals["rewards"] += bonus.cpu().numpy().reshape(-1)
            if hasattr(module, "batch_size") and self.model.replay_buffer.size() > 0:
                drawn = self.model.replay_buffer.sample(module.batch_size)
                rows = (
                    drawn.observations,
                    drawn.actions,
                    drawn.rewards,
                    drawn.dones,
                    drawn.next_observations,
                )
                module.update(samples=_samples(*(part[:, None] for part in rows)))
            return True

    return Bonus()


def _samples(
    observations: Any, actions: Any, rewards: Any, dones: Any, following: Any
) -> dict[str, Any]:
    return {
        "observations": observations,
        "actions": actions,
        "rewards": rewards,
        "terminateds": dones,
        "truncateds": dones,
        "next_observations": following,
    }


class Clock:
    """Processor time inside some calls of some objects, all together: what is called from within
    another is not counted twice."""

    def __init__(self) -> None:
        self.seconds, self._depth = 0.0, 0

    def watch(self, owner: Any, *names: str) -> None:
        """Count the calls of these methods from now on."""
        for name in names:
            setattr(owner, name, self._timed(getattr(owner, name)))

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **named: Any) -> Any:
            began, self._depth = time.process_time(), self._depth + 1
            try:
                return call(*arguments, **named)
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self.seconds += time.process_time() - began

        return timed


@contextlib.contextmanager
def conversation(
    request: dict[str, Any],
) -> Iterator[tuple[Callable[..., None], Callable[[dict[str, Any]], None]]]:
    """Bound to one core, with stdout for answers alone; gives what listens, and what speaks.

    An answer is a line of JSON: what was said; then, per slice, its seconds, its processor seconds,
    those of the watched calls (`inside`) and how often JAX compiled.
    """
    if hasattr(os, "sched_setaffinity") and request.get("core") is not None:
        os.sched_setaffinity(0, {request["core"]})
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever libraries print goes to stderr

    def say(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    def train_when_told(
        train: Train, clock: Clock, compiled: Callable[[], int] = lambda: 0
    ) -> None:
        for line in sys.stdin:
            gc.collect()
            before, inside_before = compiled(), clock.seconds
            began, processor_began = time.perf_counter(), time.process_time()
            train(int(line))
            taken = {
                "seconds": time.perf_counter() - began,
                "processor_seconds": time.process_time() - processor_began,
                "inside": clock.seconds - inside_before,
                "compiled": compiled() - before,
            }
            say(taken)

    try:
        yield train_when_told, say
    except Exception as error:
        say({"error": f"{type(error).__name__}: {error}"})
        raise


def _versions() -> str:
    from importlib.metadata import PackageNotFoundError, version

    found = []
    for name in MEASURED_PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found.append(f"{name} {version(name)}")
    return ", ".join(found)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
