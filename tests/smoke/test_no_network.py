"""No command opens a connection: processes whose sockets are blocked answer as ever."""

from __future__ import annotations

import subprocess
import sys

import pytest

BLOCKED = """
import socket, sys

def refuse(*arguments, **keywords):
    raise SystemExit("a connection was opened")

class Blocked(socket.socket):
    connect = connect_ex = bind = sendto = refuse

socket.socket, socket.create_connection, socket.getaddrinfo = Blocked, refuse, refuse
from hwopt.cli import main
sys.exit(main(sys.argv[1:]))
"""

SMALL = "--workload llama3.1-8b --chip h100-sxm --chips 8"
COMMANDS = (
    "catalog chips",
    "sources",
    f"estimate {SMALL} --plan tp=2,dp=4",
    f"plan {SMALL} --export megatron",
    "schema plan",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_answers_without_a_network(command):
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, *command.split()], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout and not done.stderr


def test_the_block_holds():
    code = BLOCKED.replace("from hwopt.cli import main", "socket.create_connection(('127.0.0.1', 1))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "a connection was opened" in done.stderr
