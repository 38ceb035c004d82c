"""The tape: tensors, how an operation is recorded on it, and how gradients flow back.

The engine knows no operation and no layer. An *op* is a function of arrays that returns ``(y, vjp)``: the output and a
function from the output's cotangent to the operands' cotangents (a vector-Jacobian product). :func:`op` turns it into a
function of tensors. :meth:`Tensor.backward` walks the recorded nodes backwards, each one once, as soon as all of its
consumers have delivered.

Reading order: :class:`Tensor`, :func:`op`, :func:`backward`, :class:`FlatBlock`.
"""

from __future__ import annotations

import functools
import threading
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .kernels import K, is_recording, launch, new

__all__ = ["OPS", "FlatBlock", "Tensor", "backward", "flatten", "grad_enabled", "no_grad", "op"]

DEFAULT_FLOAT = np.dtype(np.float32)


# --- gradients on and off -----------------------------------------------------------------------------------------


class _State(threading.local):
    grad = True


_state = _State()


def grad_enabled() -> bool:
    """Return whether operations are being recorded in this thread."""
    return _state.grad


class no_grad:
    """Record nothing inside the block (or inside the decorated function), in this thread.

    Example:
        >>> w = Tensor([1.0], requires_grad=True)
        >>> with no_grad():
        ...     y = w * 2
        >>> y.requires_grad
        False
    """

    def __init__(self) -> None:
        self.before: list[bool] = []  # a stack: one object may be entered again inside itself

    def __enter__(self) -> None:
        self.before.append(_state.grad)
        _state.grad = False

    def __exit__(self, *exc: object) -> None:
        _state.grad = self.before.pop()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        # a generator's body runs later, when the block has been left
        if hasattr(function, "__code__") and function.__code__.co_flags & 0x20:
            raise TypeError(f"no_grad: {function.__name__} is a generator; write `with no_grad():` inside it")

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with no_grad():
                return function(*args, **kwargs)

        return wrapper


# --- the tensor ---------------------------------------------------------------------------------------------------


class Tensor:
    """An array that remembers how it was computed.

    Arrays keep their dtype; Python floats and lists become float32, Python ints int64. Operators, methods and indexing
    follow NumPy; :mod:`minigrad.ops` adds them to this class.

    Raises:
        TypeError: if gradients are asked of integers or booleans.

    Example:
        >>> x = Tensor([1.0, 2.0, 3.0], requires_grad=True)
        >>> (x * x).sum().backward()
        >>> x.grad
        array([2., 4., 6.], dtype=float32)
    """

    __slots__ = ("__weakref__", "_data", "_grad", "_home", "_index", "_node", "_requires", "name")
    __array_ufunc__ = None  # ndarray + Tensor and np.float64 * Tensor come to our reflected operators
    __array_priority__ = 1000

    def __init__(self, data: Any, requires_grad: bool = False, name: str | None = None) -> None:
        if isinstance(data, Tensor) and data.requires_grad:
            raise RuntimeError(f"Tensor: {data._label()} is on the tape, a copy would lose the gradient; use .detach()")
        self._data = as_array(data)
        self.name = name
        self._grad: np.ndarray | None = None
        self._node: Node | None = None
        self._index = 0
        self._home: _Home | None = None
        self._requires = False
        self.requires_grad = requires_grad

    @property
    def requires_grad(self) -> bool:
        """Whether operations on this tensor are recorded. May be changed for a leaf: False freezes a parameter."""
        return self._requires

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if value and self.dtype.kind != "f":
            raise TypeError(
                f"Tensor: requires_grad=True needs a float array, got {self.dtype}; convert with .astype(np.float32)"
            )
        if self._node is not None and not value:
            raise RuntimeError(f"requires_grad: {self._label()} was computed by an op; cut it from the tape by .detach()")
        self._requires = bool(value)

    @property
    def data(self) -> np.ndarray:
        """The values. ``t.data -= step`` updates a leaf; arrays computed by ops are read-only while on the tape."""
        return self._data

    @data.setter
    def data(self, value: Any) -> None:
        if value is self._data:
            return
        if self._node is not None:
            raise RuntimeError(f"data: {self._label()} was computed by an op; only a leaf's data can be replaced")
        value = as_array(value)
        if not (self._requires or (self._home is not None and self._home.grad is not None)):
            self._data = value
            return
        if (value.shape, value.dtype) != (self.shape, self.dtype):
            raise ValueError(
                f"data: {self._label()} is {_describe(self._data)}, the new value is {_describe(value)}; "
                "shape and dtype of a leaf stay"
            )
        if not self._data.flags.writeable:
            raise ValueError(f"data: {self._label()} lies in read-only memory; make the tensor from array.copy()")
        self._data[...] = value  # in place: an optimizer's flat block may own this memory

    @property
    def grad(self) -> np.ndarray | None:
        """The accumulated gradient of a leaf: an array of the same shape and dtype, or None before the first one."""
        return self._grad

    @grad.setter
    def grad(self, value: Any) -> None:
        if value is None or value is self._grad:
            self._grad = value
            return
        value = np.asarray(value)
        if (value.shape, value.dtype) != (self.shape, self.dtype):
            raise ValueError(
                f"grad: {self._label()} is {_describe(self._data)}, the gradient is {_describe(value)}; they must agree"
            )
        self._grad = None
        self._accumulate(value)

    @grad.deleter
    def grad(self) -> None:
        self._grad = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self._data.shape

    @property
    def dtype(self) -> np.dtype:
        return self._data.dtype

    @property
    def ndim(self) -> int:
        return self._data.ndim

    @property
    def size(self) -> int:
        return self._data.size

    @property
    def is_leaf(self) -> bool:
        """True for a tensor that no recorded op computed."""
        return self._node is None

    def detach(self) -> Tensor:
        """Return a tensor on the same array, cut from the tape."""
        return Tensor(self._data)

    def numpy(self) -> np.ndarray:
        """Return a copy of the values, cut from the tape, that may be changed."""
        return self._data.copy()

    def item(self) -> float | int | bool:
        """Return the only element as a Python number."""
        if self.size != 1:
            raise ValueError(f"item: {self._label()} has {self.size} elements; only one can become a number")
        self._check_read("item")
        return self._data.item()

    def backward(self, gradient: Any = None, *, retain_graph: bool = False) -> None:
        """Add the gradient of this tensor to ``.grad`` of every leaf it depends on.

        Equation: leaf.grad += (∂self/∂leaf)ᵀ gradient, with gradient = 1 for a scalar.

        Raises:
            RuntimeError: if nothing here requires gradients, if the graph was freed by an earlier backward, if the
                tensor is no scalar and no gradient is given, or if an array that the gradient needs has changed.

        Example:
            >>> x = Tensor([3.0], requires_grad=True)
            >>> (x * x).backward()
            >>> x.grad
            array([6.], dtype=float32)
        """
        backward([self], None if gradient is None else [gradient], retain_graph=retain_graph)

    def on_grad_ready(self, callback: Callable[[Tensor], Any]) -> Callable[[], None]:
        """Call ``callback(self)`` in every backward when this leaf's gradient is final; return a function to stop that.

        Final means that the last operation that uses the leaf has delivered, which may be long before backward ends.
        """
        if not (self._requires and self.is_leaf):
            raise RuntimeError(f"on_grad_ready: {self._label()} is no leaf that requires gradients")
        if not callable(callback):
            raise TypeError(f"on_grad_ready: expected a function of the leaf, got {type(callback).__name__}")
        home = self._home = self._home or _Home()
        entry = [callback]  # a new object: the same callback may be given twice, and removed once
        home.hooks = (*home.hooks, entry)

        def remove() -> None:
            home.hooks = tuple(hook for hook in home.hooks if hook is not entry)

        return remove

    def retain_grad(self) -> Tensor:
        """Keep the gradient of this computed tensor in ``.grad`` too, for looking at it; returns the tensor itself."""
        if not self._requires:
            raise RuntimeError(f"retain_grad: {self._label()} does not require gradients")
        if self._node is not None and not any(reference() is self for reference in self._node.retained):
            self._node.retained = (*self._node.retained, weakref.ref(self))
        return self

    if TYPE_CHECKING:  # what minigrad.ops attaches, for type checkers; operands may be numbers, arrays and lists

        def _binary(self, other: Any, /) -> Tensor: ...
        def _unary(self) -> Tensor: ...
        def _method(self, *args: Any, **settings: Any) -> Tensor: ...
        def __eq__(self, other: Any, /) -> Tensor: ...  # type: ignore[override]
        def __ne__(self, other: Any, /) -> Tensor: ...  # type: ignore[override]

        __add__ = __sub__ = __mul__ = __truediv__ = __pow__ = __matmul__ = _binary
        __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rpow__ = __rmatmul__ = _binary
        __lt__ = __le__ = __gt__ = __ge__ = __and__ = __or__ = __xor__ = __getitem__ = _binary
        __neg__ = __abs__ = __invert__ = _unary
        T: Tensor
        mT: Tensor
        abs = argmax = argmin = arctan = astype = clip = cumsum = exp = log = log_softmax = matmul = max = mean = _method
        min = prod = ravel = reshape = softmax = sqrt = squeeze = std = sum = swapaxes = tanh = transpose = var = _method

    def _accumulate(self, gradient: np.ndarray) -> None:
        if self._grad is None:
            home = self._home
            if home is None or home.grad is None:
                self._grad = new(self.shape, self.dtype)
            else:
                self._grad = home.grad
            if self._grad is not gradient:
                launch(K.copy, gradient, out=self._grad)
        else:
            launch(np.add, self._grad, gradient, out=self._grad)

    def _check_read(self, name: str) -> None:
        if is_recording():
            raise RuntimeError(
                f"{name}: {self._label()} is read while a step is recorded; a replay would not read it again: "
                "return the tensor, or use where"
            )

    def _label(self) -> str:
        kind = self.name or (f"the result of {self._node.op.name}" if self._node else "a tensor")
        return f"{kind} {self.shape}"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if self.requires_grad:
            raise RuntimeError(
                f"NumPy was given {self._label()}, which is on the tape; a gradient would be lost. "
                "Use the function of minigrad, or .data (or .detach()) if no gradient is wanted"
            )
        return np.array(self._data, dtype=dtype, copy=copy)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._node is not None:
            raise TypeError(f"{self._label()} is on the tape and cannot be copied or pickled; use .detach() first")
        return (type(self), (self._data.copy(), self.requires_grad, self.name))

    __hash__ = object.__hash__  # by identity, although == compares elements

    def __len__(self) -> int:
        if self.ndim == 0:
            raise TypeError("len: a tensor of no axes has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        return iter([self[i] for i in range(len(self))])

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError(
                f"bool: {self._label()} has {self.size} elements and is neither true nor false as a whole; "
                "use .data.any() or .data.all()"
            )
        self._check_read("bool")
        return bool(self._data)

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TypeError("a tensor cannot be assigned to; use where, concatenate or pad, or change a leaf's .data")

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else repr(self)

    def __repr__(self) -> str:
        text = np.array2string(self._data, separator=", ", prefix="Tensor(")
        notes = [] if self.dtype in (DEFAULT_FLOAT, np.int64, np.bool_) else [f"dtype={self.dtype}"]
        if self._node is not None:
            notes.append(f"op={self._node.op.name}")
        elif self.requires_grad:
            notes.append("requires_grad=True")
        return f"{type(self).__name__}({', '.join([text, *notes])})"


class _Home:
    """What only some leaves have: hooks, and a place in a flat block."""

    __slots__ = ("block", "grad", "hooks")

    def __init__(self) -> None:
        self.hooks: tuple[list[Callable[[Tensor], Any]], ...] = ()
        self.grad: np.ndarray | None = None
        self.block: Callable[[], FlatBlock | None] = lambda: None


def as_array(value: Any) -> np.ndarray:
    """Return value as an array: arrays as they are, Python floats as float32, Python ints as int64."""
    if type(value) is np.ndarray:
        array = value
    elif isinstance(value, Tensor):
        array = value._data
    elif isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
    else:
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise ValueError(f"Tensor: the nested lists are ragged and make no array ({error})") from None
        if array.dtype == np.float64:
            array = array.astype(DEFAULT_FLOAT)
    if array.dtype.kind not in "fiubc":
        raise TypeError(f"Tensor: expected numbers, got {array.dtype} from {type(value).__name__}")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _describe(array: np.ndarray) -> str:
    return f"{array.shape} {array.dtype}"


# --- recording ----------------------------------------------------------------------------------------------------


class Op:
    """What the engine knows of an op: its name, its function of arrays, and three declarations (see :func:`op`)."""

    __slots__ = ("analytic", "elementwise", "forward", "indices", "name", "operands", "required", "variadic")

    def __init__(
        self, forward: Callable[..., Any], name: str, elementwise: bool, analytic: bool, indices: bool
    ) -> None:
        code = forward.__code__  # not inspect.signature: importing inspect takes as long as importing all ops
        self.forward = forward
        self.name = name
        self.variadic = bool(code.co_flags & 0x04)  # has *arrays, whose name comes after the keyword-only ones
        star = code.co_argcount + code.co_kwonlyargcount
        self.operands = code.co_varnames[: code.co_posonlyargcount] + code.co_varnames[star : star + self.variadic]
        optional = len(forward.__defaults__ or ()) - (code.co_argcount - code.co_posonlyargcount)
        self.required = code.co_posonlyargcount - max(optional, 0)
        self.elementwise = elementwise
        self.analytic = analytic
        self.indices = indices

    def operand(self, i: int) -> str:
        return f"{self.operands[0]}[{i}]" if self.variadic else self.operands[i]


class Node:
    """One recorded op: where its operands came from, and its vjp. It does not refer to its outputs: no cycles."""

    __slots__ = ("edges", "meta", "multiple", "op", "prints", "retained", "vjp")

    def __init__(self, op: Op, edges: list[Any], vjp: Any, multiple: bool, prints: Any) -> None:
        self.op = op
        self.edges: Any = edges  # for each operand: (source, index of the source's output), or None without gradient
        self.vjp = vjp
        self.meta: list[tuple[tuple[int, ...], np.dtype]] = []  # of each output
        self.multiple = multiple
        self.prints = prints  # fingerprints of saved arrays that others could change
        self.retained: tuple[Any, ...] = ()


OPS: dict[str, Callable[..., Any]] = {}  # every op by name, in order of definition


def op(
    forward: Any = None,
    *,
    name: str | None = None,
    elementwise: bool = False,
    analytic: bool = False,
    indices: bool = False,
) -> Any:
    """Turn a function of arrays that returns ``(y, vjp)`` into a function of tensors.

    Positional-only parameters (or ``*arrays``) are the operands that may carry gradients, the others are settings.
    ``vjp(gy)`` returns one gradient for one operand, else a tuple; an entry is an array, None (no gradient), or a
    function without arguments that computes it, called only if it is wanted and after the gradients of leaves.

    Declarations: ``elementwise``: operands broadcast, and the engine sums gradients back to the operand's shape.
    ``analytic``: the forward also accepts complex arrays and is holomorphic in them, so that :func:`gradcheck` may
    differentiate it with a complex step. ``indices``: integer operands stay integers (else they are cast to the floats
    beside them).

    Example:
        >>> @op(elementwise=True, analytic=True)
        ... def cube(x, /):
        ...     y = launch(np.power, x, 3)
        ...
        ...     def vjp(gy):
        ...         return launch(np.multiply, gy, launch(np.multiply, 3, launch(np.square, x)))
        ...     return y, vjp
        >>> x = Tensor([2.0], requires_grad=True)
        >>> cube(x).backward()
        >>> x.grad
        array([12.], dtype=float32)
        >>> _ = OPS.pop("cube")
    """
    if forward is None:
        return functools.partial(op, name=name, elementwise=elementwise, analytic=analytic, indices=indices)
    info = Op(forward, name or forward.__name__, elementwise, analytic, indices)
    count = len(info.operands)

    @functools.wraps(forward)
    def wrapper(*args: Any, **settings: Any) -> Any:
        if len(args) == count or info.variadic:
            return _apply(info, args, (), settings)
        if len(args) > count:
            return _apply(info, args[:count], _plain(info, args[count:]), settings)
        if len(args) >= info.required:  # optional operands: None
            args += (None,) * (count - len(args))
        return _apply(info, args, (), settings)

    wrapper.op = info  # type: ignore[attr-defined]
    OPS[info.name] = wrapper
    return wrapper


def _plain(info: Op, values: Iterable[Any]) -> tuple[Any, ...]:
    """Settings carry no gradient: unwrap tensors without, refuse tensors with."""
    plain = []
    for value in values:
        if isinstance(value, Tensor):
            if value.requires_grad:
                raise TypeError(
                    f"{info.name}: {value._label()} requires gradients, but this argument takes none; use .detach()"
                )
            value = value._data
        plain.append(value)
    return tuple(plain)


def _apply(info: Op, operands: tuple[Any, ...], rest: tuple[Any, ...], settings: dict[str, Any]) -> Any:
    if settings:
        for name in settings:
            if name in info.operands:
                raise TypeError(f"{info.name}: operand {name} is passed by its position, not by its name")
        settings = dict(zip(settings, _plain(info, settings.values())))
    arrays: list[Any] = []
    edges: list[Any] = []
    dtype = None
    same = True  # every operand is an array of one float dtype: nothing to convert
    wanted = False
    for value in operands:
        edge = None
        if isinstance(value, Tensor):
            if value._requires:
                wanted = True
                edge = (value, 0) if value._node is None else (value._node, value._index)
            value = value._data
        edges.append(edge)
        arrays.append(value)
        if type(value) is not np.ndarray:
            same = same and value is None
        elif dtype is None:
            dtype = value.dtype
        elif value.dtype is not dtype and value.dtype != dtype:
            same = False
    same = same and dtype is not None and dtype.kind == "f"
    if not same:
        arrays = _convert(info, arrays)
    try:
        y, vjp = info.forward(*arrays, *rest, **settings)
    except (TypeError, ValueError) as error:
        _explain(info, arrays, error)
        raise
    outs = y if type(y) is tuple else (y,)
    if not same:
        _check_promotion(info, arrays, outs)
    if wanted and _state.grad:
        if rest or settings:
            arrays += _arrays((*rest, *settings.values()))
        roots = [_root(a) for a in arrays if a is not None and _writable(a)]
        node = Node(info, edges, vjp, type(y) is tuple, _fingerprints(vjp, roots) if roots else None)
    else:
        node = None
    tensors = []
    for i, out in enumerate(outs):
        if type(out) is not np.ndarray:
            raise TypeError(f"{info.name}: its output is {type(out).__name__}, expected an array; compute it by launch")
        tensor = Tensor.__new__(Tensor)
        tensor._data = out
        tensor._grad = tensor._home = tensor._node = tensor.name = None
        tensor._index = i
        tensor._requires = False
        if node is not None:
            node.meta.append((out.shape, out.dtype))
            tensor._data = _lock(out, roots)
            if out.dtype.kind == "f":
                tensor._node, tensor._requires = node, True
            elif out.dtype.kind == "c":
                raise TypeError(f"{info.name}: the result is {out.dtype}; gradients flow through real numbers only")
        tensors.append(tensor)
    return tuple(tensors) if type(y) is tuple else tensors[0]


def _convert(info: Op, values: list[Any]) -> list[Any]:
    """Give Python numbers, lists of them and integers the float dtype beside them; refuse a mix of float dtypes."""
    arrays: list[Any] = []
    floats = [v.dtype for v in values if isinstance(v, np.ndarray) and v.dtype.kind == "f"]
    if floats:
        values = [np.asarray(v, floats[0]) if isinstance(v, (list, tuple)) and _holds_floats(v) else v for v in values]
    for i, v in enumerate(values):
        try:
            arrays.append(v if v is None or isinstance(v, _scalars) else as_array(v))
        except (TypeError, ValueError) as error:
            raise type(error)(f"{info.name}: operand {info.operand(i)}: {str(error).removeprefix('Tensor: ')}") from None
    kind, where = None, 0
    for i, a in enumerate(arrays):
        if isinstance(a, np.ndarray) and a.dtype.kind in "fc":
            if a.dtype.kind == "c" and not info.analytic:
                raise TypeError(f"{info.name}: operand {info.operand(i)} is {a.dtype}; it takes no complex numbers")
            if kind is not None and a.dtype != kind and not (info.analytic and "c" in (kind.kind, a.dtype.kind)):
                raise TypeError(
                    f"{info.name}: operand {info.operand(where)} is {kind} and operand {info.operand(i)} is {a.dtype}; "
                    f"floats are never promoted silently: convert one with .astype(np.{kind})"
                )
            if kind is None:
                kind, where = a.dtype, i
    if kind is None and (fallback := [a.dtype for a in arrays if isinstance(a, np.ndarray)]):
        kind = np.result_type(*fallback)  # integers and booleans among themselves, as in NumPy
        if any(isinstance(a, (float, np.floating)) for a in arrays):
            kind = DEFAULT_FLOAT
    out: list[Any] = []
    for i, a in enumerate(arrays):
        if a is None:
            out.append(a)
        elif not isinstance(a, np.ndarray):
            value = float(a) if isinstance(a, np.floating) else a.item() if isinstance(a, np.generic) else a
            if kind is None:
                out.append(as_array(value))
            elif isinstance(value, complex) and kind.kind != "c" and not info.analytic:
                raise TypeError(f"{info.name}: operand {info.operand(i)} is complex; it takes no complex numbers")
            elif isinstance(value, complex):
                out.append(np.asarray(value))
            else:
                out.append(np.asarray(value, kind if kind.kind != "b" or isinstance(value, bool) else np.int64))
        elif a.dtype.kind in "iub" and kind is not None and kind.kind in "fc" and not info.indices:
            out.append(a.astype(kind))
        else:
            out.append(a)
            continue
        if out[-1] is not None:
            out[-1].setflags(write=False)  # nobody else has it: no need to watch it
    return out


def _holds_floats(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, (list, tuple)) and any(map(_holds_floats, value)))


_scalars = (bool, int, float, complex, np.bool_, np.number)


def _check_promotion(info: Op, arrays: list[Any], outs: Sequence[np.ndarray]) -> None:
    floats = [a.dtype for a in arrays if a is not None and a.dtype.kind in "fc"]
    for out in outs:
        if out.dtype.kind == "f" and not floats:
            kinds = ", ".join(f"{info.operand(i)} {_describe(a)}" for i, a in enumerate(arrays) if a is not None)
            raise TypeError(f"{info.name}: needs floats, got {kinds}; convert with .astype(np.float32)")


def _explain(info: Op, arrays: list[Any], error: Exception) -> None:
    """Raise a clearer error in the place of error, if its reason is known."""
    for i, array in enumerate(arrays[: info.required]):
        if array is None and not isinstance(error, ValueError):  # what the op itself says of values is clearer
            raise TypeError(f"{info.name}: operand {info.operand(i)} is None; expected numbers") from None
    if info.elementwise and isinstance(error, ValueError):
        try:
            np.broadcast_shapes(*(a.shape for a in arrays if a is not None))
        except ValueError:
            shapes = " and ".join(f"{info.operand(i)} {a.shape}" for i, a in enumerate(arrays) if a is not None)
            raise ValueError(
                f"{info.name}: {shapes}: shapes do not broadcast; aligned at the last axis, sizes must be equal or 1"
            ) from error


# --- arrays that change between forward and backward --------------------------------------------------------------


def _root(array: np.ndarray) -> np.ndarray:
    """Return the array that owns array's memory, as far as NumPy knows."""
    base = array.base
    while base is not None:
        if type(base) is not np.ndarray:
            base = getattr(base, "base", None)  # as_strided puts an object of its own between
            if type(base) is not np.ndarray:
                break
        array, base = base, base.base
    return array


def _writable(array: np.ndarray) -> bool:
    """Return whether someone may write to array's memory; outputs of recorded ops are locked."""
    return array.flags.writeable or (array.base is not None and _root(array).flags.writeable)


def _lock(out: np.ndarray, roots: list[np.ndarray]) -> np.ndarray:
    """Make an op's output read-only; of an operand that it shares memory with, only this view of it."""
    root = out if out.base is None else _root(out)
    for other in roots:
        if other is root:
            out = out.view()
            break
    else:
        root.setflags(write=False)
    out.setflags(write=False)
    return out


def _arrays(values: Iterable[Any]) -> Iterator[np.ndarray]:
    for value in values:
        if isinstance(value, np.ndarray):
            yield value
        elif type(value) is tuple or type(value) is list:
            yield from _arrays(value)


def _fingerprints(vjp: Any, roots: list[np.ndarray]) -> list[tuple[np.ndarray, str, int]] | None:
    """Fingerprint the arrays in vjp's closure that share memory with roots: what others can write to."""
    if not getattr(vjp, "__closure__", None):
        return None
    prints: list[tuple[np.ndarray, str, int]] = []
    for name, cell in zip(vjp.__code__.co_freevars, vjp.__closure__):
        try:
            value = cell.cell_contents
        except ValueError:  # a name of the enclosing function that was never bound
            continue
        kind = type(value)
        if kind is np.ndarray or kind is tuple or kind is list:
            for array in _arrays((value,)):
                root = array if array.base is None else _root(array)
                for other in roots:
                    if other is root:
                        if not any(array is seen for seen, _, _ in prints):
                            prints.append((array, name, _fingerprint(array)))
                        break
        elif kind is _function and value is not vjp:
            prints += _fingerprints(value, roots) or ()
    return prints or None


_function = type(_fingerprints)
_weights = np.arange(1, 513, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
_weights = (_weights ^ _weights >> np.uint64(31)) * np.uint64(0xBF58476D1CE4E5B9) | np.uint64(1)  # odd: no change is lost


def _fingerprint(array: np.ndarray) -> int:
    """Return a checksum that changes with the array: its crc32, or that of something smaller where the array is large.

    Equation: for each row x of 512 words, Σ w x modulo 2⁶⁴ with random odd w. What differs in the highest bits alone,
    such as signs, can cancel there; so the highest byte of each word is checked apart.
    """
    if 0 in array.strides:
        array = array[tuple(slice(0, 1) if step == 0 else slice(None) for step in array.strides)]
    if not array.flags.c_contiguous:
        array = array.T if array.flags.f_contiguous else np.ascontiguousarray(array)
    if array.nbytes <= 8192:
        return zlib.crc32(array.data)
    whole = array.reshape(-1).view(np.uint8)
    cut = whole.size // 4096 * 4096
    sums = np.einsum("ij,j->i", whole[:cut].view(np.uint64).reshape(-1, 512), _weights)
    return zlib.crc32(sums.data, zlib.crc32(whole[7:cut:8].copy().data, zlib.crc32(whole[cut:].data)))


# --- backward -----------------------------------------------------------------------------------------------------


def backward(
    outputs: Sequence[Tensor],
    gradients: Sequence[Any] | None = None,
    *,
    inputs: Sequence[Tensor] | None = None,
    retain_graph: bool = False,
) -> list[np.ndarray | None] | None:
    """Propagate gradients (ones for scalars) from outputs to the leaves' ``.grad``, or return those of ``inputs`` only.

    Each node runs once, when the count of its consumers that have not yet delivered reaches zero; the walk is a loop,
    its order depends on the recorded graph alone. Nodes are freed as they are done unless ``retain_graph``.

    Raises:
        RuntimeError: see :meth:`Tensor.backward`.
        ValueError: if a gradient's shape or dtype is not its operand's.
    """
    if isinstance(outputs, Tensor):
        raise TypeError("backward: expected a list of tensors; for one, call its method: loss.backward()")
    if gradients is not None and len(gradients) != len(outputs):
        raise ValueError(f"backward: {len(outputs)} tensors and {len(gradients)} gradients; give one (or None) for each")
    received: dict[Any, Any] = {}  # node or leaf: for each of its outputs the sum so far, and whether that array is ours
    for i, output in enumerate(outputs):
        seed = _seed(output, None if gradients is None else gradients[i])
        _deliver(received, output if output._node is None else output._node, output._index, seed)
    pending = _count_consumers(received)
    targets = [(t if t._node is None else t._node, t._index) for t in inputs or ()]
    found: dict[Any, np.ndarray] = {}

    def finish(leaf: Tensor) -> None:
        slots = received.pop(leaf, None)
        if slots is None:  # none of its consumers had a gradient for it
            return
        if inputs is not None:
            if any(source is leaf for source, _ in targets):  # by identity: == compares elements
                found[leaf, 0] = _own(slots[0])
            return
        leaf._accumulate(slots[0][0])
        if leaf._home is not None:
            for (hook,) in leaf._home.hooks:
                hook(leaf)

    with np.errstate(all="ignore"):
        ready = []
        for source in tuple(received):
            if pending[source] == 0:
                if type(source) is Node:
                    ready.append(source)
                else:
                    finish(source)
        while ready:
            node = ready.pop()
            edges, slots = node.edges, received.pop(node, None)
            if slots is None:
                grads = (None,) * len(edges)
            else:
                if inputs is None:
                    _retain(node, slots)
                else:
                    found.update({(n, i): _own(slots[i]) for n, i in targets if n is node and slots[i] is not None})
                grads = _run(node, slots)
            later: list[Any] = []  # leaves first: their gradients are final, and hooks fire, before the rest is computed
            for i, (edge, gradient) in enumerate(zip(edges, grads)):
                if edge is None:
                    continue
                source = edge[0]
                if type(source) is Node:
                    if gradient is not None and type(gradient) is not np.ndarray:
                        later.append((i, source, gradient))
                        continue
                elif callable(gradient):
                    gradient = gradient()
                if gradient is not None:
                    _deliver(received, source, edge[1], _fit(node, i, gradient))
                pending[source] -= 1
                if pending[source] == 0:
                    if type(source) is Node:
                        ready.append(source)
                    else:
                        finish(source)
            for i, source, compute in later:
                gradient = compute() if callable(compute) else compute
                if gradient is not None:
                    _deliver(received, source, edges[i][1], _fit(node, i, gradient))
                pending[source] -= 1
                if pending[source] == 0:
                    ready.append(source)
            if not retain_graph:
                node.vjp = node.edges = node.prints = None
    return None if inputs is None else [found.get(target) for target in targets]


def _seed(output: Tensor, gradient: Any) -> np.ndarray:
    if not output.requires_grad:
        raise RuntimeError(
            f"backward: {output._label()} does not depend on anything that requires gradients; "
            "was it computed under no_grad, or from .data or .detach()?"
        )
    if gradient is None:
        if output.size != 1:
            raise RuntimeError(
                f"backward: {output._label()} is no scalar; reduce it with .sum() or .mean(), or pass its gradient"
            )
        return launch(K.fill, 1, out=new(output.shape, output.dtype))
    gradient = gradient._data if isinstance(gradient, Tensor) else np.asarray(gradient)
    if (gradient.shape, gradient.dtype) != (output.shape, output.dtype):
        raise ValueError(
            f"backward: {output._label()} is {output.dtype}, the gradient passed is {_describe(gradient)}; "
            "shape and dtype must agree"
        )
    return gradient


def _count_consumers(seeds: dict[Any, Any]) -> dict[Any, int]:
    """Count, for every node and leaf that the seeds depend on, how many edges lead to it."""
    pending = dict.fromkeys(seeds, 0)
    stack = [source for source in seeds if type(source) is Node]
    while stack:
        node = stack.pop()
        if node.edges is None:
            raise RuntimeError(
                f"backward: the graph behind the result of {node.op.name} was freed by an earlier backward; "
                "run the forward again, or pass retain_graph=True to the first backward"
            )
        for edge in node.edges:
            if edge is None:
                continue
            source = edge[0]
            if source in pending:
                pending[source] += 1
            else:
                pending[source] = 1
                if type(source) is Node:
                    stack.append(source)
    return pending


def _retain(node: Node, slots: list[Any]) -> None:
    for reference in node.retained:
        tensor = reference()
        if tensor is not None and slots[tensor._index] is not None:
            tensor._accumulate(slots[tensor._index][0])


def _run(node: Node, slots: list[Any]) -> tuple[Any, ...]:
    """Call a node's vjp on what it has received; zeros stand for outputs that nobody used."""
    if node.prints is not None:
        for array, name, before in node.prints:
            if _fingerprint(array) != before:
                raise RuntimeError(
                    f"{node.op.name}: the array {name} {array.shape} that its gradient needs was changed after the "
                    "forward pass; call backward before updating parameters or inputs in place"
                )
    if node.multiple:
        grads = node.vjp(
            tuple(launch(K.fill, 0, out=new(*meta)) if slot is None else slot[0] for slot, meta in zip(slots, node.meta))
        )
    else:
        grads = node.vjp(slots[0][0])
    if type(grads) is not tuple:
        grads = (grads,)
    if len(grads) != len(node.edges):
        raise ValueError(f"{node.op.name}: its vjp returned {len(grads)} gradients for {len(node.edges)} operands")
    return grads


def _fit(node: Node, i: int, gradient: Any) -> np.ndarray:
    """Check the gradient of node's operand i, and sum it back where an element-wise op has broadcast the operand."""
    source, index = node.edges[i]
    shape, dtype = source.meta[index] if type(source) is Node else (source._data.shape, source._data.dtype)
    if type(gradient) is np.ndarray:
        if gradient.shape == shape and gradient.dtype is dtype:
            return gradient
        if gradient.shape != shape and node.op.elementwise and _broadcasts(shape, gradient.shape):
            gradient = launch(K.sum_to, gradient, out=new(shape, gradient.dtype))
        if gradient.shape == shape and gradient.dtype == dtype:
            return gradient
    what = _describe(gradient) if type(gradient) is np.ndarray else f"of type {type(gradient).__name__}"
    raise ValueError(
        f"{node.op.name}: the gradient of operand {node.op.operand(i)} is {what}, "
        f"the operand is {shape} {dtype}; correct the op's vjp"
    )


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    return len(shape) <= len(to) and all(a in (1, b) for a, b in zip(reversed(shape), reversed(to)))


def _deliver(received: dict[Any, Any], source: Any, index: int, gradient: np.ndarray) -> None:
    """Add gradient to what source has received: the first by reference, the second into a new array, then in place."""
    slots = received.get(source)
    if slots is None:
        slots = received[source] = [None] * (len(source.meta) if type(source) is Node else 1)
    slot = slots[index]
    if slot is None:
        slots[index] = (gradient, False)
    elif slot[1]:
        launch(np.add, slot[0], gradient, out=slot[0])
    else:
        slots[index] = (launch(np.add, slot[0], gradient, out=new(gradient.shape, gradient.dtype)), True)


def _own(slot: tuple[np.ndarray, bool]) -> np.ndarray:
    """Return the sum as an array that nobody else holds."""
    gradient, ours = slot
    return gradient if ours else launch(K.copy, gradient, out=new(gradient.shape, gradient.dtype))


# --- parameters and gradients in one block ------------------------------------------------------------------------


class FlatBlock:
    """All parameters in one array and all gradients in another; tensors are views into them.

    An optimizer updates, and an all-reduce sums, one array instead of hundreds. Each tensor begins on a 64-byte
    boundary. Two more elements at the end of ``grads`` (:attr:`tail`) carry a loss sum and a count, so that gradients
    and what they must be divided by are reduced together.

    Example:
        >>> w = Tensor(np.ones((2, 3), np.float32), requires_grad=True)
        >>> block = flatten([w])
        >>> block.values[:6] *= 2
        >>> w.data[0]
        array([2., 2., 2.], dtype=float32)
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.parameters = tuple(dict.fromkeys(parameters))
        self.dtype = _common_dtype(self.parameters)
        self.stale: str | None = None  # why this block may not be used any more
        step = 64 // self.dtype.itemsize
        self.slices: list[slice] = []
        stop = 0
        for p in self.parameters:
            self.slices.append(slice(stop, stop + p.size))
            stop += -(-p.size // step) * step
        self.size = stop  # with padding, without the tail
        self.values = _aligned(stop, self.dtype)
        self._buffer = _aligned(stop + step, self.dtype)
        self.grads = self._buffer[:stop]
        self.tail = self._buffer[stop : stop + 2]  # (loss sum, count)
        self.reduced = self._buffer[: stop + 2]  # what an all-reduce sums
        for p, part in zip(self.parameters, self.slices):
            home = p._home = p._home or _Home()
            former = home.block()
            if former is not None:
                former.stale = f"{p._label()} was moved to another block (by a later optimizer or flatten)"
            value, grad = self.values[part].reshape(p.shape), self.grads[part].reshape(p.shape)
            np.copyto(value, p._data)
            p._data = value
            home.grad = grad
            home.block = weakref.ref(self)
            if p._grad is not None:
                np.copyto(grad, p._grad)
                p._grad = grad

    def check(self) -> FlatBlock:
        """Return the block itself, or raise if its parameters have moved away."""
        if self.stale:
            raise RuntimeError(f"this optimizer's parameters are out of date: {self.stale}; make a new optimizer")
        return self

    def missing(self) -> list[str]:
        """Return the names of parameters that have no gradient."""
        return [p.name or f"parameter {i} {p.shape}" for i, p in enumerate(self.parameters) if p._grad is None]

    def runs(self) -> list[slice]:
        """Return the stretches of the block whose parameters have gradients: one, if all do."""
        runs: list[slice] = []
        extend = False
        for i, (p, part) in enumerate(zip(self.parameters, self.slices)):
            if p._grad is None:
                extend = False
                continue
            stop = self.slices[i + 1].start if i + 1 < len(self.slices) else self.size
            if extend:
                runs[-1] = slice(runs[-1].start, stop)
            else:
                runs.append(slice(part.start, stop))
            extend = True
        return runs

    def zero_grad(self) -> None:
        """Forget all gradients: ``.grad`` becomes None."""
        for p in self.parameters:
            p._grad = None


def _common_dtype(parameters: Sequence[Tensor]) -> np.dtype:
    if not parameters:
        raise ValueError("there are no parameters; does the model have any, and were they passed as a list?")
    for i, p in enumerate(parameters):
        if not isinstance(p, Tensor) or not (p.requires_grad and p.is_leaf):
            what = p._label() if isinstance(p, Tensor) else type(p).__name__
            raise TypeError(f"parameter {i} is {what}; expected a leaf tensor that requires gradients")
        if p.dtype != parameters[0].dtype:
            raise TypeError(
                f"parameters mix {parameters[0]._label()} {parameters[0].dtype} and {p._label()} {p.dtype}; "
                "one block has one dtype: convert the model with .astype"
            )
    return parameters[0].dtype


def _aligned(size: int, dtype: np.dtype) -> np.ndarray:
    raw = np.zeros(size * dtype.itemsize + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size * dtype.itemsize].view(dtype)


def flatten(parameters: Iterable[Tensor]) -> FlatBlock:
    """Return the flat block of parameters (each once, in order), moving them into a new one if they have none."""
    once = list(dict.fromkeys(parameters))
    _common_dtype(once)
    home = once[0]._home
    block = home.block() if home is not None else None
    if block is not None and block.stale is None and list(map(id, block.parameters)) == list(map(id, once)):
        return block
    return FlatBlock(once)
