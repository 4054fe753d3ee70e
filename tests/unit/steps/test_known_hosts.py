"""The shipped keys of git hosts match the fingerprints that their owners publish."""

import base64

from bootstrap.link.public_key import PublicKey
from bootstrap.steps.shell import known_hosts

PUBLISHED = {
    ("github.com", "ssh-ed25519"): "SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU",
    ("github.com", "ecdsa-sha2-nistp256"): "SHA256:p2QAMXNIC1TJYWeIOttrVc98/R1BUFWu3/LiyKgUfQM",
    ("gitlab.com", "ssh-ed25519"): "SHA256:eUXGGm1YGsMAS7vkcx6JOJdOGHPem5gQp4taiCfCLB8",
    ("ssh.dev.azure.com", "ssh-rsa"): "SHA256:ohD8VZEXGWo6Ez8GSEJQ9WpafgLFsOfLOtGGQCQo6Og",
    ("vs-ssh.visualstudio.com", "ssh-rsa"): "SHA256:ohD8VZEXGWo6Ez8GSEJQ9WpafgLFsOfLOtGGQCQo6Og",
}


def test_shipped_host_keys_of_git_hosts_have_the_published_fingerprints() -> None:
    rows = [line.split() for line in known_hosts() if not line.startswith("@")]
    shown = {
        (host, kind): PublicKey(kind, base64.b64decode(blob)).fingerprint
        for host, kind, blob in rows
    }
    assert PUBLISHED.items() <= shown.items()
