/* Divides our parameters into the slices that a table of tensors says.
 *
 * Seen as a matrix (a vector has one column), each of our parameters is, row
 * after row, one or more slices, each a tensor of theirs: queries, keys and
 * values apart, experts one by one, or the whole. A slice may lie transposed
 * (GPT-2's linear layers, Mixtral's down projections). Rotary positions turn
 * halves of a head here and there: no rows are permuted, but in GGUF files of
 * the Llama family.
 *
 * That is all that an import and an export need to know, in both directions:
 * which rows, under which name, in which order. A parameter without a slice is
 * one that the architecture cannot hold. */
#include "src/formats/hf/hf_names.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/globs.h"
#include "src/base/new.h"

struct maker {
    const struct arch_form *form;
    const struct model_config *model;
    const struct params *params;
    int64_t vocab;
    struct hf_names *names;
};

/* Begins a slice of our rows [row, row + rows). */
static struct hf_slice *add(struct maker *m, int param,
                            const struct arch_tensor *row, int64_t first,
                            int64_t rows)
{
    const struct param *ours = &m->params->list[param];
    assert(first >= 0 && rows > 0 && first + rows <= ours->shape[0]);
    struct hf_slice *slice = &m->names->list[m->names->count++];
    slice->param = param;
    slice->dims = ours->dims;
    slice->row = first;
    slice->rows = rows;
    slice->transposed = row->transposed;
    slice->shape[0] = row->transposed ? ours->shape[1] : rows;
    slice->shape[1] = row->transposed ? rows : ours->shape[1];
    return slice;
}

static void name(struct maker *m, struct hf_slice *slice,
                 const struct arch_tensor *row, int expert)
{
    char layers[64] = "";
    size_t used;
    const struct params *params = m->params;
    int block = params->list[slice->param].block;
    if (block > 0 && block < params->block_count - 1) {
        const char *prefix = m->form->layers;
        const char *number = strchr(prefix, '%');
        snprintf(layers, sizeof layers, "%.*s%d%s", (int)(number - prefix),
                 prefix, params_layer(params, block), number + 2);
    }
    /* names have one %d at most, which is an expert's number */
    const char *number = strchr(row->name, '%');
    if (number == NULL)
        used = (size_t)snprintf(slice->name, sizeof slice->name, "%s%s", layers,
                                row->name);
    else
        used = (size_t)snprintf(slice->name, sizeof slice->name, "%s%.*s%d%s",
                                layers, (int)(number - row->name), row->name,
                                expert, number + 2);
    assert(used < sizeof slice->name);
    (void)used;
}

static void add_row(struct maker *m, int param, const struct arch_tensor *row)
{
    const struct model_config *model = m->model;
    int64_t q = model_config_queries(model), kv = model_config_kv(model);
    int64_t first = 0, rows = m->params->list[param].shape[0];
    if (row->part == ARCH_EACH) {
        rows = model->ffn_width;
        for (int e = 0; e < model->experts; e++)
            name(m, add(m, param, row, e * rows, rows), row, e);
        return;
    }
    /* rows that pad our vocabulary are in no file */
    if (row->role == PARAM_WTE || row->role == PARAM_LM_HEAD)
        rows = m->vocab;
    if (row->part == ARCH_QUERIES || row->part == ARCH_QUERIES_PAIRS) {
        rows = q;
    } else if (row->part > ARCH_WHOLE_PARAM && row->part < ARCH_UPPER) {
        first = row->part == ARCH_VALUES ? q + kv : q;
        rows = kv;
    }
    struct hf_slice *slice = add(m, param, row, first, rows);
    if (row->part == ARCH_UPPER || row->part == ARCH_LOWER) {
        slice->shape[0] = 2 * rows;
        slice->begin = row->part == ARCH_LOWER ? rows : 0;
    }
    if (row->part == ARCH_QUERIES_PAIRS || row->part == ARCH_KEYS_PAIRS)
        slice->pairs = model_config_head_dim(model);
    name(m, slice, row, 0);
}

static enum err add_param(struct maker *m, int param)
{
    int before = m->names->count;
    const struct param *ours = &m->params->list[param];
    for (const struct arch_tensor *row = m->form->tensors; row->name != NULL;
         row++)
        if (row->role == ours->role)
            add_row(m, param, row);
    if (m->names->count == before)
        return err_set(ERR_UNSUPPORTED, "%s has no tensor for our %s",
                       m->form->name, ours->name);
    return ERR_OK;
}

enum err hf_names_create(const struct arch_form *form,
                         const struct model_config *model,
                         const struct params *params, int64_t vocab,
                         struct hf_names **out)
{
    assert(form != NULL && model != NULL && out != NULL);
    enum err rc = ERR_OK;
    assert(vocab > 0 && vocab <= model->vocab_size);
    /* at most 3 slices of a parameter, or one of each expert */
    size_t slices = model->experts > 3 ? (size_t)model->experts : 3;
    struct hf_names *names = NULL;
    TRY(new_zeroed(&names, 1));
    TRY_OUT(new_zeroed(&names->list, (size_t)params->count * slices));
    struct maker maker = { form, model, params, vocab, names };
    for (int i = 0; i < params->count; i++)
        TRY_OUT(add_param(&maker, i));
out:
    return new_or_none(rc, names, out, hf_names_destroy);
}

void hf_names_destroy(struct hf_names *names)
{
    if (names == NULL)
        return;
    free(names->list);
    free(names);
}

bool hf_names_is_buffer(enum arch arch, const char *name)
{
    const char *buffers = arch_rows[arch].buffers;
    return buffers != NULL && globs_match(buffers, name);
}
