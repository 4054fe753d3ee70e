"""What is compiled beside a training's start: which modules, in which order, and when none."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from bootstrap.box import bytecode
from bootstrap.box.imports import ImportStatement, Walk, imports_of

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
def test_what_a_module_imports(source: str, found: list[tuple[str, ...]] | None) -> None:
    wanted = found if found is not None else [(".", "a"), ("..b.c", "d", "f")]
    assert [*imports_of(source)] == [ImportStatement(each[0], each[1:]) for each in wanted]


def test_a_script_s_functions_count_as_well() -> None:
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
    """An environment of these packages, and a tree beside it."""
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
def test_the_files_of_a_command(environment: Path, command: str, found: list[str]) -> None:
    files = bytecode.modules_of(command, environment.parent / "tree", environment)
    site = environment / SITE
    names = [str(Path(file).relative_to(site))[:-3].replace("/", ".") for file in files]
    assert [name.removesuffix(".__init__") for name in names] == found


def test_a_script_takes_late_names_by_its_module(environment: Path) -> None:
    walk = Walk([environment / SITE], environment)
    walk.script(environment.parent / "tree/tools/go.py")
    late = [Path(file).name for file in walk.order if "models" in file]
    assert late == ["__init__.py", "one.py", "two.py"]


def compile_for(environment: Path, command: str, cores: int) -> list[str]:
    """The modules that it compiled, the one that was compiled first first."""
    program = Path(bytecode.__file__)
    site = environment / SITE
    said = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-B",
            program,
            environment,
            environment.parent / "tree",
            command,
        ],
        env={},
        preexec_fn=lambda: os.sched_setaffinity(0, [*os.sched_getaffinity(0)][:cores]),
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert (said.stdout, said.stderr) == (b"", b"")
    made = {Path(cache_from_source(str(each))): each for each in site.rglob("*.py")}
    times = {file.stat().st_mtime_ns: made[file] for file in made if file.exists()}
    return [each.stem for _, each in sorted(times.items())]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_it_compiles_the_last_one_first_and_on_one_core_nothing(environment: Path) -> None:
    assert compile_for(environment, "python train.py", cores=1) == []
    assert compile_for(environment, "python train.py", cores=2) == [
        *("own", "inner", "late", "base", "early", "__init__")
    ]
    (environment / SITE / "own.py").unlink()
    (environment.parent / "tree/train.py").write_text("import broken\nimport lazy.models.one\n")
    assert "one" in compile_for(environment, "python train.py", cores=2)
    assert not [*environment.parent.glob("tree/**/__pycache__")]
