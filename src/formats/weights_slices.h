/* Parameters that a source has as slices, each a tensor of its own
 * (hf_names.h): what is the same for a Hugging Face folder and a GGUF file. */
#pragma once

#include "src/formats/hf/hf_files.h"
#include "src/formats/hf/hf_names.h"
#include "src/formats/weights_impl.h"

/* The tensors of a file or folder, by numbers. */
struct weights_slices_file {
    void *arg;
    int count;
    /* Name and shape; dims is 0 where it has neither one nor two. */
    void (*at)(void *arg, int tensor, struct weights_tensor *out);
    int (*find)(void *arg, const char *name); /* -1: there is none */
    /* A tensor that is no parameter and is not to be missed; NULL: there are
     * none. */
    bool (*is_buffer)(void *arg, const char *name);
    /* Elements [first, first + count) of the tensor. Any thread may. */
    enum err (*read)(void *arg, int tensor, int64_t first, int64_t count,
                     float *out);
};

/* Lists the parameters of the source's configuration that are there whole, each
 * slice by its name in `form` and in its shape, and under their own names, as
 * others, all tensors left that are no buffers. The list and source->slices are
 * the source's, whose close() frees them. ERR_UNSUPPORTED: as hf_names_create(). */
enum err weights_slices_create(const struct weights_slices_file *file,
                               const struct arch_form *form,
                               struct weights_source *source);
void weights_slices_destroy(struct weights_slices *slices);

/* As weights_ops.read. Any thread may. */
enum err weights_slices_read(struct weights_source *source, int index,
                             int64_t begin, int64_t end, float *out);

/* What the tokenizer's files, which stay, and the text of a config.json (NULL:
 * none) say of a MODEL whose configuration is known: about->vocab and all from
 * `tokenizer` to `named_eos`; *generation, which the caller frees, is that of
 * about. ERR_DATA also where there are more tokens than rows. */
enum err weights_slices_tokens(const struct hf_files *files, const char *path,
                               const char *config, size_t bytes,
                               struct weights_about *about, char **generation);
