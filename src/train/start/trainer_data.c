/* Opens the data sets of a run and checks that they fit the settings. It reads
 * no shard: start_files.c does.
 *
 * What a run has read is a history of parts. A part begins at a step and has the
 * data sets of that time; its order begins at the batch behind the step before, and
 * in a mixture each set where it was. So data can be changed amid a run, and a
 * start that goes on from an older checkpoint makes the same change again where
 * the parts say, or anew at its own step where they do not reach. Only the last
 * part matters for what comes; the others are told to people.
 *
 * The lowest rank of a node reads the indexes, and all ranks of the node have one
 * copy, in memory that they share.
 *
 * A start makes an order from the beginning first, for the plan and the epochs need
 * one, and replaces it when a checkpoint says that its order begins elsewhere. */
#include "src/train/start/start.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/comm/comm_window.h"
#include "src/data/set/dataset.h"
#include "src/data/set/loader.h"
#include "src/data/set/order.h"
#include "src/train/start/run_data.h"

static enum err check_vocabulary(const struct dataset *data,
                                 const struct train_settings *s)
{
    if (dataset_sidecar(data)->vocab_size <= s->model.vocab_size)
        return ERR_OK;
    return err_set(ERR_DATA,
                   "%s: the data set's vocabulary has %lld tokens, "
                   "model.vocab_size is %lld: use another data set or a larger "
                   "model.vocab_size",
                   dataset_path(data),
                   (long long)dataset_sidecar(data)->vocab_size,
                   (long long)s->model.vocab_size);
}

static enum err check_documents(const struct dataset *data,
                                const struct train_settings *s)
{
    if (!s->model.attn_uses_sequence_id || dataset_has_documents(data))
        return ERR_OK;
    return err_set(ERR_DATA,
                   "%s: documents cannot be told apart: no token is named "
                   "that ends or begins one. Remove its tessera.json and adopt "
                   "it again with --eos-token-id N or --bos-token-id N; or, "
                   "for attention across documents, set "
                   "model.attn_uses_sequence_id = false",
                   dataset_path(data));
}

static enum err check_lengths(const struct run *run, const struct dataset *data)
{
    const struct train_settings *s = &run->settings;
    bool truncate = s->data.too_long == TOO_LONG_TRUNCATE;
    int64_t longest = 0;
    TRY(loader_check(data, s->data.seq_len, truncate, &longest));
    if (longest > 0 && run->rank == 0)
        log_info("%s: samples of more than %lld tokens are cut "
                 "(data.too_long); the longest has %lld",
                 dataset_path(data), (long long)s->data.seq_len,
                 (long long)longest);
    return ERR_OK;
}

static enum err check_set(const struct run *run, const struct dataset *data)
{
    const struct train_settings *s = &run->settings;
    TRY(check_vocabulary(data, s));
    TRY(check_documents(data, s));
    return check_lengths(run, data);
}

static enum err open_sets(struct run *run, const void *images)
{
    const struct train_settings *s = &run->settings;
    TRY(run_data_open(s, false, images, &run->inputs.sets));
    if (s->data.eval[0] == '\0')
        return ERR_OK;
    TRY(run_data_open(s, true, images, &run->inputs.eval_sets));
    run->inputs.eval_data = run->inputs.eval_sets->sets[0];
    return ERR_OK;
}

static void close_sets(struct run_data *sets, struct run_data *held_out)
{
    run_data_close(sets);
    run_data_close(held_out);
}

/* For the others of a node, which has some: *images, and they end with zeros. */
static enum err read_sets(struct run *run, bool others, struct buffer *images)
{
    static const uint64_t end = 0;
    TRY(open_sets(run, NULL));
    const struct run_data *sets = run->inputs.sets;
    const struct run_data *held_out = run->inputs.eval_sets;
    for (int i = 0; others && i < sets->count; i++)
        TRY(dataset_image(sets->sets[i], images));
    for (int i = 0; others && held_out != NULL && i < held_out->count; i++)
        TRY(dataset_image(held_out->sets[i], images));
    return others ? buffer_add(images, &end, sizeof end) : ERR_OK;
}

/* Whoever finds another file than its node's first, or memory that can't be shared,
 * reads for itself. */
static enum err share_sets(struct run *run)
{
    struct comm *comm = run->comm;
    struct buffer images = { 0 };
    enum err rc = ERR_OK;
    struct run_data *sets = NULL, *held_out = NULL;
    bool first = true, others = false;
    for (int r = 0; r < run->ranks; r++) {
        bool near = r != run->rank && comm_same_host(comm, r, run->rank);
        others |= near;
        first &= !near || r > run->rank;
    }
    if (first)
        rc = read_sets(run, others, &images);
    int64_t bytes = (int64_t)images.bytes;
    TRY_OUT(comm_agree(comm, rc));
    TRY_OUT(comm_all_reduce_i64(comm, &bytes, 1, COMM_MAX));
    if (bytes == 0)
        goto out;
    TRY_OUT(comm_window_create(comm, COMM_WINDOW_NODE,
                               others ? (size_t)bytes : 1,
                               &run->inputs.indexes));
    char *here = comm_window_part(run->inputs.indexes, run->rank);
    if (first && others) {
        memcpy(here, images.data, images.bytes);
        buffer_free(&images);
        /* open until all have theirs: a cache lasts as long as its last reader */
        sets = run->inputs.sets;
        held_out = run->inputs.eval_sets;
        run->inputs.sets = run->inputs.eval_sets = NULL;
        run->inputs.eval_data = NULL;
    }
    TRY_OUT(comm_barrier(comm));
    if (others)
        rc = open_sets(run, here);
    rc = comm_agree(comm, rc);
out:
    close_sets(sets, held_out);
    buffer_free(&images);
    return rc;
}

static enum err check_train(struct run *run)
{
    const struct train_settings *s = &run->settings;
    const struct run_data_begin begin = { 0 };
    run->inputs.train_data = run->inputs.sets->sets;
    run->inputs.train_count = run->inputs.sets->count;
    memcpy(run->inputs.train_id, run->inputs.sets->id,
           sizeof run->inputs.train_id);
    for (int i = 0; i < run->inputs.train_count; i++)
        TRY(check_set(run, run->inputs.train_data[i]));
    return run_data_order(run->inputs.sets, s, &begin, &run->inputs.order);
}

static enum err check_eval(struct run *run)
{
    const struct train_settings *s = &run->settings;
    if (run->inputs.eval_data == NULL)
        return ERR_OK;
    const struct run_data *sets = run->inputs.eval_sets;
    for (int i = 0; i < sets->count; i++) {
        struct stream stream = { dataset_contents(sets->sets[i])->samples, NULL,
                                 0, STREAM_ALL, 0 };
        struct order_spec spec = { .kind = ORDER_STRAIGHT,
                                   .count = 1,
                                   .streams = &stream };
        TRY(check_set(run, sets->sets[i]));
        TRY(order_create(&spec, &run->inputs.eval_orders[i]));
    }
    if (strcmp(dataset_sidecar(run->inputs.eval_data)->tokenizer_sha256,
               dataset_sidecar(run->inputs.train_data[0])->tokenizer_sha256) !=
        0)
        return err_set(ERR_DATA,
                       "%s: made with another tokenizer than %s: tokenize both "
                       "with the same",
                       s->data.eval, dataset_path(run->inputs.train_data[0]));
    return ERR_OK;
}

enum err trainer_data_open(struct run *run)
{
    enum err rc = share_sets(run);
    if (rc == ERR_OK)
        rc = check_train(run);
    if (rc == ERR_OK)
        rc = check_eval(run);
    return comm_agree(run->comm, rc);
}

void trainer_data_close(struct run *run)
{
    order_destroy(run->inputs.order);
    for (int i = 0; i < STREAMS_MAX; i++)
        order_destroy(run->inputs.eval_orders[i]);
    close_sets(run->inputs.sets, run->inputs.eval_sets);
    comm_window_destroy(run->inputs.indexes);
    free(run->inputs.history);
}

/* A data set's member of the history; NULL: it was not there. */
static const json_t *find_stream(const json_t *part, const char *name,
                                 const char *id)
{
    size_t index;
    json_t *stream;
    json_array_foreach(json_object_get(part, "streams"), index, stream)
    {
        const char *its = json_string_value(json_object_get(stream, "name"));
        const char *set = json_string_value(json_object_get(stream, "id"));
        if (its != NULL && set != NULL && strcmp(its, name) == 0 &&
            strcmp(set, id) == 0)
            return stream;
    }
    return NULL;
}

/* Samples of each stream that were read: before the part began, or up to now,
 * which is `step`. */
static enum err find_begin(const struct run *run, int64_t step,
                           const json_t *part, const char *member,
                           struct run_data_begin *begin)
{
    const struct run_data *data = run->inputs.sets;
    assert(step >= 0 && data->count <= STREAMS_MAX);
    int64_t most = trainer_rollback_read(run, step);
    for (int i = 0; i < data->count; i++) {
        const char *name = data->text.entries[i].name;
        const json_t *stream =
            find_stream(part, name, dataset_id(data->sets[i]));
        int64_t read = json_integer_value(json_object_get(stream, member));
        if (read < 0 || read > most)
            return err_set(ERR_CHECKPOINT,
                           "the checkpoint of step %lld says that %lld samples "
                           "of the data set '%s' were read by then",
                           (long long)step, (long long)read, name);
        begin->samples[i] = read;
    }
    return ERR_OK;
}

/* A part of the history: from a step on, these sets. */
static json_t *make_part(const struct run *run, int64_t step,
                         const struct run_data_begin *begin)
{
    const struct run_data *data = run->inputs.sets;
    json_t *streams = json_array();
    for (int i = 0; i < data->count; i++)
        json_array_append_new(streams,
                              json_pack("{s:s, s:s, s:I}", "name",
                                        data->text.entries[i].name, "id",
                                        dataset_id(data->sets[i]), "begin",
                                        (json_int_t)begin->samples[i]));
    return json_pack("{s:I, s:s, s:I, s:o}", "from", (json_int_t)step, "id",
                     run->inputs.train_id, "epoch",
                     (json_int_t)order_epoch(run->inputs.order), "streams",
                     streams);
}

/* The parts so far; NULL: out of memory. */
static json_t *load_history(const struct run *run)
{
    const struct run_data_begin start = { 0 };
    if (run->inputs.history != NULL)
        return json_loads(run->inputs.history, 0, NULL);
    json_t *history = json_array();
    json_array_append_new(history, make_part(run, 0, &start));
    return history;
}

static json_t *last_part(const json_t *history)
{
    return json_array_get(history, json_array_size(history) - 1);
}

#define LEFT_OUT "tokens_left_out"

enum err trainer_data_store(const struct run *run, json_t *state)
{
    int64_t counts[STREAMS_MAX];
    int64_t position = trainer_rollback_read(run, run->position.step);
    json_t *history = load_history(run);
    json_t *streams = json_object_get(last_part(history), "streams");
    if (order_read(run->inputs.order, position, counts))
        for (int i = 0; i < run->inputs.train_count; i++)
            json_object_set_new(json_array_get(streams, (size_t)i), "read",
                                json_integer(counts[i]));
    TRY(run_put(state, "data", history));
    assert(run->position.tokens_left_out >= 0);
    return run->position.tokens_left_out > 0
               ? run_put(state, LEFT_OUT,
                         json_integer(run->position.tokens_left_out))
               : ERR_OK;
}

/* Where the data of this start begin, if they are others than before. */
static enum err change_data(struct run *run, int64_t step, json_t *history,
                            struct run_data_begin *out)
{
    *out = (struct run_data_begin){ .batch = rollback_behind(
                                        &run->position.rollbacks, step) };
    /* a set that stays in a mixture goes on where it was */
    if (run->settings.data.order == ORDER_CANONICAL &&
        run->settings.data.mixture[0] != '\0')
        TRY(find_begin(run, step, last_part(history), "read", out));
    run->inputs.epoch_before =
        json_integer_value(json_object_get(last_part(history), "epoch"));
    json_array_append_new(history, make_part(run, step, out));
    run->inputs.changed = true;
    if (run->rank == 0)
        log_warn("the data or their order change after step %lld (%s)",
                 (long long)step,
                 run->settings.data.change == CHANGE_CONTINUE
                     ? "data.change = continue"
                     : "checkpoint.load");
    return ERR_OK;
}

/* Where they began at an earlier start. */
static enum err find_data(const struct run *run, int64_t step,
                          const json_t *part, struct run_data_begin *out)
{
    int64_t from = json_integer_value(json_object_get(part, "from"));
    if (from < 0 || from > step)
        return err_set(ERR_CHECKPOINT,
                       "the checkpoint of step %lld says that its data began "
                       "at step %lld",
                       (long long)step, (long long)from);
    *out = (struct run_data_begin){ .batch = rollback_behind(
                                        &run->position.rollbacks, from) };
    return find_begin(run, step, part, "begin", out);
}

/* The order that begins there, if the one that every start makes does not; what
 * reads ahead has the old one, and is made anew. */
static enum err replace_order(struct run *run,
                              const struct run_data_begin *begin)
{
    const struct run_data_begin start = { 0 };
    struct order *order = NULL;
    assert(begin->batch >= 0 && run->inputs.order != NULL);
    bool ahead = run->inputs.ahead != NULL;
    if (memcmp(begin, &start, sizeof start) == 0)
        return ERR_OK;
    TRY(run_data_order(run->inputs.sets, &run->settings, begin, &order));
    trainer_ahead_destroy(run);
    order_destroy(run->inputs.order);
    run->inputs.order = order;
    return ahead ? trainer_ahead_create(run) : ERR_OK;
}

/* Checkpoints from before there was a history have read one set from step 0
 * on. */
enum err trainer_data_restore(struct run *run, int64_t step,
                              const json_t *state)
{
    enum err rc = ERR_OK;
    struct run_data_begin begin;
    int64_t left_out = json_integer_value(json_object_get(state, LEFT_OUT));
    int64_t each = run->plan.rates.tokens_per_step;
    assert(step >= 0 && each > 0);
    if (left_out < 0 || left_out / each > step ||
        (left_out / each == step && left_out % each > 0))
        return err_set(ERR_CHECKPOINT,
                       "%lld tokens are said to be left out of %lld steps: go "
                       "on from another checkpoint",
                       (long long)left_out, (long long)step);
    const json_t *stored = json_object_get(state, "data");
    json_t *history = json_array_size(stored) > 0
                          ? json_deep_copy(stored)
                          : json_pack("[{s:i}]", "from", 0);
    if (history == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    run->position.tokens_left_out = left_out;
    if (start_fixed_order_changed(run, state))
        TRY_OUT(change_data(run, step, history, &begin));
    else
        TRY_OUT(find_data(run, step, last_part(history), &begin));
    free(run->inputs.history);
    run->inputs.history = json_dumps(history, JSON_COMPACT);
    if (run->inputs.history == NULL)
        TRY_OUT(err_set(ERR_MEMORY, "out of memory"));
    TRY_OUT(replace_order(run, &begin));
out:
    json_decref(history);
    return rc;
}
