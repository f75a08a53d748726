/* A leaf's tokens, labels and documents on their way to the ops. They are the
 * caller's memory, which is another leaf's as soon as the call returns, while a
 * device may not have begun with this one: so the host copies them first. */
#include <assert.h>
#include <string.h>

#include "src/model/model_impl.h"

#define ALIGN 16 /* numbers: 64 bytes */

/* With chunks, too: a chunk's tokens are not contiguous in a leaf of several
 * samples, and ops want them so. */
static bool copies(const struct model *model)
{
    return model->kernels->memory->device || model->options.chunks > 1;
}

/* Numbers of a leaf: the own chunks' tokens, their labels, all documents. */
static int64_t numbers_of(const struct model *model, bool documents)
{
    int64_t own = model->options.own_chunks;
    return (2 * own + (documents ? model->options.chunks : 0)) *
           model->input.stride;
}

static size_t bytes_of(const struct model *model, bool documents)
{
    return (size_t)numbers_of(model, documents) * sizeof(int32_t);
}

void model_input_layout(struct model *model, int64_t n, struct arena *arena)
{
    if (!copies(model))
        return;
    model->input.stride = (n + ALIGN - 1) / ALIGN * ALIGN;
    model->input.numbers = arena_take(arena, bytes_of(model, true));
}

void model_input_layout_host(struct model *model, struct arena *arena)
{
    for (int i = 0; i < INPUT_SETS; i++)
        model->input.sets[i] = arena_take(arena, bytes_of(model, true));
}

enum err model_input_create(struct model *model)
{
    for (int i = 0; i < INPUT_SETS; i++)
        TRY(model->kernels->memory->event_create(&model->input.uploaded[i]));
    return ERR_OK;
}

void model_input_destroy(struct model *model)
{
    for (int i = 0; i < INPUT_SETS; i++)
        if (model->input.uploaded[i] != NULL)
            model->kernels->memory->event_destroy(model->input.uploaded[i]);
}

static int32_t *tokens_of(const struct pass *pass, int32_t *numbers)
{
    return numbers + pass->place * pass->model->input.stride;
}

static int32_t *labels_of(const struct pass *pass, int32_t *numbers)
{
    const struct model *model = pass->model;
    return tokens_of(pass, numbers) +
           model->options.own_chunks * model->input.stride;
}

static int32_t *documents_of(const struct model *model, int chunk,
                             int32_t *numbers)
{
    assert(chunk >= 0 && chunk < model->options.chunks);
    return numbers + numbers_of(model, false) + chunk * model->input.stride;
}

const int32_t *model_input_documents(const struct model *model, int chunk)
{
    return documents_of(model, chunk, model->input.numbers);
}

/* part[samples, length] of whole[samples, chunks * length]. */
static void cut(const struct leaf *leaf, const int32_t *whole, int64_t length,
                int chunk, int32_t *part)
{
    for (int64_t s = 0; s < leaf->samples; s++)
        memcpy(part + s * length, whole + s * leaf->seq_len + chunk * length,
               (size_t)length * sizeof part[0]);
}

static void cut_leaf(struct model *model, const struct leaf *leaf,
                     int32_t *numbers)
{
    int64_t length = leaf->seq_len / model->options.chunks;
    assert(leaf->samples * length <= model->input.stride);
    for (int i = 0; i < model->options.own_chunks; i++) {
        const struct pass *pass = &model->passes[i];
        cut(leaf, leaf->tokens, length, pass->chunk, tokens_of(pass, numbers));
        cut(leaf, leaf->labels, length, pass->chunk, labels_of(pass, numbers));
    }
    for (int c = 0; leaf->sequence_ids != NULL && c < model->options.chunks;
         c++)
        cut(leaf, leaf->sequence_ids, length, c,
            documents_of(model, c, numbers));
}

/* The leaf of each chunk as ops see it. */
static void point(struct model *model, const struct leaf *leaf)
{
    int32_t *numbers = model->input.numbers;
    for (int i = 0; i < model->options.own_chunks; i++) {
        struct pass *pass = &model->passes[i];
        pass->leaf = *leaf;
        if (!copies(model))
            continue;
        pass->leaf.seq_len = leaf->seq_len / model->options.chunks;
        pass->leaf.tokens = tokens_of(pass, numbers);
        pass->leaf.labels = labels_of(pass, numbers);
        if (leaf->sequence_ids != NULL)
            pass->leaf.sequence_ids = documents_of(model, pass->chunk, numbers);
    }
}

static int64_t loss_tokens_of(const struct leaf *leaf, int64_t begin,
                              int64_t length)
{
    int64_t count = 0;
    for (int64_t s = 0; s < leaf->samples; s++)
        for (int64_t t = begin; t < begin + length; t++)
            count += leaf->labels[s * leaf->seq_len + t] >= 0;
    return count;
}

static void count(struct model *model, const struct leaf *leaf)
{
    int64_t length = leaf->seq_len / model->options.chunks;
    model->loss_tokens = loss_tokens_of(leaf, 0, leaf->seq_len);
    for (int i = 0; i < model->options.own_chunks; i++) {
        struct pass *pass = &model->passes[i];
        pass->loss_tokens = loss_tokens_of(leaf, pass->chunk * length, length);
    }
}

/* From a set that the device has taken long ago. */
static enum err upload(struct model *model, const struct param_access *access,
                       const struct leaf *leaf)
{
    const struct kernel_memory *memory = model->kernels->memory;
    struct input *input = &model->input;
    int set = input->next;
    input->next = (set + 1) % INPUT_SETS;
    TRY(model_reach(model, access, input->uploaded[set]));
    cut_leaf(model, leaf, input->sets[set]);
    TRY(memory->upload(model->ctx.stream,
                       bytes_of(model, leaf->sequence_ids != NULL),
                       input->sets[set], input->numbers));
    return memory->event_record(input->uploaded[set], model->ctx.stream);
}

/* Whether every row of the leaf is one document. */
static bool is_whole(const struct leaf *leaf)
{
    const int32_t *ids = leaf->sequence_ids;
    for (int64_t s = 0; ids != NULL && s < leaf->samples; s++)
        for (int64_t t = 1; t < leaf->seq_len; t++)
            if (ids[s * leaf->seq_len + t] != ids[s * leaf->seq_len])
                return false;
    return true;
}

/* A device is not told of documents where each row is one: attention without
 * them is far quicker there. It is the leaf that decides, so all ranks do
 * alike. */
enum err model_input_leaf(struct model *model,
                          const struct param_access *access,
                          const struct leaf *given)
{
    struct leaf leaf = *given;
    bool device = model->kernels->memory->device;
    if (device && is_whole(&leaf))
        leaf.sequence_ids = NULL;
    count(model, &leaf);
    if (device)
        TRY(upload(model, access, &leaf));
    else if (copies(model))
        cut_leaf(model, &leaf, model->input.numbers);
    point(model, &leaf);
    return ERR_OK;
}
