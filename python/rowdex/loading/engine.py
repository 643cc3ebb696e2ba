"""Loaders of the library, with the methods that the package calls."""

from __future__ import annotations

import ctypes
from typing import Any

from .. import native
from ..batch import Batch
from ..native.library import Handle, call, library, loader_options, reported, told_of, waiting
from ..schema import Schema


class LibraryLoader:
    """A loader of the library, and the columns of its batches."""

    def __init__(self, handle: Handle, schema: Schema) -> None:
        self._handle = handle
        self.schema = schema

    def info(self) -> native.LoaderInfo:
        """Where it stands."""
        info = native.LoaderInfo()
        call(library.loader_get_info, self._handle, ctypes.byref(info))
        return info

    def state(self) -> str:
        """The state after the last batch that was handed out."""
        text = ctypes.create_string_buffer(native.STATE_CAPACITY)
        call(library.loader_state, self._handle, text, len(text))
        return text.value.decode()

    def told(self) -> dict[str, Any]:
        """What it did."""
        return told_of(self._handle)

    def begin_epoch(self, epoch: int | None) -> native.LoaderInfo:
        """Begins this epoch, or for ``None`` the next one that was not begun."""
        begun = native.LoaderInfo()
        number = None if epoch is None else ctypes.byref(ctypes.c_uint64(epoch))
        call(library.loader_begin_epoch, self._handle, number, ctypes.byref(begun))
        return begun

    def seek(self, epoch: int, step: int) -> None:
        """Continues with this step of an epoch."""
        call(library.loader_seek, self._handle, epoch, step)

    def resume(self, state: bytes) -> None:
        """Resumes from a state."""
        call(library.resume, self._handle, state)

    def peek(self, epoch: int, step: int, most: int) -> Batch | None:
        """The batch of a step, or of several of up to ``most`` rows, without handing it out; ``None`` after the last.
        """
        return self._batch(Handle(library.loader_peek, self._handle, epoch, step, most))

    def advance(self, epoch: int, step: int) -> None:
        """Hands out the batch of a step."""
        call(library.loader_advance, self._handle, epoch, step)

    def next(self) -> Batch | None:
        """The next batch, handed out; ``None`` at the end of the run."""
        return self._batch(Handle(library.loader_next, self._handle))

    def _batch(self, handle: Handle) -> Batch | None:
        return Batch(handle, self.schema) if handle else None

    def reopened(self) -> LibraryLoader:
        """Another loader at its place."""
        return LibraryLoader(Handle(library.loader_reopen, self._handle), self.schema)

    def close(self) -> None:
        """Ends its threads in this process."""
        if not self._handle.inherited:
            library.close(self._handle)


class RowSource:
    """What has the rows of loaders."""

    _pointer: Any
    _remote: Any
    schema: Any

    def _loading(self, sampler: Handle, options: dict[str, Any], changes_columns: bool = False) -> LibraryLoader:
        """A loader of a sampler, whose batches may have other types than the rows."""
        given = (self._pointer, sampler, ctypes.byref(loader_options(**options)))
        handle = waiting(self._remote, lambda: Handle(library.loader_new, *given))
        return LibraryLoader(handle, Schema(handle) if changes_columns else self.schema)

    def _estimated(self, sampler: Handle, options: dict[str, Any]) -> dict[str, Any]:
        """What such a loader will do."""
        given = (self._pointer, sampler, ctypes.byref(loader_options(**options)))
        found: dict[str, Any] = waiting(self._remote, lambda: reported(library.loader_estimate, *given))
        return found
