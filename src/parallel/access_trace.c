/* Writes down the calls that the model will make for its blocks, checks the
 * real calls against that list and looks ahead in it. The calls themselves are
 * answered by replica_access.c. */
#include "src/parallel/access_trace.h"

#include <assert.h>
#include <stdlib.h>

#include "src/base/new.h"

/* A block has one call to gather and one to release forward, and four calls
 * backward. */
#define CALLS_PER_BLOCK 6
#define CALLS_OF_HEAD 10

struct access_trace {
    struct trace_call *calls[2]; /* evaluation, training */
    int count[2];
    int training;
    int next;
};

int access_trace_place(const struct params *params, int block)
{
    if (block == 0)
        return 0;
    if (block + 1 < params->block_count)
        return TRACE_LAYER + (block - 1) % params->layer_blocks;
    return params_tied(params) ? 1 : 0;
}

int64_t access_trace_place_elements(const struct params *params, int place)
{
    int64_t most = 0;
    for (int b = 0; b < params->block_count; b++)
        if (access_trace_place(params, b) == place &&
            params->blocks[b].elements > most)
            most = params->blocks[b].elements;
    return most;
}

/* A list that is being written. A block of which nothing trains has no
 * calls. */
struct list {
    const struct params *params;
    struct trace_call *calls;
    int count;
};

static void put(struct list *list, enum trace_kind kind, int block)
{
    if (params_trains(list->params, block))
        list->calls[list->count++] = (struct trace_call){ kind, block };
}

static void list_head(struct list *list, bool training)
{
    int last = list->params->block_count - 1;
    bool tied = params_tied(list->params);
    put(list, TRACE_GATHER, last);
    if (training)
        put(list, TRACE_GRADIENT, last);
    if (tied)
        put(list, TRACE_GATHER, 0);
    if (tied && training)
        put(list, TRACE_GRADIENT, 0);
    if (tied)
        put(list, TRACE_RELEASE, 0);
    if (training)
        put(list, TRACE_DONE, last);
    put(list, TRACE_RELEASE, last);
}

static void put_blocks(struct list *list, int layer, int first,
                       enum trace_kind kind)
{
    int begin = params_layer_block(list->params, layer);
    for (int i = first; i < list->params->layer_blocks; i++)
        put(list, kind, begin + i);
}

/* Lists the calls for a layer: forward and, in training, backward. */
static void list_layer(struct list *list, int layer, bool backward)
{
    int block = params_layer_block(list->params, layer);
    put_blocks(list, layer, 0, TRACE_GATHER);
    if (backward) {
        put_blocks(list, layer, 0, TRACE_GRADIENT);
        put_blocks(list, layer, 1, TRACE_DONE);
    }
    put_blocks(list, layer, 1, TRACE_RELEASE);
    if (backward)
        put(list, TRACE_DONE, block);
    put(list, TRACE_RELEASE, block);
}

/* As model_train_leaf() and model_eval_leaf() do. */
static int list_calls(const struct params *params, bool training,
                      struct trace_call *calls)
{
    struct list list = { .params = params, .calls = calls };
    int layers = params_layer(params, params->block_count - 1);
    put(&list, TRACE_GATHER, 0);
    put(&list, TRACE_RELEASE, 0);
    for (int layer = 0; layer < layers; layer++)
        list_layer(&list, layer, false);
    list_head(&list, training);
    if (!training)
        return list.count;
    for (int layer = layers - 1; layer >= params_lowest_layer(params); layer--)
        list_layer(&list, layer, true);
    put(&list, TRACE_GRADIENT, 0);
    put(&list, TRACE_DONE, 0);
    return list.count;
}

enum err access_trace_create(const struct params *params,
                             struct access_trace **out)
{
    enum err rc = ERR_OK;
    size_t most = (size_t)params->block_count * CALLS_PER_BLOCK + CALLS_OF_HEAD;
    struct access_trace *trace = NULL;
    TRY(new_zeroed(&trace, 1));
    for (int t = 0; t < 2; t++) {
        TRY_OUT(new_zeroed(&trace->calls[t], most));
        trace->count[t] = list_calls(params, t, trace->calls[t]);
        assert((size_t)trace->count[t] <= most);
    }
    trace->next = trace->count[0]; /* nothing is begun */
out:
    return new_or_none(rc, trace, out, access_trace_destroy);
}

void access_trace_destroy(struct access_trace *trace)
{
    if (trace == NULL)
        return;
    free(trace->calls[0]);
    free(trace->calls[1]);
    free(trace);
}

void access_trace_begin(struct access_trace *trace, bool training)
{
    trace->training = training;
    trace->next = 0;
}

void access_trace_step(struct access_trace *trace, enum trace_kind kind,
                       int block)
{
    const struct trace_call *call = access_trace_look(trace, 0);
    assert(call != NULL && call->kind == kind && call->block == block);
    (void)call;
    (void)kind;
    (void)block;
    trace->next++;
}

const struct trace_call *access_trace_look(const struct access_trace *trace,
                                           int ahead)
{
    int at = trace->next + ahead;
    return at < trace->count[trace->training]
               ? &trace->calls[trace->training][at]
               : NULL;
}
