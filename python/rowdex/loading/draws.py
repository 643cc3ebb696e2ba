"""Draws of PyTorch from a generator of the thread, by the hook that PyTorch has for it."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_FUNCTIONS = (
    "bernoulli binomial multinomial normal poisson rand rand_like randint randint_like randn randn_like randperm "
    "_sample_dirichlet _standard_gamma"
).split()
_METHODS = (
    "bernoulli bernoulli_ cauchy_ exponential_ geometric_ log_normal_ multinomial normal_ random_ uniform_"
).split()
_INITS = "kaiming_uniform_ normal_ uniform_".split()
# These take no generator.
_GLOBAL = "alpha_dropout dropout feature_alpha_dropout feature_dropout native_dropout rrelu rrelu_".split()
_NESTED = (
    "alpha_dropout dropout dropout1d dropout2d dropout3d feature_alpha_dropout fractional_max_pool2d "
    "fractional_max_pool3d gumbel_softmax rrelu"
).split()


def _all(owner: Any, names: list[str]) -> set[Any]:
    return {getattr(owner, name) for name in names if hasattr(owner, name)}


_DRAWS = _all(torch, _FUNCTIONS) | _all(torch.Tensor, _METHODS) | _all(torch.nn.init, _INITS)
_REFUSED = _all(torch, _GLOBAL) | _all(torch.nn.functional, _NESTED)


class Redirected(TorchFunctionMode):
    """Gives draws its own generator, within ``with`` and in this thread alone. A ``generator=`` of the caller stays."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator()

    def __torch_function__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        named = named or {}
        if function in _REFUSED:
            raise self._refused(function)
        if function not in _DRAWS or named.get("generator") is not None:
            return function(*given, **named)
        try:
            return function(*given, **{**named, "generator": self.generator})
        except TypeError as error:
            raise self._refused(function) from error

    def _refused(self, function: Any) -> TypeError:
        return TypeError(
            f"seeded: torch's {function.__name__} cannot be given a generator here, and all threads share the global "
            "one: draw otherwise, or write a function with a parameter rng"
        )
