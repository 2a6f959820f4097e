"""The analyst's pages, and the forms by which she submits and cancels jobs."""

import asyncio
import base64
import hashlib
import io
import re
import secrets
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from threading import Lock
from typing import Any, Final, TypeVar

from fastapi import FastAPI, Request
from starlette.responses import HTMLResponse, Response

from shoal.jobs.analyst import Analyst
from shoal.jobs.expected_error import ExpectedError
from shoal.jobs.job_failures import JobFailed
from shoal_command_groups import job_views
from shoal_command_groups.certificate_page import rendered
from shoal_command_groups.console import forms
from shoal_command_groups.crowd import described as crowd_described
from shoal_hosting.clock import Clock
from shoal_hosting.pages.console import HEADERS, START, Console, Form, application, go
from shoal_hosting.peers.exchange import Unavailable
from shoal_hosting.peers.service_calls import NoResult, Refused
from shoal_hosting.server.openapi import ID_PATTERN
from shoal_protocol.certificates.checks import verify_certificate
from shoal_protocol.certificates.posterior_report import PosteriorReport
from shoal_protocol.certificates.study_request import StudyRequest
from shoal_protocol.studies import STUDIES
from shoal_protocol.trust.dictionary import Category
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.errors import ProtocolError, UnknownJob
from shoal_protocol.wire.phases import CrowdPhase, JobPhase

_drawing = Lock()  # matplotlib's figures are the process's


def picture(report: PosteriorReport) -> bytes:
    """Return the report's `plot` as SVG, whose text stays text.

    Raises:
        ImportError: matplotlib is not installed.
    """
    with _drawing:
        try:
            import matplotlib

            matplotlib.use("agg")  # no window, whatever the machine has
            from matplotlib import pyplot
        except ImportError as error:
            raise ImportError("pictures need the extra `analysis`") from error
        with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "shoal"}):
            figure: Any = report.plot().figure
            drawn = io.BytesIO()
            figure.savefig(drawn, format="svg", metadata={"Date": None})
            pyplot.close(figure)
    return drawn.getvalue()


NEW, BUDGET, DICTIONARY = (f"{START}/{each}" for each in ("new", "budget", "dictionary"))
JOB: Final = f"{START}/jobs/{{job}}"
CROWDS: Final = f"{START}/crowds"
NEWEST_JOBS: Final = 50
PAGE_SECONDS: Final = 8.0  # for what a page only shows; what is sent is tried for longer
_OPEN: Final = (JobPhase.JOINING, JobPhase.RUNNING)
_REMEMBERED: Final = 64  # results and certificates, which do not change
T = TypeVar("T")
_FAULTS: Final = (Unavailable, Refused, NoResult, ProtocolError)


def console_of(analyst: Analyst, *, token: str, clock: Clock) -> FastAPI:
    """Return the analyst's console. Whoever has the `token` may sign in."""
    pages = _Pages(analyst, token=token, clock=clock)
    return application("Analyst's console", pages.console, token=token)


class _Pages:
    def __init__(self, analyst: Analyst, *, token: str, clock: Clock) -> None:
        self.analyst = analyst
        self._clock = clock
        self._requests: dict[str, StudyRequest] = {}
        self._reports: dict[str, PosteriorReport] = {}
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
            f"{JOB}/certificate.json": self.certificate_file,
            f"{JOB}/result.json": self.result_file,
        }.items():
            self.console.page(path, partial(self._or_why_not, show))
        for path, act in {
            f"{NEW}/check": self.check,
            f"{NEW}/submit": self.submit,
            f"{JOB}/cancel": self.cancel,
        }.items():
            self.console.action(path, partial(self._or_why_not, act))

    async def _or_why_not(
        self, show: Callable[..., Response], request: Request, *form: Form
    ) -> Response:
        try:
            async with asyncio.timeout(None if form else PAGE_SECONDS):
                return await asyncio.to_thread(show, request, *form)
        except (*_FAULTS, TimeoutError) as error:
            gone = isinstance(error, Unavailable | TimeoutError)
            remedy = f" {error.remedy}" if isinstance(error, ProtocolError) else ""
            return self.console.shown(
                request,
                "message.html",
                status=HTTPStatus.BAD_GATEWAY if gone else HTTPStatus.CONFLICT,
                heading="The trainer does not answer" if gone else "This cannot be done",
                message=f"{str(error) or 'It may be starting anew: try again soon'}.{remedy}",
            )

    def jobs(self, request: Request) -> Response:
        """Show all analysts' newest jobs."""
        listed = self.analyst.jobs(newest=NEWEST_JOBS)
        return self.console.shown(
            request,
            "jobs.html",
            jobs=listed.jobs,
            own=self.analyst.name,
            running=sum(each.phase in _OPEN for each in listed.jobs),
            most=NEWEST_JOBS,
        )

    def crowds(self, request: Request) -> Response:
        """Show all analysts' newest crowd jobs."""
        listed = self.analyst.crowds(newest=NEWEST_JOBS)
        own = self.analyst.name
        return self.console.shown(request, "crowds.html", crowds=listed, own=own, most=NEWEST_JOBS)

    def crowd(self, request: Request) -> Response:
        """Show what a crowd job asks, where it stands by the trainer's word, and its model."""
        job = self.analyst.crowd(_job_in(request))
        asked, state = job.request(), job.state()
        model = job.result() if state.phase is CrowdPhase.CLOSED else None
        summary = model.summary() if model is not None and model.contributions else None
        facts = crowd_described(asked, state, now=self._clock())
        return self.console.shown(
            request, "crowd.html", asked=asked, state=state, facts=facts, summary=summary
        )

    def budget(self, request: Request) -> Response:
        """Show how much epsilon clients have left for one more job."""
        listed = self.analyst.jobs(newest=1)
        cap = self.analyst.book.current.manifest.policy.cap
        return self.console.shown(request, "budget.html", budgets=listed.budgets, cap=cap)

    def dictionary(self, request: Request) -> Response:
        """Show the consortium's data dictionary."""
        variables = self.analyst.variables()
        return self.console.shown(request, "dictionary.html", variables=list(variables.values()))

    def new(self, request: Request) -> Response:
        """Show the form for a job of the kind that the address names."""
        name = request.query_params.get("task", "regression")
        return self._form(request, name if name in STUDIES else "regression", {})

    def _form(
        self, request: Request, name: str, form: Form, *, wrong: str = "", toml: str = ""
    ) -> Response:
        variables = self.analyst.variables()
        usable = [
            each
            for each in variables.values()
            if not each.retired and not isinstance(each, Category)
        ]
        return self.console.shown(
            request,
            "new.html",
            status=HTTPStatus.UNPROCESSABLE_ENTITY if wrong else HTTPStatus.OK,
            wrong=wrong,
            toml=toml or forms.example_of(name),
            name=name,
            names=list(STUDIES),
            parameters=forms.parameters_of(name),
            roles=forms.roles_of(name),
            variables=usable,
            numbers=forms.NUMBERS,
            form=form,
        )

    def check(self, request: Request, form: Form) -> Response:
        """Show what would become of the job of a form or a file; nothing is submitted."""
        try:
            toml = forms.toml_in(form)
        except ValueError as error:
            return self._form(request, form.get("task", "regression"), form, wrong=str(error))
        return self._checked(request, toml)

    def _checked(self, request: Request, toml: str) -> Response:
        try:
            file = forms.parsed(toml)
            report = self.analyst.check(file.task, file.settings)
        except ValueError as error:
            return self._form(request, "regression", {}, wrong=str(error), toml=toml)
        variables = self.analyst.variables()
        errors: tuple[ExpectedError, ...] | None = None
        unknown = ""
        try:
            errors = report.expected_errors(variables.values())
        except ValueError as error:
            unknown = str(error)
        return self.console.shown(
            request,
            "check.html",
            report=report,
            facts=job_views.check(report, errors),
            toml=toml,
            unknown=unknown,
            ticket=secrets.token_hex(16),
        )

    def submit(self, request: Request, form: Form) -> Response:
        """Submit a job; the same page sent twice is the same job."""
        ticket, toml = form.get("ticket", ""), form.get("toml", "")
        try:
            file = forms.parsed(toml)
        except ValueError as error:
            return self._form(request, "regression", {}, wrong=str(error), toml=toml)
        signed = self._submitted.get(ticket)
        if signed is None:  # of two threads that come here at once the first one's counts
            made = self.analyst.request(file.task, file.settings)
            signed = self._submitted.setdefault(ticket, made)
        self.analyst.job(signed.digest).hand_in(signed)
        return go(f"{START}/jobs/{signed.digest}")

    def job(self, request: Request) -> Response:
        """Show how a job stands and, once it is finished, its result."""
        job = _job_in(request)
        state, asked = self.analyst.job(job).state(), self._request(job)
        report = self._report(job) if state.has_result else None
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
            is_open=state.phase in _OPEN,
            is_own=asked.analyst == self.analyst.name,
            report=report,
            summary=None if report is None else report.summary(),
            facts={
                "Purpose": asked.purpose or "The request does not say.",
                "Asked by": asked.analyst,
                "Price": f"{job_views.price(asked.privacy.epsilon, asked.privacy.delta)} for each "
                "client who joined",
                **facts,
            },
        )

    def cancel(self, request: Request, form: Form) -> Response:
        """Cancel a job of her own."""
        job = _job_in(request)
        if form.get("sure") != "on":
            return self.console.shown(
                request,
                "message.html",
                status=HTTPStatus.CONFLICT,
                heading="Nothing was changed",
                message="A job that is cancelled does not come back: tick the box if you mean it.",
            )
        self.analyst.job(job).withdraw()
        return go(f"{START}/jobs/{job}")

    def picture(self, request: Request) -> Response:
        """Draw the posterior."""
        report = self._report(_job_in(request))
        try:
            drawn = picture(report)
        except ImportError as error:
            return Response(str(error), HTTPStatus.NOT_FOUND, HEADERS, "text/plain")
        return Response(drawn, headers=HEADERS, media_type="image/svg+xml")

    def result_file(self, request: Request) -> Response:
        """Hand out the report, verified, as JSON."""
        job = _job_in(request)
        content = (self._report(job)).model_dump_json(indent=2)
        return _file(f"result-{job[:12]}.json", content.encode())

    def certificate_file(self, request: Request) -> Response:
        """Hand out the release certificate, verified."""
        job = _job_in(request)
        return _file(f"certificate-{job[:12]}.json", self._certificate(job))

    def certificate(self, request: Request) -> Response:
        """Show the page of the release certificate, as `shoal certificate page` writes it."""
        encoded = self._certificate(_job_in(request))
        page = self._rendered(encoded)
        style = page.partition("<style>")[2].partition("</style>")[0].encode()
        digest = base64.b64encode(hashlib.sha256(style).digest()).decode()
        rule = f"default-src 'none'; style-src 'sha256-{digest}'; frame-ancestors 'none'"
        return HTMLResponse(page, headers=HEADERS | {"Content-Security-Policy": rule})

    def _rendered(self, encoded: bytes) -> str:
        book = self.analyst.book
        manifest = book.current.signed_manifest.encode()
        return rendered(verify_certificate(encoded, manifest, known=book.versions))

    def _certificate(self, job: str) -> bytes:
        encoded = self.analyst.job(job).certificate()
        if encoded is None:
            raise JobFailed("the job is not finished, and has no certificate yet")
        return encoded

    def _request(self, job: str) -> StudyRequest:
        if job not in self._requests:
            _remember(self._requests, job, self.analyst.job(job).request())
        return self._requests[job]

    def _report(self, job: str) -> PosteriorReport:
        if job not in self._reports:
            report = self.analyst.job(job).result()
            if report is None:
                raise JobFailed("the job has no posterior yet")
            _remember(self._reports, job, report)
        return self._reports[job]


def _remember(kept: dict[str, T], job: str, document: T) -> None:
    if len(kept) >= _REMEMBERED:
        kept.clear()
    kept[job] = document


def _job_in(request: Request) -> str:
    job = str(request.path_params["job"])
    if not re.fullmatch(ID_PATTERN, job):
        raise UnknownJob
    return job


def _file(name: str, content: bytes) -> Response:
    disposition = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(content, headers=HEADERS | disposition, media_type="application/json")
