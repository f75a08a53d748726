/* Opens a MODEL, finds out what ends its answers, and holds its weights.
 *
 * An answer ends with a token that ends texts, and nobody knows all of them: a
 * model names one in its config, more in its generation_config.json, its tokenizer
 * may name another, and a model that was tuned for chats was taught to end a turn
 * with what its template puts there, which may be none of these. So all are
 * collected, and the template is asked by a trial: it renders a conversation whose
 * answer is a mark, and what stands behind the mark ends an answer.
 *
 * generation_config.json is transformers', and means what that library would do with
 * it: without do_sample nothing is drawn, whatever temperature stands there. What it
 * may ask for beyond sampling (beams, contrastive search, forced tokens) is not done
 * here; a value that asks for it is warned of, one that asks for nothing passes. */
#include "src/generate/generate_engine.h"

#include <assert.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/fsio.h"
#include "src/base/jsontext.h"
#include "src/base/log.h"

/* What a generation_config.json says. */
struct generate_config {
    bool says;                    /* do_sample, or what sampling needs */
    struct sample_options sample; /* what it does not say is the default */
    int32_t eos[GENERATE_CONFIG_EOS_MAX];
    size_t eos_count;
};

static enum err config_real(const char *path, const json_t *root,
                            const char *key, double *out, bool *says)
{
    const json_t *value = json_object_get(root, key);
    if (value == NULL || json_is_null(value))
        return ERR_OK;
    if (!json_is_number(value))
        return err_set(ERR_DATA, "%s: '%s' is no number", path, key);
    *out = json_number_value(value);
    *says = true;
    return ERR_OK;
}

static enum err config_eos(const char *path, const json_t *value,
                           struct generate_config *out)
{
    size_t count = json_is_array(value) ? json_array_size(value) : 1;
    if (value == NULL || json_is_null(value))
        return ERR_OK;
    if (count > GENERATE_CONFIG_EOS_MAX)
        return err_set(ERR_DATA, "%s: 'eos_token_id' has more than %d tokens",
                       path, GENERATE_CONFIG_EOS_MAX);
    for (size_t i = 0; i < count; i++) {
        const json_t *one =
            json_is_array(value) ? json_array_get(value, i) : value;
        json_int_t token = json_integer_value(one);
        if (!json_is_integer(one) || token < 0 || token > INT32_MAX)
            return err_set(ERR_DATA,
                           "%s: 'eos_token_id' is no token, nor a list of "
                           "tokens",
                           path);
        assert(out->eos_count < GENERATE_CONFIG_EOS_MAX);
        out->eos[out->eos_count++] = (int32_t)token;
    }
    return ERR_OK;
}

/* Keys that ask for what is not done here, unless they have this value. */
static void config_warn(const char *path, const json_t *root)
{
    static const struct {
        const char *key;
        double neutral;
    } keys[] = {
        { "num_beams", 1 },
        { "num_beam_groups", 1 },
        { "penalty_alpha", 0 },
        { "typical_p", 1 },
        { "epsilon_cutoff", 0 },
        { "eta_cutoff", 0 },
        { "no_repeat_ngram_size", 0 },
        { "encoder_repetition_penalty", 1 },
        { "min_length", 0 },
        { "min_new_tokens", 0 },
        { "guidance_scale", 1 },
        { "bad_words_ids", 0 },
        { "force_words_ids", 0 },
        { "sequence_bias", 0 },
        { "suppress_tokens", 0 },
        { "begin_suppress_tokens", 0 },
        { "forced_bos_token_id", -1 },
        { "forced_eos_token_id", -1 },
        { "exponential_decay_length_penalty", 0 },
        { "stop_strings", 0 },
        { "watermarking_config", 0 },
    };
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        const json_t *value = json_object_get(root, keys[k].key);
        bool neutral = value == NULL || json_is_null(value) ||
                       (json_is_number(value) &&
                        json_number_value(value) == keys[k].neutral) ||
                       (json_is_array(value) && json_array_size(value) == 0);
        if (!neutral)
            log_warn("%s: '%s' is not done here and left out", path,
                     keys[k].key);
    }
}

static enum err config_sample(const char *path, const json_t *root,
                              struct generate_config *out)
{
    struct sample_options *sample = &out->sample;
    const json_t *draws = json_object_get(root, "do_sample");
    double top_k = 0;
    TRY(config_real(path, root, "temperature", &sample->temperature,
                    &out->says));
    TRY(config_real(path, root, "top_k", &top_k, &out->says));
    TRY(config_real(path, root, "top_p", &sample->top_p, &out->says));
    TRY(config_real(path, root, "min_p", &sample->min_p, &out->says));
    TRY(config_real(path, root, "repetition_penalty",
                    &sample->repetition_penalty, &out->says));
    if (!(top_k >= 0 && top_k <= INT32_MAX))
        return err_set(ERR_DATA, "%s: 'top_k' is %g", path, top_k);
    sample->top_k = (int64_t)top_k;
    out->says = out->says || json_is_boolean(draws);
    /* transformers draws only where it is told so, and then only the penalty
     * counts, whatever the rest says */
    if (!json_is_true(draws)) {
        double penalty = sample->repetition_penalty;
        *sample = sample_options_default;
        sample->repetition_penalty = penalty;
        sample->greedy = true;
    }
    enum err rc = sample_check(sample);
    return rc == ERR_OK ? rc : err_prefix(ERR_DATA, "%s", path);
}

static enum err config_read(const struct weights_about *about,
                            struct generate_config *out)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    json_t *root = NULL;
    *out = (struct generate_config){ .sample = sample_options_default };
    if (about->generation == NULL)
        return ERR_OK;
    TRY(fsio_path(path, "%s/" GENERATE_CONFIG_FILE, about->path));
    rc =
        jsontext_object(about->generation, strlen(about->generation), 0, &root);
    TRY(err_prefix(rc, "%s", path));
    TRY_OUT(config_sample(path, root, out));
    TRY_OUT(config_eos(path, json_object_get(root, "eos_token_id"), out));
    config_warn(path, root);
out:
    json_decref(root);
    return rc;
}

/* Tokens of prompts that are computed at a time: more would be no quicker, and
 * an interruption waits for them. */
#define ENGINE_ROWS 256
/* What no template says of itself. */
#define ENGINE_MARK "tessera 7f3a"

static enum err engine_tokenizer(struct generate_engine *engine)
{
    const struct weights_about *about = engine->about;
    TRY(weights_tokenizer_create(about, engine->args->tokenizer,
                                 &engine->tokenizer));
    if (engine->tokenizer == NULL)
        return weights_tokenizer_none(about);
    return tokenizer_encoder_create(engine->tokenizer, &engine->encoder);
}

/* Only where a chat is asked for: a template that is damaged, or in more of Jinja
 * than is known here, is no reason not to continue a text. */
static enum err engine_template(struct generate_engine *engine)
{
    const struct generate_args *args = engine->args;
    const struct weights_about *about = engine->about;
    if (!args->chat)
        return ERR_OK;
    if (args->chat_template != NULL)
        return chat_template_create(args->chat_template, engine->tokenizer,
                                    &engine->chat);
    if (about->chat_template == NULL)
        return err_set(ERR_USAGE,
                       "%s: there is no chat template with the model: give "
                       "one with --chat-template, a file, or chatml, llama3 or "
                       "none",
                       about->path);
    return chat_template_create_text(about->path, about->chat_template,
                                     strlen(about->chat_template),
                                     engine->tokenizer, &engine->chat);
}

static void engine_add_eos(struct generate_engine *engine, int32_t token)
{
    for (size_t e = 0; e < engine->eos_count; e++)
        if (engine->eos[e] == token)
            return;
    assert(engine->eos_count < sizeof engine->eos / sizeof engine->eos[0]);
    if (token >= 0)
        engine->eos[engine->eos_count++] = token;
}

/* What a template puts behind an answer ends one: its first token if that is a
 * special one, else its text without the white space around it. */
static enum err engine_chat_end(struct generate_engine *engine)
{
    enum err rc = ERR_OK;
    static const char white[] = " \t\r\n";
    const struct chat_message talk[] = {
        { "user", "a", 1 },
        { CHAT_ROLE_ASSISTANT, ENGINE_MARK, sizeof ENGINE_MARK - 1 },
    };
    struct chat_text text = { 0 };
    struct token_list tokens = { 0 };
    TRY_OUT(chat_render(engine->chat, talk, 2, false, &text));
    const char *end = NULL, *found = text.text;
    size_t left = text.bytes;
    while (left > 0 && (found = memmem(found, left, ENGINE_MARK,
                                       sizeof ENGINE_MARK - 1)) != NULL) {
        found += sizeof ENGINE_MARK - 1;
        left = text.bytes - (size_t)(found - text.text);
        end = found;
    }
    if (end == NULL)
        goto out;
    left = text.bytes - (size_t)(end - text.text);
    TRY_OUT(generate_engine_encode(
        engine, end, left, TOKENIZER_SPECIAL | TOKENIZER_INSIDE, &tokens));
    if (tokens.count > 0 &&
        tokenizer_is_special(engine->tokenizer, tokens.token[0])) {
        engine_add_eos(engine, tokens.token[0]);
        goto out;
    }
    for (; left > 0 && strchr(white, end[0]) != NULL; left--)
        end++;
    while (left > 0 && strchr(white, end[left - 1]) != NULL)
        left--;
    engine->chat_end = left > 0 ? strndup(end, left) : NULL;
    if (left > 0 && engine->chat_end == NULL)
        rc = err_set(ERR_MEMORY, "out of memory");
    else if (left > 0)
        engine->stop[engine->stop_count++] = engine->chat_end;
out:
    free(text.text);
    free(tokens.token);
    return rc;
}

/* A text to stop at that is a special token has no text in an answer. */
static void engine_stops(struct generate_engine *engine)
{
    const struct generate_args *args = engine->args;
    for (size_t s = 0; args->stop[s] != NULL; s++) {
        int32_t token = tokenizer_find(engine->tokenizer, args->stop[s]);
        if (token >= 0 && tokenizer_is_special(engine->tokenizer, token))
            engine_add_eos(engine, token);
        else
            engine->stop[engine->stop_count++] = args->stop[s];
    }
}

/* How tokens are chosen, and what ends a text, out of all that may say so. */
static enum err engine_choices(struct generate_engine *engine,
                               const struct sample_options *otherwise)
{
    struct generate_config config = { .eos_count = 0 };
    TRY(config_read(engine->about, &config));
    generate_args_sample(engine->args, config.says ? &config.sample : NULL,
                         otherwise, &engine->sample);
    engine->sample_of = generate_args_samples(engine->args) ? "the command line"
                        : config.says ? "the model's " GENERATE_CONFIG_FILE
                                      : "default, the model says nothing";
    engine_add_eos(engine, engine->about->eos);
    engine_add_eos(engine, tokenizer_eos(engine->tokenizer));
    for (size_t e = 0; e < config.eos_count; e++)
        engine_add_eos(engine, config.eos[e]);
    engine_stops(engine);
    return engine->chat != NULL ? engine_chat_end(engine) : ERR_OK;
}

/* The longest text: what was asked for, or what the model was trained with. Beyond
 * that learned positions have no numbers; others have, and are warned of. */
static enum err engine_context(struct generate_engine *engine)
{
    const struct model_config *config = &engine->about->config;
    int64_t asked = engine->args->context;
    engine->context = asked > 0 ? asked : config->max_seq_len;
    if (engine->context <= config->max_seq_len)
        return ERR_OK;
    if (config->positions == POSITIONS_LEARNED)
        return err_set(ERR_USAGE,
                       "--context %" PRId64 ": the model has learned %" PRId64
                       " positions, and there are no others",
                       asked, config->max_seq_len);
    log_warn("--context %" PRId64 ": the model was trained with texts of up "
             "to %" PRId64 " tokens, beyond them it may talk nonsense",
             asked, config->max_seq_len);
    return ERR_OK;
}

enum err generate_engine_open(const struct generate_args *args,
                              const struct sample_options *otherwise,
                              struct generate_engine *engine)
{
    engine->args = args;
    TRY(weights_open(args->model, &engine->weights));
    engine->about = weights_about(engine->weights);
    TRY(engine_context(engine));
    TRY(engine_tokenizer(engine));
    TRY(engine_template(engine));
    return engine_choices(engine, otherwise);
}

void generate_engine_close(struct generate_engine *engine)
{
    generate_destroy(engine->generate);
    infer_ranks_close(&engine->ranks);
    free(engine->chat_end);
    chat_template_destroy(engine->chat);
    tokenizer_encoder_destroy(engine->encoder);
    tokenizer_destroy(engine->tokenizer);
    weights_close(engine->weights);
    *engine = (struct generate_engine){ .args = NULL };
}

enum err generate_engine_start(struct generate_engine *engine,
                               int64_t sequences, int64_t positions)
{
    assert(engine->generate == NULL && sequences > 0 && positions > 0);
    assert(positions <= engine->context);
    const struct weights_about *about = engine->about;
    const struct generate_args *args = engine->args;
    int64_t tokens = tokenizer_vocab_size(engine->tokenizer);
    int threads = args->threads > 0
                      ? (int)args->threads
                      : kernels_threads_default(comm_local_size(engine->comm));
    const struct infer_ranks_options options = {
        .weights = args->weights,
        .backend = args->backend,
        .spread = args->spread,
        .threads = threads,
        .sequences = sequences,
        .positions = positions,
        .rows = sequences > ENGINE_ROWS ? sequences : ENGINE_ROWS,
        .readers = 1,
        .interrupted = engine->interrupted,
        .arg = engine->interrupted_arg,
    };
    if (comm_size(engine->comm) == 1)
        kernels_spread_threads(threads);
    TRY(infer_ranks_open(engine->weights, engine->comm, &options,
                         &engine->ranks));
    const struct generate_model model = {
        .infer = engine->ranks.infer,
        .access = infer_ranks_access(&engine->ranks),
        .sequences = sequences,
        .positions = positions,
        .rows = options.rows,
        .vocab_size = about->config.vocab_size,
        .vocab = about->vocab < tokens ? about->vocab : tokens,
        .tokenizer = engine->tokenizer,
    };
    return comm_agree(engine->comm, generate_create(&model, &engine->generate));
}

struct generate_options
generate_engine_options(const struct generate_engine *engine,
                        int64_t max_tokens)
{
    return (struct generate_options){
        .sample = engine->sample,
        .max_tokens = max_tokens,
        .eos = engine->eos,
        .eos_count = engine->eos_count,
        .stop = engine->stop,
        .stop_count = engine->stop_count,
    };
}

enum err generate_engine_encode(struct generate_engine *engine,
                                const char *text, size_t bytes, unsigned flags,
                                struct token_list *out)
{
    uint64_t before = tokenizer_encoder_lost(engine->encoder);
    TRY(tokenizer_encode(engine->encoder, (const uint8_t *)text, bytes, flags,
                         out));
    uint64_t lost = tokenizer_encoder_lost(engine->encoder) - before;
    if (lost > 0)
        log_warn("%" PRIu64 " bytes of the text are left out: the tokenizer "
                 "%s has no tokens for them",
                 lost, tokenizer_name(engine->tokenizer));
    return ERR_OK;
}
