"""The options that state a consortium's policy, one for each of its fields."""

from collections.abc import Callable
from typing import Any, Final, get_args

from shoal_command.options import Command, with_options_of
from shoal_protocol.queries import QueryName
from shoal_protocol.trust.policy import Policy

_FLAGS: Final = {
    "mechanisms": ("--mechanism",),
    "minimum_threshold": ("--minimum-threshold", "--threshold"),
}


def policy_options(**defaults: Any) -> Callable[[Command], Command]:
    """Return a decorator that gives a command the options of a policy, as its argument `rules`."""
    standing = {"mechanisms": None, "maximum_round_seconds": 86_400}
    return with_options_of(
        Policy, into="rules", without=("queries",), flags=_FLAGS, **standing | defaults
    )


def policy_of(rules: dict[str, Any]) -> Policy:
    """Return the policy, with every query of this version and the noise that fits its delta.

    Raises:
        pydantic.ValidationError: a value is out of range.
    """
    fitting = ["discrete_gaussian" if rules["delta"] else "discrete_laplace"]
    return Policy.model_validate({"mechanisms": fitting, "queries": get_args(QueryName)} | rules)
