/* The sets that tokenizing writes: shards that go on where a killed process
 * left them, and a spool that is divided at the end.
 *
 * Going on, shards that the journal has are given to a fresh writer by their
 * entries, unread but for their sizes; a shard that was begun behind them is
 * removed. A spool is cut to what the journal speaks of. Where the files are
 * not what the journal says, nothing of the unfinished set is kept: going on
 * with it would make a set that no undisturbed run makes. */
#include <assert.h>
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/log.h"
#include "src/base/new.h"
#include "src/base/regular.h"
#include "src/data/set/sidecar.h"
#include "src/data/prepare/tokenize_impl.h"

/* Samples between looks at the clock and the stop flag. */
#define SET_POLL_SAMPLES 256

/* Index, sidecar and tokenizer of the set whose samples the writer was given.
 */
static enum err set_finish(struct tokenize_job *job, const char *folder,
                           int64_t samples, int64_t tokens)
{
    assert(job->writer != NULL && samples > 0);
    enum err rc = ERR_OK;
    struct sidecar sidecar = {
        .vocab_size = tokenizer_vocab_size(job->tokenizer),
        .eos_token = job->marks.eos,
        .bos_token = job->marks.eos >= 0 ? -1 : job->marks.bos,
        .samples = samples,
        .tokens = tokens,
        .longest =
            tokens < job->options->seq_len ? tokens : job->options->seq_len,
    };
    TRY_OUT(sidecar_write_made(folder, &sidecar, job->tokenizer));
    TRY_OUT(mds_writer_finish(job->writer));
    TRY_OUT(fsio_fsync_dir(folder));
out:
    mds_writer_destroy(job->writer);
    job->writer = NULL;
    return rc;
}

static enum err set_create(struct tokenize_job *job, const char *folder)
{
    assert(job->writer == NULL);
    TRY(fsio_mkdirs(folder));
    return mds_writer_create_tokens(folder, job->options->shard_bytes, true,
                                    &job->writer);
}

/* The next `samples` samples of the spool, the last of which may be short. */
static enum err set_copy(struct tokenize_job *job, const char *name,
                         int64_t samples)
{
    assert(samples > 0 && job->spool != NULL);
    enum err rc = ERR_OK;
    char folder[FSIO_PATH_MAX];
    int64_t tokens = 0, done = job->progress.done;
    size_t seq_len = (size_t)job->options->seq_len;
    int32_t *sample = NULL;
    TRY(new_room(&sample, seq_len));
    TRY_OUT(fsio_path(folder, "%s/%s", job->publish.building, name));
    TRY_OUT(set_create(job, folder));
    for (int64_t i = 0; i < samples; i++) {
        size_t count = fread(sample, sizeof *sample, seq_len, job->spool);
        if (count == 0 || ferror(job->spool) != 0)
            TRY_OUT(err_errno("%s: read the spool", job->publish.building));
        TRY_OUT(mds_writer_add(job->writer, sample, (int64_t)count));
        tokens += (int64_t)count;
        if (i % SET_POLL_SAMPLES == 0)
            TRY_OUT(tokenize_job_poll(job, done + i));
    }
    job->progress.done = done + samples;
    rc = set_finish(job, folder, samples, tokens);
out:
    free(sample);
    return rc;
}

static enum err set_divide(struct tokenize_job *job)
{
    struct tokenize_result *result = &job->out.result;
    double fraction = job->options->eval_fraction;
    int64_t total = result->samples;
    int64_t eval = (int64_t)floor((double)total * fraction + 0.5);
    eval = eval < 1 ? 1 : eval;
    eval = eval < total ? eval : total - 1; /* each set has one at least */
    if (eval < 1)
        return err_set(ERR_DATA, "the text gives one sample only, which can't "
                                 "be divided; give more text or a shorter "
                                 "--seq-len");
    result->samples = total - eval;
    result->eval_samples = eval;
    if (fseek(job->spool, 0, SEEK_SET) != 0)
        return err_errno("%s: read the spool", job->publish.building);
    progress_begin(&job->progress, "writing", "samples", total);
    TRY(set_copy(job, "train", total - eval));
    TRY(set_copy(job, "eval", eval));
    progress_end(&job->progress);
    return ERR_OK;
}

/* What the journal speaks of is not there; after ERR_DATA nothing stays. */
static enum err set_lost(void)
{
    return err_set(
        ERR_DATA,
        "%s: the unfinished data set is damaged and is removed; give "
        "the command again",
        err_text());
}

/* A temporary file for an input that comes but once, without a name, so that
 * nothing can leave it behind. */
static enum err set_open_spool(struct tokenize_job *job, int64_t tokens)
{
    char path[FSIO_PATH_MAX];
    bool stays = job->journal != NULL;
    TRY(fsio_path(path, "%s/spool",
                  stays ? job->publish.work : job->publish.building));
    job->spool = fopen(path, tokens > 0 ? "r+be" : "w+be");
    if (job->spool == NULL || (!stays && unlink(path) != 0))
        return err_errno("%s: create", path);
    int64_t bytes = tokens * (int64_t)sizeof(int32_t), there = 0;
    if (tokens == 0)
        return ERR_OK;
    TRY(regular_size(path, &there));
    if (there < bytes) {
        (void)err_set(ERR_DATA, "%s: is shorter than it was", path);
        return set_lost();
    }
    if (ftruncate(fileno(job->spool), (off_t)bytes) != 0 ||
        fseek(job->spool, 0, SEEK_END) != 0)
        return err_errno("%s: truncate", path);
    return ERR_OK;
}

/* Shards that are done, and nothing else in the folder. */
static enum err set_restore(struct tokenize_job *job, const char *folder)
{
    char path[FSIO_PATH_MAX];
    size_t index = 0;
    json_t *shard = NULL;
    const json_t *shards = job->journal->shards;
    TRY(set_create(job, folder));
    json_array_foreach((json_t *)shards, index, shard)
    {
        enum err again = mds_writer_again(job->writer, shard);
        if (again == ERR_DATA)
            return set_lost();
        TRY(again);
    }
    struct dirent **names = NULL;
    int count = scandir(folder, &names, NULL, NULL);
    enum err rc = count < 0 ? err_errno("%s: open", folder) : ERR_OK;
    for (int i = 0; i < count; i++) {
        const char *name = names[i]->d_name;
        unsigned long long number = 0;
        bool done = sscanf(name, "shard.%llu.mds", &number) == 1 &&
                    number < json_array_size(shards);
        bool self = strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
        if (rc == ERR_OK && !done && !self) {
            rc = fsio_path(path, "%s/%s", folder, name);
            rc = rc == ERR_OK ? fsio_remove_tree(path) : rc;
        }
        free(names[i]);
    }
    free(names);
    return rc;
}

/* Where the tokens go, and from where on. */
enum err tokenize_set_begin(struct tokenize_job *job)
{
    static const struct tokenize_mark beginning;
    const struct tokenize_mark *mark = &beginning;
    const struct tokenize_options *options = job->options;
    char *folder = job->folder, path[FSIO_PATH_MAX];
    bool held = options->holdout > 0;
    TRY(fsio_path(job->folder, "%s%s", job->publish.building,
                  held ? "/train" : ""));
    TRY(fsio_path(path, "%s/eval", job->publish.building));
    TRY(fsio_remove_tree(path));
    if (job->journal != NULL) {
        mark = &job->journal->mark;
        TRY(set_restore(job, folder));
        TRY(fsio_fsync_dir(job->publish.work));
        TRY(fsio_fsync_dir(job->publish.parent));
    } else {
        TRY(set_create(job, folder));
    }
    if (held)
        TRY(set_open_spool(job, mark->before.held_tokens));
    /* the writer was just for what lies in the folder: tokens go to a spool */
    if (options->eval_fraction > 0) {
        mds_writer_destroy(job->writer);
        job->writer = NULL;
        TRY(set_open_spool(job, mark->before.tokens));
    }
    job->out = (struct tokenize_out){ .seq_len = options->seq_len,
                                      .no_wrap = options->no_wrap,
                                      .writer = job->writer,
                                      .folder = folder,
                                      .spool = held ? NULL : job->spool,
                                      .held = held ? job->spool : NULL,
                                      .journal = job->journal };
    if (mark->before.samples > 0 && options->show)
        log_info("going on with %s: %lld samples are done", options->out,
                 (long long)mark->before.samples);
    return tokenize_out_begin(&job->out, mark);
}

/* The training set is complete; what was held out is in the spool. */
static enum err set_end_held(struct tokenize_job *job)
{
    struct tokenize_result *result = &job->out.result;
    int64_t seq_len = job->options->seq_len;
    TRY(set_finish(job, job->folder, result->samples, result->tokens));
    if (result->held_tokens == 0)
        return err_set(ERR_DATA,
                       "none of %lld documents is held out; give more "
                       "of them, another --seed or a greater "
                       "--holdout",
                       (long long)result->documents);
    if (fflush(job->spool) != 0 || fseek(job->spool, 0, SEEK_SET) != 0)
        return err_errno("%s: read the spool", job->publish.building);
    result->eval_samples = (result->held_tokens + seq_len - 1) / seq_len;
    progress_begin(&job->progress, "writing", "samples", result->eval_samples);
    TRY(set_copy(job, "eval", result->eval_samples));
    result->tokens += result->held_tokens;
    progress_end(&job->progress);
    return ERR_OK;
}

enum err tokenize_set_end(struct tokenize_job *job)
{
    if (job->options->holdout > 0)
        return set_end_held(job);
    if (job->spool != NULL)
        return set_divide(job);
    return set_finish(job, job->publish.building, job->out.result.samples,
                      job->out.result.tokens);
}
