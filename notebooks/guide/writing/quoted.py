"""Numbers that pages quote from committed results: which sentence repeats which line, and the pages with the results' numbers."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from writing.examples import PAGES

ROOT = Path(__file__).parents[3]
README = ROOT / "README.md"
REFERENCE = ROOT / "results" / "reference"

SHIPPED = "Shipped constants"
LEFT_OUT = "One source left out"
BEST = r"(?=0\.\d +\d+ +\d+ +\S+% +\S+% +\S+% )"
"""The line of an anchor's table that states a half width: the weight that is used."""


class Line(NamedTuple):
    """Numbers behind a pattern in the first line of a result that begins with it, below a heading.

    `sign` is -1 where words state that a number is below zero, such as "too fast". A number of the other sign is an error.
    """

    file: str
    start: str
    places: tuple[int, ...]
    below: str = ""
    sign: float = 1.0

    def numbers(self) -> list[float]:
        text = (REFERENCE / self.file).read_text(encoding="utf-8")
        _, _, text = text.partition(self.below) if self.below else ("", "", text)
        found = re.search(rf"^ *{self.start}(.*)$", text, re.MULTILINE)
        if found is None:
            raise LookupError(f"{self.file}: no line begins with {self.start}")
        found = re.findall(r"(?<![\w.])[-+]?[\d,]*\d(?:\.\d+)?", found[1])
        numbers = [self.sign * float(found[place].replace(",", "")) for place in self.places]
        if min(numbers) < 0:
            raise LookupError(
                f"{self.file}: {self.start}: a number changed its sign: write the sentence that quotes it again"
            )
        return numbers


class Quoted:
    """Groups of a pattern on a page, in the order of the numbers of lines. A space in the pattern is any white space."""

    def __init__(self, page: str, said: str, *lines: Line):
        self.page, self.said, self.lines = page, said.replace(" ", r"\s+"), lines

    def path(self) -> Path:
        """The file of the page."""
        return README if self.page == README.name else PAGES / self.page

    def replacements(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Span and new text of every number, rounded to the digits of the quotation; last first."""
        found = re.search(self.said, text, re.DOTALL)
        if found is None:
            raise LookupError(f"{self.page}: no sentence with {self.said}")
        results = [number for line in self.lines for number in line.numbers()]
        for group, result in reversed(list(zip(range(1, len(found.groups()) + 1), results, strict=True))):
            decimals = len(found[group].partition(".")[2])
            yield *found.span(group), f"{result:,.{decimals}f}"


ANCHORS = {
    (runs, kind): Line("own_runs.txt", BEST, (3, 4), below=f"anchor of {runs}, {kind}:")
    for runs in (1, 3)
    for kind in ("training", "services")
}
WITHOUT = {
    kind: Line("own_runs.txt", r"(?=0\.0 )", (1, 3, 4), below=f"anchor of 1, {kind}:")
    for kind in ("training", "services")
}
SOFTWARE = ("fastertransformer", "tensorrt-llm-2023", "tensorrt-llm-2025", "tensorrt-llm-2026", "vllm-2026", "sglang-2026",
            "jax-serving-2026", "neuron-serving")  # fmt: skip

QUOTED = (
    Quoted("README.md", r"are ([\d.]+) % \(median\) and ([\d.]+) % \(mean\)", Line("locked.txt", "all ", (2, 3))),
    Quoted("README.md", r"in-sample, has ([\d.]+) % and ([\d.]+) %", Line("locked.txt", "all ", (7, 8))),
    Quoted("accuracy.md", r"\((\d+) % too fast\)", Line("locked.txt", "all ", (4,), sign=-1.0)),
    Quoted("accuracy.md", r"of cells \(([\d.]+)\)", Line("locked.txt", "all ", (5,))),
    Quoted("accuracy.md", r"locked studies: median error 12 % \(([\d.]+)\)", Line("locked.txt", "all ", (2,))),
    Quoted("accuracy.md", r"They contain (\d+) % of \*PyTorch\* \((\d+) cells", Line("locked.txt", "PyTorch ", (5, 0))),
    Quoted("accuracy.md", r"(\d+) % of \*tpu\*", Line("locked.txt", "tpu ", (5,))),
    Quoted("accuracy.md", r"(\d+) % of \*hopper\*", Line("locked.txt", "hopper ", (5,))),
    Quoted("accuracy.md", r"(\d+) % of \*cdna\* \((\d+) cells", Line("locked.txt", "cdna ", (5, 0))),
    Quoted("accuracy.md", r"its other runs is ([\d.]+) % \(median; target 6.5\), ([\d.]+) %",
           Line("own_runs.txt", "(?=3 )", (5, 6))),
    Quoted("accuracy.md", r"model and cluster leave ([\d.]+) and ([\d.]+) %", ANCHORS[3, "training"]),
    Quoted("accuracy.md", r"other services of its cluster is ([\d.]+) %", ANCHORS[1, "services"]._replace(places=(3,))),
    Quoted("accuracy.md", r"with three runs it is ([\d.]+) %", ANCHORS[3, "services"]._replace(places=(3,))),
    Quoted("accuracy.md", r"other training plans of a cluster it is ([\d.]+) %", ANCHORS[1, "training"]._replace(places=(3,))),
    Quoted("accuracy.md", r"rank correlation on nanotron's plans is ([\d.]+)", Line("accuracy.txt", "mean rank", (0,))),
    Quoted("accuracy.md", r"in our top three in (\d+) %", Line("accuracy.txt", "best measured among", (0,))),
    Quoted("accuracy.md", r"ran out of memory, ([\d.]+) %", Line("accuracy.txt", "nanotron's, which ran out", (1,))),
    Quoted("accuracy.md", r"tuned runs \(([\d,]+) in (\d+) cells\)", Line("accuracy.txt", "one study left out", (1, 0))),
    Quoted("accuracy.md", r"all scored rows \(([\d,]+)\)", Line("accuracy.txt", "all ", (0,), below="in rows  in cells")),
    Quoted("accuracy.md", r"literature the median error is ([\d.]+) %", Line("accuracy.txt", "literature constants", (2,))),
    Quoted("accuracy.md", r"with fitted constants ([\d.]+)\.", Line("accuracy.txt", "one study left out", (2,))),
    Quoted("accuracy.md", r"of 2026 are predicted less well \((\d+) %\)", Line("accuracy.txt", "software of 2026", (2,))),
    Quoted("accuracy.md", r"earlier runs alone \((\d+) %; mean (\d+)\)",
           Line("accuracy.txt", "fitted to runs before 2026", (2, 3))),
    Quoted("accuracy.md", r"a line of their own: (\d+) %", Line("accuracy.txt", "functional runs, one", (2,))),
    Quoted("accuracy.md", r"beyond transformers\*\*: the median error is (\d+) %", Line("operators.txt", "all rows", (1,))),
    Quoted("accuracy.md", r"\*\*Prefill\*\*.*?contain (\d+) % of them", Line("serving_accuracy.txt", "prefill ", (6,))),
    Quoted("commands/calibrate.md", r"For one run w is ([\d.]+) ", ANCHORS[1, "training"]._replace(places=(0,))),
    Quoted("commands/calibrate.md", r"\(services: ([\d.]+)\), for n runs", ANCHORS[1, "services"]._replace(places=(0,))),
    Quoted("commands/calibrate.md", r"falls from ([\d.]+) % to", WITHOUT["training"]._replace(places=(3,))),
    Quoted("commands/calibrate.md", r"falls from [\d.]+ % to ([\d.]+) % .*? to ([\d.]+) %\)", ANCHORS[1, "training"]),
    Quoted("commands/calibrate.md", r"\(median over (\d+) clusters; mean ([\d.]+) %",
           WITHOUT["training"]._replace(places=(1, 4))),
    Quoted("commands/calibrate.md", r"with three to ([\d.]+) % \(mean ([\d.]+) %\)", ANCHORS[3, "training"]),
    Quoted("commands/calibrate.md", r"the 80 % intervals contain (\d+) %", ANCHORS[1, "training"]._replace(places=(6,))),
    Quoted("commands/calibrate.md", r"Of services one run leaves ([\d.]+) % of [\d.]+ \(mean ([\d.]+) %", ANCHORS[1, "services"]),
    Quoted("commands/calibrate.md", r"leaves [\d.]+ % of ([\d.]+) \(mean [\d.]+ % of ([\d.]+)\)",
           WITHOUT["services"]._replace(places=(3, 4))),
    Quoted("commands/calibrate.md", r"three leave ([\d.]+) % \(mean ([\d.]+) %\)", ANCHORS[3, "services"]),
    Quoted("physics/memory.md", r"(\d+) published peaks of 2025 and 2026 have a median error of ([\d.]+) %.*? and (\d+) % without",
           Line("memory_2026.txt", "all ", (0, 2, 4))),
    Quoted("physics/power.md", r"in (\d+) runs of services is predicted within (\d+) % \(median over (\d+) cells",
           Line("power.txt", "all ", (1, 4, 0))),
    Quoted("physics/power.md", r"loaded servers within (\d+) %", Line("power.txt", "Median ", (0,))),
    Quoted("scope.md", r"median error ([\d.]+) % over the eight groups", Line("operators.txt", "of groups", (1,))),
    Quoted("scope.md", r"rank correlation ([\d.]+) \(two measurements of the same plans: ([\d.]+)\)",
           Line("accuracy.txt", "mean rank", (0, 3))),
    Quoted("scope.md", r"(\d+) of (\d+) in our interval by the published plan", Line("scaling.txt", "published plans", (0, 1))),
    Quoted("scope.md", r"interval by the published plan, (\d+) of (\d+) by the plan", Line("scaling.txt", "best plans", (0, 1))),
    Quoted("scope.md", r"median errors over ([\d,]+) measured rows", Line("serving_accuracy.txt", "all ", (1,), SHIPPED)),
    Quoted("scope.md", r"FasterTransformer (\d+) %, TensorRT-LLM of 2023 (\d+) %, of 2025 (\d+) % and of 2026 (\d+) %, "
           r"vLLM (\d+) %, SGLang (\d+) %, JAX on TPU (\d+) %, Neuron (\d+) %",
           *(Line("serving_accuracy.txt", rf"{each} ", (2,), SHIPPED) for each in SOFTWARE)),
    Quoted("scope.md", r"prefill alone (\d+) % \((\d+) % of its rows", Line("serving_accuracy.txt", "prefill ", (2, 5), SHIPPED)),
    Quoted("scope.md", r"informs left out: (\d+) % over all cells \(mean (\d+) %\)",
           Line("serving_accuracy.txt", "all ", (2, 3), LEFT_OUT)),
    Quoted("scope.md", r"in service, (\d+) rows: median error (\d+) % over (\d+) cells",
           Line("serving_accuracy.txt", "experts, of several kinds ", (1, 2, 0), SHIPPED)),
    Quoted("scope.md", r"cells, times (\d+) % too short",
           Line("serving_accuracy.txt", "experts, of several kinds ", (4,), SHIPPED, sign=-1.0)),
    Quoted("scope.md", r"peak rate ([\d.]+) %, HBM bandwidth ([\d.]+) %, TDP ([\d.]+) %", Line("chips.txt", "all  ", (1, 3, 5))),
    Quoted("scope.md", r"chips in services (\d+) %", Line("power.txt", "all ", (4,))),
    Quoted("scope.md", r"of loaded servers (\d+) %\]", Line("power.txt", "Median ", (0,))),
)  # fmt: skip


def corrected(path: Path) -> str:
    """The text of a page with the numbers of the results."""
    text = path.read_text(encoding="utf-8")
    for each in QUOTED:
        if each.path() == path:
            for low, high, number in each.replacements(text):
                text = text[:low] + number + text[high:]
    return text


def renew() -> None:
    """Write README and every page that quotes a result, with the numbers of the results."""
    for path in {each.path() for each in QUOTED}:
        path.write_text(corrected(path), encoding="utf-8")
