"""Keys and policies that are not the consortium's: what the aggregator would put in their place."""

import asyncio
import ssl
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from nacl.public import PrivateKey
from nacl.signing import SigningKey

from shoal_kit.manifest_book import ManifestBook
from shoal_kit.peers.exchange import Connection, Reply, Unavailable
from shoal_kit.tls_certificates import TlsIdentity, self_signed
from shoal_protocol.trust.manifest import AUTHORITY_NAME, AuthorityMove, Consortium, Manifest
from shoal_protocol.trust.manifest_bundle import bundle
from shoal_protocol.trust.succession import move_message
from shoal_protocol.wire.documents import Signed, sign
from shoal_protocol.wire.errors import (
    BadSignature,
    MalformedDocument,
    ProtocolError,
    WrongManifest,
    WrongSigner,
)
from shoal_redteam.announcing import announced, is_honest
from shoal_redteam.attack import Attack
from shoal_redteam.findings import Finding, refused, refused_codes, seen
from shoal_redteam.played_round import honest_spec
from shoal_redteam.target import Target

_AUTHORITY = "a version must follow by the signature of the pinned authority"


def next_manifest(target: Target, **changes: object) -> Manifest:
    """Return the manifest that would follow the one in force, with changes."""
    current = target.consortium.manifest
    following = {"sequence": current.sequence + 1, "previous": target.consortium.digest}
    return current.model_copy(update=following | changes)


def with_own_boxes(target: Target) -> Manifest:
    """Return a manifest in which every node's box key is one that the aggregator knows."""
    nodes = tuple(
        node.model_copy(
            update={"box_key": bytes(PrivateKey(target.random_bytes(32)).public_key).hex()}
        )
        for node in target.consortium.manifest.compute_nodes
    )
    return next_manifest(target, compute_nodes=nodes)


def with_own_authority(target: Target, key: SigningKey) -> Manifest:
    """Return a manifest that moves the authority to a key, and bears that key's consent alone."""
    unsigned = next_manifest(
        target,
        authority=bytes(key.verify_key).hex(),
        founder=target.consortium.manifest.identity,
        move=AuthorityMove(by="authority", signature="00" * 64),
    )
    consent = key.sign(move_message(unsigned)).signature.hex()
    return unsigned.model_copy(update={"move": AuthorityMove(by="authority", signature=consent)})


class KeySubstitution(Attack):
    """The aggregator puts keys of its own in the place of the Compute nodes'."""

    name = "key-substitution"
    liar = "the aggregator"
    tries = "a manifest with its own box keys, authority or policy; a certificate of its own"
    stopped_by = (
        "bad-signature, wrong-signer, wrong-manifest, malformed-document; certificates pinned "
        "byte for byte"
    )

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Offer forged manifests to every service and to a data holder, then its own server."""
        own, theirs = target.key(target.aggregator), with_own_boxes(target)
        usurped = theirs.model_copy(update={"authority": bytes(own.verify_key).hex()})
        first = usurped.model_copy(update={"sequence": 1, "previous": None})
        forgeries = {
            "its own box keys, signed with its key in the authority's name": (
                sign(theirs, AUTHORITY_NAME, own),
                BadSignature.code,
                _AUTHORITY,
            ),
            "its own box keys, signed in its own name": (
                sign(theirs, target.aggregator, own),
                WrongSigner.code,
                "only the authority signs manifests",
            ),
            "itself as the authority": (
                sign(usurped, AUTHORITY_NAME, own),
                MalformedDocument.code,
                "a version that changes the authority's keys is a move of the authority",
            ),
            "itself as the authority, by a move that it signed for the authority before": (
                sign(with_own_authority(target, own), AUTHORITY_NAME, own),
                BadSignature.code,
                "a key of the version before must have signed the move",
            ),
            "a consortium of its own from the first version on": (
                sign(first, AUTHORITY_NAME, own),
                WrongManifest.code,
                "versions follow one another from the one that was pinned",
            ),
        }
        for tried, (signed, code, check) in forgeries.items():
            answers = await offer(target, signed)
            yield refused(f"{tried}, to every service", answers, by={code}, check=check)
            taken = accepted_by_a_data_holder(target, signed)
            yield refused_codes(
                f"{tried}, to a data holder", {"a data holder": taken}, by={code}, check=check
            )
        yield await none_was_taken(target)
        spec = honest_spec(target)
        yield await announced(
            target,
            "a round bound to the forged manifest",
            spec,
            {"manifest": theirs.digest},
            by={WrongManifest.code},
            check="a round is bound to the manifest in force",
        )
        await is_honest(target, spec)
        yield await self._own_server(target)

    async def _own_server(self, target: Target) -> Finding:
        party = target.party(target.nodes[0])
        forged = self_signed(party.name, ["127.0.0.1"], now=target.clock(), valid_days=3650)
        async with impostor(forged) as (port, heard):
            url = f"https://127.0.0.1:{port}"
            told = await connect(party.certificate, url)
            silent = not heard
            fooled = await connect(forged.certificate_pem, url)  # that it could have answered
        return seen(
            f"a server of its own in the place of {party.name}, with a certificate of its own",
            stopped=told == "SSLCertVerificationError" and silent and fooled == "answered",
            answered=f"the connection ends in {told}; not a byte of a request was sent",
            check="a connection trusts the certificate in the manifest, byte for byte",
        )


async def offer(target: Target, signed: Signed[Manifest]) -> dict[str, Reply]:
    """Hand a manifest with the roster in force to every service."""
    content = bundle(Consortium(signed, target.consortium.roster))
    return await target.tell(target.services, "/v1/manifest", content, method="PUT")


async def none_was_taken(target: Target) -> Finding:
    """Look which manifest each service shows after others were offered."""
    digests = []
    for name in target.services:
        shown = (await target.ask(name, "/v1/manifest")).json()
        digests.append(Manifest.model_validate(shown["body"]).digest)
    kept = digests.count(target.consortium.digest)
    return seen(
        "the manifest in force at every service afterwards",
        stopped=kept == len(digests),
        answered=f"{kept} of {len(digests)} services: the authority's, as before",
        check="none of those that were offered was taken",
    )


def accepted_by_a_data_holder(target: Target, signed: Signed[Manifest]) -> str:
    """Return the code with which a data holder refuses a manifest, "" if it takes it."""
    with tempfile.TemporaryDirectory() as directory:
        book = ManifestBook(target.consortium, Path(directory))
        try:
            book.accept(signed.encode(), target.consortium.roster.encode())
        except ProtocolError as error:
            return error.code
        return ""


async def connect(certificate: str, url: str) -> str:
    """Ask a server whose certificate is to be this one; return what came of it."""
    async with Connection(url, certificate) as connection:
        try:
            await connection.ask("GET", "/healthz")
        except Unavailable as error:
            cause: BaseException | None = error
            while cause is not None and not isinstance(cause, ssl.SSLError):
                cause = cause.__cause__ or cause.__context__
            return type(cause or error).__name__
    return "answered"


@asynccontextmanager
async def impostor(identity: TlsIdentity) -> AsyncIterator[tuple[int, list[bytes]]]:
    """Serve HTTPS on this machine; yield the port, and a list of what was ever sent to it."""
    heard: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if request := await reader.read(65_536):
            heard.append(request)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as directory:
        paths = Path(directory) / "crt", Path(directory) / "key"
        paths[0].write_text(identity.certificate_pem)
        paths[1].write_bytes(identity.private_key_pem)
        context.load_cert_chain(*paths)
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1], heard
    finally:
        server.close()
        await server.wait_closed()
