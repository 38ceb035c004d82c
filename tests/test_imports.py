"""Imports point one way, and a plain import is light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "minigrad"
FILES = sorted(PACKAGE.rglob("*.py"))

# who may import whom, within the package
ALLOWED = {
    "kernels": set(),
    "engine": {"kernels"},
    "ops": {"engine", "kernels"},
    "functional": {"engine"},
    "check": {"engine"},
    "capture": {"engine", "kernels"},
    "testing": {"engine"},
    "series": set(),
    "data": set(),
    "nn": {"engine", "kernels", "ops"},
    "optim": {"engine", "kernels"},
    "dist": {"engine", "kernels"},
    "train": {"data", "dist", "engine", "nn", "optim"},
}


def parts(path):
    return path.relative_to(PACKAGE).with_suffix("").parts


def imported(path):
    """Yield the absolute dotted names that a file imports anywhere in it."""
    here = ("minigrad", *parts(path))
    if path.name == "__init__.py":
        here = here[:-1] + ("",)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(here[: len(here) - node.level]) if node.level else ""
            module = ".".join(p for p in (base, node.module or "") if p)
            yield from (f"{module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda p: "/".join(parts(p)))
def test_imports_point_one_way(path):
    own = parts(path)[0]
    for name in imported(path):
        top, *rest = name.split(".")
        if top == "mpi4py":
            assert own == "dist", f"{path.name} imports mpi4py"
        if top == "numba":
            assert own == "kernels", f"{path.name} imports numba"
        if top == "hypothesis":
            assert own == "testing", f"{path.name} imports hypothesis"
        if top == "minigrad" and own != "__init__" and rest and rest[0] != own:
            assert rest[0] in ALLOWED[own], f"{own} must not import {rest[0]}"


def python(source):
    done = subprocess.run([sys.executable, "-c", source], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_plain_import_loads_neither_numba_nor_mpi4py_nor_what_it_does_not_need():
    source = "import sys, numpy; before = set(sys.modules); import minigrad; print(*sorted(set(sys.modules) - before))"
    loaded = python(source)
    for name in ("numba", "mpi4py", "hypothesis", "matplotlib", "tqdm", "minigrad.nn", "minigrad.dist", "minigrad.data"):
        assert name not in loaded
    assert not [name for name in loaded if not name.startswith("minigrad")][10:]


def test_everything_works_without_numba_and_mpi4py():
    hide = "import sys; sys.modules['numba'] = sys.modules['mpi4py'] = None; import minigrad as mg, numpy as np; "
    source = hide + (
        "model = mg.nn.Sequential(mg.nn.Linear(2, 1, rng=np.random.default_rng(0))); comm = mg.dist.init(); "
        "sgd = mg.optim.SGD(model.parameters(), lr=0.1); reducer = mg.dist.Reducer(sgd.block, comm); "
        "loss = mg.mse(model(np.ones((3, 2), np.float32)), np.zeros((3, 1), np.float32), reduction='sum'); "
        "loss.backward(); reducer.finish(loss, 3); sgd.step(); mg.gradcheck(mg.exp, np.ones(2)); print('fine')"
    )
    assert python(source) == ["fine"]


def test_names_at_the_top():
    import minigrad as mg

    for name in mg.__all__:
        assert getattr(mg, name) is not None
    assert set(mg.__all__) <= set(dir(mg))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = mg.nothing
