"""Cases that show what options do where rowdex has the rows."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}

import rowdex
from accelerate.state import AcceleratorState, GradientState, PartialState

warnings.filterwarnings("ignore")
INDEX, TOKENS = "data/train.rdx", "data/tokens.rdx"
SIZE = 64

Case = Callable[[], None]
HONOURED: dict[str, dict[str, Case]] = {}
REFUSED: dict[str, dict[str, list[Callable[[], Any]]]] = {}


def honours(kind: str, *names: str) -> Callable[[Case], Case]:
    """Marks a case that shows what these options do."""

    def mark(case: Case) -> Case:
        HONOURED.setdefault(kind, {}).update(dict.fromkeys(names, case))
        return case

    return mark


def refuses(kind: str, name: str, *attempts: Callable[[], Any]) -> None:
    """Each of the attempts ends with an error that names the option."""
    REFUSED.setdefault(kind, {})[name] = list(attempts)


def ids(batches: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


def plain(size: int = SIZE, seed: int = 3, **options: Any) -> list[list[int]]:
    """What the loader serves that no framework has touched."""
    return ids(rowdex.Loader(rowdex.Dataset(INDEX, ["id"]), batch_size=size, seed=seed, **options))


def error_of(attempt: Callable[[], Any]) -> str:
    try:
        attempt()
    except Exception as error:
        cause = f" ({error.__cause__})" if error.__cause__ is not None else ""
        return f"{type(error).__name__}: {error}{cause}"
    return ""


def clear() -> None:
    """Forgets the accelerator: it is one for a process."""
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()
