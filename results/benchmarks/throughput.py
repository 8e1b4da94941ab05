"""Certified solves a second, beside SciPy's SLSQP: `python results/benchmarks/throughput.py`.

A thousand instances of one question, each the continuous hardware of one integer design (a random point of the lattice)
under its own budgets and prices. All are read and solved as one batch; each answer has a lower bound, each infeasible
instance a proof. SLSQP gets the exact model's values and exact gradients, compiled, one instance at a time.

Writes `results/reference/solver_throughput.txt`.
"""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from hwopt.design.design import Design
from hwopt.design.lattices import lattice_of
from hwopt.design.problem import LogValues, Problem, ProblemForm, evaluate
from hwopt.integers.boxes import Boxes
from hwopt.integers.enumeration import divisors
from hwopt.integers.system import System
from hwopt.solver.gp import certificate
from hwopt.solver.gp.canonical import ConvexProgram
from hwopt.solver.gp.integer_relaxation import quantity_ranges
from hwopt.solver.gp.signomial import Algebra, number
from hwopt.solver.interior_point.batch import solve
from hwopt.solver.interior_point.elastic import infeasible
from hwopt.solver.interior_point.result import BatchResult, SolveStatus
from hwopt.solver.jit_options import quick_jit
from hwopt.solver.search.canonicalize import canonicalize, free_values
from objectives.train_cost import TrainCost
from results.benchmarks.methods import Best, slsqp, values_and_slopes
from results.benchmarks.studies import COORDINATES, model_of, question_of

FILE = Path(__file__).parents[2] / "results" / "reference" / "solver_throughput.txt"

INSTANCES = 1_000
ONE_BY_ONE = 40
"""Instances that SLSQP solves; the rest is extrapolated."""

BUDGETS = (0.8, 1.6)
"""Range of each budget over what the datasheet's hardware would need at the instance's plan."""
PRICES = (0.5, 2.0)
"""Range of each price over the catalogue's."""
PRICED = (
    "chip_base_usd", "hbm_usd_per_byte", "hbm_usd_per_byte_per_s", "network_usd_per_byte_per_s", "domain_usd_per_chip", "host_usd",
)  # fmt: skip

TOLERANCE = 1e-7
"""Relative gap of ours, and `ftol` of SLSQP."""
MOST_ITERATIONS = 100
"""Of SLSQP, SciPy's default."""
SEED = 0
REPEATS = 3


@dataclass(frozen=True)
class Instances:
    """Fixed plans with budgets and prices of their own."""

    problem: Problem
    lattice: System
    points: np.ndarray  # (instance, coordinate)
    prices: list[np.ndarray]  # factors, (instance, ...) for each of `PRICED`
    limits: np.ndarray  # (instance, budget)

    def __len__(self) -> int:
        return len(self.points)

    def part(self, rows: slice | np.ndarray) -> Instances:
        return dataclasses.replace(
            self, points=self.points[rows], prices=[x[rows] for x in self.prices], limits=self.limits[rows]
        )

    def template(self) -> list[np.ndarray]:
        """Leaves of the question's template, one for each instance where they differ."""
        design = self.problem.template
        held = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64)[None], design)
        where = lambda d: tuple(getattr(d.cluster.prices, name) for name in PRICED)
        scaled = tuple(old * factor for old, factor in zip(where(held), self.prices, strict=True))
        return jax.tree.leaves(eqx.tree_at(where, held, scaled))

    def one(self, i: int) -> Problem:
        """An instance as a problem of its own, integers still free."""
        leaves = [leaf[min(i, len(leaf) - 1)] for leaf in self.template()]
        budgets = tuple(
            dataclasses.replace(b, limit=float(x)) for b, x in zip(self.problem.budgets, self.limits[i], strict=True)
        )
        template = jax.tree.unflatten(jax.tree.structure(self.problem.template), leaves)
        return dataclasses.replace(self.problem, template=template, budgets=budgets)


def random_points(problem: Problem, lattice: System, count: int, rng: np.random.Generator) -> np.ndarray:
    """Valid integer designs, different ones: degrees and counts log-uniform, batches filled."""
    model = problem.template.workload.model
    heads, layers = round(float(model.heads)), round(float(model.layers))
    batch = lattice.quantities["global_batch_sequences"]
    found: dict[tuple[int, ...], None] = {}

    def log_uniform(low: float, high: float) -> int:
        return round(math.exp(rng.uniform(math.log(low - 0.49), math.log(high + 0.49))))

    while len(found) < count:
        t = int(rng.choice([d for d in divisors(heads) if 4 <= d <= 32]))
        p, b = log_uniform(1, 32), log_uniform(1, 4)
        v = log_uniform(1, min(16, (layers + 2) // p)) if p > 1 else 1
        d = max(1, round(math.exp(rng.uniform(math.log(8_000), math.log(40_000))) / (t * p)))
        m = int(rng.uniform(batch.low, batch.high) // (d * b))
        g, n = log_uniform(1, 576 // t), log_uniform(4, 72)
        point = lattice.point(dict(zip(COORDINATES, (t, 1, p, v, b, d, m, g, n, 1, 1), strict=True)))
        if m and lattice.valid(point[None])[0]:
            found[tuple(map(int, point))] = None
    return np.asarray(list(found)[:count], np.int64)


def instances(count: int = INSTANCES) -> Instances:
    """The same ones at every call."""
    rng = np.random.default_rng(SEED)
    problem = TrainCost().problem().continuous
    lattice = lattice_of(problem)
    points = random_points(problem, lattice, count, rng)
    shapes = [np.shape(getattr(problem.template.cluster.prices, name)) for name in PRICED]
    prices = [np.exp(rng.uniform(*np.log(PRICES), (count, *shape))) for shape in shapes]
    made = Instances(problem, lattice, points, prices, np.ones((count, len(problem.budgets))))
    return dataclasses.replace(made, limits=needs(made) * np.exp(rng.uniform(*np.log(BUDGETS), made.limits.shape)))


def needs(made: Instances) -> np.ndarray:
    """What each budget limits, at the plan of each instance and the hardware of the chip's datasheet."""
    chip, network = made.problem.template.cluster.chip, made.problem.template.cluster.network
    sold = {
        "hbm_bandwidth_bytes_per_s": float(chip.hbm_bandwidth_bytes_per_s),
        "hbm_capacity_bytes": float(chip.hbm_capacity_bytes),
        "clock_ratio": 1.0,
        "scale_up_bandwidth_bytes_per_s": float(network.bandwidth_bytes_per_s[0]),
        "scale_out_bandwidth_bytes_per_s": float(network.bandwidth_bytes_per_s[1]),
    }
    used = exact(made, [sold | made.lattice.design(point) for point in made.points]).constraints
    return np.exp(used[:, : len(made.problem.budgets)])


def exact(made: Instances, designs: Sequence[Mapping[str, float]]) -> LogValues:
    """The exact model of one design for each instance."""
    problem = made.problem
    y = np.log([[design[v.name] for v in problem.variables] for design in designs])
    leaves = [np.broadcast_to(leaf, (len(made), *leaf.shape[1:])) for leaf in made.template()]
    template = jax.tree.unflatten(jax.tree.structure(problem.template), leaves)
    return LogValues(*map(np.asarray, _exact(problem.form, template, y, made.limits)))


@partial(quick_jit, static=("form",))
def _exact(form: ProblemForm, template: Design, y: Array, limits: Array) -> LogValues:
    return jax.vmap(lambda template, y, limits: evaluate(form, template, y, limits, None))(template, y, limits)


@dataclass(frozen=True)
class Solved:
    """A batch as it was read, solved and proved, with the seconds of each."""

    programme: ConvexProgram
    answers: BatchResult
    lower: np.ndarray  # infinite where infeasible by proof
    seconds: tuple[float, float, float]  # reading, solving, proving
    cpu_seconds: float  # of all threads


def read_and_solved(made: Instances) -> Solved:
    """The way of `hwopt.solver.search.bounding.bound_nodes`, with a template and budgets for each instance."""
    times, cpu = [time.perf_counter()], time.process_time()
    algebra = Algebra()
    values, ties = free_values(
        made.problem, made.lattice, algebra, quantity_ranges(made.lattice, Boxes.of_points(made.points))
    )
    shares = {b.name: number(made.limits[:, i] / b.limit) for i, b in enumerate(made.problem.budgets)}
    canonical = canonicalize(made.problem, algebra, values, shares, template=made.template())
    programme = canonical.draft(ties).programme(len(made))
    times.append(time.perf_counter())
    structure, numbers = programme.structure, programme.numbers
    answers = solve(structure, numbers, tolerance=TOLERANCE)
    times.append(time.perf_counter())
    lower = certificate.lower_bound(structure, numbers, answers.y, answers.multipliers) + programme.constant
    proved = certificate.infeasibility(structure, numbers, answers.y, answers.multipliers) > 0
    impossible = ~canonical.holds | ((answers.status == SolveStatus.infeasible) & proved)
    unsure = np.flatnonzero((answers.status != SolveStatus.solved) & ~impossible)
    if len(unsure):
        impossible[unsure] |= infeasible(structure, numbers.take(unsure))
    times.append(time.perf_counter())
    a, b, c = (float(x) for x in np.diff(times))
    return Solved(programme, answers, np.where(impossible, np.inf, lower), (a, b, c), time.process_time() - cpu)


@dataclass(frozen=True)
class Alone:
    """What SLSQP made of one instance."""

    feasible: bool  # the instance, by our proof
    gap: float  # of its best feasible point above our bound
    evaluations: int
    seconds: float
    cpu_seconds: float


def one_by_one(made: Instances, solved: Solved) -> tuple[list[Alone], float]:
    """SLSQP from the middle of the box; **returns** also its seconds of compiling."""
    questions = [question_of(f"instance {i}", made.one(i), made.points[i]) for i in range(min(ONE_BY_ONE, len(made)))]
    model = model_of(questions[0].problem)
    begun = time.perf_counter()
    jax.block_until_ready(values_and_slopes(model, questions[0].numbers, questions[0].lower))
    compiling = time.perf_counter() - begun
    answers = []
    for i, question in enumerate(questions):
        best, begun, cpu = Best(), time.perf_counter(), time.process_time()
        slsqp(model, question, 0.5 * (question.lower + question.upper), best, TOLERANCE, MOST_ITERATIONS)
        seconds = time.perf_counter() - begun, time.process_time() - cpu
        feasible = bool(np.isfinite(solved.lower[i]))
        assert feasible or not math.isfinite(best.value), f"instance {i} is feasible, and was proved not to be"
        gap = math.expm1(best.value - solved.lower[i]) if feasible else math.nan
        answers.append(Alone(feasible, gap, best.evaluations, *seconds))
    return answers, compiling


def checked(made: Instances, solved: Solved) -> tuple[float, float]:
    """The exact model at all answers: worst relative difference from the programmes' optima, worst violation."""
    columns = {name: i for i, name in enumerate(solved.programme.names) if name}
    lowest = {each.name: each.lower for each in made.problem.variables}
    designs = [
        lowest | {name: math.exp(y[i]) for name, i in columns.items()} | made.lattice.design(point)
        for y, point in zip(solved.answers.y, made.points, strict=True)
    ]
    at = exact(made, designs)
    feasible = np.isfinite(solved.lower)
    off = np.abs(at.objective - solved.answers.objective - solved.programme.constant)[feasible]
    return float(off.max()), float(at.constraints[feasible].max())


def main() -> None:
    with jax.enable_x64(True):
        made = instances()
        begun = time.perf_counter()
        read_and_solved(made.part(slice(0, 65)))  # traces the model
        first = time.perf_counter() - begun
        solved = best_of(made)
        feasible = best_of(made.part(np.isfinite(solved.lower)))
        alone, compiling = one_by_one(made, solved)
        off, violation = checked(made, solved)
    text = "\n".join(
        [*ours(made, solved, first, off, violation), "", *beside(made, solved, feasible, alone, compiling)]
    )
    print(text)
    FILE.write_text(text + "\n")


def best_of(made: Instances) -> Solved:
    """The quickest of some runs, all of the same result."""
    return min((read_and_solved(made) for _ in range(REPEATS)), key=lambda each: sum(each.seconds))


def ours(made: Instances, solved: Solved, first: float, off: float, violation: float) -> list[str]:
    """What the batch came to."""
    programme, status = solved.programme, solved.answers.status
    infeasible_ = np.isposinf(solved.lower)
    done = (status == SolveStatus.solved) & ~infeasible_
    gaps = np.expm1(solved.answers.objective[done] + programme.constant[done] - solved.lower[done])
    reading, solving, proving = solved.seconds
    sizes = len(programme.names), len(programme.labels), len(programme.structure.group)
    return [
        f"{len(made):,} instances: {made.problem.name} of {made.problem.question.split(': ')[1].split(';')[0]}",
        f"  random integer designs; budgets {BUDGETS[0]:g}-{BUDGETS[1]:g} of what the datasheet's hardware needs, "
        f"{len(PRICED)} prices x {PRICES[0]:g}-{PRICES[1]:g}",
        "  five continuous variables; as a convex programme {} variables, {} groups, {} terms; float64".format(*sizes),
        "",
        f"solved and bounded {done.sum():>6,}   gap median {np.median(gaps):.0e}, worst {gaps.max():.0e}; "
        f"{len(programme.relaxed)} terms relaxed",
        f"proved infeasible  {infeasible_.sum():>6,}",
        f"open               {(~done & ~infeasible_).sum():>6,}",
        f"Newton iterations  {np.median(solved.answers.iterations):>6.0f} median, {solved.answers.iterations.max()} at most",
        f"exact model at all answers: objective within {off:.0e}, violation {max(0.0, violation):.0e} at most",
        "",
        f"first batch of 65  {first:6.2f} s: tracing, reading",
        f"all, after that    {sum(solved.seconds):6.2f} s: reading {reading:.2f}, solving {solving:.2f}, proving {proving:.2f} "
        f"(best of {REPEATS}); {solved.cpu_seconds:.2f} s of CPU",
        f"certified solves   {len(made) / sum(solved.seconds):6.0f} a second",
    ]


def beside(made: Instances, solved: Solved, feasible: Solved, alone: list[Alone], compiling: float) -> list[str]:
    """SLSQP, and the ratios."""
    some, none = [a for a in alone if a.feasible], [a for a in alone if not a.feasible]
    lines = [
        f"SciPy SLSQP: one start, ftol {TOLERANCE:g}, {MOST_ITERATIONS} iterations at most; "
        f"the first {len(alone)} instances, one at a time;",
        f"  exact values and gradients of the compiled model (compiling {compiling:.2f} s)",
    ]
    for held, what in ((some, "feasible"), (none, "infeasible")):
        lines.append(
            f"  {len(held):>3} {what:<11} {1e3 * np.mean([a.seconds for a in held]):6.1f} ms and "
            f"{np.mean([a.evaluations for a in held]):4.0f} evaluations each; "
            + (
                f"{sum(a.gap <= 1e-3 for a in held)} within 1e-3 of the optimum, {sum(a.gap <= 1e-6 for a in held)} within 1e-6"
                if held is some
                else "no feasible point found, and no proof"
            )
        )
    lines += ["", "SLSQP's seconds over ours            wall    CPU"]
    for what, held, batch in (("feasible instances only", some, feasible), ("all instances", alone, solved)):
        count = len(batch.lower)
        wall = np.mean([a.seconds for a in held]) * count / sum(batch.seconds)
        cpu = np.mean([a.cpu_seconds for a in held]) * count / batch.cpu_seconds
        lines.append(f"  {f'{what} ({count:,})':<33} {wall:5.0f}  {cpu:5.0f}")
    lines += [
        "SLSQP extrapolated to as many instances. Ours may use all cores, which count in CPU seconds.",
        f"{os.cpu_count()} CPU cores shared with other work (load {os.getloadavg()[0]:.1f}); jax {version('jax')}, scipy "
        f"{version('scipy')}",
    ]
    return lines


if __name__ == "__main__":
    main()
