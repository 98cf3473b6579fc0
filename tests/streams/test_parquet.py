"""Parquet in, Parquet out: files read part by part and written part by part, by real workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from meanmap import ConditionalEmbedding, mmd, two_sample_test
from meanmap.kernels import Gaussian
from meanmap.report import shift_report
from meanmap.spaces import Nystroem, Space
from meanmap.streams import feed
from optional_packages import require

pq = require("pyarrow.parquet")
dd = require("dask.dataframe")
distributed = require("distributed")

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(RNG.normal(size=(4000, 3)), columns=list("abc"))
TABLE["y"] = np.sin(TABLE["a"] + TABLE["b"]) + 0.1 * RNG.normal(size=4000)
TABLE["text"] = np.where(TABLE["c"] > 0, "up", "down")
INPUTS = ["a", "b"]
SPACES = (
    Space(Gaussian(1.5), Nystroem(60, random_state=0)).fit(TABLE[INPUTS].to_numpy()[:1000]),
    Space(Gaussian(1.0), Nystroem(30, random_state=0)).fit(TABLE[["y"]].to_numpy()[:1000]),
)


def model() -> ConditionalEmbedding:
    return ConditionalEmbedding(regularization=1e-4, basis=SPACES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight files of different lengths, the rows in their order."""
    place = tmp_path_factory.mktemp("tables")
    cuts = [0, 300, 900, 1500, 1600, 2400, 3000, 3001, 4000]
    for i, (start, stop) in enumerate(zip(cuts[:-1], cuts[1:], strict=True)):
        TABLE.iloc[start:stop].to_parquet(place / f"part-{i}.parquet", index=False)
    return place


@pytest.fixture(scope="module")
def truth() -> np.ndarray:
    return model().fit(TABLE[INPUTS], TABLE["y"]).predict(TABLE[INPUTS])


@pytest.mark.slow
def test_workers_read_and_write_parquet(folder: Path, tmp_path: Path, truth: np.ndarray) -> None:
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster),
    ):
        table = dd.read_parquet(folder / "part-*.parquet")
        fitted = model().fit(table[INPUTS], table["y"])
        table.assign(predicted=fitted.predict(table[INPUTS])).to_parquet(tmp_path / "answers")
    files = sorted((tmp_path / "answers").glob("*.parquet"))
    assert len(files) == 8
    found = pd.concat([pd.read_parquet(path) for path in files])
    assert_allclose(found["y"], TABLE["y"])
    assert_allclose(found["predicted"], truth, atol=1e-9)
    third = pd.read_parquet(files[2])
    assert_allclose(third["predicted"], truth[900:1500], atol=1e-9)


def test_columns_of_one_table_have_its_parts(folder: Path, tmp_path: Path) -> None:
    """Dask reads several small files in one task where few of their columns are asked for."""
    table = dd.read_parquet(folder / "part-*.parquet")
    fitted = ConditionalEmbedding(Gaussian(1.0), regularization=1e-3).fit(table[["a"]], table["y"])
    lazy = fitted.predict(table[["a"]])
    assert lazy.numblocks == (8,)
    answers = table[["a"]].assign(predicted=lazy)
    answers.to_parquet(tmp_path / "few")
    found = pd.read_parquet(tmp_path / "few")
    assert_allclose(found["a"], TABLE["a"])
    assert_allclose(found["predicted"], fitted.predict(TABLE[["a"]]), atol=1e-9)


def test_batches_of_parquet_without_dask(folder: Path, truth: np.ndarray) -> None:
    def batches() -> Iterator[tuple[Any, Any]]:
        for path in sorted(folder.glob("part-*.parquet")):
            for batch in pq.ParquetFile(path).iter_batches(batch_size=250, columns=[*INPUTS, "y"]):
                rows = batch.to_pandas()
                yield rows[INPUTS], rows["y"]

    found = feed(model(), batches(), progress=False)
    assert_allclose(found.predict(TABLE[INPUTS]), truth, atol=1e-9)


def test_tests_and_reports_read_parquet(folder: Path) -> None:
    table = dd.read_parquet(folder / "part-*.parquet")
    low, high = table[table["y"] < 0][INPUTS], table[table["y"] >= 0][INPUTS]
    below = (TABLE["y"] < 0).to_numpy()
    parts = [TABLE[INPUTS].to_numpy()[rows] for rows in (below, ~below)]
    assert mmd(low, high, basis=SPACES[0]) == pytest.approx(mmd(*parts, basis=SPACES[0]), abs=1e-10)
    assert two_sample_test(low, high).pvalue < 1e-6
    inputs = table[["a", "text"]]
    report = shift_report(inputs, inputs, rng=0, max_samples=100)
    assert report.sizes == (4000, 4000) and report.used == (100, 100)
    assert "100 of 4,000 training rows" in str(report)


def test_a_file_with_nan_is_named(folder: Path, tmp_path: Path) -> None:
    for path in folder.glob("*.parquet"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    bad = pd.read_parquet(tmp_path / "part-4.parquet")
    bad.loc[7, "b"] = np.nan
    bad.to_parquet(tmp_path / "part-4.parquet", index=False)
    table = dd.read_parquet(tmp_path / "part-*.parquet")
    with pytest.raises(ValueError, match=r"chunk 4 of X and y: X contains NaN .* row 7"):
        model().fit(table[INPUTS], table["y"])
