"""An analyst's side of a job for scripts and notebooks: submit, watch, get a verified posterior.

analyst = Analyst.open("my-party", "consortium")
job = analyst.submit(task, epsilon=1.0, delta=1e-6, dropouts=20, colluders=20, ...)
report = job.wait()
report.posterior.interval(0.95)
"""

from os import PathLike
from pathlib import Path

import httpx
import nacl.utils
from nacl.signing import SigningKey

from shoal_client.async_analyst import AsyncAnalyst, JobState, Progress
from shoal_client.clock import Clock, system_clock
from shoal_client.conversation import Connect, converse
from shoal_client.crowds.job import CrowdJob
from shoal_client.crowds.listing import CrowdOverview, overviews
from shoal_client.insisting import Notice, unheard
from shoal_client.job_failures import JobInterrupted
from shoal_hosting.manifest_book import ManifestBook
from shoal_hosting.party import load_party, read_pin
from shoal_protocol.draw_and_discard.tasks import CrowdTask
from shoal_protocol.jobs import JobRequest, PosteriorReport, PrivacyDemand
from shoal_protocol.schemes import ADDITIVE, Sharing
from shoal_protocol.sharing import RandomBytes
from shoal_protocol.tasks import Task


class Analyst:
    """An analyst listed in the consortium's manifest."""

    def __init__(
        self,
        *,
        name: str,
        key: SigningKey,
        book: ManifestBook,
        clock: Clock = system_clock,
        random_bytes: RandomBytes = nacl.utils.random,
        transport: httpx.AsyncBaseTransport | None = None,
        notice: Notice = unheard,
    ) -> None:
        self._connect: Connect = lambda: AsyncAnalyst(
            name=name,
            key=key,
            book=book,
            clock=clock,
            random_bytes=random_bytes,
            transport=transport,
            notice=notice,
        )

    @classmethod
    def open(
        cls,
        party: str | PathLike[str],
        consortium: str | PathLike[str],
        *,
        notice: Notice = unheard,
    ) -> "Analyst":
        """Open an analyst's party directory and the consortium's public directory.

        `notice` is told when the trainer does not answer and is asked again.

        Raises:
            StartupRefused: a file is missing, open to others, or not what the pin vouches for.
        """
        directory = Path(party)
        identity = load_party(directory)
        book = ManifestBook.open(Path(consortium), read_pin(directory), directory)
        return cls(name=identity.name, key=identity.signing_key, book=book, notice=notice)

    def submit(
        self,
        task: Task,
        *,
        epsilon: float,
        delta: float,
        dropouts: int,
        colluders: int,
        minimum_population: int,
        maximum_population: int,
        join_seconds: int,
        round_seconds: int,
        grace_seconds: int,
        sharing: Sharing = ADDITIVE,
    ) -> "Job":
        """Submit a job and return at once.

        (`epsilon`, `delta`) is what the whole job may cost one client, by replacement of all its
        records. The noise suffices even if `dropouts` clients go missing and `colluders` of the
        others reveal theirs. Clients have `join_seconds` to join and `round_seconds` to answer
        each round; services have `grace_seconds` more before they give a round up. By default
        every Compute node is needed; `sharing=ThresholdSharing(threshold=t)` needs any t of them.

        Raises:
            ValueError: an argument is out of range.
            OutOfBudget: too few clients can pay for the job.
            JobRefused: the trainer or the consortium's policy does not allow it.
            Unavailable: the trainer did not answer, several times.
            JobInterrupted: by the user; the trainer may have taken the job, or not.
        """
        made: list[str] = []
        privacy = PrivacyDemand(
            epsilon=epsilon, delta=delta, dropouts=dropouts, colluders=colluders
        )

        async def submitted(core: AsyncAnalyst) -> str:
            request = core.request(
                task,
                privacy=privacy,
                minimum_population=minimum_population,
                maximum_population=maximum_population,
                join_seconds=join_seconds,
                round_seconds=round_seconds,
                grace_seconds=grace_seconds,
                sharing=sharing,
            )
            made.append(request.digest)
            return await core.submit(request)

        try:
            return self.job(converse(self._connect, submitted))
        except KeyboardInterrupt:
            if not made:
                raise
            raise JobInterrupted(made[0], acknowledged=False) from None

    def open_crowd(
        self,
        task: CrowdTask,
        *,
        contributions: int,
        contributions_per_client: int,
        contributions_per_record: int,
        session_seconds: int,
        open_seconds: int,
    ) -> CrowdJob:
        """Open a crowd job (Draw and Discard) and return at once.

        The task says what one contribution costs. A client makes at most
        `contributions_per_client`, with each of its records `contributions_per_record`; the job
        is closed after `contributions` of them, or `open_seconds` from now. A model that was drawn
        must come back within `session_seconds`.

        Raises:
            ValueError: an argument is out of range.
            JobRefused: the trainer or the consortium's policy does not allow it.
            Unavailable: the trainer did not answer, several times.
            JobInterrupted: by the user; the trainer may have opened the job, or not.
        """
        made: list[str] = []

        async def opened(core: AsyncAnalyst) -> str:
            request = core.crowds.request(
                task,
                contributions=contributions,
                contributions_per_client=contributions_per_client,
                contributions_per_record=contributions_per_record,
                session_seconds=session_seconds,
                open_seconds=open_seconds,
            )
            made.append(request.digest)
            return await core.crowds.open(request)

        try:
            return self.crowd(converse(self._connect, opened))
        except KeyboardInterrupt:
            if not made:
                raise
            raise JobInterrupted(made[0], acknowledged=False) from None

    def crowd(self, job: str) -> CrowdJob:
        """Return the handle of a crowd job that was opened earlier, from its id."""
        return CrowdJob(job, self._connect)

    def crowds(self) -> list[CrowdOverview]:
        """Return the trainer's crowd jobs, of all analysts: what was asked, and where it stands.

        Raises:
            JobFailed: the trainer serves no crowd jobs.
            Unavailable: the trainer did not answer, several times.
        """
        return converse(self._connect, lambda core: overviews(core.crowds))

    def job(self, job: str) -> "Job":
        """Return the handle of a job that was submitted earlier, from its id."""
        return Job(job, self._connect)


class Job:
    """A job at the trainer, by its id."""

    def __init__(self, job: str, connect: Connect) -> None:
        self.id = job
        self._connect = connect

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    def state(self) -> JobState:
        """Return what the trainer says of the job now; nothing of it is signed.

        Raises:
            JobFailed: the trainer does not know it.
            Unavailable: the trainer did not answer, several times.
        """
        return converse(self._connect, lambda core: core.state(self.id))

    def request(self) -> JobRequest:
        """Return what was asked for, as its analyst signed it.

        Raises:
            JobFailed: the trainer does not know the job.
            Unavailable: the trainer did not answer, several times.
            ProtocolError: what it shows is no analyst's request, or that of another job.
        """
        return converse(self._connect, lambda core: core.submitted(self.id)).body

    def wait(self, progress: Progress = lambda state: None) -> PosteriorReport:
        """Wait for the posterior; `progress` is called with each new state.

        Raises:
            JobFailed: the job ended without a posterior: `JobWithdrawn` if it was withdrawn.
            Unavailable: the trainer did not answer, several times.
            ProtocolError: the report is not the trainer's, or is of another job.
            JobInterrupted: by the user; the job goes on.
        """
        try:
            return converse(self._connect, lambda core: core.wait(self.id, progress)).body
        except KeyboardInterrupt:
            raise JobInterrupted(self.id) from None

    def withdraw(self) -> None:
        """Withdraw the job: it asks nothing more, and what it set aside comes free.

        What answered rounds cost stays charged. Who waits for it gets `JobWithdrawn`.

        Raises:
            JobRefused: the job has ended, or is another analyst's.
            JobFailed: the trainer does not know it.
            Unavailable: the trainer did not answer, several times.
        """
        converse(self._connect, lambda core: core.withdraw(self.id))

    def result(self) -> PosteriorReport | None:
        """Return the verified report, or None if there is none yet.

        Raises:
            JobFailed, Unavailable, ProtocolError: as `wait`.
        """
        signed = converse(self._connect, lambda core: core.report(self.id, wait_seconds=0))
        return None if signed is None else signed.body

    def certificate(self) -> bytes | None:
        """Return the verified release certificate, or None if the job is not finished.

        These bytes, kept as they are, can be checked by anyone who has the consortium's manifest:
        `shoal certificate verify`.

        Raises:
            JobFailed, Unavailable: as `wait`.
            ProtocolError: it does not hold, or is of another job.
        """
        return converse(self._connect, lambda core: core.certificate(self.id))
