"""The benchmark of half-lives: shares by hand, and a tiny run that prints its tables."""

import jax.numpy as jnp
import pytest

from benchmarks import bench_ngu_half_life
from benchmarks.bench_ngu_half_life import Settings


def test_shares_by_hand() -> None:
    """Batches [0, 2] and [1, 9], half-life 1: the means are 1 and ⅓ + ⅔·5 = 11/3; of each batch
    half is above."""
    errors = jnp.asarray([[0.0, 2.0], [1.0, 9.0], [0.0, 0.0]])
    assert bench_ngu_half_life.shares(errors, 1.0, [(0, 2), (2, 3)]) == [0.5, 0.0]


def test_tables(capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings(("Hopper-v5",), (10.0,), steps=200, first_steps=50, updates=500)
    bench_ngu_half_life.main(settings)
    printed = capsys.readouterr().out
    assert "| Hopper-v5 | 0 | 10 | 50 | 100 | 200 |" in printed
    assert "| half-life | 100–500 |" in printed
