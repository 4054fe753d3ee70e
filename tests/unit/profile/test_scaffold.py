"""The first boxstrap.yaml loads as generated, whatever is in it; see also `repositories/*.txt`."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bootstrap.profile.load import read_profile
from bootstrap.profile.scaffold import write_profile
from bootstrap.profile.survey.environment import Environment
from bootstrap.profile.survey.facts import Facts

ODD = st.none() | st.text(max_size=20)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(name=st.text(max_size=20), url=ODD, requires=ODD)
def test_init_writes_odd_text_of_a_repository_only_into_comments(here, name, url, requires):
    text = write_profile(Facts(name, url=url, environment=Environment(requires_python=requires)))
    (here / "boxstrap.yaml").write_text(text, encoding="utf-8")
    assert read_profile(None, repo_root=here).profile.env == {}


def test_every_commented_key_that_init_writes_loads_when_uncommented(here):
    """Uncommented, the sketch still loads."""
    text = write_profile(Facts("x"))
    keys = ("extends", "git", "url", "ref", "access", "gpu", "count", "name", "min_memory_gib")
    keys += ("secrets", "train", "command", "results", "version", "requirements")
    lines = []
    for line in text.splitlines():
        bare = line.replace("# ", "", 1)
        is_key = bare.strip().partition(":")[0] in keys
        lines.append(bare if is_key else line)
    (here / "boxstrap.yaml").write_text("\n".join(lines), encoding="utf-8")
    profile = read_profile(None, repo_root=here).profile
    assert profile.git.access == "url"
    assert profile.gpu.count == 1
    assert profile.train.command == "python train.py"
