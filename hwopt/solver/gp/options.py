"""Options of convex programs: how the model is rewritten as such, and how they are solved on a processor or an accelerator."""

from dataclasses import dataclass

from hwopt.options import Options, option


@dataclass(frozen=True)
class AcceleratorOptions(Options):
    """When and how convex programs are solved on an accelerator."""

    slots: int = option(4096, 1, 1 << 20)
    """Maximum number of programs in work at a time."""
    memory_share: float = option(0.5, 1e-3, 1.0)
    """Share of the free memory that the slots may take."""
    fallback_bytes: float = option(2e9, 1e6, 1e13)
    """Memory for the slots where the device does not report its own, B."""
    least_batch: int = option(1024, 1, 1 << 20)
    """Smallest batch size. Batches are padded to a power of two, so that few sizes are compiled."""
    least_programs: int = option(64, 1, 1 << 30)
    """Number of programs below which a batch stays on the processor."""
    after_programs: int = option(10_000, 0, 1 << 40)
    """Number of programs of a structure solved on the processor before it is compiled for the accelerator."""


@dataclass(frozen=True)
class InteriorPointOptions(Options):
    """Newton's method on a batch of convex programs: step lengths, precision, batch sizes."""

    iterations: int = option(80, 1, 100_000)
    """Maximum number of Newton iterations of a program."""
    single_precision_iterations: int = option(8, 0, 100_000)
    """Maximum number of first iterations in single precision, of programs that need no sharp answer."""
    boundary: float = option(0.995, 0.01, 0.9999999)
    """Fraction of the distance to the boundary that a step may go."""
    start_margin: float = option(0.05, 1e-9, 0.5)
    """Least distance of a start from each side of the box, as a fraction of its width."""
    step_shrink: float = option(0.3, 1e-3, 1.0)
    """Factor on the step length where the residuals grew."""
    step_growth: float = option(2.0, 1.0, 1e3)
    """Factor on the step length where the residuals fell."""
    least_step: float = option(0.05, 1e-9, 1.0)
    """Least step length, as a fraction of a full Newton step."""
    step_ratio: float = option(3.0, 1.0, 1e9)
    """Largest ratio of primal to dual step length, and of dual to primal."""
    damping: float = option(1e-12, 0.0, 1.0)
    """Least addition to the diagonal of the Newton matrix."""
    centering_floor: float = option(0.1, 0.0, 1.0)
    """Sum of the complementarity products at which centering stops, as a fraction of the tolerance."""
    slots: int = option(128, 1, 1 << 20)
    """Number of programs in work at a time on a processor."""
    refill: int = option(8, 1, 1 << 20)
    """Slots are refilled when one in this many is done."""
    feasibility_gap: float = option(1e-6, 1e-12, 1.0)
    """Gap to which the elastic program is solved that decides whether a program has a feasible point, log units."""
    accelerator: AcceleratorOptions = AcceleratorOptions()
    """When and how programs are solved on an accelerator."""


@dataclass(frozen=True)
class ReformulationOptions(Options):
    """How the model is rewritten as convex programs: where products become variables, and how non-convex terms are bounded."""

    expanded_terms: int = option(24, 2, 10**4)
    """Maximum number of terms up to which products of sums are written out; larger factors become variables."""
    slopes: tuple[float, ...] = option((0.5, 1.0, 2.0, 4.0), 1e-3, 1e3)
    """Exponents with which a difference of two terms is bounded, besides the bound by a constant share."""
    cancellations: int = option(6, 0, 1000)
    """Maximum number of maxima that a constraint may replace by one of their parts."""
    coarse_yield: float = option(4e-4, 1e-9, 0.1)
    """Relative error of the outer linearization of the yield of dies with spares, over nodes."""
    fine_yield: float = option(4e-6, 1e-9, 0.1)
    """Relative error of that linearization for a single design."""
    most_operations: int = option(120_000, 1, 10**9)
    """Number of operations beyond which a reading of the model is not recorded, but repeated for each batch."""


INTERIOR_POINT, REFORMULATION = InteriorPointOptions(), ReformulationOptions()
"""The defaults."""
