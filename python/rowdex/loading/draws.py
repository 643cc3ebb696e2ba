"""Draws of PyTorch from a generator of the thread, by the hook that PyTorch has for it."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_DRAWS = frozenset(
    "bernoulli bernoulli_ binomial cauchy_ exponential_ geometric_ kaiming_uniform_ log_normal_ multinomial normal "
    "normal_ poisson rand rand_like randint randint_like randn randn_like random_ randperm uniform_ _sample_dirichlet "
    "_standard_gamma".split()
)
"""What functions, methods and initialisers are called that take a generator."""
_REFUSED = frozenset(
    "alpha_dropout dropout dropout1d dropout2d dropout3d feature_alpha_dropout feature_dropout fractional_max_pool2d "
    "fractional_max_pool3d gumbel_softmax native_dropout rrelu rrelu_".split()
)
"""The same of those that take none."""


class Redirected(TorchFunctionMode):
    """Gives draws its own generator, within ``with`` and in this thread alone. A ``generator=`` of the caller stays."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator()

    def __torch_function__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        named = named or {}
        name = getattr(function, "__name__", "")
        if name in _REFUSED:
            raise self._refused(name)
        if name not in _DRAWS or named.get("generator") is not None:
            return function(*given, **named)
        try:
            return function(*given, **{**named, "generator": self.generator})
        except TypeError as error:
            raise self._refused(name) from error

    def _refused(self, name: str) -> TypeError:
        return TypeError(
            f"seeded: torch's {name} cannot be given a generator here, and all threads share the global "
            "one: draw otherwise, or write a function with a parameter rng"
        )
