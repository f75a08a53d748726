"""torch.distributed.checkpoint's side of dcp.sh: two processes with gloo hold
the state that side.c has too, half of each tensor in each.

    dcp.py times SHAPES DIR sync|async   prints RETURN DURABLE SYNC LOAD, seconds
    dcp.py load SHAPES DIR               prints "same", "differs" or the error
"""
import os
import sys
import tempfile
import time
import warnings

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

RANKS = 2


def words(index, begin, end):
    """The same formula as in side.c."""
    elements = np.arange(begin, end, dtype=np.uint32)
    elements *= np.uint32(2654435761)
    elements += np.uint32(index * 40503)
    elements &= np.uint32(0x3fffffff)
    return elements


def make_state(shapes, mesh, rank, fill):
    state = {}
    with open(shapes) as lines:
        for index, line in enumerate(lines):
            name, *shape = line.split()
            shape = [int(n) for n in shape]
            half = int(np.prod(shape)) // RANKS
            values = (words(index, rank * half, (rank + 1) * half) if fill
                      else np.zeros(half, np.uint32))
            local = torch.from_numpy(values.view(np.float32)).reshape(
                shape[0] // RANKS, *shape[1:])
            state[name] = DTensor.from_local(local, mesh, [Shard(0)])
    return state


def is_filled(state, rank):
    for index, tensor in enumerate(state.values()):
        local = tensor.to_local().numpy().view(np.uint32).ravel()
        if not np.array_equal(local, words(index, rank * local.size,
                                           (rank + 1) * local.size)):
            return False
    return True


def drop(folder):
    for name in os.listdir(folder):
        fd = os.open(os.path.join(folder, name), os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
    dist.barrier()


def save(state, folder, kind):
    dist.barrier()
    begin = time.monotonic()
    writer = dcp.FileSystemWriter(folder)
    if kind == 'async':
        future = dcp.async_save(state, storage_writer=writer)
        returned = torch.tensor([time.monotonic() - begin])
        future.result()
    else:
        dcp.save(state, storage_writer=writer)
        returned = torch.tensor([time.monotonic() - begin])
    dist.barrier()
    durable = time.monotonic() - begin
    dist.all_reduce(returned, dist.ReduceOp.MAX)
    return returned.item(), durable


def load(state, folder):
    for tensor in state.values():
        tensor.to_local().zero_()
    dist.barrier()
    begin = time.monotonic()
    dcp.load(state, checkpoint_id=folder)
    dist.barrier()
    return time.monotonic() - begin


def run_times(rank, state, folder, kind):
    """Each the second time, so that nothing is made or met for the first."""
    save(state, folder + '/1', kind)
    os.sync()
    returned, durable = save(state, folder + '/2', kind)
    begin = time.monotonic()
    os.sync()
    synced = time.monotonic() - begin
    for _ in range(2):
        drop(folder + '/2')
        seconds = load(state, folder + '/2')
    assert is_filled(state, rank)
    if rank == 0:
        print(f'{returned:.4f} {durable:.4f} {synced:.4f} {seconds:.4f}')


def run_load(rank, state, folder):
    try:
        load(state, folder + '/2')
        same = is_filled(state, rank)
    except Exception as error:
        if rank == 0:
            print(str(error).strip().splitlines()[-1])
        return
    all_same = torch.tensor([int(same)])
    dist.all_reduce(all_same, dist.ReduceOp.MIN)
    if rank == 0:
        print('same' if all_same.item() else 'differs')


def process(rank, meeting, arguments):
    warnings.filterwarnings('ignore')
    dist.init_process_group('gloo', init_method='file://' + meeting, rank=rank,
                            world_size=RANKS)
    mesh = init_device_mesh('cpu', (RANKS,))
    command, shapes, folder, *kind = arguments
    state = make_state(shapes, mesh, rank, command == 'times')
    if command == 'times':
        run_times(rank, state, folder, kind[0])
    else:
        run_load(rank, state, folder)
    dist.destroy_process_group()


if __name__ == '__main__':
    with tempfile.TemporaryDirectory() as place:
        mp.spawn(process, (place + '/meeting', sys.argv[1:]), RANKS)
