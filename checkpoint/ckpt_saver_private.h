/* What the parts of the saver share: ckpt_saver.c is the interface,
 * ckpt_saver_order.c decides what comes next, ckpt_saver_thread.c does it. */
#ifndef TESSERA_CHECKPOINT_CKPT_SAVER_PRIVATE_H
#define TESSERA_CHECKPOINT_CKPT_SAVER_PRIVATE_H

#include <pthread.h>

#include "checkpoint/ckpt_save.h"
#include "src/base/arena.h"

enum ckpt_saver_task {
    TASK_NONE,
    TASK_BEGIN,
    TASK_WRITE,
    TASK_END,
    /* of the node-local level */
    TASK_LOCAL_WRITE,
    TASK_LOCAL_MANIFEST,
    TASK_LOCAL_PREPARE,
    TASK_LOCAL_FOLD,
    TASK_LOCAL_VERIFY,
    TASK_LOCAL_COMMIT,
    TASK_LOCAL_TIDY,
    TASK_LOCAL_CLEAN,
    TASK_QUIT
};

/* What a save waits for. */
enum ckpt_saver_state {
    STATE_IDLE,
    STATE_BEGIN,   /* task */
    STATE_FOLDER,  /* broadcast */
    STATE_WRITE,   /* task */
    STATE_AGREE,   /* all-reduce */
    STATE_RECORDS, /* to rank 0 */
    STATE_REASON,  /* broadcast */
    STATE_END,     /* task */
    STATE_RESULT,  /* broadcast */
    /* of the node-local level, in this order */
    STATE_LOCAL_WRITE,     /* task */
    STATE_LOCAL_AGREE,     /* all-reduce */
    STATE_LOCAL_RECORDS,   /* to rank 0 */
    STATE_LOCAL_MANIFEST,  /* task, rank 0 */
    STATE_LOCAL_OUTCOME,   /* broadcast, with the manifest's length */
    STATE_LOCAL_TEXT,      /* broadcast */
    STATE_LOCAL_PREPARE,   /* task */
    STATE_LOCAL_PREPARED,  /* all-reduce */
    STATE_LOCAL_COPY,      /* copies, or rounds of parity, on their way */
    STATE_LOCAL_VERIFY,    /* task */
    STATE_LOCAL_VERIFIED,  /* all-reduce */
    STATE_LOCAL_COMMIT,    /* task */
    STATE_LOCAL_COMMITTED, /* all-reduce */
    STATE_LOCAL_TIDY,      /* task */
    STATE_LOCAL_REASON,    /* broadcast, after a failure */
    STATE_LOCAL_CLEAN,     /* task */
    STATE_LOCAL_CLEANED,   /* all-reduce */
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
    struct comm *comm;
    struct comm *own; /* the duplicate; NULL: comm is lent */
    struct ckpt_save save;
    struct ckpt_item *sources; /* as the caller gave them */
    struct ckpt_item *items;   /* as the thread reads them */
    struct arena stage;        /* without memory: items are read in place */
    bool copying;              /* options.memory's copies may be under way */
    enum err staged;           /* how they were begun, ... */
    char staged_text[512];     /* ... and why not */

    enum ckpt_saver_state state;
    double polled_s, waited_s; /* last looked at; of the deadline */
    struct comm_request *request;
    struct ckpt_saver_numbers numbers;
    struct ckpt_saver_outcome outcome; /* ends equal on all ranks */
    struct ckpt_progress progress;
    bool broken;
    char failure[512];

    struct ckpt_saver_local *local; /* NULL: no node-local level */

    pthread_t thread;
    bool thread_made;
    pthread_mutex_t mutex;
    pthread_cond_t wake; /* of the thread, and of who waits for its task */
    enum ckpt_saver_task task; /* guarded; TASK_NONE again when it is done */
    struct ckpt_saver_outcome done;
    double task_s;
};

/* --- the thread --- */

enum err ckpt_saver_thread_create(struct ckpt_saver *saver);
/* Only when it has no task. */
void ckpt_saver_thread_end(struct ckpt_saver *saver);
/* In the thread: tell the caller's `record` how the save has ended; err_text()
 * stays. */
void ckpt_saver_record(const struct ckpt_saver *saver, enum err rc,
                       double commit_s);
/* One task at a time; `done` and `task_s` are its result. */
void ckpt_saver_task_give(struct ckpt_saver *saver, enum ckpt_saver_task task);
bool ckpt_saver_task_done(struct ckpt_saver *saver);
/* Wait for its end, no longer than this. */
void ckpt_saver_task_wait(struct ckpt_saver *saver, double seconds);

/* --- the order --- */

/* Begin a save: ERR_BUSY or ERR_COMM, or the items are copied, or will be. */
enum err ckpt_saver_stage(struct ckpt_saver *saver, int64_t step);
/* In the thread, before it reads the copy: it is there, or why it is not. */
enum err ckpt_saver_staged(struct ckpt_saver *saver);

/* The outcome goes from `root` to all, who then are in `state`. */
enum err ckpt_saver_broadcast(struct ckpt_saver *saver,
                              enum ckpt_saver_state state, int root);
/* Rank 0: `done` says how the temporary folder was made. */
enum err ckpt_saver_after_begin(struct ckpt_saver *saver);
/* Go on as far as possible without waiting. */
enum err ckpt_saver_advance(struct ckpt_saver *saver);
/* It is too late: an error that names who is missing, unless it came now. */
enum err ckpt_saver_deadline(struct ckpt_saver *saver);
/* The outcome of this rank's task, for the others. */
void ckpt_saver_take_outcome(struct ckpt_saver *saver);
/* Every rank's code, length of its record and times go to all. */
enum err ckpt_saver_agree(struct ckpt_saver *saver,
                          enum ckpt_saver_state state);
/* What was agreed: the rank that speaks for a failure, -1: none failed. Times
 * go into the progress. */
int ckpt_saver_agreed(struct ckpt_saver *saver);
/* Records to rank 0. */
enum err ckpt_saver_gather(struct ckpt_saver *saver,
                           enum ckpt_saver_state state);
/* The outcome is the end of the save. */
enum err ckpt_saver_finish(struct ckpt_saver *saver);

/* --- the node-local level: the same interface for its states and tasks --- */

enum err ckpt_saver_local_create(struct ckpt_saver *saver, const char *dir);
void ckpt_saver_local_destroy(struct ckpt_saver *saver);
bool ckpt_saver_local_waits(struct ckpt_saver *saver);
/* In STATE_LOCAL_COPY: an error that names who is missing after so long. */
enum err ckpt_saver_local_deadline(struct ckpt_saver *saver, double timeout_s);
enum err ckpt_saver_local_next(struct ckpt_saver *saver);
enum err ckpt_saver_local_task(struct ckpt_saver *saver,
                               enum ckpt_saver_task task);

/* Free what belongs to one save. */
void ckpt_saver_forget(struct ckpt_save *save);

#endif
