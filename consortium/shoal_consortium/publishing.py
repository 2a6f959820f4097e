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
from shoal_protocol.log.succession import check_believed
from shoal_protocol.trust.dictionary import DataDictionary
from shoal_protocol.trust.manifest import Consortium, ServiceParty
from shoal_protocol.trust.manifest_bundle import bundle
from shoal_protocol.wire.documents import Signed

_PAUSES: Final = (0.5, 1.0, 2.0)  # seconds


PROOF_SECONDS: Final = 10
PROOF_TRIES: Final = 6


@dataclass(frozen=True)
class Outcome:
    """The outcome of sending the newest version to one service."""

    name: str
    accepted: bool
    detail: str
    unreachable: bool = False


def logged(
    before: Consortium, following: Consortium, *, transport: httpx.AsyncBaseTransport | None = None
) -> str | None:
    """Return the proof that the log has a version, by the nodes of the version `before`.

    None where none is needed: before there was a log, and in an emergency. The aggregator logs it
    now if it has not yet, and as many Compute nodes must sign as `before` asks for.

    Raises:
        Unavailable: the aggregator or too many nodes do not answer, and nothing was logged; or too
            few nodes sign in `PROOF_TRIES` waits.
        Refused: it does not log the version.
        ProtocolError: its proof does not hold.
    """
    known = following.signed_manifest.log_proof
    if before.manifest.policy.cosignatures is None or following.manifest.emergency or known:
        return known
    aggregator = Endpoint.of(before.manifest.aggregator, transport)

    async def ask(
        method: str,
        path: str,
        query: dict[str, str | int] | None = None,
        content: bytes | None = None,
    ) -> Reply:
        """Ask the aggregator, also under a certificate that ended: a proof speaks for itself."""
        try:
            return await call(aggregator, method, path, query, content=content)
        except Unavailable:
            return await call(
                dataclasses.replace(aggregator, certificate=None),
                method,
                path,
                query,
                content=content,
            )

    async def answers(node: ServiceParty) -> bool:
        try:
            reply = await call(Endpoint.of(node, transport), "GET", "/healthz")
        except Unavailable:
            return False
        return reply.status == HTTPStatus.OK

    async def fetch() -> str:
        nodes = before.manifest.compute_nodes
        there = await asyncio.gather(*map(answers, nodes))
        if sum(there) < before.manifest.quorum:  # logged, no emergency could take its place
            silent = [node.name for node, here in zip(nodes, there, strict=True) if not here]
            raise Unavailable(
                f"{', '.join(silent)} did not answer, and {before.manifest.quorum} of {len(nodes)} "
                "Compute nodes must sign the log: nothing was published. If they are lost, sign an "
                "--emergency without them"
            )
        answered = json_of(
            await ask("POST", "/v1/log/manifests", content=following.signed_manifest.encode())
        )
        if not isinstance(answered, dict) or not isinstance(place := answered.get("place"), int):
            raise Refused("the aggregator does not say where in the log the version is")
        for _ in range(PROOF_TRIES):
            reply = await ask("GET", f"/v1/log/proofs/{place}", {"wait": PROOF_SECONDS})
            if reply.status == HTTPStatus.OK:
                return reply.body.decode("utf-8", "replace")
        raise Unavailable(f"fewer than {before.manifest.quorum} Compute nodes sign the log")

    proof = asyncio.run(fetch())
    check_believed(before, following.manifest, proof)
    return proof


def publish_directory(directory: Path) -> list[Outcome]:
    """Have each version of a consortium directory logged that is not, then hand out the newest.

    The trainer gets the data dictionary, too, if there is one: a new trainer has none.

    Raises:
        Unavailable, Refused, ProtocolError: a version was not logged, as `logged`.
        ValueError: the directory or its dictionary is broken.
    """
    chain = open_chain(directory)
    for number, following in enumerate(chain[1:], 1):
        proof = logged(chain[number - 1], following)
        if proof is not None and following.signed_manifest.log_proof is None:
            publish_to_all(chain[:number])  # who signs must know the version before
            chain[number] = consortium_files.add_proof(directory, following, proof)
            publish_to_all(chain[: number + 1])
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
