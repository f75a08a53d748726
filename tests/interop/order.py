"""Compares sample orders with Python's Streaming library, for order.sh.

    order.py draws PROGRAM COUNT SEED    NumPy's draws
    order.py epochs PROGRAM COUNT SEED   epochs' orders, on one node and rank
    order.py batches PROGRAM COUNT SEED  the batches' samples on any topology,
                                         also resumed in the middle of an epoch

PROGRAM is build/interop/order, which answers a line for each case. Streaming's
own functions are called; mds.py lets them be imported without PyTorch.
"""
import logging
import subprocess
import sys
import types
import warnings

import mds  # noqa: F401  stands in for PyTorch
import numpy as np
from streaming.base.batching import generate_work
from streaming.base.dataset import StreamingDataset
from streaming.base.stream import Stream
from streaming.base.world import World

ALGORITHMS = ['py1e', 'py1s', 'py1br', 'py2s', 'naive', None]
BATCHINGS = ['random', 'stratified', 'per_stream']
WEIGHTS = [None, 'proportion', 'repeat', 'choose']

warnings.simplefilter('ignore')
logging.disable(logging.CRITICAL)


class Ours:
    """The program, asked line by line."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def ask(self, *words):
        self.process.stdin.write(' '.join(str(w) for w in words) + '\n')
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


def differ(case, ours, theirs):
    print(f'case: {case}\nours:   {str(ours)[:300]}\ntheirs: '
          f'{str(theirs)[:300]}')
    sys.exit(1)


def draws(ours, count, random):
    sizes = [0, 1, 2, 3, 5, 10, 100, 1000, 10000, 10001, 20000]
    for _ in range(count):
        seed = int(random.integers(0, 2**63)) >> int(random.integers(0, 63))
        rng = np.random.default_rng(seed)
        words, expected = ['rng', seed], []
        for _ in range(int(random.integers(1, 12))):
            kind = random.choice(list('spciur'))
            size = int(random.choice(sizes))
            if kind == 's':
                values = list(range(size)) if random.random() < .5 else \
                    np.arange(size)
                rng.shuffle(values)
                words += ['s', size]
                expected += list(values)
            elif kind == 'p':
                words += ['p', size]
                expected += list(rng.permutation(size))
            elif kind == 'c':
                some = int(random.integers(0, size + 1)) >> int(
                    random.integers(0, 10))
                words += ['c', size, some]
                expected += list(rng.choice(size, some, False))
            elif kind == 'i':
                low = int(random.integers(-2**40, 2**40))
                high = low + 1 + (int(random.integers(0, 2**62)) >>
                                  int(random.integers(0, 62)))
                words += ['i', low, high]
                expected.append(rng.integers(low, high))
            elif kind == 'u':
                low, high = sorted(random.normal(0, 1e4, 2))
                words += ['u', repr(float(low)), repr(float(high))]
                expected.append(rng.uniform(low, high))
            else:
                words += ['r']
                expected.append(rng.random())
        got = ours.ask(*words).split()
        if len(got) != len(expected) or \
                any(float(g) != float(e) if isinstance(e, float) else
                    int(g) != int(e) for g, e in zip(got, expected)):
            differ(words[:40], got, expected)


class Case:
    """A data set with its streams, and what Streaming makes of it."""

    def __init__(self, random):
        self.algorithm = int(random.integers(0, 6))
        self.batching = int(random.integers(0, 3))
        self.fixed = int(random.random() < .3)
        self.seed = int(random.integers(0, 100000))
        self.nodes = int(random.choice([1, 2, 3, 4, 8, 16, 64]))
        self.block = int(random.choice([2, 8, 50, 300, 1000, 1 << 18]))
        self.epoch = int(random.integers(0, 5))
        self.batch = int(random.choice([1, 2, 4, 6, 8, 24, 48]))
        self.epoch_size = 0
        count = int(random.choice([1, 1, 2, 3, 5, 9, 17]))
        relative = random.random() < .4
        most = int(random.choice([4, 40, 400]))
        self.shards, self.weights, self.amounts = [], [], []
        for _ in range(count):
            shards = random.integers(0, most, int(random.integers(1, 9)))
            shards[-1] += 1
            self.shards.append([int(s) for s in shards])
            weight = 1 if relative else int(random.choice([0, 0, 2, 3]))
            self.weights.append(weight)
            self.amounts.append({
                0: 0, 1: round(float(random.uniform(.05, 2)), 2),
                2: round(float(random.uniform(0, 3)), 2),
                3: int(random.integers(0, 3 * sum(shards)))}[weight])
        if relative and random.random() < .3:
            self.amounts = [1 for _ in self.amounts]
        if all(w < 2 for w in self.weights) and random.random() < .3:
            self.epoch_size = int(random.integers(1, 2 * most * count))

    def depends(self):
        """Whether Streaming's answer depends on the processor: NumPy's sort
        has equal leftovers of a stratified batch in any order."""
        if self.batching != 1 or len(self.shards) == 1:
            return False
        share = self.batch * np.array([s.proportion for s in
                                       self.dataset().streams])
        left = np.sort(share - share.astype(int))[::-1]
        more = self.batch - int(share.astype(int).sum())
        return 0 < more < len(left) and left[more - 1] == left[more]

    def words(self):
        words = ['epoch', self.algorithm, self.batching, self.fixed, self.seed,
                 self.nodes, self.block, self.epoch_size, self.batch,
                 self.epoch, len(self.shards)]
        for shards, weight, amount in zip(self.shards, self.weights,
                                          self.amounts):
            words += [weight, repr(amount), len(shards), *shards]
        return words

    def dataset(self):
        """What the functions need of a StreamingDataset."""
        data = types.SimpleNamespace()
        data.streams = []
        for weight, amount in zip(self.weights, self.amounts):
            stream = types.SimpleNamespace()
            if WEIGHTS[weight]:
                setattr(stream, WEIGHTS[weight], amount)
            data.streams.append(stream)
        sizes = [s for shards in self.shards for s in shards]
        data.num_streams = len(self.shards)
        data.samples_per_shard = np.array(sizes, np.int64)
        data.sample_offset_per_shard = \
            data.samples_per_shard.cumsum() - data.samples_per_shard
        data.shards_per_stream = np.array([len(s) for s in self.shards])
        data.shard_offset_per_stream = \
            data.shards_per_stream.cumsum() - data.shards_per_stream
        data.samples_per_stream = np.array([sum(s) for s in self.shards],
                                           np.int64)
        data.shuffle = ALGORITHMS[self.algorithm] is not None
        data.shuffle_algo = ALGORITHMS[self.algorithm]
        data.shuffle_seed = self.seed
        data.shuffle_block_size = self.block
        data.sampling_method = 'fixed' if self.fixed else 'balanced'
        data.sampling_granularity = 1
        data.epoch_seed_change = data.shuffle and not self.fixed
        data.num_canonical_nodes = self.nodes
        data.partition_algo = 'relaxed'
        data.initial_physical_nodes = None
        data.epoch_size = Stream.apply_weights.__func__(
            Stream, data.streams, data.samples_per_stream,
            self.epoch_size or None, self.seed)
        data.resample_streams = \
            lambda epoch, stream_id=None: StreamingDataset.resample_streams(
                data, epoch, stream_id)
        return data

    def theirs(self, nodes=1, ranks=1, workers=1, drop=0, initial=None):
        """The whole batches, a row each."""
        data = self.dataset()
        data.batch_size = self.batch // (nodes * ranks)
        data.initial_physical_nodes = initial
        work = generate_work(BATCHINGS[self.batching], data,
                             World(nodes, ranks, workers, 0), self.epoch, drop)
        rows = work.transpose(3, 2, 0, 1, 4).reshape(-1, self.batch)
        return rows[rows.min(axis=1) >= 0] if len(rows) else rows

    def origins(self, rows):
        """How many batches begin with a sample of each stream."""
        ends = np.cumsum([sum(shards) for shards in self.shards])
        streams = np.searchsorted(ends, rows[:, 0], side='right')
        return np.bincount(streams, minlength=len(ends))

    def ours(self, program):
        answer = program.ask(*self.words())
        if answer.startswith('error'):
            return answer
        return np.array(answer.split(), np.int64).reshape(-1, self.batch)


def epochs(ours, count, random):
    refused = 0
    for _ in range(count):
        case = Case(random)
        got = case.ours(ours)
        try:
            expected = case.theirs()
        except (ValueError, ZeroDivisionError) as error:
            expected = error
        if isinstance(got, str):
            # they fail as well, or train on nothing at all
            refused += 1
            if not isinstance(expected, Exception) and len(expected) > 0:
                differ(case.words(), got, expected.tolist())
        elif isinstance(expected, Exception) or not np.array_equal(got,
                                                                   expected):
            if isinstance(expected, Exception) or not case.depends():
                differ(case.words(), got.tolist(), expected)
    print(f'{count} epochs, of which {refused} are refused by both')
    if refused > count // 2:
        sys.exit(1)


def batches(ours, count, random):
    compared, skipped = 0, 0
    while compared < count:
        case = Case(random)
        got = case.ours(ours)
        if isinstance(got, str) or case.depends():
            continue
        nodes = int(random.choice([1, 2, 3, 4, 8]))
        ranks = int(random.choice([1, 2, 3, 4, 8]))
        workers = int(random.choice([1, 2, 3]))
        if case.batch % (nodes * ranks) != 0:
            continue
        drop = case.batch * int(random.integers(0, len(got)))
        initial = None
        if (max(nodes, case.nodes) % min(nodes, case.nodes)) != 0:
            initial = 1
        try:
            theirs = case.theirs(nodes, ranks, workers, drop, initial)
            whole = case.theirs(nodes, ranks, workers, 0, initial)
        except ValueError:
            continue
        if case.batching == 2 and not np.array_equal(case.origins(got),
                                                     case.origins(whole)):
            # repeats may fill up a stream's last batch: then there is one more
            # to be shuffled, and Streaming's own order depends on the topology
            skipped += 1
            continue
        got = np.sort(got[drop // case.batch:])
        theirs = np.sort(theirs)
        # how an epoch ends depends on the topology: with more ranks a batch
        # may be filled up with repeated samples, or be given up
        common = min(len(got), len(theirs))
        if not np.array_equal(got[:common], theirs[:common]):
            # of the last batch, some may be such repeats
            common -= 1
        if abs(len(got) - len(theirs)) > 1 + nodes * ranks or \
                not np.array_equal(got[:common], theirs[:common]):
            differ((case.words(), nodes, ranks, workers, drop, initial),
                   got.tolist(), theirs.tolist())
        compared += 1
    print(f'{compared} epochs on other topologies, {skipped} of per_stream '
          'that depend on it')


if __name__ == '__main__':
    command, program, count, seed = sys.argv[1:]
    {'draws': draws, 'epochs': epochs, 'batches': batches}[command](
        Ours(program), int(count), np.random.default_rng(int(seed)))
