"""What an environment is made from, as the box sees it: pip's own parser reads no file more.

Also which Python it gets, and what environment.yml and conda's settings say.
"""

import contextlib
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given as generated
from hypothesis import settings
from hypothesis import strategies as st

from bootstrap.onbox.conda.environment import (
    BoxChannels,
    activation,
    channels_of,
    parse_file,
    read_box,
)
from bootstrap.onbox.git import BoxTree
from bootstrap.onbox.python.accepted import accepted
from bootstrap.onbox.python.environment import BoxEnvironment
from bootstrap.onbox.python.sources import find_sources
from tests.cases import parts_of, read_cases
from tests.unit.setup.scripts import values_of

UTF8, UTF16 = "utf-8", "utf-16"


def found_in(root: Path, files: dict[str, str | bytes], **values: Any) -> dict[str, Any]:
    """Return what the environment is made from, if a profile has these values."""
    write(root, files)
    named = {"requirements_set": True} if "requirements" in values else {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        return vars(find_sources(str(root), values_of(**values, **named)))


def sources(root: Path, files: dict[str, str | bytes], conda: str = "") -> list[str]:
    return [os.path.normpath(name) for name in found_in(root, files, conda=conda)["files"]]


def write(root: Path, files: dict[str, str | bytes]) -> None:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())


LINES = {
    "plain": b"-r base.txt\n",
    "Windows": b"-r base.txt\r\ntorch\r\n",
    "tab": b"-r\tbase.txt\n",
    "byte-order mark": b"\xef\xbb\xbf-r base.txt\n",
    "PowerShell": "-r base.txt\r\ntorch\r\n".encode(UTF16),
    "big-endian": b"\xfe\xff" + "-r base.txt\n".encode("utf-16-be"),
    "quotes": b'-r "base.txt"\n',
    "single quotes": b"-r 'base.txt'\n",
    "continued": b"-r \\\nbase.txt\n",
    "glued": b"-rbase.txt\n",
    "variable": b"-r ${BASE}.txt\n",
    "long": b"--requirement=base.txt\n",
    "long with a space": b"--constraint  base.txt\n",
    "comment": b"-r base.txt # of all\n",
    "indented": b"  -c base.txt\n",
    "no newline": b"torch\n-r base.txt",
    "address": b"-r file:base.txt\n",
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_a_requirements_file_included_in_any_notation_of_pip_is_read_too(
    tmp_path: Path, line: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BASE", "base")
    found = sources(tmp_path, {"requirements.txt": line, "base.txt": "six\n"})
    assert found == ["requirements.txt", "base.txt"]


@pytest.mark.parametrize(
    "line", ["# -r base.txt\n", "torch # as base.txt says\n", "-r https://example.org/base.txt\n"]
)
def test_setup_reads_no_requirements_file_in_a_comment_or_at_a_url(
    tmp_path: Path, line: str
) -> None:
    assert sources(tmp_path, {"requirements.txt": line, "base.txt": "six\n"}) == [
        "requirements.txt"
    ]


def test_requirement_files_include_others_relative_to_their_own_folder(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "requirements.txt": "-r req/train.txt\n",
        "req/train.txt": '-r ../base.txt\n-c pins.txt\n-r a b.txt\n-r"c d e.txt"\n',
        "base.txt": "-r requirements.txt\n",
        "req/pins.txt": "",
        "req/a b.txt": "",
        "req/c d e.txt": "",
    }
    assert sorted(sources(tmp_path, files)) == sorted(files)


@pytest.mark.parametrize(
    ("line", "folder"),
    [("-e ../../libs/common", "apps/a"), ("../../libs/common", "apps/a"), ("-e libs/common", "")],
)
def test_a_local_package_path_is_looked_up_from_its_requirements_file_or_else_the_tree(
    tmp_path: Path, line: str, folder: str
) -> None:
    """Installers read such paths from where they are started, most people from the file."""
    files: dict[str, str | bytes] = {"apps/a/r.txt": f"{line}\n", "libs/common/pyproject.toml": LIB}
    found = found_in(tmp_path, files, requirements=["apps/a/r.txt"])
    assert found["arguments"] == ["-r", f"{tmp_path}/apps/a/r.txt" if folder else "apps/a/r.txt"]
    assert found["of_uv"] == (["--directory", f"{tmp_path}/{folder}"] if folder else [])
    assert found["built"]
    (tmp_path / "libs/common/pyproject.toml").write_text(f"{LIB} ")
    assert found_in(tmp_path, {}, requirements=["apps/a/r.txt"])["built"] != found["built"]


def test_requirements_files_named_in_a_conda_files_pip_section_are_read_too(tmp_path: Path) -> None:
    listed = "dependencies:\n  - pip:\n    - '-r base.txt'\n    - -c pins.txt\n    - torch\n"
    files: dict[str, str | bytes] = {"e.yml": listed, "base.txt": "", "pins.txt": "", "torch": ""}
    assert sources(tmp_path, files, "e.yml") == ["e.yml", "base.txt", "pins.txt"]


NAMES = ("a.txt", "b.txt", "sub/c.txt", "sub/d e.txt")
OPTIONS = ("-r ", "-r\t", "-c  ", "--requirement=", "--constraint ", "-r", "--requirement ")
ENDS = ("\n", "\r\n", " # why\n", "\\\n\n")
LINE = st.tuples(*map(st.sampled_from, (OPTIONS, ("{}", '"{}"', "'{}'"), NAMES, ENDS)))
TEXT = st.lists(st.one_of(LINE, st.just(("", "{}", "six", "\n"))), max_size=4)
ENCODED = st.sampled_from((UTF8, "utf-8-sig", UTF16))


@pytest.mark.slow
@settings(deadline=None, max_examples=15)
@generated(st.lists(st.tuples(TEXT, ENCODED), min_size=5, max_size=5))
def test_setup_reads_every_requirements_file_that_pip_would_read(
    tmp_path_factory: pytest.TempPathFactory, texts: list[tuple[list[Any], str]]
) -> None:
    root = tmp_path_factory.mktemp("tree")
    files: dict[str, str | bytes] = {}
    for name, (lines, encoding) in zip(("requirements.txt", *NAMES), texts, strict=True):
        folder = str(Path(name).parent)
        written = [
            option + quote.format(os.path.relpath(to, folder) if option else to) + end
            for option, quote, to, end in lines
            if quote != "{}" or " " not in to
        ]
        files[name] = "".join(written).encode(encoding)
    found = sources(root, files)
    assert {*read_by_pip(root)} <= {*found}


def read_by_pip(root: Path) -> Iterable[str]:
    """Return the files that pip reads, by its own parser; one that includes itself ends it."""
    from pip._internal.exceptions import RequirementsFileParseError
    from pip._internal.network.session import PipSession
    from pip._internal.req import req_file

    found = []
    read = req_file.get_file_content

    def noted(name: str, *rest: Any, **more: Any) -> Any:
        found.append(os.path.relpath(name, root))
        return read(name, *rest, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(req_file, "get_file_content", noted)
        with contextlib.suppress(RequirementsFileParseError):  # it includes itself
            [*req_file.parse_requirements(str(root / "requirements.txt"), PipSession())]
    return found


LIB = '[build-system]\n[project]\nname = "lib"\n'
DEPENDS = read_cases(Path(__file__).with_name("sources.txt"))[1:]


@pytest.mark.parametrize("text", [text for _, text in DEPENDS], ids=[name for name, _ in DEPENDS])
def test_a_change_in_any_file_the_installer_reads_causes_a_rebuilt_environment(
    tmp_path: Path, text: str
) -> None:
    files: dict[str, str | bytes] = {**parts_of(text)}
    said = dict(line.split(" ", 1) for line in str(files.pop("")).splitlines())
    values = {"conda": "e.yml" if "e.yml" in files else ""}
    values |= {"added_arguments": said.get("added", "").split()}
    before = found_in(tmp_path, {**files, "train.py": "1", "README.md": "1"}, **values)
    assert found_in(tmp_path, {"train.py": "2", "README.md": "2"}, **values) == before
    changes: dict[str, str | bytes] = {said["changes"]: "[tool.uv]\n# changed\n"}
    assert found_in(tmp_path, changes, **values) != before


def test_a_requirements_file_that_is_missing_makes_no_environment_right(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {"a.txt": "six\n"}
    right = found_in(tmp_path, files, requirements=["a.txt"])["sums"]
    assert found_in(tmp_path, files, requirements=["a.txt", "typo.txt"])["sums"] != right


def test_a_changed_file_of_a_local_package_makes_a_new_environment(tmp_path: Path) -> None:
    write(tmp_path, {"requirements.txt": "./lib\n", "lib/setup.py": "", "lib/own.py": ""})
    tree = BoxTree("/nowhere", "k", str(tmp_path))

    def inputs(placed: str) -> str:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(tmp_path)
            patch.setattr(tree.placed, "id_of", {"HEAD:lib": placed}.__getitem__)
            return BoxEnvironment(values_of(venv="/env"), tree, str(tmp_path), "/env").inputs

    assert inputs("1") != inputs("2")
    assert inputs("1") == inputs("1")


STATED = {
    "pyproject.toml": ("[project]\nname = 'x'\nrequires-python = '>=3.8,<3.11'\n", ">=3.8,<3.11"),
    "another table's": ("[tool.x]\nrequires-python = '>=3.8'\n[project]\nname = 'x'\n", ""),
    "after a list": (
        '[project]\nclassifiers = [\n  "A :: B",\n]\nrequires-python = "~=3.9"\n', "~=3.9"
    ),
    "poetry": ("[tool.poetry.dependencies]\npython = '^3.9'\n", ">=3.9,<4"),
    "poetry's narrow": ("[tool.poetry.dependencies]\npython = \"~3.9\"\n", ">=3.9,<3.10"),
    "poetry's choice": ("[tool.poetry.dependencies]\npython = '3.8 || 3.9'\n", ""),
    "setup.cfg": ("[options]\npython_requires = >=3.7, <3.11\n", ">=3.7,<3.11"),
    "setup.py": ("setup(\n    python_requires='>=3.7',\n)\n", ">=3.7"),
    "nothing": ("[build-system]\nrequires = ['setuptools']\n", ""),
}  # fmt: skip


@pytest.mark.parametrize(("text", "range_"), STATED.values(), ids=STATED)
def test_setup_reads_the_accepted_python_versions_from_pyproject_setup_py_or_setup_cfg(
    tmp_path: Path, text: str, range_: str
) -> None:
    name = "setup.py" if text.startswith("setup(") else "pyproject.toml"
    (tmp_path / ("setup.cfg" if text.startswith("[options]") else name)).write_text(text)
    assert accepted(str(tmp_path)) == range_


FILE = {
    "name": "x",
    "channels": ["pytorch", "defaults"],
    "dependencies": [
        "python=3.11",
        "other::numpy>=1.2",
        {
            "pip": [
                'torch>=2; python_version > "3"  # why',
                '-r "more files.txt"',
                "--find-links 'a b'",
                "#",
            ]
        },
    ],
    "variables": {"NAME": "it's me", "NUMBER": 3, "not-a-name": "x"},
}


def test_a_conda_environment_file_is_read_into_packages_pip_lines_and_variables() -> None:
    file = parse_file(FILE)
    assert file.specs == ("python=3.11", "other::numpy>=1.2")
    plain = ('torch>=2; python_version > "3"',)
    assert file.pip == (*plain, "-r", "more files.txt", "--find-links", "a b")
    assert file.variables == {"NAME": "it's me", "NUMBER": "3", "not-a-name": "x"}


@pytest.mark.parametrize("document", [None, [], {"dependencies": "numpy"}, {"channels": []}])
def test_a_conda_file_without_dependencies_raises_an_error_that_says_so(document: object) -> None:
    with pytest.raises(ValueError, match="no list of dependencies"):
        parse_file(document)


@pytest.mark.parametrize(
    ("channels", "box", "asked"),
    [
        (["pytorch"], BoxChannels(), ["pytorch", "conda-forge"]),
        (["pytorch", "nodefaults"], BoxChannels(), ["pytorch"]),
        (["pytorch"], BoxChannels(("ours", "pytorch")), ["pytorch", "ours"]),
        (["defaults"], BoxChannels(("defaults",)), ["main", "r"]),
        (["defaults"], BoxChannels(("a",), defaults=("https://h/m",)), ["https://h/m", "a"]),
        (["ours"], BoxChannels(("a",), named={"ours": "https://h/x/"}), ["https://h/x/ours", "a"]),
        ([], BoxChannels(), ["conda-forge"]),
    ],
)
def test_conda_channels_are_those_of_the_file_and_of_the_boxs_settings(
    channels: list[str], box: BoxChannels, asked: list[str]
) -> None:
    file = parse_file({"channels": channels, "dependencies": ["numpy"]})
    assert channels_of(file, box) == asked


def test_a_conda_channel_that_only_a_package_names_is_searched_last() -> None:
    assert channels_of(parse_file(FILE), BoxChannels()) == [
        *("pytorch", "main", "r", "conda-forge", "other")
    ]


def test_later_conda_settings_and_variables_on_a_box_override_earlier_ones() -> None:
    settings = [
        {"channels": ["a"], "channel_alias": "https://one/"},
        {"channels": ["b", "c"], "default_channels": ["d"], "custom_channels": {"e": "https://e"}},
        None,
    ]
    assert read_box(settings, {}) == BoxChannels(
        ("b", "c"), "https://one/", ("d",), {"e": "https://e"}
    )
    said = read_box(settings, {"CONDA_CHANNELS": "x,y", "CONDA_CHANNEL_ALIAS": "https://two"})
    assert (said.channels, said.alias) == (("x", "y"), "https://two")


def test_sourcing_the_activation_script_enters_the_conda_environment(tmp_path: Path) -> None:
    prefix = tmp_path / "it's"
    scripts = prefix / "etc/conda/activate.d"
    scripts.mkdir(parents=True)
    (scripts / "one.sh").write_text('export ONE="$CONDA_PREFIX"\n')
    script = tmp_path / "activate.sh"
    script.write_text(activation(str(prefix), parse_file(FILE).variables))
    ask = 'set -u; . "$0"; . "$0"; echo "$PATH|$NAME|$NUMBER|$ONE|${VIRTUAL_ENV-none}"'
    environ = {"PATH": "/usr/bin:/bin", "VIRTUAL_ENV": "other"}
    said = subprocess.check_output(["/bin/sh", "-c", ask, str(script)], env=environ, text=True)
    assert said == f"{prefix}/bin:/usr/bin:/bin|it's me|3|{prefix}|none\n"
