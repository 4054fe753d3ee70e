"""Reading environment.yml, the channels that result on a box, and activation in a shell."""

import subprocess
from pathlib import Path

import pytest

from bootstrap.onbox.conda.environment import (
    BoxChannels,
    activation,
    channels_of,
    parse_file,
    read_box,
)

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
