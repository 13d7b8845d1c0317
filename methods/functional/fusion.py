"""Fusion of M >= 2 modalities: additive, multiplicative, polynomial, tensor, low-rank, gated, compact bilinear.

Inputs `xs` are M tensors `[..., d_m]` with equal leading dimensions, a bias is `[O]` or None, and every map returns
`[..., O]`. `z_m = [1, x_m]` is an input with the constant in coordinate 0. Weights of multilinear maps are stored
`[D_1, .., D_M, O]`, row-major, so that flattening them matches the Kronecker product of the inputs without a copy. An
absent modality is a zero input: every map then reduces exactly to the lower-order terms of the modalities that are
present; only gates need to be told.

Products of features leave the range of float16 quickly (range ** M). Half-precision inputs are therefore computed in
float32 and autocast is switched off inside; the result has the inputs' dtype, or float32 under autocast, as with
PyTorch's own float32 operations.
"""

# Not every function of torch says what it returns.
# pyright: reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

import contextlib
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, ParamSpec

import torch
from torch import Tensor, nn
from torch.nn import functional as F

P = ParamSpec("P")
Gate = Literal["sigmoid", "softmax", "hard"]
_HALF = (torch.float16, torch.bfloat16)


def _widen(value: Any) -> Any:
    """Cast half-precision tensors to float32, also inside the sequences and mappings of the signatures below."""
    if isinstance(value, Tensor):
        return value.float() if value.dtype in _HALF else value
    if isinstance(value, Mapping):
        return {key: _widen(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_widen(item) for item in value]
    return value


def full_precision(function: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """Run a product of features in at least float32, whatever autocast says; the first argument sets the dtype."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        first: Any = args[0] if args else next(iter(kwargs.values()))
        lead: Tensor = first if isinstance(first, Tensor) else first[0]
        device = lead.device.type
        # Asked first, because a device without autocast (meta) makes the second question an error.
        autocast = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
        if lead.dtype not in _HALF and not autocast:
            return function(*args, **kwargs)
        run: Any = function
        wide = [_widen(value) for value in args]
        named = {key: _widen(value) for key, value in kwargs.items()}
        with torch.autocast(device, enabled=False) if autocast else contextlib.nullcontext():
            out = run(*wide, **named)
        return out if autocast else out.to(lead.dtype)

    return wrapped


def _require_same_rows(xs: Sequence[Tensor]) -> None:
    if any(x.shape[:-1] != xs[0].shape[:-1] for x in xs):
        shapes = ", ".join(str(tuple(x.shape)) for x in xs)
        raise ValueError(f"Expected modalities with equal leading dimensions, but got shapes {shapes}.")


def _product(factors: Sequence[Tensor]) -> Tensor:
    # Not torch.prod: its backward divides by the factors and takes a slow path as soon as one of them is zero.
    return functools.reduce(torch.mul, factors)


def _contract(x: Tensor, t: Tensor) -> Tensor:
    """Sum over the leading feature axis of `t`, row by row: `[B, d], [B, d * n] -> [B, n]`."""
    return torch.bmm(x.unsqueeze(1), t.reshape(len(x), x.shape[1], -1)).squeeze(1)


@full_precision
def additive(xs: Sequence[Tensor], weights: Sequence[Tensor], bias: Tensor | None = None) -> Tensor:
    """Sum of linear maps, `z = sum_m W_m x_m + b`, with `weights[m]` `[O, d_m]`: one `Linear` on the concatenation."""
    _require_same_rows(xs)
    return F.linear(torch.cat(list(xs), dim=-1), torch.cat(list(weights), dim=-1), bias)


@full_precision
def hadamard(xs: Sequence[Tensor], weights: Sequence[Tensor], biases: Sequence[Tensor] | None = None) -> Tensor:
    """Element-wise product of projections, `z = prod_m (P_m x_m + c_m)`, with `weights[m]` `[O, d_m]`.

    Without `biases` (`[O]` each) one absent modality makes the whole product zero.
    """
    _require_same_rows(xs)
    constants = [None] * len(xs) if biases is None else biases
    return _product([F.linear(x, w, c) for x, w, c in zip(xs, weights, constants, strict=True)])


@full_precision
def bilinear(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Bilinear map `z_o = x^T W_o y + b_o`, `weight` `[d_x, d_y, O]`: `W.reshape(-1, O)^T kron(x, y) + b`.

    One matrix product and one batched contraction; `torch.nn.functional.bilinear` is 40 times slower on a CPU.
    """
    return pairwise([x, y], {(0, 1): weight}, bias)


@full_precision
def pairwise(
    xs: Sequence[Tensor], pair_weights: Mapping[tuple[int, int], Tensor], bias: Tensor | None = None
) -> Tensor:
    """Sum of bilinear maps over pairs of modalities, `z_o = sum_{i<j} x_i^T W_{ij,o} x_j + b_o`.

    `pair_weights` holds `(i, j)`, i < j, to `[d_i, d_j, O]`; pairs may be left out, but not all of them.
    """
    _require_same_rows(xs)
    lead = xs[0].shape[:-1]
    rows = [x.reshape(-1, x.shape[-1]) for x in xs]
    out: Tensor | None = None
    for j in sorted({second for _, second in pair_weights}):
        # x_j is contracted once, after the sum over its partners i: sum_i (x_i W_ij), then with x_j.
        parts = [rows[i] @ w.reshape(w.shape[0], -1) for (i, second), w in pair_weights.items() if second == j]
        term = _contract(rows[j], functools.reduce(torch.add, parts))
        out = term if out is None else out + term
    if out is None:
        raise ValueError("Expected argument `pair_weights` to hold at least one pair, but got none.")
    out = out if bias is None else out + bias
    return out.reshape(*lead, -1)


@full_precision
def polynomial2(
    xs: Sequence[Tensor],
    weights: Sequence[Tensor],
    pair_weights: Mapping[tuple[int, int], Tensor],
    bias: Tensor | None,
) -> Tensor:
    """Polynomial of order 2: the terms of `additive` and those of `pairwise`."""
    return additive(xs, weights, bias) + pairwise(xs, pair_weights)


def with_one(x: Tensor) -> Tensor:
    """Append the constant: `z = [1, x]`, coordinate 0."""
    return F.pad(x, (1, 0), value=1.0)


def split_point(dims: Sequence[int], outputs: int) -> int:
    """How many leading modalities tensor fusion multiplies out before its matrix product.

    The s in 1..M-1 with the smallest intermediate, `prod_{m<=s} D_m + O prod_{m>s} D_m`, for `dims` D_m.
    """
    cuts = range(1, max(len(dims), 2))
    return min(cuts, key=lambda s: math.prod(dims[:s]) + math.prod(dims[s:]) * outputs)


@full_precision
def tensor_fusion(xs: Sequence[Tensor], weight: Tensor) -> Tensor:
    """Tensor fusion `h_o = <W_o, z_1 (x) .. (x) z_M>` without the outer product; `weight` `[D_1, .., D_M, O]`.

    Split-GEMM: the outer product of a prefix of the modalities, one matrix product with the weight, then a batched
    contraction of each remaining modality. Same arithmetic as the outer product, a fraction of its memory.
    """
    _require_same_rows(xs)
    dims = tuple(x.shape[-1] + 1 for x in xs)
    if tuple(weight.shape[:-1]) != dims:
        raise ValueError(f"Expected argument `weight` of shape {(*dims, 'O')}, but got {tuple(weight.shape)}.")
    lead = xs[0].shape[:-1]
    zs = [with_one(x.reshape(-1, x.shape[-1])) for x in xs]
    s = split_point(dims, weight.shape[-1])
    # Rows last, [P_S, B]: autograd then orders the gradient of this factor as W @ G^T, the faster matrix product.
    prefix = zs[0].t().contiguous()
    for z in zs[1:s]:
        prefix = (prefix.unsqueeze(1) * z.t().contiguous()).flatten(0, 1)
    t = prefix.t() @ weight.reshape(len(prefix), -1)
    for z in zs[s:]:
        t = _contract(z, t)
    return t.reshape(*lead, -1)


def affine_factors(linear: nn.Linear, *shape: int) -> Tensor:
    """The factors `[*shape, 1 + d, O]` of a CP form that one `Linear` holds; its bias belongs to the constant."""
    weight, bias = linear.weight.view(*shape, -1, linear.in_features), linear.bias.view(*shape, 1, -1)
    return torch.cat([bias, weight.mT], dim=-2)


def _project(x: Tensor, factors: Tensor) -> Tensor:
    """`<u, [1, x]>` for all factors `[*shape, 1 + d, O]` in one matrix product: `[..., *shape, O]`."""
    # The constant's slice is the bias of a linear map, so the 1 is never appended.
    weight, bias = factors[..., 1:, :].mT.reshape(-1, x.shape[-1]), factors[..., 0, :].flatten()
    return F.linear(x, weight, bias).unflatten(-1, (*factors.shape[:-2], -1))


@full_precision
def low_rank(xs: Sequence[Tensor], factors: Sequence[Tensor], rank_weights: Tensor, bias: Tensor | None) -> Tensor:
    """Low-rank tensor fusion, `h_o = b_o + sum_r w_r prod_m <u_{m,r,o}, z_m>`.

    Equal to `tensor_fusion` with `W[i_1, .., i_M, o] = sum_r w_r prod_m U_m[r, i_m, o]`.

    Args:
        xs: See the module.
        factors: M tensors `[r, d_m + 1, O]`; the slice `[:, 0]` belongs to the appended constant.
        rank_weights: `[r]`.
        bias: See the module.
    """
    _require_same_rows(xs)
    product = _product([_project(x, u) for x, u in zip(xs, factors, strict=True)])
    out = (product * rank_weights.unsqueeze(-1)).sum(dim=-2)
    return out if bias is None else out + bias


@full_precision
def polynomial(xs: Sequence[Tensor], factors: Tensor) -> Tensor:
    """Polynomial of order P in CP form, `h_o = sum_r prod_p <a_{p,r,o}, [1, x_1, .., x_M]>`.

    Contains every monomial of total degree <= P, squares within one modality included. `factors` is
    `[P, r, 1 + sum d, O]`.
    """
    _require_same_rows(xs)
    parts = _project(torch.cat(list(xs), dim=-1), factors)
    return _product(parts.unbind(dim=-3)).sum(dim=-2)


def gates(logits: Tensor, kind: Gate, present: Tensor | None = None, dim: int = -1) -> Tensor:
    """Weight of every modality, along `dim`, from its gate logit.

    Args:
        logits: Any shape.
        kind: "sigmoid" (independent), "softmax" (convex combination) or "hard" (one-hot of the largest logit).
        present: Broadcastable to `logits`; an absent modality gets weight 0 and the others share the rest.
        dim: The axis of the modalities.
    """
    if kind not in ("sigmoid", "softmax", "hard"):
        raise ValueError(f'Expected argument `kind` to be "sigmoid", "softmax" or "hard", but got {kind!r}.')
    # -inf rather than a large negative number: an absent modality must get exactly zero weight.
    logits = logits if present is None else logits.masked_fill(~present, -torch.inf)
    if kind == "sigmoid":
        return logits.sigmoid()
    if kind == "softmax":
        return logits.softmax(dim)
    winner = logits.argmax(dim, keepdim=True)
    return torch.zeros_like(logits).scatter(dim, winner, 1.0)


@full_precision
def weighted_sum(values: Tensor, weights: Tensor) -> Tensor:
    """`[..., M, O]` summed over M with weights `[..., M]`, or `[..., M, O]` for one per feature."""
    weights = weights.unsqueeze(-1) if weights.dim() == values.dim() - 1 else weights
    return (weights.to(values.dtype) * values).sum(dim=-2)


@full_precision
def gated(values: Sequence[Tensor], logits: Tensor, kind: Gate, present: Tensor | None = None) -> Tensor:
    """Gated sum `z = sum_m g_m * v_m` of M values `[..., O]`.

    Args:
        values: See above.
        logits: `[..., M]`, one weight per modality, or `[..., M, O]`, one per feature.
        kind: See `gates`. "hard" is the deterministic argmax; how to train it is the method's business.
        present: `[..., M]` bool or None.
    """
    _require_same_rows(values)
    v = torch.stack(list(values), dim=-2)
    logits = logits.unsqueeze(-1) if logits.dim() == v.dim() - 1 else logits
    return weighted_sum(v, gates(logits, kind, None if present is None else present.unsqueeze(-1), dim=-2))


def count_sketch(x: Tensor, h: Tensor, s: Tensor, m: int) -> Tensor:
    """Count sketch `[..., m]`, `CS(x)_k = sum_{i: h(i)=k} s(i) x_i`, with buckets `h` in 0..m-1 and signs `s` `[d]`."""
    return x.new_zeros(*x.shape[:-1], m).index_add(-1, h, x * s.to(x.dtype))


@full_precision
def tensor_sketch(xs: Sequence[Tensor], hashes: Sequence[Tensor], signs: Sequence[Tensor], m: int) -> Tensor:
    """Count sketch `[..., m]` of `x_1 (x) .. (x) x_M` as a circular convolution of the M sketches.

    The same as chaining `compact_bilinear`, the running result entering the next step as it is. The sketches must be
    independent of each other: shared ones are biased as soon as inputs are correlated.
    """
    _require_same_rows(xs)
    sketches = [count_sketch(x, h, s, m) for x, h, s in zip(xs, hashes, signs, strict=True)]
    # n=m: irfft assumes an even length otherwise.
    return torch.fft.irfft(_product([torch.fft.rfft(sketch) for sketch in sketches]), n=m)


@full_precision
def compact_bilinear(x: Tensor, y: Tensor, h1: Tensor, h2: Tensor, s1: Tensor, s2: Tensor, m: int) -> Tensor:
    """Compact bilinear pooling: the count sketch of `vec(x y^T)` with `h = (h1 + h2) mod m`, `s = s1 s2`.

    Its inner products are unbiased, `E <psi(x, y), psi(x', y')> = <x, x'> <y, y'>`. Nothing is normalised.
    """
    return tensor_sketch([x, y], [h1, h2], [s1, s2], m)


def signed_sqrt(x: Tensor, eps: float = 1e-8) -> Tensor:
    """`sign(x) sqrt(|x|)`; eps keeps the gradient finite at zero."""
    # `sign(x) sqrt(|x| + eps)` jumps at zero by 2e-4: the empty buckets of a sketch hold the FFT's rounding.
    return x / (x.abs() + eps).sqrt()
