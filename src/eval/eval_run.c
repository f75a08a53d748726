/* Tasks, gauntlets and perplexity of one model on all ranks, and their report.
 *
 * Nothing is computed before all that can be wrong was looked at: files are read,
 * prompts made, outputs begun. Every step ends with all ranks agreeing, so that
 * they fail together and by the name of the first mistake. Results are counts and
 * sums that each rank has; rank 0 shows them. */
#include <stdlib.h>
#include <string.h>

#include "src/base/err.h"
#include "src/base/jsontext.h"
#include "src/base/new.h"
#include "src/base/output.h"
#include "src/comm/comm.h"
#include "src/eval/eval_model.h"
#include "src/eval/eval_report.h"
#include "src/eval/gauntlet.h"
#include "src/eval/icl_score.h"
#include "src/eval/perplexity.h"

struct eval {
    const struct eval_options *options;
    struct comm *comm;
    struct eval_model model;
    struct gauntlet *gauntlet;
    struct icl_task *tasks; /* of --task, then the gauntlet's */
    int task_count;
    struct icl_set *set;
    struct output out, examples; /* rank 0's */
    FILE *nowhere;               /* examples of others */
    struct perplexity perplexities[EVAL_DATASETS_MAX];
};

static enum err open_tasks(struct eval *eval)
{
    const struct eval_options *options = eval->options;
    int more = 0;
    if (options->gauntlet != NULL) {
        TRY(gauntlet_read(options->gauntlet, options->data, options->seed,
                          &eval->gauntlet));
        more = eval->gauntlet->task_count;
    }
    eval->task_count = options->task_count + more;
    TRY(new_zeroed(&eval->tasks, (size_t)eval->task_count + 1));
    memcpy(eval->tasks, options->tasks,
           (size_t)options->task_count * sizeof eval->tasks[0]);
    if (more > 0)
        memcpy(eval->tasks + options->task_count, eval->gauntlet->tasks,
               (size_t)more * sizeof eval->tasks[0]);
    return ERR_OK;
}

/* Begins both files, which are none of those that are read. Examples of ranks
 * but the first go nowhere, of which they need to know. */
static enum err open_outputs(struct eval *eval)
{
    enum err rc = ERR_OK;
    const struct eval_options *options = eval->options;
    size_t count = 0;
    if (comm_rank(eval->comm) != 0) {
        eval->nowhere =
            options->examples != NULL ? fopen("/dev/null", "we") : NULL;
        return options->examples == NULL || eval->nowhere != NULL
                   ? ERR_OK
                   : err_errno("/dev/null");
    }
    const char **inputs = NULL;
    TRY(new_zeroed(&inputs, (size_t)eval->task_count + EVAL_DATASETS_MAX + 4));
    for (int t = 0; t < eval->task_count; t++)
        inputs[count++] = eval->tasks[t].file;
    for (int d = 0; d < options->dataset_count; d++)
        inputs[count++] = options->datasets[d];
    inputs[count++] = options->model;
    inputs[count++] = options->gauntlet;
    inputs[count++] = options->tokenizer;
    if (options->out != NULL)
        TRY_OUT(output_begin(options->out, inputs, count, &eval->out));
    inputs[count++] = options->out;
    if (options->examples != NULL)
        TRY_OUT(
            output_begin(options->examples, inputs, count, &eval->examples));
out:
    free(inputs);
    return rc;
}

/* NULL: nobody asked for lines. */
static FILE *examples_file(const struct eval *eval)
{
    return comm_rank(eval->comm) == 0 ? eval->examples.file : eval->nowhere;
}

/* Before anything is computed. */
static enum err find_datasets(const struct eval_options *options)
{
    for (int d = 0; d < options->dataset_count; d++) {
        const char *path = options->datasets[d];
        if (strstr(path, "://") == NULL && !fsio_exists(path))
            return err_set(ERR_USAGE, "%s: no such data set", path);
    }
    return ERR_OK;
}

static enum err open_all(struct eval *eval)
{
    const struct eval_options *options = eval->options;
    TRY(find_datasets(options));
    TRY(open_tasks(eval));
    TRY(eval_model_open(options, eval->comm, &eval->model));
    const struct icl_set_options set = { eval->model.max_seq_len,
                                         options->limit };
    TRY(open_outputs(eval));
    if (eval->task_count == 0)
        return ERR_OK;
    return icl_set_create(eval->tasks, eval->task_count, eval->model.tokenizer,
                          &set, options->dry_run ? examples_file(eval) : NULL,
                          &eval->set);
}

static enum err score_tasks(struct eval *eval)
{
    const struct eval_options *options = eval->options;
    if (eval->set == NULL)
        return ERR_OK;
    TRY(icl_set_score(eval->set, &eval->model.icl, eval->comm,
                      examples_file(eval)));
    if (eval->gauntlet != NULL)
        gauntlet_score(eval->gauntlet, eval->set, options->task_count);
    return ERR_OK;
}

static enum err measure_perplexity(struct eval *eval)
{
    const struct eval_model *model = &eval->model;
    for (int d = 0; d < eval->options->dataset_count; d++) {
        const struct perplexity_options options = {
            .config = &model->about->config,
            .params = model->ranks.params,
            .spread = model->ranks.spread,
            .kernels = model->ranks.kernels,
            .ctx = &model->ranks.ctx,
            .seq_len = eval->options->max_seq_len,
            .limit = eval->options->limit,
            .tokenizer = model->tokenizer,
        };
        TRY(perplexity_measure(eval->options->datasets[d], &options, eval->comm,
                               &eval->perplexities[d]));
    }
    return ERR_OK;
}

static void keep_first(struct err_kept *kept, enum err rc)
{
    if (kept->code == ERR_OK)
        err_keep(kept, rc);
}

/* Rank 0's: what was computed is shown first, for any of the files may fail. */
static enum err report(struct eval *eval)
{
    struct err_kept failure = { .code = ERR_OK };
    const struct eval_options *options = eval->options;
    const struct eval_report what = {
        .tasks = eval->tasks,
        .task_count = eval->task_count,
        .set = eval->set,
        .datasets = options->datasets,
        .perplexities = eval->perplexities,
        .dataset_count = options->dataset_count,
        .gauntlet = eval->gauntlet,
    };
    char *text = NULL;
    json_t *json = eval_report_json(&what);
    TRY(jsontext_make(json, 2, &text));
    if (options->json)
        fputs(text, stdout);
    else
        eval_report_print(&what, stdout);
    if (fflush(stdout) != 0 || ferror(stdout))
        keep_first(&failure, err_errno("standard output"));
    if (eval->out.file != NULL)
        fputs(text, eval->out.file);
    keep_first(&failure, output_end(&eval->out, false));
    keep_first(&failure, output_end(&eval->examples, false));
    free(text);
    json_decref(json);
    return err_again(&failure);
}

static enum err evaluate(struct eval *eval)
{
    struct comm *comm = eval->comm;
    TRY(comm_agree(comm, open_all(eval)));
    /* all have tasks or none, since it is said on the command line */
    if (eval->set != NULL)
        TRY(icl_set_agree(eval->set, comm));
    if (!eval->options->dry_run) {
        TRY(eval_model_load(&eval->model, eval->set != NULL
                                              ? icl_set_positions(eval->set)
                                              : 0));
        TRY(score_tasks(eval));
        TRY(measure_perplexity(eval));
    }
    if (comm_rank(comm) != 0)
        return ERR_OK;
    return eval->options->dry_run ? output_end(&eval->examples, false)
                                  : report(eval);
}

enum err eval_run(const struct eval_options *options, struct comm *comm)
{
    struct eval *eval = NULL;
    TRY(new_zeroed(&eval, 1));
    eval->options = options;
    eval->comm = comm;
    enum err rc = evaluate(eval);
    output_drop(&eval->out);
    output_drop(&eval->examples);
    if (eval->nowhere != NULL)
        fclose(eval->nowhere);
    icl_set_destroy(eval->set);
    free(eval->tasks);
    gauntlet_destroy(eval->gauntlet);
    if (rc != ERR_COMM) /* the ranks are not all there to close it */
        eval_model_close(&eval->model);
    free(eval);
    return rc;
}
