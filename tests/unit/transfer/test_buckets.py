"""Buckets on a real S3 server that is first shown to refuse wrong and expired addresses."""

import contextlib
import datetime
import http.client
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

pytest.importorskip("nanio", reason="the S3 server needs Python 3.11")

from bootstrap.errors import UsageError
from bootstrap.transfer import buckets
from bootstrap.transfer.buckets import Bucket, s3_settings
from tests.boxes.s3_server import S3Server


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = S3Server("127.0.0.1", tmp_path_factory.mktemp("s3") / "buckets")
    for number in range(1203):
        server.put("corpus", f"many/{number:04}.txt", b"%d" % number)
    server.put("corpus", "manymore/other", b"of another folder")
    server.put("corpus", "odd/a b+c=(1)'~é.txt", b"an odd name")
    server.put("corpus", "odd/deep/er/x", b"x")
    yield server
    server.close()


@pytest.fixture
def server(served: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    for name, value in served.variables().items():
        monkeypatch.setenv(name, value)
    yield served
    served.move_clock(0)


def _get(address: str) -> tuple[int, bytes]:
    parts = urlsplit(address)
    link = http.client.HTTPConnection(parts.netloc, timeout=120)
    link.request("GET", f"{parts.path}?{parts.query}" if parts.query else parts.path)
    with contextlib.closing(link):
        answer = link.getresponse()
        return answer.status, answer.read()


def _address(path: str) -> str:
    bucket = Bucket(path)
    [one] = bucket.objects()
    [address] = bucket.sign([one])
    return address


@pytest.mark.slow  # starts the server
def test_the_test_s3_server_refuses_unsigned_and_expired_urls(server: S3Server) -> None:
    """The other tests rely on this."""
    address = _address("s3://corpus/many/0007.txt")
    assert _get(address) == (200, b"7")
    assert _get(address.partition("?")[0])[0] == 403
    assert _get(address.replace("0007", "0008"))[0] == 403
    signature = address.rpartition("=")[2]
    wrong = ("0" if signature[0] != "0" else "1") + signature[1:]
    assert _get(address.replace(signature, wrong))[0] == 403
    server.move_clock(buckets.EXPIRES_S - 60)
    assert _get(address)[0] == 200
    server.move_clock(buckets.EXPIRES_S + 60)
    status, said = _get(address)
    assert (status, b"expired" in said) == (403, True)


@pytest.mark.slow  # starts the server
def test_more_than_a_thousand_objects_of_a_bucket_are_listed_and_signed(server: S3Server) -> None:
    bucket = Bucket("s3://corpus/many")
    found = bucket.objects()
    assert [each.name for each in found] == [f"{number:04}.txt" for number in range(1203)]
    assert [each.size for each in found] == [len(str(number)) for number in range(1203)]
    addresses = bucket.sign(found)
    assert [_get(addresses[number])[1] for number in (0, 999, 1000, 1202)] == [
        b"0", b"999", b"1000", b"1202"
    ]  # fmt: skip


@pytest.mark.slow  # starts the server
def test_bucket_objects_with_blanks_quotes_or_accents_in_their_names_are_fetched(
    server: S3Server,
) -> None:
    bucket = Bucket("s3://corpus/odd/")
    found = bucket.objects()
    assert [each.name for each in found] == ["a b+c=(1)'~é.txt", "deep/er/x"]
    assert [_get(each)[1] for each in bucket.sign(found)] == [b"an odd name", b"x"]
    assert len(Bucket("s3://corpus").objects()) == 1206


@pytest.mark.slow  # starts the server
@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("s3://corpus/nothing/", "nothing in the bucket"),
        ("s3://nobody/x/", "NoSuchBucket"),
        ("ftp://corpus/x", "not the address of a bucket"),
    ],
)
def test_a_bucket_url_of_a_missing_object_or_with_an_unknown_scheme_is_wrong_usage(
    server: S3Server, url: str, says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        Bucket(url).objects()


@pytest.mark.slow  # starts the server
def test_a_wrong_bucket_key_is_reported_without_the_key_or_signature(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-wrong-secret")
    with pytest.raises(UsageError, match="SignatureDoesNotMatch") as refused:
        Bucket("s3://corpus/many/").objects()
    assert not {"a-wrong-secret", "Debug", "X-Amz"} & {*refused.value.text().split()}
    assert "X-Amz" not in refused.value.text()


def _found(*names: str, size: int = 1) -> list[buckets.BucketObject]:
    return [buckets.BucketObject(name, f"p/{name}", size, "") for name in names]


def test_empty_objects_that_mark_a_bucket_folder_are_not_fetched() -> None:
    both = [*_found("a", size=0), *_found("a/b")]
    assert [each.name for each in buckets._as_files(both, "s3://x")] == ["a/b"]


@pytest.mark.parametrize("name", ["../x", "a/../x", "a//b", "/x", "a\nb", "a\x1b[2J", "a/./b"])
def test_a_bucket_with_an_object_of_a_dangerous_name_is_wrong_usage(name: str) -> None:
    with pytest.raises(UsageError, match="can't be the name") as refused:
        buckets._as_files(_found(name), "s3://x")
    assert "\x1b" not in refused.value.text()


def test_a_bucket_with_objects_a_and_a_slash_b_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="folder of others"):
        buckets._as_files(_found("a", "a/b"), "s3://x")


@pytest.mark.slow  # starts the server
def test_listing_a_bucket_with_more_objects_than_the_limit_is_wrong_usage(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buckets, "MOST_OBJECTS", 1100)
    with pytest.raises(UsageError, match="more than 1,100 objects"):
        Bucket("s3://corpus/many/").objects()


ENDPOINT = {"AWS_ENDPOINT_URL": "https://s3.example.org"}  # otherwise the region is looked up


def _settings(tmp_path: Path, **files: str) -> dict[str, str]:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    places = {
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
    }
    return {**places, **ENDPOINT}


def test_s3_keys_come_from_aws_variables_or_else_the_aws_files_of_the_chosen_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = _settings(
        tmp_path,
        config="[default]\nregion = eu-west-1\n[profile work]\nregion = eu-north-1\n",
        credentials="[default]\naws_access_key_id = A\naws_secret_access_key = B\n"
        "[work]\naws_access_key_id = C\naws_secret_access_key = D/=%\naws_session_token = E\n",
    )
    assert s3_settings("x", environment) == {
        "aws_access_key_id": "A",
        "aws_secret_access_key": "B",
        "aws_region": "eu-west-1",
        "aws_endpoint": "https://s3.example.org",
    }
    of_work = s3_settings("x", {**environment, "AWS_PROFILE": "work"})
    assert (of_work["aws_secret_access_key"], of_work["aws_session_token"]) == ("D/=%", "E")
    assert of_work["aws_region"] == "eu-north-1"
    own = {"AWS_ACCESS_KEY_ID": "F", "AWS_SECRET_ACCESS_KEY": "G", "AWS_REGION": "us-west-2"}
    given = s3_settings("x", {**environment, **own})
    assert (given["aws_access_key_id"], given["aws_region"]) == ("F", "us-west-2")


def test_s3_keys_come_from_the_credential_process_in_the_users_aws_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "gives keys"
    said = json.dumps({"AccessKeyId": "P", "SecretAccessKey": "Q", "SessionToken": "R"})
    program.write_text(f"#!/bin/sh\necho '{said}'\n")
    program.chmod(stat.S_IRWXU)
    by_process = f"[default]\ncredential_process = '{program}' x\n"
    settings = s3_settings("x", _settings(tmp_path, config=by_process))
    assert settings["aws_session_token"] == "R"
    # Otherwise the provider's own program is asked, which has logins that last an hour.
    (tmp_path / "bin").mkdir()
    program.rename(tmp_path / "bin" / "aws")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    assert s3_settings("x", _settings(tmp_path, config=""))["aws_access_key_id"] == "P"
    (tmp_path / "bin" / "aws").write_text("#!/bin/sh\necho 'session expired' >&2; exit 255\n")
    with pytest.raises(UsageError, match="session expired"):
        s3_settings("x", _settings(tmp_path, config=""))
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(UsageError, match="no key for S3 on this machine"):
        s3_settings("x", _settings(tmp_path, config=""))


@pytest.mark.slow
def test_signed_bucket_urls_for_google_and_azure_have_the_signature_their_docs_prescribe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No server of theirs can be run here, so the signatures are checked by the rules."""
    import base64
    import hashlib
    import hmac
    from urllib.parse import parse_qs

    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import padding, rsa

    own = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = own.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {"client_email": "me@project.example", "private_key": pem.decode()}
    account |= {"type": "service_account", "private_key_id": "1", "token_uri": "https://x.example"}
    (tmp_path / "key.json").write_text(json.dumps(account))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
    [address] = Bucket("gs://corpus/a").sign(_found("a b"))
    parts = urlsplit(address)
    query, _, signature = parts.query.rpartition("&X-Goog-Signature=")
    asked = parse_qs(query)
    canonical = f"GET\n{parts.path}\n{query}\nhost:{parts.netloc}\n\nhost\nUNSIGNED-PAYLOAD"
    day = asked["X-Goog-Date"][0]
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    signed = f"GOOG4-RSA-SHA256\n{day}\n{day[:8]}/auto/storage/goog4_request\n{digest}"
    own.public_key().verify(
        bytes.fromhex(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256()
    )
    assert asked["X-Goog-Expires"] == [str(buckets.EXPIRES_S)]

    key = base64.b64encode(b"a key of azure's").decode()
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "me")
    monkeypatch.setenv("AZURE_STORAGE_KEY", key)
    [address] = Bucket("az://corpus/a").sign(_found("b"))
    given = {name: value[0] for name, value in parse_qs(urlsplit(address).query).items()}
    lines = [given["sp"], given["st"], given["se"], "/blob/me" + urlsplit(address).path]
    lines += ["", "", "", given["sv"], given["sr"], "", "", "", "", "", "", ""]
    mac = hmac.new(base64.b64decode(key), "\n".join(lines).encode(), hashlib.sha256)
    assert given["sig"] == base64.b64encode(mac.digest()).decode()
    began, ends = (
        datetime.datetime.fromisoformat(given[name].replace("Z", "+00:00")) for name in ("st", "se")
    )
    assert (ends - began).total_seconds() == buckets.EXPIRES_S
    with pytest.raises(UsageError, match="has to be escaped"):
        Bucket("az://corpus/a").sign(_found("a b"))


@pytest.mark.parametrize("endpoint", ["10.1.1.1:9000", "http://10.1.1.1:9000/my minio", "ftp://a"])
def test_an_s3_endpoint_that_is_no_http_address_is_wrong_usage_before_it_is_asked(
    endpoint: str, tmp_path: Path
) -> None:
    """obstore panicked in the thread that signs addresses, and the setup waited for ever."""
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", **_settings(tmp_path)}
    keys.pop("AWS_ENDPOINT_URL_S3", None)
    with pytest.raises(UsageError, match="the endpoint of S3 is no address") as caught:
        s3_settings("x", {**keys, "AWS_ENDPOINT_URL": endpoint})
    assert "AWS_ENDPOINT_URL" in caught.value.hint
    for right in ("https://minio.example:9000", "http://[::1]:9000/a/b", "http://127.0.0.1:1"):
        settings = s3_settings("x", {**keys, "AWS_ENDPOINT_URL": right})
        assert settings["aws_endpoint"] == right
