"""What a repository declares that it needs: requirements, lock files, setup.*, Pipfile, conda.

Of its git dependencies, which ones this machine sends: a box has no credential for a git host. An
ssh address always needs one; whether an https address does can't be told without asking the host,
so the profile says it.
"""

import ast
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from bootstrap.errors import UsageError
from bootstrap.onbox.python.accepted import plain_range
from bootstrap.onbox.python.sources import requirement_lines
from bootstrap.profile.schema import Python
from bootstrap.profile.survey import files
from bootstrap.profile.survey.files import CONDA, included, is_known, package_name, parse_toml, same
from bootstrap.repo.urls import UrlKind, check_url, without_user_info

_EDITABLE = r"^\s*(?:-e|--editable)[=\s]+"
_LOCKED = re.compile(r'^name = "([A-Za-z0-9][A-Za-z0-9._-]*)"', re.MULTILINE)
CONDA_FILES = ("environment.yml", "environment.yaml", "conda.yml", "conda.yaml")
_CONDA_WORD = r"(?:[\w-]+::)?([A-Za-z0-9_][\w.-]*)\s*(.*)"
_REQUIREMENTS = re.compile(r"(?:.*[-_.])?requirements?(?:[-_.].*)?\.txt", re.IGNORECASE)
_NOT_FOR_TRAINING = re.compile(r"dev|doc|test|lint|ci\b|mac|windows|win32|rocm|cpu|freeze", re.I)


class Declared(NamedTuple):
    file: str
    requirements: tuple[str, ...] = ()
    python: str = ""  # a version of Python, or a range such as `>=3.10`
    left_out: tuple[str, ...] = ()
    """Packages of conda that no Python package index is known to have."""


class Project(NamedTuple):
    """What the repository is as a package, by pyproject.toml and setup.py."""

    name: str = ""
    has_dependencies: bool = False  # whether uv or pip can take its dependencies
    python: str = ""
    dependencies: tuple[str, ...] = ()
    extras: dict[str, tuple[str, ...]] = {}  # noqa: RUF012 - never changed
    groups: dict[str, tuple[str, ...]] = {}  # noqa: RUF012
    scripts: dict[str, str] = {}  # noqa: RUF012
    """Commands that it is installed with, each with its entry point."""
    is_built: bool = False  # whether it can be installed as a package
    needs_torch: bool = False  # whether its build imports torch


def requirement_files(root: Path) -> list[str]:
    """Return requirements files, likeliest first (at the root, short names); none for tests."""
    found = [
        path.relative_to(root)
        for path in files.below(root, 1)
        if _REQUIREMENTS.fullmatch(path.name)
        or (path.parent.name == "requirements" and path.suffix == ".txt")
    ]
    usual = [path for path in found if not _NOT_FOR_TRAINING.search(str(path))]
    return [str(path) for path in sorted(usual, key=lambda path: (len(path.parts), len(str(path))))]


def with_includes(root: Path, file: str, depth: int = 8) -> Declared:
    found = list[str]()
    for _, line in requirement_lines(files.text_of_file(root / file)):
        name = included(line)
        text = re.sub(_EDITABLE, "", line).strip()
        if name is None and not text.startswith("-"):
            found.append(text)
        inner = Path(file).parent / (name or "/")
        if depth and not inner.is_absolute() and ".." not in inner.parts:
            found += with_includes(root, str(inner), depth - 1).requirements
    return Declared(file, tuple(dict.fromkeys(found)))


def own_project(root: Path) -> Project:
    data = files.toml(root / "pyproject.toml")
    table, tools = _map(data.get("project")), _map(data.get("tool"))
    poetry = _map(tools.get("poetry"))
    poetry_needs = _map(poetry.get("dependencies"))
    python = poetry_needs.pop("python", "")
    source = files.text_of_file(root / "setup.py", files.LARGEST_SCRIPT)
    given, has_system = _keywords(source), "build-system" in data
    scripts = {key: str(value) for key, value in _map(table.get("scripts")).items()}
    scripts |= dict(re.findall(r"[\"'\n]\s*([\w.-]+)\s*=\s*([\w.]+:\w+)", source))
    extras = dict[str, tuple[str, ...]]()
    optional = given.get("extras_require")
    if isinstance(optional, ast.Dict):
        for key, value in zip(optional.keys, optional.values, strict=True):
            extras |= {each: _literals(value) for each in _literals(key)}
    extras |= {k: _texts(v) for k, v in _map(table.get("optional-dependencies")).items()}
    dependencies = _texts(table.get("dependencies")) or tuple(poetry_needs)
    if not dependencies and (root / "requirements.txt").is_file():
        reads = "requirements" in source + str(tools.get("setuptools"))
        dependencies = with_includes(root, "requirements.txt").requirements if reads else ()
    if not dependencies:
        dependencies = (setup_py(root) or setup_cfg(root) or Declared("")).requirements
    is_poetrys = bool(poetry) and poetry.get("package-mode") is not False and has_system
    groups, usual = _map(data.get("dependency-groups")), _map(tools.get("uv")).get("default-groups")
    taken = usual if isinstance(usual, list) else [k for k in groups if not is_for_others(k)]
    return Project(
        name=str(table.get("name") or poetry.get("name") or "".join(_literals(given.get("name")))),
        has_dependencies=bool(table) or is_poetrys,
        python=str(table.get("requires-python") or (python if isinstance(python, str) else "")),
        dependencies=dependencies,
        extras=extras,
        groups={k: _texts(v) for k, v in groups.items() if k in taken},
        scripts=scripts if has_system or source else {},
        is_built=has_system or bool(source),
        needs_torch=bool(re.search(r"^(?:import|from) torch\b", source, re.MULTILINE)),
    )


def _keywords(source: str) -> dict[str, ast.expr]:
    """Return what the calls in a script are given by name."""
    from bootstrap.profile.survey import scripts  # late: a setup reads no scripts

    tree = scripts.parsed(source)
    if not tree:
        return {}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    lists = {
        node.targets[0].id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    given = {each.arg: each.value for call in calls for each in call.keywords if each.arg}
    return {
        name: lists.get(value.id, value) if isinstance(value, ast.Name) else value
        for name, value in given.items()
    }


def poetry(root: Path) -> Declared | None:
    """Return what poetry would install, for a project that is no package; without dev groups."""
    tool = _map(_map(files.toml(root / "pyproject.toml").get("tool")).get("poetry"))
    groups = {name: _map(group) for name, group in _map(tool.get("group")).items()}
    parts = [tool.get("dependencies")]
    parts += [
        group.get("dependencies")
        for name, group in groups.items()
        if not is_for_others(name) and group.get("optional") is not True
    ]
    needs = {name: value for part in parts for name, value in _map(part).items()}
    python = needs.pop("python", "")
    found = [_of_poetry(name, value) for name, value in needs.items()]
    named = tuple(each for each in found if each)
    return Declared("pyproject.toml", named, str(python)) if named else None


def _of_poetry(name: str, value: object) -> str:
    """Return a dependency of poetry as a requirement; "" for an optional one or a path."""
    said = value[0] if isinstance(value, list) and value else value
    rows = said if isinstance(said, dict) else {"version": said}
    if rows.get("optional") is True or "path" in rows:
        return ""
    named = ",".join(_texts(rows.get("extras")))
    extras = f"[{named}]" if named else ""
    if address := rows.get("git") or rows.get("url"):
        ref = next((f"@{rows[word]}" for word in ("rev", "tag", "branch") if word in rows), "")
        return f"{name}{extras} @ {'git+' if 'git' in rows else ''}{address}{ref}"
    return f"{name}{extras}{plain_range(str(rows.get('version') or '*'))}"


def is_for_others(name: str) -> bool:
    """Whether a group or an extra is for tests, documentation and the like."""
    return bool(_NOT_FOR_TRAINING.search(name))


def setup_py(root: Path) -> Declared | None:
    """Return what setup.py asks for, as far as it has plain lists. It is not run."""
    source = files.text_of_file(root / "setup.py", files.LARGEST_SCRIPT)
    if not source:
        return None
    given = _keywords(source)
    python = "".join(_literals(given.get("python_requires")))
    return Declared("setup.py", _literals(given.get("install_requires")), python)


def setup_cfg(root: Path) -> Declared | None:
    import configparser  # late: few have one

    parser = configparser.RawConfigParser()
    try:
        parser.read_string(files.text_of_file(root / "setup.cfg"))
    except configparser.Error:
        return None
    needs = parser.get("options", "install_requires", fallback="")
    python = parser.get("options", "python_requires", fallback="")
    found = tuple(line.strip() for line in needs.splitlines() if line.strip())
    return Declared("setup.cfg", found, python) if found else None


def pipfile(root: Path) -> Declared | None:
    data = files.toml(root / "Pipfile")
    needs = _map(data.get("packages"))
    python = str(_map(data.get("requires")).get("python_version", ""))
    found = tuple(
        name + (value if isinstance(value, str) and value[:1] in "=<>~!" else "")
        for name, value in needs.items()
    )
    return Declared("Pipfile", found, python) if found else None


def conda(root: Path) -> Declared | None:
    """Return what an environment.yml asks for, under the names that a Python package index has."""
    for name in CONDA_FILES:
        needs = files.yaml(root / name).get("dependencies")
        if isinstance(needs, list):
            return of_conda(name, needs)
    return None


def of_conda(file: str, needs: list[Any]) -> Declared:
    found, left_out, python = list[str](), list[str](), ""
    for need in needs:
        if isinstance(need, dict):
            found += _texts(need.get("pip"))
            continue
        word = re.fullmatch(_CONDA_WORD, str(need).strip())
        name, version = (word[1].lower(), _pip_version(word[2])) if word else ("", "")
        if name == "python":
            python = version
        elif is_known(CONDA.get(name, name)) and name not in ("pip", "setuptools"):
            found.append(CONDA.get(name, name) + version)
        elif name not in ("pip", "setuptools", "wheel", ""):
            left_out.append(name)
    pinned = [each for each in found if re.match(r"(?:-e )?(?:[A-Za-z0-9.]|git\+)", each)]
    return Declared(file, tuple(pinned), python, tuple(left_out))


def _pip_version(version: str) -> str:
    """Convert a conda version: its `=1.2` means any 1.2, and its third part names a build."""
    version = version.replace(" ", "")
    if not version.startswith("=") or version.startswith("=="):
        return version if version[:1] in tuple("=<>!~") else (f"=={version}" if version else "")
    wanted = version[1:].partition("=")[0]
    return f"=={wanted}" + ("" if "*" in wanted else ".*")


def locked(lock: str) -> set[str]:
    return {same(name) for name in _LOCKED.findall(lock)}


def names(requirements: Iterable[str]) -> set[str]:
    """Return the normalized names of the packages in some requirements."""
    return {package_name(each) for each in requirements} - {""}


def _map(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _texts(value: object) -> tuple[str, ...]:
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


def _literals(node: ast.expr | None) -> tuple[str, ...]:
    parts = node.elts if isinstance(node, ast.List | ast.Tuple) else [node]
    texts = (part.value for part in parts if isinstance(part, ast.Constant))
    return tuple(text for text in texts if isinstance(text, str))


ReadFiles = Callable[[list[str]], dict[str, str]]
"""Reads files by name; returns the texts of those that exist."""

_MOST_INCLUDED = 8
_SCHEMES = "|".join(kind.value for kind in UrlKind)
# `git+URL@REF#FRAGMENT` of a requirement; pip takes `git+user@host:path` too.
_REQUIRED = rf"git\+((?:(?:{_SCHEMES})://[^\s\"'#;/]+/|[\w.-]+@[\w.-]+:)[^\s\"'#;]+?)(?:@([^\s\"'#;@]+))?(?=[\s\"'#;]|$)"
_LOCKED_GIT = r'source = \{ git = "([^"?#]+)(?:\?[^"#]*)?#([0-9a-f]{40,64})" \}'
_USER = r"(?<=^ssh://)[^/@]+@"
COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")  # a full commit id


class GitDependency(NamedTuple):
    """A repository that an environment depends on, as an installer hands it to git."""

    address: str
    ref: str = ""  # a commit, branch or tag; "" for the default branch

    @property
    def is_pinned(self) -> bool:
        return COMMIT.fullmatch(self.ref) is not None


def find_git_dependencies(python: Python, read: ReadFiles) -> list[GitDependency]:
    """Return those named by the profile, and by the files that the box would install from."""
    beside = _required("\n".join([*python.packages, *python.no_build_isolation]))
    return sorted({*beside, *_in_files(python, read)})


def _in_files(python: Python, read: ReadFiles) -> Iterator[GitDependency]:
    """Choose files in the same order as `find_sources` in onbox/python/sources.py."""
    lock, listed = python.lock or "uv.lock", python.requirements
    named = [python.conda, *(listed or [])] if python.conda else listed or ["requirements.txt"]
    beside_lock = str(PurePosixPath(lock).parent / "pyproject.toml")
    texts = read([lock, *named, beside_lock, "pyproject.toml"])
    if python.conda:
        yield from _in_requirements(named, texts, read)
    elif python.lock or (listed is None and lock in texts):
        yield from _in_lock(texts.get(lock, ""), texts.get(beside_lock, ""))
    elif listed or (listed is None and "requirements.txt" in texts and not python.extras):
        yield from _in_requirements(named, texts, read)
    elif listed is None:
        yield from _in_project(texts.get("pyproject.toml", ""), python.extras, [])
    if python.groups:
        yield from _in_project(texts.get("pyproject.toml", ""), [], python.groups)


def _in_lock(lock: str, project: str) -> Iterator[GitDependency]:
    """Take other users than `git` from pyproject.toml, as uv does: a lock drops them."""
    named = {re.sub(_USER, "", each.address): each.address for each in _sources(project)}
    for address, commit in re.findall(_LOCKED_GIT, lock):
        yield GitDependency(named.get(address, address), commit)


def _in_requirements(
    names: Iterable[str], texts: dict[str, str], read: ReadFiles
) -> Iterator[GitDependency]:
    """Yield from requirements files, and from those that they include."""
    waiting, seen = list(names), set[str]()
    for _ in range(_MOST_INCLUDED):
        seen |= {*waiting}
        inner = list[str]()
        for name in waiting:
            text = "\n".join(line for _, line in requirement_lines(texts.get(name, "")))
            yield from _required(text)
            folder = PurePosixPath(name).parent
            named = filter(None, map(included, text.splitlines()))
            inner += [posixpath.normpath(folder / each) for each in named]
        waiting = [name for name in dict.fromkeys(inner) if name not in seen]
        if not waiting:
            return
        texts = read(waiting)


def _in_project(text: str, extras: list[str], groups: list[str]) -> Iterator[GitDependency]:
    """Yield from pyproject.toml: its dependencies or these groups, these extras, uv's sources."""
    if "git" not in text:
        return
    data = parse_toml(text)
    project = _map(data.get("project"))
    optional, more = _map(project.get("optional-dependencies")), _map(data.get("dependency-groups"))
    needs = [] if groups else [project.get("dependencies"), *map(optional.get, extras)]
    needs += [_map(data.get("build-system")).get("requires"), *map(more.get, groups)]
    yield from _required("\n".join(str(each) for each in needs))
    yield from _sources(text)


def _sources(text: str) -> Iterator[GitDependency]:
    """Yield the git repositories in `tool.uv.sources` of pyproject.toml."""
    if "git" not in text:
        return
    uv = _map(_map(parse_toml(text).get("tool")).get("uv"))
    for source in _map(uv.get("sources")).values():
        for each in source if isinstance(source, list) else [source]:
            address = _map(each).get("git")
            if isinstance(address, str):
                ref = next((each[word] for word in ("rev", "tag", "branch") if word in each), "")
                yield GitDependency(address.removeprefix("git+"), str(ref))


def _required(text: str) -> Iterator[GitDependency]:
    yield from map(GitDependency._make, re.findall(_REQUIRED, text))


def sent_from_here(python: Python, found: Iterable[GitDependency]) -> list[GitDependency]:
    """Return those that this machine fetches and sends; the box fetches the others itself."""
    return [each for each in found if _is_sent(python.private, each.address)]


def _is_sent(private: list[str] | None, address: str) -> bool:
    try:
        kind = check_url(address)
    except UsageError:
        return False
    if address != without_user_info(address):  # the address has a credential in it
        return False
    return kind is UrlKind.SSH if private is None else is_named(private, address)


def is_named(private: Iterable[str], address: str) -> bool:
    """Whether `private` names this address or a folder above it."""
    bare = _bare(address)
    return any(bare == each or bare.startswith(f"{each}/") for each in map(_bare, private))


def _bare(address: str) -> str:
    return without_user_info(address).rstrip("/").removesuffix(".git")
