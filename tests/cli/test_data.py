"""The tables that the package ships: made here, `python tests/cli/test_data.py` writes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import meanmap

FOLDER = Path(meanmap.__file__).parent / "data"

Table = dict[str, list[str]]


def numbers(values: np.ndarray, digits: int = 3) -> list[str]:
    return [f"{value:.{digits}f}" for value in values]


def machine_room(rng: np.random.Generator) -> dict[str, Table]:
    """Speeds and loads of two weeks: the same means, the load of the second spread otherwise."""

    def week(load: np.ndarray, share: float) -> Table:
        n = len(load)
        line = np.where(rng.random(n) < share, "north", "south")
        return {
            "speed": numbers(50 + 4 * rng.normal(size=n)),
            "load": numbers(load),
            "line": line.tolist(),
        }

    humps = 2.0 + 0.95 * rng.choice([-1.0, 1.0], 200) + 0.3 * rng.normal(size=200)
    return {"before": week(2.0 + rng.normal(size=200), 0.5), "after": week(humps, 0.5)}


def summer(rng: np.random.Generator) -> dict[str, Table]:
    """Ice cream and bathers both follow the temperature, and nothing else of each other."""
    n = 300
    temperature = rng.uniform(12, 34, n)
    warm = 1 / (1 + np.exp(-(temperature - 22) / 3))
    ice_cream = 20 + 180 * warm + (4 + 10 * warm) * rng.normal(size=n)
    bathers = np.maximum(0.0, 8 * (temperature - 17)) + 12 * rng.normal(size=n)
    found = {
        "temperature": numbers(temperature, 1),
        "ice_cream": numbers(ice_cream, 1),
        "bathers": numbers(bathers, 1),
    }
    return {"summer": found}


def flowers(rng: np.random.Generator) -> dict[str, Table]:
    """Three species by the size of their petals; the test field has other shares of them."""
    centres = {"alba": (1.5, 0.3), "lutea": (4.3, 1.3), "rubra": (5.6, 2.0)}
    spreads = {"alba": (0.2, 0.1), "lutea": (0.5, 0.2), "rubra": (0.6, 0.3)}

    def field(n: int, shares: list[float]) -> Table:
        species = rng.choice(list(centres), n, p=shares)
        size = np.array([centres[s] for s in species])
        size += np.array([spreads[s] for s in species]) * rng.normal(size=(n, 2))
        leaf = 5.8 + 0.8 * rng.normal(size=n)
        return {
            "length": numbers(size[:, 0], 2),
            "width": numbers(np.maximum(size[:, 1], 0.05), 2),
            "leaf": numbers(leaf, 2),
            "species": species.tolist(),
        }

    return {
        "flowers-train": field(200, [1 / 3, 1 / 3, 1 / 3]),
        "flowers-test": field(120, [0.1, 0.3, 0.6]),
    }


def path(rng: np.random.Generator) -> dict[str, Table]:
    """A point that turns by 0.3 a step, seen with noise, and four times not at all."""
    n, more = 300, 60
    angle = 0.3 * np.arange(n + more) + np.cumsum(0.05 * rng.normal(size=n + more))
    place = np.column_stack([np.cos(angle), np.sin(angle)]) + 0.03 * rng.normal(size=(n + more, 2))
    seen = place + 0.3 * rng.normal(size=place.shape)

    def columns(part: np.ndarray, names: tuple[str, str]) -> Table:
        return {name: numbers(part[:, i]) for i, name in enumerate(names)}

    new = columns(seen[n:], ("seen_x", "seen_y"))
    for column in new.values():
        column[30:34] = [""] * 4
    train = columns(place[:n], ("x", "y")) | columns(seen[:n], ("seen_x", "seen_y"))
    return {"path-train": train, "path-new": new}


def machine(rng: np.random.Generator) -> dict[str, Table]:
    """A machine fails where heat and vibration go together; the other eight columns say nothing."""
    n = 300
    values = rng.normal(size=(n, 10))
    names = ["heat", "vibration", *(f"gauge{i}" for i in range(1, 9))]
    found = {name: numbers(values[:, i]) for i, name in enumerate(names)}
    failed = values[:, 0] * values[:, 1] > 0
    return {"machine": found | {"failed": np.where(failed, "yes", "no").tolist()}}


def tables() -> dict[str, Table]:
    """All of them."""
    makers = (machine_room, summer, flowers, path, machine)
    return {
        name: table
        for i, make in enumerate(makers)
        for name, table in make(np.random.default_rng(i)).items()
    }


def text(table: Table) -> str:
    lines = [",".join(table), *(",".join(row) for row in zip(*table.values(), strict=True))]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", list(tables()))
def test_the_package_ships_what_is_made_here(name: str) -> None:
    assert (FOLDER / f"{name}.csv").read_text(encoding="utf-8") == text(tables()[name])


def test_they_are_small_and_described() -> None:
    files = list(FOLDER.glob("*.csv"))
    assert {file.stem for file in files} == set(tables())
    assert sum(file.stat().st_size for file in files) < 100_000
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert all(f"@{name}" in readme for name in tables())


if __name__ == "__main__":
    for name, table in tables().items():
        (FOLDER / f"{name}.csv").write_text(text(table), encoding="utf-8")
