"""What functions return that says what they did, will do or found."""

from .batch import Substituted
from .building import BuildReport
from .dataset import Counters, Labels, VerifyReport
from .digest import SameRows
from .index import FileInfo, Location
from .loading.reports import LostGroup, LostRow, PackForecast, Estimate
from .loading.stats import LoaderStats
from .prefetched import Prefetched, PrefetchedStats
from .rewriting import RewriteReport
from .schema import Field
from .spec import SampledBatch, SamplerSpec
from .disk_cache import DiskCacheCounters
from .views import SelectReport

__all__ = [
    "BuildReport",
    "Counters",
    "Field",
    "FileInfo",
    "Labels",
    "LoaderStats",
    "Location",
    "LostGroup",
    "LostRow",
    "PackForecast",
    "Estimate",
    "Prefetched",
    "PrefetchedStats",
    "SameRows",
    "SampledBatch",
    "SamplerSpec",
    "SelectReport",
    "RewriteReport",
    "Substituted",
    "DiskCacheCounters",
    "VerifyReport",
]
