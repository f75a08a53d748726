"""Reads a checkpoint with h5py, for h5py.sh.

    ckpt.py same VIEW SHARD   every tensor of a view is that of a shard which
                              holds all tensors whole, element by element
    ckpt.py crc SHARD         a shard's own checksums hold
    ckpt.py lost VIEW WHOLE   a shard is missing: what is not NaN is right
    ckpt.py about VIEW STEP   the view of a run of mpt-tiny says what it is
"""
import sys

import h5py
import numpy as np


def bits(dataset):
    """The stored bytes; bfloat16 becomes float32 and must lose nothing."""
    values = dataset[()]
    if dataset.id.get_type().get_size() == 2:
        words = values.astype('<f4').view('<u4')
        assert not np.any(words & 0xffff), dataset.name
        return words.tobytes()
    return values.tobytes()


def tensors(file):
    found = {}
    file.visititems(lambda name, item: found.update({name: item})
                    if isinstance(item, h5py.Dataset) else None)
    return {k.removeprefix('weights/'): v for k, v in found.items()
            if not k.startswith('_')}


def same(view, shard):
    with h5py.File(view, 'r') as a, h5py.File(shard, 'r') as b:
        ours, theirs = tensors(a), tensors(b)
        shapes = {row['name'].decode(): tuple(row['shape'][:row['dims']])
                  for row in b['_index'][()]}
        empty = {k for k, v in ours.items() if v.size == 0}
        assert set(ours) - empty == set(theirs), set(ours) ^ set(theirs)
        for name, tensor in theirs.items():
            assert ours[name].shape == (shapes[name] or (1,)), name
            assert ours[name].is_virtual, name
            assert bits(ours[name]) == bits(tensor), name
        print(len(theirs), 'tensors')


def lost(view, whole):
    with h5py.File(view, 'r') as a, h5py.File(whole, 'r') as b:
        gone = 0
        for name, tensor in tensors(a).items():
            if tensor.size == 0:
                continue
            ours, theirs = tensor[()], tensors(b)[name][()]
            if tensor.dtype.kind == 'i':
                missing = ours == np.iinfo(ours.dtype).min
            elif tensor.dtype.kind == 'u':  # bytes, which have no value to spare
                missing = ours == tensor.fillvalue
            else:
                missing = np.isnan(ours)
            assert np.array_equal(ours[~missing], theirs[~missing]), name
            gone += missing.sum()
        assert gone > 0
        print(gone, 'elements are missing')


def about(view, step):
    with h5py.File(view, 'r') as file:
        weights = {name: data[()] for name, data in file['weights'].items()}
        assert len(weights) == 16
        assert set(file) == {'config', 'optimizer', 'weights'}
        attrs = file.attrs
        assert attrs['step'] == int(step) and attrs['format_version'] == 2
        assert attrs['tokens'] == attrs['samples'] * 64
        assert isinstance(attrs['run_uuid'], str)
        assert isinstance(attrs['code_version'], str)
        model = file['config/model'].attrs
        types = {'d_model': np.int64, 'norm_eps': np.float64,
                 'expansion_ratio': np.float64, 'bias': np.bool_, 'norm': str}
        for name, kind in types.items():
            assert isinstance(model[name], kind), (name, type(model[name]))
        assert model['d_model'] == 128 and model['norm_eps'] == 1e-5
        for name, data in file['weights'].items():
            said = data.attrs
            assert said['kind'] == 'weight' and said['trained_in'] == 'fp32'
            assert len(said['axes']) == data.ndim, name
            assert said['role'], name
            assert ('.blocks.' in name) == ('layer' in said), name
            moment = file['optimizer/exp_avg_sq'][name].attrs
            assert moment['kind'] == 'second moment'
            assert moment['role'] == said['role']
        wte = weights['transformer.wte.weight']
        assert wte.shape == (model['vocab_size'], model['d_model'])


def crc32c(data):
    table = [0] * 256
    for i in range(256):
        value = i
        for _ in range(8):
            value = value >> 1 ^ (0x82f63b78 if value & 1 else 0)
        table[i] = value
    crc = 0xffffffff
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xffffffff


def crc(path):
    with h5py.File(path, 'r') as file, open(path, 'rb') as raw:
        size = int(file.attrs['block_bytes'])
        stored = file['_crc32c'][()]
        for row in file['_index'][()]:
            dataset = file[row['name'].decode()]
            left = dataset.size * dataset.id.get_type().get_size()
            raw.seek(dataset.id.get_offset())
            for block in range(row['blocks']):
                data = raw.read(min(size, left))
                left -= len(data)
                want = int(stored[row['first_block'] + block])
                assert crc32c(data) == want, row['name']
            assert left == 0


if __name__ == '__main__':
    command, *rest = sys.argv[1:]
    {'same': same, 'crc': crc, 'lost': lost, 'about': about}[command](*rest)
