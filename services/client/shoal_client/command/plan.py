"""`shoal plan`: what a study would cost by either protocol; it reads no file and asks nobody."""

import dataclasses
import math
from typing import Annotated, Any, get_args

import typer
from rich.table import Table

from shoal_client.command.terminal import AsJson, say, say_json, show
from shoal_client.planning import Prospect, Study, compare
from shoal_client.planning.comparing import formulas, trust
from shoal_client.planning.crowds import (
    contributions_needed,
    draw_and_discard,
    instances_for_load,
)
from shoal_client.planning.load import (
    ANSWER_SECONDS,
    assumed_open_sessions,
    sufficient_open_seconds,
)
from shoal_protocol.draw_and_discard.tasks import Clipping, Family, Variant
from shoal_protocol.schemes import ADDITIVE
from shoal_protocol.threshold import ThresholdSharing

_NAMES = {"distributed_compute": "in rounds (DCA)", "draw_and_discard": "Draw and Discard"}


def plan(
    clients: Annotated[int, typer.Option(help="How many clients, with one record each.")],
    features: Annotated[int, typer.Option(help="Features of the regression.")],
    epsilon: Annotated[float, typer.Option(help="What the study may cost one client.")],
    family: Annotated[Family, typer.Option(help=f"{', '.join(get_args(Family))}.")] = "logistic",
    delta: Annotated[float, typer.Option(help="For rounds; Draw and Discard needs none.")] = 1e-6,
    effect: Annotated[
        float, typer.Option(help="Assumed size of a coefficient, on the normalised scale.")
    ] = 0.3,
    residual_sd: Annotated[
        float, typer.Option(help="Assumed scatter of a linear target, in half ranges.")
    ] = 0.2,
    largest_count: Annotated[float, typer.Option(help="A Poisson target's upper bound.")] = 10.0,
    nodes: Annotated[int, typer.Option(help="Compute nodes.")] = 3,
    threshold: Annotated[
        int | None, typer.Option(help="How many of them open a sum; or all.")
    ] = None,
    dropouts: Annotated[
        int | None, typer.Option(help="Clients that may be missing; or 1 in 100.")
    ] = None,
    colluders: Annotated[
        int | None, typer.Option(help="Clients that may collude; or 1 in 100.")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Rounds of a logistic or Poisson job.")] = 100,
    batch: Annotated[int | None, typer.Option(help="Clients that a round asks; or all.")] = None,
    clip: Annotated[float | None, typer.Option(help="Largest gradient that a round keeps.")] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Learning rate of the rounds.")
    ] = None,
    instances: Annotated[
        int | None, typer.Option(help="Instances of a crowd job, k; or by --open-sessions, or 20.")
    ] = None,
    open_sessions: Annotated[
        float | None,
        typer.Option(
            help="Clients that have drawn and not yet answered: arrivals a second times seconds."
        ),
    ] = None,
    variant: Annotated[Variant, typer.Option(help=f"{', '.join(get_args(Variant))}.")] = "one",
    clipping: Annotated[
        Clipping, typer.Option(help=f"{', '.join(get_args(Clipping))}.")
    ] = "coordinate",
    step: Annotated[
        float | None, typer.Option(help="Learning rate of a crowd job; or the best one.")
    ] = None,
    contributions: Annotated[
        int, typer.Option(help="Contributions of each client, which share epsilon.")
    ] = 1,
    as_json: AsJson = False,
) -> None:
    """Say what a study would cost in rounds and by Draw and Discard, before it costs anything.

    From public sizes alone: rounds, bytes, and the expected root mean square error of the
    coefficients on the normalised scale, where features are in [-1, 1]. The error is computed for
    records that are assumed: see --effect. It is a guide for choosing, and within half of what
    simulations gave of up to 3,000 instances and 1,000,000 contributions; simulate before a
    study spends anything.
    """
    study = Study(
        family=family,
        clients=clients,
        features=features,
        epsilon=epsilon,
        delta=delta,
        effect=effect,
        residual_sd=residual_sd,
        largest_count=largest_count,
        nodes=nodes,
        sharing=ADDITIVE if threshold is None else ThresholdSharing(threshold=threshold),
        dropouts=dropouts,
        colluders=colluders,
        rounds=rounds,
        batch=batch,
        clip=clip,
        learning_rate=learning_rate,
        instances=_instances(instances, open_sessions, features + 1),
        open_sessions=open_sessions or 0.0,
        variant=variant,
        clipping=clipping,
        step=step,
        contributions_per_client=contributions,
    )
    prospects = compare(study)
    if as_json:
        say_json({"study": study.model_dump(mode="json"), **_values(study, prospects)})
        return
    _show(study, prospects)


def _instances(wanted: int | None, open_sessions: float | None, coefficients: int) -> int:
    if wanted is not None:
        return wanted
    return 20 if open_sessions is None else instances_for_load(open_sessions, coefficients)


def _values(study: Study, prospects: tuple[Prospect, ...]) -> dict[str, Any]:
    return {
        each.protocol: {
            **dataclasses.asdict(each),
            "error": {**dataclasses.asdict(each.error), "total": each.error.total},
            "trust": trust(each),
            "formulas": formulas(study, each),
            **(_load(study) if each.protocol == "draw_and_discard" else {}),
        }
        for each in prospects
    }


def _load(study: Study) -> dict[str, float]:
    return {
        "assumed_open_sessions": assumed_open_sessions(study),
        "sufficient_open_seconds": sufficient_open_seconds(study),
    }


def _show(study: Study, prospects: tuple[Prospect, ...]) -> None:
    table = Table("", *(_NAMES[each.protocol] for each in prospects))
    rows = {
        "times that all wait for each other": [f"{each.rounds:,}" for each in prospects],
        "times that one client takes part": [f"{each.answers:,}" for each in prospects],
        "bytes that it sends, in all": [f"{each.sent_bytes:,}" for each in prospects],
        "bytes that it receives": [f"{each.received_bytes:,}" for each in prospects],
        "bytes that all services take in": [f"{each.taken_in_bytes:,}" for each in prospects],
        "price of one client": [f"({study.epsilon:g}, {study.delta:g})", f"{study.epsilon:g}"],
        "expected error of a coefficient": [f"{each.error.total:.3g}" for each in prospects],
        "  by the privacy noise": [f"{each.error.noise:.3g}" for each in prospects],
        "  by sampling, without privacy too": [f"{each.error.sampling:.3g}" for each in prospects],
        "  by clipping, bounds and priors": [f"{each.error.bias:.3g}" for each in prospects],
        "  by ending too early": [f"{each.error.unfinished:.3g}" for each in prospects],
    }
    for what, cells in rows.items():
        table.add_row(what, *cells)
    show(table)
    say(f"An estimate of zero for every coefficient would err by {study.effect:g}.")
    if study.instances > 1:
        single = draw_and_discard(study.model_copy(update={"instances": 1}))
        say(
            f"With one instance instead of {study.instances} Draw and Discard would err by "
            f"{single.error.total:.3g}: instances are for load, and cost accuracy."
        )
    say(_of_the_load(study))
    needed = contributions_needed(study, study.effect / 4.0)
    many = "more than 10^12" if needed is None else f"about {needed:,}"
    say(
        f"For an error of a quarter of that, {study.effect / 4.0:.3g}, Draw and Discard would need "
        f"{many} contributions at this price each."
    )
    for each in prospects:
        name = _NAMES[each.protocol]
        if each.excluded is not None:
            say(f"{name}: not possible: {each.excluded}.")
        chosen = ", ".join(
            f"{what} {value if isinstance(value, str) else format(value, '.6g')}"
            for what, value in each.settings.items()
        )
        say(f"{name}, for: {chosen}.")
        say(f"{name}, trust: {trust(each)}")
        say(f"{name}, formulas: {formulas(study, each)}")
    say(_ASSUMED)


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
        f"job is to be open for {_duration(sufficient_open_seconds(study))} or longer; for other "
        "loads see --open-sessions."
    )


def _duration(seconds: float) -> str:
    """Return at least so many seconds, in two digits of the largest unit that fits."""
    for unit, size in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds > size:
            tenths = math.ceil(10.0 * seconds / size)
            return (
                f"{tenths / 10:g} {unit}" if tenths < 100 else f"{math.ceil(tenths / 10):,} {unit}"
            )
    return f"{max(1, math.ceil(seconds))} seconds"


_ASSUMED = (
    "Assumed: one record for each client, features spread evenly over their bounds and not "
    "correlated, coefficients of one size with alternating signs. Bytes are of documents and "
    "envelopes, without HTTP, TLS, manifest and roster."
)
