"""TLS certificates have ended: their parties are cut off until they are renewed by the handbook."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from shoal_consortium import quickstart
from shoal_consortium.processes import Federation
from tests.command.running import run, shoal
from tests.end_to_end.conftest import first_free_port
from tests.end_to_end.holding import EPSILON_OF_ALL_TESTS, logged
from tests.end_to_end.test_real_processes import CLIENTS, agents, get, submit
from tests.world.handbook import commands
from tests.world.trust import SITES, TASK, Trust, make_trust

ENDED = ("compute-1", "aggregator")


@pytest.fixture
def trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trust:
    """Make a consortium in which some certificates ended yesterday."""
    make = quickstart.new_party

    def older(*given: Any, name: str, now: datetime, **more: Any) -> Any:
        ago = timedelta(days=more["valid_days"] + 1) if name in ENDED else timedelta()
        return make(*given, name=name, now=now - ago, **more)

    monkeypatch.setattr(quickstart, "new_party", older)
    return make_trust(
        tmp_path / "federation",
        url_template="https://127.0.0.1:{port}",
        first_port=first_free_port(),
        now=datetime.now(UTC),
        manifest_signatures=2,
        minimum_threshold=2,
        maximum_epsilon=EPSILON_OF_ALL_TESTS,
    )


def test_a_party_whose_certificate_ended_is_cut_off_until_it_is_renewed(
    trust: Trust, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trust.directory)
    described = quickstart.services(trust.directory, trust.consortium)
    services = {each.name: logged(each, tmp_path) for each in described}
    with Federation({name: services[name] for name in ENDED}) as running:
        for name in ENDED:
            services[name].start()  # it runs, but for its own health check too it does not
        running.start(*(each for name, each in services.items() if name not in ENDED))
        with agents(trust, *SITES):
            waiting = submit(trust, TASK, join_seconds=600)
            for name in ENDED:
                with pytest.raises(httpx.ConnectError, match="expired"):
                    get(trust.consortium.party(name), "/readyz")
            for name in ("aggregator", "compute-1"):  # without the former nothing is logged
                for words in commands("Renew a certificate", N=2):
                    reached = run(*(each.replace("compute-1", name) for each in words))
            assert reached.exit_code == 0, reached.output
            # a job that nobody joined under the manifest before is submitted anew
            _, withdraw, _ = commands("A release is wrong", JOB=waiting.id)
            shoal(*withdraw)
            report = submit(trust, TASK, join_seconds=600).wait()
        assert report.cohort_sizes == (CLIENTS,)
        assert waiting.state().phase == "withdrawn"
        for name in ENDED:
            services[name].kill()
            services[name].start()
        for name in ENDED:
            services[name].wait_until_ready()
