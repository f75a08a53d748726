/* Makes a data set of text: what the options mean, and the steps from the text
 * to a folder in its place.
 *
 *   documents   spans of text with their places       texts/documents.c
 *   chunks      a MiB of them, cut where tokens allow  tokenize_round.c
 *   tokens      encoded by threads, taken in order     tokenize_pass.c
 *   samples     seq_len of the stream                  tokenize_pass.c
 *   shards      or a spool                             tokenize_set.c
 *
 * tokenize_pass.c is the loop over these. With an evaluation fraction the last
 * samples make a set of their own; which those are is known at the end, so all
 * tokens go to a spool, and a second pass over that writes shards.
 *
 * What is on disk is in the journal (tokenize_journal.c), so that the same
 * command goes on after a kill, anywhere: in the text, in the second pass, and
 * between "complete" and the rename. A rename cannot be journaled, so the last
 * line has the folder's inode: that of the folder in its place tells that it
 * was done. */
#include "src/data/prepare/tokenize.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "src/base/digest.h"
#include "src/base/regular.h"
#include "src/data/set/sidecar.h"
#include "src/data/prepare/tokenize_impl.h"
#include "src/text/unicode.h"

enum err tokenize_poll(const struct tokenize_options *options,
                       struct progress *progress, int64_t done)
{
    if (options->show)
        progress_update(progress, done);
    if (options->stop == NULL || options->stop() == 0)
        return ERR_OK;
    return err_set(ERR_IO, "interrupted; %s was not written", options->out);
}

enum err tokenize_job_poll(struct tokenize_job *job, int64_t done)
{
    enum err rc = tokenize_poll(job->options, &job->progress, done);
    if (rc != ERR_OK && job->journal != NULL && job->journal->steps > 0)
        err_set(rc, "%s; the same command goes on with what is done",
                err_text());
    return rc;
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
                       "--eval-fraction has to be between 0 and 1, not %g",
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
static enum err tokenize_check_inputs(const struct tokenize_job *job)
{
    enum err rc = ERR_OK;
    char *file = NULL;
    char *out = realpath(job->options->out, NULL);
    size_t length = out != NULL ? strlen(out) : 0;
    for (size_t i = 0; out != NULL && i < job->inputs.count; i++) {
        const char *path = job->inputs.file[i].path;
        file = realpath(path, NULL);
        if (file != NULL && strncmp(file, out, length) == 0 &&
            file[length] == '/')
            TRY_OUT(err_set(ERR_USAGE,
                            "%s lies in %s, which would be replaced; choose "
                            "another --out",
                            path, job->options->out));
        free(file);
        file = NULL;
    }
out:
    free(file);
    free(out);
    return rc;
}

static enum err tokenize_check_token(const struct tokenize_job *job,
                                     const char *option, int64_t token)
{
    int64_t size = tokenizer_vocab_size(job->tokenizer);
    if (token >= 0 && token < size)
        return ERR_OK;
    return err_set(
        ERR_USAGE, "--%s %lld is outside the vocabulary [0, %lld) of %s",
        option, (long long)token, (long long)size, job->options->tokenizer);
}

/* Which tokens begin and end a document. */
static enum err tokenize_choose_marks(struct tokenize_job *job)
{
    const struct tokenize_options *options = job->options;
    job->marks = (struct tokenize_marks){ -1, -1 };
    if (options->eos_given && options->no_eos)
        return err_set(ERR_USAGE, "--eos-id and --no-eos exclude each other");
    if (options->bos_given) {
        TRY(tokenize_check_token(job, "bos-id", options->bos_token));
        job->marks.bos = (int32_t)options->bos_token;
    }
    if (options->no_eos)
        return ERR_OK;
    if (!options->eos_given) {
        job->marks.eos = tokenizer_eos(job->tokenizer);
        if (job->marks.eos >= 0)
            return ERR_OK;
        return err_set(ERR_USAGE,
                       "%s names no token that ends a document, without which "
                       "training can't tell documents apart; give its number "
                       "with --eos-id N, or say --no-eos",
                       options->tokenizer);
    }
    TRY(tokenize_check_token(job, "eos-id", options->eos_token));
    job->marks.eos = (int32_t)options->eos_token;
    return ERR_OK;
}

/* What would otherwise be found when all is read. */
static enum err tokenize_check_names(const struct tokenize_job *job)
{
    char name[SIDECAR_TOKENIZER_BYTES];
    const struct tokenize_options *options = job->options;
    TRY(inputs_check_separator(&job->inputs, options->separator));
    snprintf(name, sizeof name, "%s", tokenizer_name(job->tokenizer));
    size_t bytes = strlen(name);
    if (bytes > 0 && unicode_valid((const uint8_t *)name, bytes) == bytes)
        return ERR_OK;
    return err_set(ERR_USAGE,
                   "the name of tokenizer %s is not UTF-8 text; give its file "
                   "or folder another name",
                   options->tokenizer);
}

/* All that decides on the output beside the inputs. */
static enum err tokenize_describe(const struct tokenize_job *job, json_t **out)
{
    char fraction[32], holdout[32], separator[65] = "";
    const struct tokenize_options *options = job->options;
    snprintf(fraction, sizeof fraction, "%.17g", options->eval_fraction);
    snprintf(holdout, sizeof holdout, "%.17g", options->holdout);
    if (options->separator != NULL)
        TRY(digest_bytes(options->separator, strlen(options->separator),
                         separator)); /* it need not be UTF-8 */
    errno = 0;
    *out = json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:s, s:i, s:i, s:b, s:b, s:b, s:s, s:s, "
        "s:s, "
        "s:I}",
        "--tokenizer", tokenizer_sha256(job->tokenizer), "--separator",
        separator, "--field", options->field != NULL ? options->field : "",
        "--seq-len", (json_int_t)options->seq_len, "--shard-bytes",
        (json_int_t)options->shard_bytes, "--eval-fraction", fraction,
        "--eos-id", job->marks.eos, "--bos-id", job->marks.bos, "--no-wrap",
        options->no_wrap, "--mds", options->mds, "--text", options->text,
        "--encoding", options->encoding != NULL ? options->encoding : "",
        "--split", options->split != NULL ? options->split : "", "--holdout",
        holdout, "--seed", (json_int_t)options->seed);
    if (*out != NULL)
        return ERR_OK;
    return errno == ENOMEM ? err_set(ERR_MEMORY, "out of memory")
                           : err_set(ERR_USAGE, "--field has to be UTF-8 text");
}

/* The number of a folder's inode; 0: there is none. */
static uint64_t tokenize_inode(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0 ? (uint64_t)status.st_ino : 0;
}

enum tokenize_state { TOKENIZE_BEGUN, TOKENIZE_BUILT, TOKENIZE_PUBLISHED };

/* The folder to build in, and what an earlier process has done there. */
static enum err tokenize_begin(struct tokenize_job *job,
                               enum tokenize_state *state)
{
    enum err rc = ERR_OK;
    const struct tokenize_options *options = job->options;
    *state = TOKENIZE_BEGUN;
    /* a pipe cannot be read again: there is nothing to go on with */
    if (inputs_bytes(&job->inputs) < 0)
        return publish_begin(&job->publish, options->out, options->replace);
    TRY(publish_name(&job->publish, options->out));
    json_t *description = NULL;
    TRY(tokenize_describe(job, &description));
    rc = tokenize_journal_open(job->publish.work, description, &job->inputs,
                               options->fresh, &job->journal);
    json_decref(description);
    TRY(rc);
    bool built = job->journal->complete;
    uint64_t inode = job->journal->inode;
    job->publish.again = true;
    if (built)
        job->out.result = job->journal->mark.before;
    /* killed between the rename and the removal of the work folder */
    if (built && tokenize_inode(job->publish.path) == inode) {
        *state = TOKENIZE_PUBLISHED;
        return ERR_OK;
    }
    TRY(publish_again(&job->publish, options->replace));
    if (built && tokenize_inode(job->publish.building) != inode)
        return err_set(ERR_DATA,
                       "%s: its complete data set was replaced; give the "
                       "command again to begin anew",
                       job->publish.work);
    *state = built ? TOKENIZE_BUILT : TOKENIZE_BEGUN;
    return ERR_OK;
}

/* Read the text, unless an earlier process has read all of it. */
static enum err tokenize_build(struct tokenize_job *job)
{
    TRY(tokenize_set_begin(job));
    if (job->journal == NULL || !job->journal->spooled)
        TRY(tokenize_pass(job));
    TRY(tokenize_set_end(job));
    if (job->journal == NULL)
        return ERR_OK;
    TRY(fsio_fsync_dir(job->publish.building));
    return tokenize_journal_add_complete(job->journal, &job->out.result,
                                         tokenize_inode(job->publish.building));
}

static void tokenize_destroy(struct tokenize_job *job, enum err rc)
{
    mds_writer_destroy(job->writer);
    if (job->spool != NULL)
        fclose(job->spool);
    tokenize_out_release(&job->out);
    if (job->options->lent == NULL)
        tokenizer_destroy(job->tokenizer);
    /* after an error in the data the same command would meet it again */
    if (job->journal != NULL && job->journal->steps > 0 && rc != ERR_OK &&
        rc != ERR_DATA)
        job->publish.keep = true; /* for the next time */
    publish_end(&job->publish);
    tokenize_journal_close(job->journal);
    inputs_release(&job->inputs);
}

enum err tokenize_files(const struct tokenize_options *options,
                        char *const *files, int count,
                        struct tokenize_result *out)
{
    assert(options != NULL && files != NULL && count > 0 && out != NULL);
    enum err rc = ERR_OK;
    enum inputs_kind kind = INPUTS_BY_NAME;
    enum tokenize_state state = TOKENIZE_BEGUN;
    struct tokenize_job job = { .options = options };
    TRY_OUT(regular_local(options->out));
    TRY_OUT(tokenize_check(options));
    TRY_OUT(inputs_choose(options->text, options->field, &kind));
    if (options->mds && (options->text || options->split != NULL))
        TRY_OUT(err_set(ERR_USAGE, "--mds and %s exclude each other",
                        options->text ? "--text" : "--split"));
    if (options->mds)
        TRY_OUT(inputs_find_sets(files, count, &job.inputs));
    job.inputs.split = options->split;
    job.inputs.encoding = options->encoding;
    if (!options->mds)
        TRY_OUT(inputs_find(files, count, kind, options->binary, &job.inputs));
    job.tokenizer = options->lent;
    if (job.tokenizer == NULL)
        TRY_OUT(tokenizer_create(options->tokenizer, &job.tokenizer));
    TRY_OUT(tokenize_choose_marks(&job));
    TRY_OUT(tokenize_check_names(&job));
    if (options->show)
        inputs_tell(&job.inputs);
    TRY_OUT(tokenize_begin(&job, &state));
    TRY_OUT(tokenize_check_inputs(&job));
    if (state == TOKENIZE_BEGUN)
        TRY_OUT(tokenize_build(&job));
    if (state != TOKENIZE_PUBLISHED)
        TRY_OUT(publish_commit(&job.publish));
    *out = job.out.result;
out:
    tokenize_destroy(&job, rc);
    return rc;
}
