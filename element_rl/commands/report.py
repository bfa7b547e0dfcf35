"""`element report`: the page of a run or of a study."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from element_rl.commands.options import read_options
from element_rl.runs.folder import RunFolder
from element_rl.storage.files import FileError
from element_rl.studies.engine.results import FILE
from element_rl.studies.report import write_report, write_run_report

EXAMPLE = "such as runs/Ant-v5-element-0 or runs/studies-small/coverage"


@dataclass(frozen=True)
class Report:
    """Write the page of a run of explore, on-policy or mario, or of a study: one HTML file that
    needs no network."""

    # Folder of a run or of a study: runs/Ant-v5-element-0, runs/studies-small/coverage.
    folder: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="FOLDER")]]
    # File to write. (default: FOLDER/report.html)
    out: Path | None = None


def main(arguments: list[str]) -> int:
    """Writes the page of a study again, from its results, or the page of a run; what is in the
    folder tells which."""
    args = read_options(Report, arguments, "element report")
    folder = args.folder
    if not folder.is_dir():
        raise FileError(
            f"There is no folder {folder}: name the folder of a run or of a study, {EXAMPLE}."
        )
    if (folder / FILE).exists():
        page = write_report(folder, args.out)
    elif (folder / "config.json").exists():
        page = write_run_report(RunFolder.open(folder), args.out)
    else:
        raise FileError(
            f"{folder} holds neither a run (config.json) nor the results of a study ({FILE}): name "
            f"a folder that does, {EXAMPLE}."
        )
    print(f"Report: {page}")
    return 0
