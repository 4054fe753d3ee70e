"""One provider's REST API: JSON over https, with the person's key.

What only reads is asked again when it fails for a moment; nothing else is (a create that timed out
may have rented, and would rent twice).
"""

from __future__ import annotations

import json
import os
import re
import urllib.request
from collections.abc import Mapping
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
    allowed_methods={"GET"},
    status_forcelist={429, 500, 502, 503, 504},
    respect_retry_after_header=False,
    raise_on_status=False,
    redirect=0,
)
MOST_PAGES = 200
"""Of a list; no account has so many boxes."""
_MOST = 32 * 1024 * 1024
"""Bytes of an answer that are taken."""
_SHOWN = 300
_LOOPBACK = re.compile(r"http://127\.0\.0\.1:[0-9]{1,5}")


class ApiModel(BaseModel):
    """What is read of an answer: fields that are not named in it are left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class CamelModel(ApiModel):
    """The same where the API says `startedAt` for what is `started_at` here."""

    model_config = ConfigDict(alias_generator=to_camel)


_Model = TypeVar("_Model", bound=ApiModel)


class Api:
    """Asks one API. `where` is its address and what messages call it."""

    def __init__(self, provider: str, address: str, key: ApiKey) -> None:
        self.provider = provider
        self._address = _simulated(provider) or address
        self._key = key

    def get(self, path: str, model: type[_Model], **query: str) -> _Model:
        """What is at `path`. Raises UnreachableError, and UsageError where the key is refused."""
        found = self.find(path, model, **query)
        if found is None:
            raise self._failed("it answers with 404")
        return found

    def find(self, path: str, model: type[_Model], **query: str) -> _Model | None:
        """The same; None where there is nothing (404)."""
        status, answer = self._ask(path + (f"?{urlencode(query)}" if query else ""))
        if status == 404:
            return None
        if status in {401, 403}:
            raise UsageError(
                self._bare(f"it refuses the key of {self._key.source}{_why(answer)}."),
                where=self.provider,
                hint="Make a new one on the provider's page, and put it there.",
            )
        if status != 200:
            raise self._failed(f"it answers with {status}{_why(answer)}")
        try:
            return model.model_validate(answer)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"])) or "the answer"
            raise self._failed(f"{place} is not what its API promises") from None

    def _ask(self, path: str) -> tuple[int, object]:
        try:
            answer = self._pool.request(
                "GET",
                self._address + path,
                headers={"Authorization": f"Bearer {self._key.value}"},
                retries=_RETRIES,
                timeout=_TIMEOUT,
                preload_content=False,
            )
            try:
                body = answer.read(_MOST)
            finally:
                answer.release_conn()
        except urllib3.exceptions.HTTPError as error:
            raise self._failed(_in_words(error)) from None
        try:
            return answer.status, json.loads(body)
        except ValueError:
            return answer.status, None

    @cached_property
    def _pool(self) -> urllib3.PoolManager:
        host = self._address.partition("://")[2]
        proxy = urllib.request.getproxies().get(self._address.partition(":")[0])
        if not proxy or urllib.request.proxy_bypass(host):
            return urllib3.PoolManager()
        return urllib3.ProxyManager(proxy)

    def _bare(self, text: str) -> str:
        """Without the key, which an answer may hold."""
        return text.replace(self._key.value, "…")

    def _failed(self, what: str) -> UnreachableError:
        return UnreachableError(
            self._bare(f"its account can't be asked: {what}."),
            where=self.provider,
            hint="Look at the provider's own page, and run the same command again.",
        )


def too_many(provider: str) -> UnreachableError:
    """What a list without an end is: a part of it would leave boxes out."""
    return UnreachableError(
        "its list of boxes has no end.",
        where=provider,
        hint="Look at the provider's own page.",
    )


def segment(text: str) -> str:
    """An id as one part of a path, whatever is in it."""
    return quote(text, safe="")


def _simulated(provider: str) -> str:
    """A simulation on this machine that stands in for the API: nothing else can be named."""
    address = os.environ.get(f"BOXSTRAP_{provider.upper()}_API", "")
    return address if _LOOPBACK.fullmatch(address) else ""


def _why(answer: object) -> str:
    """What the API gives as its reason, where it does."""
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
