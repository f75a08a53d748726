"""What llama.cpp makes of our GGUF files, and how quickly: see llama.sh."""
import json
import statistics
import subprocess
import sys
import time

import numpy as np

PROMPTS = [
    "The capital of France is", "Once upon a time", "def fibonacci(n):",
    "Water boils at", "My favourite book is about", "1, 2, 3, 4,",
    "In the year 1492", "The quick brown fox", "Photosynthesis is",
    "Dear Sir or Madam,", "To be or not to be", "import numpy as np",
    "The three laws of motion are", "Die Hauptstadt von Deutschland ist",
    "A recipe for bread:", "She opened the door and", "The largest planet is",
    "x = 3; y = 4; x + y =", "Roses are red", "Slurm is a workload manager that"]
THREADS = 2
PROMPT, CONTEXT, RUN = 512, 64, 16  # as tessera-bench infer has them


class Model:
    """A GGUF file; exact: keys and values in fp32, as ours are, and not in fp16,
    which is its default; plain: weights as the file has them, not packed anew for
    this processor. Its threads wait by spinning."""

    def __init__(self, path, exact=False, plain=False):
        import llama_cpp
        self.library = llama_cpp
        defaults = llama_cpp.llama_model_default_params()
        defaults.use_extra_bufts = not plain
        llama_cpp.llama_cpp.llama_model_default_params = lambda: defaults
        more = {'type_k': 0, 'type_v': 0} if exact else {}
        threads = 1 if exact else THREADS
        self.llama = llama_cpp.Llama(
            path, n_ctx=2048, n_batch=PROMPT, n_ubatch=PROMPT,
            n_threads=threads, n_threads_batch=threads, verbose=False, **more)
        self.vocab = self.llama.n_vocab()

    def next(self, tokens):
        """The most probable token behind these, added to what was read."""
        self.llama.eval(tokens)
        logits = self.library.llama_get_logits_ith(self.llama.ctx, -1)
        return int(np.argmax(np.ctypeslib.as_array(logits, (self.vocab,))))

    def cut(self, count):
        """Forgets all but the first tokens."""
        self.llama.n_tokens = count


def continued(model, prompt, count):
    llama = model.llama
    begins = model.library.llama_vocab_get_add_bos(llama._model.vocab)
    read = llama.tokenize(prompt.encode(), add_bos=begins, special=True)
    model.cut(0)
    made, more = [], read
    while len(made) < count:
        token = model.next(more)
        if model.library.llama_vocab_is_eog(llama._model.vocab, token):
            break
        made.append(token)
        more = [token]
    return len(read), len(made), llama.detokenize(made).decode(errors="replace")


def greedy(program, path, work):
    with open(work + "/prompts", "w", encoding="utf-8") as file:
        file.writelines(prompt + "\n" for prompt in PROMPTS)
    lines = subprocess.run(
        [program, path, "--prompts", work + "/prompts", "--greedy",
         "--max-tokens", "64"],
        stdout=subprocess.PIPE, check=True).stdout.splitlines()
    model = Model(path, exact=True)
    tokens = 0
    assert len(lines) == len(PROMPTS)
    for prompt, line in zip(PROMPTS, lines):
        got = json.loads(line)
        have = (got["prompt_tokens"], got["tokens"], got["completion"])
        want = continued(model, prompt, 64)
        assert have[0] == want[0] and have[2] == want[2], (prompt, have, want)
        tokens += want[1]
    print("%d texts, %d tokens" % (len(lines), tokens))


def chat(path):
    """By the chat template that is in the file. Rounded activations, which it has
    with blocks of eight bits, turn this answer: two first words are close."""
    question = [{"role": "user", "content": "What is the capital of France?"}]
    answer = Model(path, exact=True).llama.create_chat_completion(
        question, temperature=0, max_tokens=24)
    text = answer["choices"][0]["message"]["content"]
    assert "Paris" in text, text
    print(text)


def rates(path, seconds):
    """As it is by default; where that crashes, as its products of packed blocks of
    eight bits do on processors with AMX, with the weights as they are."""
    for plain in "", "plain":
        done = subprocess.run(
            [sys.executable, __file__, "rounds", path, seconds, plain],
            stdout=subprocess.PIPE, check=False)
        if done.returncode >= 0:
            break
    done.check_returncode()
    sys.stdout.write(done.stdout.decode())


def rounds(path, seconds, plain):
    """Rounds as those of tessera-bench infer: a prompt, then tokens behind the
    first 64 of it."""
    model = Model(path, plain=plain != "")
    words = [i * 7919 % model.vocab for i in range(PROMPT)]
    prompts, tokens = [], []
    end = None
    while end is None or len(prompts) < 3 or time.perf_counter() < end:
        model.cut(0)
        begin = time.perf_counter()
        token = model.next(words)
        prompt = time.perf_counter() - begin
        model.cut(CONTEXT)
        run = []
        for _ in range(RUN):
            begin = time.perf_counter()
            token = model.next([token])
            run.append(time.perf_counter() - begin)
        if end is None:  # the first round reads the file
            end = time.perf_counter() + float(seconds) / 3
            continue
        prompts.append(prompt)
        tokens += run
    print(json.dumps({"decode": 1 / statistics.median(tokens),
                      "prompt": PROMPT / statistics.median(prompts),
                      "rounds": len(prompts), "plain": plain}))


def table(form, *files):
    before, theirs, after = [json.load(open(name, encoding="utf-8")) for name in files]
    out = []
    for what in ("decode", "prompt"):
        key = "%s_%s_tokens_per_s" % (form, what)
        ours = (before[key] + after[key]) / 2
        out.append("%s %.1f and %.1f tokens/s, llama.cpp %.1f, ratio %.2f"
                   % (what, before[key], after[key], theirs[what],
                      ours / theirs[what]))
    if theirs["plain"]:
        out.append("llama.cpp with unpacked weights, for it crashes with others")
    print("; ".join(out))


if __name__ == "__main__":
    {"greedy": greedy, "chat": chat, "rates": rates,
     "rounds": rounds, "table": table}[sys.argv[1]](*sys.argv[2:])
