"""What whole micro-batches ask of a plan, in every stage of a run."""

from fractions import Fraction

from hwopt.integers.relations import Divides, Relation, When
from hwopt.workload.ramp import BatchRamp, batch_quotients, whole_micro_batches


def whole_rounds(ramp: BatchRamp | None) -> list[Relation]:
    """An interleaved schedule has whole rounds, as many micro-batches as stages; all batches of a ramp have whole micro-batches."""
    of_stages = (
        Divides(("pp",), ("micro_batches",), x.denominator, x.numerator) for x in (*batch_quotients(ramp), Fraction(1))
    )
    relations: list[Relation] = [When("virtual_stages", 2, each) for each in of_stages]
    if (multiple := whole_micro_batches(ramp)) > 1:
        relations.append(Divides((), ("micro_batches",), multiple))
    return relations


def ramp_words(ramp: BatchRamp | None) -> str:
    """What a ramp asks of micro-batches, behind a name; nothing where it asks nothing."""
    multiple = whole_micro_batches(ramp)
    return f" (micro-batches a multiple of {multiple})" if multiple > 1 else ""
