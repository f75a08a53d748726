/* Tokenizers by name: "bytes", which is here, or a file.
 *
 * "bytes" has no table and no words, and needs no file. All that a program asks
 * of a tokenizer goes through this file, which sends it on to "bytes" or to the
 * tables of a file. */
#include "src/text/tokenizer/tokenizer.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/digest.h"
#include "src/base/new.h"
#include "src/text/tokenizer/tokenizer_impl.h"

/* What the digest is taken over. Changing the tokenizer means a new text. */
static const char tokenizer_bytes_definition[] =
    "tessera-tokenizer/1 bytes: token = byte value 0..255; "
    "256 = end of document; vocab_size = 257\n";

static enum err tokenizer_bytes(struct tokenizer *tokenizer)
{
    strcpy(tokenizer->name, "bytes");
    for (int b = 0; b < TOKENIZER_BYTE_VALUES; b++)
        tokenizer->bytes[b] = (uint8_t)b;
    tokenizer->eos = TOKENIZER_BYTE_VALUES;
    tokenizer->bos = -1;
    return digest_bytes(tokenizer_bytes_definition,
                        sizeof tokenizer_bytes_definition - 1,
                        tokenizer->sha256);
}

enum err tokenizer_create(const char *name, struct tokenizer **out)
{
    assert(name != NULL && out != NULL);
    struct tokenizer *tokenizer = NULL;
    TRY(new_zeroed(&tokenizer, 1));
    enum err rc = strcmp(name, "bytes") == 0
                      ? tokenizer_bytes(tokenizer)
                      : tokenizer_file_load(name, tokenizer);
    return new_or_none(rc, tokenizer, out, tokenizer_destroy);
}

static enum err tokenizer_ends(struct tokenizer *tokenizer, int32_t bos,
                               int32_t eos)
{
    const uint8_t *text;
    size_t bytes;
    if (bos >= 0)
        TRY(tokenizer_decode(tokenizer, bos, &text, &bytes));
    if (eos >= 0)
        TRY(tokenizer_decode(tokenizer, eos, &text, &bytes));
    tokenizer->bos = bos;
    tokenizer->eos = eos;
    return ERR_OK;
}

enum err tokenizer_create_json(const char *name, const char *json, size_t bytes,
                               int32_t bos, int32_t eos, struct tokenizer **out)
{
    assert(name != NULL && json != NULL && out != NULL);
    enum err rc = ERR_OK;
    struct tokenizer *tokenizer = NULL;
    TRY(new_zeroed(&tokenizer, 1));
    snprintf(tokenizer->name, sizeof tokenizer->name, "%s", name);
    TRY_OUT(tokenizer_file_json(name, json, bytes, tokenizer));
    rc = err_prefix(tokenizer_ends(tokenizer, bos, eos),
                    "%s: beginning or end of a text", name);
out:
    return new_or_none(rc, tokenizer, out, tokenizer_destroy);
}

void tokenizer_destroy(struct tokenizer *tokenizer)
{
    if (tokenizer == NULL)
        return;
    free(tokenizer->file);
    bpe_destroy(tokenizer->bpe);
    unicode_destroy(tokenizer->unicode);
    pretoken_destroy(tokenizer->pretoken);
    added_destroy(tokenizer->added);
    added_destroy(tokenizer->added_normalized);
    normalizer_destroy(tokenizer->normalizer);
    free(tokenizer->about);
    free(tokenizer->before.token);
    free(tokenizer->behind.token);
    free(tokenizer->lacks);
    free(tokenizer);
}

const char *tokenizer_name(const struct tokenizer *tokenizer)
{
    return tokenizer->name;
}

const char *tokenizer_sha256(const struct tokenizer *tokenizer)
{
    return tokenizer->sha256;
}

const char *tokenizer_unicode(const struct tokenizer *tokenizer)
{
    return tokenizer->unicode != NULL ? UNICODE_VERSION : "";
}

const char *tokenizer_file(const struct tokenizer *tokenizer, size_t *bytes)
{
    *bytes = tokenizer->file_bytes;
    return tokenizer->file;
}

int64_t tokenizer_vocab_size(const struct tokenizer *tokenizer)
{
    return tokenizer->bpe == NULL ? TOKENIZER_BYTE_VALUES + 1
                                  : (int64_t)bpe_highest(tokenizer->bpe) + 1;
}

int32_t tokenizer_eos(const struct tokenizer *tokenizer)
{
    return tokenizer->eos;
}

int32_t tokenizer_bos(const struct tokenizer *tokenizer)
{
    return tokenizer->bos;
}

/* An added token that is found in normalized text; -1. */
static int32_t tokenizer_find_normalized(const struct tokenizer *tokenizer,
                                         const uint8_t *text, size_t bytes)
{
    int32_t token = -1;
    struct normalizer_work work = { 0 };
    if (normalizer_run(tokenizer->normalizer, &work, true, &text, &bytes) ==
        ERR_OK)
        token = added_find(tokenizer->added_normalized, text, bytes);
    normalizer_work_free(&work);
    return token;
}

int32_t tokenizer_find(const struct tokenizer *tokenizer, const char *text)
{
    assert(text != NULL);
    const uint8_t *bytes = (const uint8_t *)text;
    size_t length = strlen(text);
    if (tokenizer->bpe == NULL)
        return length == 1 ? bytes[0] : -1;
    int32_t token = added_find(tokenizer->added, bytes, length);
    if (token < 0)
        token = tokenizer_find_normalized(tokenizer, bytes, length);
    return token < 0 ? bpe_find(tokenizer->bpe, bytes, length) : token;
}

int64_t tokenizer_eos_of(const char *sha256)
{
    int64_t eos = -1;
    struct tokenizer *tokenizer = NULL;
    if (tokenizer_create(TOKENIZER_DEFAULT, &tokenizer) == ERR_OK &&
        strcmp(tokenizer->sha256, sha256) == 0)
        eos = tokenizer_eos(tokenizer);
    tokenizer_destroy(tokenizer);
    return eos;
}

enum err tokenizer_decode(const struct tokenizer *tokenizer, int32_t token,
                          const uint8_t **text, size_t *bytes)
{
    assert(text != NULL && bytes != NULL);
    int64_t size = tokenizer_vocab_size(tokenizer);
    if (token < 0 || token >= size)
        return err_set(ERR_DATA, "token %d is outside the vocabulary [0, %lld)",
                       token, (long long)size);
    if (tokenizer->bpe == NULL) {
        *bytes = token < TOKENIZER_BYTE_VALUES ? 1 : 0;
        *text = tokenizer->bytes + (*bytes == 1 ? token : 0);
        return ERR_OK;
    }
    return bpe_text(tokenizer->bpe, token, text, bytes)
               ? ERR_OK
               : err_set(ERR_DATA, "the tokenizer %s has no token %d",
                         tokenizer->name, token);
}

static bool tokenizer_is(const struct tokenizer *tokenizer, int32_t token,
                         enum tokenizer_about about)
{
    return tokenizer->bpe != NULL && token >= 0 &&
           token <= bpe_highest(tokenizer->bpe) &&
           (tokenizer->about[token] & about) != 0;
}

enum err tokenizer_decode_next(const struct tokenizer *tokenizer,
                               struct tokenizer_decoder *decoder, int32_t token,
                               const uint8_t **text, size_t *bytes)
{
    assert(decoder != NULL);
    TRY(tokenizer_decode(tokenizer, token, text, bytes));
    if (tokenizer->prepends && !decoder->inside && *bytes > 0 &&
        **text == ' ' && !tokenizer_is(tokenizer, token, TOKENIZER_IS_ADDED)) {
        (*text)++;
        (*bytes)--;
    }
    decoder->inside = !tokenizer_is(tokenizer, token, TOKENIZER_IS_BORDER);
    return ERR_OK;
}

bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t token)
{
    if (tokenizer->bpe == NULL)
        return token == TOKENIZER_BYTE_VALUES;
    return tokenizer_is(tokenizer, token, TOKENIZER_IS_SPECIAL);
}
