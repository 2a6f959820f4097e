"""What `shoal consortium` shows of a manifest's version, and of the log that has it."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from shoal_consortium import parties
from shoal_protocol.log.witnessed import lying_witnesses
from shoal_protocol.trust.manifest import Analyst, Consortium, ServiceParty


def described(consortium: Consortium) -> dict[str, Any]:
    """Return what a reader wants of a version: no keys, no certificates."""
    manifest = consortium.manifest
    roster = consortium.roster
    enrolled = len(roster.enrolled_set)
    listed: list[tuple[str, ServiceParty | Analyst]] = [
        *(("compute", node) for node in manifest.compute_nodes),
        ("aggregator", manifest.aggregator),
        ("trainer", manifest.trainer),
        *(("analyst", analyst) for analyst in manifest.analysts),
    ]
    return {
        "consortium": manifest.consortium,
        "sequence": manifest.sequence,
        "digest": consortium.digest,
        "parties": [
            {
                "role": role,
                "name": party.name,
                "operator": party.operator,
                "url": party.url if isinstance(party, ServiceParty) else None,
            }
            for role, party in listed
        ],
        "policy": manifest.policy.model_dump(mode="json"),
        "holders": roster.holders,
        "slots": {"enrolled": enrolled, "revoked": len(roster) - enrolled},
        "shared_operators": parties.shared_operators(manifest),
    }


def of_the_log(chain: Sequence[Consortium]) -> Iterator[str]:
    """Say who must sign the log, how many must lie for two histories, and what had no quorum."""
    manifest = chain[-1].manifest
    nodes, lying = len(manifest.compute_nodes), lying_witnesses(manifest)
    if manifest.policy.cosignatures is None:
        yield "The policy has no cosignatures: new versions are believed without the log."
        return
    yield (
        f"The next version is believed once {manifest.quorum} of {nodes} Compute nodes signed the "
        f"log with it. For two parties to believe two histories, {lying} of them must lie, with "
        "the authority and the aggregator."
    )
    for before, version in pairwise(chain):
        number, reason = version.manifest.sequence, version.manifest.emergency
        if reason is not None and version.log_proof is None:
            yield f"Version {number} was signed by the authority in an emergency: {reason}."
        elif version.log_proof is None and before.manifest.policy.cosignatures is not None:
            yield f"Version {number} has no proof of the log yet: run `shoal consortium publish`."
