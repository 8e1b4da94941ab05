"""Every command with every source of workloads and of chips: up to its solver, or to an answer where that is cheap."""

from __future__ import annotations

import json
import re
from itertools import starmap
from pathlib import Path
from unittest.mock import MagicMock

import pytest

import hwopt.analysis.fabrics
import hwopt.analysis.fleet.data_parallel
import hwopt.analysis.scaling
import hwopt.planning.plan_search
import hwopt.trace.cache
from hwopt import catalog
from hwopt.analysis.claim_check import planning
from hwopt.analysis.claim_check.machine import workload_of
from hwopt.analysis.claim_check.statement import blueprint_of
from hwopt.calibration.measured.rows import read
from hwopt.calibration.validation.models import shape
from hwopt.cli import main
from hwopt.design.provenance import Provenance
from hwopt.errors import UserError
from hwopt.workload.transformer import total_parameters
from objectives.machine import MachineQuestion
from tests.rotation import rotated

LLAMA = {
    "model_type": "llama", "_name_or_path": "meta-llama/Llama-3.1-8B", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096,
    "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 131072, "tie_word_embeddings": False,
}  # fmt: skip
MAMBA = {"model_type": "mamba", "hidden_size": 2560, "num_hidden_layers": 64, "vocab_size": 50280}
TRANSFORMERS = ("catalogue", "toml", "config.json", "config.JSON", "folder", "toml on a config")
TABLES = ("catalogue table", "toml table", "config of a table")
WORKLOADS = (*TRANSFORMERS, *TABLES)
CHIPS = ("catalogue", "toml", "design")

REFUSED = {
    ("plan serve", TABLES): "it can be trained, but not served",
    ("estimate serve", TABLES): "it can be trained, but not served",
    ("optimize serve_cost", TABLES): "it can be trained, but not served",
    ("sources serve_cost", TABLES): "it can be trained, but not served",
    ("sources loss_under_budget", TABLES): "only a transformer's width and depth can be chosen",
    ("sources train_and_serve", TABLES): "it can be trained, but not served",
    ("portfolio", TABLES): "it can be trained, but not served",  # one of its members serves
    ("plan choices", WORKLOADS): "'workload' is not a setting of a cluster",
    ("estimate pretrained", TABLES): "holds for transformers on text",
}
"""Command and workloads that it refuses -> the reason in its message."""


class Reached(BaseException):
    """The solver was about to start."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("workloads")


@pytest.fixture(scope="module")
def workloads(folder):
    """Return the name of each workload, by source."""
    snapshot = folder / "Llama-3.1-8B"
    snapshot.mkdir()
    llama = json.dumps(LLAMA)
    files = {
        snapshot / "config.json": llama, folder / "config.json": llama, folder / "config.JSON": llama,
        folder / "mamba.json": json.dumps(MAMBA), folder / "mine.toml": 'base = "llama3.1-8b"',
        folder / "table.toml": 'base = "mamba-2.8b"', folder / "run.toml": 'base = "config.json"\nsequence_length = 4096',
    }  # fmt: skip
    for path, text in files.items():
        path.write_text(text)
    names = (
        "llama3.1-8b", folder / "mine.toml", folder / "config.json", folder / "config.JSON", snapshot, folder / "run.toml",
        "mamba-2.8b", folder / "table.toml", folder / "mamba.json",
    )  # fmt: skip
    return dict(zip(WORKLOADS, map(str, names), strict=True))


@pytest.fixture(scope="module")
def chips(folder):
    (folder / "chip.toml").write_text('base = "h100-sxm"')
    return {"catalogue": "h100-sxm", "toml": str(folder / "chip.toml"), "design": "h100-sxm"}


ASKED = {}
"""Formulated problems by question, each built once."""


@pytest.fixture
def stopped(monkeypatch):
    """Stop every solver before it starts."""
    stated, running = MachineQuestion.problem, []

    def problem(self):
        if self not in ASKED:
            ASKED[self] = stated(self)
        raise Reached

    def stop(solver):
        """Wrap a solver that must not start in this test; modules first imported now keep the wrapper."""

        def stopped_solver(*arguments, **settings):
            if running:
                raise Reached
            return solver(*arguments, **settings)

        return stopped_solver

    monkeypatch.setattr(MachineQuestion, "problem", problem)
    for module, name in (
        (hwopt.trace.cache, "evaluate_in_numpy"), (hwopt.planning.plan_search, "best_plan"), (hwopt.analysis.scaling, "scale"),
        (hwopt.analysis.fabrics, "fabrics"), (hwopt.analysis.fleet.data_parallel, "fleet"), (planning, "best_plan"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, stop(getattr(module, name)))
    running.append(True)
    yield
    running.clear()


def machine(kind, chip):
    """Flags of a question's chip."""
    return ["--design", chip] if kind == "design" else ["--chip", chip]


QUESTIONS = {
    "optimize": ["optimize", "train_cost"],
    "optimize serve_cost": ["optimize", "serve_cost"],
    "walls": ["walls", "train_cost"],
    "invest": ["invest", "train_cost"],
    "sensitivity": ["sensitivity", "train_cost"],
    "sweep": ["sweep", "train_cost", "--samples", "16"],
    "frontier": ["sweep", "train_cost", "--frontier", "power_budget_w=1e6:2e6:2", "--power-budget-w", "1e6"],
}
CLUSTERS = {
    "estimate": ["estimate", "--chips", "64", "--plan", "tp=1"],
    "estimate serve": ["estimate", "--chips", "8", "--mode", "serve", "--plan", "tp=8,batch=8"],
    "estimate pretrained": ["estimate", "--chips", "64", "--pretrained", "text"],
    "plan": ["plan", "--chips", "64"],
    "plan serve": ["plan", "--chips", "8", "--mode", "serve"],
    "plan choices": ["plan", "--chips", "64", "--choices", "workload=llama3.1-8b|llama3.1-70b"],
    "scale": ["scale", "--chips", "64:128"],
    "fabrics": ["fabrics", "--chips", "64"],
}


def expect(command, kind, arguments, capsys):
    """The command reaches its solver, answers, or refuses in one line as `REFUSED` says."""
    why = [words for (name, kinds), words in REFUSED.items() if name == command and kind in kinds]
    try:
        code = main(arguments)
    except Reached:
        assert not why, f"{command} of a {kind}: not refused"
        return
    out, err = capsys.readouterr()
    if why:
        assert code == 2 and why[0] in err and err.count("\n") == 1 and not out, err
    else:
        assert code == 0 and out and not err, err


CELLS = [(kind, "catalogue") for kind in WORKLOADS] + [
    (kind, chip) for kind in ("catalogue", "config.json", "config of a table") for chip in ("toml", "design")
]


@pytest.mark.parametrize(("kind", "chip"), rotated(starmap(pytest.param, CELLS), 4))
def test_a_question_takes_every_workload_on_every_chip(kind, chip, workloads, chips, stopped, capsys):
    asked = [*machine(chip, chips[chip]), "--workload", workloads[kind]]
    for command, words in QUESTIONS.items():
        expect(command, kind, [*words, *asked], capsys)
    expect("choices", kind, ["optimize", *asked[:2], "--choices", f"workload=gpt3-6.7b|{workloads[kind]}"], capsys)
    if chip != "design":
        expect("compare", kind, ["compare", "train_cost", "--chips", chips[chip], *asked[2:]], capsys)


@pytest.mark.parametrize(("kind", "chip"), rotated(starmap(pytest.param, CELLS), 4))
def test_sources_of_every_workload_on_every_chip(kind, chip, workloads, chips, capsys):
    for objective in ("train_cost", "loss_under_budget", "serve_cost", "train_and_serve"):
        arguments = ["sources", objective, *machine(chip, chips[chip]), "--workload", workloads[kind]]
        expect(f"sources {objective}", kind, arguments, capsys)


@pytest.mark.parametrize(("kind", "chip"), rotated([pytest.param(*each) for each in CELLS if each[1] != "design"], 4))
def test_a_cluster_takes_every_workload_on_every_chip(kind, chip, workloads, chips, folder, stopped, capsys):
    asked = ["--workload", workloads[kind]]
    for command, words in CLUSTERS.items():
        expect(command, kind, [*words, *asked, "--chip", chips[chip]], capsys)
    expect("fleet", kind, ["fleet", *asked, "--groups", f"{chips[chip]}:64,a100-80:64"], capsys)
    blueprint = folder / "blueprint.toml"
    blueprint.write_text(f'workload = "{workloads[kind]}"\nchip = "{chips[chip]}"\nchips = 64\ntime = "9 day"\n')
    expect("check", kind, ["check", str(blueprint)], capsys)


@pytest.mark.parametrize("kind", WORKLOADS)
def test_a_list_of_members_takes_every_workload(kind, workloads, folder, capsys):
    members, one = folder / "members.toml", f'workload = "{workloads[kind]}"\n'
    members.write_text(
        f'[members.train]\nquestion = "train_cost"\n{one}'
        f'[members.serve]\nquestion = "serve_cost"\nserved_tokens = 1e12\n{one}'
    )
    expect("portfolio", kind, ["sources", "portfolio", "--members", str(members)], capsys)


@pytest.mark.parametrize("kind", WORKLOADS)
def test_a_workload_is_listed_with_its_source(kind, workloads, capsys):
    assert main(["catalog", "workloads", workloads[kind]]) == 0
    out = capsys.readouterr().out
    assert ("'meta-llama/Llama-3.1-8B', ['LlamaForCausalLM'], 'llama', read from" in out) == (
        kind in ("config.json", "config.JSON", "folder", "toml on a config")
    )


def test_sources_name_the_file_and_the_repository_that_it_states(workloads, capsys):
    assert main(["sources", "train_cost", "--workload", workloads["config.json"]]) == 0
    said = f"'meta-llama/Llama-3.1-8B', ['LlamaForCausalLM'], 'llama', read from {workloads['config.json']}"
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("kind", WORKLOADS)
def test_rows_of_measured_runs_name_every_workload(kind, workloads, tmp_path):
    runs = tmp_path / "runs.csv"
    runs.write_text(
        "source,model_name,workload,gpu,num_gpus,tp,pp,global_batch_sequences,seq_len,measured_metric,measured_value\n"
        f"own,mine,{workloads[kind]},H100-SXM,64,1,1,64,4096,step_time,3\n"
    )
    (row,) = read(runs).rows
    own, named = shape(row, []), catalog.model_of("mamba-2.8b" if kind in TABLES else "llama3.1-8b")
    assert float(total_parameters(own)) == pytest.approx(float(total_parameters(named)), rel=1e-9)


def test_a_workload_column_that_names_no_file_is_one_line(tmp_path, capsys):
    runs = tmp_path / "runs.csv"
    runs.write_text(
        "model_name,workload,gpu,num_gpus,global_batch_sequences,seq_len,measured_metric,measured_value\n"
        "mine,none.json,H100-SXM,64,64,4096,step_time,3\n"
    )
    for command in ("validate", "calibrate"):
        assert main([command, str(runs)]) == 2
        assert "none.json" in (err := capsys.readouterr().err) and err.count("\n") == 1


def test_a_name_of_the_catalogue_is_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("llama3.1-8b", "mine"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(LLAMA | {"num_hidden_layers": 2}))
    layers = [float(catalog.transformer(name).layers) for name in ("llama3.1-8b", "llama3.1-8b/", "mine", Path("mine"))]
    assert layers == [32, 2, 2, 2]
    with pytest.raises(UserError, match=r"cannot read empty/config\.json"):
        (tmp_path / "empty").mkdir()
        catalog.transformer("empty")


GLM = {
    "model_type": "glm_moe_dsa", "hidden_size": 6144, "intermediate_size": 12288, "num_hidden_layers": 78,
    "num_attention_heads": 64, "num_key_value_heads": 64, "q_lora_rank": 2048, "kv_lora_rank": 512, "qk_nope_head_dim": 192,
    "qk_rope_head_dim": 64, "v_head_dim": 256, "vocab_size": 154880, "first_k_dense_replace": 3, "n_routed_experts": 256,
    "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "index_topk": 2048, "index_n_heads": 32,
    "index_head_dim": 128, "num_nextn_predict_layers": 1, "tie_word_embeddings": False,
}  # fmt: skip
"""Of zai-org/GLM-5.1."""


@pytest.fixture
def ahead(glm):
    (said,) = catalog.approximations(glm)
    assert re.fullmatch(
        r"ignores multi-token prediction, num_nextn_predict_layers 1, about (9\.9|10) B parameters", said
    )
    return said


@pytest.fixture
def glm(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(GLM))
    return str(path)


def test_an_entry_and_its_config_give_one_answer_with_one_mark(glm, ahead, capsys):
    answers = {}
    for name in ("glm-5", glm):
        sizes = ["--seq-len", "4096", "--global-batch", "1024", "--tokens", "1e13", "--plan", "tp=8,ep=8,zero=3"]
        assert main(["estimate", "--workload", name, "--chip", "b200", "--chips", "2048", *sizes, "--json"]) in (0, 1)
        answers[name] = json.loads(capsys.readouterr().out)
    entry, own = answers.values()
    assert (
        entry["step_time_s"] == pytest.approx(own["step_time_s"], rel=1e-12)
        and entry["parameters"] == own["parameters"]
    )
    assert (entry["approximations"], own["approximations"]) == ([], [ahead])


def test_what_an_estimate_leaves_out_stands_in_every_question(tmp_path, capsys):
    path = tmp_path / "config.json"
    plain = {key: value for key, value in GLM.items() if not key.startswith("index")} | {"model_type": "deepseek_v3"}
    path.write_text(json.dumps(plain))
    (ahead,) = catalog.approximations(path)
    said = catalog.named(path)
    assert said == f"{path} ({ahead})"
    for arguments in (["train_cost"], ["serve_cost"], ["train_and_serve"], ["loss_under_budget"]):
        assert main(["sources", *arguments, "--workload", str(path)]) == 0
        assert said in capsys.readouterr().out
    members = tmp_path / "members.toml"
    members.write_text(f'[members.one]\nquestion = "train_cost"\nworkload = "{path}"\n')
    assert main(["sources", "portfolio", "--members", str(members)]) == 0
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("module", "solver", "arguments"),
    [
        (hwopt.planning.plan_search, "best_plan", ["plan", "--chip", "h100-sxm", "--chips", "64"]),
        (hwopt.analysis.scaling, "scale", ["scale", "--chip", "h100-sxm", "--chips", "64:128"]),
        (hwopt.analysis.fabrics, "fabrics", ["fabrics", "--chip", "h100-sxm", "--chips", "64"]),
        (hwopt.analysis.fleet.data_parallel, "fleet", ["fleet", "--groups", "h100-sxm:64,a100-80:64"]),
    ],
)
def test_titles_of_clusters_say_it_too(module, solver, arguments, monkeypatch):
    def stop(name):
        raise Reached(name)

    monkeypatch.setattr(module, solver, lambda *given, **settings: MagicMock())
    monkeypatch.setattr("hwopt.cli.commands.fleet.interval", lambda works, study: None)
    monkeypatch.setattr(catalog, "named", stop)
    with pytest.raises(Reached, match="glm-5"):
        main([*arguments, "--workload", "glm-5"])


def test_a_comparison_and_a_check_say_it_too(glm, ahead):
    assert Provenance({"workload": catalog.record("workloads", glm)}).approximations == [ahead]
    run, words = workload_of(blueprint_of({"workload": glm, "chip": "h100-sxm", "chips": "64", "time": "9d"}))
    assert run is not None and words == f"{float(run.tokens):.4g} tokens, 20 per parameter; {ahead}"
