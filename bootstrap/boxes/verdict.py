"""The verdict on a box, read from the document that the box wrote.

The box may be hostile: its document has limits, a closed vocabulary, and text
that can't command a terminal. Keys that this version doesn't know are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from bootstrap.errors import BoxstrapError
from bootstrap.sanitize import sanitize

MAX_BYTES = 1 << 20
MAX_TEXT = 300


def _one_line(text: object) -> object:
    return " ".join(sanitize(text).split())[:MAX_TEXT] if isinstance(text, str) else text


Text = Annotated[str, BeforeValidator(_one_line)]
Word = Annotated[str, Field(pattern=r"^[a-z0-9-]{0,32}$")]
Outcome = Literal["pass", "warn", "return", "n/a", "ignored"]
Index = Annotated[int, Field(ge=0, lt=1024)]


class _VerdictPart(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", allow_inf_nan=False)


class Reason(_VerdictPart):
    """Why a box isn't simply kept; `gpus` is empty if it concerns the whole box."""

    check: Text
    code: Word
    outcome: Literal["warn", "return"]
    gpus: Annotated[tuple[Index, ...], Field(max_length=128)]
    says: Text
    advice: Text

    def sentence(self) -> str:
        return f"{gpus_named(self.gpus)}: {self.says}" if self.gpus else self.says


class VerdictGpu(_VerdictPart):
    """One GPU; what isn't known is None."""

    index: Index
    name: Text | None
    uuid: Text | None
    memory_mib: Annotated[int, Field(ge=0, lt=1 << 32)] | None
    capability: Text | None


class VerdictRow(_VerdictPart):
    """What one check found about one GPU, or about the box if `gpu` is None.

    `read` and `expected` may be empty; `says` is a sentence if they disagree.
    """

    check: Text
    gpu: Index | None
    outcome: Outcome
    read: Text
    expected: Text
    says: Text


class Verdict(_VerdictPart):
    """Keep the box, keep it with warnings, or return it; the most important reason comes first.

    `advice` comes from the profile, never from the box: what this provider's renters can do.
    """

    version: Annotated[int, Field(ge=1, le=1)]
    verdict: Literal["keep", "warn", "return"]
    reasons: Annotated[tuple[Reason, ...], Field(max_length=512)]
    driver: Text | None
    cuda: Text | None
    gpus: Annotated[tuple[VerdictGpu, ...], Field(max_length=128)]
    checks: Annotated[tuple[VerdictRow, ...], Field(max_length=4096)]
    seconds: Annotated[float, Field(ge=0)]
    advice: Annotated[tuple[Text, ...], Field(max_length=16)] = ()

    @model_validator(mode="after")
    def _agrees(self) -> Verdict:
        outcomes = {reason.outcome for reason in self.reasons}
        heaviest = next((o for o in ("return", "warn") if o in outcomes), "keep")
        if self.verdict != heaviest:
            raise ValueError(f"the verdict is {self.verdict}, its reasons say {heaviest}")
        return self


def read_verdict(doc: bytes) -> Verdict:
    """Read a box's verdict. Raises BoxstrapError if the document isn't one that
    `bootstrap/onbox/verdict/verify.py` writes."""
    if len(doc) > MAX_BYTES:
        raise _unreadable(f"it has {len(doc)} bytes")
    try:
        return Verdict.model_validate_json(doc)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise _unreadable(
            _one_line(f"{where}: {first['msg']}" if where else first["msg"])
        ) from None


def _unreadable(why: object) -> BoxstrapError:
    return BoxstrapError(
        f"the box's GPU check wrote a report that can't be read: {why}",
        hint="Run it again; if it stays so, don't trust this box with your work.",
    )


def gpus_named(indexes: Sequence[int]) -> str:
    """Name GPUs: `GPU 3`, `GPUs 0-4, 7`."""
    runs: list[list[int]] = []
    for index in sorted(set(indexes)):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    named = ", ".join(f"{run[0]}-{run[-1]}" if run[1:] else str(run[0]) for run in runs)
    return f"GPU{'s' * (len(set(indexes)) > 1)} {named}"
