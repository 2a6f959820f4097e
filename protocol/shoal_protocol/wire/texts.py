"""Says when two texts that people write are the same: names of columns, levels, ids.

Spreadsheets, keyboards and programs write one text in several ways: with a space at its end, with a
no-break space, with an accent as a character of its own. Wherever texts are compared, their
canonical forms are.
"""

import unicodedata
from collections.abc import Iterable
from typing import Final

_AROUND: Final = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680"
    "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
    "\u200b\u2060\ufeff"
)
"""White space of Unicode, and the three characters that show nothing and end up at texts' ends."""

MISSING_TEXTS: Final = frozenset(
    {*("na", "n/a", "#n/a", "nan", "null", "#null!", "nil", "none", "-", "--", ".", "?"), "missing"}
)
"""Texts, in lower case, that programs write where a value is missing."""


def canonical_text(text: str) -> str:
    """Return the one form of a text: composed characters (NFC), and no space around them."""
    return unicodedata.normalize("NFC", text).strip(_AROUND)


def near_text(text: str, among: Iterable[str]) -> str | None:
    """Return the first text that differs from this one by case, width or punctuation alone.

    What is near is never taken for the text itself: it is named in a message. None if none is near.
    """
    wanted = _bare(text)
    return next((each for each in among if _bare(each) == wanted), None) if wanted else None


def _bare(text: str) -> str:
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return "".join(each for each in folded if each.isalnum())
