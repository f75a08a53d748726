/* Tasks, gauntlets and perplexity of one model on all ranks, and their report.
 *
 * Nothing is computed before all that can be wrong was looked at: files are read,
 * prompts made, outputs begun. Every step ends with all ranks agreeing, so that
 * they fail together and by the name of the first mistake. Results are counts and
 * sums that each rank has; rank 0 shows them. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "src/base/clock.h"
#include "src/base/err.h"
#include "src/base/jsontext.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/base/output.h"
#include "src/comm/comm.h"
#include "src/eval/eval_options.h"
#include "src/eval/eval_report.h"
#include "src/eval/gauntlet.h"
#include "src/eval/icl_score.h"
#include "src/formats/weights.h"
#include "src/model/params.h"
#include "src/text/tokenizer/tokenizer.h"

/* Tokens that are computed at a time. */
#define ROWS 512

struct eval_model {
    struct weights *weights;
    const struct weights_about *about; /* lent by weights */
    struct tokenizer *tokenizer;       /* NULL: the model has none */
    int64_t max_seq_len;
    int threads;
    /* from model_load() on */
    const struct kernels *kernels;
    struct params *params;
    struct weights_resident *resident;
    /* from model_start() on */
    struct infer *infer;
    struct icl_model icl;
};

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

/* --- the model: its tokenizer, by which all prompts are made and judged, the
 * weights in fp32, which perplexity needs, and the engine with a copy of them in
 * its own form; in three steps, since each costs more than the one before and may
 * be the last --- */

/* Programs that hide padding from attention hide it there, too. */
static enum err warn_of_padding(const struct eval_model *model)
{
    enum err rc = ERR_OK;
    int32_t pad = model->about->pad;
    struct token_list list = { 0 };
    struct tokenizer_encoder *encoder = NULL;
    TRY_OUT(tokenizer_encoder_create(model->tokenizer, &encoder));
    TRY_OUT(tokenizer_encode(encoder, (const uint8_t *)"", 0,
                             TOKENIZER_TEMPLATE, &list));
    if (pad >= 0 && list.count > 0 && list.token[0] == pad)
        log_warn("%s: token %d begins every prompt and is the one for padding, "
                 "too: LLM Foundry hides it from attention, so its scores "
                 "differ from these",
                 model->about->path, pad);
out:
    free(list.token);
    tokenizer_encoder_destroy(encoder);
    return rc;
}

static enum err model_tokenizer(const struct eval_options *options,
                                struct comm *comm, struct eval_model *model)
{
    TRY(weights_tokenizer_create(model->about, options->tokenizer,
                                 &model->tokenizer));
    bool needed = options->task_count > 0 || options->gauntlet != NULL;
    if (model->tokenizer == NULL && needed)
        return err_set(ERR_USAGE,
                       "%s: there is no tokenizer with the model: give its "
                       "tokenizer.json with --tokenizer FILE, or --tokenizer "
                       "bytes",
                       model->about->path);
    return needed && comm_rank(comm) == 0 ? warn_of_padding(model) : ERR_OK;
}

static enum err model_open(const struct eval_options *options,
                           struct comm *comm, struct eval_model *model)
{
    TRY(weights_open(options->model, &model->weights));
    model->about = weights_about(model->weights);
    const struct model_config *config = &model->about->config;
    model->max_seq_len =
        options->max_seq_len > 0 ? options->max_seq_len : config->max_seq_len;
    if (model->max_seq_len > config->max_seq_len &&
        config->positions == POSITIONS_LEARNED)
        return err_set(ERR_USAGE,
                       "--max-seq-len is %lld, and the model has %lld "
                       "positions",
                       (long long)model->max_seq_len,
                       (long long)config->max_seq_len);
    model->threads = options->threads > 0
                         ? options->threads
                         : kernels_threads_default(comm_local_size(comm));
    return model_tokenizer(options, comm, model);
}

static enum err model_load(struct eval_model *model)
{
    double begin = clock_now();
    assert(model->params == NULL);
    TRY(kernels_find("cpu", "auto", &model->kernels));
    TRY(params_create(&model->about->config, &model->params));
    TRY(weights_resident_create(model->weights, model->params, DTYPE_F32,
                                model->threads, &model->resident));
    log_info("%s read in %.1f s", model->about->path, clock_now() - begin);
    return ERR_OK;
}

static enum err forward(void *self, const struct infer_tokens *list, int count)
{
    struct eval_model *model = self;
    return infer_forward(model->infer, NULL, list, count);
}

static void cut(void *self, int64_t slot, int64_t length)
{
    struct eval_model *model = self;
    infer_cut(model->infer, slot, length);
}

static enum err model_start(struct eval_model *model,
                            const struct eval_options *options,
                            int64_t positions, bool alone)
{
    assert(positions > 0 && model->resident != NULL && model->infer == NULL);
    const struct infer_options infer = { .threads = model->threads,
                                         .sequences = options->batch,
                                         .positions = positions,
                                         .rows = ROWS };
    TRY(infer_create(&model->about->config, model->params, model->kernels,
                     &infer, &model->infer));
    TRY(infer_hold(model->infer, weights_resident_access(model->resident),
                   options->weights));
    if (alone) {
        weights_resident_destroy(model->resident);
        model->resident = NULL;
    }
    model->icl = (struct icl_model){ .self = model,
                                     .slots = options->batch,
                                     .positions = positions,
                                     .rows = INT64_MAX,
                                     .forward = forward,
                                     .cut = cut };
    return ERR_OK;
}

static void model_close(struct eval_model *model)
{
    infer_destroy(model->infer);
    weights_resident_destroy(model->resident);
    params_destroy(model->params);
    tokenizer_destroy(model->tokenizer);
    weights_close(model->weights);
}

/* --- all of it --- */

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
    TRY(model_open(options, eval->comm, &eval->model));
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
    TRY(comm_agree(eval->comm, model_start(&eval->model, options,
                                           icl_set_positions(eval->set),
                                           options->dataset_count == 0)));
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
            .params = model->params,
            .access = weights_resident_access(model->resident),
            .kernels = model->kernels,
            .threads = model->threads,
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
        TRY(comm_agree(comm, model_load(&eval->model)));
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
    model_close(&eval->model);
    free(eval);
    return rc;
}
