"""Asks what an estimator is fitted on for the variables that its formula or levels are about."""

from collections.abc import Mapping
from typing import Any, TypeVar

from shoal.estimators.parameters import Parameters
from shoal.jobs.federation import CrowdFederation, Federation
from shoal.jobs.job_failures import JobRefused
from shoal_learning.coding import Variable
from shoal_learning.crowds.simulation import SimulatedCrowd
from shoal_learning.simulated_federation import SimulatedFederation

T = TypeVar("T")


def described(estimator: Parameters, learning: T) -> tuple[T, Mapping[str, Variable]]:
    """Return what to fit on, by the estimator's own variables, and the variables that it knows.

    A simulation takes levels and bounds from the estimator where nobody agreed on others. A real
    federation is asked for its data dictionary only where that can say more than the estimator; if
    it has none, places of levels are as the estimator orders them.

    Raises:
        ValueError: a parameter is not usable, or a simulation's records have no such variable.
        JobRefused: the variables are not all given, and there is no dictionary.
    """
    simulated: Any = getattr(learning, "with_variables", None)
    if simulated is not None:
        known = estimator._known()
        there = simulated(known.variables, counts_others=known.counts_others)
        there.require_variables(estimator._lacking())
        return there, there.variables()
    ask: Any = getattr(learning, "variables", None)
    if ask is None or not estimator._asks_for_variables():
        return learning, {}
    try:
        return learning, ask()
    except JobRefused:
        if estimator._lacking():
            raise
        return learning, {}


def require_fits(learning: object, targets: object, *, crowd: bool) -> None:
    """Check that an estimator can be fitted on this: on a crowd, or on a federation.

    Raises:
        ValueError: it is the other one, or neither, or there are targets beside it.
    """
    others = (Federation, SimulatedFederation) if crowd else (CrowdFederation, SimulatedCrowd)
    if not callable(getattr(learning, "learn", None)) or isinstance(learning, others):
        raise ValueError(
            "fit takes a crowd, for records stay with their holders: shoal's CrowdFederation, or "
            "the SimulatedCrowd of shoal_learning.crowds.simulation of records that you have"
            if crowd
            else "fit takes a federation, for records stay with their holders: shoal's "
            "Federation, or its SimulatedFederation of records that you have"
        )
    if targets is not None:
        raise ValueError(
            "fit takes no targets: they are a column of the records, and the parameter `target` "
            "or the formula names it"
        )
