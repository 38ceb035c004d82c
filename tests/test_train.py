"""fit, evaluate, history, phases and checkpoints."""

import csv
import json
import sys
import types

import numpy as np
import pytest

import minigrad as mg
from minigrad import data, nn, optim
from minigrad.train import History, Phases, accuracy, evaluate, fit, load_checkpoint, save_checkpoint


def cross_entropy(model, x, y):
    return mg.cross_entropy(model(x), y, reduction="sum_count")


def setup(dropout=0.0, momentum=0.9):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 4)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64) + (x[:, 1] > 0)
    model = nn.Sequential(nn.Linear(4, 8, rng=rng), nn.Tanh(), nn.Dropout(dropout, seed=0), nn.Linear(8, 3, rng=rng))
    return model, optim.SGD(model.parameters(), lr=optim.cosine(0.3, 100), momentum=momentum), data.Loader(x, y, batch=8)


def test_fit_equals_the_plain_loop_bit_for_bit():
    model, optimizer, loader = setup()
    fit(model, cross_entropy, optimizer, loader, 3, quiet=True)
    plain, other, _ = setup()
    reducer = mg.dist.Reducer(other.block, mg.dist.init())
    for epoch in range(3):
        for x, y in loader.epoch(epoch):
            other.zero_grad()
            loss = mg.cross_entropy(plain(x), y, reduction="sum")
            loss.backward()
            reducer.finish(loss, len(y))
            other.step()
    assert other.steps == optimizer.steps == 21
    np.testing.assert_array_equal(optimizer.block.values, other.block.values)


def test_the_loss_of_an_epoch_is_the_mean_over_samples_not_over_batches():
    model, _, loader = setup()
    frozen = optim.SGD(model.parameters(), lr=0.0)
    history = fit(model, cross_entropy, frozen, loader, 1, quiet=True)
    x, y = loader.arrays
    expected = mg.cross_entropy(model(x), y).item()  # 50 samples in batches of 8: the last one holds 2
    assert history["loss"][0] == pytest.approx(expected, rel=1e-6)
    assert history.steps == 7 and history.bytes == 7 * frozen.block.reduced.nbytes


def test_evaluation_weights_ragged_batches_and_restores_the_mode():
    model, _, loader = setup(dropout=0.5)
    model.train()
    result = evaluate(model, {"loss": cross_entropy, "accuracy": accuracy}, loader)
    assert model.training and model[2].training
    x, y = loader.arrays
    model.eval()
    assert result["loss"] == pytest.approx(mg.cross_entropy(model(x), y).item(), rel=1e-6)
    assert result["accuracy"] == np.mean(model(x).data.argmax(1) == y)


def test_resuming_from_a_checkpoint_gives_the_same_bits(tmp_path):
    path = tmp_path / "run.npz"
    model, optimizer, loader = setup(dropout=0.2)
    straight = fit(model, cross_entropy, optimizer, loader, 4, quiet=True)
    first, its, _ = setup(dropout=0.2)
    fit(first, cross_entropy, its, loader, 2, quiet=True, checkpoint=path)
    resumed, again, _ = setup(dropout=0.2)
    history = fit(resumed, cross_entropy, again, loader, 4, quiet=True, checkpoint=path)
    np.testing.assert_array_equal(optimizer.block.values, again.block.values)
    assert again.steps == optimizer.steps
    assert history["loss"] == straight["loss"]
    assert not list(tmp_path.glob("*.part"))


def test_a_damaged_or_foreign_checkpoint_is_refused(tmp_path):
    model, optimizer, _ = setup()
    bad = tmp_path / "bad.npz"
    bad.write_bytes(b"PK nothing")
    with pytest.raises(ValueError, match=r"bad.npz: cannot be read as a checkpoint .*; remove it"):
        load_checkpoint(bad, model, optimizer, History())
    save_checkpoint(tmp_path / "run.npz", model, optimizer, History())
    other = nn.Linear(2, 2, rng=np.random.default_rng(0))
    with pytest.raises(ValueError, match="was it saved from another model"):
        load_checkpoint(tmp_path / "run.npz", other, optim.SGD(other.parameters(), lr=0.1), History())


def test_clipping_and_divergence():
    model, _, loader = setup(momentum=0)
    with np.errstate(all="ignore"), pytest.raises(FloatingPointError, match="the loss is .* at step .*lower the rate"):
        fit(model, lambda m, x, y: (m(x).sum() ** 3 * 1e30, 1), optim.SGD(model.parameters(), lr=1e30), loader, 2, quiet=True)
    model, optimizer, loader = setup()
    before = optimizer.block.values.copy()
    fit(model, cross_entropy, optimizer, loader, 1, quiet=True, max_norm=1e-9)
    assert np.max(np.abs(optimizer.block.values - before)) < 1e-7


def test_progress_goes_to_standard_error_one_line_an_epoch(capsys):
    model, optimizer, loader = setup()
    fit(model, cross_entropy, optimizer, loader, 2, validation=loader, metrics={"accuracy": accuracy})
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == "" and len(lines) == 2
    for word in ("epoch 2/2", "loss", "rate", "val_loss", "accuracy", "samples/s", "ETA"):
        assert word in lines[1]
    fit(model, cross_entropy, optimizer, loader, 2, quiet=True)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("with_tqdm", [True, False])
def test_a_terminal_gets_a_bar_if_tqdm_is_there_and_lines_otherwise(capsys, monkeypatch, with_tqdm):
    class Bar:
        made = 0

        def __init__(self, total, initial, **kwargs):
            Bar.made += 1
            self.total, self.n = total, initial

        def set_postfix(self, **kwargs): ...
        def update(self, n):
            self.n += n

        def write(self, line, file):
            print(line, file=file)

        def close(self):
            assert self.n == self.total

    monkeypatch.setitem(sys.modules, "tqdm", types.SimpleNamespace(tqdm=Bar) if with_tqdm else None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    model, optimizer, loader = setup()
    fit(model, cross_entropy, optimizer, loader, 2)
    assert Bar.made == with_tqdm
    assert "epoch 2/2" in capsys.readouterr().err


def test_history_files(tmp_path):
    history = History()
    history.add(epoch=0, loss=2.0)
    history.add(epoch=1, loss=1.0, accuracy=0.5)
    history.save(tmp_path / "h.csv")
    history.save(tmp_path / "h.jsonl")
    history.save(tmp_path / "h.png")
    with open(tmp_path / "h.csv") as file:
        assert list(csv.DictReader(file)) == [
            {"epoch": "0", "loss": "2.0", "accuracy": ""},
            {"epoch": "1", "loss": "1.0", "accuracy": "0.5"},
        ]
    assert [json.loads(line) for line in (tmp_path / "h.jsonl").read_text().splitlines()] == history.rows
    assert (tmp_path / "h.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    with pytest.raises(ValueError, match="expected a name ending in .csv, .jsonl or .png"):
        history.save(tmp_path / "h.txt")


def test_a_plot_without_matplotlib_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'minigrad\[ui\]'"):
        History().save(tmp_path / "h.png")


def test_phases_add_up():
    phases = Phases()
    for _ in range(2):
        with phases("forward"):
            sum(range(1000))
    assert phases.seconds["forward"] > 0 == phases.seconds["update"]
    assert "forward" in phases.table(mg.dist.init(), 2)
