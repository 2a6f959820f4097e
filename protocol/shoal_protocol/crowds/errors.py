"""Protocol errors of crowd jobs, beyond `shoal_protocol.wire.errors`, each with its remedy."""

from shoal_protocol.wire.errors import ProtocolError


class RefusedDraw(ProtocolError):
    code = "refused-draw"
    title = "The draw is refused"
    status = 422
    remedy = "Draw again; if it happens twice, tell the consortium that the trainer cheats."


class SessionExpired(ProtocolError):
    code = "session-expired"
    title = "The draw has expired"
    status = 410
    remedy = "Draw again, if the record's budget allows another contribution."


class RefusedSubmission(ProtocolError):
    code = "refused-submission"
    title = "The submission is refused"
    status = 422
    remedy = "Answer a draw of this job by one step on one record, as the specification says."


class ConflictingSubmission(ProtocolError):
    code = "conflicting-submission"
    title = "Another submission that answers the same draw is on file"
    status = 409
    remedy = "Send the same bytes again on a retry; a draw is answered once."


class ContributionsUsedUp(ProtocolError):
    code = "contributions-used-up"
    title = "The client has contributed as often as the job allows"
    status = 403
    remedy = "Contribute no more to this job."


class CrowdClosed(ProtocolError):
    code = "crowd-closed"
    title = "The crowd job is closed"
    status = 410
    remedy = "Ask for its closing; contribute to another job."
