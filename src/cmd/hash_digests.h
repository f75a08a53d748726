/* What tessera-hash expects of each style: README's table, with which
 * tests/hash.bats compares it. `make hash UPDATE=1` writes both. */
#pragma once

static const struct {
    const char *style, *digest;
} hash_digests[] = {
    { "mpt", "4723b55b4e57d159" },     { "mpt-alibi", "022d6c5765a57718" },
    { "llama", "6c871de6de00c2a3" },   { "qk-norm", "8fe02226a4d52177" },
    { "moe", "6a3d246896f8e870" },     { "moe-power", "b4dfed676035e68b" },
    { "dropout", "9d7a092c9a2f5c1c" }, { "lion", "adbf4b10cb921c48" },
    { "long", "4fa6204c537a3155" },
};
