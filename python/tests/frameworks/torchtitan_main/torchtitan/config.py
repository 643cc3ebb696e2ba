"""What torchtitan builds its parts of, as far as a dataloader meets it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar


class Configurable:
    """A class with a nested ``Config``, whose ``build`` makes it."""

    @dataclass(kw_only=True, slots=True)
    class Config:
        _owner: ClassVar[type | None] = None

        def build(self, **runtime: Any) -> Any:
            own = {field.name for field in fields(self)}
            if own & runtime.keys():
                raise ValueError(f"{own & runtime.keys()} are of the Config")
            assert self._owner is not None
            return self._owner(config=replace(self), **runtime)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        config = cls.__dict__.get("Config")
        if config is not None:
            if "__slots__" not in config.__dict__ or any(field.init and not field.kw_only for field in fields(config)):
                raise TypeError(f"{cls.__name__}.Config is no dataclass(kw_only=True, slots=True)")
            config._owner = cls
