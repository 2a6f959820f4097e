"""`shoal agent restore` over a state of another consortium is refused, and "nothing is changed"."""

from pathlib import Path
from tempfile import TemporaryDirectory

import nacl.utils

from shoal_agent.restoring import restore_file
from shoal_holder import journal
from shoal_holder.state import State
from tests.world.clock import NOW

with TemporaryDirectory() as made:
    path = Path(made) / "holder.sqlite"
    state = State(path, authority="e" * 64)
    with state.file.transaction():
        journal.append(state.file, "leave", "a" * 64, job="a" * 64)
    state.close()
    try:
        restore_file(path, authority="f" * 64, random_bytes=nacl.utils.random, now=NOW)
    except ValueError as error:
        print("refused:", str(error)[:60])
    try:
        State(path, authority="e" * 64).close()
        print("the state goes on as before")
    except ValueError as error:
        print("the state that was whole is refused since:", str(error)[-200:])
