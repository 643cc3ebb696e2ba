"""rowdex against pyarrow, on random files, with random options: every case from a seed of its own.

``python -m python.tests.differential --seconds 3600`` looks for an hour and prints every case that went wrong;
``--seed 17`` runs that one again.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile
import time
import traceback
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import rowdex

from . import oracle
from .random_tables import Rng, pick, random_array, random_type

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

FIXED_SEEDS = 25
"""So many cases are the same in every run, before those that are not."""


class Case:
    """Some files, what is in them, and what a run did with them."""

    def __init__(self, seed: int, folder: pathlib.Path) -> None:
        self.rng = np.random.default_rng(seed)
        self.folder = folder
        self.said: list[str] = []
        self.files: list[pathlib.Path] = []
        self.wanted = self._write()
        self.columns = {name: _whole(self.wanted[name]) for name in self.wanted.column_names}
        index = folder / "case.rdx"
        rowdex.build([str(path) for path in self.files], index, footers=self.chance(0.7))
        self.dataset = rowdex.Dataset(
            index,
            threads=pick(self.rng, [0, 1, 3, None]),
            cache=pick(self.rng, [1, 1 << 16, None]),
            check=pick(self.rng, ["off", "stat", "footer"]),
        )
        self.rows = len(self.dataset)
        assert self.rows == len(self.wanted), (self.rows, len(self.wanted))

    def chance(self, part: float) -> bool:
        return bool(self.rng.random() < part)

    def say(self, **what: Any) -> None:
        self.said.append(", ".join(f"{name}={value}" for name, value in what.items()))

    def _write(self) -> pa.Table:
        rng = self.rng
        depth = int(pick(rng, [0, 0, 1, 2, 3]))
        # pyarrow does not write views within lists and structs.
        kinds = [random_type(rng, depth, views=depth == 0) for _ in range(int(rng.integers(1, 6)))]
        nulls = pick(rng, [0.0, 0.0, 0.05, 0.4, 1.0])
        fields = [
            pa.field(f"c{i}", kind, nullable=bool(nulls or self.chance(0.5) or pa.types.is_null(kind)))
            for i, kind in enumerate(kinds)
        ]
        schema = pa.schema(fields)
        self.say(nulls=nulls, schema=schema)
        tables = []
        for number in range(int(pick(rng, [1, 1, 2, 3]))):
            most = 1_000 if depth else 120_000 if self.chance(0.05) else 12_000
            rows = int(pick(rng, [0, 1, 5, 50, 400, most // 4, most]))
            group = int(pick(rng, [1, 3, 40, 1000, 100_000]))
            group = max(group, rows // 150 + 1)
            columns = [random_array(rng, field.type, rows, nulls, field.nullable) for field in schema]
            table = pa.table(columns, schema=schema)
            path = self.folder / f"{number}.parquet"
            pq.write_table(table, path, row_group_size=group, **self._writer(schema, rows, group))
            self.files.append(path)
            # What was written, rather than what pyarrow reads: it cannot read all that it writes.
            tables.append(
                pa.table([_as(_whole(column), _decoded(column.type)) for column in table.columns], names=schema.names)
            )
        return pa.concat_tables(tables)

    def _writer(self, schema: pa.Schema, rows: int, group: int) -> dict[str, Any]:
        rng = self.rng
        options: dict[str, Any] = {
            "compression": pick(rng, ["none", "snappy", "zstd", "gzip", "lz4", "brotli"]),
            "version": pick(rng, ["1.0", "2.4", "2.6", "2.6"]),
            "data_page_version": pick(rng, ["1.0", "2.0"]),
            "data_page_size": int(pick(rng, [1, 100, 4096, 1 << 20])),
            "write_batch_size": int(pick(rng, [1, 16, 1024])),
            "write_page_index": self.chance(0.5),
            "write_statistics": self.chance(0.7),
            "use_dictionary": self.chance(0.6),
            "dictionary_pagesize_limit": int(pick(rng, [32, 1024, 1 << 20])),
            "write_page_checksum": self.chance(0.3),
        }
        if "ns" in str(schema) or "uint32" in str(schema):
            options["version"] = "2.6"
        if not options["use_dictionary"]:
            encodings = {}
            for field in schema:
                known = _encodings(field.type)
                if known and self.chance(0.7):
                    encodings[field.name] = pick(rng, known)
            if encodings:
                options["column_encoding"] = encodings
        self.say(rows=rows, row_group_size=group, **options)
        return options

    def some_rows(self) -> Any:
        """Row ids, in any order, some more than once."""
        many = min(int(pick(self.rng, [0, 1, 3, 50, 500])), 500)
        if self.rows == 0:
            return []
        if self.chance(0.3):
            start = int(self.rng.integers(self.rows))
            return range(start, min(start + many, self.rows), int(pick(self.rng, [1, 1, 2])))
        return self.rng.integers(self.rows, size=many).tolist()

    def run(self) -> None:
        checks = [self.take, self.take, self.prefetched, self.loader, self.resumed]
        for check in checks:
            self.say(check=check.__name__)
            check()

    def take(self) -> None:
        rows = self.some_rows()
        self.say(rows=len(rows), first=rows[:5])
        batch = self.dataset.take(rows)
        assert batch.row_ids == list(rows)
        self.same(batch, rows)
        nulls, strings = pick(self.rng, ["error", "fill", "mask"]), pick(self.rng, ["list", "offsets"])
        self.arrays(batch, rows, nulls, strings)
        if len(rows):
            row = int(self.rng.integers(self.rows))
            self.same_rows([self.dataset[row]], [row])

    def arrays(self, batch: rowdex.Batch, rows: Any, nulls: Any, strings: str) -> None:
        """The batch as numpy and torch have it."""
        kinds = pa.schema(batch.schema)
        for name in batch.column_names:
            wanted = self.column(name, kinds.field(name).type, rows)
            if nulls == "error" and oracle.has_null(wanted):
                try:
                    batch.to_numpy([name], nulls=nulls, strings=strings)
                except rowdex.errors.SchemaError as error:
                    assert error.column == name or str(error.column).startswith(f"{name}."), error
                    continue
                raise AssertionError(f"column {name} has a null, and it is no error")
            ways = [batch.to_numpy] if torch is None else [batch.to_numpy, batch.to_torch]
            for way in ways:
                found = way([name], nulls=nulls, strings=strings)[name]
                self.equal(name, oracle.rows(found, wanted.type, strings), oracle.expected(wanted, nulls, strings))

    def prefetched(self) -> None:
        order = [row for _ in range(3) for row in self.some_rows()]
        memory = self.memory()
        portion = int(pick(self.rng, [1, 10, 300]))
        self.say(rows=len(order), memory=memory, portion=portion)
        with self.dataset.prefetch(order, memory=memory, threads=int(self.rng.integers(3))) as prefetched:
            for start in range(0, len(order), portion):
                rows = order[start : start + portion]
                self.same(prefetched.take(rows), rows)
                if start // portion > 60:
                    break

    def memory(self) -> int:
        """From 5 % to 150 % of what the rows take."""
        return max(int(self.dataset.decoded_bytes * self.rng.uniform(0.05, 1.5)), 1)

    def sampling(self) -> dict[str, Any]:
        rng = self.rng
        world = int(pick(rng, [1, 1, 2, 5]))
        orders: list[Any] = ["global", "global", "sequential", "torch", f"blocks({int(rng.integers(1, 9))})"]
        orders.append(rowdex.order.Explicit(rng.permutation(self.rows)[: max(self.rows // 2, 1)].tolist()))
        return {
            "num_replicas": world,
            "rank": int(rng.integers(world)),
            "seed": int(rng.integers(2**32)),
            "order": pick(rng, orders + [f"{name},contiguous" for name in orders if isinstance(name, str)]),
            "tail": pick(rng, ["wrap", "drop", "uneven"]),
            # Not too many steps: there are other cases to try.
            "batch_size": max(int(pick(rng, [1, 7, 64, 500, 5000])), self.rows // world // 100),
            "drop_last": "batch" if self.chance(0.2) else False,
        }

    def made_loader(self, sampling: dict[str, Any], **options: Any) -> tuple[rowdex.Loader, dict[str, Any]]:
        rng = self.rng
        outputs = ["numpy", "arrow", "python"] if torch is None else ["numpy", "torch", "arrow", "python"]
        options = {
            "memory": self.memory(),
            "threads": int(rng.integers(5)),
            "output": pick(rng, outputs),
            "nulls": pick(rng, ["fill", "mask"]),
            "strings": pick(rng, ["list", "offsets"]),
            **options,
        }
        if options["output"] in ("numpy", "torch"):
            options["row_ids"] = "row id"
        elif options["strings"] == "list":
            options["strings"] = "views" if self.chance(0.3) else "list"
        self.say(**sampling, **options)
        return rowdex.Loader(self.dataset, **sampling, **options), options

    def loader(self) -> None:
        if self.rows == 0:
            return
        sampling = self.sampling()
        loader, options = self.made_loader(sampling)
        epoch = int(pick(self.rng, [0, 0, 3]))
        loader.set_epoch(epoch)
        sampler = rowdex.DistributedSampler(self.dataset, **sampling)
        sampler.set_epoch(epoch)
        for _ in range(2):
            self.served(loader, options, [batch.row_ids for batch in sampler.batches()])
        loader.close()

    def served(self, loader: rowdex.Loader, options: dict[str, Any], wanted: list[list[int]], start: int = 0) -> None:
        """An epoch, of which some batches are looked at closely."""
        step = start
        for step, batch in enumerate(loader, start + 1):
            rows = wanted[step - 1]
            close = step - start <= 2 or self.chance(6 / len(wanted)) or step == len(wanted)
            if options["output"] == "arrow":
                assert batch.row_ids == rows, (step, batch.row_ids[:10], rows[:10])
            elif options["output"] != "python":
                assert batch["row id"].tolist() == rows, (step, batch["row id"].tolist()[:10], rows[:10])
            if not close:
                continue
            rows_kept = rows[:300]
            self.say(step=step)
            if options["output"] == "arrow":
                self.same(batch, rows)
            elif options["output"] == "python":
                for name, values in batch.items():
                    self.equal(
                        name, oracle.plain(values), oracle.python(self.column(name, self.kinds.field(name).type, rows))
                    )
            else:
                for name in self.dataset.column_names:
                    column = self.column(name, self.kinds.field(name).type, rows_kept)
                    value = batch[name]
                    found = oracle.rows(value, column.type, options["strings"])
                    assert len(found) == len(rows), (len(found), len(rows))
                    self.equal(
                        name, found[: len(rows_kept)], oracle.expected(column, options["nulls"], options["strings"])
                    )
            self.said.pop()
        assert step == len(wanted), (step, len(wanted))

    def resumed(self) -> None:
        if self.rows == 0:
            return
        sampling = self.sampling() | {"drop_last": False}
        sampler = rowdex.DistributedSampler(self.dataset, **sampling)
        wanted = [batch.row_ids for batch in sampler.batches()]
        after = [batch.row_ids for batch in sampler.batches()]
        loader, options = self.made_loader(sampling)
        given_up = int(self.rng.integers(len(wanted) + 1))
        batches = iter(loader)
        for _ in range(given_up):
            next(batches)
        state = loader.state_dict()
        loader.close()
        again, options = self.made_loader(sampling, threads=int(self.rng.integers(3)))
        self.say(given_up=given_up, state=state)
        again.load_state_dict(state)
        if given_up < len(wanted):
            self.served(again, options, wanted, given_up)
        self.served(again, options, after)

    @property
    def kinds(self) -> pa.Schema:
        return pa.schema(self.dataset.schema)

    def column(self, name: str, kind: pa.DataType, rows: Any) -> pa.Array:
        """What rows of a column are, as of this type."""
        taken = _take(self.columns[name], rows)
        return taken if taken.type == kind else _as(taken, kind)

    def same(self, batch: rowdex.Batch, rows: Any) -> None:
        """The batch as Arrow and as Python's values."""
        table = pa.table(batch)
        table.validate(full=True)
        assert table.column_names == self.wanted.column_names and len(table) == len(rows)
        for name in table.column_names:
            found = _whole(table[name])
            wanted = self.column(name, found.type, rows)
            if not found.equals(wanted):
                self.equal(name, oracle.python(found), oracle.python(wanted))
        if len(rows) <= 50:
            self.same_rows(batch.to_pylist(), list(rows))

    def same_rows(self, found: list[dict[str, Any]], rows: Any) -> None:
        for name in self.wanted.column_names:
            wanted = oracle.python(self.column(name, self.kinds.field(name).type, rows))
            self.equal(name, [oracle.plain(row[name]) for row in found], wanted)

    def equal(self, name: str, found: list[Any], wanted: list[Any]) -> None:
        if found == wanted:
            return
        kind = self.wanted.schema.field(name).type
        assert len(found) == len(wanted), f"column {name} ({kind}): {len(found)} values for {len(wanted)}"
        place = next(i for i, (ours, theirs) in enumerate(zip(found, wanted)) if ours != theirs)
        raise AssertionError(
            f"column {name} ({kind}), value {place}: {str(found[place])[:300]}, "
            f"and pyarrow has {str(wanted[place])[:300]}"
        )


def _encodings(kind: pa.DataType) -> list[str]:
    types = pa.types
    if (
        types.is_integer(kind)
        and kind.bit_width >= 8
        or types.is_timestamp(kind)
        or types.is_date(kind)
        or types.is_time(kind)
    ):
        wide = [] if types.is_integer(kind) and kind.bit_width < 32 else ["BYTE_STREAM_SPLIT"]
        return ["PLAIN", "DELTA_BINARY_PACKED", *wide]
    if str(kind) in ("string", "binary", "large_string", "large_binary"):
        return ["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"]
    if types.is_floating(kind) and kind.bit_width >= 32:
        return ["PLAIN", "BYTE_STREAM_SPLIT"]
    if types.is_boolean(kind):
        return ["PLAIN", "RLE"]
    return []


def _whole(column: pa.ChunkedArray) -> pa.Array:
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks) if chunks else pa.array([], column.type)


def _decoded(kind: pa.DataType) -> pa.DataType:
    """The type without dictionaries, of which every file has its own."""
    types = pa.types
    if types.is_dictionary(kind):
        return kind.value_type
    if types.is_struct(kind):
        return pa.struct([field.with_type(_decoded(field.type)) for field in kind])
    if types.is_map(kind):
        return pa.map_(kind.key_type, _decoded(kind.item_type))
    if oracle.is_list(kind) or types.is_fixed_size_list(kind):
        item = kind.value_field.with_type(_decoded(kind.value_type))
        if types.is_fixed_size_list(kind):
            return pa.list_(item, kind.list_size)
        return pa.list_(item) if types.is_list(kind) else pa.large_list(item)
    return kind


def _take(array: pa.Array, rows: Any) -> pa.Array:
    try:
        return array.take(pa.array(rows, pa.int64()))
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        # Some types have no such kernel in pyarrow; slices they all have.
        return pa.concat_arrays([array.slice(row, 1) for row in rows] or [array.slice(0, 0)])


def _as(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same values as of another type that has room for them, such as other names of fields, units or widths."""
    types = pa.types
    if array.type == kind:
        return array
    if types.is_dictionary(kind):
        if types.is_dictionary(array.type):
            codes = array.indices.cast(kind.index_type)
            return pa.DictionaryArray.from_arrays(codes, array.dictionary.cast(kind.value_type))
        return array.dictionary_encode().cast(kind)
    if types.is_dictionary(array.type):
        return _as(array.dictionary_decode(), kind)
    if types.is_struct(kind):
        parts = [_as(array.field(i), kind.field(i).type) for i in range(kind.num_fields)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=array.is_null())
    if types.is_fixed_size_list(kind):
        items = array.values.slice(array.offset * kind.list_size, len(array) * kind.list_size)
        return pa.FixedSizeListArray.from_arrays(_as(items, kind.value_type), type=kind, mask=array.is_null())
    if oracle.is_list(kind) and oracle.is_list(array.type):
        made = pa.ListArray if types.is_list(kind) else pa.LargeListArray
        offsets = array.offsets.cast(pa.int32() if types.is_list(kind) else pa.int64())
        first = offsets[0].as_py()
        offsets = pc.subtract(offsets, pa.scalar(first, offsets.type))
        items = array.values.slice(first, offsets[-1].as_py())
        return made.from_arrays(offsets, _as(items, kind.value_type), type=kind, mask=array.is_null())
    if types.is_map(kind):
        offsets = array.offsets
        first = offsets[0].as_py()
        many = offsets[-1].as_py() - first
        keys, items = array.keys.slice(first, many), array.items.slice(first, many)
        ends = np.asarray(offsets) - first
        ends = pa.array(ends, pa.int32(), mask=np.append(np.asarray(array.is_null()), False))
        return pa.MapArray.from_arrays(ends, _as(keys, kind.key_type), _as(items, kind.item_type), type=kind)
    return array.cast(kind)


def run_case(seed: int) -> str | None:
    """What went wrong, or ``None``."""
    with tempfile.TemporaryDirectory(prefix="rowdex-differential-") as folder:
        case = object.__new__(Case)
        try:
            case.__init__(seed, pathlib.Path(folder))  # type: ignore[misc]
            case.run()
            return None
        except Exception as error:
            said = "\n  ".join(getattr(case, "said", []))
            where = "".join(traceback.format_exception(error)[-4:])
            return f"seed {seed}: {type(error).__name__}: {error}\n  {said}\n{where}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, help="this case alone")
    parser.add_argument(
        "--first", type=int, help="the seed to begin with after those that are always run. Default: the next ones"
    )
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    first = options.first if options.first is not None else FIXED_SEEDS
    if options.seed is not None:
        seeds: Any = [options.seed]
    else:
        seeds = [*range(FIXED_SEEDS), *range(first, first + 10**6)]
    done = wrong = 0
    for seed in seeds:
        if done and time.monotonic() > end:
            break
        # The last line says which one it was, should the process die.
        print(f"case {seed}", flush=True)
        found = run_case(seed)
        done += 1
        if found is not None:
            wrong += 1
            print(found, flush=True)
            if wrong == 20:
                break
    print(f"{done} cases, {wrong} wrong", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
