/* Checkpoints: sharded HDF5 with a manifest, committed by one rename.
 *
 *   RUN/checkpoints/step-000000060/shard-00000-of-00002.h5
 *   RUN/checkpoints/step-000000060/checkpoint.h5      all tensors, for others
 *   RUN/checkpoints/step-000000060/MANIFEST.json      written last
 *   RUN/checkpoints/.tmp-step-000000060.JOB.ATTEMPT   being written
 *   RUN/checkpoints/.bad-step-000000060.N             quarantined
 *   RUN/checkpoints/LATEST                            a hint, nothing more
 *   RUN/checkpoints/RUN_UUID                          whose folder it is
 *
 * Only a committed checkpoint matches `step-*`. Every rank that owns something
 * writes one shard, or several ranks of a node one together; they are numbered by
 * these ranks (more than 1024 lie in folders
 * shards/NNN/). A shard holds, for each tensor of which its ranks own a part, one
 * dataset under the tensor's name (ckpt_hdf5.h), written past the library at
 * the dataset's file offset. checkpoint.h5 shows all tensors whole
 * (ckpt_view.h). MANIFEST.json (ckpt_manifest.h) holds format version, run
 * uuid, step, ranks, the caller's state, the tensor catalogue, per shard its
 * bytes, extents (tensor, interval or box, file offset), CRC32C per block of
 * 4 MiB of payload, and one CRC32C over all bytes outside payload extents,
 * which is checked before any payload is believed; and the CRC32C of
 * checkpoint.h5 and of itself. Reading a checkpoint never needs HDF5.
 *
 * checkpoint/ knows no model: it sees a list of items.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/files/ckpt_part.h"
#include "src/base/arena.h"
#include "src/base/err.h"
#include "src/comm/comm.h"

/* The way to items whose data is not the program's own memory but, say, that of
 * a device. All but copy_in is for saving, copy_in is for loading. */
struct ckpt_memory {
    void *arg;
    /* Copy from an item's data into the saver's copy; called where the save is
     * started. It may return before the bytes are there if there is a finish;
     * that the data does not change meanwhile is the owner's business. */
    enum err (*copy_out)(void *arg, void *to, const void *from, size_t bytes);
    /* All copies that were begun are done: called by the saver's thread before
     * it reads any, by none other while that works. NULL: copy_out waits. */
    enum err (*finish)(void *arg);
    /* Memory for the saver's copy of all items, such as copies reach without
     * the processor. */
    enum err (*stage_create)(size_t bytes, struct arena *out);
    void (*stage_destroy)(struct arena *arena);
    /* Copy into an item's data; `from` may change when it returns. */
    enum err (*copy_in)(void *arg, void *to, const void *from, size_t bytes);
};

struct ckpt_progress;

struct ckpt_options {
    const char *attempt;   /* "JOB.ATTEMPT", names the temporary folder */
    int keep;              /* committed checkpoints to keep, >= 1; 0: all */
    int64_t keep_every;    /* multiples of it are kept for good; 0: none */
    bool keep_best;        /* and the one with the least loss */
    double timeout_s;      /* of writing, and of each wait for others; 0: 600 */
    bool stage;            /* save copies; the items may change at once */
    int file_ranks;        /* of a node, that write a file of the run directory
                            * together, at most; 0: each its own */
    const char *local_dir; /* this node's, for ckpt_saver_start_local(); NULL:
                            * none. Swept when the saver is made */
    const char *local_key; /* signs what is saved there; NULL: "" */
    /* It is memory, and two whole steps lie there: the one before a save stays
     * until the next save begins. That is this one, or -1, when the first begins;
     * others go then. */
    bool local_two;
    int64_t local_kept;
    int xor_group; /* of the local shards: parity over groups of so many nodes
                    * at most (2 to 32); 0: over pairs */
    /* NULL: items' data is memory of the program. Otherwise every save copies,
     * whatever `stage` says. Lent to the saver. */
    const struct ckpt_memory *memory;

    /* Called on rank 0 in the saver's thread when a save is PERSISTED,
     * COMMITTED or has FAILED, before the ranks learn of it; for records of it
     * in files. May be NULL. */
    void (*record)(void *arg, const struct ckpt_progress *progress);
    /* Asked on rank 0, in that thread, when all is written and the commit is
     * next: may the run directory still be written to? An error fails the save
     * and nothing is committed. May be NULL. */
    enum err (*may_commit)(void *arg);
    /* Asked likewise, after a commit: a step that stays although it would go; 0:
     * none. May be NULL. */
    int64_t (*spared)(void *arg);
    void *record_arg; /* of all three */
};

/* --- saving ---
 *
 * A saver copies this rank's items at a step boundary into memory that was
 * allocated and touched when it was made. A thread of its own does the rest
 * while training goes on: it writes the copy, and agrees with those of the
 * other ranks on the saver's own communicator; so a save takes the time of its
 * writes, however long a step is. Savers of a process may work at the same time. */
struct ckpt_saver;

enum ckpt_phase {
    CKPT_IDLE,      /* no save was started, or its end was reported */
    CKPT_STAGED,    /* being written */
    CKPT_PERSISTED, /* the shards of all ranks are durable */
    CKPT_COMMITTED, /* it is the newest checkpoint */
    CKPT_FAILED     /* nothing of it is left */
};

/* How the save in flight, or the one that has just ended, is doing. From the
 * phase PERSISTED on everything but total_s is the same on all ranks, though
 * they may see it at different steps. */
struct ckpt_progress {
    enum ckpt_phase phase;
    bool local; /* to the nodes' own folders */
    int64_t step;
    int64_t bytes;    /* payload of all ranks */
    double stage_s;   /* the copy: what training waited for; largest of ranks */
    double persist_s; /* the shards; largest of ranks */
    double commit_s;  /* manifest, commit, retention */
    double total_s;   /* from the start to the end, which training may see later
                       */
    enum err error;   /* why it FAILED, with the rank if there are several */
    char text[512];
};

/* Make a saver for these items, whose memory must stay where it is. The
 * options' texts are copied. Items that can't be saved are an error here.
 * Collective; duplicates comm. */
enum err ckpt_saver_create(struct comm *comm, const char *run_dir,
                           const struct ckpt_options *options,
                           const struct ckpt_item *items, int item_count,
                           struct ckpt_saver **out);

/* Memory that a saver which copies takes for its copy of the items, whose data
 * is not looked at; of it *small is written by way of buffers. */
size_t ckpt_saver_stage_bytes(const struct ckpt_item *items, int item_count,
                              size_t *small);

/* Begin to save the items' present values as `step`. A committed checkpoint of
 * the same step that is good is replaced only after the new one is complete; any
 * failure on any rank leaves no `step-*` folder and removes or hides the temporary
 * one. `state` (rank 0's counts)
 * is copied, stored in the manifest and given back on load. A copy that fails
 * fails the save. Without options.stage the items must not change before the
 * save has ended. ERR_BUSY while a save is in flight here. All ranks start the
 * same saves; does not wait for them. */
enum err ckpt_saver_start(struct ckpt_saver *saver, int64_t step,
                          const json_t *state);

/* The same to the nodes' own folders, with parity of each shard on other nodes
 * (ckpt_local.h): COMMITTED when all nodes have the step. An older
 * local step stays until then, and goes afterwards (options.local_two: at the next
 * save). Without `state` on rank 0, which has no memory for it, the save fails. */
enum err ckpt_saver_start_local(struct ckpt_saver *saver, int64_t step,
                                const json_t *state);

/* Look how far the save is, without waiting; from the thread that made the
 * saver. COMMITTED and FAILED are reported once, then IDLE. A save that fails
 * is not an error here; ERR_COMM is: others waited options.timeout_s for a
 * rank, or this one's writes don't end in that time. (Of that a time between
 * two polls counts for a tenth at most.) The saver is of no use then, and the
 * process should end soon: the thread may still write. */
enum err ckpt_saver_poll(struct ckpt_saver *saver,
                         struct ckpt_progress *progress);

/* Wait until the save in flight has ended; IDLE if there is none. */
enum err ckpt_saver_wait(struct ckpt_saver *saver,
                         struct ckpt_progress *progress);

/* Waits for a save in flight, unless there was ERR_COMM. NULL is fine. false:
 * its thread still writes, and what was lent to the saver must stay as it is
 * until the process ends, which it should soon. Collective. */
bool ckpt_saver_destroy(struct ckpt_saver *saver);

/* Called on every rank with the state of a candidate before its payload is
 * read, so that the caller may refuse a checkpoint of another model (its error
 * ends the load; it does not fall back). */
typedef enum err (*ckpt_accept_fn)(void *arg, int64_t step,
                                   const json_t *state);

/* The same on all ranks; all zero, or NULL for it: everything, as stored. */
struct ckpt_load_options {
    ckpt_accept_fn accept; /* NULL: any */
    void *accept_arg;
    /* Globs (fnmatch, `*` matches slashes too) of tensor names that are left
     * out on both sides: an item that matches keeps its data, a stored tensor
     * that matches is not read. "optimizer/" and a star: weights only. */
    const char *const *ignore;
    int ignore_count;
    int ignore_told; /* the last so many: a warning names one without a match */
    /* This node's folder of node-local checkpoints; NULL: none. Those of this
     * run (ckpt_index_uuid_write()) that the nodes still hold together are candidates
     * like those of the run directory, and come before them at the same step.
     */
    const char *local_dir;
    const char *local_key; /* others than those that it has signed do not
                            * count; NULL: "" */
    /* An item may have another floating-point dtype than the stored tensor; it
     * is converted on the way, rounded to nearest even. */
    bool convert;
    const struct ckpt_memory *memory; /* as in struct ckpt_options */
};

/* What one rank did. Replicas: over all ranks, each block is read once. */
struct ckpt_load_stats {
    bool local;             /* a node-local checkpoint was loaded */
    int64_t read_bytes;     /* payload from files */
    int64_t received_bytes; /* payload from other ranks */
    int64_t buffer_bytes;   /* for payload, whatever the sizes and ranks */
    double seconds;
};

/* Load the newest good checkpoint. Candidates are tried newest first; one whose
 * manifest, shards or payload fail their checks is logged, renamed to .bad-*
 * and the next older is tried. *step is -1 and ERR_OK is returned when there is
 * no checkpoint at all (nothing named step-*, .bad-step-* included: a run
 * whose every checkpoint is bad is ERR_CHECKPOINT, never a fresh start).
 * Names, dtypes or shapes that do not match the items are ERR_CHECKPOINT with a
 * list, without quarantine; nor is a checkpoint quarantined that can't be read
 * now (ERR_IO, ERR_FULL, ERR_SPACE) or that a newer version wrote (ERR_UNSUPPORTED):
 * the error is returned. *state is new (json_decref) on all ranks; stats may be
 * NULL. On error the items' data is undefined. Collective. */
enum err ckpt_load(struct comm *comm, const char *run_dir,
                   const struct ckpt_load_options *options,
                   const struct ckpt_item *items, int item_count, int64_t *step,
                   json_t **state, struct ckpt_load_stats *stats);

/* The same from this one folder, say another run's: nothing is listed, renamed
 * or tried instead; damage is ERR_CHECKPOINT. Collective. */
enum err ckpt_load_from(struct comm *comm, const char *checkpoint_dir,
                        const struct ckpt_load_options *options,
                        const struct ckpt_item *items, int item_count,
                        int64_t *step, json_t **state,
                        struct ckpt_load_stats *stats);

/* --- for tessera-ckpt: one process, no communicator --- */

struct ckpt_info {
    int64_t step;
    int ranks;
    int64_t bytes; /* payload */
    char path[1024];
    char state[16];   /* "good" (manifest and sizes check), "bad", or "unknown":
                       * it can't be read now */
    char reason[256]; /* why not good */
    double eval_loss; /* of the step's evaluation; NAN: there was none */
    char eval_of[96]; /* set and tokens of that (ckpt_index_loss()) */
    bool best;        /* of the list, by that (ckpt_index_better()) */
};

/* One checkpoint folder; `step` is -1 where neither manifest nor name tells. */
enum err ckpt_describe(const char *checkpoint_dir, struct ckpt_info *info);

/* All committed checkpoints of a run, oldest first; *list is malloc'ed. */
enum err ckpt_list(const char *run_dir, struct ckpt_info **list, int *count);

/* SHA-256 over tensors sorted by name: name NUL dtype-name NUL dims(int64 LE)
 * shape[](int64 LE) row-major bytes; then the step (int64 LE); CRCs verified,
 * independent of sharding. hex has 65 bytes. */
enum err ckpt_digest(const char *checkpoint_dir, char hex[65]);
