/* Seeded histories of something that decides: a number is a history, and what it
 * breaks is printed with it. The program's main() is
 *
 *     PROGRAM               3,000 of them, as a test
 *     PROGRAM COUNT         make simulate SEEDS=COUNT
 *     PROGRAM --seed N      make simulate SEED=N: one, step by step */
#pragma once

#include "tests/tap.h"

/* The history adds what it breaks to *violations. */
static inline int histories_main(int argc, char **argv,
                                 void (*history)(uint64_t seed, bool verbose),
                                 const int *violations)
{
    const char *number = argc > 1 ? argv[argc - 1] : "3000";
    char *end = NULL;
    uint64_t first = 1, seeds = strtoull(number, &end, 10);
    bool one = argc == 3 && strcmp(argv[1], "--seed") == 0;
    if (*end != '\0' || seeds == 0 || (argc > 2 && !one)) {
        fprintf(stderr, "usage: %s [COUNT | --seed N]\n", argv[0]);
        return 64;
    }
    if (one) {
        first = seeds;
        seeds = 1;
    }
    for (uint64_t s = 0; s < seeds; s++)
        history(first + s, one);
    if (argc == 1) {
        tap_is_int(*violations, 0, "%llu histories hold what they must",
                   (unsigned long long)seeds);
        return tap_done();
    }
    printf("simulate: seeds=%llu violations=%d\n", (unsigned long long)seeds,
           *violations);
    return *violations > 0;
}
