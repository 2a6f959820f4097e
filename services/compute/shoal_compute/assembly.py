"""Puts a Compute node together from a party's keys, a directory and a clock."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, Unpack

from sqlalchemy import Connection, select

from shoal_compute import schema, store
from shoal_compute.announcing import Announcements
from shoal_compute.app import create_app
from shoal_compute.charges import ChargesAnswers
from shoal_compute.gossip import Gossip
from shoal_compute.jobs import Jobs, Totals, withdrawn_jobs
from shoal_compute.manifest_signing import ManifestSigning
from shoal_compute.node import Leadership, Node
from shoal_compute.round_book import RoundBook
from shoal_compute.summing import open_summing
from shoal_compute.uploading import Uploads
from shoal_protocol.jobs.totals import JobTotal
from shoal_protocol.keeping import Loss
from shoal_protocol.rounds.attestations import Abandonment, PartialSum, Vote
from shoal_protocol.trust.succession import ManifestStatement
from shoal_service import service
from shoal_service.journal_routes import ledger_routes
from shoal_service.keepers import Keepers
from shoal_service.standing import BOX_KEY_LIFETIME
from shoal_service.storage.journal import Journal
from shoal_service.storage.retention import Retention, delete_some
from shoal_service.view import by_phase, in_words, journal_in_words


def forget(db: Connection, before: datetime) -> bool:
    """Delete requests of jobs that ended before a moment; tell whether any were due.

    All else stays: caps, own sums and the journal's check rest on it.
    """
    due = schema.jobs.c.ends_by < before.timestamp()
    is_due = db.execute(select(schema.jobs.c.job).where(due).limit(1)).first() is not None
    delete_some(db, schema.jobs, due)
    return is_due


_MOST_ROUNDS: Final = 50
_DIGITS: Final = 12  # enough to tell rounds apart


async def look(own: service.Resources, rounds: RoundBook) -> dict[str, Any]:
    """Return what a Compute node's console shows beside what every service shows.

    Raises:
        StorageUnavailable, LedgerBroken
    """
    live = list(rounds.live.values())[-_MOST_ROUNDS:]
    return {
        **await own.storage.run(journal_in_words, schema.journal),
        **await own.storage.run(by_phase, "Rounds", schema.rounds),
        "Rounds with work left": [
            {
                "Round": each.id[:_DIGITS],
                "Phase": each.phase.value,
                "Opened": in_words(each.spec.body.opened_at),
                "Asked here": f"{len(each.intake.asked_here):,}",
                "Held": f"{len(each.held):,}",
            }
            for each in reversed(live)
        ],
    }


STATEMENTS: Final = (JobTotal, ManifestStatement, Loss, Vote, PartialSum, Abandonment)
"""What others may show of a node's journal."""

PEER_SECONDS: Final = 10.0  # for the head of a peer's or the aggregator's answer, then for its body


@dataclass(frozen=True, eq=False)
class Service(service.Service):
    """A Compute node: an application to serve, and work to do beside it."""

    node: Node
    retention: Retention

    async def step(self) -> None:
        """Do all that is due now."""
        await self.node.step()
        await self.retention.step()


def assemble(
    *,
    summing: str | None = None,
    box_key_days: int = BOX_KEY_LIFETIME.days,
    **given: Unpack[service.Given],
) -> Service:
    """Return the node of a party, which continues from what its database holds.

    `summing` is the address of a Dask scheduler, where sums are added up. The operator is asked
    for a new box key every `box_key_days`.

    Raises:
        StartupRefused: as `Resources.open`, or its ledger is broken, or there is no Dask here.
        StorageUnavailable: the database does not answer.
        UnknownManifest: a round on file is bound to a manifest that is not.
    """
    own = service.Resources.open(schema, alone=False, answer_seconds=PEER_SECONDS, **given)
    own.storage.truncate_log()  # a crash may have come between an erasure and this
    own.standing.box_key_lifetime = timedelta(days=box_key_days)
    own.workers["summing"] = adder = open_summing(summing)
    with own.starting():
        rounds = RoundBook(own)
        journal = Journal(schema.journal, own.storage, *STATEMENTS)
        keepers = Keepers(
            own, journal, schema.kept, store.newest_of, accept=given.get("accept_loss")
        )
        announcements = Announcements(own, rounds, journal, keepers)
    # only one process can use an SQLite file of ours, which leads without being asked
    leadership = Leadership(own.storage) if own.storage.is_shared else None
    leads = lambda: leadership is None or leadership.leads  # noqa: E731
    gossip = Gossip(own, rounds, journal, leads)
    node = Node(
        own,
        rounds=rounds,
        gossip=gossip,
        summing=adder,
        leadership=leadership,
        keepers=keepers,
        journal=journal,
    )
    uploads = Uploads(own, rounds)
    app = create_app(
        own,
        rounds=rounds,
        announcements=announcements,
        totals=Totals(own, rounds, keepers, journal),
        uploads=uploads,
        jobs=Jobs(own),
        charges=ChargesAnswers(own, keepers),
        gossip=gossip,
        keepers=keepers,
        manifest_signing=ManifestSigning(own, keepers, journal),
        look=partial(look, own, rounds),
    )
    app.include_router(ledger_routes(own, announcements.ledger, withdrawn_jobs))
    own.vitals.watch_open_rounds(rounds.oldest_open)
    return Service(app, own, node, Retention(own, forget))
