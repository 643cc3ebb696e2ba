"""A lazy frame that reads the columns a query needs: python examples/with_polars.py train.rdx "column > 3"

It prints how many rows the condition keeps. `polars.DataFrame(dataset)` reads all columns of all rows."""

import sys

import polars as pl
import rowdex
from polars.io.plugins import register_io_source

ROWS = 1 << 16


def scan(dataset, row_ids="row"):
    """The columns of a dataset, and the row ids, which :func:`rowdex.select` and ``rowdex.order.Subset`` take."""

    def frames(columns, predicate, most_rows, _):
        names = dataset.column_names if columns is None else [name for name in columns if name != row_ids]
        rows = len(dataset) if most_rows is None else min(most_rows, len(dataset))
        for start in range(0, rows, ROWS):
            ids = range(start, min(start + ROWS, rows))
            numbers = [pl.Series(row_ids, ids, pl.UInt64)]
            values = pl.DataFrame(dataset.select(names).take(ids)).get_columns() if names else []
            frame = pl.DataFrame(numbers + values)
            frame = frame if columns is None else frame.select(columns)
            yield frame if predicate is None else frame.filter(predicate)

    schema = {row_ids: pl.UInt64, **pl.DataFrame(dataset.take([])).schema}
    return register_io_source(frames, schema=schema, is_pure=True)


if __name__ == "__main__":
    index, condition = sys.argv[1:]
    kept = scan(rowdex.Dataset(index, cache="256MiB")).filter(pl.sql_expr(condition)).select("row").collect()
    print(f"{len(kept)} rows")
