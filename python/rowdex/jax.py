"""Batches as arrays of JAX, of one shape.

::

    jax.distributed.initialize()
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    loader = rowdex.jax.Loader(dataset, batch_size=256, seed=42, sharding=sharding)
    for batch in loader:            # a dict of global arrays, of 256 rows for each process
        loss, state = step(state, batch)

JAX compiles a function again for every shape, so a short last batch costs as much as the first one: it is filled up, or
left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import jax
import numpy as np

from .batch import OF_SEQUENCES
from .dataset import Dataset
from .errors import SchemaError
from .loader import Loader as _Loader
from .loading.functions import functions
from .loading.options import lengths
from .native.columns import Masked, Ragged
from .sampler import DistributedSampler


class Loader(_Loader):
    """A :class:`rowdex.Loader` whose batches are dicts of arrays of JAX, all of one shape.

    It has the steps, the rows and the states of a ``rowdex.Loader`` with the same arguments. Rank and world size come
    from ``jax.distributed``, if that is initialised.

    Args:
        dataset: The rows.
        sampler: As :class:`rowdex.Loader` has it.
        last: What becomes of a last batch that is short: ``"fill"`` repeats rows in it, which ``valid`` marks;
            ``"drop"`` leaves it out, on all ranks; ``"short"`` serves it as it is, so functions are compiled again.
        valid: Adds under this name whether a row counts: it is not repeated, and was not filled in. Shape ``(rows,)``,
            bool.
        sharding: Makes global arrays of what each process has, such as a ``NamedSharding`` that divides rows among
            processes. Default: arrays of this process.
        pad: For columns of lists of different lengths: the length that each list is padded to, with ``fill``.
        others: As :class:`rowdex.Loader` and :class:`rowdex.DistributedSampler` have them, but for ``output``. With
            ``pack=rowdex.Pack(..., layout="rows")``, batches have what has the shape ``(packs, capacity)``: tokens,
            ``position_ids``, ``segment_ids`` and ``labels``.
    """

    def __init__(
        self,
        dataset: Dataset,
        sampler: DistributedSampler | None = None,
        *,
        last: Literal["fill", "drop", "short"] = "fill",
        valid: str | None = None,
        sharding: Any = None,
        pad: Mapping[str, int] | None = None,
        fill: Any = 0,
        repeated: str | None = None,
        **others: Any,
    ) -> None:
        if last not in ("fill", "drop", "short"):
            raise ValueError(f"last={last!r}: use 'fill', 'drop' or 'short'")
        if "output" in others:
            raise TypeError("output: batches are arrays of JAX; for others use rowdex.Loader")
        if last == "drop":
            if sampler is not None and not sampler.spec.drop_last_batch:
                raise ValueError("last='drop' and a sampler that does not: give drop_last='batch' to the sampler")
            if sampler is None:
                others["drop_last"] = True
        added = (repeated, others.get("row_ids"))
        if valid is not None and (valid in added or valid in dataset.column_names):
            raise ValueError(f"there is a column called {valid!r}: choose another name")
        self._last, self._valid, self._sharding = last, valid, sharding
        self._pad, self._fill, self._given_pads = lengths(pad), fill, repeated
        unknown = sorted(set(self._pad) - set(dataset.column_names))
        if unknown and others.get("map") is None:
            raise ValueError(f"pad: there is no column {unknown[0]!r} among {', '.join(dataset.column_names)}")
        if repeated is None and others.get("map") is not None:
            others["map"] = [_WithoutPads(function) for function in functions(others["map"])]
        super().__init__(dataset, sampler, output="numpy", repeated=repeated or _PADS, **others)
        pack = self.spec.pack
        if pack is not None and (pack._is_of_rows or pack.layout != "rows"):
            raise ValueError(
                "pack=: JAX compiles a function again for every shape, and batches have different ones: use "
                "rowdex.Pack(..., layout='rows')"
            )
        if pack is not None and (repeated or valid):
            raise ValueError("repeated and valid are of rows: segment_ids of packs are 0 where nothing but filling is")

    def _finish(self, batch: Any) -> dict[str, Any]:
        pack = self.spec.pack
        if pack is not None:
            packs = self.batch_size if self._last == "fill" else 0
            return arrays(_packs(batch, packs, pack.pad), self._sharding)
        if not isinstance(batch, dict):
            raise TypeError(f"map returned {type(batch).__name__}: return a dict of columns, of which arrays are made")
        if self._given_pads is not None and self._given_pads not in batch:
            raise KeyError(
                f"map took out the column of repeated rows {self._given_pads!r}: keep it, or leave out repeated"
            )
        pads = batch[_PADS] if self._given_pads is None else batch[self._given_pads]
        if self._given_pads is None:
            del batch[_PADS]
        if self._valid is not None:
            batch[self._valid] = ~pads
        lack = self.batch_size - len(pads) if self._last == "fill" else 0
        found = {}
        for name, value in batch.items():
            if name in self._pad and isinstance(value, Ragged):
                value = value.padded(self._fill, self._pad[name])
            elif name in self._pad and self._mapping is None and not isinstance(value, Masked):
                raise SchemaError(f"pad: column {name!r} has no lists of different lengths", column=name)
            found[name] = _filled(name, value, lack, filled=name == self._given_pads)
        if self._valid is not None and lack:
            found[self._valid][len(pads) :] = False
        return arrays(found, self._sharding)


_PADS = "rowdex.pads"


class _WithoutPads:
    """A function of a batch that does not see which rows are repeated, as that column was not asked for."""

    def __init__(self, function: Any) -> None:
        # By which its parameters are known.
        self.__wrapped__ = function

    def __call__(self, batch: dict[str, Any], **numbers: Any) -> Any:
        pads = batch.pop(_PADS)
        found = self.__wrapped__(batch, **numbers)
        return {**found, _PADS: pads} if isinstance(found, dict) else found


def _packs(batch: dict[str, Any], packs: int, pad: int) -> dict[str, Any]:
    """The arrays of packs, which all have the same shape: what has a value a piece is left out. Packs that are missing
    have nothing but filling, whose tokens are ``pad``.
    """
    shape = batch["position_ids"].shape
    found = {name: value for name, value in batch.items() if getattr(value, "shape", None) == shape}
    lack = max(packs - shape[0], 0)
    tokens = next((name for name in found if name not in OF_SEQUENCES), None)
    for name, value in found.items() if lack else ():
        fill = -100 if name == "labels" else pad if name == tokens else 0
        found[name] = np.concatenate([value, np.full((lack, shape[1]), fill, value.dtype)])
    return found


def _filled(name: str, value: Any, lack: int, filled: bool) -> Any:
    """A column with so many more rows, copies of the first one; or zeros, where there is none."""
    if isinstance(value, Masked):
        raise SchemaError(f"column {name!r} has values and a mask: use nulls='fill', or take one in map=", column=name)
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biufc":
        kind = "lists of different lengths: give pad, or" if isinstance(value, Ragged) else "no numbers:"
        raise SchemaError(f"column {name!r} has {kind} leave it out of the columns of the dataset", column=name)
    if lack == 0:
        return value
    more = np.zeros((lack, *value.shape[1:]), value.dtype)
    if filled:
        more[:] = True
    elif len(value):
        more[:] = value[:1]
    return np.concatenate([value, more])


def arrays(batch: Mapping[str, Any], sharding: Any = None) -> dict[str, Any]:
    """The columns of this process as arrays of JAX; with a sharding as parts of global arrays, which have the rows of
    all processes.

    Numbers of 64 bits become numbers of 32, unless ``jax_enable_x64`` is set, as in JAX itself.

    Raises:
        SchemaError: for an integer that 32 bits have no room for, naming the column. JAX would cut off its upper bits.
    """
    for name, value in batch.items():
        if isinstance(value, np.ndarray) and value.dtype.kind in "iu":
            _check_range(name, value)
    if sharding is None:
        return {name: jax.numpy.asarray(value) for name, value in batch.items()}
    return {name: jax.make_array_from_process_local_data(sharding, np.asarray(value)) for name, value in batch.items()}


def _check_range(name: str, integers: Any) -> None:
    kept = jax.dtypes.canonicalize_dtype(integers.dtype)
    if kept.itemsize == integers.dtype.itemsize or not integers.size:
        return
    bounds = np.iinfo(kept)
    for value in (integers.min(), integers.max()):
        if not bounds.min <= value <= bounds.max:
            raise SchemaError(
                f"column {name!r}: JAX has no room for {value} in {kept}: set jax_enable_x64, or leave the column out",
                column=name,
                hint="set jax_enable_x64, or leave the column out",
            )


__all__ = ["Loader", "arrays"]
