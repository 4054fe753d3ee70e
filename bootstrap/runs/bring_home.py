"""Bring a run's log and record home: on from where the last pull ended, redacted as `logs` does."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import re
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bootstrap.boxes.at_home import (
    HISTORY,
    SAMPLES,
    TIMES,
    PullPlace,
    RunAtHome,
    clean_times,
    find_kept,
    usual_place,
)
from bootstrap.boxes.follow import ANSWER_S
from bootstrap.boxes.login import BoxLogin
from bootstrap.boxes.record_folder import LogAtHome, RecordFolder
from bootstrap.boxes.run import Run
from bootstrap.errors import BoxLacksError, NotSafeError, write_error
from bootstrap.link.cancel import AskedBeside, made_beside
from bootstrap.link.exchange import answer_number, run_script
from bootstrap.link.reconnecting import Backoff
from bootstrap.link.wire import PIECE, LinkLost, NoAnswer
from bootstrap.onbox.redact import Redactor
from bootstrap.runs.log_reader import HOLE, ask_start, has_hole
from bootstrap.sanitize import sanitize
from bootstrap.transfer.destination import why_refused
from bootstrap.transfer.manifest import Manifest
from bootstrap.value import with_texts

if TYPE_CHECKING:
    from bootstrap.boxes.run_history import BoxRecord, RunHistory

REPORT = "report.html"
_LINE = 160  # characters of a line with a metric
_NOTE = 4000  # characters of a note in `run.json`
_UNFINISHED = 256 * 1024
"""Bytes at the end of a live run's log in which its last line is expected to begin."""
_LINE_END = re.compile(rb"[\n\r\0]")
_MOST_PARTS = 1000
"""How often a log is asked for: again after each lost link and each part that the box dropped."""
_PAGE_S = 60.0  # seconds that making a page may take
_LONGEST = 40


Ahead = tuple["BoxRecord | None", "RunHistory"]
"""What was asked for ahead: a record with a short log, and the history."""


def ask_ahead(box: BoxLogin, run: Run, most: int) -> AskedBeside[Ahead] | None:
    """Ask for a run's record and history while the box looks at its results; not if it goes on or
    is here. What fails is asked again when it is needed.

    What reads them, and makes the page, is imported and compiled then too: that takes as long as a
    small pull.
    """
    before = find_kept(box.known, run)
    if run.goes_on or (before and _is_home(before, run)):
        return None

    def ask() -> Ahead:
        from bootstrap.boxes.run_history import ask_history, ask_record

        is_short = before is None and run.log_bytes < PIECE
        record = ask_record(box, run, at=0, most=most).whole() if is_short else None
        history = ask_history(box, run)
        from bootstrap.runs import page, report

        for template in (page.FRAME, report.TEMPLATE):
            page.compiled(template)
        return record, history

    return AskedBeside(ask)


def bring_home(  # noqa: PLR0913, PLR0917
    box: BoxLogin,
    run: Run,
    most: int,
    to: Path | None = None,
    ahead: AskedBeside[Ahead] | None = None,
    brought: Manifest | None = None,
) -> RunAtHome:
    """Bring what is not here of the run's record and log, of that `most` bytes, the newest; return
    what is here. `brought`: its results, if they came just now.

    Raises NotSafeError if it can't be written; BusyError, UnreachableError.
    """
    for part in (run.repo_key, run.name):
        if why := why_refused(part):  # a box may call a run `..`
            raise NotSafeError(f"the box's run {part} {why}.", where=box.label)
    before = _known_of(box, run)
    try:
        if _is_home(before, run):
            return before
        redact = box.redactor.text
        kept = dataclasses.replace(
            before, run=dataclasses.replace(run, command=redact(run.command))
        )
        kept = _Bringing(box, most, ahead, brought).bring(kept, to)
        kept.save()
    except OSError as error:
        place = before.place or box.options.place
        raise NotSafeError(
            f"the log of {run.name} is not here: {write_error(place, error).what}",
            where=box.name,
            hint="Make room there, and run the same command again.",
        ) from error
    return kept


def _is_home(kept: RunAtHome, run: Run) -> bool:
    return kept.is_here() and kept.is_whole(run)


def note_results(box: BoxLogin, run: Run, results: Manifest, place: Path) -> None:
    """Note which results of the run are in `place`; if that is not possible, nothing is noted."""
    word = "home" if results.files else "none"
    if results.missing or results.live:
        word = "partly"
    with contextlib.suppress(OSError):
        dataclasses.replace(
            _known_of(box, run),
            results=word,
            result_files=len(results.files),
            result_bytes=sum(one.home.size for one in results.files.values()),
            result_place=str(place),
            profile=results.origin.profile,
        ).save()


def _known_of(box: BoxLogin, run: Run) -> RunAtHome:
    known = box.known
    before = find_kept(known, run) or RunAtHome(known.name, known.created, known.host_text, run)
    is_own = run.repo_key == box.own
    key = box.here[0] if is_own else before.key
    return dataclasses.replace(before, key=key, price=known.price)


def as_it_is_now(box: BoxLogin, run: Run) -> Run:
    """Ask the box again about a run that was live. Raises as `probe`."""
    state = box.at(repo_key=run.repo_key).ask(BoxLogin.refresh)
    same = (one for one in state.runs if (one.repo_key, one.name) == (run.repo_key, run.name))
    return next(same, run)


class _Bringing:
    def __init__(
        self,
        box: BoxLogin,
        most: int,
        ahead: AskedBeside[Ahead] | None = None,
        brought: Manifest | None = None,
    ) -> None:
        self._box, self._most, self._brought = box, most, brought
        self._record: BoxRecord | None = None
        self._told: RunHistory | None = None
        if ahead and (told := ahead.answer()):
            self._record, self._told = told
        self._looked_at = -1  # where zeros in the log were last found to be the program's own
        # As long as the secret: the times of the log stay right.
        self._redactor = Redactor(box.redactor.secrets, same_length=True)

    def bring(self, kept: RunAtHome, to: Path | None) -> RunAtHome:
        """Raises OSError, and as `bring_home`."""
        place = self._place(kept, to)
        with RecordFolder(place.base, place.inside, kept) as folder:
            with folder.open_log() as log:
                record = self._take(kept.run, log)
                end = record.end
                if kept.run.goes_on:
                    log.cut_line(_UNFINISHED)
                    end = log.at
                log.sync()
                parts = tuple(part for part in log.parts if part[1])
            notes = {name: self._redactor.redact(text) for name, text in record.notes.items()}
            if TIMES in notes:
                folder.put(TIMES, clean_times(notes[TIMES]))
            if SAMPLES in notes:
                folder.put(SAMPLES, sanitize(notes[SAMPLES]))
            kept = dataclasses.replace(
                kept,
                place=str(folder.place),
                log=parts,
                log_end=end,
                metric=" ".join(self._text(record.metric).split())[:_LINE],
                seen=time.time(),
                box_time=self._box.state.now,
                profile=kept.profile or _profile(record.notes),
                results=kept.results
                or ("" if record.notes.get("results", b"").strip() else "none"),
            )
            if history := self._history(kept.run):
                folder.put(HISTORY, history.model_dump_json())
                if not kept.run.goes_on:
                    self._put_page(folder, kept, history)
            folder.put("run.json", kept.text(self._notes(notes)))
        return kept

    def _place(self, kept: RunAtHome, to: Path | None) -> PullPlace:
        """Return where the run's record is, else beside its results, in its own repository."""
        run, box = kept.run, kept.box
        there = Path(kept.place) if kept.place else None
        if there and there.parent.is_dir():
            return PullPlace.again(there.parent)
        place = usual_place(run, box, self._box.own, self._box.options.place, to)
        place.make()
        return place

    def _take(self, run: Run, log: LogAtHome) -> BoxRecord:
        """Take the log, across lost links and over parts that the box drops meanwhile."""
        from bootstrap.boxes.run_history import ask_record  # late: `ask_ahead` imports it

        box, backoff = self._box, Backoff(cancel=self._box.cancel)
        at = log.at
        for _ in range(_MOST_PARTS):
            try:
                known, self._record = self._record if at == 0 else None, None
                record = known or ask_record(box, run, at=at, most=self._most)
                with contextlib.closing(record):
                    log.begin_at(record.begin, self._most - record.length)
                    is_cut = record.begin > at and record.length == self._most
                    at = self._take_log(record, run, log, is_cut=is_cut)
                if at >= record.end:
                    return record
            except LinkLost as lost:
                log.cut_line(_UNFINISHED)  # it may have been cut within a secret
                at = log.at
                backoff.lost(lost, news=at)
                box.link.reconnect(lost)
        raise NoAnswer(
            f"its log of {run.name} changes each time that it is asked for.",
            where=box.label,
            hint="Log in with ssh and look at what it does.",
        )

    def _take_log(self, record: BoxRecord, run: Run, log: LogAtHome, *, is_cut: bool) -> int:
        """Take the log up to a part that the box dropped; return from where to go on.

        `is_cut`: the limit lies in a line, perhaps in a secret of it: this line is left out.
        """
        stream, at = self._redactor.stream(), record.begin
        for piece in record.pieces():
            if is_cut:
                end = _LINE_END.search(piece)
                left_out = end.end() if end else len(piece)
                at += left_out
                is_cut = not end and at - record.begin < _UNFINISHED
                log.begin_at(at, self._most)
                piece = piece[left_out:]  # noqa: PLW2901 - the rest of it
            if has_hole(piece) and (hole := at + piece.find(HOLE)) != self._looked_at:
                log.write(stream.feed(piece[: hole - at]) + stream.flush())
                self._looked_at = hole
                return max(hole, self._goes_on_at(run, hole))
            log.write(stream.feed(piece))
            at += len(piece)
        log.write(stream.flush())
        return at

    def _goes_on_at(self, run: Run, hole: int) -> int:
        """Ask where the log goes on that has a hole there."""
        query = ask_start(self._box.workdir, run.log, hole)
        answer = run_script(self._box.wire, query, timeout=ANSWER_S)
        return answer_number(answer[:_LONGEST].strip()) or 0

    def _history(self, run: Run) -> RunHistory | None:
        """Return what a report is made of; None if the box can't tell: the log is here anyway."""
        from bootstrap.boxes.run_history import RunHistory, ask_history

        box = self._box
        try:
            history = self._told or box.ask(partial(ask_history, run=run))
        except (NoAnswer, BoxLacksError):
            return None
        clean = with_texts(history.model_dump(mode="json"), box.redactor.text)
        with contextlib.suppress(ValueError):
            return RunHistory.model_validate_json(json.dumps(clean))
        return None

    def _put_page(self, folder: RecordFolder, kept: RunAtHome, history: RunHistory) -> None:
        from bootstrap.runs.report import report_at_home, report_page

        def make() -> str:
            whole = report_at_home(kept, history, self._brought)
            return report_page(whole, self._box.redactor.text)

        page = made_beside(make, _PAGE_S)
        if isinstance(page, str):
            folder.put(REPORT, page)
        else:
            self._box.reporter.warn(f"no report of {kept.run.name} was made: {page.what}")

    def _notes(self, notes: dict[str, bytes]) -> dict[str, str]:
        own = {name: text for name, text in notes.items() if name not in (TIMES, SAMPLES)}
        return {name: self._text(text).strip()[:_NOTE] for name, text in own.items()}

    def _text(self, text: bytes) -> str:
        return self._box.redactor.text(sanitize(text))


def _profile(notes: Mapping[str, bytes]) -> str:
    """Return the digest of the run's settings, as `onbox/transfer/serve.py` makes it."""
    from bootstrap.boxes.run_history import OF_PROFILE

    texts = {name: notes.get(name, b"").decode("utf-8", "surrogateescape") for name in OF_PROFILE}
    lines = {
        name: text.removesuffix("\n").split("\n") if text else [] for name, text in texts.items()
    }
    noted = "".join(f"{name}\0{lines[name]}\n" for name in OF_PROFILE)
    return hashlib.sha256(noted.encode("utf-8", "surrogateescape")).hexdigest()
