"""The page of a study or of a run: one HTML file that opens from disk and needs nothing else.

    __init__.py     fills page/page.html
    run_results.py  one run in the form of a study's results
    sections.py     text and tables, as HTML that is there without any script
    html_tables.py  tables that can be sorted
    drawings.py     what the scripts draw: curves, maps, paths and points, in few bytes
    figures.py      the same as PNG and SVG files
    page/           the template, and the scripts that `element_rl.pages` does not have

Everything comes from results.json, or from a run's folder. The page may load nothing from anywhere
and run no script but its own: its content security policy says so to the browser. Text from the
results is escaped in `sections.py`, and in JSON here.
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from string import Template

from element_rl.pages import colour_variables, script_of, shared_file
from element_rl.plots.style import COLOURS
from element_rl.runs.folder import RunFolder
from element_rl.storage.files import to_json, write_text
from element_rl.studies.engine.results import Results, read_results, write_results
from element_rl.studies.engine.table_text import write_tables
from element_rl.studies.report.drawings import colour_indices, drawings
from element_rl.studies.report.figures import draw_results
from element_rl.studies.report.run_results import run_facts, run_results
from element_rl.studies.report.sections import body, text

# later ones use earlier ones
SHARED_SCRIPTS = ("drawing.js", "curves.js", "maps.js", "tables.js")
OWN_SCRIPTS = ("planes.js", "start.js")


def write_everything(results: Results, folder: Path) -> None:
    """Writes results.json, tables/, figures/ and report.html of a study into its folder."""
    write_results(folder, results)
    write_tables(results, folder / "tables")
    draw_results(results, folder / "figures")
    write_report(folder)


def write_report(folder: Path, out: Path | None = None) -> Path:
    """Writes the page of the study in `folder` (default: report.html there) and returns where it
    is."""
    path = folder / "report.html" if out is None else out
    write_text(path, page(read_results(folder)))
    return path


def write_run_report(run: RunFolder, out: Path | None = None) -> Path:
    """Writes the page of a run (default: report.html in its folder) and returns where it is."""
    path = run.path / "report.html" if out is None else out
    write_text(path, page(run_results(run), run_facts(run)))
    return path


def page(results: Results, facts: Mapping[str, str] | None = None) -> str:
    """The whole page. `facts` stand below its title, where it is not a study's."""
    colours = colour_indices(results)
    script = script_of(*map(shared_file, SHARED_SCRIPTS), *map(_template, OWN_SCRIPTS))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return Template(_template("page.html")).substitute(
        title=text(results.title),
        colours=_colour_rules(max(colours.values())),
        style=shared_file("page.css"),
        body=body(results, colours, facts),
        data=embedded_json(drawings(results, colours)),
        script=script,
        script_digest=digest,
    )


def embedded_json(value: object) -> str:
    """JSON that can stand in a script element: with no `<` in it, nothing can end the element
    early."""
    encoded = json.dumps(to_json(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return encoded.replace("<", "\\u003c")


def _colour_rules(highest: int) -> str:
    """The series colours as CSS variables, and a class for every index in use."""
    classes = "\n".join(
        f".series-{index} {{ background: var(--series-{index % len(COLOURS)}); }}"
        for index in range(highest + 1)
    )
    return f"{colour_variables()}\n{classes}"


def _template(name: str) -> str:
    return (resources.files(__name__) / "page" / name).read_text(encoding="utf-8")
