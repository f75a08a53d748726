/* Published parameter counts, and what a configuration may not be. */
#include <string.h>

#include "src/model/model_config.h"
#include "src/model/params.h"
#include "tests/tap.h"

static void test_counts(void)
{
    static const struct {
        const char *preset;
        long long params;
    } cases[] = {
        { "mpt-125m", 125311488 },
        { "mpt-350m", 355985408 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_config config;
        struct params *params = NULL;
        tap_ok(model_config_preset(cases[i].preset, &config) == ERR_OK,
               "%s is a preset", cases[i].preset);
        tap_is_int(model_config_param_count(&config), cases[i].params,
                   "%s has the published number of parameters",
                   cases[i].preset);
        tap_ok(params_create(&config, &params) == ERR_OK &&
                   params->numel == cases[i].params,
               "%s: the table of tensors adds up to it", cases[i].preset);
        params_destroy(params);
    }
}

static void test_flops(void)
{
    struct model_config config;
    (void)model_config_preset("mpt-125m", &config);
    /* 3 (2 P S + 4 L d S^2) with S = 2048 */
    double want = 3.0 * (2.0 * 125311488.0 * 2048.0 +
                         4.0 * 12.0 * 768.0 * 2048.0 * 2048.0);
    tap_is_close(model_config_flops_per_sequence(&config, 2048), want, 1e-12,
                 "FLOPs per sequence follow the published convention");
}

static void test_failures(void)
{
    static const struct {
        struct model_config config;
        const char *text;
    } cases[] = {
        { { 128, 3, 2, 320, 128, 4, 1e-5 }, "not divisible by model.n_heads" },
        { { 120, 4, 2, 320, 128, 4, 1e-5 }, "multiple of 16" },
        { { 1024, 2, 2, 320, 128, 4, 1e-5 }, "at most 256" },
    };
    struct model_config config;
    tap_ok(model_config_preset("mpt-126m", &config) == ERR_USAGE &&
               strstr(err_text(), "mpt-125m") != NULL,
           "an unknown preset is refused with the list of names");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        tap_ok(model_config_check(&cases[i].config) == ERR_USAGE &&
                   strstr(err_text(), cases[i].text) != NULL,
               "refused: %s", cases[i].text);
}

static void test_layout(void)
{
    struct model_config config;
    struct params *params = NULL;
    (void)model_config_preset("mpt-tiny", &config);
    if (!tap_ok(params_create(&config, &params) == ERR_OK, "mpt-tiny"))
        return;
    bool aligned = true, ordered = true, chunked = true;
    int64_t end = 0;
    for (int i = 0; i < params->count; i++) {
        const struct param *param = &params->list[i];
        aligned &= param->offset % 16 == 0;
        ordered &= param->offset >= end;
        end = param->offset + param->numel;
    }
    for (int b = 0; b < params->block_count; b++)
        chunked &= params->blocks[b].offset % 16384 == 0 &&
                   params->blocks[b].elements % 16384 == 0;
    tap_ok(aligned, "tensors start at 64-byte boundaries");
    tap_ok(ordered, "tensors do not overlap");
    tap_ok(chunked, "blocks are cut at chunk boundaries");
    tap_ok(end <= params->elements, "the last tensor lies inside");
    params_destroy(params);
}

static void test_init(void)
{
    struct model_config config;
    struct params *params = NULL;
    static float whole[1 << 20], part[1 << 20];
    (void)model_config_preset("mpt-tiny", &config);
    (void)params_create(&config, &params);
    tap_ok(params->elements <= 1 << 20, "mpt-tiny fits the test's arrays");
    params_init(params, 17, 0, params->elements, whole);
    int64_t cut = 16384 * 5;
    memset(part, 0xff, sizeof part);
    params_init(params, 17, cut, 2 * cut, part);
    tap_ok(memcmp(part, whole + cut, (size_t)cut * sizeof(float)) == 0,
           "an interval's weights do not depend on the interval");
    const struct param *wte = &params->list[0];
    double sum = 0.0, squares = 0.0;
    for (int64_t i = 0; i < wte->numel; i++) {
        sum += (double)whole[i];
        squares += (double)whole[i] * (double)whole[i];
    }
    double n = (double)wte->numel;
    tap_ok(sum / n < 2e-3 && sum / n > -2e-3, "embedding: mean is about 0");
    tap_is_close(squares / n, 2.0 / 128.0, 2e-4,
                 "embedding: variance is 2 / fan_in");
    params_init(params, 18, 0, params->elements, part);
    tap_ok(memcmp(part, whole, 4096) != 0, "another seed, other weights");
    params_destroy(params);
}

int main(void)
{
    test_counts();
    test_flops();
    test_failures();
    test_layout();
    test_init();
    return tap_done();
}
