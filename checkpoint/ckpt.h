/* Checkpoints: sharded HDF5 with a manifest, committed by one rename.
 *
 *   RUN/checkpoints/step-000000060/shard-00000-of-00002.h5
 *   RUN/checkpoints/step-000000060/checkpoint.h5      all tensors, for others
 *   RUN/checkpoints/step-000000060/MANIFEST.json      written last
 *   RUN/checkpoints/.tmp-step-000000060.JOB.ATTEMPT   being written
 *   RUN/checkpoints/.bad-step-000000060.N             quarantined
 *   RUN/checkpoints/LATEST                            a hint, nothing more
 *
 * Only a committed checkpoint matches `step-*`. Every rank that owns something
 * writes one shard, numbered among those ranks (more than 1024 lie in folders
 * shards/NNN/); it holds, for each tensor of which the rank owns a part, one
 * dataset under the tensor's name (ckpt_hdf5.h), written past the library at
 * the dataset's file offset. checkpoint.h5 shows all tensors whole
 * (ckpt_view.h). MANIFEST.json (ckpt_manifest.h) holds format version, run
 * uuid, step, ranks, the caller's state, the tensor catalogue, per shard its
 * bytes, pieces (tensor, interval or box, file offset), CRC32C per block of
 * 4 MiB of payload, and one CRC32C over all bytes outside payload extents,
 * which is checked before any payload is believed; and the CRC32C of
 * checkpoint.h5 and of itself. Reading a checkpoint never needs HDF5.
 *
 * checkpoint/ knows no model: it sees a list of items.
 */
#ifndef TESSERA_CHECKPOINT_CKPT_H
#define TESSERA_CHECKPOINT_CKPT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/ckpt_part.h"
#include "src/base/dtype.h"
#include "src/base/err.h"
#include "src/comm/comm.h"

#define CKPT_NAME_BYTES 128
#define CKPT_BLOCK_BYTES (4u << 20)

/* One tensor as this rank sees it. On save the rank writes the part of it that
 * `data` holds; over all ranks each element must be written exactly once, which
 * is checked before the commit. On load the same fields say what the rank
 * wants; any part, any rank count, overlaps allowed. An empty part: nothing,
 * but every rank lists every tensor, in the same order. */
struct ckpt_item {
    char name[CKPT_NAME_BYTES];
    enum dtype dtype;
    int dims;
    int64_t shape[CKPT_DIMS_MAX];
    struct ckpt_part part;
    void *data; /* the part's elements, one after the other */
};

struct ckpt_options {
    const char *attempt; /* "JOB.ATTEMPT", names the temporary folder */
    int keep;            /* committed checkpoints to keep, >= 1; 0: all */
};

struct ckpt_result {
    int64_t bytes;    /* payload of all ranks */
    double persist_s; /* wall time of this save */
};

/* Write and commit checkpoint `step` under run_dir. `state` (rank 0's counts)
 * is stored in the manifest and given back on load. A committed checkpoint of
 * the same step that is good is replaced only after the new one is complete.
 * Any failure on any rank leaves no `step-*` folder, removes or hides the
 * temporary one and is returned on all ranks. Collective. */
enum err ckpt_save(struct comm *comm, const char *run_dir, int64_t step,
                   const json_t *state, const struct ckpt_item *items,
                   int item_count, const struct ckpt_options *options,
                   struct ckpt_result *result);

/* Called on every rank with the state of a candidate before its payload is
 * read, so that the caller may refuse a checkpoint of another model (its error
 * ends the load; it does not fall back). */
typedef enum err (*ckpt_accept_fn)(void *arg, int64_t step,
                                   const json_t *state);

/* Load the newest good checkpoint. Candidates are tried newest first; one whose
 * manifest, shards or payload fail their checks is logged, renamed to .bad-*
 * and the next older is tried. *step is -1 and ERR_OK is returned when there is
 * no checkpoint at all (nothing named step-*, .bad-step-* included: a run
 * whose every checkpoint is bad is ERR_CHECKPOINT, never a fresh start).
 * Names, dtypes or shapes that do not match the items are ERR_CHECKPOINT with a
 * list, without quarantine; nor is a checkpoint quarantined that can't be read
 * now (ERR_IO, ERR_SPACE) or that a newer version wrote (ERR_UNSUPPORTED): the
 * error is returned. *state is new (json_decref) on all ranks. On error
 * the items' data is undefined. Collective. */
enum err ckpt_load_newest(struct comm *comm, const char *run_dir,
                          ckpt_accept_fn accept, void *accept_arg,
                          const struct ckpt_item *items, int item_count,
                          int64_t *step, json_t **state);

/* Rename leftovers of dead attempts out of the way and delete them: .tmp-* and
 * .trash-*. Only while holding the run lock, by rank 0. */
enum err ckpt_sweep(const char *run_dir);

/* --- for tessera-ckpt: one process, no communicator --- */

struct ckpt_info {
    int64_t step;
    int ranks;
    int64_t bytes; /* payload */
    char path[1024];
    char state[16];   /* "good" (manifest and sizes check), "bad" */
    char reason[256]; /* why bad */
};

/* All committed checkpoints of a run, oldest first; *list is malloc'ed. */
enum err ckpt_list(const char *run_dir, struct ckpt_info **list, int *count);

/* Verify every byte of a checkpoint folder against its CRCs. */
enum err ckpt_verify(const char *checkpoint_dir);

/* SHA-256 over tensors sorted by name: name NUL dtype-name NUL dims(int64 LE)
 * shape[](int64 LE) row-major bytes; then the step (int64 LE); CRCs verified,
 * independent of sharding. hex has 65 bytes. */
enum err ckpt_digest(const char *checkpoint_dir, char hex[65]);

#endif
