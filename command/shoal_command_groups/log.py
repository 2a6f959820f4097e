"""`shoal log`: reads and checks the log that the Compute nodes witness; anybody may."""

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from shoal_command.connection import read_file
from shoal_command.terminal import AsJson, ExitStatus, fail, now, tell, warn
from shoal_consortium.consortium_files import believed
from shoal_consortium.log_reading import (
    Read,
    Reading,
    from_aggregator,
    from_files,
    keep_evidence,
    read_log,
)
from shoal_kit.manifest_chain import open_chain
from shoal_kit.peers.service_calls import Endpoint
from shoal_protocol.log.checkpoints import Witnessed, WrongProof, lying_witnesses
from shoal_protocol.log.entries import ForkedLog
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.errors import ProtocolError

app = typer.Typer(no_args_is_help=True, help="Check the consortium's log, or see what is new.")


@app.command()
def verify(
    directory: Annotated[Path, typer.Argument(help="The consortium directory; it is public.")],
    pin: Annotated[str | None, typer.Option(help="Digest of a version that you pinned.")] = None,
    files: Annotated[
        Path | None, typer.Option(help="A copy of the log; without it, ask the aggregator.")
    ] = None,
    copy: Annotated[
        Path | None, typer.Option(help="Keep a copy here: the next time, what is new is shown.")
    ] = None,
    against: Annotated[
        list[Path] | None,
        typer.Option(help="A checkpoint that somebody else was shown; repeatable."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check every entry and the Compute nodes' signatures.

    With --copy it shows what is new since the last look.

    Exit status: 0 it holds; 1 a directory cannot be read; 3 it does not hold; 4 it cannot be
    reached; 7 it contradicts itself, or what was seen of it.
    """
    chain = believed(open_chain(directory, pin=pin), pin=pin)
    reading = _read(chain, files, copy, against or [])
    said = _said(reading)
    places = range(reading.seen, len(reading.entries)) if copy else ()
    new = [{"place": each, **reading.entries[each].model_dump(mode="json")} for each in places]
    tell(
        {**said, "new": new},
        as_json,
        *(
            " ".join(f"{name} {value}" for name, value in each.items() if name != "ledgers")
            for each in new
        ),
        said,
        *_sentences(said, chain[-1]),
    )
    for each in reading.findings:
        warn(f"entry {each.place}: {each.what}")
    if reading.findings:
        fail(f"{len(reading.findings)} entries contradict others", ExitStatus.CONTRADICTION)


def _read(
    chain: list[Consortium], files: Path | None, copy: Path | None, against: list[Path]
) -> Reading:
    aggregator = chain[-1].manifest.aggregator
    read: Read = from_files(files) if files else from_aggregator(Endpoint.of(aggregator))
    others = [Witnessed.decode(read_file(path)) for path in against]
    try:
        return read_log(read, chain, copy=copy, others=others)
    except ForkedLog as fork:
        where = keep_evidence(copy, fork) if copy else []
        kept = f" Both checkpoints are in {where[0]} and {where[1]}." if where else ""
        fail(f"{fork}.{kept} {fork.remedy}", ExitStatus.CONTRADICTION)
    except WrongProof as error:
        fail(f"the log does not hold: {error}", ExitStatus.CONTRADICTION)
    except ProtocolError as error:
        fail(f"the log does not hold: {error}. {error.remedy}", ExitStatus.REFUSED)


def _said(reading: Reading) -> dict[str, Any]:
    signed, checkpoint = reading.witnessed.cosigners(reading.version), reading.witnessed.checkpoint
    manifest = reading.version.manifest
    return {
        "consortium": checkpoint.body.consortium,
        "aggregator": checkpoint.body.aggregator,
        "size": len(reading.entries),
        "head": checkpoint.body.head,
        "signed_by": sorted(signed),
        "version": manifest.sequence,
        "needed": manifest.quorum,
        "signed_at": max(signed.values()).isoformat(),
        "new_entries": len(reading.entries) - reading.seen,
        "findings": [{"entry": each.place, "what": each.what} for each in reading.findings],
    }


def _sentences(said: dict[str, Any], version: Consortium) -> list[str]:
    age = (now() - datetime.fromisoformat(said["signed_at"])).total_seconds()
    newest, lying = version.manifest.sequence, lying_witnesses(version.manifest)
    stale = [
        f"They are nodes of version {said['version']} of the manifest. Those of version "
        f"{newest} have not signed this checkpoint: it does not show whether the log went on."
    ]
    return [
        f"The log holds: {said['size']:,} entries, signed by {', '.join(said['signed_by'])}, "
        f"{said['needed']} of whom are needed; the newest signature is {age:,.0f} s old.",
        *(stale if said["version"] < newest else []),
        f"To show somebody else another history, {lying} of the Compute nodes must lie, with the "
        "aggregator.",
    ]
