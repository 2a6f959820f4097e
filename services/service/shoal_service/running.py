"""Runs a service from its settings until it is told to stop."""

import argparse
import asyncio
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, Field, field_validator
from pydantic.fields import FieldInfo

from shoal_kit.clock import system_clock
from shoal_kit.database_file import DAMAGED
from shoal_kit.manifest_book import ManifestBook, newest_with
from shoal_kit.party import check_party, load_party
from shoal_kit.private_files import OPERATOR_TOKEN, token_of
from shoal_kit.security import ServedCertificate
from shoal_kit.settings import (
    PREFIX,
    ListeningSettings,
    PartySettings,
    read_settings,
)
from shoal_kit.startup import StartupRefused, read_pin, startup_of
from shoal_kit.web.logs import configure_logs
from shoal_kit.web.serving import serve, step_for_ever
from shoal_protocol.wire.errors import ProtocolError, UnknownManifest
from shoal_protocol.wire.service_errors import StorageUnavailable
from shoal_service.service import Service
from shoal_service.storage.database_schema import (
    FORM,
    check_choice,
    is_postgresql_url,
    note_choice,
    why_unavailable,
)
from shoal_service.view import Operator

# Puts a service together and starts nothing. It is called with what `Given` lists, and with the
# settings that only this service has.
Assemble = Callable[..., Service]


class ServiceSettings(PartySettings, ListeningSettings):
    """Settings of every service, read once from `SHOAL_PARTY`, `SHOAL_CONSORTIUM` and so on."""

    accept_loss: str | None = Field(
        default=None,
        pattern="^[0-9a-f]{16}$",
        description=(
            "nothing, or the token that a refusal to start over a state that is lost or older "
            "shows: the loss is accepted, that very one"
        ),
    )
    database_url: str | None = Field(
        default=None, description=f"a PostgreSQL URL, {FORM}, or nothing for an SQLite file"
    )
    metrics_for_anybody: bool = Field(
        default=False,
        description="whether /metrics answers who does not show the token in operator.token",
    )
    console: bool = Field(
        default=False,
        description=(
            "whether /console shows how the service stands to who signs in by the token in "
            "operator.token; strangers who reach the port see the sign-in"
        ),
    )

    @field_validator("database_url")
    @classmethod
    def _can_be_opened(cls, url: str | None) -> str | None:
        if url is not None and not is_postgresql_url(url):
            raise ValueError("not a PostgreSQL URL")
        return url


def run_service(
    role: Literal["compute", "aggregator", "trainer"],
    assemble: Assemble,
    *,
    tick_seconds: float,
    settings: type[ServiceSettings] = ServiceSettings,
) -> None:
    """Run a service until it is told to stop; it steps at least every `tick_seconds`.

    Settings beyond those of every service are handed to `assemble` by their names.

    Raises:
        SystemExit: with status 78 and one line on standard error, if it cannot start; 0 after
            --help, and 2 if it was given another argument.
    """
    argparse.ArgumentParser(
        prog=f"python -m shoal_{role}",
        description="Run the service until it is told to stop.",
        epilog=f"It reads the environment:\n{_describe(settings)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args()
    with startup_of(f"shoal-{role}"):
        read = read_settings(settings, os.environ)
        configure_logs(level=read.log_level)
        party = load_party(read.party)
        if party.card.role != role:
            raise StartupRefused(f"{read.party} is the {party.card.role} {party.name}'s")
        hold_data_directory(read.data)
        book = ManifestBook.open(read.consortium, read_pin(read.party), read.data)
        check_choice(read.data, read.database_url, book.current)
        check_party(party, newest_with(book, party.name))
        served = ServedCertificate(party, book)
        special = type(read).model_fields.keys() - ServiceSettings.model_fields.keys()
        token = token_of(read.data / OPERATOR_TOKEN)
        with refusing_what_is_on_file(read.database_url):
            service = assemble(
                party=party,
                book=book,
                data_directory=read.data,
                database_url=read.database_url,
                accept_loss=read.accept_loss,
                operator=Operator(token, read.metrics_for_anybody, read.console),
                clock=system_clock,
                **{name: getattr(read, name) for name in special},
            )
        service.resources.on_manifest.append(served.renew)
        note_choice(read.data, read.database_url, book.current)
        serve(
            service.app,
            host=read.host,
            port=read.port,
            tls=served.context,
            work=lambda: _work(service, tick_seconds),
            on_stop=service.stop_waiting,
        )


@contextmanager
def refusing_what_is_on_file(database_url: str | None) -> Iterator[None]:
    """Turn what a service finds on file, and cannot begin with, into a `StartupRefused`."""
    try:
        yield
    except StorageUnavailable as error:
        raise StartupRefused(why_unavailable(database_url, error)) from error
    except UnknownManifest as error:
        raise StartupRefused(
            "what is on file is bound to a version of the manifest that is older than the pinned "
            "one, or not in the consortium's directory: pin that one, or get the directory of now"
        ) from error
    except (ProtocolError, IndexError, ValueError) as error:  # a document that reads no more
        raise StartupRefused(DAMAGED) from error


async def _work(service: Service, tick_seconds: float) -> None:
    async def step() -> None:
        service.resources.follow_manifest()
        await service.step()

    try:
        await step_for_ever(step, service.wake, tick_seconds=tick_seconds)
    finally:
        await asyncio.shield(service.close())


def _describe(model: type[BaseModel]) -> str:
    """Return a line for each variable that `read_settings` reads."""
    return "\n".join(
        f"  {PREFIX}{name.upper()}: {setting.description}{_default(setting)}"
        for name, setting in model.model_fields.items()
    )


def _default(setting: FieldInfo) -> str:
    if setting.is_required():
        return " (must be set)"
    return "" if setting.default is None else f" (default: {setting.default})"


LOCK: Final = "lock"


def hold_data_directory(path: Path) -> None:
    """Make `path` if it is missing, and hold it until this process ends, however it ends.

    Two processes over the same files would each judge by what it remembers, and together spend
    a privacy budget twice. The kernel lets go of the lock with the process, so that nothing is
    left to clear after a crash.

    Raises:
        StartupRefused: another process holds it, or it cannot be written or locked.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        # never closed: closing it would give the directory up
        descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StartupRefused(
            f"another process uses the data directory {path}; stop it, or name another directory"
        ) from None
    except OSError as error:
        raise StartupRefused(
            f"the data directory {path} cannot be written or locked: {error.strerror}"
        ) from None
