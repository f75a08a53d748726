/* Makes a model's tokenizer, and says if another one takes its place. A wrong
 * one fails nowhere: numbers of tokens mean something else, and the text that
 * comes out is nonsense. So what was trained with is compared as far as it is
 * known, by digest or else by the size of the vocabulary. */
#include "src/formats/weights.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "src/base/digest.h"
#include "src/base/log.h"

bool weights_tokenizer_sha256(const struct weights_about *about,
                              char sha256[65])
{
    assert(about != NULL && sha256 != NULL);
    struct tokenizer *tokenizer = NULL;
    if (about->tokenizer != NULL)
        return digest_bytes(about->tokenizer, about->tokenizer_bytes, sha256) ==
               ERR_OK;
    if (about->builtin_tokenizer == NULL ||
        tokenizer_create(about->builtin_tokenizer, &tokenizer) != ERR_OK)
        return false;
    snprintf(sha256, 65, "%s", tokenizer_sha256(tokenizer));
    tokenizer_destroy(tokenizer);
    return true;
}

static void tokenizer_warn(const struct weights_about *about,
                           const struct tokenizer *given)
{
    char sha256[65];
    const char *name = tokenizer_name(given);
    int64_t vocab = tokenizer_vocab_size(given);
    bool known = weights_tokenizer_sha256(about, sha256);
    if (known && strcmp(sha256, tokenizer_sha256(given)) != 0)
        log_warn(
            "%s was trained with another tokenizer (SHA-256 %.12s, %" PRId64
            " tokens) than %s (%.12s, %" PRId64
            "): tokens may mean something else",
            about->path, sha256, about->vocab, name, tokenizer_sha256(given),
            vocab);
    else if (!known && vocab != about->vocab)
        log_warn("%s was trained with %" PRId64
                 " tokens, the tokenizer %s has %" PRId64
                 ": they may mean something else",
                 about->path, about->vocab, name, vocab);
}

void weights_tokenizer_warn_names(const struct weights_about *about)
{
    const struct {
        const char *name;
        int32_t named, chosen;
    } tokens[] = { { "bos_token", about->named_bos, about->bos },
                   { "eos_token", about->named_eos, about->eos } };
    for (size_t t = 0; t < sizeof tokens / sizeof *tokens; t++)
        if (tokens[t].named >= 0)
            log_warn("%s: %s is token %d, but %s_id is %d: the latter is taken",
                     about->path, tokens[t].name, tokens[t].named,
                     tokens[t].name, tokens[t].chosen);
}

enum err weights_tokenizer_none(const struct weights_about *about)
{
    bool why = about->unusable != NULL;
    return err_set(ERR_USAGE,
                   "%s: there is no tokenizer with the model%s%s%s: give its "
                   "tokenizer.json or tokenizer.model with --tokenizer FILE, "
                   "or --tokenizer bytes",
                   about->path, why ? " that can be used (" : "",
                   why ? about->unusable : "", why ? ")" : "");
}

enum err weights_tokenizer_create(const struct weights_about *about,
                                  const char *given, struct tokenizer **out)
{
    assert(about != NULL && out != NULL);
    *out = NULL;
    if (given != NULL)
        TRY(tokenizer_create(given, out));
    else if (about->tokenizer != NULL)
        TRY(tokenizer_create_json(about->path, about->tokenizer,
                                  about->tokenizer_bytes, about->bos,
                                  about->eos, out));
    else if (about->builtin_tokenizer != NULL)
        TRY(tokenizer_create(about->builtin_tokenizer, out));
    else
        return ERR_OK;
    int64_t vocab = tokenizer_vocab_size(*out);
    if (vocab > about->config.vocab_size) {
        enum err rc =
            err_set(given != NULL ? ERR_USAGE : ERR_DATA,
                    "the tokenizer %s has %" PRId64 " tokens, and the model's "
                    "embedding %" PRId64 " rows: give the model's own with "
                    "--tokenizer",
                    tokenizer_name(*out), vocab, about->config.vocab_size);
        tokenizer_destroy(*out);
        *out = NULL;
        return rc;
    }
    if (given != NULL)
        tokenizer_warn(about, *out);
    return ERR_OK;
}
