"""PyTorch's side of algorithms.sh: an MPT with the same weights, trained on the
same samples in fp64 by the definitions of the methods; their names are those of
our settings.

    algorithms.py BIN WORK [NAME ...]
"""
import json
import math
import os
import re
import subprocess
import sys
import traceback

import numpy
import torch
import transformers
from torch.nn import functional

STEPS, SAMPLES, LENGTH, SEED, RATE = 20, 8, 32, 17, 0.05
MPT = dict(vocab_size=320, d_model=64, n_layers=3, n_heads=4, max_seq_len=64)
BIN, WORK = sys.argv[1:3]
TINY = os.path.dirname(__file__) + "/../../jobs/conf/tiny.cfg"
MASK = 0xffffffff


def philox(seed, stream, index):
    """src/base/rng.h: two words of 64 bits for each index."""
    index = numpy.asarray(index, numpy.uint64)
    c = [index & numpy.uint64(MASK), index >> numpy.uint64(32),
         numpy.full_like(index, stream & MASK),
         numpy.full_like(index, stream >> 32)]
    k = [seed & MASK, seed >> 32]
    for _ in range(10):
        p0 = c[0] * numpy.uint64(0xd2511f53)
        p1 = c[2] * numpy.uint64(0xcd9e8d57)
        c = [(p1 >> numpy.uint64(32)) ^ c[1] ^ numpy.uint64(k[0]),
             p1 & numpy.uint64(MASK),
             (p0 >> numpy.uint64(32)) ^ c[3] ^ numpy.uint64(k[1]),
             p0 & numpy.uint64(MASK)]
        k = [(k[0] + 0x9e3779b9) & MASK, (k[1] + 0xbb67ae85) & MASK]
    return (c[0] | c[1] << numpy.uint64(32), c[2] | c[3] << numpy.uint64(32))


def stream(name):
    value = 0xcbf29ce484222325
    for byte in name.encode():
        value = (value ^ byte) * 0x100000001b3 & 0xffffffffffffffff
    return value


def uniform(seed, name, index):
    first, _ = philox(seed, stream(name), index)
    return (first >> numpy.uint64(11)).astype(numpy.float64) * 2.0 ** -53


def normal(seed, name, count):
    a, b = philox(seed, stream(name), numpy.arange(count))
    shift = numpy.uint64(11)
    radius = ((a >> shift) + numpy.uint64(1)).astype(numpy.float64) * 2.0 ** -53
    turn = (b >> shift).astype(numpy.float64) * 2.0 ** -53
    return numpy.sqrt(-2 * numpy.log(radius)) * numpy.cos(2 * math.pi * turn)


class Run:
    """SGD with momentum, which has no small divisors, on one batch for ever."""

    def __init__(self, model, ids):
        self.model, self.ids, self.step = model, ids, 0
        self.p = dict(model.named_parameters())
        self.m = {n: torch.zeros_like(p) for n, p in self.p.items()}
        self.held, self.smoothing, self.z = set(), 0.0, 0.0
        self.length, self.rows = LENGTH, list(range(SAMPLES))

    def loss(self, smoothing, z, length=LENGTH, rows=slice(None)):
        logits = self.model(input_ids=self.ids[rows, :length]).logits
        labels = self.ids[rows, 1:length + 1]
        logits = logits[:, :labels.shape[1]].flatten(0, 1)
        loss = functional.cross_entropy(logits, labels.flatten(),
                                        label_smoothing=smoothing)
        return loss + z * (torch.logsumexp(logits, 1) ** 2).mean()

    def gradient(self):
        self.model.zero_grad()
        loss = self.loss(self.smoothing, self.z, self.length, self.rows)
        loss.backward()
        return loss.item()

    def norm(self):
        return math.sqrt(sum(float((p.grad ** 2).sum())
                             for p in self.p.values()))

    def evaluate(self):
        with torch.no_grad():
            return self.loss(0.0, 0.0).item()

    def update(self):
        with torch.no_grad():
            for n, p in self.p.items():
                if n in self.held:
                    continue
                self.m[n] = 0.9 * self.m[n] + p.grad
                p -= RATE * self.m[n]


class Method:
    """Does nothing; what a method changes it overrides."""
    clip = 1.0  # train.clip_norm, unless the method clips

    def __init__(self, run):
        self.run = run

    def before(self):
        pass

    def again(self):
        return False

    def change(self):
        pass

    def after(self):
        pass

    def evaluated(self):
        return None


class Norm(Method):
    clip = 0.1


class Value(Method):
    clip = None

    def change(self):
        torch.nn.utils.clip_grad_value_(self.run.model.parameters(), 2e-3)


class Adaptive(Method):
    clip = None

    def change(self):
        for p in self.run.p.values():
            dim = tuple(range(1, p.dim())) if p.dim() > 1 else None
            norm = torch.linalg.vector_norm(p.grad, dim=dim, keepdim=True)
            most = torch.linalg.vector_norm(
                p.detach(), dim=dim, keepdim=True).clamp(min=1e-3) * 0.01
            p.grad *= torch.where(norm > most, most / norm,
                                  torch.ones_like(norm))


class Ema(Method):
    """Composer's: begins with the weights at `start`."""
    keep, interval, start = 2.0 ** (-2 / 5), 2, 4
    average = None

    def after(self):
        now = {n: p.detach().clone() for n, p in self.run.p.items()}
        if self.average is None:
            if self.run.step >= self.start:
                self.average = now
        elif self.run.step % self.interval == 0:
            self.average = {n: self.keep * a + (1 - self.keep) * now[n]
                            for n, a in self.average.items()}

    def evaluated(self):
        return self.average


class Smooth(Ema):
    keep, interval, start = 0.75, 1, 1


class Swa(Method):
    start, end, interval = 6, 15, 3
    average, count = None, 0

    def after(self):
        step = self.run.step
        if self.count < 0 or step < self.start:
            return
        if self.count == 0 or step % self.interval == 0:
            now = {n: p.detach().clone() for n, p in self.run.p.items()}
            self.average = now if self.count == 0 else {
                n: (self.count * a + now[n]) / (self.count + 1)
                for n, a in self.average.items()}
            self.count += 1
        if step >= self.end:
            with torch.no_grad():
                for n, p in self.run.p.items():
                    p.copy_(self.average[n])
            self.count, self.average = -1, None

    def evaluated(self):
        return self.average


class LabelSmoothing(Method):
    def before(self):
        self.run.smoothing = 0.2


class ZLoss(Method):
    def before(self):
        self.run.z = 0.01


class Freezing(Method):
    def before(self):
        if self.run.step >= 8:
            self.run.held = {n for n in self.run.p if re.match(
                r"transformer\.(wte\.|blocks\.0\.)", n)}


class Noise(Method):
    def change(self):
        deviation = math.sqrt(1e-6 / (1 + self.run.step) ** 0.55)
        for n, p in self.run.p.items():
            drawn = normal(SEED, f"gradient_noise/{self.run.step}/{n}",
                           p.numel())
            p.grad += deviation * torch.from_numpy(drawn).reshape(p.shape)


class Warmup(Method):
    def before(self):
        every = 12 // ((28 - 4) // 8)
        length = 8 * (self.run.step // every)
        self.run.length = min(max(length, 4), 28)


class Depth(Method):
    def __init__(self, run):
        super().__init__(run)
        self.factor = [None] * MPT["n_layers"]
        for i, block in enumerate(run.model.transformer.blocks):
            block.attn.register_forward_hook(
                lambda m, a, out, i=i: (self.drop(i, out[0]), *out[1:]))
            # the residual is added within
            block.ffn.register_forward_hook(
                lambda m, a, out, i=i: a[1] + self.drop(i, out - a[1]))

    def drop(self, i, x):
        return x if self.factor[i] is None else x * self.factor[i]

    def before(self):
        numbers = self.run.step * SAMPLES + numpy.arange(SAMPLES)
        for i in range(MPT["n_layers"]):
            p = 0.5 * (i + 1) / MPT["n_layers"]
            drawn = uniform(SEED, f"depth/{i}", numbers)
            self.factor[i] = torch.from_numpy(
                numpy.where(drawn < p, 0.0, 1 / (1 - p))).reshape(-1, 1, 1)

    def after(self):
        self.factor = [None] * MPT["n_layers"]


class Embedding(Method):
    """LLM Foundry's embedding_fraction, whose values stay."""

    def __init__(self, run):
        super().__init__(run)
        run.model.transformer.wte.register_forward_hook(
            lambda m, a, out: 0.25 * out + 0.75 * out.detach())


class Sam(Method):
    def again(self):
        if (self.run.step + 1) % 2 != 0:
            return False
        self.kept = {n: p.detach().clone() for n, p in self.run.p.items()}
        climb = 0.5 / (self.run.norm() + 1e-12)
        with torch.no_grad():
            for p in self.run.p.values():
                p += climb * p.grad
        self.run.gradient()
        with torch.no_grad():
            for n, p in self.run.p.items():
                p.copy_(self.kept[n])
        return True


class Selective(Method):
    """Composer's probabilities, by numbers that both sides can draw."""
    start, end, keep, interrupt = 4, 16, 0.5, 3

    def before(self):
        run = self.run
        run.rows = list(range(SAMPLES))
        if not self.start <= run.step < self.end or \
                (run.step + 1) % self.interrupt == 0:
            return
        with torch.no_grad():
            losses = [run.loss(0.0, 0.0, rows=[i]).item() for i in run.rows]
        order = numpy.argsort(losses, kind="stable")
        weights = (numpy.arange(0.5, SAMPLES) / SAMPLES) ** (1 / self.keep - 1)
        drawn = uniform(SEED, f"selective_backprop/{run.step}",
                        numpy.arange(SAMPLES))
        times = numpy.argsort(-numpy.log(1 - drawn) / weights)
        run.rows = sorted(order[times[:int(self.keep * SAMPLES)]].tolist())


CASES = {
    "none": (Method, "()"),
    "clipping by norm": (Norm, '({name="gradient_clipping";threshold=0.1;})'),
    "clipping by value": (Value, '({name="gradient_clipping";type="value";'
                                 'threshold=2e-3;})'),
    "clipping, adaptive": (Adaptive, '({name="gradient_clipping";'
                                     'type="adaptive";threshold=0.01;})'),
    "ema": (Ema, '({name="ema";half_life="5ba";update_interval="2ba";'
                 'start="0.2dur";})'),
    "ema by smoothing": (Smooth, '({name="ema";smoothing=0.75;})'),
    "swa": (Swa, '({name="swa";start="0.3dur";end="15ba";'
                 'update_interval="3ba";})'),
    "label smoothing": (LabelSmoothing,
                        '({name="label_smoothing";smoothing=0.2;})'),
    "z-loss": (ZLoss, '({name="z_loss";weight=0.01;})'),
    "layer freezing": (Freezing, '({name="layer_freezing";start="8ba";match='
                       '"transformer.wte.* transformer.blocks.0.*";})'),
    "gradient noise": (Noise, '({name="gradient_noise";eta=1e-6;})'),
    "sequence length": (Warmup, '({name="seq_length_warmup";duration="12ba";'
                        'min_seq_len=4;max_seq_len=28;step_size=8;})'),
    "stochastic depth": (Depth,
                         '({name="stochastic_depth";drop_rate=0.5;})'),
    "selective backprop": (Selective, '({name="selective_backprop";'
                           'start="0.2dur";end="16ba";interrupt=3;})'),
    "embedding scaling": (Embedding, '({name="embedding_scaling";'
                          'gradient=0.25;})'),
    "sam": (Sam, '({name="sam";rho=0.5;interval=2;})'),
}


def load(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float64, attn_implementation="eager").eval()


def command(*args):
    done = subprocess.run([f"{BIN}/{args[0]}", *args[1:]], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == 0, f"{args[0]}: {done.stderr[-600:]}"
    return done.stdout


def prepare():
    torch.manual_seed(3)
    model = transformers.MptForCausalLM(transformers.MptConfig(**MPT))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    model.save_pretrained(f"{WORK}/model")
    # samples that are alike, whatever their order, and such that differ
    same = bytes(97 + i * 7 % 23 for i in range(LENGTH))
    generator = numpy.random.default_rng(11)
    others = bytes(generator.integers(97, 122, SAMPLES * LENGTH).tolist())
    tokens = {}
    for name, text in ("same", same * SAMPLES), ("others", others):
        with open(f"{WORK}/{name}.txt", "wb") as file:
            file.write(text)
        command("tessera-data", "tokenize", "--seq-len", str(LENGTH),
                "--no-eos", "--out", f"{WORK}/{name}", f"{WORK}/{name}.txt")
        rows = command("tessera-data", "head", "--tokens", "--count", str(SAMPLES),
                       f"{WORK}/{name}").split()
        tokens[name] = torch.tensor([int(n) for n in rows])
    return tokens


def train(run, algorithms, data, clip):
    command("tessera-train", TINY, f"run.dir={run}", f"data.train={WORK}/{data}",
            f"data.eval={WORK}/{data}", f"eval.interval={STEPS // 2}ba",
            "eval.samples=0", "scheduler.warmup=0ba",
            f"checkpoint.interval={STEPS}ba",
            f"model.weights={WORK}/model", "model.preset=weights",
            "model.attn_uses_sequence_id=false",
            f"train.max_duration={STEPS}ba", f"train.global_batch={SAMPLES}",
            f"train.seed={SEED}", f"data.seq_len={LENGTH}",
            *([] if clip is None else [f"train.clip_norm={clip}"]),
            "optimizer.name=sgd", "optimizer.beta1=0.9",
            f"optimizer.lr={RATE}", "scheduler.name=constant",
            "hardware.threads=1", "log.level=warn",
            f"algorithms={algorithms}")


def lines(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def off(name, got, want):
    error = abs(got - want).max() / max(abs(want).max(), 1e-30)
    assert error <= 1e-5, f"{name}: off by {error:.2e}"
    return error


def compare(name, tokens):
    kind, algorithms = CASES[name]
    data = "same" if kind is Depth else "others"
    out = f"{WORK}/run"
    subprocess.run(["rm", "-rf", out], check=True)
    train(out, algorithms, data, kind.clip if kind is Method else None)
    run = Run(load(f"{WORK}/model"), tokens[data].reshape(SAMPLES, LENGTH))
    method = kind(run)
    losses, evals = [], []
    for run.step in range(STEPS):
        method.before()
        losses.append(run.gradient())
        method.again()
        norm = run.norm()
        if kind.clip is not None and norm > kind.clip:
            for p in run.p.values():
                p.grad *= kind.clip / norm
        method.change()
        run.update()
        run.step += 1
        method.after()
        if run.step % (STEPS // 2) == 0:
            kept = {n: p.detach().clone() for n, p in run.p.items()}
            other = method.evaluated()
            with torch.no_grad():
                for n, p in run.p.items():
                    p.copy_((other or kept)[n])
            evals.append(run.evaluate())
            with torch.no_grad():
                for n, p in run.p.items():
                    p.copy_(kept[n])
    ours = numpy.array([r["loss"] for r in lines(f"{out}/metrics.jsonl")])
    theirs = numpy.array(losses)
    worst = off("losses", ours, theirs)
    mine = numpy.array([r["eval_loss"] for r in lines(f"{out}/eval.jsonl")])
    worst = max(worst, off("evaluations", mine, numpy.array(evals)))
    worst = max(worst, weights(out, run.p))
    if method.evaluated() is not None:
        which = algorithms.split('"')[1]
        worst = max(worst, weights(f"{out}#{which}", method.evaluated()))
    return f"{losses[0]:.4f} to {losses[-1]:.4f}, off by {worst:.1e}"


def weights(run, want):
    out = f"{WORK}/run-hf"
    subprocess.run(["rm", "-rf", out], check=True)
    command("tessera-hf", "export", run, "--out", out)
    got = dict(load(out).named_parameters())
    assert set(got) == set(want)
    return max(off(n, got[n].detach().numpy(), want[n].detach().numpy())
               for n in want)


def main():
    torch.set_num_threads(1)
    failed = 0
    tokens = prepare()
    torch.set_default_dtype(torch.float64)  # of masks, too
    chosen = sys.argv[3:] or list(CASES)
    for number, name in enumerate(chosen, 1):
        try:
            print(f"ok {number} - {name}: {compare(name, tokens)}", flush=True)
        except Exception:
            failed += 1
            print(f"not ok {number} - {name}")
            for line in traceback.format_exc().splitlines()[-4:]:
                print(f"# {line[:600]}", flush=True)
    print(f"1..{len(chosen)}")
    sys.exit(failed > 0)


main()
