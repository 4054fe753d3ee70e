"""Check whether a build of torch fits the GPU and its driver, without importing torch: before
gigabytes are fetched, if it can be known then, and once it is installed.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

from ..run_folder import lines_of

MINOR_COMPATIBLE = 11  # from this CUDA on, a driver runs every minor version of its major version


class Backend(NamedTuple):
    """A build of torch as python.torch_backend names it; all bounds are inclusive."""

    name: str
    driver: tuple[int, int]  # the lowest CUDA version of a driver that runs it
    oldest: tuple[int, int]  # compute capability
    newest: tuple[int, int]


# The best first. Sources: NVIDIA's CUDA compatibility (minor versions) for drivers, PyTorch's
# release notes from 2.8 on for capabilities; of those only cu126 supports cards before Turing.
BACKENDS = (
    Backend("cu130", (13, 0), (7, 5), (12, 1)),
    Backend("cu126", (12, 0), (5, 0), (9, 0)),
    Backend("cu128", (12, 0), (7, 5), (12, 0)),
    Backend("cu118", (11, 0), (3, 7), (9, 0)),
)

# What names a build: torch's local version, PyTorch's own index, NVIDIA's packages.
BUILDS = re.compile(
    r"\btorch(?:={2,3}|-)\d[^\s+]*\+(cu\d+|cpu)\b|/whl/(?:nightly/|test/)?(cu\d+|cpu)\b"
)
LOCKED_BUILD = re.compile(r'name = "torch"\nversion = "[^"+]+\+(cu\d+|cpu)"')
RUNTIMES = re.compile(
    r"nvidia-cuda-runtime(?:-cu\d+)?(?:==|\"\nversion = \")(\d+)\.(\d+)"  # in uv's output or a lock
)


CUDA_OF_TORCH = re.compile(r"^cuda\b[^=]*= *'(\d+\.\d+)", re.MULTILINE)


class CudaTarget(NamedTuple):
    """The newest CUDA that the driver runs (None if unknown), and the cards' capabilities."""

    cuda: tuple[int, int] | None
    capabilities: tuple[tuple[int, int], ...]


class Misfit(NamedTuple):
    """Why a build can't work on this box."""

    code: str
    says: str
    advice: str


def version(text: str) -> tuple[int, int]:
    """Parse major and minor of a version such as `12.4`, `12.4.1` or `8.0`."""
    major, _, rest = text.partition(".")
    return int(major), int(re.match(r"\d*", rest).group() or 0)  # type: ignore[union-attr]


def of_backend(name: str) -> tuple[int, int] | None:
    """Return the CUDA version of a backend such as `cu126`; None for a build without CUDA."""
    found = re.fullmatch(r"cu(\d+)(\d)", name)
    return (int(found.group(1)), int(found.group(2))) if found else None


def backend_of(text: str) -> str:
    """Return the backend in torch's `version.py`, named as in the profile; "" if unknown."""
    cuda = CUDA_OF_TORCH.search(text)
    if cuda:
        return "cu" + cuda.group(1).replace(".", "")
    return "" if re.search(r"^(hip|xpu)\b[^=]*= *'", text, re.MULTILINE) else "cpu"


def driver_runs(driver: tuple[int, int], wheel: tuple[int, int]) -> bool:
    """Return whether a driver runs a CUDA version; from 11 on the major version decides."""
    return wheel[0] <= driver[0] if wheel[0] >= MINOR_COMPATIBLE else wheel <= driver


def has_kernels(
    capability: tuple[int, int],
    built_for: list[str],
    wheel: tuple[int, int] | None = None,
    driver: tuple[int, int] | None = None,
) -> bool:
    """Whether a build has code for a card (CUDA programming guide, binary and PTX compatibility).

    `sm_86` runs on its major version from that minor on, `sm_90a` only on that capability,
    `sm_100f` on its family. `compute_90` is compiled on the box, for that capability and all newer
    ones, by a driver that is no older than the compiler.
    """
    newer_compiler = wheel is not None and driver is not None and wheel > driver
    for name in built_for:
        found = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", name)
        if not found:
            continue
        kind, suffix = found.group(1), found.group(4)
        target = int(found.group(2)), int(found.group(3))
        if suffix == "a":
            runs = kind == "sm" and capability == target
        elif kind == "sm":
            runs = capability[0] == target[0] and capability[1] >= target[1]
        else:
            runs = capability >= target and not newer_compiler
        if runs:
            return True
    return False


def backend_for(target: CudaTarget) -> str:
    """Return the build to use; "" if none is known to fit."""
    for backend in BACKENDS:
        driver = target.cuda is None or target.cuda >= backend.driver
        if driver and all(backend.oldest <= c <= backend.newest for c in target.capabilities):
            return backend.name
    return ""


def better(target: CudaTarget, otherwise: str) -> tuple[str, str]:
    """Return the build to use instead, for a code and in words; `otherwise` if none is known."""
    fitting = backend_for(target)
    return (
        (f" need={fitting[2:]}", f"set python.torch_backend: {fitting}")
        if fitting
        else ("", otherwise)
    )


def misfit(target: CudaTarget, cuda: tuple[int, int] | None, what: str) -> Misfit | None:
    """Return what is wrong with a build for this CUDA, or without CUDA, on this GPU."""
    need, use = better(target, "name an index that has one")
    if cuda is None:
        says = f"{what} is built without CUDA, and the box has a GPU"
        return Misfit(f"torch-no-cuda{need}", says, use)
    if target.cuda is not None and not driver_runs(target.cuda, cuda):
        says = f"{what} needs CUDA {dotted(cuda)}; the driver runs CUDA up to {dotted(target.cuda)}"
        have = f" have={dotted(target.cuda)}"
        return Misfit(f"torch-driver{need}{have}", says, f"{use}, or rent a box of a newer driver")
    return None


def no_kernels(
    target: CudaTarget, built_for: list[str], cuda: tuple[int, int] | None
) -> Misfit | None:
    """Return a misfit if a build has no code for a card; an empty `built_for` is unknown."""
    lacking = [c for c in target.capabilities if not has_kernels(c, built_for, cuda, target.cuda)]
    if not built_for or not lacking:
        return None
    need, use = better(target, "take another version of torch")
    have = dotted(lacking[0])
    says = f"torch has no code for compute capability {have}: it is built for {' '.join(built_for)}"
    return Misfit(f"torch-arch{need} have={have}", says, use)


def dotted(version: tuple[int, int]) -> str:
    """Format a version: (12, 4) is 12.4."""
    return f"{version[0]}.{version[1]}"


def read_target(verdict: Path) -> CudaTarget:
    """Read what `verify.py` wrote about the box."""
    document = json.loads(verdict.read_text("utf-8"))
    capabilities = {gpu.get("capability") for gpu in document["gpus"]}
    return CudaTarget(
        cuda=version(document["cuda"]) if document.get("cuda") else None,
        capabilities=tuple(sorted(version(c) for c in capabilities if c)),
    )


def builds_named(texts: list[str]) -> list[tuple[int, int] | None]:
    """Return the builds that requirements, a lock or uv's output name; None is without CUDA."""
    found: list[tuple[int, int] | None] = []
    for text in texts:
        words = "\n".join(line.partition(" #")[0] for line in text.splitlines())
        names = [one or other for one, other in BUILDS.findall(words)] + LOCKED_BUILD.findall(words)
        found += [of_backend(name) for name in names]
        found += [(int(major), int(minor)) for major, minor in RUNTIMES.findall(words)]
    return found


def before(target: CudaTarget, backend: str, texts: list[str]) -> Misfit | None:
    """Return the misfit that is known before anything is fetched, by requirements, a lock, or what
    uv would install."""
    if of_backend(backend):
        return misfit(target, of_backend(backend), f"python.torch_backend: {backend}")
    if backend != "auto":
        return None  # cpu, ROCm: chosen on purpose
    builds = builds_named(texts)
    without = [build for build in builds if build is None]
    newest = max((build for build in builds if build), default=None)
    if newest is None and not without:
        return None
    return misfit(target, newest, "the torch that would be installed")


def after(target: CudaTarget, backend: str, site: Path) -> Misfit | None:
    """Return the misfit of the installed build."""
    text = "\n".join(lines_of(site / "torch" / "version.py"))
    if not text:
        return None
    cuda = CUDA_OF_TORCH.search(text)
    release = re.search(r"^__version__ *= *'([^']*)'", text, re.MULTILINE)
    if cuda is None and backend not in ("auto", "none") and not of_backend(backend):
        return None
    what = f"torch {release.group(1) if release else ''}".strip()
    return misfit(target, version(cuda.group(1)) if cuda else None, what)
