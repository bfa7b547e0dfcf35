"""What a run logs: exact after a round trip, cut where a checkpoint was, and named where it is
damaged."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from element_rl.runs.folder import RunFolder
from element_rl.runs.metrics_log import METRIC_COLUMNS
from element_rl.storage.files import FileError

CONFIG = {"env": "Ant-v5", "reward": "element"}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", CONFIG)


def row(step: int, seed: int, **values) -> dict:
    return {"step": step, "seed": seed, **values}


def test_metrics_round_trip(run: RunFolder) -> None:
    run.append_metrics(
        [row(100, 0, coverage=7, critic_loss=np.float32(0.1)), row(100, 1, coverage=None)]
    )
    run.append_metrics(
        [row(200, 0, coverage=jnp.int32(9), critic_loss=float("nan")), row(200, 1, q_mean=1e-30)]
    )
    text = run.metrics_path.read_text().splitlines()
    assert text[0] == ",".join(METRIC_COLUMNS)
    assert text[1] == "100,0,,,,,7,,,,,0.1,,,,,,"
    metrics = RunFolder.open(run.path).read_metrics()
    assert tuple(metrics) == METRIC_COLUMNS
    np.testing.assert_array_equal(metrics["step"], [100, 100, 200, 200])
    np.testing.assert_array_equal(metrics["seed"], [0, 1, 0, 1])
    np.testing.assert_array_equal(metrics["coverage"], [7, np.nan, 9, np.nan])
    assert np.float32(metrics["critic_loss"][0]) == np.float32(0.1)
    assert metrics["q_mean"][3] == 1e-30
    assert metrics["step"].dtype == np.int64


def test_metrics_have_the_columns_they_were_created_with(tmp_path: Path) -> None:
    run = RunFolder.create(
        tmp_path / "run", CONFIG, metric_columns=(*METRIC_COLUMNS, "predictor_loss")
    )
    run.append_metrics([row(1, 0, predictor_loss=2.0)])
    reopened = RunFolder.open(run.path)
    reopened.append_metrics([row(2, 0, predictor_loss=1.0)])
    np.testing.assert_array_equal(reopened.read_metrics()["predictor_loss"], [2, 1])
    with pytest.raises(ValueError, match=r"no column novelty: name it in metric_columns"):
        run.append_metrics([row(3, 0, novelty=1.0)])
    with pytest.raises(ValueError, match=r"needs step and seed, and has only coverage"):
        run.append_metrics([{"coverage": 3}])


def test_no_metrics_yet(run: RunFolder) -> None:
    assert run.read_metrics() == {}
    run.truncate_metrics(0)
    assert not run.metrics_path.exists()


def test_truncate_drops_later_rows_and_a_line_cut_short(run: RunFolder) -> None:
    for step in (100, 200, 300):
        run.append_metrics([row(step, 0, coverage=step), row(step, 1, coverage=step)])
    with run.metrics_path.open("a") as file:
        file.write("400,0,12")
    np.testing.assert_array_equal(run.read_metrics()["step"], [100, 100, 200, 200, 300, 300])
    run.truncate_metrics(200)
    run.append_metrics([row(300, 0, coverage=5), row(300, 1)])
    np.testing.assert_array_equal(run.read_metrics()["coverage"], [100, 100, 200, 200, 5, np.nan])
    run.metrics_path.write_text("step,se")  # killed while writing the very first line
    run.truncate_metrics(0)
    run.append_metrics([row(1, 0)])
    np.testing.assert_array_equal(run.read_metrics()["step"], [1])


def test_damaged_metrics_are_named(run: RunFolder) -> None:
    run.append_metrics([row(1, 0), row(2, 0)])
    good = run.metrics_path.read_text()
    run.metrics_path.write_text(good + "3,0\n")
    with pytest.raises(
        FileError, match=r"metrics\.csv is damaged in line 4 \(2 fields, 18 columns\)"
    ):
        run.read_metrics()
    run.metrics_path.write_text(good.replace("2,0,", "2,0,many"))
    with pytest.raises(FileError, match=r"something else than numbers in column episodes"):
        run.read_metrics()
