/* Merges adapters row by row, for checkpoints (weights_tuned.c) and for peft's
 * files (weights_peft.c). */
#include "src/formats/weights_pairs.h"

#include <stdlib.h>

void weights_pairs_drop(struct weights_pair *pairs, int *count)
{
    for (; *count > 0; --*count) {
        free(pairs[*count - 1].a);
        free(pairs[*count - 1].b);
    }
}

/* w[in] += scale b A, of columns [first, last). */
static void add_row(const struct weights_pair *pair, const float *b,
                    int64_t first, int64_t last, float *w)
{
    for (int64_t i = first; i < last; i++) {
        double sum = 0.0;
        for (int64_t r = 0; r < pair->rank; r++)
            sum += (double)b[r] * (double)pair->a[r * pair->in + i];
        w[i - first] = (float)((double)w[i - first] + pair->scale * sum);
    }
}

void weights_pairs_add(const struct weights_pair *pair, int64_t begin,
                       int64_t end, float *out)
{
    int64_t in = pair->in;
    int64_t from = pair->row * in;
    int64_t to = (pair->row + pair->out) * in;
    int64_t at = begin > from ? begin : from;
    int64_t last = end < to ? end : to;
    while (at < last) {
        int64_t row = at / in;
        int64_t next = (row + 1) * in < last ? (row + 1) * in : last;
        add_row(pair, pair->b + (row - pair->row) * pair->rank, at - row * in,
                next - row * in, out + (at - begin));
        at = next;
    }
}
