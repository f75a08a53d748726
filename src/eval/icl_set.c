/* Scores several tasks, on all ranks.
 *
 * A part's examples are cut into as many ranges as there are ranks, and what is
 * added up over the ranks are counts: whole numbers, whose sum has no order. So
 * is the accuracy the same for any number of ranks, and a rank need not know who
 * had which example. Each rank draws the shots of all examples before its own
 * too, so that a prompt does not depend on the range that it is in.
 *
 * All prompts are made once before anything is scored, and thrown away. That
 * costs little beside a model's forward and finds what is wrong in the last line
 * of the last file before hours are spent; it also tells how long the longest
 * one is, which decides the memory of the model's cache, and gives the digest by
 * which ranks see that they have read the same: 64 characters of a task stand for
 * gigabytes. */
#include "src/eval/icl_set.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"
#include "src/base/clock.h"
#include "src/base/digest.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/eval/icl_answer.h"
#include "src/eval/icl_lines.h"

/* By it ranks see whether they have read the same tasks: what is told apart is
 * what a score depends on, not what was read, since paths may differ between
 * nodes, and prompts as tokens, so that another tokenizer of a name shows. */
struct same {
    char name[128];  /* of the task, icl_task_name() */
    char digest[65]; /* of its options, records and prompts */
};

struct icl_set {
    const struct icl_task *tasks;
    int count;
    const struct tokenizer *tokenizer;
    struct icl_set_options options;
    struct icl_records **records; /* [count] */
    struct same *same;            /* [count] */
    struct digest *digest;        /* of the task that is read */
    struct icl_result *results;   /* [result_count] */
    int result_count, result_room;
    int64_t longest;
};

/* --- what ranks compare --- */

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

static enum err add_task_digest(struct digest *digest,
                                const struct icl_task *task,
                                const struct icl_records *records)
{
    TRY(add_options(digest, task));
    for (int p = 0; p < records->part_count; p++) {
        const struct icl_part *part = &records->parts[p];
        TRY(add_number(digest, part->count));
        for (int64_t i = 0; i < part->count; i++)
            TRY(add_record(digest, part->records[i]));
    }
    return ERR_OK;
}

static enum err add_example_digest(struct digest *digest,
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

static enum err compare_same(const struct same *own, int count,
                             const struct same *first, int first_count)
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

/* --- what is read --- */

/* Examples of the part that are scored. */
static int64_t limited(const struct icl_set *set, const struct icl_part *part)
{
    int64_t limit = set->options.limit;
    return limit > 0 && limit < part->count ? limit : part->count;
}

static enum err measure_example(struct icl_set *set,
                                const struct icl_task *task,
                                const struct icl_part *part,
                                const struct icl_prompts *prompts,
                                const struct icl_example *example, FILE *lines)
{
    enum err rc = ERR_OK;
    struct buffer line = { 0 };
    for (int64_t r = 0; r < example->row_count; r++) {
        int64_t length =
            example->rows[r].count + icl_prompts_generated_max(prompts);
        set->longest = length > set->longest ? length : set->longest;
    }
    TRY(add_example_digest(set->digest, example));
    if (lines == NULL)
        return ERR_OK;
    rc = icl_lines_add(task, part, example, NULL, &line);
    if (rc == ERR_OK && fwrite(line.data, 1, line.bytes, lines) != line.bytes)
        rc = err_errno("writing prompts");
    buffer_free(&line);
    return rc;
}

static enum err measure(struct icl_set *set, const struct icl_task *task,
                        const struct icl_part *part, FILE *lines)
{
    enum err rc = ERR_OK;
    struct icl_prompts *prompts = NULL;
    struct icl_example example = { 0 };
    int64_t count = limited(set, part);
    TRY_OUT(icl_prompts_create(task, part, set->tokenizer,
                               set->options.positions, &prompts));
    for (int64_t i = 0; i < count; i++) {
        TRY_OUT(icl_prompts_next(prompts, &example));
        TRY_OUT(measure_example(set, task, part, prompts, &example, lines));
    }
out:
    icl_example_free(&example);
    icl_prompts_destroy(prompts);
    return rc;
}

/* How many of the part's examples can't be wrong; and what only shows when a
 * task is scored. */
static enum err count_always(const struct icl_set *set,
                             const struct icl_task *task,
                             const struct icl_part *part, int64_t *count)
{
    struct icl_answer *answer = NULL;
    enum err rc = ERR_OK;
    if (task->kind == ICL_GENERATION)
        TRY(icl_answer_create(task, &answer));
    for (int64_t i = 0; i < limited(set, part) && rc == ERR_OK; i++) {
        const struct icl_record *record = part->records[i];
        bool always =
            task->kind != ICL_LANGUAGE_MODELING && record->option_count == 1;
        if (answer != NULL)
            rc = icl_answer_always(answer, record, &always);
        *count += always;
    }
    icl_answer_destroy(answer);
    return rc;
}

static enum err add_parts(struct icl_set *set, int number, FILE *lines)
{
    const struct icl_task *task = &set->tasks[number];
    int parts = set->records[number]->part_count;
    TRY(array_room(&set->results, &set->result_room,
                   set->result_count + parts));
    for (int p = 0; p < parts; p++) {
        const struct icl_part *part = &set->records[number]->parts[p];
        bool enough = task->shots < part->count;
        set->results[set->result_count++] = (struct icl_result){
            .task = number,
            .category = part->category,
            .size = part->count,
            .shots = enough ? task->shots : part->count - 1,
        };
        TRY(count_always(set, task, part,
                         &set->results[set->result_count - 1].always));
        TRY(measure(set, task, part, lines));
    }
    return ERR_OK;
}

static enum err add_task(struct icl_set *set, int number, FILE *lines)
{
    enum err rc = ERR_OK;
    const struct icl_task *task = &set->tasks[number];
    struct same *same = &set->same[number];
    TRY(icl_records_read(task, &set->records[number]));
    TRY(digest_create(&set->digest));
    TRY_OUT(add_task_digest(set->digest, task, set->records[number]));
    TRY_OUT(add_parts(set, number, lines));
    icl_task_name(task, same->name, sizeof same->name);
    rc = digest_finish(set->digest, same->digest);
out:
    digest_destroy(set->digest);
    set->digest = NULL;
    return rc;
}

enum err icl_set_create(const struct icl_task *tasks, int count,
                        const struct tokenizer *tokenizer,
                        const struct icl_set_options *options, FILE *prompts,
                        struct icl_set **out)
{
    enum err rc = ERR_OK;
    struct icl_set *set = NULL;
    assert(count >= 0 && options->positions > 0 && options->limit >= 0);
    TRY(new_zeroed(&set, 1));
    *set = (struct icl_set){ .tasks = tasks,
                             .count = count,
                             .tokenizer = tokenizer,
                             .options = *options };
    TRY_OUT(new_zeroed(&set->records, (size_t)count + 1));
    TRY_OUT(new_zeroed(&set->same, (size_t)count + 1));
    for (int t = 0; t < count; t++)
        TRY_OUT(add_task(set, t, prompts));
out:
    return new_or_none(rc, set, out, icl_set_destroy);
}

void icl_set_destroy(struct icl_set *set)
{
    if (set == NULL)
        return;
    for (int t = 0; set->records != NULL && t < set->count; t++)
        icl_records_destroy(set->records[t]);
    free(set->records);
    free(set->same);
    free(set->results);
    free(set);
}

enum err icl_set_agree(const struct icl_set *set, struct comm *comm)
{
    enum err rc = ERR_OK;
    int64_t first_count = set->count;
    struct same *first = NULL;
    TRY(comm_broadcast(comm, &first_count, sizeof first_count, 0));
    size_t bytes = (size_t)first_count * sizeof *first;
    TRY_OUT(comm_agree(comm, new_room(&first, (size_t)first_count + 1)));
    if (comm_rank(comm) == 0)
        memcpy(first, set->same, bytes);
    TRY_OUT(comm_broadcast(comm, first, bytes, 0));
    rc = comm_agree(
        comm, compare_same(set->same, set->count, first, (int)first_count));
out:
    free(first);
    return rc;
}

int64_t icl_set_positions(const struct icl_set *set)
{
    return set->longest;
}

/* Rank 0 writes the lines of all ranks in their order: what one rank alone would
 * have written. */
static enum err write_lines(struct comm *comm, const struct buffer *own,
                            FILE *lines)
{
    enum err rc = ERR_OK;
    int ranks = comm_size(comm);
    size_t total = 0, *bytes_of = NULL;
    char *all = NULL;
    TRY_OUT(comm_agree(comm, new_zeroed(&bytes_of, (size_t)ranks)));
    TRY_OUT(comm_gather_parts(comm, own->data, own->bytes, &all, bytes_of));
    for (int r = 0; r < ranks; r++)
        total += bytes_of[r];
    if (comm_rank(comm) == 0 && fwrite(all, 1, total, lines) != total)
        rc = err_errno("writing examples");
    rc = comm_agree(comm, rc);
out:
    free(all);
    free(bytes_of);
    return rc;
}

static enum err score_part(struct icl_set *set, struct icl_result *result,
                           const struct icl_part *part,
                           const struct icl_model *model, struct comm *comm,
                           FILE *lines)
{
    enum err rc = ERR_OK;
    int ranks = comm_size(comm), rank = comm_rank(comm);
    int64_t count = limited(set, part);
    const struct icl_score_range range = { count * rank / ranks,
                                           count * (rank + 1) / ranks,
                                           lines != NULL };
    struct icl_score score = { 0 };
    rc = icl_score_part(&set->tasks[result->task], part, set->tokenizer, model,
                        &range, &score);
    /* a dead rank cannot be asked */
    TRY_OUT(rc == ERR_COMM ? rc : comm_agree(comm, rc));
    assert(score.examples == range.end - range.begin &&
           score.right <= score.examples);
    int64_t counts[3] = { score.examples, score.right, score.cut };
    TRY_OUT(comm_all_reduce_i64(comm, counts, 3, COMM_SUM));
    result->examples = counts[0];
    result->right = counts[1];
    result->cut = counts[2];
    if (lines != NULL)
        rc = write_lines(comm, &score.lines, lines);
out:
    buffer_free(&score.lines);
    return rc;
}

enum err icl_set_score(struct icl_set *set, const struct icl_model *model,
                       struct comm *comm, FILE *lines)
{
    int part = 0;
    for (int i = 0; i < set->result_count; i++) {
        struct icl_result *result = &set->results[i];
        const struct icl_task *task = &set->tasks[result->task];
        char name[128];
        double begin = clock_now();
        part = i > 0 && result[-1].task == result->task ? part + 1 : 0;
        TRY(score_part(set, result, &set->records[result->task]->parts[part],
                       model, comm, lines));
        icl_task_name(task, name, sizeof name);
        if (comm_rank(comm) == 0)
            log_info("%s%s%s, %lld-shot%s: %lld of %lld right, %.1f s", name,
                     result->category != NULL ? "/" : "",
                     result->category != NULL ? result->category : "",
                     (long long)result->shots,
                     result->shots < task->shots ? " (there are no more)" : "",
                     (long long)result->right, (long long)result->examples,
                     clock_now() - begin);
        if (comm_rank(comm) == 0 && result->cut > 0)
            log_warn("%s: %lld examples were longer than the model takes, and "
                     "lost tokens at the left",
                     name, (long long)result->cut);
        if (comm_rank(comm) == 0 && result->always > 0)
            log_warn("%s: %lld examples count as right whatever the model "
                     "says: they have one choice, or an answer or alias of "
                     "which nothing is compared (punctuation, articles)",
                     name, (long long)result->always);
    }
    return ERR_OK;
}

const struct icl_result *icl_set_results(const struct icl_set *set, int *count)
{
    *count = set->result_count;
    return set->results;
}

double icl_set_accuracy(const struct icl_set *set, int task)
{
    double sum = 0.0;
    int parts = 0;
    for (int i = 0; i < set->result_count; i++) {
        const struct icl_result *result = &set->results[i];
        if (result->task != task)
            continue;
        assert(result->examples > 0);
        sum += (double)result->right / (double)result->examples;
        parts++;
    }
    assert(parts > 0);
    return sum / parts;
}
