"""The options that state a consortium's policy, one for each of its fields."""

from collections.abc import Callable
from typing import Any, Final, get_args

from shoal_command.options import Command, with_options_of
from shoal_protocol.queries import QueryName
from shoal_protocol.trust.policy import Policy, all_but_one

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


def policy_of(rules: dict[str, Any], *, nodes: int) -> Policy:
    """Return the policy, with every query of this version and the noise that fits its delta.

    Where `rules` say nothing else, all but one of so many Compute `nodes` must sign the log.

    Raises:
        pydantic.ValidationError: a value is out of range.
    """
    fitting = ["discrete_gaussian" if rules["delta"] else "discrete_laplace"]
    rules = rules | {"cosignatures": rules.get("cosignatures") or all_but_one(nodes)}
    return Policy.model_validate({"mechanisms": fitting, "queries": get_args(QueryName)} | rules)
