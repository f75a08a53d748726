/* The command line of tessera-plan. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct plan_options {
    const char *path; /* of the configuration; NULL: none */
    char **overrides; /* key=value, lent from argv */
    int override_count;
    bool json, list;
    int64_t memory_bytes;      /* of a rank; 0: not given */
    int ranks;                 /* 1 when not given */
    int nodes;                 /* 1 when not given */
    double rate;               /* tokens/s of the whole job; 0: not given */
    double mfu;                /* by the convention of `mfu`; 0: not given */
    double mtbf_h;             /* of one node; 0: not given */
    int64_t write_bytes_per_s; /* of the whole job; 0: not given */
};
