"""Kernels of Warp are compiled without polish: they run for a moment."""

import pytest

from element_rl.worlds.warp_loading import import_warp


@pytest.fixture(scope="session", autouse=True)
def _quickly_compiled() -> None:
    import_warp()[0].config.optimization_level = 0
