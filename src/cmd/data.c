/* tessera-data: make, describe and check data sets. One table of commands, each
 * with the rows of options that it takes; all options lie in one struct, for
 * commands share most of them.
 *
 * Each command calls a function of src/data/prepare and prints what came of it, one
 * line and what there is to know besides. All of them look at stop_requested() on
 * their way: Ctrl-C ends a command between two samples, with what it was making
 * removed, or for tokenize in a state that the same command goes on from. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "src/base/array.h"
#include "src/base/clean.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/cmd/cmd_main.h"
#include "src/cmd/data_cmd.h"
#include "src/data/prepare/census.h"
#include "src/data/prepare/scan.h"
#include "src/data/prepare/tokenize.h"
#include "src/data/prepare/train_tokenizer.h"
#include "src/data/set/dataset.h"
#include "src/job/stop.h"
#include "src/mirror/home.h"
#include "src/mirror/home_out.h"
#include "src/text/binary_kind.h"
#include "src/text/tokenizer/tokenizer.h"

static void tell_empty(int64_t records)
{
    if (records > 0)
        printf("%" PRId64 " records with an empty text, or none, are no "
               "documents\n",
               records);
}

/* The inputs are read as tokenize reads them (src/data/texts), by the same options,
 * so that a tokenizer is taught by the documents that it will meet. A text may not
 * have as many pairs that are worth a token as were asked for; that is told and no
 * failure, for the tokenizer is as good as the text allows. */
static const char *const data_special[] = { "<|endoftext|>" };

static enum err command_train_tokenizer(struct data_options *options)
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
                 options->said, result.tokens, result.words, result.bytes);
    if (result.tokens < vocab_size)
        printf("the text has no more than these with --min-frequency %" PRId64
               "; --vocab-size asked for %" PRId64 "\n",
               learn->min_frequency, vocab_size);
    tell_empty(result.empty);
    if (result.left_out > 0)
        printf("%" PRId64 " words of more than %d bytes were left out\n",
               result.left_out, BPE_WORDS_BYTES_MAX);
    return ERR_OK;
}

#define ENCODE_READ_BYTES 65536
#define ENCODE_DIGITS_MAX 20 /* of a token that is written out */

/* encode and decode: between standard input and output, to look at what a
 * tokenizer does. The whole input is one text: cut into parts it would have other
 * tokens where it was cut. Decoding needs no such care and writes token by token,
 * though a character may come in several. */
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
static enum err command_encode(struct data_options *options)
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

static enum err command_decode(struct data_options *options)
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

static enum err command_tokenize_text(struct data_options *all)
{
    struct tokenize_result result;
    struct tokenize_options *options = &all->tokenize;
    const char *out = all->said;
    TRY(tokenize_files(options, all->operands, all->operand_count, &result));
    clean_printf("%s: %" PRId64 " samples, %" PRId64 " tokens, %" PRId64
                 " documents, %" PRId64 " bytes of text\n",
                 out, result.samples + result.eval_samples, result.tokens,
                 result.documents, result.bytes);
    tell_empty(result.empty);
    if (result.dropped > 0)
        printf("%" PRId64 " tokens at the ends of documents are in no sample "
               "(--no-wrap)\n",
               result.dropped);
    if (options->eval_fraction > 0)
        clean_printf("%s/train: %" PRId64 " samples\n%s/eval: %" PRId64
                     " samples, the end of the last inputs\n",
                     out, result.samples, out, result.eval_samples);
    if (options->holdout > 0)
        clean_printf("%s/train: %" PRId64 " samples\n%s/eval: %" PRId64
                     " samples of %" PRId64 " documents, by --seed %" PRId64
                     "\n",
                     out, result.samples, out, result.eval_samples,
                     result.held_documents, options->seed);
    return ERR_OK;
}

static enum err command_tokenize(struct data_options *all)
{
    enum err rc = ERR_OK;
    struct tokenize_options *options = &all->tokenize;
    char *template = NULL;
    options->eos_given = options_given(all->options, "eos-id");
    options->bos_given = options_given(all->options, "bos-id");
    if (options->holdout > 0 ? options->eval_fraction > 0 || options->no_wrap
                             : options_given(all->options, "seed"))
        return err_set(ERR_USAGE,
                       options->holdout > 0
                           ? "--holdout and %s exclude each other"
                           : "--seed is for --holdout",
                       options->no_wrap ? "--no-wrap" : "--eval-fraction");
    TRY_OUT(data_model_tokenizer(options->tokenizer, &options->lent,
                                 all->chat ? &template : NULL));
    if (data_finetune_asked(all))
        TRY_OUT(data_finetune_run(all, template));
    else
        TRY_OUT(command_tokenize_text(all));
out:
    free(template);
    tokenizer_destroy(options->lent);
    return rc;
}

static enum err command_info(struct data_options *options)
{
    enum err rc = ERR_OK;
    struct census census;
    char *text = NULL;
    if (options->columns && options->json)
        return err_set(ERR_USAGE, "--columns prints no JSON: leave out --json");
    if (options->columns)
        return data_columns_list(options->operands[0]);
    TRY_OUT(
        census_dataset(options->operands[0], true, stop_requested, &census));
    TRY_OUT(census_format(&census, options->json, &text));
    fputs(text, stdout);
out:
    free(text);
    return rc;
}

static enum err command_verify(struct data_options *options)
{
    enum err rc = ERR_OK;
    struct scan_result result;
    struct dataset *dataset = NULL;
    TRY_OUT(dataset_open(options->operands[0], &dataset));
    TRY_OUT(scan_verify(dataset, true, stop_requested, &result));
    char known[256], unknown[256];
    dataset_checksums(dataset, true, known, sizeof known);
    dataset_checksums(dataset, false, unknown, sizeof unknown);
    clean_printf("%s: good, %" PRId64 " samples, %" PRId64
                 " tokens; checksums: %s%s%s\n",
                 options->operands[0], result.samples, result.tokens,
                 known[0] != '\0' ? known : "none",
                 unknown[0] != '\0' ? "; not checked: " : "", unknown);
out:
    dataset_close(dataset);
    return rc;
}

/* What the new description leaves open. */
static enum err adopt_hint(const char *path)
{
    enum err rc = ERR_OK;
    char unknown[256];
    struct dataset *dataset = NULL;
    TRY_OUT(dataset_open(path, &dataset));
    if (!dataset_has_documents(dataset))
        clean_printf(
            "%s: documents are not separated: training on it needs "
            "model.attn_uses_sequence_id=false, or adopt it again with "
            "--eos-token-id N\n",
            path);
    dataset_checksums(dataset, false, unknown, sizeof unknown);
    if (unknown[0] != '\0')
        clean_printf("%s: checksums not known here, not checked: %s\n", path,
                     unknown);
out:
    dataset_close(dataset);
    return rc;
}

static enum err command_adopt(struct data_options *options)
{
    struct scan_result result;
    const struct scan_adoption *adoption = &options->adoption;
    if (adoption->vocab_size == 0 && adoption->tokenizer == NULL)
        return err_set(ERR_USAGE, "adopt needs --vocab-size N or the "
                                  "tokenizer's file: --tokenizer FILE");
    TRY(scan_adopt(options->operands[0], adoption, true, stop_requested,
                   &result));
    clean_printf("%s: adopted, %" PRId64 " samples, %" PRId64 " tokens\n",
                 options->operands[0], result.samples, result.tokens);
    return adopt_hint(options->operands[0]);
}

static const struct command {
    struct options_command command;
    enum err (*run)(struct data_options *options);
} commands[] = {
    { { "tokenize", "FILE...", NULL, data_options_tokenize, "out! *", 1, -1 },
      command_tokenize },
    { { "info", "DIR", "documents, tokens, loss, padding, text, entropy",
        data_options_sets, "json columns", 1, 1 },
      command_info },
    { { "head", "DIR", "samples as text (the first 3), or as tokens",
        data_options_sets, "from count tokens column raw", 1, 1 },
      data_head },
    { { "verify", "DIR", "check every shard and sample", data_options_sets, "",
        1, 1 },
      command_verify },
    { { "merge", "SET...", "one set of the shards of all", data_options_sets,
        "out!", 1, -1 },
      data_merge },
    { { "split", "SET", "sets of whole samples, in order", data_options_sets,
        "out! parts|fraction! shard-bytes", 1, 1 },
      data_split },
    { { "adopt", "DIR", NULL, data_options_adopt, "*", 1, 1 }, command_adopt },
    { { "encode", "", "text on standard input to tokens", data_options_encode,
        "*", 0, 0 },
      command_encode },
    { { "decode", "", "and back", data_options_encode, "tokenizer", 0, 0 },
      command_decode },
    { { "train-tokenizer", "TEXT...", NULL, data_options_learn,
        "vocab-size! out! *", 1, -1 },
      command_train_tokenizer },
};

/* Texts that lie at addresses become copies; data sets are read where they are. */
static enum err fetch_texts(struct data_options *all, char **paths)
{
    char path[FSIO_PATH_MAX], exact[FSIO_PATH_MAX];
    for (int i = 0; i < all->operand_count; i++) {
        snprintf(path, sizeof path, "%s", all->operands[i]);
        if (home_is(path))
            TRY(home_open(all->operands[i], HOME_FILES, path, exact));
        TRY(new_text(&paths[i], path));
    }
    all->operands = paths;
    return ERR_OK;
}

static enum err run(const struct options *options, int *exit_code)
{
    struct data_options *all = options->into;
    (void)exit_code;
    all->options = options;
    all->operands = options->operands;
    all->operand_count = options->operand_count;
    all->tokenize.stop = stop_requested;
    TRY(stop_install());
    if (all->tokenize.out !=
        NULL) /* of which nothing half made is to be left */
        TRY(stop_outlive_readers());
    enum err rc = ERR_OK;
    char **paths = NULL;
    const char **out = &all->tokenize.out;
    const struct command *command = (const void *)options->command;
    bool learns = command->run == command_train_tokenizer;
    home_terms(cache_defaults.deadline_s, stop_is_requested);
    TRY(new_zeroed(&paths, (size_t)options->operand_count + 1));
    if (learns || (command->run == command_tokenize && !all->tokenize.mds))
        TRY_OUT(fetch_texts(all, paths));
    all->said = *out;
    if (*out != NULL)
        TRY_OUT(home_out_begin(*out, learns ? "tokenizer.json" : "index.json",
                               stop_is_requested, out));
    rc = home_out_end(command->run(all));
out:
    for (int i = 0; i < options->operand_count; i++)
        free(paths[i]);
    free(paths);
    return rc;
}

int main(int argc, char **argv)
{
    static const struct options_program program = {
        .name = "data",
        .about = "Makes data sets and tokenizers, and looks at them.\n",
        .end = "exit codes: 0 done; 64 usage; 75 try again; 93 missing or "
               "damaged data\n",
        OPTIONS_COMMANDS(commands),
    };
    struct data_options options = data_options_default;
    return cmd_main(&(struct cmd_main){ &program, &options, run }, argc, argv);
}
