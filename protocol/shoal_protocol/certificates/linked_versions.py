"""Finds the versions of a manifest that link to the one that the reader of a certificate trusts."""

from collections.abc import Iterable, Sequence
from typing import Any

from shoal_protocol.trust.manifest import Consortium, Manifest, Parties
from shoal_protocol.trust.succession import check_believed, check_successor
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.errors import ProtocolError, UnknownManifest
from shoal_protocol.wire.service_errors import RefusedCertificate

_WHERE = "Each party, and the consortium's directory in history, keeps all versions"


class LinkedVersions:
    """Those of the versions at hand that link to the `trusted` one, `by_digest`, oldest first.

    The digests in them vouch for those before the trusted one. Of those after it the authority's
    signature is not enough: parties must believe them. Of several copies of a version, which may
    differ in signature and proof, one that holds is enough.
    """

    def __init__(self, trusted: Signed[Manifest], at_hand: Iterable[Signed[Manifest]]) -> None:
        """Link what is `at_hand`, of which nothing need be verified.

        Raises:
            WrongSigner, BadSignature: the authority did not sign the trusted version.
        """
        self._trusted = Parties.of(trusted, authority=trusted.body.authority)
        copies = sorted([*at_hand, trusted], key=lambda each: each.body.sequence)
        self._at_hand = {each.digest: each.body for each in copies}
        self._refused: dict[str, ProtocolError] = {}
        earlier = [self._trusted]
        for signed in reversed(copies):
            if signed.digest == earlier[0].manifest.previous:
                try:
                    before = Parties.of(signed, authority=signed.body.authority)
                    check_successor(before, earlier[0].signed_manifest)
                except ProtocolError as error:
                    self._refused[signed.digest] = error
                else:
                    earlier.insert(0, before)
        self._oldest = earlier[0].manifest
        self.by_digest = {each.digest: each for each in earlier}
        believed = {trusted.digest: self._trusted}
        for signed in copies:
            found = believed.get(signed.body.previous or "")
            if found is not None and signed.digest not in believed:
                later = Parties(signed)
                try:
                    check_successor(found, signed)
                    check_believed(found.manifest, signed.body, later.log_proof)
                except ProtocolError as error:
                    self._refused[signed.digest] = error
                else:
                    believed[signed.digest] = later
        self.by_digest |= believed

    def line_of(self, digest: str) -> tuple[list[Parties], list[Parties]]:
        """Return what leads to the version of a digest, and then itself with what follows it.

        Both oldest first. A version of another branch than this one's is in neither.

        Raises:
            UnknownManifest: it does not link, for lack of a version; the detail says which.
            RefusedCertificate: it does not link; the detail names the version that is wrong.
        """
        if digest not in self.by_digest:
            raise self._unlinked(digest)
        later = {digest: self.by_digest[digest]}
        earlier: list[Parties] = []
        for each in reversed(self.by_digest.values()):
            if each.digest == (earlier[0] if earlier else later[digest]).manifest.previous:
                earlier.insert(0, each)
        for each in self.by_digest.values():
            if each.manifest.previous in later:
                later[each.digest] = each
        return earlier, list(later.values())

    def refuse_strangers(self, known: Sequence[Consortium]) -> None:
        """Refuse versions with rosters that are no part of the trusted version's history.

        Versions after the trusted one that are not believed yet may be among them.

        Raises:
            UnknownManifest: whether they are cannot be told, for lack of a version.
            ValueError: they are not.
        """
        trusted, oldest = self._trusted.manifest, self._oldest.sequence
        lost = [
            each.manifest.sequence
            for each in known
            if each.digest not in self.by_digest and each.manifest.sequence <= trusted.sequence
        ]
        if lost and max(lost) < oldest - 1:
            raise UnknownManifest(
                f"you trust {self._own}, and the consortium's versions that came with rosters end "
                f"with {max(lost)}: version {oldest - 1}, between them, is not at hand. {_WHERE}"
            )
        if lost:
            raise ValueError(
                "the versions of the manifest that came with rosters are of another consortium, or "
                f"of another history, than the one that you trust, {self._own}: their version "
                f"{max(lost)} does not link to it. Give the directory of that consortium"
            )

    @property
    def _own(self) -> str:
        return f"version {self._trusted.manifest.sequence}, {self._trusted.digest}"

    def _unlinked(self, digest: str) -> ProtocolError:
        sought, trusted = self._at_hand.get(digest), self._trusted.manifest
        if sought is None:
            numbers = sorted({each.sequence for each in self._at_hand.values()})
            return UnknownManifest(
                f"it is bound to the manifest {digest}, which is not at hand. You trust "
                f"{self._own}, and these versions are at hand: {', '.join(map(str, numbers))}. "
                f"{_WHERE}. If none of them has that digest, the certificate is of another "
                "consortium, or forged"
            )
        if sought.sequence <= trusted.sequence:
            wrong = self._at_hand.get(self._oldest.previous or "", sought)
            missing, lowest = self._oldest.sequence - 1, sought.sequence
        else:
            wrong, lowest = sought, trusted.sequence
            while wrong.sequence > lowest + 1 and wrong.digest not in self._refused:
                before = self._at_hand.get(wrong.previous or "")
                if before is None:
                    break
                wrong = before
            missing = wrong.sequence - 1
        if wrong.digest not in self._refused and missing > lowest:
            return UnknownManifest(
                f"it is bound to version {sought.sequence} of the manifest, {digest}, and you "
                f"trust {self._own}, but version {missing}, between them, is not at hand. {_WHERE}"
            )
        why: Any = self._refused.get(wrong.digest, "it does not link to the one that you trust")
        return RefusedCertificate(f"version {wrong.sequence} of the manifest: {why}")
