"""A whole federation in one directory, for trying out.

In production every organisation makes its own party on its own machine and hands over only its
card. Here one process makes all keys, so the directory's owner can play every party.
"""

import os
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from nacl.signing import SigningKey

from shoal_agent.client_files import new_directory, write_agent, write_pin
from shoal_consortium import consortium_files, dictionary_files
from shoal_consortium.parties import first_manifest
from shoal_consortium.party_files import (
    RandomBytes,
    make_authority_directory,
    new_party,
    write_party,
)
from shoal_consortium.processes import Process
from shoal_kit.manifest_chain import open_chain
from shoal_kit.party import PartyRole
from shoal_kit.private_files import PRIVATE_DIRECTORY, write_new
from shoal_kit.tls_certificates import host_of, port_of, self_signed
from shoal_protocol.trust.dictionary import Variable
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.trust.policy import Policy
from shoal_protocol.trust.roster_changes import roster_of

_SITE: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_KEYS: Final = ("authority", "authority-recovery")


def exists(directory: Path) -> bool:
    """Say whether `directory` holds a complete federation."""
    return (directory / "consortium" / "manifest.json").is_file()


def make(
    directory: Path,
    *,
    consortium: str,
    compute_nodes: int,
    clients: Mapping[str, int],
    url_template: str,
    first_port: int,
    policy: Policy,
    valid_days: int,
    now: datetime,
    random_bytes: RandomBytes,
    extra_hosts: Sequence[str] = (),
    dictionary: tuple[Variable, ...] = (),
) -> Consortium:
    """Make all parties, clients, the authority and the consortium in `directory`.

    `url_template` has {name} and {port}; `extra_hosts` go on certificates. Ports count up from
    `first_port`: the Compute nodes, the aggregator, the trainer, then one agent for each site of
    `clients` (site -> number of its clients). Without `dictionary` jobs may name any columns.

    Raises:
        FileExistsError: the directory is not empty, or cannot be replaced; nothing is overwritten.
        ValueError: a name or URL is malformed, or sizes do not fit.
    """
    roles: dict[str, PartyRole] = {f"compute-{index}": "compute" for index in range(compute_nodes)}
    roles |= {"aggregator": "aggregator", "trainer": "trainer"}
    everybody = roles | {"analyst": "analyst"}
    if wrong := [site for site in clients if site in roles or not _SITE.fullmatch(site)]:
        raise ValueError(
            f"{', '.join(wrong)} is no site's name: 1 to 63 of a-z, 0-9 and hyphens, as st-anna, "
            "no hyphen first, and not a service's"
        )
    names = [*roles, *clients]
    if "{port}" in url_template and first_port + len(names) > 65_536:
        raise ValueError("there are not enough ports above the first one")
    urls = {
        name: url_template.replace("{name}", name).replace("{port}", str(port))
        for port, name in enumerate(names, first_port)
    }
    with new_directory(directory) as pending:
        parties = [
            new_party(
                role,
                name=name,
                operator="one machine, for trying out",
                url=None if role == "analyst" else urls[name],
                extra_hosts=extra_hosts,
                now=now,
                valid_days=valid_days,
                random_bytes=random_bytes,
            )
            for name, role in everybody.items()
        ]
        keys = {site: SigningKey(random_bytes(32)) for site in clients}
        roster = roster_of(((key.verify_key, clients[site]) for site, key in keys.items()))
        authority, recovery = (SigningKey(random_bytes(32)) for _ in _KEYS)
        manifest = first_manifest(
            consortium,
            [party.card for party in parties],
            roster=roster,
            policy=policy,
            authority=authority,
            recovery=recovery.verify_key,
        )
        for name, key in zip(_KEYS, (authority, recovery), strict=True):
            make_authority_directory(pending / name, key)
        made = consortium_files.create(pending / "consortium", manifest, roster)
        if dictionary:
            dictionary_files.add_version(pending / "consortium", dictionary, authority)
        for party in parties:
            home = pending / "parties" / party.card.name
            write_party(home, party)
            write_pin(home, made.digest, replace_other=False)
            (pending / "data" / party.card.name).mkdir(mode=PRIVATE_DIRECTORY, parents=True)
        for site, key in keys.items():
            home = pending / "clients" / site
            tls = self_signed(
                site, [host_of(urls[site]), *extra_hosts], now=now, valid_days=valid_days
            )
            write_agent(home, key, slots=clients[site], tls=tls)
            write_pin(home, made.digest, replace_other=False)
            write_new(home / "url", f"{urls[site]}\n".encode(), private=False)
            (pending / "data" / site).mkdir(mode=PRIVATE_DIRECTORY)
    return made


def services(directory: Path, consortium: Consortium) -> list[Process]:
    """Return how to start each service of the federation in `directory`."""
    manifest = consortium.manifest
    modules = {
        manifest.aggregator.name: "shoal_aggregator",
        manifest.trainer.name: "shoal_trainer",
    }
    return [
        _process(
            directory,
            directory / "parties" / party.name,
            party.url,
            modules.get(party.name, "shoal_compute"),
            {},
        )
        for party in manifest.services
    ]


def agents(directory: Path, *, ask_owners: bool = False) -> list[Process]:
    """Return how to start each site's agent, once its owner has put two files in its directory.

    They are `policy.toml`, what the data holder allows, and the records: `records.csv`, or
    `records.npz` where `records.toml` is. Unless `ask_owners`, no owner is asked about jobs: it is
    for trying out. A site that `shoal agent new` made later gets a port above all others.
    """
    homes = sorted(home for home in directory.glob("clients/*") if home.is_dir())
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
    return Process(
        home.name,
        module,
        {
            "SHOAL_PARTY": os.fspath(home),
            "SHOAL_CONSORTIUM": os.fspath(directory / "consortium"),
            "SHOAL_DATA": os.fspath(directory / "data" / home.name),
            "SHOAL_HOST": host_of(url),
            "SHOAL_PORT": str(port_of(url)),
            **more,
        },
        directory / "logs" / f"{home.name}.log",
        url,
    )
