"""The documentation pages, and the commands in them."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from services.runtime.settings import ROOT

PAGES = [ROOT / "README.md", ROOT / "deploy" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Their commands depend on each other, so separate tests run these pages block by block.
ONE_BY_ONE = ("write-a-domain.md", "watch-your-pipeline.md", "export-a-watch.md")


def blocks(page: Path, language: str) -> list[str]:
    """Fenced blocks of a language, including indented ones in lists."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```", page.read_text(), re.M | re.S)
    return [re.sub(rf"^{indent}", "", text, flags=re.M) for indent, text in found]


def commands(page: Path) -> Iterator[str]:
    """Command lines of the page: in blocks, in indented text, and complete ones in sentences."""
    for block in blocks(page, "sh"):
        yield from (line for line in block.splitlines() if line.strip())
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.M | re.S)
    yield from re.findall(r"^    ((?:\./tidegauge|curl) .*)$", text, re.M)
    yield from re.findall(r"`((?:[A-Z_]+=\S+ )*\./tidegauge [^`]+)`", text)


COMMANDS = [
    (page.name, line)
    for page in PAGES
    if page.name not in ONE_BY_ONE
    for line in dict.fromkeys(commands(page))
]


def words_of(line: str) -> list[str]:
    """The words of a command without its leading variables, comment and redirection."""
    line = re.sub(r'^eval "\$\((.*)\)"$', r"\1", line).partition(" > ")[0]
    words = shlex.split(line, comments=True)
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words.pop(0)
    return words


def replaced(text: str, name: str, content: str) -> str:
    """A page's text with the content between `<!-- NAME -->` and `<!-- /NAME -->` replaced. Raises
    ValueError if these markers are missing."""
    before, begin, rest = text.partition(f"<!-- {name} -->\n")
    _old, end, after = rest.partition(f"<!-- /{name} -->")
    if not begin or not end:
        raise ValueError(f"the page has no marks <!-- {name} --> and <!-- /{name} -->")
    return f"{before}{begin}{content}\n{end}{after}"
