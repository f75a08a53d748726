"""The peers of models.sh: transformers and the gguf package."""

import os
import sys

import numpy
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
import transformers

SIZES = dict(vocab_size=96, max_position_embeddings=64)
LLAMA = dict(
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    **SIZES,
)

# name of the architecture's class, its settings
MODELS = {
    "llama": ("Llama", dict(LLAMA)),
    "llama-tied": ("Llama", dict(LLAMA, tie_word_embeddings=True, num_key_value_heads=4)),
    "llama-biases": ("Llama", dict(LLAMA, attention_bias=True, mlp_bias=True)),
    "llama-linear": (
        "Llama",
        dict(LLAMA, rope_scaling={"rope_type": "linear", "factor": 4.0}),
    ),
    "llama3": (
        "Llama",
        dict(
            LLAMA,
            rope_theta=500000.0,
            rope_scaling={
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
            },
        ),
    ),
    "mistral": ("Mistral", dict(LLAMA, sliding_window=None)),
    "mistral-window": ("Mistral", dict(LLAMA, sliding_window=8)),
    "olmo3": ("Olmo3", dict(LLAMA, sliding_window=8, num_hidden_layers=4)),
    "gemma3": ("Gemma3", dict(LLAMA, sliding_window=8, head_dim=32, query_pre_attn_scalar=24,
                              num_hidden_layers=7)),
    "qwen2": ("Qwen2", dict(LLAMA, use_sliding_window=False)),
    "olmo2": ("Olmo2", dict(LLAMA)),
    "smollm3": ("SmolLM3", dict(LLAMA, pad_token_id=0, no_rope_layer_interval=2)),
    "qwen2-yarn": ("Qwen2", dict(LLAMA, rope_scaling={
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16})),
    "qwen3": ("Qwen3", dict(LLAMA, head_dim=32)),
    "qwen3-moe": ("Qwen3Moe", dict(LLAMA, head_dim=32, num_experts=4, num_experts_per_tok=2,
                                   moe_intermediate_size=32, norm_topk_prob=True)),
    "mixtral": ("Mixtral", dict(LLAMA, num_local_experts=4)),
    "gpt2": ("GPT2", dict(vocab_size=96, n_positions=64, n_embd=64, n_layer=2, n_head=4)),
    "gpt2-gelu": (
        "GPT2",
        dict(
            vocab_size=96,
            n_positions=64,
            n_embd=64,
            n_layer=2,
            n_head=4,
            activation_function="gelu",
            n_inner=96,
        ),
    ),
    "mpt": ("Mpt", dict(vocab_size=96, max_seq_len=64, d_model=64, n_layers=2, n_heads=4)),
    "dbrx": (
        "Dbrx",
        dict(
            vocab_size=96,
            max_seq_len=64,
            d_model=64,
            n_layers=2,
            n_heads=4,
            attn_config=dict(kv_n_heads=2, rope_theta=10000.0),
            ffn_config=dict(
                ffn_hidden_size=96,
                moe_num_experts=4,
                moe_top_k=2,
                ffn_act_fn={"name": "silu"},
            ),
        ),
    ),
}
GGUF = ("llama", "llama-tied", "llama-biases", "llama-linear", "llama3", "mistral",
        "qwen2", "qwen2-yarn", "qwen3", "olmo2",
        "gpt2", "gpt2-gelu", "mpt")


def make(name, folder):
    """A random model, as transformers saves it."""
    kind, settings = MODELS[name]
    torch.manual_seed(sum(map(ord, name)))
    config = getattr(transformers, kind + ("TextConfig" if kind == "Gemma3" else "Config"))(**settings)
    model = getattr(
        transformers, kind + ("LMHeadModel" if kind == "GPT2" else "ForCausalLM")
    )(config)
    with torch.no_grad():  # norms and biases are 1 and 0 otherwise
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    model.save_pretrained(folder, max_shard_size="40KB" if len(name) % 2 else "1GB")


def state(folder, dtype):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    return {
        name: value for name, value in model.state_dict().items()
    }, model.config


def bits(value):
    sizes = {torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float16: torch.int16}
    return value.contiguous().view(sizes[value.dtype])


def make_all(folder):
    for name in MODELS:
        make(name, os.path.join(folder, name))


def same(dtype, left, right):
    """The weights that transformers loads from both folders are the same bits."""
    dtype = getattr(torch, dtype)
    a, a_config = state(left, torch.float32)
    b, b_config = state(right, dtype)
    assert b_config.dtype == dtype, b_config.dtype
    wrong = sorted(set(a) ^ set(b))
    assert not wrong, f"only one has {wrong[:5]}"
    for name in a:
        assert torch.equal(bits(a[name].to(dtype)), bits(b[name])), name
    print(f"{len(a)} tensors, {sum(v.numel() for v in a.values())} numbers")


def same_all(dtype, end, *folders):
    for folder in folders:
        same(dtype, folder, f"{folder}.{end}")


def chats(left, right, tokens=False):
    """Both folders' templates give the same chats, and their tokenizers the same
    tokens."""
    a = AutoTokenizer.from_pretrained(left)
    b = AutoTokenizer.from_pretrained(right)
    talks = [
        [{"role": "user", "content": "What is 2 + 2?"}],
        [
            {"role": "system", "content": "Be brief.\n"},
            {"role": "user", "content": "Привет, 世界! \u00e9\n\n"},
            {"role": "assistant", "content": "Hi."},
            {"role": "user", "content": "  And?"},
        ],
    ]
    for chat in talks:
        for prompt in (False, True):
            options = dict(tokenize=False, add_generation_prompt=prompt)
            assert a.apply_chat_template(chat, **options) == b.apply_chat_template(
                chat, **options
            ), chat
    for text in ("Hello world", " 12345 tests\n\tand\u3000more <|im_end|>x", "naïve été 🙂"):
        if not tokens:
            continue
        assert a(text).input_ids == b(text).input_ids, text
        assert b.decode(b(text, add_special_tokens=False).input_ids) == text, text
    print(f"{len(b)} tokens, bos {b.bos_token}, eos {b.eos_token}")


def texts(left, right):
    chats(left, right, tokens=True)


def exported(left, file, dtype):
    """A GGUF file, read by the gguf package, has a folder's weights and tokens."""
    from gguf import GGUFReader
    from gguf.quants import dequantize, quantize
    from gguf import GGMLQuantizationType as Q

    types = {"fp32": Q.F32, "bf16": Q.BF16, "fp16": Q.F16, "q8_0": Q.Q8_0}
    weights, config = state(left, torch.float32)
    reader = GGUFReader(file)
    arch = reader.fields["general.architecture"].contents()
    heads = reader.fields[f"{arch}.attention.head_count"].contents()
    kv_heads = reader.fields[f"{arch}.attention.head_count_kv"].contents()
    found = {}
    for tensor in reader.tensors:
        if tensor.name == "rope_freqs.weight":
            ways = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS
            plain, scaled = (ways[way](config, "cpu")[0].numpy() for way in ("default", "llama3"))
            assert numpy.allclose(tensor.data, plain / scaled, rtol=1e-5), tensor.data
            continue
        want = Q.F32 if len(tensor.shape) == 1 or tensor.name == "position_embd.weight" else types[dtype]
        assert tensor.tensor_type == want, (tensor.name, tensor.tensor_type)
        found[tensor.name] = (want, dequantize(tensor.data, want))
    for name, (kind, values) in found.items():
        value = original(weights, arch, name, heads, kv_heads)
        value = dequantize(quantize(value, kind), kind)
        assert values.shape == value.shape, (name, values.shape, value.shape)
        assert numpy.array_equal(values.view(numpy.uint32), value.view(numpy.uint32)), name
    total = sum(v.size for _, v in found.values())
    unique = {v.data_ptr(): v.numel() for v in weights.values()}
    assert total == sum(unique.values()), (total, sum(unique.values()))
    print(f"{len(found)} tensors, {total} numbers, {arch}")


def exported_all(dtype, *folders):
    for folder in folders:
        exported(folder, f"{folder}.{dtype}.gguf", dtype)


def pairs(value, heads):
    """Rows of halves as rows of pairs, as converters permute them."""
    rows = value.shape[0]
    rest = value.shape[1:]
    return (
        value.reshape(heads, 2, rows // heads // 2, *rest)
        .swapaxes(1, 2)
        .reshape(value.shape)
    )


def original(weights, arch, name, heads, kv_heads):
    """What the gguf package's own table calls this tensor, as its converters
    write it."""
    import gguf

    arches = {v: k for k, v in gguf.MODEL_ARCH_NAMES.items()}
    blocks = int(name.split(".")[1]) + 1 if name.startswith("blk.") else 1
    table = gguf.get_tensor_name_map(arches[arch], blocks)
    for theirs, value in weights.items():
        stem, _, suffix = theirs.rpartition(".")
        for prefix in ("", "model."):
            mapped = table.get_name((prefix + stem) if prefix else stem)
            if mapped and mapped + "." + suffix == name:
                value = value.float().numpy()
                if arch == "gpt2" and value.ndim == 2 and ".c_" in theirs:
                    value = value.T
                if arch == "llama" and ".q_proj" in theirs:
                    value = pairs(value, heads)
                if arch == "llama" and ".k_proj" in theirs:
                    value = pairs(value, kv_heads)
                return numpy.ascontiguousarray(value)
    raise AssertionError(f"{name} is no tensor of the model")


def loads(left, file):
    """transformers reads the GGUF file, and has the folder's weights."""
    a, _ = state(left, torch.float32)
    model = AutoModelForCausalLM.from_pretrained(
        os.path.dirname(file), gguf_file=os.path.basename(file), dtype=torch.float32
    )
    b = model.state_dict()
    assert set(a) == set(b), set(a) ^ set(b)
    for name in a:
        assert torch.equal(bits(a[name]), bits(b[name])), name
    print(f"{len(a)} tensors")


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "names":
        print(*MODELS)
    elif sys.argv[1] == "gguf":
        print(*GGUF)
    else:
        globals()[sys.argv[1]](*sys.argv[2:])
