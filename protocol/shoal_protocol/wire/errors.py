"""The protocol's errors, each with its HTTP status and its remedy.

    ProtocolError                     a peer's fault, never the caller's (that is `ValueError`)
    ├── MalformedDocument             bytes that are not a canonical, valid document
    ├── BadSignature, UnknownSigner, WrongSigner
    ├── UnsupportedVersion, WrongManifest, TooFewSignatures
    ├── UnknownRound, UnknownJob, UnknownManifest, UnknownHolder, RevokedHolder
    ├── WrongPhase, RefusedSpec, RefusedJob
    ├── NotReady                      try again later
    └── LedgerBroken                  a party's own journal was changed, damaged or set back

What only services refuse is in `service_errors`, what is wrong in crowd jobs in `crowds.draws`.
No message ever carries what the peer sent.
"""

import re
from typing import ClassVar

from shoal_protocol.wire.versions import WIRE


class ProtocolError(Exception):
    """A peer broke the protocol.

    `code` is the name of the class, `wrong-round` of `WrongRound`, and ends the problem type's URN;
    `status` is the HTTP status; `remedy` says what the peer can do. `str(error)` says what was
    wrong. Another name of a class is another code on the wire.
    """

    code: ClassVar[str] = "protocol-error"
    title: ClassVar[str] = "The message does not follow the protocol"
    status: ClassVar[int] = 400
    remedy: ClassVar[str] = "Compare the message with the protocol's specification."
    retry_after_seconds: int | None = None

    def __init_subclass__(cls) -> None:
        """Give each kind of error its code; what derives from a kind has that kind's code."""
        if ProtocolError in cls.__bases__:
            cls.code = re.sub("(?<!^)(?=[A-Z])", "-", cls.__name__).lower()

    def __init__(self, detail: str | None = None) -> None:
        super().__init__(detail or self.title)


class MalformedDocument(ProtocolError):
    title = "Not a valid document in canonical encoding"
    status = 422
    remedy = (
        "Encode the document with RFC 8785, as the specification lists its fields: no spaces and "
        'no line breaks around values (`{"a":1,"b":2}`), and the names in alphabetical order.'
    )


class UnsupportedVersion(ProtocolError):
    title = "Unsupported protocol version"
    remedy = (
        f"Speak version {WIRE} of the protocol: run the release that all parties of the consortium "
        "run (`/healthz` names it)."
    )


class BadSignature(ProtocolError):
    title = "The signature does not verify"
    status = 403
    remedy = "Sign with the key that the consortium's manifest or roster lists for the signer."


class UnknownSigner(ProtocolError):
    title = "The signer is not a party of the consortium"
    status = 403
    remedy = "Ask the consortium's authority to list the signer in the manifest."


class WrongSigner(ProtocolError):
    title = "This party may not sign this kind of document"
    status = 403
    remedy = "Let the party in charge sign the document."


class WrongManifest(ProtocolError):
    title = "The message is bound to another manifest"
    status = 409
    remedy = "Fetch the consortium's current manifest and bind the message to its digest."


class TooFewSignatures(ProtocolError):
    title = "Too few Compute nodes signed this version of the manifest"
    status = 409
    remedy = "Send the version with the signatures that `shoal consortium publish` collected."


class UnknownRound(ProtocolError):
    title = "No such round here"
    status = 404
    remedy = "Wait until the trainer has announced the round, and check the round's digest."


class UnknownJob(ProtocolError):
    title = "No such job here"
    status = 404
    remedy = "Submit the job first, and check the job's digest."


class UnknownManifest(ProtocolError):
    title = "No such manifest here"
    status = 404
    remedy = "Publish the manifest version to this service first."


class UnknownHolder(ProtocolError):
    title = "The data holder, or its slot, is not on the roster"
    status = 403
    remedy = "Ask the consortium's authority to enrol the data holder, or to let it grow."


class RevokedHolder(ProtocolError):
    title = "The data holder was revoked"
    status = 403
    remedy = "Ask the consortium's authority to enrol the data holder under a new key."


class WrongPhase(ProtocolError):
    title = "The round or job is not in a phase that allows this"
    status = 409
    remedy = "Ask for the current state and act on that."


class RefusedSpec(ProtocolError):
    title = "The round spec is refused"
    status = 422
    remedy = "Mend what the detail names, sign the spec anew and announce it again."


class RefusedJob(ProtocolError):
    title = "The job request is refused"
    status = 422
    remedy = "Mend what the detail names, sign the request anew and submit it again."


class NotReady(ProtocolError):
    """The service is starting, stopping or has too much to do."""

    title = "Not ready to take this now"
    status = 503
    remedy = "Send the same request again after the time in Retry-After."
    retry_after_seconds = 2


class LedgerBroken(ProtocolError):
    """The party's journal is not reliable any more, so the party spends nothing."""

    title = "The party's journal was changed, damaged or set back"
    status = 500
    remedy = "Let the party's operator follow 'Restore' in docs/handbook.md."
