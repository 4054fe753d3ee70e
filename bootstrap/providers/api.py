"""One provider's REST API: JSON over https, with the user's key, which is never stored by us.

Reads are retried after a temporary failure. A change is sent once: a create that timed out may
have rented, and a retry would rent twice. A change is retried only after "too many requests", and
after an answer that isn't the API's: what stands before it turned the request away.
"""

import contextlib
import hashlib
import json
import os
import re
import threading
import time
import urllib.request
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from functools import cached_property, partial
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import urllib3
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from bootstrap import __version__
from bootstrap.errors import UnreachableError
from bootstrap.providers.api_key import ApiKey
from bootstrap.providers.offer import RentedBox

_TIMEOUT = urllib3.Timeout(connect=10, read=30)
AGENT = f"boxstrap/{__version__}"
"""What every request says it is from: some providers turn away the default of a library."""
_RETRIES = urllib3.Retry(
    total=4,
    backoff_factor=0.5,
    backoff_max=20,
    allowed_methods=None,
    status_forcelist={500, 502, 503, 504},
    respect_retry_after_header=False,
    raise_on_status=False,
    redirect=0,
)
_ONCE = urllib3.Retry(total=False, redirect=0)
_PAUSES_S = (0.0, 2.0, 4.0, 8.0, 16.0, 20.0)
"""Seconds before a request is repeated that was turned away, unless the answer says how long."""
_LONGEST_PAUSE_S = 90.0  # an answer that asks for a longer pause ends the command
_LONGEST_REQUEST_S = 240.0  # most seconds for a request, its retries included
_EDGE_TRIES = 3
_NEVER_SENT = (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError)
MOST_PAGES = 200  # most pages of a list; no account has so many boxes
_MOST = 32 * 1024 * 1024  # most bytes of an answer that are read
_SHOWN = 300
_NO_DATE = (ValueError, TypeError, OverflowError)
"""What the standard library raises for a date that is none."""
_LOOPBACK = re.compile(r"http://127\.0\.0\.1:[0-9]{1,5}")
_NEXT = re.compile(r'<([^<>]*)>\s*;\s*rel="?next\b')
_LONGEST_TEXT = 1024 * 1024
_TEXT_S = 6.0  # for how long to read a log, which may be a stream without an end


class UndecidedError(UnreachableError):
    """A change was requested, and nobody knows whether it was made."""


class PartialListError(UnreachableError):
    """A list leaves something out, which can't be asked now; `boxes` are the others."""

    boxes: Sequence[RentedBox] = ()


class RefusedKeyError(UnreachableError):
    """The account refuses our key: nothing is known of what it has."""


class RefusedError(UnreachableError):
    """The API refused a change: nothing was done, unless `answer` says otherwise."""

    status: int = 0
    answer: Mapping[str, Any] = {}

    def __init__(self, what: str, *, where: str = "", code: str = "", hint: str = "") -> None:
        """`code`: the API's own word for the reason, or ours."""
        super().__init__(what, where=where, hint=hint)
        self.code = code


class Refusal(NamedTuple):
    means: str = ""  # what the API's own words don't say: the reason, or what to do
    is_final: bool = True  # whether every other offer would be refused, too
    may_pass: bool | None = False
    """Whether the same request may be granted later; None: nobody knows."""


TAKEN = "taken"  # our own code for a refusal for want of a free box, where the API has none
NONE_LEFT = Refusal(is_final=False, may_pass=True)
THIS_OFFER = Refusal(is_final=False)
"""Refused for what this offer is: another one may do, but never the same one."""
LACKS_RIGHT = Refusal("your credentials lack this permission: docs/providers.md")
BY_POLICY = Refusal("a policy of your organisation forbids it")


class ApiModel(BaseModel):
    """The fields that are read from an answer; others are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class CamelModel(ApiModel):
    """The same for an API that says `startedAt` for what is `started_at` here."""

    model_config = ConfigDict(alias_generator=to_camel)


_Model = TypeVar("_Model", bound=BaseModel)
T = TypeVar("T")


class Envelope(ApiModel, Generic[T]):
    """An answer that is one value under one key."""

    content: T = Field(
        validation_alias=AliasChoices(
            *("data", "value", "items", "instances", "offers", "pods", "clusters", "gpus"),
            "networkVolumes",
        )
    )


class Api:
    """A client of one API; without a key, only for what is public."""

    forbidden_means: ClassVar[str] = ""
    """What a 403 of an unknown code means, where that is never said of the key itself."""

    def __init__(self, provider: str, address: str, key: ApiKey | None) -> None:
        self.provider = provider
        self._address = _simulated(provider) or address
        self._key = key
        self.refusals: Mapping[object, Refusal] = {}
        """What its statuses and codes mean, of its account."""
        self.answered_at: float | None = None
        """When the API last answered, by its own clock (seconds since 1970)."""
        self.next_path = ""
        """The path of the page after the one that was read last; "" if it was the last one."""

    @property
    def has_key(self) -> bool:
        return self._key is not None

    def get(self, path: str, model: type[_Model], **query: str) -> _Model:
        """Return what is at `path`. Raises UnreachableError; RefusedKeyError for our key."""
        asked = f"{path}?{urlencode(query)}" if query else path
        return self._checked(*self._read("GET", asked), model)

    def find(self, path: str, model: type[_Model], gone: Collection[str] = ()) -> _Model | None:
        """As `get`, but return None if the API says that no such thing exists. `gone`: its codes
        for that; without any, each 404 of the API itself says it."""
        status, answer = self._read("GET", path)
        return None if _is_gone(status, answer, gone) else self._checked(status, answer, model)

    def search(self, path: str, body: object, model: type[_Model]) -> _Model:
        """Return what a search finds: a POST that only reads. Raises as `get`."""
        return self._checked(*self._read("POST", path, body), model)

    def post(self, path: str, body: object, model: type[_Model]) -> _Model:
        """Change something, once. Raises UndecidedError if nobody knows whether it was changed,
        RefusedError if it wasn't, and as `get` if it was never sent."""
        return self._change("POST", path, body, model)

    def put(self, path: str, body: object, model: type[_Model]) -> _Model:
        return self._change("PUT", path, body, model)

    def patch(self, path: str, body: object, model: type[_Model]) -> _Model:
        return self._change("PATCH", path, body, model)

    def delete(self, path: str, model: type[_Model], gone: Collection[str] = ()) -> _Model | None:
        """As `post`, but return None if the API says that no such thing exists, as `find`."""
        try:
            return self._change("DELETE", path, None, model)
        except RefusedError as error:
            if _is_gone(error.status, error.answer, gone):
                return None
            raise

    def _change(self, method: str, path: str, body: object, model: type[_Model]) -> _Model:
        try:
            status, answer = self._ask(method, path, body, retries=_ONCE)
        except urllib3.exceptions.HTTPError as error:
            if isinstance(getattr(error, "reason", None) or error, _NEVER_SENT):
                raise self._failed(_in_words(error)) from None
            raise self._undecided(_in_words(error)) from None
        if _refuses_key(status, answer):
            raise self._key_refused(answer, status)
        if 400 <= status < 500:
            raise self._refused(status, answer)
        if not 200 <= status < 300:
            raise self._undecided(f"it answers with {status}{_why(answer)}")
        try:
            # Azure's 202 has no document, either.
            is_bare = status == 204 or (status == 202 and answer is None)
            return model.model_validate({} if is_bare else answer)
        except ValidationError as error:
            raise self._undecided(_schema_error(error)) from None

    def _checked(self, status: int, answer: object, model: type[_Model]) -> _Model:
        if status == 403 or _refuses_key(status, answer):
            raise self._key_refused(answer, status)
        if status != 200:
            error = self._failed(f"it answers with {status}{_why(answer)}")
            error.hint = self._advice(answer) or error.hint
            raise error
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
        """Send a request, again if it was turned away unread; return status and document."""
        for tried, pause in enumerate((*_PAUSES_S, None), start=1):
            send = partial(self._send, method, path, body, retries)
            # A change is made in this thread: it must be over when somebody looks what it made.
            status, answer, asked_pause = send() if retries is _ONCE else _within_time(send)
            is_edge = status == 403 and not isinstance(answer, dict)
            if status != 429 and not is_edge:
                break
            wait = pause if asked_pause is None else asked_pause
            if is_edge and (tried >= _EDGE_TRIES or pause is None):
                raise self._failed(
                    "what stands before its API turned the request away (403, without the API's "
                    f"own answer; asked {tried} times). That says nothing about your key"
                )
            if pause is None or wait is None or wait > _LONGEST_PAUSE_S:
                break
            self.pause(wait)
        return status, answer

    def text(self, place: str) -> str:
        """Return what a path of the API, or another server's address, sends within some seconds.
        Only the API gets the key. A stream that stays open is no error."""
        is_own = place.startswith("/")
        headers = {"User-Agent": AGENT}
        if is_own and self._key:
            headers["Authorization"] = f"Bearer {self._key.value}"
        found, until = b"", time.monotonic() + _TEXT_S
        timeout = urllib3.Timeout(connect=_TEXT_S, read=_TEXT_S / 2)
        try:
            answer = self._pool.request(
                "GET",
                self._address + place if is_own else place,
                headers=headers,
                retries=False,
                timeout=timeout,
                preload_content=False,
            )
            if answer.status != 200:
                raise self._failed(f"it answers with {answer.status}")
            with contextlib.suppress(urllib3.exceptions.HTTPError), contextlib.closing(answer):
                while len(found) < _LONGEST_TEXT and time.monotonic() < until:
                    if not (part := answer.read1(65536)):
                        break
                    found += part
        except urllib3.exceptions.HTTPError as error:
            raise self._failed(_in_words(error)) from None
        return self._bare(found.decode(errors="replace"))

    def events(self, place: str, name: str) -> list[str]:
        """Return `name` of each event so far of a stream that goes on."""
        found = list[str]()
        for line in self.text(place).splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                found += [str(json.loads(line.removeprefix("data:"))[name])]
        return found

    def pause(self, seconds: float) -> None:
        """Wait, as the API asks for between requests."""
        time.sleep(seconds)

    def _send(
        self, method: str, path: str, body: object, retries: urllib3.Retry
    ) -> tuple[int, object, float | None]:
        headers = {"User-Agent": AGENT}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key.value}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        elif method == "PATCH":  # Paperspace refuses one that has no type
            headers["Content-Type"] = "text/plain"
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
        with contextlib.suppress(*_NO_DATE):
            self.answered_at = parsedate_to_datetime(answer.headers.get("Date", "")).timestamp()
        found = _NEXT.search(answer.headers.get("Link", ""))
        is_own = found and found[1].startswith(f"{self._address}/")
        self.next_path = found[1].removeprefix(self._address) if found and is_own else ""
        try:
            document = json.loads(read)
        except (ValueError, RecursionError):
            document = None
        return answer.status, document, self._pause(answer.headers.get("Retry-After", ""))

    def _pause(self, told: str) -> float | None:
        """Return the seconds that Retry-After asks for: a number, or a date."""
        if told.strip().isdecimal():
            return float(told)
        with contextlib.suppress(*_NO_DATE):
            now = self.answered_at or time.time()
            return max(0.0, parsedate_to_datetime(told).timestamp() - now)
        return None

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
        return not_asked(self.provider, self._bare(what))

    def _advice(self, answer: object, status: int = 0) -> str:
        """Return what is known of a refusal, as a sentence; "" if nothing."""
        known = self.refusals.get(_code(answer))
        means = known.means if known else self.forbidden_means if status == 403 else ""
        return f"{means[0].upper()}{means[1:]}." if means else ""

    def _key_refused(self, answer: object, status: int) -> RefusedKeyError:
        if advice := self._advice(answer, status):  # the key itself is right
            said = self._bare(f"it refuses{_why(answer)}.")
            return RefusedKeyError(said, where=self.provider, hint=advice)
        return self._no_key(_why(answer)[2:])

    def _no_key(self, said: str) -> RefusedKeyError:
        """Return the error for a key that is refused; `said`: why, in the API's words."""
        source = f"the key of {self._key.source}" if self._key else "to answer without a key"
        return RefusedKeyError(
            self._bare(f"it refuses {source}{f': {said}' if said else ''}."),
            where=self.provider,
            hint="Make a new one on the provider's page, and put it there.",
        )

    def _refused(self, status: int, answer: object) -> RefusedError:
        said = self._bare(f"it refuses ({status}){_why(answer)}.")
        error = RefusedError(said, where=self.provider, code=_code(answer))
        error.status = status
        error.answer = answer if isinstance(answer, dict) else {}
        return error

    def _undecided(self, what: str) -> UndecidedError:
        return undecided(self.provider, self._bare(f"{what}."))


class TokenApi(Api):
    """An API that is asked with a token of the user's login, which lasts an hour."""

    forbidden_means = "what your credentials must be allowed: docs/providers.md"
    login: ClassVar[str]  # the line that logs in

    def __init__(self, provider: str, address: str, source: str) -> None:
        super().__init__(provider, address, None)
        self._source = source

    @property
    def has_key(self) -> bool:
        return bool(self._source)

    @abstractmethod
    def _token(self, path: str) -> str:
        """Return a token that is valid now. Raises RefusedKeyError, UnreachableError."""

    @abstractmethod
    def _plain(self, status: int, answer: object) -> tuple[int, object]:
        """Return an answer as other APIs would give it."""

    def _send(
        self, method: str, path: str, body: object, retries: urllib3.Retry
    ) -> tuple[int, object, float | None]:
        self._key = ApiKey(self._token(path), self._source)
        status, answer, pause = super()._send(method, path, body, retries)
        return (*self._plain(status, answer), pause)

    def _no_key(self, said: str, login: str = "") -> RefusedKeyError:
        return RefusedKeyError(
            f"it refuses the key of {self._source or 'nowhere'}: "
            f"{said[:_SHOWN].rstrip('.') or 'no reason given'}.",
            where=self.provider,
            hint=f"Log in again: {login or self.login}. Which permissions it needs: "
            "docs/providers.md",
        )


def _within_time(request: Callable[[], T]) -> T:
    """Return what `request` returns. Raises as it, and urllib3's TimeoutError for an answer that
    trickles: the timeouts of a socket count from each byte."""
    done: Future[T] = Future()

    def make() -> None:
        try:
            done.set_result(request())
        except BaseException as error:  # raised in the thread that waits
            done.set_exception(error)

    threading.Thread(target=make, name="account", daemon=True).start()
    try:
        return done.result(_LONGEST_REQUEST_S)
    except FutureTimeout:
        if done.done():
            raise
        raise urllib3.exceptions.TimeoutError from None


def not_asked(provider: str, why: str) -> UnreachableError:
    return UnreachableError(
        f"its account can't be asked: {why}.",
        where=provider,
        hint="Look at the provider's own page, and run the same command again.",
    )


def undecided(provider: str, why: str) -> UndecidedError:
    return UndecidedError(
        f"it is unknown whether this was done: {why}",
        where=provider,
        hint="See on the provider's own page what is there now.",
    )


def too_many(provider: str) -> UnreachableError:
    """Return the error for a list without an end: a part of it would leave boxes out."""
    return UnreachableError(
        "its list of boxes has no end.", where=provider, hint="Look at the provider's own page."
    )


NOTHING = ApiModel  # the model of an answer from which nothing is read


def digest_of(owner: str) -> str:
    """Return the few letters by which a box's id names what it is in: a project, a subscription."""
    return hashlib.sha256(owner.encode()).hexdigest()[:6]


def time_of(stamp: str | None) -> float | None:
    """Return the seconds since 1970 of a time by RFC 3339, in whole seconds; None for none. Python
    3.10 reads neither `Z` nor seven digits of a second, as Azure writes them."""
    plain = re.sub(r"\.[0-9]+", "", stamp or "").replace("Z", "+00:00")
    with contextlib.suppress(ValueError):
        found = datetime.fromisoformat(plain)
        return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).timestamp()
    return None


def segment(text: str) -> str:
    return quote(text, safe="")


def _simulated(provider: str) -> str:
    """Return the address of a simulated API from the environment; only loopback is allowed."""
    address = os.environ.get(f"BOXSTRAP_{provider.upper()}_API", "")
    return address if _LOOPBACK.fullmatch(address) else ""


def _schema_error(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"])) or "the answer"
    return f"{place} is not what its API promises"


def _is_gone(status: int, answer: object, codes: Collection[str]) -> bool:
    """Whether the API itself says that no such thing exists: other things answer 404, too."""
    is_own = status == 404 and isinstance(answer, dict) and bool(answer)
    return is_own and not _refuses_key(status, answer) and (not codes or _code(answer) in codes)


def _refuses_key(status: int, answer: object) -> bool:
    """Whether it is our key that is refused: Vast.ai says so with 404, too."""
    expired = status == 404 and any("session expired" in word.lower() for word in _words(answer))
    return status == 401 or (400 <= status < 500 and _code(answer) == "auth_error") or expired


def _code(answer: object) -> str:
    """Return the API's own word for the reason, if it gives one."""
    told = answer.get("error") if isinstance(answer, dict) else None
    code = told.get("code") if isinstance(told, dict) else told
    return code if isinstance(code, str) else ""


def _words(answer: object) -> Iterator[str]:
    """Yield the reasons that the API gives, the best one first."""
    told: Mapping[str, Any] = answer if isinstance(answer, dict) else {}
    inner = told.get("error")
    told = inner if isinstance(inner, dict) else told
    words = (told.get(word) for word in ("message", "msg", "detail", "title", "error"))
    return (word for word in words if isinstance(word, str) and word)


def _why(answer: object) -> str:
    said = next(_words(answer), "")
    return f": {said[:_SHOWN].rstrip('.')}" if said else ""


def _in_words(error: urllib3.exceptions.HTTPError) -> str:
    reason = getattr(error, "reason", None) or error
    if isinstance(reason, urllib3.exceptions.TimeoutError):
        return "it doesn't answer"
    if isinstance(reason, urllib3.exceptions.NameResolutionError):
        return "its name is not found"
    if isinstance(reason, urllib3.exceptions.SSLError):
        return "its certificate is not one that this machine trusts"
    return f"no connection ({type(reason).__name__})"
