"""Users of the processes that listen on ports of this machine.

A process of another user could listen on the port of a store that is starting, get its password
from a client and answer in its place.
"""

import os
from pathlib import Path

PROC_NET = Path("/proc/net")
LISTENING = "0A"  # state in /proc/net/tcp
ROOT_USER = 0


def is_of_another_user(port: int, folder: Path = PROC_NET) -> bool:
    """Whether a process of a user other than this one and root listens on a TCP port. False if the
    system does not tell, which only Linux does."""
    allowed = (ROOT_USER, os.geteuid())
    for name in ("tcp", "tcp6"):
        try:
            lines = (folder / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for _, local, _, state, _, _, _, user, *_ in map(str.split, lines):
            listens = state == LISTENING and int(local.rpartition(":")[2], 16) == port
            if listens and int(user) not in allowed:
                return True
    return False
