"""Recognising a provider, listing profiles, the shipped schema."""

import subprocess
import sys

import pytest
import yaml

from bootstrap import paths
from bootstrap.profile import PROFILE, detect_provider
from bootstrap.profile.detect_provider import Hints, all_hints, other_than, recognise
from bootstrap.profile.load import listed, read_profile
from tools.docs import profile_schema


@pytest.mark.parametrize(
    ("env", "files", "provider"),
    [
        (["VAST_CONTAINERLABEL", "PATH"], [], "vast"),
        (["VAST_CONTAINERLABEL", "VAST_TCP_PORT_22"], ["/etc/rp_environment"], "vast"),
        (["HOME", "PATH"], ["/etc/passwd"], "ssh"),
        ([], [], "ssh"),
    ],
)
def test_the_provider_of_a_box_is_told_by_its_variables_and_files(env, files, provider):
    assert recognise(env, files) == provider
    assert not read_profile(provider).needs_provider


def test_a_providers_hints_are_the_same_read_with_and_without_the_yaml_library():
    read = detect_provider._hints()
    assert len(read) > 5
    for path in paths.shipped("profiles").glob("*.yaml"):
        detect = yaml.safe_load(path.read_text()).get("provider", {}).get("detect", {})
        hints = read.get(path.stem, Hints(frozenset(), frozenset()))
        assert (hints.env, hints.files) == (
            set(detect.get("env", ())),
            set(detect.get("files", ())),
        )


def test_each_hint_in_a_shipped_profile_alone_tells_its_provider():
    env, files = all_hints()
    for name in ("vast", "runpod", "lambda", "paperspace", "ec2", "hf", "gcp", "azure"):
        detect = read_profile(name).profile.provider.detect
        assert set(detect.env) <= env
        assert set(detect.files) <= files
        for hint in detect.env:
            assert recognise([hint], []) == name
        for hint in detect.files:
            assert recognise([], [hint]) == name


def test_recognising_a_provider_imports_neither_pydantic_nor_yaml():
    code = (
        "import sys; from bootstrap.profile.detect_provider import recognise; recognise([], []);"
        "sys.exit(not sys.modules.keys().isdisjoint({'pydantic', 'yaml'}))"
    )
    root = str(paths.shipped("profiles").parent)
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root, timeout=120)


def test_in_the_list_of_profiles_the_users_hides_a_shipped_one_of_its_name(write, config):
    write("# yaml-language-server: $schema=x\n#\n# Ours.\n# More.\nversion: 1", "ours.yaml", config)
    write("version: 1\n# not this", "vast.yaml", config)
    found = {each.name: each for each in listed()}
    shipped = [
        *("azure", "demo", "ec2", "gcp", "hf", "lambda", "local", "paperspace", "runpod", "ssh")
    ]
    assert list(found) == ["ours", "vast", *shipped]
    assert (found["ours"].description, found["ours"].own) == ("Ours.", True)
    assert (found["vast"].description, found["vast"].own) == ("", True)
    assert (found["runpod"].description, found["runpod"].own) == ("A pod on RunPod.", False)
    assert all(each.description for each in listed() if not each.own)


def test_the_shipped_profile_schema_equals_the_generated_schema():
    shipped = (paths.shipped("profiles") / "schema.json").read_text(encoding="utf-8")
    assert shipped == profile_schema.text(), "renew it: make docs"


def test_the_profile_schema_refuses_unknown_keys_and_describes_every_key():
    seen = list(keys_of(profile_schema.schema()))
    assert sorted(seen) == sorted(key for key, _ in PROFILE.leaves())


def keys_of(section, prefix=""):
    assert section["additionalProperties"] is False
    for name, key in section["properties"].items():
        assert key["description"]
        if "properties" in key:
            yield from keys_of(key, f"{prefix}{name}.")
        else:
            yield prefix + name


def test_every_shipped_profile_has_a_comment_that_names_its_schema():
    for path in paths.shipped("profiles").glob("*.yaml"):
        assert "# yaml-language-server: $schema=schema.json\n" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("profile", "env", "files", "other"),
    [
        ("vast", ["RUNPOD_POD_ID"], ["/etc/rp_environment"], "runpod"),
        ("vast", ["VAST_CONTAINERLABEL"], [], ""),
        ("vast", ["VAST_CONTAINERLABEL", "RUNPOD_POD_ID"], [], ""),
        ("vast", ["HOME"], [], ""),
        ("ssh", ["RUNPOD_POD_ID"], [], ""),
        ("runpod", [], ["/home/paperspace"], "paperspace"),
    ],
)
def test_a_box_with_the_variables_of_another_provider_than_the_profiles_is_detected(
    profile, env, files, other
):
    detect = read_profile(profile).profile.provider.detect
    own = Hints(frozenset(detect.env), frozenset(detect.files))
    assert other_than(own, env, files) == other
