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
