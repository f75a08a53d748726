/* Optimizers for a Python peer: optimizers NAME [FIELD=VALUE ...], where a field
 * is a member of struct optimizer_step, "steps" or "weight_decay". From standard
 * input: the number of tensors, of each what it is (a letter), its rows, columns
 * (0: it has one dimension) and one number more, all int32; their weights; and
 * for each step their gradients, fp32. Writes the weights after each step.
 *
 * v a vector, m a matrix, e the embedding, q Wqkv (rows of queries), r a router
 * (its rows are the experts), u and d the experts' up and down. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/parallel/optimizer/optimizer.h"

#define TENSORS 16

static void die(const char *what)
{
    fprintf(stderr, "optimizers: %s\n", what);
    exit(1);
}

static void need(enum err rc)
{
    if (rc != ERR_OK)
        die(err_text());
}

static void fetch(void *data, size_t bytes)
{
    if (fread(data, 1, bytes, stdin) != bytes)
        die("standard input ends early");
}

static float *floats(int64_t count)
{
    float *data = aligned_alloc(64, ((size_t)count * 4 + 127) / 64 * 64);
    if (data == NULL)
        die("out of memory");
    memset(data, 0, ((size_t)count * 4 + 127) / 64 * 64);
    return data;
}

struct tensor {
    struct optimizer_partition partition;
    const struct optimizer_ops *optimizer;
    float *gradient;
};

struct job {
    const struct optimizer_ops *optimizer;
    struct optimizer_step step;
    double weight_decay, peak;
    int steps;
};

static void read_fields(struct job *job, int count, char **words)
{
    struct optimizer_step *s = &job->step;
    const struct {
        const char *name;
        double *real;
    } fields[] = {
        { "lr", &job->peak },
        { "weight_decay", &job->weight_decay },
        { "beta1", &s->beta1 },
        { "beta2", &s->beta2 },
        { "eps", &s->eps },
        { "grad_scale", &s->grad_scale },
        { "dampening", &s->dampening },
        { "momentum", &s->momentum },
        { "clip_threshold", &s->clip_threshold },
        { "decay_rate", &s->decay_rate },
        { "outlier_threshold", &s->outlier_threshold },
        { "outlier_penalty", &s->outlier_penalty },
        { "outlier_floor", &s->outlier_floor },
    };
    for (int i = 0; i < count; i++) {
        const char *value = strchr(words[i], '=');
        size_t length = value != NULL ? (size_t)(value - words[i]) : 0;
        bool found = false;
        if (value == NULL)
            die(words[i]);
        for (size_t f = 0; f < sizeof fields / sizeof fields[0]; f++)
            if (strlen(fields[f].name) == length &&
                memcmp(fields[f].name, words[i], length) == 0) {
                *fields[f].real = strtod(value + 1, NULL);
                found = true;
            }
        int whole = atoi(value + 1);
        if (strncmp(words[i], "steps=", 6) == 0)
            job->steps = whole;
        else if (strncmp(words[i], "nesterov=", 9) == 0)
            s->nesterov = whole != 0;
        else if (strncmp(words[i], "ns_steps=", 9) == 0)
            s->ns_steps = whole;
        else if (strncmp(words[i], "match_rms=", 10) == 0)
            s->adjust_lr = whole != 0 ? ADJUST_MATCH_RMS : ADJUST_ORIGINAL;
        else if (strncmp(words[i], "scale_parameter=", 16) == 0)
            s->scale_parameter = whole != 0;
        else if (strncmp(words[i], "outlier_timeout=", 16) == 0)
            s->outlier_timeout = whole;
        else if (!found)
            die(words[i]);
    }
}

static enum param_role role_of(int letter)
{
    switch (letter) {
    case 'v':
        return PARAM_NORM_1_WEIGHT;
    case 'm':
        return PARAM_OUT_WEIGHT;
    case 'e':
        return PARAM_WTE;
    case 'q':
        return PARAM_WQKV_WEIGHT;
    case 'r':
        return PARAM_ROUTER;
    case 'u':
        return PARAM_EXPERTS_UP;
    case 'd':
        return PARAM_EXPERTS_DOWN;
    default:
        die("a tensor of no kind");
        return PARAM_WTE;
    }
}

static void open_tensor(const struct job *job, const struct params *params,
                        const struct param *param, struct tensor *out)
{
    out->optimizer = job->optimizer;
    if (out->optimizer->takes != NULL && !out->optimizer->takes(param))
        out->optimizer = out->optimizer->other;
    const struct optimizer_ops *o = out->optimizer;
    out->gradient = floats(param->numel);
    out->partition =
        (struct optimizer_partition){ .params = params,
                                      .begin = param->offset,
                                      .elements = param->numel,
                                      .weights = floats(param->numel),
                                      .gradient = out->gradient,
                                      .tensor = param };
    for (int i = 0; i < optimizer_moments(o); i++)
        out->partition.moments[i] = floats(param->numel);
    for (int i = 0; i < optimizer_states(o); i++) {
        int64_t shape[2] = { 1, 1 };
        int dims = o->state_shape(params, param, i, shape);
        out->partition.states[i] =
            dims > 0 ? floats(shape[0] * (dims > 1 ? shape[1] : 1)) : NULL;
    }
    if (o->scratch != NULL)
        out->partition.scratch = floats(o->scratch(param));
}

static void run(struct job *job, const struct kernels *kernels,
                struct tensor *tensors, int count)
{
    const struct kernel_limits limits = {
        .threads = 2, .tokens = 1, .width = 1, .vocab = 1
    };
    struct kernel_ctx ctx = { .threads = 2 };
    ctx.scratch_bytes = kernels->scratch_bytes(&limits);
    ctx.scratch = floats((int64_t)ctx.scratch_bytes / 4);
    for (int step = 0; step < job->steps; step++) {
        job->step.count = step + 1;
        /* some schedule: both decays go by the rate */
        double share = 1.0 - 0.5 * step / job->steps;
        job->step.lr = share * job->peak;
        for (int t = 0; t < count; t++) {
            struct optimizer_partition *partition = &tensors[t].partition;
            size_t bytes = (size_t)partition->elements * sizeof(float);
            struct optimizer_step s = job->step;
            s.decay = job->weight_decay *
                      (job->optimizer->decay_by_lr ? s.lr : share);
            fetch(tensors[t].gradient, bytes);
            need(tensors[t].optimizer->update(&s, kernels, &ctx, partition));
            fwrite(partition->weights, 1, bytes, stdout);
        }
    }
}

int main(int argc, char **argv)
{
    static struct param list[TENSORS];
    struct params params = { .list = list, .layer_blocks = 1 };
    struct tensor tensors[TENSORS];
    struct job job = { .step.adjust_lr = ADJUST_ORIGINAL };
    int32_t count;
    int index = 0;
    if (argc < 2)
        die("no optimizer");
    while (optimizer_names[index] != NULL &&
           strcmp(optimizer_names[index], argv[1]) != 0)
        index++;
    job.optimizer = optimizer_at(index);
    if (job.optimizer == NULL)
        die("no such optimizer");
    read_fields(&job, argc - 2, argv + 2);
    fetch(&count, sizeof count);
    if (count < 1 || count > TENSORS)
        die("too many tensors");
    for (int t = 0; t < count; t++) {
        int32_t head[4];
        fetch(head, sizeof head);
        list[t] = (struct param){ .role = role_of(head[0]),
                                  .dims = head[2] > 0 ? 2 : 1,
                                  .shape = { head[1], head[2] },
                                  .numel = (int64_t)head[1] *
                                           (head[2] > 0 ? head[2] : 1),
                                  .block = 1,
                                  .tail = (int64_t)head[3] * head[2] };
        params.count = t + 1;
    }
    for (int t = 0; t < count; t++) {
        open_tensor(&job, &params, &list[t], &tensors[t]);
        fetch(tensors[t].partition.weights,
              (size_t)list[t].numel * sizeof(float));
    }
    const struct kernels *kernels = NULL;
    need(kernels_find("cpu", "auto", &kernels));
    run(&job, kernels, tensors, count);
    return fflush(stdout) != 0;
}
