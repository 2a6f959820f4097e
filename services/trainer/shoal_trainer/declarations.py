"""Takes data holders' declarations and keeps the newest of each."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, select

from shoal_protocol.certificates.foreseen_refusals import foreseen_refusal
from shoal_protocol.certificates.study_request import StudyRequest
from shoal_protocol.jobs.declarations import HolderDeclaration
from shoal_protocol.trust import limits
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.documents import Signed, read_kept
from shoal_protocol.wire.encoding import parse_canonical_json
from shoal_protocol.wire.errors import RefusedJob
from shoal_protocol.wire.service_errors import OutdatedDeclaration
from shoal_trainer.resources import Resources
from shoal_trainer.schema import declarations

_MOST_READ: Final = 100_000  # declarations, before a job is taken
_MOST_JUDGED: Final = 1000  # of them that differ: more would take minutes
_PAGE: Final = 10_000
_MOST_REASONS: Final = 5


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
        if signed.body.declared_at > own.clock() + limits.CLOCKS_APART:
            raise OutdatedDeclaration("the declaration's time is ahead of the trainer's clock")
        return await own.storage.run(_replace, signed)

    async def check(self, request: StudyRequest, consortium: Consortium) -> None:
        """Refuse a job that too few clients could join by what data holders declare.

        Who declared nothing may join. Nothing here depends on records. Equal declarations are
        judged once; of more than `_MOST_JUDGED` that differ, those of the fewest data holders are
        not, nor is who comes after `_MOST_READ`: they may join.

        Raises:
            RefusedJob: the detail has the data holders' reasons.
        """
        alike: dict[bytes, list[int]] = {}
        first: dict[bytes, bytes] = {}
        for _ in range(_MOST_READ // _PAGE):
            after = max((each[-1] for each in alike.values()), default=-1) + 1
            found = await self._resources.storage.run(_read, after, _PAGE)
            for each in found:
                said = _said(each.document)
                alike.setdefault(said, []).append(each.holder)
                first.setdefault(said, each.document)
            if len(found) < _PAGE:
                break
        largest = sorted(alike, key=lambda said: -len(alike[said]))[:_MOST_JUDGED]
        judged = [(first[said], alike[said]) for said in largest]
        await asyncio.to_thread(_check, request, judged, consortium, self._resources.clock())

    async def page(self, *, after: int, count: int) -> dict[str, Any]:
        """Return up to `count` declarations from the holder of index `after` on.

        `next` is where to go on, None if there are no more.
        """
        found = await self._resources.storage.run(_read, after, count)
        documents = [parse_canonical_json(each.document) for each in found]
        more = found[-1].holder + 1 if len(found) == count else None
        return {"documents": documents, "next": more}


def _check(
    request: StudyRequest,
    judged: Sequence[tuple[bytes, Sequence[int]]],
    consortium: Consortium,
    now: datetime,
) -> None:
    """Refuse a job by declarations, each with the data holders who made its like."""
    declared = [(read_kept(each, HolderDeclaration).body, holders) for each, holders in judged]
    variables = {name for each, _ in declared for name in each.variables}
    roster, reasons = consortium.roster, Counter[str]()
    able = roster.enrolled_set.copy()
    for each, holders in declared:
        reason = foreseen_refusal(request, each, variables=variables, now=now)
        for holder in holders if reason is not None else ():
            if refused := roster.slots_of(holder) & able:
                reasons[str(reason)] += 1
                able -= refused
    if len(able) < request.minimum_population:
        said = "; ".join(f"{count} × {each}" for each, count in reasons.most_common(_MOST_REASONS))
        more = "; and others" if len(reasons) > _MOST_REASONS else ""
        raise RefusedJob(
            f"data holders of {len(able)} clients would answer, "
            f"{request.minimum_population} are needed: {said}{more}"
        )


def _said(document: bytes) -> bytes:
    """Return the part of an encoded declaration that says rules and variables, and not whose."""
    return document.partition(b',"rules":')[2].rpartition(b'},"signature":')[0]


def _replace(db: Connection, signed: Signed[HolderDeclaration]) -> bool:
    columns, body = declarations.c, signed.body
    known = select(columns.document).where(columns.holder == body.holder)
    for document in db.execute(known).scalars():
        earlier = read_kept(document, HolderDeclaration).body
        if earlier == body:
            return False
        if earlier.declared_at >= body.declared_at:
            raise OutdatedDeclaration
    db.execute(declarations.delete().where(columns.holder == body.holder))
    db.execute(declarations.insert(), {"holder": body.holder, "document": signed.encode()})
    return True


def _read(db: Connection, after: int, count: int) -> Any:
    columns = declarations.c
    query = select(declarations).where(columns.holder >= after).order_by(columns.holder)
    return db.execute(query.limit(count)).all()
