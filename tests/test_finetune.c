/* Fine-tuning data: which tokens of a record are learned, what is no record,
 * packing, and the set that is made of it. */
#include "src/data/texts/finetune.h"

#include "src/base/rng.h"
#include "src/data/set/dataset.h"
#include "src/data/prepare/tokenize_finetune.h"
#include "tests/data_fixture.h"

/* a rule that a case sets stands behind the usual one */
#pragma GCC diagnostic ignored "-Woverride-init"

static struct tokenizer *tokenizer;

/* Bytes as text: what is learned in capitals, the end of a document as '#'. */
static void show(const struct finetune_example *example, char *out)
{
    for (int64_t t = 0; t < example->count; t++) {
        char c = (char)example->tokens[t];
        c = example->tokens[t] == 256 ? '#' : c;
        *out++ = example->mask[t] != 0 && c >= 'a' && c <= 'z'
                     ? (char)(c - 'a' + 'A')
                 : example->mask[t] != 0 && c == '#' ? '$'
                                                     : c;
    }
    *out = '\0';
}

#define RULES(...)                                                             \
    {                                                                          \
        .seq_len = 200, .target_prompts = FINETUNE_NO_PROMPTS, .eos = -1,      \
        __VA_ARGS__                                                            \
    }
#define TALK                                                                   \
    "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, "             \
    "{\"role\": \"user\", \"content\": \"u\"}, "                               \
    "{\"role\": \"assistant\", \"content\": \"a\"}, "                          \
    "{\"role\": \"tool\", \"content\": \"longer\"}, "                          \
    "{\"role\": \"assistant\", \"content\": \"b\"}]}"

static const struct example {
    const char *record, *template;
    struct finetune_rules rules;
    enum finetune_fate fate;
    const char *want;
} examples[] = {
    { "{\"prompt\": \"ask\", \"response\": \"say\"}", NULL, RULES(.eos = -1),
      FINETUNE_KEPT, "askSAY$" },
    { "{\"completion\": \"say\", \"prompt\": \"ask\"}", NULL, RULES(.eos = -1),
      FINETUNE_KEPT, "askSAY$" },
    { "{\"prompt\": \"ask\", \"response\": \"say\"}", NULL,
      RULES(.target_prompts = 0), FINETUNE_KEPT, "aSKSAY$" },
    { "{\"prompt\": \"ask\", \"response\": \"say\"}", NULL,
      RULES(.target_prompts = 3), FINETUNE_KEPT, "aSKSAY$" },
    { "{\"prompt\": \"ask\", \"response\": \"say\"}", NULL,
      RULES(.target_prompts = 4), FINETUNE_KEPT, "askSAY$" },
    { "{\"prompt\": \"ask\", \"response\": \"say\"}", NULL, RULES(.eos = 'y'),
      FINETUNE_KEPT, "askSAY" },
    { "{\"prompt\": \"ask\", \"response\": \"say\"}", NULL, RULES(.seq_len = 4),
      FINETUNE_CUT, "askS" },
    { "{\"prompt\": \"ask\", \"response\": \"say\"}", NULL, RULES(.seq_len = 3),
      FINETUNE_NOTHING, NULL },
    { "{\"prompt\": \"ask\", \"response\": \"say\"}", NULL,
      RULES(.seq_len = 6, .too_long = FINETUNE_DROP), FINETUNE_LONG, NULL },
    { "{\"prompt\": \"ask\", \"response\": \"say\"}", NULL,
      RULES(.seq_len = 7, .too_long = FINETUNE_REFUSE), FINETUNE_KEPT,
      "askSAY$" },
    { TALK, "none", RULES(.eos = -1), FINETUNE_KEPT, "sualongerB$" },
    { TALK, "none", RULES(.all_responses = true), FINETUNE_KEPT,
      "suAlongerB$" },
    { TALK, "none", RULES(.target_prompts = 6), FINETUNE_KEPT, "suaLONGERB$" },
    { TALK, "none", RULES(.target_prompts = 0), FINETUNE_KEPT, "sUaLONGERB$" },
    { TALK, "none", RULES(.target_prompts = 0, .seq_len = 9), FINETUNE_CUT,
      "sUaLONGER" },
    { TALK, "chatml", RULES(.all_responses = true), FINETUNE_KEPT,
      "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nu<|im_end|>\n"
      "<|im_start|>assistant\nA<|IM_END|>\n<|im_start|>tool\nlonger"
      "<|im_end|>\n<|im_start|>assistant\nB<|IM_END|>$" },
    { "{\"prompt\": \"ask\", \"response\": \"say\"}", "chatml",
      RULES(.eos = -1), FINETUNE_KEPT,
      "<|im_start|>user\nask<|im_end|>\n<|im_start|>assistant\nSAY<|IM_END|>"
      "$" },
};

static void test_examples(void)
{
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        const struct example *e = &examples[i];
        struct chat_template *template = NULL;
        struct finetune *finetune = NULL;
        struct finetune_example example;
        char got[512];
        json_t *record = json_loads(e->record, 0, NULL);
        if (e->template != NULL)
            fixture_need(
                chat_template_create(e->template, tokenizer, &template));
        fixture_need(
            finetune_create(&e->rules, tokenizer, template, &finetune));
        for (int again = 0; again < 2; again++)
            fixture_need(finetune_read(finetune, record, &example));
        tap_is_int(example.fate, e->fate, "fate of example %d", (int)i);
        show(&example, got);
        if (e->want != NULL)
            tap_is_str(got, e->want, "what is learned of it");
        finetune_destroy(finetune);
        chat_template_destroy(template);
        json_decref(record);
    }
}

static const struct refusal {
    const char *record, *want;
    bool prompts;
} refusals[] = {
    { "{}", "neither 'prompt'", false },
    { "{\"prompt\": \"a\"}", "'response' is missing", false },
    { "{\"response\": \"a\"}", "'prompt' is missing", false },
    { "{\"prompt\": 1, \"response\": \"a\"}", "not a number", false },
    { "{\"prompt\": \"a\", \"response\": null}", "not null", false },
    { "{\"prompt\": \"\", \"response\": \"a\"}", "'prompt' is empty", false },
    { "{\"prompt\": \"a\", \"completion\": \"\"}", "'completion' is empty",
      true },
    { "{\"prompt\": \"a\", \"response\": \"b\", \"completion\": \"c\"}",
      "'response' and 'completion'", false },
    { "{\"prompt\": \"a\", \"messages\": []}", "'messages' and 'prompt'",
      false },
    { TALK, "--chat in place", true },
    { "{\"messages\": {}}", "has to be a list, not an object", false },
    { "{\"messages\": []}", "has 0 of them", false },
    { "{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}]}",
      "has 1 of them", false },
    { "{\"messages\": [1, 2]}", "'messages[0]' has to be an object", false },
    { "{\"messages\": [{\"role\": \"user\"}, 2]}",
      "'messages[0].content' is missing", false },
    { "{\"messages\": [{\"content\": \"a\"}, 2]}",
      "'messages[0].role' is missing", false },
    { "{\"messages\": [{\"role\": \"human\", \"content\": \"a\"}, 2]}",
      "'messages[0].role' is 'human'", false },
    { "{\"messages\": [{\"role\": \"user\", \"content\": [\"a\"]}, 2]}",
      "'messages[0].content' has to be a text, not a list", false },
    { "{\"messages\": [{\"role\": \"user\", \"content\": \"a\", \"x\": 1}, 2]}",
      "'messages[0].x' is not known", false },
    { "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
      "{\"role\": \"user\", \"content\": \"a\"}]}",
      "'messages[1].role' is 'user' twice", false },
    { "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
      "{\"role\": \"tool\", \"content\": \"a\"}]}",
      "'messages[1].role', the last one, is 'tool'", false },
    { "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
      "{\"role\": \"assistant\", \"content\": \"\"}]}",
      "'messages[1].content' is empty", false },
};

/* What is not used is told once, also a field whose name is empty. */
static void test_unused(void)
{
    static const char record[] = "{\"prompt\": \"ask\", \"id\": 1, \"\": 2, "
                                 "\"response\": \"say\", \"i\": 3}";
    const struct finetune_rules rules = RULES(.eos = -1);
    struct finetune *finetune = NULL;
    struct finetune_example example;
    json_t *value = json_loads(record, 0, NULL);
    fixture_need(finetune_create(&rules, tokenizer, NULL, &finetune));
    for (int again = 0; again < 2; again++)
        fixture_need(finetune_read(finetune, value, &example));
    tap_is_str(finetune_unused(finetune), "id, '', i", "fields not used");
    json_decref(value);
    finetune_destroy(finetune);
}

static void test_refusals(void)
{
    const struct finetune_rules rules = RULES(.eos = -1);
    struct chat_template *template = NULL;
    struct finetune_example example;
    fixture_need(chat_template_create("chatml", tokenizer, &template));
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        struct finetune *finetune = NULL;
        json_t *record = json_loads(refusals[i].record, 0, NULL);
        fixture_need(finetune_create(&rules, tokenizer,
                                     refusals[i].prompts ? NULL : template,
                                     &finetune));
        tap_ok(record != NULL &&
                   finetune_read(finetune, record, &example) == ERR_DATA &&
                   strstr(err_text(), refusals[i].want) != NULL,
               "refused: %s", err_text());
        finetune_destroy(finetune);
        json_decref(record);
    }
    chat_template_destroy(template);
}

/* First-fit decreasing, as its definition has it. */
static void test_packing(void)
{
    enum { COUNT = 500 };
    for (uint64_t seed = 0; seed < 20; seed++) {
        int64_t length[COUNT], row[COUNT], want[COUNT], room[COUNT];
        int64_t rows = 0, want_rows = 0, seq_len = 10 + (int64_t)seed * 7;
        bool taken[COUNT] = { false };
        int64_t count = seed == 0 ? 1 : COUNT;
        for (int64_t i = 0; i < count; i++)
            length[i] = 1 + (int64_t)(rng_u64(seed, 1, (uint64_t)i) %
                                      (uint64_t)(seed % 2 == 0 ? seq_len : 9));
        for (int64_t i = 0; i < count; i++) {
            int64_t best = -1, r = 0;
            for (int64_t j = 0; j < count; j++)
                if (!taken[j] && (best < 0 || length[j] > length[best]))
                    best = j;
            taken[best] = true;
            while (r < want_rows && room[r] < length[best])
                r++;
            if (r == want_rows)
                room[want_rows++] = seq_len;
            room[r] -= length[best];
            want[best] = r;
        }
        fixture_need(pack_rows(length, count, seq_len, row, &rows));
        tap_ok(rows == want_rows &&
                   memcmp(row, want, (size_t)count * sizeof *row) == 0,
               "%d rows, as by the definition", (int)rows);
    }
}

static void write_lines(const char *path, int lines)
{
    FILE *file = fopen(path, "w");
    for (int i = 0; file != NULL && i < lines; i++)
        fprintf(file, "{\"prompt\": \"%0*d\", \"response\": \"%0*d\"}\n",
                1 + i % 13, i, 1 + i % 29, i);
    if (file == NULL || fclose(file) != 0)
        exit(1);
}

/* Every example is there once, whole, beside others in rows that are full. */
static void test_set(const char *folder, bool packing, double eval)
{
    char out[FSIO_PATH_MAX], in[FSIO_PATH_MAX];
    char *files[] = { in };
    struct tokenize_finetune_result result;
    struct dataset *dataset = NULL;
    int32_t tokens[64];
    int64_t found = 0, learned = 0, samples = 0;
    bool fits = true;
    snprintf(out, sizeof out, "%s/set%d%d", folder, packing, eval > 0);
    snprintf(in, sizeof in, "%s/lines.jsonl", folder);
    write_lines(in, 300);
    const struct tokenize_options set = { .out = out,
                                          .tokenizer = "bytes",
                                          .seq_len = 64,
                                          .shard_bytes = 4000,
                                          .eval_fraction = eval };
    const struct tokenize_finetune_options options = { .set = &set,
                                                       .rules = RULES(),
                                                       .packing = packing };
    fixture_need(tokenize_finetune(&options, files, 1, &result));
    tap_ok(result.records == 300 &&
               result.examples + result.eval_examples == 300 &&
               (eval > 0) == (result.eval_examples == 75),
           "all examples are kept");
    for (int part = 0; part < 1 + (eval > 0); part++) {
        char path[FSIO_PATH_MAX];
        fixture_need(fsio_path(path, "%s%s", out,
                               eval == 0   ? ""
                               : part == 0 ? "/train"
                                           : "/eval"));
        dataset = fixture_open(path);
        samples += dataset_contents(dataset)->samples;
        for (int64_t s = 0; s < dataset_contents(dataset)->samples; s++) {
            struct dataset_marks marks;
            int64_t length = 0, t = 0;
            fixture_need(
                dataset_read_marked(dataset, s, tokens, 64, &length, &marks));
            fits = fits && length <= 64 && marks.loss_mask.count == length &&
                   (packing || marks.lengths.count == 1);
            for (int64_t d = 0; d < marks.lengths.count; d++) {
                int32_t count;
                memcpy(&count, marks.lengths.data + 4 * d, sizeof count);
                fits = fits && tokens[t + count - 1] == 256 &&
                       marks.loss_mask.data[t] == 0;
                t += count;
            }
            for (t = 0; t < length; t++)
                learned += marks.loss_mask.data[t];
            found += marks.lengths.count;
        }
        dataset_close(dataset);
    }
    tap_ok(fits && found == 300 && learned == result.learned,
           "... and lie in their samples, packed %d", packing);
    tap_is_int(samples, result.samples + result.eval_samples, "samples");
    if (!packing)
        tap_is_int(samples, 300, "one for each");
    else
        tap_ok((double)result.tokens > 0.9 * 64 * (double)samples,
               "%d rows are nearly full", (int)samples);
}

static void test_set_failures(const char *folder)
{
    char out[FSIO_PATH_MAX], in[FSIO_PATH_MAX];
    char *files[] = { in };
    struct tokenize_finetune_result result;
    snprintf(out, sizeof out, "%s/none", folder);
    snprintf(in, sizeof in, "%s/bad.jsonl", folder);
    const struct tokenize_options set = {
        .out = out, .tokenizer = "bytes", .seq_len = 4, .shard_bytes = 4000
    };
    struct tokenize_finetune_options options = { .set = &set,
                                                 .rules = RULES() };
    static const struct {
        const char *text, *want;
    } cases[] = {
        { "{\"prompt\": \"a\", \"response\": \"b\"}\n\n{\"prompt\": 1}\n",
          "bad.jsonl:3: 'prompt' has to be a text" },
        { "", "no record" },
        { "{\"prompt\": \"aaaa\", \"response\": \"b\"}", "none of 1" },
        { "{\"prompt\": \"\\u0000\", \"response\": \"b\"}", "bad.jsonl:1" },
        { "{\"prompt\": \"\xff\", \"response\": \"b\"}", "bad.jsonl:1" },
        { "{\"prompt\": \"a\", \"prompt\": \"a\", \"response\": \"b\"}",
          "bad.jsonl:1" },
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        fixture_write_file(in, cases[c].text, strlen(cases[c].text));
        tap_ok(tokenize_finetune(&options, files, 1, &result) == ERR_DATA &&
                   strstr(err_text(), cases[c].want) != NULL &&
                   access(out, F_OK) != 0,
               "nothing is left: %s", err_text());
    }
}

int main(void)
{
    const char *folder = tap_folder();
    fixture_need(tokenizer_create("bytes", &tokenizer));
    test_examples();
    test_unused();
    test_refusals();
    test_packing();
    test_set(folder, false, 0);
    test_set(folder, true, 0);
    test_set(folder, true, 0.25);
    test_set_failures(folder);
    tokenizer_destroy(tokenizer);
    return tap_done();
}
