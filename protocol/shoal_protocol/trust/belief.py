"""When a party believes the version of the manifest that follows the one in force.

A quorum of the Compute nodes in force must have signed a checkpoint of the log that has it, lest
somebody be shown another version unseen. What was made before there was a log asks for none: the
policy in force names no number of cosignatures. Where too few nodes are left for a quorum, or the
aggregator is lost, the authority may sign an emergency instead, which everybody is shown.
"""

from typing import TYPE_CHECKING

from shoal_protocol.log.entries import ManifestEntry
from shoal_protocol.log.witnessed import TooFewWitnesses, read_proof
from shoal_protocol.wire.errors import MalformedDocument

if TYPE_CHECKING:
    from shoal_protocol.trust.manifest import Manifest


def log_entry(manifest: "Manifest") -> ManifestEntry:
    """Return what the log has of a version."""
    return ManifestEntry(
        digest=manifest.digest,
        consortium=manifest.consortium,
        sequence=manifest.sequence,
        previous=manifest.previous,
        emergency=manifest.emergency,
    )


def may_be_emergency(now: "Manifest", later: "Manifest") -> bool:
    """Tell whether fewer nodes than a quorum stay, by name, or the aggregator does not."""
    later_nodes = {node.name for node in later.compute_nodes}
    staying = sum(node.name in later_nodes for node in now.compute_nodes)
    return staying < now.quorum or later.aggregator.name != now.aggregator.name


def check_believed(now: "Manifest", later: "Manifest", log_proof: str | None) -> None:
    """Refuse a version that is not in the log by its proof, and no emergency that may be one.

    Raises:
        TooFewWitnesses, MalformedDocument, BadSignature, WrongProof
    """
    if later.emergency is not None and not may_be_emergency(now, later):
        raise MalformedDocument("enough Compute nodes stay to sign: this is no emergency")
    if now.policy.cosignatures is None:
        return
    if later.policy.cosignatures is None:
        raise MalformedDocument("later versions must name their number of cosignatures, too")
    if log_proof is not None:
        read_proof(log_proof).check(log_entry(later).encode(), now)
    elif later.emergency is None:
        raise TooFewWitnesses("there is no proof that the log has this version of the manifest")
