/* Chooses the kernel table, the data type and the way of exchange from the
 * settings. The backends are found by kernels/kernels.c; which GPU a rank has
 * is start_devices.c.
 *
 * "auto" is a GPU where there is one that this build can use, and bf16 there;
 * else the processor and fp32. Who asks for bf16 or fp8 and has no GPU gets an
 * error, never other bits. For a plan "auto" is the processor, so that a plan says
 * the same on a login node and on the node that trains; a precision that only a
 * GPU has is planned as a GPU's, which needs its sizes alone. */
#include "src/train/plan/trainer_backend.h"

#include <assert.h>
#include <string.h>

#define AUTO "auto"
#define CPU "cpu"
#define CUDA "cuda"
#define FP8_MULTIPLE 16 /* of what is rounded to it, rows and columns */

/* The error for a precision that only a GPU has. */
static enum err no_gpu(enum err code, enum train_precision precision,
                       const char *why)
{
    return err_set(code,
                   "train.precision = %s needs a GPU and %s: use "
                   "hardware.backend = cuda, or train.precision = fp32",
                   train_precision_names[precision], why);
}

static bool needs_gpu(const struct train_settings *s)
{
    return s->train.precision == PRECISION_BF16 ||
           s->train.precision == PRECISION_FP8;
}

/* Checks the widths that may be no multiples of 16; others always are. */
static enum err check_fp8_shape(const struct train_settings *s)
{
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {
        { s->model.head_dim > 0
              ? "2 model.n_kv_heads x model.head_dim"
              : "2 model.n_kv_heads x model.d_model / model.n_heads",
          2 * model_config_kv(&s->model) },
        { "data.seq_len / parallel.sequence_chunks",
          s->data.seq_len / s->parallel.sequence_chunks },
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i].value % FP8_MULTIPLE != 0)
            return err_set(ERR_USAGE,
                           "train.precision = fp8 needs multiples of %d, and "
                           "%s is %lld: change it, or use bf16",
                           FP8_MULTIPLE, sizes[i].name,
                           (long long)sizes[i].value);
    return ERR_OK;
}

/* Refuses a way of exchange for ranks on processors, whose tensors travel in
 * one way only. */
static enum err check_exchange(const struct train_settings *s, bool cpu)
{
    if (!cpu || s->parallel.exchange == EXCHANGE_AUTO)
        return ERR_OK;
    return err_set(ERR_USAGE,
                   "parallel.exchange = %s is for GPUs, and the processor "
                   "computes: use auto, or hardware.backend = cuda",
                   comm_exchange_names[s->parallel.exchange]);
}

enum err trainer_backend_check(const struct train_settings *settings)
{
    const struct train_settings *s = settings;
    bool cpu = s->hardware.backend == BACKEND_CPU;
    if (cpu && needs_gpu(s))
        return no_gpu(ERR_USAGE, s->train.precision, "hardware.backend is cpu");
    TRY(check_exchange(s, cpu));
    if (trainer_backend_fp8(s))
        TRY(check_fp8_shape(s));
    return ERR_OK;
}

enum err trainer_backend_find(struct train_settings *settings, int ranks,
                              const struct kernels **out)
{
    struct train_settings *s = settings;
    enum hardware_backend wanted = s->hardware.backend;
    const char *kernel_set = s->hardware.kernel_set;
    bool found = wanted == BACKEND_AUTO && strcmp(kernel_set, AUTO) == 0 &&
                 kernels_find(CUDA, AUTO, out) == ERR_OK;
    if (!found)
        TRY(kernels_find(wanted == BACKEND_CUDA ? CUDA : CPU, kernel_set, out));
    bool cpu = strcmp((*out)->backend, CPU) == 0;
    if (cpu && needs_gpu(s))
        TRY(no_gpu(ERR_UNSUPPORTED, s->train.precision,
                   "there is none to compute with"));
    TRY(check_exchange(s, cpu));
    if (trainer_backend_fp8(s) && (*out)->quantize == NULL)
        TRY(err_set(ERR_UNSUPPORTED,
                    "train.precision = fp8: %s/%s has no 8-bit floats: use "
                    "bf16",
                    (*out)->backend, (*out)->kernel_set));
    s->hardware.backend = cpu ? BACKEND_CPU : BACKEND_CUDA;
    if (s->train.precision == PRECISION_AUTO)
        s->train.precision = cpu ? PRECISION_FP32 : PRECISION_BF16;
    if (s->hardware.fallback == FALLBACK_AUTO)
        s->hardware.fallback =
            !cpu && ranks > 1 ? FALLBACK_REFUSE : FALLBACK_WARN;
    assert(s->hardware.backend != BACKEND_AUTO && ranks > 0);
    return ERR_OK;
}

enum err trainer_backend_plan(const struct train_settings *settings,
                              const struct kernels **out)
{
    bool cuda = settings->hardware.backend == BACKEND_CUDA;
    const char *kernel_set = settings->hardware.kernel_set;
    if (!cuda && needs_gpu(settings) &&
        kernels_find_planned(CUDA, kernel_set, out) == ERR_OK)
        return ERR_OK;
    return kernels_find_planned(cuda ? CUDA : CPU, kernel_set, out);
}

bool trainer_backend_falls_back(const struct train_settings *settings)
{
    return settings->hardware.fallback != FALLBACK_REFUSE;
}

enum comm_exchange
trainer_backend_exchange(const struct train_settings *settings)
{
    const struct train_settings *s = settings;
    if (s->parallel.exchange == EXCHANGE_AUTO && trainer_backend_falls_back(s))
        return EXCHANGE_ANY;
    return s->parallel.exchange;
}

enum dtype trainer_backend_dtype(const struct train_settings *settings)
{
    const struct train_settings *s = settings;
    bool bf16 = needs_gpu(s) || (s->train.precision == PRECISION_AUTO &&
                                 s->hardware.backend == BACKEND_CUDA);
    return bf16 ? DTYPE_BF16 : DTYPE_F32;
}

bool trainer_backend_fp8(const struct train_settings *settings)
{
    return settings->train.precision == PRECISION_FP8;
}
