"""Which builds of torch, drivers and cards work together, and what is advised."""

from pathlib import Path

import pytest

from bootstrap.onbox.python import torch_compat
from bootstrap.onbox.python.torch_compat import (
    CudaTarget,
    after,
    backend_for,
    before,
    has_kernels,
    no_kernels,
)

A100 = CudaTarget((12, 4), ((8, 0),))
OLD_SHEET = ["sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"]


@pytest.mark.parametrize(
    ("driver", "wheel", "runs"),
    [
        ((12, 4), (12, 8), True),  # minor versions are compatible
        ((12, 0), (12, 9), True),
        ((12, 9), (13, 0), False),
        ((13, 0), (12, 6), True),  # a newer driver runs older programs
        ((11, 4), (11, 8), True),
        ((11, 8), (12, 1), False),
        ((10, 1), (10, 2), False),  # before 11 they did not
        ((10, 2), (10, 2), True),
    ],
)
def test_setup_accepts_torch_only_of_the_drivers_own_or_an_older_cuda_version(
    driver: tuple[int, int], wheel: tuple[int, int], runs: bool
) -> None:
    assert torch_compat.driver_runs(driver, wheel) is runs


@pytest.mark.parametrize(
    ("capability", "built_for", "runs"),
    [
        ((8, 0), ["sm_80"], True),
        ((8, 9), ["sm_86"], True),  # a newer minor version
        ((8, 0), ["sm_86"], False),  # not an older one
        ((9, 0), ["sm_86"], False),  # not another major one
        ((9, 0), ["sm_90a"], True),
        ((10, 3), ["sm_100a"], False),  # for that card only
        ((10, 3), ["sm_100f"], True),  # for its family
        ((12, 0), ["sm_100f"], False),
        ((12, 0), ["sm_90", "compute_90"], True),  # compiled on the box
        ((8, 0), ["compute_90"], False),
        ((12, 0), OLD_SHEET, False),  # an RTX 5090 and wheels one year older
        ((7, 0), ["sm_75", "sm_80"], False),  # a V100 and the wheels of CUDA 13
        ((12, 0), ["what?", ""], False),
    ],
)
def test_a_torch_build_runs_on_a_card_only_with_kernels_for_its_capability(
    capability: tuple[int, int], built_for: list[str], runs: bool
) -> None:
    assert has_kernels(capability, built_for) is runs


def test_torch_with_ptx_kernels_runs_only_if_the_driver_is_as_new_as_their_compiler() -> None:
    assert has_kernels((12, 0), ["compute_90"], wheel=(12, 8), driver=(12, 8))
    assert not has_kernels((12, 0), ["compute_90"], wheel=(12, 8), driver=(12, 4))
    assert has_kernels((9, 0), ["sm_90"], wheel=(12, 8), driver=(12, 4))


@pytest.mark.parametrize(
    ("gpu", "backend"),
    [
        (A100, "cu126"),
        (CudaTarget((13, 0), ((9, 0),)), "cu130"),
        (CudaTarget((12, 8), ((12, 0),)), "cu128"),  # a Blackwell card
        (CudaTarget((13, 0), ((7, 0),)), "cu126"),  # a V100: CUDA 13 has no code for it
        (CudaTarget((11, 4), ((7, 0),)), "cu118"),
        (CudaTarget((12, 2), ((8, 0), (8, 9))), "cu126"),
        (CudaTarget((10, 2), ((7, 0),)), ""),
        (CudaTarget(None, ()), "cu130"),
    ],
)
def test_setup_advises_a_torch_backend_that_the_gpu_can_run(gpu: CudaTarget, backend: str) -> None:
    assert backend_for(gpu) == backend


LOCK = """
[[package]]
name = "torch"
version = "2.9.0+cu130"
source = { registry = "https://example.org/whl" }
"""
LOCK_OF_THE_INDEX = """
[[package]]
name = "nvidia-cuda-runtime"
version = "13.0.96"
"""


NEWER = "torch-driver need=126 have=12.4"


@pytest.mark.parametrize(
    ("backend", "text", "code"),
    [
        ("auto", "torch==2.9.0+cu130\n", NEWER),
        ("auto", "--extra-index-url https://example.org/whl/cu130\ntorch\n", NEWER),
        ("auto", "--index-url https://example.org/whl/nightly/cu130\n", NEWER),
        ("auto", LOCK, NEWER),
        ("auto", LOCK_OF_THE_INDEX, NEWER),
        ("auto", " + nvidia-cuda-runtime==13.0.96\n + torch==2.13.0\n", NEWER),
        ("auto", "torch @ https://example.org/torch-2.9.0+cu130-cp311-linux_x86_64.whl\n", NEWER),
        ("cu130", "", NEWER),
        ("auto", "Would install 9 packages\n + torch==2.13.0+cpu\n", "torch-no-cuda need=126"),
        ("auto", "torch\n", ""),  # uv chooses by the driver
        ("auto", "torch==2.6.0+cu124\n", ""),
        ("auto", "numpy  # not torch==2.9.0+cu130\n", ""),
        ("auto", "torchmetrics==1.0+cpu\n", ""),
        ("cpu", "torch==2.9.0+cu130\n", ""),  # uv uses the profile's backend
        ("cu126", "torch==2.9.0\n", ""),
    ],
)
def test_only_a_torch_build_that_the_driver_can_not_run_is_reported_before_the_download(
    backend: str, text: str, code: str
) -> None:
    found = before(A100, backend, [text])
    assert (found.code if found else "") == code
    if found and code == NEWER:
        assert "needs CUDA 13.0; the driver runs CUDA up to 12.4" in found.says
        assert found.says.startswith("python.torch_backend: cu130 ") == (backend == "cu130")
        assert "python.torch_backend: cu126" in found.advice
        assert before(CudaTarget((13, 0), ((8, 0),)), backend, [text]) is None


def installed(folder: Path, cuda: str) -> Path:
    """Write torch/version.py as torch's build does."""
    (folder / "torch").mkdir()
    text = f"""from typing import Optional

__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'rocm', 'xpu']
__version__ = '2.13.0+x'
debug = False
cuda: Optional[str] = {cuda}
hip: Optional[str] = None
"""
    (folder / "torch" / "version.py").write_text(text)
    return folder


def test_installed_torch_without_cuda_is_an_error_unless_its_backend_is_cpu(tmp_path: Path) -> None:
    assert after(A100, "auto", tmp_path) is None  # no torch at all
    site = installed(tmp_path, "None")
    found = after(A100, "auto", site)
    assert found is not None
    assert found.says == "torch 2.13.0+x is built without CUDA, and the box has a GPU"
    assert after(A100, "cpu", site) is None  # asked for


@pytest.mark.parametrize(("cuda", "code"), [("'13.0'", "torch-driver"), ("'12.8'", "")])
def test_an_installed_torch_for_a_newer_major_cuda_than_the_drivers_is_reported(
    tmp_path: Path, cuda: str, code: str
) -> None:
    found = after(A100, "auto", installed(tmp_path, cuda))
    assert (found.code.partition(" ")[0] if found else "") == code


def test_a_card_without_kernels_in_the_installed_torch_gets_a_fitting_build_advised() -> None:
    found = no_kernels(CudaTarget((12, 8), ((12, 0),)), OLD_SHEET, (12, 6))
    assert found is not None
    assert found.code == "torch-arch need=128 have=12.0"
    assert no_kernels(A100, OLD_SHEET, (12, 6)) is None
    assert no_kernels(A100, [], (12, 6)) is None
