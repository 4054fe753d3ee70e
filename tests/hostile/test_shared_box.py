"""A box of several users: who owns boxstrap's folder there owns what runs in it, and reads it."""

from tests.faults.plugin import Faults
from tests.main_job.conftest import Rent

PROFILE = """\
version: 1
gpu: {require: false}
secrets: [TOKEN_OF_MINE]
box: {workdir: WORKDIR}
train: {command: python train.py}
"""
PLANTED = (
    "mkdir -m 777 /scratch/.boxstrap",
    "mkdir -m 777 ~/theirs && chmod 755 ~ && ln -s ~/theirs /scratch/.boxstrap",
    # A link that is theirs may lead elsewhere tomorrow.
    "ln -s /home/student/mine /scratch/.boxstrap",
)
"""What another user puts where boxstrap's folder would be."""
PYTHON = '#!/bin/sh\necho ran >>/tmp/ran; exec /usr/bin/python3 "$@"\n'


def test_setup_refuses_a_boxstrap_folder_that_belongs_to_another_user_of_the_box(
    rent: Rent, faults: Faults
) -> None:
    rented = rent("nosudo")
    user, box = rented.user, rented.box
    box.run("useradd -m -s /bin/bash mallory && mkdir -m 1777 /scratch")
    box.run("mkdir -m 755 /home/student/mine && chown student /home/student/mine")
    user.env["TOKEN_OF_MINE"] = "very-secret-token"
    user.repository(boxstrap__yaml=PROFILE.replace("WORKDIR", "/scratch"))
    user.agree()
    for planting in PLANTED:
        with faults.attempt("boxstrap's folder is another user's", at="a shared box"):
            box.run(f"rm -rf /scratch/.boxstrap && runuser -u mallory -- sh -c '{planting}'")
            home = box.real("/scratch/.boxstrap")
            box.run(f"mkdir -p {home}/agent/bin {home}/box {home}/runs")
            box.write(f"{home}/agent/bin/python", PYTHON)
            box.run(f"chmod 755 {home}/agent/bin/python")
            before = box.listing([home])
            refused = rented.run("setup").must(5).err
            assert "/scratch/.boxstrap belongs to another user of this box" in refused
            assert "Nothing was changed. Set box.workdir" in refused
            for task in (("status",), ("logs",), ("stop",), ("pull",), ("exec", "--", "true")):
                assert rented.run(*task).rc in {0, 2, 5}
            assert box.listing([home]) == before
            assert not box.exists("/tmp/ran")
    # Each user has a folder of their own in there.
    box.run("runuser -u student -- mkdir /scratch/student")
    text = PROFILE.replace("WORKDIR", "/scratch/student")
    user.place.joinpath("boxstrap.yaml").write_text(text)
    rented.run("setup").must(0)
    rented.run("wait").must(0)
    # One's own folder beside others' is one's own, also behind a link of one's own.
    box.run("rm -rf /scratch/.boxstrap; runuser -u student -- ln -s /scratch/student /scratch/link")
    user.place.joinpath("boxstrap.yaml").write_text(PROFILE.replace("WORKDIR", "/scratch/link"))
    rented.run("setup").must(0)


SETTINGS = {
    "uv.toml": "index-url = 'http://127.0.0.1:1/theirs'\n",
    "pyproject.toml": "[tool.uv]\nindex-url = 'http://127.0.0.1:1/theirs'\n"
    "[tool.uv.workspace]\nmembers = ['mine/*']\n",
    ".python-version": "/scratch/python\n",
}


def test_setup_ignores_another_users_uv_settings_above_the_workdir_and_refuses_those_inside(
    rent: Rent,
) -> None:
    """Those in it are refused; above it they may come at any moment."""
    rented = rent("nosudo")
    box, user = rented.box, rented.user
    user.env["TOKEN_OF_MINE"] = "very-secret-token"
    box.run("useradd -m -s /bin/bash mallory && mkdir -m 1777 /scratch")
    box.run("runuser -u student -- mkdir /scratch/mine")
    project = "[project]\nname = 'own'\nversion = '1'\ndependencies = ['iniconfig>=2']\n"
    profile = PROFILE.replace("WORKDIR", "/scratch/mine")
    user.repository(boxstrap__yaml=profile, pyproject__toml=project)
    user.agree()
    for name, text in SETTINGS.items():
        box.write(f"/scratch/{name}", text)
        box.run(f"chown mallory /scratch/{name}")
    rented.run("setup").must(0)
    # The repository's own settings are uv's still.
    user.place.joinpath("uv.toml").write_text("no-index = true\n")
    user.place.joinpath("pyproject.toml").write_text(project.replace("']", "', 'packaging']"))
    assert "packaging was not found" in rented.run("setup").must(7).text
    user.place.joinpath("boxstrap.yaml").write_text(PROFILE.replace("WORKDIR", "/scratch"))
    for name in SETTINGS:
        box.run(f"cd /scratch && rm -f *.toml .python*; runuser -u mallory -- touch {name}")
        refused = rented.run("setup").must(5).err
        assert f"/scratch/{name} belongs to another user of this box" in refused
        assert "Nothing was changed. Set box.workdir" in refused
