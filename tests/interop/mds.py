"""Reads and writes data sets with Python's Streaming library, for streaming.sh.

    mds.py read DIR            tokens, a line per sample
    mds.py text SEQ_LEN FILE   the samples that tokenizing should give
    mds.py copy FROM DIR LIMIT MDSWriter's copy of a data set
    mds.py write DIR KIND      a data set of another form
    mds.py columns DIR COMPRESSION HASHES LIMIT
                               every encoding, as columns.c makes it; "-": none
    mds.py column DIR NAME     a column, as tessera-data head --column prints it
    mds.py names               the columns of `columns`, a line each
    mds.py big DIR COMPRESSION 64 MiB of samples of 2048 letters; "-": none
    mds.py rate DIR [HASH]     MB/s of reading every sample's tokens, with the
                               packed shards' hashes checked or not

Streaming imports PyTorch for its samplers. Only its shard format is tested, so
without PyTorch the few names that the format code imports are stood in for.
"""
import decimal
import glob
import importlib.machinery
import importlib.util
import json
import sys
import time
import types

import numpy as np
from PIL import Image


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
from streaming.base.format.mds import encodings  # noqa: E402
from streaming.base.hashing import get_hash, get_hashes  # noqa: E402
from streaming.base.local import LocalDataset  # noqa: E402


def show(tokens):
    print(' '.join(str(t) for t in tokens))


def read(folder):
    unpack_all(folder)
    data = LocalDataset(folder)
    for i in range(len(data)):
        tokens = data[i]['tokens']
        if isinstance(tokens, bytes):  # as LLM Foundry reads them
            tokens = np.frombuffer(tokens, np.int64)
        show(np.atleast_1d(tokens).ravel())


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
KINDS = {'cube': 'ndarray:int32', 'plain': 'ndarray:int32', 'columns': 'ndarray:int32',
         'dynamic': 'ndarray', 'shaped': 'ndarray:int32:40',
         'zstd': 'ndarray:int32', 'gz': 'ndarray:int32',
         'bz2': 'ndarray:int32', 'br': 'ndarray:int32',
         'snappy': 'ndarray:int32', 'damaged': 'ndarray:int32',
         'pickle': 'pkl', 'beside': 'ndarray:int32',
         'unpacked': 'ndarray:int32', 'empty': 'ndarray:int32',
         'hashed': 'ndarray:int32', 'changed': 'ndarray:int32',
         'dynamic64': 'ndarray', 'bytes': 'bytes', 'scalar': 'uint16'}
COMPRESSION = {'zstd': 'zstd:3', 'gz': 'gz', 'bz2': 'bz2', 'br': 'br:5',
               'snappy': 'snappy', 'unpacked': 'zstd:3', 'damaged': 'zstd:3'}


def unpack(folder):
    """The raw shards beside the compressed ones, as StreamingDataset does."""
    for zipped in glob.glob(f'{folder}/*.zstd'):
        with open(zipped, 'rb') as source:
            data = decompress('zstd:3', source.read())
        with open(zipped[:-len('.zstd')], 'wb') as raw:
            raw.write(data)


def unpack_all(folder):
    with open(f'{folder}/index.json') as file:
        for shard in json.load(file)['shards']:
            if shard['zip_data'] is None:
                continue
            with open(f'{folder}/{shard["zip_data"]["basename"]}', 'rb') as zipped:
                data = decompress(shard['compression'], zipped.read())
            with open(f'{folder}/{shard["raw_data"]["basename"]}', 'wb') as raw:
                raw.write(data)


def change(folder, end):
    """Another token, which only a checksum tells, or another packed byte."""
    with open(f'{folder}/shard.00001.mds{end}', 'r+b') as shard:
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
    if kind == 'beside':  # what training does not use may be anything
        columns.update({f'c{c}': 'pkl' for c in range(40)})
        extra = {f'c{c}': {c} for c in range(40)}
    random = np.random.default_rng(1)
    hashes = {'hashed': sorted(get_hashes()), 'changed': ['xxh64'],
              'damaged': ['sha1']}
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
            if kind == 'cube':
                tokens = tokens.reshape(-1, 1, 1) if i % 2 else tokens[None]
            if kind == 'scalar':
                tokens = tokens[0]
            out.write({'tokens': tokens, **extra})
    if kind == 'unpacked':
        unpack(folder)
    if kind in ('changed', 'damaged'):
        change(folder, '.zstd' if kind == 'damaged' else '')


ENCODINGS = {
    'tokens': 'ndarray:int32', 'a_bytes': 'bytes', 'b_str': 'str',
    'c_int': 'int', 'f_int': 'str_int', 'f_float': 'str_float',
    'f_decimal': 'str_decimal', 'g_json': 'json', 'h_pil': 'pil',
    'h_jpeg': 'jpeg', 'h_png': 'png', 'i_list': 'list[pil]',
    'i_array': 'jpeg_array', 'j_dynamic': 'ndarray',
    'j_typed': 'ndarray:uint16', 'j_shaped': 'ndarray:float64:2,3',
    'j_wide': 'ndarray:int8', 'na\u00efve "name"\x7f': 'int'}
for width in (8, 16, 32, 64):
    ENCODINGS[f'd_uint{width}'] = f'uint{width}'
    ENCODINGS[f'd_int{width}'] = f'int{width}'
    if width > 8:
        ENCODINGS[f'e_float{width}'] = f'float{width}'


def sample(i):
    pixels = bytes(i + p for p in range(6))
    tall = Image.frombytes('L', (2, 3), pixels)
    wide = Image.frombytes('L', (3, 2), pixels)
    tokens = np.array([(i * 31 + k * 7) % 257 for k in range(100)], np.int32)
    values = np.arange(600, dtype=np.int32)
    half = np.array([0x3c00 + i], np.uint16).view(np.float16)[0]
    out = {
        'tokens': tokens[:1 + i % 99], 'a_bytes': tokens.tobytes()[:i % 5],
        'b_str': f'na\u00efve \U0001f600 "text"\n{i}', 'c_int': 3 * i - 50,
        'f_int': int(f'-100000000000000000000000{i}'), 'f_float': i + .125,
        'f_decimal': decimal.Decimal(f'{i}.125'),
        'g_json': {'a': [i, None], 'b': '\u00ef'}, 'h_pil': tall,
        'h_jpeg': pixels, 'h_png': pixels, 'i_list': [wide, wide],
        'i_array': [bytearray(pixels[:2]), bytearray(pixels[2:])],
        'j_dynamic': (i * 1000 - values)[:10 * (1 + i % 3)].reshape(-1, 2, 5),
        'j_typed': (i + np.arange(300)).astype(np.uint16),
        'j_shaped': (i + np.arange(6) / 8).reshape(2, 3),
        'j_wide': (np.arange(70000 if i % 10 == 0 else 7) % 100 - 50).astype(
            np.int8),
        'na\u00efve "name"\x7f': 3 * i - 50, 'e_float16': half,
        'e_float32': i / 4 - 2, 'e_float64': i / 10}
    for width in (8, 16, 32, 64):
        out[f'd_uint{width}'] = 5 * i
        out[f'd_int{width}'] = 3 * i - 50
    return out


def columns(folder, compression, hashes, limit):
    with MDSWriter(columns=ENCODINGS, out=folder, size_limit=int(limit) or None,
                   compression=None if compression == '-' else compression,
                   hashes=[] if hashes == '-' else hashes.split(',')) as out:
        for i in range(40):
            out.write(sample(i))


def shortest(value):
    kind = type(value) if isinstance(value, np.float32) else float
    kind = np.float32 if isinstance(value, np.float16) else kind
    for digits in range(1, 18):
        text = f'{float(value):.{digits}g}'
        if kind(text) == kind(value):
            break
    return text


def line(value, encoding):
    """A value as tessera-data prints it."""
    if encoding == 'json':
        return json.dumps(value)
    if encoding == 'str':
        return json.dumps(value)
    if encoding.startswith('str_'):
        return str(value)
    if encoding == 'jpeg_array':
        sizes = np.array([len(value)] + [len(v) for v in value], np.uint32)
        value = sizes.tobytes() + b''.join(value)
    if encoding in ('pil', 'list[pil]'):
        value = encodings.mds_encode(encoding, value)
    if isinstance(value, bytes):
        return value.hex()
    flat = np.atleast_1d(value).ravel()
    if flat.dtype.kind == 'f':
        return ' '.join(shortest(v) for v in flat)
    return ' '.join(str(v) for v in flat)


def open_set(folder):
    """LocalDataset reads raw shards only. What stands for images is none."""
    unpack_all(folder)
    encodings.JPEG.decode = encodings.PNG.decode = lambda self, data: data
    return LocalDataset(folder)


def column(folder, name):
    data = open_set(folder)
    for i in range(len(data)):
        print(line(data[i][name], ENCODINGS[name]))


def big(folder, compression, hashes):
    random = np.random.default_rng(2)
    often = b' etaoinshrdlu etaoinshr etaoins the and of'
    letters = np.frombuffer(often, np.uint8).astype(np.int32)
    with MDSWriter(columns={'tokens': 'ndarray:int32'}, out=folder,
                   size_limit=1 << 24,
                   hashes=None if hashes == '-' else [hashes],
                   compression=None if compression == '-' else compression) as out:
        for _ in range(8192):
            at = random.integers(0, len(letters), 2048)
            out.write({'tokens': letters[at]})


def rate(folder, validate=None):
    """Streaming's reader, one sample after the other, unpacked or not."""
    with open(f'{folder}/index.json') as file:
        index = json.load(file)
    packed = index['shards'][0]['compression']
    size = sum(s['raw_data']['bytes'] for s in index['shards'])
    begin = time.process_time()
    if packed:  # as streaming.base.stream does it
        for shard in index['shards']:
            zipped = shard['zip_data']
            with open(f'{folder}/{zipped["basename"]}', 'rb') as source:
                data = source.read()
            if validate:
                assert get_hash(validate, data) == zipped['hashes'][validate]
            data = decompress(packed, data)
            with open(f'{folder}/{shard["raw_data"]["basename"]}', 'wb') as raw:
                raw.write(data)
    data = LocalDataset(folder)
    total = 0
    for i in range(len(data)):
        total += len(data[i]['tokens'])
    assert total > 0
    print(f'{size / (time.process_time() - begin) / 1e6:.1f}')


if __name__ == '__main__':
    command, *rest = sys.argv[1:]
    if command == 'text':
        text(rest[0], rest[1:])
    else:
        {'read': read, 'copy': copy, 'write': write, 'columns': columns,
         'column': column, 'big': big,
         'names': lambda: print('\n'.join(sorted(ENCODINGS))), 'rate': rate}[command](*rest)
