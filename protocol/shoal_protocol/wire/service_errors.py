"""Protocol errors of services beyond `errors`: for uploads, queries and each other's documents."""

from shoal_protocol.wire.errors import ProtocolError


class MalformedEnvelope(ProtocolError):
    title = "Not a share envelope"
    remedy = "Send the bytes of one share envelope exactly as the specification lays them out."


class WrongShare(ProtocolError):
    title = "Not a share, or a sum of shares, as it is due from this sender to this node"
    remedy = (
        "Send 32 bytes for a seed or 8 for each coordinate of the round's query, whichever the "
        "round's sharing scheme assigns to the node, each coordinate below the modulus."
    )


class WrongRound(ProtocolError):
    title = "The message belongs to another round"
    status = 409
    remedy = "Send it to the address of its own round."


class WrongNode(ProtocolError):
    title = "The message is addressed to another Compute node"
    status = 409
    remedy = "Send each envelope to the node whose index it names."


class NotInPopulation(ProtocolError):
    title = "The client is not in this round's population"
    status = 403
    remedy = "Join a job before its population is fixed; then take part in its rounds."


class UnopenableCiphertext(ProtocolError):
    title = "The sealed box does not open"
    remedy = "Seal the share to the box key that the manifest lists for this Compute node."


class TransplantedCiphertext(ProtocolError):
    title = "The sealed share was made for another client, round, node or manifest"
    status = 403
    remedy = "Seal a share together with the digest of its own envelope's header."


class Superseded(ProtocolError):
    """An answer of a machine whose data holder has restored its state elsewhere since."""

    title = "The answer comes from a machine that another one has superseded"
    status = 410
    remedy = "Stop this machine for good: the data holder's state was restored on another one."


class BeforeRestore(ProtocolError):
    """An answer to a round that was announced before its data holder restored its state."""

    title = "The round was announced before the data holder's state was restored"
    status = 409
    remedy = "Answer rounds that are announced from now on: the lost machine may have answered."


class ConflictingDocument(ProtocolError):
    title = "A different document or share of this party is already on file"
    status = 409
    remedy = "Send the same bytes again on a retry: what is on file is never replaced."


class WrongCohort(ProtocolError):
    title = "The document names another cohort than the round's"
    status = 409
    remedy = "Sum over the cohort that all Compute nodes voted for."


class TooLate(ProtocolError):
    title = "The round takes no more shares"
    status = 410
    remedy = "Take part in the next round; this one goes on without the share."


class WrongCharge(ProtocolError):
    title = "The partial sum does not name the round's charge"
    status = 422
    remedy = "Charge the round to its whole population, at its price, before summing it."


class RoundAbandoned(ProtocolError):
    title = "The round was abandoned and released nothing"
    status = 410
    remedy = "Read the reason in the round's signed abandonment."


class MissingRequest(ProtocolError):
    title = "The job's request is not on file here"
    status = 409
    remedy = "Send the job's signed request to /v1/jobs here, and then the round again."


class RefusedResult(ProtocolError):
    title = "The round's result is refused"
    status = 422
    remedy = "Mend what the detail names, and submit a new job."


class RefusedCertificate(ProtocolError):
    title = "The release certificate does not hold"
    status = 422
    remedy = "Do not rely on it; ask the consortium's trainer for the job's certificate again."


class ChangedReport(ProtocolError):
    title = "The job's report changed after a Compute node had signed its total"
    status = 409
    remedy = (
        "Nothing to do: a node signs one total of a job, so this job gets no certificate. Ask the "
        "trainer's operator why it made two reports, and submit the job again."
    )


class BudgetExceeded(ProtocolError):
    title = "This would exceed the privacy budget"
    status = 403
    remedy = "Ask for less, or wait for a manifest whose policy allows more."


class StorageUnavailable(ProtocolError):
    """Nothing was stored; the peer keeps its message and sends the same bytes again."""

    title = "Durable storage is not available"
    status = 503
    remedy = "Keep the message and send the same bytes again after the time in Retry-After."
    retry_after_seconds = 2


class StaleQuery(ProtocolError):
    """A query that is too old, or dated ahead."""

    title = "The query was not made just now, by the clock here"
    status = 409
    remedy = "Compare both clocks with the time, set the wrong one right, and sign a new query."


class HolderLeft(ProtocolError):
    """An outdated join of a data holder that has left the job."""

    title = "The data holder has left the job"
    status = 409
    remedy = "Nothing: who left a job does not come back to it."


class OutdatedDeclaration(ProtocolError):
    """A data holder's declaration that does not follow its newest one."""

    title = "A later declaration of the data holder is known"
    status = 409
    remedy = "Compare the agent's clock with the time, set it right and start the agent again."
