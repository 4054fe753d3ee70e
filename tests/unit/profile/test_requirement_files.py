"""Requirements: those that no box can install are refused; git addresses and names in them."""

from collections.abc import Mapping
from typing import Any

import pytest

from bootstrap.errors import UsageError
from bootstrap.profile.schema import Python
from bootstrap.profile.survey.declared import GitDependency, find_git_dependencies, sent_from_here
from bootstrap.profile.survey.files import check_requirements, package_name, provides


def check(files: dict[str, bytes], **python: Any) -> None:
    def read(names: list[str]) -> dict[str, bytes]:
        return {name: files[name] for name in names if name in files}

    check_requirements(Python(**python), read)


GOOD = {
    "Windows": b"-r base.txt\r\ntorch\r\n",
    "tab": b"-r\tbase.txt\n",
    "byte-order mark": b"\xef\xbb\xbf-r base.txt\n",
    "PowerShell": "-r base.txt\r\ncaf\u00e9\r\n".encode("utf-16"),
    "quotes": b'-r "base.txt"\n',
    "continued": b"-r \\\nbase.txt\n",
    "variable": b"-r ${NAME}.txt\n",
    "address": b"-r https://example.org/more.txt\n",
    "comment": b"# -r none.txt\ntorch # -r none.txt\n",
    "hash": b"torch==2.0 \\\n    --hash=sha256:00 \\\n    --hash=sha256:11\n",
    "folder": b"-e ./lib[all]\nlib @ file:lib\nwhl @ file:///opt/wheels/x.whl\n",
    "index": b"--extra-index-url https://example.org/simple\n-f wheels\n",
}


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD)
def test_requirements_files_that_pip_and_uv_can_read_give_no_error(text: bytes) -> None:
    check({"requirements.txt": text, "base.txt": b"six\n"})


BAD = {
    "Latin-1": ({"requirements.txt": b"torch\n# caf\xe9\n"}, "requirements.txt:2: ", "iconv"),
    "Latin-1 further down": (
        {"requirements.txt": b"-r base.txt\n", "base.txt": b"\xe9"},
        "base.txt:1: ",
        "iconv",
    ),
    "pip freeze in conda": (
        {"requirements.txt": b"numpy @ file:///croot/numpy_1/work/dist/numpy.whl#sha256=0\n"},
        "requirements.txt:1: ",
        "Write numpy with its version",
    ),
    "of Windows": (
        {"requirements.txt": b"six @ file:///D:/bld/six_1/work\n"},
        "requirements.txt:1: ",
        "Write six",
    ),
    "not committed": (
        {"requirements.txt": b"torch\r\n-r base.txt\r\n"},
        "requirements.txt:2: ",
        "Commit that file",
    ),
}


@pytest.mark.parametrize(("files", "where", "advice"), BAD.values(), ids=BAD)
def test_a_requirement_no_box_can_install_is_wrong_usage_with_its_line_and_advice(
    files: dict[str, bytes], where: str, advice: str
) -> None:
    with pytest.raises(UsageError) as caught:
        check(files)
    assert where in caught.value.text()
    assert advice in caught.value.text()


def test_a_local_file_in_the_pip_section_of_a_conda_file_is_refused() -> None:
    listed = b"dependencies:\n- pip:\n  - -r more.txt\n  - six @ file:///croot/six/work\n"
    with pytest.raises(UsageError, match="croot"):
        check({"e.yml": listed, "more.txt": b""}, conda="e.yml")


def test_a_requirements_file_with_a_declared_encoding_is_wrong_usage_except_for_pip() -> None:
    text = b"# -*- coding: latin-1 -*-\n# caf\xe9\n"
    check({"requirements.txt": text}, installer="pip")
    with pytest.raises(UsageError):
        check({"requirements.txt": text})


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


COMMIT = "12ab" * 10
SSH = "ssh://git@example.org/me/lib.git"


def found(files: Mapping[str, str], **python: Any) -> list[tuple[str, str]]:
    def read(names: list[str]) -> dict[str, str]:
        return {name: files[name] for name in names if name in files}

    return [tuple(each) for each in find_git_dependencies(Python(**python), read)]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("line", "address", "ref"),
    [
        (f"lib @ git+{SSH}", SSH, ""),
        (f"lib[all]@git+{SSH}@{COMMIT}", SSH, COMMIT),
        (f"lib @ git+{SSH}@feature/x ; python_version > '3'", SSH, "feature/x"),
        (f"-e git+{SSH}@v1#egg=lib&subdirectory=x", SSH, "v1"),
        (f"--editable=git+{SSH}#egg=lib", SSH, ""),
        ("git+git@example.org:me/lib.git@v1", "git@example.org:me/lib.git", "v1"),
        ("lib @ git+ssh://example.org:2222/lib", "ssh://example.org:2222/lib", ""),
        ("lib @ git+https://example.org/me/lib # why", "https://example.org/me/lib", ""),
    ],
)
def test_a_git_requirement_gives_its_address_and_ref(line: str, address: str, ref: str) -> None:
    assert found({"requirements.txt": f"torch\n{line}\n"}) == [(address, ref)]


def test_git_dependencies_of_included_requirement_files_are_found_and_comments_ignored() -> None:
    files = {
        "requirements.txt": f"-r more/a.txt\n# x @ git+{SSH}@no\n",
        "more/a.txt": f"-c b.txt\n-r ../requirements.txt\nlib @ git+{SSH}@a\n",
        "more/b.txt": f"-r ../../beyond.txt\n-r ../c.txt\nlib @ git+{SSH}@b\n",
        "c.txt": f"lib @ git+{SSH}@c\n",
    }
    assert found(files) == [(SSH, "a"), (SSH, "b"), (SSH, "c")]


def test_git_requirements_in_a_conda_files_pip_section_are_git_dependencies() -> None:
    text = f'dependencies:\n- python\n- pip:\n  - "-r more.txt"\n  - lib @ git+{SSH}@a\n'
    files = {"deep/environment.yml": text, "deep/more.txt": f"lib @ git+{SSH}@b\n"}
    files |= {"requirements.txt": f"lib @ git+{SSH}@no\n", "own.txt": f"lib @ git+{SSH}@own\n"}
    assert found(files, conda="deep/environment.yml") == [(SSH, "a"), (SSH, "b")]
    beside = found(files, conda="deep/environment.yml", requirements=["own.txt"])
    assert beside == [(SSH, "a"), (SSH, "b"), (SSH, "own")]


PROJECT = f"""
[project]
dependencies = ["lib @ git+{SSH}"]
optional-dependencies.train = ["lib @ git+{SSH}@train"]
optional-dependencies.docs = ["lib @ git+{SSH}@docs"]
[dependency-groups]
dev = ["lib @ git+{SSH}@dev"]
[tool.uv.sources]
one = {{ git = "{SSH}", tag = "v1" }}
two = [{{ git = "{SSH}", rev = "{COMMIT}", marker = "x" }}, {{ index = "y" }}]
"""
LOCK = f"""
[[package]]
name = "lib"
source = {{ git = "ssh://example.org/lib?rev=main&subdirectory=x#{COMMIT}" }}
[[package]]
name = "torch"
source = {{ registry = "https://example.org/simple" }}
"""


def test_git_dependencies_of_a_pyproject_file_include_the_chosen_extras_and_groups() -> None:
    always = [(SSH, ""), (SSH, COMMIT), (SSH, "v1")]
    assert found({"pyproject.toml": PROJECT}) == always
    assert found({"pyproject.toml": PROJECT}, extras=["train"]) == sorted([*always, (SSH, "train")])
    files = {"pyproject.toml": PROJECT, "requirements.txt": ""}
    assert found(files) == []
    assert found(files, extras=["train"]) == sorted([*always, (SSH, "train")])
    assert (SSH, "dev") in found(files, groups=["dev"])
    assert found({"pyproject.toml": "not [toml git"}) == []


def test_a_git_dependency_in_uv_lock_has_its_locked_commit_and_pyprojects_ssh_user() -> None:
    files = {"uv.lock": LOCK, "requirements.txt": f"x @ git+{SSH}\n"}
    assert found(files) == [("ssh://example.org/lib", COMMIT)]
    files["pyproject.toml"] = '[tool.uv.sources]\nlib = { git = "ssh://me@example.org/lib" }\n'
    assert found(files) == [("ssh://me@example.org/lib", COMMIT)]
    assert found(files, requirements=["requirements.txt"]) == [(SSH, "")]
    assert found({"a/uv.lock": LOCK}, lock="a/uv.lock") == [("ssh://example.org/lib", COMMIT)]


def test_a_git_address_in_python_packages_of_the_profile_is_a_git_dependency() -> None:
    named = ["lib @ git+https://example.org/lib@v1"]
    assert found({}, packages=named, requirements=[]) == [("https://example.org/lib", "v1")]


@pytest.mark.parametrize(
    ("private", "sent"),
    [
        (None, ["ssh://git@h/me/lib", "git@h:me/lib"]),
        ([], []),
        (["https://h/me/lib.git"], ["https://h/me/lib"]),
        (["https://h/me/"], ["https://h/me/lib"]),
        (["https://h/m"], []),
        (["ssh://git@h/me/lib"], ["ssh://git@h/me/lib"]),
    ],
)
def test_git_dependencies_by_ssh_or_named_as_private_are_sent_from_this_machine(
    private: list[str] | None, sent: list[str]
) -> None:
    """SSH addresses, unless the profile names others; never one with a credential or a program."""
    addresses = ["ssh://git@h/me/lib", "git@h:me/lib", "https://h/me/lib"]
    addresses += ["https://token@h/me/lib", "ssh://me:word@h/me/lib", "ext::sh -c x", "-oX=y:z"]
    every = map(GitDependency, addresses)
    assert [each.address for each in sent_from_here(Python(private=private), every)] == sent
