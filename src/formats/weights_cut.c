/* Cuts parameters into the tensors of other programs, through one buffer.
 *
 * A slice is written in its own order from our rows. Mostly that is ours, and
 * it goes straight through. Pairs of rotary rows are fetched one by one from
 * where our halves have them. A transposed slice is written by columns of ours:
 * as many as the buffer holds are gathered from all rows, for which a quarter
 * of it is set aside, and a slice that is larger is read several times. Memory
 * is bounded whatever the model. */
#include "src/formats/weights.h"

#include <assert.h>

#include "src/formats/gguf/gguf.h"
#include "src/formats/hf/hf_names.h"

/* How much of the buffer is for what is read, where rows change places. */
#define READ_FLOATS (WEIGHTS_CUT_FLOATS / 4)

struct cut {
    struct weights *weights;
    const struct param *param;
    const struct hf_slice *slice;
    int64_t cols; /* ours */
    float *buffer;
    weights_cut_sink sink;
    void *arg;
};

/* Elements of the slice, as we have them. */
static enum err read_ours(const struct cut *cut, int64_t begin, int64_t end,
                          float *out)
{
    int64_t first = cut->slice->row * cut->cols;
    return weights_read(cut->weights, cut->param, first + begin, first + end,
                        out);
}

static enum err cut_straight(const struct cut *cut)
{
    int64_t elements = cut->slice->rows * cut->cols;
    for (int64_t at = 0; at < elements;) {
        int64_t count = elements - at < WEIGHTS_CUT_FLOATS ? elements - at
                                                           : WEIGHTS_CUT_FLOATS;
        TRY(read_ours(cut, at, at + count, cut->buffer));
        TRY(cut->sink(cut->arg, cut->buffer, count));
        at += count;
    }
    return ERR_OK;
}

/* Row by row, each from where our halves have it. */
static enum err cut_pairs(const struct cut *cut)
{
    int64_t head = cut->slice->pairs;
    assert(cut->cols <= WEIGHTS_CUT_FLOATS && cut->slice->rows % head == 0);
    int64_t most = WEIGHTS_CUT_FLOATS / cut->cols;
    for (int64_t row = 0; row < cut->slice->rows;) {
        int64_t rows =
            cut->slice->rows - row < most ? cut->slice->rows - row : most;
        /* rows of the file in its order, each from where ours is */
        for (int64_t r = 0; r < rows; r++) {
            int64_t ours = (int64_t)gguf_row_to_halves((uint64_t)(row + r),
                                                       (uint64_t)head);
            TRY(read_ours(cut, ours * cut->cols, (ours + 1) * cut->cols,
                          cut->buffer + r * cut->cols));
        }
        TRY(cut->sink(cut->arg, cut->buffer, rows * cut->cols));
        row += rows;
    }
    return ERR_OK;
}

/* Our columns [col, col + cols), which are theirs rows, gathered from all of
 * our rows. */
static enum err gather_columns(const struct cut *cut, int64_t col, int64_t cols)
{
    float *ours = cut->buffer + (WEIGHTS_CUT_FLOATS - READ_FLOATS);
    int64_t rows = cut->slice->rows;
    int64_t most = READ_FLOATS / cut->cols;
    assert(most > 0);
    for (int64_t row = 0; row < rows;) {
        int64_t count = rows - row < most ? rows - row : most;
        TRY(read_ours(cut, row * cut->cols, (row + count) * cut->cols, ours));
        for (int64_t c = 0; c < cols; c++)
            for (int64_t r = 0; r < count; r++)
                cut->buffer[c * rows + row + r] = ours[r * cut->cols + col + c];
        row += count;
    }
    return ERR_OK;
}

static enum err cut_transposed(const struct cut *cut)
{
    int64_t most = (WEIGHTS_CUT_FLOATS - READ_FLOATS) / cut->slice->rows;
    assert(most > 0);
    for (int64_t col = 0; col < cut->cols;) {
        int64_t cols = cut->cols - col < most ? cut->cols - col : most;
        TRY(gather_columns(cut, col, cols));
        TRY(cut->sink(cut->arg, cut->buffer, cols * cut->slice->rows));
        col += cols;
    }
    return ERR_OK;
}

enum err weights_cut(struct weights *weights, const struct params *params,
                     const struct hf_slice *slice, float *buffer,
                     weights_cut_sink sink, void *arg)
{
    const struct param *param = &params->list[slice->param];
    const struct cut cut = {
        .weights = weights,
        .param = param,
        .slice = slice,
        .cols = param->dims == 2 ? param->shape[1] : 1,
        .buffer = buffer,
        .sink = sink,
        .arg = arg,
    };
    if (slice->transposed)
        return cut_transposed(&cut);
    return slice->pairs > 0 ? cut_pairs(&cut) : cut_straight(&cut);
}
