/* The run's settings: completion, cross-checks, and the hash. */
#include "src/train/train_settings.h"

#include <stdlib.h>
#include <string.h>

#include "src/train/train_backend.h"
#include "tests/tap.h"

#define BASE                                                                   \
    "run.dir=/tmp/x", "data.train=/tmp/y", "train.max_duration=60ba",          \
        "train.global_batch=32"
#define BASE_COUNT 4

static enum err load(const char *more, struct train_settings *out)
{
    char text[SETTINGS_TEXT_BYTES];
    char *overrides[16] = { BASE };
    int count = BASE_COUNT;
    strcpy(text, more);
    for (char *word = strtok(text, " "); word != NULL; word = strtok(NULL, " "))
        overrides[count++] = word;
    return train_settings_load(NULL, overrides, count, out);
}

static const struct {
    const char *overrides;
    const char *text; /* part of the error */
} refused[] = {
    { "train.global_batch=0", "train.global_batch" },
    { "train.global_batch=-8", "train.global_batch" },
    { "train.global_batch=1.5", "train.global_batch" },
    { "train.global_batch=33 parallel.slots=8", "not divisible" },
    { "train.global_batch=2000000000", "train.global_batch" },
    { "train.microbatch=3", "train.microbatch" },
    { "train.microbatch=some", "train.microbatch" },
    { "train.seed=auto", "train.seed" },
    { "memory.limit=8GB", "memory.limit" },
    { "memory.limit=-1GiB", "memory.limit" },
    { "run.dir=", "run.dir is empty" },
    { "run.mode=rwx", "run.mode" },
    { "run.mode=1750", "run.mode" },
    { "run.mode=0650", "7 for the owner" },
    { "data.seq_len=129", "data.seq_len" },
    { "model.n_heads=5", "model.n_heads" },
    { "model.preset=mpt-1t", "model.preset" },
    { "train.max_duration=0.5dur", "fraction of itself" },
    { "train.max_duration=0ba", "train.max_duration is 0" },
    { "train.max_duration=0.0ep", "train.max_duration is 0" },
    { "train.max_duration=10sec", "scheduler.t_max" },
    { "train.max_duration=10sec scheduler.t_max=10sec", "scheduler.t_max" },
    { "scheduler.warmup=10", "scheduler.warmup" },
    { "eval.samples=5", "data.eval" },
    { "optimizer.lrr=1", "optimizer.lr" },
    { "optimizer.beta1=1.5", "optimizer.beta1" },
    { "optimizer.name=adagrad", "adamw|lion" },
    { "train.precision=fp16", "auto|fp32|bf16|fp8" },
    { "hardware.backend=rocm", "auto|cpu|cuda" },
    { "train.precision=bf16 hardware.backend=cpu",
      "needs a GPU and hardware.backend is cpu" },
    { "train.precision=fp8 hardware.backend=cpu",
      "fp8 needs a GPU and hardware.backend is cpu" },
    { "train.precision=fp8 model.d_model=96 model.n_heads=24 "
      "model.n_kv_heads=1",
      "model.d_model / model.n_heads is 8: change it, or use bf16" },
    { "train.precision=fp8 data.seq_len=120",
      "data.seq_len / parallel.sequence_chunks is 120" },
    { "train.precision=fp8 parallel.strategy=zero2 parallel.sequence_chunks=16",
      "data.seq_len / parallel.sequence_chunks is 8" },
    { "checkpoint.interval=3auto", "'3auto' is not a duration" },
    { "checkpoint.local_interval=auto", "'auto' is not a duration" },
    { "eval.interval=auto", "'auto' is not a duration" },
    { "parallel.determinism=maybe", "parallel.determinism" },
    { "parallel.sequence_chunks=0", "parallel.sequence_chunks" },
    { "parallel.strategy=zero1 parallel.sequence_chunks=2", "zero2 or zero3" },
    { "parallel.sequence_chunks=3 parallel.strategy=zero2", "data.seq_len" },
    { "parallel.sequence_degree=2 parallel.strategy=zero3",
      "does not divide parallel.sequence_chunks (1)" },
    { "parallel.expert_degree=2 parallel.strategy=zero2", "dense model" },
    { "parallel.expert_degree=2 parallel.strategy=zero1 "
      "model.preset=moe-tiny",
      "zero2 or zero3" },
    { "parallel.expert_degree=3 parallel.strategy=zero2 model.preset=moe-tiny",
      "8 experts" },
    { "parallel.expert_degree=8 parallel.strategy=zero2 model.preset=moe-tiny "
      "parallel.slots=4",
      "most ranks" },
    { "parallel.expert_degree=2 parallel.strategy=zero2 model.preset=moe-tiny "
      "parallel.sequence_chunks=2",
      "not combined" },
    { "parallel.expert_degree=8 parallel.strategy=zero3 model.preset=moe-tiny "
      "model.ffn_width=96",
      "no multiple of 16384" },
};

static void test_completion(struct train_settings *s)
{
    tap_ok(load("", s) == ERR_OK, "the smallest configuration: %s", err_text());
    tap_is_int(s->model.d_model, 128, "the preset fills the shape");
    tap_is_int(s->data.seq_len, 128, "seq_len is the model's");
    tap_is_int(s->parallel.slots, 8, "32 samples: 8 slots");
    tap_is_int(s->train.microbatch, 4, "a leaf is a slot");
    tap_ok(load("train.global_batch=12", s) == ERR_OK &&
               s->parallel.slots == 4 && s->train.microbatch == 3,
           "12 samples: 4 slots of 3");
    tap_ok(load("train.global_batch=7", s) == ERR_OK && s->parallel.slots == 1,
           "7 samples: 1 slot");
    tap_ok(load("train.global_batch=7 parallel.slots=7", s) == ERR_OK &&
               s->train.microbatch == 1,
           "7 slots when asked for");
    tap_ok(load("model.n_layers=5 model.vocab_size=1000", s) == ERR_OK &&
               s->model.n_layers == 5 && s->model.d_model == 128,
           "a preset can be changed in part");
    tap_ok(load("parallel.strategy=zero3 parallel.sequence_chunks=4 "
                "parallel.sequence_degree=2",
                s) == ERR_OK &&
               s->parallel.sequence_chunks == 4,
           "4 chunks on 2 ranks: %s", err_text());
    tap_ok(load("parallel.strategy=zero3 parallel.shard_degree=2 "
                "model.preset=moe-tiny parallel.expert_degree=4",
                s) == ERR_OK,
           "experts on 4 ranks: %s", err_text());
}

static void test_hash(struct train_settings *s)
{
    static const struct {
        const char *overrides;
        bool same;
    } cases[] = {
        { "run.dir=/tmp/other", true },
        { "run.mode=0750", true },
        { "hardware.threads=3 log.interval=7", true },
        { "checkpoint.interval=7ba", true },
        { "checkpoint.interval=auto", true },
        { "hardware.backend=cuda", true },
        { "optimizer.lr=1e-3", false },
        { "optimizer.name=lion", false },
        { "train.precision=fp32", false },
        { "train.precision=fp8", false },
        { "train.seed=18", false },
        { "parallel.slots=4", false },
        { "scheduler.warmup=7ba", false },
        { "parallel.strategy=zero2", true },
        { "parallel.strategy=zero2 parallel.sequence_chunks=2", false },
    };
    char base[65], other[65];
    tap_ok(load("", s) == ERR_OK && train_settings_hash(s, base) == ERR_OK,
           "hash");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        tap_ok(load(cases[i].overrides, s) == ERR_OK &&
                   train_settings_hash(s, other) == ERR_OK &&
                   (strcmp(base, other) == 0) == cases[i].same,
               "%s %s the hash", cases[i].overrides,
               cases[i].same ? "keeps" : "changes");
}

static void test_print(struct train_settings *s)
{
    static const char *const cases[][2] = {
        { "train.global_batch", "32" },
        { "run.dir", "/tmp/x" },
        { "train.max_duration", "60ba" },
        { "parallel.allow_arithmetic_change", "false" },
        { "memory.limit", "0B" },
    };
    char *text = NULL;
    (void)load("", s);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tap_ok(train_settings_print(s, cases[i][0], &text) == ERR_OK, "print");
        tap_is_str(text, cases[i][1], "%s", cases[i][0]);
        free(text);
        text = NULL;
    }
    tap_ok(load("checkpoint.interval=auto", s) == ERR_OK &&
               s->checkpoint.interval.unit == UNIT_AUTO &&
               train_settings_print(s, "checkpoint.interval", &text) == ERR_OK,
           "an interval that is chosen");
    tap_is_str(text, "auto", "is printed as it is written");
    free(text);
    tap_ok(load("train.microbatch=auto", s) == ERR_OK &&
               s->train.microbatch == 4,
           "a whole number that is chosen");
    tap_ok(train_settings_print(s, "no.such", &text) == ERR_USAGE,
           "an unknown setting cannot be printed");
}

static void test_optimizer(struct train_settings *s)
{
    tap_ok(load("", s) == ERR_OK && s->optimizer.beta1 == 0.9 &&
               s->optimizer.beta2 == 0.95,
           "AdamW's betas");
    tap_ok(load("optimizer.name=lion", s) == ERR_OK &&
               s->optimizer.beta1 == 0.9 && s->optimizer.beta2 == 0.99,
           "Lion's are others");
    tap_ok(load("optimizer.name=lion optimizer.beta2=0.95", s) == ERR_OK &&
               s->optimizer.beta2 == 0.95,
           "where they are not given");
}

static void test_backend(struct train_settings *s)
{
    const struct kernels *kernels = NULL;
    tap_ok(load("hardware.kernel_set=generic", s) == ERR_OK &&
               train_backend_find(s, 1, &kernels) == ERR_OK &&
               strcmp(kernels->kernel_set, "generic") == 0,
           "a kernel set of the processor chooses it");
    tap_is_str(s->hardware.backend, "cpu", "as the settings say then");
    tap_is_str(s->train.precision, "fp32", "and the precision");
    tap_ok(train_backend_dtype(s) == DTYPE_F32, "which has a dtype");
    tap_ok(load("hardware.kernel_set=generic train.precision=bf16", s) ==
                   ERR_OK &&
               train_backend_find(s, 1, &kernels) == ERR_UNSUPPORTED &&
               strstr(err_text(), "needs a GPU and there is none") != NULL,
           "bf16 is refused where no GPU is found");
    tap_ok(load("hardware.kernel_set=generic train.precision=fp8", s) ==
                   ERR_OK &&
               train_backend_find(s, 1, &kernels) == ERR_UNSUPPORTED &&
               strstr(err_text(), "fp8 needs a GPU and there is none") != NULL,
           "and so is fp8");
    tap_ok(load("train.precision=fp8", s) == ERR_OK && train_backend_fp8(s) &&
               train_backend_dtype(s) == DTYPE_BF16,
           "which is bf16 but for products");
    tap_ok(load("", s) == ERR_OK && train_backend_plan(s, &kernels) == ERR_OK &&
               strcmp(kernels->backend, "cpu") == 0 &&
               train_backend_dtype(s) == DTYPE_F32,
           "a plan does not look for one");
    tap_ok(load("hardware.backend=cuda", s) == ERR_OK &&
               train_backend_dtype(s) == DTYPE_BF16,
           "with cuda it is bf16");
    enum err rc = train_backend_plan(s, &kernels);
    tap_ok(rc == ERR_OK ? kernels->memory->device
                        : rc == ERR_UNSUPPORTED &&
                              strstr(err_text(), "no CUDA kernels") != NULL,
           "planned for without a GPU, if it is in this build");
    tap_ok(load("hardware.backend=cuda train.precision=fp32", s) == ERR_OK &&
               train_backend_dtype(s) == DTYPE_F32,
           "if not told otherwise");
    tap_ok(load("hardware.backend=cuda hardware.kernel_set=avx2", s) ==
                   ERR_OK &&
               train_backend_find(s, 1, &kernels) == ERR_UNSUPPORTED,
           "it has no kernel set of the processor");
    tap_ok(load("", s) == ERR_OK &&
               strcmp(train_backend_exchange(s), "any") == 0 &&
               load("hardware.fallback=refuse", s) == ERR_OK &&
               strcmp(train_backend_exchange(s), "auto") == 0 &&
               load("parallel.exchange=staged hardware.fallback=refuse", s) ==
                   ERR_OK &&
               strcmp(train_backend_exchange(s), "staged") == 0,
           "a slower exchange is a fall-back unless it is asked for");
    tap_ok(load("parallel.exchange=nccl hardware.backend=cpu", s) ==
                   ERR_USAGE &&
               load("parallel.exchange=nccl hardware.kernel_set=generic", s) ==
                   ERR_OK &&
               train_backend_find(s, 2, &kernels) == ERR_USAGE &&
               strstr(err_text(), "is for GPUs") != NULL,
           "processors have no NCCL: %s", err_text());
    tap_ok(load("hardware.kernel_set=generic", s) == ERR_OK &&
               train_backend_find(s, 2, &kernels) == ERR_OK,
           "their ranks have nothing to fall back from");
    tap_is_str(s->hardware.fallback, "warn", "as the settings say then");
}

int main(void)
{
    struct train_settings *s = calloc(1, sizeof *s);
    test_completion(s);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        enum err rc = load(refused[i].overrides, s);
        if (!tap_ok(rc == ERR_USAGE &&
                        strstr(err_text(), refused[i].text) != NULL,
                    "refused: %s", refused[i].overrides))
            tap_note("%s", rc == ERR_OK ? "accepted" : err_text());
    }
    test_hash(s);
    test_print(s);
    test_optimizer(s);
    test_backend(s);
    free(s);
    return tap_done();
}
