/* Checksums of a model's tensors: the same of any intervals in any order and
 * joined from any parts, found wrong for every bit, and back from their JSON or
 * refused. */
#include "src/formats/weights_sums.h"

#include "src/base/digest.h"
#include "src/base/rng.h"
#include "tests/weights_fixture.h"

#define PARTS 7

static int64_t sum_count(const struct weights_sums *sums)
{
    return sums->first[sums->params->count];
}

static bool same(const struct weights_sums *a, const struct weights_sums *b)
{
    return memcmp(a->list, b->list, (size_t)sum_count(a) * sizeof *a->list) ==
           0;
}

/* Of whole blocks, by crc32c() alone. */
static void test_whole(const struct params *params, const float *values,
                       const struct weights_sums *sums)
{
    int wrong = 0;
    for (int i = 0; i < params->count; i++) {
        const struct param *param = &params->list[i];
        for (int64_t at = 0; at < param->numel; at += WEIGHTS_SUMS_BLOCK) {
            int64_t left = param->numel - at;
            size_t count =
                (size_t)(left < WEIGHTS_SUMS_BLOCK ? left : WEIGHTS_SUMS_BLOCK);
            uint32_t want =
                crc32c(0, values + param->offset + at, count * sizeof *values);
            wrong +=
                sums->list[sums->first[i] + at / WEIGHTS_SUMS_BLOCK] != want;
        }
    }
    tap_is_int(wrong, 0, "each is the sum of its block");
    tap_ok(sum_count(sums) > params->count, "some tensor has several");
}

/* Each interval goes to one of several owners, the last interval first. */
static void test_parts(const struct params *params, const float *values,
                       const struct weights_sums *want)
{
    struct weights_sums *parts[PARTS] = { NULL };
    int64_t end = params->elements;
    for (int i = 0; i < PARTS; i++)
        is_ok(weights_sums_create(params, &parts[i]), "a part");
    for (uint64_t i = 0; end > 0; i++) {
        int64_t step = (int64_t)(rng_u64(1, 0, i) % 300000);
        int64_t begin = end > step ? end - step : 0;
        weights_sums_add(parts[rng_u64(1, 1, i) % PARTS], begin, end,
                         values + begin);
        end = begin;
    }
    for (int i = 1; i < PARTS; i++)
        for (int64_t s = 0; s < sum_count(want); s++)
            parts[0]->list[s] ^= parts[i]->list[s];
    tap_ok(same(parts[0], want), "joined parts have the sums of the whole");
    for (int i = 0; i < PARTS; i++)
        weights_sums_destroy(parts[i]);
}

static void test_compare(const struct params *params, float *values,
                         const struct weights_sums *was)
{
    int missed = 0, unknown = 0, misnamed = 0;
    for (uint64_t i = 0; i < 20; i++) {
        struct weights_sums *is = NULL;
        const struct param *param =
            &params->list[rng_u64(2, 0, i) % (uint64_t)params->count];
        int64_t at = param->offset +
                     (int64_t)(rng_u64(2, 1, i) % (uint64_t)param->numel);
        uint32_t bits, flipped;
        memcpy(&bits, &values[at], sizeof bits);
        flipped = bits ^ 1u << rng_u64(2, 2, i) % 32;
        memcpy(&values[at], &flipped, sizeof flipped);
        if (weights_sums_create(params, &is) != ERR_OK)
            break;
        weights_sums_add(is, 0, params->elements, values);
        missed +=
            weights_sums_compare(was, is, "base", &unknown) != ERR_CHECKPOINT;
        misnamed += strstr(err_text(), param->name) == NULL ||
                    strstr(err_text(), "1 tensors") == NULL;
        memcpy(&values[at], &bits, sizeof bits);
        weights_sums_destroy(is);
    }
    tap_is_int(missed, 0, "a flipped bit is found");
    tap_is_int(misnamed, 0, "in the tensor that has it");
    is_ok(weights_sums_compare(was, was, "base", &unknown), "none is flipped");
    tap_is_int(unknown, 0, "all are known");
}

static void test_json(const struct params *params,
                      const struct weights_sums *sums)
{
    int unknown = 0;
    struct weights_sums *back = NULL, *none = NULL;
    json_t *json = weights_sums_json(sums);
    json_object_set_new(json, "a tensor that is not there", json_true());
    is_ok(weights_sums_parse(json, params, "state", &back), "back from JSON");
    tap_ok(back != NULL && same(back, sums), "the same");
    weights_sums_destroy(back);
    json_object_del(json, params->list[3].name);
    is_ok(weights_sums_parse(json, params, "state", &back), "one is missing");
    if (back != NULL)
        is_ok(weights_sums_compare(back, sums, "base", &unknown), "which fits");
    tap_is_int(unknown, 1, "and is not known");
    is_ok(weights_sums_parse(NULL, params, "state", &none), "of before");
    if (none != NULL)
        is_ok(weights_sums_compare(none, sums, "base", &unknown), "that fits");
    tap_is_int(unknown, params->count, "none is known");
    weights_sums_destroy(back);
    weights_sums_destroy(none);
    json_decref(json);
}

/* What a state may say of a tensor of one block. */
static void test_hostile(const struct params *params)
{
    static const char *const texts[] = {
        "7",      "[]",   "[1, 2]",       "[-1]",
        "[1.5]",  "null", "[4294967296]", "[\"1\"]",
        "[[1]]",  "{}",   "true",         "[9223372036854775807]",
        "[null]", "\"\"",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct weights_sums *sums = NULL;
        json_t *json = json_pack("{s:o}", params->list[1].name,
                                 json_loads(texts[i], JSON_DECODE_ANY, NULL));
        enum err rc = weights_sums_parse(json, params, "state", &sums);
        tap_ok(rc == ERR_CHECKPOINT && sums == NULL &&
                   strstr(err_text(), params->list[1].name) != NULL,
               "refused: %s", texts[i]);
        weights_sums_destroy(sums);
        json_decref(json);
    }
    struct weights_sums *sums = NULL;
    json_t *list = json_array();
    tap_ok(weights_sums_parse(list, params, "state", &sums) == ERR_CHECKPOINT,
           "refused: no object");
    json_decref(list);
}

int main(void)
{
    struct model_config config;
    struct params *params = NULL;
    struct weights_sums *sums = NULL;
    is_ok(weights_fixture_config("mpt-tiny", &config), "a model");
    config.vocab_size = 40000;
    is_ok(params_create(&config, &params), "its parameters");
    float *values = calloc((size_t)params->elements, sizeof *values);
    is_ok(weights_sums_create(params, &sums), "sums");
    if (values != NULL && sums != NULL) {
        for (int64_t i = 0; i < params->elements; i++)
            values[i] = (float)rng_normal(3, 0, (uint64_t)i);
        weights_sums_add(sums, 0, params->elements, values);
        test_whole(params, values, sums);
        test_parts(params, values, sums);
        test_compare(params, values, sums);
        test_json(params, sums);
        test_hostile(params);
    }
    weights_sums_destroy(sums);
    free(values);
    params_destroy(params);
    return tap_done();
}
