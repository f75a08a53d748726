/* Gauntlets: what is wrong with a file, what is missing, and the scores of
 * every weighting against their formulas. */
#include "src/eval/gauntlet.h"

#include <sys/stat.h>

#include "src/base/array.h"
#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/eval/eval_report.h"
#include "tests/data_fixture.h"
#include "tests/quotes.h"

#define NEED fixture_need
#define POSITIONS 64

static const char *folder;
static struct tokenizer *tokenizer;

#define TASKS                                                                  \
    "tasks = ({ label = 'a'; file = 'a.jsonl'; kind = "                        \
    "'language_modeling'; shots = [0, 1]; },"                                  \
    "{ label = 'b'; file = 'b.jsonl'; kind = 'language_modeling'; "            \
    "continuation_delimiter = '\\n'; seed = 5; },"                             \
    "{ label = 'gone'; file = 'gone.jsonl'; kind = 'schema'; },"               \
    "{ label = 'far'; file = 'far.jsonl'; kind = 'schema'; });"
#define CATEGORIES                                                             \
    "categories = ("                                                           \
    "{ name = 'one'; benchmarks = ("                                           \
    "{ name = 'a'; shots = 1; random_baseline = 0.25; },"                      \
    "{ name = 'b'; shots = 0; random_baseline = 0; }); },"                     \
    "{ name = 'two'; benchmarks = ("                                           \
    "{ name = 'a'; shots = 0; random_baseline = 0.5; }); },"                   \
    "{ name = 'three'; benchmarks = ("                                         \
    "{ name = 'b'; shots = 0; random_baseline = 0.5; },"                       \
    "{ name = 'gone'; shots = 0; random_baseline = 0.5; }); });"

static enum err read_text(const char *text, struct gauntlet **out)
{
    const char *path = fixture_path(folder, "test.conf");
    fixture_write_file(path, text, strlen(text));
    return gauntlet_read(path, NULL, 1234, out);
}

static const struct {
    const char *text, *want;
} bad[] = {
    { "", "'tasks' is missing" },
    { "tasks = (", "syntax error" },
    { "tasks = ();", "none of the tasks' files" },
    { "tasks = 5;", "line 1: 'tasks' has to be a list" },
    { "@include '/tmp'\n", "give a path relative to" },
    { "@include '.'\n", "is a folder" },
    { "@include 'none.conf'\n", "none.conf: No such file" },
    { "tasks = ({ label = 'a'; file = 'a.jsonl'; kind = 'schema'; shots = "
      "4294967297; });",
      "needs the suffix L" },
    { "tasks = ('", "the string that begins here has no end" },
    { "tasks = (5);", "a group in braces" },
    { "\ntask = ();", "line 2: 'task' is not known here" },
    { "tasks = ({ label = 'a'; kind = 'schema'; });", "'file' is missing" },
    { "tasks = ({ label = 'a'; file = 'a.jsonl'; kind = 'magic'; });",
      "no kind of task is called 'magic'" },
    { "tasks = ({ label = 'a'; file = 'a.jsonl'; kind = 1; });",
      "no kind of task is called ''" },
    { "tasks = ({ label = 1; file = 'a.jsonl'; kind = 'schema'; });",
      "'label' has to be a text" },
    { "tasks = ({ label = 'a'; file = 'a.jsonl'; kind = 'schema'; shots = "
      "[-1]; });",
      "'shots' has to be whole numbers" },
    { "tasks = ({ label = 'a'; file = 'a.jsonl'; kind = 'schema'; shots = []; "
      "});",
      "'shots' has to list" },
    { "tasks = ({ label = 'a'; file = 'a.jsonl'; kind = 'schema'; seed = -1; "
      "});",
      "'seed' has to be a whole number" },
    { "tasks = ({ label = 'a'; file = 'a.jsonl'; kind = 'schema'; "
      "early_stopping_criteria = [1]; });",
      "texts in quotes" },
    { "tasks = ({ label = 'a'; file = 'a.jsonl'; kind = 'schema'; "
      "strip_dataset = 1; });",
      "'strip_dataset' has to be true or false" },
    { "weighting = 'HEAVY'; " TASKS, "EQUAL, SAMPLE_SZ" },
    { "weighting = 1; " TASKS, "'weighting' has to be a text" },
    { "subtract_random_baseline = false; " TASKS, "'rescale_accuracy' needs" },
    { TASKS "categories = ({ name = 'x'; benchmarks = (); });",
      "a category needs benchmarks" },
    { TASKS "categories = ({ name = 'x'; benchmarks = ({ name = 'a'; shots = "
            "0; random_baseline = 1; }); });",
      "'random_baseline' has to be in [0, 1)" },
    { TASKS CATEGORIES "averages = ({ name = 'one'; categories = []; });",
      "'one' is a category's name already" },
    { TASKS CATEGORIES "averages = ({ name = 'all'; categories = ['four']; });",
      "there is no category 'four'" },
};

static void test_bad(void)
{
    struct gauntlet *gauntlet = NULL;
    for (size_t b = 0; b < sizeof bad / sizeof bad[0]; b++) {
        enum err rc = read_text(quoted(bad[b].text), &gauntlet);
        tap_ok(rc != ERR_OK && strstr(err_text(), bad[b].want) != NULL &&
                   strstr(err_text(), "test.conf") != NULL,
               "refused: %s", err_text());
    }
    tap_ok(gauntlet_read(fixture_path(folder, "none.conf"), NULL, 0,
                         &gauntlet) == ERR_USAGE,
           "%s", err_text());
    const char *pipe = fixture_path(folder, "pipe.conf");
    NEED(mkfifo(pipe, 0600) == 0 ? ERR_OK : err_errno("%s", pipe));
    tap_ok(gauntlet_read(pipe, NULL, 0, &gauntlet) == ERR_USAGE,
           "a pipe is not waited for: %s", err_text());
    tap_ok(gauntlet_read(folder, NULL, 0, &gauntlet) == ERR_USAGE, "%s",
           err_text());
}

/* libconfig takes time with the square of the members of a group. */
static void test_many(void)
{
    struct gauntlet *gauntlet = NULL;
    struct buffer text = { 0 };
    char line[32];
    for (int i = 0; i < 20000; i++) {
        snprintf(line, sizeof line, "a%d = 1;\n", i);
        NEED(buffer_add(&text, line, strlen(line)));
    }
    NEED(buffer_add(&text, "", 1));
    double begin = clock_now();
    enum err rc = read_text((const char *)text.data, &gauntlet);
    tap_ok(rc == ERR_USAGE && strstr(err_text(), "settings") != NULL &&
               clock_now() - begin < 1,
           "refused at once: %s", err_text());
    buffer_free(&text);
}

/* Predicts "x" always. */
static enum err forward(void *self, const struct infer_tokens *list, int count)
{
    (void)self;
    for (int i = 0; i < count; i++)
        for (int64_t k = 0; k < list[i].wanted; k++) {
            if (list[i].argmax != NULL)
                list[i].argmax[k] = 'x';
            if (list[i].nll != NULL)
                list[i].nll[k] = 1;
        }
    return ERR_OK;
}

static void cut(void *self, int64_t slot, int64_t length)
{
    (void)self;
    (void)slot;
    (void)length;
}

static struct icl_set *score(const struct gauntlet *gauntlet)
{
    const struct icl_model model = { NULL,    2,   POSITIONS, POSITIONS,
                                     forward, cut, NULL };
    const struct icl_set_options options = { POSITIONS, 0 };
    struct icl_set *set = NULL;
    struct comm *comm = NULL;
    NEED(comm_create("self", NULL, NULL, 10, &comm));
    NEED(icl_set_create(gauntlet->tasks, gauntlet->task_count, tokenizer,
                        &options, NULL, &set));
    NEED(icl_set_score(set, &model, comm, NULL));
    comm_destroy(comm);
    return set;
}

/* a: 3 of 4 right, b: 1 of 10. */
static void write_files(void)
{
    char text[1024] = "";
    for (int i = 0; i < 4; i++)
        sprintf(text + strlen(text),
                "{\"context\": \"c\", \"continuation\": \"%s\"}\n",
                i > 0 ? "x" : "y");
    fixture_write_file(fixture_path(folder, "a.jsonl"), text, strlen(text));
    text[0] = '\0';
    for (int i = 0; i < 10; i++)
        sprintf(text + strlen(text),
                "{\"context\": \"c\", \"continuation\": \"%s\"}\n",
                i == 3 ? "x" : "y");
    fixture_write_file(fixture_path(folder, "b.jsonl"), text, strlen(text));
    static const char pointer[] =
        "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n";
    fixture_write_file(fixture_path(folder, "far.jsonl"), pointer,
                       strlen(pointer));
}

static void test_scores(void)
{
    static const struct {
        const char *settings;
        double one, two;
    } cases[] = {
        { "", (2.0 / 3 + 0.1) / 2, 0.5 },
        { "weighting = 'EQUAL'; rescale_accuracy = false;", (0.5 + 0.1) / 2,
          0.25 },
        { "rescale_accuracy = false; subtract_random_baseline = false;",
          (0.75 + 0.1) / 2, 0.75 },
        { "weighting = 'SAMPLE_SZ';", (2.0 / 3 * 4 + 0.1 * 10) / 14, 0.5 },
        { "weighting = 'LOG_SAMPLE_SZ';",
          (2.0 / 3 * 2 + 0.1 * 3.321928094887362) / 5.321928094887362, 0.5 },
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct gauntlet *gauntlet = NULL;
        char text[2048];
        snprintf(text, sizeof text, "%s%s", cases[c].settings,
                 TASKS CATEGORIES);
        NEED(read_text(quoted(text), &gauntlet));
        struct icl_set *set = score(gauntlet);
        gauntlet_score(gauntlet, set, 0);
        tap_is_int(gauntlet->task_count, 3, "tasks whose files are there");
        tap_is_close(gauntlet->categories[0].score, cases[c].one, 1e-12,
                     "a category of two, %s", cases[c].settings);
        tap_is_close(gauntlet->categories[1].score, cases[c].two, 1e-12,
                     "a category of one");
        tap_ok(gauntlet->categories[2].missing, "one is left out");
        const struct gauntlet_average *average = &gauntlet->averages[0];
        tap_ok(gauntlet->average_count == 1 && average->there == 2 &&
                   fabs(average->score - (cases[c].one + cases[c].two) / 2) <
                       1e-12,
               "the average of those that are there");
        icl_set_destroy(set);
        gauntlet_destroy(gauntlet);
    }
}

/* What is missing is null, not 0. */
static void test_report(void)
{
    struct gauntlet *gauntlet = NULL;
    NEED(
        read_text(quoted(TASKS CATEGORIES
                         "averages = ({ name = 'none'; categories = ['three']; "
                         "}, { name = 'both'; categories = ['two', 'three']; "
                         "});"),
                  &gauntlet));
    tap_ok(gauntlet->tasks[2].seed == 5 && gauntlet->tasks[0].seed == 1234 &&
               gauntlet->tasks[1].shots == 1 &&
               strcmp(gauntlet->tasks[2].continuation_delimiter, "\n") == 0,
           "a task's options are its own");
    struct icl_set *set = score(gauntlet);
    gauntlet_score(gauntlet, set, 0);
    const struct eval_report report = { .tasks = gauntlet->tasks,
                                        .task_count = gauntlet->task_count,
                                        .set = set,
                                        .gauntlet = gauntlet };
    json_t *json = eval_report_json(&report);
    const char *name = NULL, *task = NULL;
    json_t *none, *category, *missing;
    double both = -1, accuracy = -1;
    int unpacked = json_unpack(
        json,
        "{s:{s:[{s:o}, {s:F, s:s}], s:[o, o, {s:o, s:[o, {s:o}]}]}, "
        "s:[o, o, {s:s, s:F}]}",
        "gauntlet", "averages", "score", &none, "score", &both, "average",
        &name, "categories", &missing, &missing, "score", &category,
        "benchmarks", &missing, "accuracy", &missing, "tasks", &missing,
        &missing, "task", &task, "accuracy", &accuracy);
    tap_is_int(unpacked, 0, "the report has its fields");
    tap_ok(unpacked == 0 && json_is_null(none) && json_is_null(category) &&
               both == 0.5 && strcmp(name, "both") == 0 &&
               strcmp(task, "b") == 0 && accuracy == 0.1,
           "and what is missing in it is null");
    json_decref(json);
    icl_set_destroy(set);
    gauntlet_destroy(gauntlet);
}

/* The one that comes with the sources: of its files one is there. */
static void test_v0_3(void)
{
    struct gauntlet *gauntlet = NULL;
    char text[64];
    snprintf(text, sizeof text, "{\"query\": 1}\n");
    NEED(fsio_mkdirs(fixture_path(folder, "commonsense_reasoning")));
    fixture_write_file(fixture_path(folder, "commonsense_reasoning/piqa.jsonl"),
                       text, strlen(text));
    NEED(
        gauntlet_read("jobs/conf/gauntlet-v0.3.conf", folder, 1234, &gauntlet));
    int benchmarks = 0;
    for (int c = 0; c < gauntlet->category_count; c++)
        benchmarks += gauntlet->categories[c].count;
    tap_ok(gauntlet->task_count == 1 &&
               gauntlet->tasks[0].kind == ICL_MULTIPLE_CHOICE &&
               strcmp(gauntlet->tasks[0].continuation_delimiter,
                      "\nAnswer: ") == 0,
           "version 0.3 has piqa");
    tap_ok(gauntlet->category_count == 5 && benchmarks == 31 &&
               gauntlet->average_count == 1 && gauntlet->averages[0].count == 5,
           "31 benchmarks in 5 categories, one average");
    gauntlet_destroy(gauntlet);
}

int main(void)
{
    log_set_level(LOG_ERROR);
    folder = tap_folder();
    NEED(tokenizer_create("bytes", &tokenizer));
    write_files();
    test_bad();
    test_many();
    test_scores();
    test_report();
    test_v0_3();
    tokenizer_destroy(tokenizer);
    return tap_done();
}
