"""The card of a repository of Minari datasets."""

from collections.abc import Mapping
from typing import Any

from element_rl.datasets.minari_files import environment_of
from element_rl.hub.repository import Repository
from element_rl.hub.run_card import plain
from element_rl.hub.yaml_text import yaml_text

SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (10**6, "100K<n<1M"))
LARGER = ((10**7, "1M<n<10M"), (10**8, "10M<n<100M"), (10**9, "100M<n<1B"))


HEADER = (
    "| dataset | environment | steps | episodes | cells covered | steps upright |",
    "|---|---|---:|---:|---:|---:|",
)


def dataset_card(repository: Repository, datasets: Mapping[str, Mapping[str, Any]]) -> str:
    """The card for all datasets of a repository: id → metadata."""
    steps = sum(_count(about, "total_steps") for about in datasets.values())
    tags = ["minari", "reinforcement-learning", "offline-rl", "element-rl"]
    head = {
        "tags": tags,
        "task_categories": ["reinforcement-learning"],
        "size_categories": [next((text for most, text in SIZES + LARGER if steps < most), "n>1B")],
    }
    rows = [
        f"| `{name}` | {plain(environment_of(about)[0] or '–')} | "
        f"{_count(about, 'total_steps'):,} | {_count(about, 'total_episodes'):,} | "
        f"{_coverage(about)} | {_upright(about)} |"
        for name, about in sorted(datasets.items())
    ]
    first = min(datasets)
    place = first.partition("/")[2]
    pulled = f"{repository}/{place}" if place else str(repository)
    parts = [
        f"---\n{yaml_text(head)}---",
        f"# {plain(repository.name)}",
        "[Minari](https://minari.farama.org) datasets, made with element-rl.",
        "\n".join([*HEADER, *rows]),
        *(
            f"**{plain(name)}**: {plain(str(about['description']))}"
            for name, about in sorted(datasets.items())
            if about.get("description")
        ),
        f"## Use it\n\n```sh\npip install 'element-rl[hub,datasets]'\nelement pull {pulled}\n```",
        f"```python\nimport minari\n\ndataset = minari.load_dataset({first!r})\n```",
        "With Minari alone (`pip install 'minari[hf,hdf5]'`): "
        f'`minari.download_dataset("hf://{repository.user}/{first}")`.',
        "Every file of a dataset is listed in the manifest.json beside its data/ with its size and "
        "SHA-256, by which `element pull` checks it.",
    ]
    return "\n\n".join(parts) + "\n"


def _count(about: Mapping[str, Any], name: str) -> int:
    value = about.get(name)
    return value if isinstance(value, int) else 0


def _coverage(about: Mapping[str, Any]) -> str:
    """Cells of its map that the dataset covers, where it says so."""
    cells = _holdings(about).get("coverage")
    return f"{cells:,}" if isinstance(cells, int) else "–"


def _upright(about: Mapping[str, Any]) -> str:
    share = _holdings(about).get("upright_share")
    return f"{share:.0%}" if isinstance(share, int | float) else "–"


def _holdings(about: Mapping[str, Any]) -> Mapping[str, Any]:
    found = about.get("element_rl")
    return found if isinstance(found, Mapping) else {}
