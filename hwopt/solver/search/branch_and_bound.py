"""Branch and bound over integer designs: the best design, with a proved lower bound.

The convex relaxation of a node widens its integers to continuous ranges and replaces each non-convex term by an optimistic
bound. Its optimum therefore bounds all designs in the node from below. Nodes that cannot improve on the incumbent by more than
the tolerance are discarded, and their bounds are recorded. The least bound of all discarded nodes is the lower bound of the
problem.
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
    """Minimize a problem's objective over its lattice of integer designs.

    **Arguments:**

    - `programmes`: node relaxations of the problem.
    - `tolerance`: relative gap at which nodes are discarded; the options' gap by default.
    - `deadline`: time at which the search stops with its incumbent.
    - `most_boxes`: number of bounded nodes at which the search stops; the options' number by default.
    - `progress`: called with the result after each round.
    - `designs`: integer designs to solve first, such as the optimum of a similar problem.
    - `result`: updated in place, so that a caller can poll it.
    - `exact`: exact model of each machine; see `SearchState`.
    - `nearby`: whether to solve neighbors of the incumbent too. Useful if a search is too short to prove much, and its
      incumbent is what counts.

    **Returns:** `result`, or a new one: incumbent and lower bound.
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
    deadline: Deadline,
    progress: Callable[[Sequence[SearchResult]], None],
    exact: Sequence[Sequence[ExactModel]],
) -> None:
    """Minimize over several problems at once, with one incumbent for all.

    The problem with the least bound is always expanded next. Once the bound of a problem exceeds the incumbent, none of its
    nodes is expanded any more: the problem is complete, and that bound is recorded.

    **Arguments:**

    - `branches`: node relaxations of each problem.
    - `results`: result of each problem, updated in place.
    - `deadline`: see `search`.
    - `progress`: called with all results after each round.
    - `exact`: exact models of each problem.
    """
    incumbent = Incumbent()
    works = [
        SearchState(each, each.options.tree.gap, deadline, result, incumbent, models)
        for each, result, models in zip(branches, results, exact, strict=True)
    ]
    under_way = {i: rounds(work) for i, work in enumerate(works)}
    with contextlib.suppress(OutOfTime):
        while under_way:
            at = min(under_way, key=lambda i: (results[i].rounds > 0, results[i].proved_bound, i))
            if results[at].rounds and results[at].open_bound > works[at].cutoff:
                works[at].drop()
                del under_way[at]
                continue
            if next(under_way[at], None) is None or results[at].boxes >= works[at].tree.nodes:
                del under_way[at]
            progress(results)
            if deadline.over:
                return


def rounds(
    work: SearchState, designs: Sequence[np.ndarray] = (), looks: bool = True, nearby: bool = False
) -> Iterator[SearchResult]:
    """Yield the result after each round of a search: bound the nodes, discard, split the rest.

    The first result is yielded before any node is bounded: after `designs` are solved and, if none is feasible, the best of a
    short evolutionary run.

    **Arguments:**

    - `work`: state of the search.
    - `designs`: integer designs to solve first.
    - `looks`: whether the evolutionary heuristic may run before the first bounds and right after them.
    - `nearby`: see `search`.
    """
    workers.start_workers(bounding.__name__)
    result, lattice = work.result, work.lattice
    tree, heuristic = work.tree, work.options.heuristic
    evolution: EvolutionarySearch | None = None
    again = 0  # number of bounded nodes at which the heuristic runs next
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
        if len(queue) and result.boxes >= again and (looks or result.rounds > 1):
            far, before = work.cutoff - result.open_bound > heuristic.far_gap, result.value
            if evolution is None:
                evolution = initial_population(work.programmes)
            queue = evolve(work, evolution, boxes, known, queue, anew=far)
            if nearby and len(queue):
                polish_neighbors(work, evolution)
                queue = _worth_work(work, queue)
            gained = result.value < before - heuristic.least_gain
            bounded = max(result.boxes, tree.nodes_per_round)
            again = bounded * (heuristic.growth_after_gain if gained else heuristic.growth_without_gain)
            again = min(again, bounded + heuristic.nodes_between) if far else again
        yield result
        queue = _worth_work(work, queue)  # a concurrent search may have improved the incumbent
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
    """Start or continue the evolutionary heuristic, seeded with the incumbent and with rounded relaxations of the best nodes.

    With `anew`, a second population from another random seed joins, because the outcome of one run is partly chance. Rounded
    relaxations of the best categorical choices join too: a choice with few designs in the population has numbers far from its
    best.

    **Arguments:**

    - `work`: state of the search.
    - `evolution`: population to continue.
    - `boxes`, `known`: nodes that were just bounded, and their bounds.
    - `queue`: all open nodes.
    - `anew`: whether to add a second population and the relaxations of categorical choices.

    **Returns:** nodes that are still open.
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
    """Return a population of random designs; half of them are plans on the problem's initial machine."""
    problem = programmes.problem
    options = programmes.options.heuristic
    return EvolutionarySearch(
        programmes.lattice, problem.variables, fitness_function(programmes), options=options
    ).seeded(problem.machine)


def stopped_early(result: SearchResult, options: HeuristicOptions = SEARCH.heuristic) -> bool:
    """Return whether a search stopped with a large gap before its first full evolutionary run ended."""
    return not (result.complete or result.looked or result.value - result.proved_bound <= options.far_gap)


def final_heuristic(programmes: NodeRelaxations, result: SearchResult, generations: int | None = None) -> SearchResult:
    """Improve the result of a search that stopped early, by a short evolutionary run with the exact model.

    The number of generations does not depend on the time left. Other results are returned unchanged, and so are those that the
    run does not improve.
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
    """Solve neighbors of the best designs, each with continuous variables of its own, until none improves the incumbent.

    The evolutionary heuristic evaluates a neighbor with the continuous variables of its parent. Where many of these are free,
    several budgets bind at once. A step of one integer then either violates a budget or leaves some of it unused.
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
    """Add rounded relaxations of some nodes to a population.

    Each rounded design joins twice: with the continuous variables of the node's relaxation, and with those of its own convex
    program.

    **Arguments:**

    - `boxes`, `known`: nodes and their solved relaxations.
    - `rows`: nodes to round, as row numbers of `boxes`.
    """
    if not len(rows):
        return
    relaxed = work.relaxed(boxes, known)[rows]
    points, found = evolution.led_back(boxes.low[rows], boxes.high[rows], relaxed)
    evolution.join_at(points, known.values(rows[found]))
    solved, own = solve_leaves(work, points)
    if own is not None:
        evolution.join_at(solved.low, own.values(np.arange(len(solved))))


def solve_leaves(work: SearchState, points: Sequence[np.ndarray] | np.ndarray) -> tuple[Boxes, BoundedNodes | None]:
    """Solve the convex programs of integer designs that the search has not solved before.

    **Returns:** these designs, and their solved programs; None if there is none.
    """
    table = np.unique(np.asarray(points, np.int64).reshape(-1, len(work.lattice.names)), axis=0)
    boxes = work.fresh(Boxes.of_points(table[work.lattice.valid(table)]))
    return boxes, work.bound(boxes) if len(boxes) else None


def _worth_work(work: SearchState, queue: OpenNodes) -> OpenNodes:
    """Discard nodes whose bound exceeds the cutoff, and return the open ones."""
    gone = queue.bounds > work.cutoff
    work.discard(queue.boxes[gone], queue.bounds[gone])
    queue = queue.of(~gone)
    work.note_open(queue.boxes, queue.bounds)
    return queue


def _spread(work: SearchState, boxes: Boxes) -> Boxes:
    """Split the first nodes until there are enough to fill a batch."""
    while 0 < len(boxes) < work.tree.first_nodes and not boxes.points.all():
        keep, rest = boxes[boxes.points], boxes[~boxes.points]
        boxes = joined_boxes([keep, work.split(rest).pieces])
    return boxes
