"""A courier that settles any letter with any answer: does the vault fail anywhere?"""

import itertools
from pathlib import Path
from tempfile import TemporaryDirectory

import pydantic

from shoal_holder import frames
from shoal_holder.messages import answer_to, question_about
from shoal_holder.vault import Vault
from tests.scenarios.test_lying_courier import CLIENTS, Courier, joined
from tests.world.around_holder import World

STATUSES = (0, 200, 201, 202, 403, 404, 409, 410, 500, 599)
BODIES = [
    *(b"", b"null", b"[]", b"{}", b"1", b'["jobs"]', b'"jobs"', b"\xff\xfe", b"[" * 100_000),
    *(b'{"type":"urn:shoal:problem:%s"}' % code for code in (b"missing-request", b"unknown-job")),
    *(b'{"stored":%s}' % said for said in (b"1", b"false")),
    *(b'{"jobs":%s}' % said for said in (b'{"a":1}', b"[1]", b"null", b'"ab"', b'[{"job":["x"]}]')),
    *(b'{"jobs":[{"job":%s}]}' % said for said in (b"null", b'"%s"' % (b"b" * 64))),
]

with TemporaryDirectory() as made:
    courier = Courier(World(Path(made), CLIENTS))
    request = joined(courier)
    spec = courier.world.announce(request)
    courier.announce(spec)
    courier.look()
    asked = question_about(Vault.settle)
    abouts = ("", "a" * 64, request.digest, spec.digest, "compute-0", "-")
    letters = itertools.product(
        [*courier.vault._effects, "nonsense"], abouts, ("", "0", "999999999")
    )
    bodies, failed = [*BODIES, spec.encode(), request.encode()], set()
    for letter, status, body in itertools.product(map("/".join, letters), STATUSES, bodies):
        try:
            question = asked(letter=letter.rstrip("/"), status=status, body=body)
        except pydantic.ValidationError:
            continue
        frame = courier.vault.answer(frames.encode(question))
        answer = frames.decode(frame, {"Answer": answer_to(Vault.settle)})
        if answer.failed or answer.refused == "vault-failed":
            failed.add((letter, status, body[:30], answer.why))
    print(f"{len(failed)} failures", *sorted(failed), sep="\n")
