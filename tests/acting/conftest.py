"""Environments of the collector's tests."""

from collections.abc import Iterator

import gymnasium
import pytest
from support import acting_probes


@pytest.fixture(scope="module")
def probe_environments() -> Iterator[None]:
    acting_probes.register_probes()
    yield
    for name in ("Counter", "Endless"):
        del gymnasium.registry[f"element-tests/{name}-v0"]
