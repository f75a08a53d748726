/* The tokenizers that there are by name: bytes alone. */
#include "src/text/tokenizer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/digest.h"

#define TOKENIZER_BYTE_VALUES 256

/* What the digest is taken over. Changing the tokenizer means a new text. */
static const char tokenizer_bytes_definition[] =
    "tessera-tokenizer/1 bytes: token = byte value 0..255; "
    "256 = end of document; vocab_size = 257\n";

struct tokenizer {
    char sha256[65];
    uint8_t bytes[TOKENIZER_BYTE_VALUES];
};

enum err tokenizer_create(const char *name, struct tokenizer **out)
{
    assert(name != NULL && out != NULL);
    enum err rc = ERR_OK;
    if (strcmp(name, "bytes") != 0)
        return err_set(ERR_USAGE, "unknown tokenizer '%s'; there is: bytes",
                       name);
    struct tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
    if (tokenizer == NULL)
        return err_set(ERR_MEMORY, "no memory for a tokenizer");
    for (int b = 0; b < TOKENIZER_BYTE_VALUES; b++)
        tokenizer->bytes[b] = (uint8_t)b;
    TRY_OUT(digest_bytes(tokenizer_bytes_definition,
                         sizeof tokenizer_bytes_definition - 1,
                         tokenizer->sha256));
    *out = tokenizer;
    tokenizer = NULL;
out:
    tokenizer_destroy(tokenizer);
    return rc;
}

void tokenizer_destroy(struct tokenizer *tokenizer)
{
    free(tokenizer);
}

const char *tokenizer_name(const struct tokenizer *tokenizer)
{
    (void)tokenizer;
    return "bytes";
}

const char *tokenizer_sha256(const struct tokenizer *tokenizer)
{
    return tokenizer->sha256;
}

int64_t tokenizer_vocab_size(const struct tokenizer *tokenizer)
{
    (void)tokenizer;
    return TOKENIZER_BYTE_VALUES + 1;
}

int32_t tokenizer_eos(const struct tokenizer *tokenizer)
{
    (void)tokenizer;
    return TOKENIZER_BYTE_VALUES;
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

const char *tokenizer_file(const struct tokenizer *tokenizer, size_t *bytes)
{
    (void)tokenizer;
    *bytes = 0;
    return NULL;
}

int32_t tokenizer_bos(const struct tokenizer *tokenizer)
{
    (void)tokenizer;
    return -1;
}

int32_t tokenizer_find(const struct tokenizer *tokenizer, const char *text)
{
    (void)tokenizer;
    return strlen(text) == 1 ? (uint8_t)text[0] : -1;
}

enum err token_list_add(struct token_list *list, const int32_t *tokens,
                        size_t count)
{
    if (count > list->capacity - list->count) {
        size_t capacity = 2 * (list->count + count);
        int32_t *token = realloc(list->token, capacity * sizeof *token);
        if (token == NULL)
            return err_set(ERR_MEMORY, "no memory for %zu tokens", capacity);
        list->token = token;
        list->capacity = capacity;
    }
    if (count > 0)
        memcpy(list->token + list->count, tokens, count * sizeof *tokens);
    list->count += count;
    return ERR_OK;
}

struct tokenizer_encoder {
    const struct tokenizer *tokenizer;
};

enum err tokenizer_encoder_create(const struct tokenizer *tokenizer,
                                  struct tokenizer_encoder **out)
{
    struct tokenizer_encoder *encoder = calloc(1, sizeof *encoder);
    if (encoder == NULL)
        return err_set(ERR_MEMORY, "no memory to encode with");
    encoder->tokenizer = tokenizer;
    *out = encoder;
    return ERR_OK;
}

void tokenizer_encoder_destroy(struct tokenizer_encoder *encoder)
{
    free(encoder);
}

enum err tokenizer_encode(struct tokenizer_encoder *encoder,
                          const uint8_t *text, size_t bytes, unsigned flags,
                          struct token_list *out)
{
    (void)encoder;
    (void)flags;
    int32_t tokens[256];
    for (size_t i = 0; i < bytes;) {
        size_t count = 0;
        while (count < 256 && i < bytes)
            tokens[count++] = text[i++];
        TRY(token_list_add(out, tokens, count));
    }
    return ERR_OK;
}

size_t tokenizer_cut(const struct tokenizer *tokenizer, const uint8_t *text,
                     size_t bytes)
{
    (void)tokenizer;
    (void)text;
    return bytes;
}

enum err tokenizer_decode(const struct tokenizer *tokenizer, int32_t token,
                          const uint8_t **text, size_t *bytes)
{
    if (token < 0 || token > TOKENIZER_BYTE_VALUES)
        return err_set(ERR_DATA, "token %d is outside the vocabulary [0, %d)",
                       token, TOKENIZER_BYTE_VALUES + 1);
    *bytes = token < TOKENIZER_BYTE_VALUES ? 1 : 0;
    *text = tokenizer->bytes + (*bytes == 1 ? token : 0);
    return ERR_OK;
}

bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t token)
{
    (void)tokenizer;
    return token == TOKENIZER_BYTE_VALUES;
}
