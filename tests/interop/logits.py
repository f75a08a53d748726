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
QWEN3_MOE = dict(SMALL, head_dim=32, moe_intermediate_size=48, num_experts=6,
                 num_experts_per_tok=3, norm_topk_prob=True)
# as versions of transformers agree on: of max_position_embeddings
YARN = {"rope_type": "yarn", "factor": 4.0, "beta_fast": 16.0,
        "original_max_position_embeddings": 32}
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
    "llama-wide-heads": ("Llama", dict(SMALL, head_dim=24)),
    "mistral-narrow-heads": ("Mistral", dict(SMALL, sliding_window=None, head_dim=8)),
    "qwen3": ("Qwen3", dict(SMALL, head_dim=32)),
    "qwen3-moe": ("Qwen3Moe", QWEN3_MOE),
    "qwen3-moe-raw": ("Qwen3Moe", dict(QWEN3_MOE, norm_topk_prob=False)),
    "olmo2": ("Olmo2", SMALL),
    "mistral-window": ("Mistral", dict(SMALL, sliding_window=5)),
    "mixtral-window": ("Mixtral", dict(SMALL, num_local_experts=4,
                                       sliding_window=7)),
    "phi3-window": ("Phi3", dict(SMALL, pad_token_id=0, sliding_window=6)),
    "olmo3": ("Olmo3", dict(SMALL, num_hidden_layers=4, sliding_window=5)),
    "olmo3-yarn": ("Olmo3", dict(SMALL, num_hidden_layers=4, sliding_window=9,
                                 rope_scaling=YARN)),
    "gemma3": ("Gemma3", dict(SMALL, num_hidden_layers=7, sliding_window=5, head_dim=24,
                              query_pre_attn_scalar=20)),
    "gemma3-linear": ("Gemma3", dict(SMALL, sliding_window=6, head_dim=32,
                                     layer_types=["sliding_attention", "full_attention",
                                                  "sliding_attention"],
                                     rope_scaling=LINEAR)),
    "smollm3": ("SmolLM3", dict(SMALL, num_hidden_layers=4, pad_token_id=0,
                                no_rope_layer_interval=2)),
    "phi3": ("Phi3", dict(SMALL, pad_token_id=0)),
    "qwen2-yarn": ("Qwen2", dict(SMALL, rope_scaling=YARN)),
    "llama-yarn": ("Llama", dict(SMALL, rope_scaling=dict(
        YARN, beta_fast=4.0, beta_slow=0.5, attention_factor=1.3))),
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
    config = getattr(transformers, kind + ("TextConfig" if kind == "Gemma3"
                                           else "Config"))(**settings)
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


PROMPTS = [
    "The capital of France is", "Once upon a time", "In the year 1969",
    "Water boils at", "My favourite recipe for bread", "The mitochondria are",
    "def fibonacci(n):", "Dear Sir or Madam,", "The three laws of motion",
    "To be, or not to be", "How do I learn to play the piano?",
    "The stock market fell today because", "A triangle has",
    "Shakespeare was born in", "The recipe calls for two eggs",
    "It was raining when", "Photosynthesis is the process",
    "The largest planet of the solar system", "1, 2, 3, 4,",
    "She opened the door and",
]


def load(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, torch_dtype=torch.float32).eval()


def ours(program, mode, folder, sequences, kind, *rest):
    data = b"".join(numpy.array([len(row), *row], numpy.int32).tobytes()
                    for row in sequences)
    made = subprocess.run([program, mode, folder, *rest], check=True,
                          input=data, capture_output=True)
    return numpy.frombuffer(made.stdout, kind)


def compare(program, folder, limit):
    """Logits of the model that generates, losses of the one that trains."""
    model = load(folder)
    words = model.config.vocab_size
    tokens = numpy.random.default_rng(3).integers(0, words, (4, 48))
    with torch.no_grad():
        logits = torch.cat([model(row[None]).logits
                            for row in torch.from_numpy(tokens)])
    chances = torch.log_softmax(logits.double(), -1)[:, :-1]
    wanted = torch.from_numpy(tokens[:, 1:, None])
    losses = -chances.gather(2, wanted)[..., 0].numpy()
    logits = logits.numpy()
    far = {}
    for mode, want, kind in (("logits", logits, numpy.float32),
                             ("losses", losses, numpy.float64)):
        got = ours(program, mode, folder, tokens, kind).reshape(want.shape)
        far[mode] = abs(got - want).max() / (want.max() - want.min())
    text = "logits from %.1f to %.1f: %.1e of the range, losses %.1e" % (
        logits.min(), logits.max(), far["logits"], far["losses"])
    assert max(far.values()) <= limit, text
    return text


def greedy(program, folder, count):
    """The same tokens after 20 prompts."""
    model = load(folder)
    model.generation_config.eos_token_id = None  # goes on behind an end
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    prompts = [tokenizer(text)["input_ids"] for text in PROMPTS]
    want = []
    for row in prompts:
        made = model.generate(
            torch.tensor([row]), do_sample=False, max_new_tokens=count,
            pad_token_id=0, repetition_penalty=1.0)
        want.append(made[0, len(row):].numpy())
    got = ours(program, "greedy", folder, prompts, numpy.int32, str(count))
    wrong = [text for text, a, b in
             zip(PROMPTS, got.reshape(len(prompts), count), want)
             if (a != b).any()]
    assert not wrong, wrong
    return "%d tokens" % got.size


def again(program, folder):
    """What our export makes of the folder gives transformers the same logits."""
    subprocess.run([program, "export", folder, "--out", folder + ".out"],
                   check=True, capture_output=True)
    before, after = load(folder), load(folder + ".out")
    tokens = torch.arange(48)[None] * 7 % before.config.vocab_size
    with torch.no_grad():
        a, b = before(tokens).logits, after(tokens).logits
    far = float((a - b).abs().max() / (a.max() - a.min()))
    assert far <= 1e-6, "exported: logits differ by %.1e of the range" % far
    return "; exported %s: %.1e" % (type(after).__name__, far)


def small(program, root, exporter):
    """One line a model: its name, "ok" or "failed", and what was found."""
    for name in MODELS:
        folder = os.path.join(root, name)
        try:
            make(name, folder)
            text = "ok " + compare(program, folder, 1e-5)
            text += again(exporter, folder)
        except AssertionError as error:
            text = "failed " + str(error)
        except subprocess.CalledProcessError as error:
            text = "failed " + error.stderr.decode().replace("\n", " ")
        print(name, text, flush=True)


def main(command, *rest):
    if command == "list":
        print(*MODELS)
    elif command == "small":
        small(*rest)
    elif command == "greedy":
        print(greedy(*rest[:2], int(rest[2])))
    else:
        print(compare(*rest[:2], float(rest[2])))


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    main(*sys.argv[1:])
