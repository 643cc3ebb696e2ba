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
# # First training
#
# A data set of Parquet files, an index of it, two epochs in an order over all rows, and a run that stops and goes on.
# It needs rowdex, PyTorch, and pyarrow for the example data, and takes seconds. It writes into the present folder.

# %%
import pathlib

import numpy
import pyarrow
import pyarrow.parquet
import rowdex
import torch

# %% [markdown]
# ## Parquet files
#
# Four files, 100,000 rows. With files of your own, skip this cell.

# %%
pathlib.Path("data").mkdir(exist_ok=True)
draw = numpy.random.default_rng(0)
for part in range(4):
    x = draw.normal(size=(25_000, 3)).astype("float32")
    y = (x @ numpy.array([1, -2, 0.5], "float32") > 0).astype("int64")
    vectors = pyarrow.FixedSizeListArray.from_arrays(x.ravel(), 3)
    table = pyarrow.table({"x": vectors, "y": y})
    pyarrow.parquet.write_table(table, f"data/part-{part}.parquet", row_group_size=5_000)

# %% [markdown]
# ## The index
#
# It is made of the footers of the files, and has some kilobytes. No value is read, and nothing is copied.

# %%
rowdex.build("data", "train.rdx", overwrite=True)
dataset = rowdex.Dataset("train.rdx")
dataset

# %% [markdown]
# Any row can be had by its number, and so can any rows, in any order:

# %%
dataset[70_001], dataset[[3, 99_999, 3]].to_numpy()["y"]

# %% [markdown]
# ## What a budget costs
#
# Before anything is read, the index says how often each row group will be decoded with a memory.

# %%
loader = rowdex.Loader(dataset, batch_size=256, seed=42, memory="64MiB", num_replicas=1, rank=0)
loader.estimate()

# %%
rowdex.Loader(dataset, batch_size=256, seed=42, memory="1MiB", num_replicas=1, rank=0).estimate()

# %% [markdown]
# ## Training
#
# Each epoch serves every row once, in an order of its own in which any row may come anywhere.

# %%
torch.manual_seed(0)
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(loader.epoch, 2):
    for batch in loader:
        loss = torch.nn.functional.cross_entropy(model(batch["x"]), batch["y"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {len(loader)} steps, loss {loss.item():.3f}")

# %%
loader.stats

# %% [markdown]
# `wait_share` is the part of the last ten seconds in which the loop waited for a batch.
#
# ## Stop, and go on
#
# The state is one line of text, the same on every rank. Any number of ranks may go on from it: here one rank stopped,
# and two go on.

# %%
steps = iter(loader)
served = sum(len(next(steps)["y"]) for _ in range(100))
state = loader.state_dict()
state

# %%
for rank in range(2):
    again = rowdex.Loader(dataset, batch_size=128, seed=42, num_replicas=2, rank=rank, tail="uneven")
    again.load_state_dict(state)
    served += sum(len(batch["y"]) for batch in again)
assert served == len(dataset)  # each row of the epoch once, over both runs
