"""The directories that say who is asking and whom to trust, and one question to a service."""

import asyncio
import re
from pathlib import Path
from typing import Annotated, Any, TypeVar

import pydantic
import typer

from shoal_client.analyst import Analyst
from shoal_client.command.terminal import Refused, warn
from shoal_hosting.exchange import LARGEST_ANSWER_BYTES, Connection, Reply, Unavailable
from shoal_hosting.manifest_book import ManifestBook
from shoal_hosting.party import read_pin
from shoal_protocol.documents import describe
from shoal_protocol.errors import MalformedDocument

PartyDirectory = Annotated[
    Path, typer.Option("--party", envvar="SHOAL_PARTY", help="Your party directory.")
]
ConsortiumDirectory = Annotated[
    Path, typer.Option("--consortium", envvar="SHOAL_CONSORTIUM", help="The consortium directory.")
]
JobId = Annotated[str, typer.Argument(help="The job's id.", metavar="JOB")]

Shape = TypeVar("Shape", bound=pydantic.BaseModel)

ASK_WITHIN_SECONDS = 30.0


def open_analyst(party: Path, consortium: Path) -> Analyst:
    """Return the analyst whose directory this is."""
    return Analyst.open(party, consortium, notice=warn)


def open_book(party: Path, consortium: Path) -> ManifestBook:
    """Return the manifest versions that the party trusts."""
    return ManifestBook.open(consortium, read_pin(party), party)


def checked_id(job: str, *, listed_by: str = "shoal job list") -> str:
    """Return a job's id; `listed_by` is the command that shows such ids.

    Raises:
        ValueError: it is none.
    """
    if not re.fullmatch(r"[0-9a-f]{64}", job):
        raise ValueError(f"a job's id is 64 hexadecimal digits; see `{listed_by}`")
    return job


def checked_round(round_id: str) -> str:
    """Return a round's id.

    Raises:
        ValueError: it is none.
    """
    if not re.fullmatch(r"[0-9a-f]{64}", round_id):
        raise ValueError("a round's id is 64 hexadecimal digits; `shoal job watch` prints it")
    return round_id


def ask(
    shape: type[Shape],
    certificate: str,
    url: str,
    path: str,
    *,
    token: str | None = None,
    **query: str | int,
) -> Shape:
    """Return what a service answers to a GET, which must have the shape of a model.

    Raises:
        Refused: the service answered with a problem, or with something else.
        Unavailable: it did not answer.
    """
    return _shaped(shape, _exchange("GET", certificate, url, path, token, query))


def tell(shape: type[Shape], certificate: str, url: str, path: str, *, token: str) -> Shape:
    """Return what a service answers to a POST without a body, which must have a model's shape.

    Raises:
        Refused, Unavailable: as `ask`.
    """
    return _shaped(shape, _exchange("POST", certificate, url, path, token, {}))


def _shaped(shape: type[Shape], value: Any) -> Shape:
    try:
        return shape.model_validate(value)
    except pydantic.ValidationError as error:
        raise Refused(f"the answer is none that is expected here: {describe(error)}") from None


def _exchange(
    method: str,
    certificate: str,
    url: str,
    path: str,
    token: str | None,
    query: dict[str, Any],
) -> Any:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    async def answer() -> Reply:
        async with Connection(url, certificate, answer_seconds=ASK_WITHIN_SECONDS) as connection:
            return await connection.ask(
                method,
                path,
                limit_bytes=LARGEST_ANSWER_BYTES,
                headers=headers,
                parameters=query,
            )

    try:
        return json_of(asyncio.run(answer()))
    except Unavailable as error:
        raise Unavailable(f"{url} does not answer: {error}") from error


def ask_trainer(shape: type[Shape], book: ManifestBook, path: str, **query: str | int) -> Shape:
    """Return what the trainer answers to a GET.

    Raises:
        Refused, Unavailable: as `ask`.
    """
    trainer = book.current.manifest.trainer
    return ask(shape, trainer.certificate, trainer.url, path, token=None, **query)


def json_of(reply: Reply) -> Any:
    """Return the JSON value of an answer.

    Raises:
        Refused: the answer is a problem, or no JSON.
    """
    try:
        value = reply.json()
    except MalformedDocument:
        raise Refused(f"status {reply.status}") from None
    if 200 <= reply.status < 300:
        return value
    raise Refused(problem_text(reply.status, value))


def problem_text(status: int, problem: object) -> str:
    """Word a problem document in one line."""
    if not isinstance(problem, dict):
        return f"status {status}"
    said = str(problem.get("detail") or problem.get("title") or "without a reason")
    return f"{status}: {said}"
