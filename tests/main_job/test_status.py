"""`status` of all boxes of a repository: none hides another, and it says what happened."""

from tests.main_job.conftest import Rent


def test_status_shows_all_boxes_of_the_repository_also_unreachable_ones(rent: Rent) -> None:
    good, bad = rent("vast", used=True), rent("vast", used=True)
    user = good.user
    user.repository()
    good.run("setup", "--name", "good").must(0)
    needs = ("setup", "--name", "bad", "--set", "gpu.require=true")
    refused = bad.run(*needs).must(6)
    assert "no GPU" in refused.text
    assert "Nothing was built. Return this box" in refused.err
    assert refused.text.lower().count("return this box") == 1
    assert not bad.box.exists(f"{bad.tree}/.venv")
    assert not bad.box.exists(f"{bad.folder}/runs")
    told = bad.run(*needs, "--json").must(6).json()
    assert (told["exit"], told["verdict"]["verdict"]) == (6, "return")

    shown = user.run("status").must(0).out
    assert "good: is set up" in shown
    assert "homework/train-1  finished" in shown
    assert "bad: to be returned: no GPU" in shown

    bad.box.kill_sshd()
    told = user.run("status").must(0).out
    assert "good: is set up" in told
    assert "bad: " in told
    document = user.run("status", "--json").must(0).json()
    boxes = {box["box"]: box for box in document["boxes"]}
    assert boxes["good"]["runs"][0]["repository"] == "homework"
    assert boxes["bad"]["error"]["exit"] == 3

    # A box that was reachable a moment ago is not taken for one that was just rented.
    alone = user.run("status", "--host", "bad").must(3)
    assert "You were last on this box" in alone.err
    assert "just rented" not in alone.err
    good.box.kill_sshd()
    assert "You were last on this box" in user.run("status").must(3).err
