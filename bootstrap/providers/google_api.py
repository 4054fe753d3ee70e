"""Google Cloud by REST (the extra `boxstrap[gcp]`): credentials, projects, requests, operations.

google-auth reads the user's credentials and makes tokens of them, which last an hour: each request
is sent with one that is valid. What Google refuses it words its own way, also after a 200: in the
operation that a change became.
"""

import configparser
import json
import os
import re
import threading
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Generic

import urllib3
from pydantic import BeforeValidator

from bootstrap.errors import UnreachableError, UsageError
from bootstrap.paths import expanded, read_regular
from bootstrap.providers import api
from bootstrap.providers.api_key import ApiKey, KeyPlaces

_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_LOGIN = "gcloud auth application-default login"
_PROJECT = re.compile(r"(?:[a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]|[0-9]{6,19}")
"""The id of a project, with a domain before it for older ones, or its number."""
_TOKEN_S = 30
_SLOW_DOWN = frozenset({"rateLimitExceeded", "userRateLimitExceeded", "RATE_LIMIT_EXCEEDED"})
"""Reasons of a 403 after which nothing was done, and that pass: as a 429 elsewhere."""
_LOOKS_S = (1.0, 2.0, 4.0, 5.0)  # seconds between two looks at an operation; the last one repeats
_LONGEST_OPERATION_S = 240.0
GONE = ("notFound",)  # the reason of a 404 that speaks of the thing itself
NO_PROJECT = "noProject"  # the reason of one that speaks of what the thing would be in
_THING = re.compile(r"/(?:instances|disks|firewalls|operations)/[^/']+'")
_ALL_GPUS = "GPUS_ALL_REGIONS"
POLICY, POLICY_OF_PLACES = "policy", "policy of places"
"""Our codes for what an organisation's policy refuses, whatever Google calls it."""
_POLICY = re.compile(r"\bconstraints/|\borg(?:anization)? policy\b", re.IGNORECASE)


def config_folder() -> Path:
    return Path(os.environ.get("CLOUDSDK_CONFIG") or expanded("~/.config/gcloud"))


class GoogleKeys(KeyPlaces):
    """Where Google's tools leave credentials for programs; google-auth reads them."""

    library, extra = "google.auth", "gcp"

    def find(self) -> ApiKey | None:
        """Return a key without a value if google-auth is there, and a file for it."""
        if self.missing:
            return None
        source = self.variable if os.environ.get(self.variable) else self.files[0]
        return ApiKey("", source) if credentials_file().is_file() else None

    @property
    def places(self) -> str:
        return f"{super().places}, written by: {_LOGIN}"


def credentials_file() -> Path:
    """Return the file of the user's credentials for programs, which need not exist."""
    named = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS", "")
    own = config_folder() / "application_default_credentials.json"
    return expanded(named) if named else own


def projects() -> list[str]:
    """Return the projects that the user's settings name: first the one that is used."""
    named = [os.environ.get(name, "") for name in ("GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT")]
    own = _document(credentials_file())
    named += [str(own.get("project_id") or "")]
    folder = config_folder()
    active = os.environ.get("CLOUDSDK_ACTIVE_CONFIG_NAME") or _read(folder / "active_config")
    every = sorted((folder / "configurations").glob("config_*"))
    every.sort(key=lambda file: file.name != f"config_{active.strip() or 'default'}")
    for file in every:
        settings = configparser.ConfigParser(interpolation=None)
        try:
            settings.read_string(_read(file))
        except configparser.Error:
            continue
        named.append(settings.get("core", "project", fallback=""))
    named.append(str(own.get("quota_project_id") or ""))
    return [each for each in dict.fromkeys(named) if each]


def _document(file: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(_read(file))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _read(file: Path) -> str:
    try:
        return read_regular(file).decode("utf-8", "replace")
    except OSError:
        return ""


def request_id(*of: str) -> str:
    """Return the id of a request: what is asked for twice with it is done once."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, "/".join(("boxstrap", *of))))


class _ErrorOfOperation(api.CamelModel):
    code: str = ""
    message: str = ""


class _ErrorsOfOperation(api.CamelModel):
    errors: Sequence[_ErrorOfOperation] = ()


def _of_all_zones(items: object) -> object:
    """Return what a list by zones has: {ZONE: {KIND: [...]}}, with a warning beside it."""
    if not isinstance(items, dict):
        return items
    inside = [each for zone in items.values() if isinstance(zone, dict) for each in zone.values()]
    return [one for each in inside if isinstance(each, list) for one in each]


class GooglePage(api.CamelModel, Generic[api.T]):
    items: Annotated[Sequence[api.T], BeforeValidator(_of_all_zones)] = ()
    next_page_token: str | None = None
    unreachables: Sequence[str] = ()


class GoogleOperation(api.CamelModel):
    name: str
    status: str
    target_id: str | None = None  # the number of what it makes
    error: _ErrorsOfOperation | None = None
    http_error_message: str | None = None

    @property
    def is_done(self) -> bool:
        return self.status == "DONE"

    def refusal(self, provider: str) -> api.RefusedError | None:
        if not self.is_done or self.error is None:
            return None
        first = next(iter(self.error.errors), _ErrorOfOperation())
        said = first.message or self.http_error_message or "no reason given"
        told = f"it refuses: {first.code}: {said[:300]}"
        return api.RefusedError(told, where=provider, code=_exact(first.code, said))


class GoogleApi(api.TokenApi):
    """Requests with a token of the user's credentials. They raise as those of `Api`."""

    login = _LOGIN

    def __init__(self, provider: str, address: str, source: str) -> None:
        super().__init__(provider, address, source)
        self._renewing = threading.Lock()
        self._credentials: Any = None

    @cached_property
    def project(self) -> str:
        """Return the project in which boxes are rented. Raises UsageError if none is named."""
        found = projects()
        if not found:
            raise UsageError(
                "nothing says in which of your projects at Google Cloud.",
                where=self.provider,
                hint="Name it: gcloud config set project PROJECT (or GOOGLE_CLOUD_PROJECT).",
            )
        if not _PROJECT.fullmatch(found[0]):  # another one would pay, unasked
            raise UsageError(
                f"{found[0]!r} is no project of Google Cloud.",
                where=self.provider,
                hint="Your settings name it: gcloud config set project PROJECT (or "
                "GOOGLE_CLOUD_PROJECT).",
            )
        return found[0]

    def project_of(self, digest: str) -> str:
        """Return the project that a box's id names; without one, the user's. Raises
        UnreachableError if no setting names it: the box is elsewhere, and not gone."""
        if not digest:
            return self.project
        found = next((each for each in projects() if api.digest_of(each) == digest), "")
        if not found:
            raise UnreachableError(
                "that box is in another project than those that your settings name.",
                where=self.provider,
                hint="Name the one in which it was rented: export GOOGLE_CLOUD_PROJECT=PROJECT",
            )
        return found

    def path(self, zone: str = "", project: str = "") -> str:
        place = f"/zones/{api.segment(zone)}" if zone else ""
        return f"/compute/v1/projects/{api.segment(project or self.project)}{place}"

    def every(self, what: str, model: type[api.T], path: str = "", **query: str) -> Iterator[api.T]:
        """Yield what a list has: of the project, or of what has this path. Raises UnreachableError;
        PartialListError after all of one that is not whole."""
        away = set[str]()
        for _ in range(api.MOST_PAGES):
            place = f"{path or self.path()}/{what}"
            page = self.get(place, GooglePage[model], maxResults="500", **query)  # type: ignore[valid-type]
            away |= {*page.unreachables}
            yield from page.items
            if not page.next_page_token:
                break
            query["pageToken"] = page.next_page_token
        else:
            raise api.too_many(self.provider)
        if away:
            raise api.PartialListError(
                f"its list leaves out {', '.join(sorted(away))[:200]}, which is down.",
                where=self.provider,
                hint="A box whose id names another zone is found there: --host gcp:ID",
            )

    def settled(self, path: str, operation: GoogleOperation) -> GoogleOperation:
        """Return an operation once it is over. `path`: that of its zone or project. Raises
        UndecidedError if nobody knows, or it takes too long."""
        waited, looks = 0.0, 0
        while not operation.is_done:
            pause = _LOOKS_S[min(looks, len(_LOOKS_S) - 1)]
            if waited + pause > _LONGEST_OPERATION_S:
                raise self._undecided(f"its operation goes on after {waited / 60:.0f} minutes")
            self.pause(pause)
            waited, looks = waited + pause, looks + 1
            try:
                operation = self.get(f"{path}/operations/{operation.name}", GoogleOperation)
            except UnreachableError as error:
                raise api.UndecidedError(
                    f"it is unknown whether this was done: {error.what}", where=self.provider
                ) from None
        return operation

    def _plain(self, status: int, answer: object) -> tuple[int, object]:
        reasons = [*_reasons(answer)]
        if status == 403 and _SLOW_DOWN.intersection(reasons):
            status = 429
        return status, _in_one_word(answer, reasons)

    def _token(self, path: str) -> str:  # noqa: ARG002 - it is of all projects
        from google.auth import exceptions
        from google.auth.transport.urllib3 import Request

        with self._renewing:
            try:
                if self._credentials is None:
                    self._credentials = _loaded(str(credentials_file()))
                if not self._credentials.valid:
                    pool = urllib3.PoolManager(timeout=_TOKEN_S, retries=2)
                    self._credentials.refresh(Request(pool))  # type: ignore[no-untyped-call]
            except exceptions.TransportError as error:
                raise self._failed(f"no token can be got for it ({type(error).__name__})") from None
            except exceptions.GoogleAuthError as error:
                if getattr(error, "retryable", False):
                    raise self._failed("no token can be got for it now") from None
                raise self._no_key(str(error.args[0] if error.args else error)) from None
            except (ValueError, OSError, TypeError, AttributeError, LookupError) as error:
                # a file that is none, or an answer: the library does not look at types
                raise self._no_key(f"{type(error).__name__}") from None
            return str(self._credentials.token)

    def _refused(self, status: int, answer: object) -> api.RefusedError:
        refused = super()._refused(status, answer)
        refused.code = _exact(refused.code, refused.what)
        return refused


def _exact(code: str, said: str) -> str:
    """Return a refusal's code, or a more exact one that its text shows."""
    if _ALL_GPUS in said:
        return _ALL_GPUS
    if not _POLICY.search(said):
        return code
    return POLICY_OF_PLACES if "resourceLocations" in said else POLICY


def _loaded(file: str) -> Any:  # noqa: ANN401 - of many kinds
    import google.auth

    with warnings.catch_warnings():
        # It warns of files that come from elsewhere: this one is the user's own.
        warnings.simplefilter("ignore")
        found, _ = google.auth.load_credentials_from_file(  # type: ignore[no-untyped-call]
            file, scopes=[_SCOPE]
        )
    return found


def _reasons(answer: object) -> Iterator[str]:
    """Yield Google's words for why it refuses: the exact ones first."""
    error = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(error, dict):
        return
    for key in ("details", "errors"):
        rows = error.get(key)
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, dict) and isinstance(row.get("reason"), str):
                yield row["reason"]


def _in_one_word(answer: object, reasons: Sequence[str]) -> object:
    """Return an answer whose error has the reason for its code, where Google has the status."""
    if not reasons or not isinstance(answer, dict):
        return answer
    error: Mapping[str, Any] = answer["error"]
    word = reasons[0]
    if "notFound" in reasons:  # also of a project or a zone: that says nothing of what is in it
        word = GONE[0] if _THING.search(str(error.get("message"))) else NO_PROJECT
    return {**answer, "error": {**error, "code": word}}
