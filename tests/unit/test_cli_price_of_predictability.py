"""`hwopt fabrics` as scripts and readers see it."""

import json

import pytest

from hwopt.cli import main

RUN = [
    "fabrics",
    "--workload",
    "gpt3-6.7b",
    "--chip",
    "h100-sxm",
    "--chips",
    "256",
    "--global-batch",
    "1024",
    "--plan",
    "tp=2,pp=4",
]


def said(capsys, *arguments):
    code = main([*RUN, *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_json_has_every_fabric_at_every_level(capsys):
    code, out, err = said(
        capsys, "--fabrics", "ndr-fat-tree,ndr-rail", "--spread", "0.35", "--tail-s", "3e-5", "--json"
    )
    document = json.loads(out)
    assert code == 0 and err == "" and document["feasible"] and "one stated plan" in document["rule"]
    assert [each["name"] for each in document["machines"]] == ["ndr-fat-tree", "ndr-rail"]
    assert document["levels"][2] == {"name": "least even", "spread": 0.35, "tail_s": 3e-5}
    for each in document["machines"]:
        even, usual, worst = each["levels"]
        assert even["run_cost_usd"] < usual["run_cost_usd"] < worst["run_cost_usd"]
        low, high = each["step_time_interval_s"]
        assert low < usual["step_time_s"] < high and even["worth_usd_per_chip"] == 0.0 < worst["worth_usd_per_chip"]
    cheapest = min(document["machines"], key=lambda each: each["levels"][1]["run_cost_usd"])["name"]
    assert document["cheapest"]["in production"] == cheapest and document["headline"].startswith(cheapest)


def test_screen_page_and_figure_say_the_same(capsys, tmp_path):
    page, figure = tmp_path / "fabrics.html", tmp_path / "fabrics.png"
    code, out, err = said(capsys, "--racks", "8,16,64", "--report", str(page), "--figure", str(figure))
    assert code == 0 and err == "" and figure.stat().st_size > 10_000
    text = page.read_text(encoding="utf-8")
    for words in (
        "racks of 8",
        "racks of 16",
        "more power than it can feed or cool",
        "hwopt fabrics --workload gpt3-6.7b",
    ):
        assert words in text
    assert "racks of 64" in out.split("Machines that do not fit")[1]
    assert max(map(len, out.splitlines())) <= 160


def test_where_nothing_trains_the_code_is_1(capsys):
    code, out, _ = said(capsys, "--racks", "64")
    assert code == 1 and "No machine fits this run." in out
    code, out, _ = said(capsys, "--racks", "64", "--json")
    assert code == 1 and json.loads(out)["cheapest"] is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--fabrics", "ndr-fat-tre"], "did you mean 'ndr-fat-tree'"),
        (["--fabrics", "ndr-rail", "--racks", "8"], "keep one"),
        (["--fabric", "ndr-rail"], "write --fabrics ndr-rail"),
        (["--racks", "8,0"], "must be a positive"),
        (["--racks", "8", "--rack-chips", "8"], "--rack-chips"),
        (["--racks", "8", "--figure", "/nowhere/x.png"], "there is no folder"),
    ],
)
def test_bad_input_is_one_line_and_code_2(arguments, words, capsys):
    code, out, err = said(capsys, *arguments)
    assert code == 2 and out == "" and words in err and err.count("\n") == 1
