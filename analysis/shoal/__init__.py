"""What an analyst runs: federations, jobs, estimators and plans.

from shoal import Federation, SimulatedFederation, estimators
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.jobs.analyst import Analyst as Analyst
    from shoal.jobs.analyst import CrowdJob as CrowdJob
    from shoal.jobs.analyst import Job as Job
    from shoal.jobs.federation import Federation as Federation
    from shoal.jobs.job_failures import JobFailed as JobFailed
    from shoal.jobs.job_failures import JobInterrupted as JobInterrupted
    from shoal.jobs.job_failures import JobRefused as JobRefused
    from shoal.jobs.job_failures import JobWithdrawn as JobWithdrawn
    from shoal.jobs.job_failures import OutOfBudget as OutOfBudget
    from shoal.jobs.job_settings import CrowdSettings as CrowdSettings
    from shoal.jobs.job_settings import JobSettings as JobSettings
    from shoal_kit.manifest_book import ManifestBook as ManifestBook
    from shoal_protocol.crowds.tasks import CrowdTask as CrowdTask
    from shoal_protocol.queries.columns import ColumnBounds as ColumnBounds
    from shoal_protocol.sharing.schemes import AdditiveSharing as AdditiveSharing
    from shoal_protocol.sharing.schemes import ThresholdSharing as ThresholdSharing
    from shoal_studies.crowds.simulation import CrowdModel as CrowdModel
    from shoal_studies.simulation import SimulatedFederation as SimulatedFederation

_WHERE = {
    "AdditiveSharing": "shoal_protocol.sharing.schemes",
    "Analyst": "shoal.jobs.analyst",
    "ColumnBounds": "shoal_protocol.queries.columns",
    "CrowdJob": "shoal.jobs.analyst",
    "CrowdModel": "shoal_studies.crowds.simulation",
    "CrowdSettings": "shoal.jobs.job_settings",
    "CrowdTask": "shoal_protocol.crowds.tasks",
    "Federation": "shoal.jobs.federation",
    "Job": "shoal.jobs.analyst",
    "JobFailed": "shoal.jobs.job_failures",
    "JobWithdrawn": "shoal.jobs.job_failures",
    "JobInterrupted": "shoal.jobs.job_failures",
    "JobRefused": "shoal.jobs.job_failures",
    "JobSettings": "shoal.jobs.job_settings",
    "ManifestBook": "shoal_kit.manifest_book",
    "OutOfBudget": "shoal.jobs.job_failures",
    "SimulatedFederation": "shoal_studies.simulation",
    "ThresholdSharing": "shoal_protocol.sharing.schemes",
}
__all__ = sorted(_WHERE)


def __getattr__(name: str) -> object:
    """Load a name on first use: who reads a posterior needs no connection."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)
