/* Writes a GGUF file, version 3: first all keys and the list of tensors, then
 * the tensors' data one after the other, in pieces. The file appears under its
 * name, which nothing may have by then, when it is whole and on disk; until
 * then it is one of output_temporary(). */
#pragma once

#include "src/formats/gguf/gguf.h"

struct gguf_writer;

enum err gguf_writer_create(const char *path, struct gguf_writer **out);
/* Without gguf_writer_finish() nothing stays of the file. */
void gguf_writer_destroy(struct gguf_writer *writer);

/* A key and its value, which has not been there: a number or bool of this kind
 * (`value` points at it), a string, an array of numbers or bools, or of
 * strings. Tensors lie at multiples of GGUF_ALIGNMENT, so no key says another. */
enum err gguf_writer_number(struct gguf_writer *writer, const char *key,
                            enum gguf_kind kind, const void *value);
enum err gguf_writer_string(struct gguf_writer *writer, const char *key,
                            const char *text, size_t bytes);
enum err gguf_writer_text(struct gguf_writer *writer, const char *key,
                          const char *text);
enum err gguf_writer_numbers(struct gguf_writer *writer, const char *key,
                             enum gguf_kind item, const void *items,
                             uint64_t count);
/* An array of strings is begun and its items follow, exactly `count`. */
enum err gguf_writer_strings(struct gguf_writer *writer, const char *key,
                             uint64_t count);
enum err gguf_writer_item(struct gguf_writer *writer, const char *text,
                          size_t bytes);

/* A tensor, dims fastest first. ERR_USAGE where they are no whole blocks. */
enum err gguf_writer_tensor(struct gguf_writer *writer, const char *name,
                            enum gguf_blocks_type type, const uint64_t *dim,
                            unsigned dims);

/* The data of the tensors, in their order: blocks of the tensor's type. What
 * lies between tensors is added. The first call ends keys and tensors. */
enum err gguf_writer_data(struct gguf_writer *writer, const void *data,
                          size_t bytes);
/* All data was given: sync and rename. ERR_USAGE where something has the name
 * by now, which stays. */
enum err gguf_writer_finish(struct gguf_writer *writer);
