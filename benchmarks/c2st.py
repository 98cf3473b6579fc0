"""The classifier two-sample test of sbibm, many of them at once.

The accuracy, in five-fold cross-validation, of a network that tells draws of a posterior from
draws of the reference: two layers of ten units a dimension, rectified, trained by Adam in batches
of 200 until the loss has not fallen by 1e-4 in ten epochs: scikit-learn's MLPClassifier as sbibm
calls it, here for all folds of several pairs of samples together. `check()` compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

FOLDS, BATCH, RATE, TOLERANCE, PATIENCE, PENALTY = 5, 200, 1e-3, 1e-4, 10, 1e-4
EPOCHS = 1000


def accuracies(
    pairs: Sequence[tuple[np.ndarray, np.ndarray]], seed: int = 1, device: str = "cpu"
) -> np.ndarray:
    """One accuracy per pair (reference, draws) of samples, all of one size."""
    rows, labels, folds = [], [], []
    for X, Y in pairs:
        middle, spread = X.mean(axis=0), X.std(axis=0, ddof=1)
        data = (np.concatenate([X, Y]) - middle) / spread
        rows.append(torch.tensor(data, dtype=torch.float32))
        labels.append(torch.cat([torch.zeros(len(X)), torch.ones(len(Y))]))
        folds.append(folds_of(len(data), seed))
    nets = [(i, k) for i in range(len(pairs)) for k in range(FOLDS)]
    train = [torch.tensor(folds[i][k][0]) for i, k in nets]
    size = min(map(len, train))
    x = torch.stack([rows[i][t[:size]] for (i, _), t in zip(nets, train, strict=True)])
    y = torch.stack([labels[i][t[:size]] for (i, _), t in zip(nets, train, strict=True)])
    found = train_networks(x.to(device), y.to(device), seed)
    scores = np.empty((len(pairs), FOLDS))
    for (i, k), network in zip(nets, found, strict=True):
        test = torch.tensor(folds[i][k][1])
        own = [p.cpu() for p in network]
        guess = respond(rows[i][test][None], own)[-1][0, :, 0] > 0
        scores[i, k] = float((guess == (labels[i][test] > 0.5)).float().mean())
    return scores.mean(axis=1)


def folds_of(n: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows to train on and to test with, as scikit-learn's KFold splits them in random order."""
    order = np.arange(n)
    np.random.RandomState(seed).shuffle(order)
    parts = [np.sort(part) for part in np.array_split(order, FOLDS)]
    return [(np.setdiff1d(order, part), part) for part in parts]


def respond(x: torch.Tensor, network: list[torch.Tensor]) -> list[torch.Tensor]:
    """The activations of every layer, of a batch of networks (k, n, d)."""
    W1, b1, W2, b2, W3, b3 = network
    one = torch.relu(torch.baddbmm(b1, x, W1))
    two = torch.relu(torch.baddbmm(b2, one, W2))
    return [one, two, torch.baddbmm(b3, two, W3)]


def gradients(
    x: torch.Tensor, y: torch.Tensor, network: list[torch.Tensor]
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The loss of each network, and its derivatives."""
    W1, _, W2, _, W3, _ = network
    one, two, z = respond(x, network)
    target, n = y[:, :, None], x.shape[1]
    loss = torch.nn.functional.binary_cross_entropy_with_logits(z, target, reduction="none")
    squares = sum((W * W).sum((1, 2)) for W in (W1, W2, W3))
    d3 = (torch.sigmoid(z) - target) / n
    d2 = torch.bmm(d3, W3.transpose(1, 2)) * (two > 0)
    d1 = torch.bmm(d2, W2.transpose(1, 2)) * (one > 0)
    found = []
    for before, d, W in ((x, d1, W1), (one, d2, W2), (two, d3, W3)):
        found.append(torch.bmm(before.transpose(1, 2), d) + PENALTY / n * W)
        found.append(d.sum(1, keepdim=True))
    return loss.mean((1, 2)) + 0.5 * PENALTY / n * squares, found


def first_weights(k: int, d: int, generator: torch.Generator) -> list[torch.Tensor]:
    """As Glorot and Bengio (2010) have them, the biases too."""
    sizes, found = [d, 10 * d, 10 * d, 1], []
    for before, after in zip(sizes[:-1], sizes[1:], strict=True):
        bound = np.sqrt((2 if after == 1 else 6) / (before + after))
        for shape in ((k, before, after), (k, 1, after)):
            noise = torch.rand(shape, generator=generator, device=generator.device)
            found.append((2 * noise - 1) * bound)
    return found


def train_networks(x: torch.Tensor, y: torch.Tensor, seed: int) -> list[list[torch.Tensor]]:
    """A network for each of the samples x (k, n, d) with labels y (k, n)."""
    (k, n, d), device = x.shape, x.device
    generator = torch.Generator(device).manual_seed(seed)
    network = first_weights(k, d, generator)
    first, second = ([torch.zeros_like(p) for p in network] for _ in range(2))
    best, idle = torch.full((k,), np.inf, device=device), torch.zeros(k, device=device)
    alive = torch.arange(k, device=device)
    done: list[list[torch.Tensor]] = [[] for _ in range(k)]
    step = 0
    for _ in range(EPOCHS):
        total = torch.zeros(len(alive), device=device)
        order = torch.rand((len(alive), n), generator=generator, device=device).argsort(1)
        at = torch.arange(len(alive), device=device)[:, None]
        for start in range(0, n, BATCH):
            batch = order[:, start : start + BATCH]
            loss, slopes = gradients(x[at, batch], y[at, batch], network)
            total += loss * batch.shape[1] / n
            step += 1
            rate = RATE * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
            for p, g, m, v in zip(network, slopes, first, second, strict=True):
                m.mul_(0.9).add_(g, alpha=0.1)
                v.mul_(0.999).addcmul_(g, g, value=0.001)
                p.addcdiv_(m, v.sqrt().add_(1e-8), value=-rate)
        idle = torch.where(total > best - TOLERANCE, idle + 1, torch.zeros_like(idle))
        best = torch.minimum(best, total)
        over = idle > PATIENCE
        if over.any():
            for i in torch.nonzero(over)[:, 0].tolist():
                done[int(alive[i])] = [p[i : i + 1].clone() for p in network]
            keep = ~over
            alive, best, idle, x, y = alive[keep], best[keep], idle[keep], x[keep], y[keep]
            network, first, second = ([p[keep] for p in own] for own in (network, first, second))
            if not len(alive):
                return done
    for i, own in enumerate(alive.tolist()):
        done[own] = [p[i : i + 1].clone() for p in network]
    return done


def check(d: int = 2, n: int = 2000, shift: float = 0.3) -> tuple[float, float]:
    """The accuracy by ours, and by scikit-learn as sbibm calls it, on two normal samples."""
    from sklearn.model_selection import KFold, cross_val_score
    from sklearn.neural_network import MLPClassifier

    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(n, d)), rng.normal(shift, 1.2, size=(n, d))
    model = MLPClassifier((10 * d, 10 * d), max_iter=10000, random_state=1)
    data = np.concatenate([X - X.mean(0), Y - X.mean(0)]) / X.std(0, ddof=1)
    split = KFold(FOLDS, shuffle=True, random_state=1)
    theirs = cross_val_score(model, data, np.repeat([0, 1], n), cv=split).mean()
    return float(accuracies([(X, Y)])[0]), float(theirs)


if __name__ == "__main__":
    print("ours {:.4f}, scikit-learn's {:.4f}".format(*check()))
