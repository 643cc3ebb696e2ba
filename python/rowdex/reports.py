"""What functions return that says what they did, will do or found."""

from .batch import Substituted
from .building import BuildReport
from .dataset import Counters, Labels, VerifyReport
from .digest import SameRows
from .index import FileInfo, Location
from .loading.reports import LostGroup, LostRow, PackForecast, Prediction
from .loading.stats import LoaderStats
from .prefetched import Prefetched, PrefetchedStats
from .rewriting import ShuffleReport
from .sampler import SampledBatch
from .schema import Field
from .spec import SamplerSpec
from .tier import TierCounters
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
    "Prediction",
    "Prefetched",
    "PrefetchedStats",
    "SameRows",
    "SampledBatch",
    "SamplerSpec",
    "SelectReport",
    "ShuffleReport",
    "Substituted",
    "TierCounters",
    "VerifyReport",
]
