"""Compute nodes' signatures of versions of the manifest, made in a test by the parties' keys."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from nacl.signing import SigningKey

from shoal_consortium import consortium_files
from shoal_kit.manifest_chain import open_chain
from shoal_kit.party import load_party
from shoal_protocol.trust.manifest import Manifest, Parties
from shoal_protocol.trust.succession import ManifestStatement, written
from shoal_protocol.wire.documents import Signed, sign
from tests.world import examples


def statement(
    before: Parties,
    later: Manifest,
    node: str,
    *,
    keys: Callable[[str], SigningKey] = examples.signing_key,
) -> Signed[ManifestStatement]:
    """Return what a node of the version `before` signs of the `later` one."""
    body = ManifestStatement.of(before, later, node=node, entry=examples.LINK)
    return sign(body, node, keys(node))


def countersigned(
    before: Parties,
    signed: Signed[Manifest],
    nodes: Iterable[str] | None = None,
    *,
    keys: Callable[[str], SigningKey] = examples.signing_key,
) -> Signed[Manifest]:
    """Return a version with the signatures of these nodes of the version before, or of all."""
    names = [node.name for node in before.manifest.compute_nodes] if nodes is None else nodes
    found = [statement(before, signed.body, name, keys=keys) for name in names]
    return replace(signed, countersignatures=written(found))


def countersign_all(directory: Path, homes: Path) -> None:
    """Give each version of a consortium directory its signatures, by the keys in these homes."""
    for before, following in pairwise(open_chain(directory)):
        if before.manifest.policy.manifest_signatures is None:
            continue

        def key(name: str, before: Parties = before) -> SigningKey:
            return load_party(homes / name).signing_key_in(before)

        signed = countersigned(before, following.signed_manifest, keys=key)
        assert signed.countersignatures is not None
        consortium_files.add_countersignatures(directory, following, signed.countersignatures)
