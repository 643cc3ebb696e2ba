"""What one process reads ahead of the steps that it is asked for."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import torch.utils.data

from ..batch import Batch
from ..dataset import Dataset
from ..errors import StateError
from ..loading.share import among_workers
from ..native.library import Handle, count, library, told_of
from ..spec import OpenSampler, SamplerSpec, batch_of, steps_left
from .samplers import Step


ITERABLE = "iterable"
"""The group of workers that each ask an iterable dataset for all of their steps."""


class Stream:
    """A loader of one worker's steps of a sampler: ``first``, ``first + workers`` and so on."""

    def __init__(
        self,
        dataset: Dataset,
        options: dict[str, Any],
        shared: dict[str, Any],
        spec: SamplerSpec,
        opened: OpenSampler,
        resumed: bool,
        first: int,
        workers: int,
        epochs: int,
    ) -> None:
        self.key = (spec, resumed, first, workers)
        sampler = opened.sampler(resumed)
        own = Handle(library.sampler_worker, sampler, first - steps_left(sampler).start, workers)
        threads, memory = options["worker_threads"], options["memory"]
        # What nobody has chosen is the reader's own choice where all ranks share one.
        if threads is None and not options["share"]:
            threads = 2 if torch.utils.data.get_worker_info() is None else 1
        self.among_workers = bool(shared) and not options["share"]
        if self.among_workers:
            # One reader does what all of these workers would.
            threads, memory = threads * workers, memory or 1 << 30
        elif not shared:
            memory = max((memory or 1 << 30) // workers, 1)
        how = {"memory": memory, "threads": count(threads, "threads"), "epochs": epochs, **shared}
        self._loader = dataset._loading(own, how)
        self._first, self._workers = first, workers
        self._steps = int(told_of(own)["steps"])

    def close(self) -> None:
        """Ends what it does in this process."""
        self._loader.close()

    @property
    def next(self) -> tuple[int, int]:
        """The epoch and the step that come next, counted over all workers."""
        info = self._loader.info()
        return int(info.epoch), self._first + int(info.step) * self._workers

    def go_to(self, epoch: int, step: int) -> None:
        """Makes this step, one of its steps, the next."""
        self._loader.seek(epoch, (step - self._first) // self._workers)

    def has(self, step: int) -> bool:
        """Whether this rank has rows in one of its steps."""
        return (step - self._first) // self._workers < self._steps

    def take(self) -> Batch:
        """The batch that comes next."""
        batch = self._loader.next()
        if batch is None:
            raise RuntimeError("the loader of a worker ended before the step that was asked for")
        return batch


class StepReader:
    """What one process knows of what comes."""

    def __init__(self, dataset: Dataset, options: dict[str, Any], group: str | None) -> None:
        # Which has this reader.
        self._dataset: Dataset = weakref.proxy(dataset)
        self._is = weakref.ref(dataset)
        self._options = options
        # What the workers of one DataLoader have in common.
        self._group = group
        self._opened: dict[SamplerSpec, OpenSampler] = {}
        self._stream: Stream | None = None
        # A DataLoader without workers reads in the thread that iterates, and there may be several of these.
        self._lock = threading.Lock()

    def opened(self, spec: SamplerSpec) -> OpenSampler:
        """The samplers of a spec."""
        with self._lock:
            return self._open(spec)

    def serve(self, step: Step) -> Batch:
        """The batch of a step."""
        with self._lock:
            return self._serve(step)

    def _serve(self, step: Step) -> Batch:
        workers = workers_of()
        opened = self._open(step.spec)
        begin = steps_left(opened.sampler(step.resumed)).start
        first = begin + (step.step - begin) % workers
        # The C API counts a worker's epochs from a whole one; within a resumed one there is nothing after it.
        key = (step.spec, step.resumed, first, workers)
        stream = self._stream
        is_new = stream is None or stream.key != key
        among = self._shared(step, first - begin, opened) if is_new or step.step == first else {}
        if stream is None or is_new or among and not stream.among_workers:
            epochs = step.epoch + 1 if step.resumed else 0
            shared = self._options["share"] or among
            stream = self._stream = Stream(
                self._dataset, self._options, shared, step.spec, opened, step.resumed, first, workers, epochs
            )
        if not stream.has(step.step):
            rows, _ = batch_of(opened.sampler(step.resumed), step.epoch, step.step)
            return self._dataset.take(rows)
        if stream.next != (step.epoch, step.step):
            stream.go_to(step.epoch, step.step)
        try:
            return stream.take()
        except BaseException:
            # A loader is at its end after an error: the next step begins with another one.
            self._stream = None
            raise

    def _shared(self, step: Step, first: int, opened: OpenSampler) -> dict[str, Any]:
        """How this worker shares a reader with the others of its ``DataLoader``, if it does.

        It does where each of them is sure to ask for steps, and only for its own: the reader waits for all of them, and
        takes each for a separate rank.
        """
        info, group = torch.utils.data.get_worker_info(), self._group
        if self._options["share"] is None or self._options["worker_threads"] == 0:
            return {}
        if info is None or info.num_workers == 1 or group is None:
            return {}
        # A fork may have the dataset for another one, which it is a part of.
        dataset: Any = info.dataset
        if group != ITERABLE and dataset is not self._is():
            return {}
        if first != info.id or step.step - info.id + info.num_workers > steps_left(opened.sampler(step.resumed)).stop:
            return {}
        spec = step.spec
        name = f"{spec.rank} of {spec.world_size}, {spec.batch_size} rows, seed {spec.seed}, {step.resumed}"
        return among_workers(f"{group} {info.seed - info.id}", name)

    def leave(self) -> None:
        """The reader does not wait for this worker until it asks for a step."""
        with self._lock:
            self._stream = None

    def take(self, rows: Any) -> Batch:
        """Rows that are no step. No other worker waits for one of this worker meanwhile."""
        with self._lock:
            if self._stream is not None and self._stream.among_workers:
                self._stream = None
        return self._dataset.take(rows)

    def _open(self, spec: SamplerSpec) -> OpenSampler:
        opened = self._opened.get(spec)
        if opened is None:
            if len(self._opened) > 8:
                self._opened.clear()
            opened = self._opened[spec] = spec.open(self._dataset)
        return opened


def workers_of() -> int:
    info = torch.utils.data.get_worker_info()
    return 1 if info is None else int(info.num_workers)


def check_workers(state_dict: dict[str, Any]) -> None:
    """Refuses the state of a worker where there is another number of them, of which torchdata says nothing."""
    before, workers = state_dict.get("workers", workers_of()), workers_of()
    if before != workers:
        raise StateError(
            f"a state of {before} workers, where now there are {workers}: torchdata keeps a state for each. Use the "
            f"same number (num_workers={before}), or save state_after(epoch, step) of the sampler or the "
            "IterableDataset, which resumes with any number of ranks and workers"
        )
