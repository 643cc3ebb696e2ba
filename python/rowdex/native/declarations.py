# Written by tools/python/declarations.py from include/rowdex.h; do not edit.
# fmt: off
"""What include/rowdex.h declares, for ctypes."""

from __future__ import annotations

import enum
from ctypes import (
    CFUNCTYPE, POINTER, Structure, c_bool, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p,
)
from typing import Any

ARROW_FLAG_DICTIONARY_ORDERED = 1
ARROW_FLAG_NULLABLE = 2
ARROW_FLAG_MAP_KEYS_SORTED = 4
ABI_VERSION = 1
NONE = 18446744073709551615
STATE_CAPACITY = 512


class Status(enum.IntEnum):
    OK = 0
    IO = 1
    NOT_FOUND = 2
    ALREADY_EXISTS = 3
    INVALID_INDEX = 4
    UNSUPPORTED_INDEX = 5
    INVALID_PARQUET = 6
    UNSUPPORTED_PARQUET = 7
    SCHEMA = 8
    STALE = 9
    OUT_OF_RANGE = 10
    INVALID_ARGUMENT = 11
    TOO_LARGE = 12
    STATE_MISMATCH = 13
    INTERNAL = 14
    CLOSED = 15
    TIMED_OUT = 16


Progress = CFUNCTYPE(None, c_void_p, c_uint64, c_uint64, c_uint64)


class ArrowSchema(Structure): ...


ArrowSchema._fields_ = [
    ("format", c_char_p), ("name", c_char_p), ("metadata", c_void_p), ("flags", c_int64), ("n_children", c_int64),
    ("children", POINTER(POINTER(ArrowSchema))), ("dictionary", POINTER(ArrowSchema)),
    ("release", CFUNCTYPE(None, c_void_p)), ("private_data", c_void_p),
]


class ArrowArray(Structure): ...


ArrowArray._fields_ = [
    ("length", c_int64), ("null_count", c_int64), ("offset", c_int64), ("n_buffers", c_int64), ("n_children", c_int64),
    ("buffers", POINTER(c_void_p)), ("children", POINTER(POINTER(ArrowArray))), ("dictionary", POINTER(ArrowArray)),
    ("release", CFUNCTYPE(None, c_void_p)), ("private_data", c_void_p),
]


class ArrowArrayStream(Structure):
    _fields_ = [
        ("get_schema", CFUNCTYPE(c_int, c_void_p, c_void_p)), ("get_next", CFUNCTYPE(c_int, c_void_p, c_void_p)),
        ("get_last_error", CFUNCTYPE(c_char_p, c_void_p)), ("release", CFUNCTYPE(None, c_void_p)),
        ("private_data", c_void_p),
    ]


class Location(Structure):
    _fields_ = [
        ("row_group", c_uint32), ("file", c_uint32), ("ordinal", c_uint32), ("reserved", c_uint32), ("row", c_uint64),
        ("slot", c_uint64),
    ]


class DiskCache(Structure):
    _fields_ = [("folder", c_char_p), ("bytes", c_uint64)]


class DatasetOptions(Structure):
    _fields_ = [
        ("columns", POINTER(c_char_p)), ("num_columns", c_size_t), ("root", c_char_p), ("check", c_char_p),
        ("cache_bytes", c_uint64), ("threads", c_uint64), ("max_decoded_bytes", c_uint64), ("store", c_char_p),
        ("disk_cache", POINTER(DiskCache)),
    ]


class Numbers(Structure):
    _fields_ = [("values", c_void_p), ("len", c_size_t)]


class Operands(Structure):
    _fields_ = [
        ("indexes", POINTER(c_void_p)), ("num_indexes", c_size_t), ("numbers", POINTER(Numbers)),
        ("num_numbers", c_size_t), ("sets", POINTER(c_void_p)), ("num_sets", c_size_t), ("dataset", c_void_p),
        ("other", c_void_p), ("order", c_void_p), ("stream", POINTER(ArrowArrayStream)),
    ]


class SamplerOptions(Structure):
    _fields_ = [
        ("rank", c_uint32), ("world_size", c_uint32), ("batch_size", c_uint64), ("tail", c_char_p),
        ("replica_layout", c_char_p), ("replication", c_uint32), ("drop_last_batch", c_uint32), ("partition", c_char_p),
        ("rotation", c_char_p), ("pack", c_char_p),
    ]


class Pieces(Structure):
    _fields_ = [
        ("offsets", c_void_p), ("lengths", c_void_p), ("packs", c_void_p), ("packs_capacity", c_size_t),
        ("num_packs", c_void_p),
    ]


class Substituted(Structure):
    _fields_ = [("place", c_uint64), ("lost", c_uint64)]


class BatchInfo(Structure):
    _fields_ = [
        ("epoch", c_uint64), ("step", c_uint64), ("steps", c_uint64), ("rank", c_uint64), ("num_rows", c_uint64),
        ("num_pads", c_uint64), ("row_ids", c_void_p), ("substituted", POINTER(Substituted)),
        ("num_substituted", c_uint64), ("num_packs", c_uint64), ("positions", c_void_p),
    ]


class SequenceOptions(Structure):
    _fields_ = [
        ("layout", c_char_p), ("without_labels", c_uint64), ("bos", c_void_p), ("eos", c_void_p), ("pad", c_int64),
    ]


class LoaderOptions(Structure):
    _fields_ = [
        ("memory", c_uint64), ("threads", c_uint64), ("read_ahead", c_uint64), ("epochs", c_uint64),
        ("more_ranks", POINTER(c_void_p)), ("num_more_ranks", c_size_t), ("on_error", c_char_p),
        ("fault_seed", c_uint64), ("views", c_uint64), ("read_concurrency", c_uint64), ("share", c_char_p),
        ("max_wait", c_uint64), ("tokens", c_char_p), ("with_columns", POINTER(c_char_p)),
        ("num_with_columns", c_size_t),
    ]


class LoaderInfo(Structure):
    _fields_ = [("epoch", c_uint64), ("step", c_uint64), ("steps", c_uint64), ("steps_left", c_uint64)]


class PrefetchedOptions(Structure):
    _fields_ = [("memory", c_uint64), ("threads", c_uint64)]


# By its name without rowdex_: what a function returns, and what it is given.
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "abi_version": (c_uint32, []),
    "error_message": (c_char_p, [c_void_p]),
    "free": (None, [c_void_p]),
    "describe": (c_int32, [c_void_p, POINTER(c_void_p), POINTER(c_void_p)]),
    "schema": (c_int32, [c_void_p, POINTER(ArrowSchema), POINTER(c_void_p)]),
    "stream": (c_int32, [c_void_p, POINTER(ArrowArrayStream), POINTER(c_void_p)]),
    "take": (c_int32, [c_void_p, c_void_p, c_size_t, POINTER(c_void_p), POINTER(c_void_p)]),
    "resume": (c_int32, [c_void_p, c_char_p, POINTER(c_void_p)]),
    "close": (None, [c_void_p]),
    "index_open": (c_int32, [c_char_p, c_char_p, POINTER(c_void_p), POINTER(c_void_p)]),
    "index_files": (c_int32, [c_void_p, c_uint32, c_uint32, c_uint32, POINTER(c_void_p), POINTER(c_void_p)]),
    "index_locate": (c_int32, [c_void_p, c_void_p, c_size_t, POINTER(Location), POINTER(c_void_p)]),
    "dataset_open": (c_int32, [c_void_p, POINTER(DatasetOptions), POINTER(c_void_p), POINTER(c_void_p)]),
    "dataset_mixed": (c_int32, [POINTER(c_void_p), c_size_t, POINTER(c_void_p), POINTER(c_void_p)]),
    "dataset_len": (c_uint64, [c_void_p]),
    "dataset_decoded_bytes": (c_int32, [c_void_p, c_void_p, POINTER(c_void_p)]),
    "run": (c_int32, [c_char_p, POINTER(Operands), Progress, c_void_p, POINTER(c_void_p), POINTER(c_void_p)]),
    "id_set_new": (c_int32, [c_char_p, POINTER(Operands), POINTER(c_void_p), POINTER(c_void_p)]),
    "id_set_contains": (c_bool, [c_void_p, c_uint64]),
    "id_set_fill": (c_int32, [c_void_p, c_uint64, c_void_p, c_size_t, c_void_p, POINTER(c_void_p)]),
    "column": (c_int32, [c_char_p, POINTER(Operands), POINTER(ArrowArray), POINTER(ArrowSchema), POINTER(c_void_p)]),
    "order_new": (c_int32, [c_char_p, POINTER(Operands), POINTER(c_void_p), POINTER(c_void_p)]),
    "sampler_new": (c_int32, [c_void_p, POINTER(SamplerOptions), POINTER(c_void_p), POINTER(c_void_p)]),
    "sampler_set_epoch": (c_int32, [c_void_p, c_uint64, POINTER(c_void_p)]),
    "sampler_fill": (c_int32, [c_void_p, c_uint64, c_uint64, c_size_t, c_void_p, c_void_p, POINTER(c_void_p)]),
    "sampler_batch":
        (c_int32, [
            c_void_p, c_uint64, c_uint64, c_void_p, c_size_t, c_void_p, c_void_p, POINTER(Pieces), POINTER(c_void_p)
        ]),
    "sampler_state": (c_int32, [c_void_p, c_uint64, c_uint64, c_char_p, c_size_t, POINTER(c_void_p)]),
    "sampler_worker": (c_int32, [c_void_p, c_uint64, c_uint64, POINTER(c_void_p), POINTER(c_void_p)]),
    "schema_copy": (c_int32, [POINTER(ArrowSchema), POINTER(ArrowSchema), POINTER(c_void_p)]),
    "schema_release": (None, [c_void_p]),
    "array_release": (None, [c_void_p]),
    "batch_get_info": (c_int32, [c_void_p, POINTER(BatchInfo), POINTER(c_void_p)]),
    "batch_export": (c_int32, [c_void_p, POINTER(ArrowArray), POINTER(ArrowSchema), POINTER(c_void_p)]),
    "batch_sequences":
        (c_int32, [c_void_p, POINTER(SequenceOptions), POINTER(ArrowArray), POINTER(ArrowSchema), POINTER(c_void_p)]),
    "loader_new": (c_int32, [c_void_p, c_void_p, POINTER(LoaderOptions), POINTER(c_void_p), POINTER(c_void_p)]),
    "loader_estimate": (c_int32, [c_void_p, c_void_p, POINTER(LoaderOptions), POINTER(c_void_p), POINTER(c_void_p)]),
    "loader_reopen": (c_int32, [c_void_p, POINTER(c_void_p), POINTER(c_void_p)]),
    "loader_next": (c_int32, [c_void_p, POINTER(c_void_p), POINTER(c_void_p)]),
    "loader_peek": (c_int32, [c_void_p, c_uint64, c_uint64, c_size_t, POINTER(c_void_p), POINTER(c_void_p)]),
    "loader_advance": (c_int32, [c_void_p, c_uint64, c_uint64, POINTER(c_void_p)]),
    "loader_get_info": (c_int32, [c_void_p, POINTER(LoaderInfo), POINTER(c_void_p)]),
    "loader_state": (c_int32, [c_void_p, c_char_p, c_size_t, POINTER(c_void_p)]),
    "loader_seek": (c_int32, [c_void_p, c_uint64, c_uint64, POINTER(c_void_p)]),
    "loader_begin_epoch": (c_int32, [c_void_p, c_void_p, POINTER(LoaderInfo), POINTER(c_void_p)]),
    "dataset_prefetch":
        (c_int32, [c_void_p, c_void_p, c_size_t, POINTER(PrefetchedOptions), POINTER(c_void_p), POINTER(c_void_p)]),
    "prefetched_prefetch": (c_int32, [c_void_p, c_void_p, c_size_t, POINTER(c_void_p)]),
    "prefetched_clear": (c_int32, [c_void_p, POINTER(c_void_p)]),
    "stop_when": (c_int32, [c_void_p, POINTER(c_void_p)]),
}
