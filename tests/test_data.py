"""Faux data, readers, the shipped digits, MNIST by URL, and the loader's shards."""

import gzip
import http.server
import os
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minigrad import data, series
from minigrad.data import DataError, Loader, faux, real


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 5), st.integers(0, 3), st.booleans())
def test_each_sample_exactly_once_over_ranks_and_steps(n, batch, size, epoch, shuffle):
    batch = max(batch, size)
    loaders = [Loader(np.arange(n), batch=batch, seed=7, rank=r, size=size, shuffle=shuffle) for r in range(size)]
    serial = [b for (b,) in Loader(np.arange(n), batch=batch, seed=7, shuffle=shuffle).epoch(epoch)]
    parts = []
    for loader in loaders:
        mine = []
        for (b,) in loader.epoch(epoch):
            mine.append((loader.offset, b))
        assert len(mine) == loader.steps == len(serial)
        parts.append(mine)
    for step, whole in enumerate(serial):
        np.testing.assert_array_equal(np.concatenate([p[step][1] for p in parts]), whole)
        sizes = [len(p[step][1]) for p in parts]
        assert max(sizes) - min(sizes) <= 1
        for p in parts:
            offset, b = p[step]
            np.testing.assert_array_equal(whole[offset : offset + len(b)], b)
    np.testing.assert_array_equal(np.sort(np.concatenate(serial)), np.arange(n))


def test_order_is_a_pure_function_of_seed_and_epoch():
    loader = Loader(np.arange(50), batch=5, seed=1)
    np.testing.assert_array_equal(loader.order(3), Loader(np.arange(50), batch=9, seed=1, rank=1, size=3).order(3))
    assert not np.array_equal(loader.order(0), loader.order(1))
    assert not np.array_equal(loader.order(0), Loader(np.arange(50), batch=5, seed=2).order(0))
    rest = list(loader.epoch(2, start=4))
    for (a,), (b,) in zip(rest, list(loader.epoch(2))[4:]):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Loader(np.ones(3), np.ones(2), batch=1), r"arrays of \[3, 2\] samples"),
        (lambda: Loader(np.ones(0), batch=1), "at least 1"),
        (lambda: Loader(np.ones(3), batch=0), "expected a batch >= 1"),
        (lambda: Loader(np.ones(9), batch=2, size=3), "the global batch 2 is smaller than the 3 ranks"),
        (lambda: Loader(np.ones(9), batch=9, rank=3, size=3), "rank 3 of 3"),
    ],
)
def test_loader_refuses(call, message):
    with pytest.raises(DataError, match=message):
        call()


# --- faux ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["line", "polynomial", "exponential", "logistic", "mlp", "conv", "autoregression"])
def test_faux_is_deterministic_and_typed(name):
    make = getattr(faux, name)
    a, b, c = make(40, seed=1), make(40, seed=1), make(40, seed=2)
    np.testing.assert_array_equal(a.x, b.x)
    assert not np.array_equal(a.x, c.x) and len(a.x) == len(a.y) == 40
    assert a.x.dtype == np.float32 and make(5, dtype=np.float64).x.dtype == np.float64
    assert a.y.dtype == (np.int64 if a.task == "classification" else np.float32)
    for bad in ({"n": 0}, *([{"n": 3, "noise": -1.0}] if name != "logistic" else [])):
        with pytest.raises(ValueError, match="expected at least one sample and noise >= 0"):
            make(**bad)


def test_truths_are_recovered_by_least_squares_within_their_errors():
    line = faux.line(4000, dtype=np.float64)
    slope, intercept = np.polyfit(line.x[:, 0], line.y, 1)
    assert abs(slope - line.truth["slope"]) < 4 * line.errors["slope"]
    assert abs(intercept - line.truth["intercept"]) < 4 * line.errors["intercept"]
    poly = faux.polynomial(4000, dtype=np.float64)
    found = np.polyfit(poly.x[:, 0], poly.y, 3)[::-1]
    assert np.all(np.abs(found - poly.truth["coefficients"]) < 4 * poly.errors["coefficients"])
    spread = np.std([np.polyfit(f.x[:, 0], f.y, 1)[0] for f in (faux.line(200, seed=s, dtype=np.float64) for s in range(300))])
    assert spread == pytest.approx(faux.line(200).errors["slope"], rel=0.15)  # the stated error is the true one
    e = faux.exponential(4000, noise=0.0, dtype=np.float64)
    np.testing.assert_allclose(e.y, e.truth["a"] * np.exp(e.truth["b"] * e.x[:, 0]))
    ar = faux.autoregression(5000, dtype=np.float64)
    found = series.fit_least_squares(np.concatenate([ar.x[0, ::-1], ar.y]), 2).coefficients
    assert np.all(np.abs(found - ar.truth["coefficients"]) < 4 * ar.errors["coefficients"])


def test_labels_follow_their_truth():
    f = faux.logistic(20000, dtype=np.float64)
    p = 1 / (1 + np.exp(-(f.x @ f.truth["w"] + f.truth["b"])))
    for low in (0.1, 0.4, 0.7):
        some = (p > low) & (p < low + 0.2)
        assert f.y[some].mean() == pytest.approx(p[some].mean(), abs=0.04)
    m = faux.mlp(500, dtype=np.float64)
    np.testing.assert_array_equal((np.tanh(m.x @ m.truth["w1"]) @ m.truth["w2"]).argmax(axis=1), m.y)
    c = faux.conv(400, noise=0.0)
    np.testing.assert_array_equal(c.x.sum(axis=(1, 2, 3)), c.truth["shapes"].sum(axis=(1, 2))[c.y])


# --- readers ------------------------------------------------------------------------------------------------------


def idx(array, kind=0x08, dtype=">u1"):
    shape = np.array(array.shape, ">u4").tobytes()
    return bytes([0, 0, kind, array.ndim]) + shape + array.astype(dtype).tobytes()


@pytest.mark.parametrize(("kind", "dtype"), [(0x08, "u1"), (0x09, "i1"), (0x0B, "i2"), (0x0C, "i4"), (0x0D, "f4"), (0x0E, "f8")])
@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_idx_round_trip(tmp_path, kind, dtype, compress):
    a = np.arange(24).reshape(2, 3, 4).astype(dtype)
    (tmp_path / "a.idx").write_bytes(compress(idx(a, kind, ">" + dtype)))
    b = data.read_idx(tmp_path / "a.idx")
    np.testing.assert_array_equal(a, b)
    assert b.dtype == a.dtype and b.flags.writeable


GOOD = idx(np.arange(6).reshape(2, 3))


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "begins with nothing, expected an IDX header"),
        (b"\x89PNG", "begins with 89 50 4e 47"),
        (GOOD[:-1], r"has 17 bytes, expected 18 for an array of \(2, 3\)"),
        (GOOD + b"x", "has 19 bytes, expected 18"),
        (GOOD[:7], "ends within its header"),
        (gzip.compress(GOOD, mtime=0)[:-5], "the gzip stream is damaged"),
        (b"\0\0\x07\x01\0\0\0\0", "expected an IDX header"),
    ],
)
def test_malformed_idx(tmp_path, raw, message):
    (tmp_path / "a.idx").write_bytes(raw)
    with pytest.raises(DataError, match=message):
        data.read_idx(tmp_path / "a.idx")


@pytest.mark.parametrize("text", ["a,b,c\n1,2,3\n4,5,6\n", "1;2;3\n4;5;6", "a\tb\tc\n\n1\t2\t3\n4\t5\t6\n"])
def test_csv(tmp_path, text):
    (tmp_path / "t.csv").write_text(text)
    x, y = data.read_csv(tmp_path / "t.csv")
    assert x.tolist() == [[1, 2], [4, 5]] and y.tolist() == [3, 6]
    x, y = data.read_csv(tmp_path / "t.csv", target=0)
    assert x.tolist() == [[2, 3], [5, 6]] and y.tolist() == [1, 4]
    if text.startswith("a"):
        assert data.read_csv(tmp_path / "t.csv", target="b")[1].tolist() == [2, 5]


@pytest.mark.parametrize(
    ("text", "target", "message"),
    [
        ("", None, "is empty"),
        ("a,b\n", None, "holds names but no rows"),
        ("1\n2\n", None, "has one column"),
        ("a,b\n1,2\n3\n", None, "line 3 has 1 columns, expected 2"),
        ("a,b\n1,x\n", None, "line 2, column b: 'x' is no number"),
        ("1,2\n3,inf\n", None, "line 2, column 1: inf is not finite"),
        ("a,b\n1,2\n", "c", "has no column 'c'; its columns are a, b"),
        ("1,2\n", 2, "has no column 2; its columns are numbers -2 to 1"),
        ("\xff", None, "is no UTF-8 text"),
    ],
)
def test_malformed_csv(tmp_path, text, target, message):
    (tmp_path / "t.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match=message):
        data.read_csv(tmp_path / "t.csv", target=target)


def test_npz(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.ones((3, 2)), y=[0, 1, 2])
    x, y = data.read(tmp_path / "a.npz")
    assert x.dtype == np.float32 and y.dtype == np.int64 and x.shape == (3, 2)
    np.savez(tmp_path / "b.npz", inputs=np.ones(3))
    with pytest.raises(DataError, match="holds no array 'x', only inputs"):
        data.read(tmp_path / "b.npz")
    np.savez(tmp_path / "n.npz", x=np.array([[1.0], [np.nan]]), y=[0, 1])
    with pytest.raises(DataError, match=r"inputs\[1, 0\] is nan"):
        data.read(tmp_path / "n.npz")
    np.savez(tmp_path / "l.npz", x=np.ones((3, 1)), y=[0, 1])
    with pytest.raises(DataError, match=r"inputs \(3, 1\) and targets \(2,\)"):
        data.read(tmp_path / "l.npz")
    np.savez(tmp_path / "o.npz", x=np.array([{}]), y=[0])
    (tmp_path / "t.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:100])
    (tmp_path / "z.npz").write_bytes(b"nothing")
    for name in ("o", "t", "z"):
        with pytest.raises(DataError, match="is no readable .npz file"):
            data.read(tmp_path / f"{name}.npz")


def test_targets_are_classes_only_if_they_are_whole_and_not_negative(tmp_path):
    for values, kind in (([0, 1.0, 2], "i"), ([0, 0.5, 1], "f"), ([-1, 1, 1], "f")):
        np.savez(tmp_path / "a.npz", x=np.ones((3, 1)), y=values)
        assert data.read(tmp_path / "a.npz")[1].dtype.kind == kind


def test_images_find_their_labels(tmp_path):
    images, labels = np.full((5, 2, 2), 255, np.uint8), np.arange(5)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(images))
    with pytest.raises(DataError, match="train-labels-idx1-ubyte: there is no such file"):
        data.read(tmp_path / "train-images-idx3-ubyte")
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(labels))
    for path in (tmp_path / "train-images-idx3-ubyte", tmp_path):
        x, y = data.read(path)
        assert x.shape == (5, 2, 2) and x.max() == 1 and y.tolist() == [0, 1, 2, 3, 4]
    (tmp_path / "mine.gz").write_bytes(gzip.compress(idx(images)))
    with pytest.raises(DataError, match="cannot tell which file holds the labels"):
        data.read(tmp_path / "mine.gz")
    assert len(data.read(tmp_path / "mine.gz", labels=tmp_path / "train-labels-idx1-ubyte")[1]) == 5
    with pytest.raises(DataError, match="holds 0 files of IDX images"):
        data.read(os.path.dirname(__file__))


def test_digits():
    x, y = data.digits()
    assert x.shape == (1797, 64) and x.dtype == np.float32 and x.min() == 0 and x.max() == 1
    assert np.bincount(y).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert (16 * x).sum() == 561718


# --- MNIST by URL, from a server on this machine ------------------------------------------------------------------


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Serve small files under MNIST's names, with their checksums expected."""
    files = {
        "t10k-images-idx3-ubyte.gz": gzip.compress(idx(np.arange(8).reshape(2, 2, 2))),
        "t10k-labels-idx1-ubyte.gz": gzip.compress(idx(np.array([3, 1]))),
    }
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            raw = files.get(self.path.rsplit("/", 1)[1]) if self.path.startswith("/good/") else b"damaged"
            self.send_response(200)
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *args): ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever)
        thread.start()
        base = f"http://127.0.0.1:{httpd.server_port}"
        monkeypatch.setattr(real, "MIRRORS", (f"{base}/bad/", f"{base}/good/"))
        monkeypatch.setattr(real, "MD5", {name: real._md5(raw) for name, raw in files.items()})
        yield asked
        httpd.shutdown()
        thread.join()


def test_download_is_checked_kept_and_not_repeated(server, tmp_path):
    x, y = data.mnist("test", tmp_path / "cache")
    assert x.shape == (2, 4) and y.tolist() == [3, 1] and len(server) == 4  # the first mirror is damaged
    data.mnist("test", tmp_path / "cache")
    assert len(server) == 4
    kept = tmp_path / "cache" / "t10k-labels-idx1-ubyte.gz"
    kept.write_bytes(gzip.compress(b"other"))
    with pytest.raises(DataError, match="MD5 of the contents is .*, expected .*; remove the file to fetch it again"):
        data.mnist("test", tmp_path / "cache")


def test_no_network_and_no_place(monkeypatch, tmp_path, server):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(DataError, match="cannot be written .*; set MINIGRAD_DATA to a directory that can"):
        data.mnist("test", file / "sub")
    monkeypatch.setattr(real, "MIRRORS", ("http://127.0.0.1:9/",))
    with pytest.raises(DataError, match="could not be fetched .*; put the file into .* by hand"):
        data.mnist("test", tmp_path / "empty")
    with pytest.raises(DataError, match="kind 'all'"):
        data.mnist("all")
