"""The loss of fine-tuning data beside transformers'.

    sft.py make ARCH DIR VOCAB     a tiny model with random weights, saved
    sft.py loss DIR SET            its mean loss over the learned tokens of the
                                   data set, each document by itself
    sft.py close A B               two losses within 1e-5 of each other
"""
import json
import os
import struct
import sys


def arrays(path):
    """The samples of a data set, as dictionaries of lists."""
    index = json.load(open(os.path.join(path, "index.json")))
    for shard in index["shards"]:
        data = open(os.path.join(path, shard["raw_data"]["basename"]), "rb").read()
        names, kinds = shard["column_names"], shard["column_encodings"]
        (count,) = struct.unpack_from("<I", data)
        offsets = struct.unpack_from("<%dI" % (count + 1), data, 4)
        for begin in offsets[:-1]:
            sizes = struct.unpack_from("<%dI" % len(names), data, begin)
            at = begin + 4 * len(names)
            sample = {}
            for name, kind, size in zip(names, kinds, sizes):
                head = 1 + (1 << (data[at] & 3))  # the number of items: 1 to 8 bytes
                letter = {"ndarray:int32": "i", "ndarray:uint8": "B"}[kind]
                items = (size - head) // struct.calcsize(letter)
                sample[name] = struct.unpack_from("<%d%s" % (items, letter), data, at + head)
                at += size
            yield sample


def make(arch, path, vocab):
    import torch
    import transformers

    torch.manual_seed(7)
    config = {
        "llama": lambda: transformers.LlamaConfig(
            vocab_size=vocab, hidden_size=64, intermediate_size=176, num_hidden_layers=3,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
            initializer_range=0.2),
        "mpt": lambda: transformers.MptConfig(
            vocab_size=vocab, d_model=64, n_heads=4, n_layers=3, max_seq_len=128,
            no_bias=True, initializer_range=0.2),
    }[arch]()
    model = transformers.AutoModelForCausalLM.from_config(config)
    for parameter in model.parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(path)


def loss(path, data):
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    total, learned = 0.0, 0
    for sample in arrays(data):
        begin = 0
        for length in sample["lengths"]:
            tokens = torch.tensor(sample["tokens"][begin:begin + length])
            mask = torch.tensor(sample["loss_mask"][begin:begin + length]).bool()
            begin += length
            with torch.no_grad():
                logits = model(tokens[None]).logits[0].double()
            nll = torch.nn.functional.cross_entropy(logits[:-1], tokens[1:], reduction="none")
            total += nll[mask[1:]].sum().item()
            learned += int(mask[1:].sum())
    print("%.9f" % (total / learned))


def close(a, b):
    print("%s, transformers %s" % (a, b))
    return abs(float(a) - float(b)) <= 1e-5 * abs(float(b))


if __name__ == "__main__":
    what, arguments = sys.argv[1], sys.argv[2:]
    if what == "make":
        make(arguments[0], arguments[1], int(arguments[2]))
    elif what == "loss":
        loss(*arguments)
    elif not close(*arguments):
        sys.exit(1)
