"""Reads and writes data sets with Python's Streaming library, for streaming.sh.

    mds.py read DIR            tokens, a line per sample
    mds.py text SEQ_LEN FILE   the samples that tokenizing should give
    mds.py copy FROM DIR LIMIT MDSWriter's copy of a data set
    mds.py write DIR KIND      a data set of another form

Streaming imports PyTorch for its samplers. Only its shard format is tested, so
without PyTorch the few names that the format code imports are stood in for.
"""
import glob
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

from streaming.base.compression import decompress  # noqa: E402
from streaming.base.format.mds import MDSWriter  # noqa: E402
from streaming.base.hashing import get_hashes  # noqa: E402
from streaming.base.local import LocalDataset  # noqa: E402


def show(tokens):
    print(' '.join(str(t) for t in tokens))


def read(folder):
    data = LocalDataset(folder)
    for i in range(len(data)):
        tokens = data[i]['tokens']
        if isinstance(tokens, bytes):  # as LLM Foundry reads them
            tokens = np.frombuffer(tokens, np.int64)
        show(np.atleast_1d(tokens))


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


# kind of data set: encoding of the tokens, if not that of the type
KINDS = {'plain': 'ndarray:int32', 'columns': 'ndarray:int32',
         'dynamic': 'ndarray', 'shaped': 'ndarray:int32:40',
         'zstd': 'ndarray:int32', 'gz': 'ndarray:int32',
         'unpacked': 'ndarray:int32', 'empty': 'ndarray:int32',
         'hashed': 'ndarray:int32', 'changed': 'ndarray:int32',
         'dynamic64': 'ndarray', 'bytes': 'bytes', 'scalar': 'uint16'}
COMPRESSION = {'zstd': 'zstd:3', 'gz': 'gz', 'unpacked': 'zstd:3'}


def unpack(folder):
    """The raw shards beside the compressed ones, as StreamingDataset does."""
    for zipped in glob.glob(f'{folder}/*.zstd'):
        with open(zipped, 'rb') as source:
            data = decompress('zstd:3', source.read())
        with open(zipped[:-len('.zstd')], 'wb') as raw:
            raw.write(data)


def change(folder):
    """Another token, which only a checksum tells."""
    with open(f'{folder}/shard.00001.mds', 'r+b') as shard:
        shard.seek(-4, 2)
        value = shard.read(1)
        shard.seek(-4, 2)
        shard.write(bytes([value[0] ^ 1]))


def write(folder, kind):
    encoding = KINDS.get(kind, f'ndarray:{kind}')
    columns = {'tokens': encoding}
    extra = {}
    if kind == 'columns':
        columns.update({'a': 'int', 'b': 'str', 'z': 'bytes'})
        extra = {'a': 7, 'b': 'naïve text', 'z': b'\0' * 3}
    random = np.random.default_rng(1)
    hashes = {'hashed': sorted(get_hashes()), 'changed': ['xxh64']}
    limit = 100 if kind == 'empty' else 3000
    if kind in KINDS:
        dtype = np.int64 if kind in ('dynamic64', 'bytes') else np.int32
    else:
        dtype = np.dtype(kind)
    top = min(1000, np.iinfo(dtype).max)
    with MDSWriter(columns=columns, out=folder, size_limit=limit,
                   compression=COMPRESSION.get(kind),
                   hashes=hashes.get(kind)) as out:
        for i in range(50):
            count = 40 if kind == 'shaped' else 1 + 17 * i
            tokens = random.integers(0, top, count).astype(dtype)
            if kind == 'bytes':
                tokens = tokens.tobytes()
            if kind == 'scalar':
                tokens = tokens[0]
            out.write({'tokens': tokens, **extra})
    if kind == 'unpacked':
        unpack(folder)
    if kind == 'changed':
        change(folder)


if __name__ == '__main__':
    command, *rest = sys.argv[1:]
    if command == 'text':
        text(rest[0], rest[1:])
    else:
        {'read': read, 'copy': copy, 'write': write}[command](*rest)
