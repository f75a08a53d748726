/* Files of tensors in the safetensors format, read in place.
 *
 * What is not in order (safetensors_header.c) is refused when the file is
 * opened, so that no later read is out of bounds.
 *
 * A folder has model.safetensors, or several files and
 * model.safetensors.index.json, whose weight_map says which tensor is where. It
 * and the files must agree on every tensor. Its metadata is not read: the
 * total_size there counts differently from program to program. */
#pragma once

#include <stdint.h>

#include "src/base/fsio.h"

#define SAFETENSORS_HEADER_MAX 100000000  /* bytes; the format's own limit */
#define SAFETENSORS_TENSORS_MAX (1 << 20) /* of a folder */
#define SAFETENSORS_SHARDS_MAX 512
#define SAFETENSORS_DIMS_MAX 8
#define SAFETENSORS_FILE "model.safetensors"
#define SAFETENSORS_INDEX "model.safetensors.index.json"

enum safetensors_dtype {
    SAFETENSORS_BOOL,
    SAFETENSORS_U8,
    SAFETENSORS_I8,
    SAFETENSORS_F8_E4M3,
    SAFETENSORS_F8_E5M2,
    SAFETENSORS_I16,
    SAFETENSORS_U16,
    SAFETENSORS_F16,
    SAFETENSORS_BF16,
    SAFETENSORS_I32,
    SAFETENSORS_U32,
    SAFETENSORS_F32,
    SAFETENSORS_I64,
    SAFETENSORS_U64,
    SAFETENSORS_F64,
    SAFETENSORS_DTYPES
};

/* As in files: "F32". */
const char *safetensors_dtype_name(enum safetensors_dtype dtype);
int64_t safetensors_dtype_bytes(enum safetensors_dtype dtype);

struct safetensors_tensor {
    const char *name;
    enum safetensors_dtype dtype;
    int dims; /* 0: a number alone */
    int64_t shape[SAFETENSORS_DIMS_MAX];
    int64_t numel; /* 0 where a side of the shape is */
    int64_t bytes;
    int64_t offset; /* in its file */
    int file;
};

struct safetensors_shard {
    char path[FSIO_PATH_MAX];
    const char *name; /* the path's last part */
    int fd;           /* -1: not open */
    int64_t bytes;
    int64_t data; /* where the header ends */
};

/* Read only. */
struct safetensors {
    struct safetensors_shard *shards;
    int shard_count;
    struct safetensors_tensor *list; /* sorted by name */
    int count;
    int capacity;
};

/* path: a file, or a folder. ERR_DATA names the file, the tensor and what is
 * wrong with it. */
enum err safetensors_open(const char *path, struct safetensors **out);
void safetensors_close(struct safetensors *set);

/* NULL: there is none of that name. */
const struct safetensors_tensor *safetensors_find(const struct safetensors *set,
                                                  const char *name);

/* Elements [first, first + count) as they are in the file. Any thread may. */
enum err safetensors_read(const struct safetensors *set,
                          const struct safetensors_tensor *tensor,
                          int64_t first, int64_t count, void *out);
/* The same as floats, of F32, F16 and BF16 exactly; ERR_UNSUPPORTED names
 * another dtype. */
enum err safetensors_read_f32(const struct safetensors *set,
                              const struct safetensors_tensor *tensor,
                              int64_t first, int64_t count, float *out);
