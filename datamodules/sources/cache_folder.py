"""Where fetched data is kept between runs."""

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """The folder given by `POLYMODAL_CACHE`, or `polymodal` in the user's cache directory (not created here)."""
    chosen = os.environ.get("POLYMODAL_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    return _user_cache_directory() / "polymodal"


def _user_cache_directory() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
