/* Writes down the calls that the model will make for its blocks, checks the
 * real calls against that list and looks ahead in it. The calls themselves are
 * answered by replica_access.c. */
#include "src/parallel/walk.h"

#include <assert.h>
#include <stdlib.h>

/* A block has one call to gather and one to release forward, and four calls
 * backward. */
#define CALLS_PER_BLOCK 6
#define CALLS_OF_HEAD 10

struct walk {
    struct walk_call *calls[2]; /* evaluation, training */
    int count[2];
    int training;
    int next;
};

bool walk_tied(const struct params *params)
{
    return params->blocks[params->block_count - 1].place[PARAM_LM_HEAD] < 0;
}

int walk_place(const struct params *params, int block)
{
    if (block == 0)
        return 0;
    if (block + 1 < params->block_count)
        return WALK_LAYER + (block - 1) % params->layer_blocks;
    return walk_tied(params) ? 1 : 0;
}

int64_t walk_place_elements(const struct params *params, int place)
{
    int64_t most = 0;
    for (int b = 0; b < params->block_count; b++)
        if (walk_place(params, b) == place && params->blocks[b].elements > most)
            most = params->blocks[b].elements;
    return most;
}

static void list_head(const struct params *params, int training,
                      struct walk_call *calls, int *count)
{
    int last = params->block_count - 1;
    bool tied = walk_tied(params);
    int n = *count;
    calls[n++] = (struct walk_call){ WALK_GATHER, last };
    if (training)
        calls[n++] = (struct walk_call){ WALK_GRADIENT, last };
    if (tied)
        calls[n++] = (struct walk_call){ WALK_GATHER, 0 };
    if (tied && training)
        calls[n++] = (struct walk_call){ WALK_GRADIENT, 0 };
    if (tied)
        calls[n++] = (struct walk_call){ WALK_RELEASE, 0 };
    if (training)
        calls[n++] = (struct walk_call){ WALK_DONE, last };
    calls[n++] = (struct walk_call){ WALK_RELEASE, last };
    *count = n;
}

static int list_blocks(const struct params *params, int layer, int first,
                       enum walk_kind kind, struct walk_call *calls)
{
    int begin = params_layer_block(params, layer);
    for (int i = first; i < params->layer_blocks; i++)
        calls[i - first] = (struct walk_call){ kind, begin + i };
    return params->layer_blocks - first;
}

/* Lists the calls for a layer: forward and, in training, backward. */
static int list_layer(const struct params *params, int layer, bool backward,
                      struct walk_call *calls)
{
    int block = params_layer_block(params, layer);
    int n = list_blocks(params, layer, 0, WALK_GATHER, calls);
    if (backward) {
        n += list_blocks(params, layer, 0, WALK_GRADIENT, calls + n);
        n += list_blocks(params, layer, 1, WALK_DONE, calls + n);
    }
    n += list_blocks(params, layer, 1, WALK_RELEASE, calls + n);
    if (backward)
        calls[n++] = (struct walk_call){ WALK_DONE, block };
    calls[n++] = (struct walk_call){ WALK_RELEASE, block };
    return n;
}

/* As model_train_leaf() and model_eval_leaf() do. */
static int list_calls(const struct params *params, int training,
                      struct walk_call *calls)
{
    int n = 0;
    int layers = params_layer(params, params->block_count - 1);
    calls[n++] = (struct walk_call){ WALK_GATHER, 0 };
    calls[n++] = (struct walk_call){ WALK_RELEASE, 0 };
    for (int layer = 0; layer < layers; layer++)
        n += list_layer(params, layer, false, calls + n);
    list_head(params, training, calls, &n);
    if (!training)
        return n;
    for (int layer = layers - 1; layer >= 0; layer--)
        n += list_layer(params, layer, true, calls + n);
    calls[n++] = (struct walk_call){ WALK_GRADIENT, 0 };
    calls[n++] = (struct walk_call){ WALK_DONE, 0 };
    return n;
}

enum err walk_create(const struct params *params, struct walk **out)
{
    size_t most = (size_t)params->block_count * CALLS_PER_BLOCK + CALLS_OF_HEAD;
    struct walk *walk = calloc(1, sizeof *walk);
    for (int t = 0; t < 2 && walk != NULL; t++) {
        walk->calls[t] = calloc(most, sizeof walk->calls[t][0]);
        if (walk->calls[t] == NULL) {
            walk_destroy(walk);
            walk = NULL;
        } else {
            walk->count[t] = list_calls(params, t, walk->calls[t]);
        }
    }
    if (walk == NULL)
        return err_set(ERR_MEMORY, "order of blocks: out of memory");
    walk->next = walk->count[0]; /* nothing is begun */
    *out = walk;
    return ERR_OK;
}

void walk_destroy(struct walk *walk)
{
    if (walk == NULL)
        return;
    free(walk->calls[0]);
    free(walk->calls[1]);
    free(walk);
}

void walk_begin(struct walk *walk, bool training)
{
    walk->training = training;
    walk->next = 0;
}

void walk_step(struct walk *walk, enum walk_kind kind, int block)
{
    const struct walk_call *call = walk_look(walk, 0);
    assert(call != NULL && call->kind == kind && call->block == block);
    (void)call;
    (void)kind;
    (void)block;
    walk->next++;
}

const struct walk_call *walk_look(const struct walk *walk, int ahead)
{
    int at = walk->next + ahead;
    return at < walk->count[walk->training] ? &walk->calls[walk->training][at]
                                            : NULL;
}
