"""Readers run at the same time, and one that hangs costs no more than its own limit."""

import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from bootstrap.onbox import verdict
from bootstrap.onbox.verdict import readers
from bootstrap.onbox.verdict.readers import OwnError, Reader

SAY = 'os.write(1, b\'[null, "a"]\\n[null, "a", 1]\\n[null, "b"]\\n\')\n'
WORK = {
    "well": SAY + 'os.write(1, b\'[null, "b", 2]\\n[null, "end"]\\n\')\n',
    "slow": SAY + "time.sleep(0.6)\nos.write(1, b'[null, \"end\"]\\n')\n",
    "meet": SAY
    + "here = os.path.dirname(__file__)\nopen(os.path.join(here, '%d.here' % os.getpid()), 'w')\n"
    + "while sum(name.endswith('.here') for name in os.listdir(here)) < 4: time.sleep(0.01)\n"
    + "os.write(1, b'[null, \"end\"]\\n')\n",
    "hang": SAY + "time.sleep(600)\n",
    "cut": SAY + "os.write(1, b'[null, ')\ntime.sleep(600)\n",
    "crash": SAY + "os.kill(os.getpid(), 11)\n",
    "ours": SAY + "raise ValueError('no such thing')\n",
    "much": SAY
    + "for n in range(8): os.write(1, b'[0, \"c\", \"%s\"]\\n' % (b'x' * 50000))\n"
    + "os.write(1, b'[null, \"end\"]\\n')\n",
}


Started = list[tuple[int, int]]
"""Each one's process and pipe."""


@pytest.fixture(autouse=True)
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    """Add test readers next to the real ones; yields the processes that were started."""
    for name, work in WORK.items():
        body = work.replace("\n", "\n    ").rstrip()
        text = f"import os, sys, time\ndef main(*words):\n    {body}\n"
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setattr(verdict, "__path__", [*verdict.__path__, str(tmp_path)])
    begun: Started = []
    start = readers.start

    def begin(reader: Reader) -> tuple[int, int]:
        begun.append(start(reader))
        return begun[-1]

    monkeypatch.setattr(readers, "start", begin)
    yield begun
    for process, _ in begun:
        with suppress(OSError):
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)


def exit_code(process: int) -> int:
    """Wait for a reader that nothing else waited for; return its exit code."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def test_the_readers_of_the_gpu_check_all_run_at_the_same_time() -> None:
    """Each ends only after all have begun."""
    told = readers.run([Reader("meet", (str(n),), 60) for n in range(4)])
    assert [each.whole for each in told] == [True] * 4


@pytest.mark.slow
def test_a_hanging_reader_of_the_gpu_check_is_killed_and_others_finish(started: Started) -> None:
    began = time.monotonic()
    hang, cut, well = readers.run(
        [Reader("hang", (), 4), Reader("cut", (), 3.5), Reader("well", (), 60)]
    )
    assert time.monotonic() - began < 60
    assert (well.whole, well.facts["b"]) == (True, 2)
    for each in (hang, cut):
        assert (each.whole, each.last, each.late) == (False, "b", True)
        assert (each.facts["a"], each.facts["b"]) == (1, readers.LATE)
    assert [exit_code(process) for process, _ in started] == [-9, -9, 0]


def test_a_hanging_gpu_reader_keeps_no_pipe_of_its_caller_open(started: Started) -> None:
    theirs, ours = os.pipe()
    readers.start(Reader("hang", (), 60))
    os.close(ours)
    assert select.select([theirs], [], [], 5)[0]
    assert os.read(theirs, 1) == b""
    os.close(theirs)
    os.close(started[0][1])


def test_a_reader_of_the_gpu_check_exits_with_0_if_its_pipe_is_closed() -> None:
    process, pipe = readers.start(Reader("slow", (), 60))
    os.close(pipe)
    assert exit_code(process) == 0


def test_a_reader_of_the_gpu_check_with_much_output_finishes_while_another_hangs() -> None:
    much, hang = readers.run([Reader("much", (), 20), Reader("hang", (), 0.5)])
    assert much.whole
    assert len(much.facts["gpus"][0]["c"]) == 50000
    assert not hang.whole


def test_a_reader_of_the_gpu_check_that_crashes_is_noted_but_a_python_error_raised(
    started: Started,
) -> None:
    (crash,) = readers.run([Reader("crash", (), 60)])
    assert (crash.whole, crash.last, crash.late) == (False, "b", False)
    assert exit_code(started[0][0]) == -11
    with pytest.raises(OwnError, match=r"the reader ours failed: ValueError: no such thing"):
        readers.run([Reader("ours", (), 60)])
