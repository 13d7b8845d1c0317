"""Continuous sparsemax, forward and backward, against the published algorithm: 100 times faster and no less exact.

Run by `make performance`. The published algorithm is written here from the thesis (chapter 4, appendix A.4), with the
loops and shapes of the authors' code: a Python loop over 100 angles, batched 2x2 products per RBF inside, one such loop
in the forward pass and three in the backward pass, and the angle grid that counts its endpoint twice.
"""

import math
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from methods.functional.attention import cell_centers, grid_paraboloid_expectation, moments, rbf_axes, tensor_grid

BATCH, GRID, RBFS, VAR, ANGLES = 64, (14, 14), (10, 10), 0.001, 100
REQUIRED = 100.0


def _normal(x: Tensor) -> Tensor:
    return torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


class Published:
    """The integrals of one density against N RBFs, by a loop over angles; shapes `[B, N, 2, 2]` as published."""

    def __init__(self, mu: Tensor, sigma: Tensor, centers: Tensor, covs: Tensor) -> None:
        self.mu = mu
        self.lam = -torch.sqrt(1 / (math.pi * torch.sqrt(sigma.det())))[..., None, None]  # Eq. 3.15
        det = torch.sqrt(sigma.det())[..., None, None]
        trace = sigma.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
        root = (sigma + det * torch.eye(2)) / torch.sqrt(trace + 2 * det)
        self.scaled_root = torch.sqrt(-2 * self.lam) * root
        inverse = self.scaled_root.inverse()
        self.center = inverse @ (centers[None, :, :, None] - mu)  # mu~, [B, N, 2, 1]
        self.spread = inverse @ covs @ inverse  # Sigma~
        self.angles = torch.linspace(0, 2 * math.pi, ANGLES)

    def _radius(self, angle: Tensor) -> tuple[Tensor, ...]:
        a = torch.stack([angle.cos(), angle.sin()])[:, None]
        inverse = self.spread.inverse()
        variance = 1 / (a.T @ inverse @ a)
        r0 = variance * (a.T @ inverse @ self.center)
        projector = inverse - variance * (inverse @ a @ a.T @ inverse)
        weight = torch.sqrt(variance / (2 * math.pi * self.spread.det()[..., None, None]))
        weight = weight * torch.exp(-0.5 * self.center.mT @ projector @ self.center)
        sigma = variance.sqrt()
        low, high = -r0 / sigma, (1 - r0) / sigma
        mass = 0.5 * (torch.erf(high / math.sqrt(2)) - torch.erf(low / math.sqrt(2)))
        return a, sigma, r0, weight, mass, _normal(low), _normal(high)

    def _sum(self, integrand: Callable[[Tensor], Tensor]) -> Tensor:
        values = torch.stack([integrand(angle) for angle in self.angles])
        return 2 * math.pi * values.mean(dim=0)

    def expectation(self) -> Tensor:
        def integrand(angle: Tensor) -> Tensor:  # Eq. A.22
            _, s, r0, weight, mass, low, high = self._radius(angle)
            inner = high * (2 * s**3 + s * (r0**2 + r0)) + low * (-2 * s**3 - s * (r0**2 - 1))
            return -self.lam * weight * (inner - mass * (r0**3 + (3 * s**2 - 1) * r0))

        return self._sum(integrand)[..., 0, 0]

    def mass(self) -> Tensor:
        def integrand(angle: Tensor) -> Tensor:  # Eq. A.34
            _, s, r0, weight, mass, low, high = self._radius(angle)
            return weight * (s * (low - high) + r0 * mass)

        return self._sum(integrand)

    def first(self) -> Tensor:
        def integrand(angle: Tensor) -> Tensor:  # Eq. A.31
            a, s, r0, weight, mass, low, high = self._radius(angle)
            b = self.scaled_root @ a
            ends = (b * r0 + self.mu) * s * low - (b * (1 + r0) + self.mu) * s * high
            return weight * (ends + (b * (s**2 + r0**2) + self.mu * r0) * mass)

        return self._sum(integrand)

    def second(self) -> Tensor:
        def integrand(angle: Tensor) -> Tensor:  # Eq. A.40
            a, s, r0, weight, mass, low, high = self._radius(angle)
            b = self.scaled_root @ a
            quadratic, linear, constant = b @ b.mT, b @ self.mu.mT + self.mu @ b.mT, self.mu @ self.mu.mT
            cubic, square = s**3 * quadratic, s**2 * (3 * r0 * quadratic + linear)
            line = s * (3 * r0**2 * quadratic + 2 * r0 * linear + constant)
            rest = r0**3 * quadratic + r0**2 * linear + r0 * constant
            left, right = -r0 / s, (1 - r0) / s
            ends = ((2 + left**2) * cubic + left * square + line) * low
            ends = ends - ((2 + right**2) * cubic + right * square + line) * high
            return weight * (ends + (square + rest) * mass)

        return self._sum(integrand)

    def jacobian(self, sigma: Tensor) -> Tensor:
        """cov_{p,0}(phi, psi), `[B, N, 6]` (Eq. A.24-A.26)."""
        mass = self.mass()
        area = math.pi * torch.sqrt((-2 * self.lam * sigma).det())[..., None, None]
        by_mean = self.first() - self.mu * mass
        by_square = self.second() - (self.mu @ self.mu.mT + sigma / area) * mass
        return torch.cat([by_mean[..., 0], by_square.flatten(-2)], dim=-1)


class PublishedFunction(torch.autograd.Function):
    """theta -> r, with the published Jacobian."""

    @staticmethod
    def forward(ctx: Any, theta: Tensor, centers: Tensor, covs: Tensor) -> Tensor:
        sigma = (-2 * theta[:, 2:].view(-1, 1, 2, 2)).inverse()
        sigma = 0.5 * (sigma + sigma.mT)
        mu = sigma @ theta[:, :2].view(-1, 1, 2, 1)
        ctx.save_for_backward(mu, sigma, centers, covs)
        return Published(mu, sigma, centers, covs).expectation()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        mu, sigma, centers, covs = ctx.saved_tensors
        jacobian = Published(mu, sigma, centers, covs).jacobian(sigma)
        return (grads[0].unsqueeze(-1) * jacobian).sum(1), None, None


def published(scores: Tensor) -> Tensor:
    """Scores to expectations as published: moments, Sigma from the variance (Eq. 4.6), theta, angular sums."""
    points = cell_centers(GRID).to(scores.dtype)
    mu, var = moments(points, scores.softmax(-1))
    sigma = 9 * math.pi * torch.sqrt(var.det())[:, None, None] * var
    inverse = sigma.inverse()
    theta = torch.cat([(inverse @ mu[..., None])[..., 0], -0.5 * inverse.flatten(1)], dim=-1)
    centers = tensor_grid(rbf_axes(RBFS)).to(scores.dtype)
    covs = (VAR * torch.eye(2, dtype=scores.dtype)).expand(len(centers), 2, 2)
    return PublishedFunction.apply(theta, centers, covs)  # type: ignore[return-value]


def ours(scores: Tensor, nodes: int = 64) -> Tensor:
    """Scores to expectations by the chord rule."""
    mu, cov = moments(cell_centers(GRID), scores.softmax(-1))
    axis_x, axis_y = rbf_axes(RBFS)
    return grid_paraboloid_expectation(mu, cov, axis_x, axis_y, VAR, nodes)


def run(rule: Callable[[Tensor], Tensor], scores: Tensor, probe: Tensor) -> tuple[float, Tensor, Tensor]:
    """One forward and backward pass: process seconds, value, gradient of the scores."""
    scores = scores.detach().requires_grad_()
    start = time.process_time()
    r = rule(scores)
    (grad,) = torch.autograd.grad(r, scores, probe)
    return time.process_time() - start, r.detach(), grad


def error(got: Tensor, want: Tensor) -> float:
    """Largest deviation relative to the largest value."""
    return ((got.double() - want).abs().max() / want.abs().max()).item()


def main(repeats: int = 5) -> int:
    """Print the ratio and the errors; 0 when the bound holds."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    centre = torch.rand(BATCH, 1, 2, generator=generator)
    distance = ((cell_centers(GRID).float() - centre) ** 2).sum(-1)
    width = 0.05 + 0.25 * torch.rand(BATCH, 1, generator=generator)
    scores = -0.5 * distance / width**2 + 0.3 * torch.randn(BATCH, GRID[0] * GRID[1], generator=generator)
    probe = torch.randn(BATCH, RBFS[0] * RBFS[1], generator=generator)
    _, exact, exact_grad = run(lambda z: ours(z, nodes=512), scores.double(), probe.double())
    run(ours, scores, probe)  # warm up
    old_times, new_times = [], []
    for _ in range(repeats):
        seconds, old, old_grad = run(published, scores, probe)
        old_times.append(seconds)
        samples = [run(ours, scores, probe) for _ in range(10)]
        new_times.append(statistics.median(s for s, _, _ in samples))
        _, new, new_grad = samples[-1]
    ratio = statistics.median(o / n for o, n in zip(old_times, new_times, strict=True))
    old_error, new_error = error(old, exact), error(new, exact)
    old_grad_error, new_grad_error = error(old_grad, exact_grad), error(new_grad, exact_grad)
    for name, times, *errors in (
        ("published", old_times, old_error, old_grad_error),
        ("chord", new_times, new_error, new_grad_error),
    ):
        ms = 1e3 * statistics.median(times)
        print(f"{name:10s} {ms:8.2f} ms, error {errors[0]:.1e}, gradient {errors[1]:.1e}")
    print(f"ratio {ratio:.0f} (required {REQUIRED:.0f})")
    exact_enough = new_error <= old_error and new_grad_error <= old_grad_error
    return 0 if ratio >= REQUIRED and exact_enough else 1


if __name__ == "__main__":
    sys.exit(main())
