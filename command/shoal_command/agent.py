"""`shoal agent`: makes and starts a data holder's agent, and shows what it did."""

import os
import secrets
from base64 import b64decode
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from nacl.public import PrivateKey
from nacl.signing import SigningKey

from shoal_agent.client_files import enrolment_of, grow, read_enrolment, rotate, write_agent
from shoal_agent.restoring import restore_state, write_recovery_key
from shoal_agent.settings import Settings
from shoal_agent.status import HolderStatus
from shoal_command.connection import (
    AgentData,
    AgentDirectory,
    AgentUrl,
    JobId,
    checked_id,
    own_agent,
)
from shoal_command.options import VALID_DAYS, ExtraHosts, ValidDays, with_options_of
from shoal_command.own_console import Port, serve_console
from shoal_command.terminal import (
    AsJson,
    ExitStatus,
    Yes,
    confirm,
    fail,
    now,
    shell_command,
    tell,
)
from shoal_holder.crowds.status import is_cheating
from shoal_holder.keys import next_key_of, read_holder_key
from shoal_holder.policy import Policy
from shoal_holder.restoring import allowed_of_crowds
from shoal_holder.site_files import HOLDER_KEY, POLICY, RECORDS
from shoal_kit.clock import system_clock
from shoal_kit.manifest_book import ManifestBook
from shoal_kit.startup import read_pin, replace
from shoal_kit.tls_certificates import self_signed
from shoal_protocol.trust.roster import key_fingerprint

if TYPE_CHECKING:
    from fastapi import FastAPI
from typing import Final

from shoal_agent.client_files import hex_line
from shoal_agent.console import sentences
from shoal_agent.console.own_agent import request_of, signed_decision
from shoal_agent.status import ApprovalsView, AskingView
from shoal_kit.peers.service_calls import Endpoint
from shoal_kit.private_files import write_new
from shoal_protocol.jobs.membership import WAITS, Decision

app = typer.Typer(no_args_is_help=True, help="Make a data holder's agent, run it, see its state.")


@app.command()
def console(
    directory: AgentDirectory,
    data: AgentData,
    url: AgentUrl,
    owner: Annotated[
        Path | None,
        typer.Option(
            help="Your owner's key file, to decide about jobs; without it pages only show."
        ),
    ] = None,
    port: Port = 8471,
) -> None:
    """Serve pages to your own browser until Ctrl-C: jobs that ask, ledger, what left, policy.

    Elsewhere than on the agent's machine, copies of its tls.crt and owner.token are enough: keep
    the owner's key there, for decisions are signed by this process. Who signs in shows the token
    that is printed at the start, another one each time.
    """
    endpoint = own_agent(directory, url, data)
    key = None if owner is None else read_holder_key(owner)

    def made_for(token: str) -> "FastAPI":
        from shoal_agent.console.pages import console_of

        return console_of(endpoint, token=token, clock=system_clock, owner_key=key)

    serve_console(made_for, port=port, extra="shoal-holder[agent]")


_PATH: Final = "/v1/approvals"

OwnerKey = Annotated[Path, typer.Option("--owner", help="Your owner's key file.")]


@app.command()
def owner_key(
    file: Annotated[Path, typer.Argument(help="New file for your private key.")],
    name: Annotated[str, typer.Option(help="What your policy calls you.")] = "owner",
    as_json: AsJson = False,
) -> None:
    """Make a data owner's key, by which you approve or refuse jobs.

    Each owner makes one alone, elsewhere than on the agent's machine; policy.toml lists its public
    half.
    """
    key = SigningKey(secrets.token_bytes(32))
    write_new(file, hex_line(bytes(key)), private=True)
    public = bytes(key.verify_key).hex()
    tell(
        {"file": file, "name": name, "key": public},
        as_json,
        f"{file} decides about jobs: keep it where no agent is, and keep a copy.",
        "List it in policy.toml beside other owners, and start the agent anew:",
        f'owners = {{{name} = "{public}"}}',
    )


@app.command()
def approvals(
    directory: AgentDirectory, data: AgentData, url: AgentUrl, as_json: AsJson = False
) -> None:
    """List the jobs that asked the owners, and what these decided.

    Those that may still be decided come first, then the newest.
    """
    pages = list(own_agent(directory, url, data).pages(ApprovalsView, _PATH, count=100))
    found = pages[-1].model_copy(
        update={"jobs": tuple({each.job: each for page in pages for each in page.jobs}.values())}
    )
    sentence = found.missing or ("" if found.jobs else "No job has asked.")
    # facts, not a table: it would fold the ids that are to be copied
    facts = [part for each in found.jobs for part in (_row(each), "")]
    tell(found, as_json, *facts, *filter(None, [sentence]))


@app.command()
def approve(
    job: JobId,
    directory: AgentDirectory,
    data: AgentData,
    url: AgentUrl,
    owner: OwnerKey,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Let your data holder take part in a job, after showing what it asks and costs."""
    _decide(own_agent(directory, url, data), job, "approve", owner, yes, as_json)


@app.command()
def refuse(
    job: JobId,
    directory: AgentDirectory,
    data: AgentData,
    url: AgentUrl,
    owner: OwnerKey,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Refuse a job that asks, for good, whatever other owners say."""
    _decide(own_agent(directory, url, data), job, "refuse", owner, yes, as_json)


def _decide(
    agent: Endpoint, job: str, decision: Decision, owner: Path, yes: bool, as_json: bool
) -> None:
    job = checked_id(job, listed_by="shoal agent approvals")
    key, shown = read_holder_key(owner), agent.ask(ApprovalsView, _PATH, job=job)
    encoded = signed_decision(shown, job, decision, key=key, now=now())
    confirm(f"{decision.capitalize()} this job?", _facts(agent, shown, shown.asking(job)), yes=yes)
    agent.ask(dict, _PATH, method="POST", content=encoded)
    after = agent.ask(ApprovalsView, _PATH, job=job).asking(job)
    said = sentences.stage(after)[0]
    if after.stage == WAITS:
        said = "Your approval is kept. Another owner must approve it, too."
    tell({"job": job, "decision": decision, "stage": after.stage}, as_json, said)


def _facts(agent: Endpoint, shown: ApprovalsView, asking: AskingView) -> dict[str, str]:
    """Return what a job asks, as its own signed request has it: an agent may lie about the rest."""
    request = request_of(asking)
    left = sentences.left_after(request, shown.left, agent.ask(Policy, "/v1/policy").cap)
    facts = sentences.asked(request, asking.parties, now=now(), left=left)
    facts["Who decided"] = sentences.decisions(asking)
    return {
        name: each if isinstance(each, str) else "\n".join(each) for name, each in facts.items()
    }


def _row(asking: AskingView) -> dict[str, str]:
    request = request_of(asking)
    return {
        "job": asking.job,
        "asks": sentences.title(request),
        "analyst": asking.parties.analyst,
        "price": sentences.price(sentences.cost(request)),
        "until": sentences.ahead(datetime.fromisoformat(asking.until), now=now()),
        "stage": sentences.stage(asking)[0],
        "approved by": f"{sum(each.decision == 'approve' for each in asking.decisions)}"
        f" of {asking.needed}",
    }


@app.command()
def new(
    directory: Annotated[Path, typer.Argument(help="New directory for the agent's files.")],
    slots: Annotated[
        int, typer.Option(min=1, help="Places for individuals: as many as you may ever have.")
    ],
    host: Annotated[
        str, typer.Option(help="Host name or IP address that you reach the agent by.")
    ] = "127.0.0.1",
    san: ExtraHosts = None,
    valid_days: ValidDays = VALID_DAYS,
    as_json: AsJson = False,
) -> None:
    """Make your key, a TLS certificate, and the enrolment to hand to the authority.

    Slots are given by id, drawn by chance and for ever; one record alone needs no id. A slot
    without a client is empty, and answers as one. Only holder.key.enrolment leaves the directory.
    """
    tls = self_signed("agent", [host, *(san or [])], now=now(), valid_days=valid_days)
    key = SigningKey(secrets.token_bytes(32))
    write_agent(directory, key, slots=slots, tls=tls)
    enrolment, named = enrolment_of(directory / HOLDER_KEY), key_fingerprint(bytes(key.verify_key))
    tell(
        {"directory": directory, "enrolment": enrolment, "slots": slots, "fingerprint": named},
        as_json,
        f"Made a private key for {slots:,} slots in {directory}; keep it secret, and keep a copy.",
        f"Hand {enrolment} to the consortium's authority, and read it the fingerprint {named}.",
        "Compare the manifest's digest with the other parties, then pin it:",
        shell_command("shoal", "party", "pin", directory, "DIGEST", "--consortium", "CONSORTIUM"),
        f"Put {RECORDS} and {POLICY} beside the key; then `shoal agent run` starts the agent.",
    )


@app.command("grow")
def grow_slots(
    directory: Annotated[Path, typer.Argument(help="The agent's directory.")],
    slots: Annotated[int, typer.Option(min=1, help="How many slots you ask for in all.")],
    as_json: AsJson = False,
) -> None:
    """Ask for more slots: write the enrolment anew, to hand to the authority.

    It may be done while the agent runs: the slots are yours with the next manifest.
    """
    enrolment = grow(directory / HOLDER_KEY, slots=slots)
    tell(
        {"enrolment": enrolment, "slots": slots},
        as_json,
        f"Hand {enrolment} to the consortium's authority, which gives you {slots:,} slots in all.",
    )


@app.command("rotate")
def rotate_key(
    directory: Annotated[Path, typer.Argument(help="The agent's directory.")],
    as_json: AsJson = False,
) -> None:
    """Make a new key, which your old one signs: write the enrolment anew, for the authority.

    It may be done while the agent runs, which goes over to the new key with the manifest that has
    it. Slots and what was spent on them stay. For a lost key make a new directory by `shoal agent
    new`; the authority enters its key by `shoal consortium replace`.
    """
    enrolment = rotate(directory / HOLDER_KEY, SigningKey(secrets.token_bytes(32)))
    following = next_key_of(directory / HOLDER_KEY)
    named = key_fingerprint(bytes(read_enrolment(enrolment).key))
    tell(
        {"enrolment": enrolment, "key": following, "fingerprint": named},
        as_json,
        f"The new private key is {following}, its fingerprint {named}; keep it secret, and keep a "
        "copy.",
        f"Hand {enrolment} to the consortium's authority. Once a manifest has the new key, the "
        f"agent puts it in the place of {HOLDER_KEY}; where it may not write, do so then.",
    )


@app.command("recovery-key")
def make_recovery_key(
    directory: Annotated[Path, typer.Argument(help="The agent's directory.")],
    out: Annotated[
        Path, typer.Option(help="New file for the private key: keep it on no machine of the agent.")
    ],
    as_json: AsJson = False,
) -> None:
    """Make the key that backups are sealed to: a loss of the machine needs its private half.

    Backups identify people to whoever has it. For another one remove recovery.pub first; older
    backups still need the older key.
    """
    write_recovery_key(directory, out, PrivateKey(secrets.token_bytes(32)))
    tell(
        {"recovery_key": out},
        as_json,
        f"{out} opens your backups: keep it elsewhere. `shoal agent backup` writes one.",
    )


@app.command("backup")
def back_up(
    directory: AgentDirectory,
    data: AgentData,
    url: AgentUrl,
    to: Annotated[Path, typer.Option(help="File of the backup; an older one is replaced.")],
    as_json: AsJson = False,
) -> None:
    """Write what `shoal agent restore` needs into one file, sealed to your recovery key.

    It has no key that signs: keep a copy of holder.key apart.
    """
    made = own_agent(directory, url, data).ask(dict[str, str], "/v1/backup", method="POST")
    replace(to, b64decode(made["sealed"]), private=True)
    tell({"backup": to}, as_json, f"{to} holds your state, sealed to your recovery key.")


@app.command()
def restore(
    directory: AgentDirectory,
    data: AgentData,
    consortium: Annotated[
        Path, typer.Option(envvar="SHOAL_CONSORTIUM", help="The consortium directory.")
    ],
    backup: Annotated[
        Path | None, typer.Option(help="What `shoal agent backup` wrote; a new data directory.")
    ] = None,
    recovery_key: Annotated[
        Path | None, typer.Option(help="The recovery key's private file, for a backup.")
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Go on with an older copy of your state, or with none, after machine or state were lost.

    All other machines with your key stop for good. At its next start the agent takes over what the
    Compute nodes charged. Open jobs are over. Crowd jobs count as all that was ever allowed.
    """
    sealed = None
    if backup is not None and recovery_key is not None:
        sealed = (backup.read_bytes(), recovery_key)
    elif backup is not None or recovery_key is not None:
        fail("a backup is opened by --backup and --recovery-key together", ExitStatus.MISTAKE)
    own = Policy.from_toml(directory / POLICY) if (directory / POLICY).exists() else None
    allowed = allowed_of_crowds(
        own, ManifestBook.open(consortium, read_pin(directory), data).versions
    )
    confirm(
        "Restore?",
        f"The state in {data}, {'from ' + str(backup) if backup else 'as it is there'}, "
        "takes the place of every other that has your key: such machines stop for good.",
        "Open jobs are over. "
        + (
            "Crowd jobs cost nothing: the consortium never allowed any."
            if allowed is None
            else f"What crowd jobs cost is not known: of each client's budget ε = {allowed:g} "
            "counts as spent, more if your policy ever allowed more."
        ),
        yes=yes,
    )
    epoch = restore_state(
        directory,
        consortium,
        data,
        backup=sealed,
        random_bytes=secrets.token_bytes,
        now=now(),
    )
    tell(
        {"data": data, "epoch": epoch},
        as_json,
        f"The state in {data} supersedes all others with your key.",
        "`shoal agent run` asks the Compute nodes what they charged, and then goes on.",
    )


@app.command()
def status(
    directory: AgentDirectory, data: AgentData, url: AgentUrl, as_json: AsJson = False
) -> None:
    """Show the jobs that your agent takes part in, in counts, and whether a trainer cheated it.

    Exit status 3: the closing of a crowd job does not bear out what the trainer had signed.
    """
    found = own_agent(directory, url, data).ask(HolderStatus, "/v1/status")
    tell(found, as_json, sentences.described(found))
    if cheats := sum(is_cheating(each.verdict) for each in found.crowds):
        fail(f"the trainer cheated in {cheats} crowd jobs", ExitStatus.REFUSED)


@app.command()
def leave(
    job: JobId,
    directory: AgentDirectory,
    data: AgentData,
    url: AgentUrl,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Leave a job for good: no round of it is answered from now on.

    What the job could still cost comes free. What answered rounds cost stays charged, and what was
    sent may still be summed.
    """
    job = checked_id(job, listed_by="shoal agent status --json")
    confirm(
        "Leave for good?",
        f"No round of job {job} is answered from now on, for good.",
        "What it could still cost comes free. What answered rounds cost stays charged, and what "
        "was sent may still be summed.",
        yes=yes,
    )
    left = own_agent(directory, url, data).ask(
        dict[str, Any], f"/v1/jobs/{job}/leave", method="POST"
    )
    tell(
        left,
        as_json,
        "You have left the job: no round of it is answered any more, and the budgets of "
        f"{left['slots']:,} slots are free. It had answered {left['answered_rounds']:,} rounds.",
    )


@app.command()
@with_options_of(
    Settings,
    into="settings",
    without=("pin",),
    flags={
        name: (f"--{name.removeprefix('agent_').replace('_', '-')}",)
        for name in Settings.model_fields
    }
    | {"party": ("--agent",)},
    environment="SHOAL_",
    port=8440,
)
def run(settings: dict[str, Any]) -> None:
    """Take part in the consortium's jobs with your own records, as far as your policy allows.

    Exit status 78: the agent will not start, and says why.
    """
    try:
        from shoal_agent.__main__ import main
    except ModuleNotFoundError as missing:
        fail(
            f"the agent needs more packages, as {missing.name}: pip install 'shoal-holder[agent]'",
            ExitStatus.MISTAKE,
        )
    os.environ.update({f"SHOAL_{name.upper()}": str(value) for name, value in settings.items()})
    main()
