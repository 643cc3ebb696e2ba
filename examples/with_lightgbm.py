"""LightGBM over all rows, which it samples first and then reads in slices:

    python examples/with_lightgbm.py train.rdx label

Numbers are features. The dataset keeps decoded row groups (`cache`), because LightGBM samples single rows."""

import sys

import lightgbm
import numpy as np
import rowdex


class Features(lightgbm.Sequence):
    batch_size = 1 << 16

    def __init__(self, dataset):
        self.dataset = dataset

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, rows):
        one = not isinstance(rows, (slice, list))
        ids = range(len(self))[rows] if isinstance(rows, slice) else [rows] if one else rows
        columns = [column.values.astype(float) for column in self.dataset.take(ids).to_numpy(nulls="mask").values()]
        return np.column_stack(columns)[0] if one else np.column_stack(columns)


if __name__ == "__main__":
    index, label = sys.argv[1:]
    dataset = rowdex.Dataset(index, cache="1GiB")
    features = dataset.select([name for name in dataset.column_names if name != label])
    labels = dataset.select([label])[:].to_numpy()[label]
    train = lightgbm.Dataset(Features(features), label=labels, feature_name=features.column_names)
    model = lightgbm.train({"objective": "regression", "verbose": -1}, train, num_boost_round=10)
    print(f"{train.num_data()} rows, {model.num_trees()} rounds")
