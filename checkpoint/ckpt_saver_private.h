/* What the parts of the saver share: ckpt_saver.c is the interface and the thread,
 * ckpt_save.c what is done to files (of several ranks' ckpt_save_shared.c), ckpt_saver_order.c the table of all that the thread does for a save,
 * ckpt_saver_local.c what it does in the nodes' own folders. */
#pragma once

#include <pthread.h>
#include <stddef.h>

#include "checkpoint/ckpt.h"
#include "checkpoint/ckpt_group.h"
#include "checkpoint/files/ckpt_index.h"
#include "checkpoint/files/ckpt_manifest.h"
#include "src/base/fsio.h"

struct ckpt_save {
    struct ckpt_options options; /* the texts are the saver's */
    char run_dir[FSIO_PATH_MAX], local_dir[FSIO_PATH_MAX];
    char attempt[CKPT_NAME_BYTES];
    int rank, ranks;
    int writers;                   /* ranks that have something to save */
    int *shard_of;                 /* [ranks]: number among these; -1: none */
    struct ckpt_group group;       /* who writes a file of the run directory */
    int *file_of, files;           /* the same of these files */
    bool *makes;                   /* [ranks]: it is a group's maker */
    int64_t bytes;                 /* payload of all ranks */
    const struct ckpt_item *items; /* where the values are */
    int item_count;
    struct ckpt_index_known known; /* rank 0's, in the run directory */

    /* of one save */
    int64_t step;
    json_t *state;
    char tmp[FSIO_PATH_MAX];
    char *record; /* this rank's shard, and its extents; NULL: none */
    size_t record_bytes;
    char *records;    /* rank 0: everybody's, one behind the other */
    int64_t *lengths; /* rank 0: of them, [ranks] */
};

/* States of the thread; the table in ckpt_saver_order.c says what is done in
 * each. */
enum ckpt_saver_state {
    SAVER_IDLE, /* no save, or it has ended */
    SAVER_QUIT, /* the thread ends */
    RUN_BEGIN,  /* a save to the run directory begins here, ... */
    RUN_WRITE,
    RUN_PERSISTED,
    RUN_COMMIT,
    RUN_GIVE_UP,
    RUN_END,
    RUN_REMOVE,
    RUN_REMOVED,
    NODE_WRITE, /* ... and here one to the nodes' own folders */
    NODE_GATHER,
    NODE_MANIFEST,
    NODE_SHARE,
    NODE_PREPARE,
    NODE_EXCHANGE,
    NODE_VERIFY,
    NODE_PERSISTED,
    NODE_COMMIT,
    NODE_TAKE_BACK,
    NODE_CLEAN,
    NODE_END,
    NODE_TIDY
};

struct ckpt_saver_outcome {
    int64_t code;  /* enum err */
    int64_t bytes; /* of the local manifest */
    double commit_s;
    char text[512];
    char trash[CKPT_NAME_BYTES]; /* a step's folder that goes; "": none */
};

/* What ranks agree on, each number the largest of all ranks' (agree()). */
enum { SAVER_WORST, SAVER_STAGE_US, SAVER_WRITE_US, SAVER_NUMBERS };

struct ckpt_saver {
    struct comm *comm; /* a duplicate, the thread's while it saves */
    struct ckpt_save save;
    struct ckpt_item *sources; /* as the caller gave them */
    struct ckpt_item *items;   /* as the thread reads them */
    struct arena stage;        /* without memory: items are read in place */
    bool copying;              /* options.memory's copies may be under way */
    struct err_kept staged;    /* how they were begun */
    double start_s;            /* of the save */

    /* the caller's thread */
    double polled_s, waited_s; /* last looked at; of the deadline */
    bool broken;
    char failure[512];

    /* the saver's thread */
    int64_t numbers[SAVER_NUMBERS], length; /* sent until they have come */
    struct ckpt_saver_outcome outcome;      /* agreed by all ranks so far */
    struct ckpt_progress work;
    double met_s;                   /* when the last exchange ended */
    struct ckpt_saver_local *local; /* NULL: no node-local level */

    pthread_t thread;
    bool thread_made;
    pthread_mutex_t mutex;
    pthread_cond_t wake; /* of the thread, and of who waits for it */
    /* guarded */
    enum ckpt_saver_state first; /* of the save to run; SAVER_IDLE: none */
    bool meets;                  /* it waits for other ranks, not for files */
    struct ckpt_progress progress;
    struct err_kept lost; /* why the save ended without an outcome */
};

/* --- in the thread --- */

/* From here on, or until here, it waits for others. */
void ckpt_saver_meets(struct ckpt_saver *saver, bool meets);
/* The caller may see how far the work is. */
void ckpt_saver_publish(struct ckpt_saver *saver);

/* Before it reads the copy: it is there, or why it is not. */
enum err ckpt_saver_staged(struct ckpt_saver *saver);

/* --- the order, in the thread --- */

/* A whole save; how it ended is in `work`. An error is the end of the saver: a
 * rank is missing. */
enum err ckpt_saver_run(struct ckpt_saver *saver, enum ckpt_saver_state first);
/* Wait for the others as long as the options say. */
enum err ckpt_saver_meet(struct ckpt_saver *saver,
                         struct comm_request *request);

/* --- what it does in the run directory --- */

/* Whether the items can be saved at all; needs no other rank. */
enum err ckpt_save_check(const struct ckpt_save *save);

/* Who writes, and how much in all: known to everybody. Made once. Collective. */
enum err ckpt_save_plan(struct ckpt_save *save, struct comm *comm);

/* Rank 0: make the temporary folder and look for room. */
enum err ckpt_save_begin(struct ckpt_saver *saver);

/* Write a shard of this rank's own, and its record. */
enum err ckpt_save_write(struct ckpt_save *save);
/* Write this rank's part of its group's; the record is the maker's. rc: whether
 * there is something to write. */
enum err ckpt_save_write_group(struct ckpt_saver *saver, enum err rc);
/* The same of the group: *shard is filled on the maker (as by ckpt_shard_write()).
 * Each waits for the others and tells them of its own failure. */
enum err ckpt_save_shared(struct ckpt_saver *saver, enum err rc,
                          const char *file,
                          const struct ckpt_hdf5_identity *identity,
                          struct ckpt_shard *shard);

/* Rank 0: the manifest of the gathered records, as a text without a view, which
 * is malloc'ed; text NULL: into the temporary folder, with a view. */
enum err ckpt_save_manifest(const struct ckpt_save *save, char **text,
                            size_t *bytes);

/* Rank 0: manifest, commit. */
enum err ckpt_save_commit(struct ckpt_saver *saver);

/* Rank 0, when the commit has been told: LATEST, and the step that goes is hidden.
 * Nothing here can make the save fail any more. */
void ckpt_save_tidy(struct ckpt_saver *saver);

/* After it, for the step that goes: each maker removes the file that it has written,
 * then, as others have, rank 0 what is left. A failure is no more than trash that
 * the next sweep finds. */
enum err ckpt_save_remove_file(struct ckpt_saver *saver);
enum err ckpt_save_remove_rest(struct ckpt_saver *saver);

/* Rank 0, after a failure on any rank: hide and remove the temporary folder. */
enum err ckpt_save_give_up(struct ckpt_saver *saver);

/* --- the node-local level --- */

enum err ckpt_saver_local_create(struct ckpt_saver *saver);
void ckpt_saver_local_destroy(struct ckpt_saver *saver);
/* What is of one save; without the level nothing. */
void ckpt_saver_local_forget(struct ckpt_saver *saver);

/* What the table's rows do, on each rank. */
enum err ckpt_saver_local_write(struct ckpt_saver *saver);
/* Rank 0 makes the manifest, and it goes to all. */
enum err ckpt_saver_local_format(struct ckpt_saver *saver);
enum err ckpt_saver_local_share(struct ckpt_saver *saver, enum err rc);
/* The shards are protected by what other nodes hold (ckpt_xor.h). */
enum err ckpt_saver_local_prepare(struct ckpt_saver *saver);
enum err ckpt_saver_local_exchange(struct ckpt_saver *saver, enum err rc);
/* The last that is asked before nodes commit, each for itself. */
enum err ckpt_saver_local_verify(struct ckpt_saver *saver);
/* The rename, once a node; and back. */
enum err ckpt_saver_local_commit(struct ckpt_saver *saver);
enum err ckpt_saver_local_revoke(struct ckpt_saver *saver);
/* What was made for a save that failed goes. */
enum err ckpt_saver_local_clean(struct ckpt_saver *saver);
/* All nodes have the step: older ones go, with options.local_two at the next
 * save. */
enum err ckpt_saver_local_tidy(struct ckpt_saver *saver);

/* The copy that training waits for. memcpy() of one tensor takes nearly twice
 * as long as that of the whole state: it reads what it overwrites and drives
 * the training's data out of the cache. Stores past the cache do neither. */
#define CKPT_STAGE_ALIGN ((size_t)4096)

/* `to` is aligned to CKPT_STAGE_ALIGN. */
void ckpt_stage_copy(void *to, const void *from, size_t bytes);
