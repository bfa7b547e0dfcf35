"""Two checkouts are compared by the same short runs; here both are this one."""

from pathlib import Path

from benchmarks.bench_versions import Settings, main

ROOT = Path(__file__).parents[2]


def test_a_version_beside_itself() -> None:
    ratios = main(Settings(ROOT, ROOT, "PointMaze-v0", ("extrinsic",), steps=1_600, rounds=1))
    assert list(ratios) == ["extrinsic"]
    assert 0 < ratios["extrinsic"][0] < 100
