/* What the parts of the saver share: ckpt_saver.c is the interface,
 * ckpt_saver_order.c the table of all that the thread does for a save,
 * ckpt_saver_local.c what it does in the nodes' own folders,
 * ckpt_saver_thread.c the thread itself. */
#pragma once

#include <pthread.h>
#include <stddef.h>

#include "checkpoint/ckpt_save.h"
#include "src/base/arena.h"

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
};

/* What every rank tells of its shard, in microseconds where it is time. */
struct ckpt_saver_numbers {
    int64_t *codes, *lengths, *stage_us, *write_us; /* [ranks] each */
    size_t count;
};

struct ckpt_saver {
    struct comm *comm; /* the thread's while it saves */
    struct comm *own;  /* the duplicate; NULL: comm is lent */
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
    struct ckpt_saver_numbers numbers;
    struct ckpt_saver_outcome outcome; /* agreed by all ranks so far */
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

/* --- the thread --- */

enum err ckpt_saver_thread_create(struct ckpt_saver *saver);
/* Only when it is idle. */
void ckpt_saver_thread_end(struct ckpt_saver *saver);
/* Run the save that begins with this state; one at a time. */
void ckpt_saver_thread_give(struct ckpt_saver *saver,
                            enum ckpt_saver_state first);
bool ckpt_saver_thread_idle(struct ckpt_saver *saver);
/* Wait until it is idle, no longer than this. */
void ckpt_saver_thread_wait(struct ckpt_saver *saver, double seconds);
/* In it: from here on, or until here, it waits for others. */
void ckpt_saver_meets(struct ckpt_saver *saver, bool meets);
/* In it: the caller may see how far the work is. */
void ckpt_saver_publish(struct ckpt_saver *saver);

/* --- begun by the caller, used by the thread --- */

/* Begin a save: ERR_BUSY or ERR_COMM, or the items are copied, or will be. */
enum err ckpt_saver_stage(struct ckpt_saver *saver, int64_t step,
                          const json_t *state);
/* In the thread, before it reads the copy: it is there, or why it is not. */
enum err ckpt_saver_staged(struct ckpt_saver *saver);

/* --- the order, in the thread --- */

/* A whole save; how it ended is in `work`. An error is the end of the saver: a
 * rank is missing. */
enum err ckpt_saver_run(struct ckpt_saver *saver, enum ckpt_saver_state first);
/* Wait for the others as long as the options say. */
enum err ckpt_saver_meet(struct ckpt_saver *saver,
                         struct comm_request *request);

/* --- the node-local level --- */

enum err ckpt_saver_local_create(struct ckpt_saver *saver, const char *dir);
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
/* All nodes have the step: older ones go. */
enum err ckpt_saver_local_tidy(struct ckpt_saver *saver);

/* The copy that training waits for. memcpy() of one tensor takes nearly twice
 * as long as that of the whole state: it reads what it overwrites and drives
 * the training's data out of the cache. Stores past the cache do neither. */
#define CKPT_STAGE_ALIGN ((size_t)4096)

/* `to` is aligned to CKPT_STAGE_ALIGN. */
void ckpt_stage_copy(void *to, const void *from, size_t bytes);
