"""The C API: structs, signatures, and the one place that loads the library.

Everything here mirrors ``include/rowdex.h``; its conventions hold.
"""

from __future__ import annotations

import ctypes
import os
import sys
from ctypes import (
    POINTER,
    Structure,
    c_bool,
    c_char_p,
    c_double,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any

ABI_VERSION = 1
"""The ``ROWDEX_ABI_VERSION`` of the header that this file was written for."""

NONE = 2**64 - 1
"""``ROWDEX_NONE``: in an option, really none at all."""

STATE_CAPACITY = 512
"""``ROWDEX_STATE_CAPACITY``."""

UNKNOWN = 2**32 - 1
"""``ROWDEX_UNKNOWN``."""


class ArrowSchema(Structure):
    """Of the Arrow C data interface."""


ArrowSchema._fields_ = [
    ("format", c_char_p),
    ("name", c_char_p),
    ("metadata", c_void_p),
    ("flags", c_int64),
    ("n_children", c_int64),
    ("children", POINTER(POINTER(ArrowSchema))),
    ("dictionary", POINTER(ArrowSchema)),
    ("release", ctypes.CFUNCTYPE(None, c_void_p)),
    ("private_data", c_void_p),
]


class ArrowArray(Structure):
    """Of the Arrow C data interface."""


ArrowArray._fields_ = [
    ("length", c_int64),
    ("null_count", c_int64),
    ("offset", c_int64),
    ("n_buffers", c_int64),
    ("n_children", c_int64),
    ("buffers", POINTER(c_void_p)),
    ("children", POINTER(POINTER(ArrowArray))),
    ("dictionary", POINTER(ArrowArray)),
    ("release", ctypes.CFUNCTYPE(None, c_void_p)),
    ("private_data", c_void_p),
]


class ArrowArrayStream(Structure):
    """Of the Arrow C stream interface."""

    _fields_ = [
        ("get_schema", c_void_p),
        ("get_next", c_void_p),
        ("get_last_error", c_void_p),
        ("release", ctypes.CFUNCTYPE(None, c_void_p)),
        ("private_data", c_void_p),
    ]


Progress = ctypes.CFUNCTYPE(None, c_void_p, c_uint64, c_uint64, c_uint64)
Difference = ctypes.CFUNCTYPE(None, c_void_p, c_char_p)


class Str(Structure):
    """``rowdex_str``: not terminated by a NUL."""

    _fields_ = [("data", c_void_p), ("len", c_size_t)]

    def text(self) -> str:
        return ctypes.string_at(self.data, self.len).decode() if self.data else ""


class Versioned(Structure):
    """A struct that begins with its size."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(ctypes.sizeof(type(self)), **fields)


class ErrorInfo(Versioned):
    _fields_ = [
        ("struct_size", c_size_t),
        ("kind", c_int32),
        ("has_row_group", c_uint32),
        ("row_group", c_uint64),
        ("message", c_char_p),
        ("file", c_char_p),
        ("column", c_char_p),
        ("hint", c_char_p),
    ]


class StoreConfig(Structure):
    _fields_ = [("name", c_char_p), ("value", c_char_p)]


class StoreOptions(Versioned):
    _fields_ = [
        ("struct_size", c_size_t),
        ("concurrency", c_uint64),
        ("deadline_ms", c_uint64),
        ("retries", c_uint64),
        ("config", POINTER(StoreConfig)),
        ("num_config", c_size_t),
    ]


class BuildOptions(Versioned):
    _fields_ = [
        ("struct_size", c_size_t),
        ("inputs", POINTER(c_char_p)),
        ("num_inputs", c_size_t),
        ("root", c_char_p),
        ("schema_mode", c_char_p),
        ("rows_file", c_char_p),
        ("threads", c_uint64),
        ("overwrite", c_uint32),
        ("update", c_uint32),
        ("no_footers", c_uint32),
        ("no_partitions", c_uint32),
        ("progress", Progress),
        ("progress_userdata", c_void_p),
        ("store", POINTER(StoreOptions)),
        ("parts", POINTER(c_char_p)),
        ("num_parts", c_size_t),
        ("slice", c_uint64),
        ("slices", c_uint64),
        ("renames_from", POINTER(c_char_p)),
        ("renames_to", POINTER(c_char_p)),
        ("num_renames", c_size_t),
        ("difference", Difference),
        ("difference_userdata", c_void_p),
    ]


class BuildReport(Versioned):
    _fields_ = [
        ("struct_size", c_size_t),
        ("files", c_uint64),
        ("kept_files", c_uint64),
        ("row_groups", c_uint64),
        ("rows", c_uint64),
        ("source_rows", c_uint64),
        ("index_bytes", c_uint64),
        ("read_files", c_uint64),
        ("requests", c_uint64),
        ("footer_bytes", c_uint64),
        ("repeated_files", c_uint64),
    ]


class SelectOptions(Versioned):
    _fields_ = [
        ("struct_size", c_size_t),
        ("rows_file", c_char_p),
        ("skip_file", c_char_p),
        ("kept", c_void_p),
        ("kept_note", c_char_p),
        ("and_views", c_void_p),
        ("num_and", c_size_t),
        ("not_views", c_void_p),
        ("num_not", c_size_t),
        ("or_views", c_void_p),
        ("num_or", c_size_t),
        ("sample", c_double),
        ("sample_seed", c_uint64),
        ("overwrite", c_uint64),
        ("store", POINTER(StoreOptions)),
        ("filter", c_char_p),
        ("filter_root", c_char_p),
        ("progress", Progress),
        ("progress_userdata", c_void_p),
        ("split_side", c_char_p),
        ("split_by", c_char_p),
        ("split_fraction", c_double),
        ("split_seed", c_uint64),
        ("update", c_uint64),
    ]


class SelectReport(Versioned):
    _fields_ = [
        ("struct_size", c_size_t),
        ("rows", c_uint64),
        ("base_rows", c_uint64),
        ("source_rows", c_uint64),
        ("repeated", c_uint64),
        ("unserved", c_uint64),
        ("index_bytes", c_uint64),
        ("kept_files", c_uint64),
    ]


class ListedInfo(Versioned):
    _fields_ = [("struct_size", c_size_t), ("repeated", c_uint64), ("unserved", c_uint64)]


class IndexInfo(Versioned):
    _fields_ = [
        ("struct_size", c_size_t),
        ("rows", c_uint64),
        ("source_rows", c_uint64),
        ("row_groups", c_uint64),
        ("files", c_uint64),
        ("columns", c_uint64),
        ("size_bytes", c_uint64),
        ("fingerprint", c_uint64),
        ("root", Str),
        ("root_is_relative", c_uint64),
        ("build_info", Str),
    ]


class FileInfo(Versioned):
    _fields_ = [
        ("struct_size", c_size_t),
        ("path", Str),
        ("size", c_uint64),
        ("first_row_group", c_uint64),
        ("row_groups", c_uint64),
        ("first_row", c_uint64),
        ("rows", c_uint64),
    ]


class RowGroupInfo(Versioned):
    _fields_ = [
        ("struct_size", c_size_t),
        ("file", c_uint32),
        ("ordinal", c_uint32),
        ("first_row", c_uint64),
        ("rows", c_uint64),
        ("source_rows", c_uint64),
        ("decoded_bytes", c_uint64),
    ]


class Location(Structure):
    _fields_ = [
        ("row_group", c_uint32),
        ("file", c_uint32),
        ("ordinal", c_uint32),
        ("reserved", c_uint32),
        ("row", c_uint64),
        ("slot", c_uint64),
    ]


class DiskTier(Versioned):
    _fields_ = [
        ("struct_size", c_size_t),
        ("folder", c_char_p),
        ("bytes", c_uint64),
        ("kind", c_char_p),
        ("wait_ms", c_uint64),
    ]


class DatasetOptions(Versioned):
    _fields_ = [
        ("struct_size", c_size_t),
        ("columns", POINTER(c_char_p)),
        ("num_columns", c_size_t),
        ("root", c_char_p),
        ("staleness", c_char_p),
        ("cache_bytes", c_uint64),
        ("threads", c_uint64),
        ("max_decoded_bytes", c_uint64),
        ("store", POINTER(StoreOptions)),
        ("disk_tier", POINTER(DiskTier)),
    ]


class Counters(Versioned):
    _fields_ = [
        ("struct_size", c_size_t),
        ("hits", c_uint64),
        ("misses", c_uint64),
        ("decodes", c_uint64),
        ("bytes_decoded", c_uint64),
        ("bytes_read", c_uint64),
        ("evictions", c_uint64),
        ("held_bytes", c_uint64),
        ("requests", c_uint64),
        ("bytes_fetched", c_uint64),
        ("tier_hits", c_uint64),
        ("tier_misses", c_uint64),
        ("tier_writes", c_uint64),
        ("tier_bytes_written", c_uint64),
        ("tier_evictions", c_uint64),
        ("tier_bytes_evicted", c_uint64),
        ("tier_discards", c_uint64),
        ("tier_timeouts", c_uint64),
    ]


class LabelsInfo(Versioned):
    _fields_ = [
        ("struct_size", c_size_t),
        ("codes", c_void_p),
        ("num_codes", c_size_t),
        ("num_classes", c_size_t),
    ]


class ClassCount(Versioned):
    _fields_ = [
        ("struct_size", c_size_t),
        ("kind", c_char_p),
        ("value", c_void_p),
        ("value_len", c_size_t),
        ("rows", c_uint64),
    ]


class VerifyInfo(Versioned):
    _fields_ = [
        ("struct_size", c_size_t),
        ("files", c_uint64),
        ("rows", c_uint64),
        ("problems", c_uint64),
    ]


class SamplerOptions(Versioned):
    _fields_ = [
        ("struct_size", c_size_t),
        ("rank", c_uint32),
        ("world_size", c_uint32),
        ("batch_size", c_uint64),
        ("tail", c_char_p),
        ("replica_layout", c_char_p),
        ("replicas", c_uint32),
        ("drop_last_batch", c_uint32),
        ("partition", c_char_p),
        ("rotation", c_char_p),
    ]


class SamplerInfo(Versioned):
    _fields_ = [
        ("struct_size", c_size_t),
        ("epoch", c_uint64),
        ("len", c_uint64),
        ("steps", c_uint64),
        ("batch_size", c_uint64),
        ("rank", c_uint32),
        ("world_size", c_uint32),
        ("shards", c_uint32),
        ("shard", c_uint32),
        ("fingerprint", c_uint64),
        ("samples_left", c_uint64),
        ("steps_left", c_uint64),
    ]


class LoaderInfo(Versioned):
    _fields_ = [
        ("struct_size", c_size_t),
        ("epoch", c_uint64),
        ("step", c_uint64),
        ("steps", c_uint64),
        ("steps_left", c_uint64),
    ]


# ROWDEX_STATUS_TIMED_OUT
TIMED_OUT = 16
# Milliseconds that a call waits for a batch.
_MAX_WAIT = 100


class LoaderOptions(Versioned):
    def __init__(self, **fields: Any) -> None:
        super().__init__(max_wait=_MAX_WAIT, **fields)

    _fields_ = [
        ("struct_size", c_size_t),
        ("memory", c_uint64),
        ("threads", c_uint64),
        ("read_ahead", c_uint64),
        ("epochs", c_uint64),
        ("more_ranks", c_void_p),
        ("num_more_ranks", c_size_t),
        ("on_fault", c_char_p),
        ("fault_seed", c_uint64),
        ("views", c_uint64),
        ("read_concurrency", c_uint64),
        ("share", c_char_p),
        ("share_name", c_char_p),
        ("share_job", c_char_p),
        ("share_ranks", c_uint64),
        ("share_drift", c_uint64),
        ("share_on_death", c_char_p),
        ("max_wait", c_uint64),
    ]


class Prediction(Versioned):
    _fields_ = [
        ("struct_size", c_size_t),
        ("first_passes", c_double),
        ("passes", c_double),
        ("decodes", c_double),
        ("first_batch_decodes", c_uint64),
        ("peak_bytes", c_uint64),
        ("first_decodes", c_double),
        ("first_bytes_read", c_uint64),
        ("bytes_read", c_uint64),
        ("first_requests", c_uint64),
        ("requests", c_uint64),
        ("units", c_uint64),
        ("bookkeeping_bytes", c_uint64),
        ("least_memory", c_uint64),
    ]


class Substituted(Structure):
    _fields_ = [("place", c_uint64), ("lost", c_uint64)]


class BatchInfo(Versioned):
    _fields_ = [
        ("struct_size", c_size_t),
        ("epoch", c_uint64),
        ("step", c_uint64),
        ("steps", c_uint64),
        ("rank", c_uint64),
        ("num_rows", c_uint64),
        ("num_pads", c_uint64),
        ("row_ids", c_void_p),
        ("substituted", POINTER(Substituted)),
        ("num_substituted", c_uint64),
    ]


class LoaderStats(Versioned):
    _fields_ = [
        ("struct_size", c_size_t),
        ("decodes", c_uint64),
        ("extractions", c_uint64),
        ("rows", c_uint64),
        ("held_bytes", c_uint64),
        ("peak_bytes", c_uint64),
        ("planning_ns", c_uint64),
        ("decoding_ns", c_uint64),
        ("extracting_ns", c_uint64),
        ("assembling_ns", c_uint64),
        ("substituted", c_uint64),
        ("drift", c_uint64),
        ("window_bytes", c_uint64),
    ]


class AnnouncedOptions(Versioned):
    _fields_ = [
        ("struct_size", c_size_t),
        ("memory", c_uint64),
        ("threads", c_uint64),
        ("portion", c_uint64),
    ]


class AnnouncedStats(Versioned):
    _fields_ = [
        ("struct_size", c_size_t),
        ("announced", c_uint64),
        ("waiting", c_uint64),
        ("followed", c_uint64),
        ("fell_back", c_uint64),
        ("skipped", c_uint64),
        ("decodes", c_uint64),
        ("extractions", c_uint64),
        ("rows", c_uint64),
        ("held_bytes", c_uint64),
        ("peak_bytes", c_uint64),
        ("planning_ns", c_uint64),
        ("decoding_ns", c_uint64),
        ("extracting_ns", c_uint64),
        ("assembling_ns", c_uint64),
    ]


class Launch(Versioned):
    _fields_ = [
        ("struct_size", c_size_t),
        ("rank", c_uint32),
        ("world_size", c_uint32),
        ("local_rank", c_uint32),
        ("local_world_size", c_uint32),
        ("launcher", Str),
    ]


class OrderOptions(Versioned):
    _fields_ = [
        ("struct_size", c_size_t),
        ("index", c_void_p),
        ("indexes", c_void_p),
        ("num_indexes", c_size_t),
        ("group_rows", c_void_p),
        ("num_groups", c_size_t),
        ("order", c_char_p),
        ("row_ids", c_void_p),
        ("num_row_ids", c_size_t),
        ("order_file", c_char_p),
        ("weights", c_void_p),
        ("num_weights", c_size_t),
        ("labels", c_void_p),
        ("num_labels", c_size_t),
        ("parts", c_void_p),
        ("num_parts", c_size_t),
        ("inner", c_void_p),
        ("proportions", c_void_p),
        ("num_proportions", c_size_t),
        ("kept", c_void_p),
        ("size", c_uint64),
        ("seed", c_uint64),
        ("shards", c_uint32),
        ("rotated", c_uint32),
        ("permutation", c_uint32),
        ("without_replacement", c_uint32),
    ]


_HANDLE = c_void_p
_OUT = POINTER(c_void_p)
_ARRAY = POINTER(ArrowArray)
_SCHEMA = POINTER(ArrowSchema)

# Name: result, arguments. The error, which comes last wherever the result is a status, is left out.
_STATUS = "status"
SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "abi_version": (c_uint32, []),
    "version": (c_char_p, []),
    "error_get_info": (c_int32, [_HANDLE, POINTER(ErrorInfo)]),
    "error_free": (None, [_HANDLE]),
    "stop_when": (_STATUS, [POINTER(c_uint32)]),
    "index_build": (_STATUS, [c_char_p, POINTER(BuildOptions), POINTER(BuildReport)]),
    "index_open": (_STATUS, [c_char_p, POINTER(StoreOptions), _OUT]),
    "index_from_memory": (_STATUS, [c_char_p, c_size_t, _OUT]),
    "index_free": (None, [_HANDLE]),
    "index_len": (c_uint64, [_HANDLE]),
    "index_get_info": (_STATUS, [_HANDLE, POINTER(IndexInfo)]),
    "index_get_file": (_STATUS, [_HANDLE, c_uint32, POINTER(FileInfo)]),
    "index_get_row_group": (_STATUS, [_HANDLE, c_uint32, POINTER(RowGroupInfo)]),
    "index_schema": (_STATUS, [_HANDLE, _SCHEMA]),
    "index_locate": (_STATUS, [_HANDLE, POINTER(c_uint64), c_size_t, POINTER(Location)]),
    "index_verify": (_STATUS, [_HANDLE]),
    "dataset_open": (_STATUS, [_HANDLE, POINTER(DatasetOptions), _OUT]),
    "dataset_mixed": (_STATUS, [c_void_p, c_size_t, _OUT]),
    "dataset_free": (None, [_HANDLE]),
    "dataset_len": (c_uint64, [_HANDLE]),
    "dataset_index": (c_void_p, [_HANDLE]),
    "dataset_decoded_bytes": (_STATUS, [_HANDLE, POINTER(c_uint64)]),
    "dataset_schema": (_STATUS, [_HANDLE, _SCHEMA]),
    "dataset_take": (_STATUS, [_HANDLE, c_void_p, c_size_t, _OUT]),
    "dataset_plan": (_STATUS, [_HANDLE, c_void_p, c_size_t, POINTER(AnnouncedOptions), _OUT]),
    "dataset_labels": (_STATUS, [_HANDLE, c_char_p, _HANDLE, _OUT]),
    "dataset_weights": (_STATUS, [_HANDLE, c_char_p, _HANDLE, c_void_p, c_size_t]),
    "dataset_counts": (_STATUS, [_HANDLE, c_char_p, _HANDLE, _OUT]),
    "counts_len": (c_size_t, [_HANDLE]),
    "counts_get": (_STATUS, [_HANDLE, c_size_t, POINTER(ClassCount)]),
    "counts_free": (None, [_HANDLE]),
    "index_weights": (_STATUS, [_HANDLE, c_char_p, c_char_p, _HANDLE, c_void_p, c_size_t]),
    "index_weights_stream": (_STATUS, [_HANDLE, c_void_p, c_char_p, _HANDLE, c_void_p, c_size_t]),
    "labels_get_info": (_STATUS, [_HANDLE, POINTER(LabelsInfo)]),
    "labels_class": (c_char_p, [_HANDLE, c_size_t]),
    "labels_free": (None, [_HANDLE]),
    "announced_close": (None, [_HANDLE]),
    "announced_free": (None, [_HANDLE]),
    "announced_announce": (_STATUS, [_HANDLE, c_void_p, c_size_t]),
    "announced_clear": (_STATUS, [_HANDLE]),
    "announced_take": (_STATUS, [_HANDLE, c_void_p, c_size_t, _OUT]),
    "announced_get_stats": (_STATUS, [_HANDLE, POINTER(AnnouncedStats)]),
    "dataset_counters": (_STATUS, [_HANDLE, POINTER(Counters)]),
    "dataset_tier_fault": (_STATUS, [_HANDLE, _OUT]),
    "dataset_verify": (_STATUS, [_HANDLE, c_char_p, Progress, c_void_p, _OUT]),
    "verify_report_get_info": (_STATUS, [_HANDLE, POINTER(VerifyInfo)]),
    "verify_report_problem": (c_void_p, [_HANDLE, c_size_t]),
    "verify_report_free": (None, [_HANDLE]),
    "order_new": (_STATUS, [POINTER(OrderOptions), _OUT]),
    "order_free": (None, [_HANDLE]),
    "id_set_from_ids": (_STATUS, [c_uint64, c_void_p, c_size_t, _OUT]),
    "id_set_from_ranges": (_STATUS, [c_uint64, c_void_p, c_size_t, _OUT]),
    "id_set_listed": (_STATUS, [_HANDLE, c_char_p, _OUT]),
    "id_set_split": (_STATUS, [c_uint64, c_char_p, c_double, c_uint64, _OUT]),
    "id_set_split_by": (_STATUS, [_HANDLE, c_char_p, _HANDLE, c_char_p, c_double, c_uint64, _OUT]),
    "id_set_filter": (_STATUS, [_HANDLE, c_char_p, _HANDLE, _OUT]),
    "id_set_complement": (_STATUS, [_HANDLE, _OUT]),
    "id_set_intersection": (_STATUS, [_HANDLE, _HANDLE, _OUT]),
    "id_set_union": (_STATUS, [_HANDLE, _HANDLE, _OUT]),
    "id_set_of_view": (_STATUS, [_HANDLE, _HANDLE, _OUT]),
    "id_set_listed_stream": (_STATUS, [_HANDLE, c_void_p, POINTER(ListedInfo), _OUT]),
    "select": (_STATUS, [_HANDLE, c_char_p, POINTER(SelectOptions), POINTER(SelectReport)]),
    "id_set_free": (None, [_HANDLE]),
    "id_set_len": (c_uint64, [_HANDLE]),
    "id_set_rows": (c_uint64, [_HANDLE]),
    "id_set_contains": (c_bool, [_HANDLE, c_uint64]),
    "id_set_fill": (_STATUS, [_HANDLE, c_uint64, c_void_p, c_size_t, POINTER(c_size_t)]),
    "launch_from_env": (_STATUS, [POINTER(Launch)]),
    "sampler_new": (_STATUS, [_HANDLE, POINTER(SamplerOptions), _OUT]),
    "sampler_free": (None, [_HANDLE]),
    "sampler_get_info": (_STATUS, [_HANDLE, POINTER(SamplerInfo)]),
    "sampler_set_epoch": (_STATUS, [_HANDLE, c_uint64]),
    "sampler_fill": (_STATUS, [_HANDLE, c_uint64, c_uint64, c_size_t, c_void_p, c_void_p]),
    "sampler_batch": (_STATUS, [_HANDLE, c_uint64, c_uint64, c_void_p, c_size_t, POINTER(c_size_t), POINTER(c_size_t)]),
    "sampler_state": (_STATUS, [_HANDLE, c_uint64, c_uint64, c_char_p, c_size_t]),
    "sampler_resume": (_STATUS, [_HANDLE, c_char_p]),
    "sampler_worker": (_STATUS, [_HANDLE, c_uint64, c_uint64, _OUT]),
    "loader_new": (_STATUS, [_HANDLE, _HANDLE, POINTER(LoaderOptions), _OUT]),
    "loader_close": (None, [_HANDLE]),
    "loader_free": (None, [_HANDLE]),
    "loader_predict": (_STATUS, [_HANDLE, _HANDLE, POINTER(LoaderOptions), POINTER(Prediction)]),
    "loader_schema": (_STATUS, [_HANDLE, _SCHEMA]),
    "loader_lost_groups": (_STATUS, [_HANDLE, _OUT]),
    "lost_groups_len": (c_size_t, [_HANDLE]),
    "lost_groups_get": (c_void_p, [_HANDLE, c_size_t, POINTER(c_uint32)]),
    "lost_groups_free": (None, [_HANDLE]),
    "loader_next": (_STATUS, [_HANDLE, _OUT]),
    "loader_peek": (_STATUS, [_HANDLE, c_uint64, c_uint64, c_size_t, _OUT]),
    "loader_advance": (_STATUS, [_HANDLE, c_uint64, c_uint64]),
    "loader_get_info": (_STATUS, [_HANDLE, POINTER(LoaderInfo)]),
    "loader_state": (_STATUS, [_HANDLE, c_char_p, c_size_t]),
    "loader_reopen": (_STATUS, [_HANDLE, _OUT]),
    "loader_seek": (_STATUS, [_HANDLE, c_uint64, c_uint64]),
    "loader_stream": (_STATUS, [_HANDLE, POINTER(ArrowArrayStream)]),
    "loader_resume": (_STATUS, [_HANDLE, c_char_p]),
    "loader_set_epoch": (_STATUS, [_HANDLE, c_uint64]),
    "loader_begin_epoch": (_STATUS, [_HANDLE, POINTER(LoaderInfo)]),
    "loader_get_stats": (_STATUS, [_HANDLE, POINTER(LoaderStats)]),
    "batch_get_info": (_STATUS, [_HANDLE, POINTER(BatchInfo)]),
    "batch_export": (_STATUS, [_HANDLE, _ARRAY, _SCHEMA]),
    "batch_stream": (_STATUS, [_HANDLE, POINTER(ArrowArrayStream)]),
    "batch_free": (None, [_HANDLE]),
    "array_release": (None, [_HANDLE]),
    "schema_copy": (_STATUS, [_HANDLE, _SCHEMA]),
    "schema_release": (None, [_HANDLE]),
}


def _candidates() -> list[str]:
    name = "librowdex.dylib" if sys.platform == "darwin" else "librowdex.so"
    here = os.path.dirname(os.path.abspath(__file__))
    named = os.environ.get("ROWDEX_LIBRARY")
    if named is not None:
        return [named]
    return [os.path.join(here, name), os.path.join(here, "..", "..", "target", "release", name)]


def load() -> Any:
    """The library with all signatures set.

    Raises:
        ImportError: if it is missing, cannot be loaded, or is of another ABI version.
    """
    candidates = _candidates()
    path = next((path for path in candidates if os.path.isfile(path)), None)
    if path is None:
        raise ImportError(
            f"the rowdex library is missing: no {' or '.join(candidates)}; "
            "install the package again (pip install ./python), or set ROWDEX_LIBRARY to the library"
        )
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"the rowdex library cannot be loaded: {error}; install the package again") from error
    try:
        version = library.rowdex_abi_version
    except AttributeError:
        raise ImportError(f"{path} is not the rowdex library: it has no rowdex_abi_version") from None
    version.restype = c_uint32
    if version() != ABI_VERSION:
        raise ImportError(
            f"{path} has version {version()} of the C API and this package needs version {ABI_VERSION}; "
            "install package and library together (pip install ./python)"
        )
    for name, (result, arguments) in SIGNATURES.items():
        try:
            function = getattr(library, f"rowdex_{name}")
        except AttributeError:
            raise ImportError(
                f"{path} has no rowdex_{name}: it is older than this package; install both together (pip install "
                "./python)"
            ) from None
        function.restype = c_int32 if result is _STATUS else result
        function.argtypes = [*arguments, _OUT] if result is _STATUS else arguments
        setattr(library, name, function)
    return library


def pointer_to(numbers: ctypes.Array[Any]) -> c_void_p:
    """The address of an array."""
    return c_void_p(ctypes.addressof(numbers))
