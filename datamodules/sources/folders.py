"""The two folders of a machine: what we fetched or computed, and what the user has."""

import os
from pathlib import Path

from platformdirs import user_cache_path


def cache_folder() -> Path:
    """The folder given by `POLYMODAL_CACHE`, or `polymodal` in the user's cache directory (not created here)."""
    chosen = os.environ.get("POLYMODAL_CACHE")
    if chosen:
        return at_home(chosen).absolute()
    return user_cache_path("polymodal", appauthor=False, opinion=False)


def data_folder(dataset: str) -> Path:
    """The folder given by `POLYMODAL_DATA` (or `--data`), which must be there."""
    folder = _given()
    if folder is None:
        raise FileNotFoundError(
            f"{dataset} is read from a folder: set POLYMODAL_DATA or give --data (`polymodal data info {dataset}` "
            "says what it must hold)"
        )
    if not folder.is_dir():
        raise FileNotFoundError(
            f"POLYMODAL_DATA (--data) must be a folder, but there is none at {folder}: name the one with {dataset}"
        )
    return folder


def published_folder(dataset: str, names: tuple[str, ...]) -> Path:
    """The first of the folders `names` that is below `POLYMODAL_DATA`."""
    above = data_folder(dataset)
    for name in names:
        if (above / name).is_dir():
            return above / name
    expected = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
    raise FileNotFoundError(
        f"there is no folder {expected} with {dataset} in {above}: set POLYMODAL_DATA to the folder above it"
    )


def find_data(path: str, option: str) -> Path:
    """What the user's `option` names: a path, absolute or below `POLYMODAL_DATA` or below the working directory."""
    if not path:
        raise FileNotFoundError(f"`{option}` must name a file or folder, absolute or below POLYMODAL_DATA (--data)")
    folder = _given()
    places = [(above / at_home(path)).absolute() for above in (folder, Path()) if above is not None]
    for place in places:
        if place.exists():
            return place
    looked = " or ".join(dict.fromkeys(map(str, places)))
    hint = "set POLYMODAL_DATA or give --data" if folder is None else "put it there, or name another path"
    raise FileNotFoundError(f"`{option}` is {path!r}, but there is nothing at {looked}: {hint}")


def at_home(path: str) -> Path:
    """The path with `~` as a home.

    Raises:
        FileNotFoundError: If it is the home of a user whom nobody knows.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise FileNotFoundError(f"{path!r} begins with the home of a user who is not known here") from None


def _given() -> Path | None:
    chosen = os.environ.get("POLYMODAL_DATA")
    return at_home(chosen).absolute() if chosen else None
