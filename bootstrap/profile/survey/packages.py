"""Map well-known modules to their packages, and normalize the names of packages.

An unknown module gets no package: anybody may have registered its name on an index.
"""

from __future__ import annotations

import re

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


def same(name: str) -> str:
    """Return the normalized name of a package (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def is_known(name: str) -> bool:
    """Whether this is a well-known package that trainings use."""
    return same(name) in _KNOWN


def name_of(requirement: str) -> str:
    """Return the normalized name of a requirement's package, or ""."""
    found = re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)", requirement)
    return same(found[1]) if found else ""
