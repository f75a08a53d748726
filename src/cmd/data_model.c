/* The tokenizer of --tokenizer NAME: by name, of a file, or of a model. A model's
 * folder has a tokenizer.json that could be read as it is, but which of its tokens
 * end a text is said by the model's numbers, and the two may differ. So a model is
 * asked first, if it is one that we know, and the file is what is left. */
#include "src/cmd/data_cmd.h"

#include <assert.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/fsio.h"
#include "src/formats/weights.h"

#define MODEL_TEMPLATE_BYTES_MAX (1 << 20)

static bool model_has(const char *folder, const char *file)
{
    char path[FSIO_PATH_MAX];
    return fsio_path(path, "%s/%s", folder, file) == ERR_OK &&
           access(path, F_OK) == 0;
}

/* A folder whose tokenizer is a file in it, or the file. */
static bool model_is_file(const char *name)
{
    size_t length = strlen(name);
    return strcmp(name, TOKENIZER_DEFAULT) == 0 ||
           (length > 5 && strcmp(name + length - 5, ".json") == 0) ||
           model_has(name, "tokenizer.json");
}

/* chat_template.jinja in the folder, as transformers writes it. */
static enum err model_folder_template(const char *folder, char **template)
{
    char path[FSIO_PATH_MAX];
    size_t bytes = 0;
    TRY(fsio_path(path, "%s/chat_template.jinja", folder));
    if (access(path, F_OK) != 0)
        return ERR_OK;
    return fsio_read_file(path, MODEL_TEMPLATE_BYTES_MAX, template, &bytes);
}

/* What a data set calls the tokenizer: the last part of the path. */
static const char *model_stem(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash == NULL || slash[1] == '\0' ? name : slash + 1;
}

/* Its tokenizer as the model uses it: with the numbers of the tokens that begin and
 * end its texts, and the template that it was taught with. */
static enum err model_of_weights(const char *name, struct tokenizer **tokenizer,
                                 char **template)
{
    enum err rc = ERR_OK;
    struct weights *weights = NULL;
    TRY_OUT(weights_open(name, &weights));
    const struct weights_about *about = weights_about(weights);
    weights_tokenizer_warn_names(about);
    if (about->tokenizer != NULL)
        TRY_OUT(tokenizer_create_json(model_stem(name), about->tokenizer,
                                      about->tokenizer_bytes, about->bos,
                                      about->eos, tokenizer));
    else if (about->builtin_tokenizer != NULL)
        TRY_OUT(tokenizer_create(about->builtin_tokenizer, tokenizer));
    else {
        rc = err_set(ERR_DATA,
                     "%s: the model has no tokenizer; name its tokenizer.json",
                     name);
        goto out;
    }
    if (template != NULL && about->chat_template != NULL) {
        *template = strdup(about->chat_template);
        if (*template == NULL)
            rc = err_set(ERR_MEMORY, "no memory for a chat template");
    }
out:
    weights_close(weights);
    return rc;
}

enum err data_model_tokenizer(const char *name, struct tokenizer **tokenizer,
                              char **template)
{
    struct stat status;
    assert(template == NULL || *template == NULL);
    if (!model_is_file(name) && stat(name, &status) == 0)
        return model_of_weights(name, tokenizer, template);
    /* A model's numbers say which token ends a text, where names may differ; a
     * model that we lack may still have a tokenizer that we have. */
    if (model_has(name, "config.json") &&
        model_of_weights(name, tokenizer, template) == ERR_OK)
        return ERR_OK;
    TRY(tokenizer_create(name, tokenizer));
    return template == NULL ? ERR_OK : model_folder_template(name, template);
}
