/* What tessera-hash expects of each style: README's table, with which
 * tests/hash.bats compares it. `make hash UPDATE=1` writes both. */
#pragma once

static const struct {
    const char *style, *digest;
} hash_digests[] = {
    { "mpt", "f869cecda9d15446" },     { "mpt-alibi", "f2e6d7b991d8e8a7" },
    { "llama", "c9c268e9f0f8dfe1" },   { "qk-norm", "8fe02226a4d52177" },
    { "moe", "813e4ab4dc9736a9" },     { "moe-power", "b4dfed676035e68b" },
    { "dropout", "62e687bc6760eb74" }, { "lion", "891405a1d194a905" },
    { "long", "31b0fd14d1593d86" },
};
