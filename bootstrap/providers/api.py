"""One provider's REST API: JSON over https, with the user's key.

Reads are retried after a temporary failure. A change is sent once: a create that timed out may
have rented, and a retry would rent twice. Only after "too many requests" is a change retried.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import urllib.request
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import urllib3
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from bootstrap.errors import UnreachableError, UsageError
from bootstrap.providers.keys import ApiKey

_TIMEOUT = urllib3.Timeout(connect=10, read=30)
_RETRIES = urllib3.Retry(
    total=4,
    backoff_factor=0.5,
    backoff_max=20,
    allowed_methods=None,
    status_forcelist={429, 500, 502, 503, 504},
    respect_retry_after_header=False,
    raise_on_status=False,
    redirect=0,
)
_BUSY_ONLY = _RETRIES.new(
    total=None,
    connect=0,
    read=0,
    other=0,
    redirect=0,
    status=6,
    backoff_factor=1,
    allowed_methods=None,
    status_forcelist={429},
)
_NEVER_SENT = (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError)
MOST_PAGES = 200
"""Most pages of a list; no account has so many boxes."""
_MOST = 32 * 1024 * 1024
"""Most bytes of an answer that are read."""
_SHOWN = 300
_LOOPBACK = re.compile(r"http://127\.0\.0\.1:[0-9]{1,5}")


class UndecidedError(UnreachableError):
    """A change was requested, and nobody knows whether it was made."""


class RefusedError(UnreachableError):
    """The API refused a change: nothing was done, unless `answer` says otherwise."""

    status: int = 0
    code: str = ""
    """The API's own word for the reason."""
    answer: Mapping[str, Any] = {}


class ApiModel(BaseModel):
    """The fields that are read from an answer; others are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class CamelModel(ApiModel):
    """The same for an API that says `startedAt` for what is `started_at` here."""

    model_config = ConfigDict(alias_generator=to_camel)


_Model = TypeVar("_Model", bound=BaseModel)


class Api:
    """A client of one API; without a key, only for what is public."""

    def __init__(self, provider: str, address: str, key: ApiKey | None) -> None:
        self.provider = provider
        self._address = _simulated(provider) or address
        self._key = key
        self.answered_at: float | None = None
        """When the API last answered, by its own clock (seconds since 1970)."""

    def get(self, path: str, model: type[_Model], **query: str) -> _Model:
        """Return what is at `path`. Raises UnreachableError; UsageError if the key is refused."""
        found = self.find(path, model, **query)
        if found is None:
            raise self._failed("it answers with 404")
        return found

    def find(self, path: str, model: type[_Model], **query: str) -> _Model | None:
        """As `get`, but return None if there is nothing (404)."""
        status, answer = self._read("GET", path + (f"?{urlencode(query)}" if query else ""))
        return None if status == 404 else self._checked(status, answer, model)

    def search(self, path: str, body: object, model: type[_Model]) -> _Model:
        """Return what a search finds: a POST that only reads. Raises as `get`."""
        return self._checked(*self._read("POST", path, body), model)

    def post(self, path: str, body: object, model: type[_Model]) -> _Model:
        """Change something, once.

        Raises UndecidedError if nobody knows whether it was changed, RefusedError if it wasn't,
        and as `get` if it was never sent.
        """
        return self._change("POST", path, body, model)

    def put(self, path: str, body: object, model: type[_Model]) -> _Model:
        """As `post`."""
        return self._change("PUT", path, body, model)

    def patch(self, path: str, body: object, model: type[_Model]) -> _Model:
        """As `post`."""
        return self._change("PATCH", path, body, model)

    def delete(self, path: str, model: type[_Model]) -> _Model | None:
        """As `post`, but return None if there is nothing (404)."""
        try:
            return self._change("DELETE", path, None, model)
        except RefusedError as error:
            if error.status == 404:
                return None
            raise

    def _change(self, method: str, path: str, body: object, model: type[_Model]) -> _Model:
        try:
            status, answer = self._ask(method, path, body, retries=_BUSY_ONLY)
        except urllib3.exceptions.HTTPError as error:
            if isinstance(getattr(error, "reason", None) or error, _NEVER_SENT):
                raise self._failed(_in_words(error)) from None
            raise self._undecided(_in_words(error)) from None
        if status == 401:
            raise self._key_refused(answer)
        if 400 <= status < 500:
            raise self._refused(status, answer)
        if not 200 <= status < 300:
            raise self._undecided(f"it answers with {status}{_why(answer)}")
        try:
            return model.model_validate({} if status == 204 else answer)
        except ValidationError as error:
            raise self._undecided(_schema_error(error)) from None

    def _checked(self, status: int, answer: object, model: type[_Model]) -> _Model:
        if status in {401, 403}:
            raise self._key_refused(answer)
        if status != 200:
            raise self._failed(f"it answers with {status}{_why(answer)}")
        try:
            return model.model_validate(answer)
        except ValidationError as error:
            raise self._failed(_schema_error(error)) from None

    def _read(self, method: str, path: str, body: object = None) -> tuple[int, object]:
        try:
            return self._ask(method, path, body, retries=_RETRIES)
        except urllib3.exceptions.HTTPError as error:
            raise self._failed(_in_words(error)) from None

    def _ask(
        self, method: str, path: str, body: object, *, retries: urllib3.Retry
    ) -> tuple[int, object]:
        headers = {"Authorization": f"Bearer {self._key.value}"} if self._key else {}
        if body is not None:
            headers["Content-Type"] = "application/json"
        answer = self._pool.request(
            method,
            self._address + path,
            body=None if body is None else json.dumps(body).encode(),
            headers=headers,
            retries=retries,
            timeout=_TIMEOUT,
            preload_content=False,
        )
        try:
            read = answer.read(_MOST)
        finally:
            answer.release_conn()
        with contextlib.suppress(ValueError):
            self.answered_at = parsedate_to_datetime(answer.headers.get("Date", "")).timestamp()
        try:
            return answer.status, json.loads(read)
        except (ValueError, RecursionError):
            return answer.status, None

    @cached_property
    def _pool(self) -> urllib3.PoolManager:
        host = self._address.partition("://")[2]
        proxy = urllib.request.getproxies().get(self._address.partition(":")[0])
        if not proxy or urllib.request.proxy_bypass(host):
            return urllib3.PoolManager()
        return urllib3.ProxyManager(proxy)

    def _bare(self, text: str) -> str:
        """Return a text without the key, which an answer may contain."""
        return text.replace(self._key.value, "…") if self._key else text

    def _failed(self, what: str) -> UnreachableError:
        return UnreachableError(
            self._bare(f"its account can't be asked: {what}."),
            where=self.provider,
            hint="Look at the provider's own page, and run the same command again.",
        )

    def _key_refused(self, answer: object) -> UsageError:
        source = f"the key of {self._key.source}" if self._key else "to answer without a key"
        return UsageError(
            self._bare(f"it refuses {source}{_why(answer)}."),
            where=self.provider,
            hint="Make a new one on the provider's page, and put it there.",
        )

    def _refused(self, status: int, answer: object) -> RefusedError:
        error = RefusedError(
            self._bare(f"it refuses ({status}){_why(answer)}."), where=self.provider
        )
        error.status = status
        error.answer = answer if isinstance(answer, dict) else {}
        told = error.answer.get("error")
        code = told.get("code") if isinstance(told, dict) else told
        error.code = code if isinstance(code, str) else ""
        return error

    def _undecided(self, what: str) -> UndecidedError:
        return UndecidedError(
            self._bare(f"it is unknown whether this was done: {what}."),
            where=self.provider,
            hint="See on the provider's own page what is there now.",
        )


def too_many(provider: str) -> UnreachableError:
    """Return the error for a list without an end: a part of it would leave boxes out."""
    return UnreachableError(
        "its list of boxes has no end.",
        where=provider,
        hint="Look at the provider's own page.",
    )


NOTHING = ApiModel
"""The model of an answer from which nothing is read."""


def segment(text: str) -> str:
    """Quote an id as one segment of a path."""
    return quote(text, safe="")


def _simulated(provider: str) -> str:
    """Return the address of a simulated API from the environment; only loopback is allowed."""
    address = os.environ.get(f"BOXSTRAP_{provider.upper()}_API", "")
    return address if _LOOPBACK.fullmatch(address) else ""


def _schema_error(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"])) or "the answer"
    return f"{place} is not what its API promises"


def _why(answer: object) -> str:
    """Return the reason that the API gives, if it gives one."""
    told: Mapping[str, Any] = answer if isinstance(answer, dict) else {}
    inner = told.get("error")
    told = inner if isinstance(inner, dict) else told
    words = (told.get(word) for word in ("message", "msg", "detail", "title", "error"))
    said = next((word for word in words if isinstance(word, str) and word), "")
    return f": {said[:_SHOWN]}" if said else ""


def _in_words(error: urllib3.exceptions.HTTPError) -> str:
    reason = getattr(error, "reason", None) or error
    if isinstance(reason, urllib3.exceptions.TimeoutError):
        return "it doesn't answer"
    if isinstance(reason, urllib3.exceptions.NameResolutionError):
        return "its name is not found"
    if isinstance(reason, urllib3.exceptions.SSLError):
        return "its certificate is not one that this machine trusts"
    return f"no connection ({type(reason).__name__})"
