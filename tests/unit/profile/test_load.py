"""Finding, extending and completing profiles, `--set`, and where each value comes from."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bootstrap.errors import ProfileError
from bootstrap.profile import Profile
from bootstrap.profile.load import origin_lines, read_profile
from bootstrap.profile.values import ordinary
from bootstrap.profile.yaml_source import WrongProfileError
from tests.cases import read_cases


@pytest.mark.parametrize(
    ("name", "workdir", "user", "require"),
    [
        ("vast", "/workspace", "root", True),
        ("runpod", "/workspace", "root", True),
        ("lambda", "~", "ubuntu", True),
        ("paperspace", "~", "paperspace", True),
        ("ec2", "~", "ubuntu", True),
        ("hf", "~", None, True),
        ("gcp", "~", "ubuntu", True),
        ("azure", "~", "azureuser", True),
        ("ssh", "~", None, True),
        ("local", "~/boxstrap", None, False),
        ("demo", "~/boxstrap/demo", None, False),
    ],
)
def test_each_shipped_profile_has_the_expected_workdir_and_user(name, workdir, user, require):
    loaded = read_profile(name)
    profile = loaded.profile
    assert (profile.box.workdir, profile.ssh.user, profile.gpu.require) == (workdir, user, require)
    assert (profile.name, loaded.needs_provider) == (name, False)
    assert profile.provider.name != Profile().provider.name
    is_rented = name not in ("ssh", "local", "demo")
    assert bool(profile.provider.console) is is_rented


def test_a_profile_path_comes_before_the_users_profile_and_that_before_shipped(write, config):
    assert read_profile("vast").profile.box.workdir == "/workspace"
    write("extends: vast\nbox: {workdir: /own}", "vast.yaml", config)
    own = read_profile("vast")
    assert (own.profile.box.workdir, own.profile.ssh.user) == ("/own", "root")
    write("box: {workdir: /here}", "vast.yaml")
    assert read_profile("vast").profile.box.workdir == "/own"
    assert read_profile("vast.yaml").profile.box.workdir == "/here"
    assert read_profile("./vast.yaml").profile.name == "vast"


def test_a_profile_file_without_the_suffix_yaml_is_read_by_its_name(write):
    write("box: {workdir: /here}", "plain")
    assert read_profile("plain").profile.box.workdir == "/here"


def test_the_repositorys_boxstrap_yaml_is_read_when_no_profile_is_given(write, tmp_path):
    write("box: {workdir: /mine}", "boxstrap.yaml", tmp_path / "repo")
    loaded = read_profile(None, repo_root=tmp_path / "repo")
    assert loaded.profile.name == "boxstrap.yaml"
    assert loaded.chain == (tmp_path / "repo" / "boxstrap.yaml",)
    assert read_profile("vast", repo_root=tmp_path / "repo").profile.box.workdir == "/workspace"


def test_a_boxstrap_yaml_that_is_a_dangling_symlink_is_an_error_and_not_ignored(here):
    (here / "boxstrap.yaml").symlink_to("nowhere")
    with pytest.raises(ProfileError) as caught:
        read_profile(None, repo_root=here)
    assert caught.value.text() == "boxstrap.yaml: can't be read: No such file or directory"


def test_without_a_profile_the_shipped_one_of_the_boxs_provider_is_read(here):
    loaded = read_profile(None, sets=["gpu.count=2"], repo_root=here)
    assert loaded.needs_provider
    assert (loaded.chain, loaded.profile.name) == ((), "")
    vast = loaded.for_provider("vast")
    assert vast == read_profile("vast", sets=["gpu.count=2"])
    assert (vast.profile.name, vast.profile.gpu.count) == ("vast", 2)


def test_a_profile_without_extends_gets_missing_values_of_the_boxs_provider(write, here):
    write("gpu: {count: 4}\nssh: {user: me}", "boxstrap.yaml")
    loaded = read_profile(None, sets=["env.A=b"], repo_root=here)
    assert loaded.needs_provider
    vast = loaded.for_provider("vast")
    assert (vast.profile.box.workdir, vast.profile.ssh.user) == ("/workspace", "me")
    assert (vast.profile.env, vast.profile.name) == ({"A": "b"}, "boxstrap.yaml")
    assert str(vast.origins["box.workdir"]) == "shipped vast.yaml:19"
    assert vast.for_provider("runpod") is vast


def test_a_profile_that_extends_runpod_stays_so_on_a_box_of_vast(write):
    write("extends: runpod")
    loaded = read_profile("./a.yaml")
    assert not loaded.needs_provider
    assert loaded.for_provider("vast") is loaded


def test_extended_profiles_are_merged_and_each_value_has_its_file_and_line(write, here):
    write("extends: vast\npackages: [a, b]\nenv: {A: base, B: base}", "base.yaml", here / "lib")
    write("extends: base.yaml\nenv: {B: mid}\npackages: [c]", "mid.yaml", here / "lib")
    write("extends: lib/mid.yaml\nenv: {C: top}\ntrain: {command: x}")
    loaded = read_profile("a.yaml")
    assert loaded.profile.env == {"A": "base", "B": "mid", "C": "top"}
    assert loaded.profile.packages == ["c"]
    assert loaded.profile.box.workdir == "/workspace"
    assert [path.name for path in loaded.chain] == ["a.yaml", "mid.yaml", "base.yaml", "vast.yaml"]
    shipped = {"version": 3, "provider.name": 6, "provider.console": 8, "provider.account": 9}
    shipped |= {"provider.box_id": 10, "provider.detect.env": 12, "provider.detect.files": 13}
    shipped |= {"provider.advice.return_box": 15, "provider.advice.shm": 16, "box.workdir": 19}
    shipped |= {"ssh.user": 22, "gpu.require": 29}
    assert {key: str(place) for key, place in loaded.origins.items()} == {
        **{key: f"shipped vast.yaml:{line}" for key, line in shipped.items()},
        "packages": "lib/mid.yaml:3",
        "env.A": "lib/base.yaml:3",
        "env.B": "lib/mid.yaml:2",
        "env.C": "a.yaml:2",
        "extends": "a.yaml:1",
        "train.command": "a.yaml:3",
    }


def test_nine_profiles_that_extend_one_another_give_an_error_with_file_and_line(write):
    for number in range(8):
        write(f"extends: ./{number + 1}.yaml", f"{number}.yaml")
    write("version: 1", "8.yaml")
    assert len(read_profile("1.yaml").chain) == 8
    with pytest.raises(ProfileError) as caught:
        read_profile("0.yaml")
    assert caught.value.text() == "7.yaml:1: extends: more than 8 files"


def test_train_null_removes_the_training_of_the_extended_profile(write):
    write("train: {command: x}", "base.yaml")
    write("extends: base.yaml\ntrain: null")
    assert read_profile("a.yaml").profile.train is None
    write("extends: a.yaml\ntrain: {command: y}", "b.yaml")
    assert read_profile("b.yaml").profile.train.command == "y"


def test_an_empty_section_of_a_profile_leaves_the_values_of_the_extended_one(write):
    write("extends: vast\nbox:\n  # workdir: /x\nenv:\ngpu:\n")
    loaded = read_profile("a.yaml")
    assert loaded.profile.box.workdir == "/workspace"
    assert loaded.profile.env == {}


def test_a_profile_with_only_a_comment_has_all_defaults(write):
    write("# nothing yet\n")
    assert read_profile("a.yaml").profile == Profile(name="a")


def test_numbers_and_booleans_in_a_profile_become_python_int_float_and_bool(write):
    write("gpu: {count: 2, min_memory_gib: 40, require: false}")
    gpu = read_profile("a.yaml").profile.gpu
    assert (gpu.count, gpu.min_memory_gib, gpu.require) == (2, 40.0, False)
    write("gpu: {min_memory_gib: 23.5}")
    assert read_profile("a.yaml").profile.gpu.min_memory_gib == 23.5


def test_a_trailing_slash_of_a_folder_in_a_profile_is_removed_unless_it_is_the_root(write):
    for given, means in (("/workspace//", "/workspace"), ("/", "/"), ("//", "/"), ("~/w/", "~/w")):
        write(f"box: {{workdir: {given}}}\npython: {{venv: .venv/}}")
        profile = read_profile("a.yaml").profile
        assert (profile.box.workdir, profile.python.venv) == (means, ".venv")


def test_the_name_of_a_profile_is_its_file_name_with_unsafe_characters_replaced(write):
    write("version: 1", "my box;$(id).yaml")
    assert read_profile("./my box;$(id).yaml").profile.name == "my-box---id-"


def test_changing_a_value_of_a_loaded_profile_raises_an_error():
    profile = read_profile("vast").profile
    with pytest.raises(AttributeError, match="stays as it was read"):
        profile.version = 1


def test_every_profile_key_is_described_in_one_short_line():
    for line in origin_lines(Profile(), {}, described=True):
        assert line.count(" | ") == 1
        assert len(line.rpartition(" | ")[2]) in range(10, 100)


def test_plan_show_origin_names_file_and_line_or_set_option_of_each_value(write, here):
    write("python:\n  version: '3.11'\nenv: {A: x, B: 'ü'}", "boxstrap.yaml")
    loaded = read_profile(None, sets=["train.command=python train.py --lr 1e-3"], repo_root=here)
    shown = origin_lines(loaded.profile, loaded.origins)
    assert shown[0].split() == ["version:", "1", "#", "default"]
    assert len({line.index("  # ") for line in shown if len(line) < 60}) > 0
    table = dict(line.split("  # ") for line in shown)
    assert {key.strip(): origin for key, origin in table.items() if origin != "default"} == {
        'python.version: "3.11"': "boxstrap.yaml:2",
        'env.A: "x"': "boxstrap.yaml:3",
        'env.B: "ü"': "boxstrap.yaml:3",
        'train.command: "python train.py --lr 1e-3"': "--set",
    }
    assert not [line for line in shown if line.startswith("name")]


def test_a_profile_that_sets_every_key_but_lock_records_an_origin_for_each_key(write):
    write(Path(__file__).with_name("every_key.yaml").read_text())
    loaded = read_profile("a.yaml")
    untold = {
        line.partition(":")[0] for line in origin_lines(loaded.profile, loaded.origins)
    } - set(loaded.origins)
    assert untold == {"python.lock"}
    assert loaded.profile.git.user.email == "me@example.org"
    assert str(loaded.origins["train.results"]) == "a.yaml:78"


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="this machine has no folder in memory")
def test_a_profile_in_dev_shm_may_extend_another_there() -> None:
    with TemporaryDirectory(dir="/dev/shm") as folder:
        Path(folder, "boxstrap.yaml").write_text("version: 1\nextends: base.yaml\n")
        Path(folder, "base.yaml").write_text("version: 1\nbox: {workdir: /elsewhere}\n")
        assert read_profile(f"{folder}/boxstrap.yaml").profile.box.workdir == "/elsewhere"


KERNELS = ["/dev", "//dev/fd/0", "/dev/shm/../stdin", "/dev/shmem", "/sys/x", "//proc/1/environ"]


@pytest.mark.parametrize("path", [*KERNELS, "/proc/thread-self/cwd/x"])
def test_a_profile_path_in_proc_sys_or_dev_gives_the_error_no_ordinary_file(path: str) -> None:
    for other in ("/dev/shm/work/boxstrap.yaml", "/devs/x", "dev/x", "/"):
        assert ordinary(other) == other
    with pytest.raises(ValueError, match="is no ordinary file"):
        ordinary(path)


@pytest.mark.parametrize(
    ("name", "names"),
    [("A100", ["A100"]), ("[H100, RTX 4090]", ["H100", "RTX 4090"]), ("'A, B'", ["A", "B"])],
)
def test_several_gpu_names_in_a_profile_are_read_in_their_order(write, name, names):
    write(f"gpu: {{name: {name}}}")
    assert [*read_profile("a.yaml").profile.gpu.names] == names


@pytest.mark.parametrize("name", ["[]", "[A100, 3.5]", "['a;b']", "[[A100]]", "','", "'A100,'"])
def test_an_empty_or_malformed_gpu_name_gives_a_profile_error(write, name):
    write(f"gpu: {{name: {name}}}")
    with pytest.raises(ProfileError, match=r"gpu\.name"):
        read_profile("a.yaml")


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("python.version=3.10", "python.version", "3.10"),
        ("git.ref=0600", "git.ref", "0600"),
        ("git.ref=on", "git.ref", "on"),
        ("git.ref=a=b", "git.ref", "a=b"),
        ("git.ref=null", "git.ref", None),
        ("train.command=python train.py --lr=1e-3", "train.command", "python train.py --lr=1e-3"),
        ("train.command=null", "train.command", "null"),
        ("env.A=", "env.A", ""),
        ("env.A=b=c", "env.A", "b=c"),
        ("env.HF_TOKEN_FILE=null", "env.HF_TOKEN_FILE", "null"),
        ("gpu.count=2", "gpu.count", 2),
        ("gpu.name=H100, A100", "gpu.name", "H100, A100"),
        ("gpu.name=[H100, RTX 4090]", "gpu.name", "H100, RTX 4090"),
        ("gpu.count=null", "gpu.count", None),
        ("gpu.require=false", "gpu.require", False),
        ("gpu.min_memory_gib=40", "gpu.min_memory_gib", 40.0),
        ("packages=ffmpeg", "packages", ["ffmpeg"]),
        ("packages=a, b", "packages", ["a", "b"]),
        ("packages=[a, 'b']", "packages", ["a", "b"]),
        ("packages=[]", "packages", []),
        ("packages=", "packages", []),
        ("python.requirements=null", "python.requirements", None),
        ("python.extras=[3.10]", "python.extras", ["3.10"]),
        ("train=null", "train", None),
    ],
)
def test_a_value_of_the_set_option_gets_the_type_of_its_profile_key(write, text, key, value):
    write("train: {command: x}\ngit: {ref: main}\ngpu: {count: 1}\npython: {requirements: [r]}")
    loaded = read_profile("a.yaml", sets=[text])
    found = loaded.profile.as_dict()
    for step in key.split("."):
        found = found[step]
    assert found == value
    assert type(found) is type(value)
    assert str(loaded.origins[key]) == "--set"


def test_the_set_option_overrides_the_profile_and_a_later_set_option_an_earlier_one(write):
    write("gpu: {count: 1}\nenv: {A: x, B: x}")
    loaded = read_profile("a.yaml", sets=["gpu.count=2", "env.A=y", "gpu.count=3"])
    assert loaded.profile.gpu.count == 3
    assert loaded.profile.env == {"A": "y", "B": "x"}


UNREADABLE = [
    ("--set packages: ", "packages=[a"),
    ("--set", "env.A\x1b=x"),
    ("--set git.ref: '\\udcff' is not UTF-8 text", "git.ref=\udcff"),
]
WRONG = read_cases(Path(__file__).with_name("sets.txt"))[1:]


@pytest.mark.parametrize(("says", "text"), [*WRONG, *UNREADABLE])
def test_a_wrong_set_option_gives_an_error_that_names_its_key(write, text, says):
    write("version: 1")
    with pytest.raises(WrongProfileError) as caught:
        read_profile("a.yaml", sets=[text])
    said = caught.value.text()
    assert said == says if not says.endswith((": ", "--set")) else said.startswith(says)
    assert all(line.isprintable() for line in said.splitlines())


def test_mistakes_of_a_profile_file_and_of_set_options_are_reported_together(write):
    write("gpu: {count: x}")
    with pytest.raises(WrongProfileError) as caught:
        read_profile("a.yaml", sets=["box=1", "git.ref=-x"])
    assert caught.value.text().splitlines() == [
        "a.yaml:1: gpu.count: expected a whole number, got the text 'x'",
        "--set box: this is a section; set one of box.workdir, box.min_cpus, "
        "box.min_memory_gib, box.min_shm_gib, box.min_disk_gib, box.price, box.arch, "
        "box.image, box.disk_gb, box.volume",
        "--set git.ref: '-x' starts with a dash: a program would take it for an option",
    ]
