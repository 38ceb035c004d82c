"""The main job on ranks: as one process, and stopping together."""

import csv
import sys

from tests.mpi import finish, launch


def job(n, *args, code=0, timeout=120):
    status, out, err = finish(launch(n, sys.executable, "examples/train_faux.py", *map(str, args)), timeout)
    assert (status == 0) == (code == 0), out + err
    return out, err


def curve(path):
    with open(path) as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]


def test_loss_curves_equal_those_of_one_process(tmp_path):
    for n in (1, 2, 3):
        args = ("--data", "digits", "--epochs", 4, "--require", 0, "--dtype", "float64", "--history", tmp_path / f"{n}.csv")
        out, _ = job(n, *args, "--quiet")
        assert f"{n} rank(s)" in out and "parameters identical on all ranks" in out and "slowest" in out
    one = curve(tmp_path / "1.csv")
    for n in (2, 3):
        assert max(abs(a / b - 1) for a, b in zip(curve(tmp_path / f"{n}.csv"), one)) < 1e-9


def test_truth_is_recovered_on_four_ranks_and_only_rank_0_speaks():
    out, err = job(4, "--model", "line")
    assert out.count("recovered") == 1 and err.count("epoch 20/20") == 1


def test_failing_to_recover_ends_with_a_code():
    out, _ = job(3, "--model", "line", "--epochs", 1, "--rate", 1e-4, "--quiet", code=1)
    assert "NOT RECOVERED" in out


def test_bad_input_stops_all_ranks_with_one_line():
    for args, message in (
        (("--data", "nowhere.csv"), "nowhere.csv: there is no such file"),
        (("--batch", 2), "the global batch 2 is smaller than the 3 ranks"),
        (("--model", "cubic"), "invalid choice: 'cubic'"),
    ):
        out, err = job(3, *args, code=2, timeout=30)
        assert err.count(message) == 1 and not out
