"""The posterior mean of gpytorch's exact GP; runs in gpytorch's own environment.

`exact_gp.py --job mean FILE SOLVER ROUNDS`: FILE has X, y, Q, bandwidth and noise, all given and
none trained. SOLVER is "cholesky", or "default" for what gpytorch chooses by itself (conjugate
gradients beyond 800 points). Writes FILE.SOLVER.npy. No rounds: once, untimed, for the memory.
"""

from __future__ import annotations

import contextlib
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness import cores, imported, run_job


class GP(gpytorch.models.ExactGP):
    """Mean zero and a Gaussian kernel of variance one."""

    def __init__(self, X: torch.Tensor, y: torch.Tensor, bandwidth: float, noise: float) -> None:
        super().__init__(X, y, gpytorch.likelihoods.GaussianLikelihood())
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = gpytorch.kernels.RBFKernel()
        self.double()
        self.covar_module.lengthscale, self.likelihood.noise = bandwidth, noise

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def predicted(data: dict[str, np.ndarray], solver: str) -> np.ndarray:
    """Fit and the mean at Q, no variances, from NumPy to NumPy."""
    X, y, Q = (torch.from_numpy(data[name]) for name in ("X", "y", "Q"))
    model = GP(X, y, float(data["bandwidth"]), float(data["noise"])).eval()
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(gpytorch.settings.skip_posterior_variances())
        if solver == "cholesky":
            stack.enter_context(gpytorch.settings.max_cholesky_size(len(X) + 1))
        return model(Q).mean.numpy()


def job(file: str, solver: str, rounds: str) -> dict[str, Any]:
    imported()
    # conjugate gradients that stop early say so; the benchmark says how far off they are
    warnings.simplefilter("ignore")
    with np.load(file) as stored:
        data = dict(stored)
    best, values = (float("inf"), 1), predicted(data, solver)  # warms up as well
    for threads in sorted({1, cores()}):
        torch.set_num_threads(threads)
        for _ in range(int(rounds)):
            start = time.perf_counter()
            values = predicted(data, solver)
            best = min(best, (time.perf_counter() - start, threads))
    np.save(f"{file}.{solver}.npy", values)
    return {"seconds": best[0], "threads": best[1], "gpytorch": gpytorch.__version__}


if __name__ == "__main__":
    run_job(job, sys.argv[3:])
