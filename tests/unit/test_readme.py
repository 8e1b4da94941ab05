"""The README's example runs and prints what the README says; its commands are there to be extracted."""

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def printed_by(code: str) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})
    return printed.getvalue()


@pytest.mark.slow
def test_example_prints_its_output():
    (code,), (expected,) = blocks("python"), blocks("text")
    assert printed_by(code) == expected


def test_example_is_short_and_prints_its_estimate():
    """Its first half, without the slopes."""
    (code,), (expected,) = blocks("python"), blocks("text")
    assert sum(1 for line in code.splitlines() if line.strip()) <= 12
    assert printed_by(code.partition("\nslope = ")[0]) == expected.splitlines(keepends=True)[0]


def test_two_commands_make_their_own_environment():
    commands = blocks("bash")
    assert len(commands) == 2
    assert all(command.startswith("python3 -m venv .venv && ") and command.count("\n") == 1 for command in commands)
    assert "hwopt optimize" in commands[0] and "pytest" in commands[1]


def test_the_answer_that_is_shown_is_the_guide_s():
    """Its lines stand in the guide's page, which is written by the command."""
    (shown,) = blocks("console")
    page = (ROOT / "notebooks/guide/pages/commands/optimize.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in shown.splitlines() if line not in page] == []
    assert len(shown.splitlines()) >= 5


def test_links_lead_somewhere():
    """No limit of lines: what a reader finds elsewhere is linked, not repeated."""
    targets = re.findall(r"\]\(([^)#]+)\)", README)
    assert len(targets) > 20
    for target in targets:
        assert (ROOT / target).exists(), target
