"""When one rank fails, all are gone within five seconds, with the reason and an exit code; wrong launches are refused."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.mpi import ROOT, finish, launch, run

START = """
import sys, threading, time
import numpy as np
from minigrad import dist
comm = dist.init()
a = np.ones(4)
comm.all_reduce(a)
if comm.rank == 1:
    print("failing", time.time(), flush=True)
"""
WAIT = """
comm.all_reduce(a)
time.sleep(60)
"""

FAULTS = {
    "exception": ("    1 / 0", "ZeroDivisionError: division by zero"),
    "exception with a live thread": (
        "    threading.Thread(target=time.sleep, args=(60,)).start()\n    raise RuntimeError('broken')",
        "RuntimeError: broken",
    ),
    "exception in a thread": (
        "    t = threading.Thread(target=lambda: [][1]); t.start(); t.join()",
        "IndexError: list index out of range",
    ),
    "exception without streams": ("    sys.stdout.close(); sys.stderr.close(); sys.stdout = None; 1 / 0", ""),
    "sys.exit with a number and a live thread": (
        "    threading.Thread(target=time.sleep, args=(60,)).start()\n    sys.exit(256)",  # 0 to the shell, if passed on as it is
        "",
    ),
    "sys.exit with a message and a live thread": (
        "    threading.Thread(target=time.sleep, args=(60,)).start()\n    sys.exit('no such column: age')",
        "no such column: age",
    ),
    "SystemExit": ("    raise SystemExit(3)", "rank 1 of 3 ended after 1 collective(s)"),
    "early end": ("    sys.exit()", "rank 1 of 3 ended after 1 collective(s)"),
    "stop": ("    dist.stop(comm, 'data.csv: line 3 has no number')", "rank 1 of 3: data.csv: line 3 has no number"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_one_rank_fails_while_others_wait(fault):
    source, message = FAULTS[fault]
    process = launch(3, sys.executable, "-c", START + source + WAIT)
    code, out, err = finish(process, 60)
    ended = time.time()
    assert code != 0 and message in err
    assert ended - float(out.split("failing ")[1].split()[0]) < 5
    if "Error" in message:
        assert "rank 1 of 3" in err and "Traceback" in err


def test_what_is_no_failure():
    out, err = run(
        3,
        """
        import sys, threading, time
        from minigrad import dist
        comm = dist.init()
        try:
            sys.exit("not meant")
        except SystemExit as error:
            assert error.code == "not meant"
        thread = threading.Thread(target=sys.exit, args=(4,))
        thread.start()
        thread.join()
        comm.barrier()
        print(f"done{comm.rank}\\n", end="", flush=True)
        time.sleep(comm.rank / 2)  # ranks end one after another
        sys.exit()
        """,
    )
    assert sorted(out.split()) == ["done0", "done1", "done2"] and not err


def test_an_abort_leaves_no_shared_memory():
    out, _ = run(
        2,
        """
        from minigrad import dist
        comm = dist.init()
        comm.barrier()
        if comm.rank == 1:
            print(*{line.split()[5] for line in open("/proc/self/maps") if "/dev/shm/mpich" in line}, flush=True)
            1 / 0
        comm.barrier()
        """,
        code=1,
    )
    assert not any(os.path.exists(path) for path in out.split())


def test_a_missing_gradient_is_refused_by_name_on_all_ranks():
    _, err = run(
        3,
        """
        import numpy as np
        import minigrad as mg
        from minigrad import dist, nn, optim
        comm = dist.init()
        rng = np.random.default_rng(0)
        model = nn.Sequential(nn.Linear(2, 2, rng=rng), nn.Linear(2, 1, rng=rng))
        sgd = optim.SGD(model.parameters(), lr=0.1)
        reducer = dist.Reducer(sgd.block, comm)
        layers = model if comm.rank != 2 else model[0]
        loss = layers(np.ones((3, 2), np.float32)).sum()
        loss.backward()
        reducer.finish(loss, 3)
        """,
        code=1,
        timeout=30,
    )
    assert "rank 2 of 3" in err and "no gradient for 1.w, 1.b" in err


def test_stop_on_all_ranks_is_one_line():
    _, err = run(3, "from minigrad import dist\ndist.stop(dist.init(), 'x.csv: there is no such file')", code=2, timeout=30)
    assert err.count("there is no such file") == 1


@pytest.mark.parametrize("n", [1, 3])
def test_interrupt(n):
    process = launch(n, sys.executable, "-c", START.replace("rank == 1", "rank == 0") + WAIT)
    assert "failing" in process.stdout.readline()
    began = time.time()
    os.killpg(process.pid, signal.SIGINT)
    code, _, _ = finish(process, 30)
    assert code != 0 and time.time() - began < 5


def python(source, **env):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PMI_", "OMPI_COMM", "SLURM_"))}
    return subprocess.run(
        [sys.executable, "-c", source], env={**clean, "PYTHONPATH": str(ROOT), **env}, capture_output=True, text=True, timeout=60
    )


INIT = "from minigrad import dist; print(dist.init())"


@pytest.mark.parametrize("env", [{"PMI_SIZE": "3"}, {"SLURM_NTASKS": "3", "SLURM_STEP_ID": "0"}])
def test_rank_0_of_1_is_refused_with_the_fix(env):
    done = python(INIT, **env)
    assert done.returncode != 0
    assert "3 processes were started, but mpi4py's MPI" in done.stderr and "sees 1" in done.stderr and "--no-binary=mpi4py" in done.stderr


def test_without_mpi4py():
    hide = "import sys; sys.modules['mpi4py'] = None; "
    assert python(hide + INIT).stdout.strip() == "SelfComm(rank=0, size=1)"
    done = python(hide + INIT, PMI_SIZE="2")
    assert done.returncode != 0 and "mpi4py cannot be loaded" in done.stderr and "pip install 'minigrad[mpi]'" in done.stderr


def test_one_process_does_not_load_mpi_and_a_batch_script_is_no_step():
    source = INIT + "; import sys; print('mpi4py' in sys.modules)"
    for env in ({}, {"PMI_SIZE": "1"}, {"SLURM_NTASKS": "8"}):
        assert python(source, **env).stdout.split() == ["SelfComm(rank=0,", "size=1)", "False"]
