"""Runs in the observer's container: asks services and submits jobs, one JSON line for each request.

It trusts only the manifest's certificates, and decides nothing.
"""

import base64
import json
import sys
from pathlib import Path
from typing import Any

import httpx

from shoal import Analyst, ColumnBounds, JobSettings, ThresholdSharing
from shoal_kit.manifest_book import ManifestBook
from shoal_kit.startup import read_pin
from shoal_kit.tls_certificates import pinned_tls
from shoal_studies.catalogue.linear_regression import LinearRegressionTask

PARTY, CONSORTIUM = Path("/party"), Path("/consortium")
AGE = ColumnBounds(name="age", lower=18, upper=90)
WEIGHT = ColumnBounds(name="weight", lower=40, upper=120)


class Relay:
    """Connections to the services, and the analyst's own."""

    def __init__(self) -> None:
        manifest = ManifestBook.open(CONSORTIUM, read_pin(PARTY), PARTY).current.manifest
        parties = [*manifest.compute_nodes, manifest.aggregator, manifest.trainer]
        self._clients = {
            party.name: httpx.Client(
                base_url=party.url,
                verify=pinned_tls(party.certificate),
                trust_env=False,
                timeout=3.0,
                limits=httpx.Limits(max_keepalive_connections=0),  # each answer is of this moment
            )
            for party in parties
        }

    def ask(
        self, party: str, path: str, content: str, method: str = "GET", token: str = ""
    ) -> dict[str, Any]:
        """Return the status and body of an answer; status 0 if there is none."""
        body = base64.b64decode(content) or None
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            answer = self._clients[party].request(method, path, content=body, headers=headers)
        except (httpx.HTTPError, OSError):
            return {"status": 0, "body": ""}
        return {"status": answer.status_code, "body": answer.text}

    def submit(self, method: Any, threshold: int | None, **terms: Any) -> dict[str, Any]:
        """Submit a job and return its id; without a threshold it needs all Compute nodes."""
        if threshold is not None:
            terms["sharing"] = ThresholdSharing(threshold=threshold)
        task = LinearRegressionTask(features=(AGE,), target=WEIGHT, method=method)
        return {"job": Analyst.open(PARTY, CONSORTIUM).submit(task, JobSettings(**terms)).id}

    def consortium(self) -> dict[str, Any]:
        """Return the signed manifest, its roster and the pin."""
        manifest, roster = CONSORTIUM / "manifest.json", CONSORTIUM / "roster.bin"
        return {
            "manifest": base64.b64encode(manifest.read_bytes()).decode(),
            "roster": base64.b64encode(roster.read_bytes()).decode(),
            "pin": read_pin(PARTY),
        }


if __name__ == "__main__":
    relay = Relay()
    for line in sys.stdin:
        request = json.loads(line)
        answer = getattr(relay, request.pop("do"))(**request)
        print(json.dumps(answer), flush=True)
