"""Bad input is refused by name, with a remedy, and leaves nothing half-fitted; odd input works."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError

import meanmap as mm
from meanmap import (
    ConditionalEmbedding,
    Embedding,
    bayes_rule,
    chain_rule,
    embed,
    kernels,
    sum_rule,
)
from meanmap.kernels import (
    Constant,
    Delta,
    Function,
    Gaussian,
    Laplace,
    Linear,
    Matern,
    Polynomial,
    Precomputed,
    RationalQuadratic,
    TensorProduct,
    Trace,
)
from meanmap.spaces import Explicit, PivotedCholesky, Space
from optional_packages import require

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(12, 2)), RNG.normal(size=(12, 1))
NAN, INF = X.copy(), X.copy()
NAN[3, 1], INF[0, 0] = np.nan, -np.inf
WORDS = np.array(list("aabb") * 3)
P = embed(X)
MODEL = ConditionalEmbedding(regularization=1e-2).fit(X, Y)
PRIOR = embed(X[:5])


def fit(*arguments: Any, **options: Any) -> Callable[[], Any]:
    """Fit with the first two positions as X and Y; names of parameters go to the model."""
    weight = options.pop("sample_weight", None)
    return lambda: ConditionalEmbedding(**options).fit(*arguments, sample_weight=weight)


# what is done, the error, and the pieces that its message must have: what was expected, what was
# given, and what to do
Refusal = tuple[Callable[[], Any], type[Exception], list[str]]

REFUSED: dict[str, Refusal] = {
    # mismatched lengths
    "lengths of X and Y": (fit(X, Y[:5]), ValueError, ["X has 12", "y has 5", "same place"]),
    "lengths of a pair": (
        lambda: embed((X, Y[:5])),
        ValueError,
        ["[0] has 12", "[1] has 5", "same place"],
    ),
    "lengths in a query of pairs": (
        lambda: embed((X, Y))((X[:3], Y[:2])),
        ValueError,
        ["has 3", "has 2"],
    ),
    "lengths of a score": (lambda: MODEL.loss(X, Y[:3]), ValueError, ["12", "3"]),
    "ragged rows": (lambda: embed([[1.0, 2.0], [3.0]]), ValueError, ["points", "one length"]),
    "ragged query": (lambda: P([[1.0, 2.0], [3.0]]), ValueError, ["x", "one length"]),
    "batches of different sizes": (
        lambda: embed(X, kernel=P.kernel, weights=np.ones((2, 12))).inner(
            embed(X, kernel=P.kernel, weights=np.ones((3, 12)))
        ),
        ValueError,
        ["batch", "2", "3"],
    ),
    # NaN and infinity
    "NaN in points": (lambda: embed(NAN), ValueError, ["NaN", "row 3", "Drop or impute"]),
    "infinity in points": (lambda: embed(INF), ValueError, ["infinity", "row 0", "Drop or impute"]),
    "NaN in X": (fit(NAN, Y), ValueError, ["X contains NaN", "row 3", "Drop or impute"]),
    "NaN in Y": (fit(X, NAN), ValueError, ["y contains NaN", "row 3", "Drop or impute"]),
    "NaN in a query": (lambda: MODEL.given(NAN), ValueError, ["NaN", "row 3", "Drop or impute"]),
    "NaN at a point": (lambda: P([np.nan, 0.0]), ValueError, ["x contains NaN"]),
    "NaN in predict": (lambda: MODEL.predict(NAN), ValueError, ["X contains NaN"]),
    "NaN in weights": (lambda: embed(X, weights=NAN[:, 1]), ValueError, ["weights", "NaN"]),
    "NaN in sample_weight": (
        fit(X, Y, sample_weight=NAN[:, 1]),
        ValueError,
        ["sample_weight", "NaN"],
    ),
    "NaN among labels": (
        lambda: embed(np.array([1.0, np.nan]), kernel=Delta()),
        ValueError,
        ["NaN", "row 1", "drop"],
    ),
    "None among labels": (
        lambda: embed(np.array(["a", None], dtype=object)),
        ValueError,
        ["missing", "row 1", "drop"],
    ),
    "NaT among labels": (
        lambda: embed(np.array(["2020-01-01", "NaT"], dtype="datetime64[D]"), kernel=Delta()),
        ValueError,
        ["missing", "row 1", "drop"],
    ),
    "missing categories": (
        lambda: embed(pd.Series(pd.Categorical(["a", None, "b"]))),
        ValueError,
        ["missing", "row 1"],
    ),
    "a function that returns NaN": (
        lambda: embed(X, kernel=lambda x, y: np.nan).norm(),
        ValueError,
        ["function returned NaN"],
    ),
    "NaN in a Gram matrix": (
        lambda: embed([0, 1], kernel=Precomputed([[1, np.nan], [np.nan, 1]])),
        ValueError,
        ["gram contains NaN"],
    ),
    # empty samples
    "no points": (lambda: embed(np.empty((0, 2))), ValueError, ["0 sample(s)", "points is empty"]),
    "no labels": (lambda: embed([], kernel=Delta()), ValueError, ["0 sample(s)", "is empty"]),
    "no columns": (lambda: embed(np.empty((3, 0))), ValueError, ["0 feature(s)", "no columns"]),
    "no pairs to fit": (fit(X[:0], Y[:0]), ValueError, ["0 sample(s)", "X is empty"]),
    "no queries": (lambda: MODEL.given(X[:0]), ValueError, ["x is empty"]),
    "no variables": (lambda: embed(()), (ValueError, TypeError), ["tuple"]),  # type: ignore[dict-item]
    "no prior": (lambda: MODEL.push(X[:0]), ValueError, ["prior is empty"]),
    "no batch": (
        lambda: embed(X, weights=np.empty((0, 12))),
        ValueError,
        ["weights", "(12,) or (b, 12)"],
    ),
    # wrong dimension
    "given too few coordinates": (
        lambda: MODEL.given([1.0]),
        ValueError,
        ["1 features", "2 features", "(m, 2)"],
    ),
    "given too many coordinates": (
        lambda: MODEL.given(np.zeros((3, 5))),
        ValueError,
        ["5 features", "2 features", "(m, 2)"],
    ),
    "given a number": (lambda: MODEL.given(1.0), ValueError, ["scalar", "2"]),
    "given a cube": (lambda: MODEL.given(np.zeros((2, 2, 2))), ValueError, ["expected 2D", "2, 2"]),
    "predict too many": (lambda: MODEL.predict(np.zeros((3, 5))), ValueError, ["5 feat", "2 feat"]),
    "predict one point": (
        lambda: MODEL.predict(X[0]),
        ValueError,
        ["1 features", "reshape(1, -1)"],
    ),
    "evaluate too many": (lambda: P(np.zeros((3, 5))), ValueError, ["5 features", "2 features"]),
    "posterior given X": (
        lambda: MODEL.posterior(PRIOR).given(X),
        ValueError,
        ["2 features", "1 features", "(m, 1)"],
    ),
    "a prior on Y": (lambda: MODEL.push(embed(Y)), ValueError, ["1 feat", "2 feat", "prior"]),
    "numbers in a row": (
        lambda: ConditionalEmbedding().fit(np.arange(5.0), np.arange(5.0)),
        ValueError,
        ["1D array", "np.reshape(X, (-1, 1))", "Delta()"],
    ),
    "one number": (lambda: embed(3.0), ValueError, ["scalar", "reshape"]),
    "spaces of different dimension, inner": (
        lambda: embed(X, kernel=Gaussian(1.0)).inner(embed(Y, kernel=Gaussian(1.0))),
        ValueError,
        ["1 features", "2 features"],
    ),
    "spaces of different dimension, distance": (
        lambda: embed(Y, kernel=Laplace(1.0)).distance(embed(X, kernel=Laplace(1.0))),
        ValueError,
        ["1 features", "2 features"],
    ),
    "spaces of different dimension, sum": (
        lambda: embed(X, kernel=Gaussian(1.0)) + embed(Y, kernel=Gaussian(1.0)),
        ValueError,
        ["1 features", "2 features"],
    ),
    "a space of another dimension as basis": (
        lambda: embed(Y, basis=Space(Gaussian(1.0)).fit(X)),
        ValueError,
        ["1 features", "2 features"],
    ),
    "a kernel applied to two dimensions": (
        lambda: Gaussian(1.0)(X, Y),
        ValueError,
        ["B has 1 features", "A has 2 features"],
    ),
    # bandwidths and other parameters of kernels
    **{
        f"bandwidth {value!r}": (
            lambda value=value: embed(X, kernel=Gaussian(value)),
            ValueError,
            ["bandwidth", "positive", "median"],
        )
        for value in (0, -1.0, float("nan"), float("inf"), None, True, [1.0, 0.0], [1.0, -2.0])
    },
    "a bandwidth by another name": (
        lambda: embed(X, kernel=Gaussian("mean")),
        ValueError,
        ["bandwidth", "'median'", "'mean'"],
    ),
    "a bandwidth by another name, called": (
        lambda: Gaussian("mean")(X),
        ValueError,
        ["bandwidth", "'median'", "'mean'"],
    ),
    "words as bandwidths": (
        lambda: embed(X, kernel=Gaussian(["a", "b"])),
        (ValueError, TypeError),  # type: ignore[dict-item]
        ["bandwidth", "median"],
    ),
    "a matrix of bandwidths": (
        lambda: embed(X, kernel=Gaussian(np.ones((2, 2)))),
        (ValueError, TypeError),  # type: ignore[dict-item]
        ["bandwidth", "median"],
    ),
    "bandwidths for other columns": (
        lambda: embed(X, kernel=Gaussian([1.0, 2.0, 3.0])),
        ValueError,
        ["3 entries", "2 columns", "one number per column"],
    ),
    "an unresolved kernel": (
        lambda: Gaussian()(X),
        ValueError,
        ["median", "resolve(points)"],
    ),
    "smoothness": (lambda: embed(X, kernel=Matern(2.0)), ValueError, ["nu", "1.5", "2.0"]),
    "mixing": (lambda: embed(X, kernel=RationalQuadratic(-1)), ValueError, ["alpha", "-1"]),
    "degree": (lambda: embed(X, kernel=Polynomial(1.5)), ValueError, ["degree", "≥ 1", "1.5"]),
    "offset": (lambda: embed(X, kernel=Polynomial(2, -1)), ValueError, ["offset", "≥ 0", "-1"]),
    "factor": (lambda: embed(X, kernel=-2 * Gaussian()), ValueError, ["factor", "positive", "-2"]),
    "constant": (lambda: embed(X, kernel=Gaussian() - 1), TypeError, []),
    "negative constant": (lambda: embed(X, kernel=Constant(-1)), ValueError, ["positive", "-1"]),
    "a word as constant": (
        lambda: embed(X, kernel=Gaussian(1.0) + "a"),
        (ValueError, TypeError),  # type: ignore[dict-item]
        ["'a'"],
    ),
    "a number in a tensor product": (
        lambda: embed((X, Y), kernel=Gaussian(1.0) @ 1),
        TypeError,
        ["kernel", "1"],
    ),
    # weights
    "weights too short": (
        lambda: embed(X, weights=np.ones(3)),
        ValueError,
        ["weights", "(12,)", "(3,)"],
    ),
    "a batch of weights too short": (
        lambda: embed(X, weights=np.ones((4, 3))),
        ValueError,
        ["weights", "(12,)", "(3,)"],
    ),
    "a cube of weights": (
        lambda: embed(X, weights=np.ones((1, 1, 12))),
        ValueError,
        ["weights", "(12,)", "(1, 1, 12)"],
    ),
    "one weight for all": (lambda: embed(X, weights=1.0), ValueError, ["weights", "(12,)", "()"]),
    "words as weights": (lambda: embed(X, weights=WORDS), (ValueError, TypeError), ["weights"]),  # type: ignore[dict-item]
    "sample_weight too short": (
        fit(X, Y, sample_weight=np.ones(3)),
        ValueError,
        ["sample_weight", "(12,)", "(3,)"],
    ),
    "a negative sample_weight": (
        fit(X, Y, sample_weight=np.linspace(-1, 1, 12)),
        ValueError,
        ["sample_weight", "6 of 12", "embed(..., weights=...)"],
    ),
    "zero total weight": (
        fit(X, Y, sample_weight=np.zeros(12)),
        ValueError,
        ["sample_weight", "positive"],
    ),
    "zero total weight in a mean": (
        lambda: embed(X, weights=np.zeros(12)).mean(),
        ValueError,
        ["sum to 0", "expect"],
    ),
    "zero total weight in a space": (
        lambda: Space().fit(X, sample_weight=np.zeros(12)),
        ValueError,
        ["sample_weight", "positive"],
    ),
    "infinite total weight": (
        fit(X, Y, sample_weight=np.full(12, 1e308)),
        ValueError,
        ["sample_weight"],
    ),
    # a kernel that does not fit the points
    "words under a Gaussian": (
        lambda: embed(WORDS, kernel=Gaussian()),
        ValueError,
        ["numbers", "Delta()"],
    ),
    "words in rows under a Gaussian": (
        lambda: embed(WORDS[:, None], kernel=Gaussian()),
        ValueError,
        ["numbers", "Delta()"],
    ),
    "matrices under a Gaussian": (
        lambda: embed(np.zeros((3, 2, 2)), kernel=Gaussian()),
        ValueError,
        ["expected 2D", "(3, 2, 2)", "Trace()"],
    ),
    "vectors under a trace": (
        lambda: embed(X, kernel=Trace()),
        ValueError,
        ["(n, p, q)", "(12, 2)"],
    ),
    "matrices under a delta": (
        lambda: embed(np.zeros((3, 2, 2)), kernel=Delta()),
        ValueError,
        ["(n,)", "(3, 2, 2)"],
    ),
    "vectors under a tensor product": (
        lambda: embed(X, kernel=Gaussian() @ Gaussian()),
        TypeError,
        ["tuple of 2", "(12, 2)"],
    ),
    "a pair under three kernels": (
        lambda: embed((X, Y), kernel=Gaussian() @ Gaussian() @ Delta()),
        TypeError,
        ["tuple of 3", "tuple of 2"],
    ),
    "a pair under one kernel": (
        lambda: embed((X, X), kernel=Gaussian(1.0)),
        (ValueError, TypeError),  # type: ignore[dict-item]
        ["tuple", "TensorProduct"],
    ),
    "numbers as indices": (
        lambda: embed(np.arange(3.0), kernel=Precomputed(np.eye(3))),
        TypeError,
        ["integer indices", "float64", "np.arange"],
    ),
    "indices out of range": (
        lambda: embed([0, 3], kernel=Precomputed(np.eye(3))),
        ValueError,
        ["0 … 2", "0 … 3"],
    ),
    "labels of two types": (
        lambda: embed(np.array([1, "a"], dtype=object)),
        TypeError,
        ["cannot be compared", "astype(str)"],
    ),
    "complex numbers": (lambda: embed(X * 1j), ValueError, ["Complex data", "points"]),
    "masked values": (
        lambda: embed(np.ma.masked_array(X, X > 1)),
        TypeError,
        ["masked", "fill or drop"],
    ),
    "no array": (lambda: embed(None), TypeError, ["array of points", "None", "2-D"]),
    "a word": (lambda: embed("abc"), TypeError, ["array of points", "'abc'"]),
    "a dictionary": (lambda: embed({"a": 1}), TypeError, ["array of points"]),
    "a kernel's class": (lambda: embed(X, kernel=Gaussian), TypeError, ["Gaussian()"]),
    "a Gram matrix as kernel": (lambda: embed(X, kernel=np.eye(12)), TypeError, ["Precomputed"]),
    "a kernel's name": (lambda: embed(X, kernel="rbf"), TypeError, ["kernels", "'rbf'"]),
    "a Gram matrix that is not symmetric": (
        lambda: embed([0, 1], kernel=Precomputed([[1, 2], [3, 4]])),
        ValueError,
        ["symmetric", "(gram + gram.T) / 2"],
    ),
    "explicit features of a Gaussian": (
        lambda: Space(Gaussian(), Explicit()).fit(X),
        TypeError,
        ["no finite features", "PivotedCholesky()"],
    ),
    "no basis": (
        lambda: embed(X, basis="cholesky").coordinates,
        TypeError,
        ["PivotedCholesky()", "'cholesky'"],
    ),
    "three bases": (
        fit(X, Y, basis=(None, None, None)),
        ValueError,
        ["basis", "pair (x, y)", "3"],
    ),
    # parameters of models and rules
    "no Y": (fit(X, None), ValueError, ["y", "None"]),
    "negative regularization": (
        fit(X, Y, regularization=-1.0),
        ValueError,
        ["regularization", "≥ 0", "-1.0", '"auto"'],
    ),
    "regularization by another name": (
        fit(X, Y, regularization="cv"),
        ValueError,
        ["regularization", "'cv'", "'auto'"],
    ),
    "several regularizations": (
        fit(X, Y, regularization=np.array([1.0, 2.0])),
        ValueError,
        ["regularization", '"auto"'],
    ),
    "a method by another name": (
        lambda: bayes_rule(MODEL, PRIOR, method="exact"),
        ValueError,
        ["method", "'importance'", "'exact'"],
    ),
    "a form by another name": (lambda: sum_rule(MODEL, PRIOR, "c"), ValueError, ["form", "'c'"]),
    "form a where it does not exist": (
        lambda: bayes_rule(MODEL, PRIOR, form="a"),
        ValueError,
        ['form="a"', "squared", 'form="b"'],
    ),
    "a negative delta": (
        lambda: MODEL.posterior(PRIOR, regularization=-1.0),
        ValueError,
        ["regularization", "≥ 0", "-1.0"],
    ),
    "a batch of priors": (
        lambda: chain_rule(MODEL, embed(X, weights=np.ones((3, 12)) / 12)),
        ValueError,
        ["one prior", "batch of 3"],
    ),
    "a prior outside the data": (
        lambda: MODEL.posterior(embed(X + 1e3)),
        ValueError,
        ["prior", "training sample", "cover"],
    ),
    "words as prior": (lambda: MODEL.push(embed(WORDS)), ValueError, ["prior", "numbers"]),
    "nothing as prior": (lambda: MODEL.push(None), TypeError, ["prior", "None"]),
    "a number as function": (lambda: P.expect(3.0), TypeError, ["function", "float"]),
    "a function of one point": (
        lambda: P.expect(lambda x: 1.0),
        ValueError,
        ["shape ()", "12 points", "vectorize"],
    ),
    "points as embedding": (lambda: P.distance(X), TypeError, ["embed"]),
    "points as embedding, inner": (lambda: P.inner(X), TypeError, ["embed"]),
    "a word as factor": (lambda: P * "a", TypeError, ["factor", "'a'"]),
    "an array as factor": (lambda: P * np.ones(12), TypeError, ["factor"]),
    "division by zero": (lambda: P / 0, (ValueError, TypeError), ["divisor"]),  # type: ignore[dict-item]
    "the mean of words": (
        lambda: ConditionalEmbedding(regularization=1e-2).fit(X, WORDS).given(X).mean(),
        TypeError,
        ["no mean", "mode"],
    ),
    # mixing embeddings of different kernels
    **{
        f"different kernels, {name}": (
            lambda act=act: act(P, embed(X, kernel=Laplace(1.0))),
            ValueError,
            ["different kernels", "Gaussian", "Laplace", "embed(Y, kernel=P.kernel)"],
        )
        for name, act in {
            "inner": Embedding.inner,
            "distance": Embedding.distance,
            "sum": Embedding.__add__,
            "difference": Embedding.__sub__,
            "expect": Embedding.expect,
        }.items()
    },
    "different bandwidths": (
        lambda: P.distance(embed(2 * X)),
        ValueError,
        ["different kernels", "bandwidth", "embed(Y, kernel=P.kernel)"],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    act, error, pieces = REFUSED[name]
    with pytest.raises(error) as caught:
        act()
    text = str(caught.value)
    for piece in pieces:
        assert piece in text, f"{piece!r} is missing in: {text}"


UNFITTED: dict[str, Callable[[], Any]] = {
    "transform": lambda: Space().transform(X),
    "support": lambda: Space().support(X),
    **{
        name: lambda name=name, arguments=arguments: getattr(ConditionalEmbedding(), name)(
            *arguments
        )
        for name, arguments in {
            "given": (X,),
            "predict": (X,),
            "weights": (X,),
            "expect": (np.sum, X),
            "functional": (np.sum,),
            "push": (PRIOR,),
            "joint": (PRIOR,),
            "posterior": (PRIOR,),
            "score": (X, Y),
            "loss": (X, Y),
        }.items()
    },
    "posterior with a delta": lambda: ConditionalEmbedding().posterior(PRIOR, regularization=0.1),
    "sum_rule": lambda: sum_rule(ConditionalEmbedding(), PRIOR),
    "chain_rule": lambda: chain_rule(ConditionalEmbedding(), PRIOR),
    "bayes_rule": lambda: bayes_rule(ConditionalEmbedding(), PRIOR),
}


@pytest.mark.parametrize("name", UNFITTED)
def test_before_fit(name: str) -> None:
    with pytest.raises(NotFittedError, match=r"not fitted.*fit"):
        UNFITTED[name]()


def test_a_space_that_is_not_fitted_is_no_basis() -> None:
    with pytest.raises((ValueError, TypeError), match=r"Space.*fit"):
        embed(X, basis=Space())
    with pytest.raises((ValueError, TypeError), match="Space"):
        ConditionalEmbedding(basis=(Space(), None)).fit(X, Y)


def test_torch_refusals() -> None:
    torch = require("torch")
    with pytest.raises(ValueError, match="NaN"):
        embed(torch.full((3, 2), float("nan")))
    with pytest.raises(ValueError, match="expected 2D array"):
        embed(torch.zeros((3, 2, 2, 2)))
    model = ConditionalEmbedding(regularization=1e-2).fit(torch.asarray(X), torch.asarray(Y))
    with pytest.raises(ValueError, match=r"5 features.*2 features"):
        model.given(torch.zeros((3, 5)))


def model_of(x: Any, y: Any, kernel: Any = None) -> ConditionalEmbedding:
    return ConditionalEmbedding(kernel, regularization=1e-2).fit(x, y)


# X and Y as torch tensors
MIXED: dict[str, Callable[[Any, Any], Any]] = {
    "NumPy X, torch Y": lambda x, y: model_of(X, y).predict(X),
    "torch X, NumPy Y": lambda x, y: model_of(x, Y).predict(x),
    "torch X, words Y": lambda x, y: model_of(x, WORDS).given(x).mode(),
    "indices X, torch Y": lambda x, y: model_of(np.arange(12), y, Precomputed(np.eye(12))).predict(
        np.arange(12)
    ),
    "torch query": lambda x, y: MODEL.predict(x),
    "torch prior": lambda x, y: MODEL.posterior(embed(x)).given(Y).mean(),
    "torch prior, joint a": lambda x, y: MODEL.joint(embed(x), form="a").operator(),
    "torch prior, posterior a": lambda x, y: (
        MODEL.posterior(embed(x), method="squared", form="a").given(Y).weights
    ),
    "inner": lambda x, y: P.inner(embed(x, kernel=P.kernel)),
    "distance": lambda x, y: embed(x, kernel=P.kernel).distance(P),
    "sum": lambda x, y: P + embed(x, kernel=P.kernel),
    "NumPy weights": lambda x, y: embed(x, weights=np.ones(12)).norm(),
    "single X, double Y": lambda x, y: model_of(x.float(), y).predict(x.float()),
    "single sample, double query": lambda x, y: embed(x.float(), kernel=P.kernel)(x),
    "half precision": lambda x, y: embed(x.half()).coordinates,
    "brain floats": lambda x, y: embed(x.bfloat16()).coordinates,
}
DEEP = (
    "unsupported operand",
    "to have the same dtype",
    "implemented for",
    "ScalarType",
    "element 0",
)


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_libraries_and_precisions_mix_or_are_refused(name: str) -> None:
    """A result, or a refusal that says so: never an error from deep inside the linear algebra."""
    torch = require("torch")
    try:
        MIXED[name](torch.asarray(X), torch.asarray(Y))
    except (ValueError, TypeError) as error:
        assert not any(piece in str(error) for piece in DEEP), error


# --- nothing is half-fitted ----------------------------------------------------------------------


def raising(x: Any, y: Any) -> float:
    raise ZeroDivisionError("a user's kernel that fails")


BAD_FITS: dict[str, tuple[dict[str, Any], tuple[Any, ...], dict[str, Any]]] = {
    # parameters to set, arguments to fit, options to fit
    "lengths": ({}, (X, Y[:5]), {}),
    "NaN in X": ({}, (NAN, Y), {}),
    "NaN in Y": ({}, (X, NAN), {}),
    "empty": ({}, (X[:0], Y[:0]), {}),
    "weights": ({}, (X, Y), {"sample_weight": -np.ones(12)}),
    "regularization": ({"regularization": "cv"}, (X, Y), {}),
    "bandwidth": ({"kernel_y": Gaussian(-1.0)}, (X, Y), {}),
    "kernel of X": ({"kernel_x": Trace()}, (X, Y), {}),
    "kernel of Y": ({"kernel_y": Trace()}, (X, Y), {}),
    "kernel that raises": ({"kernel_y": Function(raising)}, (X, Y), {}),
    "basis of Y": ({"basis": (None, Explicit())}, (X, Y), {}),
    "names of columns": ({}, (pd.DataFrame(X, columns=[0, "a"]), Y), {}),
}


def state(model: Any) -> dict[str, Any]:
    """Everything on a model that is not a parameter."""
    parameters = model.get_params(deep=False)
    return {name: value for name, value in vars(model).items() if name not in parameters}


@pytest.mark.parametrize("name", BAD_FITS)
def test_a_failed_fit_leaves_nothing_behind(name: str) -> None:
    parameters, arguments, options = BAD_FITS[name]
    model = ConditionalEmbedding(**parameters)
    with pytest.raises((ValueError, TypeError, ZeroDivisionError)):
        model.fit(*arguments, **options)
    assert state(model) == {}
    with pytest.raises(NotFittedError):
        model.predict(X)


@pytest.mark.parametrize("name", BAD_FITS)
def test_a_failed_refit_leaves_the_earlier_fit_intact(name: str) -> None:
    parameters, arguments, options = BAD_FITS[name]
    model = ConditionalEmbedding(regularization=1e-2).fit(X, Y)
    before, prediction = state(model), model.predict(X)
    model.set_params(**parameters)
    with pytest.raises((ValueError, TypeError, ZeroDivisionError)):
        model.fit(*arguments, **options)
    after = state(model)
    assert before.keys() == after.keys()
    assert all(before[key] is after[key] for key in before)
    assert_array_equal(model.predict(X), prediction)


@pytest.mark.parametrize(
    "name", ["NaN in X", "empty", "weights", "kernel of X", "names of columns"]
)
def test_a_failed_fit_of_a_space_leaves_nothing_behind(name: str) -> None:
    parameters, (points, _), options = BAD_FITS[name]
    kernel = parameters.get("kernel_x")
    space = Space(kernel)
    with pytest.raises((ValueError, TypeError)):
        space.fit(points, **options)
    assert state(space) == {}
    fitted = Space().fit(X)
    before = state(fitted)
    fitted.set_params(kernel=kernel)
    with pytest.raises((ValueError, TypeError)):
        fitted.fit(points, **options)
    assert state(fitted) == before


def test_changing_parameters_does_not_change_what_was_fitted() -> None:
    for kernel, change in [
        (Gaussian(1.0), {"kernel_x__bandwidth": 2.0}),
        (Polynomial(2), {"kernel_x__degree": 3}),
        (Polynomial(2) + 1, {"kernel_x__left__degree": 3}),
    ]:
        for basis in (None, PivotedCholesky()):
            model = ConditionalEmbedding(kernel, Linear(), 1e-2, basis=basis).fit(X, Y)
            before = model.predict(X)
            model.set_params(**change)
            assert_array_equal(model.predict(X), before)


def test_embeddings_do_not_follow_a_kernel_that_changes() -> None:
    kernel = Polynomial(2)
    e = embed(X, kernel=kernel)
    norm = e.norm()
    kernel.set_params(degree=5)
    assert e.norm() == norm


def test_columns_are_matched_by_name_at_every_query() -> None:
    frame = pd.DataFrame(X, columns=["a", "b"])
    model = ConditionalEmbedding(regularization=1e-2).fit(frame, Y)
    swapped = frame[["b", "a"]]
    for ask in (model.predict, model.given, model.weights):
        with pytest.raises(ValueError, match="feature names"):
            ask(frame.rename(columns={"a": "c"}))
    assert_array_equal(model.predict(swapped), model.predict(frame))
    assert_array_equal(model.weights(swapped), model.weights(frame))
    assert_array_equal(model.given(swapped).mean(), model.given(frame).mean())


# --- odd but legal -------------------------------------------------------------------------------


def everything(model: ConditionalEmbedding, x: Any, y: Any) -> Iterator[Any]:
    """Every number that a fitted model can be asked for at its own sample."""
    yield model.predict(x)
    yield model.given(x).weights
    yield model.given(x).norm()
    prior = embed(x, kernel=model.kernel_x_)
    yield model.push(prior).weights
    yield model.joint(prior).operator()
    yield model.joint(prior, form="a").operator()
    for method in ("nonnegative", "importance", "squared", "reweighted"):
        yield model.posterior(prior, method=method).given(y).weights
    yield model.score(x, y)


LEGAL: dict[str, tuple[Any, Any]] = {
    "one point": (X[:1], Y[:1]),
    "two points": (X[:2], Y[:2]),
    "two equal points": (X[[0, 0]], Y[[0, 0]]),
    "duplicated pairs": (np.repeat(X, 5, axis=0), np.repeat(Y, 5, axis=0)),
    "duplicated X": (np.repeat(X[:3], 4, axis=0), Y),
    "a constant column": (np.column_stack([X, np.ones(12)]), np.column_stack([Y, np.zeros(12)])),
    "constant X": (np.ones((12, 2)), Y),
    "constant Y": (X, np.full((12, 1), 3.0)),
    "constant X and Y": (np.ones((12, 2)), np.zeros((12, 1))),
    "integers": (np.arange(12)[:, None], np.arange(12)[:, None] % 3),
    "booleans": (np.eye(12, 3, dtype=bool), Y),
    "single precision": (X.astype(np.float32), Y.astype(np.float32)),
    "half precision": (X.astype(np.float16), Y.astype(np.float16)),
    "the other byte order": (X.astype(">f8"), Y.astype(">f8")),
    "columns in memory": (np.asfortranarray(X), np.asfortranarray(Y)),
    "every other row": (np.repeat(X, 2, axis=0)[::2], np.repeat(Y, 2, axis=0)[::2]),
    "lists": (X.tolist(), Y.tolist()),
    "frames": (pd.DataFrame(X), pd.DataFrame(Y)),
    "large numbers": (1e6 * X, 1e6 * Y),
    "small numbers": (1e-6 * X, 1e-6 * Y),
    "far from the origin": (X + 1e6, Y - 1e6),
    "an outlier": (np.concatenate([X, [[1e6, 1e6]]]), np.concatenate([Y, [[1e6]]])),
}


@pytest.mark.parametrize("name", LEGAL)
@pytest.mark.parametrize("centered", [False, True], ids=["uncentred", "centred"])
def test_odd_samples_work(name: str, centered: bool) -> None:
    x, y = LEGAL[name]
    for regularization in ("auto", 1e-3, 0):
        model = ConditionalEmbedding(regularization=regularization, centered=centered).fit(x, y)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # r² of one point; conflicts are fair
            for value in everything(model, x, y):
                if name not in {"one point"} or np.ndim(value):
                    assert np.isfinite(value).all()


def test_predictions_on_constant_targets() -> None:
    model = ConditionalEmbedding(regularization=1e-6).fit(X, np.full(12, 3.0))
    assert_allclose(model.predict(X), 3.0, atol=1e-3)
    constant = ConditionalEmbedding(regularization=1e-6).fit(np.ones((12, 2)), Y)
    assert_allclose(constant.predict(np.ones((1, 2))), Y.mean(axis=0)[None], atol=1e-5)


def test_one_point_is_predicted() -> None:
    model = ConditionalEmbedding(regularization=1e-9).fit(X[:1], Y[:1])
    assert_allclose(model.predict(X[:1]), Y[:1], rtol=1e-6)
    assert_allclose(model.posterior(embed(X[:1])).given(Y[0]).mean(), X[0])


def test_rows_of_weight_zero_are_left_out() -> None:
    w = np.r_[np.ones(8), np.zeros(4)]
    x, y = X.copy(), Y.copy()
    x[8:], y[8:] = 1e9, -1e9
    weighted = ConditionalEmbedding(regularization=1e-2).fit(x, y, sample_weight=w)
    without = ConditionalEmbedding(regularization=1e-2).fit(X[:8], Y[:8])
    assert weighted.kernel_x_ == without.kernel_x_
    assert_allclose(weighted.predict(X[:8]), without.predict(X[:8]), rtol=1e-9)
    assert weighted.weights(X[:3]).shape == (3, 8)


def test_zero_weights_of_an_embedding_are_the_zero_element() -> None:
    zero = embed(X, weights=np.zeros(12))
    assert zero.norm() == 0.0
    assert_array_equal(zero(X), 0.0)
    assert zero.expect(lambda x: x[:, 0]) == 0.0
    assert zero.distance(zero) == 0.0
    assert np.isfinite(zero.mode()).all()


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize(
    "kernel", [None, Gaussian(), Laplace(), Linear(), Polynomial(2), Linear() + 1], ids=repr
)
def test_embeddings_of_one_or_two_points(kernel: Any, n: int) -> None:
    e = embed(X[:n], kernel=kernel)
    assert e.norm() ** 2 == pytest.approx(e.kernel(X[:n]).mean())
    assert_allclose(e.mean(), X[:n].mean(axis=0))
    assert np.isfinite(e.coordinates).all()
    assert np.isfinite(e.mode()).all()


# --- hostile arrays ------------------------------------------------------------------------------

HOSTILE = settings(
    max_examples=120, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)

NUMBERS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True, width=64),
    st.sampled_from([0.0, -0.0, 5e-324, 1e-300, 1e300, -1e300, 1e154, 1e-154, 1.0]),
)
ELEMENTS: dict[str, st.SearchStrategy[Any] | None] = {
    "float64": NUMBERS,
    "float32": st.floats(width=32),
    "int64": None,
    "uint8": None,
    "bool": None,
    "complex128": None,
    "U3": None,
    "S2": None,
    "datetime64[s]": None,
}
ARRAYS = st.sampled_from(sorted(ELEMENTS)).flatmap(
    lambda dtype: hnp.arrays(
        dtype=dtype,
        shape=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5),
        elements=ELEMENTS[dtype],
    )
)
OBJECTS = st.one_of(
    ARRAYS,
    st.none(),
    st.text(max_size=3),
    st.integers(),
    NUMBERS,
    st.lists(st.lists(NUMBERS, max_size=3), max_size=3),
    st.lists(st.one_of(st.text(max_size=2), st.integers(), st.none()), max_size=4),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
    st.tuples(ARRAYS, ARRAYS),
    st.tuples(),
)
KERNELS = st.sampled_from(
    [
        None,
        Gaussian(),
        Gaussian(1.0),
        Laplace(),
        Polynomial(2),
        Linear(),
        Delta(),
        Trace(),
        Constant(1.0),
        Gaussian() + 1,
        TensorProduct(Gaussian(), Delta()),
        Precomputed(np.eye(3)),
        kernels.Gaussian((1.0, 2.0)),
    ]
)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Overflow is expected in arithmetic with absurd numbers."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def outcome(act: Callable[[], Any]) -> Any:
    """A result, or None where the input was refused as bad input is."""
    try:
        return act()
    except (ValueError, TypeError) as error:
        assert str(error)
        return None


@HOSTILE
@given(points=OBJECTS, kernel=KERNELS)
def test_hostile_points(points: Any, kernel: Any) -> None:
    e = outcome(lambda: embed(points, kernel=kernel))
    if e is not None:
        for ask in (e.norm, e.mode, e.mean, lambda: e.coordinates, lambda: e(e.atoms)):
            outcome(ask)


@HOSTILE
@given(weights=OBJECTS)
def test_hostile_weights(weights: Any) -> None:
    e = outcome(lambda: embed(X[:4], weights=weights))
    if e is not None:
        for ask in (e.norm, e.mode, e.mean, lambda: e.coordinates, lambda: e(X)):
            outcome(ask)


@HOSTILE
@given(x=OBJECTS)
def test_hostile_queries(x: Any) -> None:
    for ask in (P, P.support, MODEL.given, MODEL.predict, MODEL.weights, MODEL.push):
        outcome(lambda ask=ask: ask(x))


@HOSTILE
@given(x=OBJECTS, y=OBJECTS, weight=st.one_of(st.none(), OBJECTS), kernel=KERNELS)
def test_hostile_fits(x: Any, y: Any, weight: Any, kernel: Any) -> None:
    model = ConditionalEmbedding(kernel_x=kernel)
    fitted = outcome(lambda: model.fit(x, y, sample_weight=weight))
    if fitted is None:
        assert state(model) == {}
    else:
        outcome(lambda: fitted.predict(x))
        outcome(lambda: fitted.posterior(x).given(y))


PAIRS = st.integers(1, 5).flatmap(
    lambda n: st.tuples(
        hnp.arrays(np.float64, st.tuples(st.just(n), st.integers(1, 2)), elements=NUMBERS),
        hnp.arrays(np.float64, st.tuples(st.just(n), st.integers(1, 2)), elements=NUMBERS),
        st.one_of(st.none(), hnp.arrays(np.float64, n, elements=NUMBERS)),
    )
)


@HOSTILE
@given(
    pairs=PAIRS,
    kernel_x=KERNELS,
    regularization=st.sampled_from(["auto", 0, 5e-324, 1e-3, 1e300]),
    centered=st.booleans(),
)
def test_hostile_numbers_of_the_right_shape(
    pairs: Any, kernel_x: Any, regularization: Any, centered: bool
) -> None:
    x, y, weight = pairs
    model = ConditionalEmbedding(kernel_x, None, regularization, centered=centered)
    fitted = outcome(lambda: model.fit(x, y, sample_weight=weight))
    if fitted is None:
        assert state(model) == {}
    else:
        outcome(lambda: fitted.predict(x))
        outcome(lambda: fitted.given(x).mode())
        for method in ("nonnegative", "importance", "squared", "reweighted"):
            outcome(lambda method=method: fitted.posterior(x, method=method).given(y))


OVERFLOW = """
import warnings
import numpy as np
from meanmap import ConditionalEmbedding, embed
from meanmap.kernels import Gaussian, Linear

warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
X, Y = rng.normal(size=(12, 2)), rng.normal(size=(12, 1))
for scale in (1e80, 1e90, 1e120, 1e160, 1e300):
    for delta in (None, 1e-3):
        for method in ("nonnegative", "importance", "squared", "reweighted"):
            try:
                model = ConditionalEmbedding(Gaussian(1.0), Linear(), 1e-3).fit(X, scale * Y)
                model.posterior(embed(X), method=method, regularization=delta).given(scale * Y)
            except (ValueError, TypeError):
                pass
"""


def test_numbers_whose_squares_overflow_come_to_an_end() -> None:
    """In a process of its own, so that a loop without end is one failure and not a hung suite."""
    done = subprocess.run(
        [sys.executable, "-c", OVERFLOW],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert done.returncode == 0, done.stderr


TAME = st.floats(-1e3, 1e3, width=32)


@HOSTILE
@given(
    pairs=st.integers(1, 6).flatmap(
        lambda n: st.tuples(
            hnp.arrays(np.float64, (n, 2), elements=TAME),
            hnp.arrays(np.float64, (n, 1), elements=TAME),
        )
    ),
    centered=st.booleans(),
)
def test_tame_numbers_always_give_finite_answers(pairs: Any, centered: bool) -> None:
    x, y = pairs
    model = ConditionalEmbedding(centered=centered).fit(x, y)
    assert np.isfinite(model.predict(x)).all()
    assert np.isfinite(model.given(x).weights).all()
    e = embed(x)
    assert 0 <= e.norm() <= 1 + 1e-12
    assert np.isfinite(e.mode()).all()


# --- foreign words and types that once came through -----------------------------------------------


def _walk(n: int = 50) -> np.ndarray:
    return np.cumsum(np.sin(np.arange(n) ** 1.3))[:, None]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda D: mm.learning.KernelPCA(1).fit(D), TypeError, "X is a Dask collection.*compute"),
        (lambda D: mm.learning.KernelCCA(1).fit(D, D), TypeError, "is a Dask collection.*compute"),
        (lambda D: mm.KernelBayesFilter().fit(D, D), TypeError, "is a Dask collection.*compute"),
        (lambda D: mm.embed(D), TypeError, "is a Dask collection.*take chunks"),
        (lambda D: mm.statistics.compress(D, 3), TypeError, "is a Dask collection"),
        (lambda D: mm.statistics.joint_hsic(D, D), TypeError, "is a Dask collection"),
    ],
)
def test_dask_where_it_is_not_read(call: Any, error: type[Exception], words: str) -> None:
    D = require("dask.array").from_array(_walk(), chunks=25)
    with pytest.raises(error, match=words):
        call(D)


@pytest.mark.parametrize("seed", [2**40, -1, 1.5, "a"])
@pytest.mark.parametrize(
    "model",
    [
        lambda seed: mm.HSICClustering(2, random_state=seed).fit(_walk()),
        lambda seed: mm.ColoredUnfolding(1, random_state=seed).fit(_walk(), _walk()[:, 0]),
        lambda seed: mm.HSICSelector(1, random_state=seed).fit(np.eye(20), np.arange(20.0)),
    ],
)
def test_seeds_that_are_none(model: Any, seed: Any) -> None:
    with pytest.raises(ValueError, match=r"random_state must be .* from 0 to 2\*\*32 - 1"):
        model(seed)


@pytest.mark.parametrize("kind", [mm.KernelBayesFilter, mm.AdditiveFilter])
def test_more_folds_than_steps(kind: Any) -> None:
    with pytest.raises(ValueError, match=r"validation=100: expected folds .* 50 steps.*at most 25"):
        kind(validation=100, progress=False).fit(_walk(), _walk())


@pytest.mark.parametrize("ax", [3, "a", [1, 2], object()])
def test_axes_that_are_none(ax: Any) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(TypeError, match="ax: expected axes of matplotlib, got"):
        mm.embed(_walk()).plot(ax=ax)
    with pytest.raises(TypeError, match="ax: expected axes of matplotlib, got"):
        mm.two_sample_test(_walk(), _walk(), n_permutations=9, rng=0).plot(ax=ax)


def test_double_precision_that_single_does_not_hold() -> None:
    single = np.ones((3, 1), dtype=np.float32)
    with pytest.raises(ValueError, match="B holds numbers .* overflow in float32"):
        mm.kernels.Gaussian(1.0)(single, np.array([[1e60]]))
    with pytest.raises(ValueError, match="weights holds numbers .* overflow in float32"):
        mm.embed(single, mm.kernels.Gaussian(1.0), weights=[1e30, 1.0, 1.0])
    with pytest.raises(ValueError, match="a kernel's factor holds .* overflow in float32"):
        (1e60 * mm.kernels.Gaussian(1.0))(single)


def test_one_library_and_precision_for_pairs() -> None:
    torch = require("torch")
    X, Y = np.eye(4), np.arange(4.0)[:, None]
    kernel = mm.kernels.Gaussian(1.0) @ mm.kernels.Gaussian(1.0)
    plain = mm.embed((X, Y), kernel)
    for pair in (
        (torch.tensor(X), torch.tensor(Y, dtype=torch.float32)),
        (X, torch.tensor(Y)),
        (torch.tensor(X), Y),
    ):
        found = mm.embed(pair, kernel)
        assert float(found.norm()) == pytest.approx(float(plain.norm()), rel=1e-6)
        assert np.allclose(np.asarray(found((X, Y))), plain((X, Y)), rtol=1e-6)
