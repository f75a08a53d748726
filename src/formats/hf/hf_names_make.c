/* Divides our parameters into the pieces that a table of names says. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/formats/hf/hf_names_impl.h"

struct maker {
    const struct hf_names_table *table;
    const struct model_config *model;
    const struct params *params;
    int64_t vocab;
    struct hf_names *names;
};

/* Begins a piece of our rows [row, row + rows). */
static struct hf_piece *add(struct maker *m, int param,
                            const struct hf_names_row *row, int64_t first,
                            int64_t rows)
{
    const struct param *ours = &m->params->list[param];
    struct hf_piece *piece = &m->names->list[m->names->count++];
    piece->param = param;
    piece->dims = ours->dims;
    piece->row = first;
    piece->rows = rows;
    piece->transposed = row->transposed;
    piece->shape[0] = row->transposed ? ours->shape[1] : rows;
    piece->shape[1] = row->transposed ? rows : ours->shape[1];
    return piece;
}

static void name(struct maker *m, struct hf_piece *piece,
                 const struct hf_names_row *row, int expert)
{
    char layers[64] = "";
    size_t used;
    const struct params *params = m->params;
    int block = params->list[piece->param].block;
    if (block > 0 && block < params->block_count - 1) {
        const char *prefix = m->table->layers;
        const char *number = strchr(prefix, '%');
        snprintf(layers, sizeof layers, "%.*s%d%s", (int)(number - prefix),
                 prefix, params_layer(params, block), number + 2);
    }
    const char *number = strchr(row->name, '%');
    if (number == NULL)
        used = (size_t)snprintf(piece->name, sizeof piece->name, "%s%s", layers,
                                row->name);
    else
        used = (size_t)snprintf(piece->name, sizeof piece->name, "%s%.*s%d%s",
                                layers, (int)(number - row->name), row->name,
                                expert, number + 2);
    assert(used < sizeof piece->name);
    (void)used;
}

static void add_row(struct maker *m, int param, const struct hf_names_row *row)
{
    const struct model_config *model = m->model;
    int64_t head_dim = model->d_model / model->n_heads;
    int64_t kv = model->n_kv_heads * head_dim;
    int64_t d = model->d_model;
    int64_t rows = m->params->list[param].shape[0];
    if (row->role == PARAM_WTE || row->role == PARAM_LM_HEAD)
        rows = m->vocab;
    struct hf_piece *piece = NULL;
    switch (row->part) {
    case HF_NAMES_WHOLE:
        name(m, add(m, param, row, 0, rows), row, 0);
        break;
    case HF_NAMES_QUERIES:
        name(m, add(m, param, row, 0, d), row, 0);
        break;
    case HF_NAMES_KEYS:
        name(m, add(m, param, row, d, kv), row, 0);
        break;
    case HF_NAMES_VALUES:
        name(m, add(m, param, row, d + kv, kv), row, 0);
        break;
    case HF_NAMES_QUERIES_PAIRS:
        piece = add(m, param, row, 0, d);
        piece->pairs = head_dim;
        name(m, piece, row, 0);
        break;
    case HF_NAMES_KEYS_PAIRS:
        piece = add(m, param, row, d, kv);
        piece->pairs = head_dim;
        name(m, piece, row, 0);
        break;
    case HF_NAMES_EACH:
        for (int e = 0; e < model->experts; e++)
            name(m, add(m, param, row, e * model->ffn_width, model->ffn_width),
                 row, e);
        break;
    }
}

static enum err add_param(struct maker *m, int param)
{
    int before = m->names->count;
    const struct param *ours = &m->params->list[param];
    for (const struct hf_names_row *row = m->table->rows; row->name != NULL;
         row++)
        if (row->role == ours->role)
            add_row(m, param, row);
    if (m->names->count == before)
        return err_set(ERR_UNSUPPORTED, "%s has no tensor for our %s",
                       m->table->what, ours->name);
    return ERR_OK;
}

enum err hf_names_make(const struct hf_names_table *table,
                       const struct model_config *model,
                       const struct params *params, int64_t vocab,
                       struct hf_names **out)
{
    enum err rc = ERR_OK;
    assert(vocab > 0 && vocab <= model->vocab_size);
    /* at most 3 pieces of a parameter, or one of each expert */
    size_t pieces = model->experts > 3 ? (size_t)model->experts : 3;
    struct hf_names *names = calloc(1, sizeof *names);
    if (names != NULL)
        names->list =
            calloc((size_t)params->count * pieces, sizeof names->list[0]);
    struct maker maker = { table, model, params, vocab, names };
    if (names == NULL || names->list == NULL) {
        rc = err_set(ERR_MEMORY, "table of tensors: out of memory");
        goto out;
    }
    for (int i = 0; i < params->count; i++)
        TRY_OUT(add_param(&maker, i));
    *out = names;
    names = NULL;
out:
    hf_names_destroy(names);
    return rc;
}

void hf_names_destroy(struct hf_names *names)
{
    if (names == NULL)
        return;
    free(names->list);
    free(names);
}
