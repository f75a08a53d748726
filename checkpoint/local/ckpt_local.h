/* Node-local checkpoints: quick to write and to read, and lost with their node;
 * so other nodes keep parity of every shard (ckpt_xor.h).
 *
 * A folder of the node (tmpfs or NVMe) is laid out like a run directory:
 *
 *   LOCAL/checkpoints/step-000000060/shard-00002-of-00008.h5  own
 *   LOCAL/checkpoints/step-000000060/parity-00001-02  of other nodes'
 *   LOCAL/checkpoints/step-000000060/MANIFEST.json  the same on every node
 *
 * Nothing there is synced: what outlives the processes is enough, and a node
 * that loses power is made up for by its group. Ranks on one node see the same
 * folder. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "checkpoint/files/ckpt_manifest.h"
#include "src/base/fsio.h"
#include "src/comm/comm.h"
#include "src/base/err.h"

/* A local checkpoint that the nodes of a communicator hold together. */
struct ckpt_local {
    int64_t step;
    int64_t ignored; /* the newest looked at that is another run's; -1: none */
    int64_t refused; /* of this run's uuid, without its signature; -1: none */
    char dir[FSIO_PATH_MAX];        /* of this rank's node */
    const char *root;               /* the folder that this is in; lent */
    struct ckpt_manifest *manifest; /* NULL: there is none */
    uint32_t manifest_crc;          /* CRC32C of its text */
    bool here;                      /* this node has that very manifest */
    bool *holds; /* [shards]: this rank can open it, with its right size */
};

/* The newest one of a step in (above, below) of which every shard is on some
 * node, or was made again there from parity (ckpt_rebuild.h); *out is empty
 * when there is none. A folder that is not there, or whose manifest is damaged,
 * of another run than run_uuid, not signed by the key, or another
 * than that of the lowest rank that has the step, holds nothing. Collective. */
enum err ckpt_local_choose(struct comm *comm, const char *local_dir,
                           const char *key, const char *run_uuid, int64_t above,
                           int64_t below, struct ckpt_local *out);
/* A read met damage: every shard is read on each node that has it, one that is
 * damaged is removed and counts as lost, and *whole says whether all are on some
 * node all the same, on another node or made again. Collective. */
enum err ckpt_local_mend(struct comm *comm, struct ckpt_local *local,
                         bool *whole);
/* Frees what it points to. */
void ckpt_local_free(struct ckpt_local *local);

/* The signature of a node-local checkpoint, file SIGNATURE beside its manifest:
 * HMAC-SHA256 of the manifest's text, which holds the checksums of all else. Who
 * does not have the key, the run's secret, can lay no checkpoint there that a run
 * believes; DESIGN.md says what that is good for, and what not.
 *
 * Keys are texts; NULL is "". */
enum err ckpt_sign(const char *checkpoint_dir, const char *key,
                   const char *manifest, size_t bytes);
