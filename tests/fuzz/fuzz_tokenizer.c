/* A tokenizer.json of any bytes: refused, or a tokenizer whose encoder and
 * decoder do what they say on a short text. */

#include "src/base/log.h"
#include "src/text/tokenizer/tokenizer.h"
#include "tests/fuzz/fuzz.h"

static void use(const struct tokenizer *tokenizer)
{
    static const uint8_t text[] =
        "the aab  x<|end|>1234'S\n\xC3\xA9\xFF \xE6\x97";
    struct tokenizer_encoder *encoder = NULL;
    struct token_list list = { 0 };
    if (tokenizer_encoder_create(tokenizer, &encoder) == ERR_OK)
        for (unsigned flags = 0; flags < 4; flags++)
            if (tokenizer_encode(encoder, text, sizeof text, flags, &list) !=
                ERR_OK)
                break; /* a pattern that takes too long */
    for (size_t i = 0; i < list.count; i++) {
        const uint8_t *part = NULL;
        size_t length = 0;
        int32_t token = list.token[i];
        assert(token >= 0 && token < tokenizer_vocab_size(tokenizer));
        assert(tokenizer_decode(tokenizer, token, &part, &length) == ERR_OK);
    }
    assert(tokenizer_cut(tokenizer, text, sizeof text) < sizeof text);
    free(list.token);
    tokenizer_encoder_destroy(encoder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct tokenizer *tokenizer = NULL;
    log_init("fuzz", -1, LOG_ERROR);
    if (tokenizer_create(fuzz_file(data, bytes), &tokenizer) == ERR_OK)
        use(tokenizer);
    tokenizer_destroy(tokenizer);
    return 0;
}
