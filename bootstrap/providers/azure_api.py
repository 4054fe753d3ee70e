"""Azure Resource Manager by REST: the login of `az`, subscriptions, requests, what errors mean.

`az` holds the user's login, and is asked for a token, which lasts an hour; nothing else is done by
it. Azure wraps its reasons: a deployment's error has the resource's in its details, or as text.
"""

import json
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from bootstrap.errors import UnreachableError, UsageError
from bootstrap.paths import ask_program, expanded, read_regular
from bootstrap.providers.api import TokenApi, digest_of
from bootstrap.providers.api_key import ApiKey, KeyPlaces

_LOGIN = "az login"
_INSTALL = "https://learn.microsoft.com/cli/azure/install-azure-cli"
_TOKEN_S = 90  # seconds that `az` may take for a token
_RENEW_S = 300.0  # how long before its end a token is not used any more
_UNKNOWN_END_S = 600.0
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CLOUD = "AzureCloud"
_NAMED = "AZURE_SUBSCRIPTION_ID"
NO_GROUP, NO_THING, NO_DEPLOYMENT = (
    "ResourceGroupNotFound",
    "ResourceNotFound",
    "DeploymentNotFound",
)
"""The codes of a 404 that speak of the thing itself, and of nothing around it."""
_WRAPPERS = frozenset(
    {
        *("InvalidTemplateDeployment", "DeploymentFailed", "ResourceDeploymentFailure"),
        *("ResourceOperationFailure", "MultipleErrorsOccurred"),
        *("Conflict", "BadRequest", "Forbidden", "NotFound"),
    }
)
"""Codes that only say that something inside failed."""
_DEEPEST = 6


class Subscription(NamedTuple):
    id: str
    is_default: bool


class _Token(NamedTuple):
    value: str
    ends: float


class AzureLogin(KeyPlaces):
    """The login of `az`, which holds it and gives out tokens."""

    @property
    def missing(self) -> str:
        return "" if shutil.which("az") else f"az, the Azure CLI: {_INSTALL}"

    def find(self) -> ApiKey | None:
        """Return a key without a value if `az` is there, and somebody logged in with it."""
        return ApiKey("", _LOGIN) if not self.missing and subscriptions() else None

    @property
    def places(self) -> str:
        return _LOGIN


def subscriptions() -> list[Subscription]:
    """Return the subscriptions of the user's login at `az`: first the one that is used."""
    folder = expanded(os.environ.get("AZURE_CONFIG_DIR") or "~/.azure")
    try:
        # `az` writes it with a byte order mark.
        told = json.loads(read_regular(folder / "azureProfile.json").decode("utf-8-sig"))
        rows = told["subscriptions"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    named = os.environ.get(_NAMED, "").strip().lower()
    found = [
        Subscription(str(row.get("id", "")).lower(), row.get("isDefault") is True)
        for row in (rows if isinstance(rows, list) else ())
        if isinstance(row, dict)
        and row.get("environmentName", _CLOUD) == _CLOUD
        and row.get("state", "Enabled") == "Enabled"
    ]
    found = [one for one in found if _ID.fullmatch(one.id)]
    return sorted(found, key=lambda one: (one.id != named, not one.is_default))


class AzureApi(TokenApi):
    """Requests with a token of the user's login. They raise as those of `Api`."""

    login = _LOGIN
    _tokens: dict[tuple[str, str], _Token] = {}  # noqa: RUF012 - of all accounts of this program
    _lock = threading.Lock()

    @property
    def now(self) -> float:
        """The time by Azure's clock, if it answered yet; seconds since 1970."""
        return self.answered_at or time.time()

    @cached_property
    def subscription(self) -> str:
        """Return the subscription in which boxes are rented. Raises UsageError without a login."""
        found = subscriptions()
        if not found:
            raise UsageError(
                "nobody is logged in at Azure, or no subscription is enabled.",
                where=self.provider,
                hint=f"Log in, and choose one: {_LOGIN}; az account set --subscription NAME",
            )
        named = os.environ.get(_NAMED, "").strip().lower()
        if named not in {"", found[0].id}:
            raise UsageError(
                f"your login at Azure has no subscription {named}.",
                where=_NAMED,
                hint="Name one that it has: az account list --output table",
            )
        return found[0].id

    def subscription_of(self, digest: str) -> str:
        """Return the subscription that a box's id names. Raises UnreachableError if the login has
        none such: the box is elsewhere, and not gone."""
        found = next((one.id for one in subscriptions() if digest_of(one.id) == digest), "")
        if not found:
            raise UnreachableError(
                "that box is in another subscription than those of your login at Azure.",
                where=self.provider,
                hint=f"Log in to the one in which it was rented: {_LOGIN}",
            )
        return found

    def _plain(self, status: int, answer: object) -> tuple[int, object]:
        if status == 401:  # renewed at the next request: it may have been revoked
            self._tokens.clear()
        return status, in_one_word(answer)

    def _token(self, path: str) -> str:
        named = _IN_PATH.match(path)
        subscription = named[1] if named else self.subscription
        place = (os.environ.get("AZURE_CONFIG_DIR", ""), subscription)
        with self._lock:
            known = self._tokens.get(place)
            if known is None or known.ends - time.time() < _RENEW_S:
                known = self._tokens[place] = self._new_token(subscription)
            return known.value

    def _new_token(self, subscription: str) -> _Token:
        asked = ("az", "account", "get-access-token", "--subscription", subscription)
        try:
            done = ask_program([*asked, "--output", "json", "--only-show-errors"], _TOKEN_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise self._failed(f"az gives out no token ({type(error).__name__})") from None
        if done.returncode:
            said = done.stderr
            if _NETWORK.search(said):
                raise self._failed(f"az gets no token now: {_reason_in(said)}")
            asked_login = _ASKED_LOGIN.search(said)  # it may name a tenant and a scope
            login = asked_login[0].rstrip() if asked_login else _LOGIN
            raise self._no_key(_reason_in(said), login)
        try:
            told = json.loads(done.stdout)
            ends = told.get("expires_on")
            token = _Token(told["accessToken"], float(ends or time.time() + _UNKNOWN_END_S))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise self._failed("what az says is no token") from None
        if not (token.value.isascii() and token.value.isprintable() and token.value):
            raise self._failed("what az says is no token")
        return token


_TRACE_ID = re.compile(r"\s*Trace ID:")
_ASKED_LOGIN = re.compile(r"^az login .+$", re.MULTILINE)
_NETWORK = re.compile(r"ConnectionError|Max retries|timed out|Temporary failure", re.IGNORECASE)
_IN_PATH = re.compile(r"/subscriptions/([0-9a-f-]{36})(?:/|$|\?)")


def _reason_in(said: str) -> str:
    """Return why `az` failed: its first error; what follows is advice, or how it came about."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR: ")]
    is_trace = any(line.startswith("Traceback ") for line in lines)
    first = lines[-1] if is_trace else next(iter([*errors, *lines]), "no reason given")
    return _TRACE_ID.split(first.removeprefix("ERROR: "))[0].rstrip(".")


def reasons(error: object, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield the codes and texts of an error and of what it wraps, the outermost first."""
    if not isinstance(error, dict) or depth > _DEEPEST:
        return
    code, said = error.get("code"), error.get("message")
    if isinstance(code, str) and isinstance(said, str):
        yield code, said
        if said.lstrip().startswith("{"):  # a whole answer, as text
            try:
                inner = json.loads(said)
            except (ValueError, RecursionError):
                inner = None
            if isinstance(inner, dict):
                yield from reasons(inner.get("error"), depth + 1)
    details = error.get("details")
    for each in details if isinstance(details, list) else ():
        yield from reasons(each, depth + 1)


def reason_of(error: object) -> tuple[str, str]:
    """Return the code and the text that say best why something failed."""
    found = list(reasons(error))
    exact = [(code, said) for code, said in found if code not in _WRAPPERS]
    plain = [(code, said) for code, said in found if not said.lstrip().startswith("{")]
    return next(iter([*exact, *reversed(plain), *found]), ("", "no reason given"))


def in_one_word(answer: object) -> object:
    """Return an answer whose error is the one that says best why."""
    error = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(error, dict):
        return answer
    code, said = reason_of(error)
    return {**answer, "error": {"code": code, "message": said}} if code else answer  # type: ignore[dict-item]
