"""Hands versions of manifest and data dictionary to services over HTTPS."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final

import httpx

from shoal_consortium import consortium_files, dictionary_files
from shoal_kit.manifest_chain import open_chain
from shoal_kit.peers.exchange import Reply, Unavailable
from shoal_kit.peers.service_calls import Endpoint, Refused, call, json_of
from shoal_protocol.trust.dictionary import DataDictionary
from shoal_protocol.trust.manifest import Consortium, ServiceParty
from shoal_protocol.trust.manifest_bundle import bundle
from shoal_protocol.trust.succession import (
    SIGNATURES_PATH,
    ManifestStatement,
    check_believed,
    written,
)
from shoal_protocol.wire.documents import Signed, decode
from shoal_protocol.wire.errors import ProtocolError, TooFewSignatures, WrongManifest

_PAUSES: Final = (0.5, 1.0, 2.0)  # seconds


@dataclass(frozen=True)
class Outcome:
    """The outcome of sending the newest version to one service."""

    name: str
    accepted: bool
    detail: str
    unreachable: bool = False


def countersigned(
    chain: Sequence[Consortium],
    following: Consortium,
    *,
    transport: httpx.AsyncBaseTransport | None = None,
) -> str:
    """Return what Compute nodes of the newest version of `chain` sign of the one that follows it.

    They are as many as that version asks for; of an emergency, those that stay and answer. A node
    that lags behind is handed the versions of `chain` first. A node that signed already answers
    with the same bytes.

    Raises:
        Unavailable: too many nodes do not answer.
        Refused: too many do not sign.
        ProtocolError: what they sign does not hold.
    """
    nodes = chain[-1].manifest.compute_nodes
    if following.manifest.emergency is not None:
        nodes = tuple(node for node in nodes if following.lists(node.name))
    content = following.signed_manifest.encode()

    async def post(at: Endpoint) -> Reply:
        """Ask a node, also under a certificate that ended: its signature speaks for itself."""
        try:
            return await call(at, "POST", SIGNATURES_PATH, content=content)
        except Unavailable:
            at = dataclasses.replace(at, certificate=None)
            return await call(at, "POST", SIGNATURES_PATH, content=content)

    async def ask(node: ServiceParty) -> Signed[ManifestStatement] | Exception:
        at = Endpoint.of(node, transport)
        try:
            reply = await post(at)
            if reply.code == WrongManifest.code:
                await _publish(chain, node, transport)
                reply = await post(at)
            json_of(reply)
            return decode(reply.body, ManifestStatement)
        except (Unavailable, Refused, ProtocolError) as error:
            return error

    async def ask_all() -> list[Signed[ManifestStatement] | Exception]:
        return await asyncio.gather(*map(ask, nodes))

    answers = asyncio.run(ask_all())
    found = written([each for each in answers if isinstance(each, Signed)])
    try:
        check_believed(chain[-1], following.manifest, found)
    except TooFewSignatures as error:
        failed = {
            node.name: answer
            for node, answer in zip(nodes, answers, strict=True)
            if isinstance(answer, Exception)
        }
        reasons = "; ".join(f"{name}: {answer}" for name, answer in failed.items())
        is_silence = all(isinstance(answer, Unavailable) for answer in failed.values())
        raise (Unavailable if failed and is_silence else Refused)(
            f"{error}, and nothing was published ({reasons}). If nodes are lost, sign an "
            "--emergency without them"
        ) from None
    return found


def publish_directory(directory: Path) -> list[Outcome]:
    """Have nodes sign each version of a consortium directory, and hand the newest to all services.

    The trainer gets the data dictionary, too, if there is one: a new trainer has none.

    Raises:
        Unavailable, Refused, ProtocolError: a version is not signed, as `countersigned`.
        ValueError: the directory or its dictionary is broken.
    """
    chain = open_chain(directory)
    for number, following in enumerate(chain[1:], 1):
        is_signed = following.signed_manifest.countersignatures is not None
        if is_signed or chain[number - 1].manifest.policy.manifest_signatures is None:
            continue
        found = countersigned(chain[:number], following)
        chain[number] = consortium_files.add_countersignatures(directory, following, found)
    consortium_files.repair(directory)
    outcomes = publish_to_all(chain)
    if dictionary := dictionary_files.versions(directory):
        outcomes.append(publish_dictionary(chain[-1].manifest.trainer, dictionary))
    return outcomes


def publish_to_all(
    chain: Sequence[Consortium], *, transport: httpx.AsyncBaseTransport | None = None
) -> list[Outcome]:
    """Hand the versions of `chain`, oldest first, to every service of the newest one.

    Services that it retired come last: they are told, too, where they still answer.
    """

    async def publish() -> list[Outcome]:
        services = {each.name: each for each in chain[-1].manifest.services}
        before = {each.name: each for version in chain[:-1] for each in version.manifest.services}
        retired = [each for name, each in before.items() if name not in services]
        found = await asyncio.gather(
            *(_publish(chain, each, transport) for each in [*services.values(), *retired])
        )
        return [each for each in found if each.name in services or each.accepted]

    return asyncio.run(publish())


async def _publish(
    chain: Sequence[Consortium], service: ServiceParty, transport: httpx.AsyncBaseTransport | None
) -> Outcome:
    """Try the newest version; if the service lags behind further, hand it the missing ones.

    One that does not know of its own new certificate or address yet is handed them at any of its
    addresses, whatever certificate it shows. Only under the new one is its word believed.
    """

    async def put(version: Consortium, at: Endpoint) -> Reply:
        return await call(at, "PUT", "/v1/manifest", content=bundle(version))

    async def put_missing(at: Endpoint) -> Reply:
        reply = await put(chain[-1], at)
        if reply.status == HTTPStatus.CONFLICT:
            for version in chain[1:]:
                reply = await put(version, at)
        return reply

    async def hand_over() -> None:
        listed = [
            each
            for version in chain
            for each in version.manifest.services
            if each.name == service.name
        ]
        try:
            reply = await put_missing(Endpoint.of(service, transport))
        except Unavailable:
            if len({(each.url, each.certificate) for each in listed}) == 1:
                raise
            for url in {each.url for each in listed}:
                with suppress(Unavailable):
                    await put_missing(Endpoint(url, None, transport=transport))
            reply = await _patiently(lambda: put_missing(Endpoint.of(service, transport)))
        json_of(reply)

    return await _outcome(service.name, len(chain), hand_over())


async def _outcome(name: str, version: int, handing_over: Awaitable[None]) -> Outcome:
    """Return how it ends to hand a version to a service."""
    try:
        await handing_over
    except (Unavailable, Refused) as error:
        return Outcome(name, False, str(error), unreachable=isinstance(error, Unavailable))
    return Outcome(name, True, f"version {version} is in force")


async def _patiently(ask: Callable[[], Awaitable[Reply]]) -> Reply:
    """Ask until a service has gone over to its new certificate, for some seconds."""
    for pause in _PAUSES:
        with suppress(Unavailable):
            return await ask()
        await asyncio.sleep(pause)
    return await ask()


def publish_dictionary(
    trainer: ServiceParty, versions: Sequence[Signed[DataDictionary]]
) -> Outcome:
    """Hand the versions of the data dictionary, oldest first, to the trainer."""

    at = Endpoint.of(trainer)

    async def hand_over() -> None:
        for each in versions:
            json_of(await call(at, "PUT", "/v1/dictionary", content=each.encode()))

    return asyncio.run(_outcome(f"{trainer.name}: data dictionary", len(versions), hand_over()))
