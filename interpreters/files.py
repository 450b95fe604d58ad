"""Whole files: written completely or not at all, whatever happens to the process or the machine.

Owns write, fsync, rename and hard link. Must not know what the bytes are.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Put the bytes in the place of whatever the file held."""
    temporary = _written(path, data)
    try:
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def create_file(path: Path, data: bytes) -> bool:
    """Create the file with the bytes; return False, and change nothing, if it exists with others."""
    temporary = _written(path, data)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return path.read_bytes() == data
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)
    return True


def _written(path: Path, data: bytes) -> Path:
    """Write the bytes beside the path, safe on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return Path(name)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
