"""Work out an environment from the files of a repository, each part with its reason."""

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bootstrap.profile.survey import declared, files
from bootstrap.profile.survey.commands import Install, Said, ScriptCommand
from bootstrap.profile.survey.files import is_known, package_name, provides, same
from bootstrap.profile.survey.scripts import Imported
from bootstrap.profile.values import EXTRA, INDEX_URL, PYTHON, REPO_PATH, REQUIREMENT, fits

# Up to which release a package has wheels for no newer Python than this one.
_LAST_FOR = {
    "torch": (((1, 3), "3.7"), ((1, 10), "3.8"), ((2, 1), "3.10"), ((2, 4), "3.11")),
    "numpy": (((1, 20), "3.8"), ((1, 22), "3.10"), ((1, 25), "3.11")),
    "tensorflow": (((2, 1), "3.7"), ((2, 4), "3.8"), ((2, 7), "3.9"), ((2, 11), "3.10")),
}
_OLD_TIMM = (0, 3)  # the last release of timm that imports what torch has no more from 1.8.1 on
_HAS_TORCHRUN = (1, 10)  # the first release of torch with `torchrun`
_NEWER = (9, 0)  # stands for a release that nothing bounds
_ANY = 99
_NUMPY_1 = (2, 2)
"""The last release of torch that is built for numpy 1; older Pythons have no newer one anyway."""
_OLD_OPTIONS = {"--evaluation_strategy": "transformers<4.51"}
"""Options of a training that a newer release of its library has no more."""


@dataclass(frozen=True)
class Reasoned:
    """A value, and why it is taken."""

    value: str
    why: str


class _TrainingPage(NamedTuple):
    """What pages say, and where the training is among it."""

    said: Said
    own: Install | None  # how the repository itself is installed
    run: ScriptCommand | None

    def trains(self, each: Install) -> bool:
        """Whether it is in the training's block or section; what has no heading is none."""
        run = self.run
        return run is not None and (
            each.place == run.place or (each.place[:2] == run.place[:2] and run.place.section > 1)
        )

    def is_near(self, each: Install) -> bool:
        """Whether it belongs to the training, or to the install of the repository."""
        return self.trains(each) or (self.own is not None and each.place == self.own.place)


@dataclass(frozen=True)
class Environment:
    """Where packages come from, and which ones are known to be among them (`names`)."""

    names: frozenset[str] = frozenset()
    lock: str | None = None
    requirements: tuple[str, ...] = ()
    why: str = ""
    has_own: bool = False  # whether the repository itself is installed
    project: bool = False  # whether the dependencies in pyproject.toml are installed
    python: Reasoned | None = None
    requires_python: str | None = None
    extras: tuple[Reasoned, ...] = ()
    groups: tuple[Reasoned, ...] = ()
    packages: tuple[Reasoned, ...] = ()
    index: tuple[Reasoned, ...] = ()
    last: tuple[Reasoned, ...] = ()
    conda: Reasoned | None = None
    """The file to build from conda's packages, if a Python package index does not have them all."""
    remarks: tuple[str, ...] = ()
    unbounded: tuple[str, ...] = ()  # what is asked for in whichever newer release there is
    lacks_torchrun: bool = False  # whether torch is older than its program `torchrun`

    @property
    def has_files(self) -> bool:
        return bool(self.lock or self.requirements or self.project or self.conda or self.groups)


def find_environment(
    said: Said, brought: Imported, run: ScriptCommand | None = None, script: str = ""
) -> Environment:
    """Return the environment of the repository; `brought`: what its training imports. `run` is the
    page's line for the training `script`: what is installed nearest to it counts."""
    root, project, lock_file = said.root, said.project, said.root / "uv.lock"
    lock, has_lock = files.text_of_file(lock_file, files.LARGEST), lock_file.is_file()
    page = _TrainingPage(said, _own_install(said, run), run)
    own, own_name = page.own, {same(project.name)}
    listed, why = ((), "") if has_lock else _requirement_files(page, script)
    takes_project = project.has_dependencies and not has_lock and not listed
    at_top = (root / "requirements.txt").is_file()  # a box takes it before the project
    takes_project = takes_project and not (own and (project.needs_torch or at_top))
    chosen = tuple(_extras(project, page, brought, is_locked=has_lock))
    asked = [each for file in listed for each in declared.with_includes(root, file).requirements]
    by_address = [each for each in asked if "://" in each and package_name(each) in own_name]
    link = own and project.is_built and not (has_lock or takes_project or by_address)
    groups = _groups(project) if not listed else ()
    other = None
    if not (has_lock or listed or takes_project or groups):
        kinds = _OTHERS[:3] if link else _OTHERS
        other = next(filter(None, (kind(root) for kind in kinds)), declared.Declared(""))
    by_conda = _by_conda(other) if other else None
    required = [*asked]
    if takes_project or link or by_address:
        required += _with_extras(project, [each.value for each in chosen])
    required += [each for group in groups for each in project.groups[group.value]]
    packages = [] if not other or other.file else _of_installs(page, project.name)
    if other and not by_conda:  # of a file that uv and pip can't read
        packages += [Reasoned(each, f"{other.file} asks for it") for each in other.requirements]
    if link and own and not any(each.value.startswith("-e .") for each in packages):
        names_of = f"[{','.join(each.value for each in chosen)}]" if chosen else ""
        packages.append(Reasoned(f"-e .{names_of}", f"{own.file} installs it"))
    packages += _beside(page, other is not None and not other.file)
    required += [*other.requirements, *other.left_out] if other and by_conda else []
    names = declared.locked(lock) | _names([*required, *(each.value for each in packages)])
    if takes_project or link or by_address:  # what well-known packages among these require
        names |= {each for name in names for each in _BRINGS.get(name, "").split()}
    imports = list(_of_imports(said, brought, names | (own_name if takes_project else set())))
    unnamed = next((each for each in required if _may_bring(each)), "")
    packages += imports if not unnamed else []
    packages[:0] = [
        Reasoned(f"{name}=={version}", "the training insists on it")
        for name, version in brought.asserted.items()
        if is_known(name)
    ]
    wanted = [*required, *(each.value for each in packages)]
    releases = _releases(wanted)
    bounds = [*_bounds(releases, _names(wanted), run)]
    bounded = _releases(each.value for each in bounds)
    packages = [*bounds, *(each for each in packages if package_name(each.value) not in bounded)]
    releases |= bounded
    python_of_pins = _python_of(releases)
    packages += _of_launcher(run, names | own_name | _names(each.value for each in packages))
    wheels = {package_name(each.value) for each in packages if _is_wheel(each.value)}
    built = [] if has_lock else sorted((_BUILT_LAST & names) - wheels)
    packages += [Reasoned(each, "its build needs torch") for each in built]
    early, last = _in_order(said, packages)
    return Environment(
        names=frozenset(
            names | declared.names(project.dependencies) | _names(each.value for each in imports)
        ),
        has_own=bool(takes_project or link or (has_lock and project.is_built)),
        lock="uv.lock" if has_lock else None,
        requirements=listed,
        why=why,
        project=takes_project,
        python=None
        if by_conda
        else _python(root, other.python if other else project.python, python_of_pins),
        requires_python=project.python or None,
        groups=groups,
        extras=chosen if has_lock or takes_project else (),
        packages=early,
        index=tuple(_indexes(page, listed, is_all=other is not None)),
        last=last,
        conda=by_conda,
        unbounded=tuple(
            dict.fromkeys(package_name(each) for each in wanted if not _is_bounded(each))
        ),
        lacks_torchrun=releases.get("torch", _NEWER) < _HAS_TORCHRUN,
        remarks=(
            *(_left_out(other) if other and not by_conda else ()),
            *(f"{each} brings the project, and not the files here" for each in by_address),
            *(_undecided(imports, unnamed) if unnamed else ()),
            *_not_taken(page, listed, names, {each.value for each in chosen}),
        ),
    )


def _bounds(
    releases: dict[str, tuple[int, int]], names: set[str], run: ScriptCommand | None
) -> Iterator[Reasoned]:
    """Yield bounds of what has none, where newer releases lack what the training uses."""
    if "torch" not in releases and releases.get("timm", _NEWER) <= _OLD_TIMM:
        for each in ("torch<1.8.1", "torchvision<0.9.1"):
            yield Reasoned(each, "timm 0.3 needs it")
    if "numpy" in names - {*releases} and _HAS_TORCHRUN < releases.get("torch", _NEWER) <= _NUMPY_1:
        yield Reasoned("numpy<2", "this torch knows no newer one")
    for option, bound in _OLD_OPTIONS.items():
        if run and option in run.words and package_name(bound) in names - {*releases}:
            yield Reasoned(bound, f"newer ones have no {option}")


def _is_bounded(requirement: str) -> bool:
    return bool(re.search(r"==|<|~=|://|^-e|^\./", requirement.partition(";")[0]))


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
    why = "pyproject.toml has the dependencies in this group"
    return () if project.dependencies else tuple(Reasoned(name, why) for name in project.groups)


def _by_conda(other: declared.Declared) -> Reasoned | None:
    """Return an environment.yml that asks for more than a Python package index has."""
    beyond = [each for each in other.left_out if not _OF_TORCH.fullmatch(each)]
    if not beyond or other.file not in declared.CONDA_FILES:
        return None
    more = ", …" if len(beyond) > _NAMED else ""
    return Reasoned(other.file, f"for {', '.join(beyond[:_NAMED])}{more}")


def _left_out(other: declared.Declared) -> Iterator[str]:
    links = [package_name(each) for each in other.requirements if re.match(r"-e\s+git\+", each)]
    if links:
        yield (
            f"{other.file} links {', '.join(links)} (-e git+…): here they are copied, without the "
            "folders that their packages leave out; if an import of one fails, clone it beside the "
            "training, and name its folder in env: {PYTHONPATH: …}"
        )
    if other.left_out:
        named = ", ".join(other.left_out[:10])
        yield f"{other.file} also asks for {named}, which no index of Python packages may have" + (
            f" (python.conda: {other.file} takes all of it from conda's channels)"
            if other.file in declared.CONDA_FILES
            else ""
        )


def _names(requirements: Iterable[str]) -> set[str]:
    return declared.names(map(_plain_requirement, requirements))


def _in_order(
    said: Said, packages: list[Reasoned]
) -> tuple[tuple[Reasoned, ...], tuple[Reasoned, ...]]:
    """Split into packages installed together, and those built last with the others present."""
    late = {package for each in said.installs if not each.is_isolated for package in each.packages}
    late |= {f"./{each.folder}" for each in said.installs if not each.is_isolated and each.folder}
    late |= {"-e ."} if said.project.needs_torch else set()
    plain = [Reasoned(_plain_requirement(each.value), each.why) for each in packages]
    fitting = [each for each in plain if fits(REQUIREMENT, each.value)]
    last = [
        each
        for each in fitting
        if (package_name(each.value) in _BUILT_LAST and not _is_wheel(each.value))
        or re.sub(r"\[.*", "", each.value) in late
        or (
            each.value.startswith("./") and declared.own_project(said.root / each.value).needs_torch
        )
    ]
    early = [each for each in fitting if each not in last]
    if last:
        what = package_name(last[0].value) or last[0].value
        tools = _FOR_FLASH_ATTN if what == "flash-attn" else ("torch", *_FOR_FLASH_ATTN[:2])
        early += [Reasoned(each, f"the build of {what} needs it") for each in tools]
    return _once(early), _once(last)


def _is_wheel(requirement: str) -> bool:
    return requirement.partition("#")[0].endswith(".whl")


def _own_install(said: Said, run: ScriptCommand | None) -> Install | None:
    """Return how a page installs the repository: in the training's section, else for training."""

    def score(each: Install) -> int:
        here = _TrainingPage(said, None, run).trains(each)
        fit = any(_FOR_TRAINING.fullmatch(name) for name in each.extras)
        other = each.extras and all(map(declared.is_for_others, each.extras))
        return 4 * here + 2 * fit - 3 * bool(other)

    found = [each for each in said.installs if each.own and not each.file.endswith(".sh")]
    return max(found, key=score, default=None)


def _of_launcher(run: ScriptCommand | None, names: set[str]) -> Iterator[Reasoned]:
    for each in _LAUNCHES.get(run.words[0], ()) if run else ():
        if run and each not in names:
            yield Reasoned(each, f"{run.file or 'the command'} launches the training by it")


def _with_extras(project: declared.Project, chosen: list[str]) -> Iterator[str]:
    """Yield what the project requires with these extras; one may name others of its own."""
    yield from project.dependencies
    seen = set[str]()
    while chosen:
        name = chosen.pop()
        seen.add(name)
        for each in project.extras.get(name, ()):
            inner = re.fullmatch(r"[\w.-]+\[(.*)\]", each)
            if inner and package_name(each) == same(project.name):
                chosen += {one.strip() for one in inner[1].split(",")} - seen
            else:
                yield each


def _beside(page: _TrainingPage, is_all: bool) -> Iterator[Reasoned]:
    """Yield what the page installs in the block of that, or where it trains."""
    for each in page.said.installs:
        near = page.is_near(each)
        if near and not is_all:
            yield from (Reasoned(one, f"{each.file} installs it") for one in each.packages)
        if each.folder not in ("", ".") and (near or not each.file.endswith(".sh")):
            path = f"{'-e ' if each.is_link else ''}./{each.folder}"
            yield Reasoned(path, f"{each.file} installs it")


def _not_taken(
    page: _TrainingPage, listed: tuple[str, ...], names: Iterable[str], taken: set[str]
) -> Iterator[str]:
    others, known = dict[str, None](), set(names)
    for each in page.said.installs:
        if each.file.endswith(".sh"):
            continue
        if more := [one for one in each.extras if each.own and one not in taken]:
            others |= {f".[{','.join(more)}]": None}
        others |= dict.fromkeys(
            f"-r {file}" for file in each.requirement_files if file not in listed
        )
        if page.is_near(each):
            continue
        others |= dict.fromkeys(
            one
            for one in each.packages
            if package_name(one) and not provides(known, package_name(one))
        )
    own_names = {"pip", "uv", "setuptools", "wheel", same(page.said.project.name)} - {""}
    if named := [each for each in others if package_name(each) not in own_names]:
        yet = ", …" if len(named) > _MOST_NAMED else ""
        yield f"a page also installs, in other sections: {', '.join(named[:_MOST_NAMED])}{yet}"


_OTHERS = (declared.conda, declared.poetry, declared.pipfile, declared.setup_py, declared.setup_cfg)
# Conda's packages for the build of torch, which boxstrap chooses by the box's driver instead.
_OF_TORCH = re.compile(r"pytorch-(?:cuda|mutex)|cudatoolkit|cudnn|cuda(?:-\w+)*|cpuonly|mkl|blas")
_LAUNCHES = {"accelerate": ["accelerate"], "deepspeed": ["deepspeed"]}
_LAUNCHES |= {"jupyter": ["nbconvert", "ipykernel"]}
_NAMED = 3
_MOST_NAMED = 8
_BUILT_LAST = {"flash-attn", "causal-conv1d", "mamba-ssm", "apex"}
_OF_HUB = "huggingface-hub requests tqdm pyyaml packaging filelock typing-extensions"
_BRINGS = {
    "torch": "typing-extensions filelock",
    "torchvision": "numpy pillow torch",
    "transformers": f"{_OF_HUB} numpy tokenizers safetensors regex",
    "datasets": f"{_OF_HUB} numpy pandas pyarrow",
    "accelerate": f"{_OF_HUB} numpy psutil safetensors torch",
    "diffusers": f"{_OF_HUB} numpy pillow safetensors",
    "timm": f"{_OF_HUB} torch torchvision safetensors numpy pillow",
    "lightning": "torch pyyaml packaging tqdm lightning-utilities numpy",
    "pydantic": "pydantic-core annotated-types typing-extensions",
    "wandb": "click requests protobuf pyyaml psutil",
    "peft": "transformers accelerate torch numpy",
    "trl": "transformers accelerate datasets torch numpy",
    "fastapi": "pydantic pydantic-core annotated-types",
    "boto3": "botocore",
}
_FOR_TRAINING = re.compile(r"(?:pre)?train(?:ing)?|fine-?tune|gpu|all|full|extra", re.IGNORECASE)
_FOR_FLASH_ATTN = ("setuptools", "wheel", "packaging", "psutil", "ninja")


def _requirement_files(page: _TrainingPage, script: str) -> tuple[tuple[str, ...], str]:
    """Return the files to install from, and why: named by a page, at the root, or the likeliest."""
    said, own, root = page.said, page.own, page.said.root
    named = [each for each in said.installs if each.requirement_files]
    near = [each for each in named if page.is_near(each)]
    top = (root / "requirements.txt").is_file()
    for install in near or ([] if own or top else named):
        there = [each for each in install.requirement_files if files.has(root, each)]
        if there and all(fits(REPO_PATH, each) for each in there):
            return tuple(there), f"{install.file} says so"
    is_named = any("requirements.txt" in each.requirement_files for each in named)
    asks = said.project.is_built and (said.project.dependencies or (own and own.extras))
    usual = top and (is_named or not own or not asks)
    folder = posixpath.dirname(script)
    beside = f"{folder}/requirements.txt"
    if folder and files.has(root, beside) and fits(REPO_PATH, beside):
        return (*(["requirements.txt"] if usual else []), beside), "beside the training"
    if usual:
        return ("requirements.txt",), "at the top"
    if said.project.is_built and (own or said.project.dependencies):
        return (), ""
    found = [each for each in declared.requirement_files(root) if fits(REPO_PATH, each)]
    return (
        ((found[0],), "the only one" if len(found) == 1 else "the likeliest") if found else ((), "")
    )


def _of_installs(page: _TrainingPage, own: str) -> list[Reasoned]:
    """Return what a page says to install first, and for the training, if no file declares it."""
    found = [each for each in page.said.installs if each.packages or each.by_conda]
    return [
        Reasoned(each, f"{install.file} installs it")
        for install in found
        if install.place[:2] == found[0].place[:2] or page.is_near(install)
        for each in (*install.by_conda, *install.packages)
        if package_name(each) not in (same(own), "pip", "uv", "setuptools", "wheel")
    ]


def _of_imports(said: Said, brought: Imported, names: set[str]) -> Iterator[Reasoned]:
    """Yield what training imports but nothing installs, if its package is known or on a page."""
    named = {
        package_name(each): each
        for install in said.installs
        for each in (*install.by_conda, *install.packages)
    }
    for package, where in {**brought.packages, **brought.unknown}.items():
        known = package if is_known(package) else named.get(same(package), "")
        if known and not provides(names, package):
            yield Reasoned(named.get(same(package), known), f"{where} imports it")


def _plain_requirement(text: str) -> str:
    """Put the name of a repository or a wheel before its address."""
    text = re.sub(r"^-e\s+(?=git\+)", "", text.strip())
    if _is_wheel(text) and text.startswith("https://"):
        return f"{package_name(text)} @ {text}"
    address = re.fullmatch(
        r"git\+https://\S+?/([\w.-]+?)(?:\.git)?(?:@[\w./-]+)?(?:#egg=([\w.-]+))?", text
    )
    return f"{address[2] or address[1]} @ {text}" if address else text


def _once(each: list[Reasoned]) -> tuple[Reasoned, ...]:
    return tuple({package_name(one.value): one for one in reversed(each)}.values())[::-1]


def _extras(
    project: declared.Project, page: _TrainingPage, brought: Imported, *, is_locked: bool
) -> Iterator[Reasoned]:
    """Yield the extras that the page installs for training, and those that bring what the training
    imports and nothing else does: those of other sections, and any that brings torch."""
    named = list(page.own.extras) if page.own else []
    others = [name for each in page.said.installs if each.own for name in each.extras]
    likely = sorted(project.extras, key=declared.is_for_others)
    covered, taken = declared.names(project.dependencies), set[str]()
    for name in (*named, *others, *likely):
        own = declared.names(_with_extras(project, [name])) - covered
        brings = {same(each) for each in brought.packages if same(each) in own}
        usable = name in project.extras or (name in named and not project.extras)
        usable = usable and (not declared.is_for_others(name) or (is_locked and "torch" in brings))
        if name in taken or not usable or not fits(EXTRA, name):
            continue
        if name in named or "torch" in brings or (brings and name in others):
            why = f"it brings {', '.join(sorted(brings))}"
            yield Reasoned(
                name, f"{page.own.file} installs it" if page.own and name in named else why
            )
            taken.add(name)
            covered |= own


def _indexes(page: _TrainingPage, listed: tuple[str, ...], *, is_all: bool) -> Iterator[Reasoned]:
    """Yield further indexes but torch's: which of its builds fits is only known on the box."""
    for install in page.said.installs:
        is_taken = is_all or page.is_near(install) or {*install.requirement_files} & {*listed}
        for address in install.indexes if is_taken else ():
            if "download.pytorch.org" not in address and fits(INDEX_URL, address):
                yield Reasoned(address, f"{install.file} names it")


_UPPER = re.compile(r"(==|<=|<|~=)\s*(\d+)(?:\.(\d+|\*))?((?:\.\d+)*)")


def _releases(requirements: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return the newest release of each package that requirements allow, where they bound it."""
    found = dict[str, tuple[int, int]]()
    for each in requirements:
        for bound, major, minor, rest in _UPPER.findall(each.partition(";")[0]):
            newest = int(major), _ANY if minor == "*" else int(minor or 0)
            if bound == "~=" and not rest:
                newest = newest[0], _ANY
            if bound == "<" and not rest.strip(".0"):
                newest = (newest[0], newest[1] - 1) if newest[1] else (newest[0] - 1, _ANY)
            name = package_name(each)
            found[name] = min(found.get(name, newest), newest)
    return found


def _python_of(releases: dict[str, tuple[int, int]]) -> Reasoned | None:
    """Return the newest Python that all pinned packages have wheels for, if they are old."""
    found = list[Reasoned]()
    for name, release in releases.items():
        fitting = [python for last, python in _LAST_FOR.get(name, ()) if release <= last]
        why = f"of the time of {name} {release[0]}.{release[1]}: later ones lack wheels of then"
        found += [Reasoned(python, why) for python in fitting[:1]]
    return min(found, default=None, key=lambda each: int(each.value[2:]))


_OF_PAGE = re.compile(
    r"(?i)\bpython[ *_`=]{1,5}(3\.\d{1,2})(?!\.?\d|\s*(?:[+/\u2013-]|(?:or|and|to)\b))"
)


def _python(root: Path, asked: str, of_pins: Reasoned | None) -> Reasoned | None:
    """Return the Python to use, if one is named or what is pinned has wheels for older ones."""
    named = files.text_of_file(root / ".python-version").strip()
    if fits(PYTHON, named):
        return Reasoned(named, "from .python-version")
    if exact := re.search(r"(?:^|==)\s*(3\.\d{1,2})(?:\.\d+)?(?:\.\*)?$", asked):
        return Reasoned(exact[1], f"asked for: {asked}")
    by_page = {*_OF_PAGE.findall(files.text_of_file(root / "README.md"))} if not asked else set()
    by_readme = Reasoned(by_page.pop(), "README.md names it") if len(by_page) == 1 else None
    return of_pins or by_readme
