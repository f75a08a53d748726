"""The peer of pieces.sh: the library, whose models are trained here.

    pieces.py make FOLDER TEXT       models of several kinds
    pieces.py compare ENCODE MODEL TEXT...  tokens and texts, beside ours
"""
import io
import random
import struct
import subprocess
import sys

import sentencepiece

SAME = dict(model_type="bpe", normalization_rule_name="identity",
            remove_extra_whitespaces=False, byte_fallback=True, vocab_size=2000)
KINDS = {
    "llama": dict(SAME, split_digits=True, allow_whitespace_only_pieces=True,
                  character_coverage=0.9995),
    "no-prefix": dict(SAME, add_dummy_prefix=False, character_coverage=0.99),
    "across": dict(SAME, split_by_whitespace=False, split_by_unicode_script=False,
                   split_by_number=False, vocab_size=3000),
    "no-bytes": dict(SAME, byte_fallback=False, character_coverage=0.98),
    "names": dict(SAME, bos_piece="<begin>", eos_piece="<end>", control_symbols=["[INST]"]),
    "unigram": dict(SAME, model_type="unigram"),
    "nmt": dict(SAME, normalization_rule_name="nmt_nfkc"),
    "squeezed": dict(SAME, remove_extra_whitespaces=True),
    "users": dict(SAME, user_defined_symbols=["<sep>"]),
    "suffix": dict(SAME, treat_whitespace_as_suffix=True),
}


def make(folder, path):
    lines = open(path, errors="replace").read()[:400000].splitlines()
    for name, options in KINDS.items():
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(line for line in lines if line.strip()), model_writer=model,
            minloglevel=2, num_threads=1, hard_vocab_limit=False, **options)
        with open(f"{folder}/{name}.model", "wb") as file:
            file.write(model.getvalue())


def texts(paths):
    draw = random.Random(11)
    whole = [open(path, errors="replace").read() for path in paths]
    pools = ["  \t\n", "abcXYZ ", "0123456789", ".,=-_(){}<>/", "éüñ日本語한국어😀", "aab ▁"]
    for _ in range(1500):
        text = draw.choice(whole)
        at = draw.randrange(len(text))
        yield text[at:at + draw.randrange(400)]
        yield "".join(draw.choice(draw.choice(pools)) for _ in range(draw.randrange(60)))
        yield draw.choice("= -#a0") * draw.randrange(40) + draw.choice(["", " x", "\n"])


def compare(program, path, paths):
    theirs = sentencepiece.SentencePieceProcessor(model_file=path)
    ours = subprocess.Popen([program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    count = tokens = 0
    for text in texts(paths):
        text = text.replace("\0", "")
        data = text.encode()
        ours.stdin.write(struct.pack("=II", 0, len(data)) + data)
        ours.stdin.flush()
        n = struct.unpack("=I", ours.stdout.read(4))[0]
        got = list(struct.unpack(f"={n}i", ours.stdout.read(4 * n)))
        back = ours.stdout.read(struct.unpack("=I", ours.stdout.read(4))[0])
        want = theirs.encode(text)
        assert got == want, f"{text!r}: {got} and not {want}"
        if theirs.unk_id() not in want and "▁" not in text:
            assert back == data, f"{text!r}: comes back as {back!r}"
        count += 1
        tokens += n
    print(f"{count} texts, {tokens} tokens", end="")


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2], sys.argv[3])
    else:
        compare(sys.argv[2], sys.argv[3], sys.argv[4:])
