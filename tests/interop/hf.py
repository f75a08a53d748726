"""Python's side of hf.sh: files of the safetensors library with numpy, and
configurations by the classes of transformers; PyTorch is not needed."""
import json
import os
import sys

import numpy
import safetensors
import safetensors.numpy
from safetensors import TensorSpec, serialize_file

TYPES = {"F32": numpy.float32, "F16": numpy.float16, "I64": numpy.int64,
         "U8": numpy.uint8, "F64": numpy.float64, "I32": numpy.int32}


def crc32c(data):
    table = []
    for i in range(256):
        for _ in range(8):
            i = i >> 1 ^ (0x82F63B78 if i & 1 else 0)
        table.append(i)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def show(name, dtype, shape, data):
    print(name, dtype, "x".join(map(str, shape)), "%08x" % crc32c(data))


def spec(dtype, value):
    return TensorSpec(dtype=dtype, shape=value.shape,
                      data_ptr=value.ctypes.data, data_len=value.nbytes)


def make(path):
    """Every dtype, halves of all patterns, odd sizes, an empty one, a number."""
    random = numpy.random.default_rng(5)
    bits = numpy.arange(65536, dtype=numpy.uint16)
    tensors = {name: random.integers(-99, 99, (3, 5, 7)).astype(kind)
               for name, kind in TYPES.items()}
    tensors["halves"] = bits.view(numpy.float16)
    tensors["empty"] = numpy.zeros((0, 4), numpy.float32)
    tensors["number"] = numpy.array(3.5, numpy.float32)
    tensors["odd"] = random.integers(0, 99, 13).astype(numpy.uint8)
    everything = {name: spec(str(value.dtype), value)
                  for name, value in tensors.items()}
    everything["brain"] = spec("bfloat16", bits.reshape(256, 256))
    serialize_file(everything, path, {"format": "pt", "note": "{\"}"})


def reals(path):
    """Floats of which 16 bits are not enough: all kinds of rounding."""
    random = numpy.random.default_rng(6)
    values = random.integers(0, 1 << 32, 200000, dtype=numpy.uint32)
    exponents = values >> 23 & 255
    values = values[(exponents > 80) & (exponents < 142)]
    safetensors.numpy.save_file({"x": values.view(numpy.float32)}, path)


def raw(folder):
    """Name to dtype, shape and bytes, by the library's own parser."""
    found = {}
    index = os.path.join(folder, "model.safetensors.index.json")
    files = ["model.safetensors"]
    if os.path.isdir(folder) and os.path.exists(index):
        weights = json.load(open(index))["weight_map"]
        files = sorted(set(weights.values()))
    for file in files:
        path = os.path.join(folder, file) if os.path.isdir(folder) else folder
        for name, value in safetensors.deserialize(open(path, "rb").read()):
            found[name] = (value["dtype"], value["shape"],
                           bytes(value["data"]))
            if len(files) > 1:
                assert weights[name] == file, name
    return found


def rounded(path, folder):
    """What ours rounded is what numpy's float16 and the sum of half a unit of
    bfloat16 make of it."""
    value = safetensors.numpy.load_file(path)["x"]
    got = raw(folder)["x"]
    if got[0] == "F16":
        with numpy.errstate(over="ignore"):
            want = value.astype(numpy.float16).tobytes()
    else:
        bits = value.view(numpy.uint32)
        want = (bits + 0x7FFF + (bits >> 16 & 1) >> 16).astype(numpy.uint16)
        want = want.tobytes()
    assert want == got[2]


LLAMA = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, vocab_size=100)
SHAPES = {
    "LlamaConfig": LLAMA,
    "LlamaConfig-biases": dict(LLAMA, attention_bias=True, mlp_bias=True,
                               hidden_act="gelu_new"),
    "LlamaConfig-linear": dict(LLAMA, rope_scaling=dict(
        rope_type="linear", factor=3.0)),
    "LlamaConfig-llama3": dict(LLAMA, rope_scaling=dict(
        rope_type="llama3", factor=8.0, low_freq_factor=1.0,
        high_freq_factor=4.0, original_max_position_embeddings=1024)),
    "MistralConfig": dict(LLAMA, sliding_window=None),
    "MistralConfig-window": dict(LLAMA, sliding_window=64),
    "Olmo3Config": dict(LLAMA, sliding_window=64, num_hidden_layers=4),
    "Gemma3TextConfig": dict(LLAMA, sliding_window=64, num_hidden_layers=6, head_dim=32),
    "Qwen2Config": dict(LLAMA, tie_word_embeddings=True),
    "Qwen3Config": dict(LLAMA, head_dim=32),
    "Qwen3MoeConfig": dict(LLAMA, head_dim=32, num_experts=4, num_experts_per_tok=2,
                           moe_intermediate_size=32),
    "Olmo2Config": LLAMA,
    "SmolLM3Config": dict(LLAMA, no_rope_layer_interval=2, pad_token_id=0),
    "Qwen2Config-yarn": dict(LLAMA, rope_scaling=dict(
        rope_type="yarn", factor=4.0, original_max_position_embeddings=512)),
    "GPT2Config": dict(n_embd=64, n_layer=2, n_head=4, vocab_size=100),
    "GPT2Config-erf": dict(n_embd=64, n_layer=2, n_head=4, vocab_size=100,
                           activation_function="gelu"),
    "MptConfig": dict(d_model=64, n_layers=2, n_heads=4, vocab_size=100),
    "MixtralConfig": dict(LLAMA, num_local_experts=4),
    "DbrxConfig": dict(d_model=64, n_layers=2, n_heads=4, vocab_size=100,
                       attn_config=dict(kv_n_heads=2, clip_qkv=8.0),
                       ffn_config=dict(ffn_hidden_size=96, moe_num_experts=4,
                                       moe_top_k=2)),
}


def make_config(name, folder):
    import transformers
    kind = name.split("-")[0]
    config = getattr(transformers, kind)(**SHAPES[name])
    config.architectures = [kind.replace("TextConfig", "Config").replace("Config", "ForCausalLM")]
    if kind == "GPT2Config":
        config.architectures = ["GPT2LMHeadModel"]
    config.save_pretrained(folder)


def same_config(ours, theirs):
    """Every attribute of what we wrote, read by transformers, is theirs."""
    import transformers
    a = transformers.AutoConfig.from_pretrained(ours).to_dict()
    b = transformers.AutoConfig.from_pretrained(theirs).to_dict()
    for part in ("attn_config", "ffn_config"):  # of old versions, too
        a.get(part, {}).pop("rope_theta", None)
    ignored = {"dtype", "torch_dtype", "_name_or_path", "transformers_version",
               "head_dim", "n_inner", "num_key_value_heads", "bos_token_id",
               "eos_token_id"}
    wrong = [(key, a.get(key), b.get(key)) for key in sorted(set(a) | set(b))
             if key not in ignored and a.get(key) != b.get(key)]
    assert not wrong, wrong


def main(command, *rest):
    if command == "list":
        for name, (dtype, shape, data) in sorted(
                raw(rest[0]).items(), key=lambda item: item[0].encode()):
            show(name, dtype, shape, data)
    elif command == "names":
        print("\n".join(SHAPES))
    else:
        globals()[command](*rest)


main(*sys.argv[1:])
