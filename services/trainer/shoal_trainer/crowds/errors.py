"""What only the trainer can be asked wrongly about a crowd job."""

from shoal_protocol.errors import ProtocolError


class UnknownInstance(ProtocolError):
    """An instance that the job does not have."""

    code = "unknown-instance"
    title = "The crowd job has no such instance"
    status = 404
    remedy = "Instances are numbered from 0; the job's request says how many there are."
