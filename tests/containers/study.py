"""Jobs and rounds of a federation in containers, as an analyst and the public see them.

Everything is asked through the observer's container; nobody is believed about anything unsigned
but where a round stands.
"""

import base64
import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from shoal_protocol.rounds.attestations import Abandonment, Result
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.documents import DocumentT, Signed, decode, from_json
from tests.containers.compose import Compose
from tests.containers.waiting import until

NODES: Final = ("compute-0", "compute-1", "compute-2")
HOSPITALS: Final = ("hospital-a", "hospital-b")
CLIENTS: Final = 60  # of each hospital
FINISHED: Final = ("finished", "failed")


@dataclass(frozen=True)
class Answer:
    """A service's answer; status 0 is none at all."""

    status: int
    body: str

    def json(self) -> Any:
        """Return the JSON in the body."""
        return json.loads(self.body)


class Study:
    """Submits jobs, waits for what is to come of them, and keeps all of their ids."""

    def __init__(self, compose: Compose) -> None:
        """Start the relay in the observer's container."""
        self._compose = compose
        container = compose.container("observer")
        self._relay = subprocess.Popen(
            ["docker", "exec", "--interactive", container, "python", "/relay.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        read = self._do("consortium")
        manifest, roster = base64.b64decode(read["manifest"]), base64.b64decode(read["roster"])
        self.consortium = Consortium.pinned(manifest, roster, digest=read["pin"])
        self.jobs: list[str] = []

    def close(self) -> None:
        """End the relay."""
        self._relay.communicate()

    def ask(self, party: str, path: str, **request: Any) -> Answer:
        """Send one request to a service, of a `method`, with `content` and a `token`."""
        request["content"] = base64.b64encode(request.get("content", b"")).decode()
        return Answer(**self._do("ask", party=party, path=path, **request))

    def charges(self) -> list[Any]:
        """Return the trainer's ledger, as its operator sees it."""
        token = self._compose.execute("trainer", "cat", "/data/operator.token").strip()
        return list(self.ask("trainer", "/v1/ledger", token=token).json()["entries"])

    def submit(
        self,
        *,
        round_seconds: int = 600,
        grace_seconds: int = 600,
        dropouts: int = 20,
        method: str = "plain",
        threshold: int | None = None,
    ) -> str:
        """Submit a job to all clients and return its id. It costs epsilon 3 of 100."""
        answer = self._do(
            "submit",
            method=method,
            threshold=threshold,
            epsilon=3.0,
            delta=1e-5,
            dropouts=dropouts,
            colluders=CLIENTS - 2,  # as many as may be beside a hospital that is missing
            minimum_population=len(HOSPITALS) * CLIENTS,
            maximum_population=len(HOSPITALS) * CLIENTS,
            join_seconds=120,
            round_seconds=round_seconds,
            grace_seconds=grace_seconds,
        )
        self.jobs.append(answer["job"])
        return str(answer["job"])

    def state(self, job: str) -> Mapping[str, Any]:
        """Return where a job stands at the trainer; empty while that does not answer."""
        answer = self.ask("trainer", f"/v1/jobs/{job}")
        return answer.json() if answer.status == 200 else {}

    def round_of(self, job: str, number: int = 0) -> str:
        """Wait until a round of a job is open at every service, and return its id."""

        def opened() -> str | None:
            rounds = self.state(job).get("rounds", ())
            if len(rounds) <= number or rounds[number]["phase"] == "announced":
                return None
            return str(rounds[number]["round"])

        return str(until(f"round {number} opened", opened))

    def announce(self, node: str, job: str) -> Mapping[str, Any]:
        """Announce a job's first round to a node, as the trainer does, and return its answer."""

        def announced() -> str | None:
            rounds = self.state(job).get("rounds", ())
            path = f"/v1/rounds/{rounds[0]['round']}/spec" if rounds else "/healthz"
            answer = self.ask("compute-0", path)
            return answer.body if rounds and answer.status == 200 else None

        spec = until("another node knows the round", announced)
        request = self.ask("trainer", f"/v1/jobs/{job}/request").body
        answer = self.ask(node, "/v1/jobs", method="POST", content=request.encode())
        if answer.status in (200, 201):
            answer = self.ask(node, "/v1/rounds", method="POST", content=spec.encode())
        return dict(answer.json())

    def await_held(self, round_id: str, counts: Mapping[str, int]) -> None:
        """Wait until nodes hold so many shares of a round, of which each data holder sends one."""

        def held() -> dict[str, int]:
            return {node: self.at_node(node, round_id).get("held", 0) for node in counts}

        until(f"{counts} are held", lambda: held() == counts)

    def at_node(self, node: str, round_id: str) -> Mapping[str, Any]:
        """Return where a round stands at a Compute node; empty while that does not answer."""
        answer = self.ask(node, f"/v1/rounds/{round_id}")
        return answer.json() if answer.status == 200 else {}

    def await_end(self, job: str) -> str:
        """Wait until a job has ended, and return "finished", or why it failed."""

        def ended() -> Mapping[str, Any] | None:
            state = self.state(job)
            return state if state.get("phase") in FINISHED else None

        state = until("the job ended", ended, patience=300.0)
        return "finished" if state["phase"] == "finished" else str(state["reason"])

    def result(self, round_id: str) -> Result | None:
        """Return a round's verified result, or None if there is none."""
        end = self._end(round_id)
        return end if isinstance(end, Result) else None

    def abandonment(self, round_id: str) -> Abandonment | None:
        """Return the aggregator's verified abandonment of a round, or None if there is none."""
        end = self._end(round_id)
        return end if isinstance(end, Abandonment) else None

    def _end(self, round_id: str) -> Result | Abandonment | None:
        answer = self.ask("aggregator", f"/v1/rounds/{round_id}/outcome")
        if answer.status != 200:
            return None
        signed: Signed[Any] = from_json(answer.json()["documents"][0], Result, Abandonment)
        self.consortium.verify(signed)
        body: Result | Abandonment = signed.body
        return body

    def verified(self, encoded: str, *kinds: type[DocumentT]) -> DocumentT:
        """Return a signed document's body, its signature checked by the pinned manifest."""
        signed: Signed[DocumentT] = decode(encoded.encode(), *kinds)
        self.consortium.verify(signed)
        return signed.body

    def _do(self, what: str, **request: Any) -> dict[str, Any]:
        assert self._relay.stdin is not None
        assert self._relay.stdout is not None
        self._relay.stdin.write(json.dumps({"do": what, **request}) + "\n")
        self._relay.stdin.flush()
        answer = self._relay.stdout.readline()
        if not answer:
            raise RuntimeError("the relay in the observer's container has ended")
        return dict(json.loads(answer))
