#ifndef TESSERA_CMD_BENCH_MEDIAN_H
#define TESSERA_CMD_BENCH_MEDIAN_H

/* Sorts the values; count > 0. */
double bench_median(double *values, int count);

#endif
