"""Where the weights of pretrained encoders come from: a folder or file the user gives, or the Hugging Face hub.

Only safetensors are read: no weight file can run code.
"""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from datamodules.encoders.base import EncoderName, close_names
from datamodules.sources.files import entry_of
from datamodules.sources.folders import at_home


class WeightsError(OSError):
    """Weights that are nowhere to be had; the message says what to put where."""


def find_weights(name: EncoderName) -> Path:
    """The file (or, of a sentence encoder, the folder) an encoder is loaded from; WeightsError if it is nowhere."""
    if name.library == "sentence":
        return _find_folder(name)
    if name.library == "timm":
        config = timm_config(name)
        return _find_file(name, None if config is None else config.hf_hub_id, ("model.safetensors",))
    from open_clip import get_pretrained_cfg

    # A repository may hold the image tower alone too, for timm: the name says which file is the whole model.
    repository, _, filename = get_pretrained_cfg(*name.parts).get("hf_hub", "").rpartition("/")
    names = ("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors")
    return _find_file(name, repository, (f"{filename.rpartition('.')[0]}.safetensors",) if filename else names)


def timm_config(name: EncoderName) -> Any:
    """What timm knows of the published weights; None if there are none."""
    import timm

    if not timm.is_model(name.model):
        raise ValueError(f"timm has no model {name.model!r}{close_names(name.model, timm.list_models())}")
    if "." in name.model and name.model not in timm.list_pretrained():
        raise ValueError(f"timm has no weights {name.model!r}{close_names(name.model, timm.list_pretrained())}")
    return timm.get_pretrained_cfg(name.model)


def _find_file(name: EncoderName, repository: str | None, names: tuple[str, ...]) -> Path:
    """The user's safetensors file, else the hub's; `names` are what it may be called there, the best first."""
    local = _find_local(name.stem, names)
    if local is not None:
        return local
    advice = f"put {name.stem}.safetensors into a folder and give it by --weights DIR or POLYMODAL_WEIGHTS"
    if not repository:
        raise WeightsError(f"{name} has no published weights: {advice}")
    found, reason = _from_hub(repository, names)
    if found is not None:
        return found
    raise WeightsError(f"no weights for {name}, and the hub ({repository}) cannot be reached: {advice}") from reason


def _find_folder(encoder: EncoderName) -> Path:
    """The folder of a Hugging Face model: a path, a folder within the user's weights, or a snapshot from the hub."""
    name, given = encoder.model, user_weights()
    places = [at_home(name), *([given / name, given] if given is not None and given.is_dir() else [])]
    for place in places:
        if (place / "config.json").is_file():
            return place
    from huggingface_hub import snapshot_download

    reason: Exception | None = None
    for offline in (True, False):
        try:
            files = ["*.safetensors", "*.json", "*.txt", "*.model"]
            return Path(snapshot_download(name, allow_patterns=files, local_files_only=offline))
        except (OSError, ValueError) as error:
            reason = error
    raise WeightsError(
        f"no model for {encoder}: neither a folder {name} with config.json, tokenizer and model.safetensors "
        "(also looked for in --weights DIR or POLYMODAL_WEIGHTS) nor to be had from the hub"
    ) from reason


def _from_hub(repository: str, names: tuple[str, ...]) -> tuple[Path | None, Exception | None]:
    """The first of the files that the repository has, or why there is none."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import RemoteEntryNotFoundError

    reason: Exception | None = None
    for offline in (True, False):  # what the hub's own cache holds needs no network
        for name in names:
            try:
                return Path(hf_hub_download(repository, name, local_files_only=offline)), None
            except RemoteEntryNotFoundError as error:
                reason = error
            except (OSError, ValueError) as error:
                reason = error
                if not offline:  # no network: the next name would only wait for it as long
                    break
    return None, reason


def _find_local(stem: str, names: tuple[str, ...]) -> Path | None:
    """The user's own file for `stem`, if `--weights` or `POLYMODAL_WEIGHTS` gives one."""
    given = user_weights()
    if given is None:
        return None
    if given.is_file():
        return given
    places = [given / f"{stem}.safetensors", *(given / stem / name for name in names)]
    return next((place for place in places if place.is_file()), None)


def user_weights() -> Path | None:
    """What `--weights` or `POLYMODAL_WEIGHTS` names: a folder, or one safetensors file."""
    given = os.environ.get("POLYMODAL_WEIGHTS")
    if not given:
        return None
    path = at_home(given).absolute()
    if not path.exists():
        raise WeightsError(f"no weights {path}: --weights and POLYMODAL_WEIGHTS name a folder or a .safetensors file")
    if path.is_file() and path.suffix != ".safetensors":
        raise WeightsError(f"only .safetensors files are read, {path.name} is not one")
    return path


def digest(path: Path) -> str:
    """SHA-256 of a file, or of the files of a model folder that decide its output."""
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if _decides(p, path))
    whole = hashlib.sha256()
    for file in files:
        own = _file_digest(file.resolve(), entry_of(file))
        whole.update(f"{file.relative_to(path) if file != path else ''}:{own}\n".encode())
    return whole.hexdigest()


def _decides(file: Path, folder: Path) -> bool:
    shown = not any(part.startswith(".") for part in file.relative_to(folder).parts)
    return shown and file.is_file() and file.suffix in (".safetensors", ".json", ".txt", ".model")


@lru_cache(maxsize=256)
def _file_digest(path: Path, entry: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
