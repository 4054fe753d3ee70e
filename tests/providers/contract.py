"""Check requests and answers against a provider's own OpenAPI document.

`documents/` holds the used parts of Vast.ai's, RunPod's (2026-11), Paperspace's and Hugging Face's
documents (the last two as public clients keep them, 3.1), without prose, and what Google's own
Python client keeps of Compute Engine's (a discovery document, written as OpenAPI), and what the
models of Azure's Python packages say of theirs. An
unknown field or query is a violation too, though the documents alone would allow it.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from openapi_core import Config, OpenAPI
from openapi_core.exceptions import OpenAPIError
from openapi_core.testing import MockRequest, MockResponse

DOCUMENTS = Path(__file__).with_name("documents")
ERRORS = {
    "vast": ("application/json", "application/json"),
    "runpod": ("application/json", "application/problem+json"),
    "lambda": ("application/json", "application/json"),
    "paperspace": ("application/json", "application/json"),
    "ec2": ("text/xml", "text/xml"),
    "hf": ("application/json", "application/json"),
    "gcp": ("application/json", "application/json"),
    "azure": ("application/json", "application/json"),
}
"""The content types of a good answer and of an error."""
_ASKED = "paths.{}.{}.requestBody.content.application/json.schema.properties"
_REFUSED = "paths.{}.{}.responses.400.content.application/json.schema.properties"
_ANSWERS = "paths.{}.get.responses.200.content.application/json.schema.properties"
OVERLAYS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "vast": {
        # `vastai show user` prints `credit`, which the document leaves out.
        _ANSWERS.format("/api/v0/users/current"): {"credit": {"type": ["number", "null"]}},
        # A single instance has ports as in the list of them; the document has numbers.
        "components.schemas.Instance.properties": {"ports": {"type": ["object", "array", "null"]}},
        # An instance that is gone: clients see null.
        _ANSWERS.format("/api/v0/instances/{id}"): {
            "instances": {"anyOf": [{"$ref": "#/components/schemas/Instance"}, {"type": "null"}]}
        },
        # Every filter takes every operator, as the document's own table of them says.
        _ASKED.format("/api/v0/bundles", "post"): {"num_gpus": {"type": "object"}},
        # Searching offers needs no key.
        "paths./api/v0/bundles.post": {"security": []},
        # Clients also see reasons that the document doesn't name.
        _REFUSED.format("/api/v0/asks/{id}", "put"): {"error": {"type": "string"}},
        _REFUSED.format("/api/v0/ssh", "post"): {"error": {"type": "string"}},
        # As `vastai create instance` spells it: direct connections, and the proxy as well.
        _ASKED.format("/api/v0/asks/{id}", "put"): {
            "runtype": {"type": "string", "enum": ["ssh_direc ssh_proxy"]}
        },
    },
    "runpod": {},
    "gcp": {},
    "azure": {},
    "paperspace": {
        f"paths./v1/{what}.get.responses.200.content.application/json.schema.properties": {
            # Its own description: "This is null when there is no next page."
            "nextPage": {"type": ["string", "null"]}
        }
        for what in ("machines", "os-templates", "startup-scripts", "machine-events")
    },
    "hf": {
        # It names no refusal. Its client reads `error` from each.
        f"paths./api/{place}.responses": {
            "4XX": {
                "description": "",
                "content": {
                    "application/json": {
                        "schema": {"type": "object", "properties": {"error": {"type": "string"}}}
                    }
                },
            }
        }
        for place in (
            *("whoami-v2.get", "jobs/hardware.get", "jobs/{namespace}.get"),
            *("jobs/{namespace}.post", "jobs/{namespace}/{jobId}.get"),
            "jobs/{namespace}/{jobId}/cancel.post",
        )
    },
}
"""Reviewed exceptions: where real requests and answers differ from the document."""


class Contract:
    """One document. `check` says how an exchange breaks it."""

    def __init__(self, provider: str) -> None:
        document = json.loads((DOCUMENTS / f"{provider}.json").read_text("utf-8"))
        for place, fields in OVERLAYS[provider].items():
            node = document
            for word in place.split("."):
                node = node[word]
            node |= fields
        _refuse_unknown(document, frozenset(_parts(document)))
        kinds: dict[str, Callable[[bytes], Any]] = {"application/problem+json": json.loads}
        # Whether the document itself is right takes most of the time: one test asks that.
        self.document = document
        config = Config(extra_media_type_deserializers=kinds, spec_validator_cls=None)  # type: ignore[arg-type]
        self._openapi = OpenAPI.from_dict(document, config)
        self._paths = document["paths"]
        self._host = document["servers"][0]["url"]
        self._parameters = document["components"].get("parameters", {})
        self._kinds = ERRORS[provider]

    @lru_cache(maxsize=64)  # noqa: B019 - contracts are never freed; polling repeats exchanges
    def check(
        self,
        method: str,
        target: str,
        headers: tuple[tuple[str, str], ...],
        body: bytes,
        status: int,
        answer: bytes,
    ) -> str:
        """How this exchange breaks the document; "" if it doesn't.

        Clients send a slash at the end of Vast.ai's paths; its document has none.
        """
        parts = urlsplit(target)
        path = parts.path.rstrip("/")
        query = dict(parse_qsl(parts.query))
        sent = dict(headers)
        request = MockRequest(
            self._host,
            method.lower(),
            path,
            args=query,
            headers=sent,
            data=body or None,
            content_type=sent.get("Content-Type", "application/json"),
        )
        try:
            self._openapi.validate_request(request)
            if unknown := query.keys() - self._queries(method.lower(), path):
                return f"{method} {path}: unknown query {sorted(unknown)}"
            kind = self._kinds[status >= 400]
            told = MockResponse(answer, status_code=status, content_type=kind)
            self._openapi.validate_response(request, told)
        except OpenAPIError as error:
            return f"{method} {target}: {error!r} {error.__cause__!r}"
        return ""

    def _queries(self, method: str, path: str) -> set[str]:
        named = self._paths.get(path) or next(
            node for name, node in self._paths.items() if _matches(name, path)
        )
        parameters = [
            self._parameters[each["$ref"].rpartition("/")[2]] if "$ref" in each else each
            for each in named[method].get("parameters", ())
        ]
        return {each["name"] for each in parameters if each.get("in") == "query"}


_LISTED = "one of several"


def _matches(template: str, path: str) -> bool:
    words, given = template.split("/"), path.split("/")
    return len(words) == len(given) and all(
        word == part or word.startswith("{") for word, part in zip(words, given, strict=True)
    )


def _refuse_unknown(node: object, parts: frozenset[str], name: str = "") -> None:
    """Forbid unnamed fields in objects that name theirs; in an `allOf`, only for the whole."""
    if isinstance(node, list):
        for each in node:
            _refuse_unknown(each, parts, _LISTED)
    if not isinstance(node, dict):
        return
    is_part = name in parts or name == _LISTED or "$ref" in node
    names_fields = bool({"properties", "allOf"} & node.keys())
    if names_fields and not is_part and not node.get("additionalProperties"):
        node["unevaluatedProperties"] = False
    for key, child in node.items():
        _refuse_unknown(child, parts, key)


def _parts(node: object) -> Iterator[str]:
    """Names of schemas that are used in an `allOf`, where others add to their fields."""
    if isinstance(node, list):
        for each in node:
            yield from _parts(each)
    elif isinstance(node, dict):
        for each in node.get("allOf", ()):
            if "$ref" in each:
                yield each["$ref"].rpartition("/")[2]
        for child in node.values():
            yield from _parts(child)
