"""All studies that an analyst may ask for. Each module of this package may define some.

The unions of tasks and posteriors and the list of names are collected from these modules.
"""

from functools import reduce
from importlib import import_module
from operator import or_
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field

from shoal_studies.catalogue.study import Study
from shoal_studies.posteriors.base import BasePosterior


def _defined_here() -> tuple[type[Study], ...]:
    """Return the studies of all modules of this package, in the order of their names."""
    modules = [import_module(f"{__name__}.{each.name}") for each in iter_modules(__path__)]
    found = [
        each
        for module in modules
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, Study) and each.__module__ == module.__name__
    ]
    return tuple(each for each in found if not each.model_fields["name"].is_required())


STUDIES: Final = {str(each.model_fields["name"].default): each for each in _defined_here()}
"""Every study's task, by its name."""

if TYPE_CHECKING:
    Task = Study
    Posterior = BasePosterior
    TaskName = str
else:
    Task = Annotated[reduce(or_, STUDIES.values()), Field(discriminator="name")]
    """Every task that a job may name."""
    Posterior = Annotated[
        reduce(or_, (each for study in STUDIES.values() for each in study.posteriors)),
        Field(discriminator="name"),
    ]
    """Every posterior that a job may end with."""
    TaskName = Literal[tuple(STUDIES)]
    """The names of all studies."""
