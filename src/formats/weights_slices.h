/* Parameters that a source has as slices, each a tensor of its own
 * (hf_names.h): what is the same for a Hugging Face folder and a GGUF file. */
#pragma once

#include "src/formats/hf/hf_names.h"
#include "src/formats/weights_impl.h"

/* The tensors of a file or folder, by numbers. */
struct weights_slices_file {
    void *arg;
    int count;
    /* Name and shape; dims is 0 where it has neither one nor two. */
    void (*at)(void *arg, int tensor, struct weights_tensor *out);
    int (*find)(void *arg, const char *name); /* -1: there is none */
    /* A tensor that is no parameter and is not to be missed. */
    bool (*is_buffer)(void *arg, const char *name);
    /* Elements [first, first + count) of the tensor. Any thread may. */
    enum err (*read)(void *arg, int tensor, int64_t first, int64_t count,
                     float *out);
};

struct weights_slices;

/* Lists the parameters that are there whole, each slice in its shape, and under
 * their own names, as others, all tensors left that are no buffers. `params`
 * and `names` are borrowed; the list is the source's, whose close() frees
 * it. */
enum err weights_slices_create(const struct weights_slices_file *file,
                               const struct params *params,
                               const struct hf_names *names,
                               struct weights_source *source,
                               struct weights_slices **out);
void weights_slices_destroy(struct weights_slices *slices);

/* As weights_ops.read; ERR_DATA where the tensor is another. Any thread may. */
enum err weights_slices_read(const struct weights_slices *slices, int index,
                             int64_t begin, int64_t end, float *out);
