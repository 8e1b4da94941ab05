"""Detect whether prose affirms or denies a mention: "no CUDA graphs", "graphs and overlap off", "non-interleaved"."""

import re

_NOT = (
    r"(?<![\w-])(?:no|not|without|w/o|non|never|neither|nor|cannot|\w+n't|disabl\w+|deactivat\w+|lack(?:s|ing)?|missing|except|"
    r"excluding|sans|instead of|rather than|no use of|not with|(?:turn|switch)(?:ed|ing)? off|(?:off|disabled):|un(?=-))"
)
_STOPS = "no|not|without|never|with|for|of|in|to|by|than|on|from|at|as|is|are|was|were|that|which|only|just|but|and|or|nor|when|if"
_WORD = rf"(?!(?:{_STOPS})\b)(?:[\w.+/'-]*\w)"
_PHRASE = rf"(?:{_WORD} ){{0,3}}{_WORD}"
_NEAR = rf"(?:{_WORD} ){{0,2}}"

_BEFORE = re.compile(rf"{_NOT}[ -](?:{_PHRASE}(?:, {_PHRASE})*,? (?:or|nor|and) )?{_NEAR}$|(?<!\w)(?:un|non)$")
"""A negation before a mention: `no`, `no fused`, `without A or`, `without A, B or`, or the prefix `un`."""

_LISTED = re.compile(rf"{_NOT} {_PHRASE}(?:, {_PHRASE})*, {_NEAR}$")
"""A negation that applies to a mention before a comma only if an `or` follows: `without A, B or C`."""

_OR = re.compile(rf"\w*(?: {_WORD}){{0,2}}(?:, {_PHRASE})*,? n?or ")
_AUXILIARY = (
    r"(?:(?:is|are|was|were|be|been|being|has|have|had|must|should|needs?|to|kept|left|turned|switched|set to|both|all|still|"
    r"currently|completely|fully|explicitly|deliberately|temporarily) )*"
)
_DENIED = (
    rf"{_AUXILIARY}(?:(?:off|disabled|deactivated|unused|inactive|unavailable|unsupported|(?:\w+n't|(?:can)?not|can not|could not|"
    r"did not|does not|never|no longer) (?:yet |be )*"
    r"(?:used|in use|enabled|applied|active|on|available|supported|possible|work(?:ing)?|recomputed|counted))\b|"
    r"(?:absent|avoided|dropped|excluded|failed|fails|left out|missing|omitted|removed|skipped)(?= ?(?:$|[;,.)|])))"
)
_NOUN = "(?: (?:kernels?|capture|mode|schedule|scheduling|training|layers?|activations?|calls?))?"
_OFF = r"(?:false|none|off|disabled|0(?:\.0*)?(?![\w.%]))"
_BESIDE = rf"(?:(?:,? and | (?:or|/|&|\+) |/)(?:{_WORD} ){{0,2}}{_WORD}{_NOUN})*"
_AFTER = re.compile(
    rf"\w*{_NOUN}{_BESIDE}(?:"
    rf"(?: ?[:(\[]? ?| ?(?:[-=]>|[-\u2013\u2014\u2192]) ?){_DENIED}|"
    rf" ?[=:] ?(?:[\"'\[]*(?:{_OFF}|no\b)|\[\]|\{{\}})|"
    rf" [\"']?{_OFF}(?= ?(?:$|[;,.)|\"'])))"
)
"""A negation after a mention: `off`, `=false`, `: none`, `is not used`, `and B off`."""


def affirms(words: str, text: str) -> bool | None:
    """Return whether a text affirms (True) or denies (False) the mention of some words.

    None if the text does not mention them, if mentions contradict each other, and for a double negation.

    **Arguments:**

    - `words`: a regular expression; its group `at`, if any, is the mention.
    - `text`: lower-case text.
    """
    found = set()
    for match in re.finditer(words, text):
        start, end = match.span("at" if "at" in match.re.groupindex else 0)
        before, after = text[max(start - 120, 0) : start], text[end : end + 120]
        reaching = _BEFORE.search(before) or (_OR.match(after) and _LISTED.search(before))
        twice = reaching and re.search(rf"{_NOT} $", before[: reaching.start()])
        denials = bool(reaching) + bool(twice) + bool(_AFTER.match(after))
        found.add({0: True, 1: False}.get(denials))
    return found.pop() if len(found) == 1 else None
