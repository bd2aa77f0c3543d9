"""Git repositories of tests, of which the settings of this machine change nothing."""

import os
import subprocess
from pathlib import Path

COMMITTED_S = 1_782_300_000  # time of commits, Unix time
SETTINGS = ("user.name=A", "user.email=a@example.org", "commit.gpgsign=false", "tag.gpgsign=false")


def git(folder: Path, *arguments: str) -> str:
    """The output of a command."""
    options = [word for each in SETTINGS for word in ("-c", each)]
    done = subprocess.run(
        ["git", *options, "-C", str(folder), *arguments],
        env=os.environ | {"GIT_COMMITTER_DATE": f"{COMMITTED_S} +0000"},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def make_repository(folder: Path, tag: str) -> None:
    """Make a folder a repository: one commit of all its files, with an annotated tag."""
    git(folder, "init", "--quiet")
    git(folder, "add", "--all", "--force")
    git(folder, "commit", "--quiet", "--message", tag)
    git(folder, "tag", "--annotate", "--message", tag, tag)
