/* Scores over a model that is a function of what it has read: the same whatever
 * slots, calls and ranges there are. */

#include "src/base/array.h"
#include "tests/icl_fixture.h"

#define SLOTS 8
#define POSITIONS 200

/* A model whose next token is a function of all that it has read. */
struct model {
    int32_t held[SLOTS][POSITIONS];
    int64_t length[SLOTS];
    int64_t rows, read, calls;
};

static uint64_t mix(const int32_t *tokens, int64_t count)
{
    uint64_t sum = 7;
    for (int64_t i = 0; i < count; i++)
        sum = (sum ^ (uint64_t)tokens[i]) * UINT64_C(0x9e3779b97f4a7c15);
    return sum ^ sum >> 29;
}

static float nll_of(uint64_t sum, int32_t label)
{
    return (float)((sum + (uint64_t)label * 77) % 1009) / 100.0f;
}

static int32_t argmax_of(uint64_t sum)
{
    return "abc. \n"[sum % 6];
}

static enum err model_forward(void *self, const struct infer_tokens *list,
                              int count)
{
    struct model *model = self;
    int64_t read = 0;
    for (int i = 0; i < count; i++) {
        const struct infer_tokens *t = &list[i];
        for (int64_t k = 0; k < t->count; k++) {
            int64_t at = k - (t->count - t->wanted);
            int32_t *held = model->held[t->slot];
            held[model->length[t->slot]++] = t->tokens[k];
            uint64_t sum = mix(held, model->length[t->slot]);
            if (at < 0)
                continue;
            if (t->argmax != NULL)
                t->argmax[at] = argmax_of(sum);
            if (t->labels != NULL)
                t->nll[at] = nll_of(sum, t->labels[at]);
        }
        read += t->count;
    }
    if (read > model->rows)
        tap_ok(false, "a call of %lld tokens", (long long)read);
    model->read += read;
    model->calls++;
    return ERR_OK;
}

static void model_cut(void *self, int64_t slot, int64_t length)
{
    struct model *model = self;
    if (length > model->length[slot])
        tap_ok(false, "more is kept than there is");
    model->length[slot] = length;
}

/* All lines of the task, by ranges of examples that end at `cut`. */
static void score(const struct icl_task *task, const struct icl_part *part,
                  int64_t slots, int64_t rows, int64_t cut, char *text,
                  int64_t *right)
{
    static struct model model;
    const struct icl_model table = { &model,        slots,     POSITIONS, rows,
                                     model_forward, model_cut, NULL };
    const int64_t ends[] = { 0, cut, part->count };
    text[0] = '\0';
    *right = 0;
    model = (struct model){ .rows = rows };
    for (int r = 0; r < 2; r++) {
        struct icl_score_range range = { ends[r], ends[r + 1], true };
        struct icl_score out;
        NEED(icl_score_part(task, part, tokenizer, &table, &range, &out));
        *right += out.right;
        if (out.lines.bytes > 0)
            strncat(text, (const char *)out.lines.data, out.lines.bytes);
        buffer_free(&out.lines);
    }
}

static void test_scores(void)
{
    static const struct {
        enum icl_kind kind;
        const char *file;
        int64_t shots;
    } tasks[] = {
        { ICL_LANGUAGE_MODELING, language, 1 },
        { ICL_MULTIPLE_CHOICE, choices, 1 },
        { ICL_SCHEMA, schema, 0 },
        { ICL_GENERATION, thoughts, 1 },
    };
    static char first[16384], again[16384];
    for (size_t t = 0; t < sizeof tasks / sizeof tasks[0]; t++) {
        struct icl_task task;
        struct icl_records *records = NULL;
        int64_t right, others;
        bool same = true;
        icl_task_default(&task);
        task.file = write_task("scores.jsonl", tasks[t].file);
        task.kind = tasks[t].kind;
        task.shots = tasks[t].shots;
        task.stops[0] = "\n";
        NEED(icl_records_read(&task, &records));
        const struct icl_part *part = &records->parts[0];
        score(&task, part, 1, POSITIONS, part->count, first, &right);
        for (int64_t slots = 1; slots <= SLOTS; slots++)
            for (int64_t rows = 1; rows < 20; rows += 3)
                for (int64_t cut = 0; cut <= part->count; cut++) {
                    score(&task, part, slots, rows, cut, again, &others);
                    same = same && strcmp(first, again) == 0 && right == others;
                }
        tap_ok(same && strlen(first) > 100,
               "%s: the same lines for any slots, calls and ranges",
               icl_kind_names[task.kind]);
        icl_records_destroy(records);
    }
}

/* The choice is the least mean, the first of equals, and what is shared is
 * read once. */
static void test_choice(void)
{
    struct icl_task task;
    struct icl_records *records = NULL;
    static struct model model = { .rows = POSITIONS };
    const struct icl_model table = {
        &model, 1, POSITIONS, POSITIONS, model_forward, model_cut, NULL
    };
    struct icl_score_range range = { 0, 1, true };
    struct icl_score out;
    char want[64];
    icl_task_default(&task);
    task.kind = ICL_MULTIPLE_CHOICE;
    task.file = write_task("choice.jsonl",
                           "{\"query\": \"0123456789\", \"choices\": [\"xy\", "
                           "\"z\", \"z\", \"xyz\"], \"gold\": 2}\n");
    NEED(icl_records_read(&task, &records));
    NEED(icl_score_part(&task, &records->parts[0], tokenizer, &table, &range,
                        &out));
    const int32_t text[] = { '0', '1', '2', '3', '4', '5',
                             '6', '7', '8', '9', 'x', 'y' };
    double x = nll_of(mix(text, 10), 'x'), z = nll_of(mix(text, 10), 'z');
    double y = nll_of(mix(text, 11), 'y'), end = nll_of(mix(text, 12), 'z');
    double means[] = { (x + y) / 2, z, z, (x + y + end) / 3 };
    int least = 0;
    for (int i = 1; i < 4; i++)
        least = means[i] < means[least] ? i : least;
    snprintf(want, sizeof want, "\"choice\":%d,\"gold\":2,\"right\":%s", least,
             least == 2 ? "true" : "false");
    fixture_need(buffer_add(&out.lines, "", 1));
    tap_ok(strstr((char *)out.lines.data, want) != NULL, "%s in %s", want,
           out.lines.data);
    tap_is_close(
        strtod(strstr((char *)out.lines.data, "\"scores\":[") + 10, NULL),
        exp(means[0]), 1e-5, "exp of the mean");
    tap_is_int(model.read, 11 + 1 + 1 + 3,
               "the context is read once, but for its last token");
    buffer_free(&out.lines);
    icl_records_destroy(records);
}

/* Categories in order of their names, each with its own choice of shots, and a
 * task's accuracy is their mean. */
static void test_set(void)
{
    static struct model model = { .rows = 64 };
    const struct icl_model table = { &model,        3,         POSITIONS, 64,
                                     model_forward, model_cut, NULL };
    static const char lines[] =
        "{\"context\": \"1\", \"continuation\": \"a\", \"category\": \"b\"}\n"
        "{\"context\": \"2\", \"continuation\": \"a\", \"category\": \"a\"}\n"
        "{\"context\": \"3\", \"continuation\": \"b\", \"category\": \"b\"}\n"
        "{\"context\": \"4\", \"continuation\": \"c\", \"category\": \"b\"}\n";
    struct icl_task tasks[2];
    struct icl_set *set = NULL;
    struct comm *comm = NULL;
    struct icl_set_options options = { .positions = POSITIONS, .limit = 2 };
    int count;
    icl_task_default(&tasks[0]);
    tasks[0].file = write_task("set.x.jsonl", lines);
    tasks[0].categories = true;
    tasks[0].shots = 2;
    tasks[1] = tasks[0];
    tasks[1].categories = false;
    NEED(comm_create("self", NULL, NULL, 10, &comm));
    NEED(icl_set_create(tasks, 2, tokenizer, &options, NULL, &set));
    tap_is_int(icl_set_positions(set), 3 + 4 + 2 + 1, "the longest prompt");
    NEED(icl_set_score(set, &table, comm, NULL));
    const struct icl_result *results = icl_set_results(set, &count);
    tap_is_int(count, 3, "two categories and a task without");
    tap_ok(count == 3 && strcmp(results[0].category, "a") == 0 &&
               results[0].size == 1 && results[0].examples == 1 &&
               strcmp(results[1].category, "b") == 0 && results[1].size == 3 &&
               results[1].examples == 2 && results[2].category == NULL &&
               results[2].size == 4 && results[2].examples == 2,
           "of the sizes that they have, limited");
    double mean = ((double)results[0].right + (double)results[1].right / 2) / 2;
    tap_is_close(icl_set_accuracy(set, 0), mean, 0, "the mean of categories");
    tap_ok(results[0].shots == 0 && results[1].shots == 2 &&
               results[2].shots == 2,
           "shots that are shown: no more than there are others");
    char name[8];
    icl_task_name(&tasks[0], name, sizeof name);
    tap_is_str(name, "set", "a file's name is the task's");
    icl_set_destroy(set);
    comm_destroy(comm);
}

int main(void)
{
    icl_fixture_begin();
    test_scores();
    test_choice();
    test_set();
    return icl_fixture_end();
}
