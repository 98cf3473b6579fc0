"""The Triton programs behind `meanmap.fused`; importing this needs Triton."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def squares(A, B, i, j, m, n, D: tl.constexpr):
    """‖a - b‖² of a block of pairs; B lies coordinate by coordinate."""
    a = tl.load(A + i * D, mask=i < m, other=0.0)
    b = tl.load(B + j, mask=j < n, other=0.0)
    difference = a[:, None] - b[None, :]
    out = difference * difference
    for k in tl.static_range(1, D):
        a = tl.load(A + i * D + k, mask=i < m, other=0.0)
        b = tl.load(B + k * n + j, mask=j < n, other=0.0)
        difference = a[:, None] - b[None, :]
        out += difference * difference
    return out


@triton.jit
def value(square, PROFILE: tl.constexpr):
    """k from the squared distance over the squared bandwidth, see `fused.PROFILES`."""
    if PROFILE == 0:
        k = tl.exp(-0.5 * square)
    elif PROFILE == 1:
        k = tl.exp(-tl.sqrt(square))
    elif PROFILE == 2:
        r = 1.7320508075688772 * tl.sqrt(square)
        k = (1 + r) * tl.exp(-r)
    else:
        r = 2.23606797749979 * tl.sqrt(square)
        k = (1 + r + r * r / 3) * tl.exp(-r)
    return k


@triton.jit
def gram_program(
    A,
    B,
    OUT,
    m,
    n,
    D: tl.constexpr,
    PROFILE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """A block of the Gram matrix."""
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    j = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    k = value(squares(A, B, i, j, m, n, D), PROFILE)
    at = i.to(tl.int64)[:, None] * n + j[None, :]
    tl.store(OUT + at, k, mask=(i[:, None] < m) & (j[None, :] < n))


@triton.jit
def gram_halves_program(
    A,
    B,
    OUT,
    m,
    n,
    centre,
    D: tl.constexpr,
    PROFILE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """A block of the Gram matrix less `centre` as high + low / 2¹¹, side by side."""
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    j = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    k = value(squares(A, B, i, j, m, n, D), PROFILE) - centre
    high = k.to(tl.float16)
    low = ((k - high.to(tl.float32)) * 2048.0).to(tl.float16)
    at = i.to(tl.int64)[:, None] * (2 * n) + j[None, :]
    there = (i[:, None] < m) & (j[None, :] < n)
    tl.store(OUT + at, high, mask=there)
    tl.store(OUT + at + n, low, mask=there)


@triton.jit
def dots_program(C, LABELS, OUT, m, q, share, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Sums of the products of two columns over a share of the rows, in double precision."""
    j = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    start = tl.program_id(1) * share
    total = tl.zeros((COLUMNS,), dtype=tl.float64)
    for at in range(start, tl.minimum(start + share, m), ROWS):
        i = at + tl.arange(0, ROWS)
        there = (i[:, None] < m) & (j[None, :] < q)
        c = tl.load(C + i.to(tl.int64)[:, None] * q + j[None, :], mask=there, other=0.0)
        a = tl.load(LABELS + i.to(tl.int64)[:, None] * q + j[None, :], mask=there, other=0)
        total += tl.sum(tl.where(a != 0, c, 0.0).to(tl.float64), axis=0)
    tl.store(OUT + tl.program_id(1) * q + j, total, mask=j < q)


@triton.jit
def matmul_program(
    A,
    B,
    V,
    OUT,
    m,
    n,
    share,
    D: tl.constexpr,
    Q: tl.constexpr,
    WIDE: tl.constexpr,
    PROFILE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Some rows of the Gram matrix times V over a share of the columns; V lies vector by vector."""
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    start = tl.program_id(1) * share
    vectors = tl.arange(0, WIDE)
    total = tl.zeros((ROWS, WIDE), dtype=OUT.dtype.element_ty)
    for at in range(start, tl.minimum(start + share, n), COLUMNS):
        j = at + tl.arange(0, COLUMNS)
        k = value(squares(A, B, i, j, m, n, D), PROFILE)
        for q in tl.static_range(Q):
            v = tl.load(V + q * n + j, mask=j < n, other=0.0)
            part = tl.sum(k * v[None, :], axis=1)
            total += tl.where(vectors[None, :] == q, part[:, None], 0.0)
    out = (tl.program_id(1).to(tl.int64) * m + i)[:, None] * Q + vectors[None, :]
    tl.store(OUT + out, total, mask=(i[:, None] < m) & (vectors[None, :] < Q))
