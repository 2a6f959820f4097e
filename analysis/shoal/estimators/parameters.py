"""Turns an estimator's parameters into a checked task, and raises where it is not fitted."""

import dataclasses
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, get_args

import numpy as np
import pydantic
from numpy.typing import NDArray

from shoal.estimators.columns import bounds_of, levels_in
from shoal.formulas import Formula, Known, about_zero, features_of, parse, parse_part, single
from shoal.jobs.federation import Learning
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.trust.dictionary import Number
from shoal_protocol.wire.documents import describe
from shoal_protocol.wire.encoding import canonical_text
from shoal_studies.coding import Variable, Variables, is_levels, is_names
from shoal_studies.posteriors.summaries import Summary, visible
from shoal_studies.simulation import SimulatedFederation

T = TypeVar("T")


def _one(given: object, parameter: str, known: Known) -> ColumnBounds | None:
    """Return the column of a parameter: its bounds, or a text that is a part of a formula.

    Raises:
        ValueError: it is neither, or not one column.
    """
    if given is None:
        return None
    if isinstance(given, str):
        return single(parse_part(given), parameter, known)
    columns = bounds_of(given, parameter, known)
    if len(columns) != 1:
        raise ValueError(f"{parameter} must be one column with its bounds, not {len(columns)}")
    return columns[0]


class NotFittedError(ValueError, AttributeError):
    """The estimator has not been fitted; of both kinds, as scikit-learn's error of that name."""


class Parameters:
    """The parameters of `task_type`, with its names and defaults, but for those that are `_fixed`.

    A subclass that names its `task_type` becomes a dataclass of them. Those that are columns in the
    task are given with their bounds or levels.

    A task of features and a target may have a `formula` in their place, whose variables are those
    of `variables`, or else of what it is fitted on: a federation's data dictionary.
    """

    task_type: ClassVar[type[Any]]
    _fixed: ClassVar[frozenset[str]] = frozenset({"name"})
    _formulaic: ClassVar[bool] = False
    _centres_target: ClassVar[bool] = False
    _answer: ClassVar[str] = "target"  # the parameter that is left of a formula's ~
    _kind: ClassVar[str | None] = None  # of estimator, as scikit-learn names it
    _from_zero: ClassVar[bool] = False  # whether it counts, events or time, and so from 0

    _variables: Mapping[str, Variable]  # by which rows are read
    _rows: ClassVar[str] = "columns"  # the task's columns that rows to predict have
    _task: Any  # that was learned
    n_features_in_: int
    feature_names_in_: NDArray[np.object_]

    if TYPE_CHECKING:  # they follow from the task

        def __init__(self, **parameters: Any) -> None: ...

    def __new__(cls, *positional: Any, **parameters: Any) -> Self:
        """Check that parameters are given by name, and that there are such parameters.

        Raises:
            ValueError: one is given by position, or there is no such parameter.
        """
        if positional:
            names = ", ".join(cls._parameter_names())
            raise ValueError(f"{cls.__name__} takes its parameters by name; it has {names}")
        cls._require_parameters(parameters)
        return super().__new__(cls)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "task_type" not in vars(cls):
            return
        cls.__annotations__ = dict(cls.__annotations__)
        cls._formulaic = {"features", cls._answer} <= cls.task_type.model_fields.keys()
        for name, field in cls.task_type.model_fields.items():
            if name not in cls._fixed:
                cls.__annotations__[name] = field.annotation
                if not field.is_required():
                    setattr(cls, name, field.default)
        if cls._formulaic:
            cls.__annotations__ |= {"formula": str | None, "variables": Variables | None}
            for name in ("features", cls._answer, "formula", "variables"):
                setattr(cls, name, None)
        dataclasses.dataclass(kw_only=True, eq=False, repr=False)(cls)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters as they were given."""
        return {name: getattr(self, name) for name in self._parameter_names()}

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters; fitted attributes stay as they are until the next `fit`.

        Raises:
            ValueError: there is no such parameter.
        """
        self._require_parameters(parameters)
        for name, value in parameters.items():
            setattr(self, name, value)
        return self

    def to_task(self, variables: Mapping[str, Variable] | None = None) -> Any:
        """Return the task that the parameters describe, as a federation gets it.

        `variables`: those of the federation's data dictionary, which `fit` asks for.

        Raises:
            ValueError: they describe none; the message names the parameter.
            ImportError: there is a formula, and formulaic is not installed.
        """
        own = {name: getattr(self, name) for name in self._fixed if hasattr(self, name)}
        given = {
            name: canonical_text(said) if isinstance(said, str) else said
            for name, said in (self.get_params() | own).items()
        }
        known = self._known().over(variables or {})
        given = self._designed(given, known)
        for name, read in self._column_parameters().items():
            given[name] = read(given[name], name, known)
        if self._from_zero:
            given[self._answer] = self._counted_from_zero(given[self._answer], variables or {})
        try:
            return self.task_type(**given)
        except pydantic.ValidationError as error:
            raise ValueError(f"{type(self).__name__}: {describe(error)}") from None

    def _task_for(self, learning: T) -> tuple[T, Any]:
        """Return what to fit on and the task; from now on rows are read by the variables there.

        Warns of variables whose missing values count as others, because the task does not read
        which they are.

        Raises:
            ValueError: as `described` and `to_task`.
        """
        there, known = described(self, learning)
        task = self.to_task(known)
        for name in task.column_names:
            variable = known.get(name)
            if variable and variable.indicator and variable.indicator.name not in task.column_names:
                warnings.warn(
                    f"records without a value of {name!r} count with one that the data dictionary "
                    "puts in its place, the middle of the bounds of a number: add "
                    f"{variable.indicator.name!r}, in a formula missing({name}), or the effect of "
                    f"{name!r} is blurred",
                    stacklevel=3,
                )
        self._variables = self._known().over(known).variables
        return there, task

    def _counted_from_zero(
        self, column: ColumnBounds, variables: Mapping[str, Variable]
    ) -> ColumnBounds:
        """Return a column of counts or times: the dictionary's bounds begin at 0 at the latest.

        Bounds that the parameters state stay as they are.
        """
        said, agreed = getattr(self, self._answer), variables.get(column.name)
        is_stated = column.name in self._known().variables or not (
            said is None or isinstance(said, str) or is_names(said)
        )
        if is_stated or not isinstance(agreed, Number) or column != agreed.bounds:
            return column
        return column.model_copy(update={"lower": min(column.lower, 0.0)})

    def _known(self) -> Known:
        """Return what the parameters say of variables.

        Raises:
            ValueError: they are not usable.
        """
        if not self._formulaic:
            return Known()
        known = Known.given(self.variables or {}, "variables")
        for parameter in self._column_parameters():
            known = known.joined(levels_in(getattr(self, parameter), parameter))
        return known

    def _read(self, formula: str) -> tuple[str, dict[str, str]]:
        """Return a formula of one target, and what parameters it gives besides."""
        return formula, {}

    def _designed(self, given: dict[str, Any], known: Known) -> dict[str, Any]:
        """Return a task's parameters with what a formula or the known variables say."""
        if not self._formulaic:
            return given
        formula = self._formula_in(given)
        if formula is None:
            return given
        target = single(formula.target, "target", known)
        given |= {"features": features_of(formula, known), self._answer: target}
        if formula.offset is not None:
            if given["offset"] is not None:
                raise ValueError("the formula has an offset: name no other one")
            given["offset"] = single(formula.offset, "offset", known)
        if not formula.constant:
            given["intercept"] = type(given["intercept"])(0)
            if self._centres_target:
                given["target"] = about_zero(target)
        return given

    def _formula_in(self, given: dict[str, Any]) -> Formula | None:
        """Take formula and variables out of the parameters, and return the former, or None.

        Raises:
            ValueError: there is neither a formula nor features and a target, or both; or the
                formula is not of this kind of task.
        """
        text = given.pop("formula")
        del given["variables"]
        columns = {name: given[name] for name in ("features", self._answer)}
        if text is None:
            for name, said in columns.items():
                if said is None:
                    raise ValueError(f"{type(self).__name__} needs {name}, or a formula")
            return None
        if not isinstance(text, str) or any(said is not None for said in columns.values()):
            both = f"features and {self._answer}"
            raise ValueError(
                f"a formula is a text, and says itself what {both} are: name no {both}"
            )
        plain, besides = self._read(text)
        given |= besides
        formula = parse(plain)
        if not formula.constant and "intercept" not in given:
            raise ValueError(
                "this regression has a constant: leave '- 1' and '0 +' out of the formula; but "
                "LinearRegressionInBounds takes them"
            )
        if formula.offset is not None and "offset" not in given:
            raise ValueError("this regression has no offset: subtract it from the target")
        return formula

    @staticmethod
    def _require_same(asked: pydantic.BaseModel, had: pydantic.BaseModel) -> None:
        """Check that a job had the task that the parameters describe.

        Raises:
            ValueError: it had another one; the message names the parameters.
        """
        values = had.model_dump()
        if names := [
            each for each, value in asked.model_dump().items() if values.get(each) != value
        ]:
            raise ValueError(f"the job was submitted with another {', '.join(names)}")

    @classmethod
    def _column_parameters(cls) -> dict[str, Callable[[object, str, Known], Any]]:
        """Return, by name, how the parameters are read that are columns in the task."""
        fields = cls.task_type.model_fields
        kinds = {name: fields[name].annotation for name in cls._parameter_names() if name in fields}
        return {
            name: _one if kind in (ColumnBounds, ColumnBounds | None) else bounds_of
            for name, kind in kinds.items()
            if kind is ColumnBounds or ColumnBounds in get_args(kind)
        }

    @classmethod
    def _require_parameters(cls, names: Iterable[str]) -> None:
        if unknown := sorted(set(names) - set(cls._parameter_names())):
            raise ValueError(
                f"{cls.__name__} has no parameter {', '.join(unknown)}; it has "
                f"{', '.join(cls._parameter_names())}"
            )

    @classmethod
    def _parameter_names(cls) -> tuple[str, ...]:
        return tuple(field.name for field in dataclasses.fields(cls))  # type: ignore[arg-type]

    def __repr__(self) -> str:
        fields: Any = dataclasses.fields(self)  # type: ignore[arg-type]
        given = [
            f"{field.name}={value!r}"
            for field in fields
            if (value := getattr(self, field.name)) is not field.default
        ]
        return f"{type(self).__name__}({', '.join(given)})"

    @property
    def _inputs(self) -> tuple[ColumnBounds, ...]:
        """Return the columns that rows must have."""
        return tuple(getattr(self._task, self._rows))

    def __sklearn_is_fitted__(self) -> bool:
        return "posterior_" in vars(self)

    def __getattr__(self, name: str) -> Any:
        """Say of an attribute that only a fit sets that there was none yet."""
        is_of_a_fit = name.endswith("_") or name.startswith("_")
        if is_of_a_fit and not name.startswith("__") and not self.__sklearn_is_fitted__():
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit first")
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def _repr_html_(self) -> str:
        if not self.__sklearn_is_fitted__():
            return Summary(visible(repr(self)), (), (), (("", "not fitted"),))._repr_html_()
        return str(self.summary()._repr_html_())

    def __sklearn_tags__(self) -> Any:
        """Say to scikit-learn, which is who asks, what kind of estimator this is."""
        from sklearn.utils import ClassifierTags, RegressorTags, Tags, TargetTags

        kind = self._kind
        return Tags(
            estimator_type=kind,
            target_tags=TargetTags(required=False),
            classifier_tags=ClassifierTags() if kind == "classifier" else None,
            regressor_tags=RegressorTags() if kind == "regressor" else None,
        )


class OfLevels(Parameters):
    """What has a variable with levels, {"stage": ("early", "late")}, or a name alone, "stage".

    Levels are texts, or numbers that records hold. Of a name alone they are the data dictionary's.
    """

    _leveled: ClassVar[str]
    """The parameter that is such a variable."""
    _counts_others: ClassVar[bool] = True
    """Whether records may have other levels, which a data dictionary then has, too."""

    def _levels(self) -> Mapping[str, Any]:
        """Return the levels that are meant, by variable; None where only the variable is named.

        Raises:
            ValueError: it is no variable.
        """
        said = getattr(self, self._leveled)
        named = {} if said is None else {said: None} if isinstance(said, str) else said
        if not isinstance(named, Mapping) or len(named) > 1:
            raise ValueError(
                f'{self._leveled} is one variable, "stage", or one with its levels, '
                '{"stage": ("early", "late")} or {"stage": (1, 2, 3)}'
            )
        return {canonical_text(str(name)): each for name, each in named.items()}

    def _known(self) -> Known:
        given = {name: said for name, said in self._levels().items() if is_levels(said)}
        known = super()._known().joined(Known.given(given, self._leveled))
        return dataclasses.replace(known, counts_others=self._counts_others)


def described(estimator: Parameters, learning: T) -> tuple[T, Mapping[str, Variable]]:
    """Return what to fit on, by the estimator's own variables, and the variables that are agreed.

    A simulation takes levels and bounds from the estimator where nobody agreed on others. A real
    federation is asked for its data dictionary; if it has none, places of levels are as the
    estimator orders them.

    Raises:
        ValueError: a parameter is not usable.
    """
    there: Any = learning
    if isinstance(learning, SimulatedFederation):
        there = learning.with_variables(estimator._known().variables)
    return there, {name: each for name, each in there.variables().items() if not each.retired}


def require_fits(learning: object, targets: object) -> None:
    """Check that an estimator can be fitted on this: on a federation.

    Raises:
        ValueError: it is none, or there are targets beside it.
    """
    if not isinstance(learning, Learning):
        raise ValueError(
            "fit takes a federation, for records stay with their holders: shoal's Federation, or "
            "its SimulatedFederation of records that you have"
        )
    if targets is not None:
        raise ValueError(
            "fit takes no targets: they are a column of the records, and the parameter `target` "
            "or the formula names it"
        )
