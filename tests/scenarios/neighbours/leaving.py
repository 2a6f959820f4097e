"""Everything that leaves a data holder, in order and with its time; what is paid for is masked.

Masked are the sealed shares and the digests and signatures over them, not their lengths; and of a
contribution to a crowd the weights and what is signed over them.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from unittest.mock import patch

import numpy as np

from shoal_holder import rounds
from shoal_holder.crowds import contributor
from shoal_holder.faults import FAULTS_FILE
from shoal_holder.records import Records
from shoal_protocol.queries import Query, design
from shoal_protocol.sharing.received import read_receipt_query
from tests.world.around_holder import World
from tests.world.clock import HandMovedTimer
from tests.world.wire import Message

# Of the owner's own requests, by the clock of the wall, and of the process
OF_THE_MACHINE = re.compile(
    r"^(# .*|process_.*|python_.*|shoal_disk_.*|.*(_seconds|_created).*)\n", re.MULTILINE
)
_BY_THE_WALL = {"timestamp", "seconds"}  # fields of log lines
_HEADER_BYTES = 76  # what follows is the answer id, a keyed hash of the noisy vector


@dataclass
class Leaving:
    """What left one data holder: requests, events, pages and log lines."""

    world: World
    timer: HandMovedTimer = field(default_factory=HandMovedTimer)
    seen: list[tuple[datetime, float, str]] = field(default_factory=list)
    asked: list[tuple[str, Query]] = field(default_factory=list)
    """Rounds of studies that were answered, and their queries."""

    @property
    def faults(self) -> str:
        """Return the owner's list of faults, which is in nothing that leaves."""
        path = self.world.directory / "data" / FAULTS_FILE
        return path.read_text() if path.exists() else ""

    def __post_init__(self) -> None:
        self.world.wire.watch = self.carried

    def carried(self, message: Message) -> None:
        """Note what goes over the wire, and when."""
        headers = list(message.request.headers.raw)
        if message.path.endswith("/submissions"):  # the weights' digits, which are paid for
            headers = [each for each in headers if each[0].lower() != b"content-length"]
        body = masked(message.path, message.body)
        self.note(message.method, str(message.request.url), headers, body)

    def note(self, *what: Any) -> None:
        """Note something that can be seen from outside, at this moment."""
        # written out, so that no number passes for another
        self.seen.append((self.world.clock(), self.timer.passed, repr(what)))

    def report(self, event: str, /, **facts: object) -> None:
        """Note an event that the library tells its caller."""
        self.note("event", event, facts)

    def metrics(self, page: str) -> None:
        """Note the page of metrics, without the machine's own times."""
        self.note("metrics", OF_THE_MACHINE.sub("", page + "\n"))

    def log(self, text: str) -> None:
        """Note log lines, without the wall's time in them."""
        for line in text.splitlines():
            said = json.loads(line)
            self.note("log", {name: said[name] for name in sorted(said.keys() - _BY_THE_WALL)})


def masked(path: str, body: bytes) -> object:
    """Return a request's body, without what is paid for but with its length."""
    if path.endswith("/shares"):
        return _masked_envelope(body)
    if path.endswith("/shares/stored"):
        holder, digest = read_receipt_query(body)
        return holder, len(digest)
    if path.endswith("/submissions"):
        submission = json.loads(body)
        # a draw holds what others sent before
        for document in (submission, submission["body"]["draw"]):
            document["signature"] = len(document["signature"])
            document["body"]["weights"] = len(document["body"]["weights"])
        return submission
    return body


def _masked_envelope(encoded: bytes) -> tuple[bytes, int]:
    return encoded[:_HEADER_BYTES], len(encoded)


@contextmanager
def work_that_takes_time(timer: HandMovedTimer) -> Iterator[None]:
    """Have reading, encoding and stepping take the longer, by a timer, the more records it is."""
    choose, to_box, step = rounds.chosen_together, design.to_box, contributor.steps

    def slow_choice(records: Records, positions: Any, columns: Any, **more: Any) -> Any:
        here = [each for each in positions if each is not None and each < len(records)]
        timer.passed += 1e-4 * float(records.counts[here].sum())
        return choose(records, positions, columns, **more)

    def slow_to_box(records: Any, *bounds: Any) -> Any:
        timer.passed += 1e-4 * len(np.atleast_2d(records))
        return to_box(records, *bounds)

    def slow_steps(task: Any, weights: Any, rows: Any, targets: Any) -> Any:
        timer.passed += 1e-4 * len(rows)
        return step(task, weights, rows, targets)

    with (
        patch.object(rounds, "chosen_together", slow_choice),
        patch.object(contributor, "chosen_together", slow_choice),
        patch.object(design, "to_box", slow_to_box),
        patch.object(contributor, "steps", slow_steps),
    ):
        yield


def difference(one: Leaving, other: Leaving) -> str | None:
    """Return the first that is not the same of what left two data holders, None if all is."""
    for mine, others in zip(one.seen, other.seen, strict=False):
        if mine != others:
            return f"{mine}\n{others}"
    if len(one.seen) != len(other.seen):
        longer = max(one.seen, other.seen, key=len)
        return f"only one of them: {longer[min(len(one.seen), len(other.seen))]!r}"
    return None
