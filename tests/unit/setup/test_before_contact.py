"""Errors that can be found locally come before any contact; what a box's refusal says."""

import io
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from bootstrap import Box, BoxRun
from bootstrap.errors import BoxstrapError, BusyError, NotSafeError, StepFailedError, UsageError
from bootstrap.setup import SetupRequest, run_setup
from bootstrap.setup.request import RunOptions
from bootstrap.setup.sync import SyncAnswer, refusal
from tests.cli import Completed, User
from tests.sshd import USER, Sshd, keygen
from tests.unit.link.conftest import start_server  # noqa: F401 - a fixture


def empty(user: User) -> None:
    user.place = user.home / "empty"
    subprocess.run(["git", "init", "-q", str(user.place)], env=user.env, check=True)


def nowhere(user: User) -> None:
    user.place = user.home


def unsaved(user: User) -> None:
    user.repository()
    (user.place / ".env").write_text("KEY=1\n")


def whole(user: User) -> None:
    user.repository()


def no_profile(user: User) -> None:
    repository = user.repository()
    repository.git("rm", "-q", "boxstrap.yaml")
    repository.git("commit", "-q", "-m", "No profile")
    (user.place / ".env").write_text("KEY=1\n")


REFUSED = {
    "a repository without a commit": (empty, [], "commit"),
    "no repository": (nowhere, [], "repository"),
    "what looks like a credential": (unsaved, [], ".env"),
    "the same, and no profile": (no_profile, [], ".env"),
    "a secret that isn't set": (whole, ["--set", "secrets=[NO_SUCH]"], "NO_SUCH"),
    "a public key that isn't there": (whole, ["--set", "ssh.authorized_keys=[x.pub]"], "x.pub"),
    "a wrong value": (whole, ["--set", "gpu.count=x"], "gpu.count"),
    "no such profile": (whole, ["--profile", "nobody"], "nobody"),
}


@pytest.mark.parametrize("price", [float("nan"), float("inf"), 0.0, -1.0, None, "much"])
def test_the_library_rents_nothing_for_what_is_no_price(price: Any, user: User) -> None:
    user.repository()
    with pytest.raises(UsageError, match="no amount of dollars"):
        Box(repo=user.place).rent(max_price=price)


@pytest.mark.parametrize(
    "given",
    [
        *({"host": one} for one in ("", " ", 3)),
        *({"repo": one} for one in ("", "a\0b")),
        *({"sets": one} for one in ("gpu.count=1", [3])),
        *({"profile": 3}, {"identity": ""}, {"name": 3}),
    ],
)
def test_the_library_takes_no_box_that_cannot_be_typed(given: dict[str, Any]) -> None:
    """An empty host, as of a variable that isn't set, would be the repository's only box."""
    with pytest.raises(UsageError, match=f"{next(iter(given))}: "):
        Box(**given)
    with pytest.raises(UsageError, match=f"{next(iter(given))}: "):
        run_setup(SetupRequest(**given))


@pytest.mark.parametrize(
    "given",
    [
        *({"wait_s": one} for one in (None, "1; id", float("nan"), -1)),
        {"redo": ["gpu"]},
        {"only": ["gpu"]},
        {"run": "python train.py"},
        {"run": RunOptions("true", session="../../x")},
    ],
)
def test_a_request_for_a_setup_that_nobody_could_type_reaches_no_box(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(given))}: |--session: "):
        run_setup(SetupRequest(host="root@127.0.0.1:1", **given))


def test_the_library_refuses_an_empty_or_untyped_value_without_a_login(user: User) -> None:
    user.repository()
    box = Box("root@127.0.0.1:1", repo=user.place)
    run: Any = BoxRun(box, "train-1")
    odd: Any = 3
    for call in (
        lambda: box.push(""),
        lambda: box.push(user.place, to=""),
        lambda: box.push(user.place, to=odd),
        lambda: run.pull(""),
        lambda: run.pull("a\0b"),
        lambda: run.log("a.log"),
        lambda: run.log(io.StringIO()),
        lambda: BoxRun(box, ""),
        lambda: box.rent(max_price=1.0, provider=""),
        lambda: Box(reporter=odd),
        lambda: box.setup(cancel=odd),
        lambda: run_setup(SetupRequest(), reporter=odd),
    ):
        with pytest.raises(UsageError, match=r"^(path|to|name|provider|cancel|reporter): "):
            call()


@pytest.mark.slow
@pytest.mark.parametrize(
    "malformed",
    [
        *({"command": one} for one in ("a\nb", ["true\0x"], ["a", 3], 3)),
        *({"gpus": one} for one in (0, "0;id")),
        *({"session": one} for one in (3, "../../x", "-x")),
        *({"queue": one} for one in (True, "later", "after:", "after:a b")),
    ],
)
def test_the_library_refuses_a_malformed_run_as_the_command_does_without_a_login(
    malformed: dict[str, Any], user: User
) -> None:
    user.repository()
    box = Box("root@127.0.0.1:1", repo=user.place)
    with pytest.raises(UsageError):
        box.run(**{"command": "true", **malformed})


@pytest.mark.parametrize("case", REFUSED)
def test_setup_with_a_wrong_profile_or_repository_exits_with_2_without_a_login(
    case: str,
    user: User,
    start_server: Callable[..., Sshd],  # noqa: F811
) -> None:
    stand, options, said = REFUSED[case]
    stand(user)
    key = keygen(user.home / "key")
    server = start_server("box", key)
    host = ["--host", f"{USER}@127.0.0.1:{server.port}", "--identity", str(key)]
    done: Completed = user.run("setup", *host, *options).must(2)
    assert said in done.text
    assert "first contact" not in done.text
    assert "Accepted" not in server.log.read_text()
    assert list(user.state.glob("boxes/*")) == []


@pytest.mark.parametrize(
    ("problem", "detail", "kind", "says"),
    [
        ("fresh", "", UsageError, "boxstrap setup --host box"),
        ("alive", "homework/train-2", BusyError, "boxstrap stop --host box --run train-2"),
        ("alive", "homework/train-2", BusyError, "boxstrap run starts this beside it"),
        ("alive", "homework/train-2", BusyError, "train-2 is running and uses these files"),
        ("queued", "homework/q-1", BusyError, "q-1 is queued and uses these files"),
        ("busy", "setup s1", BusyError, "a setup is at work on this box (setup s1)"),
        ("refused", "no room", BoxstrapError, "did not take what was sent: no room"),
        ("lacks", "", BoxstrapError, "it does not say why"),
        ("failed", "box-edits", NotSafeError, "boxstrap sync --back --host box"),
        ("failed", "box-edits", NotSafeError, "on the box: git checkout HEAD -- FILE"),
        ("failed", "box-commits", NotSafeError, "on the box: git reset --keep ID^"),
        ("failed", "disk-full", StepFailedError, "train.py: no space"),
    ],
)
def test_each_refusal_of_sync_has_its_error_type_and_says_what_to_do(
    problem: str, detail: str, kind: type[BoxstrapError], says: str
) -> None:
    answer = SyncAnswer(False, problem, detail, (), {}, (), (), ("train.py: no space",), {})
    error = refusal(answer, "root@box:22", "box")
    assert type(error) is kind
    assert says in error.text()
