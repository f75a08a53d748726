/* The options of tessera-generate and tessera-chat. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/settings/options.h"
#include "src/infer/infer.h"
#include "src/infer/sample.h"
#include "src/parallel/spread.h"

#define GENERATE_ARGS_STOP_MAX 32

struct generate_args {
    const char *model;
    const char *prompt, *prompts; /* a text, a file; NULL: not given */
    const char *system;           /* message; NULL: none */
    bool talk;                    /* tessera-chat's */
    bool chat, score, json;
    struct sample_options sample; /* what of it was given */
    struct options options;       /* says what was given */
    int64_t max_tokens;           /* 0: not given, as for the next */
    const char *stop[GENERATE_ARGS_STOP_MAX + 1];
    enum infer_weights weights;
    enum infer_backend backend;
    enum spread_way spread;
    int64_t threads, batch, context;
    const char *tokenizer, *chat_template; /* NULL: the model's */
};

/* The options of both, of which tessera-chat has some. */
extern const struct options_row generate_args_rows[];

/* Judges what options_parse() has put into a struct generate_args. ERR_USAGE
 * names an option that is out of range or goes with no other. */
enum err generate_args_check(const struct options *options);

/* What was given over what the model says, or else over `otherwise`: an option
 * of sampling has tokens drawn, --greedy not. model NULL: it says nothing. */
void generate_args_sample(const struct generate_args *args,
                          const struct sample_options *model,
                          const struct sample_options *otherwise,
                          struct sample_options *out);

/* Was an option of sampling given? */
bool generate_args_samples(const struct generate_args *args);
