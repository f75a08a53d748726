"""Learning-rate schedules against the published formulas in plain Python, and
where PyTorch has the same schedule against that. The first argument is the
program that computes ours; "torch" as second: PyTorch is there."""
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
    if t < W:
        return t / W
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
    for name in names:
        questions = []
        for _ in range(500):
            s = draw(rng, name)
            edges = [s["warmup"], s["t_max"], s["t_max"] - s["cooldown"]]
            at = rng.choice([rng.randrange(0, 3000), max(0, rng.choice(edges) + rng.randrange(-1, 2))])
            questions.append((s, at))
        worst = compare(program, questions, [peer(*q) for q in questions])
        point(worst[0] <= 1e-12, "%s at 500 random points: within %.1e" % (name, worst[0]))
        if worst[0] > 1e-12:
            print("# %r: ours %r, theirs %r" % worst[1:])
    if sys.argv[2:] == ["torch"]:
        for s, values in torch_cases():
            worst = compare(program, [(s, t) for t in range(len(values))], values)
            point(worst[0] <= 1e-9, "%s as PyTorch's over 150 steps: within %.1e"
                  % (s["name"], worst[0]))
    else:
        count += 1
        print("ok %d - PyTorch's schedulers # SKIP no PyTorch" % count)
    print("1..%d" % count)
    return failed > 0


sys.exit(main())
