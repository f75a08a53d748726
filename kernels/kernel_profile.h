/* Ops on a timeline (src/base/timeline.h): a table whose ops are those of
 * another, each told to ctx->profile where there is one that is on. Where the
 * host computes a span is an op's time; of a device the host's span is the
 * launch, and the op's own is between two events of the device.
 *
 * The device's clock is tied to the host's at the start of a range, by an event
 * for which the host waits: to half the time that this takes, some 10 us, and
 * told as `uncertain_ns`. From there on differences of events count. Events are
 * of a fixed number; ops that find none are counted as lost. One thread's. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernel_memory.h"
#include "kernels/kernel_ops.h"
#include "src/base/err.h"
#include "src/base/timeline.h"

#define KERNEL_PROFILE_ENUM(op, ...) KERNEL_OP_##op,
enum kernel_op {
    /* clang-format off */
    KERNEL_OPS(KERNEL_PROFILE_ENUM)
    KERNEL_OPS_FP8(KERNEL_PROFILE_ENUM)
    /* clang-format on */
    KERNEL_OP_COUNT
};

/* What an op is asked for, of which each has a row in kernel_work.c: its shape,
 * floating-point operations (a multiply-add is two; of attention those below the
 * diagonal) and the bytes of its tensors, each counted once, as if caches held
 * nothing else. What is known only on a device, such as experts' rows, is as if
 * all were even. */
#define KERNEL_WORK_DECLARE(op, parameters, ...)                               \
    struct timeline_detail kernel_work_##op KERNEL_PARAMETERS(parameters);
KERNEL_OPS(KERNEL_WORK_DECLARE)
KERNEL_OPS_FP8(KERNEL_WORK_DECLARE)

struct kernel_profile;

struct kernel_profile_span {
    struct timeline_span host;
    int timer; /* -1: none */
};

/* The ops' names, as the kinds of a timeline from `first` on. */
void kernel_profile_kinds(struct timeline_kind kinds[KERNEL_OP_COUNT]);

/* timeline and memory are borrowed; first: its kind of op 0. A device whose
 * memory has no timed events shows launches alone. */
enum err kernel_profile_create(struct timeline *timeline, int first,
                               const struct kernel_memory *memory,
                               struct kernel_profile **out);
/* Nothing is enqueued any more. NULL is fine. */
void kernel_profile_destroy(struct kernel_profile *profile);

struct timeline *kernel_profile_timeline(struct kernel_profile *profile);
bool kernel_profile_on(struct kernel_profile *profile);

/* After timeline_start(): ties the clocks; waits for the stream. */
enum err kernel_profile_start(struct kernel_profile *profile, void *stream);
/* Takes in what the device has done so far; at a step's end. */
enum err kernel_profile_follow(struct kernel_profile *profile);
/* Before timeline_stop(): waits so long for all of it; the rest is lost. */
enum err kernel_profile_finish(struct kernel_profile *profile,
                               double timeout_s);
/* Whether ops are timed on a device, and by how much its times may be off. */
bool kernel_profile_times_device(const struct kernel_profile *profile,
                                 int64_t *uncertain_ns);

/* Around an op, while a profile is on. work: of kernel_work_OP(). */
void kernel_profile_begin(const struct kernel_ctx *ctx, enum kernel_op op,
                          struct kernel_profile_span *span);
void kernel_profile_end(const struct kernel_ctx *ctx, enum kernel_op op,
                        struct kernel_profile_span *span,
                        const struct timeline_detail *work);

/* Defines the ops of a table that are told: NAME(op) is the function that
 * computes, TOLD(op) the one that tells. */
#define KERNEL_PROFILE_OP(NAME, TOLD, op, parameters, arguments)               \
    static enum err TOLD(op) KERNEL_PARAMETERS(parameters)                     \
    {                                                                          \
        struct kernel_profile_span span;                                       \
        if (!kernel_profile_on(ctx->profile))                                  \
            return NAME(op)(ctx, KERNEL_BARE arguments);                       \
        kernel_profile_begin(ctx, KERNEL_OP_##op, &span);                      \
        enum err rc = NAME(op)(ctx, KERNEL_BARE arguments);                    \
        struct timeline_detail work =                                          \
            kernel_work_##op(ctx, KERNEL_BARE arguments);                      \
        kernel_profile_end(ctx, KERNEL_OP_##op, &span, &work);                 \
        return rc;                                                             \
    }
