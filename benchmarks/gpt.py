"""The character GPT (4 layers, 4 heads, width 128, context 64, batch 12) beside PyTorch, on one core, in one run.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 taskset -c 0 python -m benchmarks.gpt

Both start from the same weights and see the same batches; their losses must agree. Steps alternate in blocks; medians of a
training step (forward, backward, clipping, AdamW) and their ratio are printed.
"""

import os
import statistics
import time

for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    os.environ.pop(name, None)  # before NumPy loads its BLAS

import numpy as np
import torch
import torch.nn.functional as F
from threadpoolctl import threadpool_info

import minigrad as mg
from minigrad import nn, optim

V, D, N, L, T, B = 65, 128, 4, 4, 64, 12


def ours(seed=0):
    model = nn.LanguageModel(V, D, N, L, T, rng=np.random.default_rng(seed))
    optimizer = optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)

    def step(x, y):
        optimizer.zero_grad()
        loss = mg.cross_entropy(model(x), y)
        loss.backward()
        optimizer.clip(1.0)
        optimizer.step()
        return loss

    return model, step


def theirs(model):
    p = {name: torch.tensor(value.data.copy(), requires_grad=True) for name, value in model.named_parameters()}
    optimizer = torch.optim.AdamW(p.values(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1, fused=True)

    def norm(x, name):
        return F.layer_norm(x, (D,), p[f"{name}.weight"], p[f"{name}.bias"])

    def linear(x, name):
        return x @ p[f"{name}.w"] + p[f"{name}.b"]

    def forward(x):
        h = p["decoder.embed.weight"][x] + p["decoder.place"][:T]
        for i in range(L):
            block = f"decoder.blocks.{i}"
            q, k, v = (
                a.view(B, T, N, D // N).transpose(1, 2)
                for a in linear(norm(h, f"{block}.norm1"), f"{block}.attend.qkv").split(D, dim=2)
            )
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, D)
            h = h + linear(y, f"{block}.attend.out")
            y = F.gelu(linear(norm(h, f"{block}.norm2"), f"{block}.network.0"), approximate="tanh")
            h = h + linear(y, f"{block}.network.2")
        return norm(h, "decoder.norm") @ p["decoder.embed.weight"].T

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(forward(torch.from_numpy(x)).view(-1, V), torch.from_numpy(y).view(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(p.values(), 1.0)
        optimizer.step()
        return loss.item()

    return step


def main():
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    model, eager = ours()
    captured = mg.capture(ours()[1])
    steps = {
        "minigrad eager": lambda x, y: eager(x, y).item(),
        "minigrad captured": lambda x, y: captured(x, y).item(),
        "PyTorch": theirs(model),
    }
    rng = np.random.default_rng(1)
    times: dict[str, list[float]] = {name: [] for name in steps}
    losses: dict[str, list[float]] = {name: [] for name in steps}
    for block in range(12):
        batches = [rng.integers(0, V, (B, T + 1)) for _ in range(8)]
        for name, step in steps.items():
            for x in batches:
                start = time.perf_counter()
                loss = step(np.ascontiguousarray(x[:, :-1]), np.ascontiguousarray(x[:, 1:]))
                if block >= 2:
                    times[name].append(time.perf_counter() - start)
                losses[name].append(loss)
    assert losses["minigrad eager"] == losses["minigrad captured"], "the captured step is not the eager one"
    assert np.allclose(losses["minigrad eager"][:20], losses["PyTorch"][:20], atol=1e-3), "the two models differ"
    blas = [f"{lib['internal_api']} {lib.get('architecture')} {lib['num_threads']} thread(s)" for lib in threadpool_info()]
    print(f"numpy {np.__version__}, torch {torch.__version__}, {torch.get_num_threads()} thread(s); {'; '.join(blas)}")
    medians = {name: statistics.median(t) * 1e3 for name, t in times.items()}
    print(", ".join(f"{name} {value:.1f} ms" for name, value in medians.items()), "a step (medians)")
    for name in list(steps)[:2]:
        ratio = medians["PyTorch"] / medians[name]
        print(f"PyTorch / {name}: {ratio:.2f} ({'faster' if ratio > 1 else 'slower'} than PyTorch)")


if __name__ == "__main__":
    main()
