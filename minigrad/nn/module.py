"""Modules: objects that hold parameters, and find them by walking their own attributes."""

from __future__ import annotations

import os
import reprlib
import zipfile
from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from ..engine import Tensor

__all__ = ["Module", "Parameter"]


class Parameter(Tensor):
    """A tensor that is learned: it requires gradients unless told otherwise.

    Example:
        >>> Parameter([1.0, 2.0])
        Parameter([1., 2.], requires_grad=True)
    """

    __slots__ = ()

    def __init__(self, data: Any, requires_grad: bool = True, name: str | None = None) -> None:
        super().__init__(data, requires_grad, name)


class Module:
    """A part of a model: what it holds in attributes (also in lists, tuples and dicts) belongs to it.

    A :class:`Parameter` is learned, another :class:`Tensor` is a buffer (state that is saved but not learned). A name is the
    path to it: ``layers.0.weight``. A tensor that is reached by several paths is one: counted, stepped and saved once,
    under the first. Subclasses define ``forward``; they need not call ``super().__init__``.

    Example:
        >>> class Scale(Module):
        ...     def __init__(self):
        ...         self.factor = Parameter([2.0])
        ...     def forward(self, x):
        ...         return self.factor * x
        >>> Scale()([3.0])
        Tensor([6.], op=multiply)
        >>> list(Scale().state_dict())
        ['factor']
    """

    training = True

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"{type(self).__name__} defines no forward(self, x); a module computes there")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    # --- what it holds

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """Yield (path, module) for this module and all below, each once."""
        for path, thing in _walk(self, prefix, set()):
            if isinstance(thing, Module):
                yield path, thing

    def modules(self) -> Iterator[Module]:
        return (module for _, module in self.named_modules())

    def named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield (path, tensor) for parameters and buffers, each once.

        Raises:
            ValueError: if two tensors have the same path, as those of ``{1: a, "1": b}`` do.
        """
        paths: set[str] = set()
        for path, thing in _walk(self, "", set()):
            if isinstance(thing, Tensor):
                if path in paths:
                    raise ValueError(f"{type(self).__name__}: two tensors have the path {path}; rename a key of a dict")
                paths.add(path)
                yield path, thing

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Yield (path, parameter), each once; a parameter takes its first path as its name."""
        for path, tensor in self.named_tensors():
            if isinstance(tensor, Parameter):
                if not tensor.name or path.endswith(f".{tensor.name}"):  # was named when a part was asked, not the whole
                    tensor.name = path
                yield path, tensor

    def parameters(self) -> list[Parameter]:
        """Return the parameters that are learned: what an optimizer takes."""
        return [p for _, p in self.named_parameters() if p.requires_grad]

    # --- modes

    def train(self, mode: bool = True) -> Self:
        """Set training mode here and below: dropout drops, batch normalisation uses the batch."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Self:
        """Set evaluation mode here and below."""
        return self.train(False)

    def sample_offset(self, first: int) -> None:
        """Tell every dropout below which sample of the global batch comes first in the next call."""
        for module in self.modules():
            set_first = getattr(module, "set_first_sample", None)
            if set_first is not None:
                set_first(first)

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for p in self.parameters():
            p.grad = None

    def astype(self, dtype: Any) -> Self:
        """Convert floating parameters and buffers in place; optimizers made before then refuse to step.

        Raises:
            TypeError: if dtype is not floating.
        """
        dtype = np.dtype(dtype)
        if dtype.kind != "f":
            raise TypeError(f"astype: {type(self).__name__} to {dtype}; expected a floating dtype, e.g. np.float64")
        for path, tensor in self.named_tensors():
            if tensor.dtype.kind == "f" and tensor.dtype != dtype:
                block = tensor._home.block() if tensor._home is not None else None
                if block is not None:
                    block.stale = f"{path} was converted to {dtype}"
                Tensor.__init__(tensor, tensor.data.astype(dtype), tensor.requires_grad, tensor.name)
        return self

    # --- state

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return a copy of every parameter and buffer by path, tied ones once."""
        return {path: tensor.data.copy() for path, tensor in self.named_tensors()}

    def load_state_dict(self, state: dict[str, np.ndarray], strict: bool = True) -> None:
        """Copy values into parameters and buffers; nothing changes if anything does not fit.

        Raises:
            ValueError: listing all that is missing, unexpected (if strict), of another shape or kind, with shapes.
        """
        own = dict(self.named_tensors())
        new = {name: np.asarray(value) for name, value in state.items()}
        wrong = []
        for name, value in new.items():
            if name in own and value.shape != own[name].shape:
                wrong.append(f"{name} is {value.shape}, expected {own[name].shape}")
            elif name in own and not np.can_cast(value.dtype, own[name].dtype, "same_kind"):
                wrong.append(f"{name} is {value.dtype}, expected {own[name].dtype}")
        if strict:
            wrong += [f"{name} is missing, expected {own[name].shape}" for name in own if name not in new]
            wrong += [f"{name} is unexpected, {new[name].shape}" for name in new if name not in own]
        if wrong:
            raise ValueError(f"load_state_dict: {type(self).__name__}: {'; '.join(wrong)}; was it saved from another model?")
        for name, tensor in own.items():
            if name in new:
                tensor.data[...] = new[name]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to an ``.npz`` file."""
        state = self.state_dict()  # before the file is opened: what fails here leaves an older one alone
        with zipfile.ZipFile(path, "w") as archive:  # np.savez takes names as keywords: none may then be called file
            for name, value in state.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, value, allow_pickle=False)

    def load(self, path: str | os.PathLike[str]) -> Self:
        """Read the state from an ``.npz`` file that :meth:`save` wrote."""
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            self.load_state_dict(dict(file.items()))
        return self

    # --- looks

    def summary(self) -> str:
        """Return a table of parameters: path, shape, count; then the total and its size.

        Example:
            >>> from minigrad import nn
            >>> print(nn.Sequential(nn.Linear(2, 3, rng=np.random.default_rng(0))).summary())
            parameter  shape   count
            0.w        (2, 3)      6
            0.b        (3,)        3
            total                  9  (36 bytes, float32)
        """
        named = list(self.named_parameters())
        rows = [(path, str(p.shape), f"{p.size:,}") for path, p in named]
        total = sum(p.size for _, p in named)
        rows = [("parameter", "shape", "count"), *rows, ("total", "", f"{total:,}")]
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        lines = [f"{a:{widths[0]}}  {b:{widths[1]}}  {c:>{widths[2]}}".rstrip() for a, b, c in rows]
        size = f"{sum(p.data.nbytes for _, p in named):,} bytes"
        lines[-1] += f"  ({', '.join([size, *dict.fromkeys(str(p.dtype) for _, p in named)])})"
        return "\n".join(lines)

    @reprlib.recursive_repr()
    def __repr__(self) -> str:
        inner = [f"  ({name}): {part!r}".replace("\n", "\n  ") for name, part in _children(self)
                 if isinstance(part, Module)]  # fmt: skip
        own = self.extra_repr()
        if not inner:
            return f"{type(self).__name__}({own})"
        return "\n".join([f"{type(self).__name__}({own}", *inner, ")"])

    def extra_repr(self) -> str:
        """Return what a subclass wants to say of itself in its repr."""
        return ""


def _children(module: Module) -> Iterator[tuple[str, Any]]:
    """Yield (path, thing) for what module's attributes hold directly, opening lists, tuples and dicts."""
    stack: list[tuple[str, Any]] = [(name, value) for name, value in reversed(vars(module).items())]
    while stack:
        path, thing = stack.pop()
        if isinstance(thing, (Tensor, Module)):
            yield path, thing
        elif isinstance(thing, dict):
            stack += [(f"{path}.{key}", value) for key, value in reversed(thing.items())]
        elif isinstance(thing, (list, tuple)):
            stack += [(f"{path}.{i}", value) for i, value in reversed(list(enumerate(thing)))]


def _walk(module: Module, prefix: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Yield (path, module or tensor) for module and all below in order of definition, each once."""
    if id(module) in seen:
        return
    seen.add(id(module))
    yield prefix, module
    for name, thing in _children(module):
        path = f"{prefix}.{name}" if prefix else name
        if isinstance(thing, Module):
            yield from _walk(thing, path, seen)
        elif id(thing) not in seen:
            seen.add(id(thing))
            yield path, thing
