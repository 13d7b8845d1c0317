"""A child process that ends with its parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from typing import Any


def die_with(parent: int) -> None:
    """End this process when its parent ends, even by SIGKILL: an orphan would hold locks and devices."""
    if sys.platform == "linux":
        libc: Any = ctypes.CDLL(None, use_errno=True)
        libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:  # it died before we asked
            os._exit(1)
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
