"""Under which names a package counts as named."""

import pytest

from bootstrap.profile.survey.files import package_name, provides


@pytest.mark.parametrize(
    ("requirement", "name"),
    [
        ("torch", "torch"),
        ("torch==2.1 ; python_version > '3'", "torch"),
        ("Huggingface_Hub[cli] >= 0.2", "huggingface-hub"),
        ("jax[cuda12]@ git+https://github.com/x/other", "jax"),
        ("git+https://github.com/openai/CLIP.git", "clip"),
        ("git+https://github.com/a/timm@v1.0", "timm"),
        ("git+https://github.com/a/repo.git@feature/x#egg=peft&subdirectory=p", "peft"),
        ("git+ssh://git@example.org/me/lib.git@v1", "lib"),
        ("git+git@example.org:me/lib.git", "lib"),
        ("https://example.org/whl/torch-2.1.0%2Bcu121-cp310-cp310-linux_x86_64.whl", "torch"),
        ("https://example.org/whl/torch-2.1.0-cp310-cp310-linux_x86_64.whl#sha256=0", "torch"),
        ("./wheels/flash_attn-2.5.tar.gz", "flash-attn"),
        ("https://github.com/a/diffusers/archive/main.zip", "diffusers"),
        ("./libs/own", ""),
        ("--hash=sha256:0", ""),
    ],
)
def test_a_package_name_is_read_from_any_requirement(requirement: str, name: str) -> None:
    assert package_name(requirement) == name


@pytest.mark.parametrize(
    ("named", "package", "is_same"),
    [
        ("opencv-python-headless", "opencv-python", True),
        ("opencv-contrib-python-headless", "opencv-python", True),
        ("faiss-gpu", "faiss-cpu", True),
        ("faiss-gpu-cu12", "faiss-cpu", True),
        ("tensorflow-cpu", "tensorflow", True),
        ("onnxruntime-gpu", "onnxruntime", True),
        ("pillow-simd", "pillow", True),
        ("clip", "openai-clip", True),
        ("pytorch-image-models", "timm", True),
        ("torchvision", "torch", False),
        ("tensorboardx", "tensorboard", False),
    ],
)
def test_a_variant_such_as_opencv_headless_provides_its_package_unlike_a_similar_name(
    named: str, package: str, is_same: bool
) -> None:
    assert provides({named}, package) == is_same
