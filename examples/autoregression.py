"""Autoregression: how a series depends on its own past, by least squares and by gradient descent, with a forecast.

    python examples/autoregression.py                    # yearly sunspot numbers, 1700 to 2008
    mpiexec -n 2 python examples/autoregression.py --data faux --order 2

Exit code: 0 if gradient descent finds what least squares finds (and, for faux data, the truth), 1 if not.
"""

import sys

import numpy as np

import minigrad as mg
from minigrad import data, dist, nn, optim, series
from minigrad.train import parser


def main():
    comm = dist.init()
    p = parser(comm, __doc__)
    p.add_argument("--data", choices=("sunspots", "faux"), default="sunspots")
    p.add_argument("--order", type=int, default=9, help="how many past values count")
    p.add_argument("--steps", type=int, default=3000, help="of gradient descent, on all samples")
    p.add_argument("--plot", metavar="PNG")
    args = p.parse_args()
    truth = None
    if args.data == "sunspots":
        times, s = data.sunspots()
    else:
        faux = data.faux.autoregression(2000, dtype=np.float64)
        s, truth = np.concatenate([faux.x[0, ::-1], faux.y]), faux.truth["coefficients"]
        times = np.arange(len(s))
    if not 1 <= args.order <= len(s) // 4:
        p.error(f"--order is {args.order}; expected 1 to {len(s) // 4} for {len(s)} values")
    exact = series.fit_least_squares(s, args.order)

    # Gradient descent on whitened lags: uncorrelated inputs of size 1, so that every direction is learned equally fast.
    x, y = series.lagged(s, args.order)
    centre, spread = x.mean(axis=0), y.std()
    whiten = np.linalg.inv(np.linalg.cholesky(np.cov(x.T, bias=True).reshape(args.order, args.order))).T
    model = nn.Linear(args.order, 1, rng=np.random.default_rng(0), dtype=np.float64)
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.8)
    reducer = dist.Reducer(optimizer.block, comm)
    loader = data.Loader((x - centre) @ whiten, (y - y.mean()) / spread, batch=len(y), rank=comm.rank, size=comm.size)
    for step in range(args.steps):
        for xb, yb in loader.epoch(step):
            optimizer.zero_grad()
            loss = mg.mse(model(xb)[:, 0], yb, reduction="sum")
            loss.backward()
            reducer.finish(loss, len(yb))
            optimizer.step()
    found = spread * whiten @ model.w.data[:, 0]
    intercept = y.mean() + spread * model.b.item() - centre @ found

    differ = dist.differences(model, comm)
    if comm.rank:
        return 0
    gap = np.max(np.abs(np.append(found, intercept) - np.append(exact.coefficients, exact.intercept)))
    print(f"order {args.order}, {len(y)} values, {comm.size} rank(s); residual standard deviation {exact.sigma:.4g}")
    print(f"{'lag':>3s}{'least squares':>16s}{'gradient':>12s}{'std. error':>12s}{'' if truth is None else '     truth'}")
    good = gap < 1e-6 and not differ
    for k in range(args.order):
        line = f"{k + 1:3d}{exact.coefficients[k]:16.6f}{found[k]:12.6f}{exact.errors[k + 1]:12.6f}"
        if truth is not None:
            true = truth[k] if k < len(truth) else 0.0
            good &= bool(abs(found[k] - true) < 5 * exact.errors[k + 1])
            line += f"{true:10.4f}"
        print(line)
    print(f"largest difference between the two: {gap:.1e}")
    r, partial = series.autocorrelation(s, 12), series.partial_autocorrelation(s, 12)
    print("lag                     " + "".join(f"{k:7d}" for k in range(1, 13)))
    print("autocorrelation         " + "".join(f"{v:7.2f}" for v in r[1:]))
    print("partial autocorrelation " + "".join(f"{v:7.2f}" for v in partial[1:]))
    print(f"95 % of white noise lies within ±{series.confidence_band(len(s)):.2f}")
    mean, low, high = exact.forecast(s, 11)
    print("forecast: " + ", ".join(f"{m:.0f} [{a:.0f}, {b:.0f}]" for m, a, b in zip(mean, low, high)))
    if args.plot:
        series.plot(args.plot, times, s, 40, exact, 22)
    print("recovered" if good else "NOT RECOVERED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
