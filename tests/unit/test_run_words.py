"""Words of a run: one table, from which flags, parts of `--plan`, columns, the catalog's keywords and exports follow."""

from __future__ import annotations

import inspect
import json
import tomllib
from pathlib import Path

import jax
import numpy as np
import pytest

from hwopt import catalog, cli
from hwopt.calibration.measured.columns import MeasuredRun, columns_of
from hwopt.calibration.validation.machines import software
from hwopt.catalog.names import data_root
from hwopt.cli.cluster_flags import CLUSTER, RUN_WORDS
from hwopt.errors import UserError
from hwopt.model.estimate import estimate
from hwopt.quantity import quantities
from hwopt.run_words import BY_NAME, WORDS, implied, switched
from hwopt.stack import Stack
from hwopt.trace.cache import evaluate_in_numpy

OF_STACK = [each for each in WORDS if each.name != "expert_routing"]
COLUMNS = {"cuda_graphs": "host_graphs"}
SOURCES = tomllib.loads((data_root() / "sources.toml").read_text(encoding="utf-8"))


def changes(stack: str, **words) -> dict[str, float]:
    """Numbers of a stack that words change, and their new values."""
    before, after = catalog.stack(stack), catalog.with_words(catalog.stack(stack), stack, words)
    values = {name: (float(getattr(before, name)), float(getattr(after, name))) for name in quantities(Stack)}
    return {name: new for name, (old, new) in values.items() if new != old}


@pytest.mark.parametrize("word", WORDS, ids=lambda each: each.name)
def test_every_number_of_a_word_has_a_field_a_range_and_a_source(word):
    for change in (each for value in word.values.values() for each in value):
        assert change.field in quantities(Stack) or word.name == "expert_routing"
        assert change.rule in ("set", "times", "least")
        if isinstance(change.value, str):
            stated = catalog.record("stacks", change.value).quantities
            assert quantities(Stack)[change.field].key in stated or quantities(Stack)[change.field].default is not None
        else:
            assert change.low <= change.value <= change.high and (change.source in SOURCES or "arXiv" in change.source)


@pytest.mark.parametrize("word", WORDS, ids=lambda each: each.name)
def test_flag_column_and_keyword_follow_from_the_table(word):
    flag = RUN_WORDS[word.name]
    assert flag in CLUSTER and flag.attribute == word.name and all(value in flag.meaning for value in word.values)
    column = columns_of(MeasuredRun)[COLUMNS.get(word.name, word.name)]
    assert column.meaning == word.meaning
    of = catalog.training_run if word.name == "expert_routing" else catalog.cluster
    assert word.name in inspect.signature(of).parameters
    for value in word.values:
        assert word.read(value.upper()) == flag.kind.read(flag.name, value) == column.read(value) == value
    for said, read in ((f"{flag.name} x y", flag.kind.read), ("", column.read)):
        with pytest.raises(ValueError, match=f"{said}.*must be {word.known}".replace("(", r"\(")):
            read(flag.name, "x y") if said else read("x y")


def test_the_guide_names_every_word_and_value():
    page = (Path(__file__).parents[2] / "notebooks" / "guide" / "pages" / "commands" / "conventions.md").read_text()
    rows = {
        line.split("`")[1]: line
        for line in page.partition("## Words of a run")[2].splitlines()
        if line.startswith("| `")
    }
    for word in WORDS:
        assert all(f"`{value}`" in rows[word.name] for value in word.values)


def test_every_list_of_a_stack_has_known_values():
    for name in catalog.names("stacks"):
        for word in OF_STACK:
            listed = (
                {each.lower() for each in catalog.record("stacks", name).words(word.listed)} if word.listed else set()
            )
            assert listed <= {*word.values, "allgather"}, name


@pytest.mark.parametrize(
    ("stack", "words", "expected"),
    [
        ("nemo-2025", {}, {}),
        ("nemo-2025", {"tuning": "tuned"}, {}),
        ("nemo-2025", {"dispatcher": "alltoall"}, {"dispatch_deduplicated": 0.0}),
        ("nemo-2025", {"dispatcher": "DeepEP"}, {"dispatch_deduplicated": 1.0}),
        ("nemo-2025", {"dispatcher": "hybridep"}, {"dispatch_deduplicated": 1.0}),
        ("nemo-2025", {"ep_overlap": "yes"}, {"ep_overlap": 0.8}),
        ("nemo-2025", {"ep_overlap": 0.6}, {"ep_overlap": 0.6}),
        ("deepseek-2024", {"ep_overlap": "yes"}, {}),
        ("nemo-2025", {"cuda_graphs": "no"}, {"host_layer_s": 1.5e-3, "host_moe_layer_s": 3e-3}),
        ("nemo-2025", {"cuda_graphs": "parts"}, {"host_layer_s": 1e-4, "host_moe_layer_s": 1e-3}),
        ("nemo-2025", {"cuda_graphs": "step"}, {"host_layer_s": 5e-5, "host_moe_layer_s": 5e-5}),
        ("megatron-2025", {"cuda_graphs": "none"}, {}),
        ("nemo-2024", {"cuda_graphs": "none"}, {}),
        ("torchtitan-2024", {"compilation": "compiled"}, {}),
        ("torchtitan-eager", {"compilation": "eager"}, {}),
        ("jax-gpu", {"compilation": "compiled"}, {}),
        ("nemo-2024", {"compilation": "eager"}, {}),
    ],
)
def test_a_word_changes_what_the_table_says(stack, words, expected):
    assert changes(stack, **words) == pytest.approx(expected)


def test_compiled_and_eager_are_the_two_entries_of_torchtitan():
    """Attention kernels aside, which do not depend on compilation."""
    compiled, eager = catalog.stack("torchtitan-2024", "hopper"), catalog.stack("torchtitan-eager", "hopper")
    for name, value in {"compiled": compiled, "eager": eager}.items():
        other = catalog.with_words(eager if name == "compiled" else compiled, "torchtitan-2024", {"compilation": name})
        assert [float(each) for each in jax.tree.leaves(other)] == [float(each) for each in jax.tree.leaves(value)]


def test_a_functional_run_is_its_words():
    words = {"dispatcher": "alltoall", "ep_overlap": "no", "cuda_graphs": "none", "expert_routing": "natural"}
    assert implied({"tuning": "functional"}) == {"tuning": "functional"} | words
    assert implied({"tuning": "functional", "cuda_graphs": "step"})["cuda_graphs"] == "step"
    del words["expert_routing"]
    assert changes("nemo-2025", tuning="functional") == changes("nemo-2025", **words)
    run = catalog.training_run("mixtral-8x7b", tuning="functional")
    assert run.routing is not None and float(run.routing.imbalance) == 1.3
    assert catalog.training_run("llama3.1-8b", tuning="functional").routing is None


@pytest.mark.parametrize(
    ("stack", "words", "said"),
    [
        ("nemo-2024", {"dispatcher": "deepep"}, "'nemo-2024': does not document dispatcher=deepep .it has allgather, alltoall."),
        ("nemo-2024", {"ep_overlap": "yes"}, "'nemo-2024': does not document ep_overlap=yes .it has no."),
        ("torchtitan-2024", {"ep_overlap": 0.3}, "does not document ep_overlap=0.3"),
        ("nemo-2024", {"cuda_graphs": "step"}, "does not document cuda_graphs=step"),
        ("nemo-2025", {"compilation": "compiled"}, "does not document compilation=compiled .it has eager."),
        ("jax-gpu", {"compilation": "eager"}, "does not document compilation=eager .it has compiled."),
        ("deepseek-2024", {"dispatcher": "alltoall"}, "does not document dispatcher=alltoall .it has deepep."),
        ("nemo-2025", {"dispatcher": "deep"}, "dispatcher=deep: must be alltoall, deepep, hybridep: did you mean 'deepep'"),
        ("nemo-2025", {"ep_overlap": 1.5}, "ep_overlap=1.5: must be no, yes or a number from 0"),
        ("nemo-2025", {"tuning": "fast"}, "tuning=fast: must be tuned, functional"),
    ],
)  # fmt: skip
def test_words_that_a_stack_does_not_document_are_refused_in_one_line(stack, words, said):
    with pytest.raises(UserError, match=said) as refused:
        catalog.cluster("h100-sxm", 8, stack=stack, **words)
    assert "\n" not in str(refused.value)
    if "must be" not in said:
        assert catalog.cluster("h100-sxm", 8, stack=stack, any_software=True, **words)


# Routing ---------------------------------------------------------------------------------------------------------------


def report(ep: int, **routing):
    run = catalog.training_run("mixtral-8x7b", global_batch=64, **routing)
    plan = catalog.plan(run, 64, ep=ep, tp=1, pp=2, expert_tp=1, zero=1)
    return evaluate_in_numpy(estimate, run, catalog.cluster("h100-sxm", 64), plan)


def test_uneven_routing_slows_experts_and_fills_memory_where_they_are_spread():
    even, uneven, same = report(8), report(8, expert_routing=1.3), report(8, routing_imbalance=1.3)
    for name in ("step_time_s", "memory_per_chip_bytes"):
        assert float(getattr(uneven, name)) == pytest.approx(float(getattr(same, name)), rel=1e-12)
        assert float(getattr(uneven, name)) > float(getattr(even, name))
    more = report(8, expert_routing=1.6)
    assert float(more.step_time_s) > float(uneven.step_time_s)
    assert float(report(8, expert_routing="natural").step_time_s) == float(uneven.step_time_s)


def test_one_rank_has_all_tokens_however_uneven_its_experts_are():
    assert float(report(1, expert_routing=1.6).step_time_s) == float(report(1).step_time_s)


def test_balanced_routing_is_absent_from_the_trace():
    asked = {"global_batch": 64}
    plain, stated = (
        catalog.training_run("mixtral-8x7b", **asked, **more) for more in ({}, {"expert_routing": "balanced"})
    )
    uneven = catalog.training_run("mixtral-8x7b", **asked, expert_routing=1.3)
    assert jax.tree.structure(plain) == jax.tree.structure(stated) != jax.tree.structure(uneven)
    cluster, plan = catalog.cluster("h100-sxm", 64), catalog.plan(plain, 64, ep=8, expert_tp=1)
    size = lambda run: str(jax.make_jaxpr(estimate)(run, cluster, plan)).count("\n")
    assert size(plain) == size(stated) < size(uneven)


def test_words_of_a_stack_change_numbers_and_no_trace():
    run = catalog.training_run("mixtral-8x7b", global_batch=64)
    plain, stated = (
        catalog.cluster("h100-sxm", 64, stack="nemo-2025", **words)
        for words in ({}, {"dispatcher": "deepep", "ep_overlap": "yes", "cuda_graphs": "none", "tuning": "functional"})
    )
    assert jax.tree.structure(plain) == jax.tree.structure(stated)
    assert [np.shape(each) for each in jax.tree.leaves(plain)] == [np.shape(each) for each in jax.tree.leaves(stated)]
    plan = catalog.plan(run, 64, ep=8, expert_tp=1)
    assert float(evaluate_in_numpy(estimate, run, stated, plan).step_time_s) != float(
        evaluate_in_numpy(estimate, run, plain, plan).step_time_s
    )


# Measured runs ---------------------------------------------------------------------------------------------------------


def test_columns_of_words_are_read_and_applied():
    declared = columns_of(MeasuredRun)
    cells = {
        "dispatcher": "HybridEP",
        "ep_overlap": "yes",
        "host_graphs": "off",
        "expert_routing": "1.4",
        "tuning": "tuned",
    }
    row = MeasuredRun(**{name: declared[name].read(cell) for name, cell in cells.items()})
    assert (row.dispatcher, row.ep_overlap, row.host_graphs, row.expert_routing) == ("hybridep", "yes", "none", 1.4)
    after = software(catalog.stack("nemo-2025"), row, "nemo-2025")
    assert float(after.dispatch_deduplicated) == 1.0 and float(after.ep_overlap) == 0.8
    assert float(after.host_moe_layer_s) == 3e-3
    assert declared["host_graphs"].also == ("cuda_graphs",) and declared["expert_routing"].also == ("routing",)


# Command line ----------------------------------------------------------------------------------------------------------

ASKED = [
    "--workload", "qwen3-30b-a3b", "--chip", "h100-sxm", "--chips", "16", "--stack", "nemo-2025", "--global-batch", "256",
    "--seq-len", "4096",
]  # fmt: skip


def answered(capsys, command, *words):
    assert cli.main([command, *ASKED, *words, "--json"]) in (0, 1)
    return json.loads(capsys.readouterr().out)


def refused(capsys, *words):
    assert cli.main(list(words)) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def step_s(document):
    return document["step_time_s"]["value"] if isinstance(document["step_time_s"], dict) else document["step_time_s"]


def test_words_in_a_plan_are_those_of_the_flags(capsys):
    plain = answered(capsys, "estimate", "--plan", "ep=16")
    by_flag = answered(capsys, "estimate", "--plan", "ep=16", "--cuda-graphs", "no", "--expert-routing", "1.3")
    by_plan = answered(capsys, "estimate", "--plan", "ep=16, cuda_graphs=no,routing=natural")
    assert step_s(by_flag) == step_s(by_plan) > step_s(plain)
    assert by_flag["run_words"] == {"cuda_graphs": "none", "expert_routing": 1.3} and "run_words" not in plain
    assert by_plan["run_words"] == {"cuda_graphs": "none", "expert_routing": "natural"}


def test_a_plan_of_words_alone_is_searched(capsys):
    found = answered(capsys, "estimate", "--plan", "dispatcher=deepep")
    best = answered(capsys, "plan", "--plan", "dispatcher=deepep,ep=16")
    assert found["run_words"] == best["run_words"] == {"dispatcher": "deepep"}


def test_words_are_choices_of_a_cluster(capsys):
    document = answered(capsys, "plan", "--plan", "ep=16", "--choices", "dispatcher=alltoall|deepep")
    assert document["run_words"] == {"dispatcher": "deepep"} and len(document["choices"]) == 2


@pytest.mark.slow
def test_words_of_a_fleet(capsys):
    groups = ["--workload", "mixtral-8x7b", "--groups", "h100-sxm:32,a100-80:32", "--global-batch", "512", "--json"]
    times = []
    for more in ([], ["--cuda-graphs", "none", "--expert-routing", "1.5"]):
        assert cli.main(["fleet", *groups, *more]) == 0
        times.append(json.loads(capsys.readouterr().out)["step_time_s"])
    assert times[1] > times[0]


def test_the_screen_states_the_words(capsys):
    assert cli.main(["estimate", *ASKED, "--plan", "ep=16,ep_overlap=yes"]) == 0
    assert "run: ep_overlap=yes" in capsys.readouterr().out


def test_what_cannot_be_asked_is_refused(capsys):
    twice = refused(capsys, "estimate", *ASKED, "--plan", "ep=16,cuda_graphs=no", "--cuda-graphs", "step")
    assert "--plan cuda_graphs=no: --cuda-graphs is given too" in twice
    wrong = refused(capsys, "estimate", *ASKED, "--plan", "ep=16,routing=0.5")
    assert "--plan routing 0.5: must be balanced, natural or a number from 1" in wrong
    dense = ["--workload", "llama3.1-8b", "--chip", "h100-sxm", "--chips", "8"]
    assert "llama3.1-8b has no experts" in refused(capsys, "plan", *dense, "--expert-routing", "natural")
    assert "applies to training" in refused(capsys, "estimate", *dense, "--mode", "serve", "--cuda-graphs", "no")
    software_ = refused(capsys, "estimate", *dense, "--stack", "nemo-2024", "--cuda-graphs", "step")
    assert "stack 'nemo-2024': does not document cuda_graphs=step" in software_


# Export ----------------------------------------------------------------------------------------------------------------


def test_words_that_software_cannot_express_are_refused_by_name(capsys):
    error = refused(capsys, "estimate", *ASKED, "--plan", "ep=16,dispatcher=deepep", "--export", "torchtitan")
    assert "torchtitan cannot express dispatcher=deepep; it has alltoall" in error
    error = refused(capsys, "plan", *ASKED, "--cuda-graphs", "parts", "--export", "torchtitan")
    assert "cannot express cuda_graphs=parts" in error
    assert switched(0.4) == "yes" and switched(0.0) == "no" and BY_NAME["routing"] is BY_NAME["expert_routing"]


def test_a_launch_file_sets_the_words(capsys):
    plan = "ep=16,dispatcher=hybridep,ep_overlap=yes,cuda_graphs=parts,routing=natural"
    assert cli.main(["estimate", *ASKED, "--plan", plan, "--export", "megatron"]) == 0
    script = capsys.readouterr().out
    for flag in (
        "--moe-token-dispatcher-type flex", "--moe-flex-dispatcher-backend hybridep", "--overlap-moe-expert-parallel-comm",
        "--cuda-graph-impl transformer_engine", "--cuda-graph-modules attn moe_router moe_preprocess", "--te-rng-tracker",
    ):  # fmt: skip
        assert f"  {flag}\n" in script
    assert "expert_routing=natural is what the prediction assumes" in script
    assert "--cuda-graphs parts" in script  # in the command that predicts the plan again
