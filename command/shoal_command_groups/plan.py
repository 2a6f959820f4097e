"""`shoal plan`: says what a study would cost by either protocol."""

import dataclasses
import math
from typing import Annotated, Any

import typer

from shoal.planning import (
    ANSWER_SECONDS,
    Prospect,
    Study,
    assumed_open_sessions,
    compare,
    contributions_needed,
    draw_and_discard,
    instances_for_load,
    sufficient_open_seconds,
)
from shoal_command.options import with_options_of
from shoal_command.terminal import AsJson, tell
from shoal_protocol.privacy.job_costs import coalition_in_words, coalitions
from shoal_protocol.sharing.schemes import sharing_of

_NAMES = {"distributed_compute": "in rounds (DCA)", "draw_and_discard": "Draw and Discard"}


@with_options_of(
    Study,
    into="sizes",
    without=("sharing",),
    flags={"contributions_per_client": ("--contributions",)},
    family="logistic",
    delta=1e-6,
    instances=None,
)
def plan(
    sizes: dict[str, Any],
    threshold: Annotated[
        int | None, typer.Option(help="How many Compute nodes open a sum; or all.")
    ] = None,
    committee: Annotated[
        int | None, typer.Option(help="How many Compute nodes each client shares with; or all.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what a study would cost in rounds and by Draw and Discard, before it costs anything.

    From public sizes alone: rounds, bytes, and the expected root mean square error of the
    coefficients on the normalised scale, where features are in [-1, 1]. The error is computed for
    records that are assumed: see --effect. It is a guide for choosing, and within half of what
    simulations gave of up to 3,000 instances and 1,000,000 contributions; simulate before a
    study spends anything.
    """
    sharing = sharing_of(threshold, committee)
    study = Study.model_validate(sizes | {"sharing": sharing})
    if (study.open_sessions or study.horizon) and "instances" not in sizes:
        instances = instances_for_load(study.open_sessions, study.coefficients)
        study = Study.model_validate(sizes | {"sharing": sharing, "instances": instances})
    prospects = compare(study)
    tell(
        {"study": study, **_values(study, prospects)},
        as_json,
        _side_by_side(study, prospects),
        *_sentences(study, prospects),
    )


def _values(study: Study, prospects: tuple[Prospect, ...]) -> dict[str, Any]:
    load = {
        "assumed_open_sessions": assumed_open_sessions(study),
        "sufficient_open_seconds": sufficient_open_seconds(study),
    }
    return {
        each.protocol: {
            **dataclasses.asdict(each),
            "error": {**dataclasses.asdict(each.error), "total": each.error.total},
            **(load if each.protocol == "draw_and_discard" else {}),
        }
        for each in prospects
    }


def _side_by_side(study: Study, prospects: tuple[Prospect, ...]) -> list[dict[str, Any]]:
    prices = [f"({study.epsilon:g}, {study.delta:g})", f"{study.epsilon:g}"]
    rows: dict[str, list[Any]] = {
        "times that all wait for each other": [each.rounds for each in prospects],
        "times that one client takes part": [each.answers for each in prospects],
        "bytes that it sends, in all": [each.sent_bytes for each in prospects],
        "bytes that it receives": [each.received_bytes for each in prospects],
        "bytes that all services take in": [each.taken_in_bytes for each in prospects],
        "price of one client": prices,
        "expected error of a coefficient": [f"{each.error.total:.3g}" for each in prospects],
        "  by the privacy noise": [f"{each.error.noise:.3g}" for each in prospects],
        "  by sampling, without privacy too": [f"{each.error.sampling:.3g}" for each in prospects],
        "  by clipping, bounds and priors": [f"{each.error.bias:.3g}" for each in prospects],
        "  by ending too early, or lagging": [f"{each.error.unfinished:.3g}" for each in prospects],
    }
    names = [_NAMES[each.protocol] for each in prospects]
    return [{"": what, **dict(zip(names, cells, strict=True))} for what, cells in rows.items()]


def _sentences(study: Study, prospects: tuple[Prospect, ...]) -> list[str]:
    if study.horizon is None:
        needed = contributions_needed(study, study.effect / 4.0)
        many = "more than 10^12" if needed is None else f"about {needed:,}"
        aim = (
            f"For an error of a quarter of that, {study.effect / 4.0:.3g}, Draw and Discard would "
            f"need {many} contributions at this price each."
        )
    else:
        aim = (
            f"The error of Draw and Discard is the mean over {study.horizon:,} contributions after "
            "a turn of the truth that is as large as the coefficients are: its learning rate is "
            "the best between lag and noise. A job in rounds learns what was true at its time."
        )
    single = draw_and_discard(study.model_copy(update={"instances": 1}))
    instances = (
        f"With one instance instead of {study.instances} Draw and Discard would err by "
        f"{single.error.total:.3g}: instances are for load, and cost accuracy."
    )
    return [
        f"An estimate of zero for every coefficient would err by {study.effect:g}.",
        *([instances] if study.instances > 1 else []),
        _of_the_load(study),
        aim,
        *(sentence for each in prospects for sentence in _of_a_protocol(study, each)),
        "Assumed: one record for each client, features spread evenly over their bounds and not "
        "correlated, coefficients of one size with alternating signs. Bytes are of documents and "
        "envelopes, without HTTP, TLS, manifest and roster.",
    ]


def _of_a_protocol(study: Study, prospect: Prospect) -> list[str]:
    name = _NAMES[prospect.protocol]
    excluded = [] if prospect.excluded is None else [f"not possible: {prospect.excluded}."]
    chosen = ", ".join(
        f"{what} {value if isinstance(value, str) else format(value, '.6g')}"
        for what, value in prospect.settings.items()
    )
    chances: dict[int, float] = {}
    if study.sharing.committee is not None and prospect.protocol == "distributed_compute":
        opening = study.sharing.opening(study.nodes)
        chances = coalitions(nodes=study.nodes, committee=study.sharing.committee, opening=opening)
    return [
        *(f"{name}: {each}" for each in excluded),
        f"{name}, for: {chosen}.",
        f"{name}, trust: {prospect.trust}",
        *(
            f"{name}, coalitions: {coalition_in_words(size, chance)}."
            for size, chance in chances.items()
        ),
        f"{name}, formulas: {prospect.formulas}",
    ]


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
