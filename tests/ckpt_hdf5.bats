#!/usr/bin/env bats
# Every tensor of a checkpoint, read by h5dump alone, has the bytes that were in
# memory: the digest made of them is the digest of the checkpoint, and the
# program that saved known values finds them again.

load run_helpers
load ckpt_helpers

setup() {
    need_saver h5dump python3 ranks
}

# export CHECKPOINT: each tensor's bytes as DIR/raw/NUMBER, the shards' datasets
# of its name one after the other, and DIR/tensors.json
export_tensors() {
    local shard name number=0
    rm -rf "$DIR/raw"
    mkdir "$DIR/raw"
    "$CKPT" show "$1" --stats --json >"$DIR/tensors.json"
    for shard in "$1"/shard-*.h5; do
        h5dump -n "$shard" | sed -n 's|^ *dataset *||p' >"$DIR/names.${shard##*/}"
    done
    while read -r name; do
        : >"$DIR/raw/$number"
        for shard in "$1"/shard-*.h5; do
            grep -qx "/$name" "$DIR/names.${shard##*/}" || continue
            h5dump -d "/$name" -b FILE -o "$DIR/one" "$shard" >/dev/null
            cat "$DIR/one" >>"$DIR/raw/$number"
        done
        number=$((number + 1))
    done < <(python3 -c 'import json, sys
for t in json.load(sys.stdin)["tensors"]: print(t["name"])' <"$DIR/tensors.json")
}

# The digest by its definition and the statistics, from the exported bytes.
check_exported() {
    python3 - "$DIR" <<'END'
import array, hashlib, json, math, sys
folder = sys.argv[1]
shown = json.load(open(folder + "/tensors.json"))
tensors = [(t, open(f"{folder}/raw/{i}", "rb").read())
           for i, t in enumerate(shown["tensors"])]

def i64(value):
    return value.to_bytes(8, "little", signed=True)

def values(dtype, data):
    if dtype == "bf16":
        data = b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))
    code = {"f32": "f", "bf16": "f", "i32": "i", "f64": "d", "u8": "B"}[dtype]
    return array.array(code, data)

sha = hashlib.sha256()
for t, data in sorted(tensors, key=lambda pair: pair[0]["name"]):
    sha.update(t["name"].encode() + b"\0" + t["dtype"].encode() + b"\0")
    sha.update(i64(len(t["shape"])))
    for size in t["shape"]:
        sha.update(i64(size))
    sha.update(data)
sha.update(i64(shown["step"]))

for t, data in tensors:
    stats = t["stats"]
    every = values(t["dtype"], data)
    assert len(every) == stats["elements"] == math.prod(t["shape"]), t["name"]
    finite = [v for v in every if math.isfinite(v)]
    assert sum(map(math.isnan, every)) == stats["nan"], t["name"]
    assert sum(map(math.isinf, every)) == stats["inf"], t["name"]
    assert finite.count(0) == stats["zero"], t["name"]
    if not finite:
        assert stats["mean"] is None, t["name"]
        continue
    mean = math.fsum(finite) / len(finite)
    largest = max(map(abs, finite))
    want = {"min": min(finite), "max": max(finite), "mean": mean,
            "std": math.sqrt(math.fsum((v - mean) ** 2 for v in finite) /
                             len(finite)),
            "l2": math.sqrt(math.fsum(v * v for v in finite))}
    for key in want:
        assert math.isclose(stats[key], want[key], rel_tol=1e-9,
                            abs_tol=1e-12 * largest), (t["name"], key)
print(sha.hexdigest())
END
}

@test "known values of three ranks" {
    "$MPIRUN" 3 "$SAVER" save "$DIR/run" 4
    "$MPIRUN" 2 "$SAVER" load "$DIR/run" 4
    step=$DIR/run/checkpoints/step-000000004
    export_tensors "$step"
    check_exported >"$DIR/digest"
    [ "$(cat "$DIR/digest")" = "$("$CKPT" digest "$step")" ]
}

@test "weights and optimizer state of a training run, and of its copies" {
    make_data
    train 2 "$DIR/run" train.max_duration=4ba
    step=$(newest "$DIR/run")
    want=$("$CKPT" digest "$step")
    "$CKPT" reshard "$step" "$DIR/copy" --ranks 3
    for checkpoint in "$step" "$DIR/copy"; do
        export_tensors "$checkpoint"
        check_exported >"$DIR/digest"
        [ "$(cat "$DIR/digest")" = "$want" ]
    done
}

@test "training goes on from a copy with other shards to the same bits" {
    make_data
    train 1 "$DIR/ref" train.max_duration=6ba
    train 1 "$DIR/run" train.max_duration=3ba scheduler.t_max=6ba
    step=$(newest "$DIR/run")
    "$CKPT" reshard "$step" "$DIR/copy" --ranks 4
    rm -r "$step"
    mv "$DIR/copy" "$step"
    train 2 "$DIR/run" train.max_duration=6ba
    "$CKPT" diff "$(newest "$DIR/run")" "$(newest "$DIR/ref")" >"$DIR/out"
    grep -q ' tensors equal, 0 different' "$DIR/out"
}
