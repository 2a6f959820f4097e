"""A trainer that has the consortium's dictionary refuses jobs that read anything else."""

from typing import Any

from nacl.signing import SigningKey

from shoal_protocol.trust.dictionary import Category, DataDictionary, Number
from shoal_protocol.wire.documents import sign
from shoal_studies.study_request import JobCheck, StudyRequest
from shoal_trainer.assembly import Service
from tests.trainer.test_jobs import JOB
from tests.world.around_trainer import CONSORTIUM, signed_job
from tests.world.examples import AUTHORITY, named
from tests.world.parties import client_of, post, problem_code

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
