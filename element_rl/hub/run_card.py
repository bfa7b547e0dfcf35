"""The card of a run: what a person, and Hugging Face's pages, are told of it.

The head is YAML; its `model-index` has the results, mean and standard deviation over seeds, as
summary.json has them: coverage of the whole run, the rest of its last tenth. The rest is Markdown.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from element_rl.hub.paths import without_folders
from element_rl.hub.repository import Repository
from element_rl.hub.yaml_text import yaml_text
from element_rl.runs.folder import RunFolder
from element_rl.runs.kinds import KINDS, kind_of
from element_rl.runs.provenance import hardware_text, versions_text

REPLAY = "replay.mp4"  # Hugging Face's pages play it beside the card
MEASURES = {  # of a summary → type in the model-index, and what a table calls it
    "coverage": ("coverage", "coverage (cells)"),
    "episodic_entropy": ("episodic_entropy", "episodic entropy (bits)"),
    "extrinsic_return": ("mean_reward", "task return"),
    "normalised_score": ("normalised_score", "normalised score"),
    "episode_length": ("episode_length", "episode length (steps)"),
}
FIGURES = {  # in figures/ → what it shows; the first that is there goes to the top
    "coverage.png": "Coverage over environment steps",
    "offline.png": "Return over updates",
    "encoder.png": "What states know of positions",
    "density_map.png": "Visits per cell of the map",
    "trajectories.png": "Episodes of the policies",
    "entropy.png": "Entropy of episodes over environment steps",
    "reward_terms.png": "Terms of the reward over environment steps",
}
WHAT = {
    "explore": "Agents that explore",
    "on-policy": "Agents that explore from images",
    "offline": "Agents that learned from datasets",
    "encoder": "An encoder of frames",
}


Measured = tuple[float, float, int]
"""Mean, standard deviation, and over how many seeds."""


def run_card(run: RunFolder, repository: Repository, files: Sequence[str], command: str) -> str:
    """The card of the run in a folder with these files, which this command line made."""
    summary, config = run.read_summary(), run.config
    kind, env = kind_of(config), str(config.get("env") or "an unnamed environment")
    head = {
        "library_name": "element-rl",
        "pipeline_tag": "reinforcement-learning",
        "tags": _tags(kind, env, str(config.get("reward", ""))),
        **_model_index(repository.name, env, summary),
    }
    pictures = [(name, text) for name, text in FIGURES.items() if f"figures/{name}" in files]
    parts = [
        f"---\n{yaml_text(head)}---",
        f"# {plain(repository.name)}",
        _introduction(kind, env, config, summary),
        _table(summary),
        *(f"![{text}](figures/{name})" for name, text in pictures[:1]),
        f"The film of an episode of the first agent is [{REPLAY}]({REPLAY}).\n" * (REPLAY in files),
        f"## Use it\n\n```sh\n{_use(kind, repository, files)}\n```",
        f"## How it was made\n\n```sh\n{command}\n```" if command else "",
        _provenance(summary),
        *(f"![{text}](figures/{name})" for name, text in pictures[1:]),
        "Every file is listed in manifest.json with its size and SHA-256, by which `element pull` "
        "checks it. No file is pickled; none is code.",
    ]
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def mean_and_deviation(values: Sequence[Any]) -> Measured | None:
    """Mean and standard deviation over seeds (of a sample), and how
    many have a number; None where none has."""
    numbers = [float(value) for value in values if isinstance(value, int | float)]
    finite = [number for number in numbers if np.isfinite(number)]
    return (float(np.mean(finite)), _deviation(finite), len(finite)) if finite else None


def _deviation(numbers: Sequence[float]) -> float:
    return float(np.std(numbers, ddof=1)) if len(numbers) > 1 else 0.0


def plain(text: str) -> str:
    """A text from settings as Markdown that shows it as it is."""
    return re.sub(r"([\\`*_{}\[\]<>#|$~])", r"\\\1", " ".join(text.split()))


def _tags(kind: str, env: str, reward: str) -> list[str]:
    named = [Path(reward.partition(":")[0]).stem, env.rpartition(":")[2], kind]
    general = ["reinforcement-learning", "deep-reinforcement-learning"]
    general += ["exploration"] if kind in ("explore", "on-policy") else []
    return list(dict.fromkeys([*general, "element-rl", *filter(None, named)]))


def _measured(summary: Mapping[str, Any]) -> dict[str, Measured]:
    """Measures of a summary → mean and deviation over seeds; those that the run has."""
    found = {
        name: mean_and_deviation(summary[name])
        for name in MEASURES
        if isinstance(summary.get(name), list)
    }
    return {name: each for name, each in found.items() if each is not None}


def _model_index(name: str, env: str, summary: Mapping[str, Any]) -> dict[str, Any]:
    """What Hugging Face reads results from; nothing where there are none."""
    metrics = [
        {
            "type": MEASURES[measure][0],
            "name": f"{MEASURES[measure][1]}, {_over(seeds)}",
            "value": f"{mean:.2f} +/- {deviation:.2f}" if seeds > 1 else f"{mean:.2f}",
            "verified": False,
        }
        for measure, (mean, deviation, seeds) in _measured(summary).items()
    ]
    if not metrics:
        return {}
    task = {"type": "reinforcement-learning", "name": "reinforcement-learning"}
    result = {"task": task, "dataset": {"name": env, "type": env}, "metrics": metrics}
    return {"model-index": [{"name": name, "results": [result]}]}


def _over(seeds: int) -> str:
    return f"mean +/- standard deviation over {seeds} seeds" if seeds > 1 else "one seed"


def _introduction(
    kind: str, env: str, config: Mapping[str, Any], summary: Mapping[str, Any]
) -> str:
    text = f"{WHAT.get(kind, 'A run')}: {plain(env)}"
    if reward := without_folders(str(config.get("reward") or "")):
        text += f", trained with `{reward.replace('`', '')}`"
    if summary:
        seeds = len(summary.get("seeds", ()))
        over = f" of each of {seeds} seeds" if seeds > 1 else ""
        text += f", {summary['steps']:,} {'updates' if kind == 'offline' else 'steps'}{over}"
    else:
        text += "; the run was not finished when it was pushed"
    return f"{text}. Made with element-rl."


def _table(summary: Mapping[str, Any]) -> str:
    """The run beside the random policy that it was compared with."""
    ours, random = _measured(summary), _measured(summary.get("random_policy") or {})
    if not ours:
        return ""
    seeds = max(each[2] for each in ours.values())
    rows = [f"| {MEASURES[name][1]} | {_written(each)} |" for name, each in ours.items()]
    heads, rule = f"| {_over(seeds).replace('+/-', '±')} | this run |", "|---|---:|"
    if random:
        heads, rule = f"{heads} random policy |", f"{rule}---:|"
        rows = [
            f"{row} {_written(random.get(name))} |" for row, name in zip(rows, ours, strict=True)
        ]
    window = "Means over the last tenth of the run."
    if "coverage" in ours:
        window = "Coverage is of the whole run, the rest of its last tenth."
    return "\n".join([heads, rule, *rows]) + f"\n\n{window}"


def _written(each: Measured | None) -> str:
    """`12.30 ± 4.50`; a single seed has no deviation."""
    if each is None:
        return "–"
    mean, deviation, seeds = each
    return f"{mean:,.2f} ± {deviation:,.2f}" if seeds > 1 else f"{mean:,.2f}"


def _use(kind: str, repository: Repository, files: Sequence[str]) -> str:
    """Commands for who finds the card."""
    run = shlex.quote(f"runs/{repository.name}")
    lines = ["pip install 'element-rl[hub]'", f"element pull {repository}"]
    if kind == "encoder":
        return "\n".join([*lines, f"element on-policy ENV --encoder {run}"])
    lines.append(f"element evaluate {run}")
    if kind in ("explore", "on-policy"):
        lines.append(f"element finetune {run}")
    if any("/resume/" in name for name in files):
        lines.append(KINDS[kind].continued_with.format(run))
    return "\n".join(lines)


def _provenance(summary: Mapping[str, Any]) -> str:
    if not summary:
        return ""
    facts = {
        "Commit": summary.get("commit"),
        "Versions": versions_text(summary.get("versions")),
        "Hardware": hardware_text(summary.get("hardware")) if summary.get("hardware") else None,
    }
    return "\n".join(f"- {name}: {plain(str(fact))}" for name, fact in facts.items() if fact)
