"""Options of a search: all numbers that control how a solution is found. None of them changes the problem."""

from dataclasses import dataclass

from hwopt.errors import UserError
from hwopt.options import Options, option
from hwopt.solver.gp.options import (
    INTERIOR_POINT,
    REFORMULATION,
    AcceleratorOptions,
    InteriorPointOptions,
    ReformulationOptions,
)

__all__ = [
    "SEARCH",
    "AcceleratorOptions",
    "BindingOptions",
    "ConfidenceOptions",
    "ElasticOptions",
    "FleetOptions",
    "HeuristicOptions",
    "InteriorPointOptions",
    "LocalOptions",
    "PortfolioOptions",
    "PriceOptions",
    "RefinementOptions",
    "ReformulationOptions",
    "RepairOptions",
    "ReplayOptions",
    "SearchOptions",
    "SensitivityOptions",
    "SweepOptions",
    "TreeOptions",
]


@dataclass(frozen=True)
class TreeOptions(Options):
    """Branch and bound over nodes, which are boxes of integer designs."""

    gap: float = option(9e-5, 1e-12, 10.0)
    """Relative gap between incumbent and bound at which a node is discarded."""
    nodes: int = option(100_000, 0, 10**12)
    """Maximum number of bounded nodes, at which a search stops with its incumbent. Unlike a time, it is reproducible."""
    first_nodes: int = option(256, 1, 10**6)
    """Number of nodes that the root is split into before the first bounds, so that a batch is full."""
    nodes_per_round: int = option(512, 1, 10**6)
    """Maximum number of nodes split in a round."""
    parts: int = option(2, 2, 64)
    """Number of parts that a node is split into along one coordinate."""
    node_gap: float = option(1e-7, 1e-12, 1.0)
    """Gap to which a node's convex program is solved, log units."""
    loose_gap: float = option(2e-3, 0.0, 1.0)
    """Gap, in log units, that is enough for the program of a node that must be split in any case."""
    retry_gaps: tuple[float, ...] = option((1e-6, 1e-5), 1e-12, 1.0)
    """Gaps, in log units, to which the program of a single design is solved again where its steps stall."""
    answer_gaps: tuple[float, ...] = option((1e-10, 1e-9, 1e-7, 1e-6, 1e-5), 1e-14, 1.0)
    """Gaps, in log units, tried for the program of the answer: the first that its steps reach counts."""
    pseudo_cost_weight: float = option(30.0, 1e-6, 1e9)
    """Weight of the declared pseudo-cost of a coordinate, in observed splits."""
    parallel_nodes: int = option(64, 1, 10**9)
    """Number of nodes that justify another worker process."""
    counting_effort: float = option(5e6, 0.0, 1e15)
    """Maximum effort spent on counting the integer designs in the search space, in points visited."""


@dataclass(frozen=True)
class HeuristicOptions(Options):
    """The evolutionary heuristic: when it runs in a search, its population, and how designs change."""

    seeds: int = option(4096, 1, 10**7)
    """Number of random designs in the first population."""
    population: int = option(800, 1, 10**7)
    """Maximum number of designs in a population."""
    children: int = option(4000, 1, 10**7)
    """Number of designs tried in a generation."""
    generations: int = option(150, 0, 10**7)
    """Maximum number of generations of the first run after bounds are known."""
    patience: int = option(25, 1, 10**7)
    """Number of generations without progress after which a run ends."""
    first_generations: int = option(10, 0, 10**7)
    """Number of generations before the first bounds, which find a first incumbent."""
    continued_generations: int = option(30, 0, 10**7)
    """Maximum number of generations of a run that goes on with its population."""
    continued_patience: int = option(10, 1, 10**7)
    """Number of generations without progress after which such a run ends."""
    fresh_generations: int = option(60, 0, 10**7)
    """Maximum number of generations of a second population that joins the first."""
    last_generations: int = option(40, 0, 10**7)
    """Number of generations of the last run of a search that was stopped early."""
    last_lattices: int = option(4, 1, 10**4)
    """Maximum number of combinations of choices that get such a last run."""
    candidates: int = option(24, 0, 10**4)
    """Maximum number of other combinations of choices whose own best design is searched for after the proof."""
    far_gap: float = option(1e-3, 0.0, 100.0)
    """Gap between incumbent and bound, in log units, above which a second population joins the first."""
    growth_after_gain: float = option(2.0, 1.0, 1e6)
    """Factor by which the number of bounded nodes grows until the heuristic runs again, after a run that found a better design."""
    growth_without_gain: float = option(4.0, 1.0, 1e6)
    """The same factor after a run that found none."""
    nodes_between: int = option(8_192, 1, 10**12)
    """Maximum number of bounded nodes between two runs, while the gap is above `far_gap`."""
    least_open_nodes: int = option(64, 0, 10**9)
    """Number of open nodes below which the heuristic does not run once there is an incumbent."""
    relaxed_nodes: int = option(48, 0, 10**6)
    """Number of nodes whose relaxed solutions, rounded, join the population."""
    families: int = option(128, 0, 10**6)
    """Number of combinations of categorical choices, the population's best, whose relaxations are solved for it."""
    solved_designs: int = option(16, 0, 10**6)
    """Number of the population's best designs whose convex programs are solved."""
    neighbor_parents: int = option(4, 1, 10**6)
    """Number of designs whose neighbors are solved too, in short searches."""
    neighbor_children: int = option(500, 1, 10**6)
    """Number of neighbors of each of these designs."""
    least_gain: float = option(1e-5, 0.0, 10.0)
    """Least improvement of the objective that counts as progress, log units."""
    penalty: float = option(3.0, 1e-9, 1e9)
    """Price of an exceeded limit: log units of the objective per log unit of excess."""
    penalty_growth: float = option(1.5, 1.0, 100.0)
    """Factor on that price in every generation whose best design exceeds a limit."""
    mutation_chance: float = option(0.45, 0.0, 0.999)
    """Chance that a child differs from its parent in one more number, beyond the first."""
    most_mutations: int = option(7, 1, 10**4)
    """Maximum expected number of numbers in which a child differs from its parent."""
    crossover_share: float = option(0.3, 0.0, 1.0)
    """Share of children that take their changes from another design."""
    trade_share: float = option(0.15, 0.0, 1.0)
    """Share of children in which three numbers are multiplied or divided by one ratio."""
    trade_ratios: tuple[float, ...] = option((2.0, 2.0, 1.5, 3.0, 4.0 / 3.0), 1.0, 1e3)
    """Ratios for that, drawn at random, each as often as it is listed."""
    difference_share: float = option(0.4, 0.0, 1.0)
    """Share of children whose continuous variables move by the difference of two other designs (differential evolution)."""
    difference_powers: tuple[float, ...] = option((0.03, 0.1, 0.3, 1.0), -10.0, 10.0)
    """Powers of that difference, a ratio of variables; one is drawn for each child."""
    rank_power: float = option(1.0, 0.0, 100.0)
    """Selection pressure: exponent of a design's rank among those of its own categorical choices."""
    family_rank_power: float = option(0.5, 0.0, 100.0)
    """Selection pressure: exponent of the rank of its categorical choices."""
    exchangeable_values: int = option(4, 1, 10**4)
    """Number of values of a coordinate up to which any may follow any."""
    integer_spreads: tuple[float, ...] = option((0.02, 0.1, 0.7), 0.0, 100.0)
    """Standard deviations of changes of integers, log units; one is drawn for each change."""
    size_spreads: tuple[float, ...] = option((0.002, 0.02, 0.2), 0.0, 100.0)
    """Standard deviations of changes of continuous variables, log units; one is drawn for each change."""


@dataclass(frozen=True)
class RepairOptions(Options):
    """Repair of designs whose convex program is relaxed and whose exact model misses a limit by little."""

    most_violation: float = option(0.01, 0.0, 10.0)
    """Largest violation that is repaired, log units."""
    tightening: float = option(1.2, 1.0, 100.0)
    """Factor on the violation by which the program's limit is tightened."""
    rounds: int = option(4, 1, 1000)
    """Maximum number of times that a design is solved."""
    halvings: int = option(6, 0, 100)
    """Maximum number of bisections between the design and the upper ends of its segmented variables."""


@dataclass(frozen=True)
class ReplayOptions(Options):
    """Traces of the canonicalization, replayed for other nodes."""

    recordings: int = option(4, 0, 10**4)
    """Maximum number of cached traces of nodes, and as many of single designs."""
    point_forms: int = option(32, 0, 10**4)
    """Maximum number of cached traces of designs that are canonicalized alone."""
    trails: int = option(64, 1, 10**4)
    """Number of random descents from wide nodes to single designs over which a trace is made."""


@dataclass(frozen=True)
class ElasticOptions(Options):
    """Search for the smallest relaxation of the budgets that makes an infeasible problem feasible."""

    gap: float = option(1e-3, 1e-9, 10.0)
    """Relative gap of the search."""
    nodes: int = option(8_000, 0, 10**12)
    """Maximum number of nodes bounded."""
    most_factor: float = option(100.0, 1.0 + 1e-6, 1e12)
    """Largest factor by which budgets may be exceeded."""


@dataclass(frozen=True)
class RefinementOptions(Options):
    """Sequential convex programming with all integers fixed, around a solution where the model is not convex."""

    widest: float = option(0.3, 1e-9, 10.0)
    """Half width of the first trust region, log units."""
    narrowest: float = option(1e-4, 1e-12, 1.0)
    """Half width of the trust region once values have settled, log units."""
    root_width: float = option(1e-3, 1e-12, 1.0)
    """Half width of the first range, in which quantities that the model finds by root search are made consistent, log units."""
    iterations: int = option(40, 1, 10**6)
    """Maximum number of programs."""
    gaps: tuple[float, ...] = option((1e-9, 1e-8, 1e-7, 1e-6), 1e-14, 1.0)
    """Gaps, in log units, tried for each program: the first that its steps reach counts."""
    settled: float = option(1e-5, 1e-12, 1.0)
    """Step from which the iteration has converged, log units."""
    rough_residual: float = option(1e-3, 0.0, 10.0)
    """Residual up to which a program that did not converge still gives the next iterate."""


@dataclass(frozen=True)
class SensitivityOptions(Options):
    """Derivatives of an optimum, with integers and plan fixed."""

    step: float = option(1e-5, 1e-10, 0.1)
    """Relative step of finite differences of closed forms."""
    solved_step: float = option(1e-3, 1e-9, 0.1)
    """Relative step where the program is re-solved."""
    kink: float = option(0.01, 0.0, 10.0)
    """Difference of one-sided elasticities, relative to one plus their size, above which the optimum counts as kinked."""
    active: float = option(1e-6, 0.0, 1.0)
    """Least multiplier of an active constraint."""
    nearly_active: float = option(1e-4, 0.0, 1.0)
    """Multiplier and slack below which a constraint is about to become active or inactive."""
    rank: float = option(1e-9, 0.0, 1.0)
    """Relative singular value below which a direction of the optimality conditions is free."""


@dataclass(frozen=True)
class PriceOptions(Options):
    """One-sided prices of budgets: the problem re-solved at moved limits."""

    step: float = option(0.01, 1e-6, 0.9)
    """Share of a budget by which it is tightened and loosened."""
    gap: float = option(2e-6, 1e-12, 10.0)
    """Relative gap of these searches."""


@dataclass(frozen=True)
class PortfolioOptions(Options):
    """Search over parts that several problems share, and over each problem's share of joint budgets."""

    gap: float = option(3e-4, 1e-9, 10.0)
    """Relative gap at which a node of shared parts is discarded."""
    proved_gap: float = option(1e-3, 1e-9, 10.0)
    """Relative gap up to which a solution is reported as proved."""
    nodes: int = option(1_000_000, 0, 10**12)
    """Maximum number of nodes of all members bounded before a search stops."""
    trial_nodes: int = option(4_000, 0, 10**12)
    """Maximum number of nodes of a member while it is solved on the best parts of another."""
    clocks: int = option(65, 2, 10**5)
    """Number of clocks, between those that the members prefer, at which a set of plans is evaluated."""
    clock_halvings: int = option(100, 1, 10**4)
    """Number of bisections for the cheapest clock."""
    clock_step: float = option(1e-3, 1e-9, 1.0)
    """Step of a clock for the slope of a cost, log units."""
    joint_gap: float = option(8e-4, 1e-9, 10.0)
    """Relative gap at which a node of budget allocations is discarded."""
    joint_searches: int = option(40, 1, 10**6)
    """Maximum number of searches over parts under shared budgets."""
    joint_machines: int = option(4, 0, 10**4)
    """Maximum number of combinations of choices for which the least budget use of each member is computed."""
    narrowest_share: float = option(1e-4, 1e-12, 1.0)
    """Share of a budget below which a range of allocations is not split."""


@dataclass(frozen=True)
class LocalOptions(Options):
    """Local optimization: an augmented Lagrangian from many starts, then the integer designs around the best."""

    starts: int = option(32, 1, 10**5)
    """Number of Sobol starts, and of problems solved in a batch."""
    relaxed_updates: int = option(12, 1, 10**5)
    """Number of multiplier updates of the relaxed stage."""
    relaxed_steps: int = option(160, 1, 10**6)
    """Number of descent steps before each of them."""
    short_updates: int = option(8, 1, 10**5)
    """Number of multiplier updates of a first look at integer designs."""
    short_steps: int = option(120, 1, 10**6)
    """Number of descent steps before each of them."""
    integer_updates: int = option(16, 1, 10**5)
    """Number of multiplier updates of the integer stage."""
    integer_steps: int = option(200, 1, 10**6)
    """Number of descent steps before each of them."""
    looks: int = option(64, 1, 10**6)
    """Number of integer designs that get a first look."""
    stiffness: float = option(3.0, 0.0, 1e9)
    """Price of a violation when designs are ordered: percent of the objective per percent."""
    safety: float = option(2e-5, 0.0, 0.5)
    """Relative tightening of budgets, so that the answer satisfies the stated ones exactly."""
    most_factor: float = option(100.0, 1.0 + 1e-6, 1e12)
    """Largest factor by which budgets are exceeded in the search for a relaxation."""
    first_penalty: float = option(5.0, 1e-9, 1e12)
    """Penalty parameter of the augmented Lagrangian at the start."""
    last_penalty: float = option(200.0, 1e-9, 1e12)
    """Penalty parameter at the end; it grows geometrically."""
    first_rate: float = option(5e-2, 1e-12, 10.0)
    """Step length at the start, log units."""
    last_rate: float = option(2e-5, 1e-12, 10.0)
    """Step length at the end, log units; it falls geometrically."""
    spread: int = option(13, 2, 10**4)
    """Number of values tried of a count that fills a range: evenly spaced once by differences, once by ratios."""
    places: tuple[float, ...] = option((0.25, 0.5, 0.75, 0.95), 0.0, 1.0)
    """Places in the box, from its lower to its upper end, around which integer designs are tried without a solver."""
    designs_per_place: int = option(1024, 1, 10**7)
    """Maximum number of integer designs tried at each place."""


@dataclass(frozen=True)
class ConfidenceOptions(Options):
    """Chance constraints: limits tightened until all budgets hold with a probability (`hwopt.confident`)."""

    searches: int = option(5, 1, 10**4)
    """Maximum number of searches once a design holds; where none holds yet, twice as many."""
    excess: float = option(0.04, 0.0, 0.5)
    """Probability above the requested one that is accepted, before a cheaper design is searched for."""
    close: float = option(2e-3, 0.0, 10.0)
    """Relative difference in cost, between a design that holds and a cheaper one that does not, at which the search ends."""
    step: float = option(0.03, 1e-6, 10.0)
    """Least difference of two multiples of the standard deviation that are tried."""
    idle: float = option(3.0, 0.0, 100.0)
    """Slack beyond the tightening, in standard deviations, from which a budget does not bind."""
    normal: float = option(0.03, 0.0, 10.0)
    """Distance of a drawn quantile from a normal one, in standard deviations, below which the normal one is used."""
    joint_draws: int = option(1 << 17, 100, 10**9)
    """Number of draws of the joint normal distribution of the budgets."""


@dataclass(frozen=True)
class BindingOptions(Options):
    """Which budgets bind, found by lifting them one after the other (`hwopt.walls`)."""

    near: float = option(0.9, 0.0, 1.0)
    """Share of a budget in use from which it is lifted alone first."""
    least_gain: float = option(1e-4, 0.0, 1.0)
    """Relative difference of two proved objectives from which one is better."""
    lifted: float = option(1e6, 1.0 + 1e-6, 1e15)
    """Factor on the limit of a lifted budget."""


@dataclass(frozen=True)
class SweepOptions(Options):
    """Where an importance sweep draws its points: the search before it, then a pilot by the sweep's own program."""

    gap: float = option(0.005, 1e-9, 10.0)
    """Relative gap at which the search before a sweep ends."""
    variants_per_node: int = option(32, 1, 10**12)
    """Number of variants of the sweep for which the search bounds one node."""
    neighbor_ratio: float = option(1.05, 1.0 + 1e-6, 100.0)
    """Ratio between continuous values of the design that was found and those of its neighbors."""
    places: int = option(1 << 12, 2, 10**7)
    """Number of coordinates in [0, 1) tried for each integer of that design."""
    least_samples: int = option(1 << 16, 1, 10**15)
    """Number of variants below which a sweep is plain by default."""
    plain_share: float = option(0.25, 0.01, 0.99)
    """Share of the variants that are drawn from the whole space."""
    round_points: int = option(1 << 16, 1 << 8, 1 << 24)
    """Number of points in a round of the pilot."""
    rounds: int = option(400, 1, 10**6)
    """Maximum number of rounds of the pilot."""
    elite: int = option(64, 2, 1 << 24)
    """Number of a round's best points whose hull is the next box."""
    level_points: int = option(512, 2, 1 << 24)
    """Number of a round's best points whose hull may become a level of the sweep."""
    boxes_per_round: int = option(8, 1, 64)
    """Number of boxes that share a round when integers are opened again."""
    loose: float = option(0.03, 0.0, 1.0)
    """Distance of continuous coordinates from the best point meanwhile, as a share of the unit cube."""
    alike: float = option(0.01, 0.0, 100.0)
    """Spread of the elite's objective at which a box is narrow enough, log units."""
    sharp: float = option(0.002, 0.0, 100.0)
    """Spread of the elite's objective at which the last box is narrow enough, log units."""
    least_gain: float = option(1e-3, 0.0, 100.0)
    """Gain of a reopened box from which it is narrowed, log units."""
    margin: float = option(0.25, 0.0, 10.0)
    """Width by which a level exceeds the hull at each side, as a share of that side."""
    room: float = option(1e-4, 1e-9, 0.5)
    """Width by which a box exceeds the hull of its points, as a share of the unit cube."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.elite <= self.level_points <= self.round_points or self.round_points % (1 << 8):
            raise UserError(
                "SweepOptions: elite <= level_points <= round_points must hold, and round_points be a multiple of 256"
            )


@dataclass(frozen=True)
class FleetOptions(Options):
    """Plans and batch shares of several chip types that train one model (`hwopt.fleet`)."""

    plans: int = option(12, 1, 10**4)
    """Number of best plans of each group that are tried at its shares of the batch."""
    least_share: float = option(0.5, 1e-3, 1.0)
    """Smallest share of the batch that is tried, relative to the share that the group's speed suggests."""
    most_share: float = option(1.6, 1.0, 1e3)
    """Largest share of the batch that is tried, relative to the share that the group's speed suggests."""
    rounds: int = option(2, 1, 100)
    """Maximum number of searches for plans: first at shares by peak arithmetic, then by the speeds found."""
    micro_batches: tuple[int, ...] = option((1, 2, 4, 8), 1, 10**6)
    """Micro-batches of a pipeline over groups that are tried, sequences."""
    ordered_groups: int = option(3, 1, 8)
    """Number of groups up to which every order along the pipeline is tried."""
    exact_pipelines: int = option(256, 1, 10**7)
    """Maximum number of pipelines, those with the least bounds, that the whole model evaluates."""


@dataclass(frozen=True)
class SearchOptions(Options):
    """Options of `hwopt.optimize` and of everything built on it. Each field has the options of one part of the search."""

    interior_point: InteriorPointOptions = INTERIOR_POINT
    """Newton's method on convex programs."""
    reformulation: ReformulationOptions = REFORMULATION
    """Reformulation of the model as convex programs."""
    tree: TreeOptions = TreeOptions()
    """Branch and bound."""
    heuristic: HeuristicOptions = HeuristicOptions()
    """The evolutionary heuristic that finds incumbents."""
    repair: RepairOptions = RepairOptions()
    """Repair of near-feasible designs."""
    replay: ReplayOptions = ReplayOptions()
    """Traces of the canonicalization."""
    elastic: ElasticOptions = ElasticOptions()
    """Smallest relaxation of an infeasible problem."""
    refinement: RefinementOptions = RefinementOptions()
    """Sequential convex programming around a solution."""
    sensitivity: SensitivityOptions = SensitivityOptions()
    """Derivatives of an optimum."""
    prices: PriceOptions = PriceOptions()
    """One-sided prices of budgets."""
    portfolio: PortfolioOptions = PortfolioOptions()
    """Problems that share parts."""
    local: LocalOptions = LocalOptions()
    """Local optimization."""
    confidence: ConfidenceOptions = ConfidenceOptions()
    """Chance constraints."""
    binding: BindingOptions = BindingOptions()
    """Which budgets bind."""
    sweep: SweepOptions = SweepOptions()
    """Where an importance sweep draws its points."""
    fleet: FleetOptions = FleetOptions()
    """Plans and batch shares of several chip types."""


SEARCH = SearchOptions()
"""The defaults."""
