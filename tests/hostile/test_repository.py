"""A stranger's repository: nothing that its configuration names runs here."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bootstrap.errors import exit_code
from bootstrap.repo.git import AT_ONCE_S, TIMED_OUT, GitError, git_error
from tests.cli import PROFILE, User, UserRepository
from tests.faults.plugin import Faults
from tests.hostile.inputs import LIBRARIES
from tests.plain_environment import plain_environment
from tests.programs import captured

pytestmark = pytest.mark.sampled(of="module")

# Each key by which git runs a program or finds one. `{trap}` is a program, `{folder}` has one for
# each hook.
PROGRAMS = """
    browser.trap.cmd browser.trap.path core.alternateRefsCommand core.askPass core.editor
    core.fsmonitor core.gitProxy core.pager core.sshCommand diff.external diff.trap.command
    diff.trap.textconv difftool.trap.cmd difftool.trap.path filter.trap.clean
    filter.trap.process filter.trap.smudge gpg.openpgp.program gpg.program
    gpg.ssh.defaultKeyCommand gpg.ssh.program guitool.trap.cmd hook.trap.command
    instaweb.browser interactive.diffFilter man.trap.cmd man.trap.path merge.trap.driver
    mergetool.trap.cmd mergetool.trap.path pager.config pager.rev-list pager.status
    remote.origin.receivepack remote.origin.uploadpack sendemail.ccCmd sendemail.tocmd
    sequence.editor trailer.trap.cmd trailer.trap.command uploadpack.packObjectsHook
"""
BY_A_SHELL = """
    alias.config alias.frobnicate credential.helper credential.https://github.com.helper
    submodule.trap.update
"""
KEYS = {
    **dict.fromkeys(PROGRAMS.split(), "{trap}"),
    **dict.fromkeys(BY_A_SHELL.split(), "!{trap}"),
    **dict.fromkeys(("core.hooksPath", "init.templateDir"), "{folder}"),
    **dict.fromkeys(("diff.tool", "help.browser", "man.viewer"), "trap"),
    **dict.fromkeys(("merge.tool", "web.browser"), "trap"),
    **dict.fromkeys(("filter.trap.required", "log.showSignature"), "true"),
    "hook.trap.event": "post-index-change",
    "protocol.ext.allow": "always",
    **dict.fromkeys(("remote.origin.proxy", "remote.origin.url"), "ext::{trap}"),
    "remote.origin.vcs": "ext",
    "url.ext::{trap}.insteadOf": "https://",
}

# Names in git's own list of keys that sound like a program, and those of them that are none.
SOUNDS_SO = re.compile(
    r"alias\.|cmd$|command$|program|helper|editor|pager|hook(s|spath)?$|textconv$|process$|clean$"
    r"|smudge|\.driver|askpass|gitproxy|\.proxy$|tool$|fsmonitor$|\wpack$|tool>\.path|vcs|external"
    r"|viewer|browser|templatedir|diffFilter|insteadof|submodule\.<name>\.update|remote\.<name>\.url",
    re.IGNORECASE,
)
NO_PROGRAM = {
    "advice.addIgnoredFile", "advice.ignoredHook", "advice.waitingForEditor", "color.pager",
    "column.clean", "credential.useHttpPath", "diff.<driver>.cachetextconv", "diff.guitool",
    "http.proxy", "merge.guitool", "notes.rewrite.<command>", "gitcvs.dbDriver",
    "url.<base>.pushInsteadOf",
}  # fmt: skip

HOOKS = ("post-index-change", "reference-transaction", "pre-auto-gc", "post-checkout", "pre-push",
         "fsmonitor-watchman", "pre-commit", "post-commit", "sendemail-validate")  # fmt: skip

# All tasks that read the current repository. Nothing answers at the address.
NOBODY = "root@127.0.0.1:1"
TASKS = (
    ("status",), ("logs",), ("top",), ("code",), ("setup", "--host", NOBODY),
    ("setup", "--host", NOBODY, "--committed-only"), ("plan", "--host", NOBODY), ("oneliner",),
    ("oneliner", "--committed-only"), ("render", "--for", "runpod", "--committed-only"), ("init",),
)  # fmt: skip

# A git without the two newer protections: older versions silently ignore them.
OLD_GIT = """#!{python}
import os, sys
words = sys.argv[1:]
while "safe.bareRepository=explicit" in words:
    at = words.index("safe.bareRepository=explicit")
    del words[at - 1 : at + 1]
os.environ.pop("GIT_NO_LAZY_FETCH", None)
with open("{log}", "a") as log:
    print(*words, file=log)
os.execv("{git}", ["git", *words])
"""


class Traps:
    """Programs that each leave a mark of their own when they run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sprung_at = root / "sprung"
        self.sprung_at.mkdir(parents=True)
        self._program = root / "program"
        # It fails without an answer, so that git continues to the end.
        self._program.write_text(f'#!/bin/sh\n: >"{self.sprung_at}/${{0##*/}}"\nexit 1\n')
        self._program.chmod(0o755)

    def set(self, name: str) -> Path:
        """Return a program that leaves the mark `name`."""
        trap = self.root / _plain(name)
        if not trap.exists():
            trap.symlink_to(self._program)
        return trap

    def folder(self, name: str) -> Path:
        """Return a folder with such a program for each hook."""
        name = _plain(name)
        made = self.root / f"{name}.d"
        made.mkdir(exist_ok=True)
        for hook in HOOKS:
            (made / hook).write_text(f'#!/bin/sh\n: >"{self.sprung_at}/{name}.{hook}"\n')
            (made / hook).chmod(0o755)
        return made

    def sprung(self) -> list[str]:
        """Return the marks of the programs that ran."""
        return sorted(path.name for path in self.sprung_at.iterdir())


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]", "_", name)


@pytest.fixture
def traps(tmp_path: Path) -> Traps:
    return Traps(tmp_path / "traps")


@pytest.fixture
def calls(user: User, tmp_path: Path) -> Path:
    """Put a git that acts like an old one in PATH; return the log of its calls."""
    folder, log = tmp_path / "bin", tmp_path / "calls"
    folder.mkdir()
    real = shutil.which("git")
    assert real
    old = OLD_GIT.format(python=sys.executable, log=log, git=real)
    (folder / "git").write_text(old)
    (folder / "git").chmod(0o755)
    user.env["PATH"] = f"{folder}:{user.env['PATH']}"
    return log


def config(traps: Traps, way: str) -> str:
    """Return a git configuration with all keys."""
    lines = ["[core]\n\tsshCommand = false\n"]
    for key, value in KEYS.items():
        mark = f"{way}.{key}"
        given = value.format(trap=traps.set(mark), folder=traps.folder(f"{way}.{value}"))
        section, _, rest = key.format(trap=traps.set(mark)).partition(".")
        subsection, _, name = rest.rpartition(".")
        header = f'{section} "{subsection}"' if subsection else section
        lines.append(f'[{header}]\n\t{name} = "{given}"\n')
    return "".join(lines)


def plant(repository: UserRepository, traps: Traps, env: dict[str, str]) -> None:
    """Put every key into the repository's configuration, and into each file it may include."""
    dot_git = repository.root / ".git"
    repository.commit({".gitattributes": "* diff=trap merge=trap filter=trap\n"}, "Attributes")
    for name in ("vendor", "beside"):  # one is a submodule, the other isn't
        inner = UserRepository(repository.root / name, env, {"a.py": "1\n"})
        if name == "vendor":
            repository.git("update-index", "--add", "--cacheinfo", f"160000,{inner.head},{name}")
            repository.git("commit", "-qm", "A submodule")
        with (inner.root / ".git" / "config").open("a") as file:
            file.write(config(traps, name))
        os.utime(inner.root / "a.py", (1, 1))
    for name in ("train.py", "boxstrap.yaml"):
        os.utime(repository.root / name, (1, 1))  # git must read their contents
    (repository.root / "shared.config").write_text(config(traps, "include"))
    (dot_git / "condition").write_text(config(traps, "includeIf"))
    (dot_git / "config.worktree").write_text(config(traps, "worktree"))
    with (dot_git / "config").open("a") as file:
        file.write(config(traps, "config"))
        file.write("[include]\n\tpath = ../shared.config\n")
        file.write('[includeIf "gitdir:**"]\n\tpath = condition\n')
        file.write("[extensions]\n\tworktreeConfig = true\n[core]\n\trepositoryformatversion = 1\n")
    shutil.copytree(traps.folder("hooks"), dot_git / "hooks", dirs_exist_ok=True)


def bare_inside(repository: UserRepository, traps: Traps) -> Path:
    """Make a bare repository in a subfolder, as a commit may have; its objects are elsewhere."""
    inner = repository.root / "data" / "inner"
    for name in ("objects/pack", "refs/heads"):
        (inner / name).mkdir(parents=True)
    (inner / "HEAD").write_text("ref: refs/heads/main\n")
    (inner / "refs/heads/main").write_text("1" * 40 + "\n")
    (inner / "config").write_text(
        f"{config(traps, 'bare')}[core]\n\trepositoryformatversion = 1\n\tbare = true\n"
        f'[extensions]\n\tpartialClone = origin\n[remote "origin"]\n\tpromisor = true\n'
        f'\turl = "ext::{traps.set("bare.lazy")}"\n[protocol "ext"]\n\tallow = always\n'
    )
    return inner


def test_hostile_test_repositories_plant_every_git_config_key_that_runs_a_program() -> None:
    """As listed by this machine's git; a newer one may have more."""
    listed = captured(["git", "help", "--config"]).stdout.split()
    assert len(listed) > 100
    ours = "\n".join(KEYS).lower()
    for key in listed:
        if not SOUNDS_SO.search(key) or key in NO_PROGRAM or key.startswith("advice."):
            continue
        parts = [r"[^\n]+" if part.startswith("<") or part == "*" else re.escape(part.lower())
                 for part in key.split(".")]  # fmt: skip
        assert re.search(rf"^{'[.]'.join(parts)}$", ours, re.MULTILINE), f"{key} is not planted"


def test_plain_git_runs_the_planted_programs_of_hostile_tests(user: User, traps: Traps) -> None:
    """git itself triggers them, so the other tests don't pass by accident."""
    repository = user.repository()
    plant(repository, traps, user.env)
    inner = bare_inside(repository, traps)
    for place, words in (
        (repository.root, ("status",)),
        (repository.root, ("update-ref", "refs/x", "HEAD")),
        (repository.root, ("fetch", "origin")),
        (inner, ("cat-file", "-p", "HEAD")),
    ):
        subprocess.run(["git", *words], cwd=place, env=user.env, capture_output=True, check=False)
    sprung = " ".join(traps.sprung())
    for mark in ("core.fsmonitor", "filter.trap.", "_folder_", "bare.remote.origin"):
        assert mark in sprung, f"{mark} did not spring: {sprung}"


def test_no_command_runs_a_program_that_the_git_configuration_of_a_repository_names(
    user: User, traps: Traps, calls: Path, faults: Faults
) -> None:
    with faults.attempt("configuration of a cloned repository names programs"):
        repository = user.repository(boxstrap__yaml="extends: vast\n" + PROFILE)
        plant(repository, traps, user.env)
        calls.write_text("")
        for task in TASKS:
            done = user.run(*task)
            assert not traps.sprung(), f"{task}: {done.text}"
            assert done.rc != 1, f"{task}: {done.text}"
        _each_call_names_its_repository(calls)


def test_commands_ignore_a_bare_repository_planted_inside_the_users_repository(
    user: User, traps: Traps, calls: Path
) -> None:
    repository = user.repository(boxstrap__yaml="extends: vast\n" + PROFILE)
    inner = bare_inside(repository, traps)
    calls.write_text("")
    for task in TASKS:
        user.place = inner
        done = user.run(*task)
        assert not traps.sprung(), f"{task}: {done.text}"
        assert done.rc != 1, f"{task}: {done.text}"
        user.place = user.home
        done = user.run(*task, "--repo", str(inner)) if task[0] != "top" else done
        assert not traps.sprung(), f"{task} --repo: {done.text}"
        assert done.rc != 1, f"{task} --repo: {done.text}"
    alone = shutil.copytree(inner, user.home / "alone.git")
    for task in (("status",), ("setup", "--host", NOBODY), ("init",)):
        done = user.run(*task, "--repo", str(alone))
        assert not traps.sprung(), f"{task} alone: {done.text}"
        assert "Traceback" not in done.text
    _each_call_names_its_repository(calls)
    script = user.run("render", "--repo", str(inner)).must(0).out
    assert f"REPO_COMMIT='{repository.head}'" in script, "it was not the enclosing one"


def _each_call_names_its_repository(calls: Path) -> None:
    for line in calls.read_text().splitlines():
        assert line == "version" or "--git-dir" in line.split(), line


def test_boxstrap_ignores_git_environment_variables_that_name_another_repository_or_programs(
    user: User, traps: Traps
) -> None:
    other = user.repository("other")
    before = other.git("for-each-ref") + other.git("status", "--porcelain")
    repository = user.repository(boxstrap__yaml="extends: vast\n" + PROFILE)
    programs = ("EXTERNAL_DIFF", "SSH_COMMAND", "SSH", "PROXY_COMMAND", "ASKPASS", "EDITOR",
                "PAGER", "SEQUENCE_EDITOR")  # fmt: skip
    led = {
        **{f"GIT_{name}": str(traps.set(f"env.{name}")) for name in programs},
        "GIT_DIR": str(other.root / ".git"),
        "GIT_WORK_TREE": str(other.root),
        "GIT_COMMON_DIR": str(other.root / ".git"),
        "GIT_INDEX_FILE": str(other.root / ".git/index"),
        "GIT_OBJECT_DIRECTORY": str(other.root / ".git/objects"),
        "GIT_NAMESPACE": "other",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.fsmonitor",
        "GIT_CONFIG_VALUE_0": str(traps.set("env.count")),
        "GIT_CONFIG_PARAMETERS": f"'core.fsmonitor'='{traps.set('env.parameters')}'",
        "GIT_TEMPLATE_DIR": str(traps.folder("env.template")),
    }
    user.env.update(led)
    done = user.run("render").must(0)
    assert f"REPO_COMMIT='{repository.head}'" in done.out
    code = "import sys, pathlib, bootstrap.tasks.setup as d;"
    code += "d._demo_repository(pathlib.Path(sys.argv[1]))"
    demo = user.home / "demo"
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code, str(demo)], env=user.env, check=True)
    listed = captured(
        ["git", "-C", str(demo), "log", "--format=%s"], env=plain_environment(user.home)
    )
    assert listed.stdout == "Fit a straight line\n"
    assert other.git("for-each-ref") + other.git("status", "--porcelain") == before
    assert not traps.sprung()


@pytest.mark.parametrize("task", [("setup", "--host", NOBODY), ("render",), ("status",)])
def test_no_temporary_folder_of_boxstrap_stays_after_a_command(
    user: User, tmp_path: Path, task: tuple[str, ...]
) -> None:
    user.repository(boxstrap__yaml="extends: vast\n" + PROFILE)
    user.run(*task, TMPDIR=str(tmp_path))
    assert not list(tmp_path.glob("boxstrap-*"))


# Files that never end, or lead nowhere: a clone can have links, a tarball anything.

PIPES = (
    "include", "config", "refs/heads/main", "packed-refs", "shallow", "objects/info/alternates",
    "excludes", "../.gitignore", "../.gitattributes",
)  # fmt: skip


def test_plan_names_a_pipe_in_the_git_folder_instead_of_waiting_for_it(user: User) -> None:
    for name in PIPES:
        repository = user.repository(name.replace("/", "-"), boxstrap__yaml=PROFILE)
        file = Path(os.path.normpath(repository.root / ".git" / name))
        file.unlink(missing_ok=True)
        os.mkfifo(file)
        if name == "include":
            repository.git("config", "include.path", str(file))
        if name == "excludes":
            repository.git("config", "core.excludesFile", str(file))
        going = user.begin("plan", "--host", NOBODY)
        done = going.end(AT_ONCE_S / 2)
        refused = name not in ("packed-refs", "shallow", "excludes")  # git isn't shown these
        assert done.rc == (2 if refused else 3), f"{name}: {done.text}"
        assert (f"{file}: " in done.err) is refused, f"{name}: {done.text}"


def test_a_git_read_of_the_repository_that_times_out_exits_with_2(tmp_path: Path) -> None:
    assert exit_code(git_error(tmp_path, GitError(TIMED_OUT, "no answer within 20 s"))) == 2


@pytest.mark.parametrize("name", ["pyproject.toml", ".gitattributes", ".gitignore", "uv.lock"])
@pytest.mark.parametrize("to", ["/dev/zero", "/dev/tty", "itself"])
def test_render_and_init_do_not_read_an_endless_file_that_a_repository_links_to(
    user: User, name: str, to: str
) -> None:
    repository = user.repository(boxstrap__yaml="extends: vast\n" + PROFILE)
    (repository.root / name).symlink_to(name if to == "itself" else to)
    user.run("render", "--committed-only", timeout=120).must(0)
    (repository.root / "boxstrap.yaml").unlink()
    user.run("init", timeout=120).must(0)


_LAUGHS = "\n".join(f"b{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9))
_MERGES = "\n".join(f"b{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 9))
SLOW = {
    "spaces before no comment": ("requirements.txt", " " * 80_000 + "x\n"),
    "aliases of aliases": (
        "environment.yml",
        f"a: &a0 [x]\n{_LAUGHS}\ndependencies: [*a8, {{pip: [*a8]}}]\n",
    ),
    "merges of merges": ("environment.yml", f"a: &a0 {{x: y}}\n{_MERGES}\ndependencies: *a8\n"),
    "empty lines": ("train.py", "\n" * 200_000 + "if __name__ == '__main__':\n    pass\n"),
    "extras without an end": (
        "uv.lock",
        '[[package]]\nname = "a"\nsource = { editable = "." }\n'
        "[package.optional-dependencies]\n" + "x = [\n" * 400_000,
    ),
    "tables in tables": ("pyproject.toml", "git." * 120_000 + "x = 1\n"),
}
"""Files of few bytes that are slow to read, if each place is looked at from each place."""


@pytest.mark.parametrize("slow", SLOW)
def test_render_and_init_finish_within_two_minutes_despite_a_file_that_takes_hours_to_parse(
    user: User, slow: str
) -> None:
    name, text = SLOW[slow]
    repository = user.repository(boxstrap__yaml="extends: vast\n" + PROFILE)
    repository.commit({name: text})
    user.run("render", timeout=120).must(0)
    (repository.root / "boxstrap.yaml").unlink()
    user.run("init", timeout=120).must(0)


@pytest.mark.parametrize("words", ["gitdir: a\0b", "gitdir: x/" + "y" * 4000, "gitdir: .git"])
def test_render_says_no_git_repository_for_a_broken_git_file(user: User, words: str) -> None:
    repository = user.repository()
    shutil.rmtree(repository.root / ".git")
    (repository.root / ".git").write_text(words)
    assert "not a git repository" in user.run("render", "--profile", "vast").must(2).err


@pytest.mark.parametrize("common", ["loop", "a\0b", "y" * 4000])
def test_a_broken_git_commondir_exits_with_2_as_wrong_usage(user: User, common: str) -> None:
    dot_git = user.repository().root / ".git"
    (dot_git / "loop").symlink_to("loop")
    (dot_git / "commondir").write_text(common)
    user.run("render", "--profile", "vast", timeout=120).must(0 if "\0" in common else 2)
    user.run("logs", timeout=120).must(2)


@pytest.mark.parametrize(
    "words",
    [
        ("render", "--repo", "~nobody-here/x"),
        ("render", "--profile", "~nobody-here/x.yaml"),
        ("render", "--profile", "./loop"),
        ("render", "--repo", "loop"),
        ("render",),  # its own profile is such a link
        ("setup", "--host", NOBODY, "--identity", "~nobody-here/x"),
        ("setup", "--host", NOBODY, "--identity", "./loop", "--profile", "vast"),
        ("render", "--profile", "vast", "--output", "~nobody-here/x"),
    ],
    ids=" ".join,
)
def test_a_path_option_that_is_a_symlink_loop_exits_with_2(
    user: User, words: tuple[str, ...]
) -> None:
    repository = user.repository()
    for name in ("loop", "boxstrap.yaml"):
        (repository.root / name).unlink(missing_ok=True)
        (repository.root / name).symlink_to(name)
    user.run(*words, "--committed-only" if words[0] == "render" else "--dry-run").must(2)


@pytest.mark.parametrize("variable", ["PATH", "PYTHONPATH"])
def test_no_program_or_module_of_the_current_folder_runs_when_path_has_an_empty_part(
    user: User, variable: str
) -> None:
    """Where an empty part of a variable means it."""
    repo, ran = user.repository(), user.home / "ran"
    if variable == "PATH":
        repo.write(dict.fromkeys(("git", "ssh", "sh"), f"#!/bin/bash\necho $0 >>{ran}; exit 1\n"))
        for name in ("git", "ssh", "sh"):
            (repo.root / name).chmod(0o755)
    else:
        repo.write(dict.fromkeys(LIBRARIES, f"open({str(ran)!r}, 'a').write(__file__)\n"))
    user.env[variable] = f":.:{user.env.get(variable, '')}"
    done = user.run("plan", "--host", "nowhere.invalid", "--json")
    assert not ran.exists(), ran.read_text()
    done.must(3)
