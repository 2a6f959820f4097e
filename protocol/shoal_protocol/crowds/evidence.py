"""Compares the documents that several parties were shown of one crowd job.

Only this comparison finds a trainer that shows one client a different opening and closing.
Parties read out fingerprints, or exchange files, in which two signed documents are the proof.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Final

from shoal_protocol.crowds.documents import (
    CrowdClosing,
    CrowdOpening,
    Draw,
    SignedDraw,
    SubmissionReceipt,
)
from shoal_protocol.crowds.draws import broken_draws, broken_receipts, commitment
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.documents import WRITTEN, Model, Signed, embedded
from shoal_protocol.wire.errors import ProtocolError

FINGERPRINT_DIGITS: Final = 40
"""160 bits: the trainer makes both documents, so two that look alike cost it the root, 2^80."""

_GROUP: Final = 4


class CrowdEvidence(Model):
    """One party's documents of a crowd job: the opening, a closing if any, draws and receipts.

    Draws and receipts reveal to their reader which contributions are this party's.
    """

    opening: Annotated[Signed[CrowdOpening], embedded(CrowdOpening), WRITTEN]
    closing: Annotated[Signed[CrowdClosing], embedded(CrowdClosing), WRITTEN] | None
    draws: tuple[SignedDraw, ...] = ()
    receipts: tuple[
        Annotated[Signed[SubmissionReceipt], embedded(SubmissionReceipt), WRITTEN], ...
    ] = ()

    @property
    def job(self) -> str:
        """Return the job's id."""
        return self.opening.body.job

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """Return the opening's, and the closing's if there is one."""
        shown = (self.opening, self.closing)
        return tuple(fingerprint(each.digest) for each in shown if each is not None)

    def check(self, consortium: Consortium) -> None:
        """Refuse what the trainer did not sign under the job's manifest.

        Raises:
            ProtocolError
        """
        consortium.verify(self.opening)
        if self.closing is not None:
            consortium.verify(self.closing)
        for draw in self.draws:
            consortium.verify(draw)
        for receipt in self.receipts:
            consortium.verify(receipt)


def fingerprint(digest: str) -> str:
    """Return the first 160 bits of a document's digest, in groups to be read out."""
    groups = range(0, FINGERPRINT_DIGITS, _GROUP)
    return "-".join(digest[each : each + _GROUP] for each in groups)


def read_fingerprint(text: str) -> str:
    """Return a fingerprint as somebody wrote it down, in its usual form.

    Raises:
        ValueError: it is none.
    """
    digits = re.sub(r"[\s:-]", "", text).lower()
    if not re.fullmatch(f"[0-9a-f]{{{FINGERPRINT_DIGITS}}}", digits):
        raise ValueError(f"a fingerprint has {FINGERPRINT_DIGITS} hexadecimal digits")
    return fingerprint(digits)


def differences(
    reference: CrowdEvidence, others: Mapping[str, CrowdEvidence], consortium: Consortium
) -> dict[str, list[str]]:
    """Return by name how each of `others` shows another crowd than `reference`; empty if none does.

    Their draws and receipts, all together, are checked against the reference's closing, if any;
    faults that only several of them show together stand under "together".
    """
    found: dict[str, list[str]] = {}
    sound: dict[str, CrowdEvidence] = {}
    for name, other in others.items():
        try:
            other.check(consortium)
        except ProtocolError as error:
            found[name] = [f"holds what the trainer did not sign: {error.title}"]
            continue
        if said := [*_apart(reference, other)]:
            found[name] = said
        else:
            sound[name] = other
    alone = {name: _broken([each], reference.closing) for name, each in sound.items()}
    found |= {name: said for name, said in alone.items() if said}
    known = {*_broken([reference], reference.closing)}.union(*alone.values())
    together = _broken([reference, *sound.values()], reference.closing)
    if said := [fault for fault in together if fault not in known]:
        found["together"] = said
    return found


def _apart(reference: CrowdEvidence, other: CrowdEvidence) -> list[str]:
    if other.job != reference.job:
        return ["is about another job"]
    said = []
    if other.opening.digest != reference.opening.digest:
        said.append("was shown another opening")
    if other.closing is not None:
        if reference.closing is not None and other.closing.digest != reference.closing.digest:
            said.append("was shown another closing")
        elif commitment(bytes.fromhex(other.closing.body.seed)) != (
            reference.opening.body.commitment
        ):
            said.append("was shown a closing that does not follow from the opening")
    return said


def _broken(parties: list[CrowdEvidence], closing: Signed[CrowdClosing] | None) -> list[str]:
    if closing is None:
        return []
    draws: list[Signed[Draw]] = [draw for each in parties for draw in each.draws]
    receipts = [receipt for each in parties for receipt in each.receipts]
    job = closing.body.job
    foreign = [each for each in draws if each.body.job != job]
    foreign_receipts = [each for each in receipts if each.body.entry.job != job]
    if foreign or foreign_receipts:
        return ["holds draws or receipts of another job"]
    return [*broken_draws(draws, closing.body), *broken_receipts(receipts, closing.body)]
