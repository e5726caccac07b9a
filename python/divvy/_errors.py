"""The exceptions of Divvy, and how exceptions of a program become its errors."""
import os
import traceback

from divvy import _divvy

# A status on the wire has 8 KiB, of which the coordinator needs some for the step's name and place.
_TEXT_BYTES, _TRACE_BYTES = 2000, 5000
_MOST_IN_AN_ENTRY = 1000  # characters of a frame, or of an exception's text, in a traceback
# An exception of main goes to standard error only, and its text may have the traceback of a step.
_MOST_BYTES_IN_MAIN = 16384


class Error(Exception):
    """An error of Divvy. `code` is the name of its status code, such as "NOT_FOUND".

    Each code has a class of its own, which is also one of Python's classes where that fits:
    `except ValueError` catches an InvalidArgumentError.
    """

    code = "UNKNOWN"
    # The status that C++ gave, with its reason. An error that is raised again keeps it.
    _status = None

    def __init__(self, message=""):
        super().__init__(message)
        self.message = message

    def __str__(self):
        return self.message

    def __reduce__(self):
        return (type(self), (self.message,))


class CancelledError(Error):
    """The call was cancelled: another step failed, or the process is to end. Return soon."""

    code = "CANCELLED"


class UnknownError(Error, RuntimeError):
    """An exception of a program's function, or another error without a code of its own."""

    code = "UNKNOWN"


class InvalidArgumentError(Error, ValueError):
    """An argument that cannot be used. The message names it and the fix."""

    code = "INVALID_ARGUMENT"


class DeadlineExceededError(Error, TimeoutError):
    """The timeout has passed. The method says whether to call again."""

    code = "DEADLINE_EXCEEDED"

    def __init__(self, message=""):
        Error.__init__(self, message)


class NotFoundError(Error, KeyError):
    """There is no such variable, step or file."""

    code = "NOT_FOUND"


class AlreadyExistsError(Error, ValueError):
    """The name is taken."""

    code = "ALREADY_EXISTS"


class PermissionDeniedError(Error, PermissionError):
    """The certificate or the file's rights do not allow it."""

    code = "PERMISSION_DENIED"

    def __init__(self, message=""):
        Error.__init__(self, message)


class ResourceExhaustedError(Error, MemoryError):
    """Memory or a disk is full."""

    code = "RESOURCE_EXHAUSTED"


class FailedPreconditionError(Error, RuntimeError):
    """The call is not allowed here or now. The message names what to do instead."""

    code = "FAILED_PRECONDITION"


class AbortedError(Error):
    """A conflict with another task; the step is run again."""

    code = "ABORTED"


class OutOfRangeError(Error, IndexError):
    """An index outside of its range, or the end of the data."""

    code = "OUT_OF_RANGE"


class UnimplementedError(Error, NotImplementedError):
    """This build cannot do it."""

    code = "UNIMPLEMENTED"


class InternalError(Error, RuntimeError):
    """A bug of Divvy."""

    code = "INTERNAL"


class UnavailableError(Error, ConnectionError):
    """The job has ended, or a task was away for too long. Return from main."""

    code = "UNAVAILABLE"

    def __init__(self, message=""):
        Error.__init__(self, message)


class DataLossError(Error, ValueError):
    """Bad bytes in a file; the message has the file and the place in it."""

    code = "DATA_LOSS"


class UnauthenticatedError(Error, PermissionError):
    """The peer showed no certificate of this job."""

    code = "UNAUTHENTICATED"

    def __init__(self, message=""):
        Error.__init__(self, message)


_BY_CODE = {
    kind.code: kind
    for kind in (
        CancelledError, UnknownError, InvalidArgumentError, DeadlineExceededError, NotFoundError,
        AlreadyExistsError, PermissionDeniedError, ResourceExhaustedError,
        FailedPreconditionError, AbortedError, OutOfRangeError, UnimplementedError, InternalError,
        UnavailableError, DataLossError, UnauthenticatedError)
}


def make(code, message, status):
    """The exception of a status. C++ calls it."""
    error = _BY_CODE.get(code, UnknownError)(message)
    error._status = status
    return error


# ---- from a program's exception to a status ------------------------------------------------------

# absl::StatusCode
_UNKNOWN, _INVALID_ARGUMENT, _NOT_FOUND = 2, 3, 5
_RESOURCE_EXHAUSTED, _UNIMPLEMENTED, _DATA_LOSS = 8, 12, 15
_CODES = (
    (FileNotFoundError, _NOT_FOUND),
    (MemoryError, _RESOURCE_EXHAUSTED),
    (NotImplementedError, _UNIMPLEMENTED),
    ((ValueError, TypeError), _INVALID_ARGUMENT),
)
_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def of_element(error):
    """Marks an exception as that of an element of a dataset, which ignore_errors skips. One whose
    code says so already, or that is no matter of the element, stays as it is."""
    if not isinstance(error, (Error, ValueError, TypeError, MemoryError, NotImplementedError)):
        error.__dict__["_divvy_code"] = _DATA_LOSS  # a class of its own may refuse attributes


def _without_own_frames(trace):
    """The traceback from the first frame that is not of this package."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        trace = trace.tb_next
    return trace


def _fitting(characters, most_bytes):
    """How many of the first characters need at most most_bytes on the wire."""
    size = 0
    for count, character in enumerate(characters):
        # The wire writes each byte of a control character, a newline included, as \\x0a.
        width = len(character.encode("utf-8", "replace"))
        size += width if character.isprintable() else 4 * width
        if size > most_bytes:
            return count
    return len(characters)


def _shortened(text, most_bytes):
    """A text that needs most_bytes on the wire, and some for the note: its beginning and end."""
    if len(text) <= most_bytes and _fitting(text, most_bytes) == len(text):
        return text
    head = _fitting(text[:most_bytes], most_bytes // 4)
    tail = _fitting(text[:-most_bytes - 1:-1], most_bytes * 3 // 4)
    return "%s\n... (%d characters left out) ...\n%s" % (
        text[:head], len(text) - head - tail, text[len(text) - tail:])


def _text_of(error):
    """The exception in one text. An exception may fail to describe itself."""
    try:
        text = str(error)
    except Exception as second:  # pylint: disable=broad-except
        text = "(its text raised %s)" % type(second).__name__
    name = type(error).__qualname__
    if isinstance(error, SystemExit):
        if _divvy.in_program():
            return "main called sys.exit(%s)" % text
        return "%s(%s): sys.exit ends main, not a step" % (name, text)
    if isinstance(error, Error):
        return text
    return "%s: %s" % (name, text) if text else name


def _trace_of(error):
    frames = _without_own_frames(error.__traceback__)
    if isinstance(error, Error) and error.__cause__ is None and error.__context__ is None:
        # Its text, which may have the traceback of a step, is said already.
        lines = ["Raised at (most recent call last):\n"] + traceback.format_tb(frames)
    else:
        lines = traceback.format_exception(type(error), error, frames)
        # The text of the exception, which _text_of gives, must not push the frames out.
        lines = [one if len(one) <= _MOST_IN_AN_ENTRY else one[:_MOST_IN_AN_ENTRY] + " ...\n"
                 for one in lines]
    return "".join(lines).rstrip()


def describe(error):
    """(code, text) of an exception, the text with its traceback. C++ calls it."""
    in_main = _divvy.in_program()
    code = error.__dict__.get("_divvy_code") or next(
        (code for kinds, code in _CODES if isinstance(error, kinds)), _UNKNOWN)
    try:
        trace = _trace_of(error)
    except Exception as second:  # pylint: disable=broad-except
        trace = "(no traceback: %s)" % type(second).__name__
    if in_main and isinstance(error, SystemExit):
        return code, _text_of(error)[:_TEXT_BYTES].encode("utf-8", "replace").decode("utf-8")
    text = "%s\n%s" % (
        _shortened(_text_of(error), _MOST_BYTES_IN_MAIN if in_main else _TEXT_BYTES),
        _shortened(trace, _MOST_BYTES_IN_MAIN if in_main else _TRACE_BYTES))
    return code, text.encode("utf-8", "replace").decode("utf-8")
