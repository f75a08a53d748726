/* Our side of hf.sh.
 *
 *   tensors list PATH             name, dtype, shape and CRC-32C of each tensor
 *   tensors copy PATH DIR LIMIT   all of them, files of at most LIMIT bytes
 *   tensors convert PATH DIR TYPE all, through floats: F32, F16, BF16
 *   tensors config DIR            architecture and its config.json, as we write
 *                                 it
 *   tensors names DIR             the tensors that such a model has
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/digest.h"
#include "src/base/fsio.h"
#include "src/base/new.h"
#include "src/formats/hf/hf_config.h"
#include "src/formats/hf/hf_names.h"
#include "src/formats/safetensors/safetensors_writer.h"

static void print_shape(const int64_t *shape, int dims)
{
    for (int i = 0; i < dims; i++)
        printf("%s%lld", i == 0 ? "" : "x", (long long)shape[i]);
}

static enum err read_whole(const struct safetensors *set,
                           const struct safetensors_tensor *tensor, void **out)
{
    *out = malloc((size_t)tensor->bytes + 1);
    if (*out == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    return safetensors_read(set, tensor, 0, tensor->numel, *out);
}

static enum err list(const struct safetensors *set)
{
    enum err rc = ERR_OK;
    for (int i = 0; i < set->count && rc == ERR_OK; i++) {
        void *data = NULL;
        const struct safetensors_tensor *t = &set->list[i];
        rc = read_whole(set, t, &data);
        printf("%s %s ", t->name, safetensors_dtype_name(t->dtype));
        print_shape(t->shape, t->dims);
        if (rc == ERR_OK)
            printf(" %08x\n", crc32c(0, data, (size_t)t->bytes));
        free(data);
    }
    return rc;
}

/* dtype: SAFETENSORS_DTYPES keeps what each is. */
static enum err copy(const struct safetensors *set, const char *folder,
                     int64_t limit, enum safetensors_dtype dtype)
{
    enum err rc = ERR_OK;
    int count = set->count;
    struct safetensors_writer *writer = NULL;
    struct safetensors_tensor *all = NULL;
    TRY(new_zeroed(&all, (size_t)count));
    for (int i = 0; i < count; i++) {
        all[i] = *&set->list[i];
        if (dtype != SAFETENSORS_DTYPES)
            all[i].dtype = dtype;
    }
    TRY_OUT(safetensors_writer_create(folder, all, count, limit, &writer));
    for (int i = 0; i < count && rc == ERR_OK; i++) {
        const struct safetensors_tensor *t = &set->list[i];
        void *data = malloc((size_t)t->numel * 8 + 1);
        if (data == NULL)
            rc = err_set(ERR_MEMORY, "out of memory");
        else if (dtype == SAFETENSORS_DTYPES)
            rc = safetensors_read(set, t, 0, t->numel, data);
        else
            rc = safetensors_read_f32(set, t, 0, t->numel, data);
        if (rc == ERR_OK && dtype == SAFETENSORS_DTYPES)
            rc = safetensors_writer_append(writer, data, t->bytes);
        else if (rc == ERR_OK)
            rc = safetensors_writer_append_f32(writer, data, t->numel);
        free(data);
    }
    if (rc == ERR_OK)
        rc = safetensors_writer_finish(writer);
out:
    safetensors_writer_destroy(writer);
    free(all);
    return rc;
}

static enum err with_set(int argc, char **argv)
{
    struct safetensors *set = NULL;
    TRY(safetensors_open(argv[2], &set));
    enum err rc = err_set(ERR_USAGE, "wrong arguments");
    if (strcmp(argv[1], "list") == 0)
        rc = list(set);
    else if (strcmp(argv[1], "copy") == 0 && argc == 5)
        rc = copy(set, argv[3], strtoll(argv[4], NULL, 10), SAFETENSORS_DTYPES);
    else if (strcmp(argv[1], "convert") == 0 && argc == 5)
        rc = copy(set, argv[3], INT64_C(1) << 40,
                  strcmp(argv[4], "F32") == 0   ? SAFETENSORS_F32
                  : strcmp(argv[4], "F16") == 0 ? SAFETENSORS_F16
                                                : SAFETENSORS_BF16);
    safetensors_close(set);
    return rc;
}

static enum err print_names(enum arch arch, const struct model_config *model)
{
    struct params *params = NULL;
    struct hf_names *names = NULL;
    TRY(params_create(model, &params));
    enum err rc = hf_names_create(&arch_rows[arch].hf, model, params,
                                  model->vocab_size, &names);
    for (int i = 0; rc == ERR_OK && i < names->count; i++) {
        printf("%s ", names->list[i].name);
        print_shape(names->list[i].shape, names->list[i].dims);
        printf("\n");
    }
    hf_names_destroy(names);
    params_destroy(params);
    return rc;
}

static enum err with_config(char **argv)
{
    enum arch arch;
    struct model_config model;
    char *text = NULL;
    char path[FSIO_PATH_MAX];
    size_t bytes;
    TRY(fsio_path(path, "%s/config.json", argv[2]));
    TRY(fsio_read_file(path, 1 << 20, &text, &bytes));
    TRY(hf_config_parse(text, bytes, path, &arch, &model));
    free(text);
    text = NULL;
    if (strcmp(argv[1], "names") == 0)
        return print_names(arch, &model);
    TRY(hf_config_text(arch, &model, "float32", &text));
    printf("%s\n", text);
    free(text);
    return ERR_OK;
}

int main(int argc, char **argv)
{
    enum err rc = err_set(ERR_USAGE, "wrong arguments");
    if (argc == 3 &&
        (strcmp(argv[1], "config") == 0 || strcmp(argv[1], "names") == 0))
        rc = with_config(argv);
    else if (argc >= 3)
        rc = with_set(argc, argv);
    if (rc != ERR_OK)
        fprintf(stderr, "tensors: %s\n", err_text());
    return err_exit_code(rc);
}
