"""Reads and writes data sets with Python's Streaming library, for streaming.sh.

    mds.py read DIR            tokens, a line per sample
    mds.py text SEQ_LEN FILE   the samples that tokenizing should give
    mds.py copy FROM DIR LIMIT MDSWriter's copy of a data set
    mds.py write DIR KIND      a data set of another form

Streaming imports PyTorch for its samplers. Only its shard format is tested, so
without PyTorch the few names that the format code imports are stood in for.
"""
import importlib.machinery
import importlib.util
import sys
import types

import numpy as np


def stand_in_for_torch():
    """Let streaming.base.format and streaming.base.local be imported alone."""
    class Nothing:
        def __class_getitem__(cls, item):
            return cls

    names = ['torch', 'torch.distributed', 'torch.utils', 'torch.utils.data']
    for name in names:
        sys.modules[name] = types.ModuleType(name)
    sys.modules['torch'].Tensor = Nothing
    sys.modules['torch'].distributed = sys.modules['torch.distributed']
    sys.modules['torch'].utils = sys.modules['torch.utils']
    sys.modules['torch.utils'].data = sys.modules['torch.utils.data']
    data = sys.modules['torch.utils.data']
    data.Dataset = data.IterableDataset = data.DataLoader = Nothing
    data.get_worker_info = lambda: None
    dist = sys.modules['torch.distributed']
    dist.is_available = dist.is_initialized = lambda: False
    folder = importlib.util.find_spec('streaming').submodule_search_locations
    for name, path in (('streaming', folder),
                       ('streaming.base', [f'{f}/base' for f in folder])):
        module = types.ModuleType(name)
        module.__path__ = list(path)
        sys.modules[name] = module


if importlib.util.find_spec('torch') is None:
    stand_in_for_torch()

from streaming.base.format.mds import MDSWriter  # noqa: E402
from streaming.base.local import LocalDataset  # noqa: E402


def show(tokens):
    print(' '.join(str(t) for t in tokens))


def read(folder):
    data = LocalDataset(folder)
    for i in range(len(data)):
        tokens = data[i]['tokens']
        assert tokens.dtype == np.int32 and tokens.ndim == 1
        show(tokens)


def text(seq_len, files):
    tokens = []
    for file in files:
        with open(file, 'rb') as source:
            tokens += list(source.read()) + [256]
    for i in range(0, len(tokens), int(seq_len)):
        show(tokens[i:i + int(seq_len)])


def copy(source, folder, limit):
    data = LocalDataset(source)
    with MDSWriter(columns={'tokens': 'ndarray:int32'}, out=folder,
                   size_limit=int(limit), hashes=['sha256']) as out:
        for i in range(len(data)):
            out.write({'tokens': data[i]['tokens']})


def write(folder, kind):
    encoding = {'plain': 'ndarray:int32', 'columns': 'ndarray:int32',
                'dynamic': 'ndarray', 'shaped': 'ndarray:int32:40',
                'zstd': 'ndarray:int32', 'int64': 'ndarray:int64',
                'empty': 'ndarray:int32'}[kind]
    columns = {'tokens': encoding}
    extra = {}
    if kind == 'columns':
        columns.update({'a': 'int', 'b': 'str', 'z': 'bytes'})
        extra = {'a': 7, 'b': 'naïve text', 'z': b'\0' * 3}
    random = np.random.default_rng(1)
    kwargs = {'compression': 'zstd:3'} if kind == 'zstd' else {}
    limit = 100 if kind == 'empty' else 3000
    dtype = np.int64 if kind == 'int64' else np.int32
    with MDSWriter(columns=columns, out=folder, size_limit=limit,
                   **kwargs) as out:
        for i in range(50):
            count = 40 if kind == 'shaped' else 1 + 17 * i
            tokens = random.integers(0, 1000, count).astype(dtype)
            out.write({'tokens': tokens, **extra})


if __name__ == '__main__':
    command, *rest = sys.argv[1:]
    if command == 'text':
        text(rest[0], rest[1:])
    else:
        {'read': read, 'copy': copy, 'write': write}[command](*rest)
