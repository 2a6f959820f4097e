"""Protocol errors of services beyond `errors`: for uploads, queries and each other's documents."""

from shoal_protocol.wire.errors import ProtocolError


class MalformedEnvelope(ProtocolError):
    code = "malformed-envelope"
    title = "Not a share envelope"
    remedy = "Send the bytes of one share envelope exactly as the specification lays them out."


class WrongShare(ProtocolError):
    code = "wrong-share"
    title = "Not a share, or a sum of shares, as it is due from this sender to this node"
    remedy = (
        "Send 32 bytes for a seed or 8 for each coordinate of the round's query, whichever the "
        "round's sharing scheme assigns to the node, each coordinate below the modulus."
    )


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


class Superseded(ProtocolError):
    """An answer of a machine whose data holder has restored its state elsewhere since."""

    code = "superseded"
    title = "The answer comes from a machine that another one has superseded"
    status = 410
    remedy = "Stop this machine for good: the data holder's state was restored on another one."


class BeforeRestore(ProtocolError):
    """An answer to a round that was announced before its data holder restored its state."""

    code = "before-restore"
    title = "The round was announced before the data holder's state was restored"
    status = 409
    remedy = "Answer rounds that are announced from now on: the lost machine may have answered."


class ConflictingDocument(ProtocolError):
    code = "conflicting-document"
    title = "A different document or share of this party is already on file"
    status = 409
    remedy = "Send the same bytes again on a retry: what is on file is never replaced."


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


class RoundAbandoned(ProtocolError):
    code = "round-abandoned"
    title = "The round was abandoned and released nothing"
    status = 410
    remedy = "Read the reason in the round's signed abandonment."


class MissingRequest(ProtocolError):
    code = "missing-request"
    title = "The job's request is not on file here"
    status = 409
    remedy = "Send the job's signed request to /v1/jobs here, and then the round again."


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


class StaleQuery(ProtocolError):
    """A query that is too old, or dated ahead."""

    code = "stale-query"
    title = "The query was not made just now, by the clock here"
    status = 409
    remedy = "Compare both clocks with the time, set the wrong one right, and sign a new query."


class QueryAnswered(ProtocolError):
    """A query that was answered already, to whoever sent it first."""

    code = "query-answered"
    title = "The query was answered before"
    status = 409
    remedy = "Sign a new query with a fresh nonce."


class HolderLeft(ProtocolError):
    """An outdated join of a data holder that has left the job."""

    code = "holder-left"
    title = "The data holder has left the job"
    status = 409
    remedy = "Nothing: who left a job does not come back to it."


class OutdatedDeclaration(ProtocolError):
    """A data holder's declaration that does not follow its newest one."""

    code = "outdated-declaration"
    title = "A later declaration of the data holder is known"
    status = 409
    remedy = "Compare the agent's clock with the time, set it right and start the agent again."


class UnsteadyClock(ProtocolError):
    """Documents would go by a clock that leapt, or that a service has just begun to look at."""

    code = "unsteady-clock"
    title = "The service's clock may be wrong, and nothing is deleted by it"
    status = 409
    remedy = "See that the clock is right; then send it with trust_clock=true, or a day later."
