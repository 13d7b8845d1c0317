"""Sets of recordings, on miniatures of their published layouts: what is read, how it is split, what is refused."""

import csv
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from scipy.io import loadmat, savemat
from sklearn.feature_extraction.text import TfidfVectorizer

from benchmark.conformance import check_dataset
from benchmark.pictures.drawing import draw_value
from datamodules.mosi import Mosi, read_folder
from datamodules.rows.resample import resample
from datamodules.rows.sources import relative_to_source
from datamodules.rows.summaries import summarise
from datamodules.rows.tfidf import learn_tfidf
from datamodules.utd_mhad import HIP, Recording, UtdMhad, read_recording
from tests.datamodules.miniature_recordings import make_mosi, make_utd_mhad


class SmallUtd(UtdMhad):
    sha256 = ""


class SmallUtdFrames(SmallUtd):
    def __init__(self) -> None:
        super().__init__(features="frames")


class SmallMosi(Mosi):
    sha256 = ""


class SmallMosiTokens(SmallMosi):
    def __init__(self) -> None:
        super().__init__(text="tokens")


def failures(name: str, cls: type) -> list[str]:
    return [str(result) for result in check_dataset(name, cls) if not result.passed]


def says(message: str, *parts: object) -> None:
    """One sentence that names what is wrong, where."""
    assert "\n" not in message and len(message) < 400
    for part in parts:
        assert str(part) in message


@pytest.mark.parametrize("steps", [1, 2, 7, 48, 100])
def test_resampled_sequences_lie_on_straight_lines_between_frames(steps: int) -> None:
    x = np.random.default_rng(steps).normal(size=(steps, 3))
    found = resample(x, 48)
    place = np.linspace(0, steps - 1, 48)
    expected = np.stack([np.interp(place, np.arange(steps), x[:, c]) for c in range(3)], axis=1)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(found[[0, -1]], x[[0, -1]], atol=1e-6)


def test_nothing_cannot_be_resampled() -> None:
    with pytest.raises(ValueError, match="must have a frame"):
        resample(np.zeros((0, 3)), 4)


@pytest.mark.parametrize("steps", [1, 2, 7, 40])
def test_summaries_are_the_statistics_of_each_part_of_the_time(steps: int) -> None:
    x = np.random.default_rng(steps).normal(size=(steps, 2))
    found = summarise(x, 3)
    assert found.shape == (3, 4, 2)
    sizes = [steps // 3 + (part < steps % 3) for part in range(3)]
    start = 0
    for part, size in enumerate(sizes):
        for channel in range(2):
            own = [x[t, channel] for t in range(start, start + size)] or [x[-1, channel]]
            mean = sum(own) / len(own)
            deviation = (sum((v - mean) ** 2 for v in own) / len(own)) ** 0.5
            np.testing.assert_allclose(found[part, :, channel], [mean, deviation, min(own), max(own)], atol=1e-12)
        start += size
    with pytest.raises(ValueError, match="must have a frame"):
        summarise(np.zeros((0, 2)), 3)


def test_tfidf_weighs_words_by_rarity_in_training_texts() -> None:
    train = [["a", "film"], ["a", "a", "bore"], ["the", "film"], ["a", "gem"]]
    learnt = learn_tfidf(train, 2)
    assert learnt.words == ("a", "film")
    rarity = {"a": 1 + math.log(5 / 4), "film": 1 + math.log(5 / 3)}
    weights = [(1 + math.log(2)) * rarity["a"], rarity["film"]]
    norm = math.hypot(*weights)
    found = learnt.encode([["a", "film", "new", "a"], ["new"]], length=10.0)
    np.testing.assert_allclose(found, [[10 * w / norm for w in weights], [0, 0]], atol=1e-5)
    with pytest.raises(ValueError, match="no word is in 5 of the 4 training texts: lower `min_count`"):
        learn_tfidf(train, 5)


def test_tfidf_is_that_of_scikit_learn() -> None:
    draw = np.random.default_rng(3)
    words = [f"w{i}" for i in range(30)]
    texts = [[words[int(i)] for i in draw.integers(0, 30, size=draw.integers(1, 12))] for _ in range(40)]
    model = TfidfVectorizer(analyzer=list, min_df=2, sublinear_tf=True).fit(texts[:25])
    learnt = learn_tfidf(texts[:25], 2)
    assert list(learnt.words) == model.get_feature_names_out().tolist()
    np.testing.assert_allclose(learnt.encode(texts, 1.0), model.transform(texts).toarray(), atol=1e-5)


def test_values_are_relative_to_the_mean_of_their_source() -> None:
    x = np.random.default_rng(0).normal(5, [1, 1e6], size=(9, 2))
    source = np.array([4, 4, 0, 7, 0, 7, 7, 4, 0])
    found = relative_to_source(x, source)
    for row in range(9):
        own = [x[other] for other in range(9) if source[other] == source[row]]
        np.testing.assert_allclose(found[row], x[row] - sum(own) / len(own), rtol=1e-9)
    one = relative_to_source(x[:1], source[:1])
    assert one.tolist() == [[0, 0]]


# ---- UTD-MHAD --------------------------------------------------------------------------------------------------------


def test_utd_mhad_keeps_the_contract(data: Path) -> None:
    make_utd_mhad(data)
    assert not failures("utd_mhad", SmallUtd)
    assert not failures("utd_mhad", SmallUtdFrames)


def test_summaries_of_utd_mhad_are_in_deviations_of_the_training_people(data: Path) -> None:
    make_utd_mhad(data)
    datamodule = SmallUtd()
    assert [(m.kind, m.shape) for m in datamodule.task.modalities] == [("vector", (72,)), ("vector", (720,))]
    frames = read_recording(data / "UTD-MHAD", Recording(2, 3, 1))  # a test person
    people = [Recording(subject, action, 1) for subject in (1, 3, 5) for action in range(1, 5)]
    for place, (kind, own) in enumerate(zip(("inertial", "skeleton"), frames, strict=True)):
        train = np.stack([summarise(read_recording(data / "UTD-MHAD", r)[place], 3).ravel() for r in people])
        expected = (summarise(own, 3).ravel() - train.mean(axis=0)) / train.std(axis=0)
        found = datamodule.splits["test"].inputs[kind][2]
        torch.testing.assert_close(found, torch.from_numpy(expected).float(), atol=1e-3, rtol=1e-3)
    body = datamodule.skeleton("skeleton", datamodule.splits["test"].inputs["skeleton"][2])
    assert body is not None
    thirds = np.stack([part.mean(axis=0) for part in np.array_split(frames[1], 3)]).reshape(3, 20, 3)
    torch.testing.assert_close(body.joints, torch.from_numpy(thirds), atol=1e-4, rtol=0)
    axis = Figure().subplots()
    draw_value(axis, datamodule.task.modalities[1], datamodule.splits["test"].inputs["skeleton"][2], datamodule)
    assert axis.lines and not axis.patches  # bones, not the bars of a vector


def test_utd_mhad_has_the_published_people_and_the_files_values(data: Path) -> None:
    folder = make_utd_mhad(data)
    datamodule = SmallUtdFrames()
    assert (SmallUtd().suffix, datamodule.suffix) == ("", "[frames]")
    people = {name: sorted(set(split.group.tolist())) for name, split in datamodule.splits.items()}
    assert people == {"train": [1, 3, 5], "val": [7], "test": [2, 4, 6, 8]}
    train = [f"a{action}_s{subject}_t1" for subject in (1, 3, 5) for action in range(1, 5)]
    assert datamodule.splits["train"].target.tolist() == [int(stem[1]) - 1 for stem in train]
    joints = [loadmat(folder / "Skeleton" / f"{stem}_skeleton.mat")["d_skel"] for stem in train]
    hips = [sum(x[HIP, :, t] for t in range(x.shape[2])) / x.shape[2] for x in joints]
    joints = [x - hip.reshape(1, 3, 1) for x, hip in zip(joints, hips, strict=True)]
    rows = np.stack([resample(x.transpose(2, 0, 1).reshape(-1, 60), 48) for x in joints])
    centred = rows - rows.mean(axis=(0, 1))
    expected = torch.from_numpy(centred / np.sqrt((centred**2).mean())).float()  # all joints in one unit
    torch.testing.assert_close(datamodule.splits["train"].inputs["skeleton"], expected, atol=1e-4, rtol=0)
    inertial = datamodule.splits["train"].inputs["inertial"].flatten(0, 1)
    torch.testing.assert_close(inertial.std(dim=0, unbiased=False), torch.ones(6), atol=1e-4, rtol=0)
    assert datamodule.notes == ("utd_mhad: expected 861 recordings, the folder has 32",)


def test_utd_mhad_without_its_folder(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        UtdMhad().load()
    says(str(caught.value), "UTD-MHAD", data, "set POLYMODAL_DATA to the folder above it")
    (data / "UTD-MHAD" / "Inertial").mkdir(parents=True)
    with pytest.raises(FileNotFoundError) as caught:
        UtdMhad().load()
    says(str(caught.value), data / "UTD-MHAD" / "Inertial", "Inertial.zip")
    monkeypatch.delenv("POLYMODAL_DATA")
    with pytest.raises(FileNotFoundError, match="set POLYMODAL_DATA or give --data"):
        UtdMhad().load()


def test_utd_mhad_names_a_recording_without_its_partner(data: Path) -> None:
    folder = make_utd_mhad(data)
    gone = folder / "Inertial" / "a2_s3_t1_inertial.mat"
    gone.unlink()
    with pytest.raises(FileNotFoundError) as caught:
        UtdMhad().load()
    says(str(caught.value), gone, "a2_s3_t1_skeleton.mat", "copy it there")


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"d_iner": np.zeros((5, 7))}, r"`d_iner` must be \[T, 6\], got \(5, 7\)"),
        ({"other": np.zeros((5, 6))}, "must hold an array of numbers named `d_iner`"),
        ({"d_iner": np.full((5, 6), np.nan)}, "values must be finite"),
        ({"d_iner": np.array([["a", "b"]], dtype=object)}, "must hold an array of numbers"),
    ],
)
def test_utd_mhad_refuses_other_arrays(data: Path, arrays: dict, said: str) -> None:
    path = make_utd_mhad(data) / "Inertial" / "a1_s1_t1_inertial.mat"
    savemat(path, arrays)
    with pytest.raises(ValueError, match=said) as caught:
        UtdMhad().load()
    says(str(caught.value), path)


def test_every_damaged_mat_is_named_or_read(data: Path) -> None:
    path = make_utd_mhad(data, actions=1) / "Skeleton" / "a1_s1_t1_skeleton.mat"
    whole, draw, refused = path.read_bytes(), np.random.default_rng(0), 0
    for number in range(300):
        changed = bytearray(whole[: draw.integers(len(whole))] if number % 3 == 0 else whole)
        for place in draw.integers(0, max(len(changed), 1), size=8 if number % 3 else 0):
            changed[place] = draw.integers(256)
        path.write_bytes(bytes(changed))
        try:
            SmallUtd().load()
        except (ValueError, FileNotFoundError) as error:
            says(str(error).partition(":")[0], path)
            says(str(error), "copy")
            refused += 1
    assert refused > 200


# ---- CMU-MOSI --------------------------------------------------------------------------------------------------------


def test_mosi_keeps_the_contract(data: Path) -> None:
    make_mosi(data)
    assert not failures("mosi", SmallMosi)
    assert not failures("mosi", SmallMosiTokens)


def test_mosi_keeps_videos_apart_and_reads_what_the_files_say(data: Path) -> None:
    folder = make_mosi(data)
    datamodule = SmallMosi(text="tokens", video=True, min_count=1)
    groups = {name: set(split.group.tolist()) for name, split in datamodule.splits.items()}
    assert not groups["train"] & groups["val"] and not groups["test"] & (groups["train"] | groups["val"])
    assert len(set.union(*groups.values())) == 12 and len(groups["test"]) == 4
    test = datamodule.splits["test"]
    with (folder / "transcripts.csv").open(newline="") as file:
        lines = list(csv.reader(file))[40:]
    assert [datamodule.spell("text", row) for row in test.inputs["text"]] == [line[1].lower() for line in lines]
    assert test.target.tolist() == [int(line[3]) for line in lines]
    train = datamodule.splits["train"].inputs
    for kind in ("audio", "video"):
        torch.testing.assert_close(train[kind].mean(dim=0), torch.zeros(train[kind].shape[1]), atol=1e-4, rtol=0)
    assert datamodule.task.names == ("text", "audio", "video")


def test_the_voice_of_mosi_is_relative_to_its_mean_in_the_video(data: Path) -> None:
    make_mosi(data)
    datamodule = SmallMosi()
    table = read_folder(data / "MOSI", ("audio",))
    x, video = table.features["audio"], np.array(table.video)
    relative = np.stack([row - x[video == own].mean(axis=0) for row, own in zip(x, video, strict=True)])
    train = relative[np.isin(np.unique(video, return_inverse=True)[1], datamodule.splits["train"].group.unique())]
    expected = (relative[40:] - train.mean(axis=0)) / train.std(axis=0)
    found = datamodule.splits["test"].inputs["audio"]
    torch.testing.assert_close(found, torch.from_numpy(expected).float(), atol=1e-4, rtol=1e-4)


def test_the_face_of_mosi_is_an_option_with_a_warning(data: Path) -> None:
    make_mosi(data)
    assert SmallMosi().task.names == ("text", "audio")
    assert not any("learnt with the training labels" in note for note in SmallMosi().notes)
    assert any("learnt with the training labels" in note for note in SmallMosi(video=True).notes)
    assert SmallMosi(video=True).suffix == "[video]"
    assert SmallMosi(video=True, text="tokens").suffix == "[tokens,video]"


def test_the_vector_of_an_utterance_has_its_words_and_those_of_training_rows_only(data: Path) -> None:
    make_mosi(data)
    bags, tokens = SmallMosi(min_count=1), SmallMosi(text="tokens", min_count=1)
    known = set(tokens.words("text")[2 : tokens.task.modalities[0].known])
    assert bags.task.modalities[0].kind == "vector" and bags.task.modalities[0].shape == (len(known),)
    for name, split in bags.splits.items():
        for bag, row in zip(split.inputs["text"], tokens.splits[name].inputs["text"], strict=True):
            assert set(bags.spell("text", bag).split()) == set(tokens.spell("text", row).split()) & known
            assert float(bag.norm()) == pytest.approx(10, abs=1e-4)
    film = bags.spell("text", bags.splits["train"].inputs["text"][0])
    assert film.startswith("number")  # the rarest word comes first
    assert bags.spell("audio", bags.splits["train"].inputs["audio"][0]) == "" == bags.spell("text", torch.zeros(99))


def test_words_of_mosi_are_learnt_from_training_rows_only(data: Path) -> None:
    make_mosi(data)
    datamodule = SmallMosi(text="tokens", min_count=1)
    text = datamodule.task.modalities[0]
    known = set(datamodule.words("text")[2 : text.known])
    seen = {word for row in datamodule.splits["train"].inputs["text"] for word in datamodule.spell("text", row).split()}
    assert known == seen and "number11" not in known


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("index_train.csv", lambda text: text.replace('"3"', '"999"', 1), r"line 4: must be a row of transcripts\.csv"),
        ("transcripts.csv", lambda text: text.replace('"93"', '"93","x"', 1), "line 1: there must be 4 columns, got 5"),
        ("transcripts.csv", lambda text: text.replace('"0"\n', '"?"\n', 1).replace('"0"\r', '"?"\r', 1), "0 or 1"),
        ("audio_test0.csv", lambda text: text.partition("\n")[2], "has 19 rows, index_test.csv 20"),
        ("audio_test0.csv", lambda text: '"nan"' + text[text.index(",") :], "line 1: values must be finite"),
        ("audio_test0.csv", lambda text: '"x"' + text[text.index(",") :], "must hold numbers"),
        ("audio_test0.csv", lambda text: "", "is empty"),
    ],
)
def test_mosi_names_what_is_wrong(data: Path, name: str, change, said: str) -> None:
    path = make_mosi(data) / name
    path.write_text(change(path.read_text()))
    with pytest.raises(ValueError, match=said) as caught:
        SmallMosi().load()
    says(str(caught.value))


def test_mosi_without_a_file(data: Path) -> None:
    folder = make_mosi(data)
    (folder / "audio_test0.csv").unlink()
    with pytest.raises(FileNotFoundError) as caught:
        SmallMosi().load()
    says(str(caught.value), folder / "audio_test0.csv")


def test_labels_of_mosi_agree_in_all_files(data: Path) -> None:
    path = make_mosi(data) / "audio_train0.csv"
    first, _, rest = path.read_text().partition("\n")
    flipped = first.rstrip()[:-2] + ("0" if first.rstrip()[-2] == "1" else "1") + '"'
    path.write_text(flipped + "\n" + rest)
    with pytest.raises(ValueError, match="line 1: its label is not the transcript's"):
        SmallMosi().load()


def test_a_video_of_mosi_is_in_one_split(data: Path) -> None:
    folder = make_mosi(data)
    with (folder / "transcripts.csv").open(newline="") as file:
        labels = [line[3] for line in csv.reader(file)]
    other = labels.index(labels[3], 40)  # of a test video, with the label that row 3 has
    path = folder / "index_train.csv"
    path.write_text(path.read_text().replace('"3"', f'"{other}"', 1))
    with pytest.raises(ValueError, match="is in train and test"):
        SmallMosi().load()
