"""Options of convex programs: how the model is rewritten as such programs, and how they are solved on a CPU or an
accelerator.
"""

from dataclasses import dataclass

from hwopt.options import Options, option


@dataclass(frozen=True)
class AcceleratorOptions(Options):
    """When and how convex programs are solved on an accelerator."""

    slots: int = option(4096, 1, 1 << 20)
    """Maximum number of programs that are iterated at the same time."""
    memory_share: float = option(0.5, 1e-3, 1.0)
    """Maximum fraction of the free device memory that these concurrent programs may use."""
    fallback_bytes: float = option(2e9, 1e6, 1e13)
    """Memory available to the concurrent programs where the device does not report its free memory, B."""
    least_batch: int = option(1024, 1, 1 << 20)
    """Smallest batch size. Batches are padded to a power of two, so that few sizes are compiled."""
    least_programs: int = option(64, 1, 1 << 30)
    """Minimum number of programs in a batch; smaller batches are solved on the CPU."""
    after_programs: int = option(10_000, 0, 1 << 40)
    """Number of programs of one structure that the CPU solves before the structure is compiled for the accelerator."""


@dataclass(frozen=True)
class InteriorPointOptions(Options):
    """Newton's method on a batch of convex programs: step lengths, precision, batch sizes."""

    iterations: int = option(80, 1, 100_000)
    """Maximum number of Newton iterations per program."""
    single_precision_iterations: int = option(8, 0, 100_000)
    """Maximum number of initial iterations in single precision, for programs that need only a loose tolerance."""
    boundary: float = option(0.995, 0.01, 0.9999999)
    """Largest step, as a fraction of the distance to the boundary of the feasible region."""
    start_margin: float = option(0.05, 1e-9, 0.5)
    """Minimum distance of a starting point from each bound of a variable, as a fraction of the width of its range."""
    step_shrink: float = option(0.3, 1e-3, 1.0)
    """Factor on the step length after an iteration that increased the residuals."""
    step_growth: float = option(2.0, 1.0, 1e3)
    """Factor on the step length after an iteration that reduced the residuals."""
    least_step: float = option(0.05, 1e-9, 1.0)
    """Minimum step length, as a fraction of a full Newton step."""
    step_ratio: float = option(3.0, 1.0, 1e9)
    """Largest allowed ratio between the primal and dual step lengths, in either direction."""
    damping: float = option(1e-12, 0.0, 1.0)
    """Minimum regularization added to the diagonal of the Newton matrix."""
    centering_floor: float = option(0.1, 0.0, 1.0)
    """Sum of the complementarity products below which the solver no longer centers, as a fraction of the tolerance."""
    slots: int = option(128, 1, 1 << 20)
    """Maximum number of programs that are iterated at the same time on a CPU."""
    refill: int = option(8, 1, 1 << 20)
    """Refill threshold: converged programs are replaced by new ones once 1 in this many slots is free."""
    feasibility_gap: float = option(1e-6, 1e-12, 1.0)
    """Duality gap of the elastic program that decides whether a program has a feasible point, log units."""
    accelerator: AcceleratorOptions = AcceleratorOptions()
    """When and how programs are solved on an accelerator."""


@dataclass(frozen=True)
class ReformulationOptions(Options):
    """How the model is rewritten as convex programs: which products get a variable of their own, and how non-convex terms
    are bounded.
    """

    expanded_terms: int = option(24, 2, 10**4)
    """Maximum number of terms up to which a product of sums is expanded.

    Beyond that, its factors become auxiliary variables.
    """
    slopes: tuple[float, ...] = option((0.5, 1.0, 2.0, 4.0), 1e-3, 1e3)
    """Exponents s of the bounds `P - N >= P a (N/P)^-s` on a difference, added to the bound by a constant share."""
    cancellations: int = option(6, 0, 1000)
    """Maximum number of maxima per constraint that may be replaced by one of their arguments."""
    coarse_yield: float = option(4e-4, 1e-9, 0.1)
    """Relative error of the outer linearization of die yield with spares, in relaxations of search-tree nodes."""
    fine_yield: float = option(4e-6, 1e-9, 0.1)
    """Relative error of the same linearization for a single design."""
    most_operations: int = option(120_000, 1, 10**9)
    """Maximum number of traced operations. A larger trace is not replayed; the model is read again for each batch."""


INTERIOR_POINT, REFORMULATION = InteriorPointOptions(), ReformulationOptions()
"""Default options of the solver and of the reformulation."""
