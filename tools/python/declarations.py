#!/usr/bin/env python3
"""Declares for ctypes what include/rowdex.h declares for C, in python/rowdex/native/declarations.py.

    tools/python/declarations.py           writes the declarations
    tools/python/declarations.py --check   fails if the declarations are not what the header says

Names are those of the header without ``rowdex_``. Pointers become what the package gives or takes there: texts are
``bytes``, known structs are typed, and numbers, handles and memory are addresses.
"""

from __future__ import annotations

import pathlib
import re
import sys
import textwrap
from collections.abc import Iterable
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADER, DECLARATIONS = ROOT / "include/rowdex.h", ROOT / "python/rowdex/native/declarations.py"
WIDTH = 120

NUMBERS = {
    "bool": "c_bool",
    "double": "c_double",
    "int": "c_int",
    "int32_t": "c_int32",
    "int64_t": "c_int64",
    "size_t": "c_size_t",
    "uint32_t": "c_uint32",
    "uint64_t": "c_uint64",
    "uint8_t": "c_uint8",
    "rowdex_status": "c_int32",
}
# Bytes with a length of their own inside, where all other texts without a length beside them end with a NUL.
NOT_TEXT = {("ArrowSchema", "metadata")}


class Value(NamedTuple):
    """A field, an argument or a result."""

    base: str
    """The type that is left without `const`, `struct` and pointers."""
    pointers: int
    name: str
    is_text: bool = True
    """Whether characters are a text that is handed over, and none that the library makes."""


class Callback(NamedTuple):
    """A pointer to a function."""

    result: Value
    arguments: list[Value]
    name: str


class Header:
    """What a header declares, in its order."""

    def __init__(self, text: str) -> None:
        self.constants = {name: number(value) for name, value in re.findall(r"^#define (\w+) (\w+)$", text, re.M)}
        self.statuses: dict[str, int] = {}
        self.handles: set[str] = set()
        self.structs: dict[str, list[Value | Callback]] = {}
        self.callbacks: dict[str, Callback] = {}
        self.functions: dict[str, tuple[Value, list[Value]]] = {}
        text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)
        # What is for C++ alone, and then all other lines of the preprocessor.
        text = re.sub(r"^#ifdef __cplusplus\s*\n.*?^#endif\s*\n", "", text, flags=re.M | re.S)
        text = re.sub(r"^#.*\n", "", text, flags=re.M)
        for statement in re.findall(r"((?:[^;{]|\{[^}]*\})*);", text):
            self.declare(" ".join(statement.split()))

    def declare(self, statement: str) -> None:
        if found := re.fullmatch(r"enum rowdex_status : int32_t \{ (.*?),? \}", statement):
            pairs = re.findall(r"ROWDEX_STATUS_(\w+) = (\d+)", found[1])
            self.statuses = {name: int(value) for name, value in pairs}
        elif statement in ("typedef enum rowdex_status rowdex_status", "typedef int32_t rowdex_status"):
            pass
        elif found := re.fullmatch(r"typedef struct (\w+) \1", statement):
            self.handles.add(found[1])
        elif found := re.fullmatch(r"(?:typedef )?struct (\w+) \{ (.*) \}(?: \1)?", statement):
            self.structs[found[1]] = [callback(field) or value(field) for field in found[2].split(";") if field.strip()]
        elif statement.startswith("typedef ") and (named := callback(statement.removeprefix("typedef "))):
            self.callbacks[named.name] = named
        elif found := re.fullmatch(r"([\w *]+?\browdex_\w+)\((.*)\)", statement):
            result = value(found[1])
            self.functions[result.name] = (result, arguments(found[2]))
        else:
            raise SystemExit(f"{HEADER.name} has a declaration of an unknown form: {statement}")

    def type_of(self, given: Value) -> str:
        """The type of a field or an argument; a text may be one."""
        if given.base in self.structs:
            return pointer_to(class_name(given.base), given.pointers)
        if not given.pointers:
            return class_name(given.base) if given.base in self.callbacks else NUMBERS[given.base]
        if given.base == "char" and given.is_text:
            return pointer_to("c_char_p", given.pointers - 1)
        if given.base not in {*NUMBERS, *self.handles, "char", "void"}:
            raise SystemExit(f"{HEADER.name} has an unknown type: {given.base}")
        return pointer_to("c_void_p", given.pointers - 1)

    def taken_by(self, function: str) -> list[str]:
        """What ends something is a destructor in Python, where nothing to end may be None: ctypes takes that for an
        address alone.
        """
        result, taken = self.functions[function]
        ends = self.result_of(result) == "None"
        return ["c_void_p" if ends and argument.pointers else self.type_of(argument) for argument in taken]

    def result_of(self, result: Value) -> str:
        return "None" if result.base == "void" and not result.pointers else self.type_of(result)

    def function_type(self, given: Callback) -> str:
        """Structs are addresses there: the package calls no function with them, and only hands some on."""
        taken = [
            "c_char_p" if argument.base == "char" else "c_void_p" if argument.pointers else self.type_of(argument)
            for argument in given.arguments
        ]
        return f"CFUNCTYPE({', '.join([self.result_of(given.result), *taken])})"

    def field_type(self, struct: str, place: int) -> str:
        fields = self.structs[struct]
        field = fields[place]
        if isinstance(field, Callback):
            return self.function_type(field)
        # With a length beside it, it has no NUL, and ctypes would read beyond its end.
        after = fields[place + 1].name if place + 1 < len(fields) else ""
        counted = after in ("len", f"{field.name}_len") or (struct, field.name) in NOT_TEXT
        return "c_void_p" if field.base == "char" and counted else self.type_of(field)


def number(text: str) -> int:
    """A constant of the preprocessor."""
    found = re.fullmatch(r"UINT(\d+)_MAX", text)
    return 2 ** int(found[1]) - 1 if found else int(text)


def value(text: str) -> Value:
    words = re.findall(r"\w+|\*", re.sub(r"\b(const|struct)\b", "", text))
    # A prototype may leave out the name.
    name = words.pop() if len(words) > 1 and words[-1] != "*" else ""
    return Value(words[0], words.count("*"), name, is_text="const" in text or words.count("*") < 2)


def arguments(text: str) -> list[Value]:
    return [] if text == "void" else [value(argument) for argument in text.split(",")]


def callback(text: str) -> Callback | None:
    found = re.fullmatch(r"\s*(.*?)\(\*(\w+)\)\((.*)\)", text)
    return Callback(value(found[1]), arguments(found[3]), found[2]) if found else None


def pointer_to(name: str, times: int) -> str:
    return "POINTER(" * times + name + ")" * times


def class_name(name: str) -> str:
    words = name.removeprefix("rowdex_").split("_")
    return "".join(word[0].upper() + word[1:] for word in words)


def filled(items: Iterable[str], indent: str) -> list[str]:
    """Lines with as many of the items as fit."""
    lines = [""]
    for item in items:
        longer = f"{lines[-1]} {item}," if lines[-1] else f"{indent}{item},"
        if len(longer) <= WIDTH:
            lines[-1] = longer
        else:
            lines.append(f"{indent}{item},")
    return lines


def struct_lines(header: Header, name: str) -> list[str]:
    fields = header.structs[name]
    types = [header.field_type(name, place) for place in range(len(fields))]
    pairs = [f'("{field.name}", {kind})' for field, kind in zip(fields, types)]
    own = class_name(name)
    if any(re.search(rf"\b{own}\b", kind) for kind in types):
        # Its own name is known only behind the class.
        return [f"class {own}(Structure): ...", "", "", f"{own}._fields_ = [", *filled(pairs, "    "), "]"]
    line = f"    _fields_ = [{', '.join(pairs)}]"
    lines = [line] if len(line) <= WIDTH else ["    _fields_ = [", *filled(pairs, "        "), "    ]"]
    return [f"class {own}(Structure):", *lines]


def function_lines(header: Header) -> list[str]:
    lines = []
    for name, (result, _) in header.functions.items():
        kinds = ", ".join(header.taken_by(name))
        name, kind = name.removeprefix("rowdex_"), header.result_of(result)
        line = f'    "{name}": ({kind}, [{kinds}]),'
        within = f"        ({kind}, [{kinds}]),"
        if len(within) > WIDTH:
            wrapped = textwrap.wrap(kinds, WIDTH - 12)
            within = "\n".join([f"        ({kind}, [", *(f"            {part}" for part in wrapped), "        ]),"])
        lines += [line] if len(line) <= WIDTH else [f'    "{name}":', within]
    return lines


def declarations(header: Header) -> str:
    blocks = [
        ["class Status(enum.IntEnum):", *(f"    {name} = {value}" for name, value in header.statuses.items())],
        [f"{class_name(name)} = {header.function_type(given)}" for name, given in header.callbacks.items()],
        *(struct_lines(header, name) for name in header.structs),
        [
            "# By its name without rowdex_: what a function returns, and what it is given.",
            "FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {",
            *function_lines(header),
            "}",
        ],
    ]
    body = "\n\n\n".join("\n".join(block) for block in blocks)
    constants = [f"{name.removeprefix('ROWDEX_')} = {value}" for name, value in header.constants.items()]
    used = sorted(set(re.findall(r"\b(?:c_\w+|POINTER|CFUNCTYPE|Structure)\b", body)), key=ctypes_order)
    lines = [
        "# Written by tools/python/declarations.py from include/rowdex.h; do not edit.",
        "# fmt: off",
        '"""What include/rowdex.h declares, for ctypes."""',
        "",
        "from __future__ import annotations",
        "",
        "import enum",
        "from ctypes import (",
        *filled(used, "    "),
        ")",
        "from typing import Any",
        "",
        *constants,
    ]
    return "\n".join(lines) + "\n\n\n" + body + "\n"


def ctypes_order(name: str) -> tuple[int, str]:
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


def main() -> None:
    written = declarations(Header(HEADER.read_text()))
    if "--check" not in sys.argv[1:]:
        DECLARATIONS.write_text(written)
    elif not DECLARATIONS.is_file() or DECLARATIONS.read_text() != written:
        place = DECLARATIONS.relative_to(ROOT)
        raise SystemExit(f"{place} is not what include/rowdex.h says: run python3 tools/python/declarations.py")


if __name__ == "__main__":
    main()
