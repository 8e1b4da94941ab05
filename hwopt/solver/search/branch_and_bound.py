"""The best integer design and a proof: boxes of designs are bounded by convex programmes, split, and discarded.

A box's programme relaxes integers to their ranges and replaces what is not convex by what it can be at best, so its
optimum bounds every design inside. Boxes that cannot beat the best design known, by more than the tolerance, are discarded
with their bound on record; the least bound of all that were discarded bounds the question.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from hwopt import workers
from hwopt.design.exact import ExactModel
from hwopt.integers.boxes import Boxes, joined_boxes
from hwopt.solver.deadline import Deadline
from hwopt.solver.options import SEARCH, HeuristicOptions
from hwopt.solver.search import bounding
from hwopt.solver.search.bounding import BoundedNodes
from hwopt.solver.search.heuristics.evolutionary import EvolutionarySearch
from hwopt.solver.search.heuristics.fitness import fitness_function
from hwopt.solver.search.node_relaxations import NodeRelaxations
from hwopt.solver.search.search_tree import BranchedNodes, Incumbent, OpenNodes, OutOfTime, SearchResult, SearchState


def search(
    programmes: NodeRelaxations,
    *,
    tolerance: float | None = None,
    deadline: Deadline | None = None,
    most_boxes: int | None = None,
    progress: Callable[[SearchResult], None] | None = None,
    designs: Sequence[np.ndarray] = (),
    result: SearchResult | None = None,
    exact: Sequence[ExactModel] = (),
    nearby: bool = False,
) -> SearchResult:
    """Minimise over a question's lattice.

    **Arguments:** `tolerance`: relative gap at which boxes are discarded; `deadline` and `most_boxes` after which the search
    stops with what it has, by default as in the options of the programmes; `progress` is told after each round; `designs`:
    integer designs to start from, such as the answer of a like question; `result`: where to keep what comes out, for who looks
    on; `exact`: as of `SearchState`; `nearby`: whether designs next to the best are solved too, for who keeps the best of a search
    that is too short to prove much.
    """
    tree = programmes.options.tree
    tolerance = tree.gap if tolerance is None else tolerance
    most_boxes = tree.nodes if most_boxes is None else most_boxes
    work = SearchState(programmes, tolerance, deadline or Deadline(), result or SearchResult(), exact=exact)
    with contextlib.suppress(OutOfTime):
        for now in rounds(work, designs, looks=most_boxes > 0, nearby=nearby):
            if progress and now.rounds:
                progress(now)
            if now.boxes >= most_boxes or (now.rounds and work.deadline.over):
                break
    return work.result


def search_all(
    branches: Sequence[NodeRelaxations],
    results: Sequence[SearchResult],
    *,
    tolerance: float | None = None,
    deadline: Deadline | None = None,
    most_boxes: int | None = None,
    progress: Callable[[Sequence[SearchResult]], None] | None = None,
    exact: Sequence[Sequence[ExactModel]] = (),
) -> None:
    """Minimise over several questions at once: one best design, which all are held against.

    The branch with the least bound is always the next to be worked on, so that of one whose bound passes the best design
    nothing more is read: it is complete, with that bound on record.

    **Arguments:** `branches`: programmes of each question; `results`: where to keep what comes out of each; `most_boxes` and
    `exact` of each; else as of `search`.
    """
    deadline, incumbent = deadline or Deadline(), Incumbent()
    models = exact or [()] * len(branches)
    works = [
        SearchState(each, each.options.tree.gap if tolerance is None else tolerance, deadline, result, incumbent, model)
        for each, result, model in zip(branches, results, models, strict=True)
    ]
    under_way = {i: rounds(work) for i, work in enumerate(works)}
    with contextlib.suppress(OutOfTime):
        while under_way:
            at = min(under_way, key=lambda i: (results[i].rounds > 0, results[i].proved_bound, i))
            if results[at].rounds and results[at].open_bound > works[at].cutoff:
                works[at].drop()
                del under_way[at]
                continue
            most = branches[at].options.tree.nodes if most_boxes is None else most_boxes
            if next(under_way[at], None) is None or results[at].boxes >= most:
                del under_way[at]
            if progress:
                progress(results)
            if deadline.over:
                return


def rounds(
    work: SearchState, designs: Sequence[np.ndarray] = (), looks: bool = True, nearby: bool = False
) -> Iterator[SearchResult]:
    """Yield the result after each round of a search: bound boxes, discard, split the rest.

    Before the first bounds it yields once, after solving `designs` and, if that gives no incumbent, those of a short evolution.

    **Arguments:** `looks`: whether evolutions run before the first bounds and right after them; `nearby`: see `search`.
    """
    workers.start_workers(bounding.__name__)
    result, lattice = work.result, work.lattice
    tree, heuristic = work.tree, work.options.heuristic
    evolution: EvolutionarySearch | None = None
    looked = again = 0  # full rounds of boxes bounded before the last evolution, and from which on one begins anew
    queue: OpenNodes | None = None
    boxes = _spread(work, lattice.initial_boxes())
    result.open_boxes = len(boxes)
    inherited = np.full(len(boxes), -np.inf)
    split: BranchedNodes | None = None
    solve_leaves(work, designs)
    if looks and result.point is None:
        evolution = initial_population(work.programmes).run(
            heuristic.first_generations, max(heuristic.first_generations, 1), lambda: work.deadline.over
        )
        solve_leaves(work, evolution.best(heuristic.solved_designs))
    yield result
    while len(boxes):
        known = work.bound(boxes)
        lower = np.maximum(known.lower, inherited)
        if split is not None:
            work.learn(split, inherited, lower)
        result.rounds += 1
        result.infeasible += int(np.isinf(lower).sum())
        single = boxes.points & np.isfinite(lower)
        work.discard(boxes[single], lower[single])
        alive = np.flatnonzero(np.isfinite(lower) & ~boxes.points)
        found = OpenNodes(boxes, lower, known.lower, work.slopes(known)).of(alive)
        queue = found if queue is None else queue.with_more(found)
        queue = _worth_work(work, queue)
        far, bounded = work.cutoff - result.open_bound > heuristic.far_gap, result.boxes // tree.nodes_per_round
        doubled, often = bounded >= again, far and bounded >= looked + heuristic.rounds_between
        if len(queue) and (doubled or often) and (looks or result.rounds > 1):
            if evolution is None:
                evolution = initial_population(work.programmes)
            queue = evolve(work, evolution, boxes, known, queue, anew=doubled and far)
            if nearby and len(queue):
                polish_neighbors(work, evolution)
                queue = _worth_work(work, queue)
            looked, again = bounded, max(2 * bounded, 2) if doubled else again
        yield result
        queue = _worth_work(work, queue)  # others may have found something better meanwhile
        order = np.argsort(queue.bounds, kind="stable")
        now, queue = queue.of(order[: tree.nodes_per_round]), queue.of(order[tree.nodes_per_round :])
        tight, rows = work.tightened(now)
        points = tight.points
        split = work.split(tight[~points])
        boxes = joined_boxes([split.pieces, tight[points]])
        rows = np.concatenate([rows[~points][split.parents], rows[points]])
        inherited = now.bounds[rows]
    result.open_boxes, result.complete = 0, True


def evolve(
    work: SearchState, evolution: EvolutionarySearch, boxes: Boxes, known: BoundedNodes, queue: OpenNodes, anew: bool
) -> OpenNodes:
    """An evolution begins, or goes on, with what is next to relaxed points of the best boxes and the best design known.

    **Arguments:** `known` of `boxes`, which were just bounded; `queue` of all that is open; `anew`: whether another one's, of other
    random designs, join it, where one ends being chance, and what is next to relaxed points of its own best choices of kinds: their
    sizes and numbers are far from best where only one of many designs is of each.

    **Returns:** what is still open.
    """
    result, over = work.result, lambda: work.deadline.over
    options = work.options.heuristic
    if result.point is not None:
        evolution.join_at(result.point[None], {name: np.array([value]) for name, value in result.design.items()})
    best = np.argsort(np.where(boxes.points, np.inf, known.lower), kind="stable")[: options.relaxed_nodes]
    seed_evolution(work, evolution, boxes, known, best[np.isfinite(known.lower[best]) & ~boxes.points[best]])
    queue = _worth_work(work, queue)
    if len(queue) < options.least_open_nodes and result.point is not None:
        return queue
    if not result.looked:
        evolution.run(options.generations, options.patience, over)
        result.looked = not over()
    elif anew:
        other = replace(evolution, seed=evolution.generations).seeded()
        other.run(options.fresh_generations, options.patience, over)
        evolution.join(other.points, other.sizes)
    families = work.fresh(evolution.families(options.families)) if anew else boxes[:0]
    if len(families):
        inside = work.bound(families)
        seed_evolution(work, evolution, families, inside, np.flatnonzero(np.isfinite(inside.lower)))
    evolution.run(options.continued_generations, options.continued_patience, over)
    solve_leaves(work, evolution.best(options.solved_designs))
    return _worth_work(work, queue)


def initial_population(programmes: NodeRelaxations) -> EvolutionarySearch:
    """Return an evolution of random designs, half of them plans on the machine that the question starts from."""
    problem = programmes.problem
    options = programmes.options.heuristic
    return EvolutionarySearch(
        programmes.lattice, problem.variables, fitness_function(programmes), options=options
    ).seeded(problem.machine)


def stopped_early(result: SearchResult, options: HeuristicOptions = SEARCH.heuristic) -> bool:
    """Return whether a search was stopped with a large gap before its first full evolution ended."""
    return not (result.complete or result.looked or result.value - result.proved_bound <= options.far_gap)


def final_heuristic(programmes: NodeRelaxations, result: SearchResult, generations: int | None = None) -> SearchResult:
    """Improve the result of a search that was stopped early by a short evolution with the exact model.

    The number of generations does not depend on the time left. Other results, and those not improved, are returned unchanged.
    """
    options = programmes.options.heuristic
    if not stopped_early(result, options):
        return result
    evolution = initial_population(programmes)
    if result.point is not None:
        evolution.join_at(result.point[None], {name: np.array([value]) for name, value in result.design.items()})
    found = evolution.run(options.last_generations if generations is None else generations).feasible
    if found is None or found[1] >= result.value:
        return result
    point, value, design = found
    return replace(result, point=point, value=value, design=design)


def polish_neighbors(work: SearchState, evolution: EvolutionarySearch) -> None:
    """Designs next to the best are solved, each with sizes of its own, for as long as one of them is better.

    An evolution judges a design with another's sizes, which where many sizes are free stand at several budgets at once: a step of
    an integer either breaks one of these or leaves some of it unused.
    """
    while not work.deadline.over:
        before = work.result.value
        solved, own = solve_leaves(work, evolution.near())
        if own is None:
            return
        evolution.join_at(solved.low, own.values(np.arange(len(solved))))
        if work.result.value > before - work.options.heuristic.least_gain:
            return


def seed_evolution(
    work: SearchState, evolution: EvolutionarySearch, boxes: Boxes, known: BoundedNodes, rows: np.ndarray
) -> None:
    """Designs next to the relaxed points of some boxes join an evolution, with sizes from there and from their own programmes."""
    if not len(rows):
        return
    relaxed = work.relaxed(boxes, known)[rows]
    points, found = evolution.led_back(boxes.low[rows], boxes.high[rows], relaxed)
    evolution.join_at(points, known.values(rows[found]))
    solved, own = solve_leaves(work, points)
    if own is not None:
        evolution.join_at(solved.low, own.values(np.arange(len(solved))))


def solve_leaves(work: SearchState, points: Sequence[np.ndarray] | np.ndarray) -> tuple[Boxes, BoundedNodes | None]:
    """Solve integer designs that were not met before. **Returns:** those, and their programmes; None where there is none."""
    table = np.unique(np.asarray(points, np.int64).reshape(-1, len(work.lattice.names)), axis=0)
    boxes = work.fresh(Boxes.of_points(table[work.lattice.valid(table)]))
    return boxes, work.bound(boxes) if len(boxes) else None


def _worth_work(work: SearchState, queue: OpenNodes) -> OpenNodes:
    """What may still hold something better; the rest is discarded."""
    gone = queue.bounds > work.cutoff
    work.discard(queue.boxes[gone], queue.bounds[gone])
    queue = queue.of(~gone)
    work.note_open(queue.boxes, queue.bounds)
    return queue


def _spread(work: SearchState, boxes: Boxes) -> Boxes:
    """Boxes split until there are enough to fill a batch."""
    while 0 < len(boxes) < work.tree.first_nodes and not boxes.points.all():
        keep, rest = boxes[boxes.points], boxes[~boxes.points]
        boxes = joined_boxes([keep, work.split(rest).pieces])
    return boxes
