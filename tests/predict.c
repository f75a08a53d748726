/* predict [rows | fit [TYPE]]: the step times of src/plan/plan_cost.c beside those that
 * others have published (tests/data/throughput, whose heads say where).
 *
 * LLM Foundry's rows are of three types of GPUs. The constants are fitted to every
 * second row of two of them; TYPE (h100_80gb when not given) is left out, to see what
 * a prediction is worth for a machine that nobody has measured. `fit` prints the
 * constants, for src/plan/plan_cost.h, and compares them with all rows, else those there
 * are, and with `rows` each row is printed.
 * Megatron's and torchtitan's rows take no part in it; tensor and pipeline
 * parallelism are not planned, so there a GPU has a part of a sample instead. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/real.h"
#include "src/plan/plan_cost.h"

#define ROWS_MAX 512
#define FIELDS 32
#define ERRORS "rows=%d median=%.1f p90=%.1f"
#define ROUNDS 400
#define CONSTANTS (int)(sizeof(struct plan_constants) / sizeof(double))
#define UPDATE_BYTES 30.0 /* of AdamW for a number, with bf16 weights */

static struct row {
    char set; /* 'f'oundry, 'm'egatron, 't'orchtitan; M, T: by more than data */
    char type[32]; /* of GPU */
    const struct plan_gpu *gpu;
    struct model_config model;
    struct plan_cost_input in;
    double ranks, measured_s;
} rows[ROWS_MAX];
static int count;
static struct plan_constants constants; /* that errors are printed of */

/* The GPUs are columns `gpu` and `ranks` of a line. */
static struct row *begin(char set, const char *gpu, const char *ranks,
                         const char *seq_len)
{
    const char *name = strncmp(gpu, "a100_4", 6) == 0 ? "a100-40"
                       : gpu[0] == 'a'                ? "a100-80"
                       : strcmp(gpu, "h200") == 0     ? "h200"
                                                      : "h100-sxm";
    assert(count < ROWS_MAX);
    struct row *row = &rows[count++];
    *row = (struct row){ .set = set, .ranks = atof(ranks) };
    snprintf(row->type, sizeof row->type, "%s", gpu);
    (void)plan_gpu_find(name, &row->gpu);
    row->in = (struct plan_cost_input){ .model = &row->model,
                                        .seq_len = atof(seq_len),
                                        .leaves = 1,
                                        .trained = 1,
                                        .node_ranks = 8 };
    return row;
}

static void shape(struct row *row, const char *preset, int layers, int d,
                  int heads, int ffn)
{
    (void)model_config_preset(preset, &row->model);
    row->model.n_layers = layers;
    row->model.d_model = d;
    row->model.n_heads = heads;
    row->model.n_kv_heads = heads / (row->model.ffn == FFN_GLU ? heads / 8 : 1);
    row->model.ffn_width = ffn;
}

/* Weights are gathered and gradients summed `times`, in bf16, of the part that a rank
 * has beside tensor and pipeline parallelism. */
static void spread(struct row *row, double tp, double pp, double gathers,
                   double times)
{
    double ranks = row->ranks / tp / pp;
    double bytes =
        2.0 * (double)model_config_param_count(&row->model) / tp / pp;
    row->in.exchanges[0] =
        (struct train_exchange){ bytes, gathers * times, (int)ranks, 1, false };
    row->in.exchanges[1] =
        (struct train_exchange){ bytes, times, (int)ranks, 1, false };
    row->in.node_ranks = (int)(row->in.node_ranks / tp);
    if (ranks < row->ranks || row->in.microbatch < 1)
        row->set -= 'a' - 'A';
    row->in.update_bytes = UPDATE_BYTES / 2 * bytes / ranks;
}

static void foundry(char **f)
{
    char preset[64];
    struct row *row = begin('f', f[4], f[3], f[2]);
    snprintf(preset, sizeof preset, "mpt-%s", f[1]);
    (void)model_config_preset(preset, &row->model);
    row->model.max_seq_len = atoi(f[2]);
    assert(atof(f[20]) == (double)model_config_param_count(&row->model));
    row->in.microbatch = atof(f[8]);
    row->in.leaves = atof(f[9]);
    row->in.fp8 = strcmp(f[15], "amp_fp8") == 0;
    row->in.again = strcmp(f[18], "True") == 0;
    spread(row, 1, 1, strcmp(f[17], "FULL_SHARD") == 0 ? 2 : 1, row->in.leaves);
    row->measured_s =
        row->in.microbatch * row->in.leaves * row->in.seq_len / atof(f[13]);
}

static void megatron(char **f)
{
    struct row *row = begin('m', f[1], f[11], f[2]);
    double d = atof(f[6]), layers = atof(f[7]), s = atof(f[2]);
    double samples = atof(f[12]) / row->ranks;
    shape(row, "mpt-125m", (int)layers, (int)d, atoi(f[5]), 4 * (int)d);
    row->model.vocab_size = atoi(f[3]);
    row->in.leaves = fmax(1, samples);
    row->in.microbatch = fmin(1, samples);
    row->in.again = strcmp(f[0], "sc21-a100") == 0;
    spread(row, atof(f[8]), atof(f[9]), 1, 1);
    /* their FLOPs: three products of each matrix, or four */
    row->measured_s =
        samples * s * 1e-12 / atof(f[13]) *
        ((3 + row->in.again) * 24 * layers * d * d * (1 + s / 6 / d) +
         6 * d * atof(f[3]));
}

static void torchtitan(char **f)
{
    struct row *row = begin('t', f[4], f[3], f[8]);
    const char *tp = strstr(f[5], "tp"), *pp = strstr(f[5], "pp");
    if (strstr(f[2], "405b") != NULL)
        shape(row, "llama3-8b", 126, 16384, 128, 53248);
    else if (strstr(f[2], "70b") != NULL)
        shape(row, "llama3-8b", 80, 8192, 64, 28672);
    else
        shape(row, "llama3-8b", 32, 4096, 32, 14336);
    row->in.again = strcmp(f[11], "full") == 0 ? 1 : 0.5; /* 0.5: selective */
    row->in.fp8 = strncmp(f[7], "float8", 6) == 0;
    row->in.microbatch =
        atof(f[9]) * atof(strstr(f[5], "fsdp") + 4) / row->ranks;
    spread(row, tp ? atof(tp + 2) : 1, pp ? atof(pp + 2) : 1, 2, 1);
    row->measured_s = row->in.microbatch * row->in.seq_len / atof(f[12]);
}

/* Hands on the lines behind notes and names; a comma may be in quotes. */
static void read(const char *name, void (*take)(char **))
{
    char line[1024], *f[FIELDS] = { line };
    bool named = false;
    snprintf(line, sizeof line, "tests/data/throughput/%s.csv", name);
    FILE *file = fopen(line, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        bool quoted = false;
        int fields = 1;
        for (char *at = line; *at != '\0' && fields < FIELDS; at++) {
            quoted ^= *at == '"';
            if (*at != ',' || quoted)
                continue;
            *at = '\0';
            f[fields++] = at + 1;
        }
        if (line[0] != '#' && named)
            take(f);
        named = named || line[0] != '#';
    }
    assert(file != NULL && named);
    fclose(file);
}

/* Predicted over measured. */
static double ratio(const struct row *row, const struct plan_constants *c)
{
    struct plan_cost cost;
    plan_cost(row->gpu, &row->in, c, &cost);
    return cost.step_s / row->measured_s;
}

static double loss(const char *left_out, const struct plan_constants *c)
{
    double sum = 0;
    int used = 0;
    for (int i = 0; i < count; i++)
        if (rows[i].set == 'f' && strcmp(rows[i].type, left_out) != 0 &&
            used++ % 2 == 0) {
            double x = log(ratio(&rows[i], c));
            sum += fabs(x) + 0.5 * x * x;
        }
    return sum;
}

/* Goes down along one constant after the other, in steps that grow while they help. */
static void fit(const char *left_out)
{
    struct plan_constants best = { 0.9, 1.0, 0.5, 300, 20, 0.8, 0.5, 1e-4 };
    static const char *const names[] = {
#define NAME(name, value, what) #name,
        PLAN_CONSTANTS(NAME)
    };
    double step[CONSTANTS], least = loss(left_out, &best);
    for (int i = 0; i < CONSTANTS; i++)
        step[i] = 0.5;
    for (int n = 0; n < ROUNDS * CONSTANTS; n++) {
        double by = step[n % CONSTANTS], now = least;
        for (int k = 0; k < 2 && now > least - 1e-9; k++) {
            struct plan_constants trial = best;
            double *value = (double *)&trial + n % CONSTANTS;
            *value *= k == 0 ? 1 + by : 1 / (1 + by);
            if (strstr(names[n % CONSTANTS], "_share") != NULL)
                *value = fmin(*value, 1);
            now = loss(left_out, &trial);
            if (now < least - 1e-9)
                best = trial;
        }
        step[n % CONSTANTS] *= now < least - 1e-9 ? 1.3 : 0.7;
        least = fmin(least, now);
    }
    for (int i = 0; i < CONSTANTS; i++)
        printf("%s %.3g\n", names[i], ((double *)&best)[i]);
    constants = best;
}

/* Prints errors without their sign, in per cent, of the rows of some sets, and if
 * it is given of a type; `line` has places for their number, median and 90th percentile. */
static double print_errors(const char *line, const char *sets, const char *type)
{
    double all[ROWS_MAX];
    int n = 0;
    for (int i = 0; i < count; i++)
        if (strchr(sets, rows[i].set) &&
            (!type || strcmp(rows[i].type, type) == 0))
            all[n++] = 100 * fabs(ratio(&rows[i], &constants) - 1);
    assert(n > 0);
    double median = real_median(all, n); /* sorts */
    printf(line, n, median, all[(int)ceil(0.9 * n) - 1]);
    return median;
}

int main(int argc, char **argv)
{
    static const char *const types[] = { "a100_40gb", "a100_80gb",
                                         "h100_80gb" };
    const char *left_out = argc > 2 ? argv[2] : "h100_80gb";
    double median = 0;
    read("llm-foundry-throughput", foundry);
    read("megatron-weak-scaling", megatron);
    read("torchtitan-performance", torchtitan);
    constants = plan_cost_constants;
    if (argc > 1 && strcmp(argv[1], "fit") == 0)
        fit(left_out);
    for (int i = 0; i < count && argc == 2; i++)
        printf("%c %-20s %13lld parameters %6.0f tokens %5.0f GPUs %8.3f s "
               "%+6.1f %%\n",
               rows[i].set, rows[i].type,
               (long long)model_config_param_count(&rows[i].model),
               rows[i].in.seq_len, rows[i].ranks, rows[i].measured_s,
               100 * ratio(&rows[i], &constants) - 100);
    for (int i = 0; i < 3; i++) {
        bool out = strcmp(types[i], left_out) == 0;
        printf("%s, %s: ", types[i], out ? "left out" : "half fitted");
        double found = print_errors(ERRORS "\n", "f", types[i]);
        median = out ? found : median;
    }
    print_errors("Megatron, not fitted: " ERRORS "\n", "mM", NULL);
    print_errors("torchtitan, not fitted: " ERRORS "\n", "tT", NULL);
    print_errors("of these, data parallel alone: " ERRORS "\n", "mt", NULL);
    print_errors("predict: " ERRORS, "f", NULL);
    printf(" held_out_type=%s median=%.1f\n", left_out, median);
    return 0;
}
