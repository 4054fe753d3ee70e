"""Buckets of S3, Google and Azure: listed and signed here, with the user's own credentials.

Keys are found where the provider's tools look: obstore itself reads only environment variables, and
most users have keys in `~/.aws`, or get them for an hour by a login of the `aws` program.

The box gets an https address for each object, valid for an hour, for reading that object only.
Such an address is a credential: it goes over standard input into a file that only the box's user
can read, which is removed when it is read, and is in no message.
"""

from __future__ import annotations

import configparser
import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from bootstrap.errors import BoxstrapError, UsageError
from bootstrap.link.wire import PIECE
from bootstrap.onbox.bucket.s3_client import region_of
from bootstrap.paths import ask_program, expanded, read_regular, temporary_dir
from bootstrap.sanitize import sanitize
from bootstrap.transfer.sender import Sender

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import AzureStore, GCSStore, RetryConfig, S3Store


_ENDPOINT = re.compile(
    r"https?://(?:[\w.-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?(?:/[\w.~%/-]*)?", re.ASCII
)
_PROGRAM_S = 60
_LONGEST = 300
_OF_A_SERVICE = ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
"""If one of these is set, obstore gets keys on its own."""
_KEYS = {
    "aws_access_key_id": "AccessKeyId",
    "aws_secret_access_key": "SecretAccessKey",
    "aws_session_token": "SessionToken",
}
"""Names in files and in obstore, and names that programs print."""


def s3_settings(bucket: str, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return keys, endpoint and region for obstore to reach `bucket`. Raises UsageError."""
    environment = os.environ if environment is None else environment
    name = environment.get("AWS_PROFILE") or environment.get("AWS_DEFAULT_PROFILE") or "default"
    section = _section(name, environment)
    settings = _keys(name, section, environment)
    endpoint = (
        environment.get("AWS_ENDPOINT_URL_S3")
        or environment.get("AWS_ENDPOINT_URL")
        or section.get("endpoint_url")
    )
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    region = region or section.get("region") or "us-east-1"
    if endpoint:
        if not _ENDPOINT.fullmatch(endpoint):  # obstore would panic
            raise UsageError(
                f"the endpoint of S3 is no address: {sanitize(endpoint)[:_LONGEST]}.",
                hint="Set AWS_ENDPOINT_URL to one with its scheme, as in https://host:9000",
            )
        return {**settings, "aws_endpoint": endpoint, "aws_region": region}
    return {**settings, "aws_region": region_of(bucket) or region}


def _keys(name: str, section: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    given = {key: environment.get(key.upper(), "") for key in _KEYS}
    if not given["aws_access_key_id"]:
        given = {key: section.get(key, "") for key in _KEYS}
    if not given["aws_access_key_id"] and not any(map(environment.get, _OF_A_SERVICE)):
        given = _ask_program(name, section)
    return {key: value for key, value in given.items() if value}


def _section(name: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Read the settings of the AWS profile `name` from the user's files."""
    found: dict[str, str] = {}
    for variable, file, title in (
        ("AWS_CONFIG_FILE", "~/.aws/config", name if name == "default" else f"profile {name}"),
        ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials", name),
    ):
        path = expanded(environment.get(variable) or file)
        parser = configparser.RawConfigParser(strict=False)
        try:
            parser.read_string(read_regular(path).decode())
        except FileNotFoundError:
            continue
        except (OSError, UnicodeError, configparser.Error) as error:
            raise UsageError(f"can't be read: {type(error).__name__}.", where=str(path)) from None
        if parser.has_section(title):
            found.update(parser.items(title))
    return found


def _ask_program(name: str, section: Mapping[str, str]) -> dict[str, str]:
    """Return the keys that `credential_process`, else `aws`, prints. Raises UsageError."""
    if process := section.get("credential_process"):
        command = shlex.split(process)
    elif aws := shutil.which("aws"):
        command = [aws, "configure", "export-credentials", "--profile", name]
        command += ["--format", "process"]
    else:
        raise _no_key("none is in the environment, nor in ~/.aws")
    try:
        # In the home folder no file of a repository can affect it.
        done = ask_program(command, _PROGRAM_S, cwd=Path.home())
        said = json.loads(done.stdout) if done.returncode == 0 else {}
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise _no_key(f"{command[0]} gave none: {type(error).__name__}") from None
    given = {key: str(said.get(word) or "") for key, word in _KEYS.items()}
    if not given["aws_access_key_id"]:
        last = sanitize(done.stderr).strip().rpartition("\n")[2][:_LONGEST]
        raise _no_key(f"{command[0]} gave none{last and ': ' + last}")
    return given


def _no_key(why: str) -> UsageError:
    return UsageError(
        f"there is no key for S3 on this machine: {why}.",
        hint="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE to one of your "
        "profiles, or log in: aws sso login",
    )


EXPIRES_S = 3600
"""How long an address is valid. An expired one is signed again if the box still asks."""
MOST_OBJECTS = 100_000
"""Of one item: all their addresses are sent together."""
_ADDRESS = re.compile(r"(s3|gs|az)://([^/]+)/?(.*)", re.DOTALL)
_TRIES, _TRY_S = 3, 30


@dataclass(frozen=True)
class BucketObject:
    """One object: `name` is its path below what was named, as a file name; `key` its whole key."""

    name: str
    key: str
    size: int
    etag: str
    is_alone: bool = False
    """Whether the object itself was named, not a folder."""


class Bucket:
    """What `url` names in a bucket: one object, or all below a prefix."""

    def __init__(self, url: str) -> None:
        found = _ADDRESS.fullmatch(url)
        if not found:
            raise UsageError(f"{url} is not the address of a bucket (s3://BUCKET/PATH).")
        scheme, self._name, self._path = found.groups()
        self.url = url
        self._is_azure = scheme == "az"
        self._store = _OPENERS[scheme](self._name)

    def objects(self) -> list[BucketObject]:
        """List all that `url` names, sorted by name.

        Raises UsageError if there is nothing, if it may not be read, or if a name is no file name.
        """
        import obstore
        from obstore.exceptions import BaseError

        try:
            if self._path and not self._path.endswith("/"):
                with contextlib.suppress(FileNotFoundError):  # no object of that name: a folder
                    alone = _below("", obstore.head(self._store, self._path))
                    return [replace(alone, name=alone.name.rpartition("/")[2], is_alone=True)]
            found = self._listed()
        except BaseError as error:
            raise self._refused(error) from None
        if not found:
            raise UsageError("there is nothing in the bucket.", where=self.url)
        return _as_files(found, self.url)

    def _listed(self) -> list[BucketObject]:
        import obstore

        prefix = self._path.strip("/")
        found: list[BucketObject] = []
        for page in obstore.list(self._store, prefix or None, chunk_size=1000):
            found += [_below(prefix, each) for each in page]
            if len(found) > MOST_OBJECTS:
                raise UsageError(
                    f"these are more than {MOST_OBJECTS:,} objects.",
                    where=self.url,
                    hint="Pack them into archives (tar), and name these.",
                )
        return found

    def sign(self, objects: Sequence[BucketObject]) -> list[str]:
        """Return an address for each object, valid for `EXPIRES_S`. Raises UsageError."""
        import obstore
        from obstore.exceptions import BaseError

        keys = [each.key for each in objects]
        # obstore signs such a name differently than Azure, whose servers refuse the address.
        if escaped := next((key for key in keys if self._is_azure and quote(key) != key), None):
            raise UsageError(
                f"no address can be signed for {escaped!r}, since its name has to be escaped.",
                where=self.url,
                hint="Give it another name, or pack it into an archive (tar).",
            )
        try:
            return list(obstore.sign(self._store, "GET", keys, timedelta(seconds=EXPIRES_S)))
        except BaseError as error:
            raise self._refused(error) from None

    def _refused(self, error: Exception) -> UsageError:
        """Return an error with the provider's message, without obstore's debug output."""
        said = sanitize(str(error).partition("\n\nDebug source:")[0])
        words = re.findall(r"<(?:Code|Message)>([^<]*)</", said)
        said = ": ".join(words) or re.sub(r"\?\S*", "", said)
        return UsageError(
            f"it can't be read: {said[:_LONGEST]}",
            where=self.url,
            hint="Your own credentials are used: see whether your provider's program can list it.",
        )


def _below(prefix: str, found: ObjectMeta) -> BucketObject:
    path, tag = found["path"], found["e_tag"] or ""
    name = (path[len(prefix) :].lstrip("/") if prefix else path) or path.rpartition("/")[2]
    return BucketObject(name, path, found["size"], tag if tag.strip('"') else "")


def _as_files(found: list[BucketObject], url: str) -> list[BucketObject]:
    """Drop what consoles create for a folder. Raises UsageError for names that are no file's."""
    folders = set[str]()
    for each in found:
        parts = each.name.split("/")
        if not all(parts) or {".", ".."} & {*parts} or not each.name.isprintable():
            raise UsageError(f"{each.key!r} can't be the name of a file.", where=url)
        folders.update("/".join(parts[:count]) for count in range(1, len(parts)))
    if clash := next((each for each in found if each.name in folders and each.size), None):
        raise UsageError(f"{clash.key!r} is an object and a folder of others.", where=url)
    return sorted((each for each in found if each.name not in folders), key=lambda each: each.name)


def _open_s3(name: str) -> S3Store:
    from obstore.store import S3Store

    settings: Any = s3_settings(name)
    options: Any = {"allow_http": settings.get("aws_endpoint", "").startswith("http://")}
    return S3Store(name, config=settings, client_options=options, retry_config=_retries())


def _open_gs(name: str) -> GCSStore:
    from obstore.store import GCSStore

    return GCSStore(name, retry_config=_retries())


def _open_az(name: str) -> AzureStore:
    from obstore.store import AzureStore

    # The variables of Microsoft's own program; without a key that is asked for a login.
    has_key = any(name.startswith("AZURE_") and "KEY" in name for name in os.environ)
    settings: Any = {
        "azure_storage_account_name": os.environ.get("AZURE_STORAGE_ACCOUNT"),
        "azure_storage_account_key": os.environ.get("AZURE_STORAGE_KEY"),
        "use_azure_cli": None if has_key else "true",
    }
    settings = {key: value for key, value in settings.items() if value}
    return AzureStore(name, config=settings, retry_config=_retries())


def _retries() -> RetryConfig:
    return {"max_retries": _TRIES, "retry_timeout": timedelta(seconds=_TRY_S)}


_OPENERS: Mapping[str, Callable[[str], S3Store | GCSStore | AzureStore]] = {
    "s3": _open_s3,
    "gs": _open_gs,
    "az": _open_az,
}


_AT_ONCE = 1000
"""How many addresses are signed, and in memory, at a time."""


@dataclass
class BucketItems:
    """The items of `data:` that are in buckets, by number; each is listed once."""

    addresses: Mapping[int, str]
    _listed: dict[int, tuple[Bucket, list[BucketObject]]] = field(default_factory=dict)

    def list(self) -> None:
        """List the items that are not listed yet. Raises UsageError."""
        for number, url in self.addresses.items():
            if number not in self._listed:
                bucket = Bucket(url)
                self._listed[number] = bucket, bucket.objects()

    def lines(self) -> Iterator[bytes]:
        """Yield a line per object, with an address signed now. Raises UsageError."""
        for number, (bucket, objects) in self._listed.items():
            for start in range(0, len(objects), _AT_ONCE):
                some = objects[start : start + _AT_ONCE]
                rows = zip(some, bucket.sign(some), strict=True)
                yield b"".join(_line(number, each, address) for each, address in rows)


def _line(number: int, each: BucketObject, address: str) -> bytes:
    row = {"item": number, "path": each.name, "size": each.size, "etag": each.etag}
    row |= {"alone": each.is_alone, "url": address}
    return json.dumps(row).encode() + b"\n"


@dataclass(eq=False, repr=False, kw_only=True)
class AddressSender(Sender):
    """Sends the addresses of what is in buckets; if there are none, the box is told that."""

    what = noun = "addresses"
    items: BucketItems

    def send(self) -> None:
        with TemporaryFile(dir=temporary_dir()) as lines:
            try:
                self.items.list()
                lines.writelines(self.items.lines())
            except BoxstrapError as error:
                self.failed(error)
                lines.seek(0)
            size = lines.tell()
            lines.seek(0)
            pieces = iter(partial(lines.read, PIECE), b"")
            self.pass_on(self.take("data.addresses", size), pieces)
