/* Making lost shards of a node-local checkpoint again, from parity
 * (ckpt_parity.h) and the shards of the other nodes.
 *
 * The members that are left form a chain. Each adds what it has to a segment of
 * 4 MiB and passes it on; the last one writes it into a file on its node. So
 * every rank sends and receives a lost shard once at most, whatever the size of
 * the set. What takes part is checked before, and the result against the
 * manifest, before the file gets the shard's name. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/files/ckpt_manifest.h"
#include "src/base/err.h"
#include "src/comm/comm.h"

/* A node-local step that lacks shards, the same on all ranks but for `dir` and
 * `holds`. */
struct ckpt_rebuild {
    const char *dir; /* of this rank's node */
    const struct ckpt_manifest *manifest;
    uint32_t manifest_crc; /* CRC32C of its text */
    const bool *holds;     /* [shards]: this rank can open it */
    bool here;             /* this node has that very manifest */
};

/* Make every shard that no rank holds again, on some node. *rebuilt, the same
 * on all ranks: all are there now; if not, the log says why. What is damaged,
 * lost or does not fit is no error. Collective. */
enum err ckpt_rebuild(struct comm *comm, const struct ckpt_rebuild *lost,
                      bool *rebuilt);
