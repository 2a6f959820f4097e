"""What a vector asks for, by name: each operation takes the inputs and returns bytes or refuses."""

import base64
import struct
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import numpy as np
from nacl.signing import SigningKey
from pydantic import TypeAdapter
from pyroaring import BitMap

from shoal_protocol.certificates import release_certificate
from shoal_protocol.crowds import draws, tasks
from shoal_protocol.crowds import draws as crowd
from shoal_protocol.crowds.tasks import CrowdTask
from shoal_protocol.jobs import charges, declarations, membership, totals
from shoal_protocol.jobs.charges_asked import check_age
from shoal_protocol.keeping import JournalHead, KeptHeads, Loss
from shoal_protocol.queries import Query
from shoal_protocol.rounds import attestations, round_spec
from shoal_protocol.rounds.round_spec import RoundSpec, check_spec
from shoal_protocol.sharing import committee_sums, received, schemes, shamir, summation
from shoal_protocol.sharing.envelope import (
    Header,
    envelope_digest,
    frame,
    receipt_query,
    seal,
)
from shoal_protocol.sharing.received import parse, unframe
from shoal_protocol.sharing.schemes import Sharing
from shoal_protocol.sharing.shares import Share, ShareKind
from shoal_protocol.trust import manifest
from shoal_protocol.trust.manifest import Consortium, Manifest
from shoal_protocol.trust.roster import Roster
from shoal_protocol.trust.succession import ManifestStatement, following_version
from shoal_protocol.wire.documents import Document, decode, sign
from shoal_protocol.wire.encoding import (
    canonical_json,
    decode_clients,
    encode_clients,
    parse_canonical_json,
)
from shoal_protocol.wire.errors import ProtocolError
from shoal_studies import posterior_report, study_request
from tests.vectors.round_operations import choose_batch

KINDS: Mapping[str, type[Document]] = {
    str(document.model_fields["kind"].default): document
    for document in (
        manifest.Manifest,
        study_request.StudyRequest,
        membership.HolderQuery,
        membership.Membership,
        declarations.HolderDeclaration,
        membership.Approval,
        study_request.JobCheck,
        study_request.JobsQuery,
        membership.JobWithdrawal,
        charges.ChargesQuery,
        charges.Charges,
        posterior_report.PosteriorReport,
        round_spec.RoundSpec,
        attestations.Holdings,
        attestations.Vote,
        attestations.PartialSum,
        attestations.Result,
        attestations.Abandonment,
        totals.JobEnd,
        totals.JobTotal,
        ManifestStatement,
        JournalHead,
        KeptHeads,
        Loss,
        crowd.CrowdJobRequest,
        crowd.CrowdOpening,
        crowd.Draw,
        crowd.Submission,
        crowd.SubmissionReceipt,
        crowd.CrowdClosing,
    )
}
Inputs = Mapping[str, Any]
Output = dict[str, Any]


def encode_json(given: Inputs) -> Output:
    return {"bytes": canonical_json(given["value"]).hex()}


def decode_json(given: Inputs) -> Output:
    value = parse_canonical_json(bytes.fromhex(given["bytes"]))
    return {"bytes": canonical_json(value).hex()}


def encode_set(given: Inputs) -> Output:
    clients = [client for first, last in given["runs"] for client in range(first, last + 1)]
    return {"bytes": base64.b64decode(encode_clients(clients)).hex()}


def decode_set(given: Inputs) -> Output:
    return {"clients": list(decode_clients(given["base64"]))}


def cohort_digest(given: Inputs) -> Output:
    cohort = attestations.StoredAnswers(BitMap(given["holders"]), bytes.fromhex(given["tags"]))
    among = given.get("nodes", ())
    return {"digest": attestations.cohort_digest(given["round"], cohort, among)}


def encode_roster(given: Inputs) -> Output:
    ranges = b"".join(struct.pack("<II", *each) for each in given["ranges"])
    roster = Roster(bytes.fromhex("".join(given["keys"])), ranges)
    return {"bytes": roster.encode().hex(), "digest": roster.digest}


def decode_roster(given: Inputs) -> Output:
    return {"digest": Roster.decode(bytes.fromhex(given["bytes"])).digest}


def expand_seed(given: Inputs) -> Output:
    expand = {"additive": schemes.expand, "threshold": shamir.expand}[given["scheme"]]
    return {"bytes": expand(bytes.fromhex(given["seed"]), given["dimension"]).tobytes().hex()}


def _sharing(given: Inputs) -> Sharing:
    return TypeAdapter[Sharing](Sharing).validate_python(given["sharing"])


def split_secret(given: Inputs) -> Output:
    seeds, sharing = iter(given["seeds"]), _sharing(given)
    shares = sharing.split(
        sharing.encode(np.array([int(value) for value in given["secret"]], np.int64)),
        holder=given["holder"],
        nodes=given["nodes"],
        random_bytes=lambda size: bytes.fromhex(next(seeds)),
    )
    return {
        "kinds": [share.kind.name.lower() for share in shares],
        "bytes": [share.payload.hex() for share in shares],
    }


def combine_sums(given: Inputs) -> Output:
    """Open a total from partial sums by the node's index; no values if they contradict."""
    sharing = _sharing(given)
    sums = {
        int(node): np.frombuffer(bytes.fromhex(each), "<u8") for node, each in given["sums"].items()
    }
    combined = summation.combine(sharing, sums, nodes=given["nodes"])
    if combined is None:
        return {"values": None}
    values = summation.decode(sharing, combined.total).tolist()
    return {"values": [str(value) for value in values], "wrong": sorted(combined.wrong)}


def blind_sum(given: Inputs) -> Output:
    """Weigh and mask one node's sums, by the first nodes of their committees."""
    sharing = _sharing(given)
    sums = {
        int(start): np.frombuffer(bytes.fromhex(each), "<u8")
        for start, each in given["sums"].items()
    }
    among, node = given["among"], given["node"]
    total = sum(sums.values(), np.uint64(0))
    if sharing.scheme == "threshold":
        total = committee_sums.weighted(sharing, sums, node=node, among=among, nodes=given["nodes"])
    mask = committee_sums.mask(
        sharing,
        {int(other): bytes.fromhex(key) for other, key in given["box_keys"].items()},
        node=node,
        box_private_key=bytes.fromhex(given["box_private_key"]),
        cohort=given["cohort"],
        dimension=len(total),
    )
    return {"bytes": summation.plus(sharing, total, mask).tobytes().hex()}


def encode_query(given: Inputs) -> Output:
    query = TypeAdapter[Query](Query).validate_python(given["query"])
    vector = query.encode(np.array(given["records"], np.float64))
    return {"bytes": vector.astype("<i8").tobytes().hex(), "values": vector.tolist()}


def seal_share(given: Inputs) -> Output:
    kind = ShareKind[given["kind"].upper()]
    encoded = seal(
        Share(kind, bytes.fromhex(given["payload"])),
        Header(
            kind,
            given["node"],
            given["holder"],
            given["manifest"],
            given["round"],
            bytes.fromhex(given["answer"]),
        ),
        box_key=bytes.fromhex(given["box_key"]),
        key=SigningKey(bytes.fromhex(given["signing_seed"])),
        random_bytes=lambda size: bytes.fromhex(given["ephemeral_private_key"]),
    )
    return {"bytes": encoded.hex(), "digest": parse(encoded).digest.hex()}


def accept_envelope(given: Inputs) -> Output:
    """Take an envelope in as a Compute node that has the round's roster and its own box key."""
    envelope = parse(bytes.fromhex(given["envelope"]))
    roster = Roster.decode(bytes.fromhex(given["roster"]))
    envelope.verify(roster.key_of(envelope.header.holder))
    share = envelope.open(bytes.fromhex(given["box_private_key"]), bytes.fromhex(given["box_key"]))
    summation.check(
        _sharing(given),
        share,
        holder=envelope.header.holder,
        node=given["node"],
        nodes=given["nodes"],
        dimension=given["dimension"],
    )
    return {"bytes": share.payload.hex()}


def pack_envelopes(given: Inputs) -> Output:
    return {"bytes": frame(bytes.fromhex(each) for each in given["envelopes"]).hex()}


def unpack_envelopes(given: Inputs) -> Output:
    return {"bytes": [each.hex() for each in unframe(bytes.fromhex(given["bytes"]))]}


def pack_receipt_query(given: Inputs) -> Output:
    envelope = bytes.fromhex(given["envelope"])
    return {"bytes": receipt_query(parse(envelope).holder, envelope_digest(envelope)).hex()}


def read_receipt_query(given: Inputs) -> Output:
    holder, digest = received.read_receipt_query(bytes.fromhex(given["bytes"]))
    return {"holder": holder, "bytes": digest.hex()}


def sign_document(given: Inputs) -> Output:
    body = KINDS[given["body"]["kind"]].model_validate(given["body"])
    signed = sign(body, given["signer"], SigningKey(bytes.fromhex(given["signing_seed"])))
    return {
        "bytes": signed.encode().hex(),
        "digest": signed.digest,
        "signature": signed.signature,
    }


def _consortium(given: Inputs) -> Consortium:
    encoded = bytes.fromhex(given["manifest"])
    digest = decode(encoded, Manifest).digest
    return Consortium.pinned(encoded, bytes.fromhex(given["roster"]), digest=digest)


def accept_document(given: Inputs) -> Output:
    """Decode and verify a document of the kind that is due, under a manifest."""
    signed = decode(bytes.fromhex(given["document"]), KINDS[given["kind"]])
    _consortium(given).verify(signed)
    return {"digest": signed.digest}


def accept_spec(given: Inputs) -> Output:
    """Decode, verify and check a round spec."""
    consortium = _consortium(given)
    signed = decode(bytes.fromhex(given["document"]), RoundSpec)
    consortium.verify(signed)
    check_spec(signed.body, consortium, now=datetime.fromisoformat(given["now"]))
    return {"digest": signed.digest}


def accept_query(given: Inputs) -> Output:
    """Decode, verify and check the age of a query for charges."""
    signed = decode(bytes.fromhex(given["document"]), charges.ChargesQuery)
    _consortium(given).verify(signed)
    check_age(signed.body.at, datetime.fromisoformat(given["now"]))
    return {"digest": signed.digest}


def accept_charges(given: Inputs) -> Output:
    """Decode and check a Compute node's answer to a query for charges."""
    signed = decode(bytes.fromhex(given["document"]), charges.Charges)
    charges.check_charges(
        signed,
        _consortium(given),
        node=given["node"],
        nonce=given["nonce"],
        after=given["after"],
        holder=given["holder"],
        slots=BitMap(given["slots"]),
        caps=[_consortium(given).manifest.policy.cap],
    )
    return {"digest": signed.digest}


def pin_manifest(given: Inputs) -> Output:
    opened = Consortium.pinned(
        bytes.fromhex(given["document"]), bytes.fromhex(given["roster"]), digest=given["pin"]
    )
    return {"digest": opened.digest}


def follow_manifest(given: Inputs) -> Output:
    follows = following_version(
        _consortium(given), bytes.fromhex(given["document"]), bytes.fromhex(given["next_roster"])
    )
    return {"digest": follows.digest}


def charge_hash(given: Inputs) -> Output:
    """Return the hash of the entry by which a charge says that a round was charged."""
    charge = attestations.Charge.model_validate(given["charge"])
    return {"digest": charge.hash_for(given["round"])}


def choose_instances(given: Inputs) -> Output:
    secret, chosen = bytes.fromhex(given["seed"]), (given["nonce"], given["instances"])
    return {
        "digest": draws.commitment(secret),
        "values": [
            draws.drawn_instance(secret, *chosen),
            draws.replaced_instance(secret, *chosen),
        ],
    }


def digest_weights(given: Inputs) -> Output:
    return {"digest": crowd.weights_digest(given["weights"])}


def take_step(given: Inputs) -> Output:
    task = CrowdTask.model_validate(given["task"])
    rows, targets = tasks.design_rows(task, np.array(given["records"]))
    weights = np.array(given["weights"], np.int64)
    return {"values": tasks.steps(task, weights, rows, targets).tolist()}


def contribute_step(given: Inputs) -> Output:
    sent = tasks.contribute(
        CrowdTask.model_validate(given["task"]),
        np.array(given["weights"], np.int64),
        np.array(given["step"], np.int64),
        coordinate=given["coordinate"],
        noise=np.array(given["noise"], np.int64),
    )
    return {"values": sent.tolist()}


def read_certificate(given: Inputs) -> Output:
    """Return a certificate's job, and the record of it that its report has to name."""
    certificate = release_certificate.read_certificate(bytes.fromhex(given["bytes"]))
    record = release_certificate.record_digest(
        decode_clients(certificate.population), certificate.lost_rounds
    )
    return {"job": certificate.job, "report": certificate.report.digest, "record": record}


OPERATIONS: Mapping[str, Callable[[Inputs], Output]] = {
    operation.__name__: operation
    for operation in (
        encode_json,
        decode_json,
        encode_set,
        decode_set,
        cohort_digest,
        read_certificate,
        encode_roster,
        decode_roster,
        expand_seed,
        split_secret,
        combine_sums,
        blind_sum,
        encode_query,
        seal_share,
        accept_envelope,
        pack_envelopes,
        unpack_envelopes,
        pack_receipt_query,
        read_receipt_query,
        sign_document,
        accept_document,
        accept_spec,
        accept_query,
        accept_charges,
        pin_manifest,
        follow_manifest,
        charge_hash,
        choose_instances,
        digest_weights,
        take_step,
        contribute_step,
        choose_batch,
    )
}


def outcome(operation: str, given: Inputs) -> Output:
    """Run one operation and say how it ended, as a vector records it."""
    try:
        return {"success": True, **OPERATIONS[operation](given)}
    except ProtocolError as error:
        return {"success": False, "error": error.code}
