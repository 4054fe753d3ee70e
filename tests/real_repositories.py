"""Real training repositories at fixed commits: what `init` reads of each, and what it must write.

None of their code is here: only the commands in READMEs, the requirements in files, and the
imports of scripts; `RealRepository.write` makes equivalent files from these. A script of such a
copy imports what the real one does and takes one step, so that its environment can be tested.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class RealRepository:
    """One repository, and the keys of the profile that its `init` must write."""

    commit: str
    writes: dict[str, Any]
    readme: tuple[str, ...] = ()
    """Commands of its README, in order."""
    scripts: dict[str, str] = field(default_factory=dict)
    """Path: the modules that it imports, `>` an output folder; `*PATH` is a script that trains."""
    files: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """Parts of the notes that it must also print."""

    def write(self, root: Path) -> None:
        """Write the files that `init` reads into `root`."""
        page = "".join(f"```\n{command}\n```\n" for command in self.readme)
        texts = {"README.md": f"# It\n\n{page}", **self.files}
        for path, modules in self.scripts.items():
            texts[path.removeprefix("*")] = _script(modules, runs=path.startswith("*"))
        for path, text in texts.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")


def _script(modules: str, *, runs: bool) -> str:
    folder = next((word[1:] for word in modules.split() if word.startswith(">")), "")
    text = "".join(f"import {name}\n" for name in modules.split() if not name.startswith(">"))
    text += f"out_dir = '{folder}'\n" if folder else ""
    return text + ("if __name__ == '__main__':\n    optimizer = print('step 1')\n" if runs else "")


_DIT_ENVIRONMENT = """\
channels: [pytorch, nvidia]
dependencies: [python >= 3.8, pytorch >= 1.13, torchvision, pytorch-cuda=11.7,
  pip: [timm, diffusers, accelerate]]
"""
_NANOCHAT_PROJECT = """\
[project]
name = "nanochat"
version = "0"
requires-python = ">=3.10"
dependencies = ["pyarrow>=21", "rustbpe>=0.1", "tiktoken>=0.11", "torch==2.9.1", "wandb"]
[project.optional-dependencies]
cpu = ["setuptools", "torch==2.9.1"]
gpu = ["torch==2.9.1"]
"""
_LOCKED = [
    "numpy",
    "pyarrow",
    "rustbpe",
    "tiktoken",
    "torch",
    "wandb",
    "requests",
    "pyyaml",
    "filelock",
]
_NANOCHAT_LOCK = """\
[[package]]
name = "nanochat"
source = { virtual = "." }
dependencies = [
    { name = "torch" },
]
""" + "".join(f'[[package]]\nname = "{name}"\n' for name in _LOCKED)
_DDPM_PROJECT = """\
[project]
name = "denoising-diffusion-pytorch"
version = "0"
dependencies = ["accelerate", "einops", "torch>=2.0", "torchvision", "tqdm"]
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
"""
_X_TRANSFORMERS_PROJECT = """\
[project]
name = "x-transformers"
version = "0"
requires-python = ">= 3.9"
dependencies = ["einops>=0.8.0", "einx", "loguru", "packaging", "torch>=2.0"]
[project.optional-dependencies]
examples = ["lion-pytorch", "tqdm"]
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
"""
_HYDRA_REQUIREMENTS = """\
torch>=2.0.0
torchvision>=0.15.0
lightning>=2.0.0
hydra-core==1.3.2
# wandb
rootutils       # the root
rich
"""
_ALPACA_LORA_REQUIREMENTS = """\
accelerate
bitsandbytes
black[jupyter]
datasets
fire
git+https://github.com/huggingface/peft.git
transformers>=4.28.0
"""

REPOSITORIES: dict[str, RealRepository] = {
    "karpathy/nanoGPT": RealRepository(
        commit="3adf61e154c3fe3fca428ad6bc3818b27a3b8291",
        readme=(
            "pip install torch numpy transformers datasets tiktoken wandb tqdm",
            "python data/shakespeare_char/prepare.py",
            "python train.py config/train_shakespeare_char.py",
            "torchrun --standalone --nproc_per_node=8 train.py config/train_gpt2.py",
            "torchrun --nproc_per_node=8 --nnodes=2 --node_rank=1 --master_addr=1.2.3.4 train.py",
        ),
        scripts={
            "*train.py": "os numpy torch model wandb >out",
            "model.py": "math torch",
            "config/train_shakespeare_char.py": ">out-shakespeare-char",
            "data/shakespeare_char/prepare.py": "requests numpy",
            "sample.py": "torch tiktoken",
        },
        writes={
            "python.requirements": [],
            "python.packages": [
                "torch",
                "numpy",
                "transformers",
                "datasets",
                "tiktoken",
                "wandb",
                "tqdm",
            ],
            "env": {"WANDB_MODE": "offline"},
            "prepare": ["python data/shakespeare_char/prepare.py"],
            "train.command": "python train.py config/train_shakespeare_char.py",
            "train.results": ["out-shakespeare-char/"],
        },
        notes=("README.md runs, for several machines: torchrun",),
    ),
    "karpathy/minGPT": RealRepository(
        commit="37baab71b9abea1b76ab957409a1cc2fbfba8a26",
        readme=(
            "git clone https://github.com/karpathy/minGPT.git",
            "cd minGPT",
            "pip install -e .",
        ),
        scripts={
            "*projects/adder/adder.py": "torch mingpt.model mingpt.trainer mingpt.utils",
            "*projects/chargpt/chargpt.py": "torch mingpt.model mingpt.trainer mingpt.utils",
            "mingpt/__init__.py": "",
            "mingpt/model.py": "torch mingpt.utils",
            "mingpt/trainer.py": "torch mingpt.utils",
            "mingpt/utils.py": "random numpy torch",
        },
        files={"setup.py": "from setuptools import setup\nsetup(install_requires=['torch'])\n"},
        writes={
            "python.requirements": [],
            "python.packages": ["-e .", "numpy"],
            "train.command": "python projects/adder/adder.py",
        },
        notes=("may be the training: projects/adder/adder.py, projects/chargpt/chargpt.py (taken",),
    ),
    "karpathy/makemore": RealRepository(
        commit="988aa59e4d8fefa526d06f3b453ad116258398d4",
        readme=("$ python makemore.py -i names.txt -o names",),
        scripts={"*makemore.py": "os torch torch.nn torch.utils.tensorboard"},
        writes={
            "python.requirements": [],
            "python.packages": ["torch", "tensorboard"],
            "train.command": "python makemore.py -i names.txt -o names",
            "train.results": ["names/"],
        },
    ),
    "karpathy/nanochat": RealRepository(
        commit="92d63d4e8bb4df75c3b71618f31ddde2378b2bcd",
        readme=(
            "uv sync --extra gpu    # Use for CUDA (A100/H100/etc.)",
            "OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=8 -m scripts.base_train "
            "-- \\\n    --depth=12 \\\n    --run=d12 \\",
        ),
        scripts={
            "*scripts/base_train.py": "os wandb torch nanochat.gpt",
            "scripts/tok_train.py": "nanochat.gpt",
            "scripts/tok_eval.py": "nanochat.gpt",
            "nanochat/__init__.py": "",
            "nanochat/gpt.py": "torch rustbpe tiktoken",
            "nanochat/dataset.py": "requests",
        },
        files={
            "pyproject.toml": _NANOCHAT_PROJECT,
            "uv.lock": _NANOCHAT_LOCK,
            ".python-version": "3.10\n",
            "runs/speedrun.sh": "python -m nanochat.dataset -n 8\n"
            "python -m nanochat.dataset -n 170 &\n"
            "python -m scripts.tok_train\npython -m scripts.tok_eval\n"
            "torchrun --nproc_per_node=8 -m scripts.base_train -- --run=$RUN\n",
        },
        writes={
            "python.lock": "uv.lock",
            "python.version": "3.10",
            "python.extras": ["gpu"],
            "env": {"PYTHONPATH": ".", "WANDB_MODE": "offline"},
            "train.command": "torchrun --standalone --nproc_per_node=gpu -m scripts.base_train -- "
            "--depth=12 --run=d12",
        },
        notes=(
            "runs/speedrun.sh runs first: python -m nanochat.dataset -n 8, "
            "python -m scripts.tok_train (what",
        ),
    ),
    "ultralytics/yolov5": RealRepository(
        commit="5081342f04fb287fc2e5f2b5a4e06752b7937b1c",
        readme=(
            "pip install ultralytics",
            "pip install -r requirements.txt  # Install dependencies",
            "python detect.py --weights yolov5s.pt --source 0",
            "python train.py --data coco.yaml --epochs 300 --weights '' --cfg yolov5n.yaml",
        ),
        scripts={
            "*train.py": "os numpy torch yaml val models.yolo",
            "*segment/train.py": "os numpy torch yaml models.yolo",
            "*classify/train.py": "os torch torchvision models.yolo",
            "*val.py": "torch numpy",
            "*detect.py": "torch",
            "models/__init__.py": "",
            "models/yolo.py": "torch thop",
        },
        files={
            "requirements.txt": "matplotlib>=3.3\nnumpy>=1.23.5\nPyYAML>=5.3.1\ntorch>=1.8  # see\n"
            "torchvision>=0.9.0\n# protobuf<=3.20.1\n",
            "pyproject.toml": "[tool.ruff]\nline-length = 120\n",
        },
        writes={
            "python.requirements": ["requirements.txt"],
            "train.command": "python train.py --data coco.yaml --epochs 300 --weights '' "
            "--cfg yolov5n.yaml",
        },
        notes=(
            "models/yolo.py imports thop, which no requirement names",
            "a page also installs, in other sections: ultralytics",
        ),
    ),
    "facebookresearch/DiT": RealRepository(
        commit="ed81ce2229091fd4ecc9a223645f95cf379d582b",
        readme=(
            "conda env create -f environment.yml",
            "python sample.py --image-size 512 --seed 1",
            "torchrun --nnodes=1 --nproc_per_node=N train.py --model DiT-XL/2 "
            "--data-path /path/to/imagenet/train",
        ),
        scripts={
            "*train.py": "torch torchvision numpy PIL models diffusers",
            "models.py": "torch numpy timm",
            "*sample.py": "torch models diffusers",
        },
        files={"environment.yml": _DIT_ENVIRONMENT},
        writes={
            "python.requirements": [],
            "python.packages": [
                "torch>=1.13",
                "torchvision",
                "timm",
                "diffusers",
                "accelerate",
                "numpy",
                "pillow",
            ],
            "train.command": "torchrun --nnodes=1 --nproc_per_node=gpu train.py --model DiT-XL/2 "
            "--data-path /path/to/imagenet/train",
        },
        notes=(
            "environment.yml also asks for pytorch-cuda",
            "the command has places to fill in: /path/to/imagenet/train",
        ),
    ),
    "lucidrains/denoising-diffusion-pytorch": RealRepository(
        commit="faed4db28e724735323fa91c70aa9b28a6e1cbac",
        readme=("$ pip install denoising_diffusion_pytorch", "$ accelerate launch train.py"),
        scripts={
            "denoising_diffusion_pytorch/__init__.py": "",
            "*denoising_diffusion_pytorch/guided_diffusion.py": "torch einops",
        },
        files={"pyproject.toml": _DDPM_PROJECT},
        writes={},  # a library: the reader writes the train.py of its README
        notes=("no training script was found", "runs accelerate launch train.py"),
    ),
    "tloen/alpaca-lora": RealRepository(
        commit="8bb8579e403dc78e37fe81ffbb253c413007323f",
        readme=(
            "pip install -r requirements.txt",
            "python finetune.py \\\n    --base_model 'decapoda-research/llama-7b-hf' \\\n"
            "    --data_path 'yahma/alpaca-cleaned' \\\n    --output_dir './lora-alpaca'",
            "python generate.py --load_8bit",
        ),
        scripts={
            "*finetune.py": "os fire torch transformers datasets bitsandbytes peft utils.prompter",
            "*generate.py": "torch gradio",
            "utils/__init__.py": "",
            "utils/prompter.py": "json",
        },
        files={
            "requirements.txt": _ALPACA_LORA_REQUIREMENTS,
            "pyproject.toml": "[tool.black]\nline-length = 79\n",
        },
        writes={
            "python.requirements": ["requirements.txt"],
            "python.packages": ["torch"],
            "train.command": "python finetune.py --base_model decapoda-research/llama-7b-hf "
            "--data_path yahma/alpaca-cleaned --output_dir ./lora-alpaca",
            "train.results": ["lora-alpaca/"],
        },
    ),
    "tatsu-lab/stanford_alpaca": RealRepository(
        commit="761dc5bfbdeeffa89b8bff5d038781a4055f796a",
        readme=(
            "pip install -r requirements.txt",
            "torchrun --nproc_per_node=4 --master_port=<your_random_port> train.py \\\n"
            "    --model_name_or_path <your_path_to_model> \\\n    --output_dir <your_output_dir>",
        ),
        scripts={
            "*train.py": "torch transformers utils",
            "utils.py": "openai tqdm",
            "*weight_diff.py": "fire torch tqdm",
        },
        files={"requirements.txt": "numpy\nfire\nopenai\ntransformers>=4.28.1\ntorch\nwandb\n"},
        writes={
            "python.requirements": ["requirements.txt"],
            "python.packages": ["tqdm"],
            "train.command": "torchrun --nproc_per_node=gpu train.py --model_name_or_path "
            "'<your_path_to_model>' --output_dir '<your_output_dir>'",
        },
        notes=("the command has places to fill in: <your_path_to_model>, <your_output_dir>",),
    ),
    "ashleve/lightning-hydra-template": RealRepository(
        commit="bddbc24b82ab6ccfa6243e815a49dc5bfe8d4144",
        readme=(
            "conda env create -f environment.yaml -n myenv",
            "pip install -r requirements.txt",
            "python src/train.py",
            "python train.py trainer.max_epochs=20 model.optimizer.lr=1e-4",
        ),
        scripts={
            "*src/train.py": "hydra lightning rootutils torch omegaconf src.utils",
            "src/__init__.py": "",
            "src/utils/__init__.py": "rich",
            "*src/eval.py": "hydra lightning",
            "tests/test_train.py": "pytest",
        },
        files={
            "requirements.txt": _HYDRA_REQUIREMENTS,
            "environment.yaml": "dependencies: [python=3.10, pytorch=2.*]\n",
            "setup.py": "from setuptools import setup\nsetup(install_requires=['lightning'])\n",
            "logs/.gitkeep": "",
        },
        writes={
            "python.requirements": ["requirements.txt"],
            "python.packages": ["omegaconf"],
            "env": {"PYTHONPATH": "."},
            "train.command": "python src/train.py",
            "train.results": ["logs/"],
        },
    ),
    "lucidrains/x-transformers": RealRepository(
        commit="9252ed7838021ee61e6c5be0930b3a9a88efdf06",
        readme=("$ pip install x-transformers",),
        scripts={
            "*train_copy.py": "tqdm torch x_transformers",
            "*train_enwik8.py": "tqdm torch numpy wandb x_transformers",
            "x_transformers/__init__.py": "torch einx einops",
        },
        files={"pyproject.toml": _X_TRANSFORMERS_PROJECT},
        writes={"python.packages": ["tqdm"], "train.command": "python train_copy.py"},
        notes=("may be the training: train_copy.py, train_enwik8.py (taken is train_copy.py",),
    ),
    "kuangliu/pytorch-cifar": RealRepository(
        commit="49b7aa97b0c12fe0d4054e670403a16b6b834ddd",
        readme=("python main.py", "python main.py --resume --lr=0.01"),
        scripts={
            "*main.py": "torch torch.nn torchvision models utils",
            "models/__init__.py": "models.vgg",
            "models/vgg.py": "torch",
            "utils.py": "os torch",
        },
        writes={
            "python.requirements": [],
            "python.packages": ["torch", "torchvision"],
            "train.command": "python main.py",
        },
    ),
}
