"""Events files, read back with their checksums as TensorBoard does."""

import struct
from pathlib import Path

import numpy as np
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.record_writer import masked_crc32c

from element_rl.runs.folder import RunFolder
from element_rl.runs.metrics_log import first_records, metric_records


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
