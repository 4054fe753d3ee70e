"""The exit code of each error. The script on the box has codes of its own: `exit_of` in
`templates/lib/engine.sh`; `setup/result.py` makes errors of them."""

from __future__ import annotations

from bootstrap import errors

INTERRUPTED = 130
EXIT_CODES: dict[type[BaseException], int] = {
    errors.BoxstrapError: 1,
    errors.UsageError: 2,
    errors.UnreachableError: 3,
    errors.HostKeyError: 4,
    errors.BoxLacksError: 5,
    errors.ReturnBoxError: 6,
    errors.StepFailedError: 7,
    errors.BusyError: 8,
    errors.NotSafeError: 9,
    errors.TrainingFailedError: 10,
    errors.NoOfferError: 11,
    KeyboardInterrupt: INTERRUPTED,
}


def exit_code(error: BaseException) -> int:
    """That of its class, else of the nearest class above it; 1 where no class has one."""
    return next((EXIT_CODES[kind] for kind in type(error).__mro__ if kind in EXIT_CODES), 1)


def error_document(error: errors.BoxstrapError) -> dict[str, object]:
    """The error as a JSON document holds it."""
    return {**error.as_dict(), "exit": exit_code(error)}
