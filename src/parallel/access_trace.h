/* The order in which the model reaches its blocks: the calls of struct
 * param_access during one leaf.
 *
 * Where blocks are gathered from other ranks, every rank must make the same
 * calls, also one that has no leaf in this microstep or whose leaf has failed;
 * and what comes next can be fetched ahead. So the order is written down, calls
 * are checked against it, and the calls that are left can be made without a
 * model. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/model/params.h"

enum trace_kind { TRACE_GATHER, TRACE_RELEASE, TRACE_GRADIENT, TRACE_DONE };

struct trace_call {
    enum trace_kind kind;
    int block;
};

struct access_trace;

enum err access_trace_create(const struct params *params,
                             struct access_trace **out);
void access_trace_destroy(struct access_trace *trace);

/* Begin with the first call of a training or an evaluation. */
void access_trace_begin(struct access_trace *trace, bool training);
/* This call was made; another than the next one is a programmer error. */
void access_trace_step(struct access_trace *trace, enum trace_kind kind,
                       int block);
/* The call that comes `ahead` calls after the next one; NULL: the end. */
const struct trace_call *access_trace_look(const struct access_trace *trace,
                                           int ahead);

/* Buffers for blocks at work, TRACE_PLACES kinds: of the embedding, of the
 * final norm, then of a layer: TRACE_LAYER of its first block and one of each
 * kind of its experts' matrices. A head that is not tied to the embedding never
 * is at work together with it and shares its buffer. The kind of a block, and
 * elements of the largest of a kind, 0 where there is none. */
#define TRACE_LAYER 2
#define TRACE_PLACES (TRACE_LAYER + 1 + PARAM_EXPERT_KINDS)
int access_trace_place(const struct params *params, int block);
int64_t access_trace_place_elements(const struct params *params, int place);
