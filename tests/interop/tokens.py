"""Beside the Hugging Face tokenizers library: files that it trains, texts of all
kinds, the same tokens. See tokenizers.sh.

    tokens.py make FOLDER TEXT...        train files of several kinds
    tokens.py compare ENCODE FILE COUNT TEXT...
    tokens.py patterns ENCODE FILE       every short text of difficult characters
    tokens.py points ENCODE FILE         every code point among others
    tokens.py speed ENCODE FILE TEXT     prints both rates and the ratio
    tokens.py ids FILE TEXT              what `tessera-data encode` prints
"""

import itertools
import json
import os
import random
import struct
import subprocess
import sys
import time
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models
from tokenizers import normalizers, pre_tokenizers as pre, processors, trainers

CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = (CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*" + REST)
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
GPT4O = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTION}?"
         rf"|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTION}?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + REST)
TEKKEN = GPT4O.replace(CONTRACTION + "?", "").replace("{1,3}", "")
DEEPSEEK = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?"""
            r"[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*" + REST)


def split(pattern, behavior="isolated", invert=False):
    return pre.Split(Regex(pattern), behavior, invert)


def level(regex=False, prefix=False):
    return pre.ByteLevel(add_prefix_space=prefix, use_regex=regex)


KINDS = {
    "gpt2": [level(True)],
    "prefix": [pre.Digits(individual_digits=False), level(True, True)],
    "digits": [pre.Digits(individual_digits=True), level(True)],
    "llama3": [split(LLAMA3), level()],
    "gpt4": [split(LLAMA3, "removed", True), level()],
    "qwen": [split(LLAMA3.replace("{1,3}", "")), level()],
    "gpt4o": [split(GPT4O), level()],
    "tekken": [split(TEKKEN), level()],
    "deepseek": [split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"), split(DEEPSEEK), level()],
    "regex": [split(r"\p{N}{1,3}"), split(r"[a-z]+|\s", "merged_with_previous"), level(True)],
    "literal": [pre.Split(" ", "merged_with_next"), split(r"(?=\p{Lu})|x", "contiguous", True),
                level()],
    "plain": [split(r"^\p{L}|[一-龥](?!\p{L})|(?<=\d)\D|\s+$", "merged_with_next"), level()],
}


BACK = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
STRIP = [decoders.Strip(" ", 1, 0)]
LLAMA2 = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]


def meta(scheme, split):
    return pre.Metaspace("▁", prepend_scheme=scheme, split=split)


# Of characters: normalizers, pre-tokenizer, decoders, what the model is
CHARACTERS = {
    "llama2": (LLAMA2, None, BACK + STRIP, {"unk_token": "<unk>", "fuse_unk": True}),
    "across": (LLAMA2, None, BACK + STRIP, {}),
    "gemma": ([normalizers.Replace(" ", "▁")], pre.Split(" ", "merged_with_previous"), BACK, {}),
    "replace": ([normalizers.Replace("ab", "c"), normalizers.NFC(), normalizers.Replace("'", "")]
                + LLAMA2, None, BACK + STRIP, {}),
    "always": ([], meta("always", True), [decoders.ByteFallback(), decoders.Metaspace()], {}),
    "never": ([], meta("never", False), BACK, {"unk_token": "<unk>"}),
    "first": ([], meta("first", False), BACK + STRIP, {"unk_token": "<unk>", "fuse_unk": True}),
    "metadigits": ([], pre.Sequence([pre.Digits(True), meta("always", False)]), BACK + STRIP, {}),
    "unknown": ([], meta("first", True), [decoders.Metaspace()],
                {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": False}),
    "gaps": (LLAMA2, None, BACK + STRIP, {"unk_token": "<unk>"}),
    "nomark": (LLAMA2, None, BACK + STRIP, {"unk_token": "<unk>", "fuse_unk": True}),
}


def characters(folder, text):
    """Files of the SentencePiece kind."""
    for kind, (steps, pretoken, back, options) in CHARACTERS.items():
        options = {"byte_fallback": True, **options}
        codes = [f"<0x{b:02X}>" for b in range(256)] if options["byte_fallback"] else []
        tokenizer = Tokenizer(models.BPE(**options))
        # words across blanks if nothing divides the text
        lines = text[:60000].splitlines(True) if kind == "across" else text.splitlines(True)
        tokenizer.pre_tokenizer = pretoken or (None if kind == "across" else meta("always", True))
        if kind == "across":
            tokenizer.normalizer = normalizers.Sequence(steps)
        tokenizer.train_from_iterator(lines, trainers.BpeTrainer(
            vocab_size=1500, special_tokens=["<unk>", "<s>", "</s>"] + codes, limit_alphabet=60,
            initial_alphabet=[] if kind == "nomark" else ["▁"], show_progress=False))
        whole = json.loads(tokenizer.to_str())
        model = whole["model"]
        whole["added_tokens"] = [t for t in whole["added_tokens"] if t["content"][1] != "0"]
        for t in whole["added_tokens"]:
            t["normalized"] = kind == "always"
        if kind == "gaps":
            model["vocab"] = {k: v for k, v in model["vocab"].items() if k not in codes[0x80:0xC0:3]}
        if kind == "nomark":
            model["merges"] = [m for m in model["merges"] if "▁" not in "".join(m)]
            del model["vocab"]["▁"]
        if kind in ("llama2", "gemma"):
            # rows of blanks, as the released files have them
            for n in (1, 2, 4):
                both = "▁" * 2 * n
                model["vocab"].setdefault(both, max(model["vocab"].values()) + 1)
                model["merges"].append(["▁" * n, "▁" * n])
        numbers = {k: i for i, k in enumerate(sorted(model["vocab"], key=model["vocab"].get))}
        model["vocab"] = numbers
        whole["pre_tokenizer"] = None
        tokenizer = Tokenizer.from_str(json.dumps(whole))
        if steps:
            tokenizer.normalizer = normalizers.Sequence(steps)
        if pretoken:
            tokenizer.pre_tokenizer = pretoken
        tokenizer.decoder = decoders.Sequence(back) if len(back) > 1 else back[0]
        tokenizer.add_tokens([AddedToken("<n>", normalized=True), AddedToken("<w>", normalized=False),
                              AddedToken("<l>", lstrip=True, normalized=False),
                              AddedToken("▁▁▁", normalized=False)])
        if kind != "llama2":
            tokenizer.add_tokens([AddedToken("<r>", rstrip=True), AddedToken("<a b>"),
                                  AddedToken("  ", normalized=True)])
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)])
        tokenizer.save(f"{folder}/characters-{kind}.json")


def make(folder, paths):
    text = "".join(open(p, errors="replace").read() for p in paths)[:600000]
    for kind, steps in KINDS.items():
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre.Sequence(steps) if len(steps) > 1 else steps[0]
        tokenizer.decoder = decoders.ByteLevel()
        if kind in ("qwen", "regex"):
            tokenizer.normalizer = normalizers.NFC()
        tokenizer.train_from_iterator(text.splitlines(True), trainers.BpeTrainer(
            vocab_size=3000, special_tokens=["<|end|>", "<|x|>"], show_progress=False,
            initial_alphabet=pre.ByteLevel.alphabet()))
        tokenizer.add_tokens([
            AddedToken("  ", normalized=True), AddedToken("<r>", rstrip=True),
            AddedToken("<l>", lstrip=True, normalized=False), AddedToken("<x y>", special=True),
            AddedToken("cat", single_word=kind == "gpt2"), AddedToken("e\u0301\u0323"),
            AddedToken("the\n", normalized=False)])
        tokenizer.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=True),
            processors.TemplateProcessing(single="<|x|> $A <|end|>:1", pair="$A $B",
                                          special_tokens=[("<|end|>", 0), ("<|x|>", 1)])])
        tokenizer.save(f"{folder}/{kind}.json")
    shuffled(folder)
    characters(folder, text)


def shuffled(folder):
    """Merges in any order, and words that are tokens but no merge gives."""
    with open(f"{folder}/llama3.json") as file:
        whole = json.load(file)
    model = whole["model"]
    random.Random(5).shuffle(model["merges"])
    model["merges"] = [" ".join(m) for m in model["merges"]]
    json.dump(whole, open(f"{folder}/shuffled.json", "w"))
    model["ignore_merges"] = True
    model["merges"] = model["merges"][: len(model["merges"]) // 2]
    json.dump(whole, open(f"{folder}/ignore.json", "w"))


class Ours:
    def __init__(self, program, path):
        self.process = subprocess.Popen([program, path], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)

    def encode(self, data, flags):
        """Tokens, and the text that they give."""
        self.process.stdin.write(struct.pack("=II", flags, len(data)) + data)
        self.process.stdin.flush()
        out = self.process.stdout
        count = struct.unpack("=I", out.read(4))[0]
        ids = list(struct.unpack(f"={count}i", out.read(4 * count)))
        return ids, out.read(struct.unpack("=I", out.read(4))[0])


ASSIGNED = [p for p in range(0x110000)
            if not 0xD800 <= p < 0xE000 and unicodedata.category(chr(p)) != "Cn"]
POOLS = ["  \n\t\r\x0b\x0c", "abcXYZ", "0123456789", "'stmdrevl'STREVELL\u017f",
         ".,;!?-_()[]{}<|>/\\@#$", "\u00a0\u2003\u3000\u0085\u2028\u1680\u180e",
         "\u00e9\u00fc\u00f1\ufb01\u00df\u017f\u0130\u0131",
         "\u0301\u0327\u0323\u0300\u20dd\u0e38", "日本語テキスト中文漢字한국어",
         "😀🎉👩\u200d👩\u200d👧🇩🇪☃\ufe0f", "\u0663\u0664\u0bea\u00b2\u00bd\u2167\u2460",
         "\u01c5\u01c8\u02b0\u02b1\u1d43\u00aa\u00ba", "αβγДЖЩאבגدهو"]
COMMON = ["'s", "'LL", " 're", "'\u017f", "  ", "\n\n", " \n ", "\r\n", "\t"]


def random_text(rng, added, real):
    parts = []
    for _ in range(rng.choice([1, 2, 3, 5, 8, 20, 60])):
        kind = rng.random()
        if kind < 0.1:
            parts.append(rng.choice(added))
        elif kind < 0.2:
            parts.append(rng.choice(POOLS[0]) * rng.randint(1, 5))
        elif kind < 0.3:
            parts.append(chr(rng.choice(ASSIGNED)))
        elif kind < 0.45:
            at = rng.randrange(len(real))
            parts.append(real[at:at + rng.randint(1, 60)])
        elif kind < 0.6:
            parts.append(rng.choice(COMMON))
        elif kind < 0.62:
            parts.append("".join(rng.choice("abcthe") for _ in range(rng.randint(30, 200))))
        else:
            pool = rng.choice(POOLS)
            parts.append("".join(rng.choice(pool) for _ in range(rng.randint(1, 6))))
    return "".join(parts)


def spoil(rng, data):
    data = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        data.insert(rng.randrange(len(data) + 1), rng.randrange(128, 256))
    return bytes(data)


def theirs(tokenizer, text, flags):
    tokenizer.encode_special_tokens = not flags & 1
    return tokenizer.encode(text, add_special_tokens=bool(flags & 2)).ids


def gives_back(path, text):
    """Not where the file itself makes one text of two: of marks in a text, of added
    tokens that take white space or a mark, of blanks that stand for what is put in front."""
    if any(k in path for k in ("replace", "unknown", "gaps", "nomark")):
        return False
    if "▁" in text or any(t in text for t in ("<l>", "<r>", "<n>", "<a b>")):
        return False
    if "llama2" in path:
        return True
    if "  " in text or "always" in path and ("<s>" in text or "</s>" in text or "<unk>" in text):
        return False
    return "gemma" in path or "across" in path or "never" in path or not (
        text.startswith(" ") or "> " in text or "metadigits" in path)


def compare(program, path, count, paths):
    tokenizer = Tokenizer.from_file(path)
    ours = Ours(program, path)
    rng = random.Random(path.rsplit("/", 1)[-1])
    real = "".join(open(p, errors="replace").read(2000000) for p in paths)
    added = [t.content for t in tokenizer.get_added_tokens_decoder().values()]
    fallback = "characters-" in path
    whole = tokenizer.normalizer is None and not fallback and '"rstrip": true' not in open(path).read()
    for _ in range(count):
        data = random_text(rng, added, real).encode()
        if rng.random() < 0.3:
            data = spoil(rng, data)
        text = data.decode(errors="replace")
        for flags in (1, 0, 3):
            want = theirs(tokenizer, text, flags)
            got, back = ours.encode(data, flags)
            if got != want:
                sys.exit(f"{path}, flags {flags}: {text!a}\n{want}\n{got}")
            if fallback and flags < 2 and gives_back(path, text) and back != text.encode():
                sys.exit(f"{path}, flags {flags}: {text!a} comes back as {back!a}: {got}")
            if whole and flags == 0 and back != text.encode():
                sys.exit(f"{path}: {text!a} comes back as {back!a}")
    print(f"{count} texts with three flags each, the same tokens")


def patterns(program, path):
    """Texts of difficult characters, in files that every_pair() made."""
    tokenizer = Tokenizer.from_file(path)
    ours = Ours(program, path)
    letters = ["A", "a", "\u02b0", "\u0301", "1", " ", "\n", "\t", "'", "s", "\u017f", ".", "/",
               "\u00a0", "中"]
    texts = ["".join(t) for n in (1, 2, 3) for t in itertools.product(letters, repeat=n)]
    rng = random.Random(2)
    texts += ["".join(rng.choices(letters, k=rng.randint(4, 10))) for _ in range(20000)]
    for text in texts:
        if ours.encode(text.encode(), 0)[0] != theirs(tokenizer, text, 0):
            sys.exit(f"{path}: {text!a}")
    print(f"{len(texts)} texts")


def every_pair(folder):
    """A vocabulary in which every row of two difficult characters is a token, so
    that tokens show where words end."""
    letters = "Aaʰ1 .\n\t's/中\u0301\u017f\u00a0"
    chars = {c: pre.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(c)[0][0]
             for c in letters}
    for kind in ("gpt2", "digits", "llama3", "qwen", "gpt4o", "tekken", "deepseek", "plain"):
        vocab = {c: i for i, c in enumerate(sorted(pre.ByteLevel.alphabet()))}
        merges = []

        def add(left, right):
            merges.append((left, right))
            vocab.setdefault(left + right, len(vocab))

        for c in chars.values():
            for i in range(1, len(c)):
                add(c[:i], c[i])
        for left, right in itertools.product(chars.values(), repeat=2):
            add(left, right)
        tokenizer = Tokenizer(models.BPE(vocab, list(dict.fromkeys(merges))))
        steps = KINDS[kind]
        tokenizer.pre_tokenizer = pre.Sequence(steps) if len(steps) > 1 else steps[0]
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.save(f"{folder}/pairs-{kind}.json")


def every_edge(folder):
    """Every byte makes a token with what may stand before and behind it, so that
    tokens show where a character begins or ends a word."""
    around = [level().pre_tokenize_str(c)[0][0] for c in "aA1. \n'"]
    alphabet = sorted(pre.ByteLevel.alphabet())
    merges = [p for a in around for b in alphabet for p in ((a, b), (b, a))]
    vocab = {t: i for i, t in enumerate(dict.fromkeys(alphabet + [a + b for a, b in merges]))}
    for kind in ("gpt2", "llama3", "qwen", "gpt4o", "tekken", "deepseek", "digits", "plain"):
        tokenizer = Tokenizer(models.BPE(vocab, list(dict.fromkeys(merges))))
        steps = KINDS[kind]
        tokenizer.pre_tokenizer = pre.Sequence(steps) if len(steps) > 1 else steps[0]
        tokenizer.decoder = decoders.ByteLevel()
        if kind == "qwen":
            tokenizer.normalizer = normalizers.NFC()
        tokenizer.save(f"{folder}/points-{kind}.json")


def points(program, path):
    """Each code point among letters, digits, signs, blanks and marks. Rust's digits,
    of which the step Digits is, are of Unicode 17."""
    tokenizer = Tokenizer.from_file(path)
    ours = Ours(program, path)

    def text_of(p):
        c = chr(p)
        return f"a{c}a1{c}1.{c} {c}\n'{c}A{c}ae\u0301{c}\u0327\u0301{c}\n"

    def differs(text):
        return ours.encode(text.encode(), 0)[0] != theirs(tokenizer, text, 0)

    every = [p for p in range(0x110000) if not 0xD800 <= p < 0xE000
             and (p % 61 == 0 or not 0x40000 <= p < 0xE0000)]
    found = []
    for at in range(0, len(every), 64):
        part = every[at:at + 64]
        if differs("".join(map(text_of, part))):
            found += [p for p in part if differs(text_of(p))]
    known = [*range(0x11DE0, 0x11DEA), *range(0x16FF4, 0x16FF7)] if "digits" in path else []
    print(f"{len(every)} code points, {len(found)} differ ({len(known)} known)")
    if any(p not in known for p in found):
        sys.exit(" ".join(f"{p:X}" for p in found[:50]))


def speed(program, path, text_path):
    """The library has texts of 4000 characters: longer ones are slower there.

    Files of characters are the library's quicker ones, as they have no pattern
    to divide words by: the goal of ten times is for those of bytes."""
    least = 4 if "characters" in path else 10
    tokenizer = Tokenizer.from_file(path)
    text = open(text_path, errors="replace").read()[:1000000]
    parts = [text[i:i + 4000] for i in range(0, len(text), 4000)]
    best = 0
    for _ in range(2):
        begun = time.process_time()
        for part in parts:
            tokenizer.encode(part, add_special_tokens=False)
        best = max(best, len(text.encode()) / 1e6 / (time.process_time() - begun))
    ours = float(subprocess.run([program, path, text_path], check=True, capture_output=True,
                                text=True).stdout)
    print(f"ours {ours:.1f} MB/s, theirs {best:.2f} MB/s, per core: {ours / best:.1f} times")
    if ours < least * best:
        sys.exit(f"less than {least} times")


def main():
    command, *rest = sys.argv[1:]
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if command == "make":
        make(rest[0], rest[1:])
        every_pair(rest[0])
        every_edge(rest[0])
    elif command == "compare":
        compare(rest[0], rest[1], int(rest[2]), rest[3:])
    elif command == "patterns":
        patterns(*rest)
    elif command == "points":
        points(*rest)
    elif command == "speed":
        speed(*rest)
    elif command == "ids":
        text = open(rest[1], "rb").read().decode(errors="replace")
        print(*Tokenizer.from_file(rest[0]).encode(text, add_special_tokens=False).ids)


main()
