"""PyTorch's side of torch_step.sh: the model, weights and batch that step.c has
written to DIR.

    torch_step.py DIR eager|compiled THREADS

makes an optimizer step for each line on stdin and prints "SECONDS LOSS"; the
first ones are slow."""
import sys
import time
import warnings

import numpy as np
import torch
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.Wqkv = nn.Linear(d, 3 * d)
        self.out_proj = nn.Linear(d, d)

    def forward(self, x):
        batch, seq, d = x.shape
        q, k, v = (part.view(batch, seq, self.heads, -1).transpose(1, 2)
                   for part in self.Wqkv(x).split(d, dim=2))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out_proj(y.transpose(1, 2).reshape(batch, seq, d))


class FeedForward(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.up_proj = nn.Linear(d, 4 * d)
        self.down_proj = nn.Linear(4 * d, d)

    def forward(self, x):
        return self.down_proj(functional.gelu(self.up_proj(x)))


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.norm_1 = nn.LayerNorm(d)
        self.attn = Attention(d, heads)
        self.norm_2 = nn.LayerNorm(d)
        self.ffn = FeedForward(d)

    def forward(self, x):
        x = x + self.attn(self.norm_1(x))
        return x + self.ffn(self.norm_2(x))


class Model(nn.Module):
    def __init__(self, layers, d, heads, vocab, seq):
        super().__init__()
        self.wte = nn.Embedding(vocab, d)
        self.wpe = nn.Embedding(seq, d)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.norm_f = nn.LayerNorm(d)

    def forward(self, tokens, labels):
        x = self.wte(tokens) + self.wpe.weight
        for block in self.blocks:
            x = block(x)
        logits = functional.linear(self.norm_f(x), self.wte.weight)
        return functional.cross_entropy(logits.flatten(0, 1),
                                        labels.flatten(), ignore_index=-100)


def read(folder):
    with open(folder + '/model') as file:
        layers, d, heads, vocab, samples, seq = map(int, file.read().split())
    model = Model(layers, d, heads, vocab, seq)
    weights = np.fromfile(folder + '/weights', np.float32)
    state, at = {}, 0
    with open(folder + '/tensors') as file:
        for line in file:
            name, *shape = line.split()
            shape = [int(n) for n in shape]
            count = int(np.prod(shape))
            part = torch.from_numpy(weights[at:at + count]).reshape(shape)
            state[name.removeprefix('transformer.')] = part
            at += count
    assert at == weights.size
    model.load_state_dict(state)
    batch = torch.from_numpy(
        np.fromfile(folder + '/batch', np.int32).astype(np.int64))
    tokens, labels = batch.reshape(2, samples, seq)
    return model, tokens, labels


def main():
    folder, kind, threads = sys.argv[1:]
    warnings.filterwarnings('ignore')
    torch.set_num_threads(int(threads))
    model, tokens, labels = read(folder)
    # p *= 1 - lr * weight_decay, as step.c's
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4,
                                  betas=(0.9, 0.95), eps=1e-8,
                                  weight_decay=0.1, fused=True)
    forward = torch.compile(model) if kind == 'compiled' else model
    for _ in sys.stdin:
        begin = time.monotonic()
        optimizer.zero_grad()
        loss = forward(tokens, labels)
        loss.backward()
        nn.utils.get_total_norm([p.grad for p in model.parameters()]).item()
        optimizer.step()
        seconds = time.monotonic() - begin
        print(f'{seconds:.6f} {loss.item():.7f}', flush=True)


if __name__ == '__main__':
    main()
