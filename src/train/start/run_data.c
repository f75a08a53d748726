/* Opens the training sets of a run and makes their order of the settings.
 *
 * One data set is a mixture of one, so nothing above asks which it is. A set's
 * share may be given as a weight, a number of samples or of passes, and a weight
 * may change with time; an order takes a curve for each set, in samples and steps,
 * so times become steps by the rates that the schedule will have. An order is a
 * function from a place in the run's endless stream to a sample: nothing of it is
 * kept between starts but where it began. */
#include "src/train/start/run_data.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "src/base/log.h"
#include "src/base/new.h"
#include "src/train/settings/trainer_schedule.h"

/* Counting the samples of each set up to the last step takes time with both:
 * beyond it a run's epochs are not told. */
#define TELL_STEPS_MAX 1000000

enum err run_data_parse(const struct train_settings *s, bool held_out,
                        struct mixture_text *out)
{
    TRY(err_prefix(
        mixture_text_parse(held_out ? s->eval.sets : s->data.mixture, out),
        held_out ? "eval.sets" : "data.mixture"));
    for (int i = 0; held_out && i < out->count; i++)
        if (out->entries[i].weight != STREAM_ALL || out->count == STREAMS_MAX)
            return err_set(ERR_USAGE,
                           "eval.sets: %s has a weight, or is one too many",
                           out->entries[i].name);
    return ERR_OK;
}

enum err run_data_folder(const struct train_settings *s,
                         const struct mixture_entry *entry, bool held_out,
                         char path[FSIO_PATH_MAX])
{
    const char *part = held_out ? "eval" : "train";
    char index[FSIO_PATH_MAX];
    if (strstr(entry->folder, "://") != NULL)
        return fsio_path(path, "%s", entry->folder);
    TRY(entry->folder[0] == '/'
            ? fsio_path(path, "%s", entry->folder)
            : fsio_path(path, "%s/%s", s->data.train, entry->folder));
    /* what was held out lies beside what is trained on */
    TRY(fsio_path(index, "%s/%s/index.json", path, part));
    if (!fsio_exists(index))
        return ERR_OK;
    size_t used = strlen(path);
    snprintf(path + used, FSIO_PATH_MAX - used, "/%s", part);
    return ERR_OK;
}

enum err run_data_open_set(const struct train_settings *s, const char *path,
                           const void *images, struct dataset **out)
{
    struct cache_options cache = cache_defaults;
    cache.folder = s->data.cache;
    cache.limit = s->data.cache_limit;
    cache.deadline_s = s->data.remote_deadline;
    cache.sizes_only = s->data.verify == VERIFY_SIZES;
    *out = NULL;
    if (images != NULL)
        TRY(dataset_open_image(images, path, &cache, out));
    return *out != NULL ? ERR_OK
                        : dataset_open_as(path, NULL, false, &cache, out);
}

enum err run_data_open(const struct train_settings *s, bool held_out,
                       const void *images, struct run_data **out)
{
    enum err rc = ERR_OK;
    struct run_data *data = NULL;
    bool mixture = (held_out ? s->eval.sets : s->data.mixture)[0] != '\0';
    TRY(new_zeroed(&data, 1));
    if (held_out || !mixture) {
        TRY_OUT(run_data_open_set(s, held_out ? s->data.eval : s->data.train,
                                  images, &data->sets[0]));
        data->count = 1;
        data->text.count = 1;
        data->text.entries[0].count = 1;
        snprintf(data->id, sizeof data->id, "%s", dataset_id(data->sets[0]));
    }
    if (mixture)
        TRY_OUT(run_data_mixture(s, held_out, images, data));
out:
    return new_or_none(rc, data, out, run_data_close);
}

void run_data_close(struct run_data *data)
{
    if (data == NULL)
        return;
    for (int i = 0; i < data->count; i++)
        dataset_close(data->sets[i]);
    free(data);
}

int64_t run_data_samples(const struct run_data *data)
{
    int64_t samples = 0;
    for (int i = 0; i < data->count; i++)
        samples += dataset_contents(data->sets[i])->samples;
    return samples;
}

/* What a weight of 1 of the text is. */
static double weight_of(const struct stream *stream)
{
    switch (stream->weight) {
    case STREAM_PROPORTION:
    case STREAM_CHOOSE:
        return 1.0;
    default:
        return (double)stream->samples;
    }
}

/* Times become steps. */
static enum err make_curve(const struct mixture_entry *entry,
                           const struct stream *stream,
                           const struct unit_rates *rates,
                           struct mixture_curve *out)
{
    double unit = weight_of(stream);
    assert(entry->count > 0);
    memset(out, 0, sizeof *out);
    out->count = entry->count;
    out->points[0].weight =
        unit * (stream->weight == STREAM_ALL ? 1.0 : stream->amount);
    for (int p = 1; p < entry->count; p++) {
        const struct mixture_time *time = &entry->times[p];
        struct mixture_point *point = &out->points[p];
        TRY(err_prefix(units_steps(time->at, rates, &point->step),
                       "data.mixture: %s", entry->name));
        if (point->step <= point[-1].step)
            return err_set(ERR_USAGE,
                           "data.mixture: %s: its weight number %d is for "
                           "step %lld, not after the one before, %lld",
                           entry->name, p + 1, (long long)point->step,
                           (long long)point[-1].step);
        point->weight = unit * time->weight;
        point->jump = time->jump;
    }
    return ERR_OK;
}

static enum err make_curves(const struct run_data *data,
                            const struct train_settings *s,
                            const struct stream *streams,
                            struct mixture_curve *curves)
{
    int relative = 0;
    struct trainer_schedule plan;
    TRY(trainer_schedule(s, run_data_samples(data), &plan));
    for (int i = 0; i < data->count; i++) {
        relative += streams[i].weight == STREAM_PROPORTION;
        TRY(make_curve(&data->text.entries[i], &streams[i], &plan.rates,
                       &curves[i]));
    }
    if (relative == 0 || relative == data->count)
        return ERR_OK;
    return err_set(ERR_USAGE,
                   "data.mixture: a weight is given for %d of %d data sets: "
                   "give one for all or for none",
                   relative, data->count);
}

static enum err copy_shards(const struct dataset *set, struct stream *stream)
{
    int64_t count = dataset_contents(set)->shards;
    int64_t *shards = NULL;
    TRY(new_room(&shards, (size_t)count));
    for (int64_t s = 0; s < count; s++)
        shards[s] = dataset_shard_samples(set, s);
    stream->shards = shards;
    stream->shard_count = count;
    return ERR_OK;
}

/* What Streaming takes for one node, where nothing is given. */
static int64_t canonical_nodes(const struct train_settings *s)
{
    bool spread = s->data.order == ORDER_PY1S || s->data.order == ORDER_PY2S;
    if (s->data.canonical_nodes > 0)
        return s->data.canonical_nodes;
    return spread ? 64 : 1;
}

static struct order_spec describe(const struct run_data *data,
                                  const struct train_settings *s,
                                  const struct run_data_begin *begin)
{
    return (struct order_spec){
        .kind = s->data.order,
        .seed = (uint64_t)s->train.seed,
        .first = begin->batch * s->train.global_batch,
        .batch = s->train.global_batch,
        .count = data->count,
        .begin = begin->samples,
        .streaming = { .batching = s->data.batching,
                       .fixed = s->data.sampling == SAMPLING_FIXED,
                       .seed = (uint64_t)s->data.shuffle_seed,
                       .nodes = canonical_nodes(s),
                       .block = s->data.shuffle_block,
                       .epoch_size = s->data.epoch_size },
    };
}

enum err run_data_order(const struct run_data *data,
                        const struct train_settings *s,
                        const struct run_data_begin *begin, struct order **out)
{
    enum err rc = ERR_OK;
    struct stream streams[STREAMS_MAX];
    const char *names[STREAMS_MAX];
    struct mixture_curve *curves = NULL;
    struct order_spec spec = describe(data, s, begin);
    assert(data->count > 0 && data->count <= STREAMS_MAX && begin->batch >= 0);
    memset(streams, 0, sizeof streams);
    TRY(new_zeroed(&curves, STREAMS_MAX));
    for (int i = 0; i < data->count; i++) {
        const struct mixture_entry *entry = &data->text.entries[i];
        names[i] = entry->name;
        streams[i].samples = dataset_contents(data->sets[i])->samples;
        streams[i].weight = entry->weight;
        streams[i].amount = entry->amount;
        if (spec.kind != ORDER_CANONICAL)
            TRY_OUT(copy_shards(data->sets[i], &streams[i]));
    }
    spec.streams = streams;
    if (spec.kind == ORDER_CANONICAL && s->data.mixture[0] != '\0') {
        TRY_OUT(make_curves(data, s, streams, curves));
        spec.curves = curves;
        spec.names = names;
    }
    TRY_OUT(order_create(&spec, out));
out:
    for (int i = 0; i < data->count; i++)
        free((void *)(uintptr_t)streams[i].shards);
    free(curves);
    return rc;
}

/* An order from the run's beginning, to be asked; NULL: the canonical one is the
 * sets' samples, and without a batch there is none. */
static struct order *first_order(const struct run_data *data,
                                 const struct train_settings *s)
{
    const struct run_data_begin begin = { 0 };
    struct order *order = NULL;
    if (s->data.order != ORDER_CANONICAL && s->train.global_batch > 0)
        (void)run_data_order(data, s, &begin, &order);
    return order;
}

int64_t run_data_epoch(const struct run_data *data,
                       const struct train_settings *s)
{
    struct order *order = first_order(data, s);
    int64_t samples =
        order != NULL ? order_epoch(order) : run_data_samples(data);
    order_destroy(order);
    return samples;
}

size_t run_data_order_bytes(const struct run_data *data,
                            const struct train_settings *s)
{
    struct order *order = first_order(data, s);
    size_t bytes = order != NULL ? order_bytes(order) : 0;
    order_destroy(order);
    return bytes;
}

size_t run_data_index_bytes(const struct run_data *data, size_t *text)
{
    size_t bytes = 0;
    for (int i = 0; i < data->count; i++) {
        const struct dataset_contents *set = dataset_contents(data->sets[i]);
        bytes += set->index_bytes;
        if (set->index_text > *text)
            *text = set->index_text;
    }
    return bytes;
}

enum err run_data_epochs(const struct run_data *data,
                         const struct train_settings *s, int64_t steps,
                         double epochs[STREAMS_MAX], bool *known)
{
    const struct run_data_begin begin = { 0 };
    struct order *order = NULL;
    int64_t counts[STREAMS_MAX];
    assert(steps >= 0);
    TRY(run_data_order(data, s, &begin, &order));
    *known = steps <= TELL_STEPS_MAX &&
             order_read(order, steps * s->train.global_batch, counts);
    for (int i = 0; *known && i < data->count; i++)
        epochs[i] = (double)counts[i] /
                    (double)dataset_contents(data->sets[i])->samples;
    order_destroy(order);
    return ERR_OK;
}

/* Indices without checksums may be equal, and the samples are not. */
static bool are_same(const struct dataset *a, const struct dataset *b)
{
    struct stat first, second;
    return strcmp(dataset_id(a), dataset_id(b)) == 0 &&
           (dataset_contents(a)->unchecked == 0 ||
            strcmp(dataset_path(a), dataset_path(b)) == 0 ||
            (stat(dataset_folder(a), &first) == 0 &&
             stat(dataset_folder(b), &second) == 0 &&
             first.st_dev == second.st_dev && first.st_ino == second.st_ino));
}

static void tell_set(const struct run_data *data, int i, int64_t batch,
                     const int64_t *first, const int64_t *all)
{
    char epochs[64] = "";
    const char *name = data->text.entries[i].name;
    int64_t samples = dataset_contents(data->sets[i])->samples;
    if (all != NULL)
        snprintf(epochs, sizeof epochs, ", %.2f epochs in the run",
                 (double)all[i] / (double)samples);
    log_info("data.mixture: %s: %lld samples, %lld of the first %lld%s", name,
             (long long)samples, (long long)first[i], (long long)batch, epochs);
    for (int k = 0; k < i; k++)
        if (are_same(data->sets[k], data->sets[i]))
            log_warn("data.mixture: %s and %s are the same data set", name,
                     data->text.entries[k].name);
    if (first[i] > samples)
        log_warn("data.mixture: %s has %lld samples, fewer than its %lld of a "
                 "batch: some are there twice",
                 name, (long long)samples, (long long)first[i]);
}

void run_data_tell(const struct run_data *data, const struct train_settings *s,
                   struct order *order, int64_t max_steps,
                   const struct dataset *eval)
{
    int64_t before[STREAMS_MAX], first[STREAMS_MAX], all[STREAMS_MAX];
    int64_t batch = s->train.global_batch;
    int64_t samples = order_epoch(order);
    assert(batch > 0);
    for (int i = 0; i < data->count && eval != NULL; i++)
        if (are_same(data->sets[i], eval))
            log_warn("data.eval (%s) is the same data set as %s, which is "
                     "trained on: evaluations tell nothing of other texts",
                     s->data.eval, dataset_path(data->sets[i]));
    if (s->data.order != ORDER_CANONICAL)
        log_info("data.order = %s: %lld whole batches an epoch, of %lld "
                 "samples in the data; the order takes %.1f MiB of a rank",
                 order_kind_names[s->data.order], (long long)(samples / batch),
                 (long long)run_data_samples(data),
                 (double)order_bytes(order) / (1 << 20));
    if (s->data.mixture[0] == '\0' || s->data.order != ORDER_CANONICAL ||
        !order_read(order, order_first(order), before) ||
        !order_read(order, order_first(order) + batch, first))
        return;
    bool known = max_steps >= 0 && max_steps <= TELL_STEPS_MAX &&
                 max_steps * batch >= order_first(order) &&
                 order_read(order, max_steps * batch, all);
    for (int i = 0; i < data->count; i++) {
        first[i] -= before[i];
        tell_set(data, i, batch, first, known ? all : NULL);
    }
}
