"""How the environment is made: adopted, by pip, from a lock, from a project, from two indexes."""

import subprocess

import pytest

from bootstrap.onbox.python.uv_release import VERSION, WHEELS
from bootstrap.steps.event_codes import CODES
from tests.boxes import Rig
from tests.cli import UserRepository
from tests.doors.static_index import static_index
from tests.main_job.conftest import Rent
from tests.main_job.rented import Rented
from tests.plain_environment import BIN

pytestmark = pytest.mark.sampled(of="module")

TRAIN = "import iniconfig, sys\nprint('step 1', sys.prefix, iniconfig.__file__)\n"
PROJECT = """\
[project]
name = "homework"
version = "0"
requires-python = ">=3.10"
dependencies = []
[project.optional-dependencies]
train = ["iniconfig>=2"]
"""


def test_setup_with_python_venv_installs_into_that_environment_and_removes_no_package_from_it(
    rented: Rented,
) -> None:
    repository = rented.user.repository(
        train__py=TRAIN, requirements__txt="iniconfig>=2\npathspec\n"
    )
    adopts = ("--set", "python.venv=/venv/main")
    failed = rented.run("setup", *adopts, "--set", "python.version=3.99").must(7)
    assert "/venv/main has Python" in failed.err
    before = rented.box.run("stat -c '%Y %i' /venv/main/pyvenv.cfg")
    done = rented.run("setup", *adopts).must(0)
    assert "step 1 /venv/main /venv/main/lib" in done.out
    assert rented.box.run("stat -c '%Y %i' /venv/main/pyvenv.cfg") == before
    assert not rented.box.exists("/workspace/homework/.venv")
    assert "adopted: /venv/main" in rented.run("logs", "--step", "python").must(0).out
    repository.commit({"requirements.txt": "iniconfig>=2\n"})
    rented.run("setup", *adopts).must(0)
    both = "['iniconfig', 'pathspec']"
    assert packages(rented, "iniconfig", "pathspec", environment="/venv/main") == both


def test_installer_pip_of_a_profile_works_in_an_environment_built_by_uv(rented: Rented) -> None:
    repository = rented.user.repository(train__py=TRAIN, requirements__txt="iniconfig>=2\n")
    rented.run("setup").must(0)
    # An image may send pip elsewhere, which an environment has no use for.
    elsewhere = "[install]\\nuser = true\\n"
    rented.box.run(f"mkdir -p ~/.config/pip && printf '{elsewhere}' >~/.config/pip/pip.conf")
    repository.commit({"requirements.txt": "iniconfig>=2\npathspec\n"})
    done = rented.run("setup", "--set", "python.installer=pip").must(0)
    assert "step 1 /workspace/homework/.venv" in done.out
    installers = "cat /workspace/homework/.venv/lib/python3*/site-packages/{}-*/INSTALLER"
    installed = [rented.box.run(installers.format(one)) for one in ("iniconfig", "pathspec")]
    assert [one.strip() for one in installed] == ["uv", "pip"]
    assert "nothing to do" in rented.run("setup", "--set", "python.installer=pip").must(0).out


def lock(repository: UserRepository, rented: Rented, rig: Rig) -> None:
    """Write a uv.lock that names the mirror, as a user's uv would."""
    subprocess.run(
        [str(BIN / "uv"), "lock", "--quiet", "--default-index", rig.mirror.index_url],
        cwd=repository.root,
        env={**rented.user.env, "UV_NO_CONFIG": "1"},
        check=True,
        timeout=120,
    )
    repository.commit({}, "Lock")


def test_setup_installs_extras_of_a_pyproject_without_build_and_requirements_of_two_indexes(
    rented: Rented, mirror_rig: Rig
) -> None:
    # The extras are the project's: requirements.txt, which comes before it elsewhere, has none.
    rented.user.repository(train__py=TRAIN, pyproject__toml=PROJECT, requirements__txt="")
    done = rented.run("setup", "--set", "python.extras=[train]").must(0)
    assert "step 1 /workspace/homework/.venv" in done.out
    index = mirror_rig.mirror.index_url
    rented.user.repository(
        "second",
        train__py=TRAIN,
        requirements__txt=f"--index-url {index}\n--extra-index-url {index}\n-r more.txt\n",
        more__txt="iniconfig>=2\n",
    )
    done = rented.run("setup").must(0)
    assert "step 1 /workspace/second/.venv" in done.out


def test_uv_is_sent_from_this_machine_when_the_package_index_of_the_box_lacks_it(
    rented: Rented, mirror_rig: Rig
) -> None:
    """As on a mirror that keeps only the newest files; the profile's installer does not matter."""
    rented.box.run("rm /usr/local/bin/uv*; ! command -v uv")
    repository = rented.user.repository()
    gateway = rented.box.address.rpartition(".")[0] + ".1"
    wheel, _ = WHEELS["Linux-x86_64"]
    with static_index(gateway, mirror_rig.mirror.index_url, without=wheel) as index:
        pip = f"[global]\nindex-url = {index.url}\ntrusted-host = {gateway}\n"
        rented.box.write("/etc/pip.conf", pip)
        here = {"PIP_TRUSTED_HOST": gateway, "PIP_INDEX_URL": index.url}
        # If this machine can't get it either, the error says so.
        rented.run("setup", "--set", "python.installer=pip", **here).must(7)
        failed = rented.run("setup", **here).must(7)
        assert f"the step agent failed: {CODES['uv-unlisted'].what}" in failed.err
        assert f"the index at {index.url}/uv/ has no {wheel}" in failed.err
        assert f"this machine's package index does not give uv {VERSION} either" in failed.err
        # If it can, the wheel is sent; the second time from the local cache.
        for here["PIP_INDEX_URL"] in (mirror_rig.mirror.index_url, index.url):
            rented.box.run(f"rm -rf {rented.folder}/agent {rented.folder}/bin {rented.folder}/uv")
            done = rented.run("setup", **here).must(0)
            assert f"agent      ...    {CODES['uv-unlisted'].what}" in done.err
            assert f"uv {VERSION} was sent from this machine" in done.err
            assert f"uv {VERSION}" in rented.box.run(f"{rented.folder}/bin/uv --version")
        assert rented.runs() == ["train-1"]
        # A uv of another version that the user installs on the box is used.
        rented.box.run(f"rm -rf {rented.folder}/agent {rented.folder}/bin {rented.folder}/uv")
        rented.ssh(CODES["uv-unlisted"].hint.partition(": ")[2])
        repository.commit({"notes.txt": "other work\n"})
        done = rented.run("setup", **here).must(0)
        assert "step 2 loss 0.4" in done.out
        assert "was sent from this machine" not in done.err
    assert not rented.box.exists(f"{rented.folder}/bin/uv")


ENVIRONMENT = "/workspace/homework/.venv"
HAS = "-c 'import importlib.util as u; print([n for n in NAMES if u.find_spec(n)])'"


def packages(rented: Rented, *names: str, environment: str = ENVIRONMENT) -> str:
    """Which of these can be imported there."""
    asked = HAS.replace("NAMES", repr(names).replace("'", '"'))
    return rented.box.run(f"cd /; {environment}/bin/python {asked}").strip()


@pytest.mark.sampled
@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_packages_no_longer_required_are_removed_from_an_environment_that_setup_made(
    rent: Rent, mirror_rig: Rig, installer: str
) -> None:
    """Nothing else is touched: what stays is not installed again."""
    options = ("--set", f"python.installer={installer}")
    rented = rent("vast", used=True)
    repository = rented.user.repository(requirements__txt="iniconfig>=2\npathspec\n")
    rented.run("setup", *options).must(0)
    by_hand = f"uv pip install -q --python {ENVIRONMENT}/bin/python pluggy"
    rented.box.run(f"UV_DEFAULT_INDEX={mirror_rig.mirror.index_url} {by_hand}")
    seen = f"stat -c '%Y %i' {ENVIRONMENT}/pyvenv.cfg {ENVIRONMENT}/lib/python3*/site-packages/ini*"
    before = rented.box.run(seen)
    repository.commit({"train.py": "print('step 1 loss 0')\n"})
    rented.run("setup", *options).must(0)
    # The requirements are the same, so a package that was installed by hand stays.
    names = ("iniconfig", "pathspec", "pluggy")
    assert packages(rented, *names) == repr(list(names))
    repository.commit({"requirements.txt": "iniconfig>=2\n"})
    done = rented.run("setup", *options).must(0)
    assert "python     start  new requirements" in done.err
    assert "repo       start  new commit" in done.err
    assert "train      start  new commit" in done.err
    assert packages(rented, *names) == "['iniconfig']"
    assert rented.box.run(seen) == before
    assert "nothing to do" in rented.run("setup", *options).must(0).out


def test_setup_removes_no_package_of_an_environment_two_repositories_share(rented: Rented) -> None:
    options = ("--set", "python.venv=/workspace/env")
    repository = rented.user.repository(requirements__txt="iniconfig>=2\n")
    rented.run("setup", *options).must(0)
    place = rented.user.place
    rented.user.repository("second", requirements__txt="pathspec\n")
    rented.run("setup", *options).must(0)
    both = "['iniconfig', 'pathspec']"
    assert packages(rented, "iniconfig", "pathspec", environment="/workspace/env") == both
    rented.user.place = place
    repository.commit({"requirements.txt": "iniconfig>=2 # still\n"})
    rented.run("setup", *options).must(0)
    assert packages(rented, "iniconfig", "pathspec", environment="/workspace/env") == both


GROUPED = "[dependency-groups]\ntrain = ['pathspec']\n"
BESIDE = ("--set", "python.packages=[pluggy>=1]", "--set", "python.groups=[train]")
LIB = (
    "import setuptools\n"
    "setuptools.setup(name='lib', py_modules=['lib'], extras_require={'x': 'pathspec'})\n"
)
MANY = ("iniconfig", "pathspec", "pluggy")


@pytest.mark.sampled
@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_setup_installs_python_packages_and_groups_in_addition_to_or_in_place_of_requirement_files(
    rented: Rented, mirror_rig: Rig, installer: str
) -> None:
    options = ("--set", f"python.installer={installer}")
    repository = rented.user.repository(pyproject__toml=GROUPED, requirements__txt="iniconfig>=2\n")
    repository.commit({"lib/setup.py": LIB, "lib/lib.py": ""})
    # The profile's index is asked before the box's own, which is the mirror.
    gateway = rented.box.address.rpartition(".")[0] + ".1"
    with static_index(gateway, mirror_rig.mirror.index_url) as index:
        rented.run("setup", *options, *BESIDE, "--set", f"python.index=[{index.url}]").must(0)
        assert {"/simple/pluggy/", "/simple/iniconfig/"} <= {*index.asked}
    assert packages(rented, *MANY) == repr(list(MANY))
    alone = (*options, "--set", "python.requirements=[]", "--set", "python.packages=[pluggy]")
    rented.run("setup", *alone).must(0)
    assert packages(rented, *MANY) == "['pluggy']"
    folder = (
        *options, "--set", "python.requirements=[]", "--set", 'python.packages=["-e ./lib[x]"]',
    )  # fmt: skip
    rented.run("setup", *folder).must(0)
    assert packages(rented, *MANY, "lib") == "['pathspec', 'lib']"
    assert "nothing to do" in rented.run("setup", *folder).must(0).out


def test_python_packages_install_beside_a_lock_and_no_build_isolation_ones_are_built_last(
    rented: Rented, mirror_rig: Rig
) -> None:
    """docopt has no wheel: without build isolation it needs setuptools in the environment."""
    repository = rented.user.repository(train__py=TRAIN, pyproject__toml=PROJECT + GROUPED)
    lock(repository, rented, mirror_rig)
    rented.run("setup", "--set", "python.extras=[train]", *BESIDE).must(0)
    assert packages(rented, *MANY) == repr(list(MANY))
    rented.user.repository("second", requirements__txt="docopt==0.6.2\niniconfig>=2\n")
    failed = rented.run("setup", "--set", "python.only_binary=[docopt]").must(7)
    assert "docopt" in failed.err
    last = ("--set", "python.no_build_isolation=[docopt]")
    failed = rented.run("setup", *last)
    assert (failed.rc, "No module named 'setuptools'" in failed.err) == (7, True)
    environment = ENVIRONMENT.replace("homework", "second")
    assert packages(rented, "iniconfig", "docopt", environment=environment) == "['iniconfig']"
    with_tools = (*last, "--set", "python.packages=[setuptools<81, wheel]")
    rented.run("setup", *with_tools).must(0)
    assert packages(rented, "docopt", environment=environment) == "['docopt']"
    assert "nothing to do" in rented.run("setup", *with_tools).must(0).out


def test_setup_installs_just_the_locked_packages_of_a_lock(rented: Rented, mirror_rig: Rig) -> None:
    exact = PROJECT.replace("iniconfig>=2", "iniconfig==2.0.0")
    repository = rented.user.repository(train__py=TRAIN, pyproject__toml=exact)
    lock(repository, rented, mirror_rig)
    rented.run("setup", "--set", "python.extras=[train]").must(0)
    assert rented.box.run(f"ls -d {ENVIRONMENT}/lib/python3*/site-packages/iniconfig-2.0.0*")
    repository.commit({"train.py": "print('step 1')\n"})
    rented.run("setup").must(0)
    assert packages(rented, "iniconfig") == "[]"


def test_setup_names_a_required_package_that_the_index_does_not_have(rented: Rented) -> None:
    repository = rented.user.repository(requirements__txt="nosuchpackage>=2\n")
    failed = rented.run("setup").must(7)
    assert "the step python failed: the index has no package of a required name" in failed.err
    assert ": nosuchpackage." in failed.err
    again = rented.run("setup", "--set", "python.installer=pip").must(7)
    assert ": nosuchpackage." in again.err
    repository.commit({"requirements.txt": "iniconfig>=2\n"})
    rented.run("setup").must(0)
