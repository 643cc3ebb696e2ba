"""What becomes of threads, files and memory when the last reference to an object goes, without the collector."""

from __future__ import annotations

import json

import pytest

from .conftest import run_python

COMMON = r"""
import gc, json, os, sys, tempfile, time, weakref
import numpy, pyarrow, rowdex
from rowdex import order
gc.disable()
path = sys.argv[1]

def held():
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

def dataset(**options):
    return rowdex.Dataset(path, ['id', 'x', 'label', 'vector', 'name'], threads=2, **options)

def loader(**options):
    return rowdex.Loader(dataset(), batch_size=16, memory=1 << 20, output="numpy", **options)

def fails(found):
    raise KeyError(len(found))

place = tempfile.TemporaryDirectory()

def broken(**options):
    import pyarrow.parquet
    folder = place.name + "/broken"
    if not os.path.exists(folder):
        os.mkdir(folder)
        table = pyarrow.table({"text": [f"row {row} of a file" for row in range(1000)]})
        pyarrow.parquet.write_table(table, folder + "/a.parquet", use_dictionary=False)
        rowdex.build(folder, folder + ".rdx", progress=False)
        was = os.stat(folder + "/a.parquet")
        with open(folder + "/a.parquet", "r+b") as file:
            file.seek(was.st_size // 3)
            file.write(bytes(64))
        os.utime(folder + "/a.parquet", ns=(was.st_atime_ns, was.st_mtime_ns))
    return rowdex.Loader(rowdex.Dataset(folder + ".rdx"), batch_size=16, output="numpy", **options)

def failed(of, kind=rowdex.errors.TransformError):
    try:
        list(of)
    except kind as error:
        return
    raise AssertionError("nothing failed")

def first(of):
    batches = iter(of)
    next(batches)
    return batches

def check(make):
    made = make()
    del made
    time.sleep(0.05)
    before = held()
    def more():
        "What there is more of than before: a thread that was ending then is gone by now."
        nonlocal before
        now = held()
        before = tuple(min(was, is_) for was, is_ in zip(before, now))
        return [one for one, was in zip(now, before) if one > was]
    for _ in range(5):
        made = make()
        refs = [weakref.ref(one) for one in made]
        del made
        until = time.monotonic() + 20
        # A thread that was told to end may take a moment.
        while time.monotonic() < until and (more() or any(ref() is not None for ref in refs)):
            time.sleep(0.01)
        alive = [type(ref()).__name__ for ref in refs if ref() is not None]
        assert not alive and not more(), (alive, held(), before)

def check_all(cases):
    for name, lines in cases.items():
        try:
            body = {}
            exec(f"def make():\n    {lines}", globals(), body)
            check(body["make"])
            found = "gone"
        except BaseException:
            import traceback
            found = traceback.format_exc()
        print(json.dumps([name, found]), flush=True)
"""

CASES = {
    "dataset": "of = dataset(); of.take(range(0, 1003, 9)); of[3]; of.schema; repr(of); return [of, of.index]",
    "selected": "of = dataset().select(['id']); of.take([1, 900]); return [of]",
    "index": "of = rowdex.Index(path); of.schema, of.files, of.fingerprint; return [of]",
    "mixed": "of = rowdex.MixedDataset([dataset(), dataset()]); of.take([3, 1500]); return [of, *of.datasets]",
    "zipped": "of = rowdex.Zipped({'a': dataset(), 'b': dataset()}); of.take([3, 900]).to_numpy(); "
    "of = rowdex.Loader(of, batch_size=64, output='numpy'); first(of); return [of, of.dataset, *of.dataset.datasets]",
    "batch": "of = dataset().take([3, 900]); of.to_numpy(['id', 'vector']), of.to_pydict(), of.to_arrow(); return [of]",
    "schema": "of = dataset(); kept = of.schema; pyarrow.schema(kept); return [of, kept]",
    "iterated": "of = dataset(); rows = first(of); return [of, rows]",
    "stream": "of = dataset(); table = pyarrow.table(of); return [of]",
    "prefetched": "of = dataset(); rows = of.prefetch(range(1003)); rows.take(range(32)); return [of, rows]",
    "set": "of = dataset(); rows = order.IdSet.where(of, 'label > 2'); len(rows); return [of, rows]",
    "split": "of = dataset(); rows = order.IdSet.split(of, 'train', by='name'); len(rows); return [of, rows]",
    "sampler": "of = rowdex.DistributedSampler(dataset(), 2, 1, batch_size=8); rows = first(of); next(of.batches()); "
    "of.load_state_dict(of.state_dict()); return [of, rows]",
    "orders": "of = dataset(); found = rowdex.DistributedSampler(of, 1, 0, batch_size=8, order=order.Subset("
    "'global', order.IdSet.where(of, 'label > 2'))); first(found); return [of, found]",
    "loader": "of = loader(); list(of); return [of, of.dataset]",
    "loader that was left": "of = loader(); batches = first(of); return [of, batches]",
    "loader asked for its sampler": "of = loader(); of.sampler.set_epoch(1); kept = of.sampler; first(of); "
    "return [of, kept]",
    "loader with views": "of = loader(strings='views'); first(of); of.schema, of.stats, of.estimate(); return [of]",
    "loader with functions": "of = loader(map=len, decode={'name': len}, threads=2); batches = first(of); "
    "return [of, batches]",
    "loader with functions that was iterated": "of = loader(map=len); list(of); return [of]",
    "loader with functions and no thread": "of = loader(map=len, threads=0); batches = first(of); return [of]",
    "loader whose function failed": "of = loader(map=fails, threads=2); failed(of); failed(of); return [of]",
    "loader whose function failed without a thread": "of = loader(map=fails, threads=0); failed(of); failed(of); "
    "return [of]",
    "loader whose decoder failed": "of = loader(decode={'name': fails}); failed(of); return [of]",
    "loader whose rows cannot be read": "of = broken(); failed(of, rowdex.errors.FormatError); "
    "failed(of, rowdex.errors.FormatError); return [of]",
    "loader with functions whose rows cannot be read": "of = broken(map=len); failed(of, rowdex.errors.FormatError); "
    "failed(of, rowdex.errors.FormatError); return [of]",
    "loader with substitutes": "of = loader(on_error='substitute', decode={'name': len}); first(of); "
    "of.lost_rows; return [of]",
    "loader that was closed": "of = loader(); first(of); of.close(); first(of); return [of]",
    "loader whose state was loaded": "of = loader(); first(of); of.load_state_dict(of.state_dict()); first(of); "
    "return [of]",
    "loader's steps": "of = loader(); steps = of.batch_sampler; step = next(iter(steps)); step.batch(); "
    "return [of, steps]",
    "disk_cache": "of = dataset(disk_cache=rowdex.DiskCache(path + '.kept', 1 << 24)); of.take([1, 900]); return [of]",
}

TORCH = {
    "torch dataset": "of = data(); of[3]; of.__getitems__([1, 2]).columns(); return [of]",
    "torch batches": "of = data(); steps = rowdex.torch.BatchSampler(of, 16, seed=1); "
    "loader = DataLoader(of, batch_sampler=steps); first(loader); return [of, steps, loader]",
    "torch iterable": "of = rowdex.torch.IterableDataset(data(), 16); loader = DataLoader(of, batch_size=None); "
    "first(loader); return [of, of.dataset, loader]",
    "torch global": "of = data(); steps = rowdex.torch.GlobalBatchSampler(of, 16, num_shards=1); "
    "first(steps); return [of, steps]",
    "stock loader": "of = rowdex.Loader(dataset(), batch_size=16); first(of); return [of]",
}

IMPORT_TORCH = """
import rowdex.torch
from torch.utils.data import DataLoader, DistributedSampler as StockSampler

def data():
    return rowdex.torch.Dataset(path, ['id', 'x', 'label'])
"""


def _found(index: str, imports: str, cases: dict[str, str]) -> dict[str, str]:
    """What became of each case, all in one process."""
    ended = run_python(f"{COMMON}{imports}\ncheck_all({cases!r})\n", index, timeout=240)
    return {case: ended.stderr for case in cases} | dict(map(json.loads, ended.stdout.splitlines()))


@pytest.fixture(scope="module")
def found(index: str) -> dict[str, str]:
    return _found(index, "", CASES)


@pytest.fixture(scope="module")
def found_with_torch(index: str) -> dict[str, str]:
    pytest.importorskip("torch")
    return _found(index, IMPORT_TORCH, TORCH)


@pytest.mark.parametrize("case", CASES)
def test_what_is_dropped_is_gone_at_once(case: str, found: dict[str, str]) -> None:
    assert found[case] == "gone", found[case]


@pytest.mark.parametrize("case", TORCH)
def test_what_torch_is_given_is_gone_at_once(case: str, found_with_torch: dict[str, str]) -> None:
    assert found_with_torch[case] == "gone", found_with_torch[case]


def test_an_exception_of_a_signal_handler_is_never_lost_while_something_is_freed(index: str) -> None:
    ended = run_python(
        """
import gc, signal, sys, time
import numpy, rowdex
raised, armed, lost = 0, False, []
class Interrupt(BaseException):
    pass
def interrupt(*_):
    global raised, armed
    if armed:
        armed, raised = False, raised + 1
        raise Interrupt
def unraisable(told):
    global raised
    if '_get_module_lock' in repr(told.object):
        raised -= 1  # The interpreter itself loses it where it imports what numpy asks for late.
    else:
        lost.append((told.exc_value, told.object))
sys.unraisablehook = unraisable
dataset = rowdex.Dataset(sys.argv[1], ["id", "name"])
dataset.take([1]).to_numpy(["id"])
signal.signal(signal.SIGALRM, interrupt)
caught, until = 0, time.monotonic() + 2
signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0003)
while time.monotonic() < until or caught < 500:
    try:
        armed = True
        while armed:
            kept = [dataset.take([i]) for i in range(3)]
            kept[0].to_numpy(["id"])
            del kept
            rowdex.order.IdSet(10, [1])
    except Interrupt:
        caught += 1
armed = False
signal.setitimer(signal.ITIMER_REAL, 0)
ours = [one for one in lost if "rowdex" in repr(one) or isinstance(one[0], Interrupt)]
assert not ours, (len(ours), raised, caught, ours[:3])
assert caught == raised, (caught, raised)
""",
        index,
    )
    assert ended.returncode == 0, ended.stderr
