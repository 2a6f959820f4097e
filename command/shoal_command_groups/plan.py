"""`shoal plan`: says what error to expect of a crowd job, and how to set it."""

import dataclasses
import math
from typing import Any

from shoal.planning import (
    ANSWER_SECONDS,
    Prospect,
    Study,
    assumed_open_sessions,
    draw_and_discard,
    instances_for_load,
    sufficient_open_seconds,
)
from shoal_command.options import with_options_of
from shoal_command.terminal import AsJson, tell


@with_options_of(
    Study,
    into="sizes",
    flags={"contributions_per_client": ("--contributions",)},
    family="logistic",
    instances=None,
)
def plan(sizes: dict[str, Any], as_json: AsJson = False) -> None:
    """Say what error to expect of a crowd job (Draw and Discard), before it costs anything.

    From public sizes alone: the learning rate that errs least, and the expected root mean square
    error of the coefficients on the normalised scale, where features are in [-1, 1]. The error is
    computed for records that are assumed: see --effect. It is a guide for choosing, and within half
    of what simulations gave of up to 3,000 instances and 1,000,000 contributions. What to expect of
    a job in rounds, simulate: see examples/planning.py.
    """
    study = Study.model_validate(sizes)
    if (study.open_sessions or study.horizon) and "instances" not in sizes:
        instances = instances_for_load(study.open_sessions, study.coefficients)
        study = Study.model_validate(sizes | {"instances": instances})
    prospect = draw_and_discard(study)
    tell(
        {
            "study": study,
            "error": {**dataclasses.asdict(prospect.error), "total": prospect.error.total},
            "settings": prospect.settings,
            "assumed_open_sessions": assumed_open_sessions(study),
            "sufficient_open_seconds": sufficient_open_seconds(study),
        },
        as_json,
        _table(study, prospect),
        *_sentences(study),
    )


def _table(study: Study, prospect: Prospect) -> dict[str, Any]:
    error = prospect.error
    return {
        "Price of one client": f"ε = {study.epsilon:g}",
        "Expected error of a coefficient": error.total,
        "by the privacy noise": error.noise,
        "by sampling, without privacy too": error.sampling,
        "by clipping": error.bias,
        "by ending too early, or lagging": error.unfinished,
        **prospect.settings,
    }


def _sentences(study: Study) -> list[str]:
    single = draw_and_discard(study.model_copy(update={"instances": 1}))
    instances = (
        f"With one instance instead of {study.instances} it would err by {single.error.total:.3g}: "
        "instances are for load, and cost accuracy."
    )
    return [
        f"An estimate of zero for every coefficient would err by {study.effect:g}.",
        *([instances] if study.instances > 1 else []),
        _of_the_load(study),
        *([] if study.horizon is None else [_of_a_turn(study.horizon)]),
        "Assumed: one record for each client, features spread evenly over their bounds and not "
        "correlated, coefficients of one size with alternating signs.",
    ]


def _of_a_turn(horizon: int) -> str:
    return (
        f"The error is the mean over {horizon:,} contributions after a turn of the truth that is "
        "as large as the coefficients are: the learning rate is the best between lag and noise."
    )


def _of_the_load(study: Study) -> str:
    """Say what the plan assumes of draws that overlap, and how long a job keeps to it."""
    most = assumed_open_sessions(study)
    overlaps = (
        f"that {most:g} draws are under way at a time, on average"
        if study.open_sessions
        else f"that every draw is answered before the next one; {most:g} under way at a time, "
        "on average, cost a tenth of the learning"
    )
    return (
        f"Assumed of the load: {overlaps}. With {ANSWER_SECONDS:g} s from a draw to its answer a "
        f"job is to be open for {math.ceil(sufficient_open_seconds(study) / 360.0) / 10.0:g} hours "
        "or longer; for other loads see --open-sessions."
    )
