"""minigrad: a deep-learning framework in NumPy, small enough to read, checked, and fast on CPUs and across MPI ranks.

>>> import minigrad as mg
>>> w = mg.Tensor([2.0], requires_grad=True)
>>> loss = (3 * w - 1) ** 2
>>> loss.backward()
>>> w.grad
array([30.], dtype=float32)
"""

from __future__ import annotations

import importlib
from typing import Any

from .capture import capture
from .engine import FlatBlock, Tensor, backward, flatten, grad_enabled, no_grad, op
from .ops import *
from .ops import __all__ as _ops

__version__ = "0.1.0"

_lazy = ("check", "data", "dist", "functional", "kernels", "nn", "optim", "series", "testing", "train")
_from_lazy = {"gradcheck": "check", "grad": "functional", "value_and_grad": "functional", "vjp": "functional",
              "jacobian": "functional", "hvp": "functional", "fit": "train"}  # fmt: skip
__all__ = ["FlatBlock", "Tensor", "backward", "capture", "flatten", "grad_enabled", "no_grad", "op", *_ops, *_lazy, *_from_lazy]


def __getattr__(name: str) -> Any:
    """Load the parts that a plain ``import minigrad`` leaves out on their first use."""
    if name in _lazy:
        return importlib.import_module(f".{name}", __name__)
    if name in _from_lazy:
        return getattr(importlib.import_module(f".{_from_lazy[name]}", __name__), name)
    raise AttributeError(f"module minigrad has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
