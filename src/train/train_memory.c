#include "src/train/train_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/units.h"
#include "src/train/train_backend.h"

static enum replica_strategy strategy_of(const char *name)
{
    static const char *const names[] = { [REPLICA_DDP] = "ddp",
                                         [REPLICA_ZERO1] = "zero1",
                                         [REPLICA_ZERO2] = "zero2",
                                         [REPLICA_ZERO3] = "zero3" };
    int i = 0;
    while (strcmp(names[i], name) != 0) /* the schema has checked it */
        i++;
    return (enum replica_strategy)i;
}

struct replica_options
train_memory_replica(const struct train_settings *settings)
{
    const struct train_settings *s = settings;
    int64_t slot = s->train.global_batch / s->parallel.slots;
    int64_t leaves = s->train.microbatch > 0 ? slot / s->train.microbatch : 1;
    int chunks = (int)s->parallel.sequence_chunks;
    return (struct replica_options){
        .strategy = strategy_of(s->parallel.strategy),
        .dtype = train_backend_dtype(s),
        .exchange = train_backend_exchange(s),
        .optimizer = strcmp(s->optimizer.name, "lion") == 0 ? OPTIMIZER_LION
                                                            : OPTIMIZER_ADAMW,
        .shard_degree = (int)s->parallel.shard_degree,
        .prefetch = (int)s->parallel.prefetch,
        .slots = (int)s->parallel.slots,
        .leaves = (leaves > 0 ? (int)leaves : 1) * chunks,
        .sequence_chunks = chunks,
        .sequence_degree = (int)s->parallel.sequence_degree,
        .expert_degree = (int)s->parallel.expert_degree,
        .exact = strcmp(s->parallel.determinism, "elastic") == 0,
        .reduce_bf16 = strcmp(s->parallel.reduce_precision, "bf16") == 0,
    };
}

int train_memory_ranks_max(const struct train_settings *settings)
{
    return (int)(settings->parallel.slots * settings->parallel.sequence_degree);
}

enum err train_memory_model(const struct train_settings *settings, int threads,
                            struct model_options *out)
{
    const struct train_settings *s = settings;
    *out = (struct model_options){
        .threads = threads,
        .samples = s->train.microbatch,
        .seq_len = s->data.seq_len,
        .seed = (uint64_t)s->train.seed,
        .dtype = train_backend_dtype(s),
        .fp8 = train_backend_fp8(s),
        .chunks = (int)s->parallel.sequence_chunks,
        .own_chunks =
            (int)(s->parallel.sequence_chunks / s->parallel.sequence_degree),
        .expert_degree = (int)s->parallel.expert_degree,
        .graphs = strcmp(s->hardware.graphs, "off") != 0,
    };
    return train_settings_memory(s, &out->memory);
}

enum err train_memory_plan(const struct train_settings *settings,
                           const struct train_memory_place *place,
                           struct memory_plan *out)
{
    enum err rc = ERR_OK;
    struct params *params = NULL;
    struct model_config config = train_settings_model(settings);
    struct memory_plan_input input = {
        .config = &config,
        .kernels = place->kernels,
        .replica = train_memory_replica(settings),
        .ranks = place->ranks,
        .stage = settings->checkpoint.async,
    };
    TRY(train_memory_model(settings, place->threads, &input.options));
    TRY(params_create(&config, &params));
    input.params = params;
    TRY(memory_plan(&input, out));
out:
    params_destroy(params);
    return rc;
}

int64_t train_memory_smaller(int64_t microbatch)
{
    for (int64_t factor = 2; factor * factor <= microbatch; factor++)
        if (microbatch % factor == 0)
            return microbatch / factor;
    return microbatch > 1 ? 1 : 0;
}

static int64_t common_multiple(int64_t a, int64_t b)
{
    int64_t multiple = a;
    while (multiple % b != 0)
        multiple += a;
    return multiple;
}

/* The number of ranks that is tried after `ranks`, which the degrees divide;
 * 0: none. */
static int more_ranks(int ranks, const struct train_settings *settings)
{
    int64_t shard = settings->parallel.shard_degree;
    int64_t least = common_multiple(settings->parallel.expert_degree,
                                    settings->parallel.sequence_degree);
    least = common_multiple(least, shard > 0 ? shard : 1);
    int64_t most = train_memory_ranks_max(settings) / least * least;
    int64_t next = least;
    while (next <= ranks)
        next *= 2;
    if (next < most)
        return (int)next;
    return ranks < most ? (int)most : 0;
}

/* The largest microbatch up to the settings' with which they fit; 0: none. */
static enum err fit_microbatch(struct train_settings *settings,
                               const struct train_memory_place *place,
                               size_t limit_bytes, bool *fits)
{
    enum err rc = ERR_OK;
    int64_t begin = settings->train.microbatch;
    struct replica_options options = train_memory_replica(settings);
    struct memory_plan plan;
    *fits = false;
    if (replica_check(&options, place->ranks) != ERR_OK)
        return ERR_OK;
    int64_t micro = begin;
    for (; micro > 0; micro = train_memory_smaller(micro)) {
        settings->train.microbatch = micro;
        TRY(train_memory_plan(settings, place, &plan));
        *fits = plan.total <= limit_bytes;
        if (*fits)
            return ERR_OK;
    }
    settings->train.microbatch = begin;
out:
    return rc;
}

enum err train_memory_auto(const struct train_settings *settings,
                           int64_t *microbatch)
{
    enum err rc = ERR_OK;
    int64_t threads = settings->hardware.threads;
    bool fits = false;
    struct train_memory_place place = { .threads = threads > 0
                                                       ? (int)threads
                                                       : TRAIN_MEMORY_THREADS };
    struct train_settings *trial = malloc(sizeof *trial);
    if (trial == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    *trial = *settings;
    trial->train.microbatch =
        settings->train.global_batch / settings->parallel.slots;
    *microbatch = trial->train.microbatch;
    if (settings->memory.limit == 0)
        goto out;
    /* the processor's is of every build and processor */
    if (train_backend_dtype(settings) != DTYPE_F32 ||
        strcmp(settings->hardware.backend, "cuda") == 0)
        TRY(train_backend_plan(settings, &place.kernels));
    else
        TRY(kernels_find("cpu", "generic", &place.kernels));
    for (int ranks = more_ranks(0, settings); ranks > 0 && !fits;
         ranks = more_ranks(ranks, settings)) {
        place.ranks = ranks;
        TRY(fit_microbatch(trial, &place, (size_t)settings->memory.limit,
                           &fits));
    }
    *microbatch = fits ? trial->train.microbatch : 1;
out:
    free(trial);
    return rc;
}

static void set_text(char to[SETTINGS_TEXT_BYTES], const char *text)
{
    snprintf(to, SETTINGS_TEXT_BYTES, "%s", text);
}

static bool all_again(const struct train_settings *settings)
{
    struct model_memory memory;
    bool all = train_settings_memory(settings, &memory) == ERR_OK;
    for (int64_t i = 0; i < settings->model.n_layers; i++)
        all = all && (memory.recompute[i] & RECOMPUTE_BLOCK) != 0;
    return all;
}

/* The settings with change number `change` of those that save memory, from the
 * least to the most; false: there is none more. */
static bool apply_change(int change, struct train_settings *settings)
{
    if (change >= 6)
        return false;
    if (change % 3 >= 1 && !all_again(settings))
        set_text(settings->memory.checkpoint, "block: all");
    if (change % 3 == 2 && strcmp(settings->memory.compression, "none") == 0)
        set_text(settings->memory.compression,
                 train_backend_dtype(settings) == DTYPE_F32 ? "bf16" : "int8");
    if (change >= 3)
        settings->checkpoint.async = false;
    return true;
}

enum err train_memory_nearest(const struct train_settings *settings,
                              const struct train_memory_place *place,
                              size_t limit_bytes,
                              struct train_memory_nearest *out)
{
    enum err rc = ERR_OK;
    struct train_memory_place at = *place;
    out->found = false;
    for (; at.ranks > 0; at.ranks = more_ranks(at.ranks, settings)) {
        out->ranks = at.ranks;
        for (int change = 0;; change++) {
            out->settings = *settings;
            if (!apply_change(change, &out->settings))
                break;
            TRY(fit_microbatch(&out->settings, &at, limit_bytes, &out->found));
            if (out->found)
                return ERR_OK;
        }
    }
out:
    return rc;
}

static void append(char *text, size_t size, const char *format,
                   const char *value)
{
    size_t used = strlen(text);
    if (used > 0)
        snprintf(text + used, size - used, " ");
    used = strlen(text);
    snprintf(text + used, size - used, format, value);
}

void train_memory_changes(const struct train_settings *settings, int ranks,
                          const struct train_memory_nearest *nearest,
                          char *text, size_t size)
{
    const struct train_settings *near = &nearest->settings;
    char number[32];
    text[0] = '\0';
    if (near->train.microbatch != settings->train.microbatch) {
        snprintf(number, sizeof number, "%lld",
                 (long long)near->train.microbatch);
        append(text, size, "train.microbatch=%s", number);
    }
    if (strcmp(near->memory.checkpoint, settings->memory.checkpoint) != 0)
        append(text, size, "memory.checkpoint=\"%s\"", near->memory.checkpoint);
    if (strcmp(near->memory.compression, settings->memory.compression) != 0)
        append(text, size, "memory.compression=%s", near->memory.compression);
    if (near->checkpoint.async != settings->checkpoint.async)
        append(text, size, "checkpoint.async=%s", "false");
    if (nearest->ranks != ranks) {
        snprintf(number, sizeof number, "%d", nearest->ranks);
        append(text, size, "%s ranks", number);
    }
}

enum err train_memory_check(const struct train_settings *settings,
                            const struct train_memory_place *place)
{
    enum err rc = ERR_OK;
    struct memory_plan plan;
    struct train_memory_nearest *nearest = NULL;
    char need[32], limit[32], changes[256];
    size_t limit_bytes = (size_t)settings->memory.limit;
    if (limit_bytes == 0)
        return ERR_OK;
    TRY(train_memory_plan(settings, place, &plan));
    if (plan.total <= limit_bytes)
        return ERR_OK;
    nearest = malloc(sizeof *nearest);
    if (nearest == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    TRY(train_memory_nearest(settings, place, limit_bytes, nearest));
    units_bytes((double)plan.total, need, sizeof need);
    units_bytes((double)limit_bytes, limit, sizeof limit);
    snprintf(changes, sizeof changes, "nothing near, on any number of ranks");
    if (nearest->found)
        train_memory_changes(settings, place->ranks, nearest, changes,
                             sizeof changes);
    rc = err_set(ERR_MEMORY,
                 "a rank needs %s with train.microbatch=%lld, memory.limit is "
                 "%s; what fits: %s (tessera-plan shows it by kind)",
                 need, (long long)settings->train.microbatch, limit, changes);
out:
    free(nearest);
    return rc;
}

size_t train_memory_peak(void)
{
    char line[128];
    unsigned long long kib = 0;
    bool found = false;
    FILE *file = fopen("/proc/self/status", "re");
    if (file == NULL)
        return 0;
    while (!found && fgets(line, sizeof line, file) != NULL)
        found = sscanf(line, "VmHWM: %llu kB", &kib) == 1;
    fclose(file);
    return (size_t)kib << 10;
}
