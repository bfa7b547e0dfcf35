"""Cells as tasks of a Ray cluster.

The study's folder must be one that every node sees under the same path, as on a cluster with a shared file system: checkpoints
and results are written there, and a task that is tried again on another node goes on from its cell's checkpoint. A task
whose worker or node dies is tried again by Ray; one that fails of itself is not, and has left its reason.
"""

import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from element_rl.studies.attempt import attempt, note_failure
from element_rl.studies.grid import Cell, is_done

MOST_ATTEMPTS = 5  # after the first, when workers die
REQUESTS = "stop"  # in a cell's folder: a file that asks its task to stop at a checkpoint


class RayTasks:
    """Cells as Ray tasks, each with the processors and the share of a GPU it needs."""

    def __init__(self, address: str, cpus: float | None = None, gpus: float | None = None) -> None:
        try:
            import ray
        except ImportError as error:
            raise ValueError("--ray needs Ray, which is not installed: pip install 'element-rl[ray]'.") from error
        self.ray: Any = ray
        try:
            ray.init(address=address, ignore_reinit_error=True, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError, OSError) as error:
            raise ValueError(
                f"No Ray cluster answers at {address!r} ({error}): start one, or leave --ray out."
            ) from error
        self.cpus, self.gpus = cpus, gpus
        self.tasks: dict[Any, Path] = {}

    def start(self, folder: Path, cell: Cell) -> None:
        needs = {"num_cpus": self._cpus(cell), "num_gpus": self._gpus()}
        (folder / REQUESTS).unlink(missing_ok=True)
        # A process per task: JAX keeps what it has once taken.
        task = self.ray.remote(max_retries=MOST_ATTEMPTS, max_calls=1, **needs)(_attempt_on_node)
        self.tasks[task.remote(str(folder.resolve()))] = folder

    def running(self) -> list[Path]:
        ended, _ = self.ray.wait(list(self.tasks), num_returns=len(self.tasks), timeout=0) if self.tasks else ([], [])
        for task in ended:
            folder = self.tasks.pop(task)
            try:
                self.ray.get(task)
            except Exception as error:  # the task's worker died too often, or Ray could not run it at all
                if not is_done(folder):
                    note_failure(folder, f"Ray gave up: {str(error).strip().splitlines()[0]}")
        return list(self.tasks.values())

    def has_room(self) -> bool:
        return True  # Ray queues what does not fit

    def stop(self) -> None:
        for folder in self.tasks.values():
            (folder / REQUESTS).touch()
        if self.tasks:
            self.ray.wait(list(self.tasks), num_returns=len(self.tasks))
        self.tasks = {}

    def _cpus(self, cell: Cell) -> float:
        """One processor per agent's environment and one for the rest, but no more than the largest node has."""
        if self.cpus is not None:
            return self.cpus
        return min(cell.config.seeds + 1, max(_of_nodes(self.ray.nodes(), "CPU"), default=1.0))

    def _gpus(self) -> float:
        if self.gpus is not None:
            return self.gpus
        return 1.0 if any(_of_nodes(self.ray.nodes(), "GPU")) else 0.0


def _of_nodes(nodes: Sequence[dict[str, Any]], resource: str) -> list[float]:
    return [math.floor(node["Resources"].get(resource, 0.0)) for node in nodes if node["Alive"]]


def _attempt_on_node(folder: str) -> bool:
    """What a worker does; False if the cell failed, which it has noted, or was stopped."""
    asked = Path(folder) / REQUESTS
    if asked.exists():  # while the task was waiting for its turn
        return False
    try:
        attempt(Path(folder), lambda: asked.exists())
    except Exception:
        return False
    return True
