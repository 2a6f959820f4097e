"""What courier and vault say to each other, one question at a time.

A question names a method of the vault or of one of its parts, which the vault lists: those are its
verbs. It carries the method's arguments as JSON, in which byte strings are base64: documents as
they were signed, envelopes as they are sent. The method's own signature says what is well formed,
and both sides refuse everything else.
"""

from collections.abc import Callable
from functools import cache
from inspect import signature
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, create_model

from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.encoding import Count as Count
from shoal_protocol.wire.encoding import Finite, Name, Timestamp

LARGEST_BYTES: Final = 400 << 20  # a roster of 300 MiB, in base64

Outcome = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]{1,64}$")]
"""What became of a message: acknowledged, or the code of a refusal."""
LetterId = Annotated[
    str, StringConstraints(pattern=r"^[a-z]{1,20}(/[a-z0-9-]{1,64}(/[0-9]{1,9})?)?$")
]
"""A letter's kind, then the job, round or node that it is about, and a number where it has one."""
Status = Annotated[int, Field(ge=0, le=599)]
"""HTTP status of an answer; 0: there is none, or one that says to come back later."""
Fact = str | Count | Finite | None

Octets = Annotated[bytes, Field(repr=False)]
IN_BASE64: Final = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")


class Message(Model):
    """What is sent as a frame; byte strings are base64 in its JSON."""

    model_config = IN_BASE64


class Event(Model):
    """An event in the vault, for the log: no client, no value."""

    name: str
    facts: dict[str, Fact]


class Answer(BaseModel):
    """The answer to a question: `value` is what its verb returned."""

    model_config = IN_BASE64 | {"frozen": True, "extra": "forbid", "hide_input_in_errors": True}

    value: Any = Field(default=None, repr=False)
    events: tuple[Event, ...] = ()
    refused: Outcome | None = None
    """The code of a refusal: the peer's document is wrong, or names nothing that is here."""
    failed: bool = False
    """The vault does not start, or cannot read or write its state, which tells what was done."""
    why: str = ""


@cache
def _forms_of(function: Callable[..., Any]) -> tuple[type[Message], type[Answer]]:
    """Return the models of a question about a method, and of the answer to it."""
    shape = signature(function)
    arguments: dict[str, Any] = {
        name: (each.annotation, ... if each.default is each.empty else each.default)
        for name, each in shape.parameters.items()
        if name != "self"
    }
    question = create_model(function.__qualname__, __base__=Message, **arguments)
    value = (shape.return_annotation, Field(default=None, repr=False))
    return question, create_model("Answer", __base__=Answer, value=value)


def _forms(verb: Callable[..., Any]) -> tuple[type[Message], type[Answer]]:
    # of the function: a method that is bound would be kept, with all that it is bound to
    return _forms_of(getattr(verb, "__func__", verb))


def question_about(verb: Callable[..., Any]) -> type[Message]:
    """Return the model of a verb's arguments, which has the verb's name."""
    return _forms(verb)[0]


def answer_to(verb: Callable[..., Any]) -> type[Answer]:
    """Return the model of the answer to a question about a verb."""
    return _forms(verb)[1]


class Standing(BaseModel):
    """How a data holder stands, for its owner alone."""

    isolation: str
    key: str  # the fingerprint of the one in force
    enrolled: Count  # slots
    refusal: str | None = None  # why nothing is joined or answered, and what to do
    backup_at: Timestamp | None = None  # when the last one was handed out
    backup_due: bool = False
    owners_missing: str | None = None  # why no job can be approved


class Opened(Standing):
    """How a vault is isolated, and how many slots it has."""

    sequence: Count  # of the manifest in force
    takes_crowds: bool  # may take part in crowd jobs, or did once
    is_compared: bool = False  # enough nodes said since the start what they charged the slots here
    is_shut_out: bool = False  # no party takes messages by this key again; `refusal` says why


class Letter(BaseModel):
    """A request to one party: a GET where there is no body, else a POST."""

    model_config = IN_BASE64

    id: LetterId
    party: Name
    path: str
    body: Octets = b""
    is_json: bool = True
