"""beside.py ENCODE: a tokenizer.json of the Hugging Face library with files beside it,
as transformers' AutoTokenizer reads them and as we do: the same tokens, or refused."""
import json
import os
import struct
import subprocess
import sys
import tempfile

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer


def said(content, **flags):
    return {"content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": False, **flags}


# Bytes are 0 to 255, "xy" 256, "yz" 257; added tokens "<a>" 258, special, and "<b>" 259.
# What tokenizer_config.json and special_tokens_map.json have; whether it is refused.
ROWS = {
    "nothing": ({}, {}, False),
    "the same": ({"added_tokens_decoder": {"258": said("<a>", special=True)}}, {}, False),
    "other flags": ({"added_tokens_decoder": {
        "258": said("<a>", rstrip=True), "259": said("<b>", lstrip=True, special=True)}}, {}, False),
    "a whole word": ({"added_tokens_decoder": {"259": said("<b>", single_word=True)}}, {}, False),
    "of the vocabulary": ({"added_tokens_decoder": {"256": said("xy"), "257": said(
        "yz", special=True)}, "eos_token": "xy"}, {}, False),
    "behind all": ({"added_tokens_decoder": {"261": said("<d>"), "260": said(
        "<c>", special=True, rstrip=True)}}, {}, False),
    "text alone": ({"added_tokens_decoder": {"260": {"content": "<c>"}}}, {}, False),
    "named, not special": ({"added_tokens_decoder": {"260": said("<c>")},
                            "pad_token": "<c>", "eos_token": "<b>"}, {}, False),
    "no map beside it": ({"added_tokens_decoder": {}}, {"eos_token": "xy"}, False),
    "a map": ({}, {"eos_token": "xy", "additional_special_tokens": ["yz"]}, False),
    "another number": ({"added_tokens_decoder": {"262": said("<c>")}}, {}, True),
    "a token's number": ({"added_tokens_decoder": {"257": said("xy")}}, {}, True),
    "nowhere": ({}, {"additional_special_tokens": ["<c>"]}, True),
}
TEXTS = ["<a> x<b>y", "a <b> c <a>d", "x<b>", "xyz xyyz", "a<c> <d>  b<c>", "yz<a>  \n<b>xy"]


def make(folder, config, special):
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {**{c: i for i, c in enumerate(letters)}, "xy": 256, "yz": 257}
    tokenizer = Tokenizer(models.BPE(vocab, [("x", "y"), ("y", "z")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens([AddedToken("<a>", normalized=False, special=True)])
    tokenizer.add_tokens([AddedToken("<b>", normalized=False)])
    tokenizer.save(folder + "/tokenizer.json")
    for name, value in (("tokenizer_config", {"tokenizer_class": "PreTrainedTokenizerFast", **config}),
                        ("special_tokens_map", special)):
        with open(f"{folder}/{name}.json", "w") as file:
            json.dump(value, file)


def ours(program, folder):
    data = b"".join(struct.pack("=II", 1, len(t)) + t.encode() for t in TEXTS)
    ran = subprocess.run([program, folder], input=data, capture_output=True)
    if ran.returncode != 0:
        return None
    out, found = ran.stdout, []
    for _ in TEXTS:
        n = struct.unpack_from("=I", out)[0]
        found.append(list(struct.unpack_from(f"={n}i", out, 4)))
        out = out[4 + 4 * n:]
        out = out[4 + struct.unpack_from("=I", out)[0]:]
    return found


for name, (config, special, refused) in ROWS.items():
    with tempfile.TemporaryDirectory() as folder:
        make(folder, config, special)
        theirs = AutoTokenizer.from_pretrained(folder)
        want = [theirs.encode(t, add_special_tokens=False) for t in TEXTS]
        got = ours(sys.argv[1], folder)
        assert got == (None if refused else want), f"{name}: {got} and not {want}"
        if os.environ.get("SHOW"):
            print(name, theirs.backend_tokenizer.get_added_tokens_decoder())
print(f"{len(ROWS)} folders, {len(TEXTS)} texts each")
