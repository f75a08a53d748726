/* Benchmarks that train, on text that is made for them. */
#pragma once

#include <jansson.h>

#include "src/base/err.h"
#include "src/cmd/bench_step.h"
#include "src/comm/comm.h"
#include "src/train/settings/train_settings.h"

typedef enum err bench_text_measure(const struct bench_options *options,
                                    struct comm *comm,
                                    const struct train_settings *settings,
                                    json_t **result);

/* Measures on the only rank of a comm, by the settings `overrides` and after
 * them the options' (key=value each). run.dir is the options' folder; the data
 * set in it is 8 MiB of text, byte by byte. */
enum err bench_text_train(const struct bench_options *options,
                          char *const *overrides, int count,
                          bench_text_measure *measure, json_t **result);
