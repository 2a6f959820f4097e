"""A disk that fails once at the mark, and a courier that goes on: one draw is answered twice.

In the variant "one" the second answer has the same noise on another weight, so that the difference
of the two steps can be told exactly.
"""

import errno
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import httpx
import numpy as np

from shoal_holder import frames
from shoal_holder.crowds import memory
from shoal_holder.mark import Mark
from shoal_holder.messages import answer_to, question_about
from shoal_holder.vault import Vault
from shoal_protocol.crowds.draws import Submission
from shoal_protocol.wire.documents import decode
from tests.world.around_holder import NODES, vault_of
from tests.world.around_holder_crowds import CrowdWorld


def ask(vault, verb, **about):
    question = frames.encode(question_about(verb)(**about))
    return frames.decode(vault.answer(question), {"Answer": answer_to(verb)})


def attack(directory: Path) -> list[Submission]:
    world = CrowdWorld(directory)
    nodes = [f"compute-{node}" for node in range(NODES)]
    vault = vault_of(world.holder(without_nodes=nodes))
    sent: list[Submission] = []
    has_failed = False

    def charge(*given, **named):
        nonlocal has_failed
        if has_failed:
            return honest(*given, **named)
        has_failed = True

        def fails(*_):
            raise OSError(errno.EIO, "the disk does not answer")

        with patch.object(Mark, "write", fails):
            return honest(*given, **named)

    honest = memory.charge
    with patch.object(memory, "charge", charge):
        for _ in range(100):
            tried: set[str] = set()
            while (answer := ask(vault, Vault.due, without=tuple(tried))).value != ():
                # an honest courier would end where the vault has failed
                for letter in answer.value or ():
                    tried.add(letter.id)
                    if letter.id.startswith("contribution/"):
                        sent.append(decode(letter.body, Submission).body)
                    url, method = f"https://trainer{letter.path}", "POST" if letter.body else "GET"
                    asked = httpx.Request(method, url, content=letter.body)
                    said = world.crowds.answer(asked)
                    told = {"status": said.status_code, "body": said.content}
                    ask(vault, Vault.settle, letter=letter.id, **told)
            world.clock.move(10)
    vault.close()
    return sent


if __name__ == "__main__":
    with TemporaryDirectory() as made:
        by_nonce: dict[str, dict[str, Submission]] = {}
        for each in attack(Path(made)):
            by_nonce.setdefault(each.draw.body.nonce, {})[each.digest] = each
        for answers in by_nonce.values():
            if len(answers) > 1:
                for each in answers.values():
                    moved = np.array(each.weights) - np.array(each.draw.body.weights)
                    print(f"client {each.client}, nonce {each.draw.body.nonce[:8]}: {moved}")
        print(f"{sum(len(each) > 1 for each in by_nonce.values())} draws were answered twice")
