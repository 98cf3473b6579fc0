"""Names and arguments on their way out: they go on working for a while, and say what to use."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

Named = TypeVar("Named", bound=Callable[..., Any])


def deprecated(instead: str, *, since: str, until: str) -> Callable[[Named], Named]:
    """Marks a function, a method or a class that will be removed.

    It works as before and warns when it is called. The warning is a `FutureWarning`, which Python
    shows to everybody.

    Parameters
    ----------
    instead : what to use, in words
    since, until : the version that deprecated it, and the one that removes it

    Examples
    --------
    >>> import warnings
    >>> from meanmap.deprecation import deprecated
    >>> @deprecated("use `total`", since="1.2", until="1.4")
    ... def summed(values):
    ...     return sum(values)
    >>> with warnings.catch_warnings(record=True) as seen:
    ...     warnings.simplefilter("always")
    ...     summed([1, 2])
    3
    >>> print(seen[0].message)
    summed is deprecated since 1.2 and will be removed in 1.4: use `total`.
    """

    def mark(what: Named) -> Named:
        when = f"is deprecated since {since} and will be removed in {until}"
        text = f"{what.__name__} {when}: {instead}."
        if inspect.isclass(what):
            begin = what.__init__

            @functools.wraps(begin)
            def begins(self: Any, *args: Any, **options: Any) -> None:
                warnings.warn(text, FutureWarning, stacklevel=2)
                begin(self, *args, **options)

            setattr(what, "__init__", begins)  # noqa: B010
            return what

        @functools.wraps(what)
        def called(*args: Any, **options: Any) -> Any:
            warnings.warn(text, FutureWarning, stacklevel=2)
            return what(*args, **options)

        return called  # type: ignore[return-value]

    return mark


def renamed_arguments(*, since: str, until: str, **names: str) -> Callable[[Named], Named]:
    """Lets a function take arguments under the names that they had: `old="new"`.

    Examples
    --------
    >>> import warnings
    >>> from meanmap.deprecation import renamed_arguments
    >>> @renamed_arguments(since="1.2", until="1.4", seed="rng")
    ... def draw(n, rng=None):
    ...     return n, rng
    >>> with warnings.catch_warnings(record=True) as seen:
    ...     warnings.simplefilter("always")
    ...     draw(3, seed=7)
    (3, 7)
    >>> print(seen[0].message)
    draw: seed is called rng since 1.2; the old name will be removed in 1.4.
    """

    def mark(what: Named) -> Named:
        known = inspect.signature(what).parameters
        for new in names.values():
            if new not in known:
                raise ValueError(f"{what.__name__} has no argument {new!r} to rename one to.")

        @functools.wraps(what)
        def called(*args: Any, **options: Any) -> Any:
            for old, new in names.items():
                if old not in options:
                    continue
                if new in options:
                    raise TypeError(
                        f"{what.__name__}() got both {old!r} and {new!r}: one is enough."
                    )
                warnings.warn(
                    f"{what.__name__}: {old} is called {new} since {since}; the old name will be "
                    f"removed in {until}.",
                    FutureWarning,
                    stacklevel=2,
                )
                options[new] = options.pop(old)
            return what(*args, **options)

        return called  # type: ignore[return-value]

    return mark
