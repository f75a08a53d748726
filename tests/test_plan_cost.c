/* What a step's time counts, beside what the model computes: norms behind the branches
 * and around them (model.norm_place), of shapes as Gemma 3's and OLMo 2's. */
#include <math.h>

#include "src/plan/plan_cost.h"
#include "tests/tap.h"

#define LAYERS 26
#define WIDTH 1152
#define ROWS 4096.0

static struct model_config config_of(enum model_norm_place place)
{
    return (struct model_config){
        .d_model = WIDTH,
        .n_layers = LAYERS,
        .n_heads = 4,
        .n_kv_heads = 1,
        .head_dim = 256,
        .ffn = FFN_GLU,
        .ffn_width = 6912,
        .vocab_size = 262144,
        .norm = MODEL_NORM_RMSNORM,
        .norm_place = place,
        .tied = true,
    };
}

static struct plan_cost cost_of(const struct plan_gpu *gpu,
                                enum model_norm_place place, double again)
{
    struct model_config model = config_of(place);
    struct plan_cost_input in = { .model = &model,
                                  .seq_len = ROWS,
                                  .microbatch = 1.0,
                                  .leaves = 1.0,
                                  .again = again,
                                  .trained = 1.0,
                                  .node_ranks = 1 };
    struct plan_cost cost;
    plan_cost(gpu, &in, &plan_cost_constants, &cost);
    return cost;
}

/* Ranks of which a node has one alone exchange at the network's rate, whatever else is on
 * their nodes. */
static void test_stride(const struct plan_gpu *gpu)
{
    struct model_config model = config_of(NORM_BEFORE);
    double seconds[2];
    for (int i = 0; i < 2; i++) {
        int node = i == 0 ? 1 : 8;
        struct plan_cost_input in = { .model = &model,
                                      .seq_len = ROWS,
                                      .microbatch = 1.0,
                                      .leaves = 1.0,
                                      .trained = 1.0,
                                      .node_ranks = node,
                                      .exchanges = { { 1e10, 1, 16, node } } };
        struct plan_cost cost;
        plan_cost(gpu, &in, &plan_cost_constants, &cost);
        seconds[i] = cost.seconds[PLAN_EXCHANGE];
    }
    tap_ok(seconds[0] > 0.0 && seconds[0] == seconds[1],
           "groups of a node's ranks exchange as ranks alone, %.2g s",
           seconds[1]);
}

static void test_norms(const struct plan_gpu *gpu, double again)
{
    struct plan_cost before = cost_of(gpu, NORM_BEFORE, again);
    struct plan_cost after = cost_of(gpu, NORM_AFTER, again);
    struct plan_cost around = cost_of(gpu, NORM_AROUND, again);
    double two = 2.0 * ROWS * WIDTH * (4 * 256 + 6912) * LAYERS;
    double more = after.seconds[PLAN_PRODUCTS] - before.seconds[PLAN_PRODUCTS];
    double values = around.seconds[PLAN_VALUES] - before.seconds[PLAN_VALUES];
    double want = 2.0 * 3.0 * 2.0 * ROWS * WIDTH * LAYERS * (1.0 + again / 3) /
                  gpu->memory_bytes_per_s;
    tap_ok(more > two / gpu->bf16_flops &&
               around.seconds[PLAN_PRODUCTS] == after.seconds[PLAN_PRODUCTS],
           "two products more, %.2g s", more);
    tap_ok(fabs(values - want) < 1e-9 * want &&
               after.seconds[PLAN_VALUES] == before.seconds[PLAN_VALUES],
           "two norms more a block, %.2g s", values);
    tap_ok(around.seconds[PLAN_LAUNCHES] > before.seconds[PLAN_LAUNCHES] &&
               around.step_s > after.step_s && after.step_s > before.step_s,
           "a step: %.3g, %.3g, %.3g s", before.step_s, after.step_s,
           around.step_s);
}

int main(void)
{
    struct model_config before = config_of(NORM_BEFORE);
    struct model_config around = config_of(NORM_AROUND);
    const struct plan_gpu *gpu = NULL;
    tap_ok(plan_gpu_find("h100-sxm", &gpu) == ERR_OK, "a GPU");
    test_stride(gpu);
    test_norms(gpu, 0.0);
    test_norms(gpu, 1.0);
    tap_is_int(model_config_param_count(&around) -
                   model_config_param_count(&before),
               2 * LAYERS * WIDTH, "two norms' parameters a block");
    return tap_done();
}
