"""Exceptions, one class per kind of failure. Each is also the built-in exception that fits, so that
``except ValueError`` works as well as ``except tactus.InvalidArgumentError``."""

from __future__ import annotations


class TactusError(Exception):
    """An error of the library.

    Attributes:
        message: what is wrong, with the value, the limit and the fix.
        param: the argument, field or option at fault; empty where there is none.
    """

    def __init__(self, message: str, param: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.param = param

    def __reduce__(self) -> tuple[type[TactusError], tuple[str, str]]:
        return type(self), (self.message, self.param)


class InvalidArgumentError(TactusError, ValueError):
    """A value that can never work."""


class ArgumentTypeError(InvalidArgumentError, TypeError):
    """An argument of a type that can never work, or a name of one that there is not."""


class NotFoundError(TactusError, FileNotFoundError):
    """A model or a file that is not there."""

    def __str__(self) -> str:  # OSError would print its own fields
        return self.message


class ResourceExhaustedError(TactusError, RuntimeError):
    """No memory, threads or room."""


class UnavailableError(TactusError, RuntimeError):
    """The LLM is closed, or belongs to another process."""


class CancelledError(TactusError, RuntimeError):
    """The request was cancelled, for instance because the LLM was closed while it ran."""


class DeadlineExceededError(TactusError, TimeoutError):
    """It took longer than it may."""

    def __str__(self) -> str:
        return self.message


class DataLossError(TactusError, ValueError):
    """A damaged file."""


class UnimplementedError(TactusError, NotImplementedError):
    """Known, but not built; never ignored."""


class InternalError(TactusError, RuntimeError):
    """A fault of the library."""


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
