/* Opens the data sets of a run and checks that they fit the settings. It reads
 * no shard: start_files.c does. */
#include "src/train/trainer_data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"

static enum err check_vocabulary(const struct dataset *data,
                                 const struct train_settings *s)
{
    if (dataset_vocab_size(data) <= s->model.vocab_size)
        return ERR_OK;
    return err_set(ERR_DATA,
                   "%s: the data set's vocabulary has %lld tokens, "
                   "model.vocab_size is %lld: use another data set or a larger "
                   "model.vocab_size",
                   dataset_path(data), (long long)dataset_vocab_size(data),
                   (long long)s->model.vocab_size);
}

static enum err check_documents(const struct dataset *data,
                                const struct train_settings *s)
{
    if (!s->model.attn_uses_sequence_id || dataset_eos_token(data) >= 0 ||
        dataset_bos_token(data) >= 0)
        return ERR_OK;
    return err_set(ERR_DATA,
                   "%s: documents cannot be told apart: no token is named "
                   "that ends or begins one. Remove its tessera.json and adopt "
                   "it again with --eos-token-id N or --bos-token-id N; or, "
                   "for attention across documents, set "
                   "model.attn_uses_sequence_id = false",
                   dataset_path(data));
}

static enum err check_lengths(const struct trainer *trainer,
                              const struct dataset *data)
{
    const struct train_settings *s = &trainer->settings;
    bool truncate = s->data.too_long == TOO_LONG_TRUNCATE;
    int64_t longest = 0;
    TRY(loader_check(data, s->data.seq_len, truncate, &longest));
    if (longest > 0 && trainer->rank == 0)
        log_info("%s: samples of more than %lld tokens are cut "
                 "(data.too_long); the longest has %lld",
                 dataset_path(data), (long long)s->data.seq_len,
                 (long long)longest);
    return ERR_OK;
}

static enum err open_one(const struct trainer *trainer, const char *path,
                         struct dataset **out)
{
    const struct train_settings *s = &trainer->settings;
    struct cache_options cache = cache_defaults;
    cache.folder = s->data.cache;
    cache.limit = s->data.cache_limit;
    cache.deadline_s = s->data.remote_deadline;
    TRY(dataset_open_unseen(path, &cache, out));
    TRY(check_vocabulary(*out, s));
    TRY(check_documents(*out, s));
    return check_lengths(trainer, *out);
}

static enum err open_train(struct trainer *trainer)
{
    const struct train_settings *s = &trainer->settings;
    trainer->train_data = calloc(1, sizeof *trainer->train_data);
    if (trainer->train_data == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    trainer->train_count = 1;
    TRY(open_one(trainer, s->data.train, &trainer->train_data[0]));
    snprintf(trainer->train_id, sizeof trainer->train_id, "%s",
             dataset_id(trainer->train_data[0]));
    struct stream stream = { dataset_samples(trainer->train_data[0]), NULL, 0,
                             STREAM_ALL, 0 };
    struct order_spec spec = { .kind = ORDER_CANONICAL,
                               .seed = (uint64_t)s->train.seed,
                               .count = 1,
                               .streams = &stream };
    return order_create(&spec, &trainer->order);
}

static enum err open_eval(struct trainer *trainer)
{
    const struct train_settings *s = &trainer->settings;
    if (s->data.eval[0] == '\0')
        return ERR_OK;
    TRY(open_one(trainer, s->data.eval, &trainer->eval_data));
    if (strcmp(dataset_tokenizer_sha256(trainer->eval_data),
               dataset_tokenizer_sha256(trainer->train_data[0])) != 0)
        return err_set(ERR_DATA,
                       "%s: made with another tokenizer than %s: tokenize both "
                       "with the same",
                       s->data.eval, dataset_path(trainer->train_data[0]));
    struct stream stream = { dataset_samples(trainer->eval_data), NULL, 0,
                             STREAM_ALL, 0 };
    struct order_spec spec = { .kind = ORDER_STRAIGHT,
                               .count = 1,
                               .streams = &stream };
    return order_create(&spec, &trainer->eval_order);
}

enum err trainer_data_open(struct trainer *trainer)
{
    TRY(open_train(trainer));
    return open_eval(trainer);
}

void trainer_data_close(struct trainer *trainer)
{
    order_destroy(trainer->order);
    order_destroy(trainer->eval_order);
    for (int i = 0; i < trainer->train_count; i++)
        dataset_close(trainer->train_data[i]);
    free(trainer->train_data);
    dataset_close(trainer->eval_data);
}

int64_t trainer_data_samples(const struct trainer *trainer)
{
    int64_t samples = 0;
    for (int i = 0; i < trainer->train_count; i++)
        samples += dataset_samples(trainer->train_data[i]);
    return samples;
}
