"""Commands of hwopt in a test's own process."""

import json

from hwopt.cli import main


def run(capsys, *arguments):
    """Run a command, and return its exit code, standard output and standard error."""
    code = main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def run_json(capsys, *arguments):
    """Run a command that must succeed, and return its JSON."""
    code, out, err = run(capsys, *arguments, "--json")
    assert code == 0, err
    return json.loads(out)
