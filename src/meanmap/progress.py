"""Progress bars, shown to those who ask for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def progress_bar(
    total: int | None, what: str, shown: bool | None, unit: str = "tile"
) -> Iterator[Callable[[int], Any]]:
    """A function to call when so many steps are done; a bar on standard error if it is shown.

    None shows it on a terminal, and only for work that takes longer than two seconds.
    """
    if shown is False:
        yield lambda steps: None
        return
    from tqdm.auto import tqdm

    hidden = None if shown is None else False
    delay = 2 if shown is None else 0
    with tqdm(total=total, desc=what, unit=unit, leave=False, disable=hidden, delay=delay) as bar:
        yield bar.update
