"""AWS by boto3 (the extra `boxstrap[aws]`): the user's credentials, requests, what errors mean.

Nothing of the credentials is read by us, and boto3 repeats nothing: a read is repeated here, a
change is sent once.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from bootstrap.errors import UnreachableError
from bootstrap.paths import expanded
from bootstrap.providers import api
from bootstrap.providers.api_key import ApiKey, KeyPlaces

HOME = "us-east-1"  # the region if nothing names one
_PAUSES_S = (1.0, 2.0, 4.0, 8.0, None)  # seconds before a request is repeated; None: it is not
_TIMEOUTS = {"connect_timeout": 10, "read_timeout": 60}
_READ_TIMEOUTS = {"connect_timeout": 5, "read_timeout": 10}
_READ_FOR_S = 20.0
"""How long a read is repeated: a region that is down mustn't hold up what is in another one."""

_THROTTLED = frozenset({"RequestLimitExceeded", "Throttling", "ThrottlingException"})
_NOT_OURS = frozenset(
    {
        *("AuthFailure", "InvalidClientTokenId", "UnrecognizedClientException", "ExpiredToken"),
        *("ExpiredTokenException", "RequestExpired", "SignatureDoesNotMatch"),
        *("IncompleteSignature", "MissingAuthenticationToken", "InvalidSignatureException"),
    }
)
"""Codes that refuse the credentials themselves."""
_AGAIN = _THROTTLED | {"InvalidGroup.NotFound"}
"""Codes after which the same is asked again: also of a group that was made a moment ago, and that
not all of EC2 knows yet."""
NO_RIGHT = frozenset({"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"})
"""Codes for a permission that is missing."""
_NO_ROOM = "Insufficient"
"""How codes begin that refuse for want of capacity, though they may come with a 500."""
_HOLDS = {
    "describe_addresses": "Addresses",
    "describe_images": "Images",
    "describe_instance_status": "InstanceStatuses",
    "describe_instance_type_offerings": "InstanceTypeOfferings",
    "describe_instance_types": "InstanceTypes",
    "describe_instances": "Reservations",
    "describe_regions": "Regions",
    "describe_security_groups": "SecurityGroups",
    "describe_snapshots": "Snapshots",
    "describe_spot_price_history": "SpotPriceHistory",
    "describe_subnets": "Subnets",
    "describe_volumes": "Volumes",
    "get_console_output": "InstanceId",
    "get_parameter": "Parameter",
    "get_products": "PriceList",
    "get_service_quota": "Quota",
}
"""What each answer to a read must have."""
_MADE_BEFORE = "IdempotentParameterMismatch"


class AwsChain(KeyPlaces):
    """The places where boto3 finds credentials; it is boto3 that reads them."""

    _VARIABLES = (
        *("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_ROLE_ARN"),
        *("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
    )
    _OTHER_FILES = ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE")

    library, extra = "boto3", "aws"

    def find(self) -> ApiKey | None:
        """Return a key without a value if boto3 is there and may find credentials."""
        if self.missing:
            return None
        named = next((name for name in self._VARIABLES if os.environ.get(name)), "")
        files = (
            os.environ.get(variable) or file
            for variable, file in zip(self._OTHER_FILES, self.files, strict=True)
        )
        source = named or next((file for file in files if expanded(file).is_file()), "")
        return ApiKey("", source) if source else None


class AwsApi:
    """Requests to an AWS account. They raise as those of `Api`."""

    def __init__(self, provider: str, source: str, pause: Callable[[float], None]) -> None:
        self._provider, self._source, self._pause = provider, source, pause
        self._made = dict[tuple[str, str, bool], Any]()
        self._making = threading.Lock()
        self.answered_at: float | None = None
        """When it last answered, by its own clock (seconds since 1970)."""
        self.used = set[str]()  # regions that were asked to change something

    @property
    def region(self) -> str:
        named = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        return named or self._session.region_name or HOME

    @property
    def _session(self) -> Any:  # noqa: ANN401 - boto3 has no types
        import boto3

        with self._making:
            if ("", "", True) not in self._made:
                try:
                    self._made["", "", True] = boto3.session.Session()
                except Exception as error:  # a profile that its files don't have
                    raise self._no_key(str(error)) from None
            return self._made["", "", True]

    def _client(self, service: str, region: str, *, reads: bool) -> Any:  # noqa: ANN401
        from botocore.config import Config

        session = self._session
        with self._making:
            if (service, region, reads) not in self._made:
                # It would repeat a launch, too: requests are repeated here, reads alone.
                once = {"mode": "standard", "total_max_attempts": 1}
                timeouts = _READ_TIMEOUTS if reads else _TIMEOUTS
                config = Config(user_agent=api.AGENT, retries=once, **timeouts)
                made = session.client(service, region_name=region, config=config)
                self._made[service, region, reads] = made
            return self._made[service, region, reads]

    def pages(self, what: str, region: str, **asked: object) -> Iterator[Mapping[str, Any]]:
        more: dict[str, Any] = {}
        while True:
            page = self.ask(what, region, **{**asked, **more})
            yield page
            if not page.get("NextToken"):
                return
            more = {"NextToken": page["NextToken"]}

    def ask(
        self,
        what: str,
        region: str = "",
        *,
        service: str = "ec2",
        **asked: Any,  # noqa: ANN401 - whatever boto3 takes
    ) -> Mapping[str, Any]:
        """Return an answer. Raises UnreachableError, RefusedKeyError, RefusedError."""
        until = time.monotonic() + _READ_FOR_S

        def is_last(pause: float | None) -> bool:
            return pause is None or time.monotonic() + pause > until

        for pause in _PAUSES_S:
            try:
                answer = self._do(service, region or self.region, what, asked)
                if answer.get(_HOLDS[what]) is not None:
                    return answer
                raise api.UndecidedError(f"an answer: it has no {_HOLDS[what]}")
            except api.UndecidedError as error:
                if is_last(pause):
                    raise self._failed(error.what.partition(": ")[2]) from None
            except api.RefusedKeyError:
                raise
            except api.RefusedError as refused:
                if refused.code not in _AGAIN or is_last(pause):
                    raise
            except UnreachableError:
                if is_last(pause):
                    raise
            self._pause(pause or 0.0)
        raise AssertionError("unreachable")

    def change(self, what: str, region: str, **asked: object) -> Mapping[str, Any]:
        """Change something, once; again only if it was turned away unread."""
        self.used.add(region)
        for pause in _PAUSES_S:
            try:
                return self._do("ec2", region, what, asked)
            except api.RefusedError as refused:
                if refused.code not in _AGAIN or pause is None:
                    raise
            self._pause(pause)
        raise AssertionError("unreachable")

    def _do(
        self, service: str, region: str, what: str, asked: Mapping[str, object]
    ) -> Mapping[str, Any]:
        """Send one request. Raises UndecidedError if nobody knows what became of it."""
        from botocore import exceptions, parsers

        try:
            client = self._client(service, region, reads=what in _HOLDS)
            answer = getattr(client, what)(**asked)
        except exceptions.ClientError as error:
            raise self._error_of(error.response, what) from None
        except (exceptions.EndpointConnectionError, exceptions.ConnectTimeoutError):
            raise self._failed(f"no connection to {service} in {region}") from None
        except (exceptions.ParamValidationError, exceptions.InvalidRegionError) as error:
            raise api.RefusedError(f"it was not asked: {error}", where=self._provider) from None
        except (exceptions.HTTPClientError, parsers.ResponseParserError) as error:
            raise api.undecided(self._provider, type(error).__name__) from None
        except exceptions.BotoCoreError as error:  # credentials that can't be got, before sending
            raise self._no_key(str(error)) from None
        except ValueError as error:  # an endpoint or a proxy that is none
            raise self._failed(str(error)) from None
        date = answer["ResponseMetadata"]["HTTPHeaders"].get("date", "")
        with contextlib.suppress(ValueError, TypeError, OverflowError):
            self.answered_at = parsedate_to_datetime(date).timestamp()
        return answer  # type: ignore[no-any-return]

    def _error_of(self, answer: Mapping[str, Any], what: str) -> UnreachableError:
        error = answer.get("Error") or {}  # none if something else than EC2 answers
        code, said = str(error.get("Code", "")), str(error.get("Message", ""))
        status = int(answer["ResponseMetadata"].get("HTTPStatusCode", 0))
        told = f"{code}: {said[:300]}"
        is_read = what.startswith(("describe_", "get_"))
        if code in _NOT_OURS or status == 401:
            return self._no_key(told)
        if code in NO_RIGHT and is_read:
            return self._no_key(f"{told} ({what})")
        # One that is no word is no answer of the API's; such a token was used: a box may be there.
        is_odd = not code or code.isdecimal() or code == _MADE_BEFORE
        is_broken = status >= 500 and code not in _THROTTLED and not code.startswith(_NO_ROOM)
        if is_odd or is_broken:
            return api.undecided(self._provider, f"it answers {status}, {told}")
        refused = api.RefusedError(f"it refuses: {told}", where=self._provider, code=code)
        refused.status = status
        return refused

    def _failed(self, what: str) -> UnreachableError:
        return api.not_asked(self._provider, what)

    def _no_key(self, said: str) -> api.RefusedKeyError:
        return api.RefusedKeyError(
            f"it refuses the key of {self._source or 'nowhere'}: {said.rstrip('.')}.",
            where=self._provider,
            hint="See what your credentials are: aws sts get-caller-identity. Which permissions "
            "they need: docs/providers.md",
        )
