"""How the weights of a mixture change in the course of a run, as a description has it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Union

from .native.library import Operands, told_of, whole

Stages = Sequence[tuple[Union[int, str], Mapping[str, float]]]
Weights = tuple[tuple[str, float], ...]
_SCALES = {"": 1, "k": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


class StagePlan(NamedTuple):
    """Values that can be compared."""

    sources: tuple[str, ...]
    stages: tuple[tuple[int | str, Weights], ...]
    unit: str
    ramp: str
    on_exhausted: str
    repetitions: Weights

    def _operand(self, operands: Operands) -> dict[str, Any]:
        fields = self._asdict()
        in_rows = fields.pop("unit") == "rows"
        if in_rows and any(isinstance(start, str) for start, _ in self.stages):
            raise ValueError("a stage begins at a number of tokens: give unit='tokens', the name of recorded lengths")
        stages = list(self.stages) if in_rows else self._by_rows(operands)
        named = [(start, dict(weights)) for start, weights in stages]
        return fields | {"stages": named, "repetitions": dict(self.repetitions)}

    def _by_rows(self, operands: Operands) -> list[tuple[int, Weights]]:
        """The stages by positions and weights of rows, where weights are shares of tokens."""
        lengths = dict(zip(self.sources, self._mean_lengths(operands)))
        stages = []
        means = []
        for _, weights in self.stages:
            rows = [(name, weight / lengths.get(name, 1)) for name, weight in weights]
            stages.append(tuple(rows))
            means.append(sum(weight for _, weight in weights) / (sum(weight for _, weight in rows) or 1))
        if self.ramp == "linear":
            # The mean length changes with the weights, linearly.
            means = [(here + after) / 2 for here, after in zip(means, [*means[1:], means[-1]])]
        starts: list[int] = []
        tokens = 0.0
        for (start, _), mean in zip(self.stages, [0, *means]):
            before = starts[-1] if starts else 0
            if isinstance(start, str):
                start = before + round((_tokens(start) - tokens) / (mean or 1))
            tokens += (start - before) * mean
            starts.append(start)
        return list(zip(starts, stages))

    def _mean_lengths(self, operands: Operands) -> list[float]:
        means = []
        for source, handle in zip(self.sources, operands.indexes):
            told = told_of(handle)
            sums = {one["name"]: one["sum"] for one in told["lengths"]}
            if not sums.get(self.unit):
                raise ValueError(
                    f"unit={self.unit!r}: the index of {source!r} has no lengths by this name, or they are all 0; "
                    f"build it with lengths=[{self.unit!r}], or use unit='rows'"
                )
            means.append(sums[self.unit] / told["rows"])
        return means


def pairs(stages: Stages) -> tuple[tuple[int | str, Weights], ...]:
    """Stages, checked as far as they can be without the datasets."""
    found = []
    for number, (start, weights) in enumerate(stages):
        position = start if isinstance(start, str) else whole(start, "the position of a stage")
        found.append((position, numbers(weights, f"stage {number}")))
    return tuple(found)


def numbers(given: Mapping[str, float], what: str) -> Weights:
    """Finite numbers by name."""
    for name, number in given.items():
        if not math.isfinite(number):
            raise ValueError(f"{what} gives {name!r} the number {number}: use a finite one")
    return tuple(sorted((name, float(number)) for name, number in given.items()))


def _tokens(text: str) -> float:
    found = re.fullmatch(r"([0-9.]+) ?([kMBT]?) tokens", text)
    if found is None:
        raise ValueError(f"a stage begins at {text!r}: use a position, or a text such as '2B tokens'")
    return float(found[1]) * _SCALES[found[2]]
