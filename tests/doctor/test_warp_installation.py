"""What the doctor says of MuJoCo Warp."""

from pathlib import Path

from element_rl.doctor.warp_installation import check_warp, judged

GPU = {"warp": "1.19.0", "devices": ["NVIDIA H200"], "driver": "13.0", "jax": "gpu"}


def test_it_starts_here_and_says_where_kernels_are_kept() -> None:
    finding = check_warp()
    assert finding.status == "ok"
    assert Path(finding.values["kernel_cache"]).is_dir()
    assert finding.values["kernel_cache"] in finding.sentence


def test_an_extra_that_is_not_there_is_no_fault_but_half_of_it_is() -> None:
    nothing = check_warp(("no_such_module",))
    assert (nothing.status, nothing.advice) == ("ok", "")
    assert "element-rl[warp]" in nothing.sentence
    half = check_warp(("json", "no_such_module"))
    assert (half.status, half.advice) == ("warn", "pip install 'element-rl[warp]'")


def test_a_gpu_is_named_with_its_driver(tmp_path: Path) -> None:
    finding = judged(GPU, tmp_path)
    assert finding.status == "ok"
    assert "NVIDIA H200, driver for CUDA 13.0" in finding.sentence
    assert not list(tmp_path.iterdir())


def test_a_gpu_that_only_jax_sees(tmp_path: Path) -> None:
    finding = judged(GPU | {"devices": [], "driver": None}, tmp_path)
    assert finding.status == "warn"
    assert "sees no GPU" in finding.sentence
    assert "no GPU" in judged(GPU | {"devices": [], "jax": "cpu"}, tmp_path).sentence


def test_kernels_that_cannot_be_kept() -> None:
    finding = judged(GPU, Path("/proc/self/task"))
    assert finding.status == "warn"
    assert "WARP_CACHE_PATH" in finding.advice
