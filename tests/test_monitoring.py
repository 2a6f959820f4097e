"""Alerts and the dashboard watch what parties really show, and each alert goes off when it must."""

import asyncio
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from shoal_agent.application import create_agent_application
from shoal_agent.assembly import Telemetry
from shoal_kit.manifest_book import ManifestBook
from shoal_kit.startup import read_pin
from shoal_kit.vitals import Vitals
from tests.world.federation import Federation
from tests.world.trust import SITES, Trust, make_trust

SITE: Final = next(iter(SITES))
MONITORING: Final = Path(__file__).parents[1] / "examples" / "compose" / "monitoring"
ALERTS: Final = MONITORING / "alerts.yml"
PROMTOOL: Final = shutil.which("promtool")
_NAME: Final = re.compile(r"\b(?:shoal|process)_[a-z_]+\b")
_OWN: Final = re.compile(r"\b(?:up|ALERTS)\b")  # Prometheus makes them itself

Sample = tuple[str, dict[str, str], float]
# For each alert: the samples that set it off, in place of those with the same name and labels, and
# how they go on each minute. Every other sample stays as a healthy federation showed it.
TROUBLE: Final[dict[str, list[tuple[str, dict[str, str], str]]]] = {
    "PartyDown": [("up", {"instance": "compute-1"}, "0x{minutes}")],
    "DiskAlmostFull": [
        ("shoal_disk_free_bytes", {"instance": "compute-0"}, "9x{minutes}"),
        ("shoal_disk_size_bytes", {"instance": "compute-0"}, "100x{minutes}"),
    ],
    "RoundOpenForADay": [
        ("shoal_oldest_open_round_seconds", {"instance": "aggregator"}, "86401+60x{minutes}")
    ],
    "ManifestBehind": [("shoal_manifest_version", {"instance": "trainer"}, "0x{minutes}")],
    "CertificateEndsSoon": [
        ("shoal_certificate_days_left", {"instance": "trainer"}, "59x{minutes}")
    ],
    "CertificateEndsThisWeek": [
        ("shoal_certificate_days_left", {"instance": "compute-1"}, "-1x{minutes}")
    ],
    "ClockOff": [
        (
            "shoal_compute_peer_clock_offset_seconds",
            {"instance": "compute-0", "peer": "compute-2"},
            "-6x{minutes}",
        )
    ],
    "ServiceFailed": [
        (
            "shoal_refused_requests_total",
            {"instance": "trainer", "reason": "internal-error"},
            "0+1x{minutes}",
        )
    ],
    "StorageUnavailable": [
        (
            "shoal_refused_requests_total",
            {"instance": "compute-2", "reason": "storage-unavailable"},
            "0+1x{minutes}",
        )
    ],
    "PeerUnreached": [
        (
            "shoal_compute_gossip_total",
            {"instance": "compute-1", "outcome": "unreachable"},
            "0+5x{minutes}",
        )
    ],
    "PartyContradictsItself": [
        (
            "shoal_compute_gossip_total",
            {"instance": "compute-0", "outcome": "document_evidence"},
            "0+1x{minutes}",
        )
    ],
    "WrongPartialSum": [
        (
            "shoal_aggregator_wrong_partial_sums_total",
            {"instance": "aggregator", "node": "compute-1"},
            "0+1x{minutes}",
        )
    ],
    "AnswersNotAcknowledged": [("shoal_agent_envelopes_unsent", {"instance": SITE}, "3x{minutes}")],
    "HolderRefusesAll": [("shoal_agent_refusing", {"instance": SITE}, "1x{minutes}")],
    "BackupDue": [("shoal_agent_backup_due", {"instance": SITE}, "1x{minutes}")],
    "BudgetAlmostSpent": [
        ("shoal_agent_epsilon_left_gaussian", {"instance": SITE}, "0.05x{minutes}")
    ],
}
MINUTES: Final = 26 * 60


def expressions() -> Iterator[str]:
    """Yield every expression of the alerts and of the dashboard."""
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["expr"]
    board = json.loads((MONITORING / "dashboards" / "shoal.json").read_text())
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield target["expr"]


@pytest.fixture(scope="module")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return make_trust(tmp_path_factory.mktemp("trust"))


@pytest.fixture
async def scraped(trust: Trust, tmp_path: Path) -> dict[str, str]:
    """Return what every party shows after a job, by its name."""
    async with Federation(trust, tmp_path) as federation:
        await federation.learn()
        shown = {
            name: (await federation.ask(name, "/metrics")).text for name in federation.services
        }
        for site in SITES:
            registry = CollectorRegistry()
            Telemetry(registry)
            agent = create_agent_application(
                federation.holder(site),
                token="a" * 64,
                registry=registry,
                vitals=Vitals(
                    registry,
                    book=ManifestBook.open(
                        trust.directory / "consortium",
                        read_pin(trust.directory / "clients" / site),
                        tmp_path / "book" / site,
                    ),
                    directory=tmp_path,
                    clock=federation.clock,
                ),
                metrics_for_anybody=True,
            )
            transport = httpx.ASGITransport(agent)
            async with httpx.AsyncClient(transport=transport, base_url="https://agent") as client:
                shown[site] = (await client.get("/metrics")).text
        return shown


def samples(shown: dict[str, str]) -> Iterator[Sample]:
    """Yield all samples, labelled as Prometheus labels them."""
    for party, text in shown.items():
        yield "up", {"instance": party, "job": "shoal"}, 1.0
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = {**sample.labels, "instance": party, "job": "shoal"}
                yield sample.name, labels, sample.value


def names(shown: dict[str, str]) -> set[str]:
    """Return the names of all metrics that have samples now, or will have some."""
    found = {name for name, _, _ in samples(shown)}
    for text in shown.values():
        for family in text_string_to_metric_families(text):
            found |= {family.name, f"{family.name}_total"}
    return found


@pytest.mark.slow
async def test_alerts_and_dashboard_ask_only_for_what_parties_show(
    scraped: dict[str, str],
) -> None:
    known = names(scraped)
    for expression in expressions():
        asked = set(_NAME.findall(expression))
        assert asked or _OWN.search(expression)
        assert asked <= known, expression


@pytest.mark.slow
@pytest.mark.skipif(
    PROMTOOL is None, reason="there is no rule evaluator here: install Debian's package prometheus"
)
async def test_each_alert_goes_off_in_its_own_trouble_and_none_in_a_healthy_federation(
    scraped: dict[str, str], tmp_path: Path
) -> None:
    rules = {
        rule["alert"]: rule
        for group in yaml.safe_load(ALERTS.read_text())["groups"]
        for rule in group["rules"]
    }
    assert set(TROUBLE) == set(rules)
    healthy = {
        (name, tuple(sorted(labels.items()))): value for name, labels, value in samples(scraped)
    }
    watched = {name for each in expressions() for name in _NAME.findall(each)} | {"up"}
    cases = [_case(healthy, watched, rules, None)]
    cases += [_case(healthy, watched, rules, alert) for alert in rules]
    file = tmp_path / "cases.yml"
    file.write_text(
        yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": cases})
    )
    assert PROMTOOL is not None
    tool = await asyncio.create_subprocess_exec(
        *(PROMTOOL, "test", "rules", str(file)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await tool.communicate()
    assert tool.returncode == 0, said.decode()


def _case(
    healthy: dict[tuple[str, tuple[tuple[str, str], ...]], float],
    watched: set[str],
    rules: dict[str, dict[str, Any]],
    alert: str | None,
) -> dict[str, Any]:
    """Return a case in which `alert` must go off and no other; None: none must."""
    healthy = dict(healthy)
    for (name, labels), value in list(healthy.items()):
        if name == "shoal_agent_backup_due":  # nobody backs a test's data holders up
            healthy[name, labels] = 0
        if name == "shoal_certificate_days_left":  # those of tests end soon
            healthy[name, labels] = 365
        if name == "shoal_disk_size_bytes":  # this machine's own disk may be full
            healthy["shoal_disk_free_bytes", labels] = value
    series = {key: f"{value}x{MINUTES}" for key, value in healthy.items() if key[0] in watched}
    for name, labels, values in TROUBLE.get(alert or "", []):
        series[name, tuple(sorted({**labels, "job": "shoal"}.items()))] = values.format(
            minutes=MINUTES
        )
    return {
        "name": alert or "healthy",
        "interval": "1m",
        "input_series": [
            {"series": f"{name}{{{_spelt(dict(labels))}}}", "values": values}
            for (name, labels), values in series.items()
        ],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": f"{MINUTES}m",
                "exp_samples": []
                if alert is None
                else [{"labels": f'{{alertname="{alert}"}}', "value": 1}],
            }
        ],
    }


def _spelt(labels: dict[str, str]) -> str:
    return ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items())
