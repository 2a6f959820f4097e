"""Documents that should not be read at all: other versions, loose encodings, bodies too large."""

import json
from collections.abc import AsyncIterator
from typing import Final

from shoal_protocol.rounds.round_spec import LARGEST_SPEC_BYTES, RoundSpec
from shoal_protocol.trust.manifest import AUTHORITY_NAME
from shoal_protocol.wire.documents import sign
from shoal_protocol.wire.encoding import canonical_json, domain
from shoal_protocol.wire.errors import (
    BadSignature,
    MalformedDocument,
    UnsupportedVersion,
    WrongManifest,
)
from shoal_protocol.wire.service_errors import MalformedEnvelope
from shoal_redteam.announcing import announced, is_honest
from shoal_redteam.attack import Attack
from shoal_redteam.attacks.key_substitution import next_manifest, none_was_taken, offer
from shoal_redteam.findings import Finding, refused, seen
from shoal_redteam.played_round import begin, honest_spec
from shoal_redteam.target import BYTES, Target

_TOO_LARGE: Final = "body-too-large"
_MIB: Final = 1 << 20


class Downgrade(Attack):
    """Somebody wants an older or a weaker agreement than the one in force."""

    name = "downgrade"
    liar = "the trainer, or anybody who relays manifests"
    tries = "a weaker policy, a manifest out of turn, another protocol version, an old binding"
    stopped_by = "bad-signature, wrong-manifest, unsupported-version, malformed-document"

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Offer weaker manifests to every service, and documents of other versions."""
        current, key = target.consortium.manifest, target.key(target.trainer)
        weaker = current.policy.model_copy(update={"minimum_cohort": 2, "maximum_epsilon": 100.0})
        relaxed = next_manifest(target, policy=weaker)
        yield refused(
            "a next manifest with a weaker policy, signed by the trainer as the authority",
            await offer(target, sign(relaxed, AUTHORITY_NAME, key)),
            by={BadSignature.code},
            check="a version must follow by the signature of the pinned authority",
        )
        # even the authority cannot put a version beside the chain
        rival = current.model_copy(update={"policy": weaker})
        skipping = relaxed.model_copy(update={"sequence": current.sequence + 2})
        for tried, manifest in {
            "a rival of the version in force, signed by the authority": rival,
            "a version that leaves one out, signed by the authority": skipping,
        }.items():
            yield refused(
                tried,
                await offer(target, sign(manifest, AUTHORITY_NAME, target.keys.authority)),
                by={WrongManifest.code},
                check="versions follow one another without gaps",
            )
        yield await none_was_taken(target)
        spec = honest_spec(target)
        for version in (0, 2):
            yield await announced(
                target,
                f"a round of protocol version {version}",
                spec,
                {"version": version},
                by={UnsupportedVersion.code},
                check="the version is part of what is signed, and read first",
            )
        yield await announced(
            target,
            "a round bound to a manifest that is not in force",
            spec,
            {"manifest": rival.digest},
            by={WrongManifest.code},
            check="a round is bound to the manifest in force",
        )
        yield await announced(
            target,
            "a round with a field that this version does not know",
            spec,
            {"noise_is_optional": True},
            by={MalformedDocument.code},
            check="unknown fields are refused: one dropped unseen is a downgrade",
        )
        await is_honest(target, spec)


class LooseEncoding(Attack):
    """One signed document in many encodings, so that two readers read two things."""

    name = "non-canonical"
    liar = "the trainer"
    tries = "white space, doubled members, other numbers, escapes and byte order marks"
    stopped_by = "malformed-document: one document has one encoding"

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Announce one genuine spec in other bytes than its own."""
        spec = honest_spec(target)
        signed = target.sign(spec, target.trainer)
        encoded = signed.encode()
        body, name = spec.canonical, b'"compute_nodes"'
        bodies = {
            "a member twice": body.replace(b'"dropouts":', b'"dropouts":0,"dropouts":', 1),
            "an integer as a float": body.replace(b'"number":0', b'"number":0.0', 1),
            "minus zero": body.replace(b'"number":0', b'"number":-0', 1),
            "NaN": body.replace(b'"number":0', b'"number":NaN', 1),
            "a needless escape": body.replace(name, b'"\\u0063ompute_nodes"', 1),
        }
        loosened: dict[str, bytes] = {
            "white space": json.dumps(signed.to_json(), sort_keys=True).encode(),
            "members in another order": json.dumps(
                dict(reversed(signed.to_json().items())), separators=(",", ":")
            ).encode(),
            **{tried: self._signed(target, spec, loose) for tried, loose in bodies.items()},
            "a byte order mark": b"\xef\xbb\xbf" + encoded,
            "UTF-16": encoded.decode().encode("utf-16"),
            "a line end behind it": encoded + b"\n",
            "nesting without end": b"[" * 100_000,
        }
        names = (*target.nodes, target.aggregator)
        for tried, content in loosened.items():
            answers = await target.tell(names, "/v1/rounds", content)
            check = "what is read is encoded again and compared"
            yield refused(tried, answers, by={MalformedDocument.code}, check=check)
        await is_honest(target, spec)

    @staticmethod
    def _signed(target: Target, spec: RoundSpec, body: bytes) -> bytes:
        """Sign these very bytes: a signature is checked before what it signs is read."""
        signature = target.key(target.trainer).sign(domain(spec.kind) + body).signature.hex()
        rest = canonical_json({"signature": signature, "signer": target.trainer})
        return b'{"body":' + body + b"," + rest[1:]


class OversizedBody(Attack):
    """Anybody fills a service's memory."""

    name = "oversized"
    liar = "anybody"
    tries = "bodies beyond what a path takes, and a bulk body of too many envelopes"
    stopped_by = "body-too-large, malformed-envelope; every service still answers"

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Send too much to each service, and see whether it is still there."""
        played = await begin(target)
        node, aggregator, trainer = target.nodes[0], target.aggregator, target.trainer
        bodies = {
            "a round spec of 4 MiB and more": (node, "/v1/rounds", LARGEST_SPEC_BYTES),
            "an envelope of 8 MiB and more": (node, f"{played.path}/shares", 9 * _MIB),
            "a gossip message of 4 MiB and more": (node, "/v1/gossip", 4 * _MIB),
            "a round spec of 4 MiB and more, to the aggregator": (
                aggregator,
                "/v1/rounds",
                LARGEST_SPEC_BYTES,
            ),
            "a partial sum of 10 MiB and more": (
                aggregator,
                f"{played.path}/ends",
                12 * _MIB,
            ),
            "a job request of 1 MiB and more": (trainer, "/v1/jobs", _MIB),
        }
        for tried, (name, path, size) in bodies.items():
            answer = await target.send(name, path, bytes(size + 1), BYTES)
            yield seen(
                tried,
                stopped=answer.code == _TOO_LARGE,  # any other answer: it was read to the end
                answered=f"{name}: {answer.code}",
                check="each path has a bound, which is checked before the body is read",
            )
        many = (0).to_bytes(4, "little") * 10_001
        yield refused(
            "10,001 envelopes in one body",
            {node: await target.send(node, f"{played.path}/shares/bulk", many, BYTES)},
            by={MalformedEnvelope.code},
            check="the number of envelopes in a body is bounded",
        )
        await played.answer(played.clients)
        ready = {name: (await target.ask(name, "/readyz")).status for name in target.services}
        yield seen(
            "whether the services still work, and the round goes on",
            stopped=set(ready.values()) == {200} and await played.released_exactly(played.clients),
            answered=f"{len(ready)} services: ready; the round is released",
            check="nothing of it was kept in memory",
        )
