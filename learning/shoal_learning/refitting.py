"""Another inference from sums that are public: of a certificate, by whoever holds it.

The sums in a release certificate have been paid for and are out, so what is made of them costs no
privacy. An analyst may ask a job for the fast inference and make the exact one herself:

    verified = verify_certificate(Path("job.certificate").read_bytes(), manifest)
    posterior = refit(verified, inference="conditional_design")
    print(posterior.summary(), posterior.r_hat, posterior.effective_sample_size)
"""

from shoal_learning.contract import RequestedRound
from shoal_learning.linear_regression import LinearRegression
from shoal_protocol.certificate_checks import Verified
from shoal_protocol.posteriors import Posterior
from shoal_protocol.questions import ReleasedSum
from shoal_protocol.tasks import LinearRegressionTask
from shoal_protocol.tasks.linear_regression import Inference


def refit(verified: Verified, *, inference: Inference) -> Posterior:
    """Return the posterior that the certificate's job would have ended with by `inference`.

    `verified` is what `verify_certificate` makes of `job.certificate()` and the manifest.

    Raises:
        NoReliablePosterior: that inference refuses these sums; the message says why.
        ValueError: the certificate's job is no linear regression.
    """
    request = verified.certificate.request.body
    if not isinstance(request.task, LinearRegressionTask):
        raise ValueError("only a linear regression has several inferences: use the report as it is")
    rounds = verified.certificate.rounds
    task = LinearRegressionTask.model_validate(request.task.model_dump() | {"inference": inference})
    found = LinearRegression(task).next(
        rounds[0].spec.body.population_size,
        [ReleasedSum.of(each.spec.body, each.result.body) for each in rounds],
    )
    if isinstance(found, RequestedRound):
        raise ValueError("the certificate lacks a round of its job's task")
    return found
