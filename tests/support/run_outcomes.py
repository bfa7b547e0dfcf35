"""What became of a run, for tests that compare two: everything but how long it took."""

import numpy as np

from element_rl.runs.folder import RunFolder

TIMING = ("env_steps_per_second", "updates_per_second", "wall_seconds")


def outcome(run: RunFolder) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Metrics without their timing, and the last policy."""
    metrics = {name: values for name, values in run.read_metrics().items() if name not in TIMING}
    return metrics, run.load_policy()


def assert_same(a: tuple[dict, dict], b: tuple[dict, dict]) -> None:
    for ours, theirs in zip(a, b, strict=True):
        assert ours.keys() == theirs.keys()
        for name in ours:
            np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
