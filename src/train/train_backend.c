#include "src/train/train_backend.h"

#include <stdio.h>
#include <string.h>

#define AUTO "auto"
#define CPU "cpu"
#define CUDA "cuda"
#define FP32 "fp32"
#define BF16 "bf16"

static bool is(const char *text, const char *name)
{
    return strcmp(text, name) == 0;
}

static enum err no_bf16(enum err code, const char *why)
{
    return err_set(code,
                   "train.precision = bf16 needs a GPU and %s: use "
                   "hardware.backend = cuda, or train.precision = fp32",
                   why);
}

enum err train_backend_check(const struct train_settings *settings)
{
    if (is(settings->hardware.backend, CPU) &&
        is(settings->train.precision, BF16))
        return no_bf16(ERR_USAGE, "hardware.backend is cpu");
    return ERR_OK;
}

enum err train_backend_find(struct train_settings *settings,
                            const struct kernels **out)
{
    enum err rc = ERR_OK;
    struct train_settings *s = settings;
    const char *wanted = s->hardware.backend;
    const char *kernel_set = s->hardware.kernel_set;
    bool found = is(wanted, AUTO) && is(kernel_set, AUTO) &&
                 kernels_find(CUDA, AUTO, out) == ERR_OK;
    if (!found)
        TRY(kernels_find(is(wanted, CUDA) ? CUDA : CPU, kernel_set, out));
    bool cpu = is((*out)->backend, CPU);
    if (cpu && is(s->train.precision, BF16)) {
        rc = no_bf16(ERR_UNSUPPORTED, "there is none to compute with");
        goto out;
    }
    snprintf(s->hardware.backend, sizeof s->hardware.backend, "%s",
             (*out)->backend);
    if (is(s->train.precision, AUTO))
        snprintf(s->train.precision, sizeof s->train.precision, "%s",
                 cpu ? FP32 : BF16);
out:
    return rc;
}

enum err train_backend_plan(const struct train_settings *settings,
                            const struct kernels **out)
{
    return kernels_find_planned(is(settings->hardware.backend, CUDA) ? CUDA
                                                                     : CPU,
                                settings->hardware.kernel_set, out);
}

enum dtype train_backend_dtype(const struct train_settings *settings)
{
    const struct train_settings *s = settings;
    bool bf16 = is(s->train.precision, BF16) ||
                (is(s->train.precision, AUTO) && is(s->hardware.backend, CUDA));
    return bf16 ? DTYPE_BF16 : DTYPE_F32;
}
