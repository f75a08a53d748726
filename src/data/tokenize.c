/* Makes a data set of text files: documents to tokens, tokens to samples,
 * samples to shards. */
#include "src/data/tokenize.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/fsio.h"
#include "src/data/mds_writer.h"
#include "src/data/progress.h"
#include "src/data/publish.h"
#include "src/data/regular.h"
#include "src/data/sidecar.h"
#include "src/data/text.h"
#include "src/text/tokenizer.h"

/* Samples between looks at the clock and the stop flag in the second pass. */
#define TOKENIZE_POLL_SAMPLES 256

struct tokenize {
    const struct tokenize_options *options;
    struct tokenizer *tokenizer;
    struct publish publish;
    struct progress progress;
    struct mds_writer *writer; /* of the set being written */
    FILE *spool;               /* all tokens, when how many there are decides */
    struct tokenizer_encoder *encoder;
    struct token_list encoded;
    int32_t *sample; /* [seq_len] */
    int64_t filled;  /* of sample */
    struct tokenize_result result;
};

static enum err tokenize_poll(struct tokenize *job, int64_t done)
{
    if (job->options->show)
        progress_update(&job->progress, done);
    if (job->options->stop != NULL && job->options->stop() != 0)
        return err_set(ERR_IO, "interrupted; %s was not written",
                       job->options->out);
    return ERR_OK;
}

static enum err tokenize_put_sample(struct tokenize *job)
{
    size_t count = (size_t)job->filled;
    if (count == 0)
        return ERR_OK;
    if (job->spool == NULL)
        TRY(mds_writer_add(job->writer, job->sample, job->filled));
    else if (fwrite(job->sample, sizeof *job->sample, count, job->spool) !=
             count)
        return err_errno("%s: write", job->publish.building);
    job->result.samples++;
    job->result.tokens += job->filled;
    job->filled = 0;
    return ERR_OK;
}

static enum err tokenize_put(struct tokenize *job, const int32_t *tokens,
                             size_t count)
{
    while (count > 0) {
        assert(job->filled >= 0 && job->filled < job->options->seq_len);
        size_t room = (size_t)(job->options->seq_len - job->filled);
        size_t part = count < room ? count : room;
        memcpy(job->sample + job->filled, tokens, part * sizeof *tokens);
        job->filled += (int64_t)part;
        tokens += part;
        count -= part;
        if (part == room)
            TRY(tokenize_put_sample(job));
    }
    return ERR_OK;
}

static enum err tokenize_piece(void *context, const uint8_t *text, size_t bytes)
{
    struct tokenize *job = context;
    job->encoded.count = 0;
    TRY(tokenizer_encode(job->encoder, text, bytes, 0, &job->encoded));
    TRY(tokenize_put(job, job->encoded.token, job->encoded.count));
    job->result.bytes += (int64_t)bytes;
    return tokenize_poll(job, job->result.bytes);
}

static enum err tokenize_end(void *context)
{
    struct tokenize *job = context;
    int32_t eos = tokenizer_eos(job->tokenizer);
    job->result.documents++;
    return tokenize_put(job, &eos, 1);
}

static enum err tokenize_idle(void *context)
{
    struct tokenize *job = context;
    return tokenize_poll(job, job->result.bytes);
}

static enum err tokenize_read(struct tokenize *job, char *const *files,
                              int count)
{
    const struct text_sink sink = { job, tokenize_piece, tokenize_end,
                                    tokenize_idle };
    progress_begin(&job->progress, "tokenizing", NULL,
                   text_total_bytes(files, count));
    for (int i = 0; i < count; i++)
        TRY(text_read(files[i], job->options->separator, &sink));
    TRY(tokenize_put_sample(job));
    progress_end(&job->progress);
    if (job->result.samples == 0)
        return err_set(ERR_DATA, "%s%s: no text in it", files[0],
                       count > 1 ? " and the other files" : "");
    return ERR_OK;
}

/* Index and sidecar of the set whose samples the writer was given. */
static enum err tokenize_finish_set(struct tokenize *job, const char *folder,
                                    int64_t samples, int64_t tokens)
{
    enum err rc = ERR_OK;
    struct sidecar sidecar = {
        .vocab_size = tokenizer_vocab_size(job->tokenizer),
        .eos_token = tokenizer_eos(job->tokenizer),
        .bos_token = -1,
        .samples = samples,
        .tokens = tokens,
        .longest =
            tokens < job->options->seq_len ? tokens : job->options->seq_len,
    };
    snprintf(sidecar.tokenizer, sizeof sidecar.tokenizer, "%s",
             tokenizer_name(job->tokenizer));
    snprintf(sidecar.tokenizer_sha256, sizeof sidecar.tokenizer_sha256, "%s",
             tokenizer_sha256(job->tokenizer));
    TRY_OUT(sidecar_write(folder, &sidecar));
    TRY_OUT(mds_writer_finish(job->writer));
out:
    mds_writer_destroy(job->writer);
    job->writer = NULL;
    return rc;
}

static enum err tokenize_begin_set(struct tokenize *job, const char *folder)
{
    assert(job->writer == NULL);
    TRY(fsio_mkdirs(folder));
    return mds_writer_create_tokens(folder, job->options->shard_bytes, true,
                             &job->writer);
}

/* The next `samples` samples of the spool, the last of which may be short. */
static enum err tokenize_copy_set(struct tokenize *job, const char *name,
                                  int64_t samples)
{
    char folder[FSIO_PATH_MAX];
    int64_t tokens = 0;
    int64_t done = job->progress.done;
    assert(job->filled == 0); /* the spool's samples are read into its room */
    TRY(fsio_path(folder, "%s/%s", job->publish.building, name));
    TRY(tokenize_begin_set(job, folder));
    for (int64_t i = 0; i < samples; i++) {
        size_t count = fread(job->sample, sizeof *job->sample,
                             (size_t)job->options->seq_len, job->spool);
        if (count == 0 || ferror(job->spool) != 0)
            return err_errno("%s: read", job->publish.building);
        TRY(mds_writer_add(job->writer, job->sample, (int64_t)count));
        tokens += (int64_t)count;
        if (i % TOKENIZE_POLL_SAMPLES == 0)
            TRY(tokenize_poll(job, done + i));
    }
    job->progress.done = done + samples;
    return tokenize_finish_set(job, folder, samples, tokens);
}

static enum err tokenize_divide(struct tokenize *job)
{
    double fraction = job->options->eval_fraction;
    int64_t total = job->result.samples;
    int64_t eval = (int64_t)floor((double)total * fraction + 0.5);
    eval = eval < 1 ? 1 : eval > total - 1 ? total - 1 : eval;
    if (eval < 1)
        return err_set(ERR_DATA, "the text gives one sample only, which can't "
                                 "be divided; give more text or a shorter "
                                 "--seq-len");
    job->result.samples = total - eval;
    job->result.eval_samples = eval;
    if (fflush(job->spool) != 0 || fseek(job->spool, 0, SEEK_SET) != 0)
        return err_errno("%s: write", job->publish.building);
    progress_begin(&job->progress, "writing", "samples", total);
    TRY(tokenize_copy_set(job, "train", total - eval));
    TRY(tokenize_copy_set(job, "eval", eval));
    progress_end(&job->progress);
    return ERR_OK;
}

/* A temporary file without a name, so that nothing can leave it behind. */
static enum err tokenize_open_spool(struct tokenize *job)
{
    char path[FSIO_PATH_MAX];
    TRY(fsio_path(path, "%s/spool", job->publish.building));
    job->spool = fopen(path, "w+be");
    if (job->spool == NULL || unlink(path) != 0)
        return err_errno("%s: create", path);
    return ERR_OK;
}

static enum err tokenize_check(const struct tokenize_options *options)
{
    enum err rc = ERR_OK;
    int64_t bytes = 0;
    struct mds_writer *writer = NULL;
    if (options->seq_len < 2 || options->seq_len > TOKENIZE_SEQ_LEN_MAX)
        return err_set(ERR_USAGE, "--seq-len has to be in [2, %lld], not %lld",
                       (long long)TOKENIZE_SEQ_LEN_MAX,
                       (long long)options->seq_len);
    if (!(options->eval_fraction >= 0 && options->eval_fraction < 1))
        return err_set(ERR_USAGE,
                       "--eval-fraction has to be between 0 and 1, "
                       "not %g",
                       options->eval_fraction);
    TRY_OUT(mds_writer_create_tokens("", options->shard_bytes, true, &writer));
    TRY_OUT(mds_writer_shard_bytes(writer, options->seq_len, &bytes));
    if (bytes > options->shard_bytes)
        rc = err_set(ERR_USAGE,
                     "--shard-bytes %lld is too small for a sample of %lld "
                     "tokens; it takes at least %lld",
                     (long long)options->shard_bytes,
                     (long long)options->seq_len, (long long)bytes);
out:
    mds_writer_destroy(writer);
    return rc;
}

/* A folder that is going to be replaced is none to read from. */
static enum err tokenize_check_inputs(const struct tokenize_options *options,
                                      char *const *files, int count)
{
    enum err rc = ERR_OK;
    char *out = NULL, *file = NULL;
    out = realpath(options->out, NULL);
    size_t length = out != NULL ? strlen(out) : 0;
    for (int i = 0; i < count; i++) {
        TRY_OUT(regular_local(files[i]));
        file = realpath(files[i], NULL);
        if (out != NULL && file != NULL && strncmp(file, out, length) == 0 &&
            file[length] == '/') {
            rc = err_set(ERR_USAGE,
                         "%s lies in %s, which would be replaced; choose "
                         "another --out",
                         files[i], options->out);
            goto out;
        }
        free(file);
        file = NULL;
    }
out:
    free(file);
    free(out);
    return rc;
}

static enum err tokenize_create(struct tokenize *job)
{
    const struct tokenize_options *options = job->options;
    TRY(tokenize_check(options));
    TRY(tokenizer_create(options->tokenizer, &job->tokenizer));
    TRY(tokenizer_encoder_create(job->tokenizer, &job->encoder));
    job->sample = malloc((size_t)options->seq_len * sizeof *job->sample);
    if (job->sample == NULL)
        return err_set(ERR_MEMORY, "no memory for samples of %lld tokens",
                       (long long)options->seq_len);
    TRY(publish_begin(&job->publish, options->out, options->replace));
    if (options->eval_fraction > 0)
        TRY(tokenize_open_spool(job));
    else
        TRY(tokenize_begin_set(job, job->publish.building));
    return ERR_OK;
}

enum err tokenize_files(const struct tokenize_options *options,
                        char *const *files, int count,
                        struct tokenize_result *out)
{
    assert(options != NULL && files != NULL && count > 0 && out != NULL);
    enum err rc = ERR_OK;
    struct tokenize job = { .options = options };
    TRY_OUT(regular_local(options->out));
    TRY_OUT(tokenize_create(&job));
    TRY_OUT(tokenize_check_inputs(options, files, count));
    TRY_OUT(tokenize_read(&job, files, count));
    if (job.spool != NULL)
        TRY_OUT(tokenize_divide(&job));
    else
        TRY_OUT(tokenize_finish_set(&job, job.publish.building,
                                    job.result.samples, job.result.tokens));
    TRY_OUT(publish_commit(&job.publish));
    *out = job.result;
out:
    mds_writer_destroy(job.writer);
    if (job.spool != NULL)
        fclose(job.spool);
    free(job.sample);
    free(job.encoded.token);
    tokenizer_encoder_destroy(job.encoder);
    tokenizer_destroy(job.tokenizer);
    publish_end(&job.publish);
    return rc;
}
