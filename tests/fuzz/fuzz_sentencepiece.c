/* SentencePiece models of any bytes: refused, or made into a tokenizer.json that
 * the reader of such files takes. */

#include "src/base/log.h"
#include "src/text/tokenizer/sentencepiece.h"
#include "src/text/tokenizer/tokenizer.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct sentencepiece made = { NULL };
    struct tokenizer *tokenizer = NULL;
    bool ends = bytes > 0 && (data[bytes - 1] & 1) != 0;
    log_init("fuzz", -1, LOG_ERROR);
    if (sentencepiece_make("fuzz", data, bytes, ends, ends, &made) != ERR_OK)
        return 0;
    enum err rc = tokenizer_create_json("fuzz", made.json, strlen(made.json),
                                        made.bos, made.eos, &tokenizer);
    assert(rc == ERR_OK || rc == ERR_MEMORY);
    tokenizer_destroy(tokenizer);
    free(made.json);
    return 0;
}
