"""Cells as tasks of a Ray cluster.

The study's folder must be one that every node sees under the same path, as on a cluster with a
shared file system: checkpoints and results are written there, and a task that is tried again on
another node goes on from its cell's checkpoint. A task whose worker or node dies is tried again by
Ray, some times; one that fails of itself is not, and has left its reason.
"""

import logging
import math
import os
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from element_rl.acting import cores
from element_rl.runs.watching import Interrupted
from element_rl.studies.engine.attempt import LOG, attempt, note_failure
from element_rl.studies.engine.grid import Cell, is_done
from element_rl.studies.engine.runner import GPU_MEMORY, gpu_memory_share

MOST_RETRIES = 5  # after the first attempt, when workers die
REQUESTS = "stop"  # in a cell's folder: a file that asks its task to stop at a checkpoint
ATTEMPTS = "attempts"  # in a cell's folder: a line for every time a worker has begun with it
CONNECT_SECONDS = 10.0
KNOCK_SECONDS = 5.0  # between two looks at whether the head of the cluster is there
# Seconds that an attempt waits for the one before it: a file system that nodes share may hold a
# dead node's lock for a while.
PATIENCE = 300.0


class RayTasks:
    """Cells as Ray tasks, each with the processors and the share of a GPU it needs."""

    def __init__(self, address: str, cpus: float | None = None, gpus: float | None = None) -> None:
        try:
            import ray
        except ImportError as error:
            raise ValueError(
                "--ray needs Ray, which is not installed: pip install 'element-rl[ray]'."
            ) from error
        self.ray: Any = ray
        try:
            _knock(address)
            ray.init(
                address=address,
                ignore_reinit_error=True,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        except (ValueError, RuntimeError, OSError) as error:
            reason = " ".join(str(error).split()).rstrip(".")
            raise ValueError(
                f"No Ray cluster answers at {address!r} ({reason}): start one, or leave --ray out."
            ) from error
        self.cpus, self.gpus = cpus, gpus
        self._head = str(ray.get_runtime_context().gcs_address)
        self._heard = time.monotonic()
        self._warn_of_needs()
        self.tasks: dict[Any, Path] = {}

    def start(self, folder: Path, cell: Cell) -> None:
        needs = {"num_cpus": self._cpus(cell), "num_gpus": self._gpus()}
        for name in (REQUESTS, ATTEMPTS):
            (folder / name).unlink(missing_ok=True)
        # A process per task: JAX keeps what it has once taken.
        one_thread = {"OPENBLAS_NUM_THREADS": "1"}  # as in `element_rl.cli`
        surroundings = one_thread | {cores.SHARE: str(max(int(needs["num_cpus"]), 1))}
        remote = self.ray.remote(
            max_retries=MOST_RETRIES, max_calls=1, runtime_env={"env_vars": surroundings}, **needs
        )
        task = remote(_attempt_on_node)
        self.tasks[task.remote(str(folder.resolve()), needs["num_gpus"])] = folder

    def running(self) -> list[Path]:
        try:
            self._heard = refuse_dead_head(self._head, self._heard)
        except ValueError:
            self.tasks = {}  # nobody is there to be told to stop
            raise
        ended, _ = (
            self.ray.wait(list(self.tasks), num_returns=len(self.tasks), timeout=0)
            if self.tasks
            else ([], [])
        )
        for task in ended:
            folder = self.tasks.pop(task)
            try:
                reason = self.ray.get(task)
            # the task's worker died too often, or Ray could not run it at all
            except Exception as error:
                reason = f"Ray gave up: {str(error).strip().splitlines()[0]}"
            if reason and not is_done(folder):
                note_failure(folder, reason)
        return list(self.tasks.values())

    def has_room(self) -> bool:
        return True  # Ray queues what does not fit

    def stop(self) -> None:
        for folder in self.tasks.values():
            (folder / REQUESTS).touch()
        try:
            if self.tasks:
                self.ray.wait(list(self.tasks), num_returns=len(self.tasks))
        except BaseException:
            for task in self.tasks:
                self.ray.cancel(task, force=True)
            raise
        finally:
            self.tasks = {}

    def _cpus(self, cell: Cell) -> float:
        """One processor per environment and one for the rest, but no more than the largest node
        has."""
        if self.cpus is not None:
            return self.cpus
        return min(cell.environments + 1, max(1.0, self._most("CPU")))

    def _gpus(self) -> float:
        if self.gpus is not None:
            return self.gpus
        return 1.0 if self._most("GPU") > 0 else 0.0

    def _warn_of_needs(self) -> None:
        """Ray lets a task that fits on no node wait for one, without a word."""
        for option, needed, resource in (
            ("--cell-cpus", self.cpus, "CPU"),
            ("--cell-gpus", self.gpus, "GPU"),
        ):
            if needed is not None and needed > (most := self._most(resource)):
                print(
                    f"No node of the cluster has {needed:g} {resource}s now (the most is "
                    f"{most:g}): cells wait until one joins, unless you stop this and give "
                    f"{option} less.",
                    file=sys.stderr,
                )

    def _most(self, resource: str) -> float:
        """What the best equipped node has of a resource."""
        nodes = [node["Resources"].get(resource, 0.0) for node in self.ray.nodes() if node["Alive"]]
        return float(math.floor(max(nodes, default=0.0)))


def refuse_dead_head(address: str, heard: float) -> float:
    """When the head of the cluster was last heard of; a ValueError where it no longer answers. Ray
    itself would end this process a minute later, with lines of its own."""
    if time.monotonic() - heard < KNOCK_SECONDS:
        return heard
    try:
        _knock(address)
    except OSError as error:
        raise ValueError(
            f"The head of the Ray cluster at {address} no longer answers ({error}): cells keep "
            "their checkpoints; start a cluster, and the same command goes on."
        ) from error
    return time.monotonic()


def _knock(address: str) -> None:
    """Raises an OSError where nobody listens; Ray itself would find that out after minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()


def _attempt_on_node(folder: str, gpus: float) -> str:
    """What a worker does; why the cell failed, or nothing if it is done or was told to stop."""
    asked, attempts = Path(folder) / REQUESTS, Path(folder) / ATTEMPTS
    if asked.exists():  # while the task was waiting for its turn
        return ""
    with attempts.open("a") as file:
        file.write("begun\n")
    # Counted here too: Ray tries without end what it has ended itself because a node's memory was
    # short.
    if len(attempts.read_text().splitlines()) > 1 + MOST_RETRIES:
        return f"Its worker died {1 + MOST_RETRIES} times (out of memory?)."
    if gpus > 0:
        os.environ.setdefault(GPU_MEMORY, f"{gpu_memory_share(gpus):.3f}")
    try:
        attempt(Path(folder), asked.exists, PATIENCE)
    except Interrupted:
        return ""
    except Exception as error:
        # The driver reports it, whatever it is; raised here, Ray would wrap it in pages of its own.
        with (Path(folder) / LOG).open("a") as log:
            traceback.print_exc(file=log)
        return f"{type(error).__name__}: {error}"
    return ""
