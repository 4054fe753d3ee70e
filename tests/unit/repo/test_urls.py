"""Addresses: what is allowed, what is refused and why, and that no credential stays."""

import re
import string
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bootstrap.errors import BoxstrapError, ProfileError, UsageError
from bootstrap.repo.git import Folders, GitError
from bootstrap.repo.mirror import git_credentials
from bootstrap.repo.names import shown, unquoted
from bootstrap.repo.urls import UrlKind, as_https, check_url, repository_name, without_user_info
from bootstrap.value import document


@pytest.mark.parametrize(
    ("url", "kind", "https", "name"),
    [
        ("https://github.com/me/x.git", UrlKind.HTTPS, "https://github.com/me/x.git", "x"),
        ("https://u:t0k@github.com/me/x", UrlKind.HTTPS, "https://github.com/me/x", "x"),
        ("https://host:8443/a/b/", UrlKind.HTTPS, "https://host:8443/a/b/", "b"),
        ("https://[::1]:80/x", UrlKind.HTTPS, "https://[::1]:80/x", "x"),
        ("https://host/caf%C3%A9", UrlKind.HTTPS, "https://host/caf%C3%A9", "cafe"),
        ("https://host/café", UrlKind.HTTPS, "https://host/café", "cafe"),
        ("http://host/x", UrlKind.HTTP, "https://host/x", "x"),
        ("git://host/x.git", UrlKind.GIT, "https://host/x.git", "x"),
        ("git@github.com:me/x.git", UrlKind.SSH, "https://github.com/me/x.git", "x"),
        ("github-work:me/x", UrlKind.SSH, "https://github-work/me/x", "x"),
        ("git@[::1]:x", UrlKind.SSH, "https://[::1]/x", "x"),
        ("git@host:/srv/x", UrlKind.SSH, "https://host/srv/x", "x"),
        ("ssh://git@host:2222/~me/x.git", UrlKind.SSH, "https://host/~me/x.git", "x"),
        ("ssh://git:pw@host/x", UrlKind.SSH, "https://host/x", "x"),
        ("ssh://git@ssh.github.com:443/me/x", UrlKind.SSH, "https://github.com/me/x", "x"),
    ],
)
def test_each_valid_git_url_gives_its_scheme_https_form_and_repository_name(
    url: str, kind: UrlKind, https: str, name: str
) -> None:
    assert check_url(url) is kind
    assert as_https(url) == https
    assert repository_name(url) == name


def test_only_http_and_git_urls_warn_that_they_are_unencrypted() -> None:
    assert {kind for kind in UrlKind if kind.warning} == {UrlKind.HTTP, UrlKind.GIT}


REFUSED = {
    "empty": [""],
    "`ext::` runs a helper": ["ext::sh -c id", "ext::sh"],
    "`fd::` runs a helper": ["fd::17"],
    "`x::` runs a helper": ["x::y"],
    "runs a helper": ["foo+1::https://host/x"],
    "path of this machine": ["file:///srv/x", "/srv/x.git", "./x:y", "../x", "x", "C:/x", "C:\\x"],
    "did you mean https://github.com/me/x": ["github.com/me/x"],
    "not a way": ["ftp://host/x"],
    "lower case": ["HTTPS://host/x"],
    "old spelling": ["git+ssh://host/x"],
    "two slashes": ["https:/host/x"],
    "starts with a dash": ["-u./x:y", "--upload-pack=touch:x"],
    "not a host": ["ssh://-oProxyCommand=id/x", "git@-oProxyCommand=id:x"],
    "user name": ["ssh://-l@host/x"],
    "path starts with a dash": ["host:-x", "ssh://host/-x"],
    "a space": ["https://host/a b"],
    "U+0009": ["https://host/a\tb"],
    "U+000A": ["https://host/a\nb"],
    "U+001B": ["https://host/a\x1b[2J"],
    "U+202E": ["https://host/a\u202eb"],
    "U+200B": ["https://host/a\u200bb"],
    "U+DCE9": ["https://host/a\udce9b"],
    "stands for no printable": ["https://host/a%0ab", "https://host/a%zz"],
    "`$`": ["https://host/$(id)"],
    "`;`": ["https://host/a;id"],
    "```": ["https://host/`id`"],
    "`'`": ["https://host/'x"],
    "`?`": ["https://host/x?a=b"],
    "`#`": ["https://host/x#a"],
    "no repository": ["https://host", "git@host:"],
    "no host": ["https:///x"],
    "port": ["https://host:0/x", "https://host:99999/x"],
    "xn--": ["https://g\u0456thub.com/x/y"],
    "`\\`": ["https://host\\@evil/x"],
    "two @": ["https://a@b@host/x"],
    "password": ["git:pw@host:x"],
    "2048": ["https://host/" + "x" * 3000],
}


def test_a_refused_git_url_gives_the_reason_and_valid_forms() -> None:
    for url, why in ((url, why) for why, urls in REFUSED.items() for url in urls):
        with pytest.raises(UsageError) as caught:
            check_url(url)
        assert why in caught.value.what, url
        assert "https://HOST/PATH" in caught.value.hint, url
        assert all(character.isprintable() for character in caught.value.what), url


@pytest.mark.parametrize(
    ("url", "bare"),
    [
        ("https://me:s3cret@host/x", "https://host/x"),
        ("https://s3cret@host/x", "https://host/x"),
        ("https://host/x?private_token=s3cret", "https://host/x"),
        ("HTTPS://s3cret@host/x", "HTTPS://host/x"),
        ("https://a@s3cret@host/x", "https://host/x"),
        ("git@host:x", "git@host:x"),
        ("git:s3cret@host:x", "git@host:x"),
        ("ssh://git@host/x", "ssh://git@host/x"),
        ("ssh://git:s3cret@host:22/x", "ssh://git@host:22/x"),
        ("/srv/x", "/srv/x"),
        ("host:a/b@c", "host:a/b@c"),
    ],
)
def test_credentials_are_removed_from_git_urls(url: str, bare: str) -> None:
    assert without_user_info(url) == bare
    assert without_user_info(bare) == bare


@pytest.mark.parametrize(
    "url",
    [
        "https://me:s3cret@host",
        "https://me:s3cret@host/$x",
        "https://me:s3/cret@host/x",
        "ext::https://me:s3cret@host/x",
        "ftp://me:s3cret@host/x",
        "me:s3cret@host/x",
        "https://s3cret@two@host/x",
        "ssh://me:s3/cret@host/x y",
        "https://" + "a" * 300 + "s3cret@host/$",
    ],
)
def test_an_error_about_a_git_url_never_repeats_its_credential(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_url(url)
    assert "cret" not in str(document(caught.value))


words = st.text(string.ascii_letters + string.digits, min_size=1, max_size=12)
hosts = st.lists(words, min_size=1, max_size=3).map(".".join)
paths = st.lists(words, min_size=1, max_size=4).map("/".join)
secrets = words.map(lambda word: f"s3cret{word}")


@given(hosts, paths, words, secrets, st.sampled_from(["https", "http", "ssh"]))
def test_removing_the_password_from_a_git_url_leaves_scheme_host_and_path(
    host: str, path: str, user: str, secret: str, scheme: str
) -> None:
    url = f"{scheme}://{user}:{secret}@{host}/{path}"
    bare = without_user_info(url)
    assert check_url(url) is check_url(bare) is UrlKind(scheme)
    assert secret not in bare
    assert bare == (
        f"ssh://{user}@{host}/{path}" if scheme == "ssh" else f"{scheme}://{host}/{path}"
    )
    assert as_https(url) == f"https://{host}/{path}"


# Built from parts of addresses, so that near misses are tested as well as noise.
pieces = st.sampled_from(
    [*"-:/@.~%=+ $;'\"\\\n\x00\x1b\u202e[]é", "::", "://", "ext", "https", "ssh", "git", "host"]
)
noise = st.one_of(st.text(max_size=40), st.lists(pieces, max_size=12).map("".join))


@given(noise)
@example("ext::x")
@example("git@ext::x")
def test_an_accepted_git_url_is_safe_to_pass_to_git(text: str) -> None:
    try:
        kind = check_url(text)
    except UsageError:
        return
    assert not text.startswith("-")
    assert text.isprintable()
    assert not re.search(r"[\s$;'\"\\`|&<>(){}*?!#]", text)
    assert not re.match(r"[A-Za-z0-9+.-]+::", text)
    if "://" in text[:8]:
        assert text.startswith(f"{kind.value}://")
    else:
        assert kind is UrlKind.SSH
        assert ":" in text.partition("/")[0]
    host = as_https(text).removeprefix("https://").partition("/")[0]
    assert re.match(r"[A-Za-z0-9\[]", host)


@given(noise)
def test_any_text_as_git_url_gives_a_safe_name_and_no_credential(text: str) -> None:
    assert without_user_info(without_user_info(text)) == without_user_info(text)
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", repository_name(text))


def test_a_full_disk_under_a_git_mirror_is_not_reported_as_a_wrong_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When git can't write a lock file, its message doesn't mention the disk."""
    free, said = [0], ["error: couldn't write '/m/refs/heads/main.lock'"]
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free[0]))

    def fails(*_: object, **__: object) -> bytes:
        raise GitError(128, said[0])

    def fetch() -> None:
        git_credentials("https://example.org/me/lib", "fetch", folders=Folders(tmp_path))

    monkeypatch.setattr("bootstrap.repo.mirror.run_git", fails)
    with pytest.raises(BoxstrapError, match="no space left") as caught:
        fetch()
    assert str(tmp_path) in caught.value.what
    free[0] = 2**30
    with pytest.raises(ProfileError, match=r"git\.url: .*couldn't write"):
        fetch()
    said[0] = "fatal: x: No space left on device"
    with pytest.raises(BoxstrapError, match="no space left"):
        fetch()


@pytest.mark.parametrize(
    ("quoted", "name"),
    [
        *((r'"caf\303\251"', "caf\u00e9"), (r'"a\tb\\c\"d"', 'a\tb\\c"d'), (r'"\377"', "\udcff")),
        *(("plain", "plain"), ('"', '"'), ('a"b', 'a"b')),
    ],
)
def test_a_file_name_that_git_prints_with_quotes_and_escapes_is_decoded(
    quoted: str, name: str
) -> None:
    assert unquoted(quoted) == name
    assert shown(name).isprintable()
