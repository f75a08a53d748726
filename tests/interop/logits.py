"""transformers' side of logits.sh: small models of every architecture, and what
they make of tokens."""
import os
import subprocess
import sys

import numpy
import torch
import transformers

SMALL = dict(vocab_size=97, hidden_size=64, intermediate_size=112,
             num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=128)
LINEAR = {"rope_type": "linear", "factor": 3.0}
# of 48 positions: some pairs of a head turn often, some less than once
LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
MPT = dict(vocab_size=97, d_model=64, n_layers=3, n_heads=4, max_seq_len=128)
DBRX = dict(vocab_size=97, d_model=64, n_layers=3, n_heads=4, max_seq_len=128)
DBRX_FFN = dict(ffn_hidden_size=48, moe_num_experts=6, moe_top_k=3)
DBRX_ATTENTION = dict(kv_n_heads=2, clip_qkv=1.0, rope_theta=5e3)
GPT2 = dict(vocab_size=97, n_embd=64, n_layer=3, n_head=4, n_positions=128)

MODELS = {
    "llama": ("Llama", SMALL),
    "llama-tied": ("Llama", dict(SMALL, tie_word_embeddings=True)),
    "llama-linear": ("Llama", dict(SMALL, rope_scaling=LINEAR)),
    "llama-llama3": ("Llama", dict(SMALL, rope_scaling=LLAMA3)),
    "llama-attention-bias": ("Llama", dict(SMALL, attention_bias=True)),
    "llama-mlp-bias": ("Llama", dict(SMALL, mlp_bias=True)),
    "llama-gelu": ("Llama", dict(SMALL, hidden_act="gelu_pytorch_tanh")),
    "mistral": ("Mistral", dict(SMALL, sliding_window=None)),
    "qwen2": ("Qwen2", dict(SMALL, tie_word_embeddings=True)),
    "gpt2": ("GPT2", GPT2),
    "gpt2-erf": ("GPT2", dict(GPT2, activation_function="gelu", n_inner=96)),
    "mpt": ("Mpt", MPT),
    # no power of two: slopes of both kinds
    "mpt-6-heads": ("Mpt", dict(MPT, d_model=96, n_heads=6)),
    "mpt-clip": ("Mpt", dict(MPT, attn_config=dict(clip_qkv=0.8))),
    "mixtral": ("Mixtral", dict(SMALL, num_local_experts=6,
                                num_experts_per_tok=3)),
    "mixtral-one": ("Mixtral", dict(SMALL, num_local_experts=4,
                                    num_experts_per_tok=1)),
    "dbrx": ("Dbrx", dict(DBRX, attn_config=DBRX_ATTENTION,
                          ffn_config=DBRX_FFN)),
    "dbrx-l2": ("Dbrx", dict(
        DBRX, attn_config=DBRX_ATTENTION,
        ffn_config=dict(DBRX_FFN, moe_normalize_expert_weights=2.0))),
    "dbrx-raw": ("Dbrx", dict(
        DBRX, attn_config=dict(DBRX_ATTENTION, clip_qkv=None),
        ffn_config=dict(DBRX_FFN, moe_normalize_expert_weights=None))),
}


def make(name, folder):
    """Random weights that matter: fresh ones give logits near 0, norms of 1 and
    biases of 0 could be forgotten."""
    kind, settings = MODELS[name]
    config = getattr(transformers, kind + "Config")(**settings)
    head = "GPT2LMHeadModel" if kind == "GPT2" else kind + "ForCausalLM"
    torch.manual_seed(7)
    model = getattr(transformers, head)(config).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.copy_(torch.randn_like(parameter) * 0.3 +
                                (parameter.abs().max() > 0).float())
            else:
                parameter.normal_(0, 1.2 / parameter.shape[-1] ** 0.5)
    model.save_pretrained(folder)


def losses(model, tokens):
    with torch.no_grad():
        logits = torch.cat([model(row[None]).logits for row in tokens])
    chances = torch.log_softmax(logits.double(), -1)[:, :-1]
    return -chances.gather(2, tokens[:, 1:, None])[..., 0].numpy()


def compare(program, folder, limit):
    length = 48
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, torch_dtype=torch.float32).eval()
    words = model.config.vocab_size
    tokens = torch.from_numpy(
        numpy.random.default_rng(3).integers(0, words, (4, length)))
    want = losses(model, tokens)
    made = subprocess.run(
        [program, folder, str(length)], check=True, stdout=subprocess.PIPE,
        input=tokens.numpy().astype(numpy.int32).tobytes())
    got = numpy.frombuffer(made.stdout, numpy.float64).reshape(want.shape)
    sums = abs(got.sum(1) - want.sum(1)) / want.sum(1)
    worst = abs(got - want).max() / (want.max() - want.min())
    text = ("%d losses, %.2f to %.2f: %.1e of the range, of a sequence %.1e"
            % (got.size, want.min(), want.max(), worst, sums.max()))
    assert worst <= limit and sums.max() <= limit, text
    return text


def small(program, root):
    """One line a model: its name, "ok" or "failed", and what was found."""
    for name in MODELS:
        folder = os.path.join(root, name)
        try:
            make(name, folder)
            text = "ok " + compare(program, folder, 1e-5)
        except (AssertionError, subprocess.CalledProcessError) as error:
            text = "failed " + str(error).replace("\n", " ")
        print(name, text, flush=True)


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    if sys.argv[1] == "list":
        print(*MODELS)
    elif sys.argv[1] == "small":
        small(*sys.argv[2:])
    else:
        print(compare(*sys.argv[2:4], float(sys.argv[4])))
