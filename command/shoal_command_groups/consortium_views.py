"""What `shoal consortium` shows of a manifest's version, and of the log that has it."""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from pyroaring import BitMap

from shoal_consortium import parties
from shoal_protocol.log.witnessed import lying_witnesses
from shoal_protocol.trust.manifest import Analyst, Consortium, Manifest, ServiceParty
from shoal_protocol.trust.roster import key_fingerprint


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


def holders_of(chain: Sequence[Consortium]) -> list[dict[str, str]]:
    """Return the data holders by number, with fingerprint, slots and state in the newest version.

    Checks and failures of jobs name a data holder by its number.
    """
    return [_holder(chain, index) for index in range(chain[-1].roster.holders)]


def holder_in_words(chain: Sequence[Consortium], holder: int) -> str:
    """Say which data holder has an index: its key's fingerprint and its slots."""
    found = _holder(chain, holder)
    return f"data holder {found['key']}, slots {found['slots']}, {found['state']}"


def _holder(chain: Sequence[Consortium], holder: int) -> dict[str, str]:
    listed = [each for each in chain if each.roster.holders > holder]
    with_key = [each for each in listed if each.roster.key_if_enrolled(holder) is not None]
    state = f"enrolled by version {listed[0].manifest.sequence}"
    if len(with_key) < len(listed):
        state = f"revoked by version {listed[len(with_key)].manifest.sequence}"
    return {
        "data_holder": str(holder),
        "key": key_fingerprint(with_key[-1].roster.key_of(holder)),
        "slots": slots_in_words(chain[-1].roster.slots_of(holder)),
        "state": state,
    }


def slots_in_words(slots: BitMap) -> str:
    """Return slots as ranges, `0 to 199, 400 to 449`."""
    each = np.array(slots, np.int64)
    ranges = np.split(each, np.flatnonzero(np.diff(each) != 1) + 1)
    return ", ".join(f"{part[0]} to {part[-1]}" for part in ranges)


def differences(before: Manifest, after: Manifest) -> Iterator[str]:
    """Say every field of the next version that differs, as `field: old → new`.

    Left out are those that always differ, and the roster, whose changes are told by holder.
    """
    old, new = _flat(before), _flat(after)
    for name in old | new:
        if old.get(name) != new.get(name):
            yield f"{name}: {old.get(name, 'none')} → {new.get(name, 'none')}"


def _flat(manifest: Manifest) -> dict[str, str]:
    fields = manifest.model_dump(mode="json", exclude={"sequence", "previous", "roster", "move"})
    nodes, analysts = fields.pop("compute_nodes"), fields.pop("analysts")
    fields |= {f"Compute node {each.pop('name')}": each for each in nodes}
    fields |= {f"analyst {each.pop('name')}": each for each in analysts}
    return dict(_leaves("", fields))


def _leaves(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for inner, each in value.items():
            yield from _leaves(f"{name} {inner}".strip(), each)
    elif isinstance(value, list):
        yield name, ", ".join(str(each) for each in value) or "none"
    elif str(value).startswith("-----BEGIN"):
        yield name, f"SHA-256 {hashlib.sha256(value.encode()).hexdigest()}"
    else:
        yield name, "none" if value is None else str(value)


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
