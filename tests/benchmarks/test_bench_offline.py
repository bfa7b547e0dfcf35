"""The benchmarks of offline learning measure what they say: tiny runs."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import bench_offline, bench_offline_peers, check_offline


def test_updates_per_second(tmp_path: Path) -> None:
    settings = bench_offline.Settings(
        algorithms=("bc",),
        agents=(1, 2),
        transitions=500,
        observation_dim=3,
        action_dim=2,
        hidden_sizes=(8,),
        updates=2,
        rounds=2,
        page=False,
        out=tmp_path / "offline.json",
    )
    one, two = bench_offline.main(settings)
    assert (one["agents"], two["agents"]) == (1, 2)
    assert one["ratio"] == pytest.approx(1.0)
    assert one["lowest"] <= one["rate"] <= one["highest"]
    source = bench_offline.synthetic_source(settings)
    assert [part.count for part in source.portions] == [500] * 3
    assert len(source.episodes.transitions) == 1500


def test_recorded_episodes_and_the_verdict() -> None:
    settings = check_offline.Settings("Pendulum-v1")
    records = list(check_offline.recorded(settings, None, 300, 0))
    assert [len(record.rewards) for record in records] == [200, 200]
    assert np.abs(np.concatenate([record.actions for record in records])).max() <= 2.0
    assert all(record.truncations[-1] and not record.terminations.any() for record in records)
    scores = {
        ("medium", "cql"): 0.9,
        ("mixed", "cql"): 0.7,
        ("medium", "bc"): 1.0,
        ("mixed", "bc"): 0.4,
    }
    rows = [
        {
            "dataset": f"check/{data}-v0",
            "algorithm": algorithm,
            "data": 1.0,
            "returns": [1.0, 2.0],
            "scores": [score],
        }
        for (data, algorithm), score in scores.items()
    ]
    assert check_offline.verdict(rows).count("yes") == 2
    rows[0]["scores"] = [0.7]
    assert "medium: no. CQL above BC on mixed: yes" in check_offline.verdict(rows)
    assert "1.5 (1.0 to 2.0)" in check_offline.render(rows)


def test_processes_that_evaluate_load_no_jax() -> None:
    modules = "element_rl.acting.evaluator, element_rl.acting.episode"
    code = f"import sys, {modules}; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_two_libraries_that_never_overlap_differ_and_equal_ones_do_not() -> None:
    """Five seeds, eight evaluations: the end is the mean of the last two."""
    ramp = np.arange(8.0)
    low, high = ([[*(ramp + 10 * seed + add)] for seed in range(5)] for add in (0.0, 100.0))
    apart = {"element-rl": {"returns": low}, "d3rlpy": {"returns": high}}
    row = bench_offline_peers.compared("some/data-v0", "bc", apart)
    assert row["end"][0] == [6.5, 16.5, 26.5, 36.5, 46.5]
    assert row["all"][1] == [103.5, 113.5, 123.5, 133.5, 143.5]
    assert row["p_end"] == row["p_all"] == pytest.approx(2 / 252)
    same = {"element-rl": {"returns": low}, "d3rlpy": {"returns": low}}
    assert bench_offline_peers.compared("some/data-v0", "bc", same)["p_end"] == 1.0
    text = bench_offline_peers.render([row | {"p_end_holm": 0.02, "p_all_holm": 0.02}])
    assert "| some/data-v0, bc | 26 ± 16 | 126 ± 16 | 0.01 (0.02) | 24 ± 16 | 124 ± 16 |" in text


def test_both_libraries_are_given_the_same() -> None:
    settings = bench_offline_peers.Settings()
    rates = {settings.learning_rate}
    for algorithm in settings.algorithms:
        config = bench_offline_peers.config_of(settings, "some/data-v0", algorithm)
        own = getattr(config, algorithm.replace("-", "_"))
        named = [name for name in vars(own) if name.endswith("learning_rate")]
        used = {getattr(own, name) for name in named if name != "conservative_learning_rate"}
        assert used == rates
        assert (own.hidden_sizes, own.batch_size) == ((64, 64), 64)
        assert config.evaluate_every == settings.updates // settings.evaluations
