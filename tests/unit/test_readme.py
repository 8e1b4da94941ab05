"""The README's example runs and prints what the README says; its commands are there to be extracted."""

import contextlib
import io
import re
from pathlib import Path

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_example_prints_its_output():
    (code,), (expected,) = blocks("python"), blocks("text")
    assert sum(1 for line in code.splitlines() if line.strip()) <= 12
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})
    assert printed.getvalue() == expected


def test_two_commands_make_their_own_environment():
    commands = blocks("bash")
    assert len(commands) == 2
    assert all(command.startswith("python3 -m venv .venv && ") and command.count("\n") == 1 for command in commands)
    assert "hwopt optimize" in commands[0] and "pytest" in commands[1]


def test_length_and_links():
    assert 90 <= len(README.splitlines()) <= 120
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (Path(__file__).parents[2] / target).exists(), target
