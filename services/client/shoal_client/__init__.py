"""What a data holder and an analyst run: the library, the agent and the command.

from shoal_client import Federation                                        # to learn
from shoal_client.estimators import LinearRegression
from shoal_client import DataHolder, Policy, Records, read_client_keys    # to take part
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal_client.analyst import Analyst as Analyst
    from shoal_client.analyst import Job as Job
    from shoal_client.async_analyst import AsyncAnalyst as AsyncAnalyst
    from shoal_client.crowd_federation import CrowdFederation as CrowdFederation
    from shoal_client.crowds.job import CrowdJob as CrowdJob
    from shoal_client.federation import Federation as Federation
    from shoal_client.holder import DataHolder as DataHolder
    from shoal_client.job_failures import JobFailed as JobFailed
    from shoal_client.job_failures import JobInterrupted as JobInterrupted
    from shoal_client.job_failures import JobRefused as JobRefused
    from shoal_client.job_failures import JobWithdrawn as JobWithdrawn
    from shoal_client.job_failures import OutOfBudget as OutOfBudget
    from shoal_client.keys import read_client_keys as read_client_keys
    from shoal_client.policy import Policy as Policy
    from shoal_client.records import Records as Records
    from shoal_hosting.manifest_book import ManifestBook as ManifestBook
    from shoal_protocol.draw_and_discard.model import CrowdModel as CrowdModel
    from shoal_protocol.draw_and_discard.tasks import CrowdTask as CrowdTask
    from shoal_protocol.tasks import BernoulliTask as BernoulliTask
    from shoal_protocol.tasks import CategoricalTask as CategoricalTask
    from shoal_protocol.tasks import ColumnBounds as ColumnBounds
    from shoal_protocol.tasks import LinearRegressionTask as LinearRegressionTask
    from shoal_protocol.tasks import LogisticRegressionTask as LogisticRegressionTask
    from shoal_protocol.tasks import MultivariateNormalTask as MultivariateNormalTask
    from shoal_protocol.tasks import NormalMeanTask as NormalMeanTask
    from shoal_protocol.tasks import NormalTask as NormalTask
    from shoal_protocol.tasks import NumpyroTask as NumpyroTask
    from shoal_protocol.tasks import PoissonRegressionTask as PoissonRegressionTask
    from shoal_protocol.tasks import PoissonTask as PoissonTask
    from shoal_protocol.threshold import ThresholdSharing as ThresholdSharing

_WHERE = {
    "Analyst": "shoal_client.analyst",
    "AsyncAnalyst": "shoal_client.async_analyst",
    "BernoulliTask": "shoal_protocol.tasks",
    "CategoricalTask": "shoal_protocol.tasks",
    "ColumnBounds": "shoal_protocol.tasks",
    "CrowdFederation": "shoal_client.crowd_federation",
    "CrowdJob": "shoal_client.crowds.job",
    "CrowdModel": "shoal_protocol.draw_and_discard.model",
    "CrowdTask": "shoal_protocol.draw_and_discard.tasks",
    "DataHolder": "shoal_client.holder",
    "Federation": "shoal_client.federation",
    "Job": "shoal_client.analyst",
    "JobFailed": "shoal_client.job_failures",
    "JobWithdrawn": "shoal_client.job_failures",
    "JobInterrupted": "shoal_client.job_failures",
    "JobRefused": "shoal_client.job_failures",
    "LinearRegressionTask": "shoal_protocol.tasks",
    "LogisticRegressionTask": "shoal_protocol.tasks",
    "ManifestBook": "shoal_hosting.manifest_book",
    "MultivariateNormalTask": "shoal_protocol.tasks",
    "NormalMeanTask": "shoal_protocol.tasks",
    "NormalTask": "shoal_protocol.tasks",
    "NumpyroTask": "shoal_protocol.tasks",
    "OutOfBudget": "shoal_client.job_failures",
    "PoissonRegressionTask": "shoal_protocol.tasks",
    "PoissonTask": "shoal_protocol.tasks",
    "Policy": "shoal_client.policy",
    "Records": "shoal_client.records",
    "ThresholdSharing": "shoal_protocol.threshold",
    "read_client_keys": "shoal_client.keys",
}
__all__ = sorted(_WHERE)


def __getattr__(name: str) -> object:
    """Load what is asked for: an analyst needs no noise library, a data holder no command."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)
