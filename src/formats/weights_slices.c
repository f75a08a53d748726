/* Puts parameters together from the slices in which a source has them: rows one
 * after the other, transposed, or in the order of rotary pairs.
 *
 * The list is made once. A parameter whose slices are all there in their shapes
 * is listed as one; any tensor that is no slice of such a parameter is listed
 * under its own name as another, unless it is a buffer that old files have. So
 * a parameter that lacks a slice shows up twice in what does not match: as
 * missing, and by the slices that it has.
 *
 * Reading cuts what is wanted by slices. A transposed slice is read in strips
 * of few columns and many rows, in runs along the file's order, for a single
 * column of floats would be a read of four bytes for each. */
#include "src/formats/weights_slices.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/new.h"
#include "src/formats/gguf/gguf.h"

/* A transposed slice is read strip by strip: so many of our columns, each
 * a run of the file, of so many rows. */
#define STRIP_COLS 16
#define STRIP_ROWS 1024

struct weights_slices {
    struct weights_slices_file file;
    struct params *params;
    struct hf_names *names;
    int *tensors; /* of each slice */
    int *first;   /* slice of each parameter that is listed */
};

/* --- the list --- */

/* The slice's tensor, if it has its shape; -1. */
static int find_slice(const struct weights_slices *p,
                      const struct hf_slice *slice)
{
    struct weights_tensor tensor;
    int found = p->file.find(p->file.arg, slice->name);
    if (found < 0)
        return -1;
    p->file.at(p->file.arg, found, &tensor);
    bool same = tensor.dims == slice->dims &&
                tensor.shape[0] == slice->shape[0] &&
                (slice->dims < 2 || tensor.shape[1] == slice->shape[1]);
    return same ? found : -1;
}

/* Lists a parameter of slices [first, end) if all of them are there. */
static void list_param(struct weights_slices *p, int first, int end,
                       struct weights_source *source, bool *used)
{
    const struct hf_slice *last = &p->names->list[end - 1];
    const struct param *param = &p->params->list[last->param];
    struct weights_tensor *tensor = &source->list[source->count];
    for (int i = first; i < end; i++)
        if (p->tensors[i] < 0)
            return;
    for (int i = first; i < end; i++)
        used[p->tensors[i]] = true;
    snprintf(tensor->name, sizeof tensor->name, "%s", param->name);
    tensor->dims = param->dims;
    tensor->shape[0] = last->row + last->rows;
    tensor->shape[1] = param->shape[1];
    p->first[source->count++] = first;
}

static void list_others(struct weights_slices *p, struct weights_source *source,
                        const bool *used)
{
    for (int t = 0; t < p->file.count; t++) {
        struct weights_tensor *tensor = &source->list[source->count];
        if (used[t])
            continue;
        p->file.at(p->file.arg, t, tensor);
        tensor->other = true;
        if (p->file.is_buffer == NULL ||
            !p->file.is_buffer(p->file.arg, tensor->name))
            p->first[source->count++] = -1;
    }
}

static enum err make_list(struct weights_slices *p,
                          struct weights_source *source)
{
    const struct hf_names *names = p->names;
    size_t most = (size_t)p->params->count + (size_t)p->file.count;
    bool *used = NULL;
    TRY(new_zeroed(&source->list, most + 1));
    TRY(new_zeroed(&p->first, most + 1));
    TRY(new_zeroed(&p->tensors, (size_t)names->count + 1));
    TRY(new_zeroed(&used, (size_t)p->file.count + 1));
    for (int i = 0; i < names->count; i++)
        p->tensors[i] = find_slice(p, &names->list[i]);
    /* slices of one parameter follow each other */
    for (int i = 0, end; i < names->count; i = end) {
        end = i;
        while (end < names->count &&
               names->list[end].param == names->list[i].param)
            end++;
        list_param(p, i, end, source, used);
    }
    list_others(p, source, used);
    free(used);
    return ERR_OK;
}

enum err weights_slices_create(const struct weights_slices_file *file,
                               const struct arch_form *form,
                               struct weights_source *source)
{
    enum err rc = ERR_OK;
    const struct model_config *config = &source->about.config;
    struct weights_slices *p = NULL;
    TRY(new_zeroed(&p, 1));
    p->file = *file;
    TRY_OUT(params_create(config, &p->params));
    TRY_OUT(hf_names_create(form, config, p->params, config->vocab_size,
                            &p->names));
    TRY_OUT(make_list(p, source));
out:
    return new_or_none(rc, p, &source->slices, weights_slices_destroy);
}

void weights_slices_destroy(struct weights_slices *slices)
{
    if (slices == NULL)
        return;
    free(slices->first);
    free(slices->tensors);
    hf_names_destroy(slices->names);
    params_destroy(slices->params);
    free(slices);
}

/* --- reading --- */

/* What is wanted of one slice, in elements counted from the slice's first, as
 * we have them. */
struct want {
    const struct hf_slice *slice;
    int tensor;
    int64_t cols;
    int64_t begin, end;
    float *out; /* of begin */
};

/* Theirs is [cols, rows]: of each of our columns a run of rows. */
static enum err read_strip(const struct weights_slices *p,
                           const struct want *want, int64_t col, int64_t cols,
                           int64_t row, int64_t rows)
{
    float strip[STRIP_COLS * STRIP_ROWS];
    assert(cols <= STRIP_COLS && rows <= STRIP_ROWS);
    for (int64_t c = 0; c < cols; c++)
        TRY(p->file.read(p->file.arg, want->tensor,
                         (col + c) * want->slice->rows + row, rows,
                         strip + c * rows));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            int64_t at = (row + r) * want->cols + col + c;
            if (at >= want->begin && at < want->end)
                want->out[at - want->begin] = strip[c * rows + r];
        }
    return ERR_OK;
}

static enum err read_transposed(const struct weights_slices *p,
                                const struct want *want)
{
    int64_t last = (want->end - 1) / want->cols + 1;
    for (int64_t row = want->begin / want->cols; row < last;) {
        int64_t rows = last - row < STRIP_ROWS ? last - row : STRIP_ROWS;
        for (int64_t col = 0; col < want->cols; col += STRIP_COLS) {
            int64_t left = want->cols - col;
            TRY(read_strip(p, want, col, left < STRIP_COLS ? left : STRIP_COLS,
                           row, rows));
        }
        row += rows;
    }
    return ERR_OK;
}

/* Row by row, from where the pairs' order has it. */
static enum err read_pairs(const struct weights_slices *p,
                           const struct want *want)
{
    int64_t head = want->slice->pairs;
    for (int64_t at = want->begin; at < want->end;) {
        int64_t row = at / want->cols;
        int64_t end = (row + 1) * want->cols;
        end = end < want->end ? end : want->end;
        int64_t theirs =
            (int64_t)gguf_row_to_pairs((uint64_t)row, (uint64_t)head);
        TRY(p->file.read(p->file.arg, want->tensor,
                         theirs * want->cols + at % want->cols, end - at,
                         want->out + (at - want->begin)));
        at = end;
    }
    return ERR_OK;
}

static enum err read_want(const struct weights_slices *p,
                          const struct want *want)
{
    if (want->slice->transposed)
        return read_transposed(p, want);
    if (want->slice->pairs > 0)
        return read_pairs(p, want);
    return p->file.read(p->file.arg, want->tensor,
                        want->slice->begin * want->cols + want->begin,
                        want->end - want->begin, want->out);
}

enum err weights_slices_read(struct weights_source *source, int index,
                             int64_t begin, int64_t end, float *out)
{
    const struct weights_slices *slices = source->slices;
    assert(index >= 0 && begin >= 0 && begin < end);
    const struct hf_names *names = slices->names;
    int first = slices->first[index];
    assert(first >= 0); /* a parameter, no other */
    int param = names->list[first].param;
    const struct param *ours = &slices->params->list[param];
    int64_t cols = ours->dims == 2 ? ours->shape[1] : 1;
    for (int i = first; i < names->count && names->list[i].param == param;
         i++) {
        const struct hf_slice *slice = &names->list[i];
        int64_t from = slice->row * cols;
        int64_t to = from + slice->rows * cols;
        int64_t low = begin > from ? begin : from;
        int64_t high = end < to ? end : to;
        if (low >= high)
            continue;
        struct want want = {
            slice,      slices->tensors[i], cols,
            low - from, high - from,        out + (low - begin),
        };
        TRY(read_want(slices, &want));
    }
    return ERR_OK;
}

/* --- tokens --- */

enum err weights_slices_tokens(const struct hf_files *files, const char *path,
                               const char *config, size_t bytes,
                               struct weights_about *about, char **generation)
{
    struct hf_tokens tokens = { .generation = NULL };
    enum err rc = hf_files_tokens(files, path, config, bytes, &tokens);
    int64_t rows = about->config.vocab_size;
    about->generation = *generation = tokens.generation;
    if (rc != ERR_OK)
        return rc;
    if (tokens.vocab > rows)
        return err_set(ERR_DATA,
                       "%s: its tokenizer has %lld tokens, but the model's "
                       "vocab_size is %lld: they do not belong together",
                       path, (long long)tokens.vocab, (long long)rows);
    about->vocab = tokens.vocab > 0 ? tokens.vocab : rows;
    about->bos = tokens.bos;
    about->eos = tokens.eos;
    about->pad = tokens.pad;
    about->named_bos = tokens.named_bos;
    about->named_eos = tokens.named_eos;
    about->tokenizer = files->text[HF_FILE_TOKENIZER];
    about->tokenizer_bytes = files->bytes[HF_FILE_TOKENIZER];
    about->chat_template = files->text[HF_FILE_CHAT_TEMPLATE];
    return ERR_OK;
}
