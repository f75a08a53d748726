/* The options of tessera-eval. */
#include "src/eval/eval_options.h"

#define SHARE_MAX 100000 /* slots, threads */

static enum err add_task(void *into, char *text)
{
    struct eval_options *out = into;
    if (out->task_count == EVAL_TASKS_MAX)
        return err_set(ERR_USAGE, "more than %d tasks", EVAL_TASKS_MAX);
    return icl_task_parse(text, &out->tasks[out->task_count++]);
}

static const struct options_row rows[] = {
    OPTION_TAKE("task", "KIND:FILE[:SHOTS]", add_task,
                "examples as JSON lines, SHOTS of them before each: "
                "language_modeling, multiple_choice, schema, "
                "generation_task_with_answers"),
    OPTION_TEXT(struct eval_options, gauntlet, "gauntlet", "FILE",
                "its tasks, and scores of its categories"),
    OPTION_TEXT(struct eval_options, data, "data", "DIR",
                "where the gauntlet's files are (where it is itself)"),
    OPTION_TEXTS(struct eval_options, datasets, "perplexity", "DATASET",
                 "of a data set that tessera-data made; this and --task may "
                 "be given several times"),
    OPTION_WHOLE(struct eval_options, limit, "limit", "N", 1, INT64_MAX,
                 "the first N examples of each task, or samples"),
    OPTION_WHOLE(struct eval_options, seed, "seed", "N", 0, INT64_MAX,
                 "of the choice of shots (1234)"),
    OPTION_WHOLE(struct eval_options, batch, "batch", "N", 1, SHARE_MAX,
                 "examples that are computed together (8)"),
    OPTION_CHOICE(struct eval_options, weights, "weights", infer_weights_names,
                  "as what they are computed with (fp32)"),
    OPTION_CHOICE(struct eval_options, spread, "spread", spread_way_names,
                  "weights once a node, or a part on each rank (auto: node "
                  "if it has room)"),
    OPTION_CHOICE(struct eval_options, backend, "backend", infer_backend_names,
                  "what computes (cpu)"),
    OPTION_WHOLE(struct eval_options, threads, "threads", "N", 1, SHARE_MAX,
                 "(as many as processors)"),
    OPTION_WHOLE(struct eval_options, max_seq_len, "max-seq-len", "N", 2,
                 INT32_MAX, "tokens of a prompt (what the model takes)"),
    OPTION_TEXT(struct eval_options, tokenizer, "tokenizer", "FILE",
                "a tokenizer.json or tokenizer.model, or bytes, instead of the "
                "model's own"),
    OPTION_HEADING("results:"),
    OPTION_FLAG(struct eval_options, json, "json",
                "one object, instead of a table"),
    OPTION_TEXT(struct eval_options, out, "out", "FILE",
                "write that object there, too"),
    OPTION_TEXT(struct eval_options, examples, "examples", "FILE",
                "tokens, scores and verdict of each example, as JSON lines"),
    OPTION_FLAG(struct eval_options, dry_run, "dry-run",
                "only make the prompts, for --examples"),
    OPTION_HEADING("of all tasks of --task, as they are written ($'\\n' is a "
                   "line's end):"),
    OPTION_TEXT(struct eval_options, task.prompt_string, "prompt-string",
                "TEXT", "before everything"),
    OPTION_TEXT(struct eval_options, task.prelimiter, "prelimiter", "TEXT",
                "before each context"),
    OPTION_TEXT(struct eval_options, task.example_delimiter,
                "example-delimiter", "TEXT", "between examples (a line's end)"),
    OPTION_TEXT(struct eval_options, task.continuation_delimiter,
                "continuation-delimiter", "TEXT", "behind a context (a blank)"),
    OPTION_TEXT(struct eval_options, task.cot_delimiter, "cot-delimiter",
                "TEXT", "between thoughts and answer"),
    OPTION_TEXTS(struct eval_options, task.stops, "stop", "REGEX",
                 "what ends a generated text; may be repeated"),
    OPTION_OFF(struct eval_options, task.normalize, "no-normalization",
               "compare generated texts as they are"),
    OPTION_OFF(struct eval_options, task.strip, "no-strip",
               "leave white space around fields"),
    OPTION_FLAG(struct eval_options, task.categories, "categories",
                "score each value of the field 'category' by itself"),
    { 0 },
};

static const char *const task_options[] = {
    "prompt-string",     "prelimiter",
    "example-delimiter", "continuation-delimiter",
    "cot-delimiter",     "stop",
    "no-normalization",  "no-strip",
    "categories",        NULL
};

static const struct options_command commands[] = {
    { .operands = "MODEL",
      .rows = rows,
      .choice = "task|gauntlet|perplexity! *",
      .operands_max = -1 }
};

const struct options_program eval_options_program = {
    .name = "eval",
    .about = "Scores a model: a checkpoint, a run directory, a Hugging Face "
             "folder or a\nGGUF file. Under mpirun or srun the ranks share "
             "the examples; the result\nis the same to the bit.\n",
    .end = "exit codes: 0 done; 64 usage, or a path that names nothing; 75 try "
           "again, or\nthere is no room; 93 damaged or unsupported data\n",
    .bare = true,
    OPTIONS_COMMANDS(commands),
};

static enum err check(const struct options *options,
                      const struct eval_options *out)
{
    const char *of_tasks = NULL;
    for (int i = 0; task_options[i] != NULL; i++)
        if (options_given(options, task_options[i]))
            of_tasks = task_options[i];
    bool scores = out->task_count > 0 || out->gauntlet != NULL;
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
    if (out->dataset_count > 0 && options_given(options, "weights") &&
        out->weights != INFER_F32)
        return err_set(ERR_USAGE,
                       "--perplexity is computed with fp32 weights, as "
                       "training does: leave out --weights %s",
                       infer_weights_names[out->weights]);
    return ERR_OK;
}

void eval_options_default(struct eval_options *out)
{
    *out = (struct eval_options){ .batch = 8 };
    icl_task_default(&out->task);
    out->seed = out->task.seed;
}

enum err eval_options_check(const struct options *options)
{
    struct eval_options *out = options->into;
    if (options->operand_count == 0)
        return err_set(ERR_USAGE, "MODEL is missing; see --help");
    if (options->operand_count > 1)
        return err_set(ERR_USAGE,
                       "'%s': one MODEL at a time; give --task and "
                       "--perplexity again before each of their values",
                       options->operands[1]);
    out->model = options->operands[0];
    out->dataset_count = options_texts_count(out->datasets);
    /* each has its own kind, file and shots, and all have the rest */
    for (int t = 0; t < out->task_count; t++) {
        const struct icl_task own = out->tasks[t];
        out->tasks[t] = out->task;
        out->tasks[t].kind = own.kind;
        out->tasks[t].file = own.file;
        out->tasks[t].shots = own.shots;
        out->tasks[t].seed = out->seed;
    }
    return check(options, out);
}
