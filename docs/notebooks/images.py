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
# # Images
#
# Images are bytes in a column, as hubs store them. Threads of the loader decode and scale those that are due. It needs
# rowdex, PyTorch, pyarrow, numpy and Pillow.

# %%
import io

import numpy
import PIL.Image
import pyarrow
import pyarrow.parquet
import rowdex
import rowdex.transforms
import torch

# %% [markdown]
# ## A file with images
#
# Bright and dark ones of several sizes. `write_batch_size=16` ends a page after 16 images, so that one of them can be
# read without its whole row group; and JPEG is not compressed once more.

# %%
draw = numpy.random.default_rng(0)


def jpeg(bright):
    height, width = draw.integers(40, 80, 2)
    pixels = draw.integers(100 * bright, 155 + 100 * bright, (height, width, 3)).astype("uint8")
    file = io.BytesIO()
    PIL.Image.fromarray(pixels).save(file, "JPEG")
    return {"bytes": file.getvalue(), "path": "image.jpg"}


labels = [number % 2 for number in range(600)]
table = pyarrow.table({"image": [jpeg(label) for label in labels], "label": labels})
pyarrow.parquet.write_table(table, "images.parquet", row_group_size=100, write_batch_size=16, compression="none")
rowdex.build("images.parquet", "images.rdx", overwrite=True)
dataset = rowdex.Dataset("images.rdx")
dataset

# %% [markdown]
# ## Batches of pixels
#
# `decode` makes an array of each image, `map` is given whole batches. Both run on threads, ahead of the loop.

# %%
def scale(batch):
    batch["image"] = batch["image"].float() / 255
    return batch


decode = {"image": rowdex.transforms.Image(size=(32, 32), layout="chw")}
loader = rowdex.Loader(
    dataset, batch_size=64, seed=42, decode=decode, map=scale, threads=2, num_replicas=1, rank=0
)
batch = next(iter(loader))
batch["image"].shape, batch["image"].dtype, batch["label"][:8]

# %% [markdown]
# ## Training

# %%
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(48, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
for epoch in range(loader.epoch, 4):
    for batch in loader:
        loss = torch.nn.functional.cross_entropy(model(batch["image"]), batch["label"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.3f}")

# %%
loader.stats

# %% [markdown]
# ## An image that is none
#
# It is an error that names file, row group and row. With `on_error="substitute"` another image takes its place, the
# same on all ranks, and the loader says which rows were lost.

# %%
broken = table.to_pylist()
broken[123]["image"]["bytes"] = b"no image"
pyarrow.parquet.write_table(pyarrow.Table.from_pylist(broken, table.schema), "broken.parquet", row_group_size=100)
rowdex.build("broken.parquet", "broken.rdx", overwrite=True)
strict = rowdex.Loader(rowdex.Dataset("broken.rdx"), batch_size=64, decode=decode, num_replicas=1, rank=0)
try:
    list(strict)
except rowdex.errors.TransformError as error:
    print(error)

# %%
lenient = rowdex.Loader(
    rowdex.Dataset("broken.rdx"), batch_size=64, decode=decode, on_error="substitute", num_replicas=1, rank=0
)
images = sum(len(batch["label"]) for batch in lenient)
assert images == 600
[lost.row_id for lost in lenient.lost_rows]
