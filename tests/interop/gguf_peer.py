"""GGUF files beside the gguf package, and tokenizers made of them beside those
that transformers makes: see gguf.sh."""
import os
import random
import struct
import subprocess
import sys

import numpy as np

import gguf
from gguf.quants import dequantize, quantize

TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]
# where the scales of a block are
SCALES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}


def make(path):
    """Every kind of value and every type of tensor, of random bytes."""
    rng = np.random.default_rng(5)
    writer = gguf.GGUFWriter(path, "llama")
    for kind in ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]:
        info = np.iinfo(kind)
        getattr(writer, "add_" + kind)("least." + kind, int(info.min))
        getattr(writer, "add_" + kind)("most." + kind, int(info.max))
    writer.add_float32("float32", 0.1)
    writer.add_float64("float64", 0.1)
    writer.add_bool("bool", True)
    writer.add_string("string", "Gr\u00fc\u00dfe \U0001f600")
    writer.add_array("texts", ["a", "", "\u4e2d"])
    writer.add_array("numbers", [1, -2, 3])
    writer.add_array("reals", [0.5, -2.0])
    for name in TYPES:
        kind = gguf.GGMLQuantizationType[name]
        numbers, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = rng.integers(0, 256, (3, 2048 // numbers, size), dtype=np.uint8)
        for scale in SCALES.get(name, []):
            # of any size, but finite
            large = (blocks[..., scale + 1] & 0x7C) == 0x7C
            blocks[..., scale + 1][large] &= 0xBF
        if name in ("F32", "BF16", "F16"):
            blocks[..., -1] &= 0xBF
        # a tensor of one row as well
        writer.add_tensor("t." + name, blocks.reshape(3, -1), raw_dtype=kind)
        writer.add_tensor("row." + name, blocks[0].reshape(-1), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def floats_of(tensor):
    with np.errstate(over="ignore", invalid="ignore"):
        data = np.ascontiguousarray(tensor.data)
        return dequantize(data.view(np.uint8), tensor.tensor_type).astype("<f4")


def floats(program, path):
    """The floats of all tensors, bit for bit."""
    with subprocess.Popen([program, "floats", path], stdout=subprocess.PIPE) as child:
        count = 0
        for tensor in gguf.GGUFReader(path).tensors:
            theirs = floats_of(tensor).ravel()
            ours = np.frombuffer(child.stdout.read(theirs.nbytes), "<f4")
            if ours.size != theirs.size:
                sys.exit(f"{tensor.name}: {ours.size} floats, not {theirs.size}")
            wrong = (ours.view("<u4") != theirs.view("<u4")) & ~(np.isnan(ours) & np.isnan(theirs))
            if wrong.any():
                at = int(np.argmax(wrong))
                sys.exit(f"{tensor.name} ({tensor.tensor_type.name}): number {at} is {ours[at]!r}, not {theirs[at]!r}")
            count += ours.size
        if child.stdout.read(1):
            sys.exit("more floats than there are")
    if child.returncode != 0:
        sys.exit(child.returncode)
    print(count, "floats")


def copy(program, path, out, name):
    """Keys are the same, and blocks are those of the package."""
    subprocess.run([program, "copy", path, out, name], check=True)
    theirs, ours = gguf.GGUFReader(path), gguf.GGUFReader(out)
    if list(theirs.fields) != list(ours.fields):
        sys.exit("other keys")
    for key, field in theirs.fields.items():
        if field.types != ours.fields[key].types or field.contents() != ours.fields[key].contents():
            sys.exit(f"{key}: {ours.fields[key].contents()}, not {field.contents()}")
    size = 0
    for a, b in zip(theirs.tensors, ours.tensors, strict=True):
        kind = gguf.GGMLQuantizationType[name if len(a.shape) > 1 else "F32"]
        if a.name != b.name or list(a.shape) != list(b.shape) or b.tensor_type != kind:
            sys.exit(f"{b.name}: {b.shape} {b.tensor_type.name}")
        want = quantize(floats_of(a), kind)
        got = b.data
        if np.ascontiguousarray(want).tobytes() != np.ascontiguousarray(got).tobytes():
            sys.exit(f"{b.name}: other blocks")
        size += got.nbytes
    os.remove(out)
    print(size, "bytes")


def texts_of(count):
    rng = random.Random(3)
    words = ["the", " model", "Hello", " world", "'s", "  ", "\n\n", "\t", "1", "23", "4567", " 89", "<|im_start|>",
             "<|im_end|>", "user", "\u00fc", "\u4e2d\u6587", "\U0001f600", "!?", " ...", "def f(x):", "\u0663", "\u00bd", "_", "\r\n"]
    for _ in range(count):
        yield "".join(rng.choice(words) if rng.random() < 0.8 else chr(rng.randrange(32, 0x2FFF))
                      for _ in range(rng.randrange(1, 40)))


def tokens(encode, path, folder, count):
    """Tokens of the tokenizer that transformers makes, with digits one by one,
    which it leaves out."""
    from tokenizers import pre_tokenizers
    from transformers.integrations.ggml import convert_gguf_tokenizer
    fields = gguf.GGUFReader(path).fields
    named = {"tokens": "tokens", "merges": "merges", "token_type": "token_type", "bos_token_id": "bos_token_id",
             "eos_token_id": "eos_token_id", "unknown_token_id": "unk_token_id"}
    values = {to: fields["tokenizer.ggml." + of].contents() for of, to in named.items()}
    values["tokenizer_type"] = fields["tokenizer.ggml.model"].contents()
    theirs, _ = convert_gguf_tokenizer("llama", values)
    as_made = theirs.pre_tokenizer
    digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), as_made])
    total = 0
    with subprocess.Popen([encode, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        def number():
            return struct.unpack("<I", child.stdout.read(4))[0]
        for text in texts_of(int(count)):
            data = text.encode()
            child.stdin.write(struct.pack("<II", 1, len(data)) + data)
            child.stdin.flush()
            got = list(struct.unpack(f"<{(n := number())}I", child.stdout.read(4 * n)))
            back = child.stdout.read(number()).decode(errors="replace")
            plain = not any(c.isnumeric() for c in text)
            theirs.pre_tokenizer = as_made if plain else digits
            want = theirs.encode(text, add_special_tokens=False).ids
            if got != want:
                sys.exit(f"{text!r}: {got}, not {want}")
            if back != text:
                sys.exit(f"{text!r} comes back as {back!r}")
            total += len(got)
        child.stdin.close()
    print(total, "tokens")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
