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
# # From text to packs
#
# Documents become lists of tokens, the index notes how long each is, and a loader fills packs of a fixed number of
# tokens, equally many on all ranks. It needs rowdex, PyTorch and pyarrow.

# %%
import numpy
import pyarrow
import pyarrow.parquet
import rowdex
import torch

# %% [markdown]
# ## Documents
#
# Their lengths are spread as those of web text are: many short ones, few long ones. A token is a byte here, so that no
# tokenizer is needed. Put yours in the place of `tokenise`.

# %%
draw = numpy.random.default_rng(0)
words = ["lorem", "ipsum", "dolor", "sit", "amet", "tempor"]
counts = draw.lognormal(4, 1, 2_000).astype(int) + 1
documents = [" ".join(draw.choice(words, count)) for count in counts]


def tokenise(text):
    return numpy.frombuffer(text.encode(), "uint8").astype("uint16")


lists = pyarrow.array([tokenise(text) for text in documents], pyarrow.list_(pyarrow.uint16()))
pyarrow.parquet.write_table(pyarrow.table({"tokens": lists}), "tokens.parquet", row_group_size=200)

# %% [markdown]
# ## An index with lengths
#
# They are counted from the levels of the lists, without their values.

# %%
rowdex.build("tokens.parquet", "tokens.rdx", lengths="tokens", overwrite=True)
dataset = rowdex.Dataset("tokens.rdx")
dataset

# %% [markdown]
# ## Padding, and packs
#
# Of batches of 16 rows, padded to the longest, so much is padding:

# %%
lengths = numpy.array([len(tokenise(text)) for text in documents])
shuffled = draw.permutation(lengths)[: 125 * 16].reshape(125, 16)
padding = 1 - shuffled.sum() / (shuffled.max(1).sum() * 16)
print(f"{padding:.0%} of all places are padding")

# %% [markdown]
# Packs of 2048 tokens on four ranks:

# %%
pack = rowdex.Pack("tokens", capacity=2048)
ranks = [rowdex.Loader(dataset, batch_size=2, seed=42, pack=pack, num_replicas=4, rank=rank) for rank in range(4)]
print([len(loader) for loader in ranks], "steps of the ranks, known before the first one")

# %%
batch = next(iter(ranks[0]))
{name: tuple(values.shape) for name, values in batch.items() if isinstance(values, torch.Tensor)}

# %% [markdown]
# `cu_seqlens` says where each document begins, which is what attention over several documents needs. No token is lost,
# and none comes twice:

# %%
for loader in ranks:
    loader.set_epoch(0)
tokens = sum(int(batch["cu_seqlens"][-1]) for loader in ranks for batch in loader)
places = sum(len(loader) for loader in ranks) * 2 * 2048
assert tokens == lengths.sum()
print(f"{tokens:,} tokens, {1 - tokens / places:.1%} of the places left free")

# %% [markdown]
# ## A step of training
#
# With rows of the capacity (`layout="rows"`), a batch is a tensor as any other.

# %%
rows = rowdex.Loader(
    dataset, batch_size=2, seed=42, pack=rowdex.Pack("tokens", 2048, layout="rows"), num_replicas=1, rank=0
)
model = torch.nn.Sequential(torch.nn.Embedding(256, 16), torch.nn.Linear(16, 256))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step, batch in zip(range(20), rows):
    scores = model(batch["tokens"].long())
    loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), batch["labels"].long().flatten(), ignore_index=-100)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.2f} after {step + 1} steps")

# %% [markdown]
# The state goes on in the middle of an epoch, also with another number of ranks:

# %%
rows.state_dict()
