"""Carries out a certificate's study again on its own sums, and compares what comes out.

python -m shoal_studies.replay < certificate.json    # prints JSON: "outcome" and "detail"

The process limits its own time and memory, writes no file, and imports no model.
"""

import base64
import json
import resource
import sys
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, get_args, get_type_hints

import numpy as np

from shoal_protocol.certificates.release_certificate import ReleaseCertificate, read_certificate
from shoal_protocol.queries import GradientSum
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_protocol.wire.documents import from_json
from shoal_protocol.wire.encoding import Base64
from shoal_protocol.wire.errors import MalformedDocument, RefusedJob
from shoal_studies.catalogue.study import check_terms_of_task
from shoal_studies.catalogue.variational import Variational
from shoal_studies.contract import RequestedRound
from shoal_studies.posterior_report import PosteriorReport
from shoal_studies.posteriors.base import LEVEL, BasePosterior, NormalCoefficients
from shoal_studies.registry import STUDIES, learner_for
from shoal_studies.study_request import StudyRequest

_TOLERANCE: Final = 1e-6  # of a vector's largest magnitude: processors differ in the last digits
Array = np.ndarray[Any, Any]

_MOST_SECONDS: Final = 600
_MOST_BYTES: Final = 4 << 30


@dataclass(frozen=True)
class Replay:
    """Whether a study, carried out again, gives what its certificate says."""

    outcome: Literal["same", "differs", "not possible"]
    detail: str


def replay(certificate: ReleaseCertificate) -> Replay:
    """Ask a study's learner again for each round's query and the posterior.

    The certificate is one that holds. Points at which gradients were taken are not compared.
    """
    try:
        request = from_json(certificate.request.to_json(), StudyRequest).body
        report = from_json(certificate.report.to_json(), PosteriorReport).body
    except MalformedDocument as error:
        if _is_known(certificate):
            return Replay("differs", f"its task or posterior is none that its study has: {error}")
        return Replay(
            "not possible", f"this release knows no such study, method or posterior: {error}"
        )
    try:
        learner = learner_for(request.task)
    except ValueError:
        return Replay("not possible", "the study's model is not run here")
    try:
        check_terms_of_task(
            request.terms,
            request.task,
            least=request.minimum_population,
            most=request.maximum_population,
        )
    except RefusedJob as error:
        return Replay("differs", f"differs before the first round: {error}")
    size = report.population_size
    if request.terms.batch is None:
        size = certificate.all_rounds[0].spec.body.population_size
    sums = [ReleasedSum.of(each.spec.body, each.result.body) for each in certificate.rounds]
    try:
        for number, each in enumerate(certificate.rounds):
            step, asked = learner.next(size, sums[:number]), each.spec.body
            skipped = {"point"} if isinstance(asked.query, GradientSum) else None
            if not isinstance(step, RequestedRound) or not _alike(
                step.query.model_dump(exclude=skipped), asked.query.model_dump(exclude=skipped)
            ):
                return Replay("differs", f"differs at round {asked.number}: another query follows")
        last = learner.conclude if isinstance(learner, Variational) else learner.next
        posterior = last(size, sums)
    except (ValueError, ArithmeticError, LookupError) as error:
        return Replay("differs", f"no posterior follows from its sums: {error}")
    if not isinstance(posterior, BasePosterior) or not _same(posterior, report.posterior):
        return Replay("differs", "differs after the last round: another posterior follows")
    return Replay("same", "every query and the posterior follow from the sums before them")


def _same(one: BasePosterior, other: BasePosterior) -> bool:
    """Tell whether posteriors are the same but for rounding; numbers in base64 by what they say."""
    if type(one) is not type(other):
        return False
    encoded = {
        name
        for name, hint in get_type_hints(type(one), include_extras=True).items()
        if Base64 in (hint, *get_args(hint))
    }
    if not _alike(one.model_dump(exclude=encoded), other.model_dump(exclude=encoded)):
        return False
    if not all(_same_bytes(getattr(one, name), getattr(other, name)) for name in encoded):
        return False
    # each number by itself, for their units differ
    errors = _TOLERANCE * np.maximum(np.abs(one.mean), one.sd)
    numbers = [(each.mean, each.sd, *each.interval(LEVEL).T) for each in (one, other)]
    if not all(_within(first, second, errors) for first, second in zip(*numbers, strict=True)):
        return False
    if not isinstance(one, NormalCoefficients) or not isinstance(other, NormalCoefficients):
        return True
    both = _TOLERANCE * np.outer(one.sd, one.sd)
    return _within(one.covariance_matrix, other.covariance_matrix, both)


def _same_bytes(one: str | None, other: str | None) -> bool:
    """Tell whether vectors in base64 are the same but for the last digits."""
    if one is None or other is None:
        return one is other
    raw = [base64.b64decode(each) for each in (one, other)]
    if len(raw[0]) != len(raw[1]):
        return False
    if len(raw[0]) % 8 == 0 and _near(*(np.frombuffer(each, "<f8") for each in raw)):
        return True
    integers = [np.frombuffer(each[: len(each) // 2 * 2], "<u2").astype(np.int64) for each in raw]
    return bool(np.all(np.abs(integers[0] - integers[1]) <= 1))


def _within(one: Array, other: Array, errors: Array) -> bool:
    if one.shape != other.shape:
        return False
    return bool(np.all((np.abs(one - other) <= errors) | (one == other)))


def _is_known(certificate: ReleaseCertificate) -> bool:
    """Tell whether this release has the certificate's study and method, and such a posterior."""
    task, posterior = certificate.request.body.task, certificate.report.body.posterior
    study = STUDIES.get(str(task.get("name")))
    return (
        study is not None
        and task.get("method_number") == study.model_fields["method_number"].default
        and posterior.get("name")
        in {each.model_fields["name"].default for each in study.posteriors}
    )


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    try:
        numbers = [np.asarray(each, dtype=np.float64) for each in (one, other) if _counts(each)]
    except ValueError:
        numbers = []
    if len(numbers) == 2:
        return _near(*numbers)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_alike, one, other))
    return type(one) is type(other) and bool(one == other)


def _counts(value: Any) -> bool:
    """Tell whether a value is a number, or a sequence that holds nothing else."""
    if isinstance(value, list | tuple):
        return bool(value) and all(map(_counts, value))
    return isinstance(value, int | float) and not isinstance(value, bool)


def _near(one: Array, other: Array) -> bool:
    if one.shape != other.shape:
        return False
    largest = float(np.max(np.abs(one), initial=0.0, where=np.isfinite(one)))
    return np.allclose(one, other, rtol=0.0, atol=_TOLERANCE * largest, equal_nan=True)


def main() -> None:
    """Replay the certificate on standard input."""
    resource.setrlimit(resource.RLIMIT_CPU, (_MOST_SECONDS, _MOST_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    for model in ("jax", "numpyro"):
        sys.modules[model] = None  # type: ignore[assignment]  # to import it fails
    found = replay(read_certificate(sys.stdin.buffer.read()))
    print(json.dumps(asdict(found)))


if __name__ == "__main__":
    main()
