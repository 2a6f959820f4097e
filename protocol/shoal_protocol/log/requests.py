"""What a party asks the aggregator to log."""

from typing import ClassVar, Literal

from shoal_protocol.log.entries import CertificateEntry
from shoal_protocol.wire.documents import BoundDocument, Role


class LogRequest(BoundDocument):
    """Trainer -> aggregator: log a certificate, which the trainer signed."""

    signed_by: ClassVar[Role] = Role.TRAINER

    kind: Literal["log_request"] = "log_request"
    entry: CertificateEntry
