"""Densities from embeddings, and thinning."""

from __future__ import annotations

import numpy as np


def gaussian_embedding_by_quadrature(
    c: float, h: float, x: float, sigma: float, steps: int = 20001
) -> float:
    """E exp(-(u - x)²/2σ²) for u ~ N(c, h²), by the trapezium rule on c ± 12 h."""
    u = np.linspace(c - 12 * h, c + 12 * h, steps)
    p = np.exp(-((u - c) ** 2) / (2 * h * h)) / (h * np.sqrt(2 * np.pi))
    k = np.exp(-((u - x) ** 2) / (2 * sigma * sigma))
    return float(np.sum(p * k) * (u[1] - u[0]))


def density_programme(
    Q: np.ndarray,
    b: np.ndarray,
    square: float,
    epsilon: float,
    log_base: np.ndarray | None = None,
) -> np.ndarray:
    """Song et al. (2008): argmin Σ α log(α/q) (or ‖α‖²/2 without q) on the simplex subject to
    ‖μ̂ - μ[p]‖² = ‖μ̂‖² - 2 bᵀα + αᵀQα ≤ ε², by SLSQP from even proportions. Tiny problems only."""
    from scipy.optimize import minimize

    m = len(b)

    def objective(alpha: np.ndarray) -> float:
        if log_base is None:
            return float(alpha @ alpha / 2)
        a = np.maximum(alpha, 1e-300)
        return float(np.sum(a * (np.log(a) - log_base)))

    far = {
        "type": "ineq",
        "fun": lambda a: 1e3 * (epsilon**2 - square + 2 * b @ a - a @ Q @ a),
    }
    total = {"type": "eq", "fun": lambda a: a.sum() - 1}
    found = minimize(
        objective,
        np.full(m, 1 / m),
        method="SLSQP",
        bounds=[(0, 1)] * m,
        constraints=[far, total],
        options={"maxiter": 1000, "ftol": 1e-15},
    )
    return np.asarray(found.x)


def kernel_halving(K: np.ndarray, uniform: np.ndarray, failure: float) -> tuple[list, list]:
    """Dwivedi and Mackey (2024), kernel halving, as printed: for each pair (x, x') in turn
    f = k(x, ·) - k(x', ·), b = ‖f‖, a = max(b σ √(2 log(2/δ)), b²),
    σ² += b² (1 + (b² - 2a) σ²/a²)₊, α = ⟨ψ, f⟩; x goes left with probability min(1, (1 - α/a)₊/2)
    and ψ becomes ψ + f, else x' does and ψ becomes ψ - f."""
    n = len(K)
    psi = np.zeros(n)  # ψ = Σ psiᵢ k(xᵢ, ·)
    sigma2 = 0.0
    left, right = [], []
    for i in range(n // 2):
        x, y = 2 * i, 2 * i + 1
        f = np.zeros(n)
        f[x], f[y] = 1.0, -1.0
        b2 = f @ K @ f
        a = max(np.sqrt(b2) * np.sqrt(sigma2) * np.sqrt(2 * np.log(2 / failure)), b2)
        if a > 0:
            grown = sigma2 + b2 * max(1 + (b2 - 2 * a) * sigma2 / a**2, 0.0)
            alpha = psi @ K @ f
            chance = min(1.0, max(1 - alpha / a, 0.0) / 2)
        else:
            grown, chance = sigma2, 0.5
        sigma2 = grown
        if uniform[i] <= chance:
            left.append(x)
            right.append(y)
            psi = psi + f
        else:
            left.append(y)
            right.append(x)
            psi = psi - f
    return left, right


def kernel_swap(K: np.ndarray, w: np.ndarray, coreset: list) -> list:
    """Dwivedi and Mackey (2024), KT-SWAP, one pass: each point replaced by the one of all that
    makes ‖Σ wᵢ k(xᵢ, ·) - mean of the coreset‖ least."""
    chosen = list(coreset)
    for i in range(len(chosen)):
        far = []
        for z in range(len(K)):
            v = np.bincount([*chosen[:i], z, *chosen[i + 1 :]], minlength=len(K)) / len(chosen)
            far.append((w - v) @ K @ (w - v))
        chosen[i] = int(np.argmin(far))
    return chosen
