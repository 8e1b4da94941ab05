"""What shells complete: the files are read by the shells that are there, and each of these is asked for words."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from hwopt.cli import main, question
from hwopt.cli.flags import Flag
from hwopt.cli.parser import COMMANDS
from hwopt.cli.value_types import TEXT
from hwopt.registry import names


def printed(shell, capsys):
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_and_flag_stands_in_the_file_and_the_shell_reads_it(shell, capsys, tmp_path):
    text = printed(shell, capsys)
    for name, command in COMMANDS.items():
        assert name in text
        for spelling in command.spellings:
            assert not spelling.startswith("--") or (spelling[2:] if shell == "fish" else spelling) in text
    assert all(name in text for name in names()) and "power-budget-w" in text
    if (program := shutil.which(shell)) is not None:
        (tmp_path / "file").write_text(text)
        done = subprocess.run([program, "-n", str(tmp_path / "file")], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and not done.stderr, done.stderr


def completed(text, *words):
    """What bash offers for the last of some words."""
    places = " ".join(f"'{word}'" for word in words)
    script = f"{text}\nCOMP_WORDS=(hwopt {places}); COMP_CWORD={len(words)}; _shtab_hwopt; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout.split()


def test_bash_completes_commands_flags_and_questions(capsys):
    text = printed("bash", capsys)
    assert completed(text, "opt") == ["optimize"]
    assert completed(text, "optimize", "--power-b") == ["--power-budget-w"]
    assert completed(text, "optimize", "train_t") == ["train_time"]
    assert completed(text, "estimate", "--chi") == ["--chip", "--chips"]
    assert "--power-budget-w" not in completed(text, "estimate", "--p")


def shell_or_skip(shell):
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell}")
    return program


def said(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout.splitlines()


def test_fish_completes_commands_flags_and_questions(capsys, tmp_path, monkeypatch):
    program = shell_or_skip("fish")
    monkeypatch.setenv("HOME", str(tmp_path))  # where fish writes its history
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text(printed("fish", capsys))
    offered = lambda line: said(program, "--no-config", "-c", f"source file; complete -C '{line}'")
    assert offered("hwopt opt")[0].split("\t") == ["optimize", COMMANDS["optimize"].summary]
    assert [each.split("\t")[0] for each in offered("hwopt optimize --power-b")] == ["--power-budget-w"]
    assert [each.split("\t")[0] for each in offered("hwopt optimize train_t")] == ["train_time"]
    assert [each.split("\t")[0] for each in offered("hwopt estimate --chi")] == ["--chip", "--chips"]
    assert not [each for each in offered("hwopt estimate --p") if each.startswith("--power-budget")]


def test_zsh_completes_commands_flags_and_questions(capsys, tmp_path):
    """zsh finds the file in its path; what it hands to its own list, the list being ours here: no terminal is needed."""
    program = shell_or_skip("zsh")
    (tmp_path / "_hwopt").write_text(printed("zsh", capsys))
    found = said(
        program, "-f", "-c", f"fpath=({tmp_path} $fpath); autoload -Uz compinit; compinit -u -D; print $_comps[hwopt]"
    )
    assert found == ["_hwopt"]

    def offered(*words):
        # The first call is for the command, which `_arguments` would set as it does here; the second for its flags.
        listed = """_describe() { print -rl -- ${(P)2} }; compdef() { }
            _arguments() {
                if [[ -z $state ]]; then _shtab_hwopt_commands; state=hwopt; line=($words[2])
                else print -rl -- "$@"; fi
            }"""
        line = " ".join(f"'{word}'" for word in ("hwopt", *words))
        text = f"{listed}; words=({line}); CURRENT={len(words) + 1}; source {tmp_path}/_hwopt"
        lines = said(program, "-f", "-c", text)
        known = [re.match(r"(?:\([^)]*\))?([\w-]*)", each).group(1) for each in lines]
        return known + [
            word for each in lines for words in re.findall(r":\(([^()]*)\)$", each) for word in words.split()
        ]

    assert set(COMMANDS) <= set(offered("opt")) and not [each for each in offered("opt") if each.startswith("--")]
    assert {"--power-budget-w", "--regime", "train_time"} <= set(offered("optimize", "--power-b"))
    assert {"--chip", "--chips"} <= set(offered("estimate", "--chi")) and "--power-budget-w" not in offered(
        "estimate", ""
    )
    assert {"bash", "zsh", "fish"} <= set(offered("completion", ""))


@pytest.mark.parametrize(("shell", "flags"), [("bash", ()), ("zsh", ("-f",)), ("fish", ("--no-config",))])
def test_meanings_of_other_packages_are_not_executed(shell, flags, capsys, tmp_path, monkeypatch):
    program, own = shell_or_skip(shell), question.field_flags
    hostile = (
        "\\'; touch pwned; #",
        "$(touch pwned)`touch pwned`",
        "'; touch pwned; '",
        '"; touch pwned; "',
        "\ntouch pwned\n",
    )
    added = [Flag(f"--hostile{number}", text, TEXT) for number, text in enumerate(hostile)]
    monkeypatch.setattr(question, "field_flags", lambda kind: [*own(kind), *added])
    (tmp_path / "file").write_text(printed(shell, capsys))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    offer = {"fish": "complete -C 'hwopt optimize --hostile'"}.get(shell, "_shtab_hwopt || true")
    ready = {
        "zsh": "compdef() { }; _arguments() { }; words=(hwopt); ",
        "bash": "COMP_WORDS=(hwopt optimize --h); COMP_CWORD=2; ",
    }
    said(program, *flags, "-c", f"{ready.get(shell, '')}source ./file; {offer}")
    assert "hostile4" in (tmp_path / "file").read_text()
    assert not (tmp_path / "pwned").exists()


def test_other_shells_are_refused_with_those_there_are(capsys):
    assert main(["completion", "powershell"]) == 2
    assert "bash" in capsys.readouterr().err
