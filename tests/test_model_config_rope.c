/* The table of rotary angles against long double, far out, too, and what is not
 * a way to scale them. */
#include "src/model/model_config.h"

#include "tests/rope_reference.h"
#include "tests/tap.h"

#define LLAMA3 .rope_theta = 5e5, .rope_scaling = ROPE_SCALING_LLAMA3
#define TURNS .rope_low_freq_factor = 1, .rope_high_freq_factor = 4

static const struct {
    const char *name;
    struct model_config config;
} cases[] = {
    { "plain", { .d_model = 256, .n_heads = 2, .rope_theta = 1e4 } },
    { "a head of 256", { .d_model = 256, .n_heads = 1, .rope_theta = 5e5 } },
    { "a head of 2", { .d_model = 32, .n_heads = 16, .rope_theta = 1e4 } },
    { "linear, 4",
      { .d_model = 256,
        .n_heads = 2,
        .rope_theta = 1e4,
        .rope_scaling = ROPE_SCALING_LINEAR,
        .rope_factor = 4 } },
    { "Llama 3.1",
      { .d_model = 256,
        .n_heads = 2,
        LLAMA3,
        TURNS,
        .rope_factor = 8,
        .rope_original_len = 8192 } },
    { "yarn of Qwen2.5",
      { .d_model = 256,
        .n_heads = 2,
        .rope_theta = 1e6,
        .rope_scaling = ROPE_SCALING_YARN,
        .rope_factor = 4,
        .rope_original_len = 32768 } },
    { "yarn of its own, wide heads",
      { .d_model = 64,
        .n_heads = 2,
        .head_dim = 96,
        .rope_theta = 1e4,
        .rope_scaling = ROPE_SCALING_YARN,
        .rope_factor = 16,
        .rope_original_len = 2048,
        .rope_beta_fast = 20,
        .rope_beta_slow = 0.5,
        .rope_attention_factor = 1.4 } },
    { "Llama 3.2",
      { .d_model = 64,
        .n_heads = 1,
        LLAMA3,
        TURNS,
        .rope_factor = 32,
        .rope_original_len = 8192 } },
};

/* Half the distance of floats below 1. */
#define ROUNDING 3e-8L

static void test_table(void)
{
    static const int64_t places[] = { 0, 1, 4095, 100000, 1048570 };
    enum { ROWS = 5, PAIRS = 128 };
    static float table[ROWS * 2 * PAIRS];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct model_config *c = &cases[i].config;
        int64_t pairs = model_config_head_dim(c) / 2;
        long double longer = rope_reference_length(c);
        long double worst = 0;
        for (size_t p = 0; p < sizeof places / sizeof places[0]; p++) {
            model_config_rope_table(c, false, places[p], ROWS, table);
            for (int64_t t = 0; t < ROWS; t++)
                for (int64_t j = 0; j < pairs; j++) {
                    long double angle = (long double)(places[p] + t) *
                                        rope_reference_angle(c, j);
                    const float *row = table + 2 * t * pairs;
                    worst = fmaxl(worst, fabsl((long double)row[j] -
                                               longer * cosl(angle)));
                    worst = fmaxl(worst, fabsl((long double)row[pairs + j] -
                                               longer * sinl(angle)));
                }
        }
        tap_ok(worst < ROUNDING * (longer > 1 ? 2 : 1),
               "%s: angles up to position 1048574 (%.2Lg)", cases[i].name,
               worst);
    }
}

/* By hand: how many of Llama 3.1's 64 pairs stay, and how many are divided. */
static void test_bands(void)
{
    const struct model_config *c = &cases[4].config;
    struct model_config plain = *c;
    int stay = 0, whole = 0;
    plain.rope_scaling = ROPE_SCALING_NONE;
    for (int64_t j = 0; j < 64; j++) {
        long double ratio =
            rope_reference_angle(&plain, j) / rope_reference_angle(c, j);
        stay += fabsl(ratio - 1) < 1e-12L;
        whole += fabsl(ratio - 8) < 1e-12L;
    }
    tap_is_int(stay, 29, "so many pairs make 4 turns in 8192 positions");
    tap_is_int(whole, 29, "and so many make less than one");
}

static const struct {
    const char *error; /* NULL: none */
    struct model_config config;
} checks[] = {
    { NULL, { .positions = POSITIONS_ROPE } },
    { NULL,
      { .positions = POSITIONS_ROPE,
        .rope_scaling = ROPE_SCALING_LINEAR,
        .rope_factor = 1 } },
    { NULL,
      { .positions = POSITIONS_ROPE,
        LLAMA3,
        TURNS,
        .rope_factor = 8,
        .rope_original_len = 8192 } },
    { "model.positions = \"rope\"",
      { .positions = POSITIONS_ALIBI,
        .rope_scaling = ROPE_SCALING_LINEAR,
        .rope_factor = 2 } },
    { "model.rope_beta_slow has no effect",
      { .positions = POSITIONS_ROPE,
        .rope_scaling = ROPE_SCALING_LINEAR,
        .rope_factor = 2,
        .rope_beta_slow = 1 } },
    { "\"yarn\" needs model.rope_original_len",
      { .positions = POSITIONS_ROPE,
        .rope_scaling = ROPE_SCALING_YARN,
        .rope_factor = 2 } },
    { "model.window_interval has no effect without model.window",
      { .positions = POSITIONS_ALIBI, .window_interval = 4 } },
    { "model.window_rope_theta has no effect",
      { .positions = POSITIONS_ALIBI, .window = 4, .window_rope_theta = 1e4 } },
    { "model.window_rope_theta has no effect",
      { .positions = POSITIONS_ROPE, .window_rope_theta = 1e4 } },
    { "model.no_rope_interval has no effect",
      { .positions = POSITIONS_ALIBI, .no_rope_interval = 4 } },
    { "model.rope_factor has no effect",
      { .positions = POSITIONS_ROPE, .rope_factor = 2 } },
    { "model.rope_low_freq_factor has no effect",
      { .positions = POSITIONS_ROPE, .rope_low_freq_factor = 1 } },
    { "model.rope_original_len has no effect",
      { .positions = POSITIONS_ROPE,
        .rope_scaling = ROPE_SCALING_LINEAR,
        .rope_factor = 2,
        .rope_original_len = 8192 } },
    { "model.rope_factor is 0",
      { .positions = POSITIONS_ROPE, .rope_scaling = ROPE_SCALING_LINEAR } },
    { "model.rope_factor is 0.5",
      { .positions = POSITIONS_ROPE,
        .rope_scaling = ROPE_SCALING_LINEAR,
        .rope_factor = 0.5 } },
    { "needs model.rope_original_len",
      { .positions = POSITIONS_ROPE, LLAMA3, TURNS, .rope_factor = 8 } },
    { "model.rope_low_freq_factor is 0",
      { .positions = POSITIONS_ROPE,
        LLAMA3,
        .rope_factor = 8,
        .rope_high_freq_factor = 4,
        .rope_original_len = 8192 } },
    { "model.rope_low_freq_factor is 4",
      { .positions = POSITIONS_ROPE,
        LLAMA3,
        .rope_factor = 8,
        .rope_low_freq_factor = 4,
        .rope_high_freq_factor = 4,
        .rope_original_len = 8192 } },
};

static void test_checks(void)
{
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        enum err rc = model_config_rope_check(&checks[i].config);
        if (checks[i].error == NULL)
            tap_ok(rc == ERR_OK, "accepted %zu", i);
        else
            tap_ok(rc == ERR_USAGE &&
                       strstr(err_text(), checks[i].error) != NULL,
                   "refused: %s", err_text());
    }
}

int main(void)
{
    test_table();
    test_bands();
    test_checks();
    return tap_done();
}
