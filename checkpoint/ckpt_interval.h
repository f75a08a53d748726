/* How often to save: the interval that wastes the least time when failures come
 * at random (exponential, independent of what the run does).
 *
 * T is the time of work between two saves, delta the time that a save blocks
 * the training, M the mean time between failures of the whole job.
 *
 *   Young (1974)   T = sqrt(2 delta M)
 *   Daly (2006)    T = sqrt(2 delta M) (1 + sqrt(delta/2M)/3 + (delta/2M)/9)
 *                      - delta  if delta < 2M, else T = M
 *   exact          T = M (1 + W0(-exp(-1 - delta/M))), which minimises
 *                  (exp((T + delta)/M) - 1)/T; W0 is Lambert's function
 *
 * With R for the restart, D for the detection of a failure and t_p for the
 * time that a save takes beside the training, all that a run needs takes
 *
 *   M exp((R + D + t_p)/M) (exp((T + delta)/M) - 1)/T
 *
 * times the time of its work: the wall-time factor. 1/factor is the goodput. */
#pragma once

#include "src/base/err.h"

/* Node-hours with one failure, before anything was seen: about what runs on
 * thousands of GPUs report. */
#define CKPT_INTERVAL_PRIOR_HOURS 6000.0

struct ckpt_interval_input {
    double cost_s;       /* delta, > 0 */
    double persist_s;    /* t_p */
    double mtbf_s;       /* M, > 0 */
    double restart_s;    /* R */
    double detect_s;     /* D */
    double overhead_max; /* at most this share of the time in saves; 0: any */
};

enum ckpt_interval_limit {
    CKPT_INTERVAL_EXACT,    /* the exact T is recommended */
    CKPT_INTERVAL_PERSIST,  /* T = 1.1 t_p: one save must end before the next */
    CKPT_INTERVAL_OVERHEAD, /* T = delta / overhead_max */
};

struct ckpt_interval {
    double young_s, daly_s, exact_s;
    double recommended_s;
    enum ckpt_interval_limit limit; /* what decided it */
    double wall_factor;             /* of the recommended T; may be infinite */
    double goodput;
};

/* ERR_USAGE when an input is not a number in its range. */
enum err ckpt_interval(const struct ckpt_interval_input *input,
                       struct ckpt_interval *out);

/* Lambert's W on its principal branch, w exp(w) = x and w >= -1, by Halley's
 * iteration; NaN for x < -1/e. */
double ckpt_interval_lambert_w0(double x);

/* Mean time between failures of one node, in hours: the mean of what was known
 * before and what was seen, as if `prior_hours` node-hours with one failure had
 * been seen already. */
double ckpt_interval_node_mtbf_h(double prior_hours, double node_hours,
                                 int failures);
