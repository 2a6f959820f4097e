"""`shoal quickstart`: makes a federation on one machine and prints how to start it."""

import secrets
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from shoal_command.options import VALID_DAYS, ExtraHosts, policy_of, policy_options
from shoal_command.terminal import AsJson, now, shell_command, tell, warn
from shoal_command_groups.dictionary import EXAMPLE
from shoal_consortium.dictionary_files import read_variables
from shoal_consortium.quickstart import agents, exists, make, services
from shoal_kit.manifest_chain import open_chain

WARNING: Final = (
    "for trying out only: this machine holds every key. In production every organisation makes "
    "its own party with `shoal party new` and hands over only its card."
)
_SITES = ("site-a=200", "site-b=200", "site-c=200")  # as many as `shoal job example` asks for
_RULES: Final = {
    "minimum_cohort": 20,
    "minimum_colluders": 1,
    "colluding_holders": 1,
    "minimum_holders": 2,
    "maximum_epsilon": 10.0,
    "delta": 1e-5,
}


@policy_options(**_RULES)
def quickstart(
    directory: Annotated[Path, typer.Argument(help="Directory for all files.")],
    rules: dict[str, Any],
    compute: Annotated[int, typer.Option(min=2, max=255, help="Number of Compute nodes.")] = 3,
    first_port: Annotated[int, typer.Option(min=1, max=65_000, help="First of the ports.")] = 8440,
    clients: Annotated[
        list[str] | None,
        typer.Option(
            help="SITE=COUNT: a data holder and how many clients it has; repeatable.",
            show_default=" ".join(_SITES),
        ),
    ] = None,
    phones: Annotated[
        int, typer.Option(min=0, help="Number of further data holders with one client each.")
    ] = 0,
    url_template: Annotated[
        str, typer.Option(help="URL of each party, such as https://{name}:8443.")
    ] = "https://127.0.0.1:{port}",
    san: ExtraHosts = None,
    name: Annotated[str, typer.Option(help="Name of the consortium.")] = "quickstart",
    dictionary: Annotated[
        Path | None,
        typer.Option(
            help="The data dictionary in TOML; else one of `shoal job example`'s columns."
        ),
    ] = None,
    no_dictionary: Annotated[
        bool, typer.Option("--no-dictionary", help="Let jobs name any columns.")
    ] = False,
    if_missing: Annotated[
        bool, typer.Option("--if-missing", help="Leave a federation that exists as it is.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a whole federation in one directory, for trying out, and print how to start it.

    In production every organisation makes its own party: see `shoal party new`.
    """
    if dictionary is not None and no_dictionary:
        raise ValueError("--dictionary and --no-dictionary exclude each other")
    variables = () if no_dictionary else read_variables(dictionary or EXAMPLE)
    one_each = {f"phone-{number:0{len(str(phones))}}": 1 for number in range(1, phones + 1)}
    if not (if_missing and exists(directory)):
        make(
            directory,
            consortium=name,
            compute_nodes=compute,
            clients=_sites(clients or list(_SITES)) | one_each,
            url_template=url_template,
            first_port=first_port,
            policy=policy_of(rules, nodes=compute),
            valid_days=VALID_DAYS,
            now=now(),
            random_bytes=secrets.token_bytes,
            extra_hosts=san or [],
            dictionary=variables,
        )
    consortium = open_chain(directory / "consortium")[-1]
    home = directory.resolve()
    started, later = (
        [
            {name: getattr(each, name) for name in ("name", "url", "module", "environment")}
            for each in processes
        ]
        for processes in (services(home, consortium), agents(home))
    )
    if not as_json:
        warn(WARNING)
    tell(
        {"manifest": consortium.digest, "processes": started, "agents": later},
        as_json,
        f"Federation in {directory}, manifest {consortium.digest}.",
        f"Each site's records and policy.toml go into {directory}/clients/SITE.",
        f"Start all of it with\n\n{shell_command('shoal', 'up', directory)}\n",
        "It says how to submit a job. With --json this command says how to start each process by "
        "itself.",
    )


def _sites(texts: list[str]) -> dict[str, int]:
    sites: dict[str, int] = {}
    for text in texts:
        site, _, count = text.partition("=")
        if not count.isdecimal() or site in sites:
            raise ValueError(f"--clients takes SITE=COUNT, each site once, not {text!r}")
        sites[site] = int(count)
    return sites
