/* tessera-data tokenize --chat and --prompts: options of fine-tuning data, and what
 * is told when it is made.
 *
 * The command is the same as for text, since users think of it as one; but most
 * options mean something for one of the two alone. A list names those of either,
 * and one that has no meaning is refused: silently ignored it would be taken for
 * done. What was cut, dropped or not used is told at the end, for all of it changes
 * what a model learns. */
#include "src/cmd/data_cmd.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/clean.h"
#include "src/base/fsio.h"
#include "src/base/globs.h"
#include "src/formats/weights.h"
#include "src/text/chat/chat.h"

/* Options that fine-tuning data alone has, and those that it has not. */
static const char *const its_own[] = {
    "template", "target-responses", "target-prompts",
    "too-long", "packing",          "fields",
    NULL
};
static const char *const of_text[] = { "separator", "field",   "mds",
                                       "text",      "binary",  "bos-id",
                                       "no-eos",    "no-wrap", "threads",
                                       "fresh",     NULL };

/* The last of them that was given; NULL: none. */
static const char *given_of(const struct data_options *options,
                            const char *const *names)
{
    const char *given = NULL;
    for (; *names != NULL; names++)
        if (options_given(options->options, *names))
            given = *names;
    return given;
}

bool data_finetune_asked(const struct data_options *options)
{
    return options->chat || options->prompts ||
           given_of(options, its_own) != NULL;
}

enum err data_finetune_targets(void *into, char *text)
{
    int64_t *out =
        &((struct data_options *)into)->finetune.rules.target_prompts;
    static const char at_least[] = "length>=";
    size_t length = sizeof at_least - 1;
    char *end = NULL;
    if (strcmp(text, "none") == 0) {
        *out = FINETUNE_NO_PROMPTS;
        return ERR_OK;
    }
    if (strcmp(text, "all") == 0) {
        *out = 0;
        return ERR_OK;
    }
    errno = 0;
    long long value = strncmp(text, at_least, length) == 0
                          ? strtoll(text + length, &end, 10)
                          : 0;
    if (value < 1 || errno != 0 || *end != '\0' || value == INT64_MAX)
        return err_set(ERR_USAGE,
                       "--target-prompts takes none, all or 'length>=N' with "
                       "N of at least 1, not '%s'",
                       text);
    *out = value;
    return ERR_OK;
}

static enum err data_finetune_check(const struct data_options *options)
{
    const struct tokenize_options *tokenize = &options->tokenize;
    if (options->chat && options->prompts)
        return err_set(ERR_USAGE, "--chat and --prompts: give one of them");
    if (!options->chat && !options->prompts)
        return err_set(ERR_USAGE,
                       "--%s is for fine-tuning data: give --chat or "
                       "--prompts, too",
                       given_of(options, its_own));
    if (options->prompts && options->finetune.template != NULL)
        return err_set(ERR_USAGE, "--template is for --chat; --prompts joins "
                                  "prompt and response as they are");
    const char *other = given_of(options, of_text);
    if (other != NULL)
        return err_set(ERR_USAGE,
                       "--%s is for text; fine-tuning data has no use for it",
                       other);
    if (tokenize->seq_len < 2 || tokenize->seq_len > TOKENIZE_SEQ_LEN_MAX)
        return err_set(ERR_USAGE, "--seq-len has to be in [2, %lld], not %lld",
                       (long long)TOKENIZE_SEQ_LEN_MAX,
                       (long long)tokenize->seq_len);
    return ERR_OK;
}

static void data_finetune_tell(const char *out,
                               const struct tokenize_finetune_options *options,
                               const struct tokenize_finetune_result *result)
{
    int64_t samples = result->samples + result->eval_samples;
    double cells = (double)samples * (double)options->set->seq_len;
    assert(result->tokens >= result->learned && samples >= 0);
    clean_printf("%s: %" PRId64 " samples of %" PRId64 " examples, %" PRId64
                 " tokens, %" PRId64 " of them learned, %.1f %% padding\n",
                 out, samples, result->examples + result->eval_examples,
                 result->tokens, result->learned,
                 100 * (1 - (double)result->tokens / cells));
    if (result->eval_samples > 0)
        clean_printf("%s/train: %" PRId64 " samples of %" PRId64 " examples\n"
                     "%s/eval: %" PRId64 " samples of %" PRId64
                     " examples, %s\n",
                     out, result->samples, result->examples, out,
                     result->eval_samples, result->eval_examples,
                     options->set->holdout > 0 ? "by --seed" : "the last ones");
    if (result->cut > 0)
        printf("%" PRId64 " examples were cut to %" PRId64
               " tokens (--seq-len, --too-long)\n",
               result->cut, options->set->seq_len);
    if (result->left[0] > 0)
        printf("%" PRId64 " examples of more than %" PRId64
               " tokens were left out (--too-long drop)\n",
               result->left[0], options->set->seq_len);
    if (result->left[1] > 0)
        printf("%" PRId64 " examples were left out: their first %" PRId64
               " tokens have nothing to learn\n",
               result->left[1], options->set->seq_len);
    if (options->template_text != NULL)
        clean_printf("chat template: %s's own\n", options->template);
    if (result->unused[0] != '\0')
        clean_printf("fields that are not used: %s\n", result->unused);
}

enum err data_finetune_run(struct data_options *options, const char *template)
{
    assert(data_finetune_asked(options) && options->operand_count > 0);
    struct tokenize_finetune_options *finetune = &options->finetune;
    const struct tokenize_options *tokenize = &options->tokenize;
    struct tokenize_finetune_result result;
    TRY(data_finetune_check(options));
    finetune->set = tokenize;
    if (options->chat && finetune->template == NULL) {
        finetune->template =
            template != NULL ? tokenize->tokenizer : CHAT_TEMPLATE_DEFAULT;
        finetune->template_text = template;
    }
    assert(tokenize->out != NULL);
    TRY(tokenize_finetune(finetune, options->operands, options->operand_count,
                          &result));
    data_finetune_tell(options->said, finetune, &result);
    return ERR_OK;
}

/* --- the tokenizer of --tokenizer NAME: by name, of a file, or of a model ---
 *
 * A model's folder has a tokenizer.json, or tokenizer.model, that could be read as it is,
 * but which of its tokens end a text is said by the model's numbers, and the two may
 * differ. So a model is asked first, if it is one that we know, and the file is what is
 * left. */

#define MODEL_TEMPLATE_BYTES_MAX (1 << 20)

static bool model_has(const char *folder, const char *file)
{
    char path[FSIO_PATH_MAX];
    return fsio_path(path, "%s/%s", folder, file) == ERR_OK &&
           access(path, F_OK) == 0;
}

/* A folder whose tokenizer is a file in it, or the file. */
static bool model_is_file(const char *name)
{
    return strcmp(name, TOKENIZER_DEFAULT) == 0 ||
           globs_match("?*.json ?*.model", name) ||
           model_has(name, "tokenizer.json") ||
           model_has(name, "tokenizer.model");
}

/* chat_template.jinja in the folder, as transformers writes it. */
static enum err model_folder_template(const char *folder, char **template)
{
    char path[FSIO_PATH_MAX];
    size_t bytes = 0;
    TRY(fsio_path(path, "%s/chat_template.jinja", folder));
    if (access(path, F_OK) != 0)
        return ERR_OK;
    return fsio_read_file(path, MODEL_TEMPLATE_BYTES_MAX, template, &bytes);
}

/* What a data set calls the tokenizer: the last part of the path. */
static const char *model_stem(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash == NULL || slash[1] == '\0' ? name : slash + 1;
}

/* Its tokenizer as the model uses it: with the numbers of the tokens that begin and
 * end its texts, and the template that it was taught with. */
static enum err model_of_weights(const char *name, struct tokenizer **tokenizer,
                                 char **template)
{
    enum err rc = ERR_OK;
    struct weights *weights = NULL;
    TRY_OUT(weights_open(name, &weights));
    const struct weights_about *about = weights_about(weights);
    weights_tokenizer_warn_names(about);
    if (about->tokenizer != NULL)
        TRY_OUT(tokenizer_create_json(model_stem(name), about->tokenizer,
                                      about->tokenizer_bytes, about->bos,
                                      about->eos, tokenizer));
    else if (about->builtin_tokenizer != NULL)
        TRY_OUT(tokenizer_create(about->builtin_tokenizer, tokenizer));
    else
        TRY_OUT(weights_tokenizer_none(about));
    if (template != NULL && about->chat_template != NULL) {
        *template = strdup(about->chat_template);
        if (*template == NULL)
            rc = err_set(ERR_MEMORY, "no memory for a chat template");
    }
out:
    weights_close(weights);
    return rc;
}

enum err data_model_tokenizer(const char *name, struct tokenizer **tokenizer,
                              char **template)
{
    struct stat status;
    assert(template == NULL || *template == NULL);
    if (!model_is_file(name) && stat(name, &status) == 0)
        return model_of_weights(name, tokenizer, template);
    /* A model's numbers say which token ends a text, where names may differ; a
     * model that we lack may still have a tokenizer that we have. */
    if (model_has(name, "config.json") &&
        model_of_weights(name, tokenizer, template) == ERR_OK)
        return ERR_OK;
    TRY(tokenizer_create(name, tokenizer));
    return template == NULL ? ERR_OK : model_folder_template(name, template);
}
