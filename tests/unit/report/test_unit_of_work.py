"""Images, samples and tokens: screens count in what the workload says."""

import pytest

from hwopt import catalog
from hwopt.jaxprs.kept import estimated
from hwopt.model.estimate import estimate
from hwopt.report.documents import report_document
from hwopt.report.screens import estimate_screen
from hwopt.report.token_prices import unit_of_work
from hwopt.units import pretty


@pytest.mark.parametrize(
    ("name", "unit", "tokens"),
    [("resnet-50", "image", 1.0), ("vit-b-16", "image", 197.0), ("dlrm-dcnv2", "sample", 1.0), ("mamba-2.8b", "token", 1.0),
     ("llama3.1-8b", "token", 1.0)],
)  # fmt: skip
def test_work_is_counted_in_what_the_workload_says(name, unit, tokens):
    """Screens divide what is counted in tokens by those of a unit; documents keep tokens, and say how many one is."""
    run, cluster = catalog.training_run(name, global_batch=4096), catalog.cluster("h100-sxm", 8)
    report = estimated(estimate, run, cluster, catalog.plan(run, 8))
    assert unit_of_work(report) == unit_of_work(run) == (unit, tokens)
    screen = estimate_screen(report, catalog.plan(run, 8), name)
    if bool(report.feasible):
        rate = float(report.tokens_per_s) / tokens
        said = pretty(rate, "token/s") if unit == "token" else f"{rate:,.0f} {unit}/s"
        article = "an" if unit == "image" else "a"
        assert said in screen and f"{float(report.cost_per_token_usd) * 1e6 * tokens:.4g} $ a million {unit}s" in screen
        assert f"J {article} {unit}\n" in screen and ("token/s" in screen) == (unit == "token")
    document = report_document(report)
    assert (document["unit_of_work"], document["tokens_per_unit"]) == (unit, tokens)
