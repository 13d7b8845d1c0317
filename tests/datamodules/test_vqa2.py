"""VQA-v2 on a miniature of its layout; its answers, spellings and official accuracy."""

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from benchmark.conditions import resolve
from benchmark.conformance import check_dataset
from benchmark.conformance.methods import RECIPE
from benchmark.evaluate import sweep
from datamodules.sources.vqa_answers import answer_scores, normalise, official_accuracy
from datamodules.spec import Modality, Task
from datamodules.vqa2 import Vqa2, read_questions
from leaderboard import scores
from methods.registry import methods
from tests.datamodules.miniatures import make_vqa2


@pytest.fixture
def folder(data: Path) -> Path:
    return make_vqa2(data)


class Small(Vqa2):
    def __init__(self) -> None:
        super().__init__(image_size=16)


def published_accuracy(answer: str, people: list[str]) -> float:
    """The evaluation's definition, word by word: ten sets of nine people."""
    sets = list(combinations(people, 9))
    assert len(sets) == 10
    return sum(min(sum(other == answer for other in nine) / 3, 1.0) for nine in sets) / 10


@pytest.mark.parametrize("count", range(11))
def test_the_official_accuracy_is_that_of_ten_sets_of_nine(count: int) -> None:
    people = ["yes"] * count + [f"other {i}" for i in range(10 - count)]
    assert official_accuracy(count) == pytest.approx(published_accuracy("yes", people))


@pytest.mark.parametrize(
    ("answer", "spelled"),
    [
        ("The Dog.", "dog"),
        ("two dogs", "2 dogs"),
        ("none", "0"),
        ("2,000", "2000"),
        ("2.5", "2.5"),
        ("black-and-white", "black and white"),
        ("red, white", "red white"),
        ("dont know", "don't know"),
        ("it's raining!", "it's raining"),
        (" an   apple\n", "apple"),
        ("6:30 p.m.", "6:30 pm"),
        ("yes/no", "yes no"),
    ],
)
def test_answers_are_spelled_as_in_the_evaluation(answer: str, spelled: str) -> None:
    assert normalise(answer) == spelled
    assert normalise(spelled) == spelled


def test_answers_that_are_spelled_alike_count_together() -> None:
    found = answer_scores(["one"] * 2 + ["1"] + ["a dog", "Dog"] + [f"x{i}" for i in range(5)])
    assert found["1"] == pytest.approx(0.9) and found["dog"] == pytest.approx(0.6) and found["x0"] == pytest.approx(0.3)


def test_the_contract(folder: Path) -> None:
    assert [r for r in check_dataset("vqa2", Small) if not r.passed] == []


def test_rows_and_targets_are_those_of_the_files(folder: Path) -> None:
    data = Small()
    assert {name: len(split.target) for name, split in data.splits.items()} == {"train": 108, "val": 12, "test": 48}
    questions = read_questions(folder, "val")
    test, names = data.splits["test"], data.task.class_names
    words = data.words("question")
    for row, question in enumerate(questions):
        ids, values = test.target[row].tolist()
        found = {names[int(i)]: v for i, v in zip(ids, values, strict=True) if v > 0}
        assert found == pytest.approx({a: s for a, s in question.scores.items() if a in names})
        text = " ".join(words[i] for i in test.inputs["question"][row].tolist() if i)
        assert text == question.text.lower().rstrip("?")
    assert "bright" not in names, "nobody's majority answer is in no vocabulary"
    assert {name: int(mask.sum()) for name, mask in (test.slices or {}).items()} == {
        "yes_no": 16, "number": 16, "other": 16,
    }  # fmt: skip


def test_validation_images_are_no_training_images(folder: Path) -> None:
    data = Small()
    train, val = (set(data.rows[name].image.tolist()) for name in ("train", "val"))
    assert len(val) == 4 and not train & val
    assert data.rows["val"].image.tolist() == Small().rows["val"].image.tolist()


def test_the_vocabulary_is_the_most_frequent_training_answers(folder: Path) -> None:
    data = Vqa2(answers=3, image_size=16)
    assert set(data.task.class_names) == {"1", "no", "yes"}
    colours = data.splits["test"].target[data.splits["test"].slices["other"]]  # pyright: ignore
    assert float(colours[:, 1].sum()) == 0.0, "an answer that cannot be given has no score"


def random_targets(rows: int, answers: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Sparse and dense: up to four answers, padding with id 0 and score 0."""
    generator = torch.Generator().manual_seed(3)
    sparse, dense = torch.zeros(rows, 2, 4), torch.zeros(rows, answers)
    for row in range(rows):
        count = int(torch.randint(0, 5, (), generator=generator))
        ids = torch.randperm(answers, generator=generator)[:count]
        values = torch.rand(count, generator=generator)
        sparse[row, 0, :count], sparse[row, 1, :count] = ids.float(), values
        dense[row, ids] = values
    return sparse, dense


def test_the_sparse_loss_and_accuracy_are_the_dense_ones() -> None:
    sparse, dense = random_targets(50, 7)
    goal = Task("t", "1", (Modality("a", "vector", (2,)), Modality("b", "vector", (2,))), "answers", 7).goal
    logits = torch.randn(50, 7, generator=torch.Generator().manual_seed(4), requires_grad=True)
    expected = F.binary_cross_entropy_with_logits(logits, dense, reduction="none").sum(dim=1).mean()
    torch.testing.assert_close(goal.loss(logits, sparse), expected)
    (ours,) = torch.autograd.grad(goal.loss(logits, sparse), logits)
    (theirs,) = torch.autograd.grad(expected, logits)
    torch.testing.assert_close(ours, theirs)
    predicted = logits.argmax(dim=1)
    right = dense.gather(1, predicted.unsqueeze(1)).mean()
    assert goal.scores(predicted, sparse)["vqa_accuracy"] == pytest.approx(float(right))
    assert float(scores.score("vqa_accuracy", sparse.numpy(), predicted.numpy())) == pytest.approx(float(right))
    each = scores.contributions("vqa_accuracy", sparse.numpy(), predicted.numpy())
    np.testing.assert_allclose(each, dense.gather(1, predicted.unsqueeze(1))[:, 0], atol=1e-6)


def test_the_trivial_answer_and_the_perfect_one(folder: Path) -> None:
    data = Small()
    train, test = (data.splits[name].target for name in ("train", "test"))
    best = test[:, 0].gather(1, test[:, 1].argmax(dim=1, keepdim=True))[:, 0]
    assert data.task.goal.evaluate(best, test)["vqa_accuracy"] == pytest.approx(1.0)
    constant = max(data.task.goal.evaluate(torch.full((48,), i), test)["vqa_accuracy"] for i in range(7))
    assert data.task.goal.trivial(train, test) == pytest.approx(constant)
    assert torch.isfinite(data.task.goal.loss(torch.zeros(48, 7), test))


def test_question_types_are_scored_on_their_own(folder: Path) -> None:
    data = Small()
    method = methods.get("concat")(data.task, RECIPE)
    swept = sweep(method, data, resolve(("missing",), data.task))
    metrics = swept.conditions[0].metrics
    types = [metrics[f"vqa_accuracy/{name}"] for name in ("yes_no", "number", "other")]
    assert sum(types) / 3 == pytest.approx(swept.conditions[0].score)  # equally many questions of each
    assert scores.score("vqa_accuracy", swept.predictions["target"], swept.predictions["pred:clean"]) == pytest.approx(
        swept.conditions[0].score
    )


def edit(file: Path, change: object) -> None:
    content = json.loads(file.read_text())
    change(content)  # pyright: ignore[reportCallIssue]
    file.write_text(json.dumps(content))


def test_what_is_missing_or_wrong_is_named(folder: Path) -> None:
    annotations = folder / "v2_mscoco_train2014_annotations.json"
    whole = annotations.read_text()
    edit(annotations, lambda content: content["annotations"].pop(4))
    with pytest.raises(ValueError, match="row 5, question 11"):
        Small().task  # noqa: B018
    annotations.write_text(whole)
    edit(annotations, lambda content: content["annotations"][7]["answers"].pop())
    with pytest.raises(ValueError, match="question 21: there must be 10 answers, got 9"):
        Small().task  # noqa: B018
    annotations.write_text(whole[:-20])
    with pytest.raises(ValueError, match="not JSON"):
        Small().task  # noqa: B018
    annotations.write_text(whole)
    edit(
        folder / "v2_OpenEnded_mscoco_val2014_questions.json",
        lambda content: content["questions"][3].update(question="?!"),
    )
    with pytest.raises(ValueError, match="row 4, question 10010: the text must have"):
        Small().task  # noqa: B018


def test_a_missing_image_is_named(folder: Path) -> None:
    (folder / "val2014" / "COCO_val2014_000000001003.jpg").unlink()
    with pytest.raises(FileNotFoundError, match=r"COCO_val2014_000000001003\.jpg"):
        Small().task  # noqa: B018


def test_missing_files_are_one_sentence(folder: Path) -> None:
    (folder / "v2_mscoco_val2014_annotations.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"val2014_annotations\.json: put the files of"):
        Small().task  # noqa: B018
