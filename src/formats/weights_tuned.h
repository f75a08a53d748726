/* The whole model of a checkpoint that has a part of it: tensors that trained
 * and adapters (LoRA), whose "base" in the state says what the rest is
 * (src/train/start/start.h). Adapters are merged: W + (alpha / rank) B
 * A, in fp64, rounded once. For weights_ckpt.c. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "src/base/fsio.h"
#include "src/formats/weights_impl.h"
#include "src/base/err.h"

struct weights_tuned;

/* The checkpoint's own tensors; borrowed until the close. */
struct weights_tuned_own {
    void *arg;
    const struct weights_tensor *list;
    int count;
    enum err (*read)(void *arg, int index, int64_t begin, int64_t end,
                     float *out);
};

/* Whether a checkpoint with this state is one. */
bool weights_tuned_is(const json_t *state);

/* ERR_CHECKPOINT, ERR_DATA: the state is none, the base is gone, or another
 * than it was. `where` is the checkpoint, for messages. */
enum err weights_tuned_open(const json_t *state, const char *where,
                            const struct model_config *config,
                            const struct weights_tuned_own *own,
                            struct weights_tuned **out);
void weights_tuned_close(struct weights_tuned *tuned);

/* All of the model's tensors; [count], the caller's. ERR_MEMORY. */
enum err weights_tuned_list(const struct weights_tuned *tuned,
                            struct weights_tensor **list, int *count);
/* Its lora, NULL where it has no adapters, and origin: the path of the base, or of
 * what that was imported from; NULL: there is none. */
void weights_tuned_about(const struct weights_tuned *tuned,
                         struct weights_about *about);
/* A matrix of an adapter, the caller's; NULL: the checkpoint has none of this
 * name. */
enum err weights_tuned_matrix(struct weights_tuned *tuned, const char *name,
                              int64_t rows, int64_t cols, float **out);

/* Elements of a tensor of that list. */
enum err weights_tuned_read(struct weights_tuned *tuned, int index,
                            int64_t begin, int64_t end, float *out);

/* The same "base", which may come from anybody.
 *
 * Whether its members are what they must be: what is there has its type, within
 * the limits of settings, and nothing is missing. ERR_CHECKPOINT names the
 * first that is not; `where` is the checkpoint. */
enum err weights_base_check(const json_t *base, const char *where);

/* Where the base is if it is not where it was, but where it was from the run's
 * directory: both have moved together. false: it is not there, either. */
bool weights_base_moved(const json_t *base, const char *run_dir,
                        char out[FSIO_PATH_MAX]);
