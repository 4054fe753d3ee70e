"""Files that look like credentials stay here; harmless ones that resemble them are sent."""

import os
import time
from pathlib import Path

import pytest

from bootstrap.repo.working_files import (
    READ_FOR_CREDENTIALS,
    credential_by_content,
    credential_by_name,
    find_credentials,
)
from tests.waiting import slowness

NAMED = (
    ".env", "app/.env", ".env.local", ".env.production", ".envrc", "prod.env", "id_rsa",
    "keys/id_ed25519", "id_ecdsa_sk", ".netrc", "_netrc", "kubeconfig", "kubeconfig.yaml",
    ".kube/config", "a/.aws/credentials", "credentials.json", "client_secret_12.apps.json",
    ".git-credentials", ".pgpass", "cert.p12", "key.ppk", "x.pfx",
)  # fmt: skip
HARMLESS_NAMES = (
    ".env.example", "app/.env.sample", ".env.template", ".env.dist", "id_rsa.pub", "id_ed25519.pub",
    "environment.yml", "env.py", ".env/bin/python", "envs/train.py", "netrc.md", "config",
    "kube/config", "credentials.md", "credentials.py", "cert.pem", "train.environment", "conf.json",
    "tokens.txt", "secrets.yaml", "monkey.py", "a.key",
)  # fmt: skip

# Assembled from parts, so that no secret scanner takes them for real ones.
KEY = (
    "-----BEGIN {}PRIVATE KEY-----\n" + "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7\n" * 3
)
TOKENS = {
    "any.pem": KEY.format(""),
    "deploy": KEY.format("OPENSSH "),
    "old.pem": KEY.format("RSA ").replace(
        "\nMII", "\nProc-Type: 4,ENCRYPTED\nDEK-Info: A,B\n\nMII", 1
    ),
    "account.json": '{"private_key": "' + KEY.format("").replace("\n", "\\n") + '"}',
    "p.txt": "PuTTY-User-Key-File-3: ssh-rsa",
    "config.py": "TOKEN = 'hf_" + "aB3" * 11 + "x'",
    "a.yaml": "token: ghp_" + "a1B2" * 9,
    "b.yaml": "github_pat_" + "11ABCDEFG0_" * 5,
    "c.sh": "export X=glpat-" + "x" * 20,
    "d.ini": "aws_access_key_id = AKIA" + "Q7" * 8,
    "e.ini": "aws_secret_access_key = " + "wJalrXUtnF" * 4,
    "f.json": '{"AWS_SECRET_ACCESS_KEY": "' + "wJalrXUtn/" * 4 + '"}',
    "g.py": "openai.api_key = 'sk-proj-" + "a_1-" * 10 + "'",
    "h.py": "sk-ant-api03-" + "Ab3" * 20,
    "i.py": "sk-" + "a1B2" * 12,
    "j.txt": "xoxb-123456789012-" + "aBcD" * 5,
    "k.js": "AIza" + "SyD" * 11 + "ab",
    ".npmrc": "//registry.example.org/:_authToken=0123456789abcdef",
    "sub/.npmrc": "_auth = bWU6cGFzc3dvcmQ=",
    ".pypirc": "[pypi]\npassword = hunter2hunter2",
    ".docker/config.json": '{"auths": {"x": {"auth": "bWU6cGFzc3dvcmQ="}}}',
    "l": "npm_" + "aB1" * 12,
}
HARMLESS = {
    "README.md": "Put your key into AKIAIOSFODNN7EXAMPLE and hf_YOUR_TOKEN_HERE, sk-..., ghp_xxx",
    "aws.md": "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "id.pub": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + "A" * 40,
    "public.pem": "-----BEGIN PUBLIC KEY-----\n" + "MIIB" * 20,
    "cert.pem": "-----BEGIN CERTIFICATE-----\n" + "MIIB" * 20,
    "check.py": "if '-----BEGIN PRIVATE KEY-----' in text: raise ValueError",
    "wandb.txt": "run 0123456789abcdef0123456789abcdef01234567",  # forty hex digits: any commit
    "model.py": "hf_model_for_sequence_classification_with_a_long_name = sk_learn_thing",
    "page.html": '<div class="sk-estimator-doc-link sk-toggleable__label-arrow sk-container-id-1">',
    ".npmrc": "registry=https://registry.example.org\n//x/:_authToken=${NPM_TOKEN}\n",
    "pip.conf": "[global]\nindex-url = https://mirror.example.org/simple\n",
    "data.bin": "\0" * 1000 + "sk-",
    "lock": "sha512-" + "aB1/" * 20 + "== xoxo-love AKIA ghp_short task-" + "a" * 60,
}


def test_file_names_of_credentials_are_recognized_and_harmless_file_names_are_not() -> None:
    assert [name for name in NAMED if not credential_by_name(name)] == []
    assert [name for name in HARMLESS_NAMES if credential_by_name(name)] == []


def test_each_kind_of_token_in_a_file_counts_as_a_credential_but_no_similar_text() -> None:
    later = b"import os\n" * 1000
    for name, token in TOKENS.items():
        assert credential_by_content(name, token.encode()), name
        assert credential_by_content(name, later + token.encode() + b"\n"), name
    for name, text in HARMLESS.items():
        assert not credential_by_content(name, text.encode()), name
        assert not credential_by_name(name), name


def test_the_credential_search_reads_files_only_up_to_its_size_limit(tmp_path: Path) -> None:
    token = TOKENS["config.py"].encode()
    (tmp_path / "near").write_bytes(b" " * (READ_FOR_CREDENTIALS - len(token)) + token)
    (tmp_path / "far").write_bytes(b" " * READ_FOR_CREDENTIALS + token)
    (tmp_path / "link").symlink_to("near")
    (tmp_path / os.fsdecode(b"caf\xe9")).write_bytes(token)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    names = (b"near", b"far", b"link", b"caf\xe9", b"pipe", b"endless", b"gone", b"x/.env")
    assert set(find_credentials(tmp_path, names)) == {b"near", b"caf\xe9", b"x/.env"}


@pytest.mark.parametrize(
    "content",
    [
        b"-----BEGIN PRIVATE KEY-----\n" + b"A: b  \n \n" * 20_000,
        b"-----BEGIN " + b"RSA " * 60_000,
        b"aws_secret_access_key=" * 12_000,
        b"AKIA" * 65_000,
        b"-----BEGIN PRIVATE KEY-----" * 9_000,
        b'"auth" : "' * 25_000,
    ],
)
def test_the_search_for_credentials_is_fast_on_hostile_content(content: bytes) -> None:
    began = time.process_time()
    credential_by_content(".docker/config.json", content[:READ_FOR_CREDENTIALS])
    assert time.process_time() - began < slowness()
