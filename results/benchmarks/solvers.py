"""Solvers on ten design studies whose global optimum is known: `python results/benchmarks/solvers.py`.

Writes `results/reference/solver_benchmark.txt` and `.png`. Needs `pip install optuna pymoo` besides this project.
"""

from __future__ import annotations

import dataclasses
import math
import os
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import jax
import numpy as np
from tqdm.auto import tqdm

from hwopt.model.report import FEASIBILITY_TOLERANCE
from results.benchmarks import methods
from results.benchmarks.methods import METHODS, Best, Task, timed
from results.benchmarks.studies import (
    AGREES,
    REFERENCE_GAP,
    STUDIES,
    Known,
    Model,
    Question,
    batch_values,
    known,
    model_of,
)

FOLDER = Path(__file__).parents[2] / "results" / "reference"

NEAR = 1e-3
"""Relative gap that counts as found."""

FLOOR = 1e-10
"""Least gap in the figure."""

STYLES = {
    "random search": ("0.55", "o"),
    "Optuna TPE": ("C1", "s"),
    "pymoo DE": ("C4", "D"),
    "Adam, quadratic penalty": ("C5", "v"),
    "SciPy SLSQP": ("C2", "^"),
    "hwopt augmented Lagrangian": ("C9", "P"),
    "hwopt certified": ("C3", "*"),
}
"""Colour and marker."""


@dataclass(frozen=True)
class Score:
    """What a method made of one study."""

    gap: float  # relative, above the bound of the optimum; infinite where no feasible point was found
    evaluations: int
    seconds: float
    first: float  # seconds of the least run before, which compiles
    feasible: float  # share of the points shown
    ends: list[float]  # gap that each start of several came to


def solved() -> tuple[list[Question], list[Known], dict[str, list[Score]]]:
    """Every method on every study."""
    questions = [study.numbers() for study in STUDIES]
    model = model_of(questions[0].problem)
    found: dict[str, list[tuple[Best, float, float]]] = {name: [] for name in METHODS}
    with tqdm(total=len(METHODS) * len(questions), leave=False) as bar:
        for name, method in METHODS.items():
            for question in questions:
                bar.set_postfix_str(f"{name}, {question.name}")
                task = Task(model, question)
                _, first = timed(method, dataclasses.replace(task, trial=True))
                best, seconds = timed(method, task)
                found[name].append((best, seconds, first))
                bar.update()
    optima = [known(question) for question in questions]  # after the methods, whose compiling it would hide
    scores = {
        name: [
            Score(
                gap=math.expm1(best.value - optimum.bound),
                evaluations=best.evaluations,
                seconds=seconds,
                first=first,
                feasible=best.feasible / best.evaluations,
                ends=[math.expm1(end - optimum.bound) for end in best.ends],
            )
            for (best, seconds, first), optimum in zip(held, optima, strict=True)
        ]
        for name, held in found.items()
    }
    _checked(model, questions, optima, scores)
    return questions, optima, scores


def _checked(model: Model, questions: list[Question], optima: list[Known], scores: dict[str, list[Score]]) -> None:
    """The reference itself: the exact model at its point, and no method below its bound by more than tolerance explains."""
    for i, (question, optimum) in enumerate(zip(questions, optima, strict=True)):
        objective, violation = (float(x[0]) for x in batch_values(model, question.numbers, optimum.y[None]))
        assert abs(objective - optimum.value) <= AGREES, (question.name, objective)
        assert violation <= FEASIBILITY_TOLERANCE, (question.name, violation)
        # What all constraints exceeded by the tolerance would gain.
        worth = FEASIBILITY_TOLERANCE * sum(optimum.multipliers.values())
        for name, held in scores.items():
            assert held[i].gap >= -1.01 * worth - REFERENCE_GAP, (question.name, name, held[i].gap, worth)


def number(value: float, form: str = ".1e") -> str:
    return f"{value:{form}}" if math.isfinite(value) else "none"


def table(questions: list[Question], optima: list[Known], scores: dict[str, list[Score]], seconds: float) -> str:
    """The figures of all methods, then of all studies."""
    lines = [
        f"{len(questions)} studies with integers fixed, {len(questions[0].lower)} continuous hardware variables; exact model,"
        " float64",
        f"gap: relative, best feasible point (violation <= {FEASIBILITY_TOLERANCE:g}) above the bound of the global optimum,",
        f"  known to {max(k.value - k.bound for k in optima):.0e}; below 0: by that tolerance. none: no feasible point",
        "seconds: median of a study after compiling; compile: once for all studies, first runs less later ones",
        "",
        f"{'method':<27} {'feasible':>8} {'median gap':>11} {'worst gap':>10} {'within 1e-3':>11} {'1e-6':>5} {'evaluations':>12}"
        f" {'seconds':>8} {'compile':>8}",
    ]  # fmt: skip
    for name, held in scores.items():
        gaps = np.array([s.gap for s in held])
        first = sum(s.first for s in held) - len(held) * float(np.median([s.first for s in held]))
        lines.append(
            f"{name:<27} {f'{np.isfinite(gaps).sum()}/{len(held)}':>8} {number(float(np.median(gaps))):>11}"
            f" {number(float(gaps.max())):>10} {f'{(gaps <= NEAR).sum()}/{len(held)}':>11} {(gaps <= 1e-6).sum():>5}"
            f" {np.median([s.evaluations for s in held]):>12,.0f} {np.median([s.seconds for s in held]):>8.2f} {first:>8.1f}"
        )
    ends = [end for score in scores["SciPy SLSQP"] for end in score.ends]
    near = sum(end <= NEAR for end in ends)
    lines += [
        "",
        "evaluations: points for random search, TPE and DE; points with gradients for",
        f"  Adam ({len(methods.PENALTIES)} weights x {methods.PENALTY_STARTS} starts),",
        f"  SLSQP ({methods.SLSQP_STARTS} starts, each alone; {near} of all {len(ends)} came within {NEAR:g}) and",
        f"  the augmented Lagrangian ({methods.SEARCH.local.starts} starts);",
        "  Newton iterations for certified, whose seconds hold reading the model, solving, bounding and the exact model.",
        "Only certified proves its answer.",
        "",
        f"{'gap by study':<45} {'feasible':>9} " + " ".join(f"{short(name):>9}" for name in scores),
    ]
    for i, question in enumerate(questions):
        share = f"{100 * scores['random search'][i].feasible:.2g} %"
        row = " ".join(f"{number(held[i].gap):>9}" for held in scores.values())
        lines.append(f"{question.name:<45} {share:>9} {row}")
    lines += ["", "feasible: share of the box, by random search. What binds, with elasticities of the optimum:"]
    for question, optimum in zip(questions, optima, strict=True):
        binding = ", ".join(f"{name} {value:.3g}" for name, value in optimum.multipliers.items() if value > 1e-4)
        lines.append(f"  {question.name:<43} {binding}")
    lines += ["", setting(seconds)]
    return "\n".join(lines)


def short(name: str) -> str:
    return {"hwopt augmented Lagrangian": "AL", "hwopt certified": "certified", "Adam, quadratic penalty": "Adam"}.get(
        name, name.split()[-1] if name != "random search" else "random"
    )


def setting(seconds: float) -> str:
    """Where and with what this was run."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("jax", "scipy", "optuna", "pymoo", "optax"))
    return f"{seconds:.0f} s in all on {os.cpu_count()} CPU cores shared with other work; {packages}"


def draw(scores: dict[str, list[Score]], path: Path) -> None:
    """Gap against seconds: every study, and the medians."""
    from hwopt.output.figures.style import figure, save

    with figure(figsize=(7.6, 4.8)) as (drawn, (axes,)):
        for name, held in scores.items():
            colour, marker = STYLES[name]
            seconds = np.array([s.seconds for s in held])
            gaps = np.clip(np.abs([s.gap for s in held]), FLOOR, None)
            some = np.isfinite(gaps)
            axes.scatter(seconds[some], gaps[some], color=colour, marker=marker, s=16, alpha=0.35, linewidths=0)
            middle = float(np.median(gaps))
            if math.isfinite(middle):
                axes.scatter(
                    np.median(seconds), middle, color=colour, marker=marker, s=110, edgecolors="black", linewidths=0.7,
                    label=name, zorder=3,
                )  # fmt: skip
        axes.axhline(NEAR, color="0.4", linewidth=0.8, linestyle="--")
        axes.set(
            xscale="log", yscale="log", xlabel="seconds a study, after compiling",
            ylabel="relative gap to the known global optimum",
            title=f"{len(next(iter(scores.values())))} studies, exact model; small: studies, large: medians",
        )  # fmt: skip
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=9)
        save(drawn, path)


def main() -> None:
    for package in ("optuna", "pymoo"):
        methods.needed(package)
    begun = time.perf_counter()
    with jax.enable_x64(True):
        questions, optima, scores = solved()
    text = table(questions, optima, scores, time.perf_counter() - begun)
    print(text)
    FOLDER.joinpath("solver_benchmark.txt").write_text(text + "\n")
    draw(scores, FOLDER / "solver_benchmark.png")


if __name__ == "__main__":
    main()
