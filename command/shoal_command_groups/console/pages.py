"""The analyst's pages, and the forms by which she submits and cancels jobs."""

import asyncio
import base64
import hashlib
import io
import secrets
import tomllib
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from threading import Lock
from typing import Any, Final

from fastapi import FastAPI, Request
from starlette.responses import HTMLResponse, Response

from shoal import plots
from shoal.jobs.analyst import Analyst
from shoal.jobs.job_failures import JobFailed
from shoal.jobs.task_files import TaskFile, example, parse_task_file
from shoal_agent.console.sentences import price
from shoal_command_groups import job_views
from shoal_command_groups.certificate_page import rendered
from shoal_command_groups.crowd import described as crowd_described
from shoal_kit.clock import Clock
from shoal_kit.pages.console import HEADERS, START, Console, Form, application, go
from shoal_kit.web.openapi import checked_id
from shoal_protocol.certificates.checks import verify_certificate
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.phases import CrowdPhase
from shoal_studies.posterior_report import PosteriorReport
from shoal_studies.registry import STUDIES
from shoal_studies.study_request import StudyRequest

_drawing = Lock()  # matplotlib's figures are the process's


def picture(report: PosteriorReport) -> bytes:
    """Return the report's posterior with its price as SVG, whose text stays text.

    Raises:
        ImportError: matplotlib is not installed.
    """
    with _drawing:
        import matplotlib

        matplotlib.use("agg")  # no window, whatever the machine has
        from matplotlib import pyplot

        with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "shoal"}):
            figure: Any = plots.draw(report.posterior, caption=str(report.privacy)).figure
            drawn = io.BytesIO()
            figure.savefig(drawn, format="svg", metadata={"Date": None})
            pyplot.close(figure)
    return drawn.getvalue()


NEW, BUDGET, DICTIONARY = (f"{START}/{each}" for each in ("new", "budget", "dictionary"))
JOB: Final = f"{START}/jobs/{{job}}"
CROWDS: Final = f"{START}/crowds"
NEWEST_JOBS: Final = 50


def console_of(analyst: Analyst, *, token: str, clock: Clock) -> FastAPI:
    """Return the analyst's console. Whoever has the `token` may sign in."""
    return application(
        "Analyst's console", _Pages(analyst, token=token, clock=clock).console, token=token
    )


class _Pages:
    def __init__(self, analyst: Analyst, *, token: str, clock: Clock) -> None:
        self.analyst = analyst
        self._clock = clock
        self._submitted: dict[str, Signed[StudyRequest]] = {}  # by the form's ticket
        self.console = Console(
            title="Shoal, analyst",
            sections={
                START: "Jobs",
                CROWDS: "Crowd jobs",
                NEW: "New job",
                BUDGET: "Budget",
                DICTIONARY: "Dictionary",
            },
            token=token,
            token_file="what “shoal console” printed at its start",
            package=__package__,
            clock=clock,
            is_encrypted=False,  # it never leaves the machine
        )
        self.console.serve(
            "The trainer",
            {
                path: _in_thread(show)
                for path, show in {
                    START: self.jobs,
                    NEW: self.new,
                    BUDGET: self.budget,
                    DICTIONARY: self.dictionary,
                    JOB: self.job,
                    CROWDS: self.crowds,
                    f"{CROWDS}/{{job}}": self.crowd,
                    f"{JOB}/picture.svg": self.picture,
                    f"{JOB}/certificate": self.certificate,
                }.items()
            },
            {
                f"{NEW}/check": _in_thread(self.check),
                f"{NEW}/submit": _in_thread(self.submit),
            },
            {f"{JOB}/cancel": _in_thread(self.cancel)},
        )

    def jobs(self, request: Request) -> Response:
        """Show all analysts' newest jobs."""
        listed = self.analyst.jobs(newest=NEWEST_JOBS)
        return self.console.shown(
            request,
            "jobs.html",
            jobs=listed.jobs,
            own=self.analyst.name,
            running=sum(each.phase in job_views.OPEN_PHASES for each in listed.jobs),
            most=NEWEST_JOBS,
        )

    def crowds(self, request: Request) -> Response:
        """Show all analysts' newest crowd jobs."""
        listed = self.analyst.crowds(newest=NEWEST_JOBS)
        return self.console.shown(
            request, "crowds.html", crowds=listed, own=self.analyst.name, most=NEWEST_JOBS
        )

    def crowd(self, request: Request) -> Response:
        """Show what a crowd job asks, where it stands by the trainer's word, and its model."""
        job = self.analyst.crowd(_job_in(request))
        asked, state = job.request(), job.state()
        model = job.result() if state.phase is CrowdPhase.CLOSED else None
        summary = model.summary() if model is not None and model.contributions else None
        return self.console.shown(
            request,
            "crowd.html",
            asked=asked,
            state=state,
            facts=crowd_described(asked, state, now=self._clock()),
            summary=summary,
        )

    def budget(self, request: Request) -> Response:
        """Show how much epsilon clients have left for one more job."""
        listed = self.analyst.jobs(newest=1)
        cap = self.analyst.book.current.manifest.policy.cap
        return self.console.shown(request, "budget.html", budgets=listed.budgets, cap=cap)

    def dictionary(self, request: Request) -> Response:
        """Show the consortium's data dictionary."""
        return self.console.shown(
            request, "dictionary.html", variables=list(self.analyst.variables().values())
        )

    def new(self, request: Request) -> Response:
        """Show the task file of the kind of job that the address names, to be changed and sent."""
        name = request.query_params.get("task", "regression")
        return self._text(request, example(name if name in STUDIES else "regression"))

    def _text(self, request: Request, toml: str, *, wrong: str = "") -> Response:
        status = HTTPStatus.UNPROCESSABLE_ENTITY if wrong else HTTPStatus.OK
        return self.console.shown(
            request, "new.html", status=status, wrong=wrong, toml=toml, names=list(STUDIES)
        )

    def check(self, request: Request, form: Form) -> Response:
        """Show what would become of the job of a task file; nothing is submitted."""
        toml = form.get("toml", "").replace("\r\n", "\n")
        try:
            file = parsed(toml)
            report = self.analyst.check(file.task, file.settings)
        except ValueError as error:
            return self._text(request, toml, wrong=str(error))
        errors = job_views.simulated(report, self.analyst.variables().values())
        return self.console.shown(
            request,
            "check.html",
            report=report,
            facts=job_views.check(report, errors),
            toml=toml,
            ticket=secrets.token_hex(16),
        )

    def submit(self, request: Request, form: Form) -> Response:
        """Submit a job; the same page sent twice is the same job."""
        ticket, toml = form.get("ticket", ""), form.get("toml", "")
        try:
            file = parsed(toml)
            signed = self._submitted.get(ticket)
            if signed is None:  # of two threads that come here at once the first one's counts
                signed = self._submitted.setdefault(
                    ticket, self.analyst.request(file.task, file.settings)
                )
        except ValueError as error:
            return self._text(request, toml, wrong=str(error))
        self.analyst.job(signed.digest).hand_in(signed)
        return go(f"{START}/jobs/{signed.digest}")

    def job(self, request: Request) -> Response:
        """Show how a job stands and, once it is finished, its result."""
        handle = self.analyst.job(_job_in(request))
        state, asked = handle.state(), handle.request()
        report = handle.result() if state.has_result else None
        facts = job_views.progress(
            state,
            rounds=asked.task.rounds,
            join_deadline=asked.join_deadline,
            now=self._clock(),
        )
        return self.console.shown(
            request,
            "job.html",
            state=state,
            asked=asked,
            is_open=state.phase in job_views.OPEN_PHASES,
            is_own=asked.analyst == self.analyst.name,
            report=report,
            summary=None if report is None else report.summary(),
            facts={
                "Purpose": asked.purpose or "The request does not say.",
                "Asked by": asked.analyst,
                "Price": f"{price(asked.privacy.cap)} for each client who joined",
                **facts,
            },
        )

    def cancel(self, request: Request, form: Form) -> Response:
        """Cancel a job of her own."""
        job = _job_in(request)
        self.analyst.job(job).withdraw()
        return go(f"{START}/jobs/{job}")

    def picture(self, request: Request) -> Response:
        """Draw the posterior."""
        report = self.analyst.job(_job_in(request)).result()
        if report is None:
            raise JobFailed("the job has no posterior yet")
        try:
            drawn = picture(report)
        except ImportError:
            return Response(
                "pictures need the extra `analysis`", HTTPStatus.NOT_FOUND, HEADERS, "text/plain"
            )
        return Response(drawn, headers=HEADERS, media_type="image/svg+xml")

    def certificate(self, request: Request) -> Response:
        """Show the page of the release certificate, as `shoal certificate page` writes it."""
        book = self.analyst.book
        manifest = book.current.signed_manifest.encode()
        encoded = self.analyst.job(_job_in(request)).certificate()
        if encoded is None:
            raise JobFailed("the job is not finished, and has no certificate yet")
        page = rendered(verify_certificate(encoded, manifest, known=book.versions))
        style = page.partition("<style>")[2].partition("</style>")[0].encode()
        digest = base64.b64encode(hashlib.sha256(style).digest()).decode()
        rule = f"default-src 'none'; style-src 'sha256-{digest}'; frame-ancestors 'none'"
        return HTMLResponse(page, headers=HEADERS | {"Content-Security-Policy": rule})


def _in_thread(show: Callable[..., Response]) -> Callable[..., Awaitable[Response]]:
    """Return `show` as the event loop takes it: the analyst's client waits for answers."""
    return lambda *request: asyncio.to_thread(show, *request)


def parsed(toml: str) -> TaskFile:
    """Read a task file's text.

    Raises:
        ValueError: it is not TOML, or something in it is missing, unknown or out of range.
    """
    try:
        return parse_task_file(tomllib.loads(toml))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"this is not TOML: {error}") from None


def _job_in(request: Request) -> str:
    return checked_id(request.path_params["job"])
