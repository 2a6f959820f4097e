"""A job is judged by what data holders declare, however many they are."""

import pytest

from shoal_protocol.jobs.declarations import HolderDeclaration, HolderRules
from shoal_studies import study_request
from shoal_trainer import declarations
from shoal_trainer.assembly import Service
from tests.trainer.test_jobs import JOB
from tests.world import examples
from tests.world.around_trainer import CONSORTIUM, signed_job
from tests.world.parties import post

NOBODY = 19  # revoked
RULES = HolderRules(
    analysts=("analyst",),
    queries=JOB.terms.query_names,
    columns=JOB.task.column_names,
    delta=1e-6,
    minimum_population=2,
    minimum_colluders=0,
)
FOREIGN = RULES.model_copy(update={"analysts": ("somebody-else",)})


def declared(holder: int, rules: HolderRules, *, variables: tuple[str, ...] = ()) -> bytes:
    body = HolderDeclaration(
        manifest=CONSORTIUM.digest,
        holder=holder,
        declared_at=examples.OPENED_AT,
        variables=variables or JOB.task.column_names,
        rules=rules,
    )
    return examples.named("holder", body).encode()


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The holders whose declarations were judged, those of like ones by the first."""
    holders: list[int] = []

    def judge(request, each, **how):  # type: ignore[no-untyped-def]
        holders.append(each.holder)
        return study_request.foreseen_refusal(request, each, **how)

    monkeypatch.setattr(declarations, "foreseen_refusal", judge)
    monkeypatch.setattr(declarations, "_PAGE", 3)
    return holders


async def test_equal_declarations_are_judged_once_and_each_holder_counts(
    trainer: Service, judged: list[int]
) -> None:
    for holder in range(NOBODY):
        rules = FOREIGN if holder % 4 else RULES
        assert await post(trainer, "/v1/declarations", declared(holder, rules)) == 201
    assert await post(trainer, "/v1/jobs", signed_job(JOB)) == "refused-job"
    assert sorted(judged) == [0, 1]
    with pytest.raises(
        declarations.RefusedJob,
        match=r"5 clients would answer, .* refused by 14 data holders: the analyst is not",
    ):
        await trainer.joining._declarations.check(JOB, CONSORTIUM)


async def test_of_more_kinds_than_are_judged_the_rarest_are_taken_to_join(
    trainer: Service, judged: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(declarations, "_MOST_JUDGED", 1)
    for holder in range(NOBODY):
        odd = (f"v{holder}",) if holder >= 4 else ()
        document = declared(holder, RULES, variables=odd)
        assert await post(trainer, "/v1/declarations", document) == 201
    assert await post(trainer, "/v1/jobs", signed_job(JOB)) == 201
    assert judged == [0]


async def test_holders_behind_the_most_that_are_read_are_taken_to_join(
    trainer: Service, judged: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(declarations, "_MOST_READ", 6)
    for holder in range(NOBODY):
        assert await post(trainer, "/v1/declarations", declared(holder, FOREIGN)) == 201
    assert await post(trainer, "/v1/jobs", signed_job(JOB)) == 201
    assert judged == [0]
