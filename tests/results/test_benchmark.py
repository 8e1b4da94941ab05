"""The benchmark's optimum is one: proved, the exact model's own, and nothing sampled is below its bound."""

import jax
import numpy as np

from hwopt.model.report import FEASIBILITY_TOLERANCE
from results.benchmarks.studies import AGREES, REFERENCE_GAP, STUDIES, batch_values, known, model_of


def test_the_known_optimum_of_a_study_is_the_exact_models_own():
    with jax.enable_x64(True):
        question = STUDIES[2].numbers()
        optimum = known(question)
        rng = np.random.default_rng(0)
        points = rng.uniform(question.lower, question.upper, (4_000, len(question.lower)))
        points = np.concatenate([optimum.y[None], points])
        objective, violation = (
            np.asarray(x) for x in batch_values(model_of(question.problem), question.numbers, points)
        )
    assert optimum.value - optimum.bound <= REFERENCE_GAP
    assert abs(objective[0] - optimum.value) <= AGREES and violation[0] <= FEASIBILITY_TOLERANCE
    held = violation[1:] <= 0.0
    assert held.any() and (objective[1:][held] >= optimum.bound).all()
