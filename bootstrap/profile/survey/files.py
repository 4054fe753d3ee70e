"""Read the files of a repository, within limits.

Map well-known modules to their packages, and normalize the names of packages.

An unknown module gets no package: anybody may have registered its name on an index.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from bootstrap.profile.requirement_files import decode

LARGEST_READ = 64 * 1024  # bytes of a file that is only looked through
LARGEST_SCRIPT = 512 * 1024
LARGEST = 4 * 1024 * 1024  # bytes of a lock or a notebook
_MOST_DOTS = 5000  # of a line of TOML
_MOST_VALUES = 20_000  # of a YAML file
MOST = 200  # entries of a folder
_NOT_THEIRS = {"site-packages", "node_modules", "tests", "test", "docs", "build", "dist"}


def text_of_file(path: Path, largest: int = LARGEST_READ) -> str:
    """Return the start of a file as text, or "" if it can't be read."""
    with contextlib.suppress(OSError):
        if path.is_file():
            with path.open("rb") as file:
                return decode(file.read(largest))
    return ""


def inside(folder: Path) -> list[Path]:
    """Return the entries of a folder that are not hidden, sorted."""
    try:
        found = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError:
        return []
    return found[:MOST]


def below(folder: Path, depth: int) -> Iterator[Path]:
    """Yield the files in a folder and up to `depth` folders down, those at the top first."""
    entries = inside(folder)
    yield from (path for path in entries if path.is_file())
    for path in entries if depth else ():
        theirs = path.name not in _NOT_THEIRS and not (path / "pyvenv.cfg").exists()
        if theirs and path.is_dir() and not path.is_symlink():
            yield from below(path, depth - 1)


def toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; {} if that is not possible."""
    return parse_toml(text_of_file(path, LARGEST_SCRIPT))


def parse_toml(written: str) -> dict[str, Any]:
    """Parse TOML; {} if it is not valid."""
    if any(line.count(".") > _MOST_DOTS for line in written.splitlines()):
        return {}  # tables in tables without end take the parser hours
    reader = import_module("tomllib" if sys.version_info >= (3, 11) else "pip._vendor.tomli")
    try:
        found: dict[str, Any] = reader.loads(written)
    except (ValueError, RecursionError):
        return {}
    return found


def yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file; {} if it can't be read as a mapping."""
    from yaml import SafeLoader, YAMLError, load

    class Unmerged(SafeLoader):
        """Takes `<<` for a key like any other: merges of merges take PyYAML hours."""

        def flatten_mapping(self, node: object) -> None:
            """Merge nothing."""

    Unmerged.yaml_constructors = {
        **SafeLoader.yaml_constructors,
        "tag:yaml.org,2002:merge": SafeLoader.construct_yaml_str,
    }
    try:
        found = load(text_of_file(path), Unmerged)  # noqa: S506 - it is a safe loader
    except (YAMLError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) and _has_few_values(found) else {}


def _has_few_values(found: object) -> bool:
    """Whether it is small, each alias taken for what it stands for."""
    waiting = [found]
    for _ in range(_MOST_VALUES):
        if not waiting:
            return True
        one = waiting.pop()
        if isinstance(one, dict | list):
            waiting += one.values() if isinstance(one, dict) else one
    return False


# Modules whose package has another name.
_OTHERS = {
    "PIL": "pillow",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "clip": "openai-clip",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "git": "gitpython",
    "google": "protobuf",
    "hydra": "hydra-core",
    "lion_pytorch": "lion-pytorch",
    "pkg_resources": "setuptools",
    "sentence_transformers": "sentence-transformers",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "umap": "umap-learn",
    "yaml": "pyyaml",
}
_SAME = """
    accelerate adam_mini aim albumentations apex bitsandbytes click colorama comet_ml cython
    dask datasets deepspeed diffusers dill einops ema_pytorch evaluate fairscale fastapi fire
    flash_attn flax fsspec ftfy gdown gradio gym gymnasium h5py huggingface_hub imageio
    ipywidgets jax jaxtyping joblib jsonlines kornia librosa lightning lightning_fabric lmdb
    loguru lpips lxml matplotlib mlflow monai mpi4py msgpack muon nibabel nltk numba numexpr
    numpy omegaconf onnx onnxruntime open_clip_torch openai opt_einsum optax optuna orjson
    packaging pandas peft plotly polars prettytable protobuf psutil pyarrow pycocotools pydantic
    pytest pytorch_fid pytorch_lightning ray regex requests rich rouge_score rustbpe sacrebleu
    safetensors scipy seaborn sentencepiece setuptools simple_parsing soundfile spacy sympy
    tabulate tensorboard tensorboardX tensorflow tiktoken timm tokenizers torch torchaudio
    torchdata torchmetrics torchtext torchvision tqdm transformers triton trl typer tyro
    ultralytics vllm wandb webdataset xformers zarr zstandard
""".split()  # noqa: SIM905 - a list for people
PACKAGES = {name: name.replace("_", "-") for name in _SAME} | _OTHERS
PACKAGES |= {"torch.utils.tensorboard": "tensorboard"}  # torch does not require it
PACKAGES |= {"pytorch_lightning": "pytorch-lightning", "open_clip": "open-clip-torch"}
_KNOWN = {re.sub(r"[-_.]+", "-", name).lower() for name in PACKAGES.values()}

# Conda's names of packages that have another name on a Python package index.
CONDA = {
    "faiss-gpu": "faiss-cpu",
    "opencv": "opencv-python",
    "py-opencv": "opencv-python",
    "pytorch": "torch",
    "pytorch-gpu": "torch",
    "pytorch-cpu": "torch",
    "tensorflow-gpu": "tensorflow",
}


# Other distributions of the same modules: two of them overwrite each other's files.
_PROVIDED = {
    "beautifulsoup4": {"bs4"},
    "faiss-cpu": {"faiss"},
    "open-clip-torch": {"open-clip"},
    "openai-clip": {"clip", "clip-anytorch"},
    "opencv-python": {"opencv"},
    "pillow": {"pil"},
    "protobuf": {"tensorflow", "tensorboard"},
    "pytorch-lightning": {"lightning"},
    "scikit-learn": {"sklearn"},
    "tensorboard": {"tensorflow", "tb-nightly"},
    "tensorflow": {"tf-nightly", "intel-tensorflow"},
    "timm": {"pytorch-image-models"},
    "triton": {"pytorch-triton"},
}
_VARIANT = re.compile(
    r"-(?:headless|contrib|rolling|gpu|cpu|nightly|simd|macos|metal|intel|rocm|cuda|directml|openvino"
    r"|training|windows|silicon|cu\d+|rocm[\d.]+|cuda\d+\w*|py\d+)(?=-|$)"
)


def provides(names: Iterable[str], package: str) -> bool:
    """Whether one of these distributions has the modules of `package`, under any name."""
    package = same(package)
    wanted = {package, _VARIANT.sub("", package), *_PROVIDED.get(package, ())}
    return any(name in wanted or _VARIANT.sub("", name) in wanted for name in names)


def same(name: str) -> str:
    """Return the normalized name of a package (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def is_known(name: str) -> bool:
    """Whether this is a well-known package that trainings use."""
    return same(name) in _KNOWN


_NAMED = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^]]*\]\s*)?(?![A-Za-z0-9._+:/-])")
_EGG = re.compile(r"[#&]egg=([A-Za-z0-9][A-Za-z0-9._-]*)")
_REPOSITORY = re.compile(
    r"(?:git|hg|svn|bzr)\+(?:\w+://)?(?:[^/@]*@)?[^/@:]+(?::\d+(?=/))?[/:](?:[^@#]*/)?"
    r"([\w.-]+?)(?:\.git)?/?(?:@[^#]*)?(?:#.*)?"
)
_ARCHIVE = re.compile(r".*?/([\w.-]+)/(?:archive|tarball|zipball)/.*")
_WHEEL = re.compile(r"(?:.*/)?([A-Za-z0-9][A-Za-z0-9._]*)-\d[^/]*\.(?:whl|zip|tar\.\w+)(?:#.*)?")


def package_name(requirement: str) -> str:
    """Return the normalized name of a requirement's package, or "".

    An address counts by the name that it is given, else by that of its repository or file.
    """
    text = requirement.partition(" ;")[0].strip()
    found = _NAMED.match(text) or _EGG.search(text)
    for pattern in (_REPOSITORY, _ARCHIVE, _WHEEL):
        found = found or pattern.fullmatch(text)
    return same(found[1]) if found else ""
