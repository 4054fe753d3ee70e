"""Readers run at the same time, and one that hangs costs no more than its own limit."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bootstrap.box import verify_readers
from bootstrap.box.verify_readers import OwnError, Reader

SAY = 'import os, sys, time\nos.write(1, b\'[null, "a"]\\n[null, "a", 1]\\n[null, "b"]\\n\')\n'
SCRIPTS = {
    "well.py": SAY + 'os.write(1, b\'[null, "b", 2]\\n[null, "end"]\\n\')\n',
    "slow.py": SAY + "time.sleep(0.6)\nos.write(1, b'[null, \"end\"]\\n')\n",
    "hang.py": SAY + "time.sleep(60)\n",
    "cut.py": SAY + "os.write(1, b'[null, ')\ntime.sleep(60)\n",
    "crash.py": SAY + "os.kill(os.getpid(), 11)\n",
    "ours.py": SAY + "raise ValueError('no such thing')\n",
    "much.py": SAY
    + "for n in range(8): os.write(1, b'[0, \"c\", \"%s\"]\\n' % (b'x' * 50000))\n"
    + "os.write(1, b'[null, \"end\"]\\n')\n",
}


Started = list[subprocess.Popen[bytes]]


@pytest.fixture(autouse=True)
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    """The scripts in the place of ours, and the processes that were begun."""
    for name, text in SCRIPTS.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(verify_readers, "HERE", tmp_path)
    begun: Started = []
    start = verify_readers.start

    def begin(reader: Reader) -> subprocess.Popen[bytes]:
        begun.append(start(reader))
        return begun[-1]

    monkeypatch.setattr(verify_readers, "start", begin)
    yield begun
    for process in begun:
        process.kill()
        if process.stdout and not process.stdout.closed:
            process.communicate()


def test_all_work_at_the_same_time() -> None:
    began = time.monotonic()
    told = verify_readers.run([Reader("slow.py", (str(n),), 30) for n in range(4)])
    assert time.monotonic() - began < 2.2  # 0.6 each
    assert [each.whole for each in told] == [True] * 4


def test_a_hang_is_left_behind_and_takes_nobody_along(started: Started) -> None:
    began = time.monotonic()
    hang, cut, well = verify_readers.run(
        [Reader("hang.py", (), 0.7), Reader("cut.py", (), 0.5), Reader("well.py", (), 5)]
    )
    assert time.monotonic() - began < 3
    assert (well.whole, well.facts["b"]) == (True, 2)
    for each in (hang, cut):
        assert (each.whole, each.last, each.exit_code) == (False, "b", None)
        assert (each.facts["a"], each.facts["b"]) == (1, verify_readers.LATE)
    assert [process.wait(timeout=5) for process in started] == [-9, -9, 0]


def test_who_has_much_to_tell_waits_for_nobody() -> None:
    much, hang = verify_readers.run([Reader("much.py", (), 20), Reader("hang.py", (), 0.5)])
    assert much.whole
    assert len(much.facts["gpus"][0]["c"]) == 50000
    assert not hang.whole


def test_a_signal_is_told_and_a_fault_of_ours_is_raised() -> None:
    (crash,) = verify_readers.run([Reader("crash.py", (), 5)])
    assert (crash.whole, crash.exit_code) == (False, -11)
    with pytest.raises(OwnError, match=r"the reader ours\.py failed: ValueError: no such thing"):
        verify_readers.run([Reader("ours.py", (), 5)])
