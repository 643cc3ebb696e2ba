"""Functions that take no generator, with a seed for each row."""

from __future__ import annotations

import copy
import inspect
import threading
from collections.abc import Callable, Mapping
from typing import Any

from ..native.imports import loaded


class Seeded:
    """A function whose random numbers are those of the row: see :func:`rowdex.transforms.seeded`."""

    def __init__(self, function: Any, call: Callable[[Any, Any], Any] | None) -> None:
        self._function, self._call = function, call
        # What a thread draws with: a copy of the function, or a mode of torch.
        self._own = threading.local()

    def of(self, value: Any, seed: int) -> Any:
        """What it returns with this seed."""
        own = self._own.__dict__
        if hasattr(self._function, "set_random_seed"):
            if "function" not in own:
                own["function"] = copy.deepcopy(self._function)
            own["function"].set_random_seed(seed)
            return self._called(own["function"], value)
        if "mode" not in own:
            own["mode"] = loaded("rowdex.loading.draws").Redirected()
        own["mode"].generator.manual_seed(seed)
        with own["mode"]:
            return self._called(self._function, value)

    def _called(self, function: Any, value: Any) -> Any:
        return function(value) if self._call is None else self._call(function, value)

    def __call__(self, value: Any) -> Any:
        raise TypeError("seeded(…) draws by the row: give it to decode= of a loader, or transform= of a dataset")

    def __reduce__(self) -> Any:
        return Seeded, (self._function, self._call)

    def __repr__(self) -> str:
        return f"seeded({self._function!r})"


def seeded(function: Any, *, call: Callable[[Any, Any], Any] | None = None) -> Any:
    """For ``decode`` of a :class:`rowdex.Loader`: a function that takes no generator, with the random numbers of the
    row, as ``rng`` has them.

    What has ``set_random_seed``, as albumentations does, is copied for each thread and seeded for each row. Of any
    other function the draws of PyTorch are those of the row, as after ``torch.manual_seed``: the transforms of
    torchvision, ``torch.rand``, ``Tensor.uniform_`` and the like on a CPU. Draws of ``random`` and of ``numpy.random``
    stay global: write a function with a parameter ``rng`` for these.

    Args:
        function: Called with the value.
        call: Calls it, if not so: ``lambda function, value: function(image=value)["image"]``.

    Raises:
        TypeError: where PyTorch draws without a generator, as ``torch.nn.functional.dropout`` does.
    """
    if call is None and not hasattr(function, "set_random_seed") and "rng" in parameters_of(function):
        return function
    return Seeded(function, call)


def parameters_of(function: Any) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function by name."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        # Functions of C may not say.
        return {}
