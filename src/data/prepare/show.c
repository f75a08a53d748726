/* Decodes samples and says where their documents end. What the data hold comes
 * from anybody, so whatever could steer a terminal is written out. Whether a
 * sample begins a document decides how its first word is decoded (a tokenizer
 * may put a blank before words), hence `inside`. */
#include "src/data/prepare/finished_sets.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "src/data/prepare/scan.h"
#include "src/text/tokenizer/tokenizer.h"

#define SHOW_BORDER "---- end of a document ----"

struct show {
    struct dataset *dataset;
    struct tokenizer *tokenizer;
    struct tokenizer_decoder decoder;
    FILE *out;
    bool line; /* something is on it */
    uint8_t last;
};

/* Text with what could steer a terminal made visible. */
static void show_text(struct show *show, const uint8_t *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        uint8_t byte = text[i];
        bool control = (byte < 0x20 && byte != '\n' && byte != '\t') ||
                       byte == 0x7f ||
                       (show->last == 0xc2 && byte >= 0x80 && byte < 0xa0);
        fprintf(show->out, control ? "\\x%02x" : "%c", byte);
        show->line = byte != '\n';
        show->last = byte;
    }
}

static void show_border(struct show *show)
{
    fprintf(show->out, "%s%s\n", show->line ? "\n" : "", SHOW_BORDER);
    show->line = false;
    show->decoder.inside = false;
}

static enum err show_token(struct show *show, int32_t token)
{
    const uint8_t *text = NULL;
    size_t bytes = 0;
    if (token >= tokenizer_vocab_size(show->tokenizer)) {
        fprintf(show->out, "<%" PRId32 ">", token); /* of the model alone */
        show->line = true;
        return ERR_OK;
    }
    TRY(tokenizer_decode_next(show->tokenizer, &show->decoder, token, &text,
                              &bytes));
    show_text(show, text, bytes);
    return ERR_OK;
}

/* Where tokens begin or cease to bear no loss. */
static void show_mask(struct show *show, const struct values *mask, int64_t t)
{
    if (mask->count == 0)
        return;
    assert(t >= 0 && t < mask->count);
    bool before = t > 0 && mask->data[t - 1] == 0;
    if ((mask->data[t] == 0) == before)
        return;
    fputc('~', show->out);
    show->line = true;
}

/* beginning: a document begins with the sample. */
static enum err show_sample(struct show *show, bool beginning,
                            const int32_t *tokens, int64_t count,
                            const struct dataset_marks *marks)
{
    int64_t document = 0, end = -1;
    const struct values *lengths = &marks->lengths;
    int64_t eos = dataset_sidecar(show->dataset)->eos_token;
    int64_t bos = dataset_sidecar(show->dataset)->bos_token;
    show->decoder.inside = !beginning && lengths->count == 0;
    for (int64_t t = 0; t < count; t++) {
        int32_t length = 0;
        /* documents by their lengths, where the set has them, else by tokens */
        if (document < lengths->count && t == end + 1) {
            memcpy(&length, lengths->data + 4 * document++, sizeof length);
            end = t + length - 1;
        }
        if (lengths->count == 0 && t > 0 && tokens[t] == bos)
            show_border(show);
        show_mask(show, &marks->loss_mask, t);
        TRY(show_token(show, tokens[t]));
        if (tokens[t] == bos)
            show->decoder.inside = false;
        if (lengths->count > 0 ? t == end : tokens[t] == eos)
            show_border(show);
    }
    if (show->line)
        fputc('\n', show->out);
    show->line = false;
    return ERR_OK;
}

/* The sample behind the last one that is wanted. */
static enum err show_end(const struct dataset *dataset,
                         const struct show_options *options, int64_t *end)
{
    int64_t samples = dataset_contents(dataset)->samples,
            first = options->first;
    if (first < 0 || first >= samples)
        return err_set(ERR_USAGE, "%s: no sample %lld; there are %lld",
                       dataset_path(dataset), (long long)first,
                       (long long)samples);
    *end = options->count < samples - first ? first + options->count : samples;
    return ERR_OK;
}

enum err show_samples(struct dataset *dataset,
                      const struct show_options *options, FILE *out)
{
    assert(options != NULL && out != NULL);
    enum err rc = ERR_OK;
    struct show show = { .dataset = dataset, .out = out };
    int64_t end = 0, length = 0, capacity = 0;
    int32_t *tokens = NULL;
    TRY(show_end(dataset, options, &end));
    if (!options->tokens)
        TRY(scan_tokenizer(dataset, &show.tokenizer));
    if (!options->tokens && show.tokenizer == NULL)
        return err_set(
            ERR_DATA,
            "%s has no tokenizer.json of tokenizer '%s', so its text "
            "can't be shown; --tokens shows numbers",
            dataset_path(dataset), dataset_sidecar(dataset)->tokenizer);
    for (int64_t i = options->first; i < end; i++) {
        struct dataset_marks marks;
        if (options->stop != NULL && options->stop() != 0)
            break;
        TRY_OUT(scan_read(dataset, i, &tokens, &capacity, &length, &marks));
        for (int64_t t = 0; options->tokens && t < length; t++)
            fprintf(out, t == 0 ? "%d" : " %d", tokens[t]);
        if (options->tokens) {
            fputc('\n', out);
            continue;
        }
        fprintf(out, "==== sample %" PRId64 ": %" PRId64 " tokens ====\n", i,
                length);
        TRY_OUT(show_sample(&show, i == 0, tokens, length, &marks));
    }
out:
    free(tokens);
    tokenizer_destroy(show.tokenizer);
    return rc;
}
