from telling import Clock, ev

from bootstrap.steps.events import Event
from bootstrap.ui.steps import Progress, Steps, progress_words


def taken(*events, clock=None) -> Steps:
    steps = Steps(clock or Clock())
    for event in events:
        steps.take(event)
    return steps


def test_a_note_of_a_setup_step_is_shown_at_once_and_still_there_when_the_step_is_done():
    note = {"code": "image-reused", "count": 12, "have": 795, "secs": 19}
    said = "12 packages of the image are reused: about 795 MB and 19 s saved"
    steps = taken(ev(0, "python", "start"), ev(1, "python", "note", **note))
    assert not steps.take(ev(2, "python", "note", **note))
    steps.take(ev(3, "python", "progress", done=14, total=14, unit="packages"))
    row = steps.rows["python"]
    assert row.words()[0].startswith("14 of 14 packages")
    steps.take(ev(4, "python", "ok"))
    assert row.words() == [f"14 packages; {said}", "14 packages"]
    # A step that starts again has no note.
    steps.take(ev(9, "python", "start"))
    assert row.noted == ""


def test_the_time_of_a_step_is_of_this_machines_clock_from_its_start_also_after_a_lost_link():
    clock = Clock()
    clock.now = 500.0  # everything until the box's 160 arrives at once
    steps = taken(ev(100, "repo", "start"), ev(160, "gpu", "start"), clock=clock)
    clock.now = 501.0
    steps.take(ev(120, "repo", "progress", done=1))  # and this one late
    assert steps.elapsed(steps.rows["repo"]) == 61


def test_repeated_events_of_a_setup_step_are_shown_once():
    steps = taken()
    start, ok = ev(0, "repo", "start"), ev(1, "repo", "ok")
    assert [steps.take(each) for each in (start, start, ok, ok)] == [True, False, True, False]
    assert steps.take(ev(2, "repo", "start"))
    assert steps.rows["repo"].seconds is None


def test_a_repeated_warning_of_a_setup_is_shown_once():
    steps = taken()
    news = []
    for t in range(3):
        steps.take(ev(t, "tools", "start"))
        news.append(steps.take(ev(t, "tools", "warn", code="no-python")))
    assert news == [True, False, False]
    assert len(steps._warned) == 1


def test_a_setup_step_names_the_process_it_waits_for_until_it_continues():
    steps = taken(
        ev(0, "tools", "start"), ev(20, "tools", "wait", code="dpkg-locked", pid=812, secs=20)
    )
    assert "process 812" in steps.rows["tools"].words()[0]
    steps.take(ev(30, "tools", "progress", done=1, total=3, unit="packages"))
    assert steps.rows["tools"].words()[0] == "1 of 3 packages"


def test_progress_of_a_transfer_has_shorter_texts_for_narrow_terminals():
    progress = Progress()
    assert progress_words(progress) == []
    progress.report(0, 38e6, "bytes", 0)
    progress.report(12e6, 38e6, "bytes", 1)
    assert progress_words(progress) == [
        "12 of 38 MB, 12 MB/s, 2.2 s left",
        "12 of 38 MB, 2.2 s left",
        "32%, 2.2 s left",
        "32%",
    ]
    progress.report(38e6, 38e6, "bytes", 1.5)
    assert progress_words(progress)[1] == "38 of 38 MB"
    progress.report(0, 1, "commands", 1.6)
    progress.report(1, 1, "commands", 1.9)
    assert progress_words(progress)[0] == "1 of 1 commands"
    progress.report(1200, None, "objects", 2)
    progress.report(2400, None, "objects", 3)
    assert progress_words(progress)[:2] == ["2,400 objects, 1,200/s", "2,400 objects"]


def test_a_step_shows_why_it_runs_even_if_its_progress_arrived_before_the_reason():
    sent = ev(1, "repo", "progress", done=1, total=5, unit="objects")
    steps = taken(sent)
    assert steps.take(ev(2, "repo", "start", why="commit"))
    assert steps.rows["repo"].words() == ["new commit"]
    assert not steps.take(ev(3, "repo", "start", why="commit"))


def test_progress_of_a_transfer_of_many_files_shows_their_number():
    steps = taken(ev(0, "python", "start"))
    for t, done, files in ((1, 10e6, 100), (2, 20e6, 1200)):
        sent = {"done": done, "total": 40e6, "unit": "bytes", "files": files, "all_files": 2000}
        steps.take(ev(t, "python", "progress", **sent))
    assert steps.rows["python"].words()[:3] == [
        "1,200 of 2,000 files, 20 of 40 MB, 10 MB/s, 2.0 s left",
        "20 of 40 MB, 10 MB/s, 2.0 s left",
        "20 of 40 MB, 2.0 s left",
    ]


def test_push_outside_a_setup_draws_no_setup_row_above_its_progress():
    push = Steps()
    push.take(Event("", 0, 1.0, "push", "progress", {"done": 1, "total": 5, "unit": "bytes"}))
    assert push.setup.started is None
    push.take(ev(2, "repo", "start"))
    assert push.setup.started == 2
