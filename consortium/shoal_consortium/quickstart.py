"""A whole federation in one directory, for trying out.

In production every organisation makes its own party on its own machine and hands over only its
card. Here one process makes all keys, so the directory's owner can play every party.
"""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from nacl.signing import SigningKey

from shoal_agent.client_files import write_agent, write_pin
from shoal_consortium import consortium_files, dictionary_files
from shoal_consortium.parties import first_manifest
from shoal_consortium.party_files import (
    PartyRole,
    RandomBytes,
    make_authority_directory,
    new_party,
    write_party,
)
from shoal_consortium.processes import Process
from shoal_hosting.manifests.manifest_chain import open_chain
from shoal_hosting.private_files import PRIVATE_DIRECTORY, write_new
from shoal_hosting.tls_certificates import host_of, port_of, self_signed
from shoal_protocol.trust.dictionary import Variable
from shoal_protocol.trust.manifest import Consortium, ServiceParty
from shoal_protocol.trust.policy import Policy
from shoal_protocol.trust.roster_changes import roster_of

_SITE: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_PENDING: Final = ".being-made"
_KEYS: Final = ("authority", "authority-recovery")
_PARTS: Final = ("parties", "clients", *_KEYS, "data", "consortium")  # the last one completes
MODULES: Final = {
    PartyRole.COMPUTE: "shoal_compute",
    PartyRole.AGGREGATOR: "shoal_aggregator",
    PartyRole.TRAINER: "shoal_trainer",
}


@dataclass(frozen=True)
class Plan:
    """A federation to make. `url_template` has {name} and {port}; `extra_hosts` go on certificates.

    Ports count up from `first_port`: the Compute nodes, the aggregator, the trainer, then one
    agent for each site of `clients` (site -> number of its clients). Without `dictionary` jobs may
    name any columns.
    """

    consortium: str
    compute_nodes: int
    clients: Mapping[str, int]
    url_template: str
    first_port: int
    extra_hosts: Sequence[str]
    policy: Policy
    valid_days: int
    dictionary: tuple[Variable, ...] = ()

    def __post_init__(self) -> None:
        nodes, lowest = self.compute_nodes, self.policy.minimum_threshold
        committee = self.policy.minimum_committee
        fewest = 2 if committee is not None else nodes // 2 + 1
        unnamed = [site for site in self.clients if not _SITE.fullmatch(site)]
        taken = set(self.clients) & set(self.services())
        wrong = {
            "a consortium has at least two Compute nodes": nodes < 2,
            "a committee has fewer nodes than there are Compute nodes": (
                committee is not None and committee >= nodes
            ),
            f"a threshold of {lowest} can never be used: of {nodes} Compute nodes {fewest} to "
            f"{nodes} may be demanded": lowest is not None and not fewest <= lowest <= nodes,
            "a site has at least one client": min(self.clients.values(), default=1) < 1,
            f"{', '.join(unnamed)} is no site's name: 1 to 63 of a-z, 0-9 and hyphens, as st-anna, "
            "and no hyphen first": bool(unnamed),
            f"a site may not be called {', '.join(taken)}: a service is": bool(taken),
        }
        for problem, is_so in wrong.items():
            if is_so:
                raise ValueError(problem)

    def services(self) -> dict[str, PartyRole]:
        """Return the names and roles of the services, in the order of their ports."""
        nodes = {f"compute-{index}": PartyRole.COMPUTE for index in range(self.compute_nodes)}
        return nodes | {"aggregator": PartyRole.AGGREGATOR, "trainer": PartyRole.TRAINER}

    def url(self, name: str, position: int) -> str:
        """Return the URL of the party or agent at that position."""
        if "{port}" in self.url_template and self.first_port + position > 65_535:
            raise ValueError("there are not enough ports above the first one")
        return self.url_template.replace("{name}", name).replace(
            "{port}", str(self.first_port + position)
        )


def exists(directory: Path) -> bool:
    """Say whether `directory` holds a complete federation."""
    return (directory / "consortium" / "manifest.json").is_file()


def make(directory: Path, plan: Plan, *, now: datetime, random_bytes: RandomBytes) -> Consortium:
    """Make all parties, clients, the authority and the consortium in `directory`.

    Raises:
        FileExistsError: parts of a federation are there already; nothing is overwritten.
        ValueError: a name or URL of the plan is malformed.
    """
    taken = [part for part in _PARTS if (directory / part).exists()]
    if taken:
        raise FileExistsError(f"{directory / taken[0]} exists already; nothing was written")
    pending = directory / _PENDING
    if pending.exists():
        shutil.rmtree(pending)  # an earlier run was cut off; no key in it was ever used
    pending.mkdir(parents=True)
    pending.chmod(PRIVATE_DIRECTORY)
    try:
        consortium = _make_all(pending, plan, now=now, random_bytes=random_bytes)
    except BaseException:
        shutil.rmtree(pending)
        raise
    for part in _PARTS:
        (pending / part).rename(directory / part)
    pending.rmdir()
    return consortium


def _make_all(
    directory: Path, plan: Plan, *, now: datetime, random_bytes: RandomBytes
) -> Consortium:
    for part in _PARTS:
        (directory / part).mkdir()
    parties = [
        new_party(
            role,
            name=name,
            operator="one machine, for trying out",
            url=plan.url(name, position) if role is not PartyRole.ANALYST else None,
            extra_hosts=plan.extra_hosts,
            now=now,
            valid_days=plan.valid_days,
            random_bytes=random_bytes,
        )
        for position, (name, role) in enumerate(
            (plan.services() | {"analyst": PartyRole.ANALYST}).items()
        )
    ]
    keys = {site: SigningKey(random_bytes(32)) for site in plan.clients}
    roster = roster_of(((key.verify_key, plan.clients[site]) for site, key in keys.items()))
    authority, recovery = (SigningKey(random_bytes(32)) for _ in _KEYS)
    manifest = first_manifest(
        plan.consortium,
        [party.card for party in parties],
        roster=roster,
        policy=plan.policy,
        authority=authority,
        recovery=recovery.verify_key,
    )
    for name, key in zip(_KEYS, (authority, recovery), strict=True):
        make_authority_directory(directory / name, key)
    consortium = consortium_files.create(directory / "consortium", manifest, roster)
    if plan.dictionary:
        dictionary_files.add_version(directory / "consortium", plan.dictionary, authority)
    for party in parties:
        home = directory / "parties" / party.card.name
        write_party(home, party)
        write_pin(home, consortium.digest, replace_other=False)
        (directory / "data" / party.card.name).mkdir(mode=PRIVATE_DIRECTORY)
    for position, site in enumerate(keys, start=len(plan.services())):
        home = directory / "clients" / site
        hosts = [host_of(plan.url(site, position)), *plan.extra_hosts]
        tls = self_signed(site, hosts, now=now, valid_days=plan.valid_days)
        write_agent(home, keys[site], slots=plan.clients[site], tls=tls)
        write_pin(home, consortium.digest, replace_other=False)
        write_new(home / "url", f"{plan.url(site, position)}\n".encode(), private=False)
        (directory / "data" / site).mkdir(mode=PRIVATE_DIRECTORY)
    return consortium


def services(directory: Path, consortium: Consortium) -> list[Process]:
    """Return how to start each service of the federation in `directory`."""
    manifest = consortium.manifest
    parties: list[tuple[PartyRole, ServiceParty]] = [
        *((PartyRole.COMPUTE, node) for node in manifest.compute_nodes),
        (PartyRole.AGGREGATOR, manifest.aggregator),
        (PartyRole.TRAINER, manifest.trainer),
    ]
    return [
        _process(directory, directory / "parties" / party.name, party.url, MODULES[role], {})
        for role, party in parties
    ]


def agents(directory: Path, *, ask_owners: bool = False) -> list[Process]:
    """Return how to start each site's agent, once its owner has put two files in its directory.

    They are `policy.toml`, what the data holder allows, and the records: `records.csv`, or
    `records.npz` where `records.toml` is. Unless `ask_owners`, no owner is asked about jobs: it is
    for trying out. A site that `shoal agent new` made later gets a port above all others.
    """
    homes = sorted(home for home in (directory / "clients").iterdir() if home.is_dir())
    urls = {home: (home / "url").read_text().strip() for home in homes if (home / "url").exists()}
    parties = services(directory, open_chain(directory / "consortium")[-1])
    found = []
    for home in homes:
        if home not in urls:
            taken = [port_of(url) for url in (*urls.values(), *(each.url for each in parties))]
            beside = parties[-1].url
            urls[home] = f"{beside.removesuffix(f':{port_of(beside)}')}:{max(taken) + 1}"
        more = {} if ask_owners else {"SHOAL_AGENT_APPROVAL": "automatic"}
        found.append(_process(directory, home, urls[home], "shoal_agent", more))
    return found


def records_of(home: Path) -> list[Path]:
    """Return the files that a site's agent needs of its owner, [] while they are not all there."""
    table = "records.npz" if (home / "records.toml").exists() else "records.csv"
    found = [home / table, home / "policy.toml"]
    return found if all(path.is_file() for path in found) else []


def _process(
    directory: Path, home: Path, url: str, module: str, more: Mapping[str, str]
) -> Process:
    environment = {
        "SHOAL_PARTY": os.fspath(home),
        "SHOAL_CONSORTIUM": os.fspath(directory / "consortium"),
        "SHOAL_DATA": os.fspath(directory / "data" / home.name),
        "SHOAL_HOST": host_of(url),
        "SHOAL_PORT": str(port_of(url)),
        **more,
    }
    return Process(home.name, module, environment, directory / "logs" / f"{home.name}.log", url)
