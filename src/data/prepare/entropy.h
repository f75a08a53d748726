/* Unigram entropy of a data set: what a model reaches that knows only how
 * frequent each token is. A training loss below it shows that the model uses
 * context. */
#pragma once

#include <stdint.h>

/* -sum p ln p in nats per token, p = count / sum of counts; 0 if all are 0. */
double entropy_of_counts(const int64_t *counts, int64_t size);
