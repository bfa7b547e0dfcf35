"""The comparison with other trainers: ratios are taken within a round, and the kNN bonus of the
peer is what it says."""

import numpy as np
import pytest

from benchmarks import bench_training_peers as bench
from benchmarks.training_contenders import bonus_buffer_class

SOURCE = {"machine": "a machine", "versions": "some versions", "commit": "abc", "date": "today"}


def test_ratios_are_taken_within_a_round_and_against_the_faster_sb3() -> None:
    rates = {
        bench.PLAIN: [100.0, 50.0, 100.0],
        "ours, ELEMENT, 5 remembered": [90.0, 45.0, 80.0],
        bench.SBX: [50.0, 25.0, 40.0],
        bench.SB3_ONE: [20.0, 10.0, 20.0],
        bench.SB3_TWO: [10.0, 5.0, 10.0],
    }
    summary = bench.summarise(rates)
    row = summary["ours, ELEMENT, 5 remembered"]
    # of 0.9, 0.9, 0.8: the slow round does not count against ELEMENT
    assert row["of_plain"] == pytest.approx(0.9)
    assert row["of_plain_low"] == pytest.approx(0.8)
    assert row["of_sbx"] == pytest.approx(1.8)  # of 1.8, 1.8, 2.0
    assert row["of_sb3"] == pytest.approx(4.5)  # of 4.5, 4.5, 4.0, against one thread
    assert row["of_sb3_as_it_comes"] == pytest.approx(9.0)  # two threads
    assert row["pooled"] == pytest.approx(3 / (1 / 90 + 1 / 45 + 1 / 80))
    table = bench.render(
        {
            "summary": summary,
            "settings": {"env": "Ant-v5", "rounds": 3},
            "load": [0.5, 1.0],
            "processor_share": {"a": [1.2]},
            "source": SOURCE,
        }
    )
    assert "more than 1.2 of the cores" in table
    assert (
        "| **ours, ELEMENT, 5 remembered** | 80 | 45–90 | 1.80 | – | 9.00 | 4.50 | 10.0 % |"
        in table
    )


def test_bonus_of_the_peer_is_the_distance_to_its_three_nearest() -> None:
    pytest.importorskip("torch", reason="the peers are not installed: pip install -e '.[sb3]'")
    pytest.importorskip(
        "stable_baselines3", reason="the peers are not installed: pip install -e '.[sb3]'"
    )
    from gymnasium.spaces import Box

    observations, actions = Box(-1, 1, (27,), np.float64), Box(-1, 1, (8,), np.float32)
    buffer = bonus_buffer_class(100)(10, observations, actions, device="cpu")
    generator = np.random.default_rng(0)
    for _ in range(10):
        observation, following = generator.normal(size=(2, 1, 27))
        buffer.add(
            observation, following, np.zeros((1, 8)), np.array([5.0]), np.array([False]), [{}]
        )
    batch = buffer.sample(4)
    states = batch.next_observations.float().numpy() @ buffer.projection.numpy()
    distances = np.sort(
        np.linalg.norm(states[:, None] - buffer.memory.numpy()[None], axis=2), axis=1
    )[:, :3]
    np.testing.assert_allclose(
        batch.rewards[:, 0], np.log1p(np.linalg.norm(distances, axis=1)), rtol=1e-4
    )
