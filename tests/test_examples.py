"""The examples, run as a newcomer runs them; small sizes, real processes."""

import csv
import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent


def run(*args, code=0, timeout=120, example="train_faux"):
    done = subprocess.run(
        [sys.executable, f"examples/{example}.py", *map(str, args)], cwd=ROOT, capture_output=True, text=True, timeout=timeout
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


# --- sequences ----------------------------------------------------------------------------------------------------


def test_autoregression(tmp_path):
    out = run("--plot", tmp_path / "a.png", example="autoregression").stdout
    assert "largest difference between the two: " in out and float(out.split("between the two: ")[1].split()[0]) < 1e-6
    assert "forecast: " in out and (tmp_path / "a.png").stat().st_size > 5000
    assert "truth" in run("--data", "faux", "--order", 3, example="autoregression").stdout


@pytest.mark.parametrize("more", [(), ("--model", "transformer", "--crf")])
def test_tagging(more):
    out = run("--sentences", 200, "--epochs", 6, "--hidden", 32, "--rate", 0.01, "--require", 0.97, "--quiet", *more, example="tag_words").stdout
    assert "The/DET quick/ADJ red/ADJ fox/NOUN" in out and "taken for" in out


def test_tagging_a_treebank(tmp_path):
    rows = "\n".join(f"{i}\t{w}\t_\t{t}" + "\t_" * 6 for i, (w, t) in enumerate((("Go", "VERB"), ("home", "NOUN")), 1))
    (tmp_path / "t.conllu").write_text("\n\n".join([rows] * 40))
    run("--data", tmp_path / "t.conllu", "--last", 8, "--epochs", 3, "--hidden", 8, "--require", 0.9, "--quiet", example="tag_words")


@pytest.mark.parametrize("model", ["rnn", "lstm", "gru"])
def test_characters(model):
    args = ("--characters", 30000, "--epochs", 2, "--hidden", 32, "--streams", 8, "--sample", 40, "--model", model)
    out = run(*args, "--quiet", "--rate", 0.02, example="char_lm").stdout
    assert "nats a character held out" in out and "--- sample" in out


def test_gpt(tmp_path):
    (tmp_path / "t.txt").write_text("to be or not to be, that is the question. " * 200)
    args = ("--data", tmp_path / "t.txt", "--iterations", 150, "--layers", 1, "--width", 32, "--context", 16, "--sample", 30)
    out = run(*args, "--require", 1.0, "--quiet", example="gpt").stdout
    assert "validation loss 0." in out


def test_dates():
    args = ("--samples", 300, "--epochs", 1, "--require", 0, "--width", 32, "--layers", 1, "--quiet")
    assert "held-out dates exactly right" in run(*args, example="translate_numbers").stdout


BAD_SEQUENCES = {
    ("autoregression", "--order", "0"): "--order is 0; expected 1 to 77 for 309 values",
    ("tag_words", "--data", "nowhere.conllu"): "nowhere.conllu: there is no such file",
    ("tag_words", "--last", "9999"): "--last is 9999; expected 1 to 599",
    ("char_lm", "--data", "nowhere.txt"): "nowhere.txt",
    ("char_lm", "--characters", "100"): "characters are too few",
    ("gpt", "--data", "nowhere.txt"): "nowhere.txt: cannot be read as UTF-8 text",
    ("gpt", "--heads", "3"): "heads must divide d",
    ("translate_numbers", "--samples", "5"): "--samples is 5; expected 100 to 70000",
}


@pytest.mark.parametrize("command", BAD_SEQUENCES)
def test_bad_input_to_sequences_is_one_clear_line(command):
    example, *args = command
    done = run(*args, code=2, example=example)
    assert BAD_SEQUENCES[command] in done.stderr and done.stderr.count("\n") == 1 and not done.stdout
