"""Peers of finetune.sh: Hugging Face's BpeTrainer and apply_chat_template, and the
rules of LLM Foundry for turns, targets, truncation and packing, said again."""

import json
import os
import random
import struct
import subprocess
import sys

import jinja2
import jinja2.sandbox
import numpy
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SMOLLM2 = (
    "{% for message in messages %}"
    "{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant<|im_end|>\n' }}"
    "{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] +"
    " '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# What the built-in templates have to make.
BUILT_IN = {
    "chatml": "{% for m in messages %}{{ ('' if loop.first else '\n') +"
    " '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ ('\n' if messages else '') +"
    " '<|im_start|>assistant\n' }}{% endif %}",
    "llama3": "<|begin_of_text|>{% for m in messages %}{{ '<|start_header_id|>'"
    " + m.role + '<|end_header_id|>\n\n' + m.content.strip() + '<|eot_id|>' }}"
    "{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    "none": "{% for m in messages %}{{ m.content }}{% endfor %}",
}
# Templates as models have them, and corners of white space.
TEMPLATES = list(BUILT_IN.values()) + [
    SMOLLM2,
    "{%- if messages[0].role == 'system' %}\n    {%- set system = messages[0]"
    ".content %}\n    {%- set rest = messages[1:] %}\n{%- else %}\n    "
    "{%- set system = '' %}\n    {%- set rest = messages %}\n{%- endif %}\n"
    "{{- bos_token }}{{ system | trim }}\n{%- for message in rest %}\n    "
    "{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}\n    "
    "{%- endif %}\n    {{- '[' ~ message.role.upper() ~ ']' + message.content"
    " | trim + '\\n' -}}\n{%- endfor %}\n",
    "{% set ns = namespace(n=0, last='') %}\n{% for m in messages %}\n  "
    "{% if m.role in ['user', 'tool'] %}\n{% set ns.n = ns.n + 1 %}\n"
    "{{ ns.n }}: {{ m.content }}\n  {% elif loop.last %}\nA{{ m.get('content')"
    " | length }}\n  {% else %}\n{{ m.content.split(' ')[0] }}\n  {% endif %}\n"
    "{% endfor %}\n{# done #}\n{% if tools is not none or documents %}.{% endif %}\n\n",
]
WORDS = ["yes", "no", "Größe", "\u00a0", "\n", "  ", "日本", "{{ x }}", "1234",
         "a'b", "<|im_end|>", "\t", "end.", "🙂", "\"q\""]


def environment():
    """With what transformers gives to every template."""
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    env.globals.update(tools=None, documents=None)
    return env


def text_of(path):
    with open(path, encoding="utf-8", newline="") as file:
        return file.read()


def lines_of(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def learn(pattern, size, text, least):
    level = pre_tokenizers.ByteLevel
    tokenizer = Tokenizer(models.BPE())
    if pattern == "gpt2":
        tokenizer.pre_tokenizer = level(add_prefix_space=False)
    elif pattern == "digits":
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(True), level(add_prefix_space=False)]
        )
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                level(add_prefix_space=False, use_regex=False),
            ]
        )
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=least,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=level.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([text], trainer)
    return tokenizer


def same_model(ours, theirs):
    merges = [
        [
            tuple(m.split(" ")) if isinstance(m, str) else tuple(m)
            for m in file["model"]["merges"]
        ]
        for file in (ours, theirs)
    ]
    assert ours["model"]["vocab"] == theirs["model"]["vocab"]
    assert merges[0] == merges[1]
    return len(merges[0])


def vocabulary(pattern, size, text, learned):
    text = text_of(text)
    theirs = learn(pattern, int(size), text, 2)
    count = same_model(json.loads(text_of(learned)), json.loads(theirs.to_str()))
    part = text[: 1 << 18]
    ours = Tokenizer.from_file(learned)
    assert ours.encode(part).ids == theirs.encode(part).ids
    assert ours.decode(ours.encode(part).ids) == part
    print(count, "merges")


def short(data, work):
    path, out = work + "/short", work + "/short.json"
    for seed in range(60):
        rng = random.Random(seed)
        letters = rng.choice(["ab", "abc", "abcd ", "aé ", "a 1'\n"])
        text = "".join(rng.choice(letters) for _ in range(rng.choice([50, 2000])))
        text = " ".join(
            text[i : i + rng.randint(1, 40)] for i in range(0, len(text), 20)
        )
        size, least = 257 + rng.choice([5, 30, 1500]), rng.choice([1, 2, 3])
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        subprocess.run(
            [data, "train-tokenizer", "--vocab-size", str(size), "--out", out,
             "--min-frequency", str(least), "--force", path],
            check=True, capture_output=True,
        )
        theirs = learn("gpt2", size, text, least)
        same_model(json.loads(text_of(out)), json.loads(theirs.to_str()))
    print("60 texts")


def conversation(rng):
    def content():
        return "".join(rng.choice(WORDS) + " " for _ in range(rng.randint(1, 30)))

    messages = []
    if rng.random() < 0.5:
        messages.append({"role": "system", "content": content()})
    for turn in range(rng.randint(1, 4)):
        messages.append({"role": rng.choice(["user", "user", "tool"]),
                         "content": content()})
        messages.append({"role": "assistant", "content": content()})
    return messages


def make(work):
    rng = random.Random(1)
    with open(work + "/talk.jsonl", "w", encoding="utf-8") as file:
        for i in range(400):
            record = {"messages": conversation(rng)}
            file.write(json.dumps(record, ensure_ascii=i % 2 == 0) + "\n")
    with open(work + "/pairs.jsonl", "w", encoding="utf-8") as file:
        for i in range(400):
            pair = [m["content"] for m in conversation(rng)[-2:]]
            key = "response" if i % 2 else "completion"
            file.write(json.dumps({"prompt": pair[0], key: pair[1], "n": i}) + "\n")
    with open(work + "/smollm2.jinja", "w", encoding="utf-8") as file:
        file.write(SMOLLM2)


def samples(folder):
    """The columns of an MDS set of three variable columns, in order."""
    with open(folder + "/index.json", encoding="utf-8") as file:
        shards = json.load(file)["shards"]
    for shard in shards:
        assert shard["column_names"] == ["lengths", "loss_mask", "tokens"]
        with open(folder + "/" + shard["raw_data"]["basename"], "rb") as file:
            data = file.read()
        count = struct.unpack_from("<I", data)[0]
        ends = struct.unpack_from("<%dI" % (count + 1), data, 4)
        for begin in ends[:-1]:
            sizes = struct.unpack_from("<3I", data, begin)
            at, row = begin + 12, []
            for size, dtype in zip(sizes, ("<i4", "u1", "<i4")):
                field = data[at : at + size]
                width = 1 << (field[0] & 3)
                row.append(numpy.frombuffer(field[1 + width :], dtype).tolist())
                at += size
            yield row


def documents(row):
    lengths, mask, tokens = row
    assert sum(lengths) == len(mask) == len(tokens)
    at = 0
    for length in lengths:
        yield tokens[at : at + length], mask[at : at + length]
        at += length


def render(data, work):
    """With a token per byte, what is in a sample is the rendered text."""
    path, out = work + "/any.jinja", work + "/rendered"
    talk = lines_of(work + "/talk.jsonl")
    for text in TEMPLATES:
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        template = environment().from_string(text)
        # what has no place for an answer of its own is refused
        fitting = [
            record for record in talk[:60] if turns(template, record["messages"], "")
        ]
        with open(work + "/some.jsonl", "w", encoding="utf-8") as file:
            for record in fitting:
                file.write(json.dumps(record) + "\n")
        made = subprocess.run(
            [data, "tokenize", "--chat", "--template", path, "--seq-len", "65536",
             "--force", "--out", out, work + "/some.jsonl"],
            capture_output=True, text=True,
        )
        assert made.returncode == 0, (text, made.stderr)
        got = [bytes(row[2][:-1]).decode() for row in samples(out)]
        want = [
            template.render(messages=r["messages"], add_generation_prompt=False,
                            bos_token="", eos_token="")
            for r in fitting
        ]
        assert len(fitting) > 0 and got == want
    print(len(TEMPLATES), "templates")


def turns(template, messages, eos):
    """LLM Foundry's slices; none where the template does not allow them."""
    so_far, found = "", []
    for i, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        full = template.render(messages=messages[: i + 1], bos_token="",
                               add_generation_prompt=False, eos_token=eos)
        prompt = template.render(messages=messages[:i], bos_token="",
                                 add_generation_prompt=True, eos_token=eos)
        if not (prompt.startswith(so_far) and full.startswith(prompt)):
            return []
        found.append((prompt[len(so_far) :], full[len(prompt) :]))
        so_far = full
    return found


def options_of(arguments):
    options = {"--seq-len": "128", "--packing": "off", "--target-responses": "last",
               "--target-prompts": "none"}
    options.update(zip(arguments[::2], arguments[1::2]))
    return options


def stitch(tokenizer, slices, eos, options):
    ids, mask = [], []
    prompts = options["--target-prompts"]
    for i, (prompt, response) in enumerate(slices):
        last = i + 1 == len(slices)
        context = tokenizer.encode(prompt, add_special_tokens=False).ids
        target = tokenizer.encode(response, add_special_tokens=False).ids
        if last and target[-1:] != [eos]:
            target = target + [eos]
        learned = prompts == "all" or (
            prompts.startswith("length>=") and len(context) >= int(prompts[8:])
        )
        ids += context + target
        mask += [int(learned)] * len(context)
        mask += [int(last or options["--target-responses"] == "all")] * len(target)
    limit = int(options["--seq-len"])
    return ids[:limit], [0] + mask[1:limit]


def pack(lengths, limit):
    """First-fit decreasing, as it is defined."""
    rows, room = [], []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        row = next((r for r in range(len(room)) if room[r] >= lengths[i]), len(room))
        if row == len(room):
            rows.append([])
            room.append(limit)
        rows[row].append(i)
        room[row] -= lengths[i]
    return [sorted(row) for row in rows]


def examples(folder, tokenizer_folder, file, name, *arguments):
    options = options_of(arguments)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from transformers import PreTrainedTokenizerFast

    path = tokenizer_folder + "/tokenizer.json"
    tokenizer = Tokenizer.from_file(path)
    eos = tokenizer.token_to_id("<|endoftext|>")
    fast = PreTrainedTokenizerFast(tokenizer_file=path, eos_token="<|endoftext|>")
    source = BUILT_IN.get(name) or (None if name == "prompts" else text_of(name))
    expected = []
    for record in lines_of(file):
        if name == "prompts":
            response = record.get("response", record.get("completion"))
            slices = [(record["prompt"], response)]
        else:
            messages = record.get("messages") or [
                {"role": "user", "content": record["prompt"]},
                {"role": "assistant",
                 "content": record.get("response", record.get("completion"))},
            ]
            slices = turns(environment().from_string(source), messages,
                           "<|endoftext|>")
            whole = fast.apply_chat_template(messages, chat_template=source,
                                             tokenize=False)
            assert whole == "".join(p + r for p, r in slices)
        ids, mask = stitch(tokenizer, slices, eos, options)
        if 1 in mask:
            expected.append((ids, mask))
    limit = int(options["--seq-len"])
    if options["--packing"] == "on":
        rows = pack([len(ids) for ids, _ in expected], limit)
    else:
        rows = [[i] for i in range(len(expected))]
    got = [list(documents(row)) for row in samples(folder)]
    assert len(got) == len(rows), (len(got), len(rows))
    for row, want in zip(got, rows):
        assert row == [expected[i] for i in want], (row, want)
    print(len(expected), "examples in", len(rows), "rows")


if __name__ == "__main__":
    {"vocabulary": vocabulary, "short": short, "make": make, "render": render,
     "examples": examples}[sys.argv[1]](*sys.argv[2:])
