"""Compares what pyarrow reads of rewritten files with what it reads of their inputs, row by row.

Takes a folder with a folder for each case: `input.parquet`, `order.txt` with a row number a line, and the output in
`output`. Prints a line for each difference. Inputs that pyarrow cannot read are passed over.
"""

import pathlib
import sys

import pyarrow as pa

from expect import REFUSALS, read


def shown(scalar):
    """A value as text and numbers that are equal if it is the same; nan is equal to nan."""
    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.StructScalar):
        return [shown(inner) for inner in scalar.values()]
    if isinstance(scalar, pa.ListScalar):
        return [shown(inner) for inner in scalar.values]
    if isinstance(scalar, pa.DictionaryScalar):
        return shown(scalar.value)
    if pa.types.is_temporal(scalar.type) and hasattr(scalar, "value"):
        return scalar.value
    return repr(scalar.as_py())


def metadata(table):
    """What a schema says beside its types, of itself and of its columns."""
    own = {key: value for key, value in (table.schema.metadata or {}).items() if key != b"ARROW:schema"}
    return own, [field.metadata for field in table.schema]


def written_as(kind):
    """The type that a column of this type gets: keys of dictionaries have 32 bits at least."""
    def inner(field):
        return field.with_type(written_as(field.type))

    types = pa.types
    if types.is_decimal32(kind) and kind.precision == 1:
        return pa.decimal64(1, kind.scale)
    if types.is_dictionary(kind):
        keys = pa.int32() if kind.index_type.bit_width < 32 else kind.index_type
        return pa.dictionary(keys, written_as(kind.value_type), kind.ordered)
    if types.is_struct(kind):
        return pa.struct([inner(field) for field in kind])
    if types.is_map(kind):
        return pa.map_(inner(kind.key_field), inner(kind.item_field), kind.keys_sorted)
    if types.is_fixed_size_list(kind):
        return pa.list_(inner(kind.value_field), kind.list_size)
    for is_list, make in (
        (types.is_list, pa.list_), (types.is_large_list, pa.large_list),
        (types.is_list_view, pa.list_view), (types.is_large_list_view, pa.large_list_view),
    ):  # fmt: skip
        if is_list(kind):
            return make(inner(kind.value_field))
    return kind


def differences(case):
    """Tells what differs between the input in an order and the output."""
    try:
        given = read(case / "input.parquet")
    except REFUSALS:
        return
    order = [int(line) for line in (case / "order.txt").read_text().split()]
    written = pa.concat_tables([read(path) for path in sorted((case / "output").glob("*.parquet"))])
    if given.schema.names != written.schema.names:
        yield f"columns {written.schema.names} of {given.schema.names}"
        return
    if metadata(given) != metadata(written):
        yield f"metadata {metadata(written)} of {metadata(given)}"
    if written.num_rows != len(order):
        yield f"{written.num_rows} rows of {len(order)}"
        return
    for place, field in enumerate(given.schema):
        field = field.with_type(written_as(field.type))
        if field.type != written.schema.field(place).type:
            yield f"{field.name}: type {written.schema.field(place).type} of {field.type}"
        elif field.nullable != written.schema.field(place).nullable:
            yield f"{field.name}: nullable {written.schema.field(place).nullable}"
        values = [shown(value) for value in given.column(place)]
        theirs, ours = [values[row] for row in order], [shown(value) for value in written.column(place)]
        wrong = [at for at, pair in enumerate(zip(theirs, ours)) if pair[0] != pair[1]]
        if wrong:
            at = wrong[0]
            yield f"{field.name}: {len(wrong)} other values of {field.type}: {ours[at]!r} of {theirs[at]!r} at {at}"


for case in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    for difference in differences(case):
        print(f"{case.name}: {difference}")
