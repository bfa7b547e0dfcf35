"""Running a study: every cell that is not done, then what all of them say.

Cells run one after the other, or several at a time (`together`), each in a process of its own and
after the cells it needs; `cluster.py` hands them to Ray instead. A cell that is done is not run
again, one that was stopped or killed goes on from its checkpoint, one that fails is noted with its
reason while the others finish. So the same command, given again, always goes on where things are.
"""

import datetime
import importlib.metadata
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from element_rl.acting import cores
from element_rl.runs.provenance import commit, hardware, hardware_text, versions_text
from element_rl.studies.engine.attempt import LOG, note_failure, prepare
from element_rl.studies.engine.grid import (
    FAILURE,
    REPORT_SEEDS,
    Cell,
    FinishedCell,
    Scale,
    Study,
    cell_folder,
    finished,
    is_done,
    record,
    results_folder,
    steps_done,
)
from element_rl.studies.engine.jobs import is_preparation
from element_rl.studies.engine.results import Results
from element_rl.studies.engine.so_far import so_far
from element_rl.studies.report import write_everything
from element_rl.tracking.settings import NOT_TRACKED, Tracking

POLL_SECONDS = 0.5
# what JAX takes of a GPU's memory at once; three quarters, if not told
GPU_MEMORY = "XLA_PYTHON_CLIENT_MEM_FRACTION"
NO_AUTOTUNING = (
    "--xla_gpu_enable_triton_gemm=false --xla_gpu_autotune_level=0 "
    "--xla_gpu_experimental_enable_fusion_autotuner=false"
)
# versions of jaxlib that take these flags; a program ends at a flag that is not known
JAXLIB_WITH_FLAGS = ("0.10.", "0.11.")


@dataclass(frozen=True)
class GridProgress:
    """How far the grid is; what a watcher is told now and then."""

    done: int
    failed: int
    running: tuple[str, ...]
    cells: int
    steps_done: int  # summed over cells and seeds
    steps: int


Watcher = Callable[[GridProgress], None]


@runtime_checkable
class Executor(Protocol):
    """What runs cells: processes here (`Processes`), or tasks of a cluster."""

    def start(self, folder: Path, cell: Cell) -> None: ...

    def running(self) -> list[Path]:
        """The folders of cells still under way. Cells that have ended are done, or have left word
        of their failure."""
        ...

    def has_room(self) -> bool: ...

    def stop(self) -> None:
        """Let every running cell stop at a checkpoint, and wait for that; what interrupts the
        waiting ends them at once."""
        ...


class Processes:
    """Cells as processes of this machine, `together` at a time."""

    def __init__(self, together: int = 1) -> None:
        self.together = together
        self.processes: dict[Path, subprocess.Popen[bytes]] = {}

    def start(self, folder: Path, cell: Cell) -> None:
        with (folder / LOG).open("ab") as log:
            command = [sys.executable, "-m", "element_rl.studies.engine.attempt", str(folder)]
            share = {
                GPU_MEMORY: f"{gpu_memory_share(1 / self.together):.3f}",
                cores.SHARE: str(max(cores.usable_cores() // self.together, 1)),
            }
            share |= compiler_flags(cell, self.together)
            # A session of its own: Ctrl-C reaches this process only, which tells the cells in its
            # own time.
            self.processes[folder] = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=share | dict(os.environ),
            )

    def running(self) -> list[Path]:
        for folder, process in list(self.processes.items()):
            code = process.poll()
            if code is not None:
                del self.processes[folder]
                if process.stdin is not None:
                    process.stdin.close()
                if code != 0 and not is_done(folder) and not (folder / FAILURE).exists():
                    note_failure(folder, _how_it_ended(code, folder))
        return list(self.processes)

    def has_room(self) -> bool:
        return len(self.running()) < self.together

    def stop(self) -> None:
        # Not by a signal: a job scheduler may have sent one to all processes, and a second one ends
        # a cell at once.
        for process in self.processes.values():
            if process.stdin is not None:
                process.stdin.close()
        try:
            for process in self.processes.values():
                process.wait()
        except BaseException:
            for process in self.processes.values():
                process.kill()
                process.wait()
            raise
        finally:
            self.processes = {}


def run_cells(
    cells: Sequence[Cell],
    out: Path,
    executor: Executor,
    watch: Watcher,
    stop: Callable[[], bool] = lambda: False,
    tracking: Tracking = NOT_TRACKED,
) -> bool:
    """Run what is not done, each cell after those it needs; whether it was all attempted, that is,
    not stopped."""
    folders = {
        prepare(out, cell, tracking): cell for cell in cells if not is_done(cell_folder(out, cell))
    }
    waiting = list(folders)
    for folder in waiting:
        (folder / FAILURE).unlink(missing_ok=True)  # of an earlier attempt
    try:
        while waiting or executor.running():
            if stop():
                executor.stop()
                return False
            coming = {*waiting, *executor.running()}
            for folder in [folder for folder in waiting if _is_ready(folders[folder], out, coming)]:
                if missing := _missing(folders[folder], out):
                    note_failure(folder, f"It needs {missing.name}, which is not done.")
                elif executor.has_room():
                    executor.start(folder, folders[folder])
                else:
                    break
                waiting.remove(folder)
            watch(progress(cells, out, executor.running()))
            time.sleep(POLL_SECONDS)
    except BaseException:
        executor.stop()
        raise
    watch(progress(cells, out, []))
    return True


def _is_ready(cell: Cell, out: Path, coming: Collection[Path]) -> bool:
    """Whether all that the cell needs is over, one way or the other."""
    return not any(cell_folder(out, need) in coming for need in cell.needs)


def _missing(cell: Cell, out: Path) -> Cell | None:
    """Something that the cell needs and that is not done."""
    return next((need for need in cell.needs if not is_done(cell_folder(out, need))), None)


def progress(cells: Sequence[Cell], out: Path, running: Sequence[Path]) -> GridProgress:
    """How far the cells are, from what they have written."""
    folders = {cell_folder(out, cell): cell for cell in cells}
    done = {folder for folder in folders if is_done(folder)}
    steps = {
        folder: steps_done(folder, cell.steps) * cell.seeds for folder, cell in folders.items()
    }
    return GridProgress(
        done=len(done),
        failed=sum((folder / FAILURE).exists() for folder in folders.keys() - done - set(running)),
        running=tuple(
            cell.name
            for folder, cell in folders.items()
            if folder in running and folder not in done
        ),
        cells=len(folders),
        steps_done=sum(steps.values()),
        steps=sum(cell.steps * cell.seeds for cell in cells),
    )


def compiler_flags(cell: Cell, together: int) -> dict[str, str]:
    """What XLA is told where cells share a GPU: else each spends its first minutes trying kernels
    (docs/studies.md).

    Only of robots: what it does to convolutions was not measured.
    """
    knows = importlib.metadata.version("jaxlib").startswith(JAXLIB_WITH_FLAGS)
    return {"XLA_FLAGS": NO_AUTOTUNING} if together > 1 and knows and not cell.sees_frames else {}


def gpu_memory_share(gpus: float) -> float:
    """How much of a GPU's memory a cell may take at once, if it shares the GPU with others."""
    return 0.75 if gpus >= 1 else 0.9 * gpus


def conclude(
    study: Study,
    scale_name: str,
    scale: Scale,
    cells: Sequence[Cell],
    out: Path,
    command: str,
    unfinished: bool = False,
) -> Results:
    """Analyse the cells that are done; write results, tables, figures and the page into the study's
    folder (`results_folder`).

    `unfinished`: all cells that have begun, at the step that those of their environment have
    reached (`so_far.py`).
    """
    folder = results_folder(out, study, cells)
    if unfinished:
        done, notes = so_far(cells, out)
    else:
        measured = [cell for cell in cells if not is_preparation(cell.config)]
        done, notes = [entry for cell in measured if (entry := finished(out, cell)) is not None], ()
    if not done:
        raise ValueError(f"No cell of the study {study.name} in {out} is done: run them first.")
    found = study.analyse(done, scale)
    results = Results(
        study=study.name,
        title=study.title,
        question=study.question,
        scale=scale_name,
        command=command,
        cells=tuple(record(out, cell) for cell in cells),
        findings=found.sentences,
        notes=(*notes, *found.notes, _seeds_note(done)),
        tables=found.tables,
        curves=found.curves,
        maps=found.maps,
        paths=found.paths,
        scatters=found.scatters,
        settings={"scale": asdict(scale)} | {cell.name: asdict(cell.config) for cell in cells},
        provenance=_provenance([dict(entry.summary) for entry in done]),
    )
    write_everything(results, folder)
    return results


def _seeds_note(done: Sequence[FinishedCell]) -> str:
    """Which seeds a page is of, and of which commit."""
    cells = [entry.cell for entry in done]
    first, last = (
        min(cell.first_seed for cell in cells),
        max(cell.first_seed + cell.seeds for cell in cells) - 1,
    )
    seeds = f"seed {first}" if first == last else f"seeds {first} to {last}"
    commits = dict.fromkeys(str(entry.summary.get("commit")) for entry in done)
    of = f"at commit {', '.join(commits)}"
    if first >= REPORT_SEEDS:
        return f"Reported: {seeds}, kept for reporting, {of}."
    return (
        f"Development: {seeds}, by which settings may have been chosen, {of}. What is to be "
        "claimed is measured with --report, on seeds that nobody has looked at."
    )


def _provenance(summaries: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Where the runs were made, which may be elsewhere than where they are analysed; in words."""

    def distinct(name: str, described: Callable[[Any], str]) -> str:
        return "; ".join(dict.fromkeys(described(summary.get(name)) for summary in summaries))

    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {
        "runs: hardware": distinct("hardware", hardware_text),
        "runs: commit": distinct("commit", str),
        "runs: versions": distinct("versions", versions_text),
        "analysed on": f"{today}, {hardware_text(hardware())}",
        "analysed at": str(commit()),
    }


def _how_it_ended(code: int, folder: Path) -> str:
    if code < 0:
        name = signal.Signals(-code).name
        hint = " (out of memory?)" if name == "SIGKILL" else ""
        return f"The process was ended by {name}{hint}; see {folder / LOG}."
    log = (folder / LOG).read_text(errors="replace").strip().splitlines()
    return f"The process ended with exit code {code}: {log[-1] if log else 'it said nothing'}"
