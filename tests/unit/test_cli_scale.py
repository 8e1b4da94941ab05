"""`hwopt scale` as scripts and readers see it."""

import json

import pytest

from hwopt.cli import main
from hwopt.cli.value_types import sizes
from hwopt.errors import UserError

RUN = ["scale", "--workload", "llama3.1-8b", "--chip", "h100-sxm", "--global-batch", "48"]
HELD = ["--hold", "weights_offloaded=0,optimizer_offloaded=0,activations_offloaded=0"]


def said(capsys, *arguments):
    code = main([*RUN, *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Screen, page and figure of one answer."""
    return tmp_path_factory.mktemp("scale")


def test_json_has_every_size_and_says_where_it_stops_paying(capsys):
    code, out, err = said(capsys, "--chips", "1:16", *HELD, "--most-dearer", "0", "--json")
    document = json.loads(out)
    assert code == 0 and err == ""
    assert [each["chips"] for each in document["sizes"]] == document["chips"] == [1, 2, 4, 8, 16]
    assert document["scaling"] == "strong" and "48 sequences per step" in document["rule"]
    trained = [each for each in document["sizes"] if each["feasible"]]
    assert len(document["growths"]) == len(trained) - 1 and trained[0]["speedup"] == trained[0]["efficiency"] == 1.0
    for each in trained:
        low, high = each["step_time_interval_s"]
        assert low < each["step_time_s"] < high and each["certificate"]["gap"] == 0.0 and each["reason"] is None
        assert sum(each["breakdown"].values()) == pytest.approx(each["step_time_s"])
    for each in document["sizes"]:
        assert each["feasible"] or (each["reason"] and each["run_time_s"] is None and each["plan"] is None)
    for each in document["growths"]:
        assert each["pays"] == (each["saved_by_a_doubling"] >= 0.25 and each["dearer_by_a_doubling"] <= 0.0)
    first = next((each for each in document["growths"] if not each["pays"]), None)
    assert document["knee"] == first
    assert document["cheapest"] == min(trained, key=lambda each: each["run_cost_usd"])["chips"]
    assert document["soonest"] == min(trained, key=lambda each: each["run_time_s"])["chips"]


def test_screen_page_and_figure_say_the_same(capsys, written):
    page, figure = written / "scale.html", written / "scale.png"
    code, out, err = said(capsys, "--chips", "8,16,48", *HELD, "--weak", "--report", str(page), "--figure", str(figure))
    assert code == 0 and err == ""
    headline = next(line for line in out.splitlines() if line.startswith("Adding chips"))
    text = page.read_text(encoding="utf-8")
    assert headline in text and "hwopt scale --workload llama3.1-8b" in text and "Sources behind these numbers" in text
    assert "6 sequences per chip at every size" in out and "6 sequences per chip at every size" in text
    assert figure.stat().st_size > 20_000
    assert max(map(len, out.splitlines())) <= 150


def test_where_nothing_trains_the_code_is_1_and_pages_say_why(capsys, written):
    page = written / "none.html"
    code, out, _ = said(capsys, "--chips", "1,53", *HELD, "--report", str(page))
    assert code == 1 and "No size has an answer." in out and "more memory than a chip has" in out
    assert "no plan divides 53 chips" in out and "no plan divides 53 chips" in page.read_text(encoding="utf-8")
    code, out, _ = said(capsys, "--chips", "1,53", *HELD, "--json")
    assert code == 1 and not json.loads(out)["feasible"] and json.loads(out)["knee"] is None


@pytest.mark.parametrize(
    ("text", "read"),
    [("256:1024", [256, 512, 1024]), ("3:24", [3, 6, 12, 24]), ("8:8", [8]), ("512,256,3072", [256, 512, 3072])],
)
def test_sizes_are_read(text, read):
    assert sizes("--chips", text) == read


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1024:256", "reversed; write 256:1024"),
        ("256:3000", "doubling 256 gives 2048 and 4096, not 3000"),
        ("1:2:3", "write low:high"),
        ("a:8", "not a number"),
        ("8,8", "is given twice"),
        ("8,,16", "an item before or after ',' is empty"),
        ("8.5:17", "must be an integer"),
        ("-8:8", "must be a positive"),
    ],
)
def test_what_is_no_size_is_refused(text, words):
    with pytest.raises(UserError, match=words):
        sizes("--chips", text)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--chips", "64"], "hwopt plan answers for one"),
        (["--chips", "8:16", "--figure", "/nowhere/x.png"], "there is no folder"),
        (["--chips", "8:16", "--least-saving", "0.7"], "half of the time at most"),
        (["--chips", "8:16", "--mode", "serve"], "a flag of estimate and plan, not of scale"),
        (["--chips", "8:16", "--plan", "tp=7"], "tp=7: no plan of this cluster has it"),
        (["--chips", "8:16", "--precision", "fp3"], "fp3"),
    ],
)
def test_bad_input_is_one_line_and_code_2(arguments, words, capsys):
    code, out, err = said(capsys, *arguments)
    assert code == 2 and out == "" and words in err and err.count("\n") == 1


def test_images_are_counted_as_images_and_their_intervals_are_those_of_models_nobody_measured(capsys):
    code = main(["scale", "--workload", "vit-b-16", "--chip", "h100-sxm", "--chips", "8:16", "--json"])
    first = json.loads(capsys.readouterr().out)["sizes"][0]
    assert main(["scale", "--workload", "vit-b-16", "--chip", "h100-sxm", "--chips", "8:16"]) == code == 0
    out = capsys.readouterr().out
    assert "$/Mimage" in out and "$/Mtoken" not in out and "80 % interval" in out
    row = next(line for line in out.splitlines() if line.split()[:1] == ["8"])
    assert f"{1e6 * 197.0 * first['cost_per_token_usd']:.4g}" in row
    low, high = first["step_time_interval_s"]
    assert low < 0.6 * first["step_time_s"] and high > 1.6 * first["step_time_s"]
