"""Where a run comes from."""

import json

import faiss
import jax
import numpy as np
import pytest

from element_rl.runs import provenance

CONFIG = {"env": "Ant-v5", "reward": "element", "beta": 0.5, "steps": 1000, "seeds": 2}


def test_config_difference_names_fields_and_both_values() -> None:
    assert (
        provenance.config_difference(CONFIG, CONFIG | {"steps": 5, "out": "x", "resume": "y"})
        is None
    )
    new = CONFIG | {"beta": 0.7, "sac": {"width": 256}}
    assert provenance.config_difference(CONFIG | {"sac": {"width": 64}}, new) == (
        "The run was started with other settings (beta was 0.5 and is 0.7, sac.width was 64 and is "
        "256): "
        "resume it with its own, or choose another --out."
    )
    assert "sac.width was absent and is 256" in (provenance.config_difference(CONFIG, new) or "")
    assert provenance.config_difference(CONFIG, new, may_differ=("beta", "sac")) is None


def test_versions_commit_and_hardware() -> None:
    versions = provenance.versions()
    assert versions["jax"] == jax.__version__
    assert versions["numpy"] == np.__version__
    assert versions["faiss"] == faiss.__version__
    assert all(versions.values())
    commit = provenance.commit()
    assert commit is None or len(commit.removesuffix("-dirty")) == 40
    hardware = provenance.hardware()
    assert hardware["cpu_count"] >= 1
    assert hardware["cpu_model"]
    assert hardware["devices"] == [device.device_kind for device in jax.devices()]
    json.dumps([versions, commit, hardware])


def test_commit_is_none_without_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert provenance.commit() is None


def test_settings_are_compared_as_they_are_written() -> None:
    now = CONFIG | {"clip": np.inf, "width": np.int64(3), "bounds": ((-1.0, 1.0), (0, 2))}
    written = CONFIG | {"clip": None, "width": 3, "bounds": [[-1.0, 1.0], [0, 2]]}
    assert provenance.config_difference(written, now) is None


def test_in_words() -> None:
    assert provenance.hardware_text(None) == "unknown"
    found = {"cpu_count": 16, "cpu_model": "A", "devices": ["H", "H"]}
    assert provenance.hardware_text(found) == "16 CPUs (A), H"
    assert provenance.hardware_text(found | {"devices": ["cpu"]}) == "16 CPUs (A)"
    assert (
        provenance.versions_text({"python": "3.11.7", "jax": "0.10.2", "faiss": None})
        == "python 3.11.7, jax 0.10.2"
    )
