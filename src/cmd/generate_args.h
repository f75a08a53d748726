/* The options of tessera-generate and tessera-chat. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/infer/infer.h"
#include "src/infer/sample.h"

#define GENERATE_ARGS_STOP_MAX 32

/* What was said of sampling. */
enum generate_args_said {
    GENERATE_SAID_GREEDY = 1,
    GENERATE_SAID_TEMPERATURE = 2,
    GENERATE_SAID_TOP_K = 4,
    GENERATE_SAID_TOP_P = 8,
    GENERATE_SAID_MIN_P = 16,
    GENERATE_SAID_SEED = 32,
    GENERATE_SAID_PENALTY = 64
};

struct generate_args {
    const char *model;
    const char *prompt, *prompts; /* a text, a file; NULL: not given */
    const char *system;           /* message; NULL: none */
    bool chat, score, json;
    struct sample_options sample; /* what was said, by `said` */
    unsigned said;                /* enum generate_args_said */
    int64_t max_tokens;           /* 0: not given, as for the next */
    const char *stop[GENERATE_ARGS_STOP_MAX];
    size_t stop_count;
    enum infer_weights weights;
    int64_t threads, batch, context;
    const char *tokenizer, *chat_template; /* NULL: the model's */
};

/* Those of tessera-generate, or, `talk`, of tessera-chat. ERR_USAGE names an
 * option that is unknown, out of range or goes with no other. */
enum err generate_args_parse(int argc, char **argv, bool talk,
                             struct generate_args *out);

/* What was said over what the model says, or else over `otherwise`: an option
 * of sampling has tokens drawn, --greedy not. model NULL: it says nothing. */
void generate_args_sample(const struct generate_args *args,
                          const struct sample_options *model,
                          const struct sample_options *otherwise,
                          struct sample_options *out);

/* The lines of --help that both have. */
extern const char generate_args_usage[];
