"""Messages between courier and vault about sessions with Compute nodes."""

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from shoal_holder.messages import Answer, Done, Message, Node, Outcome, kinds_of
from shoal_protocol.wire.encoding import Digest, Name


class SessionsDue(Answer):
    """Whose prekeys a new opening needs, and to whom the part, an opening, is to be sent."""

    kind: Literal["sessions_due"] = "sessions_due"
    prekeys_of: tuple[Name, ...] = ()
    send_to: tuple[Name, ...] = ()
    parts: Annotated[tuple[bytes, ...], Field(max_length=1, exclude=True, repr=False)] = ()


class AskSessions(Message):
    """What is there to do for sessions?"""

    kind: Literal["ask_sessions"] = "ask_sessions"
    answer: ClassVar[type[Answer]] = SessionsDue


class OpenSession(Message):
    """Open a session with the nodes whose prekeys these are, as they signed them."""

    kind: Literal["open_session"] = "open_session"
    parts: Annotated[tuple[bytes, ...], Field(max_length=255, exclude=True, repr=False)] = ()
    answer: ClassVar[type[Answer]] = SessionsDue


class OpeningReceipt(Message):
    """A node's answer to the opening.

    Accepted unsigned: a share that is wrapped otherwise for it is the same share.
    """

    kind: Literal["opening_receipt"] = "opening_receipt"
    node: Name
    outcome: Outcome
    answer: ClassVar[type[Answer]] = Done


class ShowRefusal(Message):
    """A node's signed word that it does not know the session of a round's envelope."""

    kind: Literal["show_refusal"] = "show_refusal"
    round_id: Digest
    node: Node
    parts: tuple[bytes] = Field(exclude=True, repr=False)
    answer: ClassVar[type[Answer]] = Done


REQUESTS: Final = kinds_of(AskSessions, OpenSession, OpeningReceipt, ShowRefusal)
