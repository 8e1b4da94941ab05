"""No command opens a connection: processes whose sockets are blocked answer as ever."""

from __future__ import annotations

import subprocess
import sys

BLOCKED = """
import socket, sys

def refuse(*arguments, **keywords):
    raise SystemExit("a connection was opened")

class Blocked(socket.socket):
    connect = connect_ex = bind = sendto = refuse

socket.socket, socket.create_connection, socket.getaddrinfo = Blocked, refuse, refuse
from hwopt.cli import main
for line in sys.argv[1:]:
    print(f"$ {line}: {main(line.split())}", flush=True)
"""

SMALL = "--workload llama3.1-8b --chip h100-sxm --chips 8"
COMMANDS = (
    "catalog chips",
    "sources",
    f"estimate {SMALL} --plan tp=2,dp=4",
    f"plan {SMALL} --export megatron",
    "schema plan",
)


def test_commands_answer_without_a_network():
    """One after the other in one process: each prints, and ends with 0."""
    done = subprocess.run([sys.executable, "-c", BLOCKED, *COMMANDS], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and not done.stderr, done.stderr
    answer = done.stdout
    for line in COMMANDS:
        said, found, answer = answer.partition(f"$ {line}: 0\n")
        assert said and found, line


def test_the_block_holds():
    code = BLOCKED.replace("from hwopt.cli import main", "socket.create_connection(('127.0.0.1', 1))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "a connection was opened" in done.stderr
