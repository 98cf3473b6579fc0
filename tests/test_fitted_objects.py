"""Common uses of a fitted object: save it, send it, share it among threads."""

from __future__ import annotations

import inspect
import os
import pickle
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import InconsistentVersionWarning
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import meanmap as mm
from fitted_objects import FITTED, Answers, X, Y, noisy
from meanmap import arrays
from public import public_names

UNSAVED = {"ConditionalIndependence": "the whole table, to be made from it again"}
GOLDEN = Path(__file__).parent / "data" / "golden"
THREADS = 8


def made(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # small samples earn some
        return FITTED[name].make()


def asked(name: str, obj: Any) -> Answers:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return FITTED[name].ask(obj)


def agree(found: Answers, expected: Answers, rtol: float) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        here, there = np.asarray(found[name]), np.asarray(value)
        if there.dtype.kind != "f":
            assert_array_equal(here, there, err_msg=name)
            continue
        scale = float(abs(there).max()) if there.size else 1.0
        assert_allclose(here, there, rtol=rtol, atol=rtol * scale, err_msg=name)


def test_every_public_class_is_here() -> None:
    classes = {
        name
        for name, value in public_names().items()
        if inspect.isclass(value) and not issubclass(value, Warning)
    }
    assert classes - set(UNSAVED) == {name for one in FITTED.values() for name in one.classes}


def through_file(obj: Any, folder: Path) -> Any:
    mm.save(obj, folder / "saved.npz")
    return mm.load(folder / "saved.npz")


def through_pickle(obj: Any, folder: Path) -> Any:
    return pickle.loads(pickle.dumps(obj))


def through_joblib(obj: Any, folder: Path) -> Any:
    joblib.dump(obj, folder / "saved.joblib")
    return joblib.load(folder / "saved.joblib")


@pytest.mark.parametrize("kept", [through_file, through_pickle, through_joblib])
@pytest.mark.parametrize("name", FITTED)
def test_kept_and_taken_out_again(
    name: str, kept: Callable[[Any, Path], Any], tmp_path: Path
) -> None:
    obj = made(name)
    again = kept(obj, tmp_path)
    assert type(again) is type(obj) and repr(again)
    agree(asked(name, again), asked(name, obj), 1e-12)


@pytest.mark.parametrize("name", FITTED)
def test_files_of_earlier_versions(name: str) -> None:
    """Files in tests/data/golden are never written again: what was saved once stays readable."""
    files = sorted(GOLDEN.glob(f"*/{name}.npz"))
    assert files, f"python tests/test_fitted_objects.py writes the golden file of {name}"
    for path in files:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InconsistentVersionWarning)
            held = mm.load(path)
        agree(asked(name, held["object"]), held["answers"], 1e-6)


@pytest.mark.parametrize("name", FITTED)
def test_estimators_are_cloned_unfitted(name: str) -> None:
    obj = made(name)
    if not isinstance(obj, BaseEstimator):
        pytest.skip("a record, which has no parameters")
    again = clone(obj)
    assert type(again) is type(obj)
    assert again.get_params(deep=False).keys() == obj.get_params(deep=False).keys()
    assert not {key for key in vars(again) if key.endswith("_") and not key.startswith("__")}


@pytest.mark.parametrize("name", FITTED)
def test_eight_threads_read_what_one_reads(name: str) -> None:
    expected = asked(name, made(name))
    obj = made(name)  # one that has computed nothing for later yet: all begin at once
    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(lambda _: FITTED[name].ask(obj), range(2 * THREADS)))
    for answers in found:
        agree(answers, expected, 1e-12)


FITS = [
    "conditional",
    "two_sample",
    "independence",
    "bayes_filter",
    "additive_filter",
    "graphical_model",
    "pca",
    "mean_matching",
]


@pytest.mark.parametrize("name", FITS)
def test_fitting_in_several_threads_at_once(name: str) -> None:
    expected = asked(name, made(name))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: FITTED[name].make(), range(8)))
    for obj in found:
        agree(asked(name, obj), expected, 1e-12)


@pytest.mark.parametrize("name", FITS)
def test_the_number_of_threads_changes_nothing(name: str) -> None:
    answers = []
    for count in (1, 4):
        with arrays._controller().limit(limits=count):
            answers.append(asked(name, made(name)))
    agree(answers[1], answers[0], 1e-9)


def test_classes_are_found_before_they_are_imported() -> None:
    """The package imports what stands on its core when it is asked for: by a file too."""
    path = next(GOLDEN.glob("*/mean_matching.npz"))
    code = f"import meanmap; print(type(meanmap.load({str(path)!r})['object']).__name__)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    assert done.stdout.strip() == "KernelMeanMatching", done.stderr


# --- functions, which no file holds ---------------------------------------------------------------


def test_a_simulator_is_given_again(tmp_path: Path) -> None:
    obj = made("inference")
    again = through_file(obj, tmp_path)
    with pytest.raises(TypeError, match=r"holds data, no functions.*set_params\(simulator="):
        again.fit(80)
    with pytest.raises(TypeError, match=r"set_params\(simulator="):
        again.calibrate(10)
    again.set_params(simulator=noisy)
    with pytest.raises(TypeError, match=r"set_params\(prior="):
        again.fit(80)
    again.set_params(prior=obj.prior)
    # the draws that one run would have made
    assert_array_equal(again.fit(80).theta_, obj.fit(80).theta_)
    assert_array_equal(again.posterior([0.5]).mean(), obj.posterior([0.5]).mean())
    assert_array_equal(again.calibrate(10).coverage(0.8), obj.calibrate(10).coverage(0.8))


# --- estimators of scikit-learn -------------------------------------------------------------------


def reweighted(estimator: Any) -> Any:
    weights = mm.KernelMeanMatching(ridge=1e-2, bound=10.0, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return mm.adaptation.Reweighted(estimator, weights).fit(X, Y, X_test=X + 0.4)


def test_pipelines_of_scikit_learn_are_saved(tmp_path: Path) -> None:
    model = reweighted(Ridge())
    model.estimator_ = make_pipeline(StandardScaler(), Ridge()).fit(X, Y)
    again = through_file(model, tmp_path)
    assert_array_equal(again.estimator_.predict(X), model.estimator_.predict(X))


def test_compiled_models_of_others_are_not(tmp_path: Path) -> None:
    weights = mm.KernelMeanMatching(ridge=1e-2, bound=10.0, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = mm.adaptation.Reweighted(SVC(), weights).fit(X, Y > 0, X_test=X + 0.4)
    with pytest.raises(TypeError, match="SVC, which cannot be saved"):
        mm.save(model, tmp_path / "svc.npz")
    assert not list(tmp_path.iterdir())


def test_a_cache_that_a_file_names_is_refused(tmp_path: Path) -> None:
    model = make_pipeline(StandardScaler(), Ridge(), memory=str(tmp_path))
    mm.save([model], tmp_path / "cache.npz")
    with pytest.raises(ValueError, match="folder to cache in"):
        mm.load(tmp_path / "cache.npz")


def test_another_version_of_scikit_learn_is_told(tmp_path: Path) -> None:
    model = Ridge().fit(X, Y)
    mm.save([model], tmp_path / "ridge.npz")
    version = sklearn.__version__.encode()
    other = b"0" * (len(version) - 2) + b".1"
    with (
        zipfile.ZipFile(tmp_path / "ridge.npz") as old,
        zipfile.ZipFile(tmp_path / "other.npz", "w") as new,
    ):
        for item in old.infolist():
            new.writestr(item, old.read(item).replace(version, other))
    with pytest.warns(InconsistentVersionWarning):
        (again,) = mm.load(tmp_path / "other.npz")
    assert_array_equal(again.predict(X), model.predict(X))


if __name__ == "__main__":
    folder = GOLDEN / mm.__version__
    folder.mkdir(parents=True, exist_ok=True)
    for _name in FITTED:
        path = folder / f"{_name}.npz"
        if path.exists():  # a golden file is written once
            continue
        _obj = made(_name)
        mm.save({"object": _obj, "answers": asked(_name, _obj)}, path)
        print(path.name, path.stat().st_size)
