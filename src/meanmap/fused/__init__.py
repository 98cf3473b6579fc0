"""Radial kernels on CUDA, fused with Triton: distance, profile and sum in one pass.

A tile of a Gram matrix is otherwise written and read again for its distances, its exponential and
its sum. Each function here has a plain counterpart, which serves where there is no Triton, on
other devices and for small work: the first call of each kind takes a second to compile.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import array_api_compat

Comparison = Callable[[Any, Any, Any], Any]  # (A, columns, buffer) → a Gram matrix

PROFILES = {"gaussian": 0, "laplace": 1, "matern-3/2": 2, "matern-5/2": 3}
WORTHWHILE = 1 << 22  # pairs of points that pay for compiling
MOST_COLUMNS = 64  # coordinates of a point: differences are taken one after the other
MOST_VECTORS = 4  # that are summed in one pass; for more a matrix product is faster
BITS = 2048.0  # 2¹¹: what half precision resolves


@cache
def is_installed() -> bool:
    """Whether there are Triton and a CUDA device."""
    try:
        import torch
        import triton  # noqa: F401
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def _programs() -> ModuleType:
    from meanmap.fused import programs

    return programs


def on_cuda(array: Any) -> bool:
    """Whether an array is a torch tensor on CUDA."""
    return array_api_compat.is_torch_array(array) and array.device.type == "cuda"


def fits(A: Any, B: Any) -> bool:
    """Whether the pairs of A and B are for a fused kernel: many, on CUDA, no gradient asked for."""
    return (
        on_cuda(B)
        and on_cuda(A)
        and 0 < B.shape[1] <= MOST_COLUMNS
        and A.shape[0] * B.shape[0] >= WORTHWHILE
        and A.dtype == B.dtype
        and not (A.requires_grad or B.requires_grad)
        and is_installed()
    )


def comparison(profile: str, scaled: Callable[[Any], Any], B: Any, plain: Comparison) -> Comparison:
    """A kernel's comparison with B: its `plain` one, and a fused one for the pairs that fit.

    `scaled` divides points by the bandwidth.
    """
    if not on_cuda(B):
        return plain
    against = scaled(B)

    def compare(A: Any, columns: Any, out: Any) -> Any:
        right = against[columns]
        return gram(profile, scaled(A), right) if fits(A, right) else plain(A, columns, out)

    return compare


def gram_times(profile: str, scaled: Callable[[Any], Any], A: Any, B: Any, V: Any) -> Any:
    """The Gram matrix of A against B times V, or None where that is not for a fused kernel."""
    few = V.ndim == 1 or V.shape[1] <= MOST_VECTORS
    if not few or not on_cuda(V) or not fits(A, B) or V.requires_grad:
        return None
    product = matmul(profile, scaled(A), scaled(B), V if V.ndim > 1 else V[:, None])
    return product if V.ndim > 1 else product[:, 0]


def gram(profile: str, A: Any, B: Any) -> Any:
    """The kernel of A against B, both over the bandwidth."""
    import torch

    m, n = A.shape[0], B.shape[0]
    out = torch.empty((m, n), dtype=A.dtype, device=A.device)
    A, B = A.contiguous(), B.T.contiguous()
    rows, columns = 64, 64
    grid = -(-m // rows), -(-n // columns)
    with torch.cuda.device(A.device):
        _programs().gram_program[grid](
            A, B, out, m, n, A.shape[1], PROFILES[profile], rows, columns, num_warps=4
        )
    return out


def matmul(profile: str, A: Any, B: Any, V: Any) -> Any:
    """The Gram matrix of A against B times a few columns V, in one pass without the matrix."""
    import torch

    m, n, q = A.shape[0], B.shape[0], V.shape[1]
    A, B, V = A.contiguous(), B.T.contiguous(), V.T.contiguous()
    rows, columns = 64, 64
    # enough programs to keep a large device busy, each with a share of the columns
    shares = max(1, min(64, 4096 // -(-m // rows), -(-n // 1024)))
    share = -(-n // (shares * columns)) * columns
    shares = -(-n // share)
    # added up afterwards, in one order: the same answer every time
    out = torch.empty((shares, m, q), dtype=A.dtype, device=A.device)
    wide = 1 << (q - 1).bit_length()
    with torch.cuda.device(A.device):
        _programs().matmul_program[-(-m // rows), shares](
            *(A, B, V, out, m, n, share, A.shape[1], q, wide, PROFILES[profile], rows, columns),
            num_warps=4,
        )
    return out.sum(dim=0)


def gram_halves(profile: str, A: Any, B: Any, centre: float) -> Any:
    """The kernel of A against B less a number, in single precision, as `halves`."""
    import torch

    m, n = A.shape[0], B.shape[0]
    out = torch.empty((m, 2 * n), dtype=torch.float16, device=A.device)
    A, B = A.contiguous(), B.T.contiguous()
    rows, columns = 128, 64
    grid = -(-m // rows), -(-n // columns)
    with torch.cuda.device(A.device):
        _programs().gram_halves_program[grid](
            A, B, out, m, n, centre, A.shape[1], PROFILES[profile], rows, columns, num_warps=4
        )
    return out


def halves(tile: Any) -> Any:
    """high and low side by side, with tile = high + low / 2¹¹, for numbers of about one."""
    import torch

    high = tile.half()
    return torch.cat([high, ((tile - high) * BITS).half()], dim=1)


def stacked_labels(labels: Any) -> Any:
    """Columns of 0 and 1 for halves side by side."""
    import torch

    labels = labels.half()
    return torch.cat([labels, labels / BITS])


def times_labels(both: Any, stacked: Any) -> Any:
    """Halves side by side times columns of 0 and 1, by tensor cores.

    The halves are exact to 11 bits each and products with 0 and 1 are exact. They are summed in
    single precision, and cut rather than rounded: the sums should have no trend, which a tile whose
    mean was taken off gives them.
    """
    import torch

    return torch.mm(both, stacked, out_dtype=torch.float32)


def labelled_columns(C: Any, labels: Any) -> Any:
    """For columns of numbers and of 0 and 1 the sums of those with 1, in double precision."""
    import torch

    m, q = C.shape
    rows, columns, shares = 32, 64, 16
    share = -(-m // (shares * rows)) * rows
    shares = -(-m // share)
    out = torch.empty((shares, q), dtype=torch.float64, device=C.device)
    with torch.cuda.device(C.device):
        _programs().dots_program[-(-q // columns), shares](
            C.contiguous(), labels.contiguous(), out, m, q, share, rows, columns, num_warps=4
        )
    return out.sum(dim=0)
