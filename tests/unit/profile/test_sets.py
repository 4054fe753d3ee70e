"""`--set key.sub=value`."""

from pathlib import Path

import pytest

from bootstrap.profile.load import read_profile
from bootstrap.profile.yaml_source import WrongProfileError
from tests.cases import read_cases


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("python.version=3.10", "python.version", "3.10"),
        ("git.ref=0600", "git.ref", "0600"),
        ("git.ref=on", "git.ref", "on"),
        ("git.ref=a=b", "git.ref", "a=b"),
        ("git.ref=null", "git.ref", None),
        ("train.command=python train.py --lr=1e-3", "train.command", "python train.py --lr=1e-3"),
        ("train.command=null", "train.command", "null"),
        ("env.A=", "env.A", ""),
        ("env.A=b=c", "env.A", "b=c"),
        ("env.HF_TOKEN_FILE=null", "env.HF_TOKEN_FILE", "null"),
        ("gpu.count=2", "gpu.count", 2),
        ("gpu.name=H100, A100", "gpu.name", "H100, A100"),
        ("gpu.name=[H100, RTX 4090]", "gpu.name", "H100, RTX 4090"),
        ("gpu.count=null", "gpu.count", None),
        ("gpu.require=false", "gpu.require", False),
        ("gpu.min_memory_gib=40", "gpu.min_memory_gib", 40.0),
        ("packages=ffmpeg", "packages", ["ffmpeg"]),
        ("packages=a, b", "packages", ["a", "b"]),
        ("packages=[a, 'b']", "packages", ["a", "b"]),
        ("packages=[]", "packages", []),
        ("packages=", "packages", []),
        ("python.requirements=null", "python.requirements", None),
        ("python.extras=[3.10]", "python.extras", ["3.10"]),
        ("train=null", "train", None),
    ],
)
def test_a_value_of_the_set_option_gets_the_type_of_its_profile_key(write, text, key, value):
    write("train: {command: x}\ngit: {ref: main}\ngpu: {count: 1}\npython: {requirements: [r]}")
    loaded = read_profile("a.yaml", sets=[text])
    found = loaded.profile.as_dict()
    for step in key.split("."):
        found = found[step]
    assert found == value
    assert type(found) is type(value)
    assert str(loaded.origins[key]) == "--set"


def test_the_set_option_overrides_the_profile_and_a_later_set_option_an_earlier_one(write):
    write("gpu: {count: 1}\nenv: {A: x, B: x}")
    loaded = read_profile("a.yaml", sets=["gpu.count=2", "env.A=y", "gpu.count=3"])
    assert loaded.profile.gpu.count == 3
    assert loaded.profile.env == {"A": "y", "B": "x"}


UNREADABLE = [
    ("--set packages: ", "packages=[a"),
    ("--set", "env.A\x1b=x"),
    ("--set git.ref: '\\udcff' is not UTF-8 text", "git.ref=\udcff"),
]
WRONG = read_cases(Path(__file__).with_name("sets.txt"))[1:]


@pytest.mark.parametrize(("says", "text"), [*WRONG, *UNREADABLE])
def test_a_wrong_set_option_gives_an_error_that_names_its_key(write, text, says):
    write("version: 1")
    with pytest.raises(WrongProfileError) as caught:
        read_profile("a.yaml", sets=[text])
    said = caught.value.text()
    assert said == says if not says.endswith((": ", "--set")) else said.startswith(says)
    assert all(line.isprintable() for line in said.splitlines())


def test_mistakes_of_a_profile_file_and_of_set_options_are_reported_together(write):
    write("gpu: {count: x}")
    with pytest.raises(WrongProfileError) as caught:
        read_profile("a.yaml", sets=["box=1", "git.ref=-x"])
    assert caught.value.text().splitlines() == [
        "a.yaml:1: gpu.count: expected a whole number, got the text 'x'",
        "--set box: this is a section; set one of box.workdir, box.min_cpus, "
        "box.min_memory_gib, box.min_shm_gib, box.min_disk_gib, box.price, box.arch, "
        "box.image, box.disk_gb, box.volume",
        "--set git.ref: '-x' starts with a dash: a program would take it for an option",
    ]
