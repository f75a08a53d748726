/* In-context tasks: what prompts are made of, and what is wrong with a file. */
#include <sys/stat.h>

#include "src/base/array.h"
#include "tests/icl_fixture.h"

/* --- prompts ------------------------------------------------------------- */

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
        const struct icl_part *part = &records->parts[0];
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
        NEED(icl_prompts_create(&task, &records->parts[0], tokenizer,
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
    { ICL_LANGUAGE_MODELING, "{'context': 'a'}\n",
      ":1: 'continuation' has to be a text, and is missing" },
    { ICL_LANGUAGE_MODELING, "{'context': 'a', 'continuation': 'b'}\n[]\n",
      ":2:" },
    { ICL_LANGUAGE_MODELING, "{'context': 1, 'continuation': 'b'}\n",
      "'context' has to be a text" },
    { ICL_LANGUAGE_MODELING, "{'context': 'a', 'continuation': ' '}\n",
      ":1: the continuation ' ' has no token" },
    { ICL_LANGUAGE_MODELING, "{'context': ' ', 'continuation': 'b'}\n",
      "nothing comes before" },
    { ICL_MULTIPLE_CHOICE, "{'query': 'a', 'choices': [], 'gold': 0}\n",
      "'choices' is empty" },
    { ICL_MULTIPLE_CHOICE, "{'query': 'a', 'choices': 'b'}\n",
      "'choices' has to be a list of texts" },
    { ICL_MULTIPLE_CHOICE, "{'query': 'a', 'choices': ['b', 1], 'gold': 0}\n",
      "'choices' has to be a list of texts" },
    { ICL_MULTIPLE_CHOICE, "{'query': 'a', 'choices': ['b'], 'gold': 1}\n",
      "one of the 1 'choices'" },
    { ICL_SCHEMA,
      "{'context_options': ['b'], 'continuation': 'c', 'gold': -1}\n",
      "'gold' has to be" },
    { ICL_SCHEMA,
      "{'context_options': ['b'], 'continuation': 'c', 'gold': '0'}\n",
      "'gold' has to be" },
    { ICL_GENERATION,
      "{'context': 'a', 'answer': 'b'}\n{'context': 'a', 'answer': 'b', "
      "'chain_of_thought': 'c'}\n",
      ":2: 'chain_of_thought' has to be in all records or none" },
    { ICL_GENERATION, "{'context': 'a', 'answer': 'b', 'aliases': {}}\n",
      "'aliases' has to be a list" },
};

/* Each option has a copy of the context. */
static void test_many(enum icl_kind kind, const char *begin, int count)
{
    struct icl_task task;
    struct icl_set *set = NULL;
    struct buffer text = { 0 };
    NEED(buffer_add(&text, begin, strlen(begin)));
    for (int i = 0; i < count; i++)
        NEED(buffer_add(&text, &", \"a\""[i > 0 ? 0 : 2], i > 0 ? 5 : 3));
    NEED(buffer_add(&text, "]}\n", 4));
    enum err rc = icl_fixture_set(
        &task, kind, write_task("many.jsonl", (const char *)text.data), &set);
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
    for (size_t b = 0; b < sizeof bad / sizeof bad[0]; b++) {
        struct icl_task task;
        struct icl_set *set = NULL;
        enum err rc = icl_fixture_set(
            &task, bad[b].kind, write_task("bad.jsonl", bad[b].file), &set);
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
                                         "schema::5",
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

/* Examples that can't be wrong are counted. */
static void test_always(void)
{
    static const struct {
        enum icl_kind kind;
        const char *file;
        int64_t always;
    } cases[] = {
        { ICL_GENERATION,
          "{'context': 'a', 'answer': 'the', 'aliases': []}\n"
          "{'context': 'a', 'answer': 'b', 'aliases': ['?!']}\n"
          "{'context': 'a', 'answer': '', 'aliases': ['b']}\n"
          "{'context': 'a', 'answer': 'b', 'aliases': ['c']}\n",
          3 },
        { ICL_MULTIPLE_CHOICE,
          "{'query': 'a', 'gold': 0, 'choices': ['b']}\n"
          "{'query': 'a', 'gold': 0, 'choices': ['b', 'c']}\n",
          1 },
        { ICL_LANGUAGE_MODELING, "{'context': 'a', 'continuation': 'b'}\n", 0 },
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct icl_task task;
        struct icl_set *set = NULL;
        int count;
        NEED(icl_fixture_set(&task, cases[c].kind,
                             write_task("always.jsonl", cases[c].file), &set));
        tap_is_int(icl_set_results(set, &count)[0].always, cases[c].always,
                   "%s: examples that can't be wrong",
                   icl_kind_names[cases[c].kind]);
        icl_set_destroy(set);
    }
}

/* Nothing is waited for. */
static void test_irregular(void)
{
    const char *pipe = fixture_path(folder, "pipe");
    const char *const files[] = { pipe, folder, "/dev/zero", "/nowhere" };
    const char *const why[] = { "is a pipe, not a regular file",
                                "is a folder, not a regular file",
                                "is a device, not a regular file",
                                "no such file" };
    NEED(mkfifo(pipe, 0600) == 0 ? ERR_OK : err_errno("%s", pipe));
    for (int f = 0; f < 4; f++) {
        struct icl_task task;
        struct icl_set *set = NULL;
        enum err rc =
            icl_fixture_set(&task, ICL_LANGUAGE_MODELING, files[f], &set);
        tap_ok(rc == ERR_USAGE && strstr(err_text(), why[f]) != NULL,
               "refused: %s", err_text());
    }
}

int main(void)
{
    icl_fixture_begin();
    test_prompts();
    test_long();
    test_bad();
    test_always();
    test_irregular();
    for (int extra = 0; extra < 2; extra++) {
        test_many(ICL_MULTIPLE_CHOICE,
                  "{\"query\": \"a\", \"gold\": 0, \"choices\": [",
                  1024 + extra);
        test_many(ICL_SCHEMA,
                  "{\"continuation\": \"b\", \"gold\": 0, "
                  "\"context_options\": [",
                  1024 + extra);
    }
    return icl_fixture_end();
}
