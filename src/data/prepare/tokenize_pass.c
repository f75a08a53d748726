/* The pass over the text: read, cut into chunks, encode in threads, and write
 * in order. Reading and writing share the calling thread: chunks are given as
 * long as the pool has a free one, else the oldest is waited for and written.
 * Encoding is the work, so one thread feeds many; and as one thread does all
 * the rest, the order of the output needs no lock and cannot depend on the
 * others. */
#include <inttypes.h>

#include "src/base/log.h"
#include "src/data/prepare/tokenize_pool.h"
#include "src/data/prepare/tokenize_impl.h"

static enum err pass_idle(void *context)
{
    struct tokenize_job *job = context;
    return tokenize_job_poll(job, job->progress.done);
}

/* Take the chunk that was given first, and write it. *more false: none is under
 * way. */
static enum err pass_take(struct tokenize_job *job, struct tokenize_pool *pool,
                          bool *more)
{
    struct tokenize_chunk *chunk = NULL;
    TRY(tokenize_pool_take(pool, &chunk));
    *more = chunk != NULL;
    if (chunk == NULL)
        return ERR_OK;
    TRY(tokenize_out_chunk(&job->out, chunk));
    tokenize_pool_return(pool);
    return tokenize_job_poll(job, job->progress.done);
}

static enum err pass_run(struct tokenize_job *job,
                         const struct documents *documents,
                         struct tokenize_feed *feed, struct tokenize_pool *pool)
{
    bool more = true, again = job->out.result.samples > 0;
    while (more) {
        /* room in the ring: read on; none: write what is done first */
        struct tokenize_chunk *chunk = tokenize_pool_free(pool);
        if (chunk == NULL) {
            TRY(pass_take(job, pool, &more));
            continue;
        }
        TRY(tokenize_feed_fill(feed, chunk, &more));
        if (more)
            tokenize_pool_give(pool);
        job->progress.done = documents_done(documents);
        if (again)
            job->progress.from = job->progress.done;
        again = false;
    }
    do
        TRY(pass_take(job, pool, &more));
    while (more);
    return tokenize_out_end(&job->out);
}

enum err tokenize_pass(struct tokenize_job *job)
{
    enum err rc = ERR_OK;
    const struct tokenize_options *options = job->options;
    const char *field =
        options->field != NULL ? options->field : TOKENIZE_FIELD_DEFAULT;
    const struct documents_options reading = {
        options->separator, field, { pass_idle, job }, options->binary
    };
    struct documents *documents = NULL;
    struct tokenize_feed *feed = NULL;
    struct tokenize_pool *pool = NULL;
    const struct tokenize_mark *mark = &job->out.mark;
    TRY_OUT(documents_create(&job->inputs, &reading, &documents));
    TRY_OUT(documents_go(documents, &mark->place));
    TRY_OUT(tokenize_feed_create(documents, job->tokenizer, &feed));
    TRY_OUT(tokenize_pool_create(job->tokenizer, job->marks,
                                 tokenize_pool_threads(options->threads),
                                 &pool));
    progress_begin(&job->progress, "tokenizing", NULL,
                   options->mds ? -1 : inputs_bytes(&job->inputs));
    TRY_OUT(pass_run(job, documents, feed, pool));
    progress_end(&job->progress);
    if (tokenize_pool_lost(pool) > 0)
        log_warn("%" PRIu64 " bytes of the text have no token of %s and were "
                 "left out",
                 tokenize_pool_lost(pool), options->tokenizer);
    if (job->out.result.samples == 0)
        rc = err_set(ERR_DATA, "%s%s: no text in it", job->inputs.file[0].path,
                     job->inputs.count > 1 ? " and the other files" : "");
out:
    tokenize_pool_destroy(pool);
    tokenize_feed_destroy(feed);
    documents_destroy(documents);
    return rc;
}
