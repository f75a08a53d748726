/* The pass over the text, in rounds: read chunks, encode them in threads, and
 * write their tokens in order. One thread does all but the encoding, which is the
 * work: so the order of the output needs no lock and cannot depend on the others.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/fsio.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/data/prepare/tokenize_impl.h"
#include "src/data/prepare/tokenize_round.h"

/* --- samples, and the journal that is told what is on disk ---
 *
 * A sample begins in the middle of a document, and a tokenizer cannot be
 * stopped and gone on with there. So a mark is no state of it: it is the place
 * of the chunk in which the next unwritten sample begins, and how many of the
 * tokens from there are in samples already. After a kill these are made once
 * more and skipped. Every cut of the text gives the tokens of the whole, so the
 * chunks need not be the same again, nor the number of threads. */

/* Most of the spool, between two lines of the journal. */
#define OUT_SPOOL_BYTES ((int64_t)16 << 20)

enum err tokenize_out_begin(struct tokenize_out *out,
                            const struct tokenize_mark *mark)
{
    assert((out->writer != NULL) != (out->spool != NULL) && out->seq_len > 0);
    TRY(new_room(&out->sample, (size_t)out->seq_len));
    out->mark = *mark;
    out->result = mark->before;
    out->skip = mark->tokens;
    out->dropping = mark->dropping;
    out->journaled = out->writer != NULL ? mds_writer_shards(out->writer)
                                         : mark->before.samples;
    return ERR_OK;
}

void tokenize_out_release(struct tokenize_out *out)
{
    free(out->sample);
    out->sample = NULL;
}

/* Before the journal speaks of what is held out, it is on disk. */
static enum err out_sync(FILE *spool)
{
    return spool == NULL || (fflush(spool) == 0 && fsync(fileno(spool)) == 0)
               ? ERR_OK
               : err_errno("spool of the tokens: write");
}

/* The shards that adding a sample has completed end before it. */
static enum err out_journal_shards(struct tokenize_out *out)
{
    if (out->journal == NULL || out->writer == NULL ||
        out->journaled == mds_writer_shards(out->writer))
        return ERR_OK;
    TRY(fsio_fsync_dir(out->folder)); /* their names, before they are told */
    TRY(out_sync(out->held));
    for (; out->journaled < mds_writer_shards(out->writer); out->journaled++)
        TRY(tokenize_journal_add_shard(
            out->journal, mds_writer_shard(out->writer, out->journaled),
            &out->mark));
    return ERR_OK;
}

static enum err out_sync_spool(struct tokenize_out *out, bool all)
{
    TRY(out_sync(out->spool));
    if (out->journal == NULL)
        return ERR_OK;
    out->journaled = out->result.samples;
    return tokenize_journal_add_spool(out->journal, all, &out->mark);
}

static enum err out_sample(struct tokenize_out *out)
{
    size_t count = (size_t)out->filled;
    assert(count > 0);
    if (out->spool == NULL)
        TRY(mds_writer_add(out->writer, out->sample, out->filled));
    else if (fwrite(out->sample, sizeof *out->sample, count, out->spool) !=
             count)
        return err_errno("spool of the tokens: write");
    TRY(out_journal_shards(out));
    out->result.samples++;
    out->result.tokens += out->filled;
    out->filled = 0;
    return ERR_OK;
}

/* Tokens of one document. `at` is where they are; its tokens grow. */
static enum err out_tokens(struct tokenize_out *out, const int32_t *tokens,
                           int64_t count, struct tokenize_mark *at)
{
    assert(count > 0 && out->skip >= 0 && out->filled < out->seq_len);
    int64_t skipped = count < out->skip ? count : out->skip;
    out->skip -= skipped;
    at->tokens += skipped;
    tokens += skipped;
    count -= skipped;
    while (count > 0 && !out->dropping) {
        int64_t room = out->seq_len - out->filled;
        int64_t part = count < room ? count : room;
        memcpy(out->sample + out->filled, tokens,
               (size_t)part * sizeof *tokens);
        out->filled += part;
        at->tokens += part;
        tokens += part;
        count -= part;
        if (part < room)
            break;
        TRY(out_sample(out));
        /* the next sample begins behind this token; without wrapping, behind
         * this document */
        out->dropping = out->no_wrap;
        out->mark = *at;
        out->mark.dropping = out->dropping;
        out->mark.before.samples = out->result.samples;
        out->mark.before.tokens = out->result.tokens;
        out->mark.before.dropped = out->result.dropped;
        int64_t samples = out->result.samples - out->journaled;
        if (out->spool != NULL && out->journal != NULL &&
            samples * out->seq_len * 4 >= OUT_SPOOL_BYTES)
            TRY(out_sync_spool(out, false));
    }
    at->tokens += count; /* left out */
    out->result.dropped += count;
    return ERR_OK;
}

static enum err out_held(struct tokenize_out *out, const int32_t *tokens,
                         size_t count, bool ends)
{
    if (fwrite(tokens, sizeof *tokens, count, out->held) != count)
        return err_errno("spool of the tokens: write");
    out->result.held_tokens += (int64_t)count;
    out->result.held_documents += ends;
    return ERR_OK;
}

/* The next chunk of the text from the mark's place on. */
static enum err out_chunk(struct tokenize_out *out,
                          const struct tokenize_chunk *chunk)
{
    size_t token = 0, byte = 0;
    struct tokenize_mark at = { .place = chunk->place, .before = out->result };
    for (size_t p = 0; p < chunk->parts; p++) {
        const struct tokenize_part *part = &chunk->part[p];
        if (part->held)
            TRY(out_held(out, chunk->tokens.token + token,
                         part->tokens_end - token, part->ends));
        else if (part->tokens_end > token)
            TRY(out_tokens(out, chunk->tokens.token + token,
                           (int64_t)(part->tokens_end - token), &at));
        out->result.bytes += (int64_t)(part->end - byte);
        out->result.documents += part->ends;
        if (part->ends && out->skip == 0 && !part->held)
            out->dropping = false;
        token = part->tokens_end;
        byte = part->end;
    }
    assert(token == chunk->tokens.count); /* each is of a part */
    return ERR_OK;
}

/* The last sample, which may be shorter, and the spool's end. */
static enum err out_end(struct tokenize_out *out)
{
    if (out->filled > 0)
        TRY(out_sample(out));
    if (out->spool == NULL)
        return ERR_OK;
    /* no place any more: what the spool has is all */
    out->mark = (struct tokenize_mark){ .before = out->result };
    return out_sync_spool(out, true);
}

/* --- the rounds --- */

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
            TRY(out_chunk(&job->out, &pass->round.chunk[c]));
            TRY(pass_idle(job));
        }
    }
    job->out.result.empty = documents_empty(pass->documents);
    return out_end(&job->out);
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
