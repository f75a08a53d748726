/* predict [--shapes | --json] [--documents] [--gpu NAME] [--gpus N] [--ranks N]
 * [--RATE=NUMBER ...] [MODEL] key=value ...: the time of a training step on one GPU, op by op, from
 * what the model and the replica really enqueue for the settings; nothing is
 * computed and no GPU is needed. MODEL is a preset. --documents: two in every
 * sample. --gpu: of tessera-plan's, an H200 otherwise; its rates follow from the
 * H200's by what that table says of both. It ends with an error where the step
 * does not fit in its memory.
 *
 * --json: one line with MFU, low, expected and high, to stand beside what is
 * measured: shares of the rates, which are the best that
 * users have measured (predict_ranges). --gpus: each of N, of tessera-plan's nodes, has
 * that batch and updates its part, and what it exchanges (train_exchange.h) is behind its
 * step whole, by half or not at all; parallel.shard_degree is of the N.
 *
 * --ranks: this is one of so many, 8 a node, that share the batch under zero2 or
 * zero3; messages take no time (predict_ranks).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"
#include "src/comm/comm.h"
#include "src/plan/plan_gpu.h"
#include "src/train/plan/train_memory.h"
#include "src/train/plan/trainer_backend.h"
#include "src/train/settings/train_settings.h"
#include "src/train/start/start_settings.h"
#include "tests/gpu/predict_gpus.h"
#include "tests/gpu/predict_rate.h"
#include "tests/growth/stub_comm.h"

/* In predict_ranks alone. */
#pragma weak stub_comm_create

#define OVERRIDES_MAX 64
#define DEGREE "parallel.shard_degree="

enum { LOW, EXPECTED, HIGH, RANGES };

/* What of the rates is reached, and of the exchange is not hidden. */
static const struct {
    const char *name;
    double gemm, attention, bandwidth, exposed;
} predict_ranges[RANGES] = {
    { "low", 0.76, 0.65, 0.55, 1.0 },
    { "expected", 0.87, 0.8, 0.65, 0.5 },
    { "high", 0.95, 1.0, 0.875, 0.0 },
};

struct options {
    bool shapes, documents, json;
    int gpus, ranks;
    int degree; /* of zero3 over the gpus; 0: all */
    const struct plan_gpu *gpu, *h200;
};

struct step {
    struct options options;
    struct train_settings settings;
    const struct kernels *kernels;
    struct kernels own; /* the replica's */
    struct kernel_memory memory;
    struct comm *comm;
    struct params *params;
    struct model *model;
    struct replica *replica;
    struct leaf leaf;
    struct notebook book, batch; /* of the step, and of it before the update */
    struct memory_plan plan;
    struct predict_gpus gpus;
};

/* An H200: products, copies and attention as far as its users have measured
 * them (docs/benchmarks.md). */
static struct predict_rates rates = {
    .peak = 989e12,
    .gemm = 800e12,
    .ramp = 384,
    .splits = 16,
    .multiprocessors = 132,
    .attention_forward = 480e12,
    .attention_backward = 370e12,
    .own_forward = 290e12,
    .own_backward = 155e12,
    .narrow = 0.7,
    .bandwidth = 4.3e12 * 0.85,
    .gap_s = 1e-6,
    .launch_s = 3e-6,
};

static const struct {
    const char *name;
    double *value;
} names[] = {
    { "--peak=", &rates.peak },
    { "--gemm=", &rates.gemm },
    { "--ramp=", &rates.ramp },
    { "--splits=", &rates.splits },
    { "--multiprocessors=", &rates.multiprocessors },
    { "--attention-forward=", &rates.attention_forward },
    { "--attention-backward=", &rates.attention_backward },
    { "--own-forward=", &rates.own_forward },
    { "--own-backward=", &rates.own_backward },
    { "--narrow=", &rates.narrow },
    { "--bandwidth=", &rates.bandwidth },
    { "--gap=", &rates.gap_s },
    { "--launch=", &rates.launch_s },
};

static enum err parse_rate(const char *option)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        size_t length = strlen(names[i].name);
        char *end = NULL;
        if (strncmp(option, names[i].name, length) != 0)
            continue;
        *names[i].value = strtod(option + length, &end);
        if (end != option + length && *end == '\0' && *names[i].value >= 0)
            return ERR_OK;
    }
    return err_set(ERR_USAGE,
                   "%s: no such rate, or no number; there are --peak, --gemm, "
                   "--ramp, --splits, --multiprocessors, --attention-forward, "
                   "--attention-backward, --own-forward, --own-backward, "
                   "--narrow, --bandwidth, --gap and "
                   "--launch",
                   option);
}

/* The rates of another GPU, as far as its row goes. */
static void scale_rates(const struct plan_gpu *gpu, const struct plan_gpu *h200)
{
    double gemm = gpu->bf16_flops * gpu->bf16_share /
                  (h200->bf16_flops * h200->bf16_share);
    double attention = gpu->attention_flops / h200->attention_flops;
    rates.peak = gpu->bf16_flops;
    rates.gemm *= gemm;
    rates.attention_forward *= attention;
    rates.attention_backward *= attention;
    rates.own_forward *= gemm;
    rates.own_backward *= gemm;
    rates.bandwidth *= gpu->memory_bytes_per_s / h200->memory_bytes_per_s;
}

/* An option and what follows it; how many arguments those are. */
static enum err parse_option(char **argv, struct options *o, int *used)
{
    const char *value = argv[1] != NULL ? argv[1] : "";
    *used = 1;
    if (strcmp(argv[0], "--shapes") == 0)
        o->shapes = true;
    else if (strcmp(argv[0], "--documents") == 0)
        o->documents = true;
    else if (strcmp(argv[0], "--json") == 0)
        o->json = true;
    else if (strcmp(argv[0], "--gpu") == 0) {
        TRY(plan_gpu_find(value, &o->gpu));
        scale_rates(o->gpu, o->h200);
        *used = 2;
    } else if (strcmp(argv[0], "--gpus") == 0) {
        o->gpus = atoi(value);
        if (o->gpus < 1)
            return err_set(ERR_USAGE, "--gpus %s: give a number", value);
        *used = 2;
    } else if (strcmp(argv[0], "--ranks") == 0) {
        o->ranks = atoi(value);
        *used = 2;
    } else {
        TRY(parse_rate(argv[0]));
    }
    return ERR_OK;
}

static enum err parse(int argc, char **argv, struct step *step)
{
    struct train_settings *settings = &step->settings;
    struct options *o = &step->options;
    char preset[80];
    char data[] = "data.train=none", run[] = "run.dir=unused";
    char backend[] = "hardware.backend=cuda";
    char duration[] = "train.max_duration=1ba",
         batch[] = "train.global_batch=8";
    char *overrides[OVERRIDES_MAX] = { data, run, backend, duration, batch };
    int count = 5;
    TRY(plan_gpu_find("h200", &o->h200));
    o->gpu = o->h200;
    o->gpus = o->ranks = 1;
    for (int i = 1, used = 1; i < argc; i += used, used = 1) {
        if (argv[i][0] == '-')
            TRY(parse_option(argv + i, o, &used));
        else if (count == OVERRIDES_MAX)
            return err_set(ERR_USAGE, "%s: too many settings", argv[i]);
        else if (strncmp(argv[i], DEGREE, strlen(DEGREE)) == 0)
            o->degree = atoi(argv[i] + strlen(DEGREE));
        else if (strchr(argv[i], '=') != NULL)
            overrides[count++] = argv[i];
        else {
            snprintf(preset, sizeof preset, "model.preset=%s", argv[i]);
            overrides[count++] = preset;
        }
    }
    TRY(start_settings_load(NULL, overrides, count, settings));
    bool by_block = settings->parallel.strategy == REPLICA_ZERO2 ||
                    settings->parallel.strategy == REPLICA_ZERO3;
    if (o->ranks < 1 || (o->ranks > 1) != (stub_comm_create != NULL) ||
        (o->ranks > 1 && !by_block))
        return err_set(ERR_USAGE,
                       "--ranks: predict has one, predict_ranks more, "
                       "with parallel.strategy=zero2 or zero3");
    if (settings->model.experts > 0)
        return err_set(ERR_UNSUPPORTED,
                       "a mixture of experts: only dense models are predicted");
    return ERR_OK;
}

/* --- a step --- */

static enum err make(struct step *step)
{
    bool documents = step->options.documents;
    const struct train_settings *s = &step->settings;
    const struct model_config *config = &s->model;
    struct model_options options;
    struct replica_options replica = train_memory_replica(s);
    const struct kernels *planned = NULL;
    if (trainer_backend_plan(s, &planned) != ERR_OK)
        fprintf(stderr, "predict: built without CUDA: scratch is left out\n");
    step->kernels = predict_table(planned);
    if (step->options.ranks > 1)
        step->comm =
            stub_comm_create(step->options.ranks / 2, step->options.ranks, 8);
    else
        TRY(comm_create("self", NULL, NULL, 60.0, &step->comm));
    TRY(params_create(config, &step->params));
    step->gpus = (struct predict_gpus){ .gpu = step->options.gpu,
                                        .gpus = step->options.gpus,
                                        .degree = step->options.degree,
                                        .ranks = step->options.ranks,
                                        .settings = s,
                                        .kernels = step->kernels };
    TRY(predict_gpus_memory(&step->gpus, &step->plan));
    TRY(train_memory_model(s, 1, &options));
    options.stream = &step->book;
    TRY(model_create(config, step->params, step->kernels, &options,
                     &step->model));
    /* messages between ranks that are not there are comm's alone */
    step->own = *step->kernels;
    step->memory = *step->own.memory;
    step->memory.device = step->options.ranks == 1;
    step->own.memory = &step->memory;
    TRY(replica_create(step->comm, &step->own, model_ctx(step->model),
                       step->params, &replica, &step->replica));
    size_t tokens = (size_t)(s->train.microbatch * s->data.seq_len);
    int32_t *numbers = NULL;
    TRY(new_zeroed(&numbers, 2 * tokens));
    size_t seq = (size_t)s->data.seq_len;
    for (size_t i = 0; documents && i < tokens; i++)
        numbers[tokens + i] = i % seq >= seq / 2;
    step->leaf = (struct leaf){ .samples = s->train.microbatch,
                                .seq_len = s->data.seq_len,
                                .tokens = numbers,
                                .labels = numbers,
                                .sequence_ids = numbers + tokens };
    return ERR_OK;
}

static enum err run(struct step *step)
{
    enum err rc = ERR_OK;
    struct replica *replica = step->replica;
    struct optimizer_step step_of = { .count = 1 };
    struct arena loss = { 0 };
    double norm;
    TRY_OUT(
        step->kernels->memory->tensors_create(sizeof(struct leaf_loss), &loss));
    replica_begin_batch(replica);
    for (int microstep = 0; microstep < replica_microsteps(replica);
         microstep++) {
        TRY_OUT(replica_begin_leaf(replica, microstep));
        TRY_OUT(model_train_leaf(step->model, replica_access(replica),
                                 &step->leaf, (void *)loss.base));
        TRY_OUT(replica_end_leaf(replica));
    }
    TRY_OUT(replica_finish_batch(replica));
    step->batch = step->book;
    TRY_OUT(replica_gradient_norm(replica, &norm));
    TRY_OUT(replica_update(replica, &step_of));
out:
    step->kernels->memory->tensors_destroy(&loss);
    return rc;
}

static void unmake(struct step *step)
{
    free((void *)(uintptr_t)step->leaf.tokens);
    replica_destroy(step->replica);
    if (step->model != NULL)
        model_destroy(step->model);
    params_destroy(step->params);
    comm_destroy(step->comm);
}

/* --- the report --- */

static double note_seconds(const struct note *n)
{
    return (double)n->calls *
           (predict_seconds(&rates, n) + n->launches * rates.gap_s);
}

static int by_time(const void *a, const void *b)
{
    double x = note_seconds(a), y = note_seconds(b);
    return (x < y) - (x > y);
}

static void print_line(const struct note *n, double seconds, double flops,
                       double bytes, double all_s)
{
    printf("%8lld %10.2f %10.1f %10.3f %6.1f  %s", (long long)n->calls,
           flops / 1e12, bytes / 1e9, seconds * 1e3, 100.0 * seconds / all_s,
           n->op);
}

static void print_shapes(const struct notebook *book, double all_s)
{
    for (int i = 0; i < book->count; i++) {
        const struct note *n = &book->notes[i];
        double calls = (double)n->calls;
        print_line(n, note_seconds(n), calls * n->flops, calls * n->bytes,
                   all_s);
        printf(" %lldx%lld", (long long)n->m, (long long)n->n);
        if (n->k > 0)
            printf("x%lld", (long long)n->k);
        if (n->flops > 0)
            printf(", %.0f TFLOP/s",
                   n->flops / predict_seconds(&rates, n) / 1e12);
        printf("\n");
    }
}

/* One line per op, in the order of its costliest shape. */
static void print_ops(const struct notebook *book, double all_s)
{
    for (int i = 0; i < book->count; i++) {
        struct note op = book->notes[i];
        double seconds = 0.0, flops = 0.0, bytes = 0.0;
        bool first = true;
        op.calls = 0;
        for (int j = 0; j < book->count; j++) {
            const struct note *n = &book->notes[j];
            if (strcmp(n->op, op.op) != 0)
                continue;
            first = first && j >= i;
            op.calls += n->calls;
            seconds += note_seconds(n);
            flops += (double)n->calls * n->flops;
            bytes += (double)n->calls * n->bytes;
        }
        if (!first)
            continue;
        print_line(&op, seconds, flops, bytes, all_s);
        printf("\n");
    }
}

/* What gradients take in the device's memory, and kernels, for each microbatch;
 * without what their way to other ranks takes. */
static void print_gradients(const struct step *step, double launches)
{
    double bytes = 0.0, adds = 0.0;
    double microsteps = replica_microsteps(step->replica);
    double blocks = microsteps * step->params->block_count;
    for (int i = 0; i < step->book.count; i++) {
        const struct note *n = &step->book.notes[i];
        bool adds_up =
            strcmp(n->op, "add_tree") == 0 || strcmp(n->op, "accumulate") == 0;
        bytes += (double)n->calls * n->gradient;
        adds += adds_up && n->gradient > 0 ? (double)n->calls * n->launches : 0;
    }
    printf("gradients %.1f bytes a parameter, kernels %.1f a block, of these "
           "%.1f add, in each microbatch\n",
           bytes / microsteps / (double)step->params->numel, launches / blocks,
           adds / blocks);
}

static double step_flops(const struct step *step)
{
    const struct train_settings *s = &step->settings;
    return (double)s->train.global_batch / step->options.ranks *
           model_config_flops_per_sequence(&s->model, s->data.seq_len);
}

/* Of all ops, by the rates as they are now. */
static double device_seconds(const struct notebook *book, double *launches)
{
    double device_s = 0.0;
    *launches = 0.0;
    for (int i = 0; i < book->count; i++) {
        const struct note *n = &book->notes[i];
        device_s += note_seconds(n);
        *launches += (double)n->calls * n->launches;
    }
    return device_s;
}

/* Each of the GPUs updates its part; ddp's all of it. */
static double all_seconds(const struct step *step, double *launches)
{
    double before, all_s = device_seconds(&step->book, launches);
    double batch_s = device_seconds(&step->batch, &before);
    bool ddp = step->settings.parallel.strategy == REPLICA_DDP;
    return batch_s + (all_s - batch_s) / (ddp ? 1 : step->options.gpus);
}

/* MFU within each range, and the sheet's figures that all is a share of. */
static enum err print_json(const struct step *step)
{
    const struct plan_gpu *gpu = step->options.gpu;
    const struct predict_rates best = rates;
    double exchange_s;
    TRY(predict_gpus_exchange(&step->gpus, step->params, &exchange_s));
    printf("{\"model\": \"%s\", \"gpu\": \"%s\", \"gpus\": %d, "
           "\"peak_tflops\": %.1f, \"memory_gbps\": %.0f, \"mfu\": {",
           model_preset_names[step->settings.model.preset], gpu->name,
           step->options.gpus, gpu->bf16_flops * 1e-12,
           gpu->memory_bytes_per_s * 1e-9);
    for (int i = 0; i < RANGES; i++) {
        double launches, attention = predict_ranges[i].attention;
        rates.gemm = best.gemm * predict_ranges[i].gemm;
        rates.attention_forward = best.attention_forward * attention;
        rates.attention_backward = best.attention_backward * attention;
        rates.own_forward = best.own_forward * attention;
        rates.own_backward = best.own_backward * attention;
        rates.bandwidth = best.bandwidth * predict_ranges[i].bandwidth;
        double device_s = all_seconds(step, &launches);
        double seconds = fmax(device_s, launches * rates.launch_s) +
                         predict_ranges[i].exposed * exchange_s;
        printf("%s\"%s\": %.3f", i > 0 ? ", " : "", predict_ranges[i].name,
               step_flops(step) / seconds / rates.peak);
    }
    rates = best;
    printf("}}\n");
    return ERR_OK;
}

static void print_table(struct step *step)
{
    const struct train_settings *s = &step->settings;
    struct notebook *book = &step->book;
    double launches, device_s = device_seconds(book, &launches);
    double host_s = launches * rates.launch_s, all_s = fmax(device_s, host_s);
    double flops = step_flops(step);
    qsort(book->notes, (size_t)book->count, sizeof book->notes[0], by_time);
    printf("%8s %10s %10s %10s %6s\n", "calls", "TFLOP", "GB", "ms", "%");
    (step->options.shapes ? print_shapes : print_ops)(book, all_s);
    print_gradients(step, launches);
    printf("step %.1f ms, device %.1f ms, host %.1f ms for %.0f kernels, "
           "%.0f tokens/s, MFU %.3f, memory %.1f GiB\n",
           all_s * 1e3, device_s * 1e3, host_s * 1e3, launches,
           (double)(s->train.global_batch * s->data.seq_len) / all_s,
           flops / all_s / rates.peak,
           (double)step->plan.total / 1024 / 1024 / 1024);
}

static enum err report(struct step *step)
{
    const struct plan_gpu *gpu = step->options.gpu;
    if (step->options.json)
        TRY(print_json(step));
    else
        print_table(step);
    if (step->plan.total > (size_t)gpu->memory_bytes)
        return err_set(ERR_MEMORY,
                       "that is more than %s has: lower train.microbatch",
                       gpu == step->options.h200 ? "an H200" : gpu->name);
    return ERR_OK;
}

int main(int argc, char **argv)
{
    enum err rc = ERR_OK;
    struct step *step = NULL;
    TRY_OUT(new_zeroed(&step, 1));
    TRY_OUT(parse(argc, argv, step));
    TRY_OUT(make(step));
    TRY_OUT(run(step));
    TRY_OUT(report(step));
out:
    if (rc != ERR_OK)
        fprintf(stderr, "predict: %s\n", err_text());
    if (step != NULL)
        unmake(step);
    free(step);
    return rc == ERR_OK ? 0 : err_exit_code(rc);
}
