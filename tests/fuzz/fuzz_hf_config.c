/* config.json of any bytes: refused, or a model that our limits allow, which is
 * written and read again as the same. The same bytes as files of a tokenizer:
 * refused, or tokens that there are. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/formats/hf/hf_config.h"
#include "src/formats/hf/hf_files.h"
#include "src/formats/hf/hf_names.h"

#define NAMES_LAYERS_MAX 8
#define NAMES_EXPERTS_MAX 16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_model(enum arch arch, const struct model_config *model)
{
    char *text = NULL;
    enum arch again = ARCHS;
    struct model_config read;
    assert(model_config_check(model) == ERR_OK);
    enum err rc = hf_config_text(arch, model, "float32", &text);
    assert(rc == ERR_OK || rc == ERR_UNSUPPORTED);
    if (rc == ERR_OK) {
        rc = hf_config_parse(text, strlen(text), "again", &again, &read);
        assert(rc == ERR_OK && again == arch);
        assert(hf_config_difference(model, &read) == NULL);
    }
    free(text);
}

static void check_names(enum arch arch, const struct model_config *model)
{
    struct params *params = NULL;
    struct hf_names *names = NULL;
    if (model->n_layers > NAMES_LAYERS_MAX ||
        model->experts > NAMES_EXPERTS_MAX)
        return;
    if (params_create(model, &params) == ERR_OK &&
        hf_names_create(&arch_rows[arch].hf, model, params, model->vocab_size,
                        &names) == ERR_OK) {
        int64_t numel = 0;
        for (int i = 0; i < names->count; i++)
            numel += names->list[i].shape[0] *
                     (names->list[i].dims == 2 ? names->list[i].shape[1] : 1);
        assert(numel == params->numel);
    }
    hf_names_destroy(names);
    params_destroy(params);
}

static void check_files(char *text, size_t bytes)
{
    struct hf_tokens tokens = { .generation = NULL };
    char *name = NULL;
    const struct hf_files files = {
        .text = { text, text, NULL, text },
        .bytes = { bytes, bytes, 0, bytes },
    };
    if (hf_files_tokens(&files, "fuzz", text, bytes, &tokens) != ERR_OK)
        return;
    assert(tokens.bos < tokens.vocab || tokens.vocab == 0);
    assert(tokens.eos < tokens.vocab || tokens.vocab == 0);
    free(tokens.generation);
    if (hf_files_token_text(&files, "fuzz", tokens.eos, false, &name) == ERR_OK)
        free(name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    enum arch arch = ARCHS;
    struct model_config model;
    char *text = malloc(bytes + 1);
    if (text == NULL)
        return 0;
    log_init("fuzz", -1, LOG_ERROR);
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    if (hf_config_parse(text, bytes, "config.json", &arch, &model) == ERR_OK) {
        check_model(arch, &model);
        check_names(arch, &model);
    }
    check_files(text, bytes);
    free(text);
    return 0;
}
