"""Every test runs with shapes and types checked, implicit rank promotion forbidden and warnings as
errors.

Most of a test's time is compiling. Many tests need the same programs: what one process has
compiled, the others load. And XLA is told not to polish machine code that runs for a moment, to
write it with the simpler of its two emitters, and not to divide it among threads that have no
processor; what it makes of a program before that is what users get. Files that take long begin: one
that is left to the end leaves a processor idle. The others are marked `fast` (`make test-fast`).
"""

import atexit
import contextlib
import ctypes
import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
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

# Files that take more than about five seconds, longest first: they begin, and are not `fast`.
SLOW = (
    "training/off_policy/test_explore",
    "studies/test_cluster",
    "studies/test_runner",
    "runs/test_kills",
    "worlds/test_warp_worlds",
    "training/off_policy/test_worlds",
    "training/off_policy/test_several_devices",
    "docs/test_code_blocks",
    "studies/test_screens",
    "commands/test_study",
    "tracking/test_trackers",
    "tracking/test_every_command",
    "tracking/test_endings",
    "test_entropy",
    "training/offline/test_training",
    "training/on_policy/test_ppo_rewards",
    "training/on_policy/test_ppo",
    "agents/test_ppo",
    "agents/test_ppo_twin",
    "rewards/test_reaches_the_learner",
    "training/off_policy/test_choices",
    "commands/test_one_door",
    "training/off_policy/test_sums",
    "rewards/test_composite",
    "doctor/test_doctor",
    "memory/test_memories",
    "memory/test_spaced",
    "studies/test_so_far",
    "rewards/test_contract",
    "training/off_policy/test_learner",
    "commands/test_cli",
    "integrations/test_sb3_replay",
    "training/on_policy/test_training",
    "integrations/test_sb3_rewards",
    "integrations/test_replayed",
    "studies/test_tasks",
    "test_notebooks",
    "docs/test_documents",
    "hub/test_round_trips",
    "training/finetune/test_comparison",
    "commands/test_own_environments",
    "rewards/test_on_rollouts",
    "docs/test_site",
    "agents/test_acting_agents",
    "golden/test_golden",
    "docs/test_commands",
    "evaluate/test_robot_video",
    "evaluate/test_side_by_side",
    "plots/test_plots_seen",
    "commands/test_on_policy",
    "rewards/test_element",
    "training/offline/test_screens",
    "integrations/test_sb3_rollouts",
    "training/finetune/test_screens",
    "benchmarks/test_bench_sb3",
    "integrations/test_rollouts",
    "studies/test_maze",
    "training/finetune/test_transfer",
    "studies/test_figures",
    "datasets/collecting/test_screens",
    "datasets/collecting/test_interruptions",
    "plots/test_plots",
    "training/encoder/test_pretrain",
    "studies/test_report_in_browser",
    "agents/test_a3c",
    "evaluate/test_screens",
    "watch/test_in_browser",
    "rewards/test_make_reward",
    "test_packaging",
    "agents/test_cql",
    "agents/test_against_d3rlpy",
    "agents/test_iql",
    "agents/test_td3_bc",
    "rewards/test_element_on_policy",
    "datasets/collecting/test_datasets",
    "memory/test_graph",
    "rewards/test_entropy_range",
    "training/off_policy/test_view",
    "training/off_policy/test_inputs",
    "training/off_policy/test_warm_up",
    "training/off_policy/test_latents",
    "training/off_policy/test_running",
    "integrations/test_latents",
    "worlds/test_collector",
    "rewards/test_whole_replay",
    "rewards/test_element_paper",
    "training/on_policy/test_hanging",
    "commands/test_refusals",
    "test_foreign",
    "studies/test_report_seeds",
    "benchmarks/test_bench_versions",
    "benchmarks/test_policies_across_physics",
    "benchmarks/test_bench_ngu_half_life",
    "benchmarks/test_bench_pool_correlation",
    "benchmarks/test_parity_warp",
    "runs/test_strangers",
    "runs/test_damaged_json",
    "test_entropy_variation",
    "rewards/test_ngu",
)


MOST_RESIDENT = 4 * 2**30  # bytes of a test process; two of them, and what they start, share 24 GiB


def pytest_configure(config: pytest.Config) -> None:
    # pytest-xdist would begin with the files that have most tests
    config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {name: place for place, name in enumerate(SLOW)}
    place_of = {item: order.get(_file_of(item), len(SLOW)) for item in items}
    items.sort(key=place_of.__getitem__)
    for item in items:
        if place_of[item] == len(SLOW):
            item.add_marker(pytest.mark.fast)


@pytest.fixture(scope="module", autouse=True)
def _bounded_memory() -> Iterator[None]:
    """A process keeps every program that it has compiled, and thousands of tests would fill the
    memory: once they take much, they are let go when a file of tests is done. (The cache on the
    disk has them still.)"""
    yield
    if _resident_bytes() > MOST_RESIDENT:
        jax.clear_caches()
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):  # glibc keeps what is freed, until told
            ctypes.CDLL("libc.so.6").malloc_trim(0)


def _resident_bytes() -> int:
    """Memory that this process holds; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _file_of(item: pytest.Item) -> str:
    """As in SLOW: its path from here, without its ending."""
    return Path(item.path).relative_to(Path(__file__).parent).with_suffix("").as_posix()
