"""`hwopt validate` and `hwopt calibrate` refuse bad files with exit code 2 and one line."""

from __future__ import annotations

import io
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from hwopt.cli.app import main

RUNS = Path(str(files("hwopt") / "data" / "runs"))


@pytest.mark.parametrize("command", ["validate", "calibrate"])
@pytest.mark.parametrize(
    "content",
    [b"\x89PNG\r\n\x1a\n\x00\x00", b'\x1f\x8b\x08\xff"\r\xfe,\r"\xe9\n', bytes(range(128, 256)) * 50, b"a" * 200_000],
)
def test_what_is_no_table(command, content, tmp_path, capsys):
    path = tmp_path / "runs.csv"
    path.write_bytes(content)
    assert main([command, str(path)]) == 2
    error = capsys.readouterr().err.strip()
    assert str(path) in error and "\n" not in error


@pytest.mark.parametrize("out", ["", " ", "nowhere/mine.toml", "."])
def test_a_calibration_that_could_not_be_written_is_not_begun(out, monkeypatch, capsys):
    monkeypatch.setattr("hwopt.calibration.fit.observations.score", lambda *given, **named: pytest.fail("it began"))
    assert main(["calibrate", str(RUNS / "train.csv"), "--out", out]) == 2
    error = capsys.readouterr().err.strip()
    assert any(words in error for words in ("cannot write", "named by its path", "is empty")) and "\n" not in error


def test_services_are_not_fitted(capsys, tmp_path):
    path = tmp_path / "services.csv"
    path.write_text(
        "model_name,gpu,num_gpus,tp,batch,input_tokens,output_tokens,metric,value\n"
        "llama2-7b,H100-SXM-80GB,1,1,8,128,32,ttft_ms,30\n"
    )
    assert main(["calibrate", str(path)]) == 2
    assert "is a table of services" in capsys.readouterr().err


def test_bars_run_on_a_terminal_alone(tmp_path, monkeypatch, capsys):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    head, *rows = (RUNS / "train.csv").read_text(encoding="utf-8").splitlines()
    path = tmp_path / "runs.csv"
    path.write_text("\n".join([head, *rows[:3]]), encoding="utf-8")
    shown = {}
    for name, error, flags in (
        ("screen", Terminal(), []),
        ("json", Terminal(), ["--json"]),
        ("piped", io.StringIO(), []),
    ):
        monkeypatch.setattr(sys, "stderr", error)
        assert main(["validate", str(path), *flags]) == 0
        shown[name] = error.getvalue()
    assert "runs:" in shown["screen"] and shown["json"] == shown["piped"] == ""
    assert "rows: " in capsys.readouterr().out
