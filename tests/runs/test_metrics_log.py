"""What a run logs: exact after a round trip, cut where a checkpoint was, and named where it is
damaged; the events files beside it, read back with their checksums as TensorBoard does."""

import struct
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.record_writer import masked_crc32c

from element_rl.runs.folder import RunFolder
from element_rl.runs.metrics_log import METRIC_COLUMNS, first_records, metric_records
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


def events(data: bytes) -> list[Event]:
    found = []
    while data:
        length = struct.unpack("<Q", data[:8])[0]
        message = data[12 : 12 + length]
        assert struct.unpack("<I", data[8:12])[0] == masked_crc32c(data[:8])
        assert struct.unpack("<I", data[12 + length : 16 + length])[0] == masked_crc32c(message)
        found.append(Event.FromString(message))
        data = data[16 + length :]
    return found


def test_rows_become_scalars_of_their_seed() -> None:
    rows = [
        {"step": 100, "seed": 0, "coverage": 7, "q_mean": None, "actor_loss": float("nan")},
        {
            "step": np.int64(100),
            "seed": np.int32(3),
            "coverage": np.float32(8),
            "critic_loss": np.inf,
        },
        {"step": 200, "seed": 0},
    ]
    logged = events(metric_records(rows))
    assert [event.step for event in logged] == [100, 100, 200]
    assert all(event.wall_time > 0 for event in logged)
    scalars = [(value.tag, value.simple_value) for event in logged for value in event.summary.value]
    assert scalars == [
        ("seed_0/coverage", 7),
        ("seed_3/coverage", 8),
        ("seed_3/critic_loss", np.inf),
    ]
    assert metric_records([]) == b""


def test_a_file_begins_with_its_version_and_what_it_hides() -> None:
    (version,) = events(first_records(None))
    assert version.file_version == "brain.Event:2"
    version, start = events(first_records(101))
    assert version.file_version == "brain.Event:2"
    assert (start.step, start.session_log.status) == (101, start.session_log.START)


def test_a_resumed_run_hides_what_it_does_again(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", {})
    run.append_metrics([{"step": 100, "seed": 0, "coverage": 7}])
    run.append_metrics([{"step": 200, "seed": 0, "coverage": 9}])
    resumed = RunFolder.open(run.path)
    resumed.truncate_metrics(100)
    resumed.append_metrics([{"step": 200, "seed": 0, "coverage": 10}])
    first, second = sorted(run.path.glob("events.out.tfevents.*"))
    version, *logged = events(first.read_bytes())
    assert version.file_version == "brain.Event:2"
    assert [(event.step, event.summary.value[0].simple_value) for event in logged] == [
        (100, 7),
        (200, 9),
    ]
    version, start, again = events(second.read_bytes())
    assert (start.step, start.session_log.status) == (101, start.session_log.START)
    assert (again.step, again.summary.value[0].simple_value) == (200, 10)
