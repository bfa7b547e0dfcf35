"""Cards: YAML that others read, numbers that are those of the run, no path of this machine."""

import json
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import yaml
from huggingface_hub import DatasetCard, ModelCard, metadata_eval_result, metadata_load
from support.known_checkpoints import row
from support.small_hub import SETTINGS, known_run, pushed

from element_rl.hub.dataset_card import dataset_card
from element_rl.hub.paths import without_folders, without_paths
from element_rl.hub.repository import Repository
from element_rl.hub.run_card import mean_and_deviation, run_card
from element_rl.hub.run_files import command_that_made
from element_rl.hub.yaml_text import yaml_text
from element_rl.runs.folder import RunFolder
from element_rl.storage.files import read_arrays, to_json, write_arrays, write_json
from element_rl.training.encoder.config import PretrainConfig
from element_rl.training.finetune.config import FinetuneConfig
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.offline.config import OfflineConfig
from element_rl.training.on_policy.config import OnPolicyConfig

SUMMARY = {
    "env": "Ant-v5",
    "reward": "element",
    "steps": 20,
    "seeds": [0, 1, 2],
    "wall_seconds": 3.0,
    "coverage": [10, 20, 60],
    "episodic_entropy": [1.5, None, 2.5],
    "extrinsic_return": [-1.0, 0.0, 1.0],
    "versions": {"python": "3.12.1", "element_rl": "0.1.0", "mujoco": None},
    "commit": "abc123",
    "random_policy": {"coverage": [5], "seeds": [0]},
}


def _no_list_in_a_list(items: list[Any]) -> bool:
    return not any(isinstance(item, list) and item for item in items)


TEXTS = st.text(st.characters(codec="utf-8"), max_size=20) | st.sampled_from(
    ["yes", "no", "null", "1e3", "0x1f", "- a", "a: b", "# x", "{", "'", '"', "\n", "\u2028", "~"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3).filter(_no_list_in_a_list)
    | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=10,
)  # fmt: skip


@hypothesis.settings(max_examples=40)
@hypothesis.given(st.dictionaries(TEXTS, VALUES, min_size=1, max_size=4))
def test_yaml_is_read_back(value: dict[str, Any]) -> None:
    assert yaml.safe_load(yaml_text(value)) == value


def test_means_by_hand() -> None:
    assert mean_and_deviation([10, 20, 60]) == (30.0, pytest.approx(26.45751311), 3)
    assert mean_and_deviation([1.5, None, 2.5]) == (2.0, pytest.approx(0.5**0.5), 2)
    assert mean_and_deviation([4.0]) == (4.0, 0.0, 1)
    assert mean_and_deviation([None]) is None


def test_the_model_index_is_what_the_hub_reads(tmp_path: Path) -> None:
    run = known_run(tmp_path / "run", env="Ant-v5")
    run.write_summary(SUMMARY)
    repository = Repository("run", "alice", "ant-explorer")
    files = ["figures/coverage.png", "figures/entropy.png", "replay.mp4"]
    text = run_card(run, repository, files, "element explore Ant-v5 --steps 20")
    (tmp_path / "README.md").write_text(text)
    card = ModelCard(text)
    assert card.data.library_name == "element-rl"
    assert card.data.pipeline_tag == "reinforcement-learning"
    assert {"exploration", "Ant-v5", "element"} <= set(card.data.tags)
    assert card.data.model_name == "ant-explorer"
    results = {result.metric_type: result for result in card.data.eval_results}
    assert {name: result.metric_value for name, result in results.items()} == {
        "coverage": "30.00 +/- 26.46",
        "episodic_entropy": "2.00 +/- 0.71",
        "mean_reward": "0.00 +/- 1.00",
    }
    assert {result.dataset_name for result in results.values()} == {"Ant-v5"}
    loaded = metadata_load(tmp_path / "README.md")
    assert loaded is not None
    (entry,) = loaded["model-index"]
    theirs = metadata_eval_result(
        model_pretty_name="ant-explorer",
        task_pretty_name="reinforcement-learning",
        task_id="reinforcement-learning",
        metrics_pretty_name="x",
        metrics_id="coverage",
        metrics_value="30.00 +/- 26.46",
        dataset_pretty_name="Ant-v5",
        dataset_id="Ant-v5",
    )["model-index"][0]
    for part in ("task", "dataset"):
        assert entry["results"][0][part] == theirs["results"][0][part]
    assert "| coverage (cells) | 30.00 ± 26.46 | 5.00 |" in text
    assert "element explore Ant-v5 --steps 20" in text
    assert text.index("figures/coverage.png") < text.index("## Use it")
    for part in ("element pull alice/ant-explorer", "- Commit: abc123", "(replay.mp4)"):
        assert part in text


def test_a_run_that_is_not_finished_has_no_results(tmp_path: Path) -> None:
    card = ModelCard(
        (pushed(tmp_path / "hub", known_run(tmp_path / "run")) / "README.md").read_text()
    )
    assert card.data.eval_results is None
    assert "was not finished when it was pushed" in card.text
    assert "## How it was made" not in card.text  # its settings do not tell


def test_strange_names_are_text(tmp_path: Path) -> None:
    """They break neither the head of a card nor its tables."""
    env = 'a"b\n---\n# `x` | <script>: \u2028é'
    run = known_run(tmp_path / "run", env=env, reward="`$(rm)`\n```")
    run.write_summary(SUMMARY | {"env": env})
    card = ModelCard(run_card(run, Repository("run", "alice", "x"), [], ""))
    assert card.data.eval_results[0].dataset_name == env
    assert "<script>" not in card.text
    assert "\n---" not in card.text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("/home/alice/ant.xml", "ant.xml"),
        ("xml_file=/home/alice/deep er/ant.xml", "xml_file=deep er/ant.xml"),
        ("/home/alice smith/my runs/x", "x"),
        ("/home/alice/reward.py:curious", "reward.py:curious"),
        ("C:\\Users\\alice\\x.py:f", "x.py:f"),
        ("~/datasets/a", "a"),
        ('{"xml_file": "/home/alice/a.xml", "n": 1}', '{"xml_file": "a.xml", "n": 1}'),
        ("runs/hopper", "runs/hopper"),
        ("hopper/element-v0", "hopper/element-v0"),
        ("https://example.org/a/b", "https://example.org/a/b"),
        ("return / steps", "return / steps"),
        ("m/s", "m/s"),
        ("my_envs:MyEnv-v0", "my_envs:MyEnv-v0"),
        ("", ""),
    ],
)
def test_paths_lose_their_folders(text: str, left: str) -> None:
    assert without_folders(text) == left
    assert without_paths({"a": [text, 3, None]}) == {"a": [left, 3, None]}


def test_the_home_folder_is_named_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "alice the user"
    monkeypatch.setenv("HOME", str(home))
    settings = SETTINGS | {"env_options": [f"xml_file={home}/ant.xml"], "root": str(home / "data")}
    run = known_run(home / "run", settings=settings, reward=f"{home}/reward.py:f")
    run.write_summary(SUMMARY | {"transferred_from": str(home / "run")})
    origin = json.dumps({"trained": True, "from": str(home / "enc")})
    arrays = {"weight": np.arange(6.0, dtype=np.float32)}
    write_arrays(run.path / "encoder" / "encoder.safetensors", arrays, {"origin": origin})
    run.append_metrics([row(10, 0), row(20, 0)])
    with run.metrics_path.open("a") as file:
        file.write("30,0,half a li")
    folder = pushed(tmp_path / "hub", run)
    for file in folder.rglob("*"):
        assert not file.is_file() or b"alice the user" not in file.read_bytes(), file
    pushed_config = json.loads((folder / "config.json").read_text())
    assert pushed_config["settings"]["env_options"] == ["xml_file=ant.xml"]
    assert pushed_config["reward"] == "reward.py:f"
    pushed_arrays, metadata = read_arrays(folder / "encoder" / "encoder.safetensors")
    np.testing.assert_array_equal(pushed_arrays["weight"], arrays["weight"])
    assert json.loads(metadata["origin"]) == {"trained": True, "from": "enc"}
    assert RunFolder.open(folder).read_metrics()["step"].tolist() == [10, 20]


def test_a_card_of_datasets() -> None:
    about = {
        "total_steps": 20_000,
        "total_episodes": 7,
        "env_spec": '{"id": "Hopper-v5"}',
        "description": "What | they *did*.",
    }
    card = DatasetCard(
        dataset_card(
            Repository("dataset", "alice", "hopper"), {"hopper/a-v0": about, "hopper/b-v0": {}}
        )
    )
    assert card.data.task_categories == ["reinforcement-learning"]
    assert card.data.size_categories == ["10K<n<100K"]
    assert "minari" in card.data.tags
    assert "| `hopper/a-v0` | Hopper-v5 | 20,000 | 7 |" in card.text
    assert 'minari.download_dataset("hf://alice/hopper/a-v0")' in card.text
    assert "element pull datasets/alice/hopper/a-v0" in card.text


COMMANDS: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "element explore Ant-v5 --steps 20 --seeds 2": (
        {"kind": "explore", "settings": ExploreConfig("Ant-v5", steps=20, seeds=2)},
        None,
    ),
    "element on-policy Rooms-v0 --steps 20 --encoder enc": (
        {
            "kind": "on-policy",
            "settings": OnPolicyConfig("Rooms-v0", steps=20, encoder=Path("/home/alice/enc")),
        },
        None,
    ),
    "element offline a/b-v0 c --algorithm bc --score-range 0.0 2.5": (
        {
            "kind": "offline",
            "settings": OfflineConfig(
                ("a/b-v0", "/home/alice/c"), algorithm="bc", score_range=(0.0, 2.5)
            ),
        },
        None,
    ),
    "element pretrain-encoder Rooms-v0 --steps 50": (
        {"kind": "encoder", "settings": PretrainConfig("Rooms-v0", steps=50)},
        None,
    ),
    "element finetune car --episodes 3": (
        {"kind": "explore", "settings": ExploreConfig("Ant-v5")},
        {"config": FinetuneConfig(Path("/home/alice/car"), episodes=3)},
    ),
    "": ({"kind": "explore", "settings": {"env": "Ant-v5"}}, None),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_that_made_a_run(command: str, tmp_path: Path) -> None:
    config, transfer = COMMANDS[command]
    run = RunFolder.create(tmp_path / "run", without_paths(to_json(config)))
    if transfer is not None:
        write_json(run.path / "transfer.json", without_paths(to_json(transfer)))
    assert command_that_made(run) == command
