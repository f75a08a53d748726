/* Writes tensors one after the other into model.safetensors, or, where they
 * would be more than a limit, into model-00001-of-0000N.safetensors with
 * model.safetensors.index.json, as Hugging Face's libraries do. What is in
 * memory is the headers. A file has its name when it is whole and on the disk,
 * the index comes last. */
#pragma once

#include "src/formats/safetensors/safetensors.h"

#define SAFETENSORS_SHARD_BYTES 5000000000 /* of data, by default */

struct safetensors_writer;

/* `list`: name, dtype, dims and shape of what will be written, in this order;
 * names differ. A tensor is never divided: one of more than shard_bytes_max
 * has a file alone. The folder exists and holds no model yet: else ERR_SPACE
 * names what is there. */
enum err safetensors_writer_create(const char *folder,
                                   const struct safetensors_tensor *list,
                                   int count, int64_t shard_bytes_max,
                                   struct safetensors_writer **out);
/* The next bytes of this tensor, not beyond its end. */
enum err safetensors_writer_append(struct safetensors_writer *writer,
                                   const void *data, int64_t bytes);
/* The next elements of this tensor, which is of F32, F16 or BF16, rounded to
 * nearest. ERR_NUMERIC: a finite value is beyond F16's largest, 65504. */
enum err safetensors_writer_append_f32(struct safetensors_writer *writer,
                                       const float *data, int64_t count);
/* All has been appended: the last file and the index are on the disk. */
enum err safetensors_writer_finish(struct safetensors_writer *writer);
/* Unless finished, removes the file that is not whole. */
void safetensors_writer_destroy(struct safetensors_writer *writer);
