"""The wheel works outside this checkout: built, installed and used as a new user would."""

import os
import pwd
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from pathlib import Path

import pytest

from bootstrap import __version__
from bootstrap.profile import shipped_ones
from tests.programs import captured

ROOT = Path(__file__).resolve().parents[2]
UV = str(Path(sys.executable).parent / "uv")
PASSED_ON = ("PATH", "LANG", "SSL_", "PIP_", "UV_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")

# All tests on one worker, so that the wheel is built once.
pytestmark = [pytest.mark.xdist_group("wheel"), pytest.mark.sampled(of="module")]

RENDER = """
from bootstrap.steps.plan import steps_for
from bootstrap.profile.load import read_profile
from bootstrap.setup.program import program
from bootstrap.setup.script import NO_SOURCE, render_script, variables
import sys
profile = read_profile(sys.argv[1]).profile
steps = steps_for(profile, local=False)
values = variables(profile, NO_SOURCE, local=False, secrets_id="")
sys.stdout.write(render_script(profile.name, values, steps, program().digest))
"""


class InstalledPlace:
    """A folder outside the checkout, with its own home, environment and tmux server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.bin = folder / "venv/bin"
        known = {k: v for k, v in os.environ.items() if k.upper().startswith(PASSED_ON)}
        self.env = {
            **known,
            **_index_settings(),
            "HOME": str(self.home),
            "TMUX_TMPDIR": str(folder),
            "UV_CACHE_DIR": str(folder / "cache"),
            "UV_SYSTEM_CERTS": "1",
        }

    def run(self, *argv: str | Path, rc: int = 0) -> str:
        return self.ended(*argv, rc=rc).stdout

    def ended(self, *argv: str | Path, rc: int = 0) -> subprocess.CompletedProcess[str]:
        done = captured(
            [str(part) for part in argv],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            timeout=300,
            check=False,
        )
        assert done.returncode == rc, f"{argv}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stdout + done.stderr
        return done

    def boxstrap(self, *words: str, rc: int = 0) -> str:
        return self.run(self.bin / "boxstrap", *words, rc=rc)


def _index_settings() -> dict[str, str]:
    """Settings that make uv use the index configured for pip here, as on a box."""
    told = captured([sys.executable, ROOT / "bootstrap/onbox/__main__.py", "pip_indexes"]).stdout
    return dict(line.split("\t", 1) for line in told.splitlines())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstalledPlace]:
    made = InstalledPlace(tmp_path_factory.mktemp("far"))
    yield made
    if shutil.which("tmux"):
        subprocess.run(
            ["tmux", "-L", "boxstrap", "kill-server"],
            env=made.env,
            capture_output=True,
            check=False,
        )


@pytest.fixture(scope="module")
def built(place: InstalledPlace) -> Path:
    """The folder of both archives; the wheel is made from the source archive."""
    place.run(UV, "build", "--quiet", "--out-dir", place.folder / "dist", ROOT)
    return place.folder / "dist"


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(place: InstalledPlace, wheel: Path) -> InstalledPlace:
    """The wheel in an environment of its own, made by uv: only its dependencies are in it."""
    place.run(UV, "venv", "--quiet", "--python", sys.executable, place.folder / "venv")
    place.run(UV, "pip", "install", "--quiet", "--python", place.bin / "python", wheel)
    return place


def _tracked(*folders: str) -> set[str]:
    words = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = captured([*words, *folders]).stdout
    return {name for name in listed.splitlines() if (ROOT / name).is_file()}


def test_the_wheel_holds_exactly_the_package_and_its_templates_and_profiles(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    package = {name for name in names if ".dist-info/" not in name}
    shipped = {f"bootstrap/shipped/{name}" for name in _tracked("templates", "profiles")}
    assert package == _tracked("bootstrap") | shipped
    assert "bootstrap/py.typed" in package


def test_the_source_archive_holds_the_package_tests_and_makefile(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert {"Makefile", "README.md", "LICENSE", "tasks.py", "tests/__init__.py"} <= names
    assert _tracked("bootstrap", "templates", "profiles") <= names


def test_a_build_in_another_folder_at_another_time_gives_the_same_wheel_byte_for_byte(
    place: InstalledPlace, built: Path
) -> None:
    copy = place.folder / "copy of it"
    for name in _tracked("."):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, copy / name)
        # As a clone under `umask 077` has it.
        (copy / name).chmod(0o700 if os.access(ROOT / name, os.X_OK) else 0o600)
    again = place.folder / "again"
    place.run("bash", "-c", 'umask 077; "$@"', "bash", UV, "build", "-q", "-o", again, copy)
    for first in sorted(built.glob("boxstrap-*")):
        assert (again / first.name).read_bytes() == first.read_bytes(), first.name
    # `built` makes the wheel from the source archive; here it is made from the tree.
    place.run(UV, "build", "-q", "--wheel", "-o", again / "direct", copy)
    (direct,), (usual,) = (again / "direct").glob("*.whl"), built.glob("*.whl")
    assert direct.read_bytes() == usual.read_bytes()


def test_the_metadata_of_the_wheel_has_version_license_python_and_readme(wheel: Path) -> None:
    opened = zipfile.ZipFile(wheel)
    (name,) = (n for n in opened.namelist() if n.endswith(".dist-info/METADATA"))
    told = message_from_bytes(opened.read(name))
    assert told["Version"] == __version__
    assert told["License-Expression"] == "MIT"
    assert told["License-File"] == "LICENSE"
    assert told["Requires-Python"] == ">=3.10"
    assert told["Description-Content-Type"] == "text/markdown"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert str(told.get_payload()).strip().startswith(readme.strip()[:200])
    assert any(c.startswith("Typing :: Typed") for c in told.get_all("Classifier", []))


def test_an_installed_boxstrap_prints_its_version_and_validates_the_shipped_profiles(
    installed: InstalledPlace,
) -> None:
    assert __version__ in installed.boxstrap("--version")
    listed = installed.boxstrap("profiles")
    for name in shipped_ones():
        assert name in listed
        installed.boxstrap("profiles", "--validate", name)


def test_installing_the_boxstrap_wheel_installs_the_program_inv(installed: InstalledPlace) -> None:
    assert (installed.bin / "inv").exists()


@pytest.mark.parametrize("name", sorted(shipped_ones()))
def test_an_installed_boxstrap_renders_each_shipped_profile_to_valid_bash(
    installed: InstalledPlace, name: str
) -> None:
    script = installed.run(installed.bin / "python", "-c", RENDER, name)
    assert f'By the profile "{name}"' in script
    file = installed.folder / f"{name}.sh"
    file.write_text(script, encoding="utf-8")
    installed.run("bash", "-n", file)


def test_boxstrap_without_pip_beside_it_still_knows_the_https_address_of_the_package_index(
    installed: InstalledPlace,
) -> None:
    """uv's environments have no pip unless something requires it; boxstrap needs pip's default."""
    ask = "from bootstrap.setup.script import default_index; print(default_index())"
    assert installed.run(installed.bin / "python", "-c", ask).startswith("https://")


def test_the_demo_of_an_installed_boxstrap_trains(installed: InstalledPlace) -> None:
    told = installed.boxstrap("demo")
    assert "step   1  loss" in told
    (status,) = re.findall(r"^ +status +\S+ (.+)$", told, re.MULTILINE)
    # As it is printed, typed elsewhere. It may be over by now: it trains for seconds.
    assert re.search("demo-1  (running|finished) ", installed.boxstrap(*shlex.split(status)))
    installed.boxstrap("stop", "--host", "local")


def test_uvx_runs_boxstrap_without_installing_it(place: InstalledPlace, wheel: Path) -> None:
    words: list[str | Path] = [
        UV, "tool", "run", "--quiet", "--python", sys.executable, "--from", wheel,
    ]  # fmt: skip
    assert __version__ in place.run(*words, "boxstrap", "--version")


def test_pipx_runs_boxstrap_without_installing_it(place: InstalledPlace, wheel: Path) -> None:
    if not shutil.which("pipx"):
        pytest.skip("pipx is not installed")
    _give_pip(place)
    # pip reads this as `compile = 0`: with 1 it would compile all that it installs.
    place.env["PIP_NO_COMPILE"] = "0"
    assert __version__ in place.run("pipx", "run", "--spec", wheel, "boxstrap", "--version")


def _give_pip(place: InstalledPlace) -> None:
    """Give pipx its own pip, as after an earlier use: getting it would take ten seconds."""
    shared = place.folder / "shared"
    place.run(UV, "venv", "--quiet", "--seed", "--python", "/usr/bin/python3", shared)
    place.env["PIPX_SHARED_LIBS"] = str(shared)


INSTALLS: dict[str, tuple[str, ...]] = {
    "uv": (UV, "tool", "install", "--quiet", "--python", sys.executable),
    "pipx": ("pipx", "install", "--python", sys.executable),
    "pip": ("own venv/bin/pip", "install", "--quiet"),
}


@pytest.fixture
def without_git(tmp_path: Path) -> InstalledPlace:
    """A home with spaces in its path, on a machine that has no git."""
    place = InstalledPlace(tmp_path / "a place of my own")
    few = place.folder / "programs"
    few.mkdir()
    for program in (each for each in Path("/usr/bin").iterdir() if not each.name.startswith("git")):
        (few / program.name).symlink_to(program)
    place.env["PATH"] = f"{place.home}/.local/bin:{few}"
    return place


@pytest.mark.sampled  # pip takes a minute
@pytest.mark.parametrize("how", INSTALLS)
def test_boxstrap_installed_by_pip_pipx_or_uv_runs_and_says_that_git_is_missing(
    built: Path, without_git: InstalledPlace, how: str
) -> None:
    place, words = without_git, [*INSTALLS[how]]
    if how == "pipx" and not shutil.which("pipx", path=place.env["PATH"]):
        pytest.skip("pipx is not installed")
    (archive,) = built.glob("*.tar.gz" if how == "pip" else "*.whl")
    program = place.home / ".local/bin/boxstrap"
    if how == "pip":
        place.run(sys.executable, "-m", "venv", "own venv")
        program = place.folder / "own venv/bin/boxstrap"
    if how == "pipx":
        _give_pip(place)
    place.env["PIP_NO_COMPILE"] = "0"  # pip reads it as `compile = 0`, which saves ten seconds
    place.run(*words, archive)
    assert __version__ in place.run(program, "--version")
    assert "vast" in place.run(program, "profiles")
    # Whose own programs are found wherever it lies.
    assert "git is not installed" in place.ended(program, "demo", rc=2).stderr
    assert "Install git" in place.ended(program, "doctor", rc=2).stderr
    place.run(program, "init")
    assert (place.folder / "boxstrap.yaml").exists()
    place.run(program, "completion", "--install", "--shell", "bash")
    assert "boxstrap" in (place.home / ".bashrc").read_text()


def _python(version: str) -> str:
    """Return the Python of that version on this machine: on the PATH, or kept by pyenv; else ""."""
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)  # HOME is the tests' own
    kept = map(str, home.glob(f".pyenv/versions/{version}.*/bin/python{version}"))
    found = (path for path in (shutil.which(f"python{version}"), *kept) if path)
    return next(filter(_works, found), "")


def _works(python: str) -> bool:
    """Whether it starts: pyenv has a program for each version, also where another is chosen."""
    return not subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode


@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12", "3.13", "3.14"])
def test_boxstrap_installs_and_prints_its_version_with_each_python_of_this_machine(
    place: InstalledPlace, wheel: Path, version: str
) -> None:
    if not (python := _python(version)):
        pytest.skip(f"this machine has no Python {version}")
    folder = place.folder / f"python {version}"
    place.run(UV, "venv", "--quiet", "--python", python, folder)
    place.run(UV, "pip", "install", "--quiet", "--python", folder / "bin/python", wheel)
    assert __version__ in place.run(folder / "bin/boxstrap", "--version")
    assert "vast" in place.run(folder / "bin/boxstrap", "profiles")
    script = place.run(folder / "bin/python", "-c", RENDER, "vast")
    assert 'By the profile "vast"' in script
