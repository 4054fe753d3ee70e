"""Repositories in the states that users leave them in, by a seed, for tests of snapshots."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.unit.repo.repositories import SampleRepository

FILES = {
    ".gitignore": "*.pt\n/runs/\n!keep.pt\nlogs/\n",
    "train.py": "print(1)\n",
    "README": "read me\n",
    "run.sh": "#!/bin/sh\n",
    "src/model.py": "layers = 3\n",
    "src/deep/er/data.csv": "a,b\n1,2\n",
    "src/.gitignore": "*.tmp\n!important.tmp\n",
    "docs/guide.md": "guide\n",
    "docs/old.md": "old\n",
    "empty": "",
    "weights.bin": bytes(range(256)) * 8,
    "tracked.pt": "tracked though it is ignored\n",
    "big.txt": "line\n" * 2000,
}

State = Callable[[SampleRepository, random.Random], None]


def _some(rng: random.Random) -> str:
    return f"{rng.random()}\n"


def _link(repo: SampleRepository, name: str, to: str) -> None:
    place = repo.root / name
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.symlink_to(to)


def unpushed(repo: SampleRepository, rng: random.Random) -> None:
    repo.commit("Not pushed", **{"src/model.py": _some(rng)})


def staged(repo: SampleRepository, rng: random.Random) -> None:
    repo.write("train.py", _some(rng))
    repo.write("staged/new.py", _some(rng))
    repo.git("add", "train.py", "staged")


def unstaged(repo: SampleRepository, rng: random.Random) -> None:
    repo.write("src/model.py", _some(rng))


def staged_and_changed_again(repo: SampleRepository, rng: random.Random) -> None:
    repo.write("README", _some(rng))
    repo.git("add", "README")
    repo.write("README", _some(rng))


def untracked(repo: SampleRepository, rng: random.Random) -> None:
    for name in ("notes.txt", "new/a", "new/deep/b", "src/extra.py", "src/important.tmp"):
        repo.write(name, _some(rng))


def ignored(repo: SampleRepository, rng: random.Random) -> None:
    for name in ("model.pt", "keep.pt", "runs/1/out", "src/x.tmp", "deep/logs/a", "logs/b"):
        repo.write(name, _some(rng))
    repo.write("new/.gitignore", "*\n!.gitignore\n!kept\n")
    repo.write("new/kept", _some(rng))
    repo.write("new/left", _some(rng))


def ignored_by_this_clone(repo: SampleRepository, rng: random.Random) -> None:
    exclude = repo.git("rev-parse", "--git-path", "info/exclude")
    place = repo.root / exclude
    place.parent.mkdir(exist_ok=True)
    place.write_text("mine.*\n")
    repo.write("mine.txt", _some(rng))
    repo.write("own.orig", _some(rng))  # by the user's own excludes


def ignored_after_it_travelled(repo: SampleRepository, rng: random.Random) -> None:
    repo.write(".gitignore", FILES[".gitignore"] + "docs/\nnotes.txt\n")  # type: ignore[operator]
    repo.write("notes.txt", _some(rng))
    repo.git("rm", "-q", "--cached", "docs/old.md")


def tracked_though_ignored(repo: SampleRepository, rng: random.Random) -> None:
    repo.write("tracked.pt", _some(rng))
    repo.write("logs/forced", _some(rng))
    repo.git("add", "-f", "logs/forced")


def deleted(repo: SampleRepository, _: random.Random) -> None:
    (repo.root / "docs/guide.md").unlink()
    repo.git("rm", "-q", "--force", "README")
    repo.git("rm", "-q", "--cached", "empty")


def a_whole_folder_deleted(repo: SampleRepository, _: random.Random) -> None:
    shutil.rmtree(repo.root / "src")


def renamed(repo: SampleRepository, _: random.Random) -> None:
    repo.git("mv", "-k", "docs", "pages")


def executable(repo: SampleRepository, _: random.Random) -> None:
    (repo.root / "run.sh").chmod(0o755)
    repo.write("bin/tool", "#!/bin/sh\n")
    (repo.root / "bin/tool").chmod(0o700)
    (repo.root / "weights.bin").chmod(0o600)


def symlinks(repo: SampleRepository, _: random.Random) -> None:
    for name, to in (("link", "train.py"), ("away", "/etc/hostname"), ("into", "docs"),
                     ("nowhere", "gone/for/good"), ("src/up", "../README")):  # fmt: skip
        _link(repo, name, to)


def a_file_became_a_link(repo: SampleRepository, _: random.Random) -> None:
    _link(repo, "README", "train.py")
    _link(repo, "docs", "src")


def a_link_became_a_file(repo: SampleRepository, rng: random.Random) -> None:
    _link(repo, "was-link", "train.py")
    repo.commit("A link", **{"was-file": "1\n"})
    (repo.root / "was-link").unlink()
    repo.write("was-link", _some(rng))
    (repo.root / "was-file").unlink()
    repo.write("was-file/inside", _some(rng))


def a_folder_became_a_file(repo: SampleRepository, rng: random.Random) -> None:
    shutil.rmtree(repo.root / "docs", ignore_errors=True)
    (repo.root / "docs").unlink(missing_ok=True)
    repo.write("docs", _some(rng))


def binary(repo: SampleRepository, rng: random.Random) -> None:
    repo.write("weights.bin", rng.randbytes(5000))
    repo.write("new.bin", b"\0\r\n\0" + rng.randbytes(100_000))


def empty(repo: SampleRepository, _: random.Random) -> None:
    repo.write("nothing", "")
    repo.write("train.py", "")
    (repo.root / "hollow/inner").mkdir(parents=True, exist_ok=True)


def intent_to_add(repo: SampleRepository, rng: random.Random) -> None:
    repo.write("later", _some(rng))
    repo.git("add", "-N", "later")


def assumed_unchanged(repo: SampleRepository, rng: random.Random) -> None:
    repo.git("update-index", "--assume-unchanged", "train.py", "big.txt")
    repo.write("train.py", _some(rng))
    (repo.root / "big.txt").unlink()


def skipped_but_there(repo: SampleRepository, rng: random.Random) -> None:
    repo.git("update-index", "--skip-worktree", "src/model.py")
    repo.write("src/model.py", _some(rng))


def sparse(repo: SampleRepository, rng: random.Random) -> None:
    repo.git("sparse-checkout", "set", "--cone", "src")
    repo.write("src/model.py", _some(rng))


def conflict(repo: SampleRepository, rng: random.Random) -> None:
    before = repo.git("rev-parse", "HEAD")
    repo.git("stash", "-q", "-u", check=False)
    first = repo.commit("Ours", conflicted=_some(rng), gone=_some(rng))
    repo.git("reset", "-q", "--hard", before)
    repo.commit("Theirs", conflicted=_some(rng))
    repo.git("merge", "-q", first, check=False)


def odd_names(repo: SampleRepository, rng: random.Random) -> None:
    for name in (b"caf\xe9", b"a b", b" lead", b"trail ", b"new\nline", b"t\tab", b'q"uote',
                 b"-dash", b"\x1b[2Jx", b"*", b"[a]", b":(glob)x", b"#hash", b"!bang", b"a\\b",
                 "größe".encode(), "cafe\u0301".encode(), "café".encode(), b"l" * 200,
                 b"d\xff/in\xfe", b"? name", b"H 100644 x 0\tfake"):  # fmt: skip
        repo.write(name, _some(rng))


def case_pairs(repo: SampleRepository, rng: random.Random) -> None:
    for name in ("Case", "case", "CASE/x", "readme"):
        repo.write(name, _some(rng))


def same_size_and_time(repo: SampleRepository, _: random.Random) -> None:
    file = repo.root / "train.py"
    if file.exists():
        kept = file.stat()
        file.write_bytes(file.read_bytes()[::-1])
        os.utime(file, ns=(kept.st_atime_ns, kept.st_mtime_ns))


def no_executable_bit_here(repo: SampleRepository, rng: random.Random) -> None:
    (repo.root / "run.sh").chmod(0o755)
    repo.write("tool", _some(rng))
    repo.git("add", "run.sh", "tool")
    repo.git("update-index", "--chmod=+x", "run.sh")
    repo.git("config", "core.fileMode", "false")
    (repo.root / "run.sh").chmod(0o644)
    (repo.root / "tool").chmod(0o755)


def line_ends_by_attribute(repo: SampleRepository, rng: random.Random) -> None:
    repo.write(".gitattributes", "*.md text eol=crlf\n*.csv text=auto\n*.py text eol=lf\n")
    repo.write("docs.md", "one\r\ntwo\r\n")
    repo.write("mixed.csv", "a\r\nb\n")
    repo.commit("Line ends")
    repo.write("src/crlf.py", f"x = 1\r\n{_some(rng)}")


def line_ends_by_setting(repo: SampleRepository, rng: random.Random) -> None:
    repo.git("config", "core.autocrlf", "true")
    repo.git("config", "core.safecrlf", "warn")
    repo.write("dos.txt", "one\r\ntwo\r\n")
    repo.git("add", "dos.txt", check=False)
    repo.write("both.txt", f"one\r\n{_some(rng)}")


def ident_and_encoding(repo: SampleRepository, rng: random.Random) -> None:
    repo.write(".gitattributes", "*.id ident\n*.u16 text working-tree-encoding=UTF-16LE\n")
    repo.write("a.id", "$Id$\n")
    repo.write("a.u16", "größe\n".encode("utf-16le"))
    repo.commit("Attributes")
    (repo.root / "a.id").unlink()
    repo.git("checkout", "a.id")
    repo.write("b.id", "$Id: mine $\n")
    repo.write("b.u16", f"é{_some(rng)}".encode("utf-16le") + b"\xff")


def filters(repo: SampleRepository, rng: random.Random) -> None:
    """Filters like git-crypt's; any that runs makes the file `ran` next to the repository."""
    repo.write("f.key", "secret\n")
    repo.write(".gitattributes", "[attr]locked filter=crypt diff=crypt\n*.key locked\n")
    repo.git("add", "f.key", ".gitattributes")
    repo.git("commit", "-qm", "Keys")
    mark = repo.root.parent / "ran"
    for way in ("clean", "smudge", "process"):
        repo.git("config", f"filter.crypt.{way}", f"touch {mark}; cat")
    repo.git("config", "filter.crypt.required", "true")
    repo.write("g.key", _some(rng))


def lfs(repo: SampleRepository, rng: random.Random) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 9\n"
    repo.write(".gitattributes", "*.lfs filter=lfs diff=lfs merge=lfs -text\n")
    repo.commit("Large", **{"here.lfs": pointer.format("1" * 64), "gone.lfs": pointer.format("2")})
    repo.git("config", "filter.lfs.clean", "false")
    repo.git("config", "filter.lfs.required", "true")
    repo.write("here.lfs", rng.randbytes(9000))


def submodules(repo: SampleRepository, rng: random.Random) -> None:
    """One with changes of its own and a submodule inside it; one that isn't checked out."""
    inner, nested = (repo.root.parent / f"{name}-{rng.random()}" for name in ("inner", "nested"))
    for place in (nested, inner):
        place.mkdir()
        made = SampleRepository(place)
        made.git("init", "-q", f"--object-format={repo.git('rev-parse', '--show-object-format')}")
        made.commit("First", **{".gitignore": "*.log\n", "a": _some(rng), "b": "b\n"})
    SampleRepository(inner).git("submodule", "--quiet", "add", str(nested), "deep/nested")
    SampleRepository(inner).commit("Nested")
    for name in ("vendor/one", "absent"):
        repo.git("submodule", "--quiet", "add", str(inner), name)
    repo.git("commit", "-qm", "Submodules")
    repo.git("submodule", "--quiet", "update", "--init", "--recursive")
    repo.git("submodule", "--quiet", "deinit", "-f", "absent")
    one = SampleRepository(repo.root / "vendor/one")
    one.write("a", _some(rng))
    one.write("new", _some(rng))
    one.write("x.log", "left")
    (one.root / "b").unlink()
    one.write("deep/nested/a", _some(rng))


def what_cannot_travel(repo: SampleRepository, _: random.Random) -> None:
    os.mkfifo(repo.root / "pipe")
    os.mkfifo(repo.root / "src/pipe.tmp") if (repo.root / "src").is_dir() else None
    inner = SampleRepository(repo.root / "embedded")
    inner.root.mkdir()
    inner.git("init", "-q")
    inner.commit(a="1")


def a_split_index(repo: SampleRepository, rng: random.Random) -> None:
    repo.git("update-index", "--split-index")
    repo.git("config", "core.untrackedCache", "true")
    repo.write("train.py", _some(rng))
    repo.git("add", "train.py", check=False)


STATES: tuple[State, ...] = (
    unpushed, staged, unstaged, staged_and_changed_again, untracked, ignored,
    ignored_by_this_clone, ignored_after_it_travelled, tracked_though_ignored, deleted,
    a_whole_folder_deleted, renamed, executable, symlinks, a_file_became_a_link,
    a_link_became_a_file, a_folder_became_a_file, binary, empty, intent_to_add, assumed_unchanged,
    skipped_but_there, sparse, conflict, odd_names, case_pairs, same_size_and_time,
    no_executable_bit_here, line_ends_by_attribute, line_ends_by_setting, ident_and_encoding,
    filters, lfs, submodules, what_cannot_travel, a_split_index,
)  # fmt: skip

# How the repository was made in which these happen.
GROUNDS = (*["plain"] * 3, "detached", "shallow", "worktree", "shared", "sha256", "packed")


def make_state(seed: int, folder: Path) -> tuple[SampleRepository, list[State]]:
    """Return the clean repository of a seed, and the states to put it in, in this order.

    Of any `len(STATES)` consecutive seeds each state is sure to be in one; others are random.
    """
    rng = random.Random(seed)
    ground = GROUNDS[seed % len(GROUNDS)]
    chosen = [STATES[seed % len(STATES)], *rng.sample(STATES, rng.randrange(1, 4))]
    chosen.sort(key=lambda state: state is sparse)  # git doesn't add what it hides
    return _ground(ground, folder), list(dict.fromkeys(chosen))


def _ground(ground: str, folder: Path) -> SampleRepository:
    folder.mkdir()
    origin = SampleRepository(folder / "origin")
    origin.root.mkdir()
    origin.git("init", "-q", *(["--object-format=sha256"] if ground == "sha256" else []))
    for name, content in FILES.items():
        origin.write(name, content)
    (origin.root / "run.sh").chmod(0o755)
    origin.git("add", "-f", ".")
    origin.git("commit", "-qm", "First")
    work = folder / "work"
    if ground == "shallow":
        origin.commit("Second", train_py="print(2)\n")
        origin.git("clone", "-q", "--depth=1", f"file://{origin.root}", str(work))
    elif ground == "worktree":
        origin.git("worktree", "add", "-q", str(work))
    elif ground == "shared":
        origin.git("clone", "-q", "--shared", ".", str(work))
    else:
        origin.root.rename(work)
    repo = SampleRepository(work)
    if ground == "detached":
        repo.git("checkout", "-q", "--detach")
    if ground == "packed":
        repo.git("gc", "-q")
    return repo
