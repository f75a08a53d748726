/* What the parts of the saver share: ckpt_saver.c is the interface,
 * ckpt_saver_order.c what the thread does for a save to the run directory,
 * ckpt_saver_local.c for one to the nodes' own folders, ckpt_saver_thread.c
 * the thread itself. */
#ifndef TESSERA_CHECKPOINT_CKPT_SAVER_PRIVATE_H
#define TESSERA_CHECKPOINT_CKPT_SAVER_PRIVATE_H

#include <pthread.h>

#include "checkpoint/ckpt_save.h"
#include "src/base/arena.h"

enum ckpt_saver_job { JOB_NONE, JOB_SAVE, JOB_SAVE_LOCAL, JOB_QUIT };

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
    struct comm *comm; /* the thread's while it has a job */
    struct comm *own;  /* the duplicate; NULL: comm is lent */
    struct ckpt_save save;
    struct ckpt_item *sources; /* as the caller gave them */
    struct ckpt_item *items;   /* as the thread reads them */
    struct arena stage;        /* without memory: items are read in place */
    bool copying;              /* options.memory's copies may be under way */
    enum err staged;           /* how they were begun, ... */
    char staged_text[512];     /* ... and why not */
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
    pthread_cond_t wake; /* of the thread, and of who waits for its job */
    /* guarded */
    enum ckpt_saver_job job; /* JOB_NONE again when it is done */
    bool meets;              /* it waits for other ranks, not for files */
    struct ckpt_progress progress;
    enum err lost; /* the job ended without an outcome, for lost_text */
    char lost_text[512];
};

/* --- the thread --- */

enum err ckpt_saver_thread_create(struct ckpt_saver *saver);
/* Only when it has no job. */
void ckpt_saver_thread_end(struct ckpt_saver *saver);
/* One job at a time. */
void ckpt_saver_thread_give(struct ckpt_saver *saver, enum ckpt_saver_job job);
bool ckpt_saver_thread_done(struct ckpt_saver *saver);
/* Wait for its end, no longer than this. */
void ckpt_saver_thread_wait(struct ckpt_saver *saver, double seconds);

/* --- begun by the caller, used by the thread --- */

/* Begin a save: ERR_BUSY or ERR_COMM, or the items are copied, or will be. */
enum err ckpt_saver_stage(struct ckpt_saver *saver, int64_t step,
                          const json_t *state);
/* In the thread, before it reads the copy: it is there, or why it is not. */
enum err ckpt_saver_staged(struct ckpt_saver *saver);

/* --- the order, in the thread. What these return is the end of the saver: a
 * rank is missing. Whether the save goes on is in the outcome. --- */

enum err ckpt_saver_save(struct ckpt_saver *saver);
enum err ckpt_saver_save_local(struct ckpt_saver *saver);

/* The outcome becomes rc and its text. */
void ckpt_saver_set_outcome(struct ckpt_saver *saver, enum err rc);
/* It becomes that of `root`, on all ranks. */
enum err ckpt_saver_tell(struct ckpt_saver *saver, int root);
/* The worst of the ranks' codes becomes the outcome, on all ranks. Times go
 * into the progress. */
enum err ckpt_saver_agree(struct ckpt_saver *saver, enum err rc);
/* Records to rank 0. */
enum err ckpt_saver_gather(struct ckpt_saver *saver);
/* Wait for the others as long as the options say. */
enum err ckpt_saver_meet(struct ckpt_saver *saver,
                         struct comm_request *request);
/* From here on, or until here, the thread waits for others. */
void ckpt_saver_meets(struct ckpt_saver *saver, bool meets);
/* All shards are durable. */
void ckpt_saver_persisted(struct ckpt_saver *saver);
/* Rank 0: tell the caller's `record` how the save has ended; err_text() stays.
 */
void ckpt_saver_record(struct ckpt_saver *saver, enum err rc, double commit_s);

/* --- the node-local level --- */

enum err ckpt_saver_local_create(struct ckpt_saver *saver, const char *dir);
void ckpt_saver_local_destroy(struct ckpt_saver *saver);

#endif
