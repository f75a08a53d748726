/* Which cases of a product of parameters are taken where all of them cost too
 * much: so many that each two values of two parameters occur together. Most
 * mistakes need one or two values to meet (Kuhn, Wallace, Gallo, "Software
 * fault interactions and implications for software testing", 2004), and their
 * number grows with the two largest parameters alone. Greedy and without chance:
 * the next case is the first one that brings the most pairs that are new. */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#define PAIRWISE_VALUES 64 /* of all parameters together */

/* Value of a case's parameter, counted through all parameters. */
static inline int pairwise_value(int params, const int *sizes, int index,
                                 int param)
{
    int first = 0;
    for (int p = 0; p < param; p++)
        first += sizes[p];
    for (int p = params - 1; p > param; p--)
        index /= sizes[p];
    return first + index % sizes[param];
}

/* The pairs of a case that are not in `seen`; marked there, if asked for. */
static inline int pairwise_new(int params, const int *sizes, int index,
                               bool seen[][PAIRWISE_VALUES], bool mark)
{
    int fresh = 0;
    for (int p = 0; p < params; p++)
        for (int q = p + 1; q < params; q++) {
            bool *pair = &seen[pairwise_value(params, sizes, index, p)]
                              [pairwise_value(params, sizes, index, q)];
            fresh += !*pair;
            *pair |= mark;
        }
    return fresh;
}

/* Sets chosen[] of the product of sizes[], the last parameter the quickest. */
static inline int pairwise(int params, const int *sizes, bool *chosen)
{
    bool seen[PAIRWISE_VALUES][PAIRWISE_VALUES] = { 0 };
    int cases = 1, values = 0, taken = 0, most, best;
    for (int p = 0; p < params; p++) {
        cases *= sizes[p];
        values += sizes[p];
    }
    assert(values <= PAIRWISE_VALUES);
    memset(chosen, 0, (size_t)cases * sizeof(*chosen));
    do {
        most = best = 0;
        for (int i = 0; i < cases; i++) {
            int fresh = pairwise_new(params, sizes, i, seen, false);
            if (fresh > most) {
                most = fresh;
                best = i;
            }
        }
        if (most > 0) {
            pairwise_new(params, sizes, best, seen, true);
            chosen[best] = true;
            taken++;
        }
    } while (most > 0);
    return taken;
}
