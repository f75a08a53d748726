/* Reading a tokenizer.json: values with their place in the file, for errors. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "src/base/err.h"
#include "src/text/tokenizer/tokenizer_impl.h"

/* A JSON value and where it is: "model.merges[3]". */
struct tokenizer_node {
    const char *path; /* of the file */
    char place[160];
    const json_t *value; /* NULL: it is not there */
};

/* A member, with value NULL if there is none or it is null. */
struct tokenizer_node tokenizer_reader_member(const struct tokenizer_node *node,
                                              const char *key);
struct tokenizer_node
tokenizer_reader_element(const struct tokenizer_node *node, size_t index);

/* ERR_DATA "FILE: PLACE: ...". */
enum err tokenizer_reader_refuse(const struct tokenizer_node *node,
                                 const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* An object with these keys and no others; the list ends with NULL. */
enum err tokenizer_reader_keys(const struct tokenizer_node *node,
                               const char *const *keys);
/* Those of a ByteLevel, whatever it is a part of. */
extern const char *const tokenizer_reader_byte_level[];
/* A member that must be there, or has this value if it is not. */
enum err tokenizer_reader_string(const struct tokenizer_node *node,
                                 const char *key, const char **out);
enum err tokenizer_reader_bool(const struct tokenizer_node *node,
                               const char *key, bool otherwise, bool *out);
/* A whole number in [0, INT32_MAX). */
enum err tokenizer_reader_token(const struct tokenizer_node *node,
                                int32_t *out);
/* The text of a "pattern": {"String": ..}. */
enum err tokenizer_reader_pattern(const struct tokenizer_node *node,
                                  const char **out);

/* A Metaspace, as pre-tokenizer and as decoder. */
struct tokenizer_metaspace {
    const char *mark;
    enum pretoken_prepend prepend;
    bool split;
};

enum err tokenizer_reader_metaspace(const struct tokenizer_node *node,
                                    struct tokenizer_metaspace *out);
/* Keeps what is said of bytes that have no token, `count` of them. */
enum err tokenizer_reader_lacks(const struct tokenizer_node *root,
                                unsigned count, unsigned first,
                                const char *what, struct tokenizer_lacks **out);
enum err tokenizer_reader_array(const struct tokenizer_node *node);
enum err tokenizer_reader_object(const struct tokenizer_node *node);

struct tokenizer_decode;

/* The keys of the file. model and added_tokens, of which the latter's numbers follow the former's,
 * after all parts but the post-processor. */
enum err tokenizer_model_read(const struct tokenizer_node *root,
                              const struct tokenizer_decode *decode,
                              struct tokenizer *tokenizer);

enum err tokenizer_parts_normalizer(const struct tokenizer_node *root,
                                    struct tokenizer *tokenizer);
enum err tokenizer_parts_pre_tokenizer(const struct tokenizer_node *root,
                                       struct tokenizer *tokenizer);
enum err tokenizer_parts_decoder(const struct tokenizer_node *root,
                                 const struct tokenizer *tokenizer,
                                 struct tokenizer_decode *decode);
/* After the model. */
enum err tokenizer_parts_post_processor(const struct tokenizer_node *root,
                                        struct tokenizer *tokenizer);
