"""The lattice of plans: every row is valid, none is missing, and the sentence about it is true."""

import itertools
import re

import numpy as np
import pytest

from hwopt import catalog
from hwopt.design.plan_lattice import contexts
from hwopt.errors import UserError
from hwopt.plan import OFFLOADED
from hwopt.planning import training_plans as lattice
from hwopt.planning.training_plans import training_plans, training_scope

CASES = {
    "llama3.1-405b": ("h100-sxm", 16384, {}),
    "llama3.1-8b": ("h100-sxm", 64, {}),
    "mixtral-8x7b": ("h100-sxm", 96, {"global_batch": 96}),
    "deepseek-v3": ("h800", 64, {"global_batch": 64}),
    "gpt3-175b": ("a100-80", 1536, {"sequence_length": 2048}),
}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    chip, chips, asked = CASES[request.param]
    run, cluster = catalog.training_run(request.param, **asked), catalog.cluster(chip, chips)
    return run, cluster, training_plans(run, cluster)


def test_every_row_is_valid(case):
    run, cluster, rows = case
    model = run.model
    r = {name: column.astype(np.int64) for name, column in rows.columns.items()}
    batch, length = float(run.global_batch_sequences), float(run.sequence_length)
    assert all((column >= 0).all() for column in r.values())
    assert (r["tp"] * r["pp"] * r["dp"] * r["cp"] == float(cluster.chips)).all()
    assert (float(model.heads) % r["tp"] == 0).all()
    groups = float(model.kv_heads)
    assert ((groups % r["tp"] == 0) | (r["tp"] % groups == 0) | (float(model.kv_rank) > 0)).all()
    assert (batch % (r["dp"] * r["micro_batch"]) == 0).all()
    assert (length % r["cp"] == 0).all() and (length / r["cp"] >= 1024)[r["cp"] > 1].all()
    assert (r["pp"] * r["virtual_stages"] <= float(model.layers) + 2).all()
    interleaved = r["virtual_stages"] > 1
    micro_batches = batch / (r["dp"] * r["micro_batch"])
    assert (micro_batches % r["pp"] == 0)[interleaved].all() and (r["pp"] > 1)[interleaved].all()
    experts = float(model.experts)
    assert ((experts % r["ep"] == 0) if experts else (r["ep"] == 1)).all()
    assert ((r["tp"] * r["cp"] * r["dp"]) % (r["ep"] * r["expert_tp"]) == 0).all()
    assert ((r["tp"] % r["expert_tp"] == 0) if experts else (r["tp"] == r["expert_tp"])).all()
    assert set(np.unique(r["recompute"])) == {1, 2, 3}
    assert (r["zero"] >= 1).all() and (r["pp"] == 1)[r["zero"] > 1].all()
    table = np.stack([r[name] for name in r], axis=1)
    table = table[np.lexsort(table.T)]
    assert len(table) == rows.count and (table[1:] != table[:-1]).any(axis=1).all()  # each once


def test_rows_are_what_the_checked_constructor_makes_of_their_words(case):
    run, cluster, rows = case
    index = np.random.default_rng(0).choice(rows.count, 200, replace=False)
    plans = rows.at(index)
    for place, row in enumerate(index):
        words = {name: int(column[row]) for name, column in rows.columns.items()}
        del words["micro_batches"]  # what is left of the batch
        words |= {name: words[name] - 1 for name in OFFLOADED}
        words["recompute"] = ("none", "selective", "full")[words["recompute"] - 1]
        shards = words["tp"] * words["cp"]
        words["sequence_parallel"] = words["tp"] > 1 and float(run.sequence_length) % shards == 0
        made = catalog.plan(run, float(cluster.chips), **words)
        for name in (each for each in made.__dataclass_fields__ if each != "layout"):
            assert getattr(plans, name)[place] == getattr(made, name), (name, words)


@pytest.mark.parametrize(("workload", "batch"), [("llama3.1-8b", 12), ("mixtral-8x7b", 8)])
def test_no_valid_plan_is_missing(workload, batch):
    """Against everything that the checked constructor accepts, tried number by number."""
    chips = 8
    run, cluster = catalog.training_run(workload, global_batch=batch), catalog.cluster("h100-sxm", chips)
    accepted = set()
    splits = itertools.product((1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8), contexts(int(run.sequence_length)))
    degrees = [split for split in splits if np.prod(split) == chips]
    layers, experts = int(run.model.layers), int(run.model.experts)
    for (tp, pp, dp, cp), b in itertools.product(degrees, range(1, batch + 1)):
        for v, ep in itertools.product(range(1, layers // pp + 4), range(1, max(experts, 1) + 1)):
            for expert_tp in range(1, tp + 1) if experts else (tp,):
                if tp % expert_tp or batch % (dp * b) or max(experts, 1) % ep:
                    continue  # the constructor would say so too, slowly
                if v > 1 and batch // (dp * b) % pp:
                    continue  # taken as stated, but not searched: whole rounds of an interleaved schedule
                words = {"tp": tp, "pp": pp, "dp": dp, "cp": cp, "ep": ep, "expert_tp": expert_tp}
                words |= {"virtual_stages": v, "micro_batch": b}
                try:
                    catalog.plan(run, chips, **words)
                except UserError:
                    continue
                accepted.add(tuple(words.values()))
    rows = training_plans(run, cluster)
    names = ("tp", "pp", "dp", "cp", "ep", "expert_tp", "virtual_stages", "micro_batch")
    assert set(zip(*(rows[name].tolist() for name in names), strict=True)) == accepted


def test_contexts_leave_tokens_enough_in_two_halves():
    assert contexts(1024) == [1]
    assert contexts(8192) == [1, 2, 4, 8]
    assert contexts(131072)[-1] == 128
    assert contexts(8192 + 2) == [1]


def test_the_scope_counts_its_plans(case):
    run, cluster, rows = case
    sentence = training_scope(run, cluster, rows.count)
    assert f"global over {rows.count:,} plans" in sentence and "\n" not in sentence
    assert f"{int(cluster.chips):,} chips" in sentence
    assert ("expert" in sentence) == bool(float(run.model.experts))
    listed = re.search(r"cp in \{([\d, ]+)\}", sentence)
    assert listed and sorted({int(c) for c in listed[1].split(",")}) >= sorted(set(rows["cp"].tolist()))


def test_nothing_divides_or_too_much_does(monkeypatch):
    run = catalog.training_run("llama3.1-8b", global_batch=8)
    with pytest.raises(UserError, match="no plan divides 37 chips"):
        training_plans(run, catalog.cluster("h100-sxm", 37))
    monkeypatch.setattr(lattice, "MOST_PLANS", 100)
    with pytest.raises(UserError, match="more than 100 plans"):
        training_plans(run, catalog.cluster("h100-sxm", 8))
