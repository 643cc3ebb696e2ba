"""XGBoost over all rows, with one batch of them in memory: python examples/with_xgboost.py train.rdx label

Numbers are features, nulls are missing values. Each pass of XGBoost is an epoch in the order of the rows. Under
xgboost.collective give num_replicas and rank to the Loader, with tail="uneven"."""

import sys

import numpy as np
import rowdex
import xgboost


class Batches(xgboost.DataIter):
    def __init__(self, dataset, label, batch_size=1 << 16):
        super().__init__()
        self.label = label
        self.loader = rowdex.Loader(dataset, batch_size=batch_size, shuffle=False, output="numpy", nulls="mask")
        self.reset()

    def reset(self):
        self.loader.set_epoch(0)
        self.batches = iter(self.loader)

    def next(self, input_data):
        batch = next(self.batches, None)
        if batch is None:
            return False
        columns = {name: np.where(column.valid, column.values, np.nan) for name, column in batch.items()}
        label = columns.pop(self.label)
        input_data(data=np.column_stack(list(columns.values())), label=label, feature_names=list(columns))
        return True


if __name__ == "__main__":
    index, label = sys.argv[1:]
    matrix = xgboost.QuantileDMatrix(Batches(rowdex.Dataset(index), label))
    model = xgboost.train({"objective": "reg:squarederror", "max_depth": 4}, matrix, num_boost_round=10)
    print(f"{matrix.num_row()} rows, {model.num_boosted_rounds()} rounds")
