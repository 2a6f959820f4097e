"""Puts a Compute node together from a party's keys, a directory and a clock."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Unpack

from shoal_compute import schema
from shoal_compute.announcing import Announcements
from shoal_compute.app import create_app
from shoal_compute.charges import ChargesAnswers
from shoal_compute.executors import Summing, open_summing
from shoal_compute.gossiping import Gossip
from shoal_compute.jobs import Jobs
from shoal_compute.leading import Leadership
from shoal_compute.ledger import Ledger
from shoal_compute.log_witness import LogWitness
from shoal_compute.metrics import Metrics
from shoal_compute.node import Node
from shoal_compute.operator_view import OperatorView
from shoal_compute.retention import KEEPINGS
from shoal_compute.round_book import RoundBook
from shoal_compute.summing import Adders
from shoal_compute.tally import Tallies
from shoal_compute.totals import Totals
from shoal_compute.uploading import Uploads
from shoal_compute.witnesses import Witnesses
from shoal_hosting import service
from shoal_hosting.standing import BOX_KEY_LIFETIME
from shoal_hosting.storage.retention import Retention

PEER_SECONDS: Final = 10.0  # for the head of a peer's or the aggregator's answer, then for its body


@dataclass(frozen=True, eq=False)
class Service(service.Service):
    """A Compute node: an application to serve, and work to do beside it."""

    node: Node
    adders: Adders
    retention: Retention

    async def step(self) -> None:
        """Do all that is due now."""
        await self.node.step()
        await self.retention.step()

    async def close(self) -> None:
        """End the work in progress and let go of connections, threads and the database."""
        await self.node.close()
        await super().close()
        self.adders.close()


def assemble(
    *,
    summing: str = "processes",
    box_key_days: int = BOX_KEY_LIFETIME.days,
    **given: Unpack[service.Given],
) -> Service:
    """Return the node that is `given`, over what is on file; it goes on where it was.

    `summing` is where large sums are added up: `processes`, `threads` or the address of a Dask
    scheduler. The operator is asked for a new box key every `box_key_days`.

    Raises:
        StartupRefused: as `Resources.open`, or its ledger is broken, or there is no Dask here.
        StorageUnavailable: the database does not answer.
        UnknownManifest: a round on file is bound to a manifest that is not.
    """
    own = service.Resources.open(
        schema, alone=False, answer_seconds=PEER_SECONDS, manifests=schema.manifests, **given
    )
    own.storage.truncate_log()  # a crash may have come between an erasure and this
    own.standing.box_key_lifetime = timedelta(days=box_key_days)
    own.adopt_manifests()
    metrics = Metrics(own.registry, own.clock)
    adders = Adders(small=Summing(), large=open_summing(summing))
    tallies = Tallies(adders)
    with own.starting():
        rounds = RoundBook(own, metrics)
        witnesses = Witnesses(own, accept=given.get("accept_loss"))
        announcements = Announcements(own, rounds, Ledger(own.name), witnesses)
    # only one process can use an SQLite file of ours, which leads without being asked
    leadership = Leadership(own.storage) if own.storage.is_shared else None
    leads = lambda: leadership is None or leadership.leads  # noqa: E731
    gossip = Gossip(own, rounds, metrics, leads)
    node = Node(
        own,
        rounds=rounds,
        gossip=gossip,
        tallies=tallies,
        metrics=metrics,
        leadership=leadership,
        witnesses=witnesses,
    )
    uploads = Uploads(own, rounds, tallies, metrics, leads)
    witness = LogWitness(own, witnesses)
    app = create_app(
        own,
        rounds=rounds,
        announcements=announcements,
        totals=Totals(own, rounds),
        uploads=uploads,
        jobs=Jobs(own),
        charges=ChargesAnswers(own, witnesses),
        gossip=gossip,
        witnesses=witnesses,
        log_witness=witness,
        look=OperatorView(own, rounds, metrics, witness).look,
    )
    own.vitals.watch_open_rounds(rounds.oldest_open)
    retention = Retention(own, KEEPINGS)
    app.include_router(retention.routes)
    return Service(app, own, node, adders, retention)
