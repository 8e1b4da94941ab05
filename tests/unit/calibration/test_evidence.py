"""Features of hand-made plans, the lines of answers on them, and the page of the catalog."""

from __future__ import annotations

import json

import pytest

from hwopt import catalog
from hwopt.calibration.evidence import (
    ENOUGH,
    EVERYTHING,
    FEATURES,
    Count,
    CountKey,
    Evidence,
    Subject,
    bucket,
    counts,
    evidence_of,
    machine_evidence,
    phrases,
    read_counts,
    software,
)
from hwopt.cli import main
from hwopt.errors import UserError
from hwopt.output.answer import Answer
from hwopt.plan import Disaggregated

LARGE = ("--workload", "llama3.1-405b", "--chip", "h100-sxm", "--chips", "131072", "--global-batch", "16384")
PLANNED = ("--plan", "tp=8,pp=16,virtual_stages=8,cp=8,activations_offloaded=1")


def trained(chips=1024, name="llama3.1-405b", software="NVIDIA", plan="tp=1", **run):
    run = catalog.training_run(name, sequence_length=8192, global_batch=2048, **run)
    planned = catalog.plan(run, chips, **catalog.parse_plan(plan))
    return Subject(run, catalog.cluster("h100-sxm", chips), planned, "hopper", software)


def words(subject):
    found = {}
    for feature, phrase in phrases(subject):
        found.setdefault(feature.name, []).append(phrase)
    return found


@pytest.mark.parametrize(
    ("value", "base", "said"),
    [(1, 2, "1"), (2, 2, "2-3"), (3, 2, "2-3"), (1023, 2, "512-1,023"), (1024, 2, "1,024-2,047"), (8, 4, "4-15"),
     (64, 4, "64-255"), (0.5, 2, "1"), (2**20, 4, "1,048,576-4,194,303")],
)  # fmt: skip
def test_intervals_lie_between_powers(value, base, said):
    assert bucket(value, base) == said


@pytest.mark.parametrize("exponent", range(0, 31))
def test_powers_of_two_begin_their_interval(exponent):
    assert bucket(2**exponent).replace(",", "").split("-")[0] == str(2**exponent)


def test_a_training_plan_has_its_features():
    found = words(trained(plan="tp=8,pp=16,cp=4,virtual_stages=8,zero=1,recompute=full,activations_offloaded=1"))
    assert found["context"] == ["context parallelism at 2,048-4,095 tokens per rank"]
    assert found["interleaving"] == ["interleaving at 1 layer per chunk", "interleaving with 8-15 chunks per stage"]
    assert found["pipeline"] == ["pipelines of 16-31 stages"]
    assert found["sharding"] == ["ZeRO stage 1 in a pipeline"]
    assert found["offload"] == ["activations offloaded to host memory in a pipeline"]
    assert found["recomputation"] == ["full recomputation"]
    assert found["combination"] == ["tp, pp, interleaving and cp in one plan"]
    assert found["tensor"] == ["tensor parallelism over 8-15 chips inside a scale-up domain"]
    assert found["chips"] == ["1,024-4,095 chips"] and found["length"] == ["sequences of 4,096-16,383 tokens"]
    assert found["software"] == ["software family NVIDIA"] and found["layers"] == ["dense transformer layers"]
    assert not {"experts", "adapters", "moments", "attention", "concurrency"} & found.keys()


def test_a_plain_plan_has_no_features_of_parallelism():
    found = words(trained(chips=8, name="llama3.1-8b", software=""))
    assert not {"tensor", "pipeline", "interleaving", "context", "combination", "offload", "software"} & found.keys()
    assert found["sharding"] == ["ZeRO stage 1 without a pipeline"]


def test_experts_leave_a_domain_of_eight():
    inside = words(trained(256, "deepseek-v3", plan="ep=8"))
    across = words(trained(256, "deepseek-v3", plan="ep=64"))
    assert inside["experts"] == ["expert parallelism inside a scale-up domain"]
    assert across["experts"] == ["expert parallelism across 8-15 scale-up domains"]
    assert inside["layers"] == ["latent attention (MLA)", "mixture of experts"]


@pytest.mark.parametrize(
    ("name", "kinds"),
    [("deepseek-v3.2", {"sparse attention with an indexer (DSA)", "latent attention (MLA)", "mixture of experts"}),
     ("qwen3.6-35b-a3b", {"recurrent or linear attention", "mixture of experts", "gated attention outputs"}),
     ("nemotron-3-super-120b-a12b", {"recurrent or linear attention", "mixture of experts", "latent experts"})],
)  # fmt: skip
def test_layers_of_2026_are_named(name, kinds):
    assert kinds <= set(words(trained(64, name))["layers"])


def test_a_run_has_its_formats():
    found = words(trained(precision="fp8", memory_formats="moments=bf16"))
    assert found["products"] == ["products in fp8"] and found["moments"] == ["optimizer moments of 16 bit"]


def test_a_service_has_its_features():
    service = catalog.service(
        "deepseek-v3", input_tokens=4000, output_tokens=1000, precision="fp8", weights="fp8", kv="bf16"
    )
    plan = catalog.serving_plan(service, 64, tp=2, ep=32, batch=32)
    found = words(Subject(service, catalog.cluster("h200", 64), plan, "hopper", "sglang"))
    assert found["attention"] == ["attention data parallelism over 16-31 groups"]
    assert found["concurrency"] == ["16-63 concurrent sequences per replica"]
    assert found["weights"] == ["weights of 8 bit"] and found["cache"] == ["keys and values of 16 bit"]
    assert found["prompts"] == ["prompts of 1,024-4,095 tokens"] and found["answers"] == ["answers of 256-1,023 tokens"]
    assert found["chips"] == ["16-63 chips"]  # of the group that shares experts
    assert not {"disaggregation", "speculation", "context", "length"} & found.keys()
    drafted = Subject(
        catalog.service("llama3.1-8b", drafted_tokens=3), catalog.cluster("h200", 8), plan, "hopper", "", True
    )
    assert {"speculation", "disaggregation"} <= words(drafted).keys()


def test_both_groups_of_a_disaggregated_service_count():
    service = catalog.service("llama3.1-8b")
    cluster = catalog.cluster("h100-sxm", 12)
    plan = Disaggregated(catalog.serving_plan(service, 4, tp=2), catalog.serving_plan(service, 8, tp=8))
    found = machine_evidence(service, cluster, plan, [(catalog.record("chips", "h100-sxm"), "tensorrt-llm-2025")])
    assert found is not None
    told = {each["phrase"] for each in found.features}
    assert {f"tensor parallelism over {each} chips inside a scale-up domain" for each in ("2-3", "8-15")} <= told
    assert "prefill and decode on separate chips" in found.unmeasured


def test_software_is_a_family_or_an_engine():
    assert software("nemo-2025") == software("megatron-2025") == "NVIDIA"
    assert software("tensorrt-llm-2023") == software("tensorrt-llm-2025") == "tensorrt-llm"


def test_few_studies_and_larger_sizes_are_told():
    table, most = counts(), counts()[EVERYTHING._replace(work="training")]
    subject = trained(131072, plan="tp=8,pp=16,cp=8,dp=128")
    found = evidence_of([subject])
    assert found.beyond == (f"131,072 chips (measured to {most.chips:,})",)
    few = {key.phrase for key in (CountKey("training", each.name, phrase) for each, phrase in phrases(subject))
           if table.get(key, Count()).studies < ENOUGH and key.feature != "chips"}  # fmt: skip
    assert {each.removesuffix(" (one study)") for each in found.unmeasured} == few
    assert [each["phrase"] for each in found.features] == [phrase for _, phrase in phrases(subject)]


def test_a_custom_chip_was_never_measured():
    assert "custom chips" in evidence_of([trained()._replace(family="")]).unmeasured


HEADER = ",".join(CountKey._fields + Count._fields)
GOOD = "training,chip,x,,1,1,1,1,1"


@pytest.mark.parametrize(
    "lines",
    [["work,feature,phrase,software,rows", "training,chip,x,,1"], [HEADER, "training,chip,x,,one,1,1,1,1"],
     [HEADER, GOOD, GOOD], [HEADER, GOOD.replace("chip", "no such")], [HEADER, "training,chip,x,,1"]],
)  # fmt: skip
def test_a_bad_table_is_refused(lines):
    assert read_counts([HEADER, GOOD]) == {CountKey("training", "chip", "x"): Count(1, 1, 1, 1, 1)}
    with pytest.raises(UserError, match=r"evidence\.csv"):
        read_counts(lines)


def test_the_shipped_table_is_consistent():
    """All rows are the most of any kind; a phrase has at least the rows of each of its software, and no fewer studies."""
    table = counts()
    for key, each in table.items():
        whole = table[EVERYTHING._replace(work=key.work)]
        assert (
            all(0 <= number <= most for number, most in zip(each, whole, strict=True)) and each.rows >= each.studies > 0
        )
        if key.software and key._replace(software="") in table:
            assert all(own <= most for own, most in zip(each, table[key._replace(software="")], strict=True))
    assert {key.feature for key in table} - {"study", "all"} <= {each.name for each in FEATURES}


def test_lines_of_an_answer():
    answer = Answer(
        "estimate", {}, "title", evidence=Evidence((), ("pipelines of 64-127 stages",), ("9 chips (measured to 8)",))
    )
    assert answer.screen().splitlines()[-2:] == [
        "  unmeasured     pipelines of 64-127 stages",
        "  beyond data    9 chips (measured to 8)",
    ]
    assert "pipelines of 64-127 stages" in answer.page("hwopt")
    assert answer.document()["evidence"]["unmeasured"] == ["pipelines of 64-127 stages"]
    assert "evidence" not in Answer("estimate", {}, "title").document()


def test_an_estimate_tells_what_few_measured(capsys):
    assert main(["estimate", *LARGE, *PLANNED]) == 0
    last = capsys.readouterr().out.rstrip().split("\n\n")[-1]
    assert "unmeasured     activations offloaded to host memory in a pipeline" in last and "131,072 chips" in last
    assert main(["estimate", *LARGE, *PLANNED, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["evidence"]
    assert any("offloaded" in each for each in found["unmeasured"]) and found["beyond"]


def test_an_infeasible_plan_has_no_evidence(capsys):
    assert (
        main(
            [
                "estimate",
                "--workload",
                "llama3.1-405b",
                "--chip",
                "a100-40",
                "--chips",
                "64",
                "--plan",
                "tp=8",
                "--json",
            ]
        )
        == 1
    )
    assert "evidence" not in json.loads(capsys.readouterr().out)


def test_the_page_of_the_catalog(capsys):
    assert main(["catalog", "evidence"]) == 0
    told = capsys.readouterr().out
    assert all(f"\n  {each.name} " in told for each in FEATURES)
    assert main(["catalog", "evidence", "context", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["evidence"]
    assert {row["feature"] for row in rows} == {"context"} and {"", "NVIDIA"} <= {row["software"] for row in rows}
    assert main(["catalog", "evidence", "study"]) == 0 and "MLPerf Training: not stated" in capsys.readouterr().out
    assert main(["catalog", "evidence", "contxt"]) == 2
    assert "did you mean 'context'?" in capsys.readouterr().err
