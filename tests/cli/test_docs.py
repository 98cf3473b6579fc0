"""The page on the command line shows what the commands print."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "command_line.md"
BLOCKS = re.findall(r"```console\n\$ (meanmap [^\n]*)\n(.*?)```", PAGE.read_text("utf-8"), re.S)


def words(text: str) -> list[str]:
    """A text without its numbers, which may differ in the last digit from machine to machine."""
    return re.sub(r"[-+]?\d[\d.,e+-]*", "#", text).split()


@pytest.mark.parametrize(("command", "shown"), BLOCKS, ids=[block[0] for block in BLOCKS])
def test_the_page_shows_what_is_printed(
    command: str, shown: str, run: Callable[..., Any], here: Path
) -> None:
    command, _, file = command.partition(" > ")
    done = run(*shlex.split(command)[1:])
    shown, _, code = shown.partition("$ echo $?")
    assert done.code == int(code or 0)
    if file:
        return
    shown, cut, _ = shown.partition("…\n")
    found, expected = words(done.err + done.out), words(shown)
    assert (found[: len(expected)] if cut else found) == expected


def test_there_are_examples() -> None:
    assert len(BLOCKS) >= 10
