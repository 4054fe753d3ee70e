"""Buckets of S3, Google and Azure: listed and signed here, with the user's own credentials.

The box gets an https address for each object, valid for an hour, for reading that object only.
Such an address is a credential: it is sent over standard input, and is in no message.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from bootstrap.errors import UsageError
from bootstrap.text.sanitize import sanitize
from bootstrap.transfer.bucket_keys import s3_settings

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import AzureStore, GCSStore, RetryConfig, S3Store

SCHEMES = ("s3", "gs", "az")
EXPIRES_S = 3600
"""How long an address is valid. An expired one is signed again if the box still asks."""
MOST_OBJECTS = 100_000
"""Of one item: all their addresses are sent together."""
_ADDRESS = re.compile(r"(s3|gs|az)://([^/]+)/?(.*)", re.DOTALL)
_TRIES, _TRY_S = 3, 30
_LONGEST = 300


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
                    return [_one(obstore.head(self._store, self._path))]
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
        escaped = next((key for key in keys if self._is_azure and quote(key) != key), None)
        if escaped:
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


def _one(found: ObjectMeta) -> BucketObject:
    alone = _object(found, found["path"].rpartition("/")[2])
    return replace(alone, is_alone=True)


def _below(prefix: str, found: ObjectMeta) -> BucketObject:
    name = found["path"][len(prefix) :].lstrip("/") if prefix else found["path"]
    return _object(found, name or found["path"].rpartition("/")[2])


def _object(found: ObjectMeta, name: str) -> BucketObject:
    tag = found["e_tag"] or ""
    return BucketObject(name, found["path"], found["size"], tag if tag.strip('"') else "")


def _as_files(found: list[BucketObject], url: str) -> list[BucketObject]:
    """Drop what consoles create for a folder. Raises UsageError for names that are no file's."""
    folders = set[str]()
    for each in found:
        parts = each.name.split("/")
        if not all(parts) or {".", ".."} & {*parts} or not each.name.isprintable():
            raise UsageError(f"{each.key!r} can't be the name of a file.", where=url)
        folders.update("/".join(parts[:count]) for count in range(1, len(parts)))
    clash = next((each for each in found if each.name in folders and each.size), None)
    if clash:
        raise UsageError(f"{clash.key!r} is an object and a folder of others.", where=url)
    return sorted((each for each in found if each.name not in folders), key=lambda each: each.name)


def _open_s3(name: str) -> S3Store:
    from obstore.store import S3Store

    settings: Any = s3_settings(name)
    plain = settings.get("aws_endpoint", "").startswith("http://")
    options: Any = {"allow_http": plain}
    return S3Store(name, config=settings, client_options=options, retry_config=_retries())


def _open_gs(name: str) -> GCSStore:
    from obstore.store import GCSStore

    return GCSStore(name, retry_config=_retries())


def _open_az(name: str) -> AzureStore:
    from obstore.store import AzureStore

    # The variables of Microsoft's own program; without a key that is asked for a login.
    settings: Any = {
        "azure_storage_account_name": os.environ.get("AZURE_STORAGE_ACCOUNT"),
        "azure_storage_account_key": os.environ.get("AZURE_STORAGE_KEY"),
        "use_azure_cli": None if _has_azure_key() else "true",
    }
    settings = {key: value for key, value in settings.items() if value}
    return AzureStore(name, config=settings, retry_config=_retries())


def _has_azure_key() -> bool:
    return any(name.startswith("AZURE_") and "KEY" in name for name in os.environ)


def _retries() -> RetryConfig:
    return {"max_retries": _TRIES, "retry_timeout": timedelta(seconds=_TRY_S)}


_OPENERS: Mapping[str, Callable[[str], S3Store | GCSStore | AzureStore]] = {
    "s3": _open_s3,
    "gs": _open_gs,
    "az": _open_az,
}
