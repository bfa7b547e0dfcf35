"""What the documentation names is there: columns of metrics.csv, functions, files; and the glossary
leaves no column out."""

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
from support.documents import DOCUMENTS, ROOT, name_of, spans

from element_rl.agents import cql, discrete_cql, iql, td3_bc
from element_rl.rewards import NAMES, make_bonus, make_reward
from element_rl.rewards.recent_scale import RecentlyScaled
from element_rl.training.encoder.training import COLUMNS as ENCODER_COLUMNS
from element_rl.training.off_policy import explore
from element_rl.training.offline import training
from element_rl.training.on_policy import launch
from element_rl.training.on_policy.config import OnPolicyConfig

GLOSSARY = ROOT / "docs" / "metrics.md"
PAPER = ROOT / "docs" / "paper.md"
FOLDERS = ("element_rl", "docs", "tests", "examples", "benchmarks", "docs_site")


def test_glossary_has_every_column_and_no_other() -> None:
    columns, summaries = GLOSSARY.read_text().split("\n## Summaries\n")
    first_cells = "".join(re.findall(r"^\|([^|]*)\|", columns, flags=re.M))
    assert set(re.findall(r"`(\w+)`", first_cells)) == _columns()
    evaluated = (
        "extrinsic_return",
        "episode_length",
        "episodic_entropy",
        "coverage",
        "random_policy",
    )
    assert all(f"`{name}`" in summaries for name in evaluated)


def test_every_equation_algorithm_and_proposition_has_a_row() -> None:
    rows = re.findall(
        r"^\| (Eq\.|Algorithm|Proposition)\s(\d+)[a-z]?(?:–(\d+|[a-z]))?",
        PAPER.read_text(),
        flags=re.M,
    )
    found: dict[str, list[int]] = {}
    for kind, first, last in rows:
        end = int(last) if last.isdigit() else int(first)
        found.setdefault(kind, []).extend(range(int(first), end + 1))
    assert found == {"Eq.": [*range(1, 25)], "Algorithm": [1, 2, 3], "Proposition": [1, 2]}


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_names_lead_to_code(document: Path) -> None:
    for span in spans(document):
        if re.fullmatch(r"(?:element_rl|benchmarks)(?:\.\w+)+", span) and not span.endswith(".py"):
            _find(span)
        if re.fullmatch(rf"(?:{'|'.join(FOLDERS)})/[\w./-]+", span):
            assert (ROOT / span).exists(), f"{name_of(document)} names {span}"


def test_pages_that_the_code_names_are_there() -> None:
    """Docstrings, comments and the help of options name pages as docs/….md."""
    sources = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    for path in [*sources, ROOT / "CHANGELOG.md"]:
        for page in re.findall(r"docs/[\w/-]+\.md", path.read_text()):
            assert (ROOT / page).exists(), f"{name_of(path)} names {page}"


def test_functions_beside_the_equations_are_there() -> None:
    names = {span for span in spans(PAPER) if re.fullmatch(r"\w+(?:\.\w+)+", span)}
    assert len(names) > 40
    for name in names:
        _find(f"element_rl.{name}")


def _find(name: str) -> Any:
    """What a dotted name means; an AttributeError or ModuleNotFoundError says that it means
    nothing."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(name)


def _columns() -> set[str]:
    """Every column that a command can write; a log refuses those that are not in its header."""
    learned = [name for name in NAMES if name != "extrinsic"]
    rewards = [make_reward(name) for name in learned] + [
        make_reward("element", lifelong_estimator="kde", memory="spaced", running=True)
    ]
    columns = {
        name for reward in rewards for name in explore.metric_columns(RecentlyScaled(reward))
    }
    columns |= {*explore.metric_columns(None, extrinsic_weight=1.0, agent="dqn")}
    sizes = {"state_dim": 32, "actions": 5, "max_episode_steps": 100, "total_steps": 1_000}
    bonuses = [make_bonus(name, **sizes) for name in learned]
    for agent in ("a3c", "ppo"):
        config = OnPolicyConfig("Rooms-v0", agent=agent)
        columns |= {name for bonus in bonuses for name in launch.metric_columns(bonus, config)}
    columns |= {
        *training.FIRST_COLUMNS,
        *cql.METRICS,
        *discrete_cql.METRICS,
        *td3_bc.METRICS,
        *iql.METRICS,
        *training.LAST_COLUMNS,
    }
    return columns | {*ENCODER_COLUMNS}
