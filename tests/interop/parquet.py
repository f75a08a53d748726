"""Parquet files that pyarrow writes, read by our reader (parquet.c).

parquet.py PROGRAM many FOLDER COUNT [SEED]  random files, compared or refused
parquet.py PROGRAM refused FOLDER            what is refused, by name
parquet.py PROGRAM write FILE MB             English for a race
parquet.py PROGRAM lines FILE TO             its texts as JSON lines
parquet.py PROGRAM rate FILE                 reading and nothing else
"""
import hashlib
import json
import os
import random
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq

CODECS = ["none", "snappy", "gzip", "brotli", "zstd", "lz4"]
LETTERS = "abcdefgh ijklm\n\t\"\\éß€日本😀"


class Reader:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def ask(self, *words):
        print(*words, file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        assert line, f"the reader died of {words}"
        return line.strip("\n")


def some_text(rng):
    kind = rng.random()
    if kind < 0.1:
        return ""
    if kind < 0.3:
        return rng.choice(["yes", "no", "the same text as before"])
    if kind < 0.33:
        return "".join(rng.choices(LETTERS, k=10)) * rng.randrange(10000)
    return "".join(rng.choices(LETTERS, k=rng.randrange(rng.choice([5, 50, 500]))))


def some(rng, nulls, make):
    return None if rng.random() < nulls else make()


def digest(values):
    total = hashlib.sha256()
    for value in values:
        if value is None:
            total.update(b"N")
        else:
            data = value.encode() if isinstance(value, str) else value
            total.update(b"T%d:" % len(data) + data)
    return total.hexdigest()


def others(rng, rows):
    """Columns that nobody asks for."""
    made = {
        "id": pa.array(range(rows), pa.int64()),
        "score": pa.array([rng.random() for _ in range(rows)]),
        "tags": pa.array([["a"] * rng.randrange(3) for _ in range(rows)],
                         pa.list_(pa.string())),
        "deep": pa.array([[[{"x": 1}]] * rng.randrange(3) for _ in range(rows)],
                         pa.list_(pa.list_(pa.struct({"x": pa.int32()})))),
        "when": pa.array([rng.randrange(10**9) for _ in range(rows)],
                         pa.timestamp("us")),
        "flag": pa.array([rng.random() < 0.5 for _ in range(rows)]),
    }
    return {name: made[name] for name in rng.sample(sorted(made),
                                                    rng.randrange(len(made)))}


def texts(rng, rows):
    """(name to ask for, column, texts)"""
    nulls = rng.choice([0, 0, 0.1, 0.9, 1])
    values = [some(rng, nulls, lambda: some_text(rng)) for _ in range(rows)]
    kind = rng.choice(["string", "large_string", "binary", "dictionary", "view",
                       "required", "group"])
    field = pa.field("text", pa.string())
    if kind == "large_string":
        field = pa.field("text", pa.large_string())
    elif kind == "view":
        field = pa.field("text", pa.string_view())
    elif kind == "binary":
        field = pa.field("text", pa.binary())
        values = [v if v is None else v.encode("utf-16") for v in values]
    elif kind == "required":
        field = pa.field("text", pa.string(), nullable=False)
        values = [v or "" for v in values]
    elif kind == "dictionary":
        return "text", pa.field("text", pa.dictionary(pa.int32(), pa.string())), \
            pa.array(values, pa.string()).dictionary_encode(), values
    elif kind == "group":
        field = pa.field("text", pa.struct({"n": pa.int32(), "body": pa.string()}))
        inner = [some(rng, nulls, lambda v=v: {"n": 1, "body": v}) for v in values]
        return "text.body", field, pa.array(inner, field.type), \
            [None if v is None else v["body"] for v in inner]
    return "text", field, pa.array(values, field.type), values


def talks(rng, rows):
    nulls = rng.choice([0, 0.1])
    inner = pa.struct({"role": pa.string(), "content": pa.large_string()})
    kind = pa.large_list(inner) if rng.random() < 0.3 else pa.list_(inner)
    values = [some(rng, nulls, lambda: [
        some(rng, nulls, lambda: {"role": some(rng, nulls, lambda: "user"),
                                  "content": some(rng, nulls,
                                                  lambda: some_text(rng))})
        for _ in range(rng.randrange(4))]) for _ in range(rows)]
    want = [{"messages": None if v is None else
             [{k: t for k, t in (m or {}).items() if t is not None} for m in v]}
            for v in values]
    return "messages", pa.field("messages", kind), pa.array(values, kind), want


def write(rng, path, name, fields, columns):
    dictionary = rng.random() < 0.5
    options = {
        "compression": rng.choice(CODECS),
        "use_dictionary": dictionary,
        "data_page_version": rng.choice(["1.0", "2.0"]),
        "version": rng.choice(["1.0", "2.4", "2.6"]),
        "data_page_size": rng.choice([1, 100, 5000, 1 << 20]),
        "write_batch_size": rng.choice([1, 7, 1024]),
        "row_group_size": rng.choice([1, 10, 100, 10000]),
        "dictionary_pagesize_limit": rng.choice([10, 1000, 1 << 20]),
        "write_page_checksum": rng.random() < 0.5,
        "write_statistics": rng.random() < 0.8,
        "write_page_index": rng.random() < 0.3,
        "use_compliant_nested_type": rng.random() < 0.7,
    }
    if not dictionary:
        leaf = name if name != "messages" else None
        encoding = rng.choice(["PLAIN", "DELTA_LENGTH_BYTE_ARRAY",
                               "DELTA_BYTE_ARRAY"])
        if leaf:
            options["column_encoding"] = {leaf: encoding}
        else:
            inner = "element" if options["use_compliant_nested_type"] else "item"
            options["column_encoding"] = {
                f"messages.list.{inner}.{part}": encoding
                for part in ("role", "content")}
    pq.write_table(pa.table(columns, schema=pa.schema(fields)), path, **options)
    return options


def many(reader, path, count, seed, write, others):
    done = {"texts": 0, "records": 0, "rows": 0}
    for i in range(count):
        rng = random.Random(seed * 1000003 + i)
        rows = rng.choice([0, 1, 5, 60, 300])
        make = talks if rng.random() < 0.35 else texts
        name, field, column, want = make(rng, rows)
        table = others(rng, rows)
        table[field.name] = column
        names = sorted(table, key=lambda _: rng.random())
        fields = [field if n == field.name else pa.field(n, table[n].type)
                  for n in names]
        options = write(rng, path, name, fields, [table[n] for n in names])
        if make is texts:
            got = reader.ask("text", name, path)
            good = got == f"{rows} {digest(want)}"
            done["texts"] += 1
        else:
            got = reader.ask("records", "messages,prompt", path)
            good = not got.startswith("error")
            if good:
                records = json.loads(got)
                if records:
                    assert all(records[0].pop(n, 0) is None for n in names
                               if n != "messages"), records[0]
                good = records == want
            done["records"] += 1
        done["rows"] += rows
        if not good:
            print(f"file {i} of seed {seed}: {rows} rows, {field}, {options}: {got[:300]}")
            sys.exit(1)
    print(f"{count} files by pyarrow {pa.__version__}: {done['texts']} of texts, "
          f"{done['records']} of records, {done['rows']} rows, all the same")


def refused(reader, path, save, kinds):
    """save(table, path) writes it; kinds is what a number, .. are called."""
    talk = pa.struct({"role": pa.string(), "content": pa.string()})
    rows = [
        ("text", "text", pa.array([1, 2]), kinds["int"]),
        ("text", "text", pa.array([1.5]), kinds["real"]),
        ("text", "text", pa.array([True]), "truths"),
        ("text", "text", pa.array([b"abcd"], pa.binary(4)), "fixed length"),
        ("text", "text", pa.array([["a"]]), "in a list"),
        ("text", "other", pa.array(["a"]), "no column 'other'"),
        ("records", "messages", pa.array([[[{"role": "a", "content": "b"}]]],
                                         pa.list_(pa.list_(talk))), "lists of lists"),
        ("records", "messages", pa.array([[{"role": "a", "n": 1}]]), kinds["int"]),
        ("records", "messages", pa.array([{"role": "a"}]), "in a group"),
        ("records", "messages", pa.array([[{"m": {"role": "b"}}]]), "in a group"),
        ("records", "messages", pa.array([[{"role": "a", "m": {"x": "b"}}]]),
         "in a group"),
    ] + kinds.get("more", [])
    for what, name, column, want in rows:
        held = name if name != "other" else "text"
        save(pa.table({held: column}), path)
        got = reader.ask(what, name, path)
        assert got.startswith("error") and want in got and path in got, (want, got)
    print(f"{len(rows)} kinds of columns are refused by name")


def write_race(path, megabytes):
    english = sys.stdin.read()
    parts = english.split("\n\n")
    texts, size = [], 0
    while size < megabytes * 10**6:
        for part in parts:
            texts.append(part)
            size += len(part)
    pq.write_table(pa.table({"text": texts}), path, row_group_size=10000)
    print(len(texts), size)


def main():
    what, folder = sys.argv[2:4]
    if what == "write":
        return write_race(folder, float(sys.argv[4]))
    if what == "lines":  # as is done where nothing reads Parquet
        with open(sys.argv[4], "w") as out:
            for batch in pq.ParquetFile(folder).iter_batches(columns=["text"]):
                for text in batch.column(0).to_pylist():
                    out.write(json.dumps({"text": text}) + "\n")
        return None
    if what == "rate":
        begin = time.process_time()
        size = sum(len(text.encode())
                   for batch in pq.ParquetFile(folder).iter_batches(columns=["text"])
                   for text in batch.column(0).to_pylist())
        theirs = time.process_time() - begin
        seconds, ours = Reader(sys.argv[1]).ask("rate", "text", folder).split()
        assert int(ours) == size, (ours, size)
        print(f"reading alone {size / 1e6 / float(seconds):.0f} MB/s, pyarrow to "
              f"Python {theirs / float(seconds):.1f} x as long")
        return None
    reader = Reader(sys.argv[1])
    if what == "many":
        seed = int(sys.argv[5]) if len(sys.argv) > 5 else 1
        return many(reader, f"{folder}/x.parquet", int(sys.argv[4]), seed, write,
                    others)
    return refused(reader, f"{folder}/x.parquet", pq.write_table,
                   {"int": "int64 numbers", "real": "double numbers"})


if __name__ == "__main__":
    main()
