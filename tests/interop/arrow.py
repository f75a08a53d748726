"""Arrow files and streams that pyarrow writes, read by our reader (parquet.c).

arrow.py PROGRAM many FOLDER COUNT [SEED]  random files, compared
arrow.py PROGRAM refused FOLDER            what is refused, by name
arrow.py PROGRAM saved FOLDER              as datasets saves splits, and JSON lines
"""
import json
import os
import sys

import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc

import parquet as peer


def write(rng, path, _, fields, columns):
    """In batches of some rows, as one of three writers would; views as strings."""
    table = pa.table(columns, schema=pa.schema(fields))
    table = table.cast(pa.schema(
        [f.with_type(pa.string()) if f.name == "text" and f.type == pa.string_view()
         else f for f in table.schema]))
    codec = rng.choice([None, "lz4", "zstd"])
    rows = rng.choice([1, 10, 1000])
    kind = rng.choice(["stream", "stream", "file", "feather"])
    if kind == "feather":
        pa.feather.write_feather(table, path, compression=codec or "uncompressed",
                                 chunksize=rows)
    else:
        new = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
        options = pa.ipc.IpcWriteOptions(compression=codec)
        with new(path, table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=rows)
    return f"{kind} {codec} {rows}"


def save(table, path):
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=1000)


def others(rng, rows):
    made = peer.others(rng, rows)
    extra = {
        "none": pa.nulls(rows),
        "view": pa.array(["a view that is longer than it"] * rows, pa.string_view()),
        "views": pa.array([b"x"] * rows, pa.binary_view()),
        "fixed": pa.array([[1, 2]] * rows, pa.list_(pa.int8(), 2)),
        "map": pa.array([[("k", 1)]] * rows, pa.map_(pa.string(), pa.int32())),
        "union": pa.UnionArray.from_sparse(pa.array([0] * rows, pa.int8()),
                                           [pa.array(range(rows), pa.int32())]),
        "dense": pa.UnionArray.from_dense(pa.array([0] * rows, pa.int8()),
                                          pa.array(range(rows), pa.int32()),
                                          [pa.array(["u"] * rows)]),
        "runs": pa.RunEndEncodedArray.from_arrays(
            pa.array([rows] if rows else [], pa.int32()),
            pa.array(["r"] if rows else [])),
        "category": pa.array(["a", "b"] * rows)[:rows].dictionary_encode(),
        "price": pa.array([None] * rows, pa.decimal128(7, 2)),
    }
    for name in rng.sample(sorted(extra), rng.randrange(4)):
        made[name] = extra[name]
    return made


def saved(folder):
    """What Dataset.save_to_disk makes, of two splits in two files each."""
    for split in ("train", "test"):
        lines = [{"text": f"{split} {i}"} for i in range(2500)]
        with open(f"{folder}/{split}.jsonl", "w") as out:
            for line in lines:
                print(json.dumps(line), file=out)
        os.makedirs(f"{folder}/set/{split}")
        for part in range(2):
            table = pa.Table.from_pylist(lines[part * 1250:(part + 1) * 1250])
            name = f"{folder}/set/{split}/data-{part:05}-of-00002.arrow"
            save(table, name)
        for name in ("state.json", "dataset_info.json"):
            with open(f"{folder}/set/{split}/{name}", "w") as out:
                out.write("{}")
    with open(f"{folder}/set/dataset_dict.json", "w") as out:
        out.write('{"splits": ["train", "test"]}')


def main():
    what, folder = sys.argv[2:4]
    if what == "saved":
        return saved(folder)
    reader = peer.Reader(sys.argv[1])
    path = f"{folder}/x.arrow"
    if what == "many":
        seed = int(sys.argv[5]) if len(sys.argv) > 5 else 1
        return peer.many(reader, path, int(sys.argv[4]), seed, write, others)
    return peer.refused(reader, path, save, {
        "int": "whole numbers", "real": "real numbers", "more": [
            ("text", "text", pa.array(["a"], pa.string_view()), "views of texts"),
            ("text", "text", pa.nulls(3), "nulls alone"),
            ("text", "text", pa.array([1, 1]).dictionary_encode(), "no text"),
        ]})


if __name__ == "__main__":
    main()
