"""Number formats: tried in a child process before use; what half precision would destroy never sees it."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from lightning.pytorch import Trainer
from torch import Tensor

from benchmark import precision
from benchmark.conformance.case import RECIPE
from benchmark.conformance.probe import Probe
from benchmark.errors import UsageError
from benchmark.precision import check_precision
from benchmark.seeds import seed_all
from benchmark.trainer import Encodings, TrainerOptions, fit
from methods.base import Method
from methods.functional.cca import StreamingCCA, canonical_correlations, dcca_loss
from methods.functional.coordination import clip_loss
from methods.functional.fusion import tensor_sketch
from methods.functional.gaussian import gaussian_expectation
from methods.functional.paraboloid import paraboloid_expectation
from methods.parts.energy_attention import DenoisingAutoencoder, EnergyAttention
from methods.registry import methods


@pytest.fixture(scope="module")
def half() -> None:
    """A CPU that bf16 kills must not take the test process with it."""
    problem = precision._problem("bf16-mixed", "cpu")
    if problem is not None:
        pytest.skip(f"needs a GPU, or a CPU that survives bf16 products: {problem}")


HALF = pytest.mark.usefixtures("half")


@pytest.fixture(autouse=True)
def forget() -> None:
    precision._problem.cache_clear()


def rows(width: int, seed: int) -> Tensor:
    return torch.randn(64, width, generator=torch.Generator().manual_seed(seed))


def sketch() -> Tensor:
    generator = torch.Generator().manual_seed(1)
    hashes = [torch.randint(16, (6,), generator=generator) for _ in range(2)]
    signs = [torch.randint(2, (6,), generator=generator) * 2.0 - 1 for _ in range(2)]
    return tensor_sketch([rows(6, 1), rows(6, 2)], hashes, signs, 16)


def streamed() -> Tensor:
    moments = StreamingCCA().partial_fit(rows(4, 1), rows(5, 2))
    return moments.finalize(3, [1e-3, 1e-3]).correlations


def potentials() -> Tensor:
    torch.manual_seed(0)
    return DenoisingAutoencoder(6, 8).potential(rows(6, 1))


def importances() -> Tensor:
    torch.manual_seed(0)
    z = torch.stack([rows(6, 1), rows(6, 2)], dim=1)
    return EnergyAttention(2, 6).attend(z, torch.ones(z.shape[:2], dtype=torch.bool)).log_alpha


def integrals(expectation: Callable[..., Tensor]) -> Tensor:
    mu, cov = rows(2, 1).sigmoid(), torch.eye(2) * 0.01 + 0.001
    return expectation(mu, cov.expand(64, 2, 2), rows(2, 2)[:9].sigmoid(), torch.eye(2).expand(9, 2, 2) * 0.002)


ISLANDS: dict[str, Callable[[], Tensor]] = {
    "Fourier sketch": sketch,
    "canonical correlations": lambda: canonical_correlations(rows(4, 1), rows(5, 2), 1e-3),
    "deep CCA": lambda: dcca_loss(rows(4, 1), rows(5, 2), 1e-3),
    "streaming CCA": streamed,
    "InfoNCE": lambda: clip_loss(rows(6, 1), rows(6, 2), 20.0),
    "energy": potentials,
    "importance": importances,
    "Gaussian integrals": lambda: integrals(gaussian_expectation),
    "paraboloid integrals": lambda: integrals(paraboloid_expectation),
}


@HALF
@pytest.mark.parametrize("name", ISLANDS)
def test_islands_stay_in_full_precision(name: str) -> None:
    """Under autocast they give, in float32 or float64, the number they give without."""
    expected = ISLANDS[name]()
    with torch.autocast("cpu", torch.bfloat16):
        product = rows(6, 1) @ rows(6, 2).T
        found = ISLANDS[name]()
    assert product.dtype == torch.bfloat16  # autocast was on
    assert found.dtype in (torch.float32, torch.float64)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)


@HALF
@pytest.mark.parametrize("name", ["continuous_softmax", "continuous_sparsemax", "mixture_attention"])
def test_densities_are_fitted_in_full_precision(name: str) -> None:
    """From the same probabilities, autocast or not, the same weights of the tokens."""
    datamodule = Probe(shape="image_text")
    seed_all("precision", 0)
    method = methods.get(name)(datamodule.task, RECIPE).train(False)
    batch = datamodule.ordered("train").take(slice(0, 16))
    half = {n: t._replace(x=t.x.bfloat16()) for n, t in method.tokenize(batch.inputs, batch.present).items()}
    full = {n: t._replace(x=t.x.float()) for n, t in half.items()}
    exact = {n: a.weights for n, a in method.attention(full, batch.present).items()}
    with torch.autocast("cpu", torch.bfloat16):
        found = {n: a.weights for n, a in method.attention(half, batch.present).items()}
    for modality, weights in exact.items():
        assert found[modality].dtype == torch.float32
        # The scores differ by their rounding; weights computed in bf16 would not even sum to one number's digits.
        torch.testing.assert_close(found[modality], weights, atol=2e-2, rtol=0)
        close = (found[modality].sum(dim=-1) - weights.sum(dim=-1)).abs().max()
        assert float(close.detach()) < 2e-3


def step(method: Method, datamodule: Probe) -> None:
    """One step of every stage, under autocast as Lightning's mixed precision has it."""
    batch = datamodule.ordered("train").take(slice(0, 64))
    for stage in method.stages():
        with stage.method.in_stage(stage):
            if stage.solve is not None:
                with torch.no_grad():
                    stage.solve(Encodings(stage.method, datamodule.ordered("train")))
                continue
            stage.method.train()
            given = batch if stage.augment is None else stage.augment(batch, 1)
            with torch.autocast("cpu", torch.bfloat16):
                out = stage.method(given.inputs, given.present)
                terms = stage.method.objective(out, given)
                loss = torch.stack([t.float() for t in terms.values()]).sum()
            loss.backward()
            assert torch.isfinite(loss), stage.name
            for parameter, p in stage.method.named_parameters():
                assert p.grad is None or bool(p.grad.isfinite().all()), f"{stage.name}: {parameter}"


@HALF
@pytest.mark.parametrize("name", methods.names())
def test_every_method_takes_a_step_in_mixed_precision(name: str) -> None:
    cls: type[Method] = methods.get(name)
    for shape in ("images", "image_text", "zero_shot"):
        datamodule = Probe(shape=shape)
        options = cls.variants(datamodule.task)[0]
        if cls.applies_to(datamodule.task, options) is None:
            seed_all("precision", 0)
            step(cls(datamodule.task, RECIPE, **options), datamodule)
            return
    pytest.fail(f"{name} was never tried: it applies to none of the probes")


@HALF
@pytest.mark.parametrize("chosen", ["bf16-mixed", "64-true"])
def test_a_method_trains_in_the_precision_it_was_given(chosen: str) -> None:
    datamodule = Probe()
    seed_all("precision", 0)
    method = methods.get("concat")(datamodule.task, RECIPE)
    seen = set()
    method.encoders.register_forward_hook(lambda module, inputs, out: seen.add(out["a"].x.dtype))
    fit(method, datamodule, options=TrainerOptions(accelerator="cpu", precision=chosen))
    weights = {p.dtype for p in method.parameters()}
    assert weights == {torch.float64 if chosen == "64-true" else torch.float32}
    assert seen <= {torch.float64} if chosen == "64-true" else torch.bfloat16 in seen
    batch = datamodule.ordered("test").take(slice(0, 4))
    assert method(batch.inputs, batch.present).logits.isfinite().all()


def test_the_formats_that_need_no_trial_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "_try", lambda *_: pytest.fail("tried"))
    check_precision("32-true", "cpu")
    check_precision("64-true", "cuda")
    with pytest.raises(UsageError, match=r"64-true.*mps.*float64"):
        check_precision("64-true", "mps")
    with pytest.raises(UsageError, match=r"16-mixed.*cpu.*bf16-mixed"):  # Lightning would take bf16 without a word
        check_precision("16-mixed", "cpu")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "SIGILL"),
        ("raise RuntimeError('no such kernel')", "no such kernel"),
    ],
)
def test_what_kills_the_child_is_one_error(
    code: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is found out once per process."""
    script = tmp_path / "step.py"
    script.write_text(code)
    monkeypatch.setattr(precision, "__file__", str(script))
    tried = []
    run = subprocess.run
    monkeypatch.setattr(precision.subprocess, "run", lambda *a, **k: tried.append(a) or run(*a, **k))
    for _ in range(2):
        with pytest.raises(UsageError, match=f"bf16-mixed.*cpu.*{said}"):
            check_precision("bf16-mixed", "cpu")
    assert len(tried) == 1 and tried[0][0][0] == sys.executable


def test_a_matrix_names_the_precisions_there_are() -> None:
    with pytest.raises(ValueError, match="`precision` must be one of") as error:
        TrainerOptions(precision="bf16")  # pyright: ignore[reportArgumentType]
    assert all(repr(known) in str(error.value) for known in get_args(precision.Precision))


@pytest.mark.filterwarnings("ignore:You passed .*16-mixed")
@pytest.mark.parametrize("known", get_args(precision.Precision))
def test_every_precision_is_one_of_lightnings(known: Any) -> None:
    assert Trainer(accelerator="cpu", precision=known, logger=False).precision[:2] in ("32", "64", "bf")
