"""Columns of several arrays: rows are what is counted and indexed, and the parts have names."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from rowdex import Codes, Masked, Ragged


def ragged() -> Ragged:
    return Ragged(np.arange(6), np.array([0, 2, 2, 5, 6]))


def codes() -> Codes:
    return Codes(np.array([1, 0, 1, 1]), ["a", "b"])


def masked() -> Masked:
    return Masked(np.array([1.5, 0.0, 2.5, 0.0]), np.array([True, False, True, False]))


ROWS: dict[Any, list[Any]] = {ragged: [[0, 1], [], [2, 3, 4], [5]], codes: list("babb"), masked: [1.5, None, 2.5, None]}
PARTS: dict[Any, tuple[str, str]] = {
    ragged: ("values", "offsets"), codes: ("codes", "categories"), masked: ("values", "valid"),
}  # fmt: skip


def plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def rows(column: Any) -> list[Any]:
    return [plain(column[row]) for row in range(len(column))]


@pytest.mark.parametrize("make", ROWS)
def test_length_and_indices_are_those_of_rows(make: Any) -> None:
    column, expected = make(), ROWS[make]
    assert len(column) == 4 and rows(column) == expected
    assert plain(column[-1]) == expected[-1] and plain(column[np.int64(2)]) == expected[2]
    for part in (slice(1, 3), slice(None, None), slice(3, 1), slice(-2, None)):
        assert type(column[part]) is type(column) and rows(column[part]) == expected[part]
    for row in (4, -5):
        with pytest.raises(IndexError, match=f"row {row} of 4"):
            column[row]
    for wrong in (slice(None, None, 2), "values", [1, 2], 1.0):
        with pytest.raises(TypeError, match=type(column).__name__):
            column[wrong]


@pytest.mark.parametrize("make", ROWS)
def test_what_would_go_over_the_parts_as_if_they_were_rows_is_an_error_that_names_them(make: Any) -> None:
    column = make()[:2]
    first, second = PARTS[make]

    def unpacked() -> Any:
        a, b = column
        return a, b

    for attempt in (unpacked, lambda: list(column), lambda: np.asarray(column), lambda: [*column]):
        with pytest.raises(TypeError, match=rf"\.{first} and its \.{second}"):
            attempt()


@pytest.mark.parametrize("make", ROWS)
def test_a_column_is_shown_and_pickled_by_its_parts(make: Any) -> None:
    column = make()
    again = pickle.loads(pickle.dumps(column))
    assert type(again) is type(column) and rows(again) == rows(column)
    assert repr(column).startswith(f"{type(column).__name__}({PARTS[make][0]}=")


def test_rows_of_columns_within_columns() -> None:
    struct = Masked({"x": np.arange(3), "w": Codes(np.array([0, 1, 0]), ["a", "b"])}, np.array([True, False, True]))
    assert rows(struct) == [{"x": 0, "w": "a"}, None, {"x": 2, "w": "a"}]
    texts = Codes(np.array([1, 0]), Ragged(np.frombuffer(b"xyz", np.uint8), np.array([0, 1, 3])))
    assert [bytes(texts[row]) for row in range(2)] == [b"yz", b"x"]
    nested = Ragged(Ragged(np.arange(3), np.array([0, 1, 3])), np.array([0, 0, 2]))
    assert len(nested) == 2 and rows(nested[1]) == [[0], [1, 2]] and len(nested[0]) == 0
    # Codes of a column of nulls mean nothing.
    assert rows(Codes(np.array([0, 7]), [])) == [None, None]


def test_masked_numbers_and_vectors_are_a_masked_array() -> None:
    found = masked().to_ma()
    assert found.tolist() == [1.5, None, 2.5, None] and found.sum() == 4
    values = np.zeros(2)
    assert np.shares_memory(values, Masked(values, np.ones(2, bool)).to_ma().data)
    vectors = Masked(np.arange(6).reshape(2, 3), np.array([False, True])).to_ma()
    assert vectors.tolist() == [[None] * 3, [3, 4, 5]]
    for values in (["a", None], ragged()[:2]):
        with pytest.raises(TypeError, match=r"\.values and \.valid"):
            Masked(values, np.array([True, False])).to_ma()


def test_tensors_are_moved_and_pinned_with_the_column_they_are_in() -> None:
    torch = pytest.importorskip("torch")
    inner = {"x": torch.arange(3), "w": Codes(torch.tensor([0, 1, 0]), ["a", "b"])}
    moved = Masked(inner, torch.ones(3, dtype=torch.bool)).to("meta", non_blocking=True)
    assert type(moved) is Masked and moved.values["w"].categories == ["a", "b"]
    for tensor in (moved.valid, moved.values["x"], moved.values["w"].codes):
        assert tensor.device.type == "meta"
    assert Masked(torch.tensor([1.5, 0.0]), torch.tensor([True, False])).to_ma().tolist() == [1.5, None]
    assert rows(Ragged(torch.arange(3), torch.tensor([0, 1, 3]))) == [[0], [1, 2]]
