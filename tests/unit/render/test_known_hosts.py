"""The shipped keys of git hosts match the fingerprints that their owners publish."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest

from bootstrap.link.public_key import PublicKey
from bootstrap.render.editions import render_compact
from bootstrap.shell import known_hosts
from tests.unit.render.scripts import WORK, profile

PUBLISHED = {
    ("github.com", "ssh-ed25519"): "SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU",
    ("github.com", "ecdsa-sha2-nistp256"): "SHA256:p2QAMXNIC1TJYWeIOttrVc98/R1BUFWu3/LiyKgUfQM",
    ("gitlab.com", "ssh-ed25519"): "SHA256:eUXGGm1YGsMAS7vkcx6JOJdOGHPem5gQp4taiCfCLB8",
    ("ssh.dev.azure.com", "ssh-rsa"): "SHA256:ohD8VZEXGWo6Ez8GSEJQ9WpafgLFsOfLOtGGQCQo6Og",
    ("vs-ssh.visualstudio.com", "ssh-rsa"): "SHA256:ohD8VZEXGWo6Ez8GSEJQ9WpafgLFsOfLOtGGQCQo6Og",
}


def test_they_have_the_fingerprints_that_are_published() -> None:
    rows = [line.split() for line in known_hosts() if not line.startswith("@")]
    shown = {
        (host, kind): PublicKey(kind, base64.b64decode(blob)).fingerprint
        for host, kind, blob in rows
    }
    assert PUBLISHED.items() <= shown.items()


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("git@ssh.dev.azure.com:v3/org/project/repo", "ssh.dev.azure.com ssh-rsa"),
        ("git@github.com:someone/homework.git", "github.com ssh-ed25519"),
    ],
)
def test_a_narrow_paste_has_one_key_of_its_host(url: str, kind: str) -> None:
    script = render_compact(profile("vast"), replace(WORK, url=url))
    assert script.count(kind) == 1
    assert "gitlab.com ssh" not in script
