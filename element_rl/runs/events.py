"""Metrics as TensorBoard keeps them: the bytes of an events file.

tensorboardX has a writer too. It hands its records to a background thread through a bounded queue;
when the disk is full that thread dies and the training waits for it for ever. Only its messages and
its checksum are used here, and they are imported where they are used: run folders are read without
loading them.
"""

import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def metric_records(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """One record per row of metrics; a column becomes `seed_0/coverage`, None and NaN are left out."""
    from tensorboardX.proto.summary_pb2 import Summary

    records = []
    for row in rows:
        values = [
            Summary.Value(tag=f"seed_{int(row['seed'])}/{name}", simple_value=float(value))
            for name, value in row.items()
            if name not in ("step", "seed") and value is not None and not np.isnan(float(value))
        ]
        records.append(_record(step=int(row["step"]), summary=Summary(value=values)))
    return b"".join(records)


def first_records(purge_step: int | None) -> bytes:
    """What an events file begins with; TensorBoard hides what earlier files of the run have from
    `purge_step` on."""
    from tensorboardX.proto.event_pb2 import SessionLog

    version = _record(file_version="brain.Event:2")
    if purge_step is None:
        return version
    return version + _record(step=purge_step, session_log=SessionLog(status=SessionLog.START))


def _record(**content: Any) -> bytes:
    """Length, its checksum, the message, its checksum."""
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import masked_crc32c

    message = Event(wall_time=time.time(), **content).SerializeToString()
    length = struct.pack("<Q", len(message))
    return (
        length
        + struct.pack("<I", masked_crc32c(length))
        + message
        + struct.pack("<I", masked_crc32c(message))
    )
