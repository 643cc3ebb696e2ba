"""Functions of users that name random numbers: which they get is decided here."""

from __future__ import annotations

from typing import Any

from .seeded import Seeded, parameters_of

_OTHER = {"rng": "rngs", "rngs": "rng"}
_OF = {"rng": "value", "rngs": "batch"}


def asked(argument: str, function: Any, name: str) -> str | None:
    """What a function is called with besides its value: ``"seed"``, the name if it has such a parameter, or nothing.

    Args:
        argument: The option that it was given to.
        name: ``"rng"`` for functions of a value, ``"rngs"`` for those of a batch.

    Raises:
        TypeError: if it needs what only functions of the other kind get.
    """
    if isinstance(function, Seeded):
        if name == "rngs":
            raise TypeError(
                f"{argument} is seeded(…), for functions of a value: give it to decode=, or write a function of the "
                "batch with a parameter rngs"
            )
        return "seed"
    parameters = parameters_of(function)
    other = parameters.get(_OTHER[name])
    if other is not None and other.default is other.empty and name not in parameters:
        raise TypeError(f"{argument} has a parameter {other.name}: a function of a {_OF[name]} gets {name}")
    return name if name in parameters else None


def called(function: Any, asks: str | None, value: Any, numbers: Any, place: int) -> Any:
    """What a function of a value returns for the row at a place in its batch."""
    if asks is None:
        return function(value)
    if asks == "seed":
        return function.of(value, numbers.seed(place))
    return function(value, rng=numbers.rng(place))
