"""Makes of a run directory an offline run of Weights & Biases, which `wandb sync` sends:

    python wandb_offline.py RUN [PROJECT]        # then: wandb sync ./wandb/offline-run-*

Needs their package (pip install wandb), where this is run and nowhere else. Each step is
there once, also in a run that has done some again; the run has the same id each time.
Settings that are lists, and hooks, stay here."""
import hashlib
import json
import os
import re
import sys

import wandb


def lines(path):
    """Complete records of a file to which somebody may be writing."""
    try:
        with open(path, encoding="utf-8") as file:
            return [json.loads(line) for line in file if line.endswith("\n")]
    except FileNotFoundError:
        return []


run_dir = os.path.realpath(sys.argv[1])
steps = {}
for name, prefix in (("metrics.jsonl", ""), ("eval.jsonl", "eval/")):
    for record in lines(os.path.join(run_dir, name)):
        if prefix and record["step"] > max(steps, default=0):
            continue
        if not prefix and record["step"] <= max(steps, default=0):
            # a restart, or a rollback: what follows is done again
            steps = {step: kept for step, kept in steps.items() if step < record["step"]}
        figures = steps.setdefault(record["step"], {})
        for key, value in record.items():
            if isinstance(value, (int, float)) and key not in ("step", "attempt"):
                figures[key if "/" in key else prefix + key.removeprefix("eval_")] = value
if not steps:
    sys.exit(f"{run_dir}: no steps in metrics.jsonl")
config, group = {}, ""
with open(os.path.join(run_dir, "config.cfg"), encoding="utf-8") as file:
    for line in file:
        if match := re.match(r"(\w+): \{$", line):
            group = match[1]
        elif (match := re.match(r"    (\w+) = ([^()\[\]]*);$", line)) and group != "hooks":
            # commands of hooks may hold a token
            try:
                config[f"{group}.{match[1]}"] = json.loads(match[2])
            except ValueError:
                config[f"{group}.{match[1]}"] = match[2]
first = steps[min(steps)]
ident = hashlib.sha256(f"{os.path.basename(run_dir)} {first.get('time')}".encode()).hexdigest()[:12]
run = wandb.init(project=sys.argv[2] if len(sys.argv) > 2 else "tessera", mode="offline", id=ident,
                 name=os.path.basename(run_dir), config=config,
                 settings=wandb.Settings(console="off", save_code=False, x_disable_stats=True, x_disable_meta=True))
for step in sorted(steps):
    run.log(steps[step], step=step)
run.finish()
