"""What transformers makes of logits, prompts and texts, beside our programs: see
generate.sh."""
import json
import struct
import subprocess
import sys

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.generation import logits_process as process

PROMPTS = [
    "The capital of France is", "Once upon a time", "def fibonacci(n):", "Water boils at",
    "My favourite book is about", "1, 2, 3, 4,", "In the year 1492", "The quick brown fox",
    "Photosynthesis is", "Dear Sir or Madam,", "To be or not to be", "import numpy as np",
    "The three laws of motion are", "Die Hauptstadt von Deutschland ist", "A recipe for bread:",
    "She opened the door and", "The largest planet is", "x = 3; y = 4; x + y =",
    "Roses are red", "Slurm is a workload manager that"]
QUESTIONS = ["What is the capital of Italy?", "Name three colours.", "Write one sentence about the sea."]


def left(logits, tokens, top_k, temperature, top_p, min_p, penalty, wide):
    """Probabilities by the processors in the order of generate(); wide: in fp64
    from the temperature on."""
    scores = torch.from_numpy(logits)[None]
    ids = torch.from_numpy(tokens.astype(np.int64))[None]
    if penalty != 1:
        scores = process.RepetitionPenaltyLogitsProcessor(penalty)(ids, scores)
    if temperature != 1:
        scores = process.TemperatureLogitsWarper(temperature)(ids, scores)
    scores = scores.double() if wide else scores
    if top_k > 0:
        scores = process.TopKLogitsWarper(top_k)(ids, scores)
    if top_p < 1:
        scores = process.TopPLogitsWarper(top_p)(ids, scores)
    if min_p > 0:
        scores = process.MinPLogitsWarper(min_p)(ids, scores)
    return torch.softmax(scores, -1)[0].double().numpy()


def distributions(program, count):
    rng = np.random.default_rng(5)
    cases, records = [], b""
    for n in range(int(count)):
        vocab = int(rng.choice([3, 20, 300, 5000]))
        logits = (rng.normal(size=vocab) * rng.choice([0.5, 3, 10])).astype(np.float32)
        if n % 4 == 0:
            logits = np.round(logits)
        case = dict(tokens=rng.integers(0, vocab, rng.integers(1, 60), dtype=np.int32),
                    top_k=int(rng.choice([0, 1, 5, 50, 6000])),
                    temperature=float(rng.choice([1, 0.3, 0.7, 1.7])),
                    top_p=float(rng.choice([1, 0.999, 0.9, 0.5, 0.05])),
                    min_p=float(rng.choice([0, 0, 0.05, 0.5, 1])),
                    penalty=float(rng.choice([1, 1.3, 0.8])))
        cases.append((logits, case))
        records += struct.pack("=2iq4d", vocab, len(case["tokens"]), case["top_k"],
                               case["temperature"], case["top_p"], case["min_p"], case["penalty"])
        records += logits.tobytes() + case["tokens"].tobytes()
    out = subprocess.run([program], input=records, stdout=subprocess.PIPE, check=True).stdout
    at, worst, edges = 0, 0.0, 0
    for logits, case in cases:
        got = np.frombuffer(out, np.float64, len(logits), at)
        at += got.nbytes
        want = left(logits, wide=False, **case)
        # which of equal scores go at the edge of top_p is up to torch's sort, which
        # is not stable: as many of them
        order = np.sort if len(np.unique(logits)) < len(logits) else np.asarray
        got, want = order(got), order(want)
        if ((got > 0) != (want > 0)).any():  # fp32 sums: what is at the edge of a share
            edges += 1
            want = order(left(logits, wide=True, **case))
        assert ((got > 0) == (want > 0)).all(), (case, np.flatnonzero((got > 0) != (want > 0)))
        worst = max(worst, np.abs(got - want).max())
    assert at == len(out) and worst < 2e-6, worst
    assert edges <= 0.03 * len(cases), edges
    print(f"{len(cases)}, within {worst:.1e}; {edges} of them only where its sums are fp64")


def ours(program, *arguments, text=None):
    return subprocess.run([program, *arguments], input=text, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=True).stdout


def model_of(folder):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return model, AutoTokenizer.from_pretrained(folder)


def continued(model, tokenizer, ids, count):
    """The text of `count` tokens, the most probable ones."""
    eos = [tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids("<|im_end|>")]
    with torch.no_grad():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False,
                             max_new_tokens=count, eos_token_id=eos, pad_token_id=0)
    return tokenizer.decode(out[0, ids.shape[1]:], skip_special_tokens=True,
                            clean_up_tokenization_spaces=False)


def same(want, lines):
    got = [json.loads(line) for line in lines.splitlines()]
    assert len(got) == len(want)
    for text, record in zip(want, got):
        assert record["completion"] == text, (record, text)
    print(f"{len(got)} texts, {sum(record['tokens'] for record in got)} tokens")


def greedy(program, folder, work):
    model, tokenizer = model_of(folder)
    with open(work + "/prompts", "w", encoding="utf-8") as file:
        file.writelines(prompt + "\n" for prompt in PROMPTS)
    lines = ours(program, folder, "--prompts", work + "/prompts", "--greedy", "--max-tokens", "64",
                 "--batch", "4")
    same([continued(model, tokenizer, tokenizer(p, return_tensors="pt").input_ids, 64)
          for p in PROMPTS], lines)


def chat(program, folder, work):
    model, tokenizer = model_of(folder)
    with open(work + "/questions", "w", encoding="utf-8") as file:
        file.writelines(question + "\n" for question in QUESTIONS)
    lines = ours(program, folder, "--prompts", work + "/questions", "--chat", "--greedy",
                 "--max-tokens", "40")
    same([continued(model, tokenizer, tokenizer.apply_chat_template(
        [{"role": "user", "content": q}], add_generation_prompt=True, return_tensors="pt"), 40)
        for q in QUESTIONS], lines)


def score(program, folder):
    model, tokenizer = model_of(folder)
    text = "\n".join(PROMPTS) + " Gr\u00fc\u00dfe \U0001f600"
    ids = tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids
    with torch.no_grad():
        want = model(ids, labels=ids).loss.item() * (ids.shape[1] - 1)
    got = json.loads(ours(program, folder, "--score", text=text.encode()))
    assert got["tokens"] == ids.shape[1]
    assert abs(got["nll"] / want - 1) < 1e-5, (got, want)
    print(f"{got['tokens']} tokens, {got['nll']:.6f} nats, {want:.6f} there")


if __name__ == "__main__":
    {"distributions": distributions, "greedy": greedy, "chat": chat,
     "score": score}[sys.argv[1]](*sys.argv[2:])
