"""What of a run is pushed, copied into a folder that is again a run.

Of every kind: config.json, summary.json, metrics.csv, what states are measured with (the warm-up,
an encoder), the random policy's map, figures. Of the newest checkpoint, or of all, the policies and
their visits; with the memory, also what a continued run needs. Left out: TensorBoard's events,
evaluations, frames. Texts lose the paths of this machine.
"""

import dataclasses
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from element_rl.evaluate import film
from element_rl.hub.paths import without_paths
from element_rl.hub.repository import HubError
from element_rl.hub.run_card import REPLAY
from element_rl.plots import plot_run
from element_rl.runs.folder import RANDOM_VISITS, RunError, RunFolder
from element_rl.runs.kinds import kind_of, require_kind
from element_rl.runs.watching import TRANSFER, Progress
from element_rl.storage.files import (
    FileError,
    read_arrays,
    read_json_object,
    to_json,
    write_arrays_directly,
    write_json,
)
from element_rl.storage.settings import options_of
from element_rl.studies.report.run_results import command_of
from element_rl.training.encoder.config import PretrainConfig
from element_rl.training.finetune.config import FinetuneConfig
from element_rl.training.offline.config import OfflineConfig

PUSHED = ("explore", "on-policy", "offline", "encoder")  # kinds of runs
TEXTS = ("config.json", "summary.json", TRANSFER)
ARRAYS = (
    RANDOM_VISITS,
    "warm_up.safetensors",
    "encoder.safetensors",
    "encoder/encoder.safetensors",
    "probe.safetensors",
)
RESUME = "resume"


def copy_run(run: RunFolder, folder: Path, every_checkpoint: bool, with_memory: bool) -> RunFolder:
    """Copies what is pushed of a run; a FileError where something of it is damaged."""
    require_kind(run, PUSHED, "element push")
    steps = run.checkpoint_steps() if every_checkpoint else run.checkpoint_steps()[-1:]
    if not steps and not (run.path / "encoder.safetensors").exists():
        raise RunError(f"The run {run.path} has no complete checkpoint yet: train it for longer.")
    try:
        _copy_texts(run, folder)
        for name in ARRAYS:
            if (run.path / name).exists():
                _copy_arrays(run.path / name, folder / name)
        for step in steps:
            checkpoint = run.checkpoints_path / f"step_{step:09d}"
            _copy_folder(checkpoint, folder / "checkpoints" / checkpoint.name, with_memory)
    except FileNotFoundError as error:
        raise RunError(
            f"{error.filename} was removed while it was pushed, as by a training that goes on: "
            "push again."
        ) from error
    copied = RunFolder.open(folder)
    if damaged := copied.damaged_files():
        raise FileError(damaged[0].replace(str(folder), str(run.path)))
    if with_memory and not any(folder.glob(f"checkpoints/*/{RESUME}")):
        raise RunError(
            f"The run {run.path} has no memory to push, only policies: push it without "
            "--with-memory."
        )
    return copied


def _copy_texts(run: RunFolder, folder: Path) -> None:
    for name in TEXTS:
        if (run.path / name).exists():
            write_json(folder / name, without_paths(read_json_object(run.path / name)))
    if run.metrics_path.exists():
        # a line that is just being written is not one yet
        lines = run.metrics_path.read_bytes()
        (folder / run.metrics_path.name).write_bytes(lines[: lines.rfind(b"\n") + 1])


def _copy_arrays(source: Path, target: Path) -> None:
    """The same arrays; the texts beside them, as of an encoder's origin, without paths."""
    arrays, metadata = read_arrays(source)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_arrays_directly(target, arrays, without_paths(metadata))


def _copy_folder(source: Path, target: Path, with_memory: bool) -> None:
    """A checkpoint as it is: its own manifest lists its files."""
    for file in sorted(source.rglob("*")):
        name = file.relative_to(source)
        if file.is_file() and (with_memory or name.parts[0] != RESUME):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target / name)


def draw_figures(run: RunFolder, folder: Path, say: Callable[[str], None]) -> None:
    """Figures of the run, as PNG: an SVG from elsewhere can hold scripts."""
    figures = folder / "figures"
    kind = kind_of(run.config)
    try:
        if kind in ("explore", "on-policy"):
            plot_run([run], figures, lambda text: None)
        else:  # those that its own command drew
            for file in sorted(run.figures_path.glob("*.png")):
                figures.mkdir(exist_ok=True)
                shutil.copyfile(file, figures / file.name)
    except (ValueError, OSError) as reason:
        say(f"Left out the figures: {reason}")
    for file in figures.glob("*.svg"):
        file.unlink()


def film_replay(
    run: RunFolder, folder: Path, watch: Callable[[Progress], None], say: Callable[[str], None]
) -> None:
    """replay.mp4: an episode of the first agent, where the environment can be seen."""
    if kind_of(run.config) == "encoder":
        return
    made = folder / "film"
    try:
        film(run, out=made, watch=watch).replace(folder / REPLAY)
    # an environment that is not installed here, cannot be drawn, or fails
    except (ValueError, OSError, ImportError) as reason:
        say(f"Left out {REPLAY}: {reason}")
    finally:
        shutil.rmtree(made, ignore_errors=True)


def command_that_made(run: RunFolder) -> str:
    """The command line of a run that was copied, with every setting that is not the default; empty
    where it cannot be told, as of runs of other versions."""
    try:
        kind, settings = kind_of(run.config), dict(run.config["settings"])
        if (run.path / TRANSFER).exists():
            settings = dict(read_json_object(run.path / TRANSFER)["config"])
            source = str(settings.pop("run"))
            return _command("finetune", [source], settings, FinetuneConfig(Path(source)))
        if kind == "offline":
            names = tuple(settings.pop("datasets"))
            return _command("offline", names, settings, OfflineConfig(names))
        if kind == "encoder":
            env = str(settings.pop("env"))
            return _command("pretrain-encoder", [env], settings, PretrainConfig(env))
        return command_of(run)
    except (KeyError, ValueError, TypeError, AttributeError):
        return ""


def _command(
    name: str, arguments: Sequence[str], settings: Mapping[str, Any], defaults: Any
) -> str:
    options = options_of(settings, to_json(dataclasses.asdict(defaults)))
    return shlex.join(["element", name, *arguments, *options])


def files_under(folder: Path) -> list[str]:
    return sorted(
        file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()
    )


def refuse_foreign(existing: list[str], manifest: str, place: str, kept: tuple[str, ...]) -> None:
    """A place with files that no push made is somebody else's."""
    if manifest not in existing and (others := [name for name in existing if name not in kept]):
        raise HubError(
            f"{place} holds files that were not pushed ({', '.join(others[:3])}) and no "
            f"{manifest}: push to another repository."
        )
