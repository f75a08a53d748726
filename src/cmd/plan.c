/* tessera-plan [CFG] [key=value ...]: what a run would need and how long it
 * would take, before anything is queued. It reads settings as tessera-train does
 * and judges them likewise, but starts nothing and needs neither data nor GPUs: what
 * is not there leaves its figures open. A configuration may be half done, one preset
 * is enough.
 *
 * That a run does not fit is a result, not an error: the figures are printed, and the
 * exit code says it, so that a script may ask before it submits a job. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "src/base/new.h"
#include "src/cmd/cmd_main.h"
#include "src/plan/plan.h"
#include "src/base/exit_code.h"
#include "src/train/start/start_weights.h"
#include "src/train/start/start_settings.h"

#define RANKS_MAX 65536
#define NODE_RANKS_MAX 1024
/* Hours of one GPU to a failure: 419 in 54 days on 16,384 (Llama 3). */
#define GPU_MTBF_H (54.0 * 24 * 16384 / 419)

/* "1T", "300B", "2.5e9" */
static enum err take_tokens(void *into, char *value)
{
    static const char letters[] = "KMBT";
    char *end = NULL;
    double number = strtod(value, &end);
    const char *letter = *end != '\0' ? strchr(letters, *end) : NULL;
    if (letter != NULL)
        number *= pow(1e3, (double)(letter - letters + 1));
    if (!(number >= 1 && number <= 1e18) || end[letter != NULL] != '\0')
        return err_set(ERR_USAGE, "--tokens takes 300B or 1T, not '%.64s'",
                       value);
    ((struct plan_options *)into)->tokens = number;
    return ERR_OK;
}

static const struct options_row rows[] = {
    OPTION_BYTES(struct plan_options, memory_bytes, "memory", "BYTES",
                 "memory of a rank: 80GiB; does it fit?"),
    OPTION_PATH(struct plan_options, gpu_name, "gpu", "NAME",
                "predict time and memory on a100-40, a100-80, h100-pcie, "
                "h100-sxm, h200, b200"),
    OPTION_WHOLE(struct plan_options, ranks, "ranks", "N", 1, RANKS_MAX,
                 "ranks of the job (1; with --gpu all of the nodes')"),
    OPTION_WHOLE(struct plan_options, nodes, "nodes", "N", 1, RANKS_MAX,
                 "nodes of the job (1; with --gpu as many as ranks need)"),
    OPTION_WHOLE(struct plan_options, node_ranks, "node-ranks", "N", 1,
                 NODE_RANKS_MAX,
                 "ranks of each node, the last has the rest "
                 "(as many on each)"),
    OPTION_REAL(struct plan_options, price, "price", "MONEY", OPTION_ABOVE_0,
                1e6, "of a GPU for an hour"),
    OPTION_TAKE("tokens", "N", take_tokens,
                "tokens of the run instead of train.max_duration: 300B, 1T"),
    OPTION_REAL(struct plan_options, rate, "rate", "N", OPTION_ABOVE_0, 1e18,
                "tokens per second of the job"),
    OPTION_REAL(
        struct plan_options, mfu, "mfu", "SHARE", OPTION_ABOVE_0, 1,
        "or the share of ranks x the GPU's peak, or hardware.peak_flops"),
    OPTION_REAL(struct plan_options, mtbf_h, "mtbf", "HOURS", OPTION_ABOVE_0,
                1e9, "mean time between failures of one node"),
    OPTION_BYTES(struct plan_options, write_bytes_per_s, "write-rate", "BYTES",
                 "of checkpoints, per second: 2GiB"),
    OPTION_FLAG(struct plan_options, json, "json", "one JSON object"),
    OPTION_FLAG(struct plan_options, list, "list", "the presets"),
    { 0 },
};

/* Ranks and nodes that are not given, and what a GPU says. */
static enum err add_gpu(struct plan_options *o)
{
    int each = 1;
    if (o->gpu_name != NULL) {
        TRY(plan_gpu_find(o->gpu_name, &o->gpu));
        each = o->gpu->node_gpus;
        if (o->memory_bytes == 0)
            o->memory_bytes = o->gpu->memory_bytes;
        if (o->write_bytes_per_s > 0 && o->mtbf_h == 0)
            o->mtbf_h = GPU_MTBF_H / each;
    }
    bool fills = o->node_ranks > 0 || o->gpu != NULL;
    each = o->node_ranks > 0 ? o->node_ranks : each;
    if (o->nodes == 0)
        o->nodes = fills && o->ranks > 0 ? (o->ranks - 1) / each + 1 : 1;
    if (o->ranks == 0)
        o->ranks = fills ? o->nodes * each : 1;
    int least = fills ? (o->ranks - 1) / each + 1 : 1;
    if (o->ranks > RANKS_MAX || least > o->nodes ||
        (o->node_ranks > 0 && least < o->nodes))
        return err_set(ERR_USAGE,
                       "%d ranks on --nodes %d: at most %d, and with --gpu or "
                       "--node-ranks %d on a node",
                       o->ranks, o->nodes, RANKS_MAX, each);
    return ERR_OK;
}

/* The GPU is the machine: its backend, and its memory where the settings have no
 * limit of their own. */
static enum err place_on_gpu(const struct plan_options *options,
                             struct train_settings *settings)
{
    if (settings->hardware.backend == BACKEND_CPU)
        return err_set(ERR_USAGE, "--gpu plans for GPUs, and hardware.backend "
                                  "is cpu: leave one of them out");
    settings->hardware.backend = BACKEND_CUDA;
    if (settings->memory.limit == 0)
        settings->memory.limit = options->memory_bytes;
    return ERR_OK;
}

static enum err check(const struct options *line, struct plan_options *options)
{
    int first = 0;
    TRY(add_gpu(options));
    if (options->nodes > options->ranks)
        return err_set(ERR_USAGE,
                       "--nodes %d, but only --ranks %d: each node has at "
                       "least one rank",
                       options->nodes, options->ranks);
    if (options->rate > 0 && options->mfu > 0)
        return err_set(ERR_USAGE, "--rate and --mfu say the same: give one");
    if (options->mtbf_h > 0 && options->write_bytes_per_s == 0)
        return err_set(ERR_USAGE,
                       "--mtbf is for the interval of checkpoints, which takes "
                       "--write-rate, too");
    if (line->operand_count > 0 && strchr(line->operands[0], '=') == NULL)
        options->path = line->operands[first++];
    assert(first <= line->operand_count);
    options->overrides = line->operands + first;
    options->override_count = line->operand_count - first;
    return ERR_OK;
}

/* The way of tessera-train to its settings, up to where it would start. */
static enum err run(const struct options *line, int *exit_code)
{
    enum err rc = ERR_OK;
    struct plan_options *options = line->into;
    if (options->list) {
        for (int i = 0; i < model_preset_weights; i++)
            puts(model_preset_names[i]);
        return ERR_OK;
    }
    TRY(check(line, options));
    struct train_settings *settings = NULL;
    struct plan_figures *figures = NULL;
    TRY_OUT(new_zeroed(&settings, 1));
    TRY_OUT(new_zeroed(&figures, 1));
    TRY_OUT(start_settings_read(options->path, options->overrides,
                                options->override_count, true, settings));
    if (options->gpu != NULL)
        TRY_OUT(place_on_gpu(options, settings));
    TRY_OUT(start_settings_complete(settings));
    TRY_OUT(start_weights_plan(settings));
    start_idle(&(struct start_idle){ .settings = settings }, NULL, NULL);
    /* a job may have more ranks than the slots of a batch that is not known */
    if (settings->train.global_batch == 0 &&
        settings->parallel.slots < options->ranks)
        settings->parallel.slots = options->ranks;
    TRY_OUT(plan_figures(options, settings, figures));
    if (options->json)
        TRY_OUT(plan_print_json(figures));
    else
        plan_print(figures);
    if (figures->limit_bytes > 0 && !figures->fits)
        *exit_code = EXIT_STOP;
out:
    if (figures != NULL)
        plan_figures_release(figures);
    free(figures);
    free(settings);
    return rc;
}

static const struct options_command commands[] = {
    { .operands = "[CFG] [key=value]...", .rows = rows, .operands_max = -1 }
};

int main(int argc, char **argv)
{
    static const struct options_program program = {
        .name = "plan",
        .about = "Says what a training run would need: parameters, FLOPs per "
                 "token, memory of a rank\nby kind, batch arithmetic, data, "
                 "disk, and with what the options tell, time,\ncheckpoint "
                 "interval and goodput. The settings are those of "
                 "tessera-train; one such\nas model.preset=mpt-7b is "
                 "enough.\n",
        .end = "exit codes: 0 it fits, or no memory was given; 93 it does not "
               "fit; 64 usage or\nconfiguration\n",
        OPTIONS_COMMANDS(commands),
    };
    struct plan_options options = { 0 };
    kernels_wait_passively(argv);
    return cmd_main(&(struct cmd_main){ &program, &options, run }, argc, argv);
}
