/* What a tokenizer is made of. tokenizer_file.c makes one of a file,
 * tokenizer_encode.c encodes with it. */
#pragma once

#include <stdatomic.h>

#include "src/text/tokenizer/added.h"
#include "src/text/tokenizer/bpe.h"
#include "src/text/tokenizer/normalizer.h"
#include "src/text/tokenizer/pretoken.h"
#include "src/text/tokenizer/tokenizer.h"
#include "src/text/unicode.h"

#define TOKENIZER_BYTE_VALUES 256

/* What is known of a token: enum tokenizer_about. */
enum tokenizer_about {
    TOKENIZER_IS_SPECIAL = 1,
    TOKENIZER_IS_ADDED = 2,  /* and no word gives it */
    TOKENIZER_IS_BORDER = 4, /* ... and what follows has a mark in front */
    TOKENIZER_IS_MERGED = 8  /* a merge gives it */
};

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
    struct normalizer *normalizer;
    struct added *added;            /* found in the text as it is */
    struct added *added_normalized; /* found in what is normalized */
    uint8_t *about;                 /* flags of each token */
    bool byte_level;
    /* of characters: what a blank is written as. marks_break: no merge goes
     * across where one follows another character, so that a word begins there */
    char mark[5];
    bool marks_break;
    bool marks_split;   /* ... by the pre-tokenizer */
    bool blanks_marked; /* they become marks */
    bool added_across;  /* an added token has a mark behind something else */
    bool prepends;      /* a mark comes in front of a text */
    int32_t eos, bos;
    struct token_list before, behind; /* what the template adds */
    struct tokenizer_lacks *lacks;    /* NULL: every byte has a token */
};

/* What is said, by the first encoder that meets one, of bytes without a token.
 */
struct tokenizer_lacks {
    char text[512];
    atomic_flag told;
};

/* Fill a tokenizer that is all zeros from the file; `path` is that of a file or
 * of a folder. ERR_DATA names file and place. */
enum err tokenizer_file_load(const char *path, struct tokenizer *tokenizer);
/* All but names and the tokens eos and bos, of a file's content; `name` is what
 * messages call it. */
enum err tokenizer_file_json(const char *name, const char *json, size_t bytes,
                             struct tokenizer *tokenizer);
