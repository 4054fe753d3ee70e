"""Git addresses among an environment's requirements, in every notation."""

from collections.abc import Mapping
from typing import Any

import pytest

from bootstrap.profile.schema import Python
from bootstrap.profile.survey.declared import GitDependency, find_git_dependencies, sent_from_here

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
