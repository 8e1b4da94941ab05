"""Hostile names from a fixed seed: line ends, quotes, comment and tag delimiters, cursor moves, invalid Unicode."""

import random

PIECES = (
    "\n", "\r", "\r\n", "\t", "\x0b", "\x0c", "\x1b[2J", "\x1b]0;title\x07", "\x07", "\x08", "\x7f", "\x85", "\x9b31m", "\u2028",
    "\u2029", "\u202e", "\u2066", "\u200b", "\ufeff", "\xa0", "\udc80", "\udcff", "\ud800", "\uffff", "\U0001f600", "é", " ", "'",
    '"', "`", "\\", "$(touch pwned)", "`touch pwned`", ";touch pwned;", "\ntouch pwned\n", "&& touch pwned", "$HOME",
    "${x}", "|", "-->", "<!--", "</script>", "<script>alert(1)</script>", "</title>", "<img src=x onerror=y>", "&amp;", "]]>",
    "'''", '"""', "#", ":", ",", "=", "%", "{", "}", "[", "]", "!", "*", "~", "END", "\nEND\n", ")", "yes", "no", "null", "1e3",
    "../",
)  # fmt: skip
WHOLE = (
    "-rf",
    "#x",
    "yes",
    "null",
    "1e3",
    "~",
    "---",
    "...",
    "",
    " ",
    "=cmd()",
    "@x",
    "a" * 10_000,
    "\n" * 50,
    "../../etc/passwd",
)


def names(count: int = 300) -> list[str]:
    """Return each fragment alone, special words of several languages, and random sequences of fragments."""
    drawn = random.Random(20_62)
    several = ["".join(drawn.choices(PIECES, k=drawn.randint(2, 12))) for _ in range(count)]
    return [*(f"a{piece}b" for piece in PIECES), *WHOLE, *several]
