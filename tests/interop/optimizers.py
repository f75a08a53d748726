"""Optimizers against independent ones on random gradients, in fp64: torch.optim
and transformers where they have them, Composer's and LLM Foundry's formulas in
NumPy. The first argument is the program that computes ours. A difference is
relative to the largest change that a step's weights have gone through."""
import random
import subprocess
import sys
from unittest import mock

import numpy as np
import torch
from transformers import Adafactor

TENSORS = [("v", 37, 0, 0), ("m", 24, 40, 0), ("m", 48, 16, 0), ("e", 50, 16, 0),
           ("q", 40, 24, 24), ("r", 3, 16, 0), ("u", 36, 16, 0), ("d", 36, 16, 0)]
DENSE = TENSORS[:4]


def share(step, steps):
    return 1.0 - 0.5 * step / steps


def shape(tensor):
    return tensor[1:3] if tensor[2] else tensor[1:2]


def ours(program, name, fields, tensors, weights, gradients):
    steps = len(gradients)
    data = np.int32(len(tensors)).tobytes()
    for t in tensors:
        data += np.array([ord(t[0]), *t[1:]], dtype=np.int32).tobytes()
    data += b"".join(w.tobytes() for w in weights)
    data += b"".join(g.tobytes() for step in gradients for g in step)
    words = ["%s=%r" % (k, int(v) if isinstance(v, bool) else v)
             for k, v in dict(fields, steps=steps).items()]
    out = subprocess.run([program, name, *words], input=data, check=True,
                         stdout=subprocess.PIPE).stdout
    flat, at, result = np.frombuffer(out, dtype=np.float32), 0, []
    for _ in range(steps):
        row = []
        for w in weights:
            row.append(flat[at:at + w.size].reshape(w.shape))
            at += w.size
        result.append(row)
    assert at == flat.size
    return result


def by_torch(make, fields, tensors, weights, gradients, decoupled=False):
    """make(parts) -> optimizers; parts(i, p) cuts tensors into matrices."""
    params = [torch.nn.Parameter(torch.tensor(w.astype(np.float64))) for w in weights]
    optimizers = make(params)
    result = []
    for step, gs in enumerate(gradients):
        part = share(step, len(gradients))
        for p, g in zip(params, gs):
            p.grad = torch.tensor(g.astype(np.float64)) * fields["grad_scale"]
        if decoupled:
            with torch.no_grad():
                for p in params:
                    p.mul_(1 - part * fields["weight_decay"])
        for o in optimizers:
            for group in o.param_groups:
                group["lr"] = fields["lr"] * part
            o.step()
        result.append([p.detach().numpy().copy() for p in params])
    return result


class Detector:
    def __init__(self, threshold):
        self.threshold, self.recent, self.old = threshold, [], []

    def usual(self):
        return sum(self.old) / len(self.old) if self.old else None

    def insert(self, norm):
        if len(self.recent) >= 500:
            self.old = (self.old + [self.recent.pop(0)])[-500:]
        self.recent.append(norm)
        return bool(self.old) and norm > self.threshold * self.usual()


def by_numpy(name, f, tensors, weights, gradients):
    steps, result, outliers = len(gradients), [], 0
    ps = [w.astype(np.float64) for w in weights]
    ms, vs = [np.zeros_like(p) for p in ps], [np.zeros_like(p) for p in ps]
    detectors = [Detector(f.get("outlier_threshold", 1)) for _ in ps]
    times = [[] for _ in ps]
    b1, b2 = f.get("beta1"), f.get("beta2")
    for step, gs in enumerate(gradients):
        for i, g in enumerate(gs):
            part = share(step, steps)
            lr, wd, m = f["lr"] * part, f["weight_decay"] * part, ms[i]
            g = g.astype(np.float64) * f["grad_scale"]
            if name == "adamw":
                ps[i] *= 1 - wd
                ms[i] = b1 * m + (1 - b1) * g
                vs[i] = b2 * vs[i] + (1 - b2) * g * g
                denom = np.sqrt(vs[i]) / np.sqrt(1 - b2 ** (step + 1)) + f["eps"]
                ps[i] -= lr / (1 - b1 ** (step + 1)) * ms[i] / denom
                continue
            if name == "adalr_lion":
                norm = np.linalg.norm(b2 * m + (1 - b2) * g)
                if detectors[i].insert(norm):
                    times[i].append(step)
                    outliers += 1
                times[i] = [t for t in times[i] if step - t <= f["outlier_timeout"]]
                scale = max(f["outlier_floor"], f["outlier_penalty"] ** len(times[i]))
                lr, wd = lr * scale, wd * scale
            if name == "clip_lion":
                norm = np.linalg.norm(g)
                if detectors[i].insert(norm):
                    outliers += 1
                    g = g / norm * detectors[i].usual() * f["outlier_threshold"]
            ps[i] *= 1 - wd
            ps[i] -= lr * np.sign(b1 * m + (1 - b1) * g)
            ms[i] = b2 * m + (1 - b2) * g
        result.append([p.copy() for p in ps])
    if name in ("adalr_lion", "clip_lion"):
        print("# %s: %d outliers" % (name, outliers))
        assert outliers > 10
    return result


def matrices(tensor, array):
    """The layers' weights that a tensor is made of, as views, up to transposing."""
    kind, rows, _, more = tensor
    if kind == "q":
        kv = (rows - more) // 2
        return [array[:more], array[more:more + kv], array[more + kv:]]
    if kind in "ud":
        parts = [array[i:i + rows // 3] for i in range(0, rows, rows // 3)]
        return [p.T for p in parts] if kind == "d" else parts
    return [array]


def by_muon(f, tensors, weights, gradients):
    cut = [[torch.nn.Parameter(torch.tensor(m.astype(np.float64)).contiguous())
            for m in matrices(t, w)] for t, w in zip(tensors, weights)]
    hidden = [t[0] in "mqud" for t in tensors]
    muon = torch.optim.Muon(
        [p for ps, h in zip(cut, hidden) if h for p in ps], lr=f["lr"],
        weight_decay=f["weight_decay"], momentum=f["momentum"], ns_steps=f["ns_steps"],
        adjust_lr_fn="match_rms_adamw" if f["match_rms"] else "original")
    adamw = torch.optim.AdamW(
        [p for ps, h in zip(cut, hidden) if not h for p in ps], lr=f["lr"],
        betas=(f["beta1"], f["beta2"]), eps=f["eps"], weight_decay=f["weight_decay"])
    result = []
    for step, gs in enumerate(gradients):
        for t, ps, g in zip(tensors, cut, gs):
            for p, m in zip(ps, matrices(t, g)):
                p.grad = torch.tensor(m.astype(np.float64)).contiguous() * f["grad_scale"]
        for o in (muon, adamw):
            for group in o.param_groups:
                group["lr"] = f["lr"] * share(step, len(gradients))
        # its iterations are in bf16, which would hide all smaller differences
        with mock.patch.object(torch, "bfloat16", torch.float64):
            muon.step()
        adamw.step()
        row = []
        for t, ps, w in zip(tensors, cut, weights):
            whole = np.empty(w.shape, dtype=np.float64)
            for view, p in zip(matrices(t, whole), ps):
                view[...] = p.detach().numpy()
            row.append(whole)
        result.append(row)
    return result


def by_adafactor(f, tensors, weights, gradients):
    """Experts are a tensor of matrices there; queries, keys and values tensors."""
    def shaped(t, w):
        if t[0] == "q":
            return matrices(t, w)
        return [w.reshape(3, -1, w.shape[1]) if t[0] in "ud" else w]
    cut = [shaped(t, w) for t, w in zip(tensors, weights)]
    result = by_torch(
        lambda ps: [Adafactor(ps, lr=f["lr"], relative_step=False,
                              scale_parameter=f["scale_parameter"],
                              clip_threshold=f["clip_threshold"],
                              decay_rate=-f["decay_rate"],
                              weight_decay=f["weight_decay"])],
        f, tensors, [p for ps in cut for p in ps],
        [[p for t, g in zip(tensors, gs) for p in shaped(t, g)] for gs in gradients])
    rows = []
    for row in result:
        parts = iter(row)
        rows.append([np.concatenate([next(parts) for _ in ps]).reshape(w.shape)
                     if len(ps) > 1 else next(parts).reshape(w.shape)
                     for ps, w in zip(cut, weights)])
    return rows


def draw(rng, tensors, steps, outliers=False):
    weights = [rng.standard_normal(shape(t)).astype(np.float32) for t in tensors]
    gradients = []
    for step in range(steps):
        size = 40.0 if outliers and step > 500 and rng.random() < 0.05 else 1.0
        gradients.append([(size * rng.standard_normal(w.shape)).astype(np.float32)
                          for w in weights])
    return weights, gradients


def main():
    program = sys.argv[1]
    seed = random.randrange(1 << 30)
    print("# seed %d" % seed)
    rng = np.random.default_rng(seed)
    f = dict(lr=0.02, weight_decay=0.01, grad_scale=0.25, beta1=0.9, beta2=0.95,
             eps=1e-8, dampening=0.0, nesterov=False, momentum=0.95, ns_steps=5,
             match_rms=True, clip_threshold=1.0, decay_rate=0.8, scale_parameter=False,
             outlier_threshold=5.0, outlier_penalty=0.707, outlier_floor=1e-4,
             outlier_timeout=100)
    torch_sgd = lambda f: lambda ps: [torch.optim.SGD(
        ps, lr=f["lr"], momentum=f["beta1"], dampening=f["dampening"],
        nesterov=f["nesterov"])]
    cases = [
        ("adamw", {}, DENSE, None, "Composer's formula"),
        ("torch_adamw", {}, DENSE, lambda f, *a: by_torch(
            lambda ps: [torch.optim.AdamW(ps, betas=(f["beta1"], f["beta2"]), eps=f["eps"],
                                          weight_decay=f["weight_decay"])], f, *a),
         "torch.optim.AdamW"),
        ("sgd", {}, DENSE, lambda f, *a: by_torch(torch_sgd(f), f, *a, True),
         "torch.optim.SGD"),
        ("sgd", dict(dampening=0.3), DENSE,
         lambda f, *a: by_torch(torch_sgd(f), f, *a, True), "torch.optim.SGD, dampening"),
        ("sgd", dict(beta1=0.0, dampening=0.3), DENSE,
         lambda f, *a: by_torch(torch_sgd(f), f, *a, True),
         "torch.optim.SGD, dampening without momentum"),
        ("sgd", dict(nesterov=True), DENSE,
         lambda f, *a: by_torch(torch_sgd(f), f, *a, True), "torch.optim.SGD, Nesterov"),
        ("lion", dict(lr=1e-3, beta2=0.99), DENSE, None, "Composer's formula"),
        ("adalr_lion", dict(lr=1e-3, beta2=0.5, outlier_timeout=30), DENSE, None,
         "LLM Foundry's formula"),
        ("clip_lion", dict(lr=1e-3, beta2=0.99), DENSE, None, "LLM Foundry's formula"),
        ("adafactor", {}, TENSORS, by_adafactor, "transformers.Adafactor"),
        ("adafactor", dict(scale_parameter=True, clip_threshold=0.5, decay_rate=0.6),
         TENSORS, by_adafactor, "transformers.Adafactor, by size"),
        ("muon", {}, TENSORS, by_muon, "torch.optim.Muon, match_rms_adamw"),
        ("muon", dict(match_rms=False, ns_steps=3), TENSORS, by_muon,
         "torch.optim.Muon, original"),
    ]
    failed = 0
    for number, (name, more, tensors, peer, what) in enumerate(cases, 1):
        fields = dict(f, **more)
        watches = name in ("adalr_lion", "clip_lion")
        weights, gradients = draw(rng, tensors, 1300 if watches else 20, watches)
        got = ours(program, name, fields, tensors, weights, gradients)
        arguments = (fields, tensors, weights, gradients)
        want = peer(*arguments) if peer else by_numpy(name, *arguments)
        worst = 0.0
        for a, b in zip(got, want):
            for x, y in zip(a, b):
                # where a sum is 0 but for rounding, its sign may be either
                error = np.sort(np.abs(x - y).ravel())
                error = error[:-2] if "lion" in name else error
                worst = max(worst, error[-1] / np.abs(y).max())
        failed += not worst <= 1e-5
        print("%sok %d - %s as %s, %d steps: within %.1e"
              % ("" if worst <= 1e-5 else "not ", number, name, what, len(gradients), worst))
    print("1..%d" % len(cases))
    return failed > 0


sys.exit(main())
