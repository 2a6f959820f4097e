"""Takes data holders' declarations and keeps the newest of each."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Final

from pyroaring import BitMap
from sqlalchemy import Connection, select

from shoal_protocol.jobs.declarations import HolderDeclaration
from shoal_protocol.trust import policy
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.trust.roster import Roster
from shoal_protocol.wire.documents import Signed, decode
from shoal_protocol.wire.encoding import parse_canonical_json
from shoal_protocol.wire.errors import RefusedJob
from shoal_protocol.wire.service_errors import OutdatedDeclaration
from shoal_studies.study_request import StudyRequest, foreseen_refusal
from shoal_trainer.resources import Resources
from shoal_trainer.schema import declarations

_MOST_READ: Final = 100_000  # declarations, before a job is taken
_MOST_JUDGED: Final = 1000  # of them that differ: more would take minutes
_PAGE: Final = 10_000
_MOST_REASONS: Final = 5
_MOST_NAMED: Final = 5  # data holders with the same reason


class Declarations:
    """The data holders' declarations."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources

    async def take(self, encoded: bytes) -> bool:
        """Keep a declaration in place of the holder's earlier one; tell whether it is new.

        Raises:
            MalformedDocument, UnknownManifest, WrongSigner, BadSignature, RevokedHolder
            OutdatedDeclaration: there is a later one, or it comes from the future.
        """
        own = self._resources
        signed = await own.read(encoded, HolderDeclaration)
        own.book.get(signed.body.manifest).verify_in_force(signed, own.book.current)
        if signed.body.declared_at > own.clock() + policy.CLOCKS_APART:
            ahead = policy.duration(own.clock(), signed.body.declared_at)
            raise OutdatedDeclaration(f"its time is {ahead} ahead of the trainer's clock")
        return await own.storage.run(_replace, signed)

    async def check(self, request: StudyRequest, consortium: Consortium) -> None:
        """Refuse a job that too few clients could join by what data holders declare.

        Raises:
            RefusedJob: the detail has the data holders' reasons.
        """
        reasons, roster = await self.refusals(request), consortium.roster
        refused = BitMap.union(BitMap(), *map(roster.slots_of, reasons))
        able = len(roster.enrolled_set - refused)
        if able < request.minimum_population:
            raise RefusedJob(
                f"{able:,} clients would answer, {request.minimum_population:,} are needed; "
                f"refused by {in_words(reasons, roster)}"
            )

    async def refusals(self, request: StudyRequest) -> dict[int, str]:
        """Return why data holders would refuse a job by what they declare, by holder.

        Who declared nothing may join. Nothing here depends on records. Equal declarations are
        judged once; of more than `_MOST_JUDGED` that differ, those of the fewest data holders are
        not, nor is who comes after `_MOST_READ`: they may join.
        """
        alike: dict[bytes, tuple[bytes, list[int]]] = {}  # a document, and who declared its like
        after = 0
        for _ in range(_MOST_READ // _PAGE):
            found = await self._resources.storage.run(_read, after, _PAGE)
            for holder, document in found:
                alike.setdefault(_said(document), (document, []))[1].append(holder)
            if len(found) < _PAGE:
                break
            after = found[-1].holder + 1
        judged = sorted(alike.values(), key=lambda each: -len(each[1]))[:_MOST_JUDGED]
        return await asyncio.to_thread(_refusals, request, judged, self._resources.clock())

    async def page(self, *, after: int, count: int) -> dict[str, Any]:
        """Return up to `count` declarations from the holder of index `after` on.

        `next` is where to go on, None if there are no more.
        """
        found = await self._resources.storage.run(_read, after, count)
        documents = [parse_canonical_json(each.document) for each in found]
        more = found[-1].holder + 1 if len(found) == count else None
        return {"documents": documents, "next": more}


def _refusals(
    request: StudyRequest, judged: Sequence[tuple[bytes, Sequence[int]]], now: datetime
) -> dict[int, str]:
    """Judge a job by declarations, each with the data holders who made its like."""
    declared = [(decode(each, HolderDeclaration).body, holders) for each, holders in judged]
    variables = {name for each, _ in declared for name in each.variables}
    judgements = [
        (foreseen_refusal(request, each, variables=variables, now=now), holders)
        for each, holders in declared
    ]
    return {
        holder: reason for reason, holders in judgements if reason is not None for holder in holders
    }


def in_words(reasons: Mapping[int, str], roster: Roster) -> str:
    """Say which data holders have which reason, the most frequent first.

    Those of one slot, which may be persons, are counted and not named.
    """
    holders: dict[str, list[int]] = {}
    for holder, reason in sorted(reasons.items()):
        holders.setdefault(reason, []).append(holder)
    frequent = sorted(holders.items(), key=lambda each: -len(each[1]))
    said = [f"{_who(each, roster)}: {reason}" for reason, each in frequent[:_MOST_REASONS]]
    return "; ".join([*said, *(["and others"] if len(holders) > _MOST_REASONS else [])])


def _who(holders: Sequence[int], roster: Roster) -> str:
    organisations = (each for each in holders if len(roster.slots_of(each)) > 1)
    named = ", ".join(map(str, islice(organisations, _MOST_NAMED)))
    rest = len(holders) - len(named.split(", ")) if named else len(holders)
    if not named:
        return f"{rest} data holder{'s' if rest > 1 else ''}"
    return f"data holder{'s' if len(holders) > 1 else ''} {named}" + (
        f" and {rest} more" if rest else ""
    )


def _said(document: bytes) -> bytes:
    """Return the part of an encoded declaration that says rules and variables, and not whose."""
    return document.partition(b',"rules":')[2].rpartition(b'},"signature":')[0]


def _replace(db: Connection, signed: Signed[HolderDeclaration]) -> bool:
    columns, body = declarations.c, signed.body
    known = select(columns.document).where(columns.holder == body.holder)
    for document in db.execute(known).scalars():
        earlier = decode(document, HolderDeclaration).body
        if earlier == body:
            return False
        if earlier.declared_at >= body.declared_at:
            behind = policy.duration(body.declared_at, earlier.declared_at)
            raise OutdatedDeclaration(f"its time is {behind} behind the newest that is known")
    db.execute(declarations.delete().where(columns.holder == body.holder))
    db.execute(declarations.insert(), {"holder": body.holder, "document": signed.encode()})
    return True


def _read(db: Connection, after: int, count: int) -> Any:
    columns = declarations.c
    query = select(declarations).where(columns.holder >= after).order_by(columns.holder)
    return db.execute(query.limit(count)).all()
