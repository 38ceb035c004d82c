"""The main job on ranks: as one process, and stopping together."""

import csv
import sys

from tests.mpi import finish, launch


def job(n, *args, code=0, timeout=120, example="train_faux"):
    status, out, err = finish(launch(n, sys.executable, f"examples/{example}.py", *map(str, args)), timeout)
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


def test_sequences_on_two_ranks_equal_one(tmp_path):
    for n in (1, 2):
        args = ("--sentences", 120, "--epochs", 3, "--hidden", 16, "--require", 0, "--quiet", "--history", tmp_path / f"{n}.csv")
        out, _ = job(n, *args, example="tag_words")
        assert "parameters identical on all ranks" in out
    one, two = (curve(tmp_path / f"{n}.csv") for n in (1, 2))
    assert max(abs(a / b - 1) for a, b in zip(one, two)) < 1e-4  # float32, with dropout keyed by sample


def test_every_example_runs_on_two_ranks(tmp_path):
    (tmp_path / "t.txt").write_text("to be or not to be, that is the question. " * 200)
    for example, args in {
        "autoregression": ("--steps", 2000),
        "char_lm": ("--characters", 20000, "--epochs", 1, "--hidden", 16, "--streams", 4, "--rate", 0.02, "--sample", 5, "--quiet"),
        "gpt": ("--data", tmp_path / "t.txt", "--iterations", 5, "--layers", 1, "--width", 16, "--context", 8, "--sample", 5, "--quiet"),
        "translate_numbers": ("--samples", 200, "--epochs", 1, "--require", 0, "--width", 16, "--layers", 1, "--quiet"),
    }.items():
        out, _ = job(2, *args, example=example)
        assert "2 rank(s)" in out
