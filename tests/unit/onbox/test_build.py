"""How an environment is built, with a uv that only notes what it is asked; what a build lacks."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bootstrap.onbox import client, retries, step_report
from bootstrap.onbox.client import Client
from bootstrap.onbox.git import BoxTree
from bootstrap.onbox.processes import identity
from bootstrap.onbox.python import build as build_module
from bootstrap.onbox.python import lacking as lacking_module
from bootstrap.onbox.python import uv_progress
from bootstrap.onbox.python.build import Build
from bootstrap.onbox.python.dependencies import await_dependencies
from bootstrap.onbox.python.environment import BoxEnvironment
from bootstrap.onbox.python.lacking import advice, lacking, missing_libraries
from bootstrap.onbox.python.uv_progress import UvProgress, follow
from bootstrap.onbox.retries import Retries
from bootstrap.onbox.step_report import StepError
from bootstrap.onbox.steps.python import PythonStep
from tests.cases import read_cases
from tests.programs import captured
from tests.unit.setup.scripts import facts, values_of
from tests.unit.steps.test_classify_error import SAID

UV = """\
#!/bin/sh
printf '%s\\n' "$*" >>"$ASKED"
env | grep ^UV_ | sort >"$ASKED.$1.$2"
case "$1 $2" in
  'python find') [ -n "$FOUND" ] && echo "$FOUND" ;;
  venv*) for last; do :; done
    mkdir -p "$last/bin" "$last/lib/python3/site-packages" && ln -s "$FOUND" "$last/bin/python" ;;
  *) exit "${ENDS-0}" ;;
esac
"""
REQUIRED = {"requirements.txt": "six\n"}
VERDICT = {"cuda": "12.4", "gpus": [{"capability": "8.0"}], "checks": []}


class BuildPlace:
    """A box with a tree, and a uv that notes its words."""

    def __init__(self, folder: Path) -> None:
        self.home, self.tree, self.setup = folder / "home", folder / "tree", folder / "setup"
        self.asked, self.notes = folder / "asked", self.home / "steps/k"
        for each in (self.home, self.tree, self.setup / "logs", self.notes):
            each.mkdir(parents=True, exist_ok=True)
        (folder / "uv").write_text(UV)
        (folder / "uv").chmod(0o755)
        (self.home / "uv").write_text(f"{folder}/uv\nUV_SYSTEM_CERTS\n")

    def build(self, files: dict[str, str] = REQUIRED, command: str = "", **values: Any) -> Build:
        for name, text in files.items():
            (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
            (self.tree / name).write_text(text)
        tree, own = self.place(), values_of(train_command=command, **values)
        environment = BoxEnvironment(own, tree, str(self.tree), f"{self.tree}/.venv")
        return Build(environment, str(self.setup), Retries("/nowhere"))

    def place(self) -> BoxTree:
        return BoxTree(str(self.home), "k", str(self.tree))

    def words(self) -> list[str]:
        """What uv was asked since the last call."""
        words = self.asked.read_text().splitlines() if self.asked.exists() else []
        self.asked.unlink(missing_ok=True)
        return words


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BuildPlace:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASKED", f"{tmp_path}/asked")
    monkeypatch.setenv("FOUND", sys.executable)
    monkeypatch.setattr(build_module.Build, "_find_images", lambda _: None)
    return BuildPlace(tmp_path)


def test_setup_makes_an_environment_once_and_records_its_package_folder(
    place: BuildPlace, capfd: pytest.CaptureFixture[str]
) -> None:
    place.build().build()
    env = f"{place.tree}/.venv"
    find, made, install = place.words()
    assert find == "python find --python-preference only-system --no-python-downloads 3"
    assert made == f"venv --quiet --allow-existing --no-project --python {sys.executable} {env}"
    assert install == f"pip install --python {env}/bin/python -r requirements.txt --exact"
    assert (place.notes / "python.folders").read_text() == "lib/python3/site-packages\n"
    assert (place.notes / "python.venv").read_text() == f"{env}\n"
    assert not (place.notes / "python.building").exists()
    capfd.readouterr()
    again = place.build()
    again.build()
    assert f"kept: {env}" in capfd.readouterr().err
    assert place.words() == [install]
    # A package whose files are gone is not noticed by uv.
    (place.tree / ".venv/lib/python3/site-packages").rmdir()
    place.build().build()
    assert place.words() == [f"{install} --reinstall"]


def test_a_glob_py_in_the_repository_is_not_imported_while_setup_lists_packages(
    place: BuildPlace,
) -> None:
    """The environment's Python runs in the repository's folder, which it searches first."""
    place.build({**REQUIRED, "glob.py": "raise SystemExit(3)\n"}).build()
    assert not (place.notes / "python.building").exists()


def test_an_environment_whose_first_build_was_cut_short_is_made_anew(
    place: BuildPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENDS", "3")
    for _ in range(2):
        with pytest.raises(StepError) as failed:
            place.build().build()
        assert failed.value.rc == 3
        assert (place.notes / "python.building").read_text() == f"made {place.tree}/.venv\n"
        assert [line.split()[0] for line in place.words()] == ["python", "venv", "pip"]
        (place.tree / ".venv/half").touch()
    # One that was whole before is only not trusted.
    monkeypatch.delenv("ENDS")
    place.build().build()
    assert not (place.tree / ".venv/half").exists()
    place.words()
    (place.notes / "python.building").write_text("\n")
    (place.tree / ".venv/kept").touch()
    place.build().build()
    assert place.words()[-1].endswith(" --exact --reinstall")
    assert (place.tree / ".venv/kept").exists()


def test_an_environment_is_not_deleted_before_the_python_version_the_repository_wants_is_found(
    place: BuildPlace, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    place.build().build()
    (place.tree / ".venv/pyvenv.cfg").write_text("version_info = 3.8.1\n")
    assert place.build()._env.is_right()
    monkeypatch.setenv("FOUND", "")
    monkeypatch.setenv("ENDS", "1")
    wants = place.build({".python-version": "# of us\n3.12\r\n"})
    assert not wants._env.is_right()
    with pytest.raises(StepError) as refused:
        wants.build()
    assert refused.value.code == "python-version"
    assert "Python 3.12 is not here" in str(refused.value)
    assert "this box has:" in capfd.readouterr().err
    monkeypatch.setattr(retries, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(Retries, "network_error", lambda _: "no-dns")
    with pytest.raises(StepError, match=r"could not be fetched.*Set python\.version") as refused:
        place.build().build()
    assert refused.value.code == "no-dns"
    assert place.words()[-1].startswith("python list --only-installed")
    assert (place.tree / ".venv/pyvenv.cfg").exists()
    (place.tree / ".python-version").write_text("3.8\n")
    assert place.build()._env.is_right()
    (place.tree / ".python-version").write_text("3.12\n")
    monkeypatch.setenv("FOUND", sys.executable)
    monkeypatch.delenv("ENDS")
    place.build().build()
    assert not (place.tree / ".venv/pyvenv.cfg").exists()


@pytest.mark.parametrize(
    ("named", "asked"), [("", ">=3.8,<3.11,>=3.9"), ("3.10", "3.10")], ids=["none", "named"]
)
def test_setup_picks_a_python_that_all_local_projects_allow_unless_the_profile_names_one(
    place: BuildPlace, monkeypatch: pytest.MonkeyPatch, named: str, asked: str
) -> None:
    stated = "[project]\nrequires-python = '{}'\n"
    files = {
        "pyproject.toml": stated.format(">=3.8,<3.11"),
        "requirements.txt": "-e .\n-e libs/a\n",
    }
    files["libs/a/pyproject.toml"] = stated.format(">=3.9")
    monkeypatch.setenv("FOUND", "")
    with pytest.raises(StepError):
        place.build(files, python_version=named).build()
    assert f"python install --no-bin {asked}" in place.words()
    # The repository decides where it comes from, so it is not for boxstrap's own tools.
    own = Path(f"{place.asked}.python.install").read_text()
    assert f"UV_PYTHON_INSTALL_DIR={place.home}/pythons\n" in own


def test_python_as_of_makes_uv_ignore_packages_newer_than_that_date(place: BuildPlace) -> None:
    """The indexes of torch's builds have no dates."""
    place.build(torch_backend="none", as_of="2023-05-01", reuse="never").build()
    found = Path(f"{place.asked}.pip.install").read_text()
    assert "UV_EXCLUDE_NEWER=2023-05-01\n" in found
    assert "UV_TORCH_BACKEND" not in found


@pytest.mark.parametrize("required", [True, False])
def test_setup_lets_uv_resolve_torch_beforehand_only_if_a_gpu_is_required(
    place: BuildPlace, monkeypatch: pytest.MonkeyPatch, required: bool
) -> None:
    """The query makes uv resolve everything once more."""
    monkeypatch.setenv("UV_INDEX", "https://example.org/simple")
    (place.home / "gpu.json").write_text(json.dumps(VERDICT))
    place.build(gpu=json.dumps({"require": required})).build()
    assert any(line.endswith(" --dry-run") for line in place.words()) == required


@pytest.mark.parametrize("cores", [1, 2])
def test_bytecode_is_compiled_ahead_only_on_several_cores(
    place: BuildPlace, monkeypatch: pytest.MonkeyPatch, cores: int
) -> None:
    own = [f"{place.tree}/.venv", str(place.tree), "python train.py", f"{place.home}/cache/uv"]
    own += [f"{place.setup}/installed", str(os.getpid())]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {*range(cores)})
    begun = list[str]()

    def begin(*words: str) -> list[Any]:
        begun.extend(words)
        return [SimpleNamespace(pid=os.getpid())]

    monkeypatch.setattr(build_module, "begin_apart", begin)
    place.build(command="python train.py").build()
    assert begun[5:] == (["python.bytecode", *own] if cores > 1 else [])
    assert (place.notes / "python.compiling").exists() == (cores > 1)


@pytest.mark.parametrize(
    ("file", "values", "why"),
    [
        ("requirements.txt", {}, "requirements"),
        ("requirements.txt", {"extras": ["x"]}, "changed"),
        ("notes.txt", {}, "build"),
    ],
)
def test_the_reason_to_rebuild_an_environment_says_what_changed_in_profile_or_files(
    place: BuildPlace, file: str, values: dict[str, Any], why: str
) -> None:
    (place.tree / "setup.py").write_text("import setuptools; setuptools.setup()\n")
    (place.tree / "requirements.txt").write_text("-e .\n")
    before = place.build()._env.inputs
    asked = {"main": str(place.tree), "main_venv": f"{place.tree}/.venv"}
    with (place.tree / file).open("a") as opened:
        opened.write("numpy\n")
    step = PythonStep(facts(place.place(), asked=asked, **values))
    assert step.what_changed(before) == why


def test_installer_pip_gets_no_uv_options_and_uninstalls_packages_not_required(
    place: BuildPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.build().build()
    site, called = place.tree / ".venv/lib/python3/site-packages", list[list[str]]()
    for name in ("six-1.0", "Old_One-2.0", "pip-24.0"):
        (site / f"{name}.dist-info").mkdir()

    def call(words: list[str], *_: object) -> int:
        called.append(words[4:])
        if "--report" in words:
            install = [{"metadata": {"name": "six"}}]
            Path(words[words.index("--report") + 1]).write_text(json.dumps({"install": install}))
        return 0

    monkeypatch.setattr("bootstrap.onbox.python.pip.call", call)
    lines = {"requirements.txt": "--extra-index-url https://example.org/a\nsix\n"}
    index = ["https://example.org/b"]
    place.build(lines, installer="pip", python_index=index, names_of_last=["x"]).build()
    usual = ["--disable-pip-version-check", "--no-input"]
    own = ["--extra-index-url", *index, "-r", "requirements.txt"]
    install, look, remove = called
    assert install == ["install", *usual, *own]
    assert [look[0], *look[-4:]] == ["install", *own]
    assert remove == ["uninstall", *usual, "-y", "old-one"]
    (place.notes / "python.folders").unlink()
    (place.notes / "python.building").touch()
    place.build(lines, installer="pip").build()
    assert called[3][-1] == "--force-reinstall"
    assert "--force-reinstall" not in called[4]
    with pytest.raises(StepError, match=r"uv\.lock"):
        place.build({"uv.lock": "", "pyproject.toml": ""}, installer="pip").build()


def test_git_on_the_box_clones_a_private_dependency_from_the_copy_that_was_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLIENT_SENDS", raising=False)
    for name in ("GIT_CONFIG_COUNT", "GIT_CONFIG_PARAMETERS"):
        monkeypatch.setenv(name, "")
    for number in range(2):
        monkeypatch.setenv(f"GIT_CONFIG_KEY_{number}", "")
        monkeypatch.setenv(f"GIT_CONFIG_VALUE_{number}", "")
    (tmp_path / "dependencies/a.git").mkdir(parents=True)
    base = "ssh://git@example.org/a"
    rows = [f"a - {base}", "gone - ssh://git@example.org/b", f"- - {base}-too"]
    await_dependencies(str(tmp_path), str(tmp_path), rows)
    ask = ["git", "ls-remote", "--get-url"]
    found = [
        subprocess.check_output([*ask, each], text=True).strip() for each in (base, f"{base}-too")
    ]
    assert found == [f"file://{tmp_path}/dependencies/a.git", f"{base}-too"]
    assert os.environ["GIT_CONFIG_COUNT"] == "2"
    assert f"'url.{base}-too.insteadOf={base}-too'" in os.environ["GIT_CONFIG_PARAMETERS"]


@pytest.mark.parametrize(("sends", "waits"), [("yes", True), ("", False)])
def test_setup_waits_for_a_private_dependency_only_if_a_client_is_sending_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sends: str, waits: bool
) -> None:
    """When a hook runs this at boot, nobody sends anything."""
    monkeypatch.setenv("CLIENT_SENDS", sends)
    (tmp_path / "dependencies.refused").touch()
    if waits:
        with pytest.raises(StepError, match="never arrived"):
            await_dependencies(str(tmp_path), str(tmp_path), ["a - ssh://example.org/a"])
    else:
        await_dependencies(str(tmp_path), str(tmp_path), ["a - ssh://example.org/a"])
    await_dependencies(str(tmp_path), str(tmp_path), ["- - ssh://example.org/a"])


class SleptClock:
    """Time that passes only while something sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
        self.now, self.slept = 0.0, list[float]()
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(module.time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(seconds)


def test_the_box_waits_for_files_until_its_client_was_silent_for_two_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLIENT_SENDS", "yes")
    clock = SleptClock(monkeypatch, client)

    def waited(*, it_follows: bool) -> float:
        began, one = clock.now, Client(str(tmp_path))
        while clock.now < began + 2000 and one.may_send("data"):
            clock.now += 1
            if it_follows:
                (tmp_path / "client").write_text(str(clock.now))
        return clock.now - began

    assert waited(it_follows=False) == 120
    assert waited(it_follows=True) == 600
    (tmp_path / "data.sender").write_text(f"{identity(os.getpid())}\n")
    assert waited(it_follows=True) == 2000
    (tmp_path / "data.refused").touch()
    assert waited(it_follows=True) == 0


@pytest.mark.parametrize(("code", "said"), SAID, ids=range(len(SAID)))
def test_setup_repeats_an_install_only_after_a_network_failure(
    code: str, said: str, tmp_path: Path
) -> None:
    """The shell reads what failed in the same words."""
    (tmp_path / "log").write_text(f"No route to host\ntrying again in 2 s\n{said}\n")
    is_networks = code == "no-dns" or code.endswith("-unreachable")
    assert Retries(f"{tmp_path}/log").network_error() == (code if is_networks else "")


def test_a_network_failure_is_retried_for_a_minute_and_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock, log = SleptClock(monkeypatch, retries), tmp_path / "log"

    def fails() -> int:
        log.write_text("No route to host\n")
        return 4

    assert Retries(str(log)).run(fails) == 4
    assert clock.slept == [2, *[8] * 8]
    said = capsys.readouterr()
    assert said.out.splitlines() == ["wait code=index-unreachable"] * 9
    assert said.err.splitlines()[0] == "trying again in 2 s"
    log.write_text("sudo: unable to resolve host box: Name or service not known\n")
    assert Retries(str(log)).run(lambda: 5) == 5
    assert len(clock.slept) == 9


def test_setup_names_the_proxy_as_cause_only_if_that_proxy_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log").write_text("tunnel error: Connection refused\n")
    one = Retries(f"{tmp_path}/log")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:secret@127.0.0.1:{port}/")
        assert one.network_error() == "index-unreachable"
    assert one.network_error() == "proxy-unreachable"
    assert capsys.readouterr().err == f"the proxy 127.0.0.1:{port} of HTTPS_PROXY does not answer\n"


def test_each_event_of_a_setup_step_begins_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    written = list[bytes]()
    monkeypatch.setattr(step_report, "step", "python")
    monkeypatch.setattr(step_report.os, "write", lambda _, text: written.append(text))
    step_report.tell("wait code=busy")
    assert written == [b"python wait code=busy\n"]


@pytest.mark.parametrize(
    ("seconds", "slow", "warnings"),
    [(20, "slow", 1), (19, "slow", 0), (0, "flash-attn", 1), (0, "vllm @ git+x", 1)],
)
def test_setup_warns_once_that_a_package_is_compiling_if_its_build_takes_long(
    monkeypatch: pytest.MonkeyPatch, seconds: int, slow: str, warnings: int
) -> None:
    now = 0.0
    monkeypatch.setattr(uv_progress.time, "monotonic", lambda: now)
    progress, events = UvProgress(), list[str]()
    for line in ("   Building quick==1", "      Built quick==1", f"   Building {slow}==1"):
        events += progress.take(line)
    now = float(seconds)
    for _ in range(2):
        events += progress.look()
    events += [*progress.take(f"      Built {slow}==1"), *progress.take("Installed 2 packages")]
    assert events.count("warn code=compiling") == warnings
    assert events[-1] == "progress done=0 total=0 unit=packages"


def test_an_installs_progress_counts_the_sizes_that_uv_prints_then_all_packages() -> None:
    progress = UvProgress()
    assert [*progress.take("Resolved 3 packages in 1ms")] == [
        "progress done=0 total=3 unit=packages"
    ]
    for size in ("803.2MiB", "1.5GiB", "512B"):
        assert [*progress.take(f"Downloading torch ({size})")] == []
    (event,) = progress.look()
    total = int(803.2 * 2**20) + int(1.5 * 2**30) + 512
    assert event.endswith(f" total={total} unit=bytes")
    assert [*progress.take("Uninstalled 1 package in 1ms")] == [
        "progress done=3 total=3 unit=packages"
    ]


def test_install_progress_does_not_shrink_when_a_network_interface_disappears(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A VPN's card may disappear: the bytes received through it still count."""
    counts = iter([5000, 5300, 90, 190])
    monkeypatch.setattr(uv_progress, "bytes_received", lambda: next(counts))
    progress = UvProgress()
    done = [event.split()[1] for _ in range(3) for event in progress.look()]
    assert done == ["done=300", "done=300", "done=400"]


@pytest.mark.slow
def test_the_log_of_a_step_gets_all_output_of_uv_also_without_a_last_newline(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    wait = (
        "import time; print('Resolved 2 packages', flush=True); time.sleep(1.2); print(end='end')"
    )
    with subprocess.Popen([sys.executable, "-c", wait], stdout=subprocess.PIPE) as uv:
        assert uv.stdout
        follow(uv.stdout.fileno())
    said = capfd.readouterr()
    assert said.err.splitlines() == ["Resolved 2 packages", "end"]
    first, *bytes_ = said.out.splitlines()
    assert first == "progress done=0 total=2 unit=packages"
    assert bytes_
    assert all(line.endswith(" total= unit=bytes") for line in bytes_)


@pytest.mark.parametrize(
    ("brings", "said"),
    [*read_cases(Path(__file__).with_name("lacking.txt"))[1:], ("nothing", "")],
)
def test_setup_names_the_tool_or_header_that_a_failed_package_build_lacks(
    brings: str, said: str
) -> None:
    what, _, package = brings.partition(", in ")
    assert lacking(said) == ((what, package) if package else None)
    advised = f"The box lacks {what}: Debian's {package} brings it (packages: [{package}])"
    assert advice(said) == (advised if package else "")


@pytest.mark.parametrize("first_line", ["#!/usr/bin/env bash", "#!/bin/bash"])
def test_a_script_with_crlf_in_its_first_line_is_told_what_is_wrong_with_it(
    tmp_path: Path, first_line: str
) -> None:
    script = tmp_path / "go.sh"
    script.write_text(f"{first_line}\r\ntrue\r\n", newline="")
    script.chmod(0o755)
    done = captured(["bash", "-c", script], check=False)
    assert "ends in CRLF" in advice(done.stderr)
    said = "bash: ./go.sh: /bin/bash^M: bad interpreter: No such file or directory"  # an older bash
    assert advice(said) == advice(done.stderr)


def test_setup_finds_shared_libraries_that_a_package_needs_and_a_box_lacks(tmp_path: Path) -> None:
    site, other = tmp_path / "site", tmp_path / "other"
    for folder in (site / "cv2", other):
        folder.mkdir(parents=True)
    (site / "cv2/damaged.so").write_bytes(b"\x7fELF\x02\x01" + b"\xff" * 90)
    (site / "cv2/empty.so").touch()

    def build(target: Path, *words: str) -> None:
        gcc = ["gcc", "-shared", "-nostdlib", "-Wl,--no-as-needed", "-o", target, "-x", "c"]
        subprocess.run([*gcc, "/dev/null", "-x", "none", *words], check=True)

    for name in ("libOSMesa.so.8", "libunknown.so.1"):
        build(other / name, f"-Wl,-soname,{name}")
    build(site / "cv2/cv2.abi3.so", *map(str, other.iterdir()))
    assert [*missing_libraries(str(site))] == ["libOSMesa.so.8"]
    (site / "cv2.libs").mkdir()
    (other / "libOSMesa.so.8").rename(site / "cv2.libs/libOSMesa.so.8")
    assert not [*missing_libraries(str(site))]


def test_advice_on_missing_libraries_leaves_out_packages_that_another_named_one_brings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = [
        "libGL.so.1", "libX11.so.6", "libxcb.so.1", "libglib-2.0.so.0", "libgthread-2.0.so.0",
    ]  # fmt: skip
    monkeypatch.setattr(lacking_module, "missing_libraries", lambda _: missing)
    lacking_module.warn_of_lacking("/site")
    said = capsys.readouterr()
    events = ["warn code=lacks-libgl1", "warn code=lacks-libglib2.0-0"]
    assert said.out.splitlines() == events
    assert len(said.err.splitlines()) == 5
