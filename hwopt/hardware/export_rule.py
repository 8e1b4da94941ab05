"""Export control rules: the thresholds of each paragraph, and the combinations of limits that avoid all paragraphs."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

FIGURES = {"tpp": "", "density": "1/m2", "io": "B/s"}
"""Metrics of a chip that rules limit -> SI unit: total processing performance (TPP), performance density, I/O rate."""

PARAGRAPHS = ("a1", "a2", "b1", "b2")
"""Paragraphs of ECCN 3A090 that rules contain."""

JUST_BELOW = 1e-5
"""Relative margin that a chip keeps below a threshold: ten times the tolerance within which a limit counts as met."""


@dataclass(frozen=True)
class Threshold:
    """Value of a metric at and above which a paragraph may apply. **Arguments:** `value` in SI; `written`: the number as
    in the rule.
    """

    value: float
    written: str

    @property
    def limit(self) -> float:
        """Return the maximum that a chip may have."""
        return self.value * (1.0 - JUST_BELOW)


Case = Mapping[str, Threshold]
"""Metric -> threshold that the chip stays below."""


@dataclass(frozen=True)
class ExportRule:
    """An export control rule, in the version of one date.

    **Arguments:** `name`; `paragraphs`: name -> thresholds by metric. A paragraph applies to chips that reach all of
    its thresholds.
    """

    name: str
    paragraphs: Mapping[str, Case]

    def caught_by(self, figures: Mapping[str, float]) -> list[str]:
        """Return the paragraphs that apply to a chip. By the rule, paragraphs .b apply only to chips that no paragraph .a
        covers.

        **Arguments:** `figures`: the chip's metrics in SI; an unknown metric counts as reached.
        """
        reached = lambda each: all(figures.get(name, math.inf) >= x.value for name, x in each.items())
        caught = [name for name, each in self.paragraphs.items() if reached(each)]
        return [name for name in caught if name[0] == caught[0][0]]

    @cached_property
    def cases(self) -> dict[str, Case]:
        """Return the alternatives to stay outside the rule, by name. Each is a set of limits; a chip outside meets at
        least one set.

        A chip is covered if it reaches all thresholds of any paragraph ("OR of ANDs"). It is outside if it misses one
        threshold of each paragraph ("AND of ORs"). Alternatives that another one contains are dropped; the rest is
        sorted by increasing TPP limit.
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
    """Return whether one alternative allows everything that another allows, and more."""
    value = lambda way, name: way[name].value if name in way else math.inf
    pairs = [(value(one, name), value(other, name)) for name in FIGURES]
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)
