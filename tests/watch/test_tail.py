"""metrics.csv is read once, as it grows, and from its beginning when it is another."""

import re
from pathlib import Path

import numpy as np
import pytest

from element_rl.runs.folder import RunFolder
from element_rl.storage.files import FileError
from element_rl.watch import tail
from element_rl.watch.tail import MetricsTail


def everything(reader: MetricsTail) -> tuple[bool, list[tuple[float, ...]]]:
    """What all looks until there is nothing new have found: whether it began again, and lines."""
    began_again, lines = False, []
    while True:
        again, rows = reader.look()
        if again:
            began_again, lines = True, []
        if rows is None:
            return began_again, lines
        lines += list(zip(*(values.tolist() for values in rows.values()), strict=True))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "metrics.csv"


def test_each_look_brings_what_is_new(file: Path) -> None:
    reader = MetricsTail(file)
    assert everything(reader) == (False, [])  # not there yet
    file.write_text("step,seed,coverage\n")
    assert everything(reader) == (False, [])
    with file.open("a") as rows:
        rows.write("10,0,3.5\n10,1,")
    assert everything(reader) == (False, [(10.0, 0.0, 3.5)])  # half a line is not read
    with file.open("a") as rows:
        rows.write("4\n20,0,7\n")
    assert everything(reader) == (False, [(10.0, 1.0, 4.0), (20.0, 0.0, 7.0)])
    assert everything(reader) == (False, [])


def test_empty_fields_are_nan_wherever_they_are(file: Path) -> None:
    file.write_text("a,step,seed,b,c,d\n,1,0,,,\n,2,0,,5,\n9,3,0,,,inf\n")
    _, rows = MetricsTail(file).look()
    assert rows is not None
    nan = np.nan
    np.testing.assert_array_equal(rows["a"], [nan, nan, 9])
    np.testing.assert_array_equal(rows["step"], [1, 2, 3])
    np.testing.assert_array_equal(rows["b"], [nan, nan, nan])
    np.testing.assert_array_equal(rows["c"], [nan, 5, nan])
    np.testing.assert_array_equal(rows["d"], [nan, nan, np.inf])


def test_it_reads_what_a_run_logs(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", {}, ("step", "seed", "coverage", "q_mean"))
    rng = np.random.default_rng(0)
    reader, found = MetricsTail(run.metrics_path), []
    for step in range(1, 40):
        values = [None if rng.random() < 0.3 else float(rng.normal()) for _ in range(2)]
        rows = [{"step": step, "seed": seed, "q_mean": values[seed]} for seed in range(2)]
        run.append_metrics(rows)
        if rng.random() < 0.5:
            found += everything(reader)[1]
    found += everything(reader)[1]
    logged = run.read_metrics()
    np.testing.assert_array_equal(np.array(found).T, np.stack(list(logged.values())))


def test_a_run_that_goes_back_to_its_checkpoint_is_read_again(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", {}, ("step", "seed"))
    run.append_metrics([{"step": step, "seed": 0} for step in range(1, 9)])
    reader = MetricsTail(run.metrics_path)
    assert len(everything(reader)[1]) == 8
    run.truncate_metrics(5)
    # it has grown beyond its old length by the next look
    run.append_metrics([{"step": step, "seed": 0} for step in range(6, 30)])
    again, lines = everything(reader)
    assert again
    assert [line[0] for line in lines] == list(range(1, 30))
    run.truncate_metrics(-1)
    assert everything(reader) == (True, [])
    run.metrics_path.unlink()
    assert everything(reader)[1] == []


def test_a_file_that_is_written_over_in_its_place_is_read_again(file: Path) -> None:
    file.write_text("step,seed\n1,0\n2,0\n")
    reader = MetricsTail(file)
    everything(reader)
    file.write_text("step,seed,new\n1,0,5\n2,0,6\n3,0,7\n")  # the same inode, and longer
    assert everything(reader) == (True, [(1, 0, 5), (2, 0, 6), (3, 0, 7)])
    file.write_text("step,seed,new\n1,0,5\n")
    assert everything(reader) == (True, [(1, 0, 5)])
    file.unlink()
    assert everything(reader) == (True, [])


def test_long_files_come_in_parts(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "MOST_BYTES", 64)
    file.write_text("step,seed\n" + "".join(f"{step},0\n" for step in range(100)))
    reader = MetricsTail(file)
    looks = []
    while (rows := reader.look().rows) is not None:
        looks.append(len(rows["step"]))
    assert sum(looks) == 100
    assert len(looks) > 5


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("1,0,2\n2,0\n", "is damaged in line 3 (2 fields, 3 columns): remove that line"),
        ("1,0,2\n\n", "is damaged in line 3 (1 fields, 3 columns): remove that line"),
        ("1,0,2\n2,0,x\n", "holds something else than numbers in column coverage"),
        ("1,0,2\n,0,3\n", "holds something else than whole numbers in column step"),
        ("1,0,2\n2,inf,3\n", "holds something else than whole numbers in column seed"),
    ],
)
def test_damage_is_said_until_it_is_mended(file: Path, lines: str, says: str) -> None:
    file.write_text(f"step,seed,coverage\n{lines}")
    reader = MetricsTail(file)
    for _ in range(2):
        with pytest.raises(FileError) as error:
            everything(reader)
        assert str(error.value) == f"{file} {says}."
    with file.open("a") as rows:  # the run goes on
        rows.write("3,0,4\n")
    with pytest.raises(FileError, match=re.escape(says)):
        everything(reader)
    file.write_text("step,seed,coverage\n1,0,2\n")
    assert everything(reader)[1] == [(1, 0, 2)]


def test_a_file_without_steps_is_no_metrics(file: Path) -> None:
    file.write_bytes(b"\xff\xfe,<script>\n1,2\n")
    with pytest.raises(FileError, match="has no column step"):
        MetricsTail(file).look()


def test_a_line_without_an_end_is_not_waited_for(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "MOST_BYTES", 64)
    file.write_text("step,seed\n" + "1" * 200)
    reader = MetricsTail(file)
    reader.look()
    with pytest.raises(FileError, match="has a line without an end"):
        reader.look()
