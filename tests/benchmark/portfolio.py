"""A machine for three workloads: proved, beside what machines of their own would cost. From the top of a checkout:

    python -m tests.benchmark.portfolio          # writes results/reference/portfolio.txt; a quarter of an hour

The list that ships (`objectives/portfolio.toml`) on one chip, and with a choice of chips.
"""

from __future__ import annotations

import time
from pathlib import Path

import hwopt
from hwopt.optim.portfolio import PortfolioSolution
from hwopt.report.portfolio import portfolio_screen
from hwopt.units import pretty

OUT = Path(__file__).parents[2] / "results" / "reference" / "portfolio.txt"

CHIPS = ["h100-sxm", "h200", "b200"]


def timed(choices: dict[str, list[str]] | None) -> tuple[PortfolioSolution, float]:
    """An answer and its seconds of processors."""
    began = time.process_time()
    answer = hwopt.optimize(hwopt.objective("portfolio"), choices=choices)  # pyright: ignore
    assert isinstance(answer, PortfolioSolution)
    return answer, time.process_time() - began


def line(what: str, answer: PortfolioSolution, seconds: float) -> str:
    """An answer in a line."""
    proof, unit = answer.certificate, answer.portfolio.unit
    gap = (
        "no bound"
        if proof.gap is None
        else f"gap {100 * proof.gap:.2g} %, none below {pretty(proof.lower_bound, unit, 6)}"
    )
    return f"{what}: {pretty(answer.objective, unit, 6)}, {gap}, {seconds:.0f} s of processors"


def table() -> str:
    """Both answers as text."""
    one, chosen = timed(None), timed({"chip": CHIPS})
    assert chosen[0].objective <= one[0].objective * (1.0 + 1e-3)
    lines = [line("h100-sxm", *one), line(f"{' or '.join(CHIPS)} ({chosen[0].chosen['chip']} is the best)", *chosen)]
    return "\n".join([*lines, "", portfolio_screen(one[0]), "", 72 * "=", "", portfolio_screen(chosen[0])]) + "\n"


if __name__ == "__main__":
    text = table()
    OUT.write_text(text, encoding="utf-8")
    print(text, end="")
