"""What only the trainer can be asked wrongly about a crowd job."""

from shoal_protocol.errors import ProtocolError


class UnknownInstance(ProtocolError):
    """An instance that the job does not have."""

    code = "unknown-instance"
    title = "The crowd job has no such instance"
    status = 404
    remedy = "Instances are numbered from 0; the job's request says how many there are."


class TooManyDraws(ProtocolError):
    """More draws are asked for than the process answers beside submissions."""

    code = "too-many-draws"
    title = "Too many draws are asked for at the moment"
    status = 503
    remedy = "Ask again, with the same nonce, after the time in Retry-After and a random part more."
    retry_after_seconds = 5
