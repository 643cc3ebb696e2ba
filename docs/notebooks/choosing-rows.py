# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Choosing rows
#
# By a condition in SQL, and by a query of another engine. What comes out is a *view*: an index of the same files that
# serves fewer rows. No data is copied, and shards of a view are as equal as those of any index. It needs rowdex,
# pyarrow, DuckDB and polars.

# %%
import pathlib

import duckdb
import numpy
import polars
import pyarrow
import pyarrow.parquet
import rowdex

# %%
pathlib.Path("pages").mkdir(exist_ok=True)
draw = numpy.random.default_rng(0)
for part in range(3):
    rows = {
        "id": numpy.arange(part * 2_000, (part + 1) * 2_000),
        "lang": draw.choice(["de", "en", "fr"], 2_000),
        "score": draw.random(2_000).astype("float32"),
        "text": ["word " * count for count in draw.integers(1, 60, 2_000)],
    }
    pyarrow.parquet.write_table(pyarrow.table(rows), f"pages/part-{part}.parquet", row_group_size=500)
rowdex.build("pages", "pages.rdx", overwrite=True)
rowdex.Dataset("pages.rdx")

# %% [markdown]
# ## A condition
#
# It is SQL, as after `where`. Columns that it does not name are not read.

# %%
where = "lang = 'en' and score > 0.5 and length(text) > 100"
rowdex.count("pages.rdx", where=where), rowdex.count("pages.rdx", where=where, by="lang")

# %%
rowdex.select("pages.rdx", "english.rdx", where=where, overwrite=True)
english = rowdex.Dataset("english.rdx")
english

# %% [markdown]
# A condition that cannot be right is an error before anything is read:

# %%
try:
    rowdex.select("pages.rdx", "none.rdx", where="langs = 'en'")
except rowdex.Error as error:
    print(error)

# %% [markdown]
# ## DuckDB
#
# Any query that gives files and rows of them is a list of rows. This one takes the ten best pages of each language,
# which no condition of one row can say.

# %%
best = duckdb.sql("""
    select filename as file, file_row_number as row_in_file
    from read_parquet('pages/*.parquet', filename = true, file_row_number = true)
    qualify row_number() over (partition by lang order by score desc) <= 10
""")
rowdex.select("pages.rdx", "best.rdx", rows=best, overwrite=True)
rowdex.Dataset("best.rdx").counts("lang")

# %% [markdown]
# ## Polars
#
# Rows of each file are numbered before they are filtered.

# %%
first = (
    polars.scan_parquet("pages/*.parquet", include_file_paths="file")
    .with_columns(row_in_file=polars.int_range(polars.len()).over("file"))
    .unique(["lang", "text"], keep="first", maintain_order=True)
    .select("file", "row_in_file")
    .collect()
)
rowdex.select("pages.rdx", "unique.rdx", rows=first, overwrite=True)
len(rowdex.Dataset("unique.rdx"))

# %% [markdown]
# ## Views of views
#
# English pages that come once, without the best ones, and the sides of a split for validation:

# %%
rowdex.select("english.rdx", "rest.rdx", intersect="unique.rdx", exclude="best.rdx", overwrite=True)
for side in ("train", "validation"):
    rowdex.select("rest.rdx", f"{side}.rdx", split=side, split_fraction=0.2, overwrite=True)
train, validation = rowdex.Dataset("train.rdx"), rowdex.Dataset("validation.rdx")
assert len(train) + len(validation) == len(rowdex.Dataset("rest.rdx"))
len(train), len(validation)

# %% [markdown]
# ## Training on it
#
# A view is an index as any other. With two ranks, each row of it once:

# %%
seen = []
for rank in range(2):
    loader = rowdex.Loader(
        train, batch_size=32, seed=42, num_replicas=2, rank=rank, tail="uneven", output="numpy", memory="1MiB"
    )
    seen += [row for batch in loader for row in batch["id"].tolist()]
assert sorted(seen) == sorted(train.take(range(len(train))).to_numpy()["id"].tolist())
