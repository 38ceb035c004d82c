"""The loader: which samples each rank sees at each step, as a pure function of (seed, epoch, rank, size)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .readers import DataError

__all__ = ["Loader"]


class Loader:
    """Serve arrays of samples in batches, shuffled anew each epoch, each rank its part of every global batch.

    Step s of an epoch takes samples ``order[s B : (s + 1) B]``, B being the *global* batch, cut into ``size`` parts that
    differ by one sample at most. All ranks therefore make the same number of steps, each sample is seen exactly once an
    epoch, the last batch may be smaller and a part of it empty, and the union over ranks is what a single process would
    have taken.

    Args:
        arrays: arrays or lists with samples on their first axis, e.g. inputs and targets.
        batch: the global batch.

    Raises:
        DataError: if lengths differ, there is no sample, or the batch is smaller than the number of ranks.

    Example:
        >>> loader = Loader(np.arange(5), batch=2, shuffle=False)
        >>> [x.tolist() for (x,) in loader.epoch(0)]
        [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self, *arrays: Any, batch: int, seed: int = 0, rank: int = 0, size: int = 1, shuffle: bool = True
    ) -> None:
        self.arrays = tuple(np.asarray(a) for a in arrays)
        lengths = [len(a) for a in self.arrays]
        if not lengths or min(lengths) != max(lengths) or lengths[0] == 0:
            raise DataError(f"loader: arrays of {lengths} samples; expected arrays of one length, at least 1")
        if batch < 1 or not 0 <= rank < size:
            raise DataError(f"loader: batch {batch}, rank {rank} of {size}; expected a batch >= 1 and a rank below the size")
        if batch < size:
            raise DataError(f"loader: the global batch {batch} is smaller than the {size} ranks; raise it or use fewer ranks")
        self.batch, self.seed, self.rank, self.size, self.shuffle = batch, seed, rank, size, shuffle
        self.offset = 0  # position in the global batch of the first sample last served

    def __len__(self) -> int:
        """The number of samples of all ranks."""
        return len(self.arrays[0])

    @property
    def steps(self) -> int:
        """Batches in an epoch, the same on all ranks."""
        return -(-len(self) // self.batch)

    def order(self, epoch: int) -> np.ndarray:
        """Return the order of all samples in an epoch."""
        if not self.shuffle:
            return np.arange(len(self))
        return np.random.Generator(np.random.Philox([self.seed, epoch])).permutation(len(self))

    def indices(self, epoch: int) -> Iterator[np.ndarray]:
        """Yield the numbers of the samples that this rank sees at each step."""
        order = self.order(epoch)
        for start in range(0, len(order), self.batch):
            whole = order[start : start + self.batch]
            share, extra = divmod(len(whole), self.size)
            self.offset = self.rank * share + min(self.rank, extra)
            yield whole[self.offset : self.offset + share + (self.rank < extra)]

    def epoch(self, epoch: int, start: int = 0) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield this rank's part of each batch, from step ``start`` on."""
        for step, chosen in enumerate(self.indices(epoch)):
            if step >= start:
                yield tuple(a[chosen] for a in self.arrays)
