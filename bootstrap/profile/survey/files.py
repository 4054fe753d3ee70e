"""The files of a repository, read within limits, and what they call their packages.

Well-known modules lead to their packages; an unknown module gets none: anybody may have registered
its name on an index.
"""

import contextlib
import posixpath
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any

from bootstrap.errors import UsageError
from bootstrap.onbox.python.sources import decode, requirement_lines
from bootstrap.profile.schema import Python
from bootstrap.repo.names import shown

LARGEST_READ = 64 * 1024  # bytes of a file that is only looked through
LARGEST_SCRIPT = 512 * 1024
LARGEST = 4 * 1024 * 1024  # bytes of a lock or a notebook
_MOST_DOTS = 5000  # of a line of TOML
_MOST_VALUES = 20_000  # of a YAML file
MOST = 200  # entries of a folder
_NOT_THEIRS = {"site-packages", "node_modules", "tests", "test", "docs", "build", "dist"}


def has(root: Path, name: str, *, folder: bool = False) -> bool:
    """Return whether the repository has this file, or folder; a page may name what lies outside, or
    what no file can be called."""
    path = PurePosixPath(name)
    try:
        is_inside = not path.is_absolute() and ".." not in path.parts
        return is_inside and ((root / path).is_dir() if folder else (root / path).is_file())
    except (OSError, ValueError):
        return False


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
    "mpl_toolkits": "matplotlib",
    "pkg_resources": "setuptools",
    "progressbar": "progressbar2",
    "pylab": "matplotlib",
    "sentence_transformers": "sentence-transformers",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "umap": "umap-learn",
    "yaml": "pyyaml",
}
_SAME = """
    accelerate adam_mini aim albumentations bitsandbytes click colorama comet_ml cython
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
    "progressbar2": {"progressbar", "progressbar33"},
    "protobuf": {"tensorflow", "tensorboard"},
    "pytorch-lightning": {"lightning"},
    "scikit-learn": {"sklearn"},
    "tensorboard": {"tensorflow", "tb-nightly"},
    "tensorflow": {"tf-nightly", "intel-tensorflow"},
    "timm": {"pytorch-image-models"},
    "triton": {"pytorch-triton"},
}
_VARIANT = (
    r"-(?:headless|contrib|rolling|gpu|cpu|nightly|simd|macos|metal|intel|rocm|cuda|directml|openvino"
    r"|training|windows|silicon|cu\d+|rocm[\d.]+|cuda\d+\w*|py\d+)(?=-|$)"
)


def provides(names: Iterable[str], package: str) -> bool:
    """Whether one of these distributions has the modules of `package`, under any name."""
    package = same(package)
    wanted = {package, re.sub(_VARIANT, "", package), *_PROVIDED.get(package, ())}
    return any(name in wanted or re.sub(_VARIANT, "", name) in wanted for name in names)


def same(name: str) -> str:
    """Return the normalized name of a package (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def is_known(name: str) -> bool:
    """Whether this is a well-known package that trainings use."""
    return same(name) in _KNOWN


_NAMED = r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^]]*\]\s*)?(?![A-Za-z0-9._+:/-])"
_EGG = r"[#&]egg=([A-Za-z0-9][A-Za-z0-9._-]*)"
_REPOSITORY = (
    r"(?:git|hg|svn|bzr)\+(?:\w+://)?(?:[^/@]*@)?[^/@:]+(?::\d+(?=/))?[/:](?:[^@#]*/)?"
    r"([\w.-]+?)(?:\.git)?/?(?:@[^#]*)?(?:#.*)?"
)
_ARCHIVE = r".*?/([\w.-]+)/(?:archive|tarball|zipball)/.*"
_WHEEL = r"(?:.*/)?([A-Za-z0-9][A-Za-z0-9._]*)-\d[^/]*\.(?:whl|zip|tar\.\w+)(?:#.*)?"


def package_name(requirement: str) -> str:
    """Return the normalized name of a requirement's package, or "". An address counts by the name
    that it is given, else by that of its repository or file."""
    text = requirement.partition(" ;")[0].strip()
    found = re.match(_NAMED, text) or re.search(_EGG, text)
    for pattern in (_REPOSITORY, _ARCHIVE, _WHEEL):
        found = found or re.fullmatch(pattern, text)
    return same(found[1]) if found else ""


ReadData = Callable[[list[str]], dict[str, bytes]]
"""Reads files by name; returns the contents of those that exist."""

_MOST = 200
_INCLUDE = r"\s*(?:- *[\"']?)?(?:-r|-c|--requirement|--constraint)(?:[\s=]+|(?=\S))(.+)"
_CODING = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-.\w]+)", re.MULTILINE)
_PATH = r"(?:@\s*|^\s*(?:- *[\"']?)?(?:-e\s*)?)file:(?://(?:localhost)?)?(/[^\s;#\"']+)"
_OF_CONDA = r"/croot/|feedstock_root|/conda-bld/|/tmp/build/|/bld/|/_bld/|/tmp/abs_|/rattler-build"
_OF_A_MACHINE = r"/?[A-Za-z]:|/Users/"


def included(line: str) -> str | None:
    """Return the file that a line includes, without quotes; None if it includes none."""
    found = re.match(_INCLUDE, line)
    return found[1].strip().strip("\"'").replace("\\ ", " ") if found else None


def check_requirements(python: Python, read: ReadData) -> None:
    """Raise UsageError for what no installer on a box can read: before anything is sent."""
    waiting = [*([python.conda] if python.conda else []), *(python.requirements or [])]
    if not waiting and python.requirements is None and not python.lock:
        waiting = ["requirements.txt"] if not read(["uv.lock"]) else []
    seen: set[str] = set()
    while waiting and len(seen) < _MOST:
        data = read(waiting)
        seen.update(waiting)
        waiting = [
            name
            for file, content in data.items()
            for name in _checked(file, content, python, read)
            if name not in seen
        ]


def _checked(file: str, data: bytes, python: Python, read: ReadData) -> list[str]:
    """Check one file; return those that it includes."""
    if PurePosixPath(file).suffix in (".toml", ".py", ".cfg"):
        return []
    found = []
    for number, line in requirement_lines(_text(file, data, python)):
        where = f"{shown(file)}:{number}"
        if path := re.search(_PATH, line):
            _check_path(path[1], line.strip(), where)
        name = included(line)
        if name is None or "://" in name or "${" in name or name.startswith(("/", "file:")):
            continue
        inner = posixpath.normpath(PurePosixPath(file).parent / name)
        if inner.startswith("../"):
            continue
        if not read([inner]):
            raise UsageError(
                f"it includes {shown(inner)}, which isn't in what is sent.",
                where=where,
                hint="Commit that file (an ignored one never travels), or remove the line.",
            )
        found.append(inner)
    return found


def _text(file: str, data: bytes, python: Python) -> str:
    coding = _CODING.match(data[:200]) if python.installer == "pip" else None
    try:
        if coding:
            return data.decode(coding[1].decode())
        return decode(data, "strict")
    except (UnicodeDecodeError, LookupError) as error:
        at = error.start if isinstance(error, UnicodeDecodeError) else 0
        raise UsageError(
            "it isn't UTF-8, so no installer can read it.",
            where=f"{shown(file)}:{data[:at].count(bytes([10])) + 1}",
            hint=f"Save it as UTF-8, for example: iconv -f latin1 -t utf-8 {shown(file)}",
        ) from None


def _check_path(path: str, line: str, where: str) -> None:
    """Raise UsageError for a path of another machine, as `pip freeze` writes in conda."""
    name = re.split(r"[ @]", line.lstrip("- \"'"))[0]
    if re.search(_OF_CONDA, path):
        raise UsageError(
            f"{shown(line[:120])} names the folder in which conda's package was built.",
            where=where,
            hint=f"Write {shown(name)} with its version, as `pip list --format=freeze` prints it.",
        )
    if re.match(_OF_A_MACHINE, path):
        raise UsageError(
            f"{shown(line[:120])} names a folder of one machine, which a box does not have.",
            where=where,
            hint="Put it into the repository and name it by its path there, or name a release.",
        )
