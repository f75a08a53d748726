#include "tests/gpu/predict_rate.h"

#include <math.h>

/* Of a multiprocessor that computes tiles of this shape; smaller ones load more
 * for each product. */
static const struct {
    double m, n, share;
} tiles[] = {
    { 128, 256, 1.0 }, { 256, 128, 1.0 }, { 128, 128, 0.9 },
    { 64, 128, 0.7 },  { 128, 64, 0.7 },
};

/* With `splits` parts of k each; partial sums are written and read in fp32. */
static double tiled(const struct predict_rates *r, const struct note *g,
                    size_t tile, double splits)
{
    double m = tiles[tile].m, n = tiles[tile].n;
    double count = ceil((double)g->m / m) * ceil((double)g->n / n) * splits;
    double waves = ceil(count / r->multiprocessors);
    double steps = (double)g->k / splits + r->ramp;
    double partial =
        splits > 1 ? 8.0 * splits * (double)g->m * (double)g->n : 0.0;
    double rate = r->gemm * tiles[tile].share / r->multiprocessors;
    return waves * 2.0 * m * n * steps / rate + partial / r->bandwidth;
}

static double product(const struct predict_rates *r, const struct note *g)
{
    double best = INFINITY;
    for (size_t i = 0; i < sizeof tiles / sizeof tiles[0]; i++)
        for (double splits = 1; splits <= r->splits; splits++)
            best = fmin(best, tiled(r, g, i, splits));
    return best;
}

double predict_seconds(const struct predict_rates *rates,
                       const struct note *note)
{
    double memory = note->bytes / rates->bandwidth;
    double narrow = note->k <= 64 ? rates->narrow : 1.0;
    double rate;
    switch (note->kind) {
    case NOTE_GEMM:
        return fmax(memory, product(rates, note));
    case NOTE_ATTENTION_FORWARD:
        rate = note->own ? rates->own_forward : rates->attention_forward;
        return fmax(memory, note->flops / (rate * narrow));
    case NOTE_ATTENTION_BACKWARD:
        rate = note->own ? rates->own_backward : rates->attention_backward;
        return fmax(memory, note->flops / (rate * narrow));
    default:
        return memory;
    }
}
