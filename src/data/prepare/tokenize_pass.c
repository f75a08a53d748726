/* The pass over the text, in rounds: read chunks, encode them in threads, and
 * write their tokens in order. One thread does all but the encoding, which is the
 * work: so the order of the output needs no lock and cannot depend on the others.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "src/base/log.h"
#include "src/base/new.h"
#include "src/data/prepare/tokenize_impl.h"
#include "src/data/prepare/tokenize_round.h"

struct pass {
    struct tokenize_job *job;
    struct documents *documents;
    struct tokenize_feed *feed;
    struct tokenize_round round;
    struct tokenizer_encoder **encoder; /* [round.threads] */
};

static enum err pass_idle(void *context)
{
    struct tokenize_job *job = context;
    return tokenize_job_poll(job, job->progress.done);
}

static enum err pass_encode(void *arg, int thread, struct tokenize_chunk *chunk)
{
    const struct pass *pass = arg;
    struct tokenize_marks marks = pass->job->marks;
    size_t begin = 0;
    chunk->tokens.count = 0;
    for (size_t p = 0; p < chunk->parts; p++) {
        struct tokenize_part *part = &chunk->part[p];
        if (part->begins && marks.bos >= 0)
            TRY(token_list_add(&chunk->tokens, &marks.bos, 1));
        if (part->end > begin)
            TRY(tokenizer_encode(
                pass->encoder[thread], chunk->text + begin, part->end - begin,
                part->begins ? 0u : TOKENIZER_INSIDE, &chunk->tokens));
        if (part->ends && marks.eos >= 0)
            TRY(token_list_add(&chunk->tokens, &marks.eos, 1));
        part->tokens_end = chunk->tokens.count;
        begin = part->end;
    }
    return ERR_OK;
}

static enum err pass_run(struct pass *pass)
{
    struct tokenize_job *job = pass->job;
    bool more = true, again = job->out.result.samples > 0;
    while (more) {
        TRY(tokenize_round_fill(&pass->round, pass->feed, &more));
        job->progress.done = documents_done(pass->documents);
        if (again)
            job->progress.from = job->progress.done;
        again = false;
        tokenize_round_each(&pass->round, pass_encode, pass);
        for (int c = 0; c < pass->round.filled; c++) {
            TRY(err_again(&pass->round.chunk[c].failure));
            TRY(tokenize_out_chunk(&job->out, &pass->round.chunk[c]));
            TRY(pass_idle(job));
        }
    }
    return tokenize_out_end(&job->out);
}

/* Bytes without a token. */
static void pass_tell_lost(const struct pass *pass)
{
    uint64_t lost = 0;
    for (int t = 0; t < pass->round.threads; t++)
        lost += tokenizer_encoder_lost(pass->encoder[t]);
    if (lost > 0)
        log_warn("%" PRIu64 " bytes of the text have no token of %s and were "
                 "left out",
                 lost, pass->job->options->tokenizer);
}

enum err tokenize_pass(struct tokenize_job *job)
{
    enum err rc = ERR_OK;
    const struct tokenize_options *options = job->options;
    const char *field =
        options->field != NULL ? options->field : TOKENIZE_FIELD_DEFAULT;
    const struct documents_options reading = { options->separator,
                                               field,
                                               { pass_idle, job,
                                                 options->encoding },
                                               options->binary,
                                               options->holdout,
                                               (uint64_t)options->seed };
    struct pass pass = { .job = job };
    const struct tokenize_mark *mark = &job->out.mark;
    TRY_OUT(documents_create(&job->inputs, &reading, &pass.documents));
    TRY_OUT(documents_go(pass.documents, &mark->place));
    TRY_OUT(tokenize_feed_create(pass.documents, job->tokenizer, &pass.feed));
    TRY_OUT(tokenize_round_create(options->threads, &pass.round));
    TRY_OUT(new_zeroed(&pass.encoder, (size_t)pass.round.threads));
    for (int t = 0; t < pass.round.threads; t++)
        TRY_OUT(tokenizer_encoder_create(job->tokenizer, &pass.encoder[t]));
    progress_begin(&job->progress, "tokenizing", NULL,
                   options->mds ? -1 : inputs_bytes(&job->inputs));
    TRY_OUT(pass_run(&pass));
    progress_end(&job->progress);
    pass_tell_lost(&pass);
    if (job->out.result.samples == 0)
        rc = err_set(
            ERR_DATA, "%s%s: no text in it%s", job->inputs.file[0].path,
            job->inputs.count > 1 ? " and the other files" : "",
            job->out.result.held_tokens > 0 ? " but what is held out" : "");
out:
    for (int t = 0; pass.encoder != NULL && t < pass.round.threads; t++)
        tokenizer_encoder_destroy(pass.encoder[t]);
    free(pass.encoder);
    tokenize_round_release(&pass.round);
    tokenize_feed_destroy(pass.feed);
    documents_destroy(pass.documents);
    return rc;
}
