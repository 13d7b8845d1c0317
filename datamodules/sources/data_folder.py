"""The folder of data that the user has on disk."""

import os
from pathlib import Path


def data_folder(dataset: str) -> Path:
    """The folder given by `POLYMODAL_DATA` (or `--data`).

    Raises:
        FileNotFoundError: If it is not set or not there.
    """
    chosen = os.environ.get("POLYMODAL_DATA")
    if not chosen:
        raise FileNotFoundError(
            f"{dataset} is read from a folder: set POLYMODAL_DATA or give --data (`polymodal data info {dataset}` "
            "says what it must hold)"
        )
    folder = Path(chosen).expanduser().absolute()
    if not folder.is_dir():
        raise FileNotFoundError(f"Expected POLYMODAL_DATA to be a folder, but there is none at {folder}")
    return folder


def find_data(path: str, option: str) -> Path:
    """A file or folder that the user names: absolute, or below `POLYMODAL_DATA`, or below the working directory.

    Args:
        path: As written in the matrix.
        option: `<dataset>: `<option>``, for the error.

    Raises:
        FileNotFoundError: If nothing is named or nothing is there.
    """
    if not path:
        raise FileNotFoundError(f"{option} must name a file or folder, absolute or below POLYMODAL_DATA (--data)")
    folders = [Path(os.environ["POLYMODAL_DATA"]).expanduser()] if os.environ.get("POLYMODAL_DATA") else []
    places = [(folder / Path(path).expanduser()).absolute() for folder in (*folders, Path())]
    for place in places:
        if place.exists():
            return place
    looked = " or ".join(dict.fromkeys(map(str, places)))
    hint = "" if folders else ": set POLYMODAL_DATA or give --data"
    raise FileNotFoundError(f"{option} is {path!r}, but there is nothing at {looked}{hint}")
