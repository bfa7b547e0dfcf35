"""`element report`: the page of a run or of a study."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from element_rl.commands.options import read_options
from element_rl.commands.study import report


@dataclass(frozen=True)
class Report:
    """Write the page of a run of explore, on-policy or mario, or of a study: one HTML file that
    needs no network."""

    # Folder of a run or of a study: runs/Ant-v5-element-0, runs/studies-small/coverage.
    folder: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="FOLDER")]]
    # File to write. (default: FOLDER/report.html)
    out: Path | None = None


def main(arguments: list[str]) -> int:
    args = read_options(Report, arguments, "element report")
    print(f"Report: {report(args.folder, args.out)}")
    return 0
