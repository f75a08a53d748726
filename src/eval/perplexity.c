/* Measures perplexity: exp of the mean of -log p over all tokens that bear loss.
 *
 * A mean over batches of means would weigh tokens by the batch that they are in,
 * and a sum of fp32 losses in batches would have another last digit for every
 * size of a batch. So each sample is a leaf of its own, whose summed loss is a
 * function of the sample; the losses of all samples are gathered on every rank,
 * one number each, and added from the first to the last in fp64; and the one
 * division comes at the end. The result is the same to the bit for any number of
 * ranks, and nothing that somebody may set for speed has a say in it.
 *
 * Perplexities of models with different tokenizers cannot be compared, since a
 * token is more text for one than for the other. nll per byte of the text can:
 * hence the bytes are counted where the model's tokenizer is known. */
#include "src/eval/perplexity.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"
#include "src/base/real.h"
#include "src/data/set/dataset.h"
#include "src/data/set/loader.h"
#include "src/data/set/order.h"
#include "src/model/model.h"

struct measure {
    const struct perplexity_options *options;
    struct comm *comm;
    struct dataset *dataset;
    struct order *order;
    struct batch *batch;
    struct model *model;
    struct arena loss; /* of a sample, a tensor */
    double *losses;    /* [samples] */
    int64_t samples, begin, end;
    int64_t counts[2]; /* tokens, bytes */
    bool decodes;      /* bytes are counted */
};

/* Whether model and data belong together, as far as they tell. */
static enum err check(const struct measure *measure)
{
    const struct perplexity_options *options = measure->options;
    const struct dataset *dataset = measure->dataset;
    int64_t vocab = dataset_sidecar(dataset)->vocab_size;
    if (options->tokenizer != NULL &&
        strcmp(tokenizer_sha256(options->tokenizer),
               dataset_sidecar(dataset)->tokenizer_sha256) != 0)
        return err_set(
            ERR_DATA, "%s: made with another tokenizer (%s) than the model's",
            dataset_path(dataset), dataset_sidecar(dataset)->tokenizer);
    if (vocab > options->config->vocab_size)
        return err_set(ERR_DATA,
                       "%s: has a vocabulary of %lld tokens, the model of %lld",
                       dataset_path(dataset), (long long)vocab,
                       (long long)options->config->vocab_size);
    return ERR_OK;
}

/* The order of the files: nothing is shuffled, and one pass is enough. */
static enum err open_order(struct measure *measure)
{
    struct stream stream = { dataset_contents(measure->dataset)->samples, NULL,
                             0, STREAM_ALL, 0 };
    struct order_spec spec = { .kind = ORDER_STRAIGHT,
                               .count = 1,
                               .streams = &stream };
    return order_create(&spec, &measure->order);
}

/* Rows of the data set's longest sample, of what the model takes where that is
 * not known. */
static enum err open_batch(struct measure *measure)
{
    const struct perplexity_options *options = measure->options;
    int64_t longest = dataset_longest(measure->dataset);
    int64_t seq_len = options->config->max_seq_len;
    if (options->seq_len > 0 && options->seq_len < seq_len)
        seq_len = options->seq_len;
    if (options->seq_len == 0 && longest > seq_len)
        return err_set(ERR_DATA,
                       "%s: has samples of %lld tokens, the model takes %lld: "
                       "--max-seq-len cuts them",
                       dataset_path(measure->dataset), (long long)longest,
                       (long long)seq_len);
    if (longest > 0 && longest < seq_len)
        seq_len = longest;
    TRY(batch_create(1, seq_len, &measure->batch));
    measure->batch->truncate = options->seq_len > 0;
    measure->batch->joined = !options->config->attn_uses_sequence_id;
    TRY(options->kernels->memory->tensors_create(sizeof(struct leaf_loss),
                                                 &measure->loss));
    const struct model_options model = { .threads = options->ctx->threads,
                                         .stream = options->ctx->stream,
                                         .samples = 1,
                                         .seq_len = seq_len,
                                         .dtype = DTYPE_F32 };
    return model_create(options->config, options->params, options->kernels,
                        &model, &measure->model);
}

static enum err open_all(struct measure *measure, const char *path)
{
    const struct perplexity_options *options = measure->options;
    int ranks = comm_size(measure->comm), rank = comm_rank(measure->comm);
    TRY(dataset_open(path, &measure->dataset));
    TRY(check(measure));
    TRY(open_order(measure));
    TRY(open_batch(measure));
    measure->samples = dataset_contents(measure->dataset)->samples;
    if (options->limit > 0 && options->limit < measure->samples)
        measure->samples = options->limit;
    measure->begin = measure->samples * rank / ranks;
    measure->end = measure->samples * (rank + 1) / ranks;
    measure->decodes = options->tokenizer != NULL;
    return new_zeroed(&measure->losses, (size_t)measure->samples);
}

/* The text of what is predicted, not of what it is predicted from. */
static enum err count_bytes(struct measure *measure)
{
    const struct batch *batch = measure->batch;
    for (int64_t i = 0; measure->decodes && i < batch->seq_len; i++) {
        const uint8_t *text;
        size_t bytes;
        if (batch->labels[i] < 0)
            continue;
        TRY(tokenizer_decode(measure->options->tokenizer, batch->labels[i],
                             &text, &bytes));
        measure->counts[1] += (int64_t)bytes;
    }
    return ERR_OK;
}

static enum err measure_sample(struct measure *measure, int64_t sample)
{
    const struct perplexity_options *options = measure->options;
    const struct kernel_memory *memory = options->kernels->memory;
    struct batch *batch = measure->batch;
    struct leaf_loss loss;
    bool documents = options->config->attn_uses_sequence_id;
    assert(sample >= measure->begin && sample < measure->end);
    TRY(loader_read(&measure->dataset, measure->order, sample, 1, batch));
    const struct leaf leaf = {
        .samples = 1,
        .seq_len = batch->seq_len,
        .tokens = batch->tokens,
        .labels = batch->labels,
        .sequence_ids = documents ? batch->sequence_ids : NULL,
    };
    TRY(model_eval_leaf(measure->model, spread_access(options->spread), &leaf,
                        (void *)measure->loss.base));
    TRY(memory->download(options->ctx->stream, sizeof loss, measure->loss.base,
                         &loss));
    TRY(memory->wait(options->ctx->stream));
    assert(batch->loss_tokens >= 0 && batch->loss_tokens <= batch->seq_len);
    measure->losses[sample] = loss.cross_entropy;
    measure->counts[0] += batch->loss_tokens;
    return count_bytes(measure);
}

/* Where ranks walk together, one with a sample less, or that has failed, goes along. */
static enum err measure_own(struct measure *measure)
{
    struct spread *spread = measure->options->spread;
    struct err_kept kept = { ERR_OK, "" };
    int64_t ranks = comm_size(measure->comm);
    int64_t count = spread_together(spread)
                        ? (measure->samples + ranks - 1) / ranks
                        : measure->end - measure->begin;
    for (int64_t s = measure->begin; s < measure->begin + count; s++) {
        spread_begin(spread);
        if (s < measure->end && kept.code == ERR_OK)
            err_keep(&kept, measure_sample(measure, s));
        if (kept.code == ERR_COMM)
            break;
        TRY(spread_end(spread));
    }
    return err_again(&kept);
}

static enum err gather(struct measure *measure)
{
    int ranks = comm_size(measure->comm);
    size_t *bytes = comm_sizes(measure->comm, 0);
    size_t *offsets = comm_sizes(measure->comm, 1);
    for (int r = 0; r < ranks; r++) {
        int64_t begin = measure->samples * r / ranks;
        int64_t end = measure->samples * (r + 1) / ranks;
        offsets[r] = (size_t)begin * sizeof measure->losses[0];
        bytes[r] = (size_t)(end - begin) * sizeof measure->losses[0];
    }
    TRY(comm_all_gather(measure->comm, measure->losses, bytes, offsets));
    return comm_all_reduce_i64(measure->comm, measure->counts, 2, COMM_SUM);
}

static enum err work_out(const struct measure *measure, const char *path,
                         struct perplexity *out)
{
    *out = (struct perplexity){ .samples = measure->samples,
                                .tokens = measure->counts[0],
                                .bytes = measure->decodes ? measure->counts[1]
                                                          : -1 };
    if (out->tokens == 0)
        return err_set(ERR_DATA, "%s: no token bears loss", path);
    for (int64_t s = 0; s < measure->samples; s++)
        out->nll += measure->losses[s];
    out->per_token = out->nll / (double)out->tokens;
    out->perplexity = real_exp(out->per_token);
    if (out->bytes > 0)
        out->per_byte = out->nll / (double)out->bytes;
    return ERR_OK;
}

enum err perplexity_measure(const char *path,
                            const struct perplexity_options *options,
                            struct comm *comm, struct perplexity *out)
{
    enum err rc = ERR_OK;
    struct measure measure = { .options = options, .comm = comm };
    assert(options->limit >= 0 && options->seq_len >= 0);
    TRY_OUT(comm_agree(comm, open_all(&measure, path)));
    rc = measure_own(&measure);
    /* a dead rank cannot be asked */
    TRY_OUT(rc == ERR_COMM ? rc : comm_agree(comm, rc));
    TRY_OUT(gather(&measure));
    rc = work_out(&measure, path, out);
out:
    free(measure.losses);
    model_destroy(measure.model);
    options->kernels->memory->tensors_destroy(&measure.loss);
    batch_destroy(measure.batch);
    order_destroy(measure.order);
    dataset_close(measure.dataset);
    return rc;
}
