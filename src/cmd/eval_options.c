/* Reads the command line of tessera-eval. */
#include "src/cmd/eval_options.h"
#include "src/cmd/cmd_main.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#define SHARE_MAX 100000 /* slots, threads */

/* A compiler need not take longer texts than 4095 bytes. */
static const char *const usage[] = {
    "usage: tessera-eval MODEL --task KIND:FILE[:SHOTS] [OPTION]...\n"
    "       tessera-eval MODEL --gauntlet FILE [--data DIR] [OPTION]...\n"
    "       tessera-eval MODEL --perplexity DATASET [OPTION]...\n"
    "       tessera-eval --help | --version\n"
    "\n"
    "Scores a model: a checkpoint, a run directory, a Hugging Face folder or "
    "a\n"
    "GGUF file. Under mpirun or srun the ranks share the examples; the result\n"
    "is the same to the bit.\n"
    "  --task KIND:FILE[:SHOTS]  examples as JSON lines, SHOTS of them before\n"
    "                     each: language_modeling, multiple_choice, schema,\n"
    "                     generation_task_with_answers\n"
    "  --gauntlet FILE    its tasks, and scores of its categories\n"
    "  --data DIR         where the gauntlet's files are (where it is itself)\n"
    "  --perplexity DATASET  of a data set that tessera-data made; this and\n"
    "                     --task may be given several times\n"
    "  --limit N          the first N examples of each task, or samples\n"
    "  --seed N           of the choice of shots (1234)\n"
    "  --batch N          examples that are computed together (8)\n"
    "  --weights fp32 | bf16 | int8  as what they are computed with (fp32)\n"
    "  --threads N        (as many as processors)\n"
    "  --max-seq-len N    tokens of a prompt (what the model takes)\n"
    "  --tokenizer FILE   instead of the model's own\n"
    "\n",
    "results:\n"
    "  --json             one object, instead of a table\n"
    "  --out FILE         write that object there, too\n"
    "  --examples FILE    tokens, scores and verdict of each example, as JSON\n"
    "                     lines\n"
    "  --dry-run          only make the prompts, for --examples\n"
    "\n"
    "of all tasks of --task, as they are written ($'\\n' is a line's end):\n"
    "  --prompt-string TEXT           before everything\n"
    "  --prelimiter TEXT              before each context\n"
    "  --example-delimiter TEXT       between examples (a line's end)\n"
    "  --continuation-delimiter TEXT  behind a context (a blank)\n"
    "  --cot-delimiter TEXT           between thoughts and answer\n"
    "  --stop REGEX       what ends a generated text; may be repeated\n"
    "  --no-normalization  compare generated texts as they are\n"
    "  --no-strip         leave white space around fields\n"
    "  --categories       score each value of the field 'category' by itself\n"
    "\n"
    "exit codes: 0 done; 64 usage, or a path that names nothing; 75 try again, "
    "or\n"
    "there is no room; 93 damaged or unsupported data\n",
};

void eval_options_usage(FILE *out)
{
    for (size_t i = 0; i < sizeof usage / sizeof usage[0]; i++)
        fputs(usage[i], out);
}

enum key {
    KEY_TASK = 256,
    KEY_GAUNTLET,
    KEY_DATA,
    KEY_PERPLEXITY,
    KEY_LIMIT,
    KEY_SEED,
    KEY_BATCH,
    KEY_WEIGHTS,
    KEY_THREADS,
    KEY_MAX_SEQ_LEN,
    KEY_TOKENIZER,
    KEY_JSON,
    KEY_OUT,
    KEY_EXAMPLES,
    KEY_DRY_RUN,
    KEY_OF_TASKS, /* from here on */
    KEY_PROMPT_STRING,
    KEY_PRELIMITER,
    KEY_EXAMPLE_DELIMITER,
    KEY_CONTINUATION_DELIMITER,
    KEY_COT_DELIMITER,
    KEY_STOP,
    KEY_NO_NORMALIZATION,
    KEY_NO_STRIP,
    KEY_CATEGORIES
};

static const struct option options[] = {
    { "task", required_argument, NULL, KEY_TASK },
    { "gauntlet", required_argument, NULL, KEY_GAUNTLET },
    { "data", required_argument, NULL, KEY_DATA },
    { "perplexity", required_argument, NULL, KEY_PERPLEXITY },
    { "limit", required_argument, NULL, KEY_LIMIT },
    { "seed", required_argument, NULL, KEY_SEED },
    { "batch", required_argument, NULL, KEY_BATCH },
    { "weights", required_argument, NULL, KEY_WEIGHTS },
    { "threads", required_argument, NULL, KEY_THREADS },
    { "max-seq-len", required_argument, NULL, KEY_MAX_SEQ_LEN },
    { "tokenizer", required_argument, NULL, KEY_TOKENIZER },
    { "json", no_argument, NULL, KEY_JSON },
    { "out", required_argument, NULL, KEY_OUT },
    { "examples", required_argument, NULL, KEY_EXAMPLES },
    { "dry-run", no_argument, NULL, KEY_DRY_RUN },
    { "prompt-string", required_argument, NULL, KEY_PROMPT_STRING },
    { "prelimiter", required_argument, NULL, KEY_PRELIMITER },
    { "example-delimiter", required_argument, NULL, KEY_EXAMPLE_DELIMITER },
    { "continuation-delimiter", required_argument, NULL,
      KEY_CONTINUATION_DELIMITER },
    { "cot-delimiter", required_argument, NULL, KEY_COT_DELIMITER },
    { "stop", required_argument, NULL, KEY_STOP },
    { "no-normalization", no_argument, NULL, KEY_NO_NORMALIZATION },
    { "no-strip", no_argument, NULL, KEY_NO_STRIP },
    { "categories", no_argument, NULL, KEY_CATEGORIES },
    { NULL, 0, NULL, 0 },
};

static enum err whole(const char *name, int64_t least, int64_t most,
                      int64_t *out)
{
    char *end;
    errno = 0;
    long long value = strtoll(optarg, &end, 10);
    if (errno != 0 || *end != '\0' || end == optarg || value < least ||
        value > most)
        return err_set(ERR_USAGE,
                       "--%s takes a whole number of %lld to %lld, not '%s'",
                       name, (long long)least, (long long)most, optarg);
    *out = value;
    return ERR_OK;
}

static enum err choose_weights(struct eval_options *out)
{
    out->weights_given = true;
    for (int w = 0; infer_weights_names[w] != NULL; w++)
        if (strcmp(optarg, infer_weights_names[w]) == 0) {
            out->weights = (enum infer_weights)w;
            return ERR_OK;
        }
    return err_set(ERR_USAGE, "--weights takes fp32, bf16 or int8, not '%s'",
                   optarg);
}

/* An option of the tasks. */
static enum err set_of_tasks(int key, struct icl_task *task)
{
    int stops = 0;
    switch (key) {
    case KEY_PROMPT_STRING:
        task->prompt_string = optarg;
        return ERR_OK;
    case KEY_PRELIMITER:
        task->prelimiter = optarg;
        return ERR_OK;
    case KEY_EXAMPLE_DELIMITER:
        task->example_delimiter = optarg;
        return ERR_OK;
    case KEY_CONTINUATION_DELIMITER:
        task->continuation_delimiter = optarg;
        return ERR_OK;
    case KEY_COT_DELIMITER:
        task->cot_delimiter = optarg;
        return ERR_OK;
    case KEY_NO_NORMALIZATION:
        task->normalize = false;
        return ERR_OK;
    case KEY_NO_STRIP:
        task->strip = false;
        return ERR_OK;
    case KEY_CATEGORIES:
        task->categories = true;
        return ERR_OK;
    default:
        while (task->stops[stops] != NULL)
            stops++;
        if (stops == ICL_STOPS_MAX)
            return err_set(ERR_USAGE, "--stop is given more than %d times",
                           ICL_STOPS_MAX);
        task->stops[stops] = optarg;
        return ERR_OK;
    }
}

static enum err add_task(struct eval_options *out)
{
    if (out->task_count == EVAL_TASKS_MAX)
        return err_set(ERR_USAGE, "more than %d tasks", EVAL_TASKS_MAX);
    return icl_task_parse(optarg, &out->tasks[out->task_count++]);
}

static enum err add_dataset(struct eval_options *out)
{
    if (out->dataset_count == EVAL_DATASETS_MAX)
        return err_set(ERR_USAGE, "more than %d data sets", EVAL_DATASETS_MAX);
    out->datasets[out->dataset_count++] = optarg;
    return ERR_OK;
}

static enum err set(int key, const char *name, struct eval_options *out)
{
    int64_t number = 0;
    switch (key) {
    case KEY_TASK:
        return add_task(out);
    case KEY_PERPLEXITY:
        return add_dataset(out);
    case KEY_GAUNTLET:
        out->gauntlet = optarg;
        return ERR_OK;
    case KEY_DATA:
        out->data = optarg;
        return ERR_OK;
    case KEY_LIMIT:
        return whole(name, 1, INT64_MAX, &out->limit);
    case KEY_SEED:
        TRY(whole(name, 0, INT64_MAX, &number));
        out->seed = (uint64_t)number;
        return ERR_OK;
    case KEY_BATCH:
        return whole(name, 1, SHARE_MAX, &out->batch);
    case KEY_WEIGHTS:
        return choose_weights(out);
    case KEY_THREADS:
        TRY(whole(name, 1, SHARE_MAX, &number));
        out->threads = (int)number;
        return ERR_OK;
    case KEY_MAX_SEQ_LEN:
        return whole(name, 2, INT32_MAX, &out->max_seq_len);
    case KEY_TOKENIZER:
        out->tokenizer = optarg;
        return ERR_OK;
    case KEY_JSON:
        out->json = true;
        return ERR_OK;
    case KEY_OUT:
        out->out = optarg;
        return ERR_OK;
    case KEY_EXAMPLES:
        out->examples = optarg;
        return ERR_OK;
    default:
        out->dry_run = true;
        return ERR_OK;
    }
}

static enum err check(const struct eval_options *out, const char *of_tasks)
{
    bool scores = out->task_count > 0 || out->gauntlet != NULL;
    if (!scores && out->dataset_count == 0)
        return err_set(ERR_USAGE, "nothing to evaluate: give --task, "
                                  "--gauntlet or --perplexity");
    if (out->data != NULL && out->gauntlet == NULL)
        return err_set(ERR_USAGE, "--data is for --gauntlet");
    if (of_tasks != NULL && out->task_count == 0)
        return err_set(ERR_USAGE, "--%s is for --task", of_tasks);
    if (out->examples != NULL && !scores)
        return err_set(ERR_USAGE, "--examples is for --task and --gauntlet");
    if (out->dry_run && out->examples == NULL)
        return err_set(ERR_USAGE, "--dry-run is for --examples FILE");
    if (out->dry_run && (out->dataset_count > 0 || out->json || out->out))
        return err_set(ERR_USAGE, "--dry-run makes prompts alone: leave out "
                                  "--perplexity, --json and --out");
    if (out->dataset_count > 0 && out->weights_given &&
        out->weights != INFER_F32)
        return err_set(ERR_USAGE,
                       "--perplexity is computed with fp32 weights, as "
                       "training does: leave out --weights %s",
                       infer_weights_names[out->weights]);
    return ERR_OK;
}

enum err eval_options_parse(int argc, char **argv, struct eval_options *out)
{
    int key, index = 0;
    const char *of_tasks = NULL;
    struct icl_task task;
    icl_task_default(&task);
    *out = (struct eval_options){ .batch = 8, .seed = task.seed };
    opterr = 0;
    optind = 1;
    while ((key = getopt_long(argc, argv, ":", options, &index)) != -1) {
        if (key == '?')
            return cmd_main_no_option("no option ", argv[optind - 1], options);
        if (key == ':')
            return err_set(ERR_USAGE, "%s needs a value; see --help",
                           argv[optind - 1]);
        if (key > KEY_OF_TASKS)
            of_tasks = options[index].name;
        TRY(key > KEY_OF_TASKS ? set_of_tasks(key, &task)
                               : set(key, options[index].name, out));
    }
    if (optind == argc)
        return err_set(ERR_USAGE, "MODEL is missing; see --help");
    if (optind + 1 != argc)
        return err_set(ERR_USAGE,
                       "'%s': one MODEL at a time; give --task and "
                       "--perplexity again before each of their values",
                       argv[optind + 1]);
    out->model = argv[optind];
    /* each has its own kind, file and shots, and all have the rest */
    for (int t = 0; t < out->task_count; t++) {
        const struct icl_task own = out->tasks[t];
        out->tasks[t] = task;
        out->tasks[t].kind = own.kind;
        out->tasks[t].file = own.file;
        out->tasks[t].shots = own.shots;
        out->tasks[t].seed = out->seed;
    }
    return check(out, of_tasks);
}
