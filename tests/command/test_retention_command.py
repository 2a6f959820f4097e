"""`shoal retention` shows what a service keeps, and has it delete what is due."""

import json
from pathlib import Path

import pytest

from shoal_hosting.peers import service_calls
from shoal_hosting.peers.exchange import Reply
from tests.command.running import run
from tests.world.trust import make_trust

SHOWN = {
    "retention_days": 400,
    "is_due": True,
    "kinds": [
        {
            "kind": "joins",
            "documents": 3,
            "stays": "400 days from the job's end",
            "why": "who took part",
        }
    ],
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str | None]]:
    found: list[tuple[str, str, str | None]] = []

    async def call(
        endpoint: service_calls.Endpoint,
        method: str,
        path: str,
        query: dict[str, str],
        *,
        content: bytes | None,
    ) -> Reply:
        assert content is None  # the token is enough
        asked = "".join(f"?{name}={value}" for name, value in query.items())
        found.append((method, endpoint.url + path + asked, endpoint.token))
        return Reply(200, json.dumps(SHOWN).encode())

    monkeypatch.setattr(service_calls, "call", call)
    return found


def test_it_shows_and_with_do_deletes(
    tmp_path: Path, asked: list[tuple[str, str, str | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    trust = make_trust(tmp_path / "trust")
    data = tmp_path / "data"
    data.mkdir()
    (data / "operator.token").write_text("secret")
    (data / "operator.token").chmod(0o600)
    party = trust.directory / "parties" / "trainer"
    url = f"{trust.consortium.manifest.trainer.url}/v1/retention"

    shown = run("retention", "--party", party, "--data", data)
    assert shown.exit_code == 0, shown.output
    assert "who took part" in shown.output and "--do" in shown.output
    done = run("retention", "--party", party, "--data", data, "--do", "--json")
    assert json.loads(done.stdout) == SHOWN
    assert "who took part" in done.stderr and "for good" in done.stderr
    run("retention", "--party", party, "--data", data, "--do", "--trust-clock")
    for answer in (None, "n"):
        unasked = run("retention", "--party", party, "--data", data, "--do", asked=answer)
        assert unasked.exit_code == 1 and "nothing was done" in unasked.stderr
    shows = ("GET", url, "secret")
    assert asked == [
        shows,
        *(shows, ("POST", f"{url}?trust_clock=0", "secret")),
        *(shows, ("POST", f"{url}?trust_clock=1", "secret")),
        *(shows, shows),
    ]
    monkeypatch.setitem(SHOWN, "is_due", False)
    again = run("retention", "--party", party, "--data", data)
    assert again.output.endswith("Nothing is due.\n")
