/* Writes down the calls that the model will make for its blocks, checks the
 * real calls against that list and looks ahead in it. The calls themselves are
 * answered by replica_access.c. */
#include "src/parallel/access_trace.h"

#include <assert.h>
#include <stdlib.h>

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

bool access_trace_tied(const struct params *params)
{
    return params->blocks[params->block_count - 1].place[PARAM_LM_HEAD] < 0;
}

int access_trace_place(const struct params *params, int block)
{
    if (block == 0)
        return 0;
    if (block + 1 < params->block_count)
        return TRACE_LAYER + (block - 1) % params->layer_blocks;
    return access_trace_tied(params) ? 1 : 0;
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

static void list_head(const struct params *params, int training,
                      struct trace_call *calls, int *count)
{
    int last = params->block_count - 1;
    bool tied = access_trace_tied(params);
    int n = *count;
    calls[n++] = (struct trace_call){ TRACE_GATHER, last };
    if (training)
        calls[n++] = (struct trace_call){ TRACE_GRADIENT, last };
    if (tied)
        calls[n++] = (struct trace_call){ TRACE_GATHER, 0 };
    if (tied && training)
        calls[n++] = (struct trace_call){ TRACE_GRADIENT, 0 };
    if (tied)
        calls[n++] = (struct trace_call){ TRACE_RELEASE, 0 };
    if (training)
        calls[n++] = (struct trace_call){ TRACE_DONE, last };
    calls[n++] = (struct trace_call){ TRACE_RELEASE, last };
    *count = n;
}

static int list_blocks(const struct params *params, int layer, int first,
                       enum trace_kind kind, struct trace_call *calls)
{
    int begin = params_layer_block(params, layer);
    for (int i = first; i < params->layer_blocks; i++)
        calls[i - first] = (struct trace_call){ kind, begin + i };
    return params->layer_blocks - first;
}

/* Lists the calls for a layer: forward and, in training, backward. */
static int list_layer(const struct params *params, int layer, bool backward,
                      struct trace_call *calls)
{
    int block = params_layer_block(params, layer);
    int n = list_blocks(params, layer, 0, TRACE_GATHER, calls);
    if (backward) {
        n += list_blocks(params, layer, 0, TRACE_GRADIENT, calls + n);
        n += list_blocks(params, layer, 1, TRACE_DONE, calls + n);
    }
    n += list_blocks(params, layer, 1, TRACE_RELEASE, calls + n);
    if (backward)
        calls[n++] = (struct trace_call){ TRACE_DONE, block };
    calls[n++] = (struct trace_call){ TRACE_RELEASE, block };
    return n;
}

/* As model_train_leaf() and model_eval_leaf() do. */
static int list_calls(const struct params *params, int training,
                      struct trace_call *calls)
{
    int n = 0;
    int layers = params_layer(params, params->block_count - 1);
    calls[n++] = (struct trace_call){ TRACE_GATHER, 0 };
    calls[n++] = (struct trace_call){ TRACE_RELEASE, 0 };
    for (int layer = 0; layer < layers; layer++)
        n += list_layer(params, layer, false, calls + n);
    list_head(params, training, calls, &n);
    if (!training)
        return n;
    for (int layer = layers - 1; layer >= 0; layer--)
        n += list_layer(params, layer, true, calls + n);
    calls[n++] = (struct trace_call){ TRACE_GRADIENT, 0 };
    calls[n++] = (struct trace_call){ TRACE_DONE, 0 };
    return n;
}

enum err access_trace_create(const struct params *params,
                             struct access_trace **out)
{
    size_t most = (size_t)params->block_count * CALLS_PER_BLOCK + CALLS_OF_HEAD;
    struct access_trace *trace = calloc(1, sizeof *trace);
    for (int t = 0; t < 2 && trace != NULL; t++) {
        trace->calls[t] = calloc(most, sizeof trace->calls[t][0]);
        if (trace->calls[t] == NULL) {
            access_trace_destroy(trace);
            trace = NULL;
        } else {
            trace->count[t] = list_calls(params, t, trace->calls[t]);
        }
    }
    if (trace == NULL)
        return err_set(ERR_MEMORY, "order of blocks: out of memory");
    trace->next = trace->count[0]; /* nothing is begun */
    *out = trace;
    return ERR_OK;
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
