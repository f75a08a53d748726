/* Reads the examples of a task.
 *
 * A file has up to some hundred thousand examples with a handful of short texts
 * each. All are kept, since any may be a shot of any other; texts are copied one
 * behind the other into blocks of 1 MiB, so that a million of them are not a
 * million allocations and go at once. The list of records may move while it
 * grows, the texts never do, and pointers to records are taken only when the
 * list is whole (divide()). */
#include "src/eval/icl_records.h"

#include <assert.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"
#include "src/base/new.h"
#include "src/data/texts/jsonl.h"
#include "src/base/regular.h"

/* Texts go into blocks, which are never moved. */
#define BLOCK_BYTES ((size_t)1 << 20)
/* Each has a row, with a copy of the context. */
#define OPTIONS_MAX 1024

struct icl_block {
    struct icl_block *next;
    size_t used, bytes;
    _Alignas(16) char data[];
};

/* Room that lives as long as the records. */
static void *take(struct icl_records *records, size_t bytes)
{
    struct icl_block *block = records->blocks;
    size_t need = (bytes + 15) & ~(size_t)15;
    if (block == NULL || block->bytes - block->used < need) {
        size_t room = need > BLOCK_BYTES ? need : BLOCK_BYTES;
        block = malloc(sizeof *block + room);
        if (block == NULL)
            return NULL;
        *block = (struct icl_block){ records->blocks, 0, room };
        records->blocks = block;
    }
    void *data = block->data + block->used;
    block->used += need;
    assert(block->used <= block->bytes);
    return data;
}

static enum err keep(struct icl_records *records, const json_t *text,
                     const char **out)
{
    size_t bytes = json_string_length(text) + 1;
    char *copy = take(records, bytes);
    if (copy == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    memcpy(copy, json_string_value(text), bytes);
    *out = copy;
    return ERR_OK;
}

static enum err read_text(struct icl_records *records, const json_t *from,
                          const char *field, const char **out)
{
    const json_t *value = json_object_get(from, field);
    char fields[160];
    jsonl_fields(from, fields, sizeof fields);
    if (value == NULL)
        return err_set(ERR_DATA,
                       "'%s' has to be a text, and is missing; there is: %s",
                       field, fields);
    if (!json_is_string(value))
        return err_set(ERR_DATA, "'%s' has to be a text", field);
    return keep(records, value, out);
}

static enum err read_list(struct icl_records *records, const json_t *from,
                          const char *field, struct icl_record *out)
{
    const json_t *value = json_object_get(from, field);
    size_t count = json_array_size(value);
    if (!json_is_array(value))
        return err_set(ERR_DATA, "'%s' has to be a list of texts%s", field,
                       value == NULL ? ", and is missing" : "");
    const char **list = take(records, (count + 1) * sizeof *list);
    if (list == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < count; i++) {
        const json_t *text = json_array_get(value, i);
        if (!json_is_string(text))
            return err_set(ERR_DATA, "'%s' has to be a list of texts", field);
        TRY(keep(records, text, &list[i]));
    }
    out->options = list;
    out->option_count = (int64_t)count;
    return ERR_OK;
}

/* The options, and which of them is right. */
static enum err read_options(struct icl_records *records, const json_t *from,
                             const char *field, struct icl_record *out)
{
    const json_t *gold = json_object_get(from, "gold");
    size_t count = json_array_size(json_object_get(from, field));
    if (count > OPTIONS_MAX)
        return err_set(ERR_DATA, "'%s' are %zu texts, and %d are the most",
                       field, count, OPTIONS_MAX);
    TRY(read_list(records, from, field, out));
    if (out->option_count == 0)
        return err_set(ERR_DATA, "'%s' is empty", field);
    out->gold = json_is_integer(gold) ? json_integer_value(gold) : -1;
    if (out->gold < 0 || out->gold >= out->option_count)
        return err_set(ERR_DATA,
                       "'gold' has to be the number of one of the %lld '%s', "
                       "counted from 0",
                       (long long)out->option_count, field);
    return ERR_OK;
}

static enum err read_generation(struct icl_records *records, const json_t *from,
                                struct icl_record *out)
{
    TRY(read_text(records, from, "context", &out->context));
    TRY(read_text(records, from, "answer", &out->answer));
    if (json_object_get(from, "chain_of_thought") != NULL)
        TRY(read_text(records, from, "chain_of_thought", &out->thought));
    if (json_object_get(from, "aliases") != NULL)
        TRY(read_list(records, from, "aliases", out));
    if (records->count > 0 &&
        (records->list[0].thought == NULL) != (out->thought == NULL))
        return err_set(ERR_DATA,
                       "'chain_of_thought' has to be in all records or none");
    return ERR_OK;
}

static enum err read_record(struct icl_records *records,
                            const struct icl_task *task, const json_t *from,
                            struct icl_record *out)
{
    if (task->categories)
        TRY(read_text(records, from, "category", &out->category));
    switch (task->kind) {
    case ICL_LANGUAGE_MODELING:
        TRY(read_text(records, from, "context", &out->context));
        return read_text(records, from, "continuation", &out->answer);
    case ICL_MULTIPLE_CHOICE:
        TRY(read_text(records, from, "query", &out->context));
        return read_options(records, from, "choices", out);
    case ICL_SCHEMA:
        TRY(read_text(records, from, "continuation", &out->answer));
        return read_options(records, from, "context_options", out);
    default:
        return read_generation(records, from, out);
    }
}

static enum err read_file(struct icl_records *records,
                          const struct icl_task *task)
{
    enum err rc = ERR_OK;
    struct jsonl *reader = NULL;
    json_t *from = NULL;
    TRY(regular_readable(task->file));
    TRY(jsonl_open(task->file, NULL, &reader));
    for (;;) {
        TRY_OUT(jsonl_next(reader, &from));
        if (from == NULL)
            break;
        struct icl_record record = { .line = jsonl_mark(reader).line };
        rc = read_record(records, task, from, &record);
        json_decref(from);
        TRY_OUT(err_prefix(rc, "%s", jsonl_place(reader)));
        TRY_OUT(
            array_room(&records->list, &records->capacity, records->count + 1));
        records->list[records->count++] = record;
    }
    if (records->count == 0)
        rc = err_set(ERR_DATA, "%s: has no examples", task->file);
out:
    jsonl_close(reader);
    return rc;
}

static int by_category(const void *a, const void *b)
{
    const struct icl_record *left = *(const struct icl_record *const *)a;
    const struct icl_record *right = *(const struct icl_record *const *)b;
    int order =
        left->category == NULL ? 0 : strcmp(left->category, right->category);
    if (order != 0)
        return order;
    return left < right ? -1 : left > right; /* as they stand in the file */
}

/* Parts are runs of a list of pointers that is sorted by category, in which the
 * file's order stays: qsort() may not keep it, so it is a part of the order. */
static enum err divide(struct icl_records *records)
{
    size_t count = (size_t)records->count;
    assert(count > 0);
    TRY(new_room(&records->order, count));
    TRY(new_zeroed(&records->parts, count));
    for (size_t i = 0; i < count; i++)
        records->order[i] = &records->list[i];
    qsort(records->order, count, sizeof records->order[0], by_category);
    for (size_t i = 0; i < count; i++) {
        const char *category = records->order[i]->category;
        struct icl_part *part = records->parts + records->part_count;
        if (i == 0 ||
            (category != NULL && strcmp(category, part[-1].category) != 0)) {
            *part = (struct icl_part){ category, &records->order[i], 0 };
            records->part_count++;
        }
        records->parts[records->part_count - 1].count++;
    }
    return ERR_OK;
}

enum err icl_records_read(const struct icl_task *task, struct icl_records **out)
{
    struct icl_records *records = NULL;
    TRY(new_zeroed(&records, 1));
    enum err rc = ERR_OK;
    TRY_OUT(read_file(records, task));
    TRY_OUT(divide(records));
out:
    return new_or_none(rc, records, out, icl_records_destroy);
}

void icl_records_destroy(struct icl_records *records)
{
    if (records == NULL)
        return;
    for (struct icl_block *next, *block = records->blocks; block != NULL;
         block = next) {
        next = block->next;
        free(block);
    }
    free(records->list);
    free(records->order);
    free(records->parts);
    free(records);
}
