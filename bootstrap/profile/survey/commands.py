"""Which commands a repository's pages and run scripts show: to install, to run, to train.

A page's section is one unit: what is installed, exported and fetched there belongs to the training
that it runs. All is read as text.
"""

import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from bootstrap.profile.survey import declared, files, scripts

_FENCE = re.compile(r"^\s*(```|~~~)")
_HEADING = re.compile(r"^(#{1,6})\s+(.*)|.*<summary>(.*?)(?:</summary>|$)", re.IGNORECASE)
_CLONE = re.compile(r"git clone [^\n]*")
_CONTINUED = re.compile(r"\\[ \t]*\n(?!\s*(?:```|~~~))|\n(?=--[a-z])")
_CODE = re.compile(r"`([^`\n]{3,500})`")
_PROMPT = re.compile(r"^\s*(?:[$>!%]\s+|!|\d+\.\s+|[-*]\s+)*(?=\S)")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_PYTHON = re.compile(r"(?:\.?[\w./-]*/)?python[0-9.]*")
_FILLED_IN = re.compile(
    r"(?i:path[/_]to|<[^>]*>|(?:^|[\s=/])\.\.\.|\byour)|\{[^}]*\}|[$]|^[A-Z]$|^~|^\[-"
)
_NODES = re.compile(r"--(?:node[-_]rank|master[-_]addr|machine[-_]rank)|--n?nodes[= ](?!1\b)")
_MODULE = ("-m", "--module")
_LAUNCHERS = {"torchrun", "deepspeed"}
_LOGINS = {"wandb": "WANDB_API_KEY", "huggingface-cli": "HF_TOKEN", "hf": "HF_TOKEN"}
# A launcher's options for the number of GPUs: replaced or dropped, since the box's may differ.
_GPUS = re.compile(r"--nproc[-_]per[-_]node(=.*)?")
_COUNTS = re.compile(r"--(?:num_processes|num_gpus|num_machines|master[-_]port)(=.*)?")
_VALUED = {"-i", "--index-url", "--extra-index-url", "-f", "--find-links", "-c", "--constraint"}
_VALUED |= {"--group", "--extra", "-t", "--target", "--python", "-p", "--with"}
_VALUED_OF_CONDA = {"-c", "--channel", "-n", "--name", "-p", "--prefix"}
_PAGES = re.compile(
    r"(?:get(?:ting)?_?started|quick_?start|install(?:ation)?|(?:pre)?train(?:ing)?|fine_?tun(?:e|ing))\.md",
    re.IGNORECASE,
)
_FETCHES = {"wget", "curl", "gdown", "huggingface-cli", "hf", "aria2c"}
_WITH_THEM = {"mkdir", "tar", "unzip", *_FETCHES}
_TRAINS = re.compile(r"(?:.*[-_])?(?:pre)?train(?:ing)?|fine-?tune.*|sft|fit", re.IGNORECASE)
_NO_SECTION = re.compile(r"\beval|\binfer|zero-?shot|\bsampling|\bexport|\bserv", re.IGNORECASE)
_NONE = re.compile(r"(?:^|\s)(?:-h|--help|--eval(?:uate)?|--sample-only|--test(?:-only)?)(?:$|\s)")
_MOST_SHELLS = 40
_TRAINING_SHOWN = 20
"""The least score of a command on a page that no script chosen by its name outdoes."""
# Variables of a machine, of an installer, or that a secret is for.
_NOT_SET = re.compile(r"CUDA_VIS|OMP_|MASTER_|PATH$|UV_|PIP_|LD_|.*(?:KEY|TOKEN)$")
# The title of a section, or of a step, about the data to have.
_DATA = re.compile(
    r"(?:#+ +|\d+[.)] +|\*\*)((?:(?:\w+ )?data(?:sets?)?(?: (?:prepar|set-?up|download)\w*)?"
    r"|(?:prepar|download|get|set)\w* (?:up )?(?:the |your )?(?:\w+ )?data(?:sets?)?))[ :*]*$",
    re.IGNORECASE,
)
_EXAMPLE = re.compile(r"^```py(?:thon)?\n(.*?)^```", re.MULTILINE | re.DOTALL)


class PagePlace(NamedTuple):
    """Where something is said; a run script is one section."""

    file: str
    section: int = 0
    block: int = 0
    headings: str = ""


@dataclass(frozen=True)
class Install:
    place: PagePlace
    packages: tuple[str, ...] = ()
    requirement_files: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()
    folder: str = ""
    """The folder of the repository that is installed; `.` is the repository itself."""
    is_link: bool = False
    is_isolated: bool = True  # whether it is built without what is installed already
    system: tuple[str, ...] = ()  # packages of the system's own package manager
    by_conda: tuple[str, ...] = ()  # requirements that it has conda install

    @property
    def file(self) -> str:
        return self.place.file

    @property
    def own(self) -> bool:
        return self.folder == "."


@dataclass(frozen=True)
class ScriptCommand:
    place: PagePlace
    script: str
    """Its script's path from the repository's root; "" for a program that fetches data."""
    words: tuple[str, ...]
    unfilled: tuple[str, ...] = ()  # placeholders that the reader has to fill in
    folder: str = ""  # the folder that is entered before
    env: tuple[tuple[str, str], ...] = ()  # variables that are set for it

    @property
    def file(self) -> str:
        return self.place.file

    @property
    def text(self) -> str:
        text = " ".join(map(_shown, self.words))
        return f"cd {shlex.quote(self.folder)} && {text}" if self.folder else text


def _shown(word: str) -> str:
    """Quote a word, but leave to a shell what it has to expand."""
    open_ = re.fullmatch(r"~?[\w@%+=:,./{}$-]+", word) and ("$" in word or word.startswith("~"))
    return word if open_ else shlex.quote(word)


@dataclass
class Said:
    """The commands in a repository's files, in their order."""

    root: Path
    installs: list[Install] = field(default_factory=list)
    runs: list[ScriptCommand] = field(default_factory=list)
    project: declared.Project = field(default_factory=declared.Project)
    own: dict[str, str] = field(default_factory=dict)
    """Commands that the repository installs, each with its script."""
    shells: set[str] = field(default_factory=set)  # run scripts that a page runs
    logins: dict[str, str] = field(default_factory=dict)
    """Secrets that a page logs in with, each with the page."""
    not_taken: dict[str, str] = field(default_factory=dict)
    """What a page also does, in words; of each kind one."""
    data: list[str] = field(default_factory=list)  # where pages tell which data to have
    examples: list[str] = field(default_factory=list)
    """What trains on a page without a script of the repository, in words."""
    configurations: list[str] = field(default_factory=list)
    """Those of the repository that pages name."""

    @property
    def called(self) -> dict[str, str]:
        """Scripts that such commands run, each with the command."""
        return {run.script: run.words[0] for run in self.runs if self.is_own(run)}

    def is_own(self, run: ScriptCommand) -> bool:
        """Whether it runs a command that the repository installs, and not a script by that."""
        return self.own.get(run.words[0]) == run.script


def read_commands(root: Path) -> Said:
    """Collect the commands of the README, of pages about training, then those of run scripts."""
    project = declared.own_project(root)
    said = Said(root, project=project, own=_own_commands(root, project))
    top = sorted(files.inside(root), key=lambda path: len(path.name))
    pages = [path for path in top if path.name.lower().startswith("readme")][:1]
    pages += [path for path in top if _PAGES.fullmatch(path.name)][:4]
    for path in pages:
        text = files.text_of_file(path, files.LARGEST_SCRIPT)
        _take_all(said, _lines_of_page(path.name, text, root))
        clones = _clones(text)
        clones.pop(_own_clone(root, [*clones]), None)
        said.not_taken |= {url: f"{path.name} clones {url}" for url in clones.values()}
        said.shells |= {*re.findall(r"(?<![\w./-])([\w./-]{1,200}\.sh)\b", text)}
        said.data += _titles_of_data(path.name, text)
        said.examples += _examples(path.name, text)
        for each in dict.fromkeys(re.findall(r"(?<![\w./-])[\w./-]{1,200}\.ya?ml\b", text)):
            if files.has(root, each) and each not in declared.CONDA_FILES:
                said.configurations.append(each)
    said.data += [
        f"{path.name}/README.md"
        for path in top
        if re.search(r"data", path.name) and (path / "README.md").is_file()
    ]
    for path in [path for path in files.below(root, 2) if path.suffix == ".sh"][:_MOST_SHELLS]:
        place = PagePlace(str(path.relative_to(root)))
        text = _CONTINUED.sub(" ", files.text_of_file(path))
        _take_all(said, ((place, "", line) for line in text.splitlines()))
    return said


def _titles_of_data(file: str, page: str) -> Iterator[str]:
    is_block = False
    for number, line in enumerate(page.splitlines(), 1):
        is_block ^= bool(_FENCE.match(line))
        title = None if is_block else _DATA.match(line)
        if title:
            yield f"{file}:{number} ({title[1]})"


def _examples(file: str, page: str) -> Iterator[str]:
    """Yield, in words, the examples in Python that train, with the paths to fill in."""
    for block in _EXAMPLE.finditer(page):
        if scripts.is_training(block[1]):
            number = page.count("\n", 0, block.start()) + 1
            paths = re.findall(r"['\"]([^'\"\n]*path/to[^'\"\n]*)['\"]", block[1])
            reads = f", with {', '.join(paths)} to fill in" if paths else ""
            yield f"{file}:{number} trains in an example: a script of yours begins there{reads}"


_Line = tuple[PagePlace, str, str]


def _lines_of_page(file: str, page: str, root: Path) -> Iterator[_Line]:
    """Yield (place, folder, line) for code; `cd` in a block sets the folder."""
    is_block, folder, number, section, headings = False, "", 0, 0, dict[int, str]()
    cloned = [*_clones(page)]
    own = _own_clone(root, cloned)
    for line in _CONTINUED.sub(" ", page).splitlines():
        heading = None if is_block else _HEADING.match(line)
        if _FENCE.match(line):
            is_block, folder, number = not is_block, "", number + 1
        elif heading or "</details>" in line:
            level = len(heading[1] or "" if heading else "")  # 0: a fold, whatever is in it
            headings = {
                at: text for at, text in headings.items() if at < level or (level and not at)
            }
            headings |= {level: heading[2] or heading[3] or ""} if heading else {}
            section += 1
        elif is_block or line.startswith(("    ", "\t")):
            words = line.strip().lstrip("$ ").split()
            if words[:1] == ["cd"] and len(words) == 2:
                folder = _entered(root, folder, words[1], own, cloned)
            yield PagePlace(file, section, number, _below_title(headings)), folder, line
        else:
            place = PagePlace(file, section, number, _below_title(headings))
            yield from ((place, "", code) for code in _CODE.findall(line))


def _below_title(headings: dict[int, str]) -> str:
    return " / ".join(text for level, text in headings.items() if level != 1)


def _clones(page: str) -> dict[str, str]:
    """Return the folders of the repositories that a page clones, each with its address."""
    words = [line.split("&&")[0].split() for line in _CLONE.findall(page)]
    addresses = {each[-1]: next((w for w in each if "/" in w), each[-1]) for each in words}
    return {PurePosixPath(last).name.removesuffix(".git"): url for last, url in addresses.items()}


def _own_clone(root: Path, cloned: list[str]) -> str:
    """Return the name of the page's own repository: this folder's, else that of the first clone."""
    return root.resolve().name if root.resolve().name in cloned else "".join(cloned[:1])


def _entered(root: Path, folder: str, word: str, own: str, cloned: list[str]) -> str:
    """Return the folder after a `cd`; that of the repository's own clone is its top."""
    first, _, rest = word.strip("/").partition("/")
    entered = posixpath.normpath(PurePosixPath(folder, (rest if first == own else word) or "."))
    is_other = first in cloned and first != own
    if not is_other and not files.has(root, entered, folder=True):
        return folder
    return "" if entered == "." else entered


def _take_all(said: Said, lines: Iterable[_Line]) -> None:
    root, parts = said.root, list[tuple[PagePlace, str, list[str]]]()
    for place, folder, line in lines:
        text, inside = _PROMPT.sub("", line, count=1).rstrip("\\ "), folder
        for part in re.split(r"\s*(?:&&|;)\s*", text[:4000]):
            try:
                words = shlex.split(part, comments=True)
            except ValueError:
                continue
            entered = posixpath.normpath(posixpath.join(inside, words[-1])) if words else ""
            if len(words) == 2 and words[0] == "cd" and files.has(root, entered, folder=True):
                inside = "" if entered == "." else entered
            parts.append((place, inside, words))
    found = [(at, *pair) for at, (_, _, words) in enumerate(parts) for pair in _assigned(words)]
    exported = dict[tuple[str, int], list[tuple[str, str]]]()
    for at, (place, folder, words) in enumerate(parts):
        if words[:1] == ["export"]:
            exported.setdefault((place.file, place.section), []).extend(_assigned(words))
        before, command = _without_wrapping([*_expanded(words, at, found)])
        if command and files.has(root, folder or ".", folder=True):
            env = (*exported.get((place.file, place.section), ()), *before)
            install = _take(said, place, folder, command, env)
            if install and before and install.packages:
                given = " ".join("=".join(pair) for pair in before)
                packages = " ".join(install.packages)
                said.not_taken[given] = f"{place.file} installs {packages} with {given}"


def _assigned(words: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the variables of a line that does nothing but set them."""
    rest = words[1:] if words[:1] == ["export"] else words
    pairs = [_ASSIGNED.fullmatch(word) for word in rest]
    yield from ((pair[1], pair[2]) for pair in pairs if pair) if all(pairs) else ()


def _expanded(words: list[str], at: int, found: list[tuple[int, str, str]]) -> Iterator[str]:
    """Replace variables by what the file last set them to before line `at`, else first after it."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        known = [(n, text) for n, one, text in found if one == name and "$" not in text]
        before = [text for n, text in known if n < at]
        return (before or [text for _, text in known][:1] or [match[0]])[-1]

    for word in words:
        text = _VARIABLE.sub(value, word)
        yield from text.split() if _VARIABLE.fullmatch(word) and text != word else [text]


def _take(
    said: Said, place: PagePlace, folder: str, words: list[str], env: tuple[tuple[str, str], ...]
) -> Install | None:
    root, install = said.root, _install(said, place, folder, words)
    if install:
        said.installs.append(install)
        return install
    if words[0] in _LOGINS and "login" in words[1:3]:
        said.logins.setdefault(_LOGINS[words[0]], place.file)
        return None
    if words[1:2] == ["setup.py"] and folder:
        said.not_taken[folder] = f"{place.file} builds {folder}: {shlex.join(words)}"
        return None
    run = _run(root, place, folder, words)
    program = words[0].removeprefix("./")
    shell = words[1] if program in ("bash", "sh") and len(words) > 1 else program
    shell = str(PurePosixPath(folder) / shell)
    if words[0] in said.own and not run:
        run = ScriptCommand(place, said.own[words[0]], tuple(words), _unfilled(words))
        if fetches(run) and any(files.has(root, word, folder=True) for word in words[2:]):
            again = f"{place.file} fetches over files of the repository: {run.text}"
            said.not_taken.setdefault(words[2], again)
            return None
    elif shell.endswith(".sh") and files.has(root, shell):
        said.shells.add(shell)
        run = ScriptCommand(place, shell, ("bash", shell, *words[2 if shell != program else 1 :]))
    elif (
        program in _WITH_THEM
        and len(words) > 1
        and (
            program != "curl" or re.search(r" -(?:-output|-remote-name|\w*[oO])\b", " ".join(words))
        )
    ):
        run = ScriptCommand(place, "", tuple(words), _unfilled(words), folder)
    if run:
        known = {name: value for name, value in env if not (_NOT_SET.match(name) or "$" in value)}
        said.runs.append(replace(run, env=tuple(known.items())))
    elif program == "accelerate" and words[1:2] == ["launch"] and not place.file.endswith(".sh"):
        said.examples.append(f"{place.file} runs {shlex.join(words)}, which is not there")
    elif (
        ".py" in (line := shlex.join(words))
        and _NODES.search(line)
        and (not place.file.endswith(".sh"))
    ):
        said.not_taken.setdefault("machines", f"{place.file} runs, for several machines: {line}")
    return None


def run_of_user(said: Said, command: str) -> ScriptCommand | None:
    """Return what a user's command runs in the repository; None if that isn't known."""
    own = Said(said.root, project=said.project, own=said.own)
    _take_all(own, _lines_of_page("", f"```\n{command}\n```", said.root))
    return own.runs[-1] if own.runs else None


def _unfilled(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(word for word in words if _FILLED_IN.search(word))


def fetches(run: ScriptCommand) -> bool:
    """Whether the command loads something from a network, by its program or its name."""
    words = run.words if run.script.endswith(".sh") else run.words[:2]
    return run.words[0] in _FETCHES or bool(
        re.search(r"download|fetch|prepar|get_", " ".join(words))
    )


OTHER_MACHINES = re.compile(r"\b(?:docker|npu|rocm|windows|mac(?:os|s)?)\b", re.IGNORECASE)
"""In the heading of what is for another machine than a rented one."""


def score_run(run: ScriptCommand, said: Said) -> int:
    """Return how likely this command is the training that its page is about."""
    is_own = said.is_own(run)
    trains = is_own and any(map(_TRAINS.fullmatch, run.words[:2]))
    by_name = 50 if trains else scripts.score_of_name(PurePosixPath(run.script).name)
    about = run.place.headings
    beside = _NO_SECTION.search(about) and not re.search("train|tun", about, re.IGNORECASE)
    other = _NONE.search(run.text) or beside or (is_own and not trains)
    if not run.script.endswith((".py", ".ipynb")) or other or by_name < 0:
        return -100
    score = by_name + 25 * scripts.learns(scripts.source_of(said.root / run.script))
    score -= 20 * bool(OTHER_MACHINES.search(about))
    if run.file.endswith(".sh"):
        launched = run.words[0] not in ("python", *said.own)
        return score + 10 * launched + 10 * (run.file in said.shells)
    return score + (40 if score >= _TRAINING_SHOWN else 15)


def _own_commands(root: Path, project: declared.Project) -> dict[str, str]:
    found = dict[str, str]()
    for name, entry in project.scripts.items():
        path = entry.partition(":")[0].strip().replace(".", "/")
        ends = (".py", "/__init__.py", "/__main__.py")
        paths = [f"{home}{path}{end}" for home in ("src/", "") for end in ends]
        if there := [each for each in paths if files.has(root, each)]:
            found[name] = there[0]
    return found


def _without_wrapping(words: list[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Remove variables, `sudo`, `uv run` and the like before a command, and what follows it."""
    env = []
    for at, word in enumerate(words):
        if word in ("|", "&", "||") or re.match(r"\d?>|&>", word):
            words = words[:at]
            break
    while words:
        pair = _ASSIGNED.fullmatch(words[0])
        if pair:
            env.append((pair[1], pair[2]))
        if pair or words[0] in ("sudo", "time", "nohup", "exec", "nice"):
            words = words[1:]
        elif words[:2] in (["uv", "run"], ["poetry", "run"], ["pipenv", "run"]):
            words = words[2:]
            while words and words[0].startswith("-") and words[0] != "-m":
                words = words[2 if words[0] in _VALUED else 1 :]
            if words[:1] == ["-m"] or (words and words[0].endswith(".py")):
                words = ["python", *words]
        else:
            break
    return env, words


def _install(said: Said, place: PagePlace, folder: str, words: list[str]) -> Install | None:
    program = words[0]
    if program in ("apt", "apt-get") and "install" in words:
        named = [word for word in words[words.index("install") + 1 :] if not word.startswith("-")]
        return Install(place, system=tuple(named))
    if program in ("conda", "mamba") and words[1:2] == ["install"]:
        named = [
            word
            for before, word in pairwise(words[1:])
            if not word.startswith("-") and before not in _VALUED_OF_CONDA
        ]
        return Install(place, by_conda=declared.of_conda(place.file, named).requirements)
    if _PYTHON.fullmatch(program) and words[1:3] == ["-m", "pip"]:
        words = words[2:]
    elif words[:2] == ["uv", "pip"]:
        words = words[1:]
    elif words[:2] in (["uv", "add"], ["uv", "sync"]):
        words = ["pip", "install", *words[2:]]
    elif not folder and words[1:] in (["setup.py", "install"], ["setup.py", "develop"]):
        words = ["pip", "install", "."]
    if not re.fullmatch(r"pip[0-9.]*", words[0]) or words[1:2] != ["install"]:
        return None
    own = "." if program == "uv" and words[:2] == ["pip", "install"] else ""
    return _arguments(said, place, folder, words[2:], own)


def _arguments(said: Said, place: PagePlace, folder: str, words: list[str], own: str) -> Install:
    name, found = said.project.name, dict[str, list[str]]()
    waiting = ""
    kinds = {"-r": "requirement_files", "--requirement": "requirement_files", "-e": "link"}
    kinds |= {"--editable": "link", "--extra": "extras", "--group": "groups"}
    kinds |= {"-i": "indexes", "--index-url": "indexes", "--extra-index-url": "indexes"}
    for word in words:
        option, equals, value = word.partition("=")
        if waiting:
            found.setdefault(waiting, []).append(word)
            waiting = ""
        elif word.startswith("-"):
            kind = kinds.get(option, "ignored")
            if equals and option.startswith("--"):
                found.setdefault(kind, []).append(value)
            elif option in kinds or option in _VALUED:
                waiting = kind
        elif word.startswith(".") or files.same(word.partition("[")[0]) == files.same(name):
            found.setdefault("copy", []).append(word)
        else:
            found.setdefault("packages", []).append(word)
    links, copies = found.pop("link", []), found.pop("copy", [])
    extras = [each for one in (*links, *copies) for each in re.findall(r"\[(.*)\]", one)]
    listed = [one.strip() for each in extras for one in each.split(",")]
    here = next((re.sub(r"\[.*", "", each) for each in (*links, *copies)), own)
    if here and not here.startswith("."):
        is_folder = files.has(said.root, posixpath.join(folder, here), folder=True)
        here = here if is_folder and files.same(here) != files.same(name) else "."
    at = posixpath.normpath(PurePosixPath(folder) / here) if here else ""
    lists = {key: tuple(found.get(key, ())) for key in ("packages", "requirement_files", "groups")}
    return Install(
        place,
        **lists,
        indexes=tuple(found.get("indexes", ())),
        extras=(*found.get("extras", ()), *listed),
        folder="" if at.startswith("..") else at,
        is_link=bool(links),
        is_isolated="--no-build-isolation" not in words,
    )


def _run(root: Path, place: PagePlace, folder: str, words: list[str]) -> ScriptCommand | None:
    """Return the command if it runs an existing script on one node, else None."""
    if words[:2] == ["jupyter", "nbconvert"] and "--execute" in words:
        book = next((word for word in words if word.endswith(".ipynb")), "")
        path = posixpath.normpath(PurePosixPath(folder, book))
        found = ScriptCommand(place, path, tuple(words), _unfilled(words), folder)
        return found if files.has(root, path) else None
    begins = next((n for n, word in enumerate(words) if _PYTHON.fullmatch(word)), 0)
    by_mpi = words[:begins] if words[0] in ("mpiexec", "mpirun") else []
    words = words[len(by_mpi) :]
    launched = words[0] in _LAUNCHERS or words[:2] == ["accelerate", "launch"]
    if words[0].startswith("./") and words[0].endswith(".py"):
        words = ["python", *words]
    if not launched and not _PYTHON.fullmatch(words[0]):
        return None
    if not launched:
        words = ["python", *words[1:]]
    if words[1:3] in (["-m", "torch.distributed.launch"], ["-m", "torch.distributed.run"]):
        words = ["torchrun", *(word for word in words[3:] if word != "--use_env")]
    named = (word.endswith(".py") or words[n - 1] in _MODULE for n, word in enumerate(words) if n)
    at = next((n for n, is_script in enumerate(named, 1) if is_script), 0)
    # A run script may be meant to be started in its own folder.
    beside = [str(PurePosixPath(place.file).parent)] if place.file.endswith(".sh") else []
    for home in dict.fromkeys((folder, "", *beside)):
        path = next(iter(_path_of(root, home, words, at)), "") if at else ""
        if path:
            # A script of the repository may launch another one.
            inner = [*_path_of(root, home, words, at + 1)] if words[at + 1 :] else []
            words = [*by_mpi, *_for_any_box(words[:at]), *words[at:]]
            if _NODES.search(shlex.join(words)):
                return None  # for several boxes
            script = inner[0] if inner and scripts.is_program(root / inner[0]) else path
            return ScriptCommand(place, script, tuple(words), _unfilled(words), home)
    return None


def _path_of(root: Path, home: str, words: list[str], at: int) -> Iterator[str]:
    """Yield the file of the repository that a word runs."""
    word = words[at]
    if word.endswith(".py"):
        names = [word]
    elif words[at - 1] in _MODULE:
        path = word.replace(".", "/")
        names = [f"{src}{path}{end}" for src in ("", "src/") for end in (".py", "/__main__.py")]
    else:
        names = []
    for name in names:
        path = posixpath.normpath(PurePosixPath(home) / name)
        if files.has(root, path):
            yield path


def _for_any_box(words: list[str]) -> list[str]:
    """Return a launcher's words, changed to use as many GPUs as the box has."""
    found, skipped = list[str](), False
    for word in words:
        if skipped:
            skipped = False
        elif _GPUS.fullmatch(word):
            found.append("--nproc_per_node=gpu")
            skipped = "=" not in word
        elif _COUNTS.fullmatch(word):
            skipped = "=" not in word
        elif word != "--multi_gpu":
            found.append(word)
    return found
