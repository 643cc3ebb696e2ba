"""One of the processes of a job of JAX: INDEX RANK WORLD PORT. Prints what it served as JSON."""

from __future__ import annotations

import json
import sys

import jax
import numpy as np
import rowdex.jax

index, rank, world, port = sys.argv[1], *map(int, sys.argv[2:5])
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"127.0.0.1:{port}", world, rank, initialization_timeout=60)
mesh = jax.make_mesh((world,), ("data",))
sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
dataset = rowdex.Dataset(index, columns=["id", "x"])
loader = rowdex.jax.Loader(dataset, batch_size=64, seed=3, valid="valid", sharding=sharding)

compiled = []


@jax.jit
def total(batch):
    compiled.append(batch["id"].shape)
    return (batch["id"] * batch["valid"]).sum(), batch["x"].sum()


sums, own, shapes = [], [], set()
for _ in range(2):
    for batch in loader:
        sums.append(int(total(batch)[0]))
        shapes.add(batch["x"].shape)
        part = {name: np.asarray(value.addressable_data(0)) for name, value in batch.items()}
        own.append(part["id"][part["valid"]].tolist())
print(json.dumps({
    "launch": rowdex.Launch.from_jax()[:2], "steps": len(loader), "sums": sums, "own": own, "shapes": sorted(shapes),
    "compiled": compiled,
}))  # fmt: skip
