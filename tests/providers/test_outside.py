"""A provider that another package brings: installed, held to what every provider must do, used."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli import User
from tests.main_job.conftest import *  # noqa: F403 - boxes
from tests.main_job.rented import Rented
from tests.plain_environment import BIN, HERE
from tests.programs import captured


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the package is installed, as pip does it."""
    folder = tmp_path_factory.mktemp("acme")
    shutil.copytree(Path(__file__).with_name("acme"), folder / "source")
    uv = [str(BIN / "uv"), "pip", "install", "-q", "--no-deps", "--target", str(folder / "site")]
    subprocess.run([*uv, str(folder / "source")], check=True)
    return folder / "site"


def account(user: User, site: Path, **changed: object) -> Path:
    """Give the user that package, and an account at it; return the account's file."""
    file = user.home / "acme.json"
    offers = {"cheap": 0.2, "dear": 0.9}
    file.write_text(json.dumps({"offers": offers, "boxes": {}, "at": [], **changed}))
    user.env |= {"PYTHONPATH": f"{HERE}:{site}", "ACME_ACCOUNT": str(file)}
    return file


def test_a_provider_of_another_package_passes_the_tests_for_every_provider(site: Path) -> None:
    words = ["-q", "-p", "no:cacheprovider", "--provider", "acme"]
    done = captured(
        [sys.executable, "-m", "pytest", *words, "tests/providers/test_any_provider.py"],
        cwd=HERE,
        env={**os.environ, "PYTHONPATH": f"{HERE}:{site}"},
        check=False,
    )
    assert "6 passed" in done.stdout, done.stdout


def test_a_box_of_a_provider_from_a_package_is_rented_set_up_and_given_back(
    rented: Rented, site: Path
) -> None:
    user, box = rented.user, rented.box
    file = account(user, site, at=[box.address, box.port, box.user])
    user.repository()
    words = ("--provider", "acme", f"--identity={box.identity}")
    offers = user.run("up", *words[:2], "--dry-run", "--json").must(0).json()["offers"]
    assert [offer["id"] for offer in offers] == ["cheap", "dear"]
    sets = ("--set", "gpu.require=false", "--set", "lease.then=destroy")
    done = user.run("up", *words, "--max-price=0.5", *sets, "--json").must(0).json()
    assert done["rented"]["host"] == "acme:box-1"
    (kept,) = json.loads(file.read_text())["boxes"].values()
    assert kept["mark"] == done["rented"]["mark"]
    (listed,) = user.run("boxes", "--all", "--json").must(0).json()["boxes"]
    assert (listed["host"], listed["known_as"]) == ("acme:box-1", "acme-box-1")
    user.run("wait", "--host", "acme:box-1").must(0)
    assert "destroyed, and no longer listed" in user.run("down", "--host", "acme:box-1").must(0).out
    assert json.loads(file.read_text())["boxes"] == {}


BROKEN = {
    "it raises": ("raise RuntimeError('no luck')\n", "RuntimeError: no luck"),
    "it is no class": ("Acme = 'acme'\n", "no whole subclass of CloudAccount"),
    "another name": (
        "from acme_cloud_of_before import Acme\nAcme.name = 'other'\n",
        "calls itself 'other'",
    ),
}


def test_up_names_a_broken_provider_package_and_exits_with_2_and_estimate_still_works(
    user: User, site: Path, tmp_path: Path
) -> None:
    shutil.copytree(site, tmp_path / "site")
    place = tmp_path / "site/acme_cloud.py"
    place.rename(place.with_name("acme_cloud_of_before.py"))
    account(user, tmp_path / "site")
    user.repository()
    for text, said in BROKEN.values():
        place.write_text(text)
        refused = user.run("up", "--provider", "acme", "--dry-run").must(2)
        assert said in refused.err
        assert "acme-cloud-for-boxstrap" in refused.err
    assert "Looked at:" in user.run("boxes", "--all").must(2).err  # no other has a key here
    user.run("estimate", "--gpu", "A100", "--hours", "1").must(0)


def test_boxes_and_up_name_a_provider_package_that_fails(user: User, site: Path) -> None:
    file = account(user, site)
    file.write_text("{}")
    user.repository()
    failed = user.run("boxes", "--all").must(3)
    dry = ("up", "--provider", "acme", "--dry-run")
    assert "the package of Acme Cloud failed: KeyError" in failed.text
    assert "the package of Acme Cloud failed" in user.run(*dry).must(3).err


def test_a_profile_that_names_a_provider_whose_package_is_missing_is_wrong_usage(
    user: User, site: Path
) -> None:
    user.repository(boxstrap__yaml="version: 1\nrent: {provider: acme}\n")
    (profile,) = user.place.glob("boxstrap.yaml")
    words = ("profiles", "--validate", str(profile))
    assert "there is no provider 'acme'" in user.run(*words).must(2).err
    account(user, site)
    user.run(*words).must(0)


def test_commands_that_need_no_provider_do_not_look_for_provider_packages(user: User) -> None:
    """Looking for other packages' takes a tenth of a second."""
    user.repository()
    code = (
        "import sys; sys.argv[0] = 'boxstrap'\n"
        "from bootstrap import providers\nfrom bootstrap.tasks import cli\n"
        "providers.outside = lambda: print('looked', file=sys.stderr) or {}\n"
        "cli.main()\n"
    )
    for words in (["plan", "--host", "local"], ["profiles"], ["status", "--host", "box:2222"]):
        done = captured(
            [sys.executable, "-c", code, *words],
            cwd=user.place,
            env={**user.env, "PYTHONPATH": str(HERE)},
            check=False,
        )
        assert done.stdout or done.stderr, words
        assert "looked" not in done.stderr, (words, done.stderr)
    argv = [sys.executable, "-c", code, "up", "--provider", "acme"]
    asked = subprocess.run(argv, cwd=user.place, env=user.env, stderr=subprocess.PIPE, check=False)
    assert b"looked" in asked.stderr
