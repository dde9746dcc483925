"""An interprocess lock that is released when its process ends, for whatever reason."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

if sys.platform != "win32":
    import fcntl


def lock_file(path: Path, note: str, on_wait: Callable[[str], None]) -> IO[str] | None:
    """Wait until no other process holds the lock ``path``, then hold it until the file is closed.

    Args:
        path: Lock file, created if needed and never removed: removal would let two processes hold
            the lock.
        note: Text passed to ``on_wait`` in other waiting processes.
        on_wait: Called with the holder's note before waiting.

    Returns:
        The open file; None immediately where files cannot be locked: on Windows, on some network
        file systems, in a folder without write permission.
    """
    if sys.platform == "win32":
        return None
    file = None
    try:
        # A record lock (lockf) also works on NFS and, unlike flock, is not inherited by a fork.
        file = path.open("a+")
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            file.seek(0)
            on_wait(file.read())
            fcntl.lockf(file, fcntl.LOCK_EX)
        os.truncate(file.fileno(), 0)
        file.write(note)
        file.flush()
    except OSError:
        if file is not None:
            file.close()
        return None
    except BaseException:  # an interrupt while waiting
        if file is not None:
            file.close()
        raise
    return file
