"""The contenders of `bench_training_peers`: each trains in a process of its own when it is told to,
and is idle otherwise."""

from __future__ import annotations

import gc
import multiprocessing
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

STATE_SIZE = 11
NUM_NEIGHBOURS = 3
RECOMPILED_AT_MOST = 5  # slices in a row that may be run again

# so many environment steps, each with its update, and wait for the last one
Train = Callable[[int], None]
Make = Callable[..., AbstractContextManager[Train]]  # a contender, ready to train


class Contender:
    """A process that trains when told to, and is idle otherwise."""

    def __init__(self, make: Make, arguments: tuple[Any, ...], steps: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.steps = steps
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, make, arguments))
        self._process.start()
        theirs.close()
        self._ask(steps)  # to warm up

    def rate(self) -> tuple[float, float]:
        """Steps per second of one slice, and processor seconds of its (main) process per second."""
        for _ in range(RECOMPILED_AT_MOST):
            seconds, processor_seconds, compiled = self._ask(self.steps)
            if compiled == 0:
                break
        return self.steps / seconds, processor_seconds / seconds

    def close(self) -> None:
        if self._process.is_alive():
            self._connection.send(None)
        self._process.join()

    def _ask(self, steps: int) -> tuple[float, float, int]:
        self._connection.send(steps)
        answer = self._connection.recv()
        if isinstance(answer, str):
            raise RuntimeError(answer)
        return answer


def _serve(connection: Connection, make: Make, arguments: tuple[Any, ...]) -> None:
    """In the process of a contender: seconds and processor seconds of every slice asked for, and
    how often JAX compiled."""
    compiled: list[str] = []

    def see(event: str, duration_secs: float, **_: str | int) -> None:
        if "backend_compile" in event:
            compiled.append(event)

    try:
        import jax.monitoring

        jax.monitoring.register_event_duration_secs_listener(see)
        with make(*arguments) as train:
            while (steps := connection.recv()) is not None:
                gc.collect()
                compiled.clear()
                began, processor_began = time.perf_counter(), time.process_time()
                train(steps)
                seconds, processor_seconds = (
                    time.perf_counter() - began,
                    time.process_time() - processor_began,
                )
                connection.send((seconds, processor_seconds, len(compiled)))
    except BaseException:
        connection.send(traceback.format_exc())
        raise


@contextmanager
def ours(env: str, stored: int, chunk_steps: int, reward: str, remembered: int) -> Iterator[Train]:
    """This library in the middle of a training run: replay and memory filled beforehand."""
    import jax

    from benchmarks import bench_training

    same = bench_training.Settings(env=env, stored=stored, chunk_steps=chunk_steps)
    with bench_training._filled_explorer(same, 1, reward, remembered) as explorer:
        assert explorer.learner.state.replay.state.shape[-1] == STATE_SIZE

        def train(steps: int) -> None:
            for _ in range(steps // chunk_steps):
                explorer.train_chunk()
            jax.block_until_ready(explorer.learner.state)

        yield train


@contextmanager
def sbx_sac(env: str, updates_per_call: int) -> Iterator[Train]:
    """SAC of SBX."""
    import jax
    import sbx

    model = sbx.SAC("MlpPolicy", _peer_environment(env), **_peer_options(updates_per_call))
    yield _learning(
        model, lambda: jax.block_until_ready((model.policy.actor_state, model.policy.qf_state))
    )


@contextmanager
def sb3_sac(env: str, threads: int, remembered: int | None) -> Iterator[Train]:
    """SAC of Stable-Baselines3, with a kNN bonus where states are remembered."""
    import stable_baselines3
    import torch

    torch.set_num_threads(threads)
    options = _peer_options(updates_per_call=1)
    if remembered is not None:
        options["replay_buffer_class"] = bonus_buffer_class(remembered)
    yield _learning(
        stable_baselines3.SAC("MlpPolicy", _peer_environment(env), device="cpu", **options),
        lambda: None,
    )


def _peer_environment(env: str) -> Any:
    from element_rl.envs.make import make_env

    return make_env(env)  # Ant-v5 without contact forces: 27-D


def _peer_options(updates_per_call: int) -> dict[str, Any]:
    return {
        "policy_kwargs": {"net_arch": [256, 256, 256]},  # ReLU and two critics are their defaults
        "learning_rate": 3e-4,
        "batch_size": 128,
        "buffer_size": 1_000_000,
        "learning_starts": 1_000,
        "train_freq": updates_per_call,
        "gradient_steps": updates_per_call,
        "ent_coef": "auto_0.2",
        "seed": 0,
    }


def _learning(model: Any, settle: Callable[[], Any]) -> Train:
    """Train on: the first steps are random and without updates, so they are taken here."""
    model.learn(model.learning_starts + 64, log_interval=None)

    def train(steps: int) -> None:
        model.learn(steps, reset_num_timesteps=False, log_interval=None)
        settle()

    return train


def bonus_buffer_class(remembered: int) -> type:
    """A replay buffer whose samples carry the kNN bonus instead of the environment's reward.

    The state is a fixed random projection of the next observation to 11-D; the memory is full and
    does not grow.
    """
    import torch
    from stable_baselines3.common.buffers import ReplayBuffer

    class BonusBuffer(ReplayBuffer):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            generator = torch.Generator().manual_seed(0)
            observation_size = int(np.prod(self.obs_shape))
            self.projection = (
                torch.randn(observation_size, STATE_SIZE, generator=generator)
                / observation_size**0.5
            )
            self.memory = torch.randn(remembered, STATE_SIZE, generator=generator)

        def sample(self, batch_size: int, env: Any = None) -> Any:
            batch = super().sample(batch_size, env)
            with torch.no_grad():
                states = batch.next_observations.float() @ self.projection
                nearest = (
                    torch.cdist(states, self.memory).topk(NUM_NEIGHBOURS, largest=False).values
                )
                bonus = torch.log1p(torch.linalg.vector_norm(nearest, dim=1, keepdim=True))
            return batch._replace(rewards=bonus)

    return BonusBuffer
