"""The base of every dataset: a LightningDataModule that serves index batches out of memory."""

from __future__ import annotations

import copy
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, Self, get_args

import torch
import torch.distributed as dist
from lightning import LightningDataModule
from torch import Tensor

from datamodules.options import check
from datamodules.spec import Batch, Task

if TYPE_CHECKING:
    from datamodules.sources.wheels import Wheel

SplitName = Literal["train", "val", "test"]
SPLITS: tuple[SplitName, ...] = get_args(SplitName)


class Stored(Protocol):
    """A modality whose rows are read where they are stored, as asked for; `Gathered` is ours.

    Indexed by a slice or a tensor of rows like the tensor it stands for; `fingerprint` is a hash of its content.
    """

    @property
    def shape(self) -> torch.Size: ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Tensor | slice) -> Tensor: ...

    def fingerprint(self) -> str: ...


class Gathered:
    """A modality whose rows share values (many questions about one image): row i is `prepare(values[index[i]])`.

    Kept small (uint8, one copy of each image) or on disk (memory-mapped), and expanded a batch at a time.

    Args:
        scale: Of the values, as float; `shift` is added to the product.
        content: Hash of the values where it is known without reading them (a table of the cache).
    """

    def __init__(
        self, values: Tensor, index: Tensor, scale: float | Tensor = 1.0, shift: Tensor | None = None, content: str = ""
    ) -> None:
        self.values = values
        self.index = index
        self.scale = scale
        self.shift = shift
        self.content = content

    def __len__(self) -> int:
        return len(self.index)

    @property
    def shape(self) -> torch.Size:
        """Of the tensor it stands for."""
        return torch.Size((len(self.index), *self.values.shape[1:]))

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        rows = rows.cpu() if isinstance(rows, Tensor) else rows  # of a batch on another device
        return self.prepare(self.values[self.index[rows]].float())

    def select(self, rows: Tensor) -> Self:
        """Some of the rows, kept as all of them are."""
        chosen = copy.copy(self)
        chosen.index = self.index[rows]
        return chosen

    def prepare(self, x: Tensor) -> Tensor:
        """What a method sees of some values; `x` is a copy."""
        x = x.mul_(self.scale)
        return x if self.shift is None else x.add_(self.shift)

    def fingerprint(self) -> str:
        """Hash of everything that decides the rows."""
        digest = hashlib.sha256((self.content or hash_tensor(self.values)).encode())
        for part in (self.index, torch.as_tensor(self.scale), self.shift):
            digest.update(b"" if part is None else hash_tensor(part).encode())
        return digest.hexdigest()


class Split(NamedTuple):
    """The rows of one split.

    Attributes:
        inputs: One tensor (or `Gathered`, or `Stored`) per modality, first axis = row.
        present: `[N, M]` bool; None when every modality of every row is there.
        group: Source of each row (speaker, image); rows of one source stay in one split. None when rows are
            independent.
        slices: Named parts of the split, `[N]` bool each, that are scored on their own too (question types).
        gallery: `[N]` bool, of a `retrieval` split: rows that are found and never ask; the others ask and are never
            found. None: every row asks for all others.
    """

    inputs: Mapping[str, Tensor | Gathered | Stored]
    target: Tensor
    present: Tensor | None = None
    group: Tensor | None = None
    slices: Mapping[str, Tensor] | None = None
    gallery: Tensor | None = None


class Skeleton(NamedTuple):
    """A body in motion: its joints in each frame, `[T, J, 3]` with the height second, and which of them are joined."""

    joints: Tensor
    bones: tuple[tuple[int, int], ...]


class Batches:
    """Iterable over a split by index: no per-sample Python, no collation, no worker processes.

    In a distributed run each rank takes its share of every shuffled global batch, so the global batch, and with it the
    sum of gradients, does not depend on the number of devices. In order, every rank sees the whole split, unless
    `share` gives each some of the batches, whole: losses across rows are then those of one device. Not a DataLoader on
    purpose: Lightning would inject a sampler.
    """

    def __init__(
        self,
        split: Split,
        names: tuple[str, ...],
        batch_size: int,
        shuffle: bool = False,
        seed: int = 0,
        share: bool = False,
    ) -> None:
        self.split = split
        self.names = names
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.share = share
        self.epoch = 0
        self.rows = len(split.target)
        self.present = (
            torch.ones(self.rows, len(names), dtype=torch.bool) if split.present is None else split.present.bool()
        )

    def __len__(self) -> int:
        if self.shuffle:  # the last, incomplete batch is left out of an epoch; another one next epoch
            return max(1, self.rows // self.batch_size)
        return len(self._starts())

    def __iter__(self) -> Iterator[Batch]:
        return self._shuffled() if self.shuffle else self._in_order()

    def _shuffled(self) -> Iterator[Batch]:
        generator = torch.Generator().manual_seed((self.seed + 0x9E3779B9 * self.epoch) % 2**63)
        self.epoch += 1
        order = self.order(generator)
        rank, world = _rank_and_world()
        size = min(self.rows, self.batch_size)
        if size % world:
            raise ValueError(f"a batch of {size} rows cannot be shared evenly by {world} devices")
        for i in range(len(self)):
            index = order[i * self.batch_size : (i + 1) * self.batch_size]
            yield self.take(index if world == 1 else index.tensor_split(world)[rank])

    def order(self, generator: torch.Generator) -> Tensor:
        """The rows of one epoch; every rank draws the same."""
        return torch.randperm(self.rows, generator=generator)

    def _in_order(self) -> Iterator[Batch]:
        for start in self._starts():
            yield self.take(slice(start, min(start + self.batch_size, self.rows)))

    def take(self, index: Tensor | slice) -> Batch:
        """The rows at `index`."""
        row = torch.arange(index.start, index.stop) if isinstance(index, slice) else index
        inputs = {name: self.split.inputs[name][index] for name in self.names}
        return Batch(inputs, self.split.target[index], self.present[index], row)

    @property
    def shared(self) -> bool:
        """Whether each rank sees some of the batches, each by one rank. Too few to go round are seen by every rank."""
        return self.share and len(range(0, self.rows, self.batch_size)) >= _rank_and_world()[1]

    def _starts(self) -> range:
        """Where the batches of this rank start."""
        starts = range(0, self.rows, self.batch_size)
        if not self.shared:
            return starts
        rank, world = _rank_and_world()
        return starts[len(starts) * rank // world : len(starts) * (rank + 1) // world]


class DataModule(LightningDataModule, ABC):
    """A dataset. A subclass says what the task is (`describe`) and loads its rows (`load`); nothing else.

    Its own parameters are keyword-only arguments of `__init__` with defaults. The class attributes state what a user
    must know before trusting it.

    Attributes:
        licence: Of the data.
        citation: Whom to cite.
        source: Where the rows come from.
        sha256: Fingerprint of the default rows: a change without a new `version` is an error of the contract.
        wheels: That the rows are read out of, if any.
        scores: Measured test scores of a few methods on the default rows; not those of a subclass.
        measured: When and how `scores` were measured.
        batch_size: Global batch size; set from the recipe by the runner.
        seed: Of the order of the training rows; derived from (dataset, seed) by the runner, never from the method.
    """

    version: ClassVar[str] = "1"
    licence: ClassVar[str] = ""
    citation: ClassVar[str] = ""
    source: ClassVar[str] = ""
    sha256: ClassVar[str] = ""
    wheels: ClassVar[tuple[Wheel, ...]] = ()
    scores: ClassVar[Mapping[str, float]] = {}
    measured: ClassVar[str] = ""

    def __new__(cls, *args: Any, **options: Any) -> Self:
        check(cls, options)  # here, so that no dataset has to
        return super().__new__(cls)

    def __init__(self) -> None:
        super().__init__()
        self.batch_size = 128
        self.seed = 0

    @abstractmethod
    def describe(self) -> Task:
        """The task, known without loading the rows wherever possible."""

    @abstractmethod
    def load(self) -> dict[SplitName, Split]:
        """Train, val and test, fixed by the version, never by the run's seed; statistics come from train only."""

    @cached_property
    def task(self) -> Task:
        """What is to be learnt."""
        return self.describe()

    @cached_property
    def splits(self) -> dict[SplitName, Split]:
        """The rows, loaded once."""
        return self.load()

    @property
    def raw(self) -> Task:
        """The task whose modalities corruptions befall; another than `task` where features stand in for inputs."""
        return self.task

    @property
    def notes(self) -> tuple[str, ...]:
        """What the reader of a result must know about the rows: what is odd about the user's files."""
        return ()

    @property
    def suffix(self) -> str:
        """What tells datasets of one registered name apart on a board: `[flickr8k]`, a user's file, encoders."""
        return ""

    def words(self, modality: str) -> tuple[str, ...]:
        """The word of each token id of a text modality (the one of 0, padding, is empty); `()` if it has no words."""
        return ()

    def spell(self, modality: str, value: Tensor) -> str:
        """A value of a modality in words, for people to read; "" if it is not said in words."""
        words = self.words(modality)
        if not words and self.task.modalities[self.task.names.index(modality)].kind != "text":
            return ""
        return " ".join(words[token] if words else str(token) for token in value.tolist() if token)

    def places(self, split: SplitName) -> dict[str, Tensor]:
        """Where in an image what is asked about is, if that is known: modality -> `[N, H, W]` bool.

        For the audit of attention; no method sees it.
        """
        return {}

    def skeleton(self, modality: str, value: Tensor) -> Skeleton | None:
        """A value of a modality as joints and bones, for people to look at; None if it is no body in motion."""
        return None

    def corrupted(self, batch: Batch, split: SplitName, modality: str, corruption: str, severity: int) -> Tensor:
        """One modality of some rows of a split under a corruption, with the noise every method meets."""
        from datamodules.corruptions import corrupt, corruption_key

        raw = self.raw
        return corrupt(
            batch.inputs[modality],
            batch.row,
            name=corruption,
            severity=severity,
            key=corruption_key(raw.name, raw.version, split, modality, corruption),
            modality=raw.modalities[raw.names.index(modality)],
            split=self.splits[split].inputs[modality],  # pyright: ignore[reportArgumentType] - indexed alike
            dataset=raw.name,
        )

    def train_dataloader(self) -> Batches:
        return Batches(self.splits["train"], self.task.names, self.batch_size, shuffle=True, seed=self.seed)

    def val_dataloader(self) -> Batches:
        return self.ordered("val", share=True)

    def test_dataloader(self) -> Batches:
        return self.ordered("test", share=True)

    def ordered(self, split: SplitName, share: bool = False) -> Batches:
        """The rows of a split in order, in batches large enough that nothing is paid per batch."""
        return Batches(self.splits[split], self.task.names, max(self.batch_size, 256), share=share)

    @cached_property
    def content_hash(self) -> str:
        """The fingerprint, computed once for as long as the rows are loaded."""
        return self.fingerprint()

    def fingerprint(self) -> str:
        """SHA-256 of everything in every split."""
        digest = hashlib.sha256()
        for name in SPLITS:
            split = self.splits[name]
            parts = {key: split.inputs[key] for key in sorted(split.inputs)}
            parts |= {"target": split.target, "present": split.present, "gallery": split.gallery, "group": split.group}
            for key, value in {**parts, **(split.slices or {})}.items():
                if isinstance(value, Tensor):
                    digest.update(f"{name}/{key}/{tuple(value.shape)}/{value.dtype}".encode())
                    _update(digest, value)
                elif value is not None:
                    digest.update(f"{name}/{key}/{tuple(value.shape)}/{value.fingerprint()}".encode())
        return digest.hexdigest()


def hash_tensor(x: Tensor) -> str:
    """SHA-256 of shape, type and values."""
    digest = hashlib.sha256(f"{tuple(x.shape)}/{x.dtype}".encode())
    _update(digest, x)
    return digest.hexdigest()


def _update(digest: hashlib._Hash, x: Tensor) -> None:
    for rows in x.split(1024) if x.dim() else (x,):  # a memory-mapped table may be larger than memory
        digest.update(rows.contiguous().numpy().tobytes())


def _rank_and_world() -> tuple[int, int]:
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1
