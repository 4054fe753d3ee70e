"""Work out an environment from the files of a repository, each part with its reason."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bootstrap.profile.survey import commands, declared, files
from bootstrap.profile.survey.files import is_known, package_name, provides, same
from bootstrap.profile.values import EXTRA, INDEX_URL, PYTHON, REPO_PATH, REQUIREMENT, fits

# A Python for which an older torch, and packages of the same age, have wheels.
_PYTHON_OF_TORCH = {(1, 12): "3.10", (1, 13): "3.10", (2, 0): "3.10", (2, 1): "3.10"}
_PYTHON_OF_TORCH |= {(2, 2): "3.11", (2, 3): "3.11", (2, 4): "3.11"}


@dataclass(frozen=True)
class Reasoned:
    """A value, and why it is taken."""

    value: str
    why: str


@dataclass(frozen=True)
class Environment:
    """Where packages come from, and which ones are known to be among them (`names`)."""

    names: frozenset[str] = frozenset()
    lock: str | None = None
    requirements: tuple[str, ...] = ()
    why: str = ""
    project: bool = False
    """Whether the dependencies in pyproject.toml are installed."""
    python: Reasoned | None = None
    requires_python: str | None = None
    torch_extras: tuple[str, ...] = ()
    extras: tuple[Reasoned, ...] = ()
    groups: tuple[Reasoned, ...] = ()
    packages: tuple[Reasoned, ...] = ()
    index: tuple[Reasoned, ...] = ()
    last: tuple[Reasoned, ...] = ()
    conda: Reasoned | None = None
    """The file to build from conda's packages, if a Python package index does not have them all."""
    remarks: tuple[str, ...] = ()

    @property
    def has_files(self) -> bool:
        """Whether a file says what it consists of."""
        return bool(self.lock or self.requirements or self.project or self.conda or self.groups)


def find_environment(root: Path, said: commands.Said, brought: commands.Imported) -> Environment:
    """Return the environment of the repository at `root`; `brought`: what its training imports."""
    project, lock = declared.project(root), files.text_of_file(root / "uv.lock", files.LARGEST)
    has_lock = (root / "uv.lock").is_file()
    listed, why = ((), "") if has_lock else _requirement_files(root, said)
    takes_project = project.has_dependencies and not has_lock and not listed
    groups = _groups(project) if not listed else ()
    other = None
    if not (has_lock or listed or takes_project or groups):
        other = next(filter(None, (kind(root) for kind in _OTHERS)), declared.Declared(""))
    by_conda = _by_conda(other) if other else None
    required = [each for file in listed for each in declared.with_includes(root, file).requirements]
    required += project.dependencies if takes_project else ()
    required += [each for group in groups for each in project.groups[group.value]]
    packages = _of_other(other, said, project.name) if other and not by_conda else []
    required += [*other.requirements, *other.left_out] if other and by_conda else []
    names = declared.locked(lock) | _names([*required, *(each.value for each in packages)])
    imports = list(
        _of_imports(said, brought, names | ({same(project.name)} if takes_project else set()))
    )
    unnamed = next((each for each in required if _may_bring(each)), "")
    packages += imports if not unnamed else []
    torch = declared.torch_version([*required, *(each.value for each in packages)])
    extras = declared.torch_extras(lock)
    early, last = _in_order(packages)
    return Environment(
        names=frozenset(names | declared.names(project.dependencies)),
        lock="uv.lock" if has_lock else None,
        requirements=listed,
        why=why,
        project=takes_project,
        python=None
        if by_conda
        else _python(root, other.python if other else project.python, torch),
        requires_python=project.python or None,
        torch_extras=extras,
        groups=groups,
        extras=tuple(_extras(said, extras, project, named=has_lock or takes_project)),
        packages=early,
        index=tuple(_indexes(said)) if other else (),
        last=last,
        conda=by_conda,
        remarks=(
            *(_left_out(other) if other and not by_conda else ()),
            *(_undecided(imports, unnamed) if unnamed else ()),
        ),
    )


def _may_bring(requirement: str) -> bool:
    """Whether nobody can tell from it what it installs: an address or a path without a name."""
    address = "/" in requirement and not re.match(
        r"[\w.-]+(\[[^]]*\])?\s*@|.*[#&]egg=", requirement
    )
    return bool(
        address and not is_known(package_name(requirement)) and requirement not in (".", "./")
    )


def _undecided(imports: list[Reasoned], unnamed: str) -> Iterator[str]:
    for each in imports:
        yield (
            f"{each.why.removesuffix(' it')} {each.value}: {unnamed} may bring it; if it doesn't, "
            f"add {each.value} to python.packages"
        )


def _groups(project: declared.Project) -> tuple[Reasoned, ...]:
    """Return the dependency groups to install, if the project itself names no dependencies."""
    if project.dependencies:
        return ()
    return tuple(
        Reasoned(name, "pyproject.toml has the dependencies in this group")
        for name in declared.groups_for_training(project)
    )


def _by_conda(other: declared.Declared) -> Reasoned | None:
    """Return an environment.yml that asks for more than a Python package index has."""
    beyond = [each for each in other.left_out if not _OF_TORCH.fullmatch(each)]
    if not beyond or other.file not in declared.CONDA_FILES:
        return None
    more = ", …" if len(beyond) > _NAMED else ""
    return Reasoned(other.file, f"for {', '.join(beyond[:_NAMED])}{more}")


def _left_out(other: declared.Declared) -> Iterator[str]:
    if other.left_out:
        named = ", ".join(other.left_out[:10])
        yield f"{other.file} also asks for {named}, which no index of Python packages may have" + (
            f" (python.conda: {other.file} takes all of it from conda's channels)"
            if other.file in declared.CONDA_FILES
            else ""
        )


def _names(requirements: Iterable[str]) -> set[str]:
    return declared.names(map(_plain_requirement, requirements))


def _of_other(other: declared.Declared, said: commands.Said, own: str) -> list[Reasoned]:
    """Return what a file that uv and pip can't read asks for; without one, what a page installs."""
    if other.file:
        return [Reasoned(each, f"{other.file} asks for it") for each in other.requirements]
    return _of_installs(said, own)


def _in_order(packages: list[Reasoned]) -> tuple[tuple[Reasoned, ...], tuple[Reasoned, ...]]:
    """Split into packages installed together, and those built last with the others present."""
    plain = [Reasoned(_plain_requirement(each.value), each.why) for each in packages]
    fitting = [each for each in plain if fits(REQUIREMENT, each.value)]
    last = [each for each in fitting if package_name(each.value) == "flash-attn"]
    early = [each for each in fitting if each not in last]
    if last:
        early += [Reasoned(each, "the build of flash-attn needs it") for each in _FOR_FLASH_ATTN]
    return _once(early), _once(last)


_OTHERS = (declared.conda, declared.poetry, declared.pipfile, declared.setup_py, declared.setup_cfg)
# Conda's packages for the build of torch, which boxstrap chooses by the box's driver instead.
_OF_TORCH = re.compile(r"pytorch-(?:cuda|mutex)|cudatoolkit|cudnn|cuda(?:-\w+)*|cpuonly|mkl|blas")
_NAMED = 3
_FOR_FLASH_ATTN = ("setuptools", "wheel", "packaging", "psutil", "ninja")


def _requirement_files(root: Path, said: commands.Said) -> tuple[tuple[str, ...], str]:
    """Return the files to install from, and why: at the root, named by a page, or the likeliest."""
    if (root / "requirements.txt").is_file():
        return ("requirements.txt",), "at the top"
    for install in said.installs:
        there = [each for each in install.requirement_files if (root / each).is_file()]
        if there and all(fits(REPO_PATH, each) for each in there):
            return tuple(there), f"{install.file} says so"
    found = [each for each in declared.requirement_files(root) if fits(REPO_PATH, each)]
    return (
        ((found[0],), "the only one" if len(found) == 1 else "the likeliest") if found else ((), "")
    )


def _of_installs(said: commands.Said, own: str) -> list[Reasoned]:
    """Return what a page says to install, if no file declares it."""
    return [
        Reasoned(each, f"{install.file} installs it")
        for install in said.installs
        for each in install.packages
        if package_name(each) not in (same(own), "pip", "uv", "setuptools", "wheel")
    ]


def _of_imports(
    said: commands.Said, brought: commands.Imported, names: set[str]
) -> Iterator[Reasoned]:
    """Yield what training imports but nothing installs, if its package is known or on a page."""
    named = {package_name(each): each for install in said.installs for each in install.packages}
    for package, where in {**brought.packages, **brought.unknown}.items():
        known = package if is_known(package) else named.get(same(package), "")
        if known and not provides(names, package):
            yield Reasoned(named.get(same(package), known), f"{where} imports it")


def _plain_requirement(text: str) -> str:
    """Drop a marker; put the name of a repository before its address."""
    text = text.partition(";")[0].strip()
    address = re.fullmatch(
        r"git\+https://\S+?/([\w.-]+?)(?:\.git)?(?:@[\w./-]+)?(?:#egg=([\w.-]+))?", text
    )
    return f"{address[2] or address[1]} @ {text}" if address else text


def _once(each: list[Reasoned]) -> tuple[Reasoned, ...]:
    return tuple({package_name(one.value): one for one in reversed(each)}.values())[::-1]


def _extras(
    said: commands.Said, torch: tuple[str, ...], project: declared.Project, *, named: bool
) -> Iterator[Reasoned]:
    """Yield the extra that brings torch; without one, those that a page installs first."""
    if torch:
        gpu = [name for name in torch if re.search(r"gpu|cuda|cu\d", name)]
        others = "" if len(torch) == 1 else f", as in {' and '.join(torch)}"
        yield Reasoned((gpu or [*torch])[0], f"torch is in it{others}")
    elif named:
        for install in [each for each in said.installs if each.own][:1]:
            for name in install.extras:
                if name in project.extras and fits(EXTRA, name):
                    yield Reasoned(name, f"{install.file} installs it")


def _indexes(said: commands.Said) -> Iterator[Reasoned]:
    """Yield further indexes but torch's: which of its builds fits is only known on the box."""
    for install in said.installs:
        for address in install.indexes:
            if "download.pytorch.org" not in address and fits(INDEX_URL, address):
                yield Reasoned(address, f"{install.file} names it")


def _python(root: Path, asked: str, torch: tuple[int, int] | None) -> Reasoned | None:
    """Return the Python to use, if one is named or torch has wheels only for older ones."""
    named = files.text_of_file(root / ".python-version").strip()
    if fits(PYTHON, named):
        return Reasoned(named, "from .python-version")
    exact = re.search(r"(?:^|==)\s*(3\.\d{1,2})(?:\.\*|\.\d+)?$", asked)
    if exact:
        return Reasoned(exact[1], f"asked for: {asked}")
    if torch in _PYTHON_OF_TORCH:
        why = f"torch {torch[0]}.{torch[1]} has wheels for it, and none for the newest"
        return Reasoned(_PYTHON_OF_TORCH[torch], why)
    return None
