"""The benchmarks measure what they say: tiny runs on recorded episodes, and tables that are
replaced, not appended."""

import itertools
import os
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from benchmarks import (
    bench_entropy,
    bench_memory,
    bench_memory_growth,
    bench_spaced_memory,
    memory_tables,
    tables,
    trajectories,
    walk,
)
from benchmarks.neighbour_indexes import CANDIDATES
from benchmarks.one_core import MeasurementError, on_one_core
from element_rl.memory.spaced import COVER

SOURCE = {"machine": "a machine", "versions": "some versions", "commit": "abc", "date": "today"}


@pytest.fixture(scope="module")
def episodes() -> list[np.ndarray]:
    recorded = itertools.islice(trajectories._episodes(seed=7), 6)
    return [trajectories.encode(episode) for episode in recorded]


def test_recording_is_what_gymnasium_gives() -> None:
    seed = 3
    recorded = next(trajectories._episodes(seed))
    environment = gymnasium.make("Ant-v5", include_cfrc_ext_in_observation=False)
    observation, info = environment.reset(seed=seed)
    generator = np.random.default_rng(seed)
    actions = trajectories._smooth_actions(generator, generator.uniform(0.0, 0.95), 8)
    rows = [np.r_[info["x_position"], info["y_position"], observation]]
    for action in actions:
        observation, _, terminated, truncated, info = environment.step(action)
        rows.append(np.r_[info["x_position"], info["y_position"], observation])
        if terminated or truncated:
            break
    np.testing.assert_array_equal(recorded, np.array(rows, np.float32))


def test_recordings_are_cached_and_repeat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trajectories, "CACHE", tmp_path)
    monkeypatch.setattr(trajectories, "SHARD_STATES", 100)
    for number in range(3):
        trajectories._record_shard(number)
    small, large = trajectories.remembered_states(150), trajectories.remembered_states(250)
    assert small.shape == (150, trajectories.STATE_SIZE)
    np.testing.assert_array_equal(small, large[:150])


def test_states_are_embedding_position_orientation(episodes: list[np.ndarray]) -> None:
    quaternion = episodes[0][:, 7:]
    np.testing.assert_allclose(np.linalg.norm(quaternion, axis=1)[1:], 1.0, atol=1e-5)


@pytest.mark.parametrize("name", ["exact", "graph", "hnsw", "faiss-flat"])
def test_memory_row(
    name: str, episodes: list[np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_memory, "CACHE", tmp_path)
    states, queries = np.concatenate(episodes[:-1]), episodes[-1]
    truth = bench_memory.true_neighbours(states, queries)
    row = bench_memory.measure(name, states, queries, truth, repeats=2, saved=tmp_path / name)
    assert row["recall"] == pytest.approx(
        1.0, abs=0.2 if name == "hnsw" else 1.0 if name == "graph" else 0.0
    )
    assert row["memory_bytes"] >= states.nbytes
    assert len(row["cpu_us_per_query"]) == 2
    if CANDIDATES[name].ours:  # the saved index answers as the first did
        again = bench_memory.measure(name, states, queries, truth, repeats=1, saved=tmp_path / name)
        assert (again["recall"], again["bias"]) == (row["recall"], row["bias"])


def test_spaced_memory_row(episodes: list[np.ndarray]) -> None:
    states, asked = np.concatenate(episodes[:-1]), episodes[-1]
    row = bench_spaced_memory.measure(states, asked, capacity=32)
    assert 2 <= row["kept"] <= 32
    assert 0 <= row["excess"] <= row["largest"] <= COVER
    assert row["thinned"] >= 1
    table = bench_spaced_memory.render([{"robot": "Ant"} | row])
    assert "| Ant, 32 |" in table
    # tenths of 1 s, but 3 s in the fifth and 6 s in the last
    seconds = [1.0] * 40 + [3.0] * 10 + [1.0] * 40 + [6.0] * 10
    assert bench_spaced_memory.growth(seconds, 0) == 6.0
    assert bench_spaced_memory.growth(seconds, 4) == 2.0


def test_reward_quality_by_hand() -> None:
    truth = np.array([[3.0, 4.0, 0.0]]), np.array([[1, 2, 3]])
    answer = np.array([[4.0, 3.0, 0.0], [0.0, 0.0, np.inf]]), np.array([[1, 9, 3], [1, 2, -1]])
    both = np.repeat(truth[0], 2, axis=0), np.repeat(truth[1], 2, axis=0)
    with (
        np.errstate(all="ignore"),
        pytest.warns(RuntimeWarning),
    ):  # one known pair has no correlation
        quality = bench_memory.reward_quality(answer, both)
    assert quality["recall"] == pytest.approx(4 / 6)
    assert quality["bias"] == pytest.approx(1.0)
    assert quality["incomplete"] == pytest.approx(0.5)


def test_growth_at_a_fixed_recall_by_hand() -> None:
    def point(candidates: int, recall: float, cost: float) -> dict:
        return {
            "candidates": candidates,
            "recall": recall,
            "us": [cost] * 3,
            "distances": 10 * cost,
        }

    small = {"size": 10**5, "chosen": 96, "curve": [point(64, 0.96, 20.0), point(96, 1.0, 40.0)]}
    large = {"size": 10**7, "chosen": 64, "curve": [point(64, 0.98, 36.0), point(96, 1.0, 50.0)]}
    first, second = bench_memory_growth.render([small, large]).splitlines()[2:4]
    assert first.split(" | ")[1:6] == [
        "×1.00",
        "30",
        "×1.00",
        "300",
        "×1.00",
    ]  # halfway between 20 and 40
    assert second.split(" | ")[1:8] == ["×1.40", "36", "×1.20", "360", "×1.20", "36", "×1.80"]


def test_failing_row_is_a_row(episodes: list[np.ndarray]) -> None:
    row = {"index": "usearch", "size": 10, "made_with": SOURCE, "error": "MemoryError: | no"}
    assert "failed: MemoryError: / no" in memory_tables.render_indexes([row])


def test_failure_in_the_measuring_process_is_told(tmp_path: Path) -> None:
    assert on_one_core(len, "abc") == 3
    with pytest.raises(MeasurementError, match="FileNotFoundError"):
        on_one_core(np.load, str(tmp_path / "absent.npy"))
    with pytest.raises(MeasurementError, match="died"):
        on_one_core(os._exit, 3)


def test_entropy_rows(episodes: list[np.ndarray]) -> None:
    longest = max(episodes, key=len)[:60]
    rows = bench_entropy.measure(longest, repeats=2)
    assert len({row["estimator"] for row in rows}) == len(rows) == 7
    assert all(row["relative_error"] < 1e-4 for row in rows)
    assert all(row["fastest"] <= row["milliseconds"] <= row["slowest"] for row in rows)
    assert "Rényi order 3" in bench_entropy.render(rows, SOURCE)


def test_table_is_replaced_between_its_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# Title\n<!-- begin a -->\nold\n<!-- end a -->\nbetween\n<!-- begin b -->\n<!-- end b "
        "-->\nlast\n"
    )
    for text in (
        "first",
        tables.markdown_table(["name", "value"], [["x", tables.significant(0.5)]]),
    ):
        tables.replace_table(page, "a", text)
    content = page.read_text()
    assert "old" not in content
    assert "first" not in content
    assert content.startswith(
        "# Title\n<!-- begin a -->\n| name | value |\n| --- | ---: |\n| x | 0.5 |\n<!-- end a "
        "-->\nbetween"
    )
    assert content.endswith("<!-- begin b -->\n<!-- end b -->\nlast\n")
    with pytest.raises(ValueError, match="no markers '<!-- begin c -->'"):
        tables.replace_table(page, "c", "text")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.12345, "0.123"), (12.345, "12.3"), (12345.6, "12,346"), (1e-5, "1.0e-05")],
)
def test_significant(value: float, text: str) -> None:
    assert tables.significant(value) == text


def test_a_walk_counts_what_is_called() -> None:
    seen = walk.walk_sb3()
    names = {(file.relative_to(walk.PACKAGE).as_posix(), name) for file, name in seen}
    assert ("integrations/sb3_replay.py", "IntrinsicReplayBuffer.add") in names
    assert ("rewards/element.py", "ElementReward.observe") in names
    assert not any("__init__" in name and file.startswith("integrations") for file, name in names)
    text = walk.report("sb3", seen)
    assert text.startswith(f"sb3: {len(seen)} functions, {len({file for file, _ in seen})} files, ")
    assert f"integrations/sb3_replay.py{'':>14}" in text
    assert walk.called(lambda: None) == set()
