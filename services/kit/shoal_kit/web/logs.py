"""Logs as JSON lines on standard error, without exception messages and client-linked values."""

import logging
import sys
import traceback
from collections.abc import Mapping, MutableMapping
from typing import Any, Final, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

WITHHELD: Final = "[withheld]"
# One word of a field's name is enough. Plurals are absent: `clients=120` is a count.
PRIVATE_WORDS: Final = frozenset(
    "address body client cohort credential envelope header host ip key mask noise password path "
    "payload peer query record secret seed share signature token url".split()
)
# They log addresses, or each request, at levels below this.
QUIET: Final = ("asyncio", "httpcore", "httpx", "sqlalchemy", "uvicorn", "uvicorn.access")
FRAMES: Final = 20


def configure_logs(*, level: str = "info", stream: TextIO | None = None) -> None:
    """Send every log line of this process, ours and the libraries', to `stream` as JSON.

    `level` is `debug`, `info`, `warning` or `error`; successful requests are logged at `debug`.
    """
    out = stream if stream is not None else sys.stderr
    shared: list[Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        withhold_exception_messages,
        withhold_private_values,
    ]
    renderer = structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.WriteLoggerFactory(file=out),
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def describe_exception(error: BaseException) -> dict[str, Any]:
    """Return an exception's type, its causes' types and its frames; not its message.

    Frames are `file:line function`, the innermost last.
    """
    causes: list[str] = []
    cause = error.__cause__ or error.__context__
    while cause is not None and len(causes) < FRAMES:
        causes.append(type(cause).__qualname__)
        cause = cause.__cause__ or cause.__context__
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES:]
    return {
        "exception": f"{type(error).__module__}.{type(error).__qualname__}",
        "causes": causes,
        "frames": [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames],
    }


def withhold_exception_messages(
    logger: WrappedLogger, method: str, event: EventDict
) -> MutableMapping[str, Any]:
    """Put an exception's type and frames in place of the exception."""
    given = event.pop("exc_info", None)
    error = sys.exc_info()[1] if given is True else given[1] if isinstance(given, tuple) else given
    if isinstance(error, BaseException):
        event.update(describe_exception(error))
    return event


def withhold_private_values(
    logger: WrappedLogger, method: str, event: EventDict
) -> MutableMapping[str, Any]:
    """Put `[withheld]` in place of each value whose name has a private word, at any depth."""
    return {name: _withhold(name, value) for name, value in event.items()}


def _withhold(name: object, value: Any) -> Any:
    if not PRIVATE_WORDS.isdisjoint(str(name).lower().replace("-", "_").split("_")):
        return WITHHELD
    if isinstance(value, Mapping):
        return {inner: _withhold(inner, item) for inner, item in value.items()}
    if isinstance(value, list | tuple):
        return [_withhold("", item) for item in value]
    return value
