/* What a start finds out and settles before anything is computed, and the parts
 * of a run that it makes, each in a file of its own. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "kernels/kernel_memory.h"
#include "src/base/err.h"
#include "src/comm/comm.h"
#include "src/formats/weights.h"
#include "src/train/run/run.h"

/* How many threads a rank computes with: the processors of its affinity mask
 * divided by the ranks of this node that have the same mask. So a launcher that
 * binds each rank to its own cores and one that binds nothing both end up with
 * about one thread per processor.
 *
 * requested > 0 is taken as it is: with a warning where it is more than there
 * are processors, ERR_USAGE for more than eight times as many. Collective. */
enum err start_threads(struct comm *comm, int requested, int *threads);

/* Work that rank 0 does for all, which may take longer than any deadline of a
 * wait. While a thread of rank 0 is at it, the others hear several times per
 * deadline that rank 0 lives: so they wait as long as it does, and name it when
 * it has stopped.
 *
 * All ranks return the code of rank 0's work(arg). It must not use comm, and
 * what belongs to a thread, as the use of a device, it has to do itself.
 * Collective. */
enum err start_alone(struct comm *comm, enum err (*work)(void *arg), void *arg);
/* The same with work of each rank, or NULL; all return the worst code. */
enum err start_each(struct comm *comm, enum err (*work)(void *arg), void *arg);

/* Which GPUs the ranks of a run have: one each, and none is left idle.
 *
 * Every rank uses its device already. Where two ranks of a host have the same
 * one, or a host's ranks see more GPUs than they are, that is ERR_USAGE with
 * the host, the ranks and what to do; if it is `allowed` the log says it
 * instead. text becomes "16 GPUs for 16 ranks", or empty where there are no
 * devices. Collective; the same on all ranks. */
enum err start_devices(struct comm *comm, const struct kernel_memory *memory,
                       bool allowed, char *text, size_t bytes);

/* Are all ranks about to compute the same thing? Ranks on several nodes read
 * their own copies of the configuration, of the data sets and of the libraries;
 * where these differ, bits would depend on where a slot lands.
 *
 * Arithmetic, the content of the data sets, and every setting that is not
 * SETTING_LOCAL (the paths of the data sets, hardware.*, log.level) must be
 * those of rank 0; the error names what differs and where. Processors and their
 * kernel sets may differ. Collective, after the data sets are open. */
enum err start_same(struct run *run);

/* Are the files of a run's data sets right? The ranks share this: where all of
 * them read one index.json (the same path, inode and times), each shard is
 * looked at once; where nodes have copies of their own, once on each node; and
 * where the ranks of a node have not one copy either, by every rank that has
 * one of its own. So every copy is looked at.
 *
 * With data.verify = "auto" the files are read and checked where no rank has to
 * read more than this: a second or so. */
#define START_FILES_BYTES ((int64_t)256 << 20)

/* All shards are there and as long as they should be, and as data.verify says
 * they have their checksums. Collective, with data sets and settings that are
 * the same on all ranks. The ranks meet every second meanwhile; a signal to any
 * of them ends it with ERR_OK, and the flag of src/job/stop.h then ends the run
 * before its first step. Every few seconds it touches metrics.jsonl, which the
 * launch script watches. */
enum err start_files(struct run *run);

/* What has changed in the settings since the attempt before.
 *
 * Compares with the run directory's config.cfg, which is to be overwritten
 * next: each setting that differs is logged with both values, as a warning if
 * it decides the result, and all of them are the ledger's event "settings". A
 * learning rate that goes on at another value than it would have is a warning
 * with the settings that keep it, as is another evaluation set than the
 * checkpoint's, under whatever name. Rank 0 alone, after the state is restored.
 * A config.cfg that can't be read is a warning; only the ledger can fail. */
enum err start_changes_tell(const struct run *run);

/* Who may see a run: run.mode and run.group. Everything below the run directory
 * is made with the process's umask, and belongs to the group of its folder.
 *
 * ERR_USAGE where run.mode or run.group cannot be meant. */
enum err train_access_check(const struct train_settings *settings);
/* On every rank, before anything of the run is made, but after the folders
 * above it: the umask that leaves run.mode; without one it stays as it is. */
void train_access_mask(const struct train_settings *settings);
/* Gives the run directory, which must be there, run.mode and run.group and has
 * all that is made in it take the group over. ERR_USAGE if that is refused. So
 * it does with the folders that an earlier start has made in it; what is
 * refused there is a warning. */
enum err train_access_give(const struct train_settings *settings);

/* --- the data (trainer_data.c, trainer_ahead.c, trainer_rollback.c) --- */

/* Open data.train and data.eval into the trainer, with the orders in which
 * their samples are read. What the run asks for and the data cannot give is an
 * error here, not in the middle of the run: a vocabulary beyond the model's,
 * tokenizers that differ, documents that cannot be told apart with
 * model.attn_uses_sequence_id, samples longer than data.seq_len with
 * data.too_long = "refuse". No shard is looked at (start_files.c). Collective. */
enum err trainer_data_open(struct run *run);
void trainer_data_close(struct run *run);

/* What the run has read, and since which step, into a checkpoint's state as
 * "data": [{from, id, streams: [{name, id, begin, read}]}], a part for each
 * change of the data. `read` is missing where the order does not count. */
enum err trainer_data_store(const struct run *run, json_t *state);

/* Go on with the state of a checkpoint at `step`. Data or an order that differ
 * from its, which data.change = "continue" has allowed, begin here: a new part.
 * Everything else follows from the parts that are stored, so an attempt from a
 * checkpoint before a change makes the change anew, at its own step. */
enum err trainer_data_restore(struct run *run, int64_t step,
                              const json_t *state);

/* The thread that reads this rank's microbatches ahead (data.prefetch; 0:
 * nothing), for the replica and the microbatch as they are. */
enum err trainer_ahead_create(struct run *run);
void trainer_ahead_destroy(struct run *run);

/* The microbatch at `first` into the trainer's batch. */
enum err trainer_ahead_read(struct run *run, int64_t first);

/* The first position of the microbatch whose chunks begin with this leaf,
 * counted from that of its batch. */
int64_t trainer_ahead_offset(const struct run *run, int leaf);

/* A run goes back: its trainer ends, and another one begins at the newest good
 * checkpoint, or at step 0 where there is none, as a resume does. What the
 * steps between have read is left out (rollback.h). */

/* The position in the order of samples at which the batch of a step begins. */
int64_t trainer_rollback_position(const struct run *run, int64_t step);
/* That behind the batches of all completed steps; before it lies what was read,
 * and what rollbacks have left out meanwhile. */
int64_t trainer_rollback_read(const struct run *run, int64_t step);

/* The ledger's rollbacks, on all ranks, for rollback_restore(). Collective. */
enum err trainer_rollback_find(struct run *run);

/* The state is restored, or begun: a trainer that was made to go back
 * (run->position.came_back) leaves out what it has to from here on, and the ledger
 * has it before anything is computed. A process that ends earlier has changed
 * nothing: the next one comes to the same step and goes back likewise.
 * Collective. */
enum err trainer_rollback_begin(struct run *run);

/* --- memory (trainer_memory.c) --- */

/* Batch, model and replica for the settings' microbatch, within memory.limit
 * and what this machine has; shrinks where it must and may. parallel.strategy
 * is no longer "auto" then, but what fits the microbatch of the last start, if
 * there was one. Collective. */
enum err trainer_memory_create(struct run *run);

/* After an ERR_MEMORY that all ranks have agreed on: the next smaller
 * microbatch, batch and model made anew. ERR_MEMORY, with the text that was
 * there, where that would break the promise of the same bits ("elastic") or
 * there is no smaller one. Collective. */
enum err trainer_memory_shrink(struct run *run);

/* The microbatch that the run has stored. Collective. */
enum err trainer_memory_adopt(struct run *run, int64_t microbatch);

/* Planned bytes of the rank that needs most. */
enum err trainer_memory_plan(const struct run *run, struct memory_plan *out);

/* --- weights at a first start (trainer_weights.c) --- */

/* Fresh weights, and over them those that the settings name, of which each rank
 * reads what it owns. Rank 0 checks that they fit, says so in the log and in
 * the ledger's event "weights". Collective. */
enum err trainer_weights_init(struct run *run);

/* Opens the weights that the settings name, which are the same on all ranks:
 * rank 0 looks which checkpoint of a run directory it is. After an error there
 * is nothing to close. Collective. */
enum err trainer_weights_open(struct run *run, struct weights **out);

/* For a replica_source: of the weights, but for what matches `ignore`. */
struct trainer_filling {
    struct weights *weights;
    const char *ignore;
};
enum err trainer_weights_fill(void *filling, const struct params *params,
                              int64_t begin, int64_t end, float *out);

/* Rank 0: the ledger's event with where the run starts from. */
enum err trainer_weights_record(const struct run *run, struct weights *weights,
                                const char *event);

/* "text" of a checkpoint's state (src/formats/weights_ckpt_config.h), on rank
 * 0: what a state or the weights had stays with the run, else it is the data's.
 */
enum err trainer_weights_store(const struct run *run, json_t *state);
enum err trainer_weights_restore(struct run *run, const json_t *state);

/* --- the base (trainer_base.c) ---
 *
 * What does not train (model.freeze, lora.rank): no checkpoint of the run has
 * it, so every start makes it again, and the checkpoints' state says of what, as
 * "base":
 *
 *   {"path": "/models/x", "from_run": "../x", "sha256": "...",
 *    "ignore": "lm_head.*", "seed": 17, "crc32c": {"lm_head.weight": [123]}}
 *
 * or, of fresh weights alone, the last two
 *
 * with "lora": {"rank": 8, "alpha": 16.0, "dropout": 0.0, "targets": "*"} where
 * there are adapters: what readers need to merge them
 * (src/formats/weights_tuned.h).
 *
 * The weights must be those of the first start, by their digest (weights_about)
 * and by the checksums of their values (src/formats/weights_sums.h); a run whose
 * checkpoints lack these gets them at its next start. The weights may have
 * moved, together with the run (from_run) or to where model.weights says. */

/* At a first start: of the weights that are open, or fresh (NULL), by way of
 * `source`. Collective. */
enum err trainer_base_begin(struct run *run, struct weights *weights,
                            const struct replica_source *source);
/* At a later one: of what the state said. Collective. */
enum err trainer_base_fill(struct run *run);

/* To and from the state; nothing where everything trains. ERR_CHECKPOINT: the
 * state is of a run that trained the whole model. */
enum err trainer_base_store(const struct run *run, json_t *state);
enum err trainer_base_restore(struct run *run, const json_t *state);
/* The same of another run's state, whose checkpoint is open, for a run with
 * adapters and a folder of its own. */
enum err trainer_base_take(struct run *run, const json_t *state,
                           const char *checkpoint);

/* The names that no source has: those of adapters. */
#define TRAINER_BASE_ADAPTERS "*.lora_[AB].weight"

/* --- groups (trainer_groups.c) ---
 *
 * What a run keeps of optimizer.groups besides moments: the peak rates of its
 * first start, of which decoupled decay takes parts, and which tensor is whose,
 * for moments mean something to one optimizer only.
 *
 * In a checkpoint's state: "groups_lr0": [a rate for each group], and
 * "optimizers": {tensor: name}, of tensors that are not optimizer.name's. */

/* The settings' rates are the first start's. */
void trainer_groups_begin(struct run *run);

enum err trainer_groups_store(const struct run *run, json_t *state);
/* Rates of a state; those that it lacks are as they began. */
void trainer_groups_restore(struct run *run, const json_t *state);

/* ERR_CHECKPOINT: a tensor's moments are another optimizer's than the one that
 * would go on with them. A state that says nothing of it passes. */
enum err trainer_groups_check(const struct run *run, const json_t *state);

/* What optimizers get of a step, of the settings and the step's record:
 * steps[1 + groups of the settings]: of tensors that are in no group, then of
 * each. Gradients are multiplied by `scale`. */
void trainer_groups_steps(const struct run *run, double scale,
                          struct optimizer_step *steps);

/* --- what must stay (start_fixed.c) ---
 *
 * What must stay as it was when a run was started, in every checkpoint's state
 * as "fixed": data set, model, batch, seed, precision, optimizer, slots,
 * chunks, by the names of the settings.
 *
 * train.microbatch stays, too, for bits depend on it. Where the settings leave
 * it to the program, the run's own goes on; under "fast" and "run" so it does
 * where it is the smaller one, and one that had to be made smaller at this
 * start counts as well. */

/* NULL: out of memory. */
json_t *start_fixed_state(const struct run *run);

/* ERR_CHECKPOINT names the setting that differs from the stored state. With
 * data.change = "continue" data sets and their order may differ. */
enum err start_fixed_check(const struct run *run, const json_t *state);

/* Whether data sets or their order differ from the stored state's. */
bool start_fixed_order_changed(const struct run *run, const json_t *state);

/* The microbatch to go on with; 0: the stored one and the settings' can't be
 * one run. */
int64_t start_fixed_microbatch(const struct run *run, const json_t *state);
