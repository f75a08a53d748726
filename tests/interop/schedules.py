"""Learning-rate schedules against the published formulas in plain Python, where
PyTorch has the same schedule against that, and against the code of Composer and
LLM Foundry. The first argument is the program that computes ours; "torch" and
"composer" behind it: these are there."""
import math
import random
import subprocess
import sys

NUMBERS = ("warmup t_max alpha_final alpha_initial alpha_decay power gamma "
           "period t_mult t_scale cooldown cooldown_shape").split()


def draw(rng, name):
    s = dict(name=name, warmup=rng.choice([0, rng.randrange(1, 200)]))
    s["cooldown"] = rng.randrange(0, 300)
    s["t_max"] = s["warmup"] + s["cooldown"] + rng.randrange(1, 2000)
    s["alpha_final"] = rng.random() * 0.5
    s["alpha_initial"] = rng.random()
    s["alpha_decay"] = s["alpha_final"] + rng.random() * 0.5
    s["power"] = rng.random() * 4
    s["gamma"] = rng.random()
    s["period"] = rng.randrange(1, 300)
    s["t_mult"] = rng.choice([1, 2, 1 + rng.random()])
    s["t_scale"] = rng.randrange(1, 200)
    s["cooldown_shape"] = rng.choice(["linear", "sqrt", "cosine"])
    s["milestones"] = [rng.randrange(0, 2500) for _ in range(rng.randrange(1, 9))]
    return s


def anneal(r, final):
    return final + (1 - final) * (1 + math.cos(math.pi * r)) / 2


def peer(s, t):
    """The multiplier by the formulas of Composer, LLM Foundry and llm.c."""
    W, T, af = s["warmup"], s["t_max"], s["alpha_final"]
    if t < W:  # linear rises to where it begins to fall
        return t / W * (s["alpha_initial"] if s["name"] == "linear" else 1)
    tau = min(1, (t - W) / (T - W)) if T > W else 0
    end = T - s["cooldown"]
    name = s["name"]
    if name == "cosine":
        return anneal(tau, af)
    if name == "linear":
        return s["alpha_initial"] + tau * (af - s["alpha_initial"])
    if name == "constant":
        return 1.0
    if name == "polynomial":
        return af + (1 - af) * (1 - tau) ** s["power"]
    if name == "step":
        return s["gamma"] ** ((t - W) // s["period"])
    if name == "exponential":
        return s["gamma"] ** ((t - W) / s["period"])
    if name == "multistep":
        return s["gamma"] ** sum(t >= m for m in s["milestones"])
    if name == "cosine_restarts":
        length = s["period"]
        stop = length
        while stop <= t - W:
            length = int(s["t_mult"] * length)
            stop += length
        return anneal((t - W - (stop - length)) / length, af)
    if name == "inverse_sqrt":
        def decayed(t):
            return s["alpha_decay"] + (1 - s["alpha_decay"]) / math.sqrt(
                (t - W + s["t_scale"]) / s["t_scale"])
        if t < end:
            return decayed(t)
        r = min(1, (t - end) / s["cooldown"]) if s["cooldown"] else 0
        return decayed(end) + r * (af - decayed(end))
    assert name == "wsd"
    if t < end or not s["cooldown"]:
        return 1.0
    r = min(1, (t - end) / s["cooldown"])
    return {"linear": af + (1 - af) * (1 - r),
            "sqrt": af + (1 - af) * (1 - math.sqrt(r)),
            "cosine": anneal(r, af)}[s["cooldown_shape"]]


def ours(program, questions):
    text = "".join(
        "%s %s %d %s %d\n" % (
            s["name"], " ".join(str(s[n]) for n in NUMBERS),
            len(s["milestones"]), " ".join(map(str, s["milestones"])), t)
        for s, t in questions)
    answer = subprocess.run([program], input=text, check=True, text=True,
                            stdout=subprocess.PIPE).stdout
    return [float(word) for word in answer.split()]


def compare(program, questions, wants):
    got = ours(program, questions)
    assert len(got) == len(wants), (len(got), len(wants))
    worst = max(range(len(got)), key=lambda i: abs(got[i] - wants[i]))
    return abs(got[worst] - wants[worst]), questions[worst], got[worst], wants[worst]


def torch_cases():
    import torch
    from torch.optim import lr_scheduler as ls
    base = draw(random.Random(5), "constant")
    base.update(warmup=0, alpha_final=0.0, milestones=[20, 70])

    def case(name, make, **more):
        s = dict(base, name=name, **more)
        p = torch.nn.Parameter(torch.zeros(1))
        optimizer = torch.optim.SGD([p], lr=1.0)
        schedule = make(optimizer)
        values = []
        for _ in range(150):
            values.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            schedule.step()
        return s, values
    return [
        case("step", lambda o: ls.StepLR(o, 30, 0.3), period=30, gamma=0.3),
        case("exponential", lambda o: ls.ExponentialLR(o, 0.97), period=1, gamma=0.97),
        case("multistep", lambda o: ls.MultiStepLR(o, [20, 70], 0.2), gamma=0.2),
        case("cosine", lambda o: ls.CosineAnnealingLR(o, 150, 0.1),
             t_max=150, alpha_final=0.1),
        case("cosine_restarts", lambda o: ls.CosineAnnealingWarmRestarts(o, 20, 2, 0.05),
             period=20, t_mult=2, alpha_final=0.05),
        case("linear", lambda o: ls.LinearLR(o, 0.25, 0.75, 100),
             alpha_initial=0.25, alpha_final=0.75, t_max=100),
        case("polynomial", lambda o: ls.PolynomialLR(o, 100, 1.5), power=1.5, t_max=100),
    ]


# of which Composer has no version with a warm-up
WITHOUT_WARMUP = ("step", "exponential", "cosine_restarts")
COMPOSERS = ("cosine linear constant polynomial step exponential multistep "
             "cosine_restarts inverse_sqrt").split()


def composers(s, t):
    """The multiplier by Composer's and LLM Foundry's own code."""
    import types
    from composer.core import Time, Timestamp
    from composer.optim import scheduler as c

    def ba(steps):
        return Time(steps, "ba")
    state = types.SimpleNamespace(timestamp=Timestamp(batch=t),
                                  max_duration=ba(s["t_max"]),
                                  dataloader_len=None)
    W, T, af = ba(s["warmup"]), ba(s["t_max"]), s["alpha_final"]
    name = s["name"]
    if name == "cosine":
        made = c.CosineAnnealingWithWarmupScheduler(W, t_max=T, alpha_f=af)
    elif name == "linear":
        made = c.LinearWithWarmupScheduler(
            W, alpha_i=s["alpha_initial"], alpha_f=af, t_max=T)
    elif name == "constant":
        made = c.ConstantWithWarmupScheduler(W, t_max=T)
    elif name == "polynomial":
        made = c.PolynomialWithWarmupScheduler(W, s["power"], T, af)
    elif name == "step":
        made = c.StepScheduler(ba(s["period"]), s["gamma"])
    elif name == "exponential":
        made = c.ExponentialScheduler(s["gamma"], ba(s["period"]))
    elif name == "multistep":
        made = c.MultiStepWithWarmupScheduler(
            W, [ba(m) for m in s["milestones"]], s["gamma"])
    elif name == "cosine_restarts":
        made = c.CosineAnnealingWarmRestartsScheduler(
            ba(s["period"]), s["t_mult"], af)
    else:
        from llmfoundry.optim.scheduler import (
            InverseSquareRootWithWarmupScheduler)
        made = InverseSquareRootWithWarmupScheduler(
            W, ba(s["t_scale"]), ba(s["cooldown"]), T, s["alpha_decay"], af)
    return made(state)


def main():
    program = sys.argv[1]
    names = ("cosine linear constant polynomial step exponential multistep "
             "cosine_restarts inverse_sqrt wsd").split()
    seed = random.randrange(1 << 30)
    print("# seed %d" % seed)
    rng = random.Random(seed)
    count = failed = 0

    def point(good, text):
        nonlocal count, failed
        count += 1
        failed += not good
        print("%sok %d - %s" % ("" if good else "not ", count, text))

    def drawn(name, count, warms=True):
        for _ in range(count):
            s = draw(rng, name)
            if not warms:
                s["warmup"] = 0
            edges = [s["warmup"], s["t_max"], s["t_max"] - s["cooldown"]]
            yield s, rng.choice([rng.randrange(0, 3000), max(
                0, rng.choice(edges) + rng.randrange(-1, 2))])

    def judge(what, questions, wants, limit):
        worst = compare(program, questions, wants)
        point(worst[0] <= limit, "%s: within %.1e" % (what, worst[0]))
        if worst[0] > limit:
            print("# %r: ours %r, theirs %r" % worst[1:])
    for name in names:
        questions = list(drawn(name, 500))
        judge("%s at 500 random points" % name, questions,
              [peer(*q) for q in questions], 1e-12)
    if "composer" in sys.argv[2:]:
        import warnings
        warnings.simplefilter("ignore")  # of warm-ups of no length
        for name in COMPOSERS:
            questions = list(drawn(name, 300, name not in WITHOUT_WARMUP))
            judge("%s as Composer's code has it, at 300 random points" % name,
                  questions, [composers(*q) for q in questions], 1e-12)
    else:
        count += 1
        print("ok %d - Composer's schedulers # SKIP no Composer" % count)
    if "torch" in sys.argv[2:]:
        for s, values in torch_cases():
            judge("%s as PyTorch's over 150 steps" % s["name"],
                  [(s, t) for t in range(len(values))], values, 1e-9)
    else:
        count += 1
        print("ok %d - PyTorch's schedulers # SKIP no PyTorch" % count)
    print("1..%d" % count)
    return failed > 0


sys.exit(main())
