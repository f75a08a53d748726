/* The generation_config.json that a model has brought with it: how its makers
 * would have its tokens chosen, and which of them end a text. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/infer/sample.h"
#include "src/formats/weights.h"

#define GENERATE_CONFIG_FILE "generation_config.json"
#define GENERATE_CONFIG_EOS_MAX 32

struct generate_config {
    bool says;                    /* do_sample, or what sampling needs */
    struct sample_options sample; /* what it does not say is the default */
    int32_t eos[GENERATE_CONFIG_EOS_MAX];
    size_t eos_count;
};

/* What a model's file says; nothing where it says nothing. What is asked for
 * there and cannot be done is warned of. ERR_DATA names file and key. */
enum err generate_config_read(const struct weights_about *about,
                              struct generate_config *out);
