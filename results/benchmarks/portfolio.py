"""A machine for three workloads: proved, beside what machines of their own would cost. From the top of a checkout:

    python -m results.benchmarks.portfolio          # writes results/reference/portfolio.txt; a quarter of an hour

The list that ships (`objectives/portfolio.toml`) on one chip, and with a choice of chips.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hwopt
from hwopt.output.answers.portfolio import portfolio_answer
from hwopt.solver.portfolio.solve import PortfolioSolution
from hwopt.units import pretty

OUT = Path(__file__).parents[2] / "results" / "reference" / "portfolio.txt"

CHIPS = ["h100-sxm", "h200"]

SECONDS = 900.0
"""For the answer with a choice; what is not proved by then has an honest gap."""


def timed(**settings: Any) -> tuple[PortfolioSolution, float]:
    """An answer and its seconds by the clock."""
    began = time.perf_counter()
    answer = hwopt.optimize(hwopt.objective("portfolio"), **settings)  # pyright: ignore
    assert isinstance(answer, PortfolioSolution)
    return answer, time.perf_counter() - began


def said(what: str, answer: PortfolioSolution, seconds: float) -> str:
    """An answer in a line, and as a screen."""
    proof, unit = answer.certificate, answer.portfolio.unit
    bound = "no bound" if proof.lower_bound is None else f"none below {pretty(proof.lower_bound, unit, 6)}"
    gap = "" if proof.gap is None else f", gap {100 * proof.gap:.2g} %"
    title = f"{what}: {pretty(answer.objective, unit, 6)}, {bound}{gap}, {seconds:.0f} s"
    return f"{title}\n\n{portfolio_answer(answer).screen()}\n"


def sections() -> Iterator[str]:
    """Each answer as text, when it is there."""
    one = timed()
    yield said("h100-sxm", *one)
    chosen = timed(choices={"chip": CHIPS}, seconds=SECONDS)
    assert not chosen[0].feasible or chosen[0].certificate.lower_bound <= one[0].objective  # pyright: ignore
    yield said(f"{' or '.join(CHIPS)}, of which {chosen[0].chosen.get('chip', 'none yet')} is the best", *chosen)


if __name__ == "__main__":
    texts: list[str] = []
    for text in sections():
        texts.append(text)
        print(text, flush=True)
        OUT.write_text(f"\n{72 * '='}\n\n".join(texts), encoding="utf-8")
