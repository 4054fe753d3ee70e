"""The exit code of each error. The script on the box has its own codes: `exit_of` in
`templates/lib/engine.sh`; `setup/result.py` turns those into errors."""

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
    """Return the code of its class or of its nearest base class; 1 if none has one."""
    return next((EXIT_CODES[kind] for kind in type(error).__mro__ if kind in EXIT_CODES), 1)


def error_document(error: errors.BoxstrapError) -> dict[str, object]:
    """Return the error for a JSON document."""
    return {**error.as_dict(), "exit": exit_code(error)}
