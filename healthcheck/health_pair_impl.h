/* What health_pair.c (measuring) and health_pair_report.c (telling) share. */
#pragma once

#include <stddef.h>

#include "healthcheck/health_pair.h"
#include "healthcheck/health_rounds.h"

struct health_pairs {
    int size;
    int count;
    size_t bytes;
    double dur_s;
    double t0;
    double median_gbps;
    char (*hosts)[64];
    struct health_meeting *meetings;
    enum health_state *states; /* per rank */
};
