/* Shows the figures of tessera-plan as text for people or as JSON. The two are not
 * one table: a line is left out where it says nothing (parameters that are all
 * trained, a limit that was not given) and explained where it needs it, while a
 * program finds every key every time, with null for what is not known. */
#include "src/plan/plan.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/units.h"
#include "src/train/plan/trainer_backend.h"
#include "src/train/plan/train_memory.h"

#define KINDS (MEMORY_PLAN_KINDS + 1)

struct kind {
    const char *key;
    size_t bytes;
    const char *what;
};

/* The kinds of a rank's memory, the total last. */
static void list_kinds(const struct plan_figures *f, struct kind kinds[KINDS])
{
    const struct memory_plan *b = &f->bytes;
    struct memory_plan_kind list[MEMORY_PLAN_KINDS];
    const char *const what[KINDS] = {
        b->master > 0 ? "all of them, bf16" : "all of them, fp32",
        "fp32 weights of this rank's part",
        "of this rank's part",
        "tensors beside the moments",
        "do not train: whole on every rank",
        "of the slot at work",
        b->once ? "of shards: groups exchange them once a step"
                : "of slots, waiting to be added",
        "kept for backward",
        "shared by all blocks",
        "of the tokens at work",
        "of kernels and threads",
        "checkpoint.async: the copy",
        "node-local checkpoints: of other nodes' shards",
        "checkpoint.keep_state: steps in the node's memory",
        "microbatches of tokens, the order of samples",
        "gradient exchange",
        "program, libraries, tables (measured)",
        "of weights at the start, beyond the rest",
        b->host > 0 ? "of the device" : "",
    };
    memory_plan_kinds(b, list);
    for (int i = 0; i < MEMORY_PLAN_KINDS; i++)
        kinds[i] = (struct kind){ list[i].name, list[i].bytes, what[i] };
    kinds[MEMORY_PLAN_KINDS] =
        (struct kind){ "total", b->total, what[MEMORY_PLAN_KINDS] };
}

static void print_line(const char *name, const char *value, const char *what)
{
    printf("  %-22s %12s%s%s\n", name, value, what[0] != '\0' ? "  " : "",
           what);
}

typedef char *text_of(double value, char *text, size_t bytes);

static char *bytes_of(double value, char *text, size_t bytes)
{
    units_bytes(value, text, bytes);
    if (value >= (double)ARENA_BYTES_MAX)
        snprintf(text, bytes, "> 8 EiB");
    return text;
}

static char *whole_of(double value, char *text, size_t bytes)
{
    snprintf(text, bytes, "%.0f", value);
    return text;
}

/* "?": it is not known. */
static void line_of(text_of *made, const char *name, double value,
                    const char *what)
{
    char text[32];
    print_line(name, value < 0 ? "?" : made(value, text, sizeof text), what);
}

static const char *print_precision(const struct plan_figures *f)
{
    return trainer_backend_dtype(f->settings) == DTYPE_BF16 ? "bf16" : "fp32";
}

/* What it is planned for, which nobody should have to guess. */
static void print_hardware(const struct plan_figures *f)
{
    const struct kernels *kernels;
    bool build = kernels_find_planned("cuda", "auto", &kernels) == ERR_OK;
    printf("planned for %s in %s%s; for %s: hardware.backend=%s%s\n",
           f->cuda ? "GPUs" : "processors", print_precision(f),
           trainer_backend_fp8(f->settings) ? " and fp8" : "",
           f->cuda ? "processors" : "GPUs", f->cuda ? "cpu" : "cuda",
           build ? "" : " in a build with CUDA");
}

/* Two counts of FLOPs, for utilizations are told by either. */
static void print_model(const struct plan_figures *f)
{
    const struct train_settings *s = f->settings;
    printf("model (%s)\n", model_preset_names[s->model.preset]);
    line_of(units_count, "parameters", (double)f->params, "");
    if (f->active_params != f->params)
        line_of(units_count, "active parameters", (double)f->active_params,
                "of one token");
    if (f->trained != f->params)
        line_of(units_count, "trained parameters", (double)f->trained,
                f->settings->lora.rank > 0 ? "adapters and what is not frozen"
                                           : "the others are frozen");
    line_of(units_count, "FLOPs per token", f->flops_mfu,
            "mfu: attention not halved (LLM Foundry)");
    line_of(units_count, "", f->flops_mfu_causal,
            "mfu_causal: half of attention (llm.c, torchtitan)");
}

/* What each way takes and costs, the cheapest first. */
static void print_nearest(const struct plan_figures *f)
{
    char changes[256];
    struct train_settings *near = malloc(sizeof *near);
    const char *name = "nearest that fits";
    if (!f->nearest.found || near == NULL)
        printf("  %-22s none, on any number of ranks\n", name);
    for (int i = 0; f->nearest.found && near != NULL && i < f->nearest.count;
         i++) {
        const struct train_memory_way *way = &f->nearest.ways[i];
        train_memory_apply(f->settings, way, near);
        train_memory_changes(f->settings, f->ranks, near, way->ranks, changes,
                             sizeof changes);
        printf("  %-22s %s\n", i == 0 ? name : "or", changes);
        printf("  %-22s %12s  a rank; it sends %s in a step", "",
               UNITS_BYTES(way->bytes), UNITS_BYTES(way->sent));
        if (way->computed > 0)
            printf(", computes %.0f %% more", 100 * way->computed);
        if (way->packed)
            printf(", keeps rounded values");
        if (way->waiting)
            printf(", waits for saves");
        if (way->chained)
            printf(", not for ddp and zero1 of several ranks");
        putchar('\n');
    }
    free(near);
}

static void print_memory(const struct plan_figures *f)
{
    struct kind kinds[KINDS];
    char what[96];
    list_kinds(f, kinds);
    printf(
        "memory of a rank (%d ranks, %d threads each, microbatch %lld x %lld "
        "tokens, %s)\n",
        f->ranks, f->threads, (long long)f->settings->train.microbatch,
        (long long)f->settings->data.seq_len,
        replica_strategy_names[f->chosen.parallel.strategy]);
    for (int i = 0; i < KINDS; i++)
        line_of(bytes_of, kinds[i].key, (double)kinds[i].bytes, kinds[i].what);
    if (f->bytes.model.attention > 0)
        line_of(bytes_of, "of scratch", (double)f->bytes.model.attention,
                "cuDNN's attention, of a part of the microbatch");
    if (f->bytes.host > 0)
        line_of(bytes_of, "host", (double)f->bytes.host,
                "beside it: staging, parity, node_files, data, comm, runtime, "
                "reading");
    if (f->why[0] != '\0')
        printf("  %s\n", f->why);
    if (f->limit_bytes == 0)
        return;
    snprintf(what, sizeof what, "%s", f->fits ? "it fits" : "DOES NOT FIT");
    line_of(bytes_of, "limit", (double)f->limit_bytes, what);
    if (f->fits)
        return;
    print_nearest(f);
}

/* What is fixed for the run's whole life stands here, the slots and so the most
 * ranks, for whoever would add ranks later. */
static void print_batch(const struct plan_figures *f)
{
    const struct train_settings *s = f->settings;
    int64_t slot = s->train.global_batch / s->parallel.slots;
    char text[64];
    printf("batch and data\n");
    if (!f->batch_known) {
        printf("  train.global_batch is not given\n");
    } else {
        snprintf(text, sizeof text, "%lld slots of %lld, leaves of %lld",
                 (long long)s->parallel.slots, (long long)slot,
                 (long long)s->train.microbatch);
        line_of(whole_of, "global batch", (double)s->train.global_batch, text);
        snprintf(text, sizeof text,
                 f->more_slots > 0
                     ? "for the whole run; parallel.slots=%lld: %lld"
                     : "for the whole run",
                 (long long)f->more_slots,
                 (long long)(f->more_slots * s->parallel.sequence_degree));
        line_of(whole_of, "most ranks", f->ranks_max, text);
        line_of(units_count, "tokens per step",
                (double)(s->train.global_batch * s->data.seq_len), "");
        line_of(whole_of, "steps", f->steps, "");
        line_of(units_count, "tokens", f->tokens, "");
    }
    if (f->samples >= 0) {
        snprintf(text, sizeof text, "in %.0f samples", f->samples);
        line_of(units_count, "data set tokens", f->data_tokens, text);
    }
    if (f->epochs >= 0) {
        snprintf(text, sizeof text, "%.2f", f->epochs);
        print_line("epochs", text, f->epochs > 1 ? "samples are repeated" : "");
    }
    for (int i = 0; f->streams_known && i < f->data->count; i++) {
        char what[MIXTURE_NAME_BYTES + 16];
        snprintf(what, sizeof what, "epochs of %s",
                 f->data->text.entries[i].name);
        snprintf(text, sizeof text, "%.2f", f->stream_epochs[i]);
        print_line(what, text,
                   f->stream_epochs[i] > 1 ? "samples are repeated" : "");
    }
}

static char *tenth_of(double value, char *text, size_t bytes)
{
    snprintf(text, bytes, "%.1f", value);
    return text;
}

/* What depends on a rate that was given comes only with one. */
static void print_time(const struct plan_figures *f)
{
    char text[128];
    if (f->tokens_per_s > 0) {
        printf("throughput\n");
        line_of(units_count, "tokens per second", f->tokens_per_s, "");
        snprintf(text, sizeof text, "%s to %s%s", UNITS_SECONDS(f->step_low_s),
                 UNITS_SECONDS(f->step_high_s),
                 f->batch_known ? "" : ", without train.global_batch");
        line_of(units_seconds, "step", f->step_s, f->predicted ? text : "");
        if (f->mfu > 0)
            line_of(tenth_of, "MFU, %", 100 * f->mfu, "as --mfu");
        line_of(units_seconds, "training", f->train_s, "without failures");
    }
    if (f->gpu != NULL && f->tokens_per_s < 0)
        printf("  no step time: a GPU's is known in bf16 and fp8 only\n");
    if (f->gpu != NULL) {
        line_of(tenth_of, "hours", f->hours,
                f->hours < 0     ? "needs a batch and a duration, or --tokens"
                : f->goodput > 0 ? "with failures and saves"
                                 : "without failures; with them: --write-rate");
        line_of(whole_of, "cost", f->money,
                f->money < 0 ? "needs hours and --price" : "as --price");
    }
    printf("checkpoints\n");
    line_of(bytes_of, "each", f->checkpoint_bytes, "weights and moments");
    line_of(whole_of, "at most on disk", f->kept, "with the one being written");
    line_of(bytes_of, "disk", f->kept < 0 ? -1 : f->kept * f->checkpoint_bytes,
            "");
    if (f->free_bytes >= 0)
        line_of(bytes_of, "free", f->free_bytes, "where run.dir is");
    if (f->cost_s < 0)
        return;
    line_of(units_seconds, "training waits", f->cost_s, "for each");
    if (f->persist_s > 0)
        line_of(units_seconds, "written in", f->persist_s,
                "beside the training");
    line_of(units_seconds, "of that metadata", f->metadata_s,
            "1 ms a call, by files");
    if (f->goodput < 0)
        return;
    line_of(tenth_of, "a node fails, hours", f->mtbf_h, "between two failures");
    line_of(units_seconds, "a failure is known", f->detect_s,
            "54 % end a process, 30 % hang, 15 % take the node (Llama 3)");
    line_of(units_seconds, "and training again", f->restart_s,
            f->restart_measured ? "median of the run's ledger" : "assumed");
    snprintf(text, sizeof text, "%.0f steps", f->interval_steps);
    line_of(units_seconds, "interval", f->interval_s,
            f->interval_steps > 0 ? text : "");
    snprintf(text, sizeof text, "%.2f %%", 100 * f->goodput);
    print_line("goodput", text, "of the time is training that counts");
}

void plan_print(const struct plan_figures *figures)
{
    print_hardware(figures);
    print_model(figures);
    print_memory(figures);
    print_batch(figures);
    if (figures->predicted)
        plan_time_print(figures);
    print_time(figures);
}

static json_t *print_number(double value)
{
    return value < 0 || !isfinite(value) ? json_null() : json_real(value);
}

/* Beyond what a JSON integer holds it is a real number. */
static json_t *print_whole(double value)
{
    if (value >= (double)INT64_MAX)
        return print_number(value);
    return value < 0 ? json_null() : json_integer((json_int_t)value);
}

/* "host" is memory beside a GPU's, and is no key where ranks compute on
 * processors. */
static json_t *bytes_json(const struct plan_figures *f)
{
    struct kind kinds[KINDS];
    json_t *object = json_object();
    list_kinds(f, kinds);
    for (int i = 0; i < KINDS; i++)
        json_object_set_new(object, kinds[i].key,
                            json_integer((json_int_t)kinds[i].bytes));
    if (f->bytes.host > 0)
        json_object_set_new(object, "host",
                            json_integer((json_int_t)f->bytes.host));
    return object;
}

/* The settings that `near` changes, by name, and "ranks". */
static json_t *changes_json(const struct plan_figures *f,
                            const struct train_settings *near, int ranks)
{
    static const char *const keys[] = {
        "parallel.strategy", "parallel.shard_degree", "train.microbatch",
        "memory.checkpoint", "memory.compression",    "checkpoint.async"
    };
    char before[SETTINGS_VALUE_BYTES], after[SETTINGS_VALUE_BYTES];
    json_t *object = json_object();
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const struct setting *setting = train_settings_setting(keys[i]);
        settings_text(setting, f->settings, before);
        settings_text(setting, near, after);
        if (strcmp(before, after) != 0)
            json_object_set_new(
                object, keys[i],
                setting->type == SETTING_INT    ? json_integer(atoll(after))
                : setting->type == SETTING_BOOL ? json_false()
                                                : json_string(after));
    }
    if (ranks != f->ranks)
        json_object_set_new(object, "ranks", json_integer(ranks));
    return object;
}

static bool has_nearest(const struct plan_figures *f)
{
    return f->limit_bytes > 0 && !f->fits && f->nearest.found;
}

/* The cheapest ways that fit, "nearest" first, with what they cost. */
static json_t *ways_json(const struct plan_figures *f)
{
    json_t *list = json_array();
    struct train_settings *near = malloc(sizeof *near);
    for (int i = 0; has_nearest(f) && near != NULL && i < f->nearest.count;
         i++) {
        const struct train_memory_way *way = &f->nearest.ways[i];
        train_memory_apply(f->settings, way, near);
        json_array_append_new(
            list,
            json_pack("{s:o, s:s, s:i, s:i, s:I, s:f, s:f}", "changes",
                      changes_json(f, near, way->ranks), "strategy",
                      replica_strategy_names[way->strategy], "shard_degree",
                      way->shard_degree, "ranks", way->ranks, "bytes",
                      (json_int_t)way->bytes, "sent_bytes", way->sent,
                      "computed_more", way->computed));
    }
    free(near);
    return list;
}

static json_t *batch_json(const struct plan_figures *f)
{
    const struct train_settings *s = f->settings;
    if (!f->batch_known)
        return json_null();
    return json_pack(
        "{s:I, s:I, s:i, s:I, s:I, s:o, s:o}", "global_batch",
        (json_int_t)s->train.global_batch, "slots",
        (json_int_t)s->parallel.slots, "ranks_max", f->ranks_max,
        "slot_samples", (json_int_t)(s->train.global_batch / s->parallel.slots),
        "tokens_per_step",
        (json_int_t)(s->train.global_batch * s->data.seq_len), "steps",
        print_whole(f->steps), "tokens", print_whole(f->tokens));
}

/* microbatch is what the run would use; unknown without a batch or a setting.
 */
static json_t *microbatch_json(const struct plan_figures *f)
{
    const struct train_settings *s = f->settings;
    if (!f->batch_known && s->microbatch_automatic)
        return json_null();
    return json_integer(s->train.microbatch);
}

/* Epochs of each set of a mixture; null: none, or not known. */
static json_t *streams_json(const struct plan_figures *f)
{
    json_t *streams = json_object();
    if (!f->streams_known) {
        json_decref(streams);
        return json_null();
    }
    for (int i = 0; i < f->data->count; i++)
        json_object_set_new(streams, f->data->text.entries[i].name,
                            json_real(f->stream_epochs[i]));
    return streams;
}

enum err plan_print_json(const struct plan_figures *figures)
{
    const struct plan_figures *f = figures;
    double disk = f->kept < 0 ? UNKNOWN : f->kept * f->checkpoint_bytes;
    json_t *object = json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:I, s:o, s:o, s:{s:f, s:f}, s:o, s:o, s:o, "
        "s:s, s:I, "
        "s:o, "
        "s:i, s:i, s:I, s:o, s:{s:o, s:o, s:o, s:o}, s:{s:o, s:o, s:o, "
        "s:o, s:o, s:o, s:o, s:o}, s:s?, "
        "s:{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b}}",
        "backend", f->cuda ? "cuda" : "cpu", "precision", print_precision(f),
        "preset", model_preset_names[f->settings->model.preset], "params",
        (json_int_t)f->params, "active_params", (json_int_t)f->active_params,
        "trained_params", (json_int_t)f->trained, "bytes_per_rank",
        bytes_json(f), "microbatch", microbatch_json(f), "flops_per_token",
        "mfu", f->flops_mfu, "mfu_causal", f->flops_mfu_causal, "fits",
        f->limit_bytes > 0 ? json_boolean(f->fits) : json_null(), "nearest",
        has_nearest(f) ? changes_json(f, &f->nearest.settings, f->nearest.ranks)
                       : json_null(),
        "ways", ways_json(f), "strategy",
        replica_strategy_names[f->chosen.parallel.strategy], "shard_degree",
        (json_int_t)f->chosen.parallel.shard_degree, "limit_bytes",
        f->limit_bytes > 0 ? json_integer(f->limit_bytes) : json_null(),
        "ranks", f->ranks, "threads", f->threads, "seq_len",
        (json_int_t)f->settings->data.seq_len, "batch", batch_json(f), "data",
        "samples", print_whole(f->samples), "tokens",
        print_whole(f->data_tokens), "epochs", print_number(f->epochs),
        "streams", streams_json(f), "throughput", "tokens_per_s",
        print_number(f->tokens_per_s), "step_s", print_number(f->step_s),
        "train_s", print_number(f->train_s), "step_s_low",
        print_number(f->step_low_s), "step_s_high",
        print_number(f->step_high_s), "mfu", print_number(f->mfu), "hours",
        print_number(f->hours), "cost", print_number(f->money), "gpu",
        f->gpu != NULL ? f->gpu->name : NULL, "checkpoint", "bytes",
        print_whole(f->checkpoint_bytes), "kept", print_whole(f->kept),
        "disk_bytes", print_whole(disk), "free_bytes",
        print_whole(f->free_bytes), "cost_s", print_number(f->cost_s),
        "persist_s", print_number(f->persist_s), "interval_s",
        print_number(f->interval_s), "interval_steps",
        print_whole(f->interval_steps), "goodput", print_number(f->goodput),
        "detect_s", print_number(f->detect_s), "restart_s",
        print_number(f->restart_s), "metadata_s", print_number(f->metadata_s),
        "restart_measured", (int)f->restart_measured);
    json_object_set_new(object, "exchanged_once", json_boolean(f->bytes.once));
    json_object_set_new(object, "attention_scratch_bytes",
                        print_whole((double)f->bytes.model.attention));
    char *text = object != NULL ? json_dumps(object, JSON_INDENT(2)) : NULL;
    if (text != NULL)
        puts(text);
    json_decref(object);
    bool printed = text != NULL;
    free(text);
    return printed ? ERR_OK : err_set(ERR_MEMORY, "JSON: out of memory");
}
