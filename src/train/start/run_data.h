/* The training data of a run, as its settings name them: one data set, or those
 * of data.mixture, and the order in which they are read. */
#pragma once

#include <stdint.h>

#include "src/base/err.h"
#include "src/base/fsio.h"
#include "src/data/set/dataset.h"
#include "src/data/set/mixture_text.h"
#include "src/data/set/order.h"
#include "src/train/settings/train_settings.h"

struct run_data {
    struct mixture_text text; /* one entry without a name: no mixture */
    int count;
    struct dataset *sets[STREAMS_MAX];
    char id[65]; /* that of one data set, or a digest of names and ids */
};

/* Where an order begins: before it, the run has read other data. */
struct run_data_begin {
    int64_t batch;                /* of the run's data, counted from 0 */
    int64_t samples[STREAMS_MAX]; /* of each stream that are read already */
};

/* data.mixture, or eval.sets if they are held out, parsed; and where one of the
 * sets is: in data.train, unless its folder is absolute or remote. Of a folder that
 * was split it is the part `train` or `eval`. */
enum err run_data_parse(const struct train_settings *s, bool held_out,
                        struct mixture_text *out);
enum err run_data_folder(const struct train_settings *s,
                         const struct mixture_entry *entry, bool held_out,
                         char path[FSIO_PATH_MAX]);

/* One data set, with the settings' cache; no shard is looked at. images: as
 * dataset_open_image(), where it may be found; NULL: none. */
enum err run_data_open_set(const struct train_settings *s, const char *path,
                           const void *images, struct dataset **out);

/* Open all, or data.eval and eval.sets if held out, without a look at the shards.
 * Sets of a mixture have one tokenizer and vocabulary, or ERR_DATA names two that
 * have not. */
enum err run_data_open(const struct train_settings *s, bool held_out,
                       const void *images, struct run_data **out);
void run_data_close(struct run_data *data);

/* Open those of data.mixture or eval.sets into `data`, behind what is there, with
 * what identifies all. Those that were opened before a failure are the caller's to
 * close. */
enum err run_data_mixture(const struct train_settings *s, bool held_out,
                          const void *images, struct run_data *data);

/* Samples of all sets. */
int64_t run_data_samples(const struct run_data *data);

/* ERR_USAGE where the settings and the sets make no order. */
enum err run_data_order(const struct run_data *data,
                        const struct train_settings *s,
                        const struct run_data_begin *begin, struct order **out);

/* Samples of an epoch of the run's order; those of all sets where there is none
 * because its global batch is not known. */
int64_t run_data_epoch(const struct run_data *data,
                       const struct train_settings *s);
/* As order_bytes(); 0 where there is no order. */
size_t run_data_order_bytes(const struct run_data *data,
                            const struct train_settings *s);

/* What is kept of the sets' indexes; *text: what reading the longest took. */
size_t run_data_index_bytes(const struct run_data *data, size_t *text);

/* How often `steps` steps of a run that has not begun read each set; *known
 * false: the order does not count, or that many steps take too long to. */
enum err run_data_epochs(const struct run_data *data,
                         const struct train_settings *s, int64_t steps,
                         double epochs[STREAMS_MAX], bool *known);

/* Logs for each set of a mixture its share, and how often the run reads it;
 * what is kept of an order that takes memory. max_steps -1: not known. Warns of
 * sets that are one, `eval` (NULL: none) among them. */
void run_data_tell(const struct run_data *data, const struct train_settings *s,
                   struct order *order, int64_t max_steps,
                   const struct dataset *eval);
