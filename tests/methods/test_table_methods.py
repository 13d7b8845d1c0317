"""Linear models and boosted trees: scikit-learn's answers, from tensors."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from torch import Tensor

from benchmark.conformance.probe import Probe
from benchmark.trainer import fit
from datamodules.spec import Modality, Task
from methods import Base, Method, Recipe, methods
from methods.parts.table import Columns

RECIPE = Recipe(width=8, epochs=2, batch_size=64)


def arrays(data: Probe, split: Any) -> tuple[np.ndarray, np.ndarray]:
    part = data.splits[split]
    return np.concatenate([part.inputs[n][:] for n in data.task.names], axis=1).astype(np.float64), part.target.numpy()


def in_units(data: Probe, split: Any) -> np.ndarray:
    """Each modality less its training mean, in the root mean square deviation of its columns."""
    blocks = []
    for name in data.task.names:
        train, x = (data.splits[part].inputs[name][:].double().numpy() for part in ("train", split))
        varied = train[:, train.std(axis=0) > 0]
        blocks.append((x - train.mean(axis=0)) / np.sqrt(varied.var(axis=0).mean()))
    return np.concatenate(blocks, axis=1)


def fitted(name: str, data: Probe, **options: Any) -> Method:
    method = methods.get(name)(data.task, RECIPE, **options)
    (report,) = fit(method, data)
    assert report.converged and report.steps == 0
    return method.train(False)


def logits(method: Method, data: Probe, present: Tensor | None = None) -> Tensor:
    part = data.splits["test"]
    inputs = {name: part.inputs[name][:] for name in data.task.names}
    return method(inputs, torch.ones(64, 2, dtype=torch.bool) if present is None else present).logits


@pytest.mark.parametrize("strength", [1e-3, 0.1])
def test_linear_is_scikit_learns_logistic_regression(strength: float) -> None:
    data = Probe()
    x, test, y = in_units(data, "train"), in_units(data, "test"), data.splits["train"].target.numpy()
    wanted = LogisticRegression(C=1 / (strength * len(x)), tol=1e-6, max_iter=500).fit(x, y).predict_proba(test)
    found = logits(fitted("linear", data, strength=strength), data).softmax(dim=1).numpy()
    assert np.abs(found - wanted).max() < 1e-6


def test_linear_is_scikit_learns_ridge() -> None:
    data = Probe(shape="regression")
    x, test, y = in_units(data, "train"), in_units(data, "test"), data.splits["train"].target.numpy()
    model = Ridge(alpha=0.1 * len(x)).fit(x, y)
    found = logits(fitted("linear", data, strength=0.1), data).numpy()
    np.testing.assert_allclose(found, model.predict(test).reshape(64, 1), atol=1e-5)


def test_each_label_has_a_logistic_regression_of_its_own() -> None:
    data = Probe(shape="multilabel")  # no training row has the fourth
    x, test, y = in_units(data, "train"), in_units(data, "test"), data.splits["train"].target.numpy()
    found = logits(fitted("linear", data, strength=0.1), data).sigmoid().numpy()
    for label in range(3):
        model = LogisticRegression(C=1 / (0.1 * len(x)), tol=1e-6).fit(x, y[:, label])
        assert np.abs(found[:, label] - model.predict_proba(test)[:, 1]).max() < 1e-6
    assert found[:, 3].max() < 1e-6


def rescaled(data: Probe, factors: np.ndarray) -> Probe:
    """The same rows, the columns of the first modality times `factors`."""
    for part in data.splits.values():
        x = part.inputs["a"]
        assert isinstance(x, Tensor)
        x.mul_(torch.from_numpy(factors).float())
    return data


def test_a_modality_has_one_unit_and_its_columns_keep_their_sizes() -> None:
    plain = logits(fitted("linear", Probe(), strength=0.1), Probe())
    louder = rescaled(Probe(), np.full(5, 1000.0))
    torch.testing.assert_close(logits(fitted("linear", louder, strength=0.1), louder), plain, atol=1e-4, rtol=1e-4)
    uneven = rescaled(Probe(), np.array([0.01, 1, 1, 1, 1]))  # its signal as quiet as that of a rare word
    assert (logits(fitted("linear", uneven, strength=0.1), uneven) - plain).abs().max() > 0.1


def test_a_constant_column_does_not_change_the_unit_of_its_modality() -> None:
    data = rescaled(Probe(), np.array([1.0, 0, 0, 0, 0]))
    scale = fitted("linear", data, strength=0.1).get_buffer("scale")
    varied = data.splits["train"].inputs["a"][:][:, 0]
    torch.testing.assert_close(scale[:5], varied.std(correction=0).expand(5))


def test_the_strength_is_chosen_on_held_out_rows() -> None:
    data = Probe()
    chosen, weak, strong = (fitted("linear", data, strength=s) for s in (None, 1e-4, 100.0))
    target = data.splits["test"].target
    losses = [torch.nn.functional.cross_entropy(logits(m, data), target).item() for m in (chosen, weak, strong)]
    assert losses[0] < min(losses[1:]), "it overfits with too little, and says nothing with too much"


def test_an_absent_modality_is_its_training_mean_to_linear() -> None:
    data = Probe()
    method = fitted("linear", data)
    gone = torch.ones(64, 2, dtype=torch.bool)
    gone[:, 1] = False
    part = data.splits["test"]
    mean = data.splits["train"].inputs["b"][:].mean(dim=0).expand(64, -1)
    at_mean = method({"a": part.inputs["a"][:], "b": mean}).logits
    torch.testing.assert_close(logits(method, data, gone), at_mean, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("shape", ["vectors", "regression"])
def test_boosting_is_scikit_learns_tree_by_tree(shape: str) -> None:
    data = Probe(shape=shape)
    (x, y), (test, _) = arrays(data, "train"), arrays(data, "test")
    kind = HistGradientBoostingRegressor if shape == "regression" else HistGradientBoostingClassifier
    options: dict[str, Any] = {"max_iter": 30, "max_leaf_nodes": 7, "early_stopping": True, "random_state": 0}
    model: Any = kind(learning_rate=0.1, **options)
    model.fit(x, np.ravel(y))
    method = fitted("boosting", data, iterations=30, leaves=7)
    gone = torch.ones(64, 2, dtype=torch.bool)
    gone[::3, 0] = False
    holes = test.copy()
    holes[::3, :5] = np.nan
    for rows, present in ((test, None), (holes, gone)):
        found = logits(method, data, present)
        if shape == "regression":
            np.testing.assert_allclose(found.numpy().ravel(), model.predict(rows), atol=1e-5)
        else:
            assert np.abs(found.softmax(dim=1).numpy() - model.predict_proba(rows)).max() < 1e-6


def test_images_and_sequences_are_averaged_to_a_fixed_size() -> None:
    views = (
        Modality("image", "image", (3, 32, 8)),
        Modality("sound", "sequence", (40, 5)),
        Modality("text", "text", (6,), vocabulary=9),
    )
    task = Task("views", "1", views, "multiclass", 2)
    columns = Columns(task)
    assert columns.widths == (3 * 16 * 8, 16 * 5, 9)
    inputs = {"image": torch.rand(2, 3, 32, 8), "sound": torch.rand(2, 40, 5), "text": torch.randint(0, 9, (2, 6))}
    tokens = columns(inputs)
    image = inputs["image"].view(2, 3, 16, 2, 8).mean(dim=3).flatten(1)
    torch.testing.assert_close(tokens["image"].x[:, 0, : 3 * 16 * 8], image)
    assert all(t.x.shape == (2, 1, 384) for t in tokens.values())


@pytest.mark.parametrize("match", ["transformer", "tensor", "early"])
def test_concat_has_as_many_parameters_as_the_method_it_matches(match: str) -> None:
    data, recipe = Probe(), Recipe(width=32)
    size = lambda m: sum(p.numel() for p in m.parameters() if p.requires_grad)  # noqa: E731
    wanted = size(methods.get(match)(data.task, recipe))
    made = methods.get("concat_matched")(data.task, recipe, match=Base(match))
    unit = 2 * 32 + 1 + 3  # what one more hidden unit adds
    assert abs(size(made) - wanted) <= unit / 2


def test_concat_does_not_match_what_does_not_apply() -> None:
    reason = methods.get("concat_matched").applies_to(Probe().task, {"match": Base("channel_exchange")})
    assert reason is not None and "channel_exchange" in reason
