"""metrics.csv as it grows: each look reads what came since the one before, and nothing twice.

A resumed run goes back to its checkpoint and puts a shorter file in the place of the old one. Then
everything is read again, once. It is told by the file's identity, by its size, and by the last
bytes that were read, which must still be where they were.
"""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from element_rl.storage.files import FileError

MOST_BYTES = 2**21  # in one go: about ten thousand lines, a tenth of a second
REMEMBERED = 64  # bytes at the end of what was read
NEEDED = ("step", "seed")

Columns = dict[str, np.ndarray]  # name → values [N], NaN where a field is empty


class Look(NamedTuple):
    """What one look has found."""

    again: bool  # whether the file begins anew, and what was read before no longer counts
    rows: Columns | None  # the next lines; None: there are no more for now


class MetricsTail:
    """metrics.csv at `path`, whether it is there yet or not."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._identity: tuple[int, int] | None = None  # of the file that was read
        self._offset, self._lines = 0, 0  # how much of it
        self._last = b""  # the bytes before that place
        self._header: list[str] = []
        self._damage: str | None = None
        self._damaged_as_of = (0, 0)  # size and time of the file that was

    def look(self) -> Look:
        """The next lines, some megabytes at most: call it until there are none. A file that is
        damaged is a `FileError`; it is read again from there when it has changed."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return Look(self._forget(), None)
        except OSError as error:
            raise FileError(f"{self.path} cannot be read ({error.strerror or error}).") from error
        with file:
            again = self._is_another(file) and self._forget()
            status = os.fstat(file.fileno())
            self._identity = (status.st_dev, status.st_ino)
            written = (status.st_size, status.st_mtime_ns)
            if self._damage is not None and written == self._damaged_as_of:
                raise FileError(self._damage)
            self._damage, self._damaged_as_of = None, written
            file.seek(self._offset)
            data = file.read(MOST_BYTES)
            complete = data[: data.rfind(b"\n") + 1]
            if not complete and len(data) == MOST_BYTES:
                raise self._damaged("has a line without an end")
            return Look(again, self._parsed(complete) if complete else None)

    def _is_another(self, file: BinaryIO) -> bool:
        status = os.fstat(file.fileno())
        if self._identity is None:
            return False
        if self._identity != (status.st_dev, status.st_ino) or status.st_size < self._offset:
            return True
        file.seek(self._offset - len(self._last))
        return file.read(len(self._last)) != self._last

    def _forget(self) -> bool:
        """Begins again; whether anything had been read."""
        had = self._offset > 0 or self._damage is not None
        self._identity, self._damage = None, None
        self._offset, self._lines, self._last, self._header = 0, 0, b"", []
        return had

    def _parsed(self, block: bytes) -> Columns:
        """Whole lines as columns; those of the first block begin with the header."""
        end, lines = self._offset + len(block), self._lines + block.count(b"\n")
        last = (self._last + block)[-REMEMBERED:]
        header, first = self._header, self._lines + 1
        if not header:
            names, _, block = block.partition(b"\n")
            header, first = self._names(names), first + 1
        columns = self._columns(block, header, first)
        # only now: what is damaged is read again when it is mended
        self._offset, self._lines, self._last, self._header = end, lines, last, header
        return columns

    def _names(self, line: bytes) -> list[str]:
        names = line.decode(errors="replace").strip("\r").split(",")
        for name in NEEDED:
            if name not in names:
                raise self._damaged(f"has no column {name}")
        return names

    def _columns(self, block: bytes, header: Sequence[str], first: int) -> Columns:
        """Of lines that begin with the number `first`."""
        width = len(header)
        if not block:
            return {name: np.zeros(0) for name in header}
        characters = np.frombuffer(block, np.uint8)
        commas = np.cumsum(characters == ord(","))[characters == ord("\n")]
        fields = np.diff(commas, prepend=0) + 1
        if len(wrong := np.flatnonzero(fields != width)):
            number, found = first + int(wrong[0]), int(fields[wrong[0]])
            raise self._damaged(
                f"is damaged in line {number} ({found} fields, {width} columns): remove that line"
            )
        text = b"," + block.replace(b"\n", b",")
        for _ in range(2):  # of three commas in a row the first pass mends every second gap
            text = text.replace(b",,", b",nan,")
        parts = text[1:-1].split(b",")
        values = self._numbers(parts, header).reshape(-1, width)
        columns = dict(zip(header, values.T, strict=True))
        for name in NEEDED:
            if not (np.abs(columns[name]) < 2**53).all():  # nor is NaN
                raise self._damaged(f"holds something else than whole numbers in column {name}")
        return columns

    def _numbers(self, parts: Sequence[bytes], header: Sequence[str]) -> np.ndarray:
        with contextlib.suppress(ValueError):
            return np.fromiter(map(float, parts), np.float64, len(parts))
        for place, part in enumerate(parts):
            try:
                float(part)
            except ValueError:
                name = header[place % len(header)]
                break
        raise self._damaged(f"holds something else than numbers in column {name}")

    def _damaged(self, how: str) -> FileError:
        """Says it now, and at every look until the file has changed."""
        self._damage = f"{self.path} {how}."
        return FileError(self._damage)
