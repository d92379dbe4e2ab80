"""Exceptions, one class per kind of failure. Each also derives from the matching built-in exception, so that ``except
ValueError`` works as well as ``except tactus.InvalidArgumentError``."""

from __future__ import annotations


class TactusError(Exception):
    """An error of the library.

    Attributes:
        message: the error, with the value, the limit and the fix.
        param: the faulty argument, field or option; empty if none.
    """

    def __init__(self, message: str, param: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.param = param

    def __reduce__(self) -> tuple[type[TactusError], tuple[str, str]]:
        return type(self), (self.message, self.param)


class InvalidArgumentError(TactusError, ValueError):
    """An invalid value."""


class ArgumentTypeError(InvalidArgumentError, TypeError):
    """An argument of an invalid type, or an unknown argument."""


class NotFoundError(TactusError, FileNotFoundError):
    """A model or file does not exist."""

    def __str__(self) -> str:  # OSError would print its own fields
        return self.message


class ResourceExhaustedError(TactusError, RuntimeError):
    """No memory, threads or room."""


class UnavailableError(TactusError, RuntimeError):
    """The LLM is closed, or belongs to another process."""


class CancelledError(TactusError, RuntimeError):
    """The request was cancelled, for instance because the LLM was closed while it ran."""


class DeadlineExceededError(TactusError, TimeoutError):
    """A time limit was exceeded."""

    def __str__(self) -> str:
        return self.message


class DataLossError(TactusError, ValueError):
    """A damaged file."""


class UnimplementedError(TactusError, NotImplementedError):
    """Known, but not implemented; never ignored silently."""


class InternalError(TactusError, RuntimeError):
    """An error within the library."""


_BY_CODE: dict[str, type[TactusError]] = {
    "invalid argument": InvalidArgumentError,
    "too large": InvalidArgumentError,
    "not found": NotFoundError,
    "resource exhausted": ResourceExhaustedError,
    "too many requests": ResourceExhaustedError,
    "unavailable": UnavailableError,
    "cancelled": CancelledError,
    "deadline exceeded": DeadlineExceededError,
    "data loss": DataLossError,
    "unimplemented": UnimplementedError,
}


def error_of(code: str, message: bytes, param: bytes) -> TactusError:
    """The exception for a failure of the native part (src/python/status_error.cc)."""
    text = message.decode("utf-8", "replace")
    return _BY_CODE.get(code, InternalError)(text, param.decode("utf-8", "replace"))
