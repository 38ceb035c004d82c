"""Reference kernels in NumPy: the definition of what each kernel computes, to be read.

Every function has the form ``kernel(inputs..., out)``, fills ``out`` and returns nothing. Inputs are never changed.
Elementary functions (``np.exp``, ``np.add``, ...) and ``np.matmul`` are kernels already and are launched as they are.
"""

from __future__ import annotations

import numpy as np

# --- movement -----------------------------------------------------------------------------------------------------


def copy(x, out):
    """out = x, cast to out's dtype and broadcast to its shape."""
    np.copyto(out, x, casting="unsafe")


def fill(value, out):
    """out = value everywhere."""
    out[...] = value


# --- sums ---------------------------------------------------------------------------------------------------------


def sum(x, axis, keepdims, out):
    """out = Σ x over axis."""
    np.add.reduce(x, axis=axis, out=out, keepdims=keepdims)


def sum_to(g, out):
    """out = g summed over the axes along which an array of out's shape was broadcast to g's."""
    lead = g.ndim - out.ndim
    axes = tuple(range(lead)) + tuple(
        lead + i for i, n in enumerate(out.shape) if n == 1 and g.shape[lead + i] != 1
    )
    np.add.reduce(g, axis=axes, out=out.reshape((1,) * lead + out.shape), keepdims=True)


# --- the chain rule -----------------------------------------------------------------------------------------------


def chain(g, d, out):
    """out = g d, and 0 where the cotangent g is 0, also where the local derivative d is infinite or NaN."""
    with np.errstate(invalid="ignore", over="ignore"):
        np.multiply(g, d, out=out)
        if not np.isfinite(np.add.reduce(out, axis=None)):
            np.copyto(out, 0, where=np.equal(g, 0))


def chain_where(g, d, condition, out):
    """out = g d where the condition holds, else 0; also 0 where g is 0."""
    chain(g, d, out)
    np.copyto(out, 0, where=np.logical_not(condition))


# --- choice -------------------------------------------------------------------------------------------------------


def where(condition, x, y, out):
    """out = x where the condition holds, else y."""
    np.copyto(out, y)
    np.copyto(out, x, where=condition)


def select(condition, x, out):
    """out = x where the condition holds, else 0."""
    with np.errstate(invalid="ignore", over="ignore"):
        np.multiply(x, condition, out=out)  # 20 times as fast as a masked copy
        np.add(out, 0, out=out, casting="unsafe")  # -0 becomes 0; booleans stay
        if not np.isfinite(np.add.reduce(out, axis=None)):  # 0 inf is NaN
            np.copyto(out, 0, where=np.logical_not(condition))


# --- recurrent cells ----------------------------------------------------------------------------------------------
#
# One step of a batch. A gate array comes with the input's projection in it and leaves with the gates' values. Where
# alive (B, 1) is False the sequence has ended: states stay, and gradients pass through.


def _logistic(a):
    return 0.5 * (1 + np.tanh(0.5 * a))


def _keep(alive, old, new):
    if alive is not None:
        np.copyto(new, old, where=np.logical_not(alive))


def rnn_cell(a, s, h_prev, alive, activation, h):
    """h = f(a + s)."""
    f = {"tanh": np.tanh, "relu": lambda z: np.maximum(z, 0), "logistic": _logistic, "arctan": np.arctan}
    h[...] = f[activation](a + s)
    _keep(alive, h_prev, h)


def rnn_cell_vjp(gy, dh, h, alive, activation, dz, dh_prev):
    """dz = (gy + dh) f'(z), with f' from h = f(z); what is left for h_(t-1) directly: 0, or dh where ended."""
    slope = {
        "tanh": lambda: 1 - h * h,
        "relu": lambda: (h > 0).astype(h.dtype),
        "logistic": lambda: h * (1 - h),
        "arctan": lambda: np.cos(h) ** 2,
    }
    carried = dh.copy()
    dz[...] = (gy + dh) * slope[activation]()
    dh_prev[...] = 0
    if alive is not None:
        np.copyto(dz, 0, where=np.logical_not(alive))
        _keep(alive, carried, dh_prev)


def lstm_cell(s, c_prev, h_prev, alive, gates, c, tanh_c, h):
    """i, f, g, o = σ, σ, tanh, σ of gates + s; c = f c_prev + i g; h = o tanh(c)."""
    H = h.shape[1]
    gates += s
    gates[:, : 2 * H] = _logistic(gates[:, : 2 * H])
    gates[:, 2 * H : 3 * H] = np.tanh(gates[:, 2 * H : 3 * H])
    gates[:, 3 * H :] = _logistic(gates[:, 3 * H :])
    i, f, g, o = (gates[:, k * H : (k + 1) * H] for k in range(4))
    c[...] = f * c_prev + i * g
    tanh_c[...] = np.tanh(c)
    h[...] = o * tanh_c
    _keep(alive, c_prev, c)
    _keep(alive, h_prev, h)


def lstm_cell_vjp(gy, dh, dc, gates, c_prev, tanh_c, alive, dz, dh_prev, dc_prev):
    """The gradient of :func:`lstm_cell`; dh_prev takes only what does not go through dz."""
    H = dh.shape[1]
    i, f, g, o = (gates[:, k * H : (k + 1) * H] for k in range(4))
    carried_h, carried_c = dh.copy(), dc.copy()
    total = gy + dh
    cell = dc + total * o * (1 - tanh_c * tanh_c)
    dz[:, :H] = cell * g * i * (1 - i)
    dz[:, H : 2 * H] = cell * c_prev * f * (1 - f)
    dz[:, 2 * H : 3 * H] = cell * i * (1 - g * g)
    dz[:, 3 * H :] = total * tanh_c * o * (1 - o)
    dc_prev[...] = cell * f
    dh_prev[...] = 0
    if alive is not None:
        np.copyto(dz, 0, where=np.logical_not(alive))
        _keep(alive, carried_h, dh_prev)
        _keep(alive, carried_c, dc_prev)


def gru_cell(s, h_prev, alive, gates, sn, h):
    """r, z = σ of gates + s; n = tanh(a_n + r s_n); h = (1 - z) n + z h_prev; sn = s_n is kept for the gradient."""
    H = h.shape[1]
    gates[:, : 2 * H] = _logistic(gates[:, : 2 * H] + s[:, : 2 * H])
    sn[...] = s[:, 2 * H :]
    gates[:, 2 * H :] = np.tanh(gates[:, 2 * H :] + gates[:, :H] * sn)
    z, n = gates[:, H : 2 * H], gates[:, 2 * H :]
    h[...] = n + z * (h_prev - n)
    _keep(alive, h_prev, h)


def gru_cell_vjp(gy, dh, gates, sn, h_prev, alive, dz, ds, dh_prev):
    """The gradient of :func:`gru_cell`: dz for the projection of x, ds for that of h."""
    H = dh.shape[1]
    r, z, n = (gates[:, k * H : (k + 1) * H] for k in range(3))
    carried = dh.copy()
    total = gy + dh
    dn = total * (1 - z) * (1 - n * n)
    dz[:, :H] = dn * sn * r * (1 - r)
    dz[:, H : 2 * H] = total * (h_prev - n) * z * (1 - z)
    dz[:, 2 * H :] = dn
    dh_prev[...] = total * z
    if alive is not None:
        np.copyto(dz, 0, where=np.logical_not(alive))
        _keep(alive, carried, dh_prev)
    ds[...] = dz
    ds[:, 2 * H :] *= r


def gru_reset(s, h_prev, gates, rh):
    """r, z = σ of gates + s; rh = r h_prev."""
    H = h_prev.shape[1]
    gates[:, : 2 * H] = _logistic(gates[:, : 2 * H] + s)
    rh[...] = gates[:, :H] * h_prev


def gru_update(s, h_prev, alive, gates, h):
    """n = tanh(a_n + s); h = (1 - z) n + z h_prev."""
    H = h.shape[1]
    gates[:, 2 * H :] = np.tanh(gates[:, 2 * H :] + s)
    z, n = gates[:, H : 2 * H], gates[:, 2 * H :]
    h[...] = n + z * (h_prev - n)
    _keep(alive, h_prev, h)


def gru_update_vjp(gy, dh, gates, h_prev, alive, dz, dh_prev):
    """The gradient of :func:`gru_update`; the reset gate's part of dz is left to :func:`gru_reset_vjp`."""
    H = dh.shape[1]
    z, n = gates[:, H : 2 * H], gates[:, 2 * H :]
    carried = dh.copy()
    total = gy + dh
    dz[:, :H] = 0
    dz[:, H : 2 * H] = total * (h_prev - n) * z * (1 - z)
    dz[:, 2 * H :] = total * (1 - z) * (1 - n * n)
    dh_prev[...] = total * z
    if alive is not None:
        np.copyto(dz, 0, where=np.logical_not(alive))
        _keep(alive, carried, dh_prev)


def gru_reset_vjp(back, gates, h_prev, dh, dz, dh_prev):
    """Given the cotangent of r h_prev: the reset gate's dz, and what goes to h_prev directly."""
    H = h_prev.shape[1]
    r = gates[:, :H]
    dz[:, :H] = back * h_prev * r * (1 - r)
    np.add(dh, back * r, out=dh_prev)


def einsum(subscripts, *operands_out):
    """out = the einsum of the operands; small contractions are ordered by NumPy."""
    *operands, out = operands_out
    np.einsum(subscripts, *operands, out=out, optimize=len(operands) > 1)


# --- reductions ---------------------------------------------------------------------------------------------------


def mean(x, axis, keepdims, out):
    """out = Σ x / n over axis, NaN where n = 0; half floats are summed in float32."""
    total = np.add.reduce(x, axis=axis, keepdims=keepdims, dtype=np.float32 if x.dtype == np.float16 else None)
    n = x.size // out.size if out.size else 1
    np.multiply(total, 1 / n if n else np.nan, out=out, casting="same_kind")


def centre(x, axis, out):
    """out = x - mean over axis, exactly 0 where all elements are equal."""
    middle = np.empty([1 if i in axis else n for i, n in enumerate(x.shape)], x.dtype)
    mean(x, axis, True, middle)
    if x.size and x.dtype.kind == "f":  # rounded, the mean of equal elements can lie beside them: bring it back
        np.maximum(middle, np.min(x, axis=axis, keepdims=True), out=middle)
        np.minimum(middle, np.max(x, axis=axis, keepdims=True), out=middle)
    np.subtract(x, middle, out=out)


def prod(x, axis, keepdims, out):
    """out = Π x over axis."""
    np.multiply.reduce(x, axis=axis, out=out, keepdims=keepdims)


def prod_others(x, axis, out):
    """out_i = Π_(j≠i) x_j over axis: running products from the front times running products from the back."""
    rest = [i for i in range(x.ndim) if i not in axis]
    moved = x.transpose(*rest, *axis)
    flat = moved.reshape(*(x.shape[i] for i in rest), int(np.prod([x.shape[i] for i in axis])))
    before, after = np.ones_like(flat), np.ones_like(flat)
    np.multiply.accumulate(flat[..., :-1], axis=-1, out=before[..., 1:])
    np.multiply.accumulate(flat[..., :0:-1], axis=-1, out=after[..., -2::-1])
    out.transpose(*rest, *axis)[...] = (before * after).reshape(moved.shape)


def cumsum(x, axis, out):
    """out = the running sum along axis."""
    np.add.accumulate(x, axis=axis, out=out)


def norm(x, axis, keepdims, out):
    """out = √Σx² over axis, scaled by the largest element."""
    if x.dtype.kind == "c":
        np.sqrt(np.sum(x * x, axis=axis, keepdims=keepdims), out=out)
        return
    top = np.max(np.abs(x), axis=axis, keepdims=True, initial=0)
    safe = np.where((top > 0) & np.isfinite(top), top, 1)
    scaled = np.sqrt(np.sum(np.square(x / safe), axis=axis, keepdims=keepdims))
    np.multiply(scaled, safe if keepdims else safe.reshape(out.shape), out=out)


def quotient(x, y, out):
    """out = x / y, and 0 where y is 0."""
    out[...] = 0
    np.divide(x, y, out=out, where=np.not_equal(y, 0))


def extreme(x, ufunc, axis, keepdims, out):
    """out = the largest (np.maximum) or smallest (np.minimum) element over axis."""
    ufunc.reduce(x, axis=axis, out=out, keepdims=keepdims)


def arg(x, which, axis, keepdims, out):
    """out = the index of the first largest (np.argmax) or smallest (np.argmin) element along axis."""
    which(x, axis=axis, out=out, keepdims=keepdims)


def share(g, x, y, axis, out):
    """out = g where x equals y (the extreme along axis), divided by how many do; NaN counts as equal to NaN."""
    hit = np.equal(x, y) | (np.isnan(x) & np.isnan(y))
    np.multiply(hit, g / np.maximum(np.count_nonzero(hit, axis=axis, keepdims=True), 1).astype(g.dtype), out=out)
    np.copyto(out, 0, where=~hit)


def logsumexp(x, axis, keepdims, out):
    """out = m + log Σ e^(x - m) with m the largest element."""
    top = np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    safe = np.where(np.isfinite(top), top, 0)
    with np.errstate(divide="ignore", over="ignore"):
        total = np.sum(np.exp(np.minimum(x - safe, 0)), axis=axis, keepdims=True)
        y = np.where(np.isposinf(top), np.inf, np.log(total) + safe)
    out[...] = y if keepdims else y.reshape(out.shape)


def logsumexp_weights(x, y, axis, out):
    """out = e^(x - y); 0 where y = -inf; where y = +inf, equal shares of the elements that are +inf."""
    out[...] = np.exp(np.where(np.isinf(y), -np.inf, x - y))
    if np.any(np.isposinf(y)):
        hit = np.isposinf(x)
        np.copyto(out, hit / np.maximum(np.count_nonzero(hit, axis=axis, keepdims=True), 1), where=np.isposinf(y))


# --- shapes and indices -------------------------------------------------------------------------------------------


def roll(x, shift, axis, out):
    """out = x rolled by shift along axis."""
    out[...] = np.roll(x, shift, axis)


def pad(x, inner, value, out):
    """out = value, with x at the slices inner."""
    out[...] = value
    out[inner] = x


def concatenate(*arrays_axis_out):
    """out = the arrays joined along axis."""
    *arrays, axis, out = arrays_axis_out
    np.concatenate(arrays, axis=axis, out=out)


def getitem(x, key, out=None):
    """out = x[key]; a new array if out is None, since only a mask's values tell the result's shape."""
    y = x[key]
    if out is None:
        return y
    if y.shape != out.shape:
        raise IndexError(f"getitem: the key selects {y.shape} where it selected {out.shape} before")
    out[...] = y


def getitem_vjp(g, key, once, out):
    """out = 0, plus g at key; ``once`` says that key names no element twice."""
    out[...] = 0
    if once:
        out[key] = g
    elif isinstance(key, np.ndarray):
        _add_rows(g, key, out)
    else:
        np.add.at(out, key, g)


def _add_rows(g, indices, out):
    """out[indices] += g, repeats adding up; element by element, which NumPy does 5 times as fast as by rows."""
    width = int(np.prod(out.shape[1:]))
    places = indices.reshape(-1, 1).astype(np.intp) * width + np.arange(width)
    np.add.at(out.reshape(-1, copy=False), places.reshape(-1), g.reshape(-1))


def take_along_axis(x, indices, axis, out=None):
    """out = x[..., indices[...], ...] along axis; a new array if out is None."""
    y = np.take_along_axis(x, indices, axis)
    if out is None:
        return y
    out[...] = y


def take_along_axis_vjp(g, indices, axis, out):
    """out = 0, plus g at indices along axis."""
    out[...] = 0
    axis %= out.ndim
    places = list(np.ogrid[tuple(slice(n) for n in out.shape)])
    places[axis] = indices
    np.add.at(out, tuple(places), g)


def embedding(indices, weight, out):
    """out = weight[indices], all indices from 0 to V - 1."""
    V = len(weight)
    if indices.size and (indices.min() < 0 or indices.max() >= V):
        bad = np.argwhere((indices < 0) | (indices >= V))[0].tolist()
        raise IndexError(
            f"embedding: indices{bad} is {indices[tuple(bad)]}, expected 0 to {V - 1} for weight {weight.shape}"
        )
    np.take(weight, indices.astype(np.intp, copy=False), axis=0, out=out, mode="clip")  # "raise" would buffer


def embedding_vjp(g, indices, out):
    """out_v = Σ g where indices = v."""
    out[...] = 0
    _add_rows(g, indices, out)


# --- activations --------------------------------------------------------------------------------------------------


def logistic(x, out):
    """out = 1/(1 + e^-x), from e^-|x|, which cannot overflow."""
    e = np.exp(-np.abs(x))
    np.divide(np.where(x >= 0, 1, e).astype(x.dtype), 1 + e, out=out)


def logistic_vjp(y, g, out):
    """out = g y (1 - y)."""
    np.multiply(g, y * (1 - y), out=out)


def tanh_vjp(y, g, out):
    """out = g (1 - y²)."""
    np.multiply(g, 1 - y * y, out=out)


def arctan_vjp(x, g, out):
    """out = g/(1 + x²)."""
    with np.errstate(over="ignore"):
        np.divide(g, 1 + x * x, out=out)


def relu(x, out):
    """out = x where x > 0, else 0; NaN stays."""
    np.maximum(x, 0, out=out)


def relu_vjp(y, g, out):
    """out = g where y > 0, else 0."""
    select(y > 0, g, out)


def softplus(x, out):
    """out = max(x, 0) + log(1 + e^-|x|)."""
    np.add(np.maximum(x, 0), np.log1p(np.exp(-np.abs(x))), out=out)


def softplus_vjp(x, g, out):
    """out = g σ(x)."""
    logistic(x, out)
    np.multiply(out, g, out=out)


def gelu(x, out):
    """out = x Φ(x), and 0 at -inf."""
    with np.errstate(invalid="ignore"):
        select(x != -np.inf, x * normal_cdf(x), out)


def gelu_vjp(x, g, out):
    """out = g (Φ(x) + x φ(x)), φ being the normal density."""
    with np.errstate(over="ignore", invalid="ignore"):
        density = np.exp(-0.5 * np.square(x)) * x.dtype.type(1 / np.sqrt(2 * np.pi))
        np.multiply(g, normal_cdf(x) + np.where(density > 0, x * density, 0).astype(x.dtype), out=out)


def normal_cdf(x):
    """Φ(x) = erfc(-x/√2)/2 by rational functions on |t| <= 0.46875, <= 4 and above.

    Source: W. J. Cody, "Rational Chebyshev approximation for the error function", Math. Comp. 23 (1969), tables II-IV.
    """
    t = np.abs(x.astype(np.result_type(x, np.float32), copy=False)) * 0.7071067811865476  # float16 would overflow
    t = np.minimum(t, 30)  # e^-900 is 0 already
    s = t * t
    inner = 0.5 * t * _ratio(s, _CODY[0])  # erf(t)/2
    q = 1 / np.maximum(s, 1)
    far = (x.dtype.type(1 / np.sqrt(np.pi)) - q * _ratio(q, _CODY[2])) / np.maximum(t, 1)
    head = np.floor(16 * t) / 16  # head² is exact: the error of t², times t², would be that of e^-t²
    gauss = np.exp(-head * head) * np.exp((head - t) * (head + t))
    tail = 0.5 * gauss * np.where(t <= 4, _ratio(np.minimum(t, 4), _CODY[1]), far)  # erfc(t)/2
    near = t <= 0.46875
    return np.where(x < 0, np.where(near, 0.5 - inner, tail), np.where(near, 0.5 + inner, 1 - tail)).astype(x.dtype)


_CODY = (  # (numerator, denominator), highest power first
    (
        (1.85777706184603153e-1, 3.16112374387056560e0, 1.13864154151050156e2, 3.77485237685302021e2, 3.20937758913846947e3),
        (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3),
    ),
    (
        (2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e0, 6.61191906371416295e1, 2.98635138197400131e2,
         8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3, 1.23033935479799725e3),
        (1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3,
         3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3),
    ),
    (
        (1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1, 1.25781726111229246e-1,
         1.60837851487422766e-2, 6.58749161529837803e-4),
        (1.0, 2.56852019228982242e0, 1.87295284992346725e0, 5.27905102951428412e-1, 6.05183413124413191e-2,
         2.33520497626869185e-3),
    ),
)  # fmt: skip


def _ratio(t, coefficients):
    above, below = (np.full_like(t, c[0]) for c in coefficients)
    for a in coefficients[0][1:]:
        above = above * t + t.dtype.type(a)
    for b in coefficients[1][1:]:
        below = below * t + t.dtype.type(b)
    return above / below


def gelu_tanh(x, out):
    """out = x/2 (1 + tanh(√(2/π) (x + 0.044715 x³))), and 0 at -inf."""
    with np.errstate(over="ignore", invalid="ignore"):
        half = 0.5 * (1 + np.tanh(_gelu_inner(x)))
        select(half != 0, x * half, out)


def gelu_tanh_vjp(x, g, out):
    """out = g (h + 2 x h (1 - h) u'), with h = (1 + tanh u)/2."""
    with np.errstate(over="ignore", invalid="ignore"):
        h = 0.5 * (1 + np.tanh(_gelu_inner(x)))
        slope = _SQRT_2_PI * (1 + 3 * 0.044715 * np.square(x))
        bend = 2 * h * (1 - h)
        np.multiply(g, h + np.where(bend > 0, bend * x * slope, 0), out=out)


def _gelu_inner(x):
    return _SQRT_2_PI * (x + 0.044715 * x * x * x)


_SQRT_2_PI = 0.7978845608028654  # √(2/π)


def softmax(x, axis, out):
    """out = e^(x - max) / Σ e^(x - max) along axis; 0 where all are -inf; equal shares among +inf."""
    top = np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    if not np.all(np.isfinite(top)):
        x = np.where(np.isposinf(top), np.where(np.isposinf(x), 0, -np.inf), x).astype(x.dtype)
        top = np.where(np.isinf(top), 0, top).astype(x.dtype)
    with np.errstate(over="ignore"):  # a difference of finite numbers may be -inf: e to that is 0
        np.subtract(x, top, out=out)
    np.exp(out, out=out)
    total = np.sum(out, axis=axis, keepdims=True)
    np.divide(out, np.where(total == 0, 1, total), out=out)


def softmax_vjp(y, g, axis, out):
    """out = y (g - Σ g y)."""
    np.multiply(y, g, out=out)
    np.multiply(y, g - np.sum(out, axis=axis, keepdims=True), out=out)


def log_softmax(x, axis, out):
    """out = x - max - log Σ e^(x - max) along axis; -inf where all are -inf."""
    top = np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    if not np.all(np.isfinite(top)):
        x = np.where(np.isposinf(top), np.where(np.isposinf(x), 0, -np.inf), x).astype(x.dtype)
        top = np.where(np.isinf(top), 0, top).astype(x.dtype)
    with np.errstate(over="ignore"):
        np.subtract(x, top, out=out)
    total = np.sum(np.exp(out), axis=axis, keepdims=True)
    np.subtract(out, np.log(np.where(total == 0, 1, total)), out=out)


def log_softmax_vjp(y, g, axis, out):
    """out = g - e^y Σ g, and 0 where all of y is -inf."""
    np.subtract(g, np.exp(y) * np.sum(g, axis=axis, keepdims=True), out=out)
    empty = np.max(y, axis=axis, keepdims=True, initial=-np.inf) == -np.inf
    if np.any(empty):
        np.copyto(out, 0, where=empty)


def dropout(x, p, key, out):
    """out = x/(1 - p) where the hash of (seed, step, place) is at least p, else 0."""
    seed, step, first = key
    samples = len(x) if x.ndim else 1
    with np.errstate(over="ignore"):  # unsigned integers wrap around
        stream = _mix(_mix(seed + _GOLDEN) ^ (step * _GOLDEN))
        inside = np.arange(x.size // max(samples, 1), dtype=np.uint64)  # place within a sample
        sample = np.arange(samples, dtype=np.uint64)[:, None] + first
        bits = _mix(stream + (inside + (sample << np.uint64(32))) * _GOLDEN).reshape(x.shape)
    keep = (bits >> np.uint64(11)) * 2.0**-53 >= p
    select(keep, x, out)
    out *= 0 if p == 1 else 1 / (1 - p)


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(z):
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


# --- normalisation ------------------------------------------------------------------------------------------------


def layer_norm(x, weight, bias, eps, y, mean, rstd):
    """y = (x - mean) rstd weight + bias for each row of x (N, D)."""
    D = max(x.shape[1], 1)
    np.divide(np.sum(x, axis=1), D, out=mean)
    d = x - mean[:, None]
    rstd[...] = 1 / np.sqrt(np.sum(d * d, axis=1) / D + x.dtype.type(eps))
    np.multiply(d, rstd[:, None], out=y)
    if weight is not None:
        y *= weight
    if bias is not None:
        y += bias


def layer_norm_vjp(g, x, weight, mean, rstd, gx, gw, gb):
    """gx = (ĝ - mean(ĝ) - x̂ mean(ĝ x̂)) rstd; gw = Σ g x̂; gb = Σ g."""
    xhat = (x - mean[:, None]) * rstd[:, None]
    ghat = g if weight is None else g * weight
    D = max(x.shape[1], 1)
    along = np.sum(ghat * xhat, axis=1, keepdims=True) / D
    np.multiply(ghat - np.sum(ghat, axis=1, keepdims=True) / D - xhat * along, rstd[:, None], out=gx)
    np.sum(g * xhat, axis=0, out=gw)
    np.sum(g, axis=0, out=gb)


def rms_norm(x, weight, eps, y, rstd):
    """y = x rstd weight for each row of x (N, D)."""
    rstd[...] = 1 / np.sqrt(np.sum(x * x, axis=1) / max(x.shape[1], 1) + x.dtype.type(eps))
    np.multiply(x, rstd[:, None], out=y)
    if weight is not None:
        y *= weight


def rms_norm_vjp(g, x, weight, rstd, gx, gw):
    """gx = (ĝ - x̂ mean(ĝ x̂)) rstd; gw = Σ g x̂."""
    xhat = x * rstd[:, None]
    ghat = g if weight is None else g * weight
    along = np.sum(ghat * xhat, axis=1, keepdims=True) / max(x.shape[1], 1)
    np.multiply(ghat - xhat * along, rstd[:, None], out=gx)
    np.sum(g * xhat, axis=0, out=gw)


def _per_feature(v, x):
    return v.reshape(1, -1, *(1,) * (x.ndim - 2))


def batch_norm(x, weight, bias, eps, y, mean, var):
    """y = (x - mean)/√(var + eps) weight + bias over all axes of x but axis 1."""
    axes = (0, *range(2, x.ndim))
    if not x.size:
        mean[...], var[...] = 0, 1
        return
    mean[...] = np.mean(x, axis=axes)
    d = x - _per_feature(mean, x)
    rest = np.mean(d, axis=axes)  # what rounding has left of the mean
    mean += rest
    d -= _per_feature(rest, x)
    var[...] = np.mean(d * d, axis=axes)
    scale = 1 / np.sqrt(var + x.dtype.type(eps))
    np.multiply(d, _per_feature(scale if weight is None else scale * weight, x), out=y)
    if bias is not None:
        y += _per_feature(bias, x)


def batch_norm_vjp(gy, gmean, gvar, x, weight, mean, var, eps, gx, gw, gb):
    """gx = (ĝ - mean(ĝ) - x̂ mean(ĝ x̂)) rstd + gmean/n + 2 gvar (x - mean)/n; gw = Σ gy x̂; gb = Σ gy."""
    axes = (0, *range(2, x.ndim))
    rstd = 1 / np.sqrt(var + x.dtype.type(eps))
    d = x - _per_feature(mean, x)
    xhat = d * _per_feature(rstd, x)
    np.sum(gy * xhat, axis=axes, out=gw)
    np.sum(gy, axis=axes, out=gb)
    if not x.size:
        return
    n = x.size // x.shape[1]
    scale = rstd if weight is None else rstd * weight
    inner = gy - _per_feature(gb / n, x) - xhat * _per_feature(gw / n, x)
    np.multiply(inner, _per_feature(scale, x), out=gx)
    gx += _per_feature(gmean / n, x) + d * _per_feature(2 * gvar / n, x)


# --- losses -------------------------------------------------------------------------------------------------------


def cross_entropy(z, t, weight, ignore, smoothing, losses, slope, used):
    """losses = -Σ_k w_k q_k log p_k with p = softmax(z); slope = (Σ w q) p - w q; used = w_t, 0 for ignored rows."""
    N, C = z.shape
    if weight is None and ignore is None and not smoothing:  # q is one-hot
        rows = np.arange(N)
        log_softmax(z, 1, slope)
        np.negative(slope[rows, t], out=losses)
        np.exp(slope, out=slope)
        slope[rows, t] -= 1
        used[...] = 1
        return
    counted = np.ones(N, bool) if ignore is None else t != ignore
    label = np.where(counted, t, 0)
    q = np.full_like(z, smoothing / max(C, 1))
    rows = np.arange(N)
    if N:
        q[rows, label] += z.dtype.type(1 - smoothing)
    q *= counted[:, None]
    if weight is not None:
        q *= weight
    log_softmax(z, 1, slope)
    losses[...] = -np.sum(np.multiply(q, slope, where=q != 0, out=np.zeros_like(q)), axis=1)
    np.exp(slope, out=slope)
    mass = np.sum(q, axis=1, keepdims=True)
    np.multiply(slope, mass, out=slope)
    np.subtract(slope, q, out=slope)
    np.copyto(slope, 0, where=mass == 0)  # a row that does not count may hold anything, NaN too
    used[...] = counted if weight is None else np.where(counted, weight[label], 0)


def binary_cross_entropy(z, t, losses, slope):
    """losses = max(z, 0) - z t + log(1 + e^-|z|), 0 for a certainty that is right; slope = σ(z) - t."""
    off = np.where(z > 0, 1 - t, -t)  # max(z, 0) - z t = z off, which is 0 where off is, also for infinite z
    np.log1p(np.exp(-np.abs(z)), out=losses)
    losses += np.multiply(z, off, where=off != 0, out=np.zeros_like(z))
    logistic(z, slope)
    slope -= t


def squared_error(x, y, losses, slope):
    """losses = (x - y)²; slope = 2 (x - y)."""
    np.subtract(x, y, out=slope)
    np.square(slope, out=losses)
    slope *= 2


def absolute_error(x, y, losses, slope):
    """losses = |x - y|; slope = sign(x - y)."""
    np.subtract(x, y, out=slope)
    np.absolute(slope, out=losses)
    np.sign(slope, out=slope)


def huber(x, y, delta, losses, slope):
    """losses = d²/2 where |d| <= delta, else delta (|d| - delta/2); slope = d limited to ±delta."""
    d = x - y
    np.clip(d, -delta, delta, out=slope)
    np.multiply(slope, d - 0.5 * slope, out=losses)


def reciprocal_or_zero(x, out):
    """out = 1/x, and 0 where x is 0."""
    out[...] = 0
    np.divide(1, x, out=out, where=np.not_equal(x, 0))


# --- windows of images --------------------------------------------------------------------------------------------


def _shifted(x, i, j, stride, oh, ow):
    """View the element at place (i, j) of each window of the last two axes."""
    sh, sw = stride
    return x[..., i : i + sh * (oh - 1) + 1 : sh, j : j + sw * (ow - 1) + 1 : sw]


def columns_vjp(g, stride, out):
    """out (C, H, W, B) = each element's sum over the windows it is in, from columns g (C, kh, kw, oh, ow, B)."""
    out[...] = 0
    _, kh, kw, oh, ow, _ = g.shape
    images = np.moveaxis(out, 3, 0)
    for i in range(kh):
        for j in range(kw):
            _shifted(images, i, j, stride, oh, ow)[...] += np.moveaxis(g[:, i, j], 3, 0)


def max_pool(x, size, stride, out):
    """out = the largest element of each window."""
    out[...] = -np.inf
    for i in range(size[0]):
        for j in range(size[1]):
            np.maximum(out, _shifted(x, i, j, stride, *out.shape[2:]), out=out)


def max_pool_vjp(x, y, g, size, stride, out):
    """out = g for each window's largest elements, shared equally among those that tie."""
    out[...] = 0
    places = [(i, j) for i in range(size[0]) for j in range(size[1])]
    views = [_shifted(x, i, j, stride, *y.shape[2:]) for i, j in places]
    hits = [(v == y) | (v != v) for v in views]  # NaN is the largest
    count = np.zeros(y.shape, g.dtype)
    for hit in hits:
        count += hit
    share, part = g / count, np.empty_like(count)
    for (i, j), hit in zip(places, hits):
        select(hit, share, part)
        _shifted(out, i, j, stride, *y.shape[2:])[...] += part


def avg_pool(x, size, stride, out):
    """out = the mean of each window."""
    out[...] = 0
    for i in range(size[0]):
        for j in range(size[1]):
            out += _shifted(x, i, j, stride, *out.shape[2:])
    out *= 1 / (size[0] * size[1])


def avg_pool_vjp(g, size, stride, out):
    """out = g / (elements of a window), summed over the windows an element is in."""
    out[...] = 0
    share = g * g.dtype.type(1 / (size[0] * size[1]))
    for i in range(size[0]):
        for j in range(size[1]):
            _shifted(out, i, j, stride, *g.shape[2:])[...] += share


# --- state --------------------------------------------------------------------------------------------------------


def moving_average(x, momentum, factor, out):
    """out = (1 - momentum) out + momentum factor x."""
    out *= 1 - momentum
    out += (momentum * factor) * x


def advance(amount, out):
    """out = out + amount: a counter."""
    out += amount


# --- optimizers, over a stretch of the flat block; rate and steps are 0-d arrays -----------------------------------


def sgd(g, rate, decay, w):
    """w = w - rate (g + decay w)."""
    step = g + decay * w if decay else g
    w -= w.dtype.type(rate) * step


def sgd_momentum(g, rate, momentum, nesterov, decay, w, v):
    """g += decay w; v = momentum v + g; w = w - rate v, or w - rate (g + momentum v) with Nesterov."""
    if decay:
        g = g + decay * w
    v *= momentum
    v += g
    w -= w.dtype.type(rate) * (g + momentum * v if nesterov else v)


def adam(g, rate, steps, beta1, beta2, eps, decay, decoupled, w, m, v):
    """The step of Adam, with decay in the gradient, or beside it (decoupled, AdamW)."""
    if decay and not decoupled:
        g = g + decay * w
    step = w.dtype.type(rate) * _adam_direction(g, steps, beta1, beta2, eps, m, v)
    if decay and decoupled:
        w -= w.dtype.type(rate * decay) * w
    w -= step


def _adam_direction(g, steps, beta1, beta2, eps, m, v):
    m *= beta1
    m += (1 - beta1) * g
    v *= beta2
    v += (1 - beta2) * g * g
    t = int(steps)
    return (m / g.dtype.type(1 - beta1**t)) / (np.sqrt(v / g.dtype.type(1 - beta2**t)) + g.dtype.type(eps))


def lars(g, rate, momentum, decay, trust, w, v):
    """r = trust |w| / (|g| + decay |w|), 1 where a norm is 0; v = momentum v + rate r (g + decay w); w = w - v."""
    size, slope = np.linalg.norm(w), np.linalg.norm(g)
    ratio = trust * size / (slope + decay * size) if size > 0 and slope > 0 else 1.0
    v *= momentum
    v += w.dtype.type(float(rate) * ratio) * (g + decay * w)
    w -= v


def lamb(g, rate, steps, beta1, beta2, eps, decay, w, m, v):
    """u = Adam's direction + decay w; w = w - rate |w|/|u| u, the ratio being 1 where a norm is 0."""
    u = _adam_direction(g, steps, beta1, beta2, eps, m, v) + decay * w
    size, length = np.linalg.norm(w), np.linalg.norm(u)
    ratio = size / length if size > 0 and length > 0 else 1.0
    w -= w.dtype.type(float(rate) * ratio) * u


def global_norm(*gradients_out):
    """out = √Σ g² over all gradients, in float64; scaled by the largest where a square would overflow."""
    *gradients, out = gradients_out
    with np.errstate(over="ignore"):
        out[...] = np.sqrt(np.sum([np.einsum("i,i->", g, g, dtype=np.float64, casting="safe") for g in gradients]))
    if np.isinf(out):
        top = np.max([np.max(np.abs(g), initial=0) for g in gradients])
        if np.isfinite(top):
            out[...] = top * np.sqrt(np.sum([np.sum(np.square(g / top)) for g in gradients]))


def clip_to_norm(norm, max_norm, out):
    """out = out min(1, max_norm / norm)."""
    if norm > max_norm:
        out *= out.dtype.type(max_norm / float(norm))


def divide_or_zero(count, out):
    """out = out / count, and 0 where count is 0."""
    if count[0] == 0:
        out[...] = 0
    else:
        out /= count[0]


# --- attention ----------------------------------------------------------------------------------------------------


def _masked(scores, scale, mask, causal, start, S):
    """scale · scores + mask for the keys from start on, -inf where a query may not see a key."""
    s = scores * scale
    if mask is not None:
        s = np.where(mask, s, -np.inf).astype(scores.dtype) if mask.dtype == bool else s + mask
    if causal:
        T, n = s.shape[-2:]
        seen = np.arange(start, start + n) <= np.arange(T)[:, None] + (S - T)
        s = np.where(seen, s, -np.inf).astype(scores.dtype)
    return s


def attention_weights(scores, scale, mask, causal, out):
    """out = softmax(scale · scores + mask) along the last axis; a row that may see nothing is 0."""
    softmax(_masked(scores, scale, mask, causal, 0, scores.shape[-1]), -1, out)


def attention_weights_vjp(y, g, scale, out):
    """out = scale y (g - Σ g y)."""
    softmax_vjp(y, g, -1, out)
    out *= scale


def attention_tile(scores, scale, mask, causal, start, S, part, top, total, y):
    """One tile of keys: part = e^(s - top) with the new running maximum; total and y are scaled down to it."""
    s = _masked(scores, scale, mask, causal, start, S)
    higher = np.maximum(top, np.max(s, axis=-1, initial=-np.inf))
    safe = np.where(np.isneginf(higher), 0, higher).astype(s.dtype)
    np.exp(s - safe[..., None], out=part)
    shrink = np.exp(top - safe)
    top[...] = higher
    total *= shrink
    total += np.sum(part, axis=-1)
    y *= shrink[..., None]


def attention_finish(total, top, y):
    """y = y / total (0 where it is 0); top = top + log total."""
    y /= np.where(total == 0, 1, total)[..., None]
    with np.errstate(divide="ignore"):
        top += np.log(total)


def attention_tile_vjp(scores, gw, log_total, dot, scale, mask, causal, start, S, weights, gs):
    """weights = e^(s - log total); gs = scale weights (gw - dot)."""
    s = _masked(scores, scale, mask, causal, start, S)
    safe = np.where(np.isneginf(log_total), 0, log_total).astype(s.dtype)
    np.exp(s - safe[..., None], out=weights)
    np.multiply(weights, gw - dot[..., None], out=gs)
    gs *= scale


def rows_dot(x, y, out):
    """out = Σ x y along the last axis."""
    np.einsum("...i,...i->...", x, y, out=out)


def rotate(x, cos, sin, out):
    """Rotate the pairs (x_j, x_(j + K/2)) by the angles whose cosines and sines are given."""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    out[..., :half] = a * cos - b * sin
    out[..., half:] = a * sin + b * cos


# --- conditional random fields ------------------------------------------------------------------------------------


def _lse(x, axis):
    top = np.max(x, axis=axis, keepdims=True)
    return np.log(np.sum(np.exp(x - top), axis=axis)) + np.squeeze(top, axis)


def crf(emissions, transitions, start, stop, tags, lengths, alpha, y):
    """alpha = the forward algorithm's log sums (T, B, L); y = the score of tags less the log sum over all sequences."""
    B, T, _ = emissions.shape
    rows = np.arange(B)
    alpha[0] = start + emissions[:, 0]
    score = start[tags[:, 0]] + emissions[rows, 0, tags[:, 0]]
    for t in range(1, T):
        alive = t < lengths
        step = _lse(alpha[t - 1][:, :, None] + transitions, 1) + emissions[:, t]
        alpha[t] = np.where(alive[:, None], step, alpha[t - 1])
        score += np.where(alive, transitions[tags[:, t - 1], tags[:, t]] + emissions[rows, t, tags[:, t]], 0)
    score += stop[tags[rows, lengths - 1]]
    y[...] = score - _lse(alpha[-1] + stop, 1)


def crf_vjp(g, alpha, emissions, transitions, stop, tags, lengths, ge, gA, gstart, gstop):
    """Counts in the given tags less expected counts, for emissions, transitions, start and stop, each times g."""
    B, T, _ = emissions.shape
    rows = np.arange(B)
    last = alpha[-1] + stop
    expected = np.exp(last - _lse(last, 1)[:, None]) * g[:, None]  # (B, L)
    gstop[...] = -expected.sum(axis=0)
    np.add.at(gstop, tags[rows, lengths - 1], g)
    gA[...] = 0
    for t in range(T - 1, 0, -1):
        alive = t < lengths
        ge[:, t] = np.where(alive[:, None], -expected, 0)
        ge[rows, t, tags[:, t]] += np.where(alive, g, 0)
        exponent = alpha[t - 1][:, :, None] + transitions + (emissions[:, t] - alpha[t])[:, None, :]
        pairs = np.exp(np.where(alive[:, None, None], exponent, -np.inf)) * expected[:, None, :]  # (B, from, to)
        gA -= pairs.sum(axis=0)
        np.add.at(gA, (tags[:, t - 1], tags[:, t]), np.where(alive, g, 0))
        expected = np.where(alive[:, None], pairs.sum(axis=2), expected)
    ge[:, 0] = -expected
    ge[rows, 0, tags[:, 0]] += g
    gstart[...] = ge[:, 0].sum(axis=0)
