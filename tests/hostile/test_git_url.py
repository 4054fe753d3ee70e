"""A repository's URL with a token in it: where the token goes, and where it doesn't."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import pytest

from bootstrap.errors import ProfileError
from bootstrap.onbox import MAIN
from bootstrap.paths import shipped
from bootstrap.profile.load import read_profile
from bootstrap.repo import mirror
from bootstrap.repo.git import Folders
from bootstrap.repo.mirror import _ASKPASS
from bootstrap.setup import SetupRequest
from bootstrap.setup.door_table import DOORS
from bootstrap.setup.payload import build_payload
from tests.boxes.git_server import GitServer
from tests.cli import User, UserRepository
from tests.faults.plugin import Faults
from tests.listener import QuietHandler
from tests.programs import captured

pytestmark = pytest.mark.sampled(of="module")

TOKEN = f"ghp_{secrets.token_hex(8)}"  # unique to each process, since all of them are watched
PROFILE = """\
version: 1
extends: vast
gpu: {{require: false}}
train: {{command: python train.py}}
git: {{url: "{url}", access: {access}}}
"""


class Hosted:
    """A repository on a git host, the profile that names it, and its mirror here."""

    def __init__(self, user: User, origin: UserRepository, host: GitServer, token: str) -> None:
        self._person = user
        self.origin = origin
        self.host = host
        self.bare = host.folder / "homework.git"
        self.clean = host.url("homework.git")
        self.url = self.clean.replace("//", f"//me:{token}@") if token else self.clean
        self.profile = user.home / "gpu.yaml"
        self.say("over-ssh")

    def say(self, access: str) -> None:
        """Write the profile with `access`: how the box gets the commit."""
        self.profile.write_text(PROFILE.format(url=self.url, access=access))

    def push(self, words: str) -> str:
        """Push another commit to the host."""
        commit = self.origin.commit({"n.txt": words}, "Another")
        self.origin.git("push", "-q", str(self.bare), "HEAD:main")
        return commit

    def commit(self) -> str:
        """Return the commit that `render` would set up."""
        out = self._person.run("render", "--profile", str(self.profile)).must(0).out
        (line,) = (line for line in out.splitlines() if line.startswith("  REPO_COMMIT="))
        return line.partition("=")[2].strip("'")

    @property
    def mirror(self) -> Path:
        (found,) = (self._person.state / "mirrors").glob("homework-*.git")
        return found


Host = Callable[..., Hosted]


@pytest.fixture
def hosted(user: User, tmp_path: Path) -> Iterator[Host]:
    """`hosted(token=…)`: the user's current folder is no repository then."""
    with contextlib.ExitStack() as stack:

        def make(token: str = "") -> Hosted:
            origin = user.repository("origin")
            folder = tmp_path / "host"
            argv = ["git", "clone", "-q", "--bare", str(origin.root), str(folder / "homework.git")]
            subprocess.run(argv, check=True, env=user.env)
            takes = ["git", "-C", argv[-1], "config", "http.receivepack", "true"]
            subprocess.run(takes, check=True, env=user.env)
            host = GitServer("127.0.0.1", folder, token)
            stack.callback(host.close)
            user.place = tmp_path
            return Hosted(user, origin, host, token)

        yield make


class NewProcesses:
    """The processes started on this machine since this object was made, without those in boxes.

    PIDs are counted up to the newest that the kernel reports: listing /proc would keep a core busy.
    """

    def __init__(self) -> None:
        self._loadavg = os.open("/proc/loadavg", os.O_RDONLY)
        self._most = int(Path("/proc/sys/kernel/pid_max").read_text())
        self._own = Path("/proc/self/ns/pid").readlink()
        self._last = self._newest()

    def __call__(self) -> list[int]:
        """Return the processes started since the last call."""
        last, self._last = self._last, self._newest()
        begun = [*range(last + 1, self._last + 1)]
        if self._last < last:  # PIDs wrapped around
            begun = [*range(last + 1, self._most), *range(1, self._last + 1)]
        return [process for process in begun if self._is_here(process)]

    def close(self) -> None:
        os.close(self._loadavg)

    def _newest(self) -> int:
        return int(os.pread(self._loadavg, 100, 0).split()[-1])

    def _is_here(self, process: int) -> bool:
        try:
            return Path(f"/proc/{process}/ns/pid").readlink() == self._own
        except PermissionError:
            return True
        except OSError:
            return False


class ArgumentWatch:
    """Polls the arguments of every process that starts."""

    def __init__(self, needle: str) -> None:
        self._needle = needle.encode()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.found: set[bytes] = set()
        self.seen_git = False

    def __enter__(self) -> ArgumentWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        alive = set[int]()
        with contextlib.closing(NewProcesses()) as begun:
            while not self._over.wait(0.001):
                alive.update(begun())
                alive = {process for process in alive if self._look_at(process)}

    def _look_at(self, process: int) -> bool:
        """Return whether the process is still there."""
        try:
            words = Path("/proc", str(process), "cmdline").read_bytes()
        except OSError:
            return False
        self.seen_git |= b"ls-remote" in words
        if self._needle in words:
            self.found.add(words)
        return True


def holds(folder: Path, needle: str) -> list[Path]:
    """Return the files below `folder` that contain `needle`."""
    files = (Path(top, name) for top, _, names in os.walk(folder) for name in names)
    return [file for file in files if file.is_file() and needle.encode() in file.read_bytes()]


@pytest.mark.parametrize("access", ["over-ssh", "url"])
def test_a_token_in_git_url_is_in_no_argument_file_or_output_of_any_command(
    user: User, hosted: Host, access: str
) -> None:
    there = hosted(TOKEN)
    there.say(access)
    profile = ("--profile", str(there.profile))
    tasks: list[tuple[str, ...]] = [("render",), ("profiles", "--show"), ("init",)]
    tasks += [("plan", "--host", "root@127.0.0.1:1"), ("setup", "--host", "root@127.0.0.1:1")]
    tasks += [("verify", "--host", "root@127.0.0.1:1"), ("profiles", "--show", "--json")]
    if access == "url":
        # Pushed by the first one, with the same token.
        tasks += [("oneliner",), ("oneliner", "--push"), ("oneliner", "--uvx", "boxstrap")]
        tasks += [("render", "--for", door) for door in DOORS]
        tasks += [("oneliner", "--url", "https://x.org/b", "--output", str(user.home / "b.sh"))]
    with ArgumentWatch(TOKEN) as watch:
        for task in tasks:
            words = (*task, *profile) if task[0] not in ("init", "profiles") else task
            if task[0] == "profiles":
                words = ("profiles", "--show", str(there.profile), *task[2:])
            done = user.run(*words)
            assert "Traceback" not in done.err
            assert TOKEN not in done.text, f"{task}: {done.text}"
            if task[0] in ("render", "oneliner", "profiles"):
                done.must(0)
    assert watch.seen_git, "nothing was seen: no test"
    assert not watch.found
    assert set(there.host.given) == {TOKEN}, "it never came to the host"
    assert holds(user.home, TOKEN) == [there.profile]


@pytest.mark.parametrize("access", ["over-ssh", "url"])
def test_verify_sends_a_script_without_git_token(hosted: Host, access: str, faults: Faults) -> None:
    """`verify` renders without a repository, so the URL comes from the profile."""
    with faults.attempt("token in git.url", f"verify, access {access}"):
        there = hosted(TOKEN)
        there.say(access)
        loaded = read_profile(str(there.profile))
        script = build_payload(
            loaded, SetupRequest(repo=there.origin.root), local=False, with_source=False
        ).script
        assert TOKEN not in script
        assert (f"CLONE_URL='{there.clean}'" in script) is (access == "url")


def test_render_of_a_missing_git_ref_names_it_and_shows_no_token(user: User, hosted: Host) -> None:
    there = hosted(TOKEN)
    for access in ("over-ssh", "url"):
        there.say(access)
        done = user.run("render", "--profile", str(there.profile), "--set", "git.ref=gone")
        assert TOKEN not in done.must(2).text
        assert "gone" in done.err


def test_a_wrong_token_in_git_url_fails_the_login_and_is_not_shown(
    user: User, hosted: Host
) -> None:
    there = hosted(TOKEN)
    there.url = there.url.replace(TOKEN, "wr0ngT0ken")
    there.say("over-ssh")
    done = user.run("render", "--profile", str(there.profile)).must(2)
    assert "Authentication failed" in done.err
    assert "wr0ngT0ken" not in done.text


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ("Username for 'https://host': ", "me"),
        ("Password for 'https://me@host': ", "the token"),
        ("Password for 'https://me@host/path': ", "the token"),
        ("Username for 'https://host.evil': ", None),
        ("Password for 'https://me@host.evil': ", None),
        ("Password for 'https://me@evil': ", None),
        ("Password for 'http://me@host': ", None),
        ("Password for 'https://evil/@host.evil': ", None),
        ("Password for 'https://m%40e@host': ", None),
        # What git before 2.48.1 asks when the first host redirected to `https://me%40host%2F@evil`.
        ("Password for 'https://me@host/@evil': ", None),
        ("Password for 'https://me@host'@evil': ", None),
        ("Password for 'https://other@host': ", None),
        ("Username for 'https://host/@evil': ", None),
        ("Enter passphrase for key: ", None),
    ],
)
def test_git_asking_for_another_host_after_a_redirect_gets_no_token(
    tmp_path: Path, prompt: str, answer: str | None
) -> None:
    """After a redirect, git asks for another host's password."""
    assert _answer(tmp_path, prompt, "me") == (f"{answer}\n" if answer else "")


_ON_A_BOX = {
    "the program": "fetch_program",
    "the repository": "can_read",
    "the commit": 'exec python3 -I -S -B -c "$FETCHES"',
}
_FETCHES = f"""
import os, sys
sys.path.insert(0, {str(Path(MAIN).parents[2])!r})
from bootstrap.onbox.git import BoxGit
from bootstrap.onbox.retries import Retries
from bootstrap.onbox.work.fetch import GitHost
home = os.environ["HOME"]
store = BoxGit(f"{{home}}/store.git")
os.makedirs(store.folder)
store.ask("init", "-q", "--bare")
host = GitHost(home, os.environ["REPO_URL"], os.environ.pop("TOKEN"), "")
host.fetch(store, "a" * 40, Retries("/dev/null"))
"""


@pytest.mark.parametrize("redirects", [True, False])
@pytest.mark.parametrize("what", _ON_A_BOX)
def test_git_on_a_box_sends_the_token_to_no_host_after_a_redirect(
    tmp_path: Path, what: str, redirects: bool
) -> None:
    """What a door brings asks git for it there."""
    other, given = _asking_host("")
    host, given_first = _asking_host(f"http://localhost:{other}" if redirects else "")
    url = f"http://127.0.0.1:{host}/me/homework.git"
    _ask_on_a_box(what, url, tmp_path)
    assert not given
    assert bool(given_first) is not redirects


def _ask_on_a_box(what: str, url: str, folder: Path, limit_s: float = 60) -> None:
    script = "".join(
        (shipped("templates") / each).read_text() for each in ("doors/access.sh", "doors/fetch.sh")
    )
    subprocess.run(
        ["bash", "-c", f"{script}\n{_ON_A_BOX[what]}"],
        env={"PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder), "PRIVATE": str(folder),
             "REPO_URL": url, "PROGRAM_URL": url, "PROGRAM_REF": "refs/boxstrap/x",
             "BOX_HOME": str(folder), "FETCHES": _FETCHES,
             "TOKEN": TOKEN, "GIT_TOKEN": TOKEN},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=limit_s,
        check=False,
    )  # fmt: skip


@pytest.mark.parametrize(("asked", "limit"), [("ls-remote", "_ANSWER_S"), ("fetch", "_FETCH_S")])
def test_render_gives_up_on_a_silent_git_host(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asked: str, limit: str
) -> None:
    monkeypatch.setattr(mirror, limit, 1)
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path)], check=True)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/me/homework.git"
        with pytest.raises(ProfileError, match="no answer within 1 s"):
            mirror.git_credentials(url, asked, "--end-of-options", url, folders=Folders(tmp_path))


def test_reading_an_endless_list_of_git_refs_is_given_up_at_a_memory_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mirror, "_MEMORY_KIB", 200_000)

    class EndlessHostHandler(QuietHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/x-git-upload-pack-advertisement")
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(b"001e# service=git-upload-pack\n0000")
                for number in itertools.count():
                    self.wfile.write(b"003f%040x refs/heads/%07d\n" % (number + 1, number))

    url = f"http://127.0.0.1:{_serve(EndlessHostHandler)}/me/homework.git"
    with pytest.raises(ProfileError, match="memory"):
        mirror.git_credentials(url, "ls-remote", "--end-of-options", url)


@pytest.mark.parametrize("what", _ON_A_BOX)
def test_setup_on_a_box_is_given_up_for_a_silent_git_host(tmp_path: Path, what: str) -> None:
    timeout = tmp_path / "timeout"
    timeout.write_text(f'#!/bin/sh\nshift && exec {shutil.which("timeout")} 1 "$@"\n')
    timeout.chmod(0o700)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/me/homework.git"
        _ask_on_a_box(what, url, tmp_path, limit_s=15)


def _serve(handler: type[BaseHTTPRequestHandler]) -> int:
    """Serve on loopback until the tests end. Returns the port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


def _asking_host(leads_to: str) -> tuple[int, list[str]]:
    """Serve: ask for a password, or redirect. Returns the port, and
    what it was given."""
    given: list[str] = []

    class LyingHostHandler(QuietHandler):
        def do_GET(self) -> None:
            given.extend(filter(None, [self.headers.get("Authorization")]))
            self.send_response(302 if leads_to else 401)
            self.send_header("Location", f"{leads_to}{self.path}")
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.send_header("Content-Length", "0")
            self.end_headers()

    return _serve(LyingHostHandler), given


@pytest.mark.parametrize("named", ["ann@corp.org", "ann%40corp.org"])
def test_a_git_user_with_an_at_sign_gets_the_token_in_both_spellings_of_the_prompt(
    tmp_path: Path, named: str
) -> None:
    prompt = f"Password for 'https://{named}@host/path': "
    assert _answer(tmp_path, prompt, "ann@corp.org") == "the token\n"
    assert _answer(tmp_path, prompt.replace("host/path", "host/@evil"), "ann@corp.org") == ""


def _answer(folder: Path, prompt: str, user: str) -> str:
    (folder / "askpass").write_text(_ASKPASS)
    given = {"SCHEME": "https", "HOST": "host", "USER": user, "PASSWORD": "the token"}
    given["USER_QUOTED"] = quote(user, safe="")
    done = captured(
        ["sh", str(folder / "askpass"), prompt],
        env={"PATH": os.environ["PATH"], **{f"BOXSTRAP_{k}": v for k, v in given.items()}},
        check=False,
    )
    assert (done.returncode == 0) is bool(done.stdout)
    return done.stdout


def test_git_url_is_fetched_by_the_users_git_configuration_and_not_the_repositorys(
    user: User, hosted: Host, tmp_path: Path
) -> None:
    """The repository in the current folder has no say in how the user's git.url is fetched."""
    there = hosted(TOKEN)
    there.url = there.clean
    there.say("over-ssh")
    helper = f"!echo username=me; echo password={TOKEN}; :"
    user.home.joinpath(".gitconfig").write_text(
        f'[credential]\n\thelper = "{helper}"\n'
        f'[url "{there.host.url("")}"]\n\tinsteadOf = https://nowhere.invalid/\n'
    )
    assert there.commit() == there.origin.head
    there.url = "https://nowhere.invalid/homework.git"
    there.say("url")
    assert there.commit() == there.origin.head
    trap = tmp_path / "sprung"
    other = user.repository("other")
    other.git("config", "credential.helper", f"!touch {trap}; :")
    other.git("config", "url.https://evil.invalid/.insteadOf", there.host.url(""))
    there.url = there.clean
    for access in ("url", "over-ssh"):
        there.say(access)
        assert there.commit() == there.origin.head
    assert not trap.exists()


# The mirror


def test_render_uses_the_newest_commit_of_git_url_also_after_its_default_branch_changed(
    user: User, hosted: Host
) -> None:
    there = hosted()
    assert there.commit() == there.origin.head
    there.push("second")
    assert there.commit() == there.origin.head
    there.origin.git("checkout", "-q", "-b", "next")
    commit = there.origin.commit({"n.txt": "other"}, "Other")
    there.origin.git("push", "-q", str(there.bare), "next")
    subprocess.run(
        ["git", "-C", str(there.bare), "symbolic-ref", "HEAD", "refs/heads/next"], check=True
    )
    assert there.commit() == commit, "the old default branch was used"


def test_a_mirror_of_git_url_that_is_up_to_date_is_not_rewritten(user: User, hosted: Host) -> None:
    there = hosted()
    there.commit()
    before = {path: path.stat().st_mtime_ns for path in there.mirror.rglob("*")}
    there.commit()
    assert {path: path.stat().st_mtime_ns for path in there.mirror.rglob("*")} == before


def _cut_in_the_clone(mirror: Path) -> None:
    """The state that an earlier version left, which cloned in place and was killed."""
    shutil.rmtree(mirror)
    (mirror / "refs").mkdir(parents=True)
    (mirror / "objects").mkdir()
    (mirror / "HEAD").write_text("ref: refs/heads/main\n")


def _locks_left(mirror: Path) -> None:
    for name in ("packed-refs.lock", "HEAD.lock", "shallow.lock", "refs/heads/main.lock"):
        (mirror / name).write_text("")


def _objects_gone(mirror: Path) -> None:
    shutil.rmtree(mirror / "objects")
    (mirror / "objects").mkdir()


def _refs_emptied(mirror: Path) -> None:
    for file in [mirror / "packed-refs", *mirror.glob("refs/heads/*")]:
        file.write_text("")


def _head_emptied(mirror: Path) -> None:
    (mirror / "HEAD").write_text("")


@pytest.mark.parametrize(
    "damage", [_cut_in_the_clone, _locks_left, _objects_gone, _refs_emptied, _head_emptied]
)
def test_render_replaces_a_damaged_local_mirror_of_git_url_by_a_new_clone(
    hosted: Host, faults: Faults, damage: Callable[[Path], None]
) -> None:
    there = hosted()
    there.commit()
    damage(there.mirror)
    with faults.attempt("mirror of git.url damaged", damage.__name__.strip("_").replace("_", " ")):
        assert there.commit() == there.origin.head
    there.push("second")
    assert there.commit() == there.origin.head
    assert not [path for path in there.mirror.parent.iterdir() if path.name.startswith(".")]


def test_render_gets_the_commit_of_git_url_after_its_first_clone_was_killed(
    user: User, hosted: Host, faults: Faults
) -> None:
    there = hosted()
    bulk = os.urandom(3_000_000).hex()
    commit = there.push(bulk)
    for at in (0.2, 0.35, 0.5):
        going = user.begin("render", "--profile", str(there.profile))
        with contextlib.suppress(subprocess.TimeoutExpired):
            going.process.wait(at)
        going.kill()
        going.close()
    with faults.attempt("kill -9 here, git.url", "first clone"):
        assert there.commit() == commit


def test_three_renders_at_once_share_one_mirror_of_git_url(user: User, hosted: Host) -> None:
    there = hosted()
    for words in ("first", "second"):
        begun = [user.begin("render", "--profile", str(there.profile)) for _ in range(3)]
        for going in begun:
            assert f"REPO_COMMIT='{there.origin.head}'" in going.end().must(0).out
        there.push(words)


def test_render_gets_the_commit_of_git_url_when_the_home_folder_is_itself_a_git_repository(
    user: User, hosted: Host
) -> None:
    there = hosted()
    for words in (("init", "-q"), ("config", "user.name", "x")):
        subprocess.run(["git", *words], cwd=user.home, env=user.env, check=True)
    assert there.commit() == there.origin.head


# Warnings


@pytest.mark.parametrize(
    "words", [("render",), ("oneliner",), ("render", "--for", "runpod")], ids=" ".join
)
def test_a_git_url_with_http_gives_a_warning_that_it_is_not_encrypted(
    user: User, hosted: Host, words: tuple[str, ...]
) -> None:
    there = hosted()
    there.say("url")
    done = user.run(*words, "--profile", str(there.profile)).must(0)
    assert "http:// is neither encrypted nor signed" in done.err
    there.say("over-ssh")
    done = user.run(*words, "--profile", str(there.profile)).must(0)
    assert "http:// is neither encrypted nor signed" in done.err
    if words == ("render",):
        done = user.run(*words, "--profile", str(there.profile), "--json").must(0)
        assert "http:// is neither encrypted nor signed" in str(done.json()["warnings"])
