"""A trainer that has the consortium's dictionary refuses jobs that read anything else."""

from pathlib import Path
from typing import Any

import pytest
from nacl.signing import SigningKey

from shoal_hosting.startup import StartupRefused
from shoal_protocol.certificates.study_request import JobCheck, StudyRequest
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.studies.kaplan_meier import KaplanMeierTask
from shoal_protocol.trust.dictionary import Category, DataDictionary, Number
from shoal_protocol.wire.documents import sign
from shoal_protocol.wire.errors import RefusedJob
from shoal_trainer.assembly import Service
from shoal_trainer.dictionaries import Dictionaries
from tests.trainer.test_jobs import JOB, get, post
from tests.world.around_trainer import CONSORTIUM, signed_job
from tests.world.examples import AUTHORITY, named
from tests.world.parties import client_of, problem_code

COLUMNS = tuple(
    Number(name=each.name, meaning="as measured", lower=each.lower, upper=each.upper)
    for each in JOB.terms.bounds
)
PATH = "/v1/dictionary"


def version(*variables: Number | Category, before: DataDictionary | None = None) -> DataDictionary:
    return DataDictionary(
        consortium=CONSORTIUM.manifest.consortium,
        authority=CONSORTIUM.manifest.authority,
        sequence=1 if before is None else before.sequence + 1,
        previous=None if before is None else before.digest,
        variables=variables,
    )


async def put(service: Service, body: DataDictionary, key: SigningKey = AUTHORITY) -> Any:
    async with client_of(service.app) as http:
        answer = await http.put(PATH, content=sign(body, "authority", key).encode())
    return answer.status_code if answer.status_code < 400 else problem_code(answer)


async def refusal(service: Service, request: StudyRequest) -> str:
    async with client_of(service.app) as http:
        answer = await http.post("/v1/jobs", content=signed_job(request))
    assert problem_code(answer) == "refused-job"
    return str(answer.json()["detail"])


async def test_a_column_that_is_not_in_the_dictionary_is_refused(trainer: Service) -> None:
    misspelt = COLUMNS[0].model_copy(update={"name": COLUMNS[0].name + "s"})
    await put(trainer, version(misspelt, *COLUMNS[1:]))
    detail = await refusal(trainer, JOB)
    assert detail.startswith("column 1 is not in the consortium's data dictionary")
    assert detail.endswith(f"near to it are {misspelt.name}")
    checked = JobCheck(manifest=JOB.manifest, analyst=JOB.analyst, request=JOB)
    async with client_of(trainer.app) as http:
        signed = named("analyst", checked).encode()
        answer = (await http.post("/v1/jobs/check", content=signed)).json()
    assert answer["refusal"] == {"code": "refused-job", "detail": detail}
    forged = sign(checked, "analyst", SigningKey(b"m" * 32)).encode()
    assert await post(trainer, "/v1/jobs/check", forged) == "bad-signature"


def publish(directory: Path, *versions: bytes) -> None:
    (directory / "history").mkdir(parents=True, exist_ok=True)
    for sequence, each in enumerate(versions, start=1):
        (directory / "history" / f"{sequence:06d}-dictionary.json").write_bytes(each)


async def test_a_trainer_takes_at_its_start_what_the_consortiums_directory_has(
    trainer: Service, tmp_path: Path
) -> None:
    first = version(*COLUMNS)
    second = version(*COLUMNS, Number(name="new", meaning="new", lower=0, upper=1), before=first)
    signed = [sign(each, "authority", AUTHORITY).encode() for each in (first, second)]
    dictionaries = Dictionaries(trainer.resources)
    publish(tmp_path / "published", *signed)
    dictionaries.follow(tmp_path / "published")
    dictionaries.follow(tmp_path / "published")
    assert await get(trainer, PATH) == (200, signed[1])
    forged = sign(version(COLUMNS[0], before=second), "authority", SigningKey(b"m" * 32)).encode()
    publish(tmp_path / "published", *signed, forged)
    with pytest.raises(StartupRefused, match="000003"):
        dictionaries.follow(tmp_path / "published")


async def test_an_event_that_is_coded_otherwise_is_refused_where_no_value_is_named(
    trainer: Service,
) -> None:
    status = Category(name="status", meaning="at the end", levels=("dead", "alive"))
    await put(trainer, version(*COLUMNS, status))
    dictionaries, columns = (
        Dictionaries(trainer.resources),
        [ColumnBounds(name="status", lower=0, upper=1)],
    )
    with pytest.raises(RefusedJob, match="name the value that is the event"):
        await dictionaries.check(columns, as_levels=True, event="status")
    await dictionaries.check(columns, as_levels=True)
    task = KaplanMeierTask(time=JOB.terms.bounds[0], event="status")
    terms = task.terms(least=JOB.minimum_population, most=JOB.maximum_population)
    asked = JOB.model_copy(update={"task": task, "terms": terms})
    assert "name the value that is the event" in await refusal(trainer, asked)
