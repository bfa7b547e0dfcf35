"""Every test runs with shapes and types checked, implicit rank promotion forbidden and warnings as
errors.

Most of a test's time is compiling. Many tests need the same programs: what one process has
compiled, the others load. And XLA is told not to polish machine code that runs for a moment, to
write it with the simpler of its two emitters, and not to divide it among threads that have no
processor; what it makes of a program before that is what users get. Files that take long begin: one
that is left to the end leaves a processor idle.
"""

import atexit
import gc
import os
import shutil
import tempfile
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MUJOCO_GL", "disable")
# as in `element_rl.cli`; two processes test side by side
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# FAISS's and PyTorch's threads would wait busily for each other
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# the processes that test, and those they start, find it set
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="element-compiled-")
    atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)
for setting in (
    "xla_backend_optimization_level=0",
    "xla_cpu_use_fusion_emitters=false",
    "xla_cpu_parallel_codegen_split_count=1",
):
    if setting.partition("=")[0] not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --{setting}".strip()
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")

# tracing makes millions of objects, of which hardly any is garbage in a cycle
gc.set_threshold(100_000, 50, 100)

import pytest
from jaxtyping import install_import_hook

install_import_hook("element_rl", "beartype.beartype")

import hypothesis
import jax

jax.config.update("jax_numpy_rank_promotion", "raise")
# The same examples every time, however long one takes where others need the processors too.
hypothesis.settings.register_profile("tests", deadline=None, derandomize=True)
hypothesis.settings.load_profile("tests")

LONG = (
    "test_explore",
    "test_cluster",
    "test_runner",
    "test_reaches_the_learner",
    "test_offline",
    "test_command",
    "test_kills",
    "test_training",
    "test_so_far",
    "test_tasks",
    "test_maze",
    "test_cli",
)


def pytest_configure(config: pytest.Config) -> None:
    # pytest-xdist would begin with the files that have most tests
    config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: order.get(Path(item.path).stem, len(LONG)))
