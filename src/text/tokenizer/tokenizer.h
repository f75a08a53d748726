/* Tokenizers: text to token numbers and back.
 *
 * "bytes" is the byte-level tokenizer: token = byte value 0..255, 256 ends a
 * document, vocab_size 257. It loses nothing and needs no file. Every
 * tokenizer has a SHA-256 of its definition, which data sets and checkpoints
 * record, so that tokens are never read with the wrong vocabulary.
 *
 * A tokenizer is read-only once it is made, and any number of threads may use
 * it; each of them encodes with a tokenizer_encoder of its own. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/text/tokenizer/token_list.h"

#define TOKENIZER_DEFAULT "bytes"

struct tokenizer;

/* "bytes", or the path of a tokenizer.json or of a folder that has one.
 * ERR_USAGE lists the names that there are, ERR_DATA names file and place. */
enum err tokenizer_create(const char *name, struct tokenizer **out);
/* From what is in a tokenizer.json, named `name`, with the tokens that begin
 * and end a document, -1: there is none. ERR_DATA also where these are no
 * tokens. */
enum err tokenizer_create_json(const char *name, const char *json, size_t bytes,
                               int32_t bos, int32_t eos,
                               struct tokenizer **out);
void tokenizer_destroy(struct tokenizer *tokenizer);

/* Lent. Of a file its stem, or its folder's name if it is a tokenizer.json. */
const char *tokenizer_name(const struct tokenizer *tokenizer);
/* "bytes": of its definition; of a file: of its bytes. */
const char *tokenizer_sha256(const struct tokenizer *tokenizer);
/* The version of Unicode that texts are divided into words by; "": none. */
const char *tokenizer_unicode(const struct tokenizer *tokenizer);
/* The bytes of the file that it was made of, to travel with what it made,
 * lent; NULL: it was made of none. */
const char *tokenizer_file(const struct tokenizer *tokenizer, size_t *bytes);
/* One more than the highest token. */
int64_t tokenizer_vocab_size(const struct tokenizer *tokenizer);
/* The token that ends a document, and that which begins one; -1: the file (or
 * a tokenizer_config.json beside it) names none. */
int32_t tokenizer_eos(const struct tokenizer *tokenizer);
int32_t tokenizer_bos(const struct tokenizer *tokenizer);
/* The token that is written so, "<|im_end|>"; -1: there is none. */
int32_t tokenizer_find(const struct tokenizer *tokenizer, const char *text);

/* tokenizer_eos() of the built-in one with this SHA-256; -1: there is none. */
int64_t tokenizer_eos_of(const char *sha256);

struct tokenizer_encoder;

/* Lends the tokenizer until it is destroyed. */
enum err tokenizer_encoder_create(const struct tokenizer *tokenizer,
                                  struct tokenizer_encoder **out);
void tokenizer_encoder_destroy(struct tokenizer_encoder *encoder);
/* How many bytes it left out so far, as the Hugging Face library does, because
 * the vocabulary lacks them and names no token for what is unknown. The first
 * time that this happens, or that a character becomes the unknown token, is
 * warned of with what the file lacks: once for a tokenizer. */
uint64_t tokenizer_encoder_lost(const struct tokenizer_encoder *encoder);

enum tokenizer_flag {
    /* special tokens that are written out in the text become theirs, as the
     * Hugging Face library does; else they are text like any other */
    TOKENIZER_SPECIAL = 1,
    /* what the file's post-processor puts before and behind is added */
    TOKENIZER_TEMPLATE = 2,
    /* the text goes on from what tokenizer_cut() cut off before it: a file that
     * puts a blank in front of texts puts none in front of this one */
    TOKENIZER_INSIDE = 4
};

/* Append the tokens of a whole text. Invalid UTF-8 becomes U+FFFD, a
 * replacement for each maximal part of a sequence, where the tokenizer is one
 * of characters ("bytes" takes all). flags: enum tokenizer_flag. */
enum err tokenizer_encode(struct tokenizer_encoder *encoder,
                          const uint8_t *text, size_t bytes, unsigned flags,
                          struct token_list *out);

/* Where a text may be divided so that its parts, encoded one by one, give the
 * tokens of the whole, all but the first with TOKENIZER_INSIDE: the last such
 * place in (0, bytes], which does not depend on what follows; 0: none is known,
 * so more of the text is needed. */
size_t tokenizer_cut(const struct tokenizer *tokenizer, const uint8_t *text,
                     size_t bytes);

/* Bytes of one token, lent; *bytes 0 for the end of a document with "bytes".
 * Special tokens give their text. ERR_DATA for a token outside the
 * vocabulary. */
enum err tokenizer_decode(const struct tokenizer *tokenizer, int32_t token,
                          const uint8_t **text, size_t *bytes);
/* How far the tokens of a text were decoded. Zeros: at its beginning. */
struct tokenizer_decoder {
    bool inside;
};

/* The next token's bytes, as tokenizer_decode(), without the blank that the
 * file puts in front of a text (and behind an added token, of which most such
 * files make it do so): the texts of tokens in a row are the text that they
 * encode, byte for byte. What begins in the middle of a text sets `inside`. */
enum err tokenizer_decode_next(const struct tokenizer *tokenizer,
                               struct tokenizer_decoder *decoder, int32_t token,
                               const uint8_t **text, size_t *bytes);
/* Whether it is one that only stands for itself, such as "<|endoftext|>". */
bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t token);
