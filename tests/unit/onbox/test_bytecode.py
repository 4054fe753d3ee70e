"""What is compiled while a training starts: which modules, in which order, and when none."""

import os
import py_compile
import resource
import shlex
import subprocess
import sys
import zipfile
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from bootstrap.onbox import MAIN
from bootstrap.onbox.python import bytecode
from bootstrap.onbox.python.bytecode import modules_of
from bootstrap.onbox.python.imports import FetchedModules, ImportStatement, Walk, imports_of
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow  # each starts programs

SITE = "lib/python3.11/site-packages"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import a.b as c, d\n", [("a.b",), ("d",)]),
        ("from . import a\nfrom ..b.c import (  # why\n  d as e,\n  f,\n)\n", None),
        ("from a import \\\n  b, \\\n  c\n", [("a", "b", "c")]),
        ('"""Told.\n\nimport no\nfrom no import no\n"""\nimport a\n', [("a",)]),
        ("# x\n\n'''import no\nimport no'''\nimport a\n", [("a",)]),
        ("try:\n  import a\nexcept ImportError:\n  import b\n", [("a",), ("b",)]),
        ("if TYPE_CHECKING:\n  import no\nelse:\n  import a\nimport b\n", [("a",), ("b",)]),
        ("def f():\n  import no\n\nclass A:\n  def g(self):\n    import no\nimport a\n", [("a",)]),
        ("x = '''\nabc\n'''\nimport a\n", [("a",)]),
        ("importlib = 1\nfromage = 2\niffy = 3\nimport a; b()\n", [("a",)]),
        ("", []),
    ],
)
def test_compiling_ahead_finds_the_imports_of_a_module_in_the_order_they_run(
    source: str, found: list[tuple[str, ...]] | None
) -> None:
    wanted = found if found is not None else [(".", "a"), ("..b.c", "d", "f")]
    assert [*imports_of(source)] == [ImportStatement(each[0], each[1:]) for each in wanted]


def test_compiling_ahead_finds_imports_inside_a_scripts_functions_too() -> None:
    source = "def main():\n  import a\n"
    assert [*imports_of(source, everywhere=True)] == [ImportStatement("a")]


PACKAGES = {
    "big/__init__.py": "from .early import x\nfrom . import late\nimport os, json\n",
    "big/early.py": "from big import base\n",
    "big/base.py": "",
    "big/late.py": "try:\n  import other.deep.inner\nexcept ImportError: pass\n",
    "big/unused.py": "",
    "other/deep/inner.py": "import json\n",
    "lazy/__init__.py": "import sys\nsys.modules[__name__] = _LazyModule(1)\n",
    "lazy/models/__init__.py": "",
    "lazy/models/one.py": "class One(object):\n  pass\n",
    "lazy/models/two.py": "class Two:\n  pass\n\ndef make_two(): pass\n",
    "own.py": "import own\n",
    "broken.py": "import big\nthis is no Python\n",
}
LATE = ["lazy", "lazy.models", "lazy.models.one", "lazy.models.two"]
ORDER = ["big", "big.early", "big.base", "big.late", "other.deep.inner"]


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment with these packages, and a tree next to it."""
    for name, text in PACKAGES.items():
        file = tmp_path / "env" / SITE / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / "tree/tools").mkdir(parents=True)
    (tmp_path / "tree/helper.py").write_text("def f():\n  import own\n")
    (tmp_path / "tree/train.py").write_text("import big\nimport helper\n")
    (tmp_path / "tree/tools/__init__.py").write_text("")
    (tmp_path / "tree/tools/go.py").write_text("import lazy\nlazy.Two()\nfrom lazy import One\n")
    (tmp_path / "tree/run.sh").write_text("set -e\npython train.py --x 'a b\n")
    (tmp_path / "env/bin").mkdir()
    (tmp_path / "env/bin/launch").write_text("#!/x/python3\nimport sys\nfrom big.base import x\n")
    (tmp_path / "env/bin/compiled").write_bytes(b"\x7fELF")
    return tmp_path / "env"


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("python train.py --epochs 3", [*ORDER, "own"]),
        ("bash run.sh", [*ORDER, "own"]),
        ("X=1 python -u -m tools.go | tee log", LATE),
        ("launch train.py", [*ORDER[:3], ORDER[3], ORDER[4], "own"]),
        ("compiled nothing.py '", []),
        ("python -m big.base", ORDER),
        ("python -c 'import own'", []),
    ],
)
def test_compiling_ahead_finds_the_files_a_training_command_imports(
    environment: Path, command: str, found: list[str]
) -> None:
    files = bytecode.modules_of(command, environment.parent / "tree", environment)
    site = environment / SITE
    names = [str(Path(file).relative_to(site))[:-3].replace("/", ".") for file in files]
    assert [name.removesuffix(".__init__") for name in names] == found


def test_compiling_ahead_includes_modules_a_script_imports_only_when_used(
    environment: Path,
) -> None:
    walk = Walk([environment / SITE], environment)
    walk.script(environment.parent / "tree/tools/go.py")
    late = [Path(file).name for file in walk.order if "models" in file]
    assert late == ["__init__.py", "one.py", "two.py"]


def compile_for(environment: Path, command: str, cores: int) -> list[str]:
    """Run the program; return the modules that it compiled, in that order."""
    site = environment / SITE
    said = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-B",
            MAIN,
            "python.bytecode",
            environment,
            environment.parent / "tree",
            command,
        ],
        env={},
        preexec_fn=lambda: os.sched_setaffinity(0, [*os.sched_getaffinity(0)][:cores]),
        capture_output=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert (said.stdout, said.stderr) == (b"", b"")
    made = {Path(cache_from_source(str(each))): each for each in site.rglob("*.py")}
    times = {file.stat().st_mtime_ns: made[file] for file in made if file.exists()}
    return [each.stem for _, each in sorted(times.items())]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_compiling_ahead_takes_the_last_imports_first_and_none_on_a_single_core(
    environment: Path,
) -> None:
    assert compile_for(environment, "python train.py", cores=1) == []
    assert compile_for(environment, "python train.py", cores=2) == [
        *("own", "inner", "late", "base", "early", "__init__")
    ]
    (environment / SITE / "own.py").unlink()
    (environment.parent / "tree/train.py").write_text("import broken\nimport lazy.models.one\n")
    assert "one" in compile_for(environment, "python train.py", cores=2)
    assert not [*environment.parent.glob("tree/**/__pycache__")]


def fetch(environment: Path, name: str, text: str, wheel: str = "archive-v0/w") -> Path:
    """Write a module as uv unpacks it: into the folder `wheel` of its cache."""
    file = environment.parent / "cache" / wheel / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def install(environment: Path, file: Path, name: str) -> Path:
    """Link a module of the cache into the environment, as uv installs it."""
    landed = environment / SITE / name
    landed.unlink(missing_ok=True)
    landed.parent.mkdir(parents=True, exist_ok=True)
    os.link(file, landed)
    return landed


def fetched_into(environment: Path) -> FetchedModules:
    """Return the modules of the cache that `fetch` writes."""
    return FetchedModules(environment.parent / "cache", environment / SITE)


def compiled(file: Path) -> Path:
    """Return the path of a module's bytecode."""
    return Path(cache_from_source(str(file)))


@pytest.mark.parametrize("wheel", [".tmpA1", "archive-v0/x-Y"])
def test_bytecode_compiled_during_a_download_equals_what_python_writes_at_import(
    environment: Path, wheel: str
) -> None:
    fetched = fetched_into(environment)
    file = fetch(environment, "new/it.py", "def f():\n  return __file__\n", wheel)
    assert fetched.sites() == [environment.parent / "cache" / wheel]
    assert fetched.add(file)
    assert not fetched.add(file)
    landed = install(environment, file, "new/it.py")
    fetched.land()
    made = compiled(landed).read_bytes()
    compiled(landed).unlink()
    py_compile.compile(str(landed), doraise=True)
    assert made == compiled(landed).read_bytes()
    assert not [*(environment.parent / "cache").rglob("*.pyc")]


def test_bytecode_compiled_ahead_is_dropped_if_the_installed_module_differs(
    environment: Path,
) -> None:
    fetched = fetched_into(environment)
    half = fetch(environment, "half.py", "x = 1\n")
    cut = fetch(environment, "cut.py", "x = 'a\n")
    other = fetch(environment, "other.py", "x = 1\n")
    gone = fetch(environment, "gone.py", "x = 1\n")
    assert [fetched.add(file) for file in (half, cut, other, gone)] == [True] * 4
    half.write_text("x = 1\ny = 2\n")
    cut.write_text("x = 'a'\n")
    assert fetched.add(cut)
    landed = [install(environment, file, file.name) for file in (half, cut, other)]
    other.write_text("x = 2\n")
    fetched.land()
    assert [compiled(file).exists() for file in landed] == [False, True, False]
    assert not compiled(environment / SITE / gone.name).exists()


def test_compiling_ahead_overwrites_no_bytecode_and_leaves_no_partial_file(
    environment: Path,
) -> None:
    fetched = fetched_into(environment)
    files = [fetch(environment, f"m{n}.py", f"x = '{n}' * 99\n" * 99) for n in range(2)]
    assert [fetched.add(file) for file in files] == [True] * 2
    first, second = [install(environment, file, file.name) for file in files]
    compiled(first).parent.mkdir(exist_ok=True)
    compiled(first).write_bytes(b"another's")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    try:
        fetched.land()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert compiled(first).read_bytes() == b"another's"
    assert [file.name for file in compiled(second).parent.iterdir()] == [compiled(first).name]


def test_packages_unpacked_by_the_real_uv_are_compiled_ahead(environment: Path) -> None:
    folder = environment.parent
    wheel = folder / "thing-1.0-py3-none-any.whl"
    info = "thing-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("thing/__init__.py", "x = 1\n")
        packed.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n")
        packed.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        packed.writestr(f"{info}/RECORD", "thing/__init__.py,,\n")
    uv = ["uv", "--no-config", "--cache-dir", str(folder / "cache")]
    environment = folder / "own"
    subprocess.run([*uv, "venv", "-q", "--python", sys.executable, environment], check=True)
    fetched = FetchedModules(folder / "cache", *environment.glob("lib/python3*/site-packages"))
    into = ["--python", str(environment / "bin/python"), "--offline"]
    subprocess.run([*uv, "pip", "install", "-q", *into, wheel], check=True)
    found = modules_of("python -m thing", folder / "tree", environment, fetched)
    assert [fetched.add(Path(file)) for file in found] == [True]
    fetched.land()
    assert [*environment.glob("lib/python3*/site-packages/thing/__pycache__/__init__.*.pyc")]


def test_compiling_ahead_ends_if_the_installer_has_ended_already(environment: Path) -> None:
    fetched = FetchedModules(environment.parent / "cache", environment / SITE)
    with pytest.raises(SystemExit):
        fetched.compile_until(environment / "installed", os.getpid(), list)


def is_last(process: Path) -> bool:
    """Whether a process has the lowest priority; with autogroups, its group's counts."""
    group = process / "autogroup"
    if group.exists():
        return group.read_text().endswith("nice 19\n")
    return (process / "stat").read_text().rpartition(")")[2].split()[16] == "19"


def as_any_other(process: Path) -> None:
    """Give a process normal priority: other tests can take all cores for minutes."""
    group = process / "autogroup"
    if group.exists():
        group.write_text("0")
    elif os.geteuid() == 0:
        os.setpriority(os.PRIO_PROCESS, int(process.name), 0)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
@pytest.mark.parametrize("is_installed", [True, False])
def test_compiling_ahead_writes_bytecode_only_after_the_install_and_ends_with_the_installer(
    environment: Path, is_installed: bool
) -> None:
    """Without the file `installed` nothing is written; in both cases the helper ends."""
    folder = environment.parent
    mark = folder / "installed"
    words = [environment, folder / "tree", "python train.py", folder / "cache", mark]
    line = [sys.executable, "-I", "-S", "-B", MAIN, "python.bytecode", *map(str, words)]
    who = subprocess.Popen(
        ["sh", "-c", f"setsid {shlex.join(line)} $$ & echo $!; read x"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert who.stdout is not None
    helper = Path("/proc", who.stdout.readline().strip())
    wait_until(lambda: is_last(helper), pause=0.01)
    as_any_other(helper)
    file = fetch(environment, "big/__init__.py", "import extra\n", ".tmpB")
    fetch(environment, "extra.py", "z = 1\n", ".tmpB")
    landed = install(environment, file, "big/__init__.py")
    if is_installed:
        mark.touch()
    who.communicate("over\n", timeout=PATIENCE_S)
    wait_until(lambda: not helper.exists())
    assert compiled(landed).exists() is is_installed
    assert bool([*environment.rglob("*.pyc")]) is is_installed
