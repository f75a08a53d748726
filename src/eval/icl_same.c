/* Compares what the ranks have read: a SHA-256 of each task, by which 64
 * characters stand for gigabytes. What goes in is what a score depends on, not
 * what was read: paths may differ between nodes, and prompts go in as tokens, so
 * that another tokenizer of the same name shows. */
#include "src/eval/icl_same.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"

/* With its end, so that what is in one text cannot be in the next. */
static enum err add_text(struct digest *digest, const char *text)
{
    TRY(digest_update(digest, text != NULL ? "+" : "-", 1));
    return text != NULL ? digest_update(digest, text, strlen(text) + 1)
                        : ERR_OK;
}

static enum err add_number(struct digest *digest, int64_t number)
{
    return digest_update(digest, &number, sizeof number);
}

static enum err add_options(struct digest *digest, const struct icl_task *task)
{
    const int64_t numbers[] = {
        task->kind,  task->shots,      (int64_t)task->seed,
        task->strip, task->categories, task->normalize,
    };
    const char *const texts[] = {
        task->label,
        task->prompt_string,
        task->prelimiter,
        task->example_delimiter,
        task->continuation_delimiter,
        task->cot_delimiter,
    };
    TRY(digest_update(digest, numbers, sizeof numbers));
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        TRY(add_text(digest, texts[i]));
    for (int i = 0; task->stops[i] != NULL; i++)
        TRY(add_text(digest, task->stops[i]));
    return add_text(digest, NULL);
}

static enum err add_record(struct digest *digest,
                           const struct icl_record *record)
{
    TRY(add_text(digest, record->context));
    TRY(add_text(digest, record->answer));
    TRY(add_text(digest, record->thought));
    TRY(add_text(digest, record->category));
    TRY(add_number(digest, record->gold));
    TRY(add_number(digest, record->option_count));
    for (int64_t i = 0; i < record->option_count; i++)
        TRY(add_text(digest, record->options[i]));
    return ERR_OK;
}

enum err icl_same_add_task(struct digest *digest, const struct icl_task *task,
                           const struct icl_records *records)
{
    TRY(add_options(digest, task));
    for (int p = 0; p < icl_records_parts(records); p++) {
        const struct icl_part *part = icl_records_part(records, p);
        TRY(add_number(digest, part->count));
        for (int64_t i = 0; i < part->count; i++)
            TRY(add_record(digest, part->records[i]));
    }
    return ERR_OK;
}

enum err icl_same_add_example(struct digest *digest,
                              const struct icl_example *example)
{
    TRY(add_number(digest, example->row_count));
    for (int64_t r = 0; r < example->row_count; r++) {
        const struct icl_row *row = &example->rows[r];
        TRY(add_number(digest, row->count));
        TRY(add_number(digest, row->span));
        TRY(digest_update(digest, icl_example_tokens(example, r),
                          (size_t)row->count * sizeof(int32_t)));
    }
    return ERR_OK;
}

static enum err compare(const struct icl_same *own, int count,
                        const struct icl_same *first, int first_count)
{
    for (int t = 0; t < count || t < first_count; t++) {
        if (t >= count || t >= first_count ||
            strcmp(own[t].name, first[t].name) != 0)
            return err_set(ERR_DATA,
                           "task %d is %s%s%s here, and %s%s%s on rank 0: give "
                           "all ranks the same files",
                           t + 1, t < count ? "'" : "",
                           t < count ? own[t].name : "missing",
                           t < count ? "'" : "", t < first_count ? "'" : "",
                           t < first_count ? first[t].name : "missing",
                           t < first_count ? "'" : "");
        if (strcmp(own[t].digest, first[t].digest) != 0)
            return err_set(ERR_DATA,
                           "task '%s' has other examples or prompts here than "
                           "on rank 0: give all ranks the same files",
                           own[t].name);
    }
    return ERR_OK;
}

enum err icl_same_check(const struct icl_same *list, int count,
                        struct comm *comm)
{
    enum err rc = ERR_OK;
    int64_t first_count = count;
    assert(count >= 0);
    struct icl_same *first = NULL;
    TRY(comm_broadcast(comm, &first_count, sizeof first_count, 0));
    size_t bytes = (size_t)first_count * sizeof *first;
    TRY_OUT(comm_agree(comm, new_room(&first, (size_t)first_count + 1)));
    if (comm_rank(comm) == 0)
        memcpy(first, list, bytes);
    TRY_OUT(comm_broadcast(comm, first, bytes, 0));
    rc = comm_agree(comm, compare(list, count, first, (int)first_count));
out:
    free(first);
    return rc;
}
