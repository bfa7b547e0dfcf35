"""The notebooks of examples/, run from their first cell to the last by the Python that runs this.

    python tests/support/notebooks.py [NAME ...]    # run them, and write their output into them

A cell with the tag `parameters` says how much is trained; a test adds a cell after it with less.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
LONGEST = 3_600  # seconds of a cell
# Stable-Baselines3 imports the predecessor of Gymnasium where it is installed, as Mario needs it.
OLD_GYM = "Gym has been unmaintained since 2022"
# what is the same on every machine; editors add more
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def run_notebook(path: Path, folder: Path, parameters: Mapping[str, Any] | None = None) -> Any:
    """The notebook with the output that it gives in a folder; a cell that fails raises.

    It is run from a process of its own: Jupyter's event loop and its sockets, which it leaves to
    the garbage collector, are none of a test's business.
    """
    finished = folder / path.name
    command = [sys.executable, __file__, str(path), "--into", str(finished)]
    command += ["--parameters", json.dumps(dict(parameters or {}))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{path.name} failed:\n{done.stderr}")
    return nbformat.read(finished, 4)


def _executed(path: Path, folder: Path, parameters: Mapping[str, Any]) -> Any:
    from jupyter_client import KernelManager
    from jupyter_client.kernelspec import KernelSpecManager
    from nbclient import NotebookClient

    notebook = nbformat.read(path, 4)
    if parameters:
        (place,) = (
            number
            for number, cell in enumerate(notebook.cells)
            if "parameters" in cell.metadata.get("tags", ())
        )
        source = "\n".join(f"{name} = {value!r}" for name, value in parameters.items())
        notebook.cells.insert(place + 1, nbformat.v4.new_code_cell(source))
    # Where no folders are searched for kernels, the one of this interpreter is found.
    kernels = KernelSpecManager(kernel_dirs=[])
    client = NotebookClient(
        notebook,
        km=KernelManager(kernel_name="python3", kernel_spec_manager=kernels),
        timeout=LONGEST,
        record_timing=False,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()
    return _tidied(notebook)


def _tidied(notebook: Any) -> Any:
    """Without what differs from one machine or day to another."""
    notebook.metadata = nbformat.from_dict(METADATA)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02d}"
        cell.metadata = nbformat.from_dict({k: v for k, v in cell.metadata.items() if k == "tags"})
        if "outputs" in cell:
            cell.outputs = [out for out in cell.outputs if OLD_GYM not in out.get("text", "")]
        for output in cell.get("outputs", ()):
            if "image/png" in output.get("data", {}):
                output["data"].pop("text/plain", None)
    return notebook


def main() -> None:
    parser = argparse.ArgumentParser(description="Run notebooks and keep their output.")
    parser.add_argument("notebooks", nargs="*", type=Path, default=NOTEBOOKS)
    parser.add_argument("--into", type=Path, help="file to write; itself unless told")
    parser.add_argument("--parameters", type=json.loads, default={})
    options = parser.parse_args()
    for path in options.notebooks:
        with TemporaryDirectory() as folder:
            os.environ["TMPDIR"] = folder  # runs that a notebook leaves there go with it
            notebook = _executed(path, Path(folder), options.parameters)
        nbformat.write(notebook, options.into or path)


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.pop("MPLBACKEND", None)  # the kernel sets its own
    main()
