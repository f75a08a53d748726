/* Makes a data set of fine-tuning examples: all records are read and checked
 * first, then packed and written.
 *
 * Packing needs lengths before tokens, and a fraction for evaluation needs how
 * many there are, so encoded examples lie in a spool, an unnamed file, and
 * memory has two numbers of each. A window of examples is packed at a time; its
 * rows are written with their examples in the order in which they came. */
#include "src/data/prepare/tokenize_finetune.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/fsio.h"
#include "src/base/array.h"
#include "src/base/new.h"
#include "src/data/columns/columns.h"
#include "src/data/texts/documents.h"
#include "src/data/texts/inputs.h"
#include "src/data/texts/jsonl.h"
#include "src/data/mds/mds_encoding.h"
#include "src/data/mds/mds_writer.h"
#include "src/data/prepare/progress.h"
#include "src/data/prepare/publish.h"
#include "src/base/regular.h"
#include "src/data/set/sidecar.h"
#include "src/data/set/values.h"

/* Examples between looks at the clock and the stop flag. */
#define TOKENIZE_FINETUNE_POLL 64

enum tokenize_finetune_column {
    COLUMN_TOKENS,
    COLUMN_MASK,
    COLUMN_LENGTHS,
    COLUMNS
};

static const struct mds_column tokenize_finetune_columns[COLUMNS] = {
    [COLUMN_TOKENS] = { "tokens", "ndarray:int32" },
    [COLUMN_MASK] = { "loss_mask", "ndarray:uint8" },
    [COLUMN_LENGTHS] = { "lengths", "ndarray:int32" },
};

/* An example in the spool: its tokens, then its mask. */
struct tokenize_finetune_entry {
    int64_t offset, count;
    bool held;
};

struct tokenize_finetune_job {
    const struct tokenize_finetune_options *options;
    const struct tokenize_options *set;
    int64_t eos_token; /* -1: the tokenizer's */
    struct tokenizer *tokenizer;
    struct chat_template *template;
    struct finetune *finetune;
    struct inputs inputs;
    struct publish publish;
    struct progress progress;
    FILE *spool;
    struct tokenize_finetune_entry *entries;
    size_t entry_count, entry_capacity;
    int64_t spooled; /* bytes */
    /* of the sample being written */
    struct mds_writer *writer;
    int32_t *tokens;
    uint8_t *mask;
    int32_t *lengths;
    int64_t filled, documents;
    int64_t longest; /* sample of the set */
    struct buffer field[COLUMNS];
    struct tokenize_finetune_result result;
};

static enum err finetune_idle(void *context)
{
    struct tokenize_finetune_job *job = context;
    return tokenize_poll(job->set, &job->progress, job->result.records);
}

static enum err finetune_spool(struct tokenize_finetune_job *job,
                               const struct finetune_example *example)
{
    assert(example->count > 1); /* one that is learned, and one before it */
    size_t count = (size_t)example->count;
    TRY(array_room(&job->entries, &job->entry_capacity, job->entry_count + 1));
    if (fwrite(example->tokens, sizeof *example->tokens, count, job->spool) !=
            count ||
        fwrite(example->mask, 1, count, job->spool) != count)
        return err_errno("%s: write", job->publish.building);
    job->entries[job->entry_count++] = (struct tokenize_finetune_entry){
        job->spooled, example->count,
        documents_are_held(example->tokens, count * sizeof *example->tokens,
                           (uint64_t)job->set->seed, job->set->holdout)
    };
    job->spooled += (int64_t)(count * (sizeof *example->tokens + 1));
    job->result.tokens += example->count;
    for (size_t t = 0; t < count; t++)
        job->result.learned += example->mask[t];
    return ERR_OK;
}

static enum err finetune_record(struct tokenize_finetune_job *job,
                                const json_t *record)
{
    struct finetune_example example;
    TRY(finetune_read(job->finetune, record, &example));
    job->result.records++;
    job->result.left[0] += example.fate == FINETUNE_LONG;
    job->result.left[1] += example.fate == FINETUNE_NOTHING;
    if (example.fate != FINETUNE_KEPT && example.fate != FINETUNE_CUT)
        return ERR_OK;
    job->result.cut += example.fate == FINETUNE_CUT;
    return finetune_spool(job, &example);
}

static enum err finetune_file(struct tokenize_finetune_job *job,
                              const struct inputs_file *file)
{
    enum err rc = ERR_OK;
    struct jsonl *reader = NULL;
    struct columns *columns = NULL;
    json_t *record = NULL;
    const struct source_options options = { finetune_idle, job,
                                            job->set->encoding };
    if (file->columns != NULL)
        TRY_OUT(columns_open_records(file->columns, file->path,
                                     finetune_fields(job->finetune),
                                     FINETUNE_RECORD_FIELDS, &columns));
    else
        TRY_OUT(jsonl_open(file->path, &options, &reader));
    for (;;) {
        TRY_OUT(columns != NULL ? columns_next_record(columns, &record)
                                : jsonl_next(reader, &record));
        if (record == NULL)
            break;
        rc = finetune_record(job, record);
        json_decref(record);
        record = NULL;
        TRY_OUT(err_prefix(rc, "%s",
                           columns != NULL ? columns_place(columns)
                                           : jsonl_place(reader)));
        if (job->result.records % TOKENIZE_FINETUNE_POLL == 0)
            TRY_OUT(finetune_idle(job));
    }
out:
    jsonl_close(reader);
    columns_close(columns);
    return rc;
}

static enum err finetune_read_all(struct tokenize_finetune_job *job,
                                  char *const *files, int count)
{
    struct tokenize_finetune_result *result = &job->result;
    progress_begin(&job->progress, "tokenizing", "examples", -1);
    job->inputs.split = job->set->split;
    job->inputs.encoding = job->set->encoding;
    TRY(inputs_find(files, count, INPUTS_JSON, false, &job->inputs));
    if (job->set->show)
        inputs_tell(&job->inputs);
    for (size_t i = 0; i < job->inputs.count; i++) {
        TRY(finetune_file(job, &job->inputs.file[i]));
        TRY(inputs_check(&job->inputs.file[i]));
    }
    progress_end(&job->progress);
    snprintf(result->unused, sizeof result->unused, "%s",
             finetune_unused(job->finetune));
    if (result->records == 0)
        return err_set(ERR_DATA, "%s%s: no record in it", files[0],
                       count > 1 ? " and the other files" : "");
    if (job->entry_count == 0)
        return err_set(ERR_DATA,
                       "%s%s: none of %lld records is left: %lld are too long "
                       "and %lld have nothing to learn in their first %lld "
                       "tokens; raise --seq-len",
                       files[0], count > 1 ? " and the other files" : "",
                       (long long)result->records, (long long)result->left[0],
                       (long long)result->left[1],
                       (long long)job->set->seq_len);
    if (fflush(job->spool) != 0)
        return err_errno("%s: write", job->publish.building);
    return ERR_OK;
}

/* One more example of the sample. */
static enum err finetune_append(struct tokenize_finetune_job *job,
                                const struct tokenize_finetune_entry *entry)
{
    size_t count = (size_t)entry->count;
    assert(job->filled + entry->count <= job->set->seq_len);
    TRY(fsio_pread(fileno(job->spool), job->tokens + job->filled,
                   count * sizeof *job->tokens, entry->offset,
                   job->publish.building));
    TRY(fsio_pread(fileno(job->spool), job->mask + job->filled, count,
                   entry->offset + (int64_t)(count * sizeof *job->tokens),
                   job->publish.building));
    job->lengths[job->documents++] = (int32_t)entry->count;
    job->filled += entry->count;
    return ERR_OK;
}

static enum err finetune_write_sample(struct tokenize_finetune_job *job)
{
    assert(job->filled > 0 && job->documents > 0);
    const void *data[COLUMNS] = { job->tokens, job->mask, job->lengths };
    int64_t count[COLUMNS] = { job->filled, job->filled, job->documents };
    struct mds_field fields[COLUMNS];
    for (int c = 0; c < COLUMNS; c++) {
        const char *type = tokenize_finetune_columns[c].encoding;
        job->field[c].bytes = 0;
        TRY(mds_encode_ndarray(values_code(strchr(type, ':') + 1), data[c],
                               count[c], &job->field[c]));
        fields[c] =
            (struct mds_field){ job->field[c].data, job->field[c].bytes };
    }
    if (job->filled > job->longest)
        job->longest = job->filled;
    job->filled = 0;
    job->documents = 0;
    return mds_writer_add_fields(job->writer, fields);
}

/* Pack and write the examples first .. first+count-1. */
static enum err finetune_write_window(struct tokenize_finetune_job *job,
                                      size_t first, size_t count,
                                      int64_t *samples)
{
    assert(count > 0 && count <= PACK_WINDOW);
    enum err rc = ERR_OK;
    int64_t *length = NULL, *row = NULL, rows = 0;
    size_t *start = NULL, *member = NULL;
    TRY_OUT(new_room(&length, count));
    TRY_OUT(new_room(&row, count));
    TRY_OUT(new_room(&member, count));
    for (size_t i = 0; i < count; i++) {
        length[i] = job->entries[first + i].count;
        row[i] = (int64_t)i;
    }
    rows = (int64_t)count;
    if (job->options->packing)
        TRY_OUT(
            pack_rows(length, (int64_t)count, job->set->seq_len, row, &rows));
    TRY_OUT(new_zeroed(&start, (size_t)rows + 1));
    /* members of each row, by counting: start[r + 1] becomes where those of row
     * r begin in `member` */
    for (size_t i = 0; i < count; i++)
        start[row[i] + 1]++;
    for (int64_t r = 0; r < rows; r++)
        start[r + 1] += start[r];
    for (size_t i = count; i-- > 0;) /* from the end, as start[r + 1] shrinks */
        member[--start[row[i] + 1]] = i;
    /* read each row's examples back from the spool, and write it */
    for (int64_t r = 0; r < rows; r++) {
        size_t end = r + 1 < rows ? start[r + 2] : count;
        for (size_t m = start[r + 1]; m < end; m++)
            TRY_OUT(finetune_append(job, &job->entries[first + member[m]]));
        TRY_OUT(finetune_write_sample(job));
        if ((*samples)++ % TOKENIZE_FINETUNE_POLL == 0)
            TRY_OUT(tokenize_poll(job->set, &job->progress,
                                  (int64_t)(first + start[r + 1])));
    }
out:
    free(length);
    free(row);
    free(start);
    free(member);
    return rc;
}

/* What the set is, beside its samples. */
static enum err finetune_describe(struct tokenize_finetune_job *job,
                                  const char *folder, size_t first,
                                  size_t count, int64_t samples)
{
    struct sidecar sidecar = {
        .vocab_size = tokenizer_vocab_size(job->tokenizer),
        .eos_token = job->eos_token >= 0 ? job->eos_token
                                         : tokenizer_eos(job->tokenizer),
        .bos_token = -1,
        .samples = samples,
        .longest = job->longest,
    };
    for (size_t i = 0; i < count; i++)
        sidecar.tokens += job->entries[first + i].count;
    return sidecar_write_made(folder, &sidecar, job->tokenizer);
}

static enum err finetune_write_set(struct tokenize_finetune_job *job,
                                   const char *name, size_t first, size_t count,
                                   int64_t *samples)
{
    enum err rc = ERR_OK;
    char folder[FSIO_PATH_MAX];
    const struct mds_writer_options options = {
        .columns = tokenize_finetune_columns,
        .count = COLUMNS,
        .size_limit = job->set->shard_bytes,
        .hashes = mds_writer_sha256,
    };
    job->longest = 0;
    TRY_OUT(fsio_path(folder, "%s/%s", job->publish.building, name));
    TRY_OUT(fsio_mkdirs(folder));
    TRY_OUT(mds_writer_create(folder, &options, &job->writer));
    for (size_t i = 0; i < count; i += PACK_WINDOW) {
        size_t window = count - i < PACK_WINDOW ? count - i : PACK_WINDOW;
        TRY_OUT(finetune_write_window(job, first + i, window, samples));
    }
    TRY_OUT(finetune_describe(job, folder, first, count, *samples));
    TRY_OUT(mds_writer_finish(job->writer));
out:
    mds_writer_destroy(job->writer);
    job->writer = NULL;
    return rc;
}

/* Those that are held out, by their hashes, to the end, which both parts keep in
 * their order. */
static enum err finetune_hold(struct tokenize_finetune_job *job, size_t *held)
{
    size_t kept = 0, total = job->entry_count;
    struct tokenize_finetune_entry *out = NULL;
    TRY(new_room(&out, total));
    *held = 0;
    for (size_t i = 0; i < total; i++) {
        if (job->entries[i].held)
            out[(*held)++] = job->entries[i];
        else
            job->entries[kept++] = job->entries[i];
    }
    memcpy(job->entries + kept, out, *held * sizeof *out);
    free(out);
    if (*held > 0 && kept > 0)
        return ERR_OK;
    return err_set(
        ERR_DATA,
        "%s of %zu examples are held out; give more of them, another "
        "--seed or another --holdout",
        kept > 0 ? "none" : "all", total);
}

static enum err finetune_write_all(struct tokenize_finetune_job *job)
{
    struct tokenize_finetune_result *result = &job->result;
    double fraction = job->set->eval_fraction;
    size_t total = job->entry_count, eval = 0;
    progress_begin(&job->progress, "writing", "examples", (int64_t)total);
    if (fraction > 0) {
        if (total < 2)
            return err_set(ERR_DATA, "there is one example only, which can't "
                                     "be divided; give more");
        eval = (size_t)floor((double)total * fraction + 0.5);
        eval = eval < 1 ? 1 : eval > total - 1 ? total - 1 : eval;
    }
    if (job->set->holdout > 0)
        TRY(finetune_hold(job, &eval));
    result->examples = (int64_t)(total - eval);
    result->eval_examples = (int64_t)eval;
    TRY(finetune_write_set(job, eval > 0 ? "train" : ".", 0, total - eval,
                           &result->samples));
    if (eval > 0)
        TRY(finetune_write_set(job, "eval", total - eval, eval,
                               &result->eval_samples));
    progress_end(&job->progress);
    return ERR_OK;
}

static enum err finetune_begin(struct tokenize_finetune_job *job)
{
    const struct tokenize_finetune_options *options = job->options;
    const struct tokenize_options *set = job->set;
    size_t seq_len = (size_t)set->seq_len;
    char path[FSIO_PATH_MAX];
    TRY(regular_local(set->out));
    job->tokenizer = set->lent;
    if (job->tokenizer == NULL)
        TRY(tokenizer_create(set->tokenizer, &job->tokenizer));
    if (options->template_text != NULL)
        TRY(chat_template_create_text(options->template, options->template_text,
                                      strlen(options->template_text),
                                      job->tokenizer, &job->template));
    else if (options->template != NULL)
        TRY(chat_template_create(options->template, job->tokenizer,
                                 &job->template));
    if (job->eos_token >= tokenizer_vocab_size(job->tokenizer))
        return err_set(ERR_USAGE,
                       "--eos-id %lld is outside the vocabulary of %lld tokens",
                       (long long)job->eos_token,
                       (long long)tokenizer_vocab_size(job->tokenizer));
    struct finetune_rules rules = options->rules;
    rules.seq_len = set->seq_len;
    rules.eos = (int32_t)job->eos_token;
    TRY(finetune_create(&rules, job->tokenizer, job->template, &job->finetune));
    TRY(new_room(&job->tokens, seq_len));
    TRY(new_room(&job->mask, seq_len));
    TRY(new_room(&job->lengths, seq_len));
    TRY(publish_begin(&job->publish, set->out, set->replace));
    /* without a name, so that nothing can leave it behind */
    TRY(fsio_path(path, "%s/spool", job->publish.building));
    job->spool = fopen(path, "w+be");
    if (job->spool == NULL || unlink(path) != 0)
        return err_errno("%s: create", path);
    return ERR_OK;
}

enum err tokenize_finetune(const struct tokenize_finetune_options *options,
                           char *const *files, int count,
                           struct tokenize_finetune_result *out)
{
    assert(options != NULL && files != NULL && count > 0 && out != NULL);
    enum err rc = ERR_OK;
    const struct tokenize_options *set = options->set;
    struct tokenize_finetune_job job = {
        .options = options,
        .set = set,
        .eos_token = set->eos_given ? set->eos_token : -1,
    };
    TRY_OUT(finetune_begin(&job));
    TRY_OUT(finetune_read_all(&job, files, count));
    TRY_OUT(finetune_write_all(&job));
    TRY_OUT(publish_commit(&job.publish));
    *out = job.result;
out:
    mds_writer_destroy(job.writer);
    if (job.spool != NULL)
        fclose(job.spool);
    free(job.entries);
    free(job.tokens);
    free(job.mask);
    free(job.lengths);
    for (int c = 0; c < COLUMNS; c++)
        free(job.field[c].data);
    inputs_release(&job.inputs);
    finetune_destroy(job.finetune);
    chat_template_destroy(job.template);
    if (set->lent == NULL)
        tokenizer_destroy(job.tokenizer);
    publish_end(&job.publish);
    return rc;
}
