/* A task of any options and examples: refused, or records that are what their
 * kind asks for, of which prompts are made that the model has room for. The
 * first byte is the kind and options, the second the number of shots, then comes
 * the task's file; what is in front of its first line end is also tried as
 * KIND:FILE:SHOTS. */

#include "src/base/log.h"
#include "src/eval/icl_prompts.h"
#include "tests/fuzz/fuzz.h"

#define POSITIONS 64
#define PROMPTS_MAX 16
#define KINDS 4

static const struct tokenizer *bytes_tokenizer(void)
{
    static struct tokenizer *tokenizer;
    if (tokenizer == NULL)
        assert(tokenizer_create("bytes", &tokenizer) == ERR_OK);
    return tokenizer;
}

static void try_parse(const uint8_t *data, size_t bytes)
{
    struct icl_task task;
    const uint8_t *end = memchr(data, '\n', bytes);
    size_t length = end != NULL ? (size_t)(end - data) : bytes;
    char *text = malloc(length + 1);
    assert(text != NULL);
    memcpy(text, data, length);
    text[length] = '\0';
    icl_task_default(&task);
    if (icl_task_parse(text, &task) == ERR_OK) {
        char name[8];
        icl_task_name(&task, name, sizeof name);
        assert(task.shots >= 0 && task.shots <= ICL_SHOTS_MAX);
        assert(task.file[0] != '\0' && strlen(name) < sizeof name);
    }
    free(text);
}

static void check_record(const struct icl_task *task,
                         const struct icl_record *record)
{
    bool chooses =
        task->kind == ICL_MULTIPLE_CHOICE || task->kind == ICL_SCHEMA;
    assert(record->line > 0);
    assert((record->category != NULL) == task->categories);
    assert((record->context != NULL) == (task->kind != ICL_SCHEMA));
    assert((record->answer != NULL) == (task->kind != ICL_MULTIPLE_CHOICE));
    if (chooses)
        assert(record->gold >= 0 && record->gold < record->option_count);
    for (int64_t i = 0; i < record->option_count; i++)
        assert(record->options[i] != NULL);
}

static void check_example(const struct icl_example *example)
{
    for (int64_t r = 0; r < example->row_count; r++) {
        const struct icl_row *row = &example->rows[r];
        assert(row->count > 0 && row->count <= POSITIONS);
        assert(row->span >= 0 && row->span <= row->count);
        assert(row->begin + (size_t)row->count <= example->tokens.count);
    }
}

static void make_prompts(const struct icl_task *task,
                         const struct icl_part *part)
{
    struct icl_prompts *prompts = NULL;
    struct icl_example example = { 0 };
    if (icl_prompts_create(task, part, bytes_tokenizer(), POSITIONS,
                           &prompts) == ERR_OK)
        for (int64_t i = 0; i < part->count && i < PROMPTS_MAX; i++) {
            if (icl_prompts_next(prompts, &example) != ERR_OK)
                break;
            check_example(&example);
        }
    icl_example_free(&example);
    icl_prompts_destroy(prompts);
}

static void check_records(const struct icl_task *task,
                          const struct icl_records *records)
{
    int parts = records->part_count;
    assert(parts > 0 && (parts == 1 || task->categories));
    for (int p = 0; p < parts; p++) {
        const struct icl_part *part = &records->parts[p];
        assert(part->count > 0);
        for (int64_t i = 0; i < part->count; i++) {
            check_record(task, part->records[i]);
            assert(part->category == NULL ||
                   strcmp(part->category, part->records[i]->category) == 0);
        }
        make_prompts(task, part);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct icl_task task;
    struct icl_records *records = NULL;
    log_init("fuzz", -1, LOG_ERROR);
    try_parse(data, bytes);
    if (bytes < 2)
        return 0;
    icl_task_default(&task);
    task.kind = (enum icl_kind)(data[0] % KINDS);
    task.strip = (data[0] & 4) == 0;
    task.categories = (data[0] & 8) != 0;
    task.prompt_string = (data[0] & 16) != 0 ? "p" : "";
    task.cot_delimiter = (data[0] & 32) != 0 ? " so " : "";
    task.shots = data[1] % 8;
    task.file = fuzz_file(data + 2, bytes - 2);
    if (icl_records_read(&task, &records) == ERR_OK)
        check_records(&task, records);
    icl_records_destroy(records);
    return 0;
}
