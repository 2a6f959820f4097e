"""A red team that cannot fail proves nothing: each weakness here is planted, and must be found."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from shoal_aggregator import aggregator
from shoal_compute import attesting, shares, uploading
from shoal_compute.jobs import Totals
from shoal_compute.manifest_signing import ManifestSigning
from shoal_compute.rounds import Intake, Round
from shoal_compute.shares import AcceptedShare
from shoal_compute.store import Kept
from shoal_holder import release_timing, rounds
from shoal_kit.web import openapi
from shoal_kit.web.application import BodyLimits
from shoal_protocol.certificates import checks
from shoal_protocol.jobs.totals import JobEnd, JobTotal
from shoal_protocol.privacy.accounting import Balances
from shoal_protocol.privacy.mechanisms import NoisePart
from shoal_protocol.rounds import round_spec
from shoal_protocol.rounds.attestations import Charge
from shoal_protocol.sharing import received
from shoal_protocol.sharing.received import Envelope
from shoal_protocol.trust import succession
from shoal_protocol.trust.manifest import Manifest, Parties
from shoal_protocol.trust.succession import ManifestStatement
from shoal_protocol.wire import documents
from shoal_protocol.wire.documents import Signed, decode
from shoal_protocol.wire.encoding import Int64Vector
from shoal_protocol.wire.service_errors import ConflictingDocument
from shoal_redteam.attacks import timing
from shoal_redteam.findings import Verdict
from shoal_redteam.registry import all_attacks, chosen
from shoal_redteam.running import run
from shoal_redteam.target import Target
from shoal_service import service, signed_documents
from shoal_trainer.crowds import submitting
from tests.redteam.lag import LAG
from tests.redteam.weaknesses import (
    CLOSINGS,
    UNREAD,
    Plant,
    a_higher_cap,
    a_thousandth_of_the_noise,
    any_number,
    credulous_vaults,
    endless_patience,
    forgetful_owners,
    half_the_noise,
    hasty_vaults,
    jobs_without_end,
    no_noise,
    powerless_owners,
    returned_charges,
    rough_prices,
    shared_noise,
    the_same_noise,
    uncapped_owners,
    uncounted_rounds,
    unread_tasks,
    unread_terms,
)
from tests.world.examples import LINK


def nothing(*arguments: Any, **named: Any) -> None:
    """Check nothing."""


def late_shares(patch: pytest.MonkeyPatch) -> None:
    """A Compute node stores shares whatever the hour and the phase."""

    async def take_late(self: Any, round_: Any, envelopes: Any) -> list[Any]:
        checked = round_.intake.validate_all(envelopes, self._own.book.current.roster)
        return list(await self._commits.submit_all(checked))

    patch.setattr(uploading.Uploads, "_look_up", take_late)
    patch.setattr(shares, "_lock_rounds", _all_collecting(shares._lock_rounds))


def _all_collecting(lock: Callable[..., Any]) -> Callable[..., Any]:
    def locked(db: Any, round_ids: list[str]) -> list[tuple[str, int, str]]:
        return [(each, number, "collecting") for each, number, _ in lock(db, round_ids)]

    return locked


def transplants(patch: pytest.MonkeyPatch) -> None:
    """A Compute node does not ask whom a sealed box was made for."""
    patch.setattr(received, "compare_digest", lambda one, other: True)


def unsigned_shares(patch: pytest.MonkeyPatch) -> None:
    """A Compute node does not check who signed an envelope."""
    patch.setattr(Envelope, "verify", nothing)


def other_rounds(patch: pytest.MonkeyPatch) -> None:
    """A Compute node takes envelopes of any round and any node."""
    patch.setattr(Intake, "parse", lambda self, encoded: received.parse(encoded))
    patch.setattr(Envelope, "verify", nothing)
    patch.setattr(received, "compare_digest", lambda one, other: True)


def small_cohorts_in_specs(patch: pytest.MonkeyPatch) -> None:
    """Nobody compares a spec with the policy's minimum_cohort, or its noise with its price."""
    patch.setattr(service, "check_spec", nothing)


def small_sums(patch: pytest.MonkeyPatch) -> None:
    """The aggregator takes partial sums over any cohort, and whatever was charged for them."""
    patch.setattr(aggregator, "check_partial_sum", nothing)


def second_documents(patch: pytest.MonkeyPatch) -> None:
    """A Compute node lets a peer vote twice, and attest two holdings."""
    learn = Round.learn

    def learned(self: Round, signed: Any, kept: Kept) -> None:
        learn(self, signed, kept)
        self.equivocation = False

    patch.setattr(Round, "learn", learned)


def second_sums(patch: pytest.MonkeyPatch) -> None:
    """The aggregator acknowledges a node's second partial sum."""
    offer = aggregator.offer

    def taken(db: Any, signed: Any) -> Any:
        outcome = offer(db, signed)
        is_second = isinstance(outcome, ConflictingDocument)
        return aggregator.Outcome.KNOWN if is_second else outcome

    patch.setattr(aggregator, "offer", taken)


def any_manifest(patch: pytest.MonkeyPatch) -> None:
    """A service takes any manifest for the next one, whoever signed it, however few nodes."""
    patch.setattr(Signed, "verify_signature", nothing)
    patch.setattr(succession, "check_believed", nothing)


def every_version(patch: pytest.MonkeyPatch) -> None:
    """A node signs whatever version of the manifest it is handed, and remembers none."""

    async def sign_any(self: ManifestSigning, encoded: bytes) -> bytes:
        own, later = self._own, decode(encoded, Manifest).body
        body = ManifestStatement.of(own.book.current, later, node=own.name, entry=LINK)
        return own.sign(body).encode()

    patch.setattr(ManifestSigning, "sign", sign_any)


def every_report(patch: pytest.MonkeyPatch) -> None:
    """A node signs a total for each report of a job, and remembers none."""

    async def sign_any(self: Totals, encoded: bytes) -> bytes:
        own, end = self._own, decode(encoded, JobEnd).body
        named = {"manifest": end.manifest, "job": end.job, "report": end.report}
        return own.sign(JobTotal(entry=LINK, node=own.name, rounds=(), **named)).encode()

    patch.setattr(Totals, "sign", sign_any)


def any_version(patch: pytest.MonkeyPatch) -> None:
    """Everybody believes versions of the manifest that too few Compute nodes signed."""
    patch.setattr(succession, "check_believed", nothing)


def any_signer(patch: pytest.MonkeyPatch) -> None:
    """Nobody checks who signed a document, as it comes and as it is read."""
    patch.setattr(signed_documents, "_check_signature", lambda *arguments: b"")
    patch.setattr(Parties, "verify", nothing)


def any_roster(patch: pytest.MonkeyPatch) -> None:
    """A population may hold clients that nobody enrolled."""
    patch.setattr(round_spec, "_check_parties", nothing)


def no_ledger(patch: pytest.MonkeyPatch) -> None:
    """A Compute node forgets what it has charged."""
    patch.setattr(Balances, "affording", lambda self, clients, cost, cap: clients)


def free_rounds(patch: pytest.MonkeyPatch) -> None:
    """Compute nodes count rounds that were never charged, and the aggregator lets them."""
    partial_sum = attesting.partial_sum

    def attested(known: Any, cohort: Any, total: Any, charge: Charge, **named: Any) -> Any:
        late = charge.model_copy(update={"job_rounds": 99})
        return partial_sum(known, cohort, total, late, **named)

    patch.setattr(attesting, "partial_sum", attested)
    patch.setattr(aggregator, "check_partial_sum", nothing)


def impossible_totals(patch: pytest.MonkeyPatch) -> None:
    """The aggregator signs any total."""
    patch.setattr(aggregator, "is_possible", lambda *arguments, **named: True)


def loose_json(patch: pytest.MonkeyPatch) -> None:
    """Documents are read as any JSON is."""
    patch.setattr(documents, "parse_canonical_json", lambda encoded, **named: json.loads(encoded))


def no_limits(patch: pytest.MonkeyPatch) -> None:
    """Services read whatever they are sent."""
    patch.setattr(BodyLimits, "_limit_for", lambda self, path: 1 << 40)


def shown_sums(patch: pytest.MonkeyPatch) -> None:
    """A Compute node shows its partial sum to whoever asks."""
    learn = Round.learn

    def learned(self: Round, signed: Any, kept: Kept) -> None:
        learn(self, signed, kept)
        self.spoken_of[signed.digest] = signed

    patch.setattr(Round, "learn", learned)


def slow_noise(patch: pytest.MonkeyPatch) -> None:
    """A data holder takes the longer the larger its noise is, and sends when it is done."""
    draw = timing.sampler
    scales: list[float] = []

    def drawn(part: NoisePart, count: int) -> Int64Vector:
        block = draw(part, count)
        scales.append(part.scale)
        LAG.seconds += float(np.abs(block).sum()) / scales[0]
        return block

    patch.setattr(timing, "sampler", drawn)
    patch.setattr(release_timing, "release_time", lambda *, began, ready, allowed_seconds: ready)


def slow_over_the_known(patch: pytest.MonkeyPatch) -> None:
    """A Compute node takes longer over data holders that have answered."""
    validate_all = Intake.validate_all
    answered: set[int] = set()

    def validated(self: Intake, envelopes: Sequence[bytes], *arguments: Any) -> list[Any]:
        holders = [int.from_bytes(encoded[8:12], "little") for encoded in envelopes]
        LAG.seconds += 0.01 * len(answered.intersection(holders))
        judged = validate_all(self, envelopes, *arguments)
        answered.update(each.holder for each in judged if isinstance(each, AcceptedShare))
        return judged

    patch.setattr(Intake, "validate_all", validated)


def credulous_readers(patch: pytest.MonkeyPatch) -> None:
    """Whoever reads a certificate does not add its sums and prices up again."""
    patch.setattr(checks, "check_rounds", nothing)
    patch.setattr(checks, "_check_report", nothing)


def credulous_clients(patch: pytest.MonkeyPatch) -> None:
    """A data holder answers whatever it is asked."""
    patch.setattr(rounds, "check_round", nothing)


def any_step(patch: pytest.MonkeyPatch) -> None:
    """The trainer takes whatever comes back for a draw."""
    patch.setattr(submitting, "check_submission", nothing)


def open_doors(patch: pytest.MonkeyPatch) -> None:
    """A service takes any token, and none, for its operator's."""
    patch.setattr(openapi, "is_bearer", lambda *_: True)


PLANTED: list[tuple[Plant, str]] = [
    (late_shares, "late"),
    (transplants, "transplant"),
    (unsigned_shares, "sybil"),
    (other_rounds, "replay"),
    (small_cohorts_in_specs, "small-cohort"),
    (small_cohorts_in_specs, "too-little-noise"),
    (small_cohorts_in_specs, "forbidden-query"),
    (small_cohorts_in_specs, "minimum-colluders"),
    (small_cohorts_in_specs, "sybil"),
    (small_sums, "small-cohort"),
    (small_sums, "uncharged"),
    (second_documents, "equivocating-node"),
    (second_sums, "equivocating-node"),
    (second_sums, "differencing-two-cohorts"),
    (any_manifest, "key-substitution"),
    (any_manifest, "downgrade"),
    (any_manifest, "unauthenticated"),
    (any_signer, "unauthenticated"),
    (any_signer, "sybil-join"),
    (any_roster, "sybil"),
    (no_ledger, "budget"),
    (free_rounds, "differencing-two-rounds"),
    (shown_sums, "unauthenticated"),
    (open_doors, "unauthenticated"),
    (impossible_totals, "overflowing-client"),
    (any_step, "crowd-submissions"),
    (any_signer, "crowd-submissions"),
    (loose_json, "non-canonical"),
    (no_limits, "oversized"),
    (slow_noise, "timing-of-noise"),
    (slow_over_the_known, "timing-of-clients"),
    (credulous_readers, "forged-certificate"),
    (credulous_clients, "lies-to-clients"),
    (a_thousandth_of_the_noise, "sent-noise"),
    (half_the_noise, "sent-noise"),
    (no_noise, "sent-noise"),
    (the_same_noise, "sent-noise"),
    (shared_noise, "sent-noise"),
    (returned_charges, "collect-then-abandon"),
    (jobs_without_end, "second-rounds"),
    (any_number, "second-rounds"),
    (every_version, "two-histories"),
    (every_report, "two-histories"),
    (any_version, "two-histories"),
    (a_higher_cap, "budget"),
    (endless_patience, "far-deadline"),
    (unread_tasks, "terms-beyond-the-task"),
    (unread_terms, "rounds-beyond-the-terms"),
    (powerless_owners, "against-the-owner"),
    (uncapped_owners, "against-the-owner"),
    (forgetful_owners, "against-the-owner"),
    (credulous_vaults, "forged-approval"),
    (hasty_vaults, "forged-approval"),
    (rough_prices, "too-little-noise"),
    (uncounted_rounds, "batches"),
    *((plant, "crowd-trainer") for plant in CLOSINGS),
    *((plant, "forged-certificate") for plant in UNREAD),
]


@pytest.mark.parametrize(
    ("plant", "attack"), PLANTED, ids=lambda each: getattr(each, "__name__", each)
)
async def test_a_planted_weakness_lets_the_attack_through(
    plant: Plant, attack: str, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)

    report = await run(chosen([attack]), target)

    assert report.count(Verdict.GOT_THROUGH) > 0
    assert report.exit_status == 1


def test_every_attack_has_a_weakness_that_it_finds() -> None:
    assert {attack for _, attack in PLANTED} == {each.name for each in all_attacks()}
