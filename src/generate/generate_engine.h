/* A MODEL made ready to continue texts: weights, tokenizer, chat template and
 * what ends an answer, for tessera-generate and tessera-chat. */
#pragma once

#include "src/base/err.h"
#include "src/generate/generate_args.h"
#include "src/infer/generate.h"
#include "src/infer/ranks/infer_ranks.h"
#include "src/text/chat/chat.h"
#include "src/text/tokenizer/tokenizer.h"
#include "src/formats/weights.h"

/* How a model's makers would have its tokens chosen, and what ends a text. */
#define GENERATE_CONFIG_FILE "generation_config.json"
#define GENERATE_CONFIG_EOS_MAX 32
#define GENERATE_ENGINE_EOS_MAX (GENERATE_CONFIG_EOS_MAX + 4)

struct generate_engine {
    struct comm *comm; /* borrowed, set before it is opened */
    const struct generate_args *args;
    struct weights *weights;
    const struct weights_about *about;
    int64_t context; /* tokens that a text may have */
    struct tokenizer *tokenizer;
    struct tokenizer_encoder *encoder;
    struct chat_template *chat; /* NULL: not wanted */
    int32_t eos[GENERATE_ENGINE_EOS_MAX + GENERATE_ARGS_STOP_MAX];
    size_t eos_count;
    const char *stop[GENERATE_ARGS_STOP_MAX + 1];
    size_t stop_count;
    char *chat_end; /* a stop text of the template's, NULL: none */
    struct sample_options sample;
    const char *sample_of; /* who has chosen it, for people */
    /* Asked while weights are read, may be set after opening; NULL: not. */
    bool (*interrupted)(void *arg);
    void *interrupted_arg;

    /* from generate_engine_start() on */
    struct infer_ranks ranks;
    struct generate *generate;
};

/* Opens the model, no weight is read. args are borrowed; `otherwise` is how
 * tokens are chosen where neither they nor the model say it. Zeroed by the
 * caller, who closes in any case. */
enum err generate_engine_open(const struct generate_args *args,
                              const struct sample_options *otherwise,
                              struct generate_engine *engine);
void generate_engine_close(struct generate_engine *engine);

/* Reads the weights, with room for so many texts of so many tokens each.
 * ERR_MEMORY says what could be chosen instead. Says on stderr what was read
 * and what it takes. Collective where there are several ranks, with the same room. */
enum err generate_engine_start(struct generate_engine *engine,
                               int64_t sequences, int64_t positions);

/* Options of generate_run(). */
struct generate_options
generate_engine_options(const struct generate_engine *engine,
                        int64_t max_tokens);

/* Appends the tokens of a text; flags as in tokenizer_encode(). What the
 * tokenizer leaves out is warned of. */
enum err generate_engine_encode(struct generate_engine *engine,
                                const char *text, size_t bytes, unsigned flags,
                                struct token_list *out);
