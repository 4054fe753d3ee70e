"""Which package a module comes from, where that is well known; and how names are compared.

A module that nobody knows gets no package: whoever took its name on an index could be anybody.
"""

from __future__ import annotations

import re

# Modules whose package is called otherwise.
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
PACKAGES |= {"torch.utils.tensorboard": "tensorboard"}  # nothing requires it for torch
PACKAGES |= {"pytorch_lightning": "pytorch-lightning", "open_clip": "open-clip-torch"}
_KNOWN = {re.sub(r"[-_.]+", "-", name).lower() for name in PACKAGES.values()}

# conda's names of what an index of Python packages calls otherwise.
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
    """A package's name as all spellings of it are compared (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def is_known(name: str) -> bool:
    """Whether a package of this name is one that trainings use."""
    return same(name) in _KNOWN


def name_of(requirement: str) -> str:
    """The package that a requirement is about, as names are compared."""
    found = re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)", requirement)
    return same(found[1]) if found else ""
