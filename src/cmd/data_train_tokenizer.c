/* tessera-data train-tokenizer: its options, and what is told of it. A text may not
 * have as many pairs that are worth a token as were asked for; that is told and no
 * failure, for the tokenizer is as good as the text allows.
 *
 * The inputs are read as tokenize reads them (src/data/texts), by the same options,
 * so that a tokenizer is taught by the documents that it will meet. */
#include "src/cmd/data_cmd.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "src/base/clean.h"
#include "src/data/prepare/train_tokenizer.h"

static const char *const data_special[] = { "<|endoftext|>" };

enum err data_train_tokenizer_run(struct data_options *options)
{
    assert(options->operand_count > 0);
    const struct data_train_tokenizer *learn = &options->learn;
    const struct tokenize_options *tokenize = &options->tokenize;
    int64_t vocab_size = options->adoption.vocab_size;
    struct train_tokenizer_result result;
    int special_count = options_texts_count(learn->special);
    const struct train_tokenizer_options train = {
        .train = { .pattern = (enum bpe_train_pattern)learn->pattern,
                   .vocab_size = vocab_size,
                   .min_frequency = learn->min_frequency,
                   .special = special_count > 0 ? learn->special : data_special,
                   .special_count =
                       special_count > 0 ? (size_t)special_count : 1 },
        .texts = tokenize,
    };
    TRY(train_tokenizer(&train, options->operands, options->operand_count,
                        &result));
    clean_printf("%s: %" PRId64 " tokens of %" PRId64 " words in %" PRId64
                 " bytes of text\n",
                 tokenize->out, result.tokens, result.words, result.bytes);
    if (result.tokens < vocab_size)
        printf("the text has no more than these with --min-frequency %" PRId64
               "; --vocab-size asked for %" PRId64 "\n",
               learn->min_frequency, vocab_size);
    if (result.left_out > 0)
        printf("%" PRId64 " words of more than %d bytes were left out\n",
               result.left_out, BPE_WORDS_BYTES_MAX);
    return ERR_OK;
}
