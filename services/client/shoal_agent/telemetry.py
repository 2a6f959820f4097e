"""Turns what the library reports into log lines and counters; none is linked to a client."""

from typing import Final

import structlog
from prometheus_client import CollectorRegistry, Counter

from shoal_agent.delivery import SETTLED
from shoal_holder.status import ADOPTED, RECORDS_NOT_TAKEN, RECORDS_TAKEN
from shoal_hosting.marks import LOSSES_ACCEPTED
from shoal_hosting.outcome import ACKNOWLEDGED
from shoal_protocol.wire.service_errors import StaleQuery

log = structlog.get_logger()

_OFTEN: Final = frozenset({"contributions charged", "contributions settled"})
"""Events of every few contributions to a crowd: counted, and in the log for who debugs."""
_OF_RECORDS: Final = frozenset({RECORDS_TAKEN, RECORDS_NOT_TAKEN})
"""Events that follow from records: in the owner's log alone, for the metrics may be for anybody."""
_WARNINGS: Final = frozenset({LOSSES_ACCEPTED, ADOPTED, RECORDS_NOT_TAKEN})
OUTCOMES: Final = ("acknowledged", "refused")


class Telemetry:
    """A `Report` for the agent. The events are the library's own, so their number is bounded."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._events = Counter(
            "shoal_agent_events", "What the agent did or met", ("event",), registry=registry
        )
        self._envelopes = Counter(
            "shoal_agent_envelopes", "Envelopes settled", ("outcome",), registry=registry
        )

    def __call__(self, event: str, /, **facts: object) -> None:
        """Log an event and count it."""
        if event not in _OF_RECORDS:
            self._events.labels(event.replace(" ", "_")).inc()
        if event == SETTLED:
            taken = facts.get("outcome") == ACKNOWLEDGED
            self._envelopes.labels(OUTCOMES[0] if taken else OUTCOMES[1]).inc()
        if event in _WARNINGS or StaleQuery.code in str(facts.get("reason")):  # by a wrong clock
            log.warning(event, **facts)
        else:
            (log.debug if event in _OFTEN else log.info)(event, **facts)
