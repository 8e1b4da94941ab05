"""A report that is printed says its numbers with their units; one that is traced says its form."""

import jax

from hwopt import catalog
from hwopt.model.estimate import estimate
from hwopt.trace.cache import evaluate_in_numpy


def test_a_printed_report_has_values_and_units():
    run, cluster = catalog.training_run("llama3.1-8b", global_batch=64), catalog.cluster("h100-sxm", 8)
    report = evaluate_in_numpy(estimate, run, cluster, catalog.plan(run, 8))
    said = repr(report)
    assert said.startswith("TrainingReport(feasible = ") and f"step_time_s = {float(report.step_time_s):.4g} s" in said
    assert "memory_capacity_bytes = 85.52 GB" in said
    mapped = jax.tree.map(lambda leaf: leaf[None], report)
    assert "[1]" in repr(mapped) and " s\n" not in repr(mapped)
