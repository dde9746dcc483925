"""Write folders atomically."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replace_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder beside ``path`` and move it to ``path`` on success.

    If the block raises, ``path`` is unchanged and the temporary folder is removed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    replaced = path.with_name(f".{path.name}.{os.getpid()}.old")
    temporary.mkdir()
    try:
        yield temporary
        if path.exists():
            os.replace(path, replaced)
        os.replace(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(replaced, ignore_errors=True)
