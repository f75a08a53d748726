/* Opens the data sets of a mixture, which must be of one tokenizer: a token's
 * number means the same in all of them, or the model would learn two languages in
 * one vocabulary. What identifies a mixture is a digest of names and ids in the
 * order of the setting, for the order of streams decides which sample stands
 * where. */
#include "src/train/start/run_data.h"

#include <assert.h>
#include <string.h>

#include "src/base/digest.h"
#include "src/data/set/dataset.h"

static enum err same_tokenizer(const struct dataset *one,
                               const struct dataset *other)
{
    if (strcmp(dataset_sidecar(one)->tokenizer_sha256,
               dataset_sidecar(other)->tokenizer_sha256) != 0)
        return err_set(ERR_DATA,
                       "%s: made with another tokenizer than %s: tokenize both "
                       "with the same",
                       dataset_path(other), dataset_path(one));
    if (dataset_sidecar(one)->vocab_size == dataset_sidecar(other)->vocab_size)
        return ERR_OK;
    return err_set(
        ERR_DATA,
        "%s: its vocabulary has %lld tokens, that of %s %lld: adopt "
        "both with the same --vocab-size",
        dataset_path(other), (long long)dataset_sidecar(other)->vocab_size,
        dataset_path(one), (long long)dataset_sidecar(one)->vocab_size);
}

static enum err identify(struct run_data *data)
{
    enum err rc = ERR_OK;
    struct digest *digest = NULL;
    TRY(digest_create(&digest));
    int first = data->count - data->text.count; /* data.eval has no name */
    for (int i = 0; i < data->count; i++) {
        const char *name = i < first ? "" : data->text.entries[i - first].name;
        const char *id = dataset_id(data->sets[i]);
        TRY_OUT(digest_update(digest, name, strlen(name) + 1));
        TRY_OUT(digest_update(digest, id, strlen(id) + 1));
    }
    TRY_OUT(digest_finish(digest, data->id));
out:
    digest_destroy(digest);
    return rc;
}

enum err run_data_mixture(const struct train_settings *s, bool held_out,
                          const void *images, struct run_data *data)
{
    char path[FSIO_PATH_MAX];
    assert(data->count == (held_out ? 1 : 0));
    TRY(run_data_parse(s, held_out, &data->text));
    for (int i = 0; i < data->text.count; i++) {
        struct dataset **set = &data->sets[data->count];
        TRY(run_data_folder(s, &data->text.entries[i], held_out, path));
        TRY(err_prefix(run_data_open_set(s, path, images, set),
                       "%s: %s, below data.train = %s",
                       held_out ? "eval.sets" : "data.mixture",
                       data->text.entries[i].name, s->data.train));
        data->count++;
        TRY(same_tokenizer(data->sets[0], *set));
    }
    return identify(data);
}
