"""peft's side of lora.sh: the same adapters on the same tokens."""
import subprocess
import sys

import numpy
import peft
import torch
import transformers

LENGTH = 24
STEPS = 20
RANK, ALPHA = 4, 12
LLAMA = dict(vocab_size=512, hidden_size=64, intermediate_size=112,
             num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64)
MPT = dict(vocab_size=512, d_model=64, n_layers=3, n_heads=4, max_seq_len=64)
MODELS = {
    "llama": ("Llama", LLAMA,
              "q_proj k_proj v_proj o_proj gate_proj up_proj down_proj"),
    "llama-qv": ("Llama", LLAMA, "q_proj v_proj"),
    # Wqkv is one layer there, and three adapters here
    "mpt": ("Mpt", MPT, "out_proj up_proj down_proj"),
}


def make(name, folder):
    torch.manual_seed(3)
    kind, settings, _ = MODELS[name]
    config = getattr(transformers, kind + "Config")(**settings)
    model = getattr(transformers, kind + "ForCausalLM")(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    model.save_pretrained(folder)


def tokens():
    generator = numpy.random.default_rng(11)
    return generator.integers(0, 97, (4, LENGTH)).astype(numpy.int32)


def load(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, torch_dtype=torch.float32, attn_implementation="eager")
    return model.eval()


def mean_loss(model):
    ids = torch.from_numpy(tokens().astype(numpy.int64))
    return model(input_ids=ids, labels=ids).loss


def their_name(ours):
    """transformer.blocks.0.attn.q_proj.lora_A.weight, in Llama or MPT."""
    llama = (ours.replace("transformer.blocks.", "model.layers.")
             .replace(".attn.out_proj", ".self_attn.o_proj")
             .replace(".attn.", ".self_attn.").replace(".ffn.", ".mlp."))
    return [n.replace(".weight", ".default.weight") for n in (ours, llama)]


def same(name, got, want, tolerance):
    error = abs(got - want).max() / max(abs(want).max(), 1e-30)
    assert error <= tolerance, f"{name}: {error:.2e}"
    return error


def compare(program, name, folder, out):
    targets = MODELS[name][2]
    run = subprocess.run(
        [program, "train", folder, out, str(RANK), str(ALPHA), str(LENGTH),
         str(STEPS), targets], input=tokens().tobytes(), check=True,
        stdout=subprocess.PIPE)
    ours = numpy.array([float(line) for line in run.stdout.split()])
    model = peft.get_peft_model(load(folder), peft.LoraConfig(
        r=RANK, lora_alpha=ALPHA, lora_dropout=0.0,
        target_modules=targets.split()))
    model.eval()
    there = dict(model.named_parameters())
    start = numpy.fromfile(f"{out}/start", numpy.float32)
    gradient = numpy.fromfile(f"{out}/gradient", numpy.float32)
    pairs = []
    for line in open(f"{out}/names"):
        ours_name, offset, rows, cols = line.split()
        where = slice(int(offset), int(offset) + int(rows) * int(cols))
        shape = (int(rows), int(cols))
        found = [there["base_model.model." + n]
                 for n in their_name(ours_name)
                 if "base_model.model." + n in there]
        assert len(found) == 1, ours_name
        found[0].data = torch.from_numpy(start[where].reshape(shape).copy())
        pairs.append((ours_name, found[0], gradient[where].reshape(shape)))
    trained = [p for p in model.parameters() if p.requires_grad]
    assert len(trained) == len(pairs)
    optimizer = torch.optim.AdamW(trained, 1e-2, (0.9, 0.95), 1e-8,
                                  weight_decay=0.0)
    theirs = []
    worst = 0.0
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = mean_loss(model)
        loss.backward()
        if step == 0:
            scale = float(tokens()[:, 1:].size)
            worst = max(same(n, g / scale, p.grad.numpy(), 1e-5)
                        for n, p, g in pairs)
        optimizer.step()
        theirs.append(loss.item())
    error = same("losses", ours, numpy.array(theirs), 1e-5)
    print(f"gradients {worst:.1e}, {STEPS} losses {error:.1e}, "
          f"{theirs[0]:.4f} to {theirs[-1]:.4f}")


def loads(program, folder, adapter, checkpoint):
    """The exported adapter has the loss of our merged model."""
    run = subprocess.run([program, "loss", checkpoint, str(LENGTH)],
                         input=tokens().tobytes(), check=True,
                         stdout=subprocess.PIPE)
    base = load(folder)
    before = mean_loss(base).item()
    model = peft.PeftModel.from_pretrained(base, adapter).eval()
    after = mean_loss(model).item()
    merged = mean_loss(model.merge_and_unload()).item()
    error = same("loss", numpy.array([float(run.stdout)] * 2),
                 numpy.array([after, merged]), 1e-5)
    assert abs(after - before) > 1e-3, "the adapters do nothing"
    print(f"{before:.4f} becomes {after:.4f}, off by {error:.1e}")


def saves(program, name, folder, adapter):
    """Our merged model of an adapter that peft saves has its loss."""
    torch.manual_seed(5)
    model = peft.get_peft_model(load(folder), peft.LoraConfig(
        r=RANK, lora_alpha=ALPHA, use_rslora=True, task_type="CAUSAL_LM",
        rank_pattern={"down_proj": 2}, alpha_pattern={"out_proj": 5, "v_proj": 7},
        target_modules=MODELS[name][2].split()))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.normal_(0, 0.1)
    model.save_pretrained(adapter)
    run = subprocess.run([program, "loss", adapter, str(LENGTH)],
                         input=tokens().tobytes(), check=True,
                         stdout=subprocess.PIPE)
    before, after = mean_loss(load(folder)).item(), mean_loss(model.eval()).item()
    error = same("loss", numpy.array([float(run.stdout)]), numpy.array([after]), 1e-5)
    assert abs(after - before) > 1e-3, "the adapters do nothing"
    print(f"{before:.4f} becomes {after:.4f}, off by {error:.1e}")


def main():
    torch.set_num_threads(1)
    command, *rest = sys.argv[1:]
    {"make": make, "compare": compare, "loads": loads, "saves": saves,
     "list": lambda: print(*MODELS)}[command](*rest)


main()
