"""An analyst's client for scripts and notebooks; asynchronous programs call it in a thread.

analyst = Analyst.open("my-party", "consortium")
job = analyst.submit(task, JobSettings(epsilon=1.0, delta=1e-6, dropouts=20, colluders=20, ...))
report = job.wait()
report.posterior.interval(0.95)

crowd = analyst.open_crowd(task, CrowdSettings(contributions=100_000, ...))
crowd.snapshot().coefficients     # at any time
model = crowd.wait()              # when it is closed, by what the trainer signed
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

import httpx
import nacl.utils
import pydantic
from nacl.signing import SigningKey
from rich.console import Console
from rich.text import Text

from shoal.jobs.job_check import DeclarationPage, JobCheckReport, TrainersWord, newest, report
from shoal.jobs.job_failures import (
    JobFailed,
    JobInterrupted,
    JobRefused,
    OutOfBudget,
    failure,
    in_doubt,
    naming_columns,
)
from shoal.jobs.job_settings import CrowdSettings, JobSettings
from shoal.jobs.job_states import (
    CrowdsPage,
    CrowdState,
    JobsPage,
    ListedCrowd,
    Snapshot,
)
from shoal.jobs.round_documents import Notice
from shoal.jobs.trainer_line import (
    PATIENT_TRIES,
    TRIES,
    TrainerLine,
    no_notice,
    shaped,
)
from shoal_holder.crowds.crowd import Crowd, LogPage, checked_closing
from shoal_kit.clock import Clock, system_clock
from shoal_kit.manifest_book import ManifestBook
from shoal_kit.outcome import ACCEPTED, OK
from shoal_kit.party import load_party
from shoal_kit.peers.exchange import LARGEST_ANSWER_BYTES, Reply, Unavailable
from shoal_kit.startup import read_pin
from shoal_protocol.certificates.checks import verify_certificate
from shoal_protocol.certificates.release_certificate import read_certificate, unpack
from shoal_protocol.crowds.draws import (
    CrowdClosing,
    CrowdJobRequest,
    CrowdOpening,
    InstanceChain,
    check_closing,
    check_opening,
)
from shoal_protocol.crowds.tasks import CrowdTask
from shoal_protocol.jobs.job_state import JobState
from shoal_protocol.jobs.membership import JobWithdrawal
from shoal_protocol.sharing.shares import RandomBytes
from shoal_protocol.trust.dictionary import (
    Category,
    DataDictionary,
    Date,
    Flag,
    Number,
    read_dictionary,
)
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.documents import BoundDocument, Signed, decode, describe, sign
from shoal_protocol.wire.errors import (
    MalformedDocument,
    ProtocolError,
    UnknownJob,
    UnknownManifest,
    WrongPhase,
)
from shoal_protocol.wire.service_errors import BudgetExceeded
from shoal_studies.crowds.simulation import CrowdModel
from shoal_studies.posterior_report import PosteriorReport
from shoal_studies.posteriors.summaries import visible
from shoal_studies.registry import Task
from shoal_studies.study_request import JobCheck, JobsQuery, StudyRequest

POLL_SECONDS: Final = 2  # between two states that `wait` shows
SHORTEST_PAUSE_SECONDS: Final = 0.1  # even if the trainer does not hold its answers back
CERTIFICATE_SECONDS: Final = 10  # a large one takes some
_PAGE: Final = 1000  # jobs, or declarations

_LINES: Final = 10  # at most, of the rounds of one job

T = TypeVar("T")
BoundT = TypeVar("BoundT", bound=BoundDocument)
RequestT = TypeVar("RequestT", StudyRequest, CrowdJobRequest)
StateT = TypeVar("StateT", JobState, CrowdState)
ResultT = TypeVar("ResultT")
PageT = TypeVar("PageT", JobsPage, CrowdsPage, DeclarationPage)
ShapeT = TypeVar("ShapeT", bound=pydantic.BaseModel)


def told(console: Console | None, text: str) -> None:
    """Print a line of plain text, if there is a console."""
    if console is not None:
        console.print(Text(visible(text)), soft_wrap=True)


def refuse(answer: Reply, request: StudyRequest | CrowdJobRequest | None = None) -> None:
    """Raise what a refusal of a job says; any other answer is left to the caller.

    Raises:
        OutOfBudget: too few clients can pay for it.
        JobRefused: the trainer does not take it, for another reason.
    """
    if answer.is_refusal:
        refusal = OutOfBudget if answer.code == BudgetExceeded.code else JobRefused
        reason = answer.reason if request is None else naming_columns(answer.reason, request)
        raise refusal(reason)


class JobHandle(ABC, Generic[RequestT, StateT, ResultT]):
    """A job at the trainer, by its id.

    Every method raises `Unavailable` if the trainer did not answer, several times,
    `JobRefused` if it does not know the job, and `ProtocolError` for what is not signed as it
    should be.
    """

    _path: ClassVar[str]
    _request_type: type[RequestT]
    _state_type: type[StateT]

    def __init__(self, job: str, analyst: "Analyst", console: Console | None = None) -> None:
        """Ask for `job` in the name of `analyst`; `wait` prints progress on `console`."""
        self.id: str = job
        self._analyst: Analyst = analyst
        self._line = analyst.line
        self._console = console

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    def hand_in(self, request: Signed[RequestT]) -> Self:
        """Hand the job's request to the trainer, and return the job. The same request is the same.

        Raises:
            OutOfBudget: too few clients can pay for it.
            JobRefused: the trainer does not take it, for another reason.
            JobInterrupted: by the user; the trainer may have taken the job, or not.
            Unavailable: no answer, several times; the trainer may have taken the job, or not.
        """
        try:
            answer = self._line.ask(self._path, request.encode(), tries=PATIENT_TRIES)
        except KeyboardInterrupt:
            raise JobInterrupted(self.id, acknowledged=False) from None
        except Unavailable as error:
            raise Unavailable(f"{error}. {in_doubt(self.id)}") from None
        refuse(answer, request.body)
        return self

    def variables(self) -> dict[str, Number | Flag | Category | Date]:
        """Return the data dictionary's variables by name, as `Analyst.variables`."""
        return self._analyst.variables()

    def request(self) -> RequestT:
        """Return the job's request, as its analyst signed it."""
        return self._submitted.body

    @cached_property
    def _submitted(self) -> Signed[RequestT]:
        signed = decode(self._document("request") or b"", self._request_type)
        self._consortium(signed.body.manifest).verify(signed)
        if signed.digest != self.id:
            raise UnknownJob("the request is of another job")
        return signed

    def _get_of_job(self, what: str, wait_seconds: int, tries: int) -> Reply:
        path = f"{self._path}/{self.id}/{what}"
        return self._line.ask(
            path, tries=tries, limit_bytes=LARGEST_ANSWER_BYTES, wait=wait_seconds
        )

    def _document(self, what: str, wait_seconds: int = 0, tries: int = TRIES) -> bytes | None:
        """Return a document of the job; None if there is none yet."""
        answer = self._get_of_job(what, wait_seconds, tries)
        if answer.status not in (OK, ACCEPTED):
            raise failure(answer.code, answer.reason)
        return answer.body if answer.status == OK else None

    def _consortium(self, manifest: str) -> Consortium:
        """Return a version; one that is not known here is asked for, and must follow ours."""
        book = self._analyst.book
        with suppress(UnknownManifest):
            return book.get(manifest)
        self._line.catch_up()
        try:
            return book.get(manifest)
        except UnknownManifest:
            raise UnknownManifest(
                f"the job is bound to the manifest {manifest}, which is not among the versions at "
                f"hand, {book.versions[0].manifest.sequence} to {book.current.manifest.sequence}: "
                "get the consortium's directory of now, with its whole history"
            ) from None

    def state(self, *, tries: int = TRIES) -> StateT:
        """Return the job's present state by the trainer's word, unsigned."""
        return self._line.read(self._state_type, f"{self._path}/{self.id}", tries)

    @abstractmethod
    def result(self, *, wait_seconds: int = 0, tries: int = TRIES) -> ResultT | None:
        """Return the job's verified result, or None if there is none yet."""

    def wait(self, progress: Callable[[StateT], None] | None = None) -> ResultT:
        """Wait for the verified result; `progress` is called with each new state.

        Without `progress` the states of a federation's job are printed, where it shows progress.

        Raises:
            JobFailed: the job ended without one: `JobWithdrawn` if it was withdrawn.
            JobInterrupted: by the user; the job goes on.
        """
        try:
            return self._waited(progress or self._printed())
        except KeyboardInterrupt:
            raise JobInterrupted(self.id) from None

    def in_words(self, state: StateT) -> str:
        """Say in one line where the job stands."""
        return str(state)

    def _step(self, state: StateT) -> object:
        """Return what makes a state worth a line of progress when it changes."""
        return self.in_words(state)

    def _printed(self) -> Callable[[StateT], None]:
        """Return what prints a state after each step of the job; nothing without a console."""
        last: object = None

        def show(state: StateT) -> None:
            nonlocal last
            if self._console is not None and (step := self._step(state)) != last:
                told(self._console, self.in_words(state))
                last = step

        told(self._console, f"Job {self.id}")
        return show

    def _waited(self, progress: Callable[[StateT], None]) -> ResultT:
        last = None
        while True:
            state = self.state(tries=PATIENT_TRIES)
            if state != last:
                progress(state)
                last = state
            seconds = 0 if state.has_result else POLL_SECONDS
            if (result := self.result(wait_seconds=seconds, tries=PATIENT_TRIES)) is not None:
                if not state.has_result:
                    progress(self.state())
                return result
            time.sleep(SHORTEST_PAUSE_SECONDS)


class Job(JobHandle[StudyRequest, JobState, PosteriorReport]):
    """A job in rounds at the trainer, by its id."""

    _path = "/v1/jobs"
    _request_type = StudyRequest
    _state_type = JobState

    def in_words(self, state: JobState) -> str:
        """Say in one line where the job stands, as its request sets rounds and deadlines."""
        request = self.request()
        return state.in_words(rounds=request.task.rounds, join_deadline=request.join_deadline)

    def _step(self, state: JobState) -> object:
        tenth = (state.published + state.lost) // -(-self.request().task.rounds // _LINES)
        return state.phase, state.approvals, tenth

    def result(self, *, wait_seconds: int = 0, tries: int = TRIES) -> PosteriorReport | None:
        """Return the verified report, or None if there is none yet.

        The trainer holds its answer back for up to `wait_seconds` while there is none.

        Raises:
            JobFailed: the job ended without one: `JobWithdrawn` if it was withdrawn.
        """
        document = self._document("result", wait_seconds, tries)
        if document is None:
            return None
        signed = decode(document, PosteriorReport)
        self._consortium(signed.body.manifest).verify(signed)
        if signed.body.job != self.id:
            raise UnknownJob("the report is of another job")
        return signed.body

    def certificate(self, *, tries: int = TRIES) -> bytes | None:
        """Return the verified release certificate, or None if the job is not finished.

        These bytes, kept as they are, can be checked by anyone who has the consortium's manifest:
        `shoal certificate verify`.

        Raises:
            JobFailed: the job ended without one.
            Unavailable: no answer, several times, or a Compute node did not sign its total yet.
        """
        answer = self._get_of_job("certificate", CERTIFICATE_SECONDS, tries)
        if answer.is_refusal and answer.code == WrongPhase.code:
            return None
        if answer.is_refusal and answer.code == "certificate-incomplete":
            raise Unavailable(answer.reason)
        if answer.status != OK:
            raise failure(answer.code, answer.reason)
        encoded = unpack(answer.body)
        bound_to = read_certificate(encoded).manifest
        self._consortium(bound_to)  # and those before it, if it is new here
        book = self._analyst.book
        manifest = book.current.signed_manifest.encode()
        verified = verify_certificate(encoded, manifest, known=book.versions)
        if verified.certificate.job != self.id:
            raise UnknownJob("the certificate is of another job")
        return encoded

    def withdraw(self) -> None:
        """Withdraw the job: it asks nothing more, and reserved budgets are freed.

        What answered rounds cost stays charged. Who waits for it gets `JobWithdrawn`. Every
        Compute node that answers is told first, so that no trainer goes on with it.

        Raises:
            JobRefused: the job has ended, or is another analyst's.
        """
        request, own = self._submitted, self._analyst
        if request.body.analyst != own.name:
            raise JobRefused(f"the job is {request.body.analyst}'s to withdraw")
        signed = own.signed(
            JobWithdrawal(manifest=request.body.manifest, job=self.id, analyst=own.name)
        )
        self._line.post_to_nodes("/v1/jobs", request.encode())
        self._line.post_to_nodes("/v1/withdrawals", signed.encode())
        answer = self._line.ask(f"{self._path}/{self.id}/withdrawal", signed.encode())
        if answer.is_refusal:
            raise JobRefused(answer.reason)


class CrowdJob(JobHandle[CrowdJobRequest, CrowdState, CrowdModel]):
    """A crowd job at the trainer, by its id: watch it, take its model, verify how it ended.

    While it is open nothing that the trainer says of it is signed but request, opening and draws;
    once it is closed, everything is bound by its closing.
    """

    _path = "/v1/crowds"
    _request_type = CrowdJobRequest
    _state_type = CrowdState

    @cached_property
    def crowd(self) -> Crowd:
        """The job's request and opening, verified."""
        request = self.request()
        consortium = self._consortium(request.manifest)
        opening = decode(self._document("opening") or b"", CrowdOpening)
        consortium.verify(opening)
        check_opening(opening.body, request)
        return Crowd(request, opening.body, consortium)

    def snapshot(self) -> CrowdModel:
        """Return the model as it is now, by the trainer's word.

        Raises:
            ProtocolError: it is no model of the job's task.
        """
        crowd = self.crowd
        shown = self._line.read(Snapshot, f"{self._path}/{self.id}/instances")
        try:
            return CrowdModel(
                task=crowd.request.task,
                contributions=shown.contributions,
                instances=tuple(instance.weights for instance in shown.instances),
            )
        except pydantic.ValidationError as error:
            raise MalformedDocument(describe(error, CrowdModel)) from None

    def closing(self, *, wait_seconds: int = 0, tries: int = TRIES) -> Signed[CrowdClosing] | None:
        """Return the job's closing, which follows from its opening; None while it is open."""
        crowd = self.crowd
        document = self._document("closing", wait_seconds, tries)
        if document is None:
            return None
        signed, now = checked_closing(crowd, document), self._analyst.clock()
        check_closing(signed.body, crowd.opening, crowd.request, crowd.consortium, now=now)
        return signed

    def result(self, *, wait_seconds: int = 0, tries: int = TRIES) -> CrowdModel | None:
        """Return the model by the signed closing, or None while the job is open."""
        closing = self.closing(wait_seconds=wait_seconds, tries=tries)
        if closing is None:
            return None
        return CrowdModel.closed(self.crowd.request.task, closing.body)

    def close(self) -> CrowdClosing:
        """Have the job closed now, for good; return its closing, which says so.

        Only the analyst who opened a job can. What was contributed stays in the model; draws that
        were not answered by now are refused. A job that is closed stays as it is.

        Raises:
            JobRefused: it is another analyst's.
            JobFailed: the trainer says that it closed the job, and shows no closing.
        """
        crowd, own = self.crowd, self._analyst
        asked = JobWithdrawal(manifest=crowd.request.manifest, job=self.id, analyst=own.name)
        path = f"{self._path}/{self.id}/closing"
        answer = self._line.ask(path, own.signed(asked).encode())
        if answer.is_refusal:
            raise JobRefused(answer.reason)
        closing = self.closing()
        if closing is None:
            raise JobFailed("the trainer took the request to close the job, and it is still open")
        return closing.body

    def verify(self) -> CrowdClosing | None:
        """Follow every instance's log from the opening to the closing; None while it is open.

        What data holders kept of draws and receipts they check themselves.

        Raises:
            ProtocolError: a log does not hold; the message says of which instance, and where.
        """
        crowd, signed = self.crowd, self.closing()
        if signed is None:
            return None
        closing = signed.body
        for instance, head in enumerate(closing.heads):
            chain = InstanceChain(closing, crowd.request.task, instance)
            while chain.revision < head.revision:
                part = self._document(f"log/{instance}?after={chain.revision}")
                entries = LogPage.read(part or b"").entries
                if not entries:
                    raise MalformedDocument(f"the log of instance {instance} ends too early")
                chain.follow(entries)
            chain.end()
        return closing


class Analyst:
    """An analyst listed in the consortium's manifest: submits jobs and finds them again."""

    def __init__(
        self,
        *,
        name: str,
        key: SigningKey | Callable[[Consortium], SigningKey],
        book: ManifestBook,
        clock: Clock = system_clock,
        random_bytes: RandomBytes = nacl.utils.random,
        transport: httpx.AsyncBaseTransport | None = None,
        notice: Notice = no_notice,
    ) -> None:
        """Be the analyst of this name; `notice` is told that the trainer does not answer.

        `key` may return the key by the version of the manifest, for an analyst who changed hers.
        """
        self.name, self.book, self.clock = name, book, clock
        self._key_in = (lambda _: key) if isinstance(key, SigningKey) else key
        self._random_bytes = random_bytes
        self.line = TrainerLine(
            book, clock=clock, random_bytes=random_bytes, transport=transport, notice=notice
        )

    @classmethod
    def open(
        cls,
        party: str | PathLike[str],
        consortium: str | PathLike[str],
        *,
        notice: Notice = no_notice,
    ) -> "Analyst":
        """Open an analyst's party directory and the consortium's public directory.

        `notice` is told when the trainer does not answer and is asked again.

        Raises:
            StartupRefused: a file is missing, open to others, or not what the pin vouches for.
        """
        home = Path(party)
        identity = load_party(home)
        book = ManifestBook.open(Path(consortium), read_pin(home), home)
        return cls(name=identity.name, key=identity.signing_key_in, book=book, notice=notice)

    def catch_up(self) -> None:
        """Follow the manifest to the version in force, if the trainer answers."""
        with suppress(Unavailable, ProtocolError):
            self.line.catch_up(tries=1)

    def signed(self, body: BoundT) -> Signed[BoundT]:
        """Sign what she asks for, by her key of the manifest's version that it is bound to."""
        return sign(body, self.name, self._key_in(self.book.get(body.manifest)))

    def signed_request(self, task: Any, settings: JobSettings | CrowdSettings) -> Signed[Any]:
        """Return a signed request of a job that begins now, bound to the newest version at hand.

        Raises:
            ValueError: an argument is out of range.
        """
        body = settings.request(
            task,
            manifest=self.book.current.digest,
            nonce=self._random_bytes(16).hex(),
            analyst=self.name,
            now=self.clock(),
        )
        return self.signed(body)

    def request(self, task: Any, settings: JobSettings | CrowdSettings) -> Signed[Any]:
        """Return a signed request of a job that begins now, bound to the manifest in force.

        Raises:
            ValueError: an argument is out of range; nobody was asked for a manifest then.
        """
        self.signed_request(task, settings)
        self.catch_up()
        return self.signed_request(task, settings)

    def job(self, job: str, console: Console | None = None) -> Job:
        """Return the handle of a job in rounds that was submitted earlier, from its id."""
        return Job(job, self, console)

    def crowd(self, job: str, console: Console | None = None) -> CrowdJob:
        """Return the handle of a crowd job that was opened earlier, from its id."""
        return CrowdJob(job, self, console)

    def submit(self, task: Task, settings: JobSettings) -> Job:
        """Submit a job in rounds and return at once.

        Raises:
            ValueError: an argument is out of range.
            OutOfBudget: too few clients can pay for the job.
            JobRefused: the trainer or the consortium's policy does not allow it.
            Unavailable: the trainer did not answer, several times.
            JobInterrupted: by the user; the trainer may have taken the job, or not.
        """
        request = self.request(task, settings)
        return self.job(request.digest).hand_in(request)

    def dictionary(self) -> DataDictionary:
        """Return the consortium's data dictionary, verified by the authority's signature.

        Raises:
            JobRefused: there is none.
            Unavailable: the trainer did not answer, several times.
            ProtocolError: it is not signed as it should be.
        """
        answer = self.line.ask("/v1/dictionary")
        refuse(answer)
        return read_dictionary(answer.body, self.book.current).body

    def variables(self) -> dict[str, Number | Flag | Category | Date]:
        """Return the dictionary's variables by name, indicators too; none without a dictionary.

        Raises:
            Unavailable, ProtocolError: as `dictionary`.
        """
        with suppress(JobRefused):
            return self.dictionary().named()
        return {}

    def check(self, task: Task, settings: JobSettings) -> JobCheckReport:
        """Say what would become of a job in rounds. Nothing is submitted, and nothing is spent.

        Raises:
            ValueError: an argument is out of range.
            JobRefused: the trainer does not know the analyst or the manifest.
            Unavailable: the trainer did not answer, several times.
            ProtocolError: the trainer's answer is malformed.
        """
        request, now = self.request(task, settings).body, self.clock()
        asked = JobCheck(manifest=request.manifest, analyst=self.name, request=request)
        word = self._shown("/v1/jobs/check", self.signed(asked), TrainersWord)
        pages = self._pages("/v1/declarations/list", DeclarationPage)
        declared = newest((each for page in pages for each in page.documents), self.book)
        return report(request, word, declared, self.book, now=now)

    def _shown(self, path: str, asked: Signed[Any], shape: type[ShapeT]) -> ShapeT:
        """Return what the trainer shows to who signed a query, in the shape it must have."""
        answer = self.line.ask(path, asked.encode())
        refuse(answer)
        return shaped(answer, shape)

    def jobs(self, *, newest: int | None = None) -> JobsPage:
        """Return the trainer's jobs in rounds, of all analysts, the newest first, or so many.

        With them come groups of clients by the epsilon that each of them has left.

        Raises:
            JobRefused: the trainer does not know the analyst, or her clock is wrong.
            Unavailable: the trainer did not answer, several times.
            MalformedDocument: the answer is no such list.
        """
        self.catch_up()
        pages = list(self._pages("/v1/jobs/list", JobsPage, newest))
        # others come in meanwhile, and move these
        jobs = {job.job: job for page in pages for job in page.jobs}
        return pages[-1].model_copy(update={"jobs": tuple(jobs.values())})

    def _pages(self, path: str, shape: type[PageT], newest: int | None = None) -> Iterator[PageT]:
        """Yield the pages of a list at the trainer, in its order, up to so many entries in all.

        Raises:
            JobRefused, Unavailable, MalformedDocument: as `jobs`.
        """
        after, more = 0, True
        while more:
            count = _PAGE if newest is None else min(_PAGE, newest - after)
            query = JobsQuery(
                manifest=self.book.current.digest,
                analyst=self.name,
                at=self.clock(),
                after=after,
                count=count,
            )
            page = self._shown(path, self.signed(query), shape)
            yield page
            more = page.next is not None and page.next > after and page.next != newest
            after = page.next or 0

    def open_crowd(self, task: CrowdTask, settings: CrowdSettings) -> CrowdJob:
        """Open a crowd job (Draw and Discard) and return at once.

        Raises:
            ValueError, JobRefused, Unavailable, JobInterrupted: as `submit`.
        """
        request = self.request(task, settings)
        return self.crowd(request.digest).hand_in(request)

    def crowds(self, *, newest: int | None = None) -> list[ListedCrowd]:
        """Return the trainer's crowd jobs, of all analysts, the newest first, or so many.

        Raises:
            JobRefused, Unavailable, MalformedDocument: as `jobs`.
        """
        self.catch_up()
        pages = self._pages("/v1/crowds/list", CrowdsPage, newest)
        return list({crowd.job: crowd for page in pages for crowd in page.crowds}.values())
