/* tessera-hf verify: two models compared, number by number. A number of the
 * second may be that of the first rounded to a smaller type.
 *
 * Nothing is measured with a tolerance: rounding is a function, so the first
 * model's numbers are rounded here to each type in turn and must then be the
 * second's to the bit (or be the first's as they are, in a tensor that a file has in
 * full). All types are tried at once while the numbers pass, and one
 * is out at its first wrong bit; what is left at the end is what the second model
 * is. Only where none is left do the differences themselves matter. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clean.h"
#include "src/base/new.h"
#include "src/convert/hf_cmd.h"
#include "src/formats/gguf/gguf_blocks.h"
#include "src/formats/safetensors/half.h"
#include "src/formats/hf/hf_config.h"
#include "src/job/stop.h"

/* Numbers that are compared at a time, whole blocks of every type. */
#define WINDOW ((int64_t)1 << 20)
#define BLOCK 32 /* of Q8_0 */
#define TYPES 4  /* of enum hf_cmd_dtype */

const char *const hf_cmd_dtypes[] = { "fp32", "bf16", "fp16", "q8_0", NULL };
const char *const hf_cmd_torch_dtypes[] = { "float32", "bfloat16", "float16",
                                            "q8_0" };

enum err hf_poll(void)
{
    return stop_requested() == 0
               ? ERR_OK
               : err_set(ERR_IO, "interrupted: what was begun is removed");
}

enum err hf_verify_open(const char *path, struct hf_model *out)
{
    *out = (struct hf_model){ .weights = NULL };
    TRY(weights_open(path, &out->weights));
    out->about = weights_about(out->weights);
    TRY(params_create(&out->about->config, &out->params));
    return weights_match(out->weights, out->params, NULL, "");
}

void hf_verify_close(struct hf_model *model)
{
    params_destroy(model->params);
    weights_close(model->weights);
}

/* What is found out while the numbers pass. */
struct comparison {
    bool as[TYPES];  /* all so far are the first's, rounded to this type */
    int64_t numbers; /* compared */
    int64_t differing;
    double largest; /* difference */
    char name[96];  /* where that is */
    int64_t element;
};

static void round_to(enum hf_cmd_dtype dtype, const float *from, int64_t count,
                     float *to)
{
    char block[2 * BLOCK];
    assert(count > 0 && (dtype != HF_CMD_Q8_0 || count % BLOCK == 0));
    switch (dtype) {
    case HF_CMD_F32:
        memcpy(to, from, (size_t)count * sizeof *to);
        return;
    case HF_CMD_BF16:
        for (int64_t i = 0; i < count; i++)
            to[i] = half_from_bf16(half_to_bf16(from[i]));
        return;
    case HF_CMD_F16:
        for (int64_t i = 0; i < count; i++)
            to[i] = half_from_f16(half_to_f16(from[i]));
        return;
    case HF_CMD_Q8_0:
        for (int64_t i = 0; i < count; i += BLOCK) {
            gguf_blocks_write(GGUF_BLOCKS_Q8_0, from + i, 1, block);
            gguf_blocks_read(GGUF_BLOCKS_Q8_0, block, 1, to + i);
        }
        return;
    }
}

/* How many differ, and the worst; a NaN is worse than any difference. */
static void look_closely(struct comparison *c, const struct param *param,
                         int64_t first, const float *a, const float *b,
                         int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        double difference = fabs((double)a[i] - (double)b[i]);
        if (memcmp(&a[i], &b[i], sizeof a[i]) == 0)
            continue;
        c->differing++;
        if (difference > c->largest || c->name[0] == '\0' ||
            isnan(difference)) {
            c->largest = difference;
            c->element = first + i;
            snprintf(c->name, sizeof c->name, "%s", param->name);
        }
    }
}

/* a, b and rounded have room for WINDOW. */
/* In windows, since a tensor may be larger than memory. Equal bytes need no look,
 * unless a type was ruled out before by others: then which types are left does not
 * change, either. */
static enum err compare_param(struct hf_model *left, struct hf_model *right,
                              const struct param *param, float *a, float *b,
                              float *rounded, struct comparison *c)
{
    /* vectors are in full in every file of blocks, and a block is of a row */
    bool blocks = param->dims == 2 && param->shape[1] % BLOCK == 0;
    for (int64_t at = 0; at < param->numel; at += WINDOW) {
        int64_t count = param->numel - at < WINDOW ? param->numel - at : WINDOW;
        size_t bytes = (size_t)count * sizeof *a;
        TRY(hf_poll());
        TRY(weights_read(left->weights, param, at, at + count, a));
        TRY(weights_read(right->weights, param, at, at + count, b));
        c->numbers += count;
        if (memcmp(a, b, bytes) == 0 && c->as[HF_CMD_F32])
            continue;
        if (memcmp(a, b, bytes) != 0)
            look_closely(c, param, at, a, b, count);
        for (int t = 0; t < TYPES; t++) {
            if (!c->as[t])
                continue;
            bool whole = t == HF_CMD_F32 || (t == HF_CMD_Q8_0 && !blocks);
            round_to(whole ? HF_CMD_F32 : (enum hf_cmd_dtype)t, a, count,
                     rounded);
            c->as[t] =
                memcmp(rounded, b, bytes) == 0 || memcmp(a, b, bytes) == 0;
        }
    }
    return ERR_OK;
}

static enum err verify_compare(struct hf_model *a, struct hf_model *b,
                               struct comparison *c)
{
    enum err rc = ERR_OK;
    *c = (struct comparison){ .as = { true, true, true, true } };
    float *room = NULL;
    TRY(new_room(&room, 3 * (size_t)WINDOW));
    const char *setting =
        hf_config_difference(&a->about->config, &b->about->config);
    if (setting != NULL)
        TRY_OUT(err_set(ERR_DATA, "%s and %s differ in %s", a->about->path,
                        b->about->path, setting));
    TRY_OUT(weights_match(b->weights, a->params, NULL, ""));
    for (int i = 0; i < a->params->count; i++)
        TRY_OUT(compare_param(a, b, &a->params->list[i], room, room + WINDOW,
                              room + 2 * WINDOW, c));
out:
    free(room);
    return rc;
}

enum err hf_verify_written(struct hf_model *model, const char *path,
                           enum hf_cmd_dtype dtype)
{
    struct hf_model written;
    struct comparison c;
    assert((int)dtype >= 0 && dtype < TYPES);
    enum err rc = hf_verify_open(path, &written);
    if (rc == ERR_OK)
        rc = verify_compare(model, &written, &c);
    if (rc == ERR_OK && !c.as[dtype])
        rc = err_set(ERR_DATA,
                     "%s: read back, %" PRId64 " numbers are not those that "
                     "were written, the worst by %g, %s[%" PRId64 "]",
                     path, c.differing, c.largest, c.name, c.element);
    hf_verify_close(&written);
    return rc;
}

enum err hf_verify(struct hf_cmd *cmd)
{
    enum err rc = ERR_OK;
    struct hf_model a, b = { .weights = NULL };
    struct comparison c;
    TRY_OUT(hf_verify_open(cmd->paths[0], &a));
    TRY_OUT(hf_verify_open(cmd->paths[1], &b));
    TRY_OUT(verify_compare(&a, &b, &c));
    printf("%" PRId64 " numbers in %d tensors: ", c.numbers, a.params->count);
    if (c.as[HF_CMD_F32]) {
        printf("equal, bit for bit\n");
        goto out;
    }
    for (int t = 1; t < TYPES; t++)
        if (c.as[t]) {
            clean_printf("equal, rounded to %s; ", hf_cmd_dtypes[t]);
            break;
        }
    clean_printf("%" PRId64 " differ, the largest difference is %g, %s[%" PRId64
                 "]\n",
                 c.differing, c.largest, c.name, c.element);
    if (!c.as[HF_CMD_BF16] && !c.as[HF_CMD_F16] && !c.as[HF_CMD_Q8_0])
        cmd->exit_code = HF_VERIFY_DIFFERENT;
out:
    hf_verify_close(&a);
    hf_verify_close(&b);
    return rc;
}
