/* What a tokenizer is made of. tokenizer_file.c makes one of a file,
 * tokenizer_encode.c encodes with it. */
#ifndef TESSERA_TEXT_TOKENIZER_IMPL_H
#define TESSERA_TEXT_TOKENIZER_IMPL_H

#include "src/text/added.h"
#include "src/text/bpe.h"
#include "src/text/pretoken.h"
#include "src/text/tokenizer.h"
#include "src/text/unicode.h"

#define TOKENIZER_BYTE_VALUES 256

struct tokenizer {
    char name[256];
    char sha256[65];
    uint8_t bytes[TOKENIZER_BYTE_VALUES]; /* what "bytes" decodes to */

    /* of a file; bpe NULL: "bytes" */
    char *file;
    size_t file_bytes;
    struct bpe *bpe;
    struct unicode *unicode;
    struct pretoken *pretoken;
    bool nfc;                       /* texts are normalized */
    struct added *added;            /* found in the text as it is */
    struct added *added_normalized; /* found in what is normalized */
    uint8_t *special;               /* a bit per token */
    int32_t eos, bos;
    struct token_list before, behind; /* what the template adds */
};

/* Fill a tokenizer that is all zeros from the file; `path` is that of a file or
 * of a folder. ERR_DATA names file and place. */
enum err tokenizer_file_load(const char *path, struct tokenizer *tokenizer);

#endif
