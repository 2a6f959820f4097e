"""Every way in which a peer can be wrong, each with its HTTP status and what to do about it.

    ProtocolError                     a peer's fault, never the caller's (that is `ValueError`)
    ├── MalformedDocument             bytes that are not a canonical, valid document
    ├── MalformedEnvelope             bytes that are not a share envelope
    ├── MalformedQuery                bytes that are not a held query
    ├── BadSignature, UnknownSigner, WrongSigner
    ├── UnsupportedVersion, WrongManifest, WrongRound, WrongNode
    ├── UnknownRound, UnknownJob, UnknownManifest, UnknownClient, RevokedClient, NotInPopulation
    ├── TransplantedCiphertext, UnopenableCiphertext, WrongLength, WrongShareKind, WrongResidue
    ├── ConflictingShare, ConflictingDocument, WrongCohort, WrongCharge
    ├── TooLate, WrongPhase, RoundAbandoned, MissingRequest
    ├── RefusedSpec, RefusedJob, RefusedResult, RefusedCertificate, BudgetExceeded
    ├── StorageUnavailable, NotReady  try again later
    └── LedgerBroken                  a service's own ledger was tampered with

No message ever carries what the peer sent.
"""

from typing import ClassVar


class ProtocolError(Exception):
    """A peer broke the protocol.

    `code` is stable and ends the problem type's URN; `status` is the HTTP status; `remedy` says
    what the peer can do. `str(error)` says what was wrong.
    """

    code: ClassVar[str] = "protocol-error"
    title: ClassVar[str] = "The message does not follow the protocol"
    status: ClassVar[int] = 400
    remedy: ClassVar[str] = "Compare the message with the protocol's specification."
    retry_after_seconds: int | None = None

    def __init__(self, detail: str | None = None) -> None:
        super().__init__(detail or self.title)


class MalformedDocument(ProtocolError):
    code = "malformed-document"
    title = "Not a valid document in canonical encoding"
    status = 422
    remedy = (
        "Encode the document with RFC 8785, as the specification lists its fields: no spaces and "
        'no line breaks around values (`{"a":1,"b":2}`), and the names in alphabetical order.'
    )


class MalformedEnvelope(ProtocolError):
    code = "malformed-envelope"
    title = "Not a share envelope"
    remedy = "Send the bytes of one share envelope exactly as the specification lays them out."


class MalformedQuery(ProtocolError):
    code = "malformed-query"
    title = "Not a held query"
    remedy = "Send a client index in 4 bytes, little-endian, and a digest in 32 bytes, repeated."


class UnsupportedVersion(ProtocolError):
    code = "unsupported-version"
    title = "Unsupported protocol version"
    remedy = "Speak version 1 of the protocol."


class BadSignature(ProtocolError):
    code = "bad-signature"
    title = "The signature does not verify"
    status = 403
    remedy = "Sign with the key that the consortium's manifest or roster lists for the signer."


class UnknownSigner(ProtocolError):
    code = "unknown-signer"
    title = "The signer is not a party of the consortium"
    status = 403
    remedy = "Ask the consortium's authority to list the signer in the manifest."


class WrongSigner(ProtocolError):
    code = "wrong-signer"
    title = "This party may not sign this kind of document"
    status = 403
    remedy = "Let the party in charge sign the document."


class WrongManifest(ProtocolError):
    code = "wrong-manifest"
    title = "The message is bound to another manifest"
    status = 409
    remedy = "Fetch the consortium's current manifest and bind the message to its digest."


class WrongRound(ProtocolError):
    code = "wrong-round"
    title = "The message belongs to another round"
    status = 409
    remedy = "Send it to the address of its own round."


class WrongNode(ProtocolError):
    code = "wrong-node"
    title = "The message is addressed to another Compute node"
    status = 409
    remedy = "Send each envelope to the node whose index it names."


class UnknownRound(ProtocolError):
    code = "unknown-round"
    title = "No such round here"
    status = 404
    remedy = "Wait until the trainer has announced the round, and check the round's digest."


class UnknownJob(ProtocolError):
    code = "unknown-job"
    title = "No such job here"
    status = 404
    remedy = "Submit the job first, and check the job's digest."


class UnknownManifest(ProtocolError):
    code = "unknown-manifest"
    title = "No such manifest here"
    status = 404
    remedy = "Publish the manifest version to this service first."


class UnknownClient(ProtocolError):
    code = "unknown-client"
    title = "The client is not on the roster"
    status = 403
    remedy = "Ask the consortium's authority to enrol the client."


class RevokedClient(ProtocolError):
    code = "revoked-client"
    title = "The client's enrolment was revoked"
    status = 403
    remedy = "Ask the consortium's authority to enrol the client again under a new key."


class NotInPopulation(ProtocolError):
    code = "not-in-population"
    title = "The client is not in this round's population"
    status = 403
    remedy = "Join a job before its population is fixed; then take part in its rounds."


class UnopenableCiphertext(ProtocolError):
    code = "unopenable-ciphertext"
    title = "The sealed box does not open"
    remedy = "Seal the share to the box key that the manifest lists for this Compute node."


class TransplantedCiphertext(ProtocolError):
    code = "transplanted-ciphertext"
    title = "The sealed share was made for another client, round, node or manifest"
    status = 403
    remedy = "Seal a share together with the digest of its own envelope's header."


class WrongLength(ProtocolError):
    code = "wrong-length"
    title = "The share does not have the round's length"
    remedy = "Send 32 bytes for a seed, or 8 bytes for each coordinate of the round's query."


class WrongShareKind(ProtocolError):
    code = "wrong-share-kind"
    title = "This node is due the other kind of share from this client"
    remedy = "Send the full vector to the node that the round's sharing scheme assigns."


class WrongResidue(ProtocolError):
    code = "wrong-residue"
    title = "A coordinate is not a residue of the round's modulus"
    remedy = "Reduce every coordinate modulo 2^61 - 1 before it is sent."


class ConflictingShare(ProtocolError):
    code = "conflicting-share"
    title = "A different share of this client is already stored for this round"
    status = 409
    remedy = "Send the same bytes again on a retry; a share is never replaced."


class ConflictingDocument(ProtocolError):
    code = "conflicting-document"
    title = "A different document of this party is already on file"
    status = 409
    remedy = "A party signs one such document for a round, and one round for each number of a job."


class WrongCohort(ProtocolError):
    code = "wrong-cohort"
    title = "The document names another cohort than the round's"
    status = 409
    remedy = "Sum over the cohort that all Compute nodes voted for."


class TooLate(ProtocolError):
    code = "too-late"
    title = "The round takes no more shares"
    status = 410
    remedy = "Take part in the next round; this one goes on without the share."


class WrongCharge(ProtocolError):
    code = "wrong-charge"
    title = "The partial sum's ledger entry is not the round's charge"
    status = 422
    remedy = "Charge the round to its whole population, at its price, before summing it."


class WrongPhase(ProtocolError):
    code = "wrong-phase"
    title = "The round or job is not in a phase that allows this"
    status = 409
    remedy = "Ask for the current state and act on that."


class RoundAbandoned(ProtocolError):
    code = "round-abandoned"
    title = "The round was abandoned and released nothing"
    status = 410
    remedy = "Read the reason in the round's signed abandonment."


class RefusedSpec(ProtocolError):
    code = "refused-spec"
    title = "The round spec is refused"
    status = 422
    remedy = "Mend what the detail names, sign the spec anew and announce it again."


class MissingRequest(ProtocolError):
    code = "missing-request"
    title = "The job's request is not on file here"
    status = 409
    remedy = "Send the job's signed request to /v1/jobs here, and then the round again."


class RefusedJob(ProtocolError):
    code = "refused-job"
    title = "The job request is refused"
    status = 422
    remedy = "Mend what the detail names, sign the request anew and submit it again."


class RefusedResult(ProtocolError):
    code = "refused-result"
    title = "The round's result is refused"
    status = 422
    remedy = "Mend what the detail names, and submit a new job."


class RefusedCertificate(ProtocolError):
    code = "refused-certificate"
    title = "The release certificate does not hold"
    status = 422
    remedy = "Do not rely on it; ask the consortium's trainer for the job's certificate again."


class BudgetExceeded(ProtocolError):
    code = "budget-exceeded"
    title = "This would exceed the privacy budget"
    status = 403
    remedy = "Ask for less, or wait for a manifest whose policy allows more."


class StorageUnavailable(ProtocolError):
    """Nothing was stored; the peer keeps its message and sends the same bytes again."""

    code = "storage-unavailable"
    title = "Durable storage is not available"
    status = 503
    remedy = "Keep the message and send the same bytes again after the time in Retry-After."
    retry_after_seconds = 2


class NotReady(ProtocolError):
    """The service is starting, stopping or has too much to do."""

    code = "not-ready"
    title = "Not ready to take this now"
    status = 503
    remedy = "Send the same request again after the time in Retry-After."
    retry_after_seconds = 2


class LedgerBroken(ProtocolError):
    """What the service spent cannot be known any more, so it spends nothing."""

    code = "ledger-broken"
    title = "The service's ledger was tampered with or damaged"
    status = 500
    remedy = "Tell the service's operator, who restores the ledger from where it is whole."
