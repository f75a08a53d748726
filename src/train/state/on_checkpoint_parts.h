/* The parts of the listener that saves and restores, each in a file of its own. */
#pragma once

#include "checkpoint/ckpt.h"
#include "src/base/err.h"
#include "src/base/own.h"
#include "src/formats/weights_ckpt_config.h"
#include "src/train/run/run.h"

/* What a run's checkpoints hold: the replica's tensors, and the tokenizer of
 * its data, byte for byte, as the tensor "data/tokenizer" (u8), so that whoever
 * has a checkpoint can read and write its tokens. Rank 0 gives the tokenizer; a
 * load leaves it alone, since the data set has it, too. */

#define ON_CHECKPOINT_TOKENIZER WEIGHTS_CKPT_TOKENIZER

struct on_checkpoint_items;

/* Borrows the trainer, whose replica and data are there. Collective. */
enum err on_checkpoint_items_create(struct run *run,
                                    struct on_checkpoint_items **out);
/* After the saver. NULL is fine. */
void on_checkpoint_items_destroy(struct on_checkpoint_items *items);

/* Lent. */
const struct ckpt_item *
on_checkpoint_items_list(const struct on_checkpoint_items *items, int *count);

/* A checkpoint's way between a device and the host: copies on a stream of their
 * own, beside the training. They begin when the step's work is done, and the
 * next update waits for them (run->engine.copied), both on the device. */

struct on_checkpoint_copies;

/* *out is NULL where the host reaches tensors: the functions below take that.
 * The trainer is borrowed. */
enum err on_checkpoint_copies_create(struct run *run,
                                     struct on_checkpoint_copies **out);
/* After the saver. */
void on_checkpoint_copies_destroy(struct on_checkpoint_copies *copies);

/* For the options of ckpt.h; lent; NULL: the program's memory. */
const struct ckpt_memory *
on_checkpoint_copies_memory(const struct on_checkpoint_copies *copies);

/* Before and after the start of a save. */
enum err on_checkpoint_copies_begin(struct on_checkpoint_copies *copies);
enum err on_checkpoint_copies_end(struct on_checkpoint_copies *copies);

/* How a start finds its state: the run's newest good checkpoint; at the first
 * start that of another run, where checkpoint.load names one; or nothing, and
 * the run begins. */

struct on_checkpoint_from {
    const struct ckpt_item *items;
    int count;
    const struct ckpt_memory *memory; /* as in ckpt_load_options */
    const char *local_dir;            /* likewise */
    const char *local_key;
};

struct on_checkpoint_restored {
    int64_t committed;   /* step that is in the run directory; -1: none */
    json_t *arithmetics; /* all that the run has computed with, in order */
};

/* Collective. */
enum err on_checkpoint_restore(struct run *run,
                               const struct on_checkpoint_from *from,
                               struct on_checkpoint_restored *out);

/* --- when (on_checkpoint_interval.c) ---
 *
 * How often to save when checkpoint.interval is "auto": the interval that loses
 * the least time (checkpoint/ckpt_interval.h) by what the attempt's own saves
 * cost and by how often the ledger's nodes have failed. Lives on rank 0 alone;
 * the others hear that a save is due in the exchange of the step.
 *
 * The ledger is read once, when an attempt starts. The first save is due after
 * ON_CHECKPOINT_INTERVAL_FIRST_STEPS: late enough that the time of a step is
 * known, early enough that the cost of a save is known almost from the start
 * (and a place that cannot be written to, too). With each commit the interval
 * is made anew from the medians of the newest saves and steps. It is at
 * least 1.1 times what a save takes from its start to its end, and long enough
 * that training waits for saves a tenth of the time at most: where the formula
 * asks for more, too few failures were seen to believe it. Times decide when
 * saves are made, never what is computed. */

#define ON_CHECKPOINT_INTERVAL_FIRST_STEPS 5

struct on_checkpoint_interval;

/* A ledger that cannot be read costs a warning, and counts as one without
 * failures. */
enum err on_checkpoint_interval_create(const char *run_dir,
                                       struct on_checkpoint_interval **out);

/* Without an interval (NULL) these do nothing, and no save is due. */
void on_checkpoint_interval_destroy(struct on_checkpoint_interval *interval);

/* Training begins after so many steps. */
void on_checkpoint_interval_begin(struct on_checkpoint_interval *interval,
                                  int64_t step);

/* A step took so long. */
void on_checkpoint_interval_step(struct on_checkpoint_interval *interval,
                                 double step_s);

/* Never while a save is in flight: so none has to wait for another. */
bool on_checkpoint_interval_due(const struct on_checkpoint_interval *interval,
                                int64_t step);

void on_checkpoint_interval_started(struct on_checkpoint_interval *interval);

/* A save has ended, for which training waited `stall_s` at its start, and if it
 * was not staged to its end. A commit chooses the interval anew, which is
 * logged when it is another by more than a tenth. */
void on_checkpoint_interval_ended(struct on_checkpoint_interval *interval,
                                  const struct ckpt_progress *progress,
                                  double stall_s);

/* --- on the nodes (on_checkpoint_local.c) ---
 *
 * Where the node-local checkpoints of a run are, and the secret that signs them.
 *
 * checkpoint.local_dir, with %j replaced by the number of the Slurm job, is
 * opened as own.h says, so it may be below a folder that everybody may write to;
 * in it is a folder that no other run has. The secret is RUN/.secret, 64 digits
 * that only the run's owner can read; the first start makes it. */

struct on_checkpoint_local {
    const char *dir; /* NULL: there is no such level */
    struct own own;
    bool of_job; /* its folder is in one of this job */
    char secret[65];
};

/* For a value of the setting. The run directory exists and rank 0 has its lock.
 * ERR_USAGE: not an absolute path. Where a node has no folder for it the level is
 * left out on all, with a warning. Collective. */
enum err on_checkpoint_local_open(struct comm *comm, const char *setting,
                                  const char *run_dir,
                                  struct on_checkpoint_local *out);
/* NULL, or what has been opened or is all zero. Empty folders go. */
void on_checkpoint_local_close(struct on_checkpoint_local *local);

/* --- what is told of saves (on_checkpoint_told.c) --- */

struct on_checkpoint_told {
    struct run *run;
    bool kept; /* of each step: a line in ten seconds will do */
    enum ckpt_phase last;
    double last_s;
};

/* A save is PERSISTED, COMMITTED or has FAILED. In the saver's thread, when it
 * happens: the step that computes meanwhile may be long. */
void on_checkpoint_tell(struct on_checkpoint_told *told,
                        const struct ckpt_progress *progress);

/* --- the state of each step in the nodes' memory (on_checkpoint_kept.c) --- */

struct on_checkpoint_kept {
    struct ckpt_saver *saver; /* NULL: none is kept */
    struct on_checkpoint_told told;
    const char *at, *dir; /* this node's folder, and its name; lent */
};

/* Before the saver is made: its options, of those of the run's. `stays`: the step
 * that was loaded from the nodes, or -1. */
void on_checkpoint_kept_begin(struct run *run, int64_t stays,
                              const struct on_checkpoint_local *local,
                              struct ckpt_options *options,
                              struct on_checkpoint_kept *kept);
/* Until the last step is kept, or is not; nothing without a saver. Waits for no other
 * rank but by its saver; ERR_COMM is this rank's alone. */
enum err on_checkpoint_kept_wait(struct on_checkpoint_kept *kept);
/* Begin to keep this step. All ranks do. */
enum err on_checkpoint_kept_step(struct on_checkpoint_kept *kept,
                                 struct on_checkpoint_copies *copies,
                                 json_t *arithmetics);
/* The run goes back further than the last step: what is kept in the folder `at`
 * called `dir` goes. */
enum err on_checkpoint_kept_forget(const struct comm *comm, const char *at,
                                   const char *dir);
/* The attempt ends and the run directory has its last step: all goes. */
enum err on_checkpoint_kept_end(struct on_checkpoint_kept *kept);

/* --- in an object store (on_checkpoint_mirror.c) --- */

/* NULL without checkpoint.mirror: the functions below take that. */
struct on_checkpoint_mirror;

/* may_commit: as in struct ckpt_options. ERR_USAGE for an address that cannot be
 * written to. */
enum err on_checkpoint_mirror_create(struct run *run,
                                     enum err (*may_commit)(void *arg),
                                     void *arg,
                                     struct on_checkpoint_mirror **out);
/* What is on its way is given up; destroy waits for that. */
void on_checkpoint_mirror_stop(struct on_checkpoint_mirror *mirror);
void on_checkpoint_mirror_destroy(struct on_checkpoint_mirror *mirror);

/* Before a load: what the mirror has newer than the run directory comes into that,
 * each rank its share; what is damaged there is passed over. An error only where the run
 * directory has nothing and what the mirror has is not known, or all of it is damaged:
 * the run would begin anew. Collective. */
enum err on_checkpoint_mirror_fetch(struct on_checkpoint_mirror *mirror);

/* The run directory's newest step. */
void on_checkpoint_mirror_committed(struct on_checkpoint_mirror *mirror,
                                    int64_t step);
/* The step that the run directory must keep for now; 0: none. For any thread. */
int64_t on_checkpoint_mirror_spared(struct on_checkpoint_mirror *mirror);
/* In batch_ask, and with what ranks have agreed on. */
void on_checkpoint_mirror_ask(struct on_checkpoint_mirror *mirror,
                              struct asks *asks);
void on_checkpoint_mirror_hear(struct on_checkpoint_mirror *mirror,
                               int64_t agreed);
/* At the attempt's end: wait for the newest, for a while. Collective. */
enum err on_checkpoint_mirror_finish(struct on_checkpoint_mirror *mirror);
