"""Objects that several threads and forked processes use, close and drop at once.

Each case runs in a process of its own, so that a crash or a hang of one is seen and harms no other.
ROWDEX_STRESS_ROUNDS runs the cases so many times each (default: 1).
"""

from __future__ import annotations

import os

import pytest

from .conftest import run_python

ROUNDS = int(os.environ.get("ROWDEX_STRESS_ROUNDS", "1"))
SECONDS = 300
"""A process that takes longer hangs: each case takes a second or two."""

COMMON = """
import contextlib, faulthandler, gc, os, pickle, random, signal, sys, threading, time
import numpy  # A module that another thread is importing when the process is forked stays locked in the child.
import rowdex
from rowdex import Dataset, DistributedSampler, Index, Loader, MixedDataset
faulthandler.enable()
# Tells where all threads are, and then ends the process. An alarm, because a forked child has no watchdog thread.
faulthandler.register(signal.SIGALRM, chain=True)
signal.alarm(240)
path = sys.argv[1]
sys.setswitchinterval(1e-5)
failures = []

def together(*works):
    "Runs all at once, begun at the same moment."
    barrier = threading.Barrier(len(works))
    def run(work):
        barrier.wait()
        try:
            work()
        except BaseException as error:
            failures.append(error)
    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]

def in_child(work):
    "Runs it in a forked child, and fails as the child does."
    pid = os.fork()
    if pid == 0:
        signal.alarm(150)
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert status == 0, f"the child ended with status {status}"

def right(batch, rows):
    assert batch.to_pydict()["id"] == list(rows), "wrong rows"
"""

CASES = {
    "a_dataset_just_unpickled_is_first_used_by_many_threads": """
state = pickle.dumps(Dataset(path, ["id"]))
for _ in range(8):
    dataset = pickle.loads(state)
    handles = []
    def use():
        right(dataset.take([7, 3]), [7, 3])
        handles.append(dataset._opened.get())
    together(*[use] * 4)
    assert len({id(handle) for handle in handles}) == 1
""",
    "a_forked_dataset_is_first_used_by_many_threads": """
dataset = Dataset(path, ["id"])
dataset.take([1])
def child():
    together(*[lambda: right(dataset.take([7, 3]), [7, 3])] * 4)
for _ in range(4):
    in_child(child)
""",
    "a_dataset_is_closed_during_take": """
dataset = Dataset(path, ["id"], cache=1)
until = time.monotonic() + 1
def take():
    rows = list(range(0, 1003, 5))
    while time.monotonic() < until:
        right(dataset.take(rows), rows)
def close():
    while time.monotonic() < until:
        dataset.close()
        time.sleep(0.001)
together(take, take, close, close)
""",
    "everything_of_a_dataset_is_asked_for_while_it_is_closed": """
dataset = Dataset(path, ["id"])
index = dataset.index
until = time.monotonic() + 1
def ask():
    while time.monotonic() < until:
        assert len(dataset) == 1003 and dataset.column_names == ["id"]
        dataset.decoded_bytes, dataset.counters, dataset.disk_cache_counters, dataset.disk_cache_fault
        assert len(dataset.labels("label").classes) == 5
        assert len(dataset.weights("x")) == 1003
        assert dataset.verify("stat").problems == []
        assert dataset.index.locate(1002).row_group == 3 and len(index.files) == 3 and len(index) == 1003
        right(pickle.loads(pickle.dumps(dataset)).take([5]), [5])
        assert len(dataset.schema) == 1 and len(index.schema) == 8
def close():
    while time.monotonic() < until:
        dataset.close()
        gc.collect()
together(ask, ask, close)
""",
    "a_dataset_is_closed_while_others_are_made_of_it": """
dataset = Dataset(path, ["id"])
other = Dataset(path, ["id"])
until = time.monotonic() + 1
def mix():
    while time.monotonic() < until:
        mixed = MixedDataset([dataset, other])
        rows = [3, 1003, 2005]
        assert mixed.take(rows).to_pydict()["id"] == [3, 0, 1002]
        mixed.counters, mixed.close()
def close():
    while time.monotonic() < until:
        dataset.close(), other.close()
together(mix, mix, close)
""",
    "prefetched_rows_are_closed_while_they_are_taken": """
dataset = Dataset(path, ["id"])
for round in range(30):
    for threads in (0, 2):
        prefetched = dataset.prefetch(range(1003), threads=threads, memory=30_000)
        def take():
            with contextlib.suppress(ValueError):
                for start in range(0, 1000, 10):
                    right(prefetched.take(range(start, start + 10)), range(start, start + 10))
                    prefetched.stats, prefetched.prefetch([1, 2]), prefetched.waiting
        def close():
            time.sleep(random.random() / 500)
            prefetched.close()
            dataset.close()
        together(take, close)
""",
    "a_loader_is_closed_while_another_thread_iterates": """
dataset = Dataset(path, ["id"])
expected = [[batch.row_ids for batch in DistributedSampler(dataset, seed=5, batch_size=16).batches()]]
for round in range(24):
    output = ("numpy", "arrow")[round % 2]
    loader = Loader(dataset, batch_size=16, seed=5, output=output, threads=round % 3, memory=30_000)
    served = []
    def iterate():
        with contextlib.suppress(rowdex.errors.ClosedError):
            for batch in loader:
                served.append(list(batch["id"]))
    def close():
        time.sleep(random.random() / 200)
        if round % 4 < 2:
            loader.close()
        else:
            with loader:
                pass
    together(iterate, close)
    assert served == expected[0][: len(served)]
    # It goes on after the last batch that was handed out.
    if len(served) < len(expected[0]):
        state = DistributedSampler(dataset, seed=5, batch_size=16)
        assert loader.state_dict() == (state.state_after(0, len(served) - 1) if served else state.state_dict())
        loader.load_state_dict(loader.state_dict())
        assert [list(batch["id"]) for batch in loader] == expected[0][len(served) :]
""",
    "a_closed_loader_wakes_the_thread_that_waits_for_a_store": """
import http.server
folder = os.path.dirname(path)
stalled, release = threading.Event(), threading.Event()
class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def __init__(self, *arguments):
        super().__init__(*arguments, directory=folder)
    def log_message(self, *arguments):
        pass
    def do_GET(self):
        if self.path.endswith(".parquet"):
            stalled.set()
            release.wait()
            self.close_connection = True
        else:
            super().do_GET()
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
root = f"http://127.0.0.1:{server.server_port}/"
dataset = Dataset(path, ["id"], root=root, check="off", store=rowdex.StoreOptions(retries=0))
loader = Loader(dataset, batch_size=16, output="arrow", threads=2)
def wait():
    try:
        next(iter(loader))
    except rowdex.errors.ClosedError:
        return
    raise AssertionError("there is nothing to serve")
thread = threading.Thread(target=wait)
thread.start()
stalled.wait()
loader.close()
thread.join()  # The store has not answered, and does not before this is over.
release.set()
""",
    "a_loader_is_asked_by_many_threads_while_one_iterates": """
dataset = Dataset(path, ["id"])
for threads in (0, 2):
    loader = Loader(dataset, batch_size=16, seed=5, output="numpy", threads=threads, memory=30_000)
    done = threading.Event()
    def iterate():
        try:
            for _ in range(6):
                assert sum(len(batch["id"]) for batch in loader) == 1003
        finally:
            done.set()
    def ask():
        # Also before the first batch.
        while not done.is_set():
            assert len(loader) == 63 and 0 <= loader.steps_left <= 63 and loader.epoch <= 6
            assert loader.stats.rows >= 0 and loader.state_dict()["state"].startswith("rowdex-state-v2")
            assert loader.schema.names == ["id"] and loader.estimate().first_passes > 0
    together(iterate, ask, ask)
""",
    "a_loader_is_dropped_and_iterators_outlive_it": """
dataset = Dataset(path, ["id"])
for round in range(12):
    loader = Loader(dataset, batch_size=16, seed=5, output="numpy", threads=round % 3, memory=30_000)
    batches = iter(loader)
    first = next(batches)["id"].tolist()
    del loader
    gc.collect()
    dataset.close()
    assert len(first) + sum(len(batch["id"]) for batch in batches) == 1003
""",
    "samplers_are_used_by_many_threads": """
for round in range(4):
    sampler = pickle.loads(pickle.dumps(DistributedSampler(Dataset(path), 2, 0, seed=3, batch_size=10)))
    expected = list(DistributedSampler(range(1003), 2, 0, seed=3))
    steps = sampler.steps
    def ask():
        for step in range(steps):
            assert sampler.batch(0, step).row_ids == expected[step * 10 : step * 10 + 10]
            sampler.state_after(0, step), sampler.state_dict()
    def move():
        for epoch in range(50):
            sampler.set_epoch(epoch)
            assert len(sampler) == 502 and sampler.steps == steps
    def save():
        for _ in range(20):
            assert len(pickle.loads(pickle.dumps(sampler))) == 502
    together(ask, ask, move, save)
""",
    "a_process_is_forked_while_threads_are_in_calls": """
dataset = Dataset(path, ["id"], cache=1)
stop = threading.Event()
def take():
    rows = list(range(0, 1003, 5))
    while not stop.is_set():
        right(dataset.take(rows), rows)
def load():
    loader = Loader(dataset, batch_size=32, output="numpy", threads=1, memory=30_000)
    while not stop.is_set():
        for batch in loader:
            pass
def reopen():
    while not stop.is_set():
        right(pickle.loads(pickle.dumps(dataset)).take([4]), [4])
        dataset.close()
threads = [threading.Thread(target=work) for work in (take, load, reopen)]
for thread in threads:
    thread.start()
def child():
    right(dataset.take([9, 2]), [9, 2])
    assert sum(len(batch["id"]) for batch in Loader(dataset, batch_size=32, output="numpy")) == 1003
try:
    for _ in range(6):
        in_child(child)
        time.sleep(0.01)
finally:
    stop.set()
    for thread in threads:
        thread.join()
""",
    "a_child_inherits_an_iteration_with_functions": """
loader = Loader(Dataset(path, ["id"]), batch_size=32, output="numpy", map=dict, threads=2)
batches = iter(loader)
next(batches)
def child():
    try:
        next(batches)
    except rowdex.errors.ClosedError:
        assert len(list(loader)) == 32
    else:
        raise AssertionError("went on")
in_child(child)
assert len(list(batches)) == 31
""",
    "objects_die_in_cycles_in_any_thread": """
dataset = Dataset(path, ["id"])
class Node: pass
def make():
    for number in range(12):
        node = Node()
        node.me, node.dataset = node, pickle.loads(pickle.dumps(dataset))
        node.batch = node.dataset.take([number])
        node.loader = Loader(node.dataset, batch_size=100, output="numpy", threads=number % 3)
        node.batches = iter(node.loader)
        next(node.batches)
        node.prefetched = node.dataset.prefetch(range(100))
        right(node.prefetched.take([0, 1]), [0, 1])
def collect():
    for _ in range(100):
        gc.collect()
        time.sleep(0.002)
together(make, make, collect)
""",
    "batches_outlive_all_that_made_them": """
dataset = Dataset(path, ["id", "features", "name"])
loader = Loader(dataset, batch_size=100, output="arrow", seed=1)
batches = list(loader)
arrays = [batch.to_numpy(strings="offsets") for batch in batches]
loader.close(), dataset.close()
del loader, dataset
rows = [batch.row_ids for batch in batches]
def drop():
    batches.clear()
    gc.collect()
def look():
    for found, ids in zip(arrays, rows):
        assert found["id"].tolist() == ids
        assert found["features"][:, 0].tolist() == [row % 7 for row in ids]
together(drop, look, look)
look()
""",
    "threads_are_in_calls_when_the_interpreter_ends": """
dataset = Dataset(path, ["id"], cache=1)
def take():
    while True:
        dataset.take(range(0, 1003, 5))
def load(threads):
    loader = Loader(dataset, batch_size=8, threads=threads, memory=30_000, output="numpy")
    while True:
        for batch in loader:
            pass
def prefetch():
    while True:
        with dataset.prefetch(range(1003)) as prefetched:
            prefetched.take(range(100))
for work in (take, prefetch, lambda: load(0), lambda: load(2)):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.3)
""",
}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("round", range(ROUNDS))
@pytest.mark.parametrize("case", CASES)
def test_threads_and_forks(index: str, case: str, round: int) -> None:
    done = run_python(f"{COMMON}\n{CASES[case]}", index, timeout=SECONDS)
    assert done.returncode == 0, f"{case}: status {done.returncode}\n{done.stderr[-6000:]}"
