"""An estimator's parameters: stored as they are given, checked into a task; it learns nothing."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import pydantic

from shoal_client.estimators.columns import bounds_of, one_of
from shoal_protocol.documents import describe


class NotFittedError(ValueError, AttributeError):
    """The estimator has not been fitted; of both kinds, as scikit-learn's error of that name."""


class Parameters:
    """The parameters of a task, named as the task's own; each subclass is a dataclass of them.

    `column_parameters` says which of them are columns with their bounds, and of how many.
    """

    task_type: ClassVar[type[Any]]
    column_parameters: ClassVar[Mapping[str, Literal["one", "several"]]]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters as they were given."""
        return {name: getattr(self, name) for name in self._parameter_names()}

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters; what was fitted before stays as it is until the next `fit`.

        Raises:
            ValueError: there is no such parameter.
        """
        unknown = set(parameters) - set(self._parameter_names())
        if unknown:
            raise ValueError(
                f"{type(self).__name__} has no parameter {', '.join(sorted(unknown))}; it has "
                f"{', '.join(self._parameter_names())}"
            )
        for name, value in parameters.items():
            setattr(self, name, value)
        return self

    def _checked(self, **fixed: Any) -> Any:
        """Return the task that the parameters, and those that are `fixed`, describe.

        Raises:
            ValueError: they describe none; the message names the parameter.
        """
        given = {**self.get_params(), **fixed}
        for name, many in self.column_parameters.items():
            read = one_of if many == "one" else bounds_of
            given[name] = read(given[name], name)
        try:
            return self.task_type(**given)
        except pydantic.ValidationError as error:
            raise ValueError(f"{type(self).__name__}: {describe(error)}") from None

    @classmethod
    def _parameter_names(cls) -> tuple[str, ...]:
        return tuple(field.name for field in dataclasses.fields(cls))  # type: ignore[arg-type]

    def __repr__(self) -> str:
        given = []
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if field.default is dataclasses.MISSING or value is not field.default:
                given.append(f"{field.name}={value!r}")
        return f"{type(self).__name__}({', '.join(given)})"


def regressor_tags() -> Any:
    """Return what scikit-learn, which is installed if it asks, is told of a regression."""
    from sklearn.utils import RegressorTags, Tags, TargetTags

    return Tags(
        estimator_type="regressor",
        target_tags=TargetTags(required=False),
        regressor_tags=RegressorTags(),
    )


def classifier_tags() -> Any:
    """Return what scikit-learn is told of a classification by two classes."""
    from sklearn.utils import ClassifierTags, Tags, TargetTags

    return Tags(
        estimator_type="classifier",
        target_tags=TargetTags(required=False),
        classifier_tags=ClassifierTags(multi_class=False),
    )
