"""Terms beyond the job's task, by analysts, and rounds beyond the job's terms, by the trainer."""

from collections.abc import AsyncIterator
from typing import Any

from shoal_protocol.jobs.job_request import Terms
from shoal_protocol.wire.errors import RefusedJob, RefusedSpec
from shoal_protocol.wire.service_errors import MissingRequest
from shoal_redteam.announcing import is_honest
from shoal_redteam.attack import Attack
from shoal_redteam.attacks.sybil import job_request
from shoal_redteam.findings import Finding, refused
from shoal_redteam.played_round import honest_spec
from shoal_redteam.target import DROPOUTS, Target


class TermsBeyondTheTask(Attack):
    """Data holders read no task: the trainer has to see that the terms are those of the task."""

    name = "terms-beyond-the-task"
    liar = "an analyst"
    tries = "a job whose terms allow other rounds, bounds or radii than its task asks for"
    stopped_by = "refused-job: the trainer derives the terms from the task, and compares"

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Submit jobs with wider terms to the trainer."""
        job = job_request(target, round_seconds=30, grace_seconds=20)
        for tried, terms in wider(job.body.terms).items():
            lie = target.sign(job.body.model_copy(update={"terms": terms}), target.analyst)
            answers = {target.trainer: await target.send(target.trainer, "/v1/jobs", lie.encode())}
            yield refused(tried, answers, by={RefusedJob.code}, check="the task's own terms")


def wider(terms: Terms) -> dict[str, Terms]:
    """Return terms that a data holder may well agree to, and that allow more than these."""
    *before, last = terms.kinds

    def of_last(**changes: Any) -> Terms:
        changed = last.model_copy(update=changes)
        return terms.model_copy(update={"kinds": (*before, changed)})

    stretch = last.stretch.model_copy(update={"most": 2.0 * last.stretch.most})
    bounds = [each.model_copy(update={"upper": 2.0 * each.upper}) for each in terms.bounds]
    found = {
        "terms for one round more": of_last(rounds=last.rounds + 1),
        "terms that let columns be centred anywhere": of_last(recentred=not last.recentred),
        "terms for wider scales": of_last(stretch=stretch),
        "terms with wider bounds": terms.model_copy(update={"bounds": tuple(bounds)}),
    }
    if last.radius is not None:
        radius = last.radius.model_copy(update={"most": 2.0 * last.radius.most})
        found["terms for a larger ball"] = of_last(radius=radius)
    return found


class RoundsBeyondTheTerms(Attack):
    """Compute nodes hold each round to what the analyst signed, whatever the trainer signs."""

    name = "rounds-beyond-the-terms"
    liar = "the trainer"
    tries = "rounds that an analyst's job does not ask: other columns, more clients, rounds or cost"
    stopped_by = "refused-spec, missing-request: nodes hold rounds to the analyst's signed request"

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Announce rounds to nodes, each as the policy allows them and the job does not."""
        job = job_request(target, round_seconds=30, grace_seconds=20)
        name, terms = target.ask_for(job), job.body.terms
        query = terms.kinds[0].query
        columns = [
            tuple(column.model_copy(update=change) for column in query.columns)
            for change in ({"name": "third"}, {"scale": 2.0})
        ]
        lies: dict[str, dict[str, Any]] = {
            "another column": {"columns": (columns[0][0], *query.columns[1:])},
            "values of twice the bounds": {"columns": columns[1]},
            "one more record of each client": {"records_per_client": query.records_per_client + 1},
        }
        wishes: dict[str, dict[str, Any]] = {
            tried: {"query": query.model_copy(update=lie)} for tried, lie in lies.items()
        } | {
            "a round more than the job has": {"number": terms.rounds},
            "a round that costs more than the whole job": {"price": 0.2},
            "more clients than the job has": {"clients": [*target.crew, target.outsiders[0]]},
            "fewer dropouts than the job has": {"dropouts": DROPOUTS - 1},
        }
        for tried, wish in wishes.items():
            spec = honest_spec(target, **{"query": query, "job": name} | wish)
            lie = target.sign(spec, target.trainer).encode()
            answers = await target.announce(target.nodes, lie, job=name)
            yield refused(tried, answers, by={RefusedSpec.code}, check="the terms of the job")
        invented = honest_spec(target, query=query, job=target.random_bytes(32).hex())
        answers = await target.tell(
            target.nodes, "/v1/rounds", target.sign(invented, target.trainer).encode()
        )
        yield refused(
            "a round of a job that no analyst asked for",
            answers,
            by={MissingRequest.code},
            check="a node takes a round if it has the job's signed request",
        )
        await is_honest(target, honest_spec(target, query=query, job=name))
