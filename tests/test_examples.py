"""The examples, run as a newcomer runs them; small sizes, real processes."""

import csv
import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent


def run(*args, code=0, timeout=120):
    done = subprocess.run(
        [sys.executable, "examples/train_faux.py", *map(str, args)], cwd=ROOT, capture_output=True, text=True, timeout=timeout
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.mark.parametrize("model", ["line", "polynomial", "exponential", "logistic"])
def test_truth_is_recovered_and_reported(model):
    out = run("--model", model, "--quiet").stdout
    for word in ("truth", "found", "std. error", "parameters identical on all ranks", "communication", "bytes reduced"):
        assert word in out
    assert out.rstrip().endswith("recovered") and "NOT" not in out


def test_a_run_that_does_not_recover_the_truth_fails():
    out = run("--model", "line", "--quiet", "--epochs", 1, "--rate", 1e-4, code=1).stdout
    assert "<- off" in out and out.rstrip().endswith("NOT RECOVERED")


def test_digits_reach_their_mark():
    out = run("--data", "digits", "--quiet").stdout
    assert "accuracy on 359 held-out rows: 0.9" in out and "(needed: 0.96)" in out and "NOT" not in out


def test_conv_runs_on_images_and_on_digits(tmp_path):
    run("--model", "conv", "--samples", 512, "--epochs", 1, "--require", 0, "--quiet", "--activation", "arctan")
    run("--model", "conv", "--data", "digits", "--epochs", 1, "--require", 0, "--quiet", "--optimizer", "adam", "--rate", 0.01)


def test_files_of_the_user(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3)) * [1, 1e3, 1e-3]
    y = x @ [1, -2e-3, 3e3] + 5e4
    rows = "\n".join(",".join(f"{v:.9g}" for v in (*a, b)) for a, b in zip(x, y))
    (tmp_path / "t.csv").write_text("a,b,c,yield\n" + rows + "\n")
    out = run("--data", tmp_path / "t.csv", "--target", "yield", "--model", "line", "--epochs", 80, "--require", 0.999).stdout
    assert "R² on 60 held-out rows: 1.0000" in out
    np.savez(tmp_path / "t.npz", x=x, y=(y > 0).astype(int))
    run("--data", tmp_path / "t.npz", "--model", "logistic", "--quiet", "--require", 0.9)
    images = rng.integers(0, 256, (64, 8, 8)).astype(np.uint8)
    header = b"\0\0\x08\x03" + np.array(images.shape, ">u4").tobytes()
    (tmp_path / "a-images-idx3-ubyte.gz").write_bytes(gzip.compress(header + images.tobytes()))
    labels = (np.arange(64) % 10).astype(np.uint8)
    header = b"\0\0\x08\x01" + np.array(labels.shape, ">u4").tobytes()
    (tmp_path / "a-labels-idx1-ubyte.gz").write_bytes(gzip.compress(header + labels.tobytes()))
    run("--data", tmp_path / "a-images-idx3-ubyte.gz", "--epochs", 1, "--quiet")


def test_history_plot_and_checkpoint(tmp_path):
    files = ("--history", tmp_path / "h.csv", "--plot", tmp_path / "h.png", "--checkpoint", tmp_path / "c.npz")
    run("--model", "line", "--epochs", 3, "--quiet", *files, code=1)
    run("--model", "line", "--epochs", 20, "--quiet", *files)
    with open(tmp_path / "h.csv") as file:
        assert [int(row["epoch"]) for row in csv.DictReader(file)] == list(range(20))
    assert (tmp_path / "h.png").stat().st_size > 1000


BAD = {
    "no file": (("--data", "nowhere.csv"), "nowhere.csv: there is no such file"),
    "no column": (("--data", "{csv}", "--target", "z"), "has no column 'z'; its columns are a, b"),
    "no number": (("--data", "{word}"), "line 3, column b: 'oops' is no number"),
    "nan": (("--data", "{nan}"), "line 2, column a: nan is not finite"),
    "ragged": (("--data", "{ragged}"), "line 3 has 1 columns, expected 2"),
    "no classes": (("--data", "{csv}", "--model", "logistic"), "--model logistic needs classes 0, 1, ...; found"),
    "model and data": (("--data", "digits", "--model", "exponential"), "takes one input column, found 64; use --model mlp"),
    "no model": (("--model", "cubic"), "argument --model: invalid choice: 'cubic'"),
    "batch": (("--batch", "0"), "--batch is 0; expected a positive number"),
    "held out": (("--held-out", "1.5"), "--held-out is 1.5; expected a fraction between 0 and 1"),
    "plot": (("--plot", "nowhere/h.png"), "nowhere/h.png: expected a file ending in .png in a directory that exists"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_clear_line(name, tmp_path):
    files = {"csv": "a,b\n1,0.5\n2,0.7\n", "word": "a,b\n1,2\n3,oops\n", "nan": "a,b\nnan,1\n", "ragged": "a,b\n1,2\n3\n"}
    for stem, text in files.items():
        (tmp_path / f"{stem}.csv").write_text(text)
    args, message = BAD[name]
    done = run(*(a.format(**{stem: tmp_path / f"{stem}.csv" for stem in files}) for a in args), code=2)
    assert message in done.stderr
    assert done.stderr.count("\n") == 1 and done.stdout == ""
