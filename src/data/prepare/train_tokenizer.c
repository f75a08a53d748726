/* Learns a tokenizer: chunks of text are read by one thread, a round of them is
 * counted by all, and merges are learned of the sum.
 *
 * Byte-level BPE needs of a text just its different words and how often each
 * occurs, as merges never go over the border of a word. Those are some millions
 * for any amount of text. Each thread has a table of words of its own; tables
 * are added up at the end, and a sum does not depend on who has counted what,
 * so the result is the same with any number of threads. What a word is says a
 * tokenizer without merges, made of the same pre-tokenizer. */
#include "src/data/prepare/train_tokenizer.h"

#include <assert.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/fsio.h"
#include "src/base/globs.h"
#include "src/base/new.h"
#include "src/base/output.h"
#include "src/data/texts/documents.h"
#include "src/data/texts/inputs.h"
#include "src/data/prepare/progress.h"
#include "src/data/prepare/publish.h"
#include "src/base/regular.h"
#include "src/data/prepare/tokenize_round.h"
#include "src/text/tokenizer/tokenizer.h"

struct train_tokenizer_job {
    const struct train_tokenizer_options *options;
    const struct tokenize_options *texts;
    bool folder;            /* out is one */
    struct publish publish; /* ... which was not there */
    struct output file, config;
    struct bpe_train *train;
    struct tokenizer *tokenizer; /* without merges: for its words */
    struct inputs inputs;
    struct documents *documents;
    struct tokenize_feed *feed;
    struct tokenize_round round;
    struct bpe_words **words; /* [round.threads] */
    struct progress progress;
    struct train_tokenizer_result result;
};

static enum err train_idle(void *context)
{
    struct train_tokenizer_job *job = context;
    return tokenize_poll(job->texts, &job->progress, job->result.bytes);
}

static enum err train_free_place(const struct train_tokenizer_job *job,
                                 const char *path)
{
    struct stat status;
    if (lstat(path, &status) != 0)
        return ERR_OK;
    return job->texts->replace && S_ISREG(status.st_mode)
               ? ERR_OK
               : err_set(ERR_USAGE, "%s exists; choose another --out%s", path,
                         S_ISREG(status.st_mode) ? ", or say --force" : "");
}

/* Begins a file that is none of the inputs. */
static enum err train_begin(struct train_tokenizer_job *job, const char *folder,
                            const char *name, struct output *out)
{
    char path[FSIO_PATH_MAX];
    TRY(fsio_path(path, "%s%s%s", folder, name[0] != '\0' ? "/" : "", name));
    TRY(train_free_place(job, path));
    for (size_t i = 0; i < job->inputs.count; i++) {
        const char *input = job->inputs.file[i].path;
        TRY(output_check(path, &input, 1));
    }
    return output_begin(path, NULL, 0, out);
}

/* Where to write. A folder that is not there appears with both files. */
static enum err train_place(struct train_tokenizer_job *job)
{
    const char *out = job->texts->out;
    TRY(regular_local(out));
    job->folder = !globs_match("*.json", out);
    if (!job->folder)
        return train_begin(job, out, "", &job->file);
    if (!fsio_exists(out)) {
        TRY(publish_begin(&job->publish, out, false));
        out = job->publish.building;
    }
    TRY(train_begin(job, out, "tokenizer_config.json", &job->config));
    return train_begin(job, out, "tokenizer.json", &job->file);
}

/* The tokenizer without merges divides texts into words as the learned one
 * will. It is made of a file like any other, which goes at once. */
static enum err train_words_of_file(struct train_tokenizer_job *job)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    char *text = NULL;
    /* a kill leaves it, too, to the next call */
    TRY(fsio_path(path, "%s.json", job->file.temporary));
    TRY(bpe_train_json(job->train, &text));
    rc = fsio_write_hint(path, text, strlen(text));
    if (rc == ERR_OK)
        rc = tokenizer_create(path, &job->tokenizer);
    unlink(path);
    free(text);
    return rc;
}

static enum err train_open(struct train_tokenizer_job *job, char *const *files,
                           int count)
{
    const struct tokenize_options *options = job->texts;
    const struct documents_options reading = {
        .separator = options->separator,
        .field = options->field != NULL ? options->field : "text",
        .source = { train_idle, job, options->encoding },
        .binary = options->binary,
    };
    enum inputs_kind kind = INPUTS_BY_NAME;
    TRY(tokenize_round_create(options->threads, &job->round));
    TRY(inputs_choose(options->text, options->field, &kind));
    job->inputs.split = options->split;
    job->inputs.encoding = options->encoding;
    TRY(inputs_find(files, count, kind, options->binary, &job->inputs));
    TRY(inputs_check_separator(&job->inputs, options->separator));
    if (options->show)
        inputs_tell(&job->inputs);
    TRY(bpe_train_create(&job->options->train, &job->train));
    TRY(train_place(job));
    TRY(train_words_of_file(job));
    TRY(documents_create(&job->inputs, &reading, &job->documents));
    TRY(tokenize_feed_create(job->documents, job->tokenizer, &job->feed));
    TRY(new_zeroed(&job->words, (size_t)job->round.threads));
    for (int t = 0; t < job->round.threads; t++)
        TRY(bpe_words_create(job->tokenizer, &job->words[t]));
    return ERR_OK;
}

static enum err train_count_chunk(void *arg, int thread,
                                  struct tokenize_chunk *chunk)
{
    const struct train_tokenizer_job *job = arg;
    size_t begin = 0;
    for (size_t p = 0; p < chunk->parts; p++) {
        TRY(bpe_words_add(job->words[thread], chunk->text + begin,
                          chunk->part[p].end - begin));
        begin = chunk->part[p].end;
    }
    return ERR_OK;
}

static enum err train_count(struct train_tokenizer_job *job)
{
    const struct tokenize_round *round = &job->round;
    bool more = true;
    progress_begin(&job->progress, "counting words", NULL,
                   inputs_bytes(&job->inputs));
    while (more) {
        TRY(tokenize_round_fill(&job->round, job->feed, &more));
        tokenize_round_each(&job->round, train_count_chunk, job);
        for (int c = 0; c < round->filled; c++) {
            TRY(err_again(&round->chunk[c].failure));
            job->result.bytes += (int64_t)round->chunk[c].bytes;
        }
        TRY(tokenize_poll(job->texts, &job->progress,
                          documents_done(job->documents)));
    }
    /* one table of all threads' words */
    for (int t = 1; t < round->threads; t++) {
        TRY(bpe_words_merge(job->words[0], job->words[t]));
        bpe_words_destroy(job->words[t]);
        job->words[t] = NULL;
    }
    progress_end(&job->progress);
    job->result.words = (int64_t)bpe_words_count(job->words[0]);
    job->result.empty = documents_empty(job->documents);
    job->result.left_out = bpe_words_left_out(job->words[0]);
    return job->result.words > 0
               ? ERR_OK
               : err_set(ERR_DATA, "there is no text to learn from");
}

/* The name of the token that ends a document goes beside the vocabulary. */
static enum err train_write_all(struct train_tokenizer_job *job)
{
    enum err rc = ERR_OK;
    char *text = NULL;
    const struct bpe_train_options *train = &job->options->train;
    TRY_OUT(bpe_train_json(job->train, &text));
    fprintf(job->file.file, "%s\n", text);
    if (job->folder) {
        json_t *root = bpe_train_config(
            NULL,
            train->special_count > 0 ? json_string(train->special[0]) : NULL,
            NULL);
        free(text);
        text = json_dumps(root, JSON_INDENT(2));
        json_decref(root);
        if (text == NULL)
            TRY_OUT(err_set(ERR_MEMORY, "no memory for a tokenizer"));
        fprintf(job->config.file, "%s\n", text);
    }
    TRY_OUT(output_end(&job->file, !job->texts->replace));
    TRY_OUT(output_end(&job->config, !job->texts->replace));
    if (job->publish.building[0] != '\0')
        TRY_OUT(publish_commit(&job->publish));
out:
    free(text);
    return rc;
}

enum err train_tokenizer(const struct train_tokenizer_options *options,
                         char *const *files, int count,
                         struct train_tokenizer_result *out)
{
    assert(options != NULL && files != NULL && count > 0 && out != NULL);
    enum err rc = ERR_OK;
    struct train_tokenizer_job job = { .options = options,
                                       .texts = options->texts };
    TRY_OUT(train_open(&job, files, count));
    TRY_OUT(train_count(&job));
    TRY_OUT(bpe_train_run(job.train, job.words[0], job.texts->stop));
    TRY_OUT(train_write_all(&job));
    job.result.tokens = bpe_train_tokens(job.train);
    *out = job.result;
out:
    output_drop(&job.file);
    output_drop(&job.config);
    publish_end(&job.publish);
    for (int t = 0; job.words != NULL && t < job.round.threads; t++)
        bpe_words_destroy(job.words[t]);
    free(job.words);
    tokenize_round_release(&job.round);
    tokenize_feed_destroy(job.feed);
    documents_destroy(job.documents);
    inputs_release(&job.inputs);
    tokenizer_destroy(job.tokenizer);
    bpe_train_destroy(job.train);
    return rc;
}
