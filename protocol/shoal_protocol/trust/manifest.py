"""The consortium manifest, the root of trust: who the parties are and what they allow.

Every party pins a manifest by its digest and accepts later versions only along the chain of
the authority's signatures. No key is ever taken from what a server says at run time.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Final, Literal, Self

import pydantic
from nacl.signing import VerifyKey
from pydantic import Field, StringConstraints

from shoal_protocol.trust.policy import Policy, all_but_one
from shoal_protocol.trust.roster import Roster, RosterReference
from shoal_protocol.wire.documents import (
    BoundDocument,
    Document,
    DocumentT,
    Model,
    Role,
    Signed,
    decode,
)
from shoal_protocol.wire.encoding import BoxKeyHex, Digest, Name, Place, VerifyKeyHex
from shoal_protocol.wire.errors import (
    MalformedDocument,
    UnknownSigner,
    WrongManifest,
    WrongSigner,
)

Url = Annotated[str, StringConstraints(pattern=r"^https://[^\s/?#@\\]+$", max_length=300)]
Certificate = Annotated[
    str,
    StringConstraints(
        pattern=r"^-----BEGIN CERTIFICATE-----\n[A-Za-z0-9+/=\n]+-----END CERTIFICATE-----\n$"
    ),
]
Operator = Annotated[str, StringConstraints(min_length=1, max_length=200)]

AUTHORITY_NAME: Final = "authority"
_RESERVED_NAMES: Final = {
    AUTHORITY_NAME,
    Role.HOLDER.value,
    Role.CLIENT.value,
}  # they sign without being parties


class ListedParty(Model):
    """A party that the manifest lists. Analysts, who may submit jobs, have no more than this."""

    name: Name
    operator: Operator
    verify_key: VerifyKeyHex


class ServiceParty(ListedParty):
    """A party that runs a service; connections to it trust exactly its `certificate`."""

    url: Url
    certificate: Certificate


class ComputeParty(ServiceParty):
    """A Compute node, with the X25519 key to which clients seal their shares."""

    box_key: BoxKeyHex


class AuthorityMove(Model):
    """The consent of the version before, by one of its two keys, to other keys of the authority.

    As with roots in TUF (section 6.1), the old and the new key sign. The recovery key, kept
    offline, may stand in for an old key that is lost.
    """

    by: Literal["authority", "recovery"]
    signature: Annotated[str, StringConstraints(pattern="^[0-9a-f]{128}$")]


def _optional() -> Any:
    return Field(default=None, exclude_if=lambda value: value is None)


class Manifest(Document):
    """One version of the consortium's agreement, signed by its authority."""

    signed_by: ClassVar[Role] = Role.AUTHORITY
    is_countersigned: ClassVar[bool] = True
    most_values: ClassVar[int] = 20_000  # for a move of the authority it is read before its key

    kind: Literal["manifest"] = "manifest"
    consortium: Name
    sequence: Place
    previous: Digest | None
    authority: VerifyKeyHex
    compute_nodes: tuple[ComputeParty, ...] = Field(min_length=2, max_length=255)
    aggregator: ServiceParty
    trainer: ServiceParty
    analysts: tuple[ListedParty, ...] = Field(min_length=1, max_length=1_000)
    roster: RosterReference
    policy: Policy
    recovery: VerifyKeyHex | None = _optional()
    founder: VerifyKeyHex | None = _optional()
    move: AuthorityMove | None = _optional()
    emergency: Operator | None = _optional()  # why too few nodes are left to sign

    @property
    def identity(self) -> str:
        """Return the key by which documents name the consortium: its first authority's."""
        return self.founder or self.authority

    @property
    def services(self) -> list[ServiceParty]:
        """Return the parties that run services: Compute nodes, aggregator and trainer."""
        return [*self.compute_nodes, self.aggregator, self.trainer]

    @property
    def parties(self) -> list[ListedParty]:
        """Return the parties that run services, then the analysts."""
        return [*self.services, *self.analysts]

    @pydantic.model_validator(mode="after")
    def _names_and_keys_are_distinct(self) -> Self:
        for what, values in {
            "names": [party.name for party in self.parties],
            "verify keys": [party.verify_key for party in self.parties],
            "box keys": [node.box_key for node in self.compute_nodes],
        }.items():
            if len(set(values)) != len(values):
                raise ValueError(f"two parties share their {what}")
        if _RESERVED_NAMES & {party.name for party in self.parties}:
            raise ValueError(f"no party may be named {' or '.join(sorted(_RESERVED_NAMES))}")
        if (self.sequence == 1) != (self.previous is None):
            raise ValueError("the first version has no previous one, every other has")
        if not len(self.compute_nodes) / 2 < self.quorum <= len(self.compute_nodes):
            raise ValueError(
                "manifest_signatures must be more than half of the Compute nodes, at most all"
            )
        return self

    @property
    def quorum(self) -> int:
        """Return how many Compute nodes must sign the next version for it to be believed."""
        return self.policy.manifest_signatures or all_but_one(len(self.compute_nodes))


@dataclass(frozen=True)
class Parties:
    """A verified manifest without its roster: it verifies signatures of all but data holders."""

    signed_manifest: Signed[Manifest]

    @property
    def manifest(self) -> Manifest:
        """Return the manifest."""
        return self.signed_manifest.body

    @property
    def digest(self) -> str:
        """Return the manifest's digest."""
        return self.signed_manifest.digest

    @staticmethod
    def of(signed_manifest: Signed[Manifest], *, authority: str) -> "Parties":
        """Take a manifest that the holder of the key `authority`, in hex, must have signed.

        Raises:
            WrongSigner, BadSignature: it was somebody else.
        """
        if signed_manifest.signer != AUTHORITY_NAME:
            raise WrongSigner("a manifest is signed by the authority")
        signed_manifest.verify_signature(VerifyKey(bytes.fromhex(authority)))
        return Parties(signed_manifest)

    def party(self, name: str) -> ListedParty:
        """Return the party of that name.

        Raises:
            UnknownSigner: there is none.
        """
        for party in self.manifest.parties:
            if party.name == name:
                return party
        raise UnknownSigner

    def lists(self, name: str) -> bool:
        """Tell whether there is a party of that name."""
        return any(party.name == name for party in self.manifest.parties)

    def verify(self, signed: Signed[DocumentT]) -> None:
        """Check that a party in charge signed this document under this manifest.

        Raises:
            WrongManifest: it is bound to another manifest version.
            UnknownSigner, WrongSigner, BadSignature, UnknownHolder, RevokedHolder
        """
        body = signed.body
        if isinstance(body, BoundDocument) and body.manifest != self.digest:
            raise WrongManifest
        key = self._key_for(signed)
        if body.signer_field and getattr(body, body.signer_field) != signed.signer:
            raise WrongSigner("the document speaks for another party than its signer")
        signed.verify_signature(VerifyKey(key))

    def _key_for(self, signed: Signed[DocumentT]) -> bytes:
        role = signed.body.signed_by
        if role is Role.AUTHORITY:
            raise UnknownSigner  # the authority's documents are verified along their chain
        return self.key_of(role, signed.signer, getattr(signed.body, role.value, None))

    def key_of(self, role: Role, signer: str, index: object) -> bytes:
        """Return the verify key of who signs in a role; `index` is a data holder's or a slot's.

        Raises:
            UnknownSigner, WrongSigner, UnknownHolder, RevokedHolder
        """
        if role is Role.AUTHORITY and signer == AUTHORITY_NAME:
            return bytes.fromhex(self.manifest.authority)
        party = self.party(signer)
        if party.name not in self._in_charge(role):
            raise WrongSigner
        return bytes.fromhex(party.verify_key)

    def _in_charge(self, role: Role) -> set[str]:
        manifest = self.manifest
        nodes = {node.name for node in manifest.compute_nodes}
        return {
            Role.COMPUTE: nodes,
            Role.AGGREGATOR: {manifest.aggregator.name},
            Role.COMPUTE_OR_AGGREGATOR: nodes | {manifest.aggregator.name},
            Role.TRAINER: {manifest.trainer.name},
            Role.SERVICE: {each.name for each in manifest.services},
            Role.ANALYST: {analyst.name for analyst in manifest.analysts},
        }.get(role, set())


@dataclass(frozen=True)
class Consortium(Parties):
    """A verified manifest with its roster: the root of a party's trust."""

    roster: Roster

    @classmethod
    def pinned(cls, signed_manifest: bytes, roster: bytes, *, digest: str) -> Self:
        """Open a manifest that must have the digest which this party pinned.

        Raises:
            WrongManifest: it has another digest.
            MalformedDocument, BadSignature: it is broken, or the roster is not its roster.
        """
        signed = decode(signed_manifest, Manifest)
        if signed.digest != digest:
            raise WrongManifest("the manifest does not have the digest that was pinned")
        Parties.of(signed, authority=signed.body.authority)
        return cls.opened(signed, roster)

    def verify_in_force(self, signed: Signed[DocumentT], current: "Consortium") -> None:
        """Check a data holder's document of this version by the holder's key in the current one.

        A key that was replaced or revoked since is worth nothing, in older jobs and rounds either.

        Raises:
            as `verify`
        """
        self._key_for(signed)  # enrolled by this version
        replace(self, roster=current.roster).verify(signed)

    @classmethod
    def opened(cls, signed: Signed[Manifest], roster: bytes) -> Self:
        """Open a manifest that was checked, with its roster.

        Raises:
            MalformedDocument: the roster is broken, or not the one that the manifest names.
        """
        opened = Roster.decode(roster)
        named = signed.body.roster
        if RosterReference.of(opened) != named:
            raise MalformedDocument("the roster is not the one that the manifest names")
        return cls(signed, opened)

    def key_of(self, role: Role, signer: str, index: object) -> bytes:
        """Return the verify key of who signs in a role, data holders included."""
        if role not in (Role.HOLDER, Role.CLIENT):
            return super().key_of(role, signer, index)
        if signer != role or not isinstance(index, int):
            raise WrongSigner
        return self.roster.key_of(index if role is Role.HOLDER else self.roster.holder_of(index))
