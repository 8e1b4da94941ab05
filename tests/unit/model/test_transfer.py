"""Transfer: the law's own extrapolations, its limits, and the screen."""

import json

import jax
import jax.numpy as jnp
import pytest

from hwopt import catalog
from hwopt.cli import main
from hwopt.model.training import learning
from hwopt.model.training.transfer_learning import SATURATED, saturating_tokens, transferred, transferred_tokens
from tests.schemas import check

GPT3 = 1.75e11


@pytest.mark.parametrize(("name", "characters", "again"), [("text", 3.7e8, 2.8), ("text-and-code", 4.1e9, 1.7)])
def test_what_the_paper_extrapolates_to(name, characters, again):
    """Section 6.2: a model of the size of GPT-3 and one character of Python, and 300."""
    law = catalog.transfer(name)
    one = float(transferred_tokens(law, GPT3, 1.0 / law.characters_per_token) * law.characters_per_token)
    many = float(transferred_tokens(law, GPT3, 300.0 / law.characters_per_token) * law.characters_per_token)
    assert one == pytest.approx(characters, rel=0.06) and many / one == pytest.approx(again, rel=0.02)


def test_ten_times_the_model_is_worth_about_a_hundred_times_the_data():
    law = catalog.transfer("text")
    larger, more = transferred_tokens(law, 1e9, 1e6), transferred_tokens(law, 1e8, 1e8)
    assert float(larger / more) == pytest.approx(10**0.02, rel=1e-4)


def test_a_model_has_enough_where_more_data_gives_a_hundredth():
    law = catalog.loss_law()
    enough = saturating_tokens(law, 7e10)
    floor = float(learning.loss_floor(law, 7e10))
    assert floor == pytest.approx(SATURATED * float(learning.loss(law, 7e10, enough)), rel=1e-5)


def test_a_run_counts_its_different_tokens_and_slopes_are_the_exponents():
    law = catalog.transfer("text")
    twice = catalog.training_run("llama3.1-8b", tokens=2e9, unique_tokens=1e9)
    once = catalog.training_run("llama3.1-8b", tokens=1e9)
    assert float(transferred(twice, law).tokens) == float(transferred(once, law).tokens) == 1e9
    worth = transferred(once, law)
    assert float(worth.multiplier) == pytest.approx(1.0 + float(worth.transferred_tokens) / 1e9)
    slope = jax.grad(lambda tokens: jnp.log(transferred_tokens(law, 8e9, tokens)))(1e9) * 1e9
    assert float(slope) == pytest.approx(0.18, rel=1e-4)


def test_the_screen_says_how_far_the_law_holds(capsys):
    work = ["estimate", "--workload", "llama3.1-8b", "--chip", "h100-sxm", "--chips", "8"]
    asked = [*work, "--plan", "tp=8", "--pretrained", "text"]
    assert main([*asked, "--tokens", "1e9"]) == 0
    assert "larger ones are extrapolated" in " ".join(capsys.readouterr().out.split())
    assert main([*asked, "--tokens", "15e12", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    check("estimate", answer)
    assert answer["transfer"]["tokens"] == 15e12 > answer["transfer"]["low_data_tokens"]
    assert main([*asked, "--tokens", "15e12"]) == 0
    assert "Not reliable" in capsys.readouterr().out


@pytest.mark.parametrize(("arguments", "words"), [
    (["--workload", "llama3.1-8b", "--pretrained", "texts"], "did you mean 'text'"),
    (["--workload", "resnet-50", "--pretrained", "text"], "this workload is a table of operators"),
    (["--workload", "llama3.1-8b", "--mode", "serve", "--pretrained", "text"], "--pretrained"),
])  # fmt: skip
def test_bad_input_is_refused(arguments, words, capsys):
    assert main(["estimate", "--chip", "h100-sxm", "--chips", "8", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == "" and words in said.err
