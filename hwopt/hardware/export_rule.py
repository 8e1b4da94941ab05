"""Export rules: what a chip may not reach, paragraph by paragraph, and the ways to stay outside all of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

FIGURES = {"tpp": "", "density": "1/m2", "io": "B/s"}
"""What rules ask about, in SI: total processing performance, performance density, rate of inputs and outputs."""

PARAGRAPHS = ("a1", "a2", "b1", "b2")
"""Paragraphs of ECCN 3A090 that rules have."""

JUST_BELOW = 1e-5
"""Share by which a chip stays below what catches it from there on: ten times what counts as holding a limit."""


@dataclass(frozen=True)
class Threshold:
    """A figure from which on a paragraph catches. **Arguments:** `value` in SI; `written` as the rule writes it."""

    value: float
    written: str

    @property
    def limit(self) -> float:
        """What a chip may have at most."""
        return self.value * (1.0 - JUST_BELOW)


Case = Mapping[str, Threshold]
"""Figure -> what it stays below."""


@dataclass(frozen=True)
class ExportRule:
    """A rule of one date.

    **Arguments:** `paragraphs`: name -> thresholds by figure; a paragraph catches chips that reach all of its thresholds.
    """

    name: str
    paragraphs: Mapping[str, Case]

    def caught_by(self, figures: Mapping[str, float]) -> list[str]:
        """Paragraphs that catch a chip: those of .b none that .a catches, as the rule says.

        **Arguments:** its `figures` in SI; one that is not known counts as reached.
        """
        reached = lambda each: all(figures.get(name, math.inf) >= x.value for name, x in each.items())
        caught = [name for name, each in self.paragraphs.items() if reached(each)]
        return [name for name in caught if name[0] == caught[0][0]]

    @cached_property
    def cases(self) -> dict[str, Case]:
        """The ways to stay outside, by name: each a few limits that hold together; a chip outside holds one or more of them.

        Outside of "OR of ANDs" is "AND of ORs": one threshold of each paragraph is missed. Of these the ones that no other allows
        more than, the least TPP first.
        """
        ways: list[dict[str, Threshold]] = []
        for figures in itertools.product(*self.paragraphs.values()):
            way: dict[str, Threshold] = {}
            for figure, paragraph in zip(figures, self.paragraphs.values(), strict=True):
                way[figure] = min(way.get(figure, paragraph[figure]), paragraph[figure], key=lambda each: each.value)
            ways.append(way)
        widest = [way for way in ways if not any(_allows_more(other, way) for other in ways)]
        widest.sort(key=lambda way: way["tpp"].value if "tpp" in way else math.inf)
        return {"-".join(f"{name}-{way[name].written}" for name in FIGURES if name in way): way for way in widest}


def _allows_more(one: Case, other: Case) -> bool:
    """Whether one way allows all that another does, and more."""
    value = lambda way, name: way[name].value if name in way else math.inf
    pairs = [(value(one, name), value(other, name)) for name in FIGURES]
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)
