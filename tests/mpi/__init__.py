"""Programs run under mpiexec, with a watchdog: a hang is a failure."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def mpiexec():
    """Return the path of mpiexec: beside this Python, or on the PATH."""
    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    assert found, "mpiexec is not found; install an MPI: pip install 'minigrad[mpi]'"
    return found


def launch(n, *command, env=None):
    """Start a command on n ranks, in a process group of its own."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PMI_", "OMPI_COMM", "HYDRA_"))}
    clean |= {"PYTHONPATH": str(ROOT), "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **(env or {})}
    clean = {name: value for name, value in clean.items() if value is not None}
    clean.setdefault("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe")
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [mpiexec(), "-n", str(n), *command], stdout=pipe, stderr=pipe, text=True, cwd=ROOT, env=clean, start_new_session=True
    )


def finish(process, timeout=90):
    """Wait for a process group's end; kill it and fail if that takes too long."""
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        raise AssertionError(f"no end within {timeout} s: a hang\n{out}\n{err}") from None
    return process.returncode, out, err


def run(n, program, *args, timeout=90, code=0, env=None):
    """Run Python source on n ranks; return (stdout, stderr)."""
    process = launch(n, sys.executable, "-c", textwrap.dedent(program), *map(str, args), env=env)
    status, out, err = finish(process, timeout)
    assert (status == 0) == (code == 0), f"exit code {status}\n{out}\n{err}"
    return out, err
