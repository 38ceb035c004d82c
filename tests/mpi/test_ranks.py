"""Several ranks give what one process gives; collectives, broadcast, differences, threads."""

import numpy as np
import pytest

from tests.mpi import run

SIZES = [1, 2, 3, 5]
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

TRAIN = """
    import sys
    import numpy as np
    import minigrad as mg
    from minigrad import data, dist, nn, optim

    comm = dist.init()
    dtype, path = np.dtype(sys.argv[1]), sys.argv[2]
    x, y = data.digits()
    x = x[:501].astype(dtype)
    rng = np.random.default_rng(comm.rank)  # different weights on every rank: broadcast must make them one
    model = nn.Sequential(nn.Linear(64, 24, rng=rng), nn.Tanh(), nn.Dropout(0.2, seed=5), nn.Linear(24, 10, rng=rng)).astype(dtype)
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    reducer = dist.Reducer(optimizer.block, comm)
    if comm.rank == 0:
        model.load(path) if comm.size > 1 else model.save(path)
    dist.broadcast(model, comm)
    loader = data.Loader(x, y[:501], batch=37, rank=comm.rank, size=comm.size)  # 37 is no multiple of 2, 3, 5; 501 % 37 = 20
    losses, epoch = [], 0
    while optimizer.steps < 50:
        for xb, yb in loader.epoch(epoch):
            if optimizer.steps == 50:
                break
            optimizer.zero_grad()
            model.sample_offset(loader.offset)
            loss = mg.cross_entropy(model(xb), yb, reduction="sum")
            loss.backward()
            losses.append(reducer.finish(loss, len(yb)))
            optimizer.step()
        epoch += 1
    assert not dist.differences(model, comm)
    assert reducer.calls == 50 and reducer.bytes == 50 * reducer.expected_bytes
    if comm.rank == 0:
        np.savez(f"{path}.{comm.size}.npz", values=optimizer.block.values, losses=losses)
"""


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float64", 1e-12)])
def test_parameters_after_50_steps_equal_the_serial_ones(dtype, tolerance, tmp_path):
    path = tmp_path / "start.npz"
    for n in SIZES:
        run(n, TRAIN, dtype, path)
    with np.load(f"{path}.1.npz") as one:
        serial, losses = one["values"], one["losses"]
    for n in SIZES[1:]:
        with np.load(f"{path}.{n}.npz") as many:
            assert np.linalg.norm(many["values"] - serial) <= tolerance * np.linalg.norm(serial)
            np.testing.assert_allclose(many["losses"], losses, rtol=100 * tolerance)
    assert losses[-1] < 0.7 * losses[0]


COLLECTIVES = """
    import numpy as np
    import minigrad as mg
    from minigrad import dist, nn, optim
    from minigrad.dist.threads import blas_threads
    import os

    comm = dist.init()
    n, r = comm.size, comm.rank
    assert dist.init() is comm and 0 <= comm.local_rank < comm.local_size <= n
    for dtype in (np.float32, np.float64, np.int64, np.uint64, np.uint8):
        a = np.arange(5).astype(dtype) + np.dtype(dtype).type(r)
        comm.all_reduce(a)
        np.testing.assert_array_equal(a, n * np.arange(5) + n * (n - 1) // 2)
    b = np.full((2, 3), float(r))
    comm.broadcast(b, root=n - 1)
    assert (b == n - 1).all()
    g = comm.all_gather(np.array([r, 10 * r]))
    np.testing.assert_array_equal(g, [[k, 10 * k] for k in range(n)])
    flags = comm.all_gather(np.array(r % 2 == 0))
    assert flags.dtype == bool and flags.tolist() == [k % 2 == 0 for k in range(n)]
    comm.barrier()
    if n > 1:
        for bad, kind in ((np.ones((4, 4))[:, ::2], ValueError), (np.ones(2, np.float16), TypeError), (np.ones(2, complex), TypeError)):
            try:
                comm.all_reduce(bad)
            except kind:
                pass
            else:
                raise AssertionError(bad)
        cores = len(os.sched_getaffinity(0))
        assert blas_threads() in (None, max(1, cores // comm.local_size)), (blas_threads(), cores)
        assert comm.local_size <= cores or os.environ["MPIR_CVAR_POLLS_BEFORE_YIELD"] == "1"
        assert os.environ["NUMBA_NUM_THREADS"] == os.environ["OMP_NUM_THREADS"] == str(max(1, cores // comm.local_size))

    # ragged and empty parts, with sums and counts reduced together
    w = mg.Tensor(np.ones(3), requires_grad=True, name="w")
    block = mg.flatten([w])
    reducer = dist.Reducer(block, comm)
    x = np.arange(12.0).reshape(4, 3)
    mine = x[:0] if r else x[: 4] if n == 1 else x
    loss = mg.square(mine @ w).sum()
    loss.backward()
    mean = reducer.finish(loss, len(mine))
    np.testing.assert_allclose(w.grad, (2 * (x @ np.ones(3))[:, None] * x).mean(axis=0))
    np.testing.assert_allclose(mean, np.mean((x @ np.ones(3)) ** 2))
    assert reducer.count == 4
    w.grad = None
    loss = mg.square(x[:0] @ w).sum()
    loss.backward()
    assert reducer.finish(loss, 0) == 0 and not w.grad.any()

    # refused before anything is sent: a second reduction of one loss, and other models on other ranks
    def refused(kind, part, f, *args):
        try:
            f(*args)
        except kind as error:
            assert part in str(error), error
        else:
            raise AssertionError(part)

    calls = reducer.calls
    refused(RuntimeError, "called twice", reducer.finish, loss, 0)
    assert reducer.calls == calls
    for shape, dtype, elsewhere in (((2, 3), "f4", ((3, 2), "f4")), ((4,), "f4", ((4,), "f8")), ((4,), "f4", ((900,), "f4"))):
        shape, dtype = elsewhere if r == n - 1 else (shape, dtype)
        other = mg.flatten([mg.Tensor(np.ones(shape, dtype), requires_grad=True)])
        if n > 1:
            refused(ValueError, f"rank {n - 1} has 1 parameters", dist.Reducer, other, comm)

    # broadcast of a module with buffers and of an optimizer; differences are named
    rng = np.random.default_rng(r)
    model = nn.Sequential(nn.Linear(3, 2, rng=rng), nn.BatchNorm(2))
    model(np.random.default_rng(r).normal(size=(4, 3)).astype(np.float32))
    adam = optim.Adam(model.parameters())
    adam.state["first"][...] = r
    found = dist.differences(model, comm)
    assert len(found) == (n > 1) and all(f.startswith("0.w on rank 1") for f in found), found
    dist.broadcast(model, comm)
    dist.broadcast(adam, comm)
    assert len(np.unique(comm.all_gather(model[1].running_mean.data), axis=0)) == 1
    assert not dist.differences(model, comm) and not dist.differences(adam, comm) and not adam.state["first"].any()
    if r == n - 1:
        model[1].bias.data[0] += 1
    expected = [f"1.bias on rank {n - 1}"] if n > 1 else []
    assert dist.differences(model, comm) == expected
    print(f"done{r}\\n", end="")
"""


@pytest.mark.parametrize("n", SIZES)
def test_collectives(n):
    out, _ = run(n, COLLECTIVES, env=dict.fromkeys(THREADS))
    assert sorted(out.split()) == [f"done{k}" for k in range(n)]


def test_the_users_threads_are_respected():
    out, _ = run(
        2,
        """
        import os
        from minigrad import dist
        from minigrad.dist.threads import blas_threads
        dist.init()
        print(f"{blas_threads()} {os.environ.get('NUMBA_NUM_THREADS')}\\n", end="")
        """,
        env={"OMP_NUM_THREADS": None, "OPENBLAS_NUM_THREADS": "2", "NUMBA_NUM_THREADS": "2"},
    )
    assert set(out.splitlines()) <= {"2 2", "None 2"}


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_captured_step_reduces_over_the_ranks_too(n):
    out, _ = run(
        n,
        """
        import copy
        import numpy as np
        import minigrad as mg
        from minigrad import data, dist, nn, optim

        comm = dist.init()
        x, y = data.digits()
        model = nn.Sequential(nn.Linear(64, 8, rng=np.random.default_rng(0)), nn.Tanh(), nn.Linear(8, 10, rng=np.random.default_rng(1)))
        results = []
        for captured in (False, True):
            mine = copy.deepcopy(model)
            sgd = optim.SGD(mine.parameters(), lr=0.1, momentum=0.9)
            reducer = dist.Reducer(sgd.block, comm)

            def step(xb, yb):
                sgd.zero_grad()
                loss = mg.cross_entropy(mine(xb), yb, reduction="sum")
                loss.backward()
                reducer.finish(loss, len(yb))
                sgd.step()
                return loss

            step = mg.capture(step) if captured else step
            means = []
            for xb, yb in data.Loader(x[:300], y[:300], batch=40, rank=comm.rank, size=comm.size).epoch(0):
                step(xb, yb)
                means.append(reducer.mean)
            results.append((sgd.block.values.copy(), means, reducer.calls))
        (a, b, calls), (c, d, again) = results
        assert np.array_equal(a, c) and b == d and calls == again == 8
        assert step.replays >= 4
        print(f"done{comm.rank}\\n", end="")
        """,
    )
    assert sorted(out.split()) == [f"done{k}" for k in range(n)]
