/* In-context tasks: what prompts are made of, what is wrong with a file, which
 * answers are right, and scores over a model that is a function of what it has
 * read, whatever slots, calls and ranges there are. */
#include "src/eval/icl_set.h"

#include <math.h>

#include "src/eval/icl_answer.h"
#include "src/text/buffer.h"
#include "tests/data_fixture.h"

#define NEED fixture_need

static const char *folder;
static struct tokenizer *tokenizer;

static const char *write_task(const char *name, const char *lines)
{
    const char *path = fixture_path(folder, name);
    fixture_write_file(path, lines, strlen(lines));
    return path;
}

/* --- prompts ------------------------------------------------------------- */

static const char language[] =
    "{\"context\": \" A \", \"continuation\": \"B\\n\"}\n"
    "{\"context\": \"C\", \"continuation\": \"D\", \"more\": [1]}\n"
    "{\"context\": \"E\", \"continuation\": \"F\"}\n";
static const char choices[] =
    "{\"query\": \"Q1 \", \"choices\": [\"x\", \" y \"], \"gold\": 1}\n"
    "{\"query\": \"Q2\", \"choices\": [\"u\", \"v\", \"w\"], \"gold\": 0}\n";
static const char schema[] =
    "{\"context_options\": [\"he \", \"she\"], \"continuation\": \" goes.\", "
    "\"gold\": 1}\n"
    "{\"context_options\": [\"it\", \"I\"], \"continuation\": \"go.\", "
    "\"gold\": 0}\n";
static const char thoughts[] =
    "{\"context\": \"1+1\", \"chain_of_thought\": \"add \", \"answer\": "
    "\"2\"}\n"
    "{\"context\": \"2+2\", \"chain_of_thought\": \"twice\", \"answer\": "
    "\"4\", \"aliases\": [\"four\"]}\n";

/* With two examples and a shot each one is shown before the other. Rows as
 * "context|continuation;". */
static const struct {
    const char *about;
    enum icl_kind kind;
    const char *file;
    int64_t shots;
    const char *prompt, *prelimiter, *delimiter;
    bool raw; /* nothing is stripped */
    const char *rows;
    int64_t generated;
} prompts[] = {
    { "language modeling, alone", ICL_LANGUAGE_MODELING, language, 0, "", "",
      " ", false, "A|B;C|D;E|F;", 0 },
    { "with white space", ICL_LANGUAGE_MODELING, language, 0, "", "", " ", true,
      " A  |B\n;C |D;E |F;", 0 },
    { "a prompt string", ICL_LANGUAGE_MODELING, language, 0, "Hi.", "> ", " ->",
      false, "Hi.\n> A ->|B;Hi.\n> C ->|D;Hi.\n> E ->|F;", 0 },
    { "all others are shown", ICL_LANGUAGE_MODELING, language, 5, "", "", "=",
      false, "C=D\nE=F\nA=|B;A=B\nE=F\nC=|D;A=B\nC=D\nE=|F;", 0 },
    { "multiple choice", ICL_MULTIPLE_CHOICE, choices, 0, "", "",
      "\nAnswer: ", false,
      "Q1\nAnswer:|x;Q1\nAnswer:| y ;"
      "Q2\nAnswer:|u;Q2\nAnswer:|v;Q2\nAnswer:|w;",
      0 },
    { "choices are shown as they are", ICL_MULTIPLE_CHOICE, choices, 1, "", "P",
      ": ", false,
      "PQ2: u\nPQ1:|x;PQ2: u\nPQ1:| y ;"
      "PQ1:  y \nPQ2:|u;PQ1:  y \nPQ2:|v;PQ1:  y \nPQ2:|w;",
      0 },
    { "schema, without its delimiter", ICL_SCHEMA, schema, 0, "", "~", " ",
      false, "~he |goes.;~she|goes.;~it|go.;~I|go.;", 0 },
    { "schema with a shot", ICL_SCHEMA, schema, 1, "", "~", " ", false,
      "~it go.~\nhe |goes.;~it go.~\nshe|goes.;"
      "~she goes.~\nit|go.;~she goes.~\nI|go.;",
      0 },
    { "generation, with thoughts", ICL_GENERATION, thoughts, 1, "", "",
      "\nA:", false, "2+2\nA:twice=>4\n1+1\nA:|;1+1\nA:add=>2\n2+2\nA:|;",
      /* "twice=>four", not stripped, and room */ 21 },
};

static void show(struct icl_example *example, char *text)
{
    for (int64_t r = 0; r < example->row_count; r++) {
        const struct icl_row *row = &example->rows[r];
        const int32_t *token = icl_example_tokens(example, r);
        for (int64_t i = 0; i < row->count; i++)
            sprintf(text + strlen(text), "%s%c",
                    i == row->count - row->span ? "|" : "", token[i]);
        strcat(text, row->span == 0 ? "|;" : ";");
    }
}

static void test_prompts(void)
{
    for (size_t p = 0; p < sizeof prompts / sizeof prompts[0]; p++) {
        struct icl_task task;
        struct icl_records *records = NULL;
        struct icl_prompts *made = NULL;
        struct icl_example example = { 0 };
        char text[512] = "";
        icl_task_default(&task);
        task.file = write_task("prompts.jsonl", prompts[p].file);
        task.kind = prompts[p].kind;
        task.shots = prompts[p].shots;
        task.prompt_string = prompts[p].prompt;
        task.prelimiter = prompts[p].prelimiter;
        task.continuation_delimiter = prompts[p].delimiter;
        task.strip = !prompts[p].raw;
        task.cot_delimiter = task.kind == ICL_GENERATION ? "=>" : "";
        NEED(icl_records_read(&task, &records));
        const struct icl_part *part = icl_records_part(records, 0);
        NEED(icl_prompts_create(&task, part, tokenizer, 100, &made));
        for (int64_t i = 0; i < part->count; i++) {
            NEED(icl_prompts_next(made, &example));
            show(&example, text);
        }
        tap_is_str(text, prompts[p].rows, "%s", prompts[p].about);
        tap_is_int(icl_prompts_generated_max(made), prompts[p].generated,
                   "and what may be generated");
        icl_example_free(&example);
        icl_prompts_destroy(made);
        icl_records_destroy(records);
    }
}

/* What does not fit loses its beginning; what cannot fit is an error. */
static void test_long(void)
{
    static const struct {
        int64_t positions;
        const char *want; /* "!...": the error */
    } cases[] = {
        { 9, "abcdef|xyz;abcdef|x;" },
        { 8, "bcdef|xyz;abcdef|x;" },
        { 4, "f|xyz;def|x;" },
        { 3, "!a continuation of 3 tokens" },
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct icl_task task;
        struct icl_records *records = NULL;
        struct icl_prompts *made = NULL;
        struct icl_example example = { 0 };
        char text[64] = "";
        icl_task_default(&task);
        task.kind = ICL_MULTIPLE_CHOICE;
        task.file =
            write_task("long.jsonl", "{\"query\": \"abcdef\", \"choices\": "
                                     "[\"xyz\", \"x\"], \"gold\": 0}\n");
        NEED(icl_records_read(&task, &records));
        NEED(icl_prompts_create(&task, icl_records_part(records, 0), tokenizer,
                                cases[c].positions, &made));
        enum err rc = icl_prompts_next(made, &example);
        if (cases[c].want[0] == '!') {
            tap_ok(rc == ERR_DATA && strstr(err_text(), cases[c].want + 1) &&
                       strstr(err_text(), "long.jsonl:1"),
                   "%s", err_text());
        } else {
            show(&example, text);
            tap_is_str(text, cases[c].want, "%lld positions",
                       (long long)cases[c].positions);
            tap_ok(example.cut == (cases[c].positions < 9), "is said");
        }
        icl_example_free(&example);
        icl_prompts_destroy(made);
        icl_records_destroy(records);
    }
}

/* --- files --------------------------------------------------------------- */

static const struct {
    enum icl_kind kind;
    const char *file, *want;
} bad[] = {
    { ICL_LANGUAGE_MODELING, "", "has no examples" },
    { ICL_LANGUAGE_MODELING, "{\"context\": \"a\"}\n",
      ":1: 'continuation' has to be a text, and is missing" },
    { ICL_LANGUAGE_MODELING,
      "{\"context\": \"a\", \"continuation\": \"b\"}\n[]\n", ":2:" },
    { ICL_LANGUAGE_MODELING, "{\"context\": 1, \"continuation\": \"b\"}\n",
      "'context' has to be a text" },
    { ICL_LANGUAGE_MODELING, "{\"context\": \"a\", \"continuation\": \" \"}\n",
      ":1: the continuation ' ' has no token" },
    { ICL_LANGUAGE_MODELING, "{\"context\": \" \", \"continuation\": \"b\"}\n",
      "nothing comes before" },
    { ICL_MULTIPLE_CHOICE, "{\"query\": \"a\", \"choices\": [], \"gold\": 0}\n",
      "'choices' is empty" },
    { ICL_MULTIPLE_CHOICE, "{\"query\": \"a\", \"choices\": \"b\"}\n",
      "'choices' has to be a list of texts" },
    { ICL_MULTIPLE_CHOICE,
      "{\"query\": \"a\", \"choices\": [\"b\", 1], \"gold\": 0}\n",
      "'choices' has to be a list of texts" },
    { ICL_MULTIPLE_CHOICE,
      "{\"query\": \"a\", \"choices\": [\"b\"], \"gold\": 1}\n",
      "one of the 1 'choices'" },
    { ICL_SCHEMA,
      "{\"context_options\": [\"b\"], \"continuation\": \"c\", \"gold\": "
      "-1}\n",
      "'gold' has to be" },
    { ICL_SCHEMA,
      "{\"context_options\": [\"b\"], \"continuation\": \"c\", \"gold\": "
      "\"0\"}\n",
      "'gold' has to be" },
    { ICL_GENERATION,
      "{\"context\": \"a\", \"answer\": \"b\"}\n{\"context\": \"a\", "
      "\"answer\": \"b\", \"chain_of_thought\": \"c\"}\n",
      ":2: 'chain_of_thought' has to be in all records or none" },
    { ICL_GENERATION,
      "{\"context\": \"a\", \"answer\": \"b\", \"aliases\": {}}\n",
      "'aliases' has to be a list" },
};

/* Each option has a copy of the context. */
static void test_many(enum icl_kind kind, const char *begin, int count)
{
    const struct icl_set_options options = { .positions = 64 };
    struct icl_task task;
    struct icl_set *set = NULL;
    struct buffer text = { 0 };
    NEED(buffer_add(&text, begin, strlen(begin)));
    for (int i = 0; i < count; i++)
        NEED(buffer_add(&text, &", \"a\""[i > 0 ? 0 : 2], i > 0 ? 5 : 3));
    NEED(buffer_add(&text, "]}\n", 4));
    icl_task_default(&task);
    task.kind = kind;
    task.file = write_task("many.jsonl", (const char *)text.data);
    enum err rc = icl_set_create(&task, 1, tokenizer, &options, NULL, &set);
    if (count <= 1024)
        tap_ok(rc == ERR_OK, "%d options are taken", count);
    else
        tap_ok(rc == ERR_DATA && strstr(err_text(), "many.jsonl:1: ") != NULL,
               "refused: %s", err_text());
    icl_set_destroy(set);
    buffer_free(&text);
}

static void test_bad(void)
{
    const struct icl_set_options options = { .positions = 64 };
    for (size_t b = 0; b < sizeof bad / sizeof bad[0]; b++) {
        struct icl_task task;
        struct icl_set *set = NULL;
        icl_task_default(&task);
        task.kind = bad[b].kind;
        task.file = write_task("bad.jsonl", bad[b].file);
        enum err rc = icl_set_create(&task, 1, tokenizer, &options, NULL, &set);
        tap_ok(rc == ERR_DATA && strstr(err_text(), bad[b].want) != NULL,
               "refused: %s", err_text());
    }
    struct icl_task task;
    static const struct {
        const char *text, *file;
        int64_t shots;
    } named[] = {
        { "schema:a.jsonl", "a.jsonl", 0 },
        { "schema:a.jsonl:5", "a.jsonl", 5 },
        { "schema:s3:a:b", "s3:a:b", 0 },
        { "schema:a:", "a:", 0 },
    };
    for (size_t n = 0; n < sizeof named / sizeof named[0]; n++) {
        char text[64];
        icl_task_default(&task);
        strcpy(text, named[n].text);
        tap_ok(icl_task_parse(text, &task) == ERR_OK &&
                   task.kind == ICL_SCHEMA &&
                   strcmp(task.file, named[n].file) == 0 &&
                   task.shots == named[n].shots,
               "%s", named[n].text);
    }
    static const char *const wrong[] = { "schema",
                                         "schema:",
                                         "x:a",
                                         "code_evaluation:a",
                                         ":a",
                                         "schema:a:99999999999999999999",
                                         "schema:a:10001" };
    for (size_t w = 0; w < sizeof wrong / sizeof wrong[0]; w++) {
        char text[64];
        strcpy(text, wrong[w]);
        tap_ok(icl_task_parse(text, &task) != ERR_OK, "%s: %s", wrong[w],
               err_text());
    }
}

/* --- answers ------------------------------------------------------------- */

/* What CPython 3.11 makes of them with LLM Foundry's normalize_answer(). */
static const struct {
    const char *text, *want;
} normal[] = {
    { "The  Cat_and THE-dog!", "cat and dog" },
    { "a", "" },
    { "An apple a day.", "apple day" },
    { "Th\xc3\xa9\xc3\xa2tre the\xe2\x80\x99 end",
      "th\xc3\xa9\xc3\xa2tre end" },
    { "x\xc2\xa0the\xe2\x80\x83y", "x y" },
    { "3.14", "3 14" },
    { "\xc3\x9cn\xc3\xaf"
      "code \xc3\x84\xc3\x96",
      "\xc3\xbcn\xc3\xaf"
      "code \xc3\xa4\xc3\xb6" },
    { "__a__b", "b" },
    { "Anna's", "anna s" },
    { "a\xcc\x81 b", "\xcc\x81 b" },
    { "\xc4\xb0stanbul", "i\xcc\x87stanbul" },
    { "the\xe2\x82\xac the1 1the", "\xe2\x82\xac the1 1the" },
    { "\xff", "\xef\xbf\xbd" },
    { "", "" },
};

static const struct {
    const char *stop, *delimiter;
    bool normalize;
    const char *text, *answer, *alias;
    bool right;
} judged[] = {
    { NULL, "", true, " Paris, of course", "paris", NULL, true },
    { NULL, "", true, "It is Paris", "paris", NULL, false },
    { NULL, "", true, "the Seine", "x", "SEINE", true },
    { NULL, "", false, "  Paris\n", "Paris ", NULL, true },
    { NULL, "", false, "paris", "Paris", NULL, false },
    { "\n\n", "answer is ", false, "so the answer is 7.\n\nQ", "7", NULL,
      true },
    { "\n\n", "answer is ", false, "7\n\nthe answer is 8", "8", NULL, false },
    { "\n\n", "answer is ", false, "answer is 1 answer is 2", "2", NULL, true },
    { "[0-9]+", "", false, "abc1", "abc1", NULL, false },
    { "[0-9]+", "", false, "abc1", "abc", NULL, true },
    { NULL, "", true, "anything", "the", NULL, true }, /* begins with "" */
};

/* Repetitions within each other, which have to be tried in all ways. */
static void test_slow(struct icl_task *task)
{
    static const char text[] = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";
    struct icl_answer *answer = NULL;
    const struct icl_record record = { .answer = text };
    const char *cleaned;
    bool right = true;
    task->stops[0] = "(x+x+)+[yz]";
    task->cot_delimiter = "";
    NEED(icl_answer_create(task, &answer));
    NEED(icl_answer_stops(answer, (const uint8_t *)text, strlen(text), &right));
    tap_ok(!right, "a stop that takes too long is none");
    NEED(icl_answer_judge(answer, &record, (const uint8_t *)text, strlen(text),
                          &right, &cleaned));
    tap_ok(right, "and all of the text is judged");
    icl_answer_destroy(answer);
}

/* Half a character would be found within one. */
static void test_delimiter(struct icl_task *task)
{
    static const char *const halves[] = { "\xc3", "a\xf0\x9f\x98", "\xa9" };
    struct icl_answer *answer = NULL;
    task->stops[0] = NULL;
    for (size_t h = 0; h < sizeof halves / sizeof halves[0]; h++) {
        task->cot_delimiter = halves[h];
        tap_ok(icl_answer_create(task, &answer) == ERR_USAGE, "%s", err_text());
    }
    task->cot_delimiter = "\xc3\xa9";
    NEED(icl_answer_create(task, &answer));
    icl_answer_destroy(answer);
}

static void test_answers(void)
{
    struct icl_task task;
    struct icl_answer *answer = NULL;
    struct icl_record record = { .answer = "x" };
    const char *cleaned;
    bool right;
    icl_task_default(&task);
    NEED(icl_answer_create(&task, &answer));
    for (size_t n = 0; n < sizeof normal / sizeof normal[0]; n++) {
        NEED(icl_answer_judge(answer, &record, (const uint8_t *)normal[n].text,
                              strlen(normal[n].text), &right, &cleaned));
        tap_is_str(cleaned, normal[n].want, "normalised");
    }
    icl_answer_destroy(answer);
    for (size_t j = 0; j < sizeof judged / sizeof judged[0]; j++) {
        const char *text = judged[j].text;
        task.stops[0] = judged[j].stop;
        task.cot_delimiter = judged[j].delimiter;
        task.normalize = judged[j].normalize;
        record.answer = judged[j].answer;
        record.options = &judged[j].alias;
        record.option_count = judged[j].alias != NULL;
        NEED(icl_answer_create(&task, &answer));
        NEED(icl_answer_judge(answer, &record, (const uint8_t *)text,
                              strlen(text), &right, &cleaned));
        tap_ok(right == judged[j].right, "case %d, for '%s'", (int)j,
               record.answer);
        icl_answer_destroy(answer);
    }
    task.stops[0] = "(";
    answer = NULL;
    tap_ok(icl_answer_create(&task, &answer) == ERR_USAGE, "%s", err_text());
    task.stops[0] = "\\C";
    tap_ok(icl_answer_create(&task, &answer) == ERR_USAGE, "%s", err_text());
    test_slow(&task);
    test_delimiter(&task);
    task.stops[0] = "a";
    task.stops[1] = "\n";
    NEED(icl_answer_create(&task, &answer));
    NEED(icl_answer_stops(answer, (const uint8_t *)"bc\n", 3, &right));
    tap_ok(right, "one of two stops is found");
    NEED(icl_answer_stops(answer, NULL, 0, &right));
    tap_ok(!right, "and none in nothing");
    icl_answer_destroy(answer);
}

/* --- scores -------------------------------------------------------------- */

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
        const struct icl_part *part = icl_records_part(records, 0);
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
    NEED(icl_score_part(&task, icl_records_part(records, 0), tokenizer, &table,
                        &range, &out));
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
    char name[8];
    icl_task_name(&tasks[0], name, sizeof name);
    tap_is_str(name, "set", "a file's name is the task's");
    icl_set_destroy(set);
    comm_destroy(comm);
}

int main(void)
{
    folder = fixture_folder();
    NEED(tokenizer_create("bytes", &tokenizer));
    test_prompts();
    test_long();
    test_bad();
    for (int extra = 0; extra < 2; extra++) {
        test_many(ICL_MULTIPLE_CHOICE,
                  "{\"query\": \"a\", \"gold\": 0, \"choices\": [",
                  1024 + extra);
        test_many(ICL_SCHEMA,
                  "{\"continuation\": \"b\", \"gold\": 0, "
                  "\"context_options\": [",
                  1024 + extra);
    }
    test_answers();
    test_scores();
    test_choice();
    test_set();
    tokenizer_destroy(tokenizer);
    fsio_remove_tree(folder);
    return tap_done();
}
