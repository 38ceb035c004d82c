"""Operations, each with its vector-Jacobian product below it. Importing this gives tensors their operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..engine import Tensor
from ..kernels import launch
from . import activation, basic, conv, index, loss, normalization, recurrent, reduce, shape
from . import attention as _attention  # the functions take the names attention, crf and linear
from . import crf as _crf
from . import linear as _linear
from .activation import *
from .attention import *
from .basic import *
from .conv import *
from .crf import *
from .index import *
from .linear import *
from .loss import *
from .normalization import *
from .recurrent import *
from .reduce import *
from .shape import *

_modules = (basic, reduce, shape, index, _linear, activation, normalization, loss, conv, recurrent, _attention, _crf)
__all__ = [name for module in _modules for name in module.__all__]


def _reflected(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, other: function(other, self)


def _compare(ufunc: np.ufunc) -> Callable[..., Any]:
    def method(self: Tensor, other: Any) -> Tensor:
        if isinstance(other, (str, bytes)):  # never equal, and in no order
            return NotImplemented
        return Tensor(launch(ufunc, self.data, other.data if isinstance(other, Tensor) else other))

    return method


_operators: dict[str, Callable[..., Any]] = {
    "add": basic.add,
    "sub": basic.subtract,
    "mul": basic.multiply,
    "truediv": basic.divide,
    "pow": basic.power,
}
for _name, _function in _operators.items():
    setattr(Tensor, f"__{_name}__", _function)
    setattr(Tensor, f"__r{_name}__", _reflected(_function))
for _name in ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal"):
    _short = {"less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge", "equal": "eq"}.get(_name, "ne")
    setattr(Tensor, f"__{_short}__", _compare(getattr(np, _name)))
Tensor.__neg__ = basic.negative
Tensor.__abs__ = basic.abs
Tensor.__invert__ = lambda self: Tensor(launch(np.invert, self.data))  # of masks; floats have none
for _name in ("and", "or", "xor"):
    setattr(Tensor, f"__{_name}__", _compare(getattr(np, f"bitwise_{_name}")))
    setattr(Tensor, f"__r{_name}__", getattr(Tensor, f"__{_name}__"))

for _module in _modules:
    for _name in _module.METHODS:
        setattr(Tensor, _name, getattr(_module, _name))
