"""Certified solves a second, beside SciPy's SLSQP: `python tests/benchmark/throughput.py`.

A thousand instances of one question, each the continuous hardware of one whole-number design (a random point of the lattice)
under its own budgets and prices. All are read and solved as one batch; each answer has a lower bound, each infeasible
instance a proof. SLSQP gets the exact model's values and exact gradients, compiled, one instance at a time.

Writes `results/reference/solver_throughput.txt`.
"""

from __future__ import annotations

import dataclasses
import math
import os
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import equinox as eqx
import jax
import numpy as np

from hwopt.convex import certificate
from hwopt.convex.canonical import Programme
from hwopt.convex.feasibility import infeasible
from hwopt.convex.interior_point import Answers, Status, solve
from hwopt.convex.signomial import Algebra, number
from hwopt.design.problem import Problem
from hwopt.optim.exact import FEASIBLE
from hwopt.optim.lattice import Boxes, Lattice
from hwopt.optim.reading import programme_of, read_design
from hwopt.optim.whole_plans import divisors
from objectives.train_cost import TrainCost
from tests.benchmark.methods import Best, slsqp, values_and_slopes
from tests.benchmark.studies import Study, batch_values, model_of, question_of

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
SEED = 0
REPEATS = 3


@dataclass(frozen=True)
class Instances:
    """Fixed plans with budgets and prices of their own."""

    problem: Problem
    lattice: Lattice
    points: np.ndarray  # (instance, coordinate)
    prices: list[np.ndarray]  # factors, (instance, ...) for each of `PRICED`
    limits: np.ndarray  # (instance, budget)

    def __len__(self) -> int:
        return len(self.points)

    def part(self, rows: slice) -> Instances:
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
        """An instance as a problem of its own, whole numbers still free."""
        leaves = [leaf[min(i, len(leaf) - 1)] for leaf in self.template()]
        budgets = tuple(
            dataclasses.replace(b, limit=float(x)) for b, x in zip(self.problem.budgets, self.limits[i], strict=True)
        )
        template = jax.tree.unflatten(jax.tree.structure(self.problem.template), leaves)
        return dataclasses.replace(self.problem, template=template, budgets=budgets)


def random_points(lattice: Lattice, count: int, rng: np.random.Generator) -> np.ndarray:
    """Valid whole-number designs, different ones: degrees and counts log-uniform, batches filled."""
    heads = round(float(lattice.problem.template.workload.model.heads))
    batch = lattice.range("global_batch_sequences")
    found: dict[tuple[int, ...], None] = {}

    def log_uniform(low: float, high: float) -> int:
        return round(math.exp(rng.uniform(math.log(low - 0.49), math.log(high + 0.49))))

    while len(found) < count:
        t = int(rng.choice([d for d in divisors(heads) if 4 <= d <= 32]))
        p, b = log_uniform(1, 32), log_uniform(1, 4)
        v = log_uniform(1, min(16, (lattice.layers + 2) // p)) if p > 1 else 1
        d = max(1, round(math.exp(rng.uniform(math.log(8_000), math.log(40_000))) / (t * p)))
        m = int(rng.uniform(batch[0], batch[1]) // (d * b))
        g, n = log_uniform(1, 576 // t), log_uniform(4, 72)
        found |= {tuple(point): None for point in [(t, 1, p, v, b, d, m, g, n, 1, 1)] if m and lattice.valid(np.asarray([point]))[0]}
    return np.asarray(list(found)[:count], np.int64)


def instances(count: int = INSTANCES) -> Instances:
    """The same ones at every call."""
    rng = np.random.default_rng(SEED)
    problem = TrainCost().problem()
    lattice = Lattice(problem)
    points = random_points(lattice, count, rng)
    shapes = [np.shape(getattr(problem.template.cluster.prices, name)) for name in PRICED]
    prices = [np.exp(rng.uniform(*np.log(PRICES), (count, *shape))) for shape in shapes]
    made = Instances(problem, lattice, points, prices, np.ones((count, len(problem.budgets))))
    return dataclasses.replace(made, limits=needs(made) * np.exp(rng.uniform(*np.log(BUDGETS), made.limits.shape)))


def needs(made: Instances) -> np.ndarray:
    """What each budget limits, at the plan of each instance and the hardware of the chip's datasheet."""
    from hwopt.design.problem import evaluate

    problem, form = made.problem, made.problem.form
    chip, network = problem.template.cluster.chip, problem.template.cluster.network
    sold = {
        "hbm_bandwidth_bytes_per_s": float(chip.hbm_bandwidth_bytes_per_s), "hbm_capacity_bytes": float(chip.hbm_capacity_bytes),
        "clock_ratio": 1.0, "scale_up_bandwidth_bytes_per_s": float(network.bandwidth_bytes_per_s[0]),
        "scale_out_bandwidth_bytes_per_s": float(network.bandwidth_bytes_per_s[1]),
    }  # fmt: skip
    y = np.log([[(sold | made.lattice.design(p))[v.name] for v in problem.variables] for p in made.points])
    leaves = [np.broadcast_to(leaf, (len(made), *leaf.shape[1:])) for leaf in made.template()]
    template = jax.tree.unflatten(jax.tree.structure(problem.template), leaves)
    used = jax.jit(jax.vmap(lambda template, y: evaluate(form, template, y, np.ones(len(form.budgets)), None).constraints))
    return np.exp(np.asarray(used(template, y))[:, : len(form.budgets)])


@dataclass(frozen=True)
class Solved:
    """A batch as it was read, solved and proved, with the seconds of each."""

    programme: Programme
    answers: Answers
    lower: np.ndarray  # infinite where infeasible by proof
    seconds: tuple[float, float, float]  # reading, solving, proving


def read_and_solved(made: Instances) -> Solved:
    """The way of `hwopt.optim.branch_and_bound.bounded`, with a template and budgets for each instance."""
    times = [time.perf_counter()]
    algebra = Algebra()
    values, ties = made.lattice.values(algebra, Boxes(made.points, made.points))
    shares = {i: number(made.limits[:, i] / b.limit) for i, b in enumerate(made.problem.budgets)}
    read = read_design(made.problem, algebra, values, len(made), shares, template=made.template())
    programme = programme_of(read, ties)
    times.append(time.perf_counter())
    structure, numbers = programme.structure, programme.numbers
    answers = solve(structure, numbers, tolerance=TOLERANCE)
    times.append(time.perf_counter())
    lower = certificate.lower_bound(structure, numbers, answers.y, answers.multipliers) + programme.constant
    proved = certificate.infeasibility(structure, numbers, answers.y, answers.multipliers) > 0
    impossible = ~read.holds | ((answers.status == Status.infeasible) & proved)
    unsure = np.flatnonzero((answers.status != Status.solved) & ~impossible)
    if len(unsure):
        impossible[unsure] |= infeasible(structure, numbers.take(unsure))
    times.append(time.perf_counter())
    seconds = tuple(float(x) for x in np.diff(times))
    return Solved(programme, answers, np.where(impossible, np.inf, lower), seconds)  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True)
class Alone:
    """What SLSQP made of one instance."""

    feasible: bool  # the instance, by our proof
    gap: float  # of its best feasible point above our bound
    evaluations: int
    seconds: float


def one_by_one(made: Instances, solved: Solved) -> tuple[list[Alone], float, float]:
    """SLSQP from the middle of the box; **returns** also its seconds of compiling, and the worst difference between the exact
    model at our answers and our optimum.
    """
    questions = []
    for i in range(min(ONE_BY_ONE, len(made))):
        problem = made.one(i)
        # Its own budgets and template in the place of the study's.
        study = Study(_Fixed(problem), tuple(int(x) for x in made.points[i]))  # pyright: ignore[reportArgumentType]
        questions.append(question_of(study))
    model = model_of(questions[0].problem)
    begun = time.perf_counter()
    jax.block_until_ready(values_and_slopes(model, questions[0].numbers, questions[0].lower))
    compiling = time.perf_counter() - begun
    answers, worst = [], 0.0
    columns = {name: i for i, name in enumerate(solved.programme.names) if name}
    for i, question in enumerate(questions):
        best = Best()
        begun = time.perf_counter()
        slsqp(model, question, 0.5 * (question.lower + question.upper), best)
        seconds = time.perf_counter() - begun
        feasible = bool(np.isfinite(solved.lower[i]))
        answers.append(Alone(feasible, math.expm1(best.value - solved.lower[i]) if feasible else math.nan, best.evaluations, seconds))
        if not feasible:
            assert not math.isfinite(best.value), f"instance {i} is feasible, and was proved not to be"
            continue
        y = np.array(
            [solved.answers.y[i, columns[v.name]] if v.name in columns else math.log(v.lower) for v in question.problem.variables]
        )
        objective, violation = (float(x[0]) for x in batch_values(model, question.numbers, y[None]))
        assert violation <= FEASIBLE, (i, violation)
        worst = max(worst, abs(objective - float(solved.answers.objective[i] + solved.programme.constant[i])))
    return answers, compiling, worst


@dataclass(frozen=True)
class _Fixed:
    """A problem as a question that states it."""

    stated: Problem
    name: str = "instance"
    workload: str = ""
    chip: str = ""

    def problem(self) -> Problem:
        return self.stated


def main() -> None:
    with jax.enable_x64(True):
        made = instances()
        begun = time.perf_counter()
        read_and_solved(made.part(slice(0, 65)))  # traces the model and compiles the kernel
        first = time.perf_counter() - begun
        solved = min((read_and_solved(made) for _ in range(REPEATS)), key=lambda each: sum(each.seconds))
        alone, compiling, worst = one_by_one(made, solved)
    text = report(made, solved, first, alone, compiling, worst)
    print(text)
    FILE.write_text(text + "\n")


def report(made: Instances, solved: Solved, first: float, alone: list[Alone], compiling: float, worst: float) -> str:
    """What was seen."""
    status, lower = solved.answers.status, solved.lower
    infeasible_ = np.isposinf(lower)
    best = solved.answers.objective + solved.programme.constant
    done = (status == Status.solved) & ~infeasible_
    gaps = np.expm1(best[done] - lower[done])
    open_ = ~done & ~infeasible_
    seconds = sum(solved.seconds)
    rate = (len(made) - int(open_.sum())) / seconds
    lines = [
        f"{len(made):,} instances: {made.problem.question}; random whole-number designs, budgets {BUDGETS[0]:g}-{BUDGETS[1]:g} of what",
        f"  the datasheet's hardware needs, {len(PRICED)} prices x {PRICES[0]:g}-{PRICES[1]:g}; five continuous variables each",
        f"  ({len(solved.programme.names)} variables, {len(solved.programme.labels)} groups and {len(solved.programme.structure.group)} "
        "terms as a convex programme); float64",
        "",
        f"solved and bounded {int(done.sum()):>5,}   gap median {np.median(gaps):.0e}, worst {gaps.max():.0e}; "
        f"exact model agrees to {worst:.0e}",
        f"proved infeasible  {int(infeasible_.sum()):>5,}",
        f"open               {int(open_.sum()):>5,}",
        f"iterations         median {np.median(solved.answers.iterations):.0f}, most {solved.answers.iterations.max()}",
        "",
        f"first batch of 65: tracing, reading, compiling the kernel {first:6.2f} s",
        f"all, after that    {seconds:6.2f} s: reading {solved.seconds[0]:.2f}, solving {solved.seconds[1]:.2f}, proving "
        f"{solved.seconds[2]:.2f} (best of {REPEATS} runs)",
        f"certified solves   {rate:6.0f} a second ({len(made) / solved.seconds[1]:.0f} a second in the interior point alone)",
        "",
    ]  # fmt: skip
    some, none = [a for a in alone if a.feasible], [a for a in alone if not a.feasible]
    mean = float(np.mean([a.seconds for a in alone]))
    lines += [
        f"SciPy SLSQP        {1e3 * mean:6.1f} ms an instance, mean of the first {len(alone)}, one start, {np.mean([a.evaluations for a in alone]):.0f} "
        f"evaluations each; compiling {compiling:.2f} s",
        f"  feasible ones    {1e3 * np.mean([a.seconds for a in some]):6.1f} ms; {sum(a.gap <= 1e-3 for a in some)} of {len(some)} within 1e-3 of the optimum, "
        f"{sum(a.gap <= 1e-6 for a in some)} within 1e-6",
    ]
    if none:
        lines.append(f"  infeasible ones  {1e3 * np.mean([a.seconds for a in none]):6.1f} ms; no proof for any of {len(none)}")
    lines += [
        f"  all {len(made):,}, extrapolated {mean * len(made):.0f} s; ours is {mean * rate:.1f} times as fast "
        f"({mean * len(made) / solved.seconds[1]:.1f} times without reading and proving)",
        "",
        f"{os.cpu_count()} CPU cores shared with other work; jax {version('jax')}, scipy {version('scipy')}",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
