/* tessera-data encode and decode: text to tokens and back, between standard input
 * and output, to look at what a tokenizer does. The whole input is one text: cut
 * into parts it would have other tokens where it was cut. Decoding needs no such
 * care and writes token by token, though a character may come in several. */
#include "src/cmd/data_cmd.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "src/base/array.h"
#include "src/base/log.h"
#include "src/text/binary_kind.h"
#include "src/text/tokenizer/tokenizer.h"

#define ENCODE_READ_BYTES 65536
#define ENCODE_DIGITS_MAX 20 /* of a token that is written out */

static enum err encode_read(struct buffer *text)
{
    for (;;) {
        TRY(buffer_reserve(text, ENCODE_READ_BYTES));
        ssize_t got =
            read(STDIN_FILENO, text->data + text->bytes, ENCODE_READ_BYTES);
        if (got == 0)
            return ERR_OK;
        if (got > 0)
            text->bytes += (size_t)got;
        else if (errno != EINTR)
            return err_errno("standard input");
    }
}

/* What is no text is refused, as in tokenize: a compressed file would become tokens
 * without a word. */
enum err data_encode(struct data_options *options)
{
    enum err rc = ERR_OK;
    struct tokenizer *tokenizer = NULL;
    struct tokenizer_encoder *encoder = NULL;
    struct token_list tokens = { 0 };
    struct buffer text = { 0 };
    unsigned flags = (options->no_special ? 0u : TOKENIZER_SPECIAL) |
                     (options->template ? TOKENIZER_TEMPLATE : 0u);
    TRY_OUT(
        data_model_tokenizer(options->tokenize.tokenizer, &tokenizer, NULL));
    TRY_OUT(tokenizer_encoder_create(tokenizer, &encoder));
    TRY_OUT(encode_read(&text));
    if (!options->tokenize.binary)
        rc = binary_kind_text("standard input", text.data, text.bytes);
    if (rc != ERR_OK) {
        err_set(rc, "%s; --binary reads it as it is", err_text());
        goto out;
    }
    TRY_OUT(tokenizer_encode(encoder, text.data, text.bytes, flags, &tokens));
    for (size_t i = 0; i < tokens.count; i++)
        printf("%s%d", i > 0 ? " " : "", tokens.token[i]);
    putchar('\n');
    if (tokenizer_encoder_lost(encoder) > 0)
        log_warn("%" PRIu64 " bytes of the text have no token and are left out",
                 tokenizer_encoder_lost(encoder));
out:
    free(tokens.token);
    buffer_free(&text);
    tokenizer_encoder_destroy(encoder);
    tokenizer_destroy(tokenizer);
    return rc;
}

/* The number at *at, which is no white space, and on behind it. */
static enum err encode_number(const struct buffer *text, size_t *at,
                              int32_t *token)
{
    char number[ENCODE_DIGITS_MAX + 1];
    char *end = NULL;
    size_t length = 0;
    assert(*at < text->bytes && text->data[*at] > ' ');
    while (*at + length < text->bytes && text->data[*at + length] > ' ')
        length++;
    snprintf(number, sizeof number, "%.*s",
             length > ENCODE_DIGITS_MAX ? ENCODE_DIGITS_MAX : (int)length,
             (const char *)text->data + *at);
    long long value = strtoll(number, &end, 10);
    if (*end != '\0' || length > ENCODE_DIGITS_MAX || value < INT32_MIN ||
        value > INT32_MAX)
        return err_set(ERR_DATA,
                       "standard input, byte %zu: '%s' is not a token", *at,
                       number);
    *token = (int32_t)value;
    *at += length;
    return ERR_OK;
}

enum err data_encode_back(struct data_options *options)
{
    enum err rc = ERR_OK;
    struct tokenizer *tokenizer = NULL;
    struct tokenizer_decoder decoder = { 0 };
    struct buffer text = { 0 };
    const uint8_t *part = NULL;
    size_t bytes = 0;
    int32_t token = 0;
    TRY_OUT(
        data_model_tokenizer(options->tokenize.tokenizer, &tokenizer, NULL));
    TRY_OUT(encode_read(&text));
    for (size_t i = 0; i < text.bytes;) {
        if (text.data[i] <= ' ') {
            i++;
            continue;
        }
        TRY_OUT(encode_number(&text, &i, &token));
        TRY_OUT(
            tokenizer_decode_next(tokenizer, &decoder, token, &part, &bytes));
        fwrite(part, 1, bytes, stdout);
    }
out:
    buffer_free(&text);
    tokenizer_destroy(tokenizer);
    return rc;
}
