"""Text from outside is data: what is done to it before anybody reads it.

`plain` takes out what cannot be seen (control, zero-width, bidirectional and tag characters, halves of surrogate pairs); `harmless` also cuts
and makes everything that resembles one of our tags plain text. HTML and its entities stay as they are: they are text to the policy.
"""

from __future__ import annotations

import re

from ssrl.text.tags import neutralise

_BREAKS = re.compile("\r\n|[\r\x0b\x0c\x85\u2028\u2029]")
_INVISIBLE = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x9f"  # control characters but tab and line breaks
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\ud800-\udfff"  # half a surrogate pair is no character, and no tokenizer takes it
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def plain(text: str) -> str:
    """The text without invisible characters, its line breaks as newlines."""
    return _INVISIBLE.sub("", _BREAKS.sub("\n", text))


def one_line(text: str) -> str:
    """The text with each run of white space as one space."""
    return " ".join(text.split())


def harmless(text: str, max_chars: int) -> str:
    """At most `max_chars` characters of the text, cut before anything else is done, visible ones only, in which nothing can be taken for a tag."""
    return neutralise(plain(text[:max_chars]))
